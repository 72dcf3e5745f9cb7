//! The cache of a route's responses: a worker in paused time, with clients in the same process.
//!
//! Longer than 500 lines because each rule of the cache has its request and its response here, over one small server.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_config::{ResponseCache, Server};
use http::{Method, StatusCode};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::access_log::{LogThread, WorkerLog};
use crate::admission::Limiters;
use crate::cache::{Caches, Outcome};
use crate::{Aborted, Body, BodyStream, Options, Request, Response, RouteSpec, connection};

const SECOND: Duration = Duration::from_secs(1);

type Origin = Box<dyn FnMut(&Request) -> (Duration, Response)>;

thread_local! {
    static ORIGIN: RefCell<Option<Origin>> = const { RefCell::new(None) };
    /// What the origin has seen.
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct App(Server, RouteSpec);

impl Application for App {
    type Worker = Answers;

    fn server(&self) -> &Server {
        &self.0
    }

    fn routes(&self) -> Vec<RouteSpec> {
        let other = RouteSpec { methods: vec![Method::POST], cache: None, ..self.1.clone() };
        vec![self.1.clone(), other]
    }

    fn worker(self: &Arc<App>, _: WorkerContext) -> Answers {
        Answers
    }
}

struct Answers;

impl Worker for Answers {
    type Future = Pin<Box<dyn Future<Output = Response>>>;

    fn handle(&self, request: Request) -> Self::Future {
        let condition = request.headers.get("if-none-match").map(|tag| format!(" {}", tag.to_str().unwrap()));
        let seen = format!("{} {}{}", request.method, request.uri.path(), condition.unwrap_or_default());
        SEEN.with_borrow_mut(|all| all.push(seen));
        let (pause, response) = ORIGIN.with_borrow_mut(|origin| origin.as_mut().unwrap()(&request));
        Box::pin(async move {
            let _permit = request.permit;
            sleep(pause).await;
            response
        })
    }
}

/// A stream of these parts, a second before each.
struct Parts(Vec<&'static str>, Pin<Box<tokio::time::Sleep>>);

impl BodyStream for Parts {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        std::task::ready!(self.1.as_mut().poll(cx));
        self.1 = Box::pin(sleep(SECOND));
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Poll::Ready(next.map(|part| match part {
            "!" => Err(Aborted("as it should")),
            part => Ok(Frame::data(Bytes::from_static(part.as_bytes()))),
        }))
    }
}

#[derive(Clone)]
struct Served(Rc<WorkerState<App>>);

impl Served {
    /// Status, headers and body, or nothing if the response is not complete.
    async fn send(&self, request: &str) -> String {
        let (client, server) = tokio::io::duplex(64 << 10);
        connection::start_in_process(&self.0, server);
        let (mut read, mut write) = tokio::io::split(client);
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let headers = headers.replace('\n', "\r\n");
        let end = if headers.is_empty() { "" } else { "\r\n" };
        let head = format!("{line} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}{end}\r\n");
        write.write_all(head.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        let _ = read.read_to_end(&mut response).await;
        // Encoded bodies are no text.
        String::from_utf8_lossy(&response).into_owned()
    }

    async fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path}")).await
    }

    fn counted(&self, outcome: Outcome) -> u64 {
        let page = self.0.generation().routes[0].stats.clone();
        page.cached_times(outcome)
    }
}

/// What the origin has seen since the last look.
fn seen() -> Vec<String> {
    SEEN.take()
}

fn is(response: &str, parts: &[&str]) {
    for part in parts {
        assert!(response.contains(part), "{part} is not in {response}");
    }
}

fn response(lines: &[(&'static str, &'static str)], body: impl Into<Body>) -> Response {
    let mut response = Response::new(StatusCode::OK, body);
    for (name, value) in lines {
        response.headers.append(*name, http::HeaderValue::from_static(value));
    }
    response
}

