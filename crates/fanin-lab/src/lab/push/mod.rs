//! `push`: clients that wait for events, each on a thread of its own, and on connections without threads.

mod clients;
mod threads;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::chart::{Axis, Series, lines};
use super::coroutines::{kernel_bytes, most_threads};
use super::error::LabError;
use super::outcome::{Found, Table, digits, median};
use super::process::{Role, Served, Usage, cores, on_cores, pause};
use super::{Context, Experiment};
use clients::Clients;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "push",
    title: "Clients that wait for events hold no thread",
    asked: "The job site's service is blocking, with a thread for each request. Pushes to long-lived connections go \
    through the non-blocking side instead, so that a connection holds no thread. What would a thread for each \
    connection cost, and how soon does an event reach all clients?",
    run,
};

/// Is in every event once, and in nothing else that is sent.
const MARK: u8 = b'~';
const STEPS: [usize; 4] = [100, 1_000, 5_000, 10_000];
/// Files of the server and of the clients besides the connections.
const OTHER_FILES: u64 = 200;

const TOML: &str = "[push]\nmax_subscribers = 100000\n\
    [[routes]]\npath = '/events'\nflow = 'flow.star:events'\n\
    [[routes]]\npath = '/publish'\nmethod = 'POST'\nflow = 'flow.star:publish'\n";
