//! Threads = workers + a constant. Alone in its process, so that they can be counted.

mod common;

use std::sync::atomic::Ordering::SeqCst;

use common::{TestServer, eventually};

/// Names of the server's threads, sorted.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut names =
        names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("fanin-")).collect::<Vec<_>>();
    names.sort();
    names
}

#[test]
fn threads_do_not_depend_on_load() {
    let server = TestServer::with(|setup| setup.server.workers = 3);
    let expected = ["fanin-0", "fanin-1", "fanin-2", "fanin-control", "fanin-log", "fanin-watchdog"];
    // A thread takes its name when it runs first.
    eventually("all threads have their names", || threads() == expected);
    let all = std::fs::read_dir("/proc/self/task").unwrap().count();
    let mut clients = (0..300).map(|_| server.connect()).collect::<Vec<_>>();
    for client in &mut clients {
        client.send_get("/limiter");
    }
    eventually("all run", || server.shared.begun.load(SeqCst) == 300);
    server.handle().reload().unwrap();
    // The reload's own thread may still be ending.
    eventually("the same threads as at rest", || threads() == expected);
    assert_eq!(std::fs::read_dir("/proc/self/task").unwrap().count(), all);
    server.shared.limiter.add_permits(300);
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
}