/// A worker whose route has this cache, in front of this origin.
fn served<F: Future<Output = ()>>(
    cache: ResponseCache,
    change: impl FnOnce(&mut RouteSpec),
    origin: impl FnMut(&Request) -> (Duration, Response) + 'static,
    run: impl FnOnce(Served) -> F,
) {
    let mut route = RouteSpec { cache: Some(cache), timeout: 10 * SECOND, ..RouteSpec::new(Method::GET, "/{*rest}") };
    change(&mut route);
    ORIGIN.set(Some(Box::new(origin)));
    SEEN.take();
    let server = Server { queueing: None, ..Server::default() };
    let (limiters, caches) = (Arc::new(Limiters::new()), Arc::new(Caches::new()));
    let generation = Arc::new(Generation::new(Arc::new(App(server, route)), None, &limiters, &caches).unwrap());
    let metrics = Metrics::new(Options::default().build, 1, limiters, caches);
    let (log, _log_thread) = LogThread::start(&AccessLog::Off).unwrap();
    let (heartbeat, stats) = (Arc::<Heartbeat>::default(), metrics.worker(0));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(async move {
        let memory = MemoryPressure(metrics.memory.clone());
        let context = WorkerContext { index: 0, workers: 1, activity: Activity(heartbeat.clone()), memory };
        let generation = WorkerGeneration::new(generation, &metrics, context);
        let log = WorkerLog::new(log, stats.clone());
        let worker =
            WorkerState::new(generation, heartbeat, stats, log, Arc::new(AtomicUsize::new(1_000)), &metrics, 1);
        spawn_local(worker.timeouts.clone().run());
        spawn_local(worker.response_batch.writer());
        spawn_local(housekeeping(worker.clone()));
        run(Served(worker)).await;
    });
}

fn plain() -> ResponseCache {
    ResponseCache { ttl: Some(60 * SECOND), ..ResponseCache::default() }
}

#[test]
fn a_fresh_response_is_sent_again_and_a_stale_one_is_not() {
    let origin = |_: &Request| (Duration::ZERO, response(&[("x-own", "1")], "made"));
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            is(&server.get("/a").await, &["200 OK", "cache-status: fanin; fwd=uri-miss; stored", "made"]);
            sleep(30 * SECOND).await;
            is(&server.get("/a").await, &["200 OK", "age: 30", "x-own: 1", "cache-status: fanin; hit; ttl=30", "made"]);
            is(&server.send("HEAD /a").await, &["200 OK", "age: 30", "content-length: 4"]);
            assert_eq!(seen(), ["GET /a"]);
            server.get("/a?b").await;
            server.get("/b").await;
            assert_eq!(seen(), ["GET /a", "GET /b"], "other keys");
            sleep(31 * SECOND).await;
            is(&server.get("/a").await, &["fwd=stale", "made"]);
            assert_eq!(seen(), ["GET /a"]);
            assert_eq!((server.counted(Outcome::Hit), server.counted(Outcome::Miss)), (2, 4));
        },
    );
}

#[test]
fn clients_that_have_the_response_get_304_and_ranges_come_from_the_whole() {
    let origin = |_: &Request| (Duration::ZERO, response(&[("etag", "\"v1\"")], "0123456789"));
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            // The condition is the client's: the cache gets the whole response.
            let first = server.send("GET /a\nif-none-match: \"v1\"").await;
            is(&first, &["304 Not Modified", "etag: \"v1\"", "fwd-status=200; stored"]);
            is(&server.send("GET /a\nif-none-match: W/\"v1\", \"x\"").await, &["304 Not Modified", "hit"]);
            is(&server.send("GET /a\nif-none-match: \"v2\"").await, &["200 OK", "0123456789"]);
            is(
                &server.send("GET /a\nrange: bytes=2-4").await,
                &["206 Partial", "content-range: bytes 2-4/10", "\r\n234"],
            );
            is(&server.send("GET /a\nrange: bytes=-3\nif-range: \"v1\"").await, &["206 Partial", "789"]);
            is(&server.send("GET /a\nrange: bytes=-3\nif-range: \"v2\"").await, &["200 OK", "0123456789"]);
            is(&server.send("GET /a\nrange: bytes=10-").await, &["416 ", "content-range: bytes */10"]);
            assert_eq!(seen(), ["GET /a"]);
            server.send("GET /b\nrange: bytes=2-4").await;
            server.send("GET /b\nrange: bytes=2-4").await;
            assert_eq!(seen(), ["GET /b", "GET /b"], "a range alone is passed on");
        },
    );
}

