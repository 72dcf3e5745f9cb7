//! `keepalive`: an instance vanishes without a word.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::chart::{Axis, Series, bars};
use super::client::Client;
use super::error::LabError;
use super::outcome::{Found, Table};
use super::process::{Served, pause};
use super::stub::{Reply, Stub};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "keepalive",
    title: "An instance vanishes without closing its connections",
    asked: "Clients of the antispam team give a call 50 ms, then try another instance. Yet whenever the service was \
    rolled in Kubernetes they hung for 20 s, the library's default keepalive timeout: the connection to the removed \
    instance still counted as good. Keepalive settings cured it. How long does it take here, with and without?",
    run,
};

const CALL: Duration = Duration::from_millis(50);
/// Between two requests.
const EVERY: Duration = Duration::from_millis(20);

/// A relay whose connections can be made to fall silent for ever, as those to a vanished host; new ones pass.
struct Relay {
    addr: SocketAddr,
    frozen: watch::Sender<u64>,
}

impl Relay {
    async fn open(to: SocketAddr) -> Result<Relay, LabError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(LabError::io("opening a relay"))?;
        let addr = listener.local_addr().map_err(LabError::io("opening a relay"))?;
        let (frozen, seen) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut seen = seen.clone();
                let born = *seen.borrow_and_update();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(to).await else { return };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        // Both ends stay open, and nothing moves any more.
                        () = silence(&mut seen, born) => std::future::pending().await,
                    }
                });
            }
        });
        Ok(Relay { addr, frozen })
    }

    fn freeze(&self) {
        self.frozen.send_modify(|epoch| *epoch += 1);
    }
}

async fn silence(frozen: &mut watch::Receiver<u64>, born: u64) {
    // An error means that the relay is gone, and with it the experiment.
    let _ = frozen.wait_for(|epoch| *epoch > born).await;
}

/// What a client saw after the instance vanished.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    requests: u32,
    failed: u32,
    /// Seconds from the moment when it vanished to the last failure.
    until: f64,
    /// Whether the last requests were answered.
    well: bool,
}

/// Asks every 20 ms for a while; freezes the relay in between.
fn ask(relay: &Relay, time: Duration, mut one: impl FnMut() -> bool) -> Result<Seen, LabError> {
    for _ in 0..20 {
        if !one() {
            return Err(LabError::wrong("a request failed before the instance vanished"));
        }
        pause(EVERY);
    }
    relay.freeze();
    let start = Instant::now();
    let mut seen = Seen { requests: 0, failed: 0, until: 0.0, well: true };
    while start.elapsed() < time {
        seen.requests += 1;
        seen.well = one();
        if !seen.well {
            seen.failed += 1;
            seen.until = start.elapsed().as_secs_f64();
        }
        pause(EVERY);
    }
    Ok(seen)
}

/// A plain HTTP/2 client on one connection, which it makes anew once it knows that the old one is dead.
struct Plain {
    runtime: Arc<tokio::runtime::Runtime>,
    addr: SocketAddr,
    /// Interval and timeout of pings.
    pings: Option<(Duration, Duration)>,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Plain {
    fn one(&mut self) -> bool {
        let runtime = self.runtime.clone();
        let ask = async {
            if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
                self.sender = Some(self.connect().await?);
            }
            let sender = self.sender.as_mut()?;
            let request = Request::get(format!("http://{}/", self.addr)).body(Empty::new()).ok()?;
            let response = sender.send_request(request).await.ok()?;
            response.into_body().collect().await.ok()
        };
        runtime.block_on(async { tokio::time::timeout(CALL, ask).await.ok().flatten().is_some() })
    }

