//! Clients with certificates: who gets a connection, what routes demand, what flows see.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::common::{Serving, root, run};
use crate::files::Service;
use crate::openssl::{connect, get};

const OPTIONAL: &str = "client_certificates = \"optional\"\nclient_ca = \"ca.pem\"";

const ROUTES: &str = r#"
[[routes]]
path = "/known"
flow = "page.star:page"
client_certificate = "required"
[[routes]]
path = "/shop"
flow = "page.star:page"
allowed_certificates = ["uri:spiffe://example.org/shop/*", "subject:CN=admin,O=Shop"]
"#;

pub fn metrics(serving: &Serving) -> String {
    let mut stream = std::net::TcpStream::connect(&serving.admin).expect("connected");
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a page");
    text
}

pub fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {page}"));
    line.trim().parse().expect("a number")
}

fn own(name: &str) -> String {
    format!("-cert {name}.pem -key {name}-key.pem")
}

#[test]
fn routes_decide_about_certificates() {
    let service = Service::new(OPTIONAL, ROUTES);
    service.client("orders", "spiffe://example.org/shop/orders", |params| {
        params.serial_number = Some(rcgen::SerialNumber::from(171_u64));
        params.not_after = rcgen::date_time_ymd(2090, 1, 1);
    });
    service.client("admin", "spiffe://example.org/admin", |_| {});
    service.client("stranger", "spiffe://example.com/shop/orders", |_| {});
    service
        .client("old", "spiffe://example.org/shop/old", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let elsewhere = Service::new("", "");
    elsewhere.client("orders", "spiffe://example.org/shop/orders", |_| {});
    for name in ["orders.pem", "orders-key.pem"] {
        std::fs::copy(elsewhere.path(name), service.path(&format!("foreign-{name}"))).expect("copied");
    }
    std::fs::rename(service.path("foreign-orders.pem"), service.path("foreign.pem")).expect("renamed");
    std::fs::rename(service.path("foreign-orders-key.pem"), service.path("foreign-key.pem")).expect("renamed");
    let serving = Serving::start(service.dir());

    assert_eq!(get(&service, &serving, "/", "").is_answered().json(), json!({ "client": null }));
    let seen = get(&service, &serving, "/", &own("orders")).is_answered().json();
    let client = &seen["client"];
    for (key, value) in [
        ("subject", json!("CN=orders,O=Shop")),
        ("issuer", json!("CN=tests")),
        ("serial", json!("ab")),
        ("uri", json!(["spiffe://example.org/shop/orders"])),
        ("dns", json!(["orders.internal"])),
        ("email", json!([])),
        ("ip", json!(["10.0.0.7"])),
        ("not_after", json!(3_786_912_000_000_i64)),
    ] {
        assert_eq!(client[key], value, "{key}: {seen}");
    }
    // As OpenSSL sees it.
    let openssl = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(service.path("orders.pem"))
        .output()
        .expect("openssl");
    let text = String::from_utf8(openssl.stdout).expect("text");
    let digits = text.trim().split('=').nth(1).expect("a fingerprint").replace(':', "").to_lowercase();
    assert_eq!(client["fingerprint"], json!(digits));

    let statuses = |name: Option<&str>| {
        ["/", "/known", "/shop"].map(|path| {
            let seen = get(&service, &serving, path, &name.map(own).unwrap_or_default());
            seen.text.split("HTTP/1.1 ").nth(1).and_then(|rest| rest.get(..3)).expect("a status").to_owned()
        })
    };
    assert_eq!(statuses(None), ["200", "403", "403"]);
    assert_eq!(statuses(Some("orders")), ["200", "200", "200"]);
    assert_eq!(statuses(Some("admin")), ["200", "200", "200"]);
    assert_eq!(statuses(Some("stranger")), ["200", "200", "403"]);
    get(&service, &serving, "/known", "").has("urn:fanin:problem:no-client-certificate");
    get(&service, &serving, "/shop", &own("stranger")).has("urn:fanin:problem:client-certificate-denied");

    // A certificate that is presented must be valid, also where it need not be presented.
    get(&service, &serving, "/", &own("foreign")).is_refused();
    get(&service, &serving, "/", &own("old")).is_refused();
    // A resumed session has the certificate of its first handshake.
    get(&service, &serving, "/shop", &format!("{} -sess_out kept.session", own("orders"))).is_answered();
    get(&service, &serving, "/shop", "-sess_in kept.session").is_answered().has("Reused, ").has("CN=orders,O=Shop");
    // Another authority: sessions of clients that it would not accept end, too.
    std::fs::copy(elsewhere.path("ca.pem"), service.path("others.pem")).expect("copied");
    service.configure(&OPTIONAL.replace("ca.pem", "others.pem"), ROUTES);
    serving.logged("reloaded");
    get(&service, &serving, "/shop", "-sess_in kept.session").has("New, ").has("no-client-certificate");
    get(&service, &serving, "/shop", &own("foreign")).is_answered();

    let page = metrics(&serving);
    assert_eq!(metric(&page, "fanin_tls_handshakes_total{version=\"\",result=\"bad-certificate\"}"), 2.0);
    assert!(metric(&page, "fanin_access_refused_total{reason=\"no-client-certificate\"}") >= 4.0);
    assert_eq!(metric(&page, "fanin_access_refused_total{reason=\"client-certificate-denied\"}"), 2.0);
}

#[test]
fn a_listener_that_requires_certificates_and_knows_revoked_ones() {
    let tls = "client_certificates = \"required\"\nclient_ca = \"ca.pem\"\nclient_crl = \"crl.pem\"";
    let service = Service::new("", "");
    service.revoke(&[8]);
    service.configure(tls, "");
    for (name, serial) in [("good", 7_u64), ("revoked", 8)] {
        service.client(name, "spiffe://example.org/a", |params| params.serial_number = Some(serial.into()));
    }
    let serving = Serving::start(service.dir());
    get(&service, &serving, "/", &own("good")).is_answered();
    get(&service, &serving, "/", &own("revoked")).is_refused().has("certificate revoked");
    get(&service, &serving, "/", "").is_refused().has("certificate required");
    get(&service, &serving, "/", "-tls1_2").is_refused();
    // The list is read again as soon as it changes.
    get(&service, &serving, "/", &format!("{} -sess_out kept.session", own("good"))).is_answered();
    service.revoke(&[7, 8]);
    serving.logged("reloaded");
    get(&service, &serving, "/", &own("good")).is_refused().has("certificate revoked");
    get(&service, &serving, "/", "-sess_in kept.session").is_refused();
    let page = metrics(&serving);
    assert!(metric(&page, "fanin_tls_handshakes_total{version=\"\",result=\"no-certificate\"}") >= 2.0, "{page}");
    assert_eq!(metric(&page, "fanin_tls_handshakes_total{version=\"\",result=\"bad-certificate\"}"), 2.0);
    let crl = service.path("crl.pem").display().to_string();
    let expiry = format!("fanin_tls_expiry_timestamp_seconds{{file=\"{crl}\",kind=\"client-crl\"}}");
    assert_eq!(metric(&page, &expiry), 4_102_444_800.0);
}

#[test]
fn check_knows_the_files_and_what_routes_need() {
    let service = Service::new("", ROUTES);
    let check = || run(&["check", service.dir().to_str().expect("text")]);
    let (code, out, error) = check();
    let text = format!("{out}{error}");
    assert!(code != Some(0) && text.contains("client_certificate"), "{text}");
    assert!(text.contains("no client has a certificate: set `client_certificates` in [server.tls]"), "{text}");
    service.configure(OPTIONAL, ROUTES);
    let (code, out, error) = check();
    assert_eq!(code, Some(0), "{out}{error}");
    std::fs::copy(service.path("ca.pem"), service.path("server.pem")).expect("copied");
    let (code, out, error) = check();
    let text = format!("{out}{error}");
    assert!(code != Some(0) && text.contains("server.tls.key: ") && text.contains("is not the key of"), "{text}");
}

#[test]
fn the_models_port_has_tls_too() {
    let models = "[models]\nrepository = \"models\"\nlisten = \"127.0.0.1:0\"\nreflection = true\n\
                  [models.tls]\ncert = \"models.pem\"\nkey = \"models-key.pem\"\nclient_certificates = \"required\"\nclient_ca = \"ca.pem\"";
    let service = Service::new("", models);
    service.server("models", &["models.internal"]);
    service.client("tester", "spiffe://example.org/tester", |_| {});
    std::fs::create_dir(service.path("models")).expect("a folder");
    let serving = Serving::unnamed(service.dir());
    let line = serving.logged("models are served on");
    let address = line.rsplit(' ').next().expect("an address").to_owned();

    let request = "GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let options = format!("-ign_eof -servername models.internal -verify_hostname models.internal {}", own("tester"));
    connect(&service, &address, &options, request).is_answered().has("Verify return code: 0 (ok)");
    connect(&service, &address, "-ign_eof", request).is_refused();
    let grpcurl = |arguments: &[&str]| {
        let program = root().join(".venv/go/bin/grpcurl");
        let mut command = Command::new(&program);
        command.current_dir(service.dir()).args([
            "-cacert",
            "ca.pem",
            "-authority",
            "models.internal",
            "-max-time",
            "20",
        ]);
        command.args(arguments).args([&address, "list"]);
        let output = command.output();
        let output =
            output.unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup grpcurl", Path::display(&program)));
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (ok, services) = grpcurl(&["-cert", "tester.pem", "-key", "tester-key.pem"]);
    assert!(ok && services.contains("inference.GRPCInferenceService"), "{services}");
    assert!(!grpcurl(&[]).0, "without a certificate");

    // A new certificate; connections after it get that one.
    service.server("models", &["renewed.internal"]);
    serving.logged("reloaded");
    let renewed = options.replace("models.internal", "renewed.internal");
    connect(&service, &address, &renewed, request).is_answered().has("Verify return code: 0 (ok)");
}