#[test]
fn a_stale_response_is_validated_and_updated() {
    let mut versions = vec!["\"v2\"", "\"v1\"", "\"v1\""];
    let origin = move |request: &Request| {
        let version = versions.pop().unwrap();
        let known = request.headers.get("if-none-match").is_some_and(|tag| tag == version);
        let mut made = response(&[("cache-control", "max-age=10"), ("x-at", version)], version);
        made.headers.insert("etag", http::HeaderValue::from_static(version));
        if known {
            made.status = StatusCode::NOT_MODIFIED;
            made.body = Body::empty();
            made.headers.insert("x-at", http::HeaderValue::from_static("confirmed"));
        }
        (Duration::ZERO, made)
    };
    served(
        ResponseCache::default(),
        |_| {},
        origin,
        async |server| {
            server.get("/a").await;
            sleep(11 * SECOND).await;
            is(&server.get("/a").await, &["200 OK", "x-at: confirmed", "fwd=stale; fwd-status=304", "\r\n\"v1\""]);
            sleep(9 * SECOND).await;
            is(&server.get("/a").await, &["x-at: confirmed", "age: 9"]);
            sleep(2 * SECOND).await;
            is(&server.get("/a").await, &["200 OK", "x-at: \"v2\"", "\r\n\"v2\""]);
            is(&server.get("/a").await, &["hit", "\r\n\"v2\""]);
            assert_eq!(seen(), ["GET /a", "GET /a \"v1\"", "GET /a \"v1\""]);
            assert_eq!(server.counted(Outcome::Validated), 1);
        },
    );
}

#[test]
fn a_stale_response_is_sent_while_a_new_one_is_made() {
    let mut count = 0;
    let origin = move |_: &Request| {
        count += 1;
        let body = Parts(vec!["version ", ["1", "2", "3"][count - 1]], Box::pin(sleep(SECOND)));
        (SECOND, response(&[], Body::stream(body)))
    };
    served(
        ResponseCache { stale: 30 * SECOND, ..plain() },
        |_| {},
        origin,
        async |server| {
            is(&server.get("/a").await, &["version "]);
            sleep(61 * SECOND).await;
            let start = Instant::now();
            for _ in 0..3 {
                is(&server.get("/a").await, &["hit; ttl=-", "version 1"]);
            }
            assert!(start.elapsed() < SECOND, "nobody waits");
            sleep(10 * SECOND).await;
            is(&server.get("/a").await, &["hit; ttl=", "version 2"]);
            assert_eq!(seen().len(), 2, "one refresh for three clients");
            assert_eq!((server.counted(Outcome::Stale), server.counted(Outcome::Hit)), (3, 1));
            sleep(91 * SECOND).await;
            is(&server.get("/a").await, &["fwd=stale", "3"]);
        },
    );
}

#[test]
fn an_old_response_stands_in_for_errors() {
    let mut count = 0;
    let origin = move |_: &Request| {
        count += 1;
        match count {
            1 => (Duration::ZERO, response(&[], "good")),
            _ => (Duration::ZERO, Response { status: StatusCode::BAD_GATEWAY, ..response(&[], "bad") }),
        }
    };
    served(
        ResponseCache { stale_if_error: 600 * SECOND, ..plain() },
        |_| {},
        origin,
        async |server| {
            server.get("/a").await;
            sleep(61 * SECOND).await;
            is(&server.get("/a").await, &["200 OK", "fwd=stale; fwd-status=502", "good"]);
            is(&server.get("/a").await, &["200 OK", "good"]);
            assert_eq!(seen().len(), 2, "the origin is not asked at once again");
            sleep(2 * SECOND).await;
            is(&server.get("/a").await, &["200 OK", "good"]);
            assert_eq!(seen().len(), 1);
            assert_eq!(server.counted(Outcome::Saved), 3);
            sleep(600 * SECOND).await;
            is(&server.get("/a").await, &["502 Bad", "bad"]);
        },
    );
}

#[test]
fn equal_requests_make_one_response() {
    let origin = |_: &Request| (SECOND, response(&[], "made"));
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            let start = Instant::now();
            let all: Vec<_> = (0..20)
                .map(|_| {
                    let server = server.clone();
                    spawn_local(async move { server.get("/a").await })
                })
                .collect();
            for one in all {
                is(&one.await.unwrap(), &["200 OK", "made"]);
            }
            assert!(start.elapsed() < 2 * SECOND);
            assert_eq!(seen(), ["GET /a"]);
            assert_eq!((server.counted(Outcome::Shared), server.counted(Outcome::Miss)), (19, 1));
        },
    );
}

