//! Processes under test: starting them on a core, and reading what they use from `/proc`.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The core of the server under test.
pub const SERVER_CORE: usize = 0;
/// The core of everything else.
pub const OTHER_CORE: usize = 1;

/// A child process that is ended when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// What it is called in tables.
    pub name: String,
    /// Where it listens.
    pub addr: SocketAddr,
    child: Child,
}

/// What a process (with its children) has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time, user and system, of all threads.
    pub cpu: Duration,
    /// CPU time in user mode, to the clock's tick.
    pub user: Duration,
    /// Resident memory now, bytes.
    pub rss: u64,
    /// Highest resident memory, bytes.
    pub peak: u64,
    /// Threads.
    pub threads: u64,
}

/// The monotonic clock, which all processes share, in nanoseconds.
pub fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Runs this thread, and the children and threads that it starts, on one core.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// A port that was free a moment ago, outside of the range from which the kernel takes ports of outgoing connections.
///
/// Within that range, a client that polls a port nobody listens on yet can be connected to itself (TCP's simultaneous open):
/// the server seems ready, and its own `bind` fails or the next connection is refused.
pub fn free_port() -> io::Result<SocketAddr> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = *OUTGOING_PORTS.start();
    let below = FIRST_PORT..first.max(FIRST_PORT);
    // Processes begin at different ports, and each port is tried once.
    let offset = std::process::id() as usize * 101;
    for _ in 0..below.len() {
        let at = (offset + usize::from(TRIED.fetch_add(1, Relaxed))) % below.len();
        let port = below.start + at as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr();
        }
    }
    // All ports are outgoing ones; `is_ready` recognizes a connection to itself.
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

const FIRST_PORT: u16 = 10_000;

/// Ports of outgoing connections.
static OUTGOING_PORTS: LazyLock<RangeInclusive<u16>> = LazyLock::new(|| {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = text.split_whitespace().filter_map(|port| port.parse().ok());
    ports.next().unwrap_or(32_768)..=ports.next().unwrap_or(60_999)
});

/// Whether a server takes connections.
fn is_ready(addr: SocketAddr) -> bool {
    TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_ok_and(|stream| !is_connected_to_itself(&stream))
}

/// See [`free_port`].
fn is_connected_to_itself(stream: &TcpStream) -> bool {
    stream.local_addr().is_ok_and(|local| stream.peer_addr().is_ok_and(|peer| peer == local))
}

impl Server {
    /// Starts this program in another role (`stub`, `baseline`), which prints its address on its first line.
    pub fn role(name: &str, core: usize, args: &[&str]) -> io::Result<Self> {
        let mut command = on_core(core, &std::env::current_exe()?);
        let mut child = command.args(args).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim().parse() {
            Ok(addr) => Ok(Self { name: name.into(), addr, child }),
            Err(_) => {
                // It has said why on stderr.
                drop(child.kill());
                drop(child.wait());
                Err(io::Error::other(format!("{name} did not start")))
            }
        }
    }

    /// Starts a command on a core and waits until `addr` takes connections.
    pub fn command(name: &str, addr: SocketAddr, command: Command, patience: Duration) -> io::Result<Self> {
        Self::command_with(name, addr, &[], command, patience)
    }

