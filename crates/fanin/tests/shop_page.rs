//! The page of examples/shop in a real browser: it fills as the parts of its answer arrive.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Serving, TIMEOUT, root};
use fanin_testbed::browser::Browser;

const FLOW: &str = r#"load("@upstreams", "far", "web")

def products(req):
    offers = far.get("/offers", optional = True)
    return {
        "products": [far.get("/product")],
        "substitutes": offers["substitutes"],
        "complements": [far.get("/complement"), far.get("/late", optional = True)],
    }

def start(req):
    return response(text = web.read("index.html"), headers = {"content-type": "text/html; charset=utf-8"})

def client(req):
    return response(text = web.read("parts.js"), headers = {"content-type": "text/javascript; charset=utf-8"})

def watch(req):
    return response(text = WATCH, headers = {"content-type": "text/html"})

def report(req):
    return far.get("/report/{state}", params = {"state": req.params["state"]})

WATCH = """<!doctype html>
<iframe src="/"></iframe>
<img src="/report/hold">
<script>
  const frame = document.querySelector("iframe");
  const steps = [["first", "On its way"], ["late", "None."], ["complete", "Complete after"]];
  const look = (page) => {
    const text = page.body.innerText;
    while (steps.length && text.includes(steps[0][1])) fetch("/report/" + steps.shift()[0]);
    document.title = text;
  };
  frame.addEventListener("load", () => {
    const page = frame.contentDocument;
    new MutationObserver(() => look(page)).observe(page.body, { subtree: true, childList: true, characterData: true });
    look(page);
  });
</script>
"""
"#;

/// An upstream that tells the paths that it is asked for, and answers some when the test says so.
fn far(gates: &[&'static str]) -> (String, Receiver<String>, Vec<Sender<&'static str>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (seen, paths) = channel();
    let (senders, receivers): (Vec<_>, Vec<_>) = gates.iter().map(|_| channel()).unzip();
    let gates: Vec<_> = gates.iter().copied().zip(receivers.into_iter().map(Mutex::new)).collect();
    let gates = Arc::new(gates);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (gates, seen) = (gates.clone(), seen.clone());
            thread::spawn(move || answer(stream, &gates, &seen));
        }
    });
    (address, paths, senders)
}

fn answer(mut stream: TcpStream, gates: &[(&str, Mutex<Receiver<&'static str>>)], seen: &Sender<String>) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let _ = seen.send(path.clone());
        let gate = gates.iter().find(|(gate, _)| *gate == path);
        let gate = gate.map(|(_, gate)| gate.lock().expect("no panic").recv_timeout(TIMEOUT));
        let body = match gate {
            None => "{\"name\":\"Grey speaker\"}",
            Some(Ok(body)) => body,
            Some(Err(_)) => return,
        };
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        if stream.write_all((head + body).as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn the_page_fills_as_the_parts_arrive() {
    let (address, paths, gates) = far(&["/offers", "/late", "/report/hold"]);
    let [offers, late, hold] = &gates[..] else { unreachable!("three gates") };
    let dir = tempfile::tempdir().expect("a folder");
    let web = root().join("examples/shop/web").canonicalize().expect("the page is there");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nqueueing = \"off\"\n\
         [upstreams.far]\nurl = \"http://{address}\"\ntimeout = \"100s\"\nretry = \"off\"\nhedge = \"off\"\n\
         [upstreams.web]\nfiles = \"{}\"\n\
         [[routes]]\nmethod = \"POST\"\npath = \"/products\"\nflow = \"page.star:products\"\ntimeout = \"110s\"\n\
         progressive = true\n\
         [[routes]]\npath = \"/\"\nflow = \"page.star:start\"\n\
         [[routes]]\npath = \"/parts.js\"\nflow = \"page.star:client\"\n\
         [[routes]]\npath = \"/watch\"\nflow = \"page.star:watch\"\n\
         [[routes]]\npath = \"/report/{{state}}\"\nflow = \"page.star:report\"\ntimeout = \"110s\"\n",
        web.display()
    );
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("page.star"), FLOW).expect("written");
    let serving = Serving::start(dir.path());
    let browser = Browser::open(&format!("http://{}/watch", serving.listen));
    let wait_for = |path: &str| while paths.recv_timeout(TIMEOUT).expect(path) != path {};

    // The products are there while both optional calls hang; then one of them is; then all.
    wait_for("/report/first");
    offers.send("{\"substitutes\":[]}").expect("the upstream waits");
    wait_for("/report/late");
    late.send("{\"name\":\"Red kettle\"}").expect("the upstream waits");
    wait_for("/report/complete");
    hold.send("{}").expect("the upstream waits");
    let document = browser.document();
    let title = document.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or_default();
    assert!(title.contains("Grey speaker") && title.contains("Red kettle"), "{document}");
    assert!(title.contains("Complete after") && !title.contains("On its way"), "{document}");
}
