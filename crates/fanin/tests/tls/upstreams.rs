//! TLS towards upstreams, by `openssl s_server`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::common::Serving;
use crate::files::Service;
use crate::openssl::get;

/// A server that knows TLS 1.2 only, and wants client certificates.
struct Old(Child, String);

impl Old {
    fn start(service: &Service) -> Old {
        let mut command = Command::new("timeout");
        command.args(["120", "openssl", "s_server", "-accept", "127.0.0.1:0", "-www", "-tls1_2", "-Verify", "1"]);
        command.args(["-verify_return_error", "-CAfile", "ca.pem", "-cert", "server.pem", "-key", "server-key.pem"]);
        command.current_dir(service.dir()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("timeout and openssl; run .ci/setup postgres");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned));
        Old(child, address.expect("an address"))
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_minimum_version_and_the_own_certificate() {
    let service = Service::new("", "");
    service.client("caller", "spiffe://example.org/caller", |_| {});
    let server = Old::start(&service);
    service.write(
        "page.star",
        "load(\"@upstreams\", \"old\", \"new\", \"nobody\")\ndef page(req):\n    \
         return [one.get(\"/\", optional = True) != None for one in [old, new, nobody]]\n",
    );
    let own = "cert = \"caller.pem\", key = \"caller-key.pem\"";
    let upstream = |name: &str, more: &str| {
        let url = format!("https://{}", server.1);
        format!("[upstreams.{name}]\nurl = \"{url}\"\ntls = {{ ca = \"ca.pem\", server_name = \"localhost\"{more} }}\n")
    };
    let more = [
        upstream("old", &format!(", {own}")),
        upstream("new", &format!(", {own}, min_version = \"1.3\"")),
        upstream("nobody", ""),
    ];
    service.configure("", &more.concat());
    let serving = Serving::start(service.dir());
    assert_eq!(get(&service, &serving, "/", "").is_answered().json(), serde_json::json!([true, false, false]));
}