#[test]
fn a_leader_that_leaves_fails_nobody() {
    let origin = |_: &Request| (2 * SECOND, response(&[], "made"));
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            let leads = spawn_local({
                let server = server.clone();
                async move { server.get("/a").await }
            });
            sleep(SECOND / 2).await;
            let follow: Vec<_> = (0..3)
                .map(|_| {
                    spawn_local({
                        let server = server.clone();
                        async move { server.get("/a").await }
                    })
                })
                .collect();
            sleep(SECOND / 2).await;
            leads.abort();
            for one in follow {
                is(&one.await.unwrap(), &["200 OK", "made"]);
            }
            assert_eq!(seen(), ["GET /a", "GET /a"], "the next one leads");
        },
    );
}

#[test]
fn requests_wait_for_others_for_half_of_their_time_and_not_for_what_is_private() {
    let origin = |request: &Request| match request.uri.path() {
        "/private" => (SECOND, response(&[("cache-control", "private")], "mine")),
        _ => (8 * SECOND, response(&[], "made")),
    };
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            let two = |path: &'static str| {
                let server = server.clone();
                async move {
                    let first = spawn_local({
                        let server = server.clone();
                        async move { server.get(path).await }
                    });
                    sleep(SECOND / 10).await;
                    let second = server.get(path).await;
                    (first.await.unwrap(), second)
                }
            };
            let start = Instant::now();
            let (first, second) = two("/private").await;
            is(&first, &["mine"]);
            is(&second, &["mine"]);
            assert_eq!((seen().len(), start.elapsed() < 3 * SECOND), (2, true), "{:?}", start.elapsed());
            let start = Instant::now();
            two("/private").await;
            assert!(start.elapsed() < 2 * SECOND, "it is known that there is nothing to wait for");
            seen();
            let (first, second) = two("/slow").await;
            is(&first, &["200 OK", "made"]);
            // It has half of its ten seconds left, which is not enough.
            is(&second, &["504 "]);
            assert_eq!(seen(), ["GET /slow", "GET /slow"]);
        },
    );
}

#[test]
fn what_is_not_complete_is_not_kept() {
    let origin = |request: &Request| {
        let parts = match request.uri.path() {
            "/broken" => vec!["one", "!"],
            "/large" => vec!["0123456789", "0123456789"],
            _ => vec!["one", "two"],
        };
        (Duration::ZERO, response(&[], Body::stream(Parts(parts, Box::pin(sleep(SECOND))))))
    };
    served(
        ResponseCache { max_body: 15, ..plain() },
        |_| {},
        origin,
        async |server| {
            for (path, times) in [("/broken", 2), ("/large", 2), ("/whole", 1)] {
                let first = server.get(path).await;
                let second = server.get(path).await;
                assert_eq!(seen().len(), times, "{path}: {first} {second}");
            }
            is(&server.get("/whole").await, &["hit", "onetwo"]);
        },
    );
}

#[test]
fn a_change_removes_what_is_kept_and_what_is_on_its_way() {
    let origin = |request: &Request| match (&request.method, request.uri.query()) {
        (&Method::POST, Some("fail")) => {
            (Duration::ZERO, Response { status: StatusCode::CONFLICT, ..response(&[], "") })
        }
        (&Method::POST, _) => (Duration::ZERO, response(&[("content-location", "/other")], "changed")),
        _ => (SECOND, response(&[], "made")),
    };
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            server.get("/a").await;
            server.get("/other").await;
            server.send("POST /a?fail\ncontent-length: 0").await;
            seen();
            is(&server.get("/a").await, &["hit"]);
            server.send("POST /a\ncontent-length: 0").await;
            is(&server.get("/a").await, &["fwd=uri-miss"]);
            is(&server.get("/other").await, &["fwd=uri-miss"]);
            let early = spawn_local({
                let server = server.clone();
                async move { server.get("/late").await }
            });
            sleep(SECOND / 2).await;
            server.send("POST /late\ncontent-length: 0").await;
            is(&early.await.unwrap(), &["made"]);
            is(&server.get("/late").await, &["fwd=uri-miss"]);
        },
    );
}

