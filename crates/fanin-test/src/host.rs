//! The host of a test's functions: what `@test` works on.

use std::any::Any;
use std::rc::Rc;

use fanin_lang::{CallSite, Failure, Host, HostCall, Kind, PendingValue, Program, ProgramOrder};

use crate::response::Received;
use crate::snapshots::Snapshots;
use crate::world::World;

/// One running test.
pub(crate) struct TestHost {
    pub(crate) world: World,
    pub(crate) program: Program,
    pub(crate) snapshots: Snapshots,
    /// The name of the test, with its case.
    pub(crate) name: String,
    /// Responses so far, for reports.
    pub(crate) received: Vec<Rc<Received>>,
    /// What it printed.
    pub(crate) output: String,
    /// How many assertions it has made.
    pub(crate) assertions: u64,
}

impl Host for TestHost {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure> {
        let name = call.object.name();
        let hint = "send a request to a route: get(\"/...\"); stub(...) says what its calls are answered";
        Err(Failure::new(Kind::Host, format!("a test does not call {name} itself")).with_hint(hint))
    }

    fn barrier(&mut self, _: &ProgramOrder) -> Option<PendingValue> {
        None
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn print(&mut self, text: &str, site: CallSite) {
        let position = self.program.position(site);
        self.output.push_str(&format!("{}:{}: {text}\n", position.file, position.line));
    }
}

use fanin_lang::Value;