const STAR: &str = "
load(\"@push\", \"push\")

def events(req):
    return push.subscribe(\"news\")

def publish(req):
    return {\"id\": push.publish(\"news\", req.body)}
";

/// The blocking server, as a process of its own. It prints its address and serves until it is ended.
pub(super) fn role() -> Result<(), LabError> {
    threads::serve(|addr| {
        let mut out = std::io::stdout().lock();
        let told = writeln!(out, "{addr}").and_then(|()| out.flush());
        told.map_err(LabError::io("telling the address"))
    })
}

/// One of the two servers.
enum Server {
    Threads(Role),
    Fanin(Served),
}

impl Server {
    fn start(program: &Path, threads: bool) -> Result<Server, LabError> {
        match threads {
            true => Role::start(program, &["push-threads"]).map(Server::Threads),
            false => Served::start(program, 1, TOML, STAR).map(Server::Fanin),
        }
    }

    fn addr(&self) -> SocketAddr {
        match self {
            Server::Threads(role) => role.addr,
            Server::Fanin(served) => served.addr,
        }
    }

    fn usage(&self) -> Result<Usage, LabError> {
        match self {
            Server::Threads(role) => role.usage(),
            Server::Fanin(served) => served.usage(),
        }
    }
}

/// What a server needs for so many clients.
#[derive(Clone, Debug)]
struct Held {
    clients: usize,
    threads: u64,
    /// Bytes more than without clients, with stacks in the kernel.
    bytes: u64,
    /// Seconds until the last client has an event, of some events.
    last: Vec<f64>,
    /// CPU seconds of an event.
    cpu: f64,
}

/// Clients come in steps; after each, some events are published.
fn measure(server: &Server, steps: &[usize], rounds: usize) -> Result<Vec<Held>, LabError> {
    // What the first client needs is not the price of those that follow.
    let mut clients = Clients::new(server.addr())?;
    clients.grow(1)?;
    clients.publish()?;
    let bytes = || -> Result<u64, LabError> { Ok(server.usage()?.resident + kernel_bytes()) };
    let rest = bytes()?;
    let mut held = Vec::new();
    for count in steps {
        clients.grow(*count)?;
        let bytes = bytes()?.saturating_sub(rest);
        clients.publish()?;
        let before = server.usage()?;
        let mut last = Vec::new();
        for _ in 0..rounds {
            last.push(clients.publish()?);
            pause(std::time::Duration::from_millis(20));
        }
        let after = server.usage()?;
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / rounds as f64;
        held.push(Held { clients: *count, threads: after.threads, bytes, last, cpu });
    }
    Ok(held)
}

/// Raises the limit of open files, also of children; how many clients it allows.
fn most_files() -> usize {
    let limit = getrlimit(Resource::Nofile).maximum;
    // A lower limit only makes the run smaller.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |files| usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX))
}

fn run(context: &Context) -> Result<Found, LabError> {
    let rounds = context.pick(5, 20);
    let steps = context.pick(&STEPS[..2], &STEPS[..]);
    let files = most_files();
    let all = cores();
    let (first, last) = (*all.first().unwrap_or(&0), *all.last().unwrap_or(&0));
    let kinds = [("a thread each", true, files.min(most_threads())), ("Fanin's channels", false, files)];
    let mut results: Vec<Vec<Held>> = Vec::new();
    let mut found = Found::default();
    for (name, threads, most) in kinds {
        let possible: Vec<usize> = steps.iter().copied().filter(|step| *step <= most).collect();
        if possible.len() < steps.len() {
            found.note(format!("{name}: at most {most} clients fit into the limits of this machine."));
        }
        let server = on_cores(&[first], || Server::start(&context.program, threads))??;
        results.push(on_cores(&[last], || measure(&server, &possible, rounds))??);
    }
    report(&mut found, &kinds.map(|(name, ..)| name), &results, rounds);
    Ok(found)
}

fn report(found: &mut Found, names: &[&str; 2], results: &[Vec<Held>], rounds: usize) {
    let mut table = Table::new(
        "Clients that wait, and one event to all of them",
        &[
            "clients",
            "connections",
            "threads",
            "MB more",
            "KB a client",
            "last client has it, median ms",
            "worst ms",
            "CPU ms an event",
        ],
    );
    let clients = results.iter().flatten().map(|held| held.clients).collect::<std::collections::BTreeSet<_>>();
    for count in clients {
        for (name, held) in names.iter().zip(results) {
            let Some(held) = held.iter().find(|held| held.clients == count) else { continue };
            table.row([
                count.to_string(),
                (*name).to_owned(),
                held.threads.to_string(),
                digits(held.bytes as f64 / 1e6),
                digits(held.bytes as f64 / count as f64 / 1024.0),
                digits(median(&held.last) * 1e3),
                digits(held.last.iter().copied().fold(0.0, f64::max) * 1e3),
                digits(held.cpu * 1e3),
            ]);
        }
    }
    found.tables.push(table);
    for (title, unit, caption, figure) in [
        (
            "Memory of clients that wait",
            "MB",
            "A thread holds a stack in the process and one in the kernel; a channel's subscriber holds a place in a log.",
            (|held: &Held| held.bytes as f64 / 1e6) as fn(&Held) -> f64,
        ),
        (
            "One event, until the last client has it",
            "ms",
            "Median, with server and clients on a core each.",
            |held: &Held| median(&held.last) * 1e3,
        ),
    ] {
        let series: Vec<Series> = names
            .iter()
            .zip(results)
            .map(|(name, held)| {
                Series::new(*name, held.iter().map(|held| (held.clients as f64, figure(held).max(0.01))).collect())
            })
            .collect();
        let svg = lines(title, Axis::log("clients"), Axis::log(unit), &series);
        found.plots.push((caption.to_owned(), svg));
    }
    let [threads, fanin] = results else { return };
    let constant = fanin.iter().all(|held| Some(held.threads) == fanin.first().map(|held| held.threads));
    let counts: Vec<String> = fanin.iter().map(|held| held.threads.to_string()).collect();
    found.holds("the number of fanin's threads does not depend on the clients", counts.join(", "), constant);
    if let (Some(threads), Some(fanin)) = (threads.last(), fanin.last()) {
        found.shows = format!(
            "{} clients on threads take {} threads and {:.1} KB each, and an event reaches the last after {} ms. {} on \
             Fanin's channels take {} threads and {:.1} KB each, and the last has it after {} ms.",
            threads.clients,
            threads.threads,
            threads.bytes as f64 / threads.clients as f64 / 1024.0,
            digits(median(&threads.last) * 1e3),
            fanin.clients,
            fanin.threads,
            fanin.bytes as f64 / fanin.clients as f64 / 1024.0,
            digits(median(&fanin.last) * 1e3),
        );
    }
    found.measured(format!(
        "Clients hold a `text/event-stream` over HTTP/1.1 and wait. A server with a thread for each connection, whose \
         threads wait on a condition for the next event, is beside `fanin serve` with one worker and `push.subscribe`. \
         Each has one core, and the clients, all on one thread, another. Memory is the growth of the server's process \
         and of the kernel's stacks; sockets in the kernel are not counted, and both have the same. Then {rounds} events \
         of 100 bytes are published one after another.",
    ));
    found.note("The story has no figures for this. The server on threads has no limits, heartbeats or log of events.");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server on threads in this process, which its threads outlive.
    fn threads() -> SocketAddr {
        let (sender, addr) = std::sync::mpsc::channel();
        std::thread::spawn(move || threads::serve(|addr| sender.send(addr).map_err(|_| LabError::wrong("gone"))));
        addr.recv().unwrap()
    }

    #[test]
    fn every_client_on_a_thread_has_every_event() {
        let mut clients = Clients::new(threads()).unwrap();
        for count in [1, 30, 100] {
            clients.grow(count).unwrap();
            for _ in 0..3 {
                assert!(clients.publish().unwrap() > 0.0);
            }
        }
    }

    #[test]
    fn a_server_that_is_gone_is_told() {
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Clients::new(addr).unwrap().grow(1).unwrap_err().to_string();
        assert!(error.contains("ended or refused"), "{error}");
    }

    #[test]
    fn steps_that_do_not_fit_are_left_out() {
        let held =
            |clients, threads| Held { clients, threads, bytes: 1 << 20, last: vec![0.002, 0.001, 0.003], cpu: 0.001 };
        let results = [vec![held(100, 101)], vec![held(100, 3), held(1000, 3)]];
        let mut found = Found::default();
        report(&mut found, &["threads", "channels"], &results, 3);
        assert_eq!(found.tables[0].rows.len(), 3);
        assert_eq!(found.tables[0].rows[0][..6], ["100", "threads", "101", "1.05", "10.2", "2.00"]);
        assert!(found.bars[0].holds && found.plots.len() == 2 && found.shows.contains("1000 on"), "{}", found.shows);
    }
}