    async fn connect(&self) -> Option<SendRequest<Empty<Bytes>>> {
        let stream = TcpStream::connect(self.addr).await.ok()?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        if let Some((interval, timeout)) = self.pings {
            builder.keep_alive_interval(interval).keep_alive_timeout(timeout).keep_alive_while_idle(true);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }
}

fn fanin(context: &Context, relay: &Relay, time: Duration, more: &str) -> Result<Seen, LabError> {
    let toml = format!(
        "[upstreams.model]\nurl = 'http://{}'\nhttp = '2'\ntimeout = '50ms'\n{more}\
         [[routes]]\npath = '/'\nflow = 'flow.star:score'\n",
        relay.addr
    );
    let star = "load(\"@upstreams\", \"model\")\ndef score(req):\n    return model.get(\"/\")\n";
    let served = Served::start(&context.program, 1, &toml, star)?;
    let mut client = Client::connect(served.addr)?;
    let mut broken = None;
    let seen = ask(relay, time, || match client.get("/") {
        Ok((status, _)) => status == 200,
        Err(error) => {
            broken = Some(error);
            false
        }
    })?;
    broken.map_or(Ok(seen), Err)
}

fn run(context: &Context) -> Result<Found, LabError> {
    let time = context.pick(Duration::from_secs(4), Duration::from_secs(25));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = Arc::new(runtime.map_err(LabError::io("a runtime"))?);
    let stub = Stub::start(true, |_| Reply::json(Duration::from_millis(1), "{\"spam\": false}"))?;
    let plain = |pings| {
        let relay = runtime.block_on(Relay::open(stub.addr))?;
        let mut client = Plain { runtime: runtime.clone(), addr: relay.addr, pings, sender: None };
        ask(&relay, time, || client.one())
    };
    let served = |more: &str| fanin(context, &runtime.block_on(Relay::open(stub.addr))?, time, more);
    let (plain, served, second) = (&plain, &served, Duration::from_secs(1));
    // Each has an instance of its own, and all four together ask 200 times a second.
    let [without, pings, defaults, tight] = std::thread::scope(|scope| {
        [
            scope.spawn(|| plain(None)),
            scope.spawn(move || plain(Some((second, second)))),
            scope.spawn(|| served("")),
            scope.spawn(|| served("keepalive = '1s'\nkeepalive_timeout = '100ms'\n")),
        ]
        .map(|client| client.join().unwrap_or(Err(LabError::wrong("a thread panicked"))))
    });
    let rows = [
        ("plain HTTP/2 client, its defaults (no pings)", without?, "20 s, and each time it rolled"),
        ("the same with pings each second, answered within a second", pings?, "cured"),
        ("fanin, its defaults", defaults?, ""),
        ("fanin, keepalive = '1s', keepalive_timeout = '100ms'", tight?, ""),
    ];
    let mut found = Found::default();
    let mut table = Table::new(
        format!(
            "a request each 20 ms for {} s after the instance vanished; a new one answers at the same address",
            time.as_secs()
        ),
        &["client", "requests", "failed", "failed until s", "well again", "story: hung for"],
    );
    for (name, seen, story) in &rows {
        table.row([
            (*name).to_owned(),
            seen.requests.to_string(),
            seen.failed.to_string(),
            if seen.well { format!("{:.2}", seen.until) } else { format!("over {}", time.as_secs()) },
            if seen.well { "yes" } else { "no" }.to_owned(),
            (*story).to_owned(),
        ]);
    }
    found.tables.push(table);
    let until = |seen: &Seen| if seen.well { seen.until.max(0.01) } else { time.as_secs_f64() };
    let defaults = rows[2].1;
    found.at_most("fanin with its defaults: seconds until all is well", until(&defaults), 2.0, " s");
    let svg = bars(
        "Seconds of failures after an instance vanished",
        &["plain", "plain, pings", "fanin", "fanin, tight"],
        Axis::log("s"),
        &[
            Series::new(
                "here (the first one as long as it was watched)",
                rows.iter().enumerate().map(|(at, row)| (at as f64, until(&row.1))).collect(),
            ),
            Series::story("story, default", vec![(0.0, 20.0)]),
        ],
    );
    found.plots.push(("Without pings a client cannot know that its connection is dead.".into(), svg));
    found.shows = format!(
        "A client without pings still failed after {} s, although a healthy instance answered at the same address. \
        Fanin with its defaults recovered after {:.1} s.",
        time.as_secs(),
        until(&defaults)
    );
    found.measured(format!(
        "A proxy stands in front of an HTTP/2 backend. At one moment all open connections fall silent without FIN or \
        reset, as when a host is gone. New connections are served. Each client makes one call after another with a \
        timeout of {} ms.",
        CALL.as_millis()
    ));
    found.note(
        "Fanin pings at intervals, and at once when a call times out on a silent connection. So its defaults (10 s, 1 \
        s) act within about a second. The story's 20 s are that library's default. A client that relies on TCP alone \
        may take a quarter of an hour.",
    );
    Ok(found)
}
