//! Our own servers: the stubs, the baseline, and Fanin with a configuration of the benchmarks.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::process::{self, OTHER_CORE, SERVER_CORE, Server};

/// The HTTP/1.1 backend, on the load's core.
pub fn stub() -> Result<Server, Failure> {
    Ok(Server::role("stub", OTHER_CORE, &["stub"])?)
}

/// The HTTP/2 backend, on the load's core.
pub fn stub2() -> Result<Server, Failure> {
    Ok(Server::role("stub2", OTHER_CORE, &["stub2"])?)
}

/// The hand-written aggregator in front of `backend`.
pub fn baseline(name: &str, backend: &Server) -> Result<Server, Failure> {
    Ok(Server::role(name, SERVER_CORE, &["baseline", "--backend", &backend.addr.to_string()])?)
}

/// Fanin with the configuration in `bench/DIR`, in front of `backend` and of `second`, if it has two.
pub fn fanin(dir: &str, backend: &Server, second: Option<&Server>) -> Result<Server, Failure> {
    fanin_with(dir, backend, second, &[])
}

/// The same with further variables for its configuration.
pub fn fanin_with(
    dir: &str,
    backend: &Server,
    second: Option<&Server>,
    variables: &[(&str, &str)],
) -> Result<Server, Failure> {
    let addrs = [Some(backend), second].map(|server| server.map(|server| server.addr.to_string()).unwrap_or_default());
    let mut all = vec![("FANIN_BENCH_BACKEND", addrs[0].as_str())];
    if second.is_some() {
        all.push(("FANIN_BENCH_SECOND", &addrs[1]));
    }
    all.extend(variables);
    alone(dir, &all)
}

/// Another build of `fanin` with the configuration in `bench/DIR`.
pub fn fanin_of(program: &Path, dir: &str, backend: &Server, variables: &[(&str, &str)]) -> Result<Server, Failure> {
    let addr = backend.addr.to_string();
    let all: Vec<_> = [("FANIN_BENCH_BACKEND", addr.as_str())].into_iter().chain(variables.iter().copied()).collect();
    start(Some(program), dir, &all)
}

/// Fanin with the configuration in `bench/DIR`, which has no upstream, and further variables for it.
pub fn alone(dir: &str, variables: &[(&str, &str)]) -> Result<Server, Failure> {
    start(None, dir, variables)
}

fn start(program: Option<&Path>, dir: &str, variables: &[(&str, &str)]) -> Result<Server, Failure> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let mut command = fanin_command_of(program, &dir)?;
    let listen = process::free_port()?;
    // Who wants to know the address of the admin pages gives one.
    let given = variables.iter().find(|(name, _)| *name == "FANIN_BENCH_ADMIN");
    let admin = match given.and_then(|(_, address)| address.parse().ok()) {
        Some(admin) => admin,
        None => process::free_port()?,
    };
    command.env("FANIN_BENCH_LISTEN", listen.to_string()).env("FANIN_BENCH_ADMIN", admin.to_string());
    command.envs(variables.iter().copied());
    Ok(Server::command_with("fanin", listen, &[admin], command, Duration::from_secs(10))?)
}

/// `fanin serve DIR` on the server's core.
pub fn fanin_command(dir: &Path) -> Result<Command, Failure> {
    fanin_command_of(None, dir)
}

/// The same with another build of `fanin`.
pub fn fanin_command_of(program: Option<&Path>, dir: &Path) -> Result<Command, Failure> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("fanin"),
    };
    if !program.exists() {
        return Err(Failure::Usage(format!("{} is not built: use bench/run", program.display())));
    }
    let mut command = process::on_core(SERVER_CORE, program);
    command.arg("serve").arg(dir).stdout(Stdio::null());
    Ok(command)
}

/// A number of the stub's counters.
pub fn counter(stub: SocketAddr, name: &str) -> Result<u64, Failure> {
    let (_, body) = crate::load::once(stub, &crate::load::get("/counters"), Duration::from_secs(10))?;
    let counters: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    counters[name].as_u64().ok_or_else(|| Failure::Wrong(format!("the stub does not count `{name}`")))
}
