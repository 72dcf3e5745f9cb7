//! `stream`: one large body from a backend through Fanin's `stream(...)` and through nginx's `proxy_pass`, interleaved.
//!
//! The servers have core 0, the backend and the client share core 1. The client reads into one buffer and throws the bytes away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{self, OTHER_CORE, SERVER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, servers};

/// Bytes of the body, and with `--quick`.
const SIZE: u64 = 1 << 30;
const QUICK_SIZE: u64 = 50 << 20;
/// Fanin's throughput is at least this share of nginx's.
const LEAST_SHARE: f64 = 0.8;
/// A body may add this much memory.
const MOST_MEMORY_MB: f64 = 2.0;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let (size, rounds) = if options.quick { (QUICK_SIZE, 3) } else { (SIZE, 9) };
    let backend = Server::role("large", OTHER_CORE, &["large", "--size", &size.to_string()])?;
    let fanin = servers::fanin("stream", &backend, None)?;
    let nginx = Nginx::start(backend.addr)?;
    let both = [&fanin, &nginx.server];
    for server in both {
        // Connections and buffers are there before anything is measured.
        get(server.addr, size)?;
    }
    let before = fanin.usage()?;
    let mut seconds = [Vec::new(), Vec::new()];
    let mut highest = before.rss;
    let mut cpu = [Duration::ZERO; 2];
    for round in 0..rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let used = both[at].usage()?.cpu;
            let mut watch = || -> Result<(), Failure> {
                if at == 0 {
                    highest = highest.max(fanin.usage()?.rss);
                }
                Ok(())
            };
            seconds[at].push(get_watched(both[at].addr, size, &mut watch)?.as_secs_f64());
            cpu[at] += both[at].usage()?.cpu - used;
        }
    }
    let mut report = Report::new("stream");
    let title = format!("One body of {} MB, {rounds} times, interleaved", size >> 20);
    let mut table = Table::new(&title, &["server", "median MB/s", "CPU ms per GB", "resident MB"]);
    let rate = |times: &[f64]| size as f64 / 1e6 / median(times.iter().copied());
    for (at, server) in both.into_iter().enumerate() {
        let gigabytes = size as f64 / 1e9 * f64::from(rounds);
        table.rows.push(vec![
            server.name.clone(),
            format!("{:.0}", rate(&seconds[at])),
            format!("{:.0}", cpu[at].as_secs_f64() * 1e3 / gigabytes),
            format!("{:.1}", server.usage()?.rss as f64 / 1e6),
        ]);
    }
    report.tables.push(table);
    let share = median(seconds[0].iter().zip(&seconds[1]).map(|(fanin, nginx)| nginx / fanin));
    let bar = format!("throughput at least {LEAST_SHARE} of nginx's");
    report.holds(&bar, format!("{share:.2}"), share >= LEAST_SHARE);
    let more = highest.saturating_sub(before.rss) as f64 / 1e6;
    report.at_most("memory while bodies pass, more than before", more, MOST_MEMORY_MB, " MB");
    report.data["seconds"] = json!({"fanin": seconds[0], "nginx": seconds[1]});
    Ok(report)
}

/// Serves a body of so many bytes at any path, one thread a connection.
pub fn serve(size: u64, ready: impl FnOnce(SocketAddr)) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    ready(listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || answer(stream, size));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, size: u64) -> Option<()> {
    let part = vec![b'x'; 256 << 10];
    let mut buffer = [0; 4096];
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
            head.extend_from_slice(&buffer[..count]);
        }
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {size}\r\n\r\n")
            .ok()?;
        let mut left = size;
        while left > 0 {
            let now = left.min(part.len() as u64);
            stream.write_all(&part[..now as usize]).ok()?;
            left -= now;
        }
    }
}

fn get(addr: SocketAddr, size: u64) -> Result<Duration, Failure> {
    get_watched(addr, size, &mut || Ok(()))
}

/// Reads the whole body; how long that took. `watch` is called some times meanwhile.
fn get_watched(
    addr: SocketAddr,
    size: u64,
    watch: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Duration, Failure> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let began = Instant::now();
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut buffer = vec![0; 256 << 10];
    let (mut head, mut came, mut watched) = (Vec::new(), None, 0);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        match &mut came {
            Some(came) => {
                *came += count as u64;
                if *came / (size / 8).max(1) > watched {
                    watched += 1;
                    watch()?;
                }
            }
            None => {
                head.extend_from_slice(&buffer[..count]);
                if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                    came = Some((head.len() - end - 4) as u64);
                }
            }
        }
    }
    let took = began.elapsed();
    let status = head.starts_with(b"HTTP/1.1 200");
    if status && came == Some(size) {
        return Ok(took);
    }
    let shown = String::from_utf8_lossy(&head[..head.len().min(200)]).into_owned();
    Err(Failure::Wrong(format!("{addr}: {came:?} bytes of {size} came: {shown}")))
}

/// Debian's nginx in front of the backend, in a folder of its own.
struct Nginx {
    // First: nginx removes a file of its folder when it ends.
    server: Server,
    _folder: Folder,
}

/// Removed when it is dropped.
struct Folder(PathBuf);

impl Nginx {
    fn start(backend: SocketAddr) -> Result<Self, Failure> {
        let dir = std::env::temp_dir().join(format!("fanin-bench-{}-nginx", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let folder = Folder(dir.clone());
        let listen = process::free_port()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("stream/nginx.conf");
        let config = std::fs::read_to_string(source)?
            .replace("DIR", &dir.to_string_lossy())
            .replace("BACKEND", &backend.to_string())
            .replace("LISTEN", &listen.to_string());
        std::fs::write(dir.join("nginx.conf"), config)?;
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new).into_iter().find(|path| path.exists());
        let program = program.ok_or_else(|| Failure::Usage("nginx is not installed: run .ci/setup nginx".into()))?;
        let mut command: Command = process::on_core(SERVER_CORE, program);
        command.arg("-p").arg(&dir).arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg("stderr");
        let server = Server::command("nginx", listen, command, Duration::from_secs(10))?;
        Ok(Nginx { server, _folder: folder })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
