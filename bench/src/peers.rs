//! Servers that users would pick instead. Each is optional: `bench/peers/setup NAME` installs it, `--peers NAME` takes it in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Failure;
use crate::load;
use crate::process::{self, SERVER_CORE, Server};
use crate::workload::{self, Workload};

/// Names of all peers, in the order of the table.
pub const NAMES: [&str; 7] = ["nginx-lua", "nginx-lua-concat", "go", "node", "tailcall", "webflux", "mvc"];

/// How a server is asked.
#[derive(Debug)]
pub struct Peer {
    name: String,
    command: Option<Command>,
    addr: SocketAddr,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The paths of [`Workload::target`].
    Plain,
    /// Only the page.
    Page,
    /// Only the page, below another path.
    Concat,
    /// One GraphQL query a work.
    Graphql,
    /// The paths of [`Workload::target`], after half a minute of compiling.
    Java,
}

impl Peer {
    /// Fanin or the limit, started elsewhere.
    pub fn ours(name: &str) -> Self {
        Self { name: name.into(), command: None, addr: SocketAddr::from(([127, 0, 0, 1], 0)), kind: Kind::Plain }
    }

    /// The same, for the page alone.
    pub fn page_of_ours(name: &str) -> Self {
        Self { kind: Kind::Page, ..Self::ours(name) }
    }

    /// Whether it can do this work.
    pub fn does(&self, work: Workload) -> bool {
        !matches!(self.kind, Kind::Page | Kind::Concat) || work == Workload::Page
    }

    /// How long it takes to be as fast as it gets.
    pub fn warm(&self) -> Duration {
        Duration::from_secs(match self.kind {
            Kind::Java => 30,
            _ if self.name == "node" => 4,
            _ => 1,
        })
    }

    /// The request of a work.
    pub fn request(&self, work: Workload) -> Vec<u8> {
        match self.kind {
            Kind::Plain | Kind::Page | Kind::Java => load::get(work.target()),
            Kind::Concat => load::get("/pagec/12345"),
            Kind::Graphql => graphql(work),
        }
    }

    /// What it wraps the right answer in.
    pub fn wrap(&self) -> fn(Workload, Value) -> Value {
        if self.kind == Kind::Graphql { workload::graphql } else { workload::bare }
    }

    /// Starts it on the server's core.
    pub fn start(&self) -> Result<Server, Failure> {
        let Some(command) = &self.command else { return Err(Failure::Wrong(format!("{} has no command", self.name))) };
        // `Command` cannot be cloned; the copy has the same program, arguments, folder and variables.
        let mut copy = process::on_core(SERVER_CORE, Path::new(command.get_program()));
        copy.args(command.get_args());
        copy.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        if let Some(dir) = command.get_current_dir() {
            copy.current_dir(dir);
        }
        copy.stdout(Stdio::null());
        Ok(Server::command(&self.name, self.addr, copy, Duration::from_secs(60))?)
    }
}

/// The peer of this name in front of `backend`.
pub fn find(name: &str, backend: SocketAddr) -> Result<Peer, Failure> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers"));
    let addr = process::free_port()?;
    let (program, dir, kind, args): (PathBuf, PathBuf, Kind, Vec<String>) = match name {
        "nginx-lua" | "nginx-lua-concat" => {
            let kind = if name == "nginx-lua" { Kind::Plain } else { Kind::Concat };
            let dir = root.join("nginx");
            (dir.join("start"), dir, kind, vec![])
        }
        "go" => (root.join("go/peer"), root.join("go"), Kind::Plain, vec![]),
        "node" => ("node".into(), root.join("node"), Kind::Plain, vec!["server.mjs".into()]),
        "tailcall" => (root.join("tailcall/start"), root.join("tailcall"), Kind::Graphql, vec![]),
        "webflux" | "mvc" => (root.join("spring/start"), root.join("spring"), Kind::Java, vec![name.into()]),
        _ => return Err(Failure::Usage(format!("no peer `{name}`; there are {}", NAMES.join(", ")))),
    };
    if program.is_absolute() && !program.exists() {
        return Err(Failure::Usage(format!("peer `{name}` is not installed: run bench/peers/setup {name}")));
    }
    let mut command = Command::new(program);
    command.args(args).current_dir(dir);
    command.env("PEER_PORT", addr.port().to_string()).env("PEER_BACKEND_PORT", backend.port().to_string());
    Ok(Peer { name: name.into(), command: Some(command), addr, kind })
}

fn graphql(work: Workload) -> Vec<u8> {
    let query = match work {
        Workload::Page => {
            r#"{"query":"query($id:ID!){a(id:$id) b(id:$id) c(id:$id) d(id:$id) e(id:$id)}","variables":{"id":"12345"}}"#
        }
        Workload::Search => r#"{"query":"query($q:String!){search(q:$q){vacancies}}","variables":{"q":"x"}}"#,
        Workload::Raw => r#"{"query":"{raw}"}"#,
    };
    let head = "POST /graphql HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: ";
    format!("{head}{}\r\n\r\n{query}", query.len()).into_bytes()
}