    /// The same of a program that listens on `also`, too: it need not open all its ports at the same moment.
    pub fn command_with(
        name: &str,
        addr: SocketAddr,
        also: &[SocketAddr],
        mut command: Command,
        patience: Duration,
    ) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{name}: {}: {error}", command.get_program().display()))
        })?;
        let end = Instant::now() + patience;
        let is_complete = || also.iter().chain([&addr]).all(|addr| is_ready(*addr));
        while !is_complete() {
            let ended = child.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                drop(child.kill());
                drop(child.wait());
                let why = ended.map_or("it does not listen".into(), |status| format!("it ended, {status}"));
                return Err(io::Error::other(format!("{name} at {addr}: {why}")));
            }
            pause(Duration::from_millis(2));
        }
        Ok(Self { name: name.into(), addr, child })
    }

    /// The same under another name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // `taskset` becomes the program, so that the child is the server itself.
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Kills it, as it stands.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// What it has used so far.
    pub fn usage(&self) -> io::Result<Usage> {
        usage(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ended_already = kill_process(pid, Signal::TERM);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            pause(Duration::from_millis(5));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sleeps: this process serves nobody, so nobody waits for its thread.
#[allow(clippy::disallowed_methods)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A command that runs `program` on one core, whatever core this process is on.
pub fn on_core(core: usize, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program.as_ref());
    command
}

/// What a process and its children have used so far.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let mut sum = Usage::default();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    sum.rss = field("VmRSS:") * 1024;
    sum.peak = field("VmHWM:") * 1024;
    sum.threads = field("Threads:");
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // A thread may end between the listing and the reading.
        nanos += fs::read_to_string(task.join("schedstat")).map_or(0, |text| first_number(&text));
        let children = fs::read_to_string(task.join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            if let Ok(used) = usage(child) {
                sum.cpu += used.cpu;
                sum.user += used.user;
                sum.rss += used.rss;
                sum.peak += used.peak;
                sum.threads += used.threads;
            }
        }
    }
    // `schedstat` counts nanoseconds, of living threads; `stat` counts 10 ms, of ended threads too. Neither overstates.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    sum.cpu += Duration::from_nanos(nanos).max(ticks(&stat, 2));
    sum.user += ticks(&stat, 1);
    Ok(sum)
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The first so many of user and system time of `/proc/PID/stat`; the name before them may hold spaces and parentheses.
fn ticks(stat: &str, times: usize) -> Duration {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(times).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work_and_not_with_sleep() {
        let before = usage(std::process::id()).unwrap();
        let mut x = 1u64;
        let start = Instant::now();
        // Until the kernel has charged some time, however busy the machine is.
        while usage(std::process::id()).unwrap().cpu < before.cpu + Duration::from_millis(30) {
            x = std::hint::black_box(x.wrapping_mul(3));
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert!(before.rss > 0 && before.peak >= before.rss && before.threads >= 1);
    }

    #[test]
    fn a_client_that_waits_for_a_server_is_not_connected_to_itself() {
        let ports: Vec<u16> = (0..100).map(|_| free_port().unwrap().port()).collect();
        if *OUTGOING_PORTS.start() > FIRST_PORT {
            assert!(ports.iter().all(|port| !OUTGOING_PORTS.contains(port)), "{ports:?}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Nobody listens, and yet the connection succeeds: its source port is its destination.
        let stream = runtime.block_on(async {
            let (socket, addr) = (tokio::net::TcpSocket::new_v4().unwrap(), free_port().unwrap());
            socket.bind(addr).unwrap();
            socket.connect(addr).await.unwrap().into_std().unwrap()
        });
        assert!(is_connected_to_itself(&stream));
    }

    #[test]
    fn a_server_has_started_when_all_its_ports_are_open() {
        let (first, last) = (free_port().unwrap(), free_port().unwrap());
        let _first = TcpListener::bind(first).unwrap();
        let opened = std::thread::spawn(move || {
            pause(Duration::from_millis(100));
            TcpListener::bind(last).unwrap()
        });
        let mut command = Command::new("sleep");
        command.arg("60");
        let server = Server::command_with("sleep", first, &[last], command, Duration::from_secs(30)).unwrap();
        assert!(is_ready(last));
        assert_eq!(server.addr, first);
        drop(opened.join().unwrap());
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 9 9 20 0 1";
        let tick = Duration::from_millis(1000 / rustix::param::clock_ticks_per_second());
        assert_eq!((ticks(stat, 2), ticks(stat, 1)), (200 * tick, 150 * tick));
    }
}
