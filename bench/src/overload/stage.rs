//! What every experiment needs: the server on its core, a backend and a fault gate, and open-loop load on the other.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fanin_load::fault_injector::FaultInjector;
use fanin_load::{Arrivals, LoadError, Outcome, Plan, Request, Shape};
use tokio::runtime::Runtime;

use crate::load::{self, Session};
use crate::process::{self, Server, Usage};
use crate::{Failure, servers};

/// Connections of the load. More than the server could ever work on at once.
const CONNECTIONS: usize = 512;

/// Enough that the server is hardly idle while some of them wait for the backend, and below what makes it refuse.
const PEAK_CONNECTIONS: usize = 10;

/// A server with all around it. Dropping it ends them.
pub struct Stage {
    pub fanin: Server,
    pub stub: Server,
    pub gate: FaultInjector,
    admin: SocketAddr,
    runtime: Runtime,
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        Failure::Wrong(format!("load: {error}"))
    }
}

impl Stage {
    /// Starts all of it.
    pub fn new() -> Result<Stage, Failure> {
        let stub = servers::stub()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let gate = runtime.block_on(FaultInjector::start(stub.addr, 1))?;
        let (fanin, admin) = server(&stub, gate.addr())?;
        Ok(Stage { fanin, stub, gate, admin, runtime })
    }

    /// A new process of the server, as cold as one can be. The old one ends.
    pub fn restart(&mut self) -> Result<(), Failure> {
        let (fanin, admin) = server(&self.stub, self.gate.addr())?;
        (self.fanin, self.admin) = (fanin, admin);
        Ok(())
    }

    /// Runs something on the load's runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// A plan for load on a path: independent users, the same ones each time.
    pub fn plan(&self, path: &str, shape: Shape) -> Result<Plan, Failure> {
        let mut plan = Plan::new(Request::get(&format!("http://{}{path}", self.fanin.addr))?, shape);
        plan.arrivals = Arrivals::Poisson { seed: 7 };
        plan.connections = CONNECTIONS;
        plan.timeout = Duration::from_secs(5);
        Ok(plan)
    }

    /// Offers so many requests a second for so long.
    pub fn offer(&self, path: &str, rate: f64, lasts: Duration) -> Result<Outcome, Failure> {
        self.run(&self.plan(path, Shape::constant(rate, lasts))?)
    }

    /// Runs a plan to its end.
    pub fn run(&self, plan: &Plan) -> Result<Outcome, Failure> {
        Ok(self.block_on(fanin_load::run(plan, |_| ()))?)
    }

    /// Runs several at once.
    pub fn run_all<const N: usize>(&self, plans: [&Plan; N]) -> Result<[Outcome; N], Failure> {
        let all = plans.map(|plan| fanin_load::run(plan, |_| ()));
        let outcomes = self.block_on(futures_util::future::try_join_all(all))?;
        outcomes.try_into().map_err(|_| Failure::Wrong("a load got lost".into()))
    }

    /// The most that the server does a second, whatever is offered, and the CPU time of a request: measured by a closed loop of
    /// so few connections that nobody is refused, and then by offering about as much as fits into a second of CPU time.
    pub fn peak(&self, path: &str, lasts: Duration) -> Result<(f64, Duration), Failure> {
        let plan = load::Plan {
            addr: self.fanin.addr,
            request: load::get(path),
            connections: PEAK_CONNECTIONS,
            least_body: 1,
        };
        let mut session = Session::connect(plan)?;
        let mut edges: Vec<std::io::Result<Usage>> = Vec::new();
        session.window(Duration::from_millis(300), lasts / 2, || edges.push(self.fanin.usage()))?;
        let figures = session.figures();
        drop(session);
        let mut edges = edges.into_iter().flatten();
        let cpu = match (edges.next(), edges.next()) {
            (Some(before), Some(after)) => after.cpu.saturating_sub(before.cpu),
            _ => return Err(Failure::Wrong("the server's CPU time cannot be read".into())),
        };
        if figures.errors > 0 || figures.requests == 0 {
            return Err(Failure::Wrong(format!("{path}: {} wrong responses at the peak", figures.errors)));
        }
        let cpu = cpu.div_f64(figures.requests as f64);
        let mut peak = figures.rate;
        for share in [0.9, 1.1, 1.3] {
            peak = peak.max(self.offer(path, share / cpu.as_secs_f64(), lasts / 2)?.goodput);
        }
        // Whoever comes now finds a server that has refused nobody for a while.
        process::pause(Duration::from_millis(1500));
        Ok((peak, cpu))
    }

    /// The sum of the server's metrics whose line begins so.
    pub fn metric(&self, begins: &str) -> Result<f64, Failure> {
        let (_, page) = load::once(self.admin, &load::get("/metrics"), Duration::from_secs(10))?;
        let page = String::from_utf8_lossy(&page).into_owned();
        let values = page.lines().filter(|line| line.starts_with(begins));
        Ok(values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    /// Reloads the server's configuration.
    pub fn reload(admin: SocketAddr) -> Result<(), Failure> {
        let request = b"POST /reload HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n";
        match load::once(admin, request, Duration::from_secs(10))? {
            (200, _) => Ok(()),
            (status, body) => Err(Failure::Wrong(format!("reload: {status} {}", String::from_utf8_lossy(&body)))),
        }
    }

    /// Where the server is told to reload.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Requests that have reached the backend so far. Asking is one as well.
    pub fn reached(&self) -> Result<u64, Failure> {
        servers::counter(self.stub.addr, "requests")
    }
}

fn server(stub: &Server, shaky: SocketAddr) -> Result<(Server, SocketAddr), Failure> {
    let mut command = servers::fanin_command(&Path::new(env!("CARGO_MANIFEST_DIR")).join("overload"))?;
    let (listen, admin) = (process::free_port()?, process::free_port()?);
    command.env("FANIN_BENCH_LISTEN", listen.to_string()).env("FANIN_BENCH_ADMIN", admin.to_string());
    command.env("FANIN_BENCH_BACKEND", stub.addr.to_string()).env("FANIN_BENCH_FAILING", stub.addr.to_string());
    command.env("FANIN_BENCH_SHAKY", shaky.to_string());
    Ok((Server::command_with("fanin", listen, &[admin], command, Duration::from_secs(10))?, admin))
}
