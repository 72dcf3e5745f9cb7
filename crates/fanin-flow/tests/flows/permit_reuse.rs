//! Permit reuse: a request keeps its permit of an upstream's limit for its next call while younger requests wait.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{incoming, load_toml};
use fanin_upstream::WorkerClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each request with `1` and records its path.
async fn serve(listener: TcpListener, paths: Rc<RefCell<Vec<String>>>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.unwrap() > 0 {
        if !bytes.ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
        paths.borrow_mut().push(head.split(' ').nth(1).unwrap().to_owned());
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1";
        stream.write_all(answer).await.unwrap();
    }
}

#[test]
fn permit_is_reused_by_the_next_call_of_a_request() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let toml = format!("[upstreams.a]\nurl = \"http://{}\"\nlimit = 1\n", listener.local_addr().unwrap());
        let star = "load(\"@upstreams\", \"a\")\ndef flow(req):\n    name = req.query[\"name\"]\n    \
                    if a.get(\"/first\", query = {\"of\": name}) == 1 and a.get(\"/second\", query = {\"of\": name}) == 1:\n        \
                    return a.get(\"/third\", query = {\"of\": name})\n    return 0\n";
        let paths = Rc::default();
        tokio::task::spawn_local(serve(listener, Rc::clone(&paths)));
        let (flows, _upstreams, _dir) = load_toml(&toml, star, "").unwrap_or_else(|problems| panic!("{problems:?}"));
        let worker = flows.worker(Rc::new(WorkerClient::new()), Box::new(|_| {}), fanin_flow::Detail::Nothing);
        let one = |name: &str| {
            let flow = worker.run(0, incoming(&format!("/?name={name}"), Duration::from_secs(60)));
            tokio::task::spawn_local(async move { flow.await.result.unwrap().body.concat() })
        };
        for flow in [one("a"), one("b"), one("c")] {
            assert_eq!(flow.await.unwrap(), b"1");
        }
        let expected = ["a", "b", "c"].map(|of| ["first", "second", "third"].map(|path| format!("/{path}?of={of}")));
        assert_eq!(*paths.borrow(), expected.concat());
    });
}
