//! A real HAProxy in front of the server names its clients.

use crate::common::{Client, TestServer};

fn ask(mode: &str, options: &[&str], proxy_protocol: bool) -> (String, String) {
    let server = TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.proxy_protocol = proxy_protocol;
        setup.server.forwarded_header = (!proxy_protocol).then(|| "x-forwarded-for".parse().unwrap());
    });
    let proxy = fanin_testbed::Server::haproxy(server.address, mode, options);
    let mut client = Client::connect(proxy.url.strip_prefix("http://").unwrap().parse().unwrap());
    let reply = client.get("/items/1");
    assert_eq!(reply.status, 200, "{reply:?}");
    (reply.json()["remote"].as_str().unwrap().to_owned(), client.local().to_string())
}

#[test]
fn with_either_version_of_the_proxy_protocol() {
    for option in ["send-proxy", "send-proxy-v2"] {
        let (remote, client) = ask("tcp", &[option], true);
        assert_eq!(remote, client, "{option}");
    }
    // Extensions: a checksum and a unique id.
    let (remote, client) = ask("tcp", &["send-proxy-v2", "proxy-v2-options", "crc32c"], true);
    assert_eq!(remote, client);
}

#[test]
fn with_a_header() {
    let (remote, _) = ask("http", &[], false);
    assert_eq!(remote, "127.0.0.1:0");
}