#[test]
fn responses_are_purged_by_their_tags() {
    let origin = |request: &Request| match request.uri.path() {
        "/purge" => (Duration::ZERO, response(&[("cache-purge", "product-7"), ("cache-control", "no-store")], "done")),
        "/other" => (Duration::ZERO, response(&[("cache-tag", "product-8")], "made")),
        _ => (Duration::ZERO, response(&[("cache-tag", "shop product-7")], "made")),
    };
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            let first = server.get("/a").await;
            assert!(!first.contains("cache-tag"), "{first}");
            server.get("/other").await;
            let purge = server.get("/purge").await;
            assert!(purge.contains("done") && !purge.contains("cache-purge"), "{purge}");
            is(&server.get("/a").await, &["fwd=uri-miss"]);
            is(&server.get("/other").await, &["hit"]);
            is(&server.get("/a").await, &["hit"]);
        },
    );
}

#[test]
fn what_is_for_one_client_stays_with_it() {
    let origin = |request: &Request| {
        let public = [("cache-control", "public, max-age=60")];
        (Duration::ZERO, response(if request.uri.path() == "/public" { &public } else { &[] }, "made"))
    };
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            for (request, times) in [
                ("GET /a\nauthorization: x", 2),
                ("GET /public\nauthorization: x", 1),
                ("GET /b\ncookie: a=b", 2),
                ("GET /c\nupgrade: other", 2),
                ("GET /d\ncache-control: no-store", 2),
                ("GET /e\ncache-control: no-cache", 2),
            ] {
                server.send(request).await;
                server.send(request).await;
                assert_eq!(seen().len(), times, "{request}");
            }
            server.get("/f").await;
            server.send("GET /f\nauthorization: x").await;
            assert_eq!(seen().len(), 2, "a response for anybody is not for somebody");
            is(&server.send("GET /g\ncache-control: only-if-cached").await, &["504 "]);
            is(&server.send("GET /f\ncache-control: only-if-cached").await, &["200 OK", "hit"]);
            assert_eq!(seen().len(), 0);
        },
    );
    let ignores = ResponseCache { ignore_cookies: true, client_directives: false, ..plain() };
    served(
        ignores,
        |_| {},
        |_| (Duration::ZERO, response(&[], "made")),
        async |server| {
            server.send("GET /a\ncookie: a=b").await;
            is(&server.send("GET /a\ncache-control: no-cache").await, &["hit"]);
        },
    );
}

#[test]
fn responses_that_vary_are_kept_side_by_side() {
    let origin = |request: &Request| {
        let language = request.headers.get("accept-language").map_or("none", |value| value.to_str().unwrap());
        (Duration::ZERO, response(&[("vary", "accept-language")], language.to_owned()))
    };
    served(
        plain(),
        |_| {},
        origin,
        async |server| {
            for language in ["de", "en", "de", "en"] {
                let got = server.send(&format!("GET /a\naccept-language: {language}")).await;
                is(&got, &[&format!("\r\n{language}")]);
            }
            is(&server.get("/a").await, &["fwd=vary-miss", "none"]);
            assert_eq!(seen().len(), 3);
        },
    );
}

#[test]
fn encoded_responses_are_kept_by_encoding_and_tags_are_made_once() {
    let change = |route: &mut RouteSpec| {
        route.compression = Some(fanin_config::Compression { min_size: 0, ..Default::default() });
        route.etag = true;
    };
    let origin = |_: &Request| (Duration::ZERO, response(&[("content-type", "text/plain")], "a".repeat(1000)));
    served(plain(), change, origin, async |server| {
        is(
            &server.send("GET /a\naccept-encoding: gzip").await,
            &["content-encoding: gzip", "etag: W/", "fwd=uri-miss"],
        );
        is(&server.send("GET /a\naccept-encoding: gzip;q=0.5, x").await, &["content-encoding: gzip", "hit"]);
        let plain = server.get("/a").await;
        is(&plain, &["fwd=vary-miss", "aaaa"]);
        assert!(!plain.contains("content-encoding"));
        is(&server.send("GET /a\naccept-encoding: x").await, &["hit", "aaaa"]);
        let tag = plain.split("etag: ").nth(1).and_then(|rest| rest.split('\r').next()).unwrap();
        is(&server.send(&format!("GET /a\nif-none-match: {tag}")).await, &["304 Not Modified"]);
        assert_eq!(seen().len(), 2);
    });
}
