//! Replacing the application while requests run.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::{Client, TestServer, eventually, metric};
use fanin_server::{LoadError, RouteSpec};
use http::Method;

fn post_reload(server: &TestServer) -> crate::common::Reply {
    Client::connect(server.admin).send("POST /reload HTTP/1.1\r\nhost: localhost\r\n\r\n").reply()
}

#[test]
fn new_requests_run_on_the_new_application_and_old_ones_end_on_the_old() {
    let server = TestServer::start();
    let (mut running, mut kept) = (server.connect(), server.connect());
    running.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    assert_eq!(kept.get("/greeting").text(), "hello");

    server.change(|setup| {
        setup.greeting = "good evening";
        setup.routes.push(RouteSpec::new(Method::GET, "/items/{id}/new"));
        setup.routes.retain(|route| route.path != "/big");
    });
    server.handle().reload().unwrap();
    assert_eq!(kept.get("/greeting").text(), "good evening", "connections stay open");
    assert_eq!(kept.get("/items/1/new").json()["params"]["id"], "1");
    assert_eq!(kept.get("/big").status, 404);
    server.shared.limiter.add_permits(1);
    assert_eq!(running.reply().text(), "hello");

    let page = server.metrics();
    assert_eq!(metric(&page, "fanin_reloads_total{result=\"ok\"}"), 2.0);
    assert_eq!(
        metric(&page, "fanin_requests_total{method=\"GET\",route=\"/greeting\",status=\"2xx\"}"),
        2.0,
        "counts go on"
    );
    assert!(!page.contains("route=\"/big\""), "routes that are gone are forgotten");
}

#[test]
fn a_bad_one_is_refused_with_all_its_errors() {
    let server = TestServer::start();
    let good =
        server.break_next(LoadError::from(vec!["fanin.toml:1:2: no".to_owned(), "fanin.toml:3:4: never".to_owned()]));
    let reply = post_reload(&server);
    assert_eq!((reply.status, reply.problem().as_str()), (422, "reload-failed"));
    assert_eq!(reply.json()["diagnostics"], serde_json::json!(["fanin.toml:1:2: no", "fanin.toml:3:4: never"]));
    assert_eq!(server.get("/greeting").text(), "hello");
    assert_eq!(metric(&server.metrics(), "fanin_reloads_total{result=\"failed\"}"), 1.0);

    *server.shared.next.lock().unwrap() = Ok(good);
    server.change(|setup| setup.greeting = "again");
    assert_eq!(post_reload(&server).json()["generation"], 2);
    assert_eq!(server.get("/greeting").text(), "again");
}

#[test]
fn what_the_server_itself_finds_wrong_is_refused_too() {
    let server = TestServer::start();
    server.change(|setup| {
        setup.greeting = "new";
        setup.routes.push(RouteSpec::new(Method::GET, "/items/{other}"));
    });
    let error = server.handle().reload().unwrap_err();
    assert!(error.to_string().contains("match the same paths"), "{error}");
    assert_eq!(server.get("/greeting").text(), "hello");
    server.change(|setup| {
        setup.routes.pop();
        let missing = std::path::PathBuf::from("/no/such/file.pem");
        setup.server.tls = Some(fanin_config::ServerTls::new(missing.clone(), missing));
    });
    assert!(server.handle().reload().unwrap_err().to_string().contains("/no/such/file.pem"));
    assert_eq!(server.get("/greeting").text(), "hello");
}

#[test]
fn limits_hold_across_reloads() {
    let server = TestServer::start();
    let mut running = server.connect();
    running.send_get("/limited");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    server.handle().reload().unwrap();
    let mut waiting = server.connect();
    waiting.send_get("/limited");
    eventually("it waits", || {
        metric(&server.metrics(), "fanin_requests_waiting{method=\"GET\",route=\"/limited\"}") == 1.0
    });
    server.change(|setup| {
        for route in &mut setup.routes {
            route.limit = 2;
        }
    });
    server.handle().reload().unwrap();
    eventually("a raised limit lets it in", || server.shared.begun.load(SeqCst) == 2);
    server.shared.limiter.add_permits(2);
    assert_eq!((running.reply().status, waiting.reply().status), (200, 200));
}

#[test]
fn a_reload_under_load_fails_no_request() {
    let server = TestServer::start();
    let address = server.address;
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = (0..3).map(|_| {
            let stop = &stop;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let mut count = 0;
                while !stop.load(SeqCst) {
                    assert_eq!(client.get("/hello").status, 200);
                    count += 1;
                }
                count
            })
        });
        let clients = clients.collect::<Vec<_>>();
        for _ in 0..20 {
            server.handle().reload().unwrap();
        }
        stop.store(true, SeqCst);
        let counts = clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<u32>>();
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    });
}

#[test]
fn changed_files_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let flow = folder.path().join("flows/a.star");
    std::fs::create_dir(folder.path().join("flows")).unwrap();
    std::fs::write(&flow, "1").unwrap();
    let server = TestServer::watching(Some(folder.path().to_owned()), |_| ());
    let reloads = || metric(&server.metrics(), "fanin_reloads_total{result=\"ok\"}");

    server.change(|setup| setup.greeting = "written");
    std::fs::write(&flow, "2").unwrap();
    eventually("written in place", || server.get("/greeting").text() == "written");

    // Editors write another file and move it over the old one.
    server.change(|setup| setup.greeting = "replaced");
    let other = folder.path().join("flows/.a.star.swp");
    std::fs::write(&other, "3").unwrap();
    std::fs::rename(&other, &flow).unwrap();
    eventually("replaced", || server.get("/greeting").text() == "replaced");

    // Wait until it is quiet, then change what does not matter.
    let mut before = reloads();
    loop {
        crate::common::pause(std::time::Duration::from_millis(300));
        let now = reloads();
        if now == before {
            break;
        }
        before = now;
    }
    std::fs::write(folder.path().join("access.log"), "x").unwrap();
    std::fs::read(&flow).unwrap();
    crate::common::pause(std::time::Duration::from_millis(400));
    assert_eq!(reloads(), before);
}
