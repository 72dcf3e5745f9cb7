//! What the server offers and what it refuses, as scanners of TLS look at it.

use crate::clients::{metric, metrics};
use crate::common::Serving;
use crate::files::Service;
use crate::openssl::{connect, get};

/// OpenSSL itself allows the old versions at this level only.
const OLD: &str = "-cipher ALL:@SECLEVEL=0";

#[test]
fn versions_ciphers_and_groups() {
    let service = Service::new("", "");
    let serving = Serving::start(service.dir());
    let ask = |options: &str| get(&service, &serving, "/", options);
    let accepted = [
        ("-tls1_3", "New, TLSv1.3"),
        ("-tls1_2", "New, TLSv1.2"),
        ("-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("-tls1_3 -ciphersuites TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("-tls1_3 -ciphersuites TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
        ("-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("-tls1_2 -cipher ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("-tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("-groups X25519", "X25519, 253 bits"),
        ("-groups P-256", "Server Temp Key: ECDH, prime256v1"),
        ("-groups P-384", "Server Temp Key: ECDH, secp384r1"),
        ("-tls1_2", "Secure Renegotiation IS supported"),
        ("-tls1_2", "Extended master secret: yes"),
        ("-tls1_2 -comp", "Compression: NONE"),
    ];
    for (options, expected) in accepted {
        ask(options).is_answered().has(expected).has("Verify return code: 0 (ok)");
    }
    let refused = [
        format!("-tls1 {OLD}"),
        format!("-tls1_1 {OLD}"),
        // No forward secrecy, no authenticated encryption, no authentication, or no encryption.
        "-tls1_2 -cipher AES128-GCM-SHA256:AES256-SHA".to_owned(),
        "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384".to_owned(),
        "-tls1_2 -cipher DHE-RSA-AES256-GCM-SHA384".to_owned(),
        "-tls1_2 -cipher ADH:AECDH:@SECLEVEL=0".to_owned(),
        "-tls1_2 -cipher eNULL:@SECLEVEL=0".to_owned(),
        "-tls1_3 -ciphersuites TLS_AES_128_CCM_SHA256".to_owned(),
        "-tls1_3 -groups ffdhe2048".to_owned(),
        format!("-tls1_2 -sigalgs ECDSA+SHA1 {OLD}"),
    ];
    for options in &refused {
        ask(options).is_refused().has("alert handshake failure");
    }
    let page = metrics(&serving);
    let incompatible = metric(&page, "fanin_tls_handshakes_total{version=\"\",result=\"incompatible\"}");
    assert_eq!(incompatible, refused.len() as f64, "{page}");
    // A client that asks for new keys by a handshake within TLS 1.2 is refused; within TLS 1.3 there is none.
    let renegotiation = connect(&service, &serving.listen, "-tls1_2", "R\n");
    renegotiation.has("RENEGOTIATING").has("no renegotiation");
}

#[test]
fn a_minimum_version_and_protocols() {
    let service = Service::new("min_version = \"1.3\"\nalpn = \"http/1.1\"", "");
    let serving = Serving::start(service.dir());
    get(&service, &serving, "/", "-tls1_3").is_answered();
    get(&service, &serving, "/", "-tls1_2").is_refused().has("protocol version");
    get(&service, &serving, "/", "-alpn h2,http/1.1").is_answered().has("ALPN protocol: http/1.1");
    get(&service, &serving, "/", "-alpn h2").is_refused().has("no application protocol");
}

#[test]
fn certificates_and_protocols_by_what_clients_name() {
    let tls = "certificates = [{ cert = 'shop.pem', key = 'shop-key.pem' }, { cert = 'one.pem', key = 'one-key.pem' }]";
    let service = Service::new("", "");
    service.server("shop", &["*.shop.example", "shop.example"]);
    service.server("one", &["one.shop.example"]);
    service.configure(tls, "");
    let serving = Serving::start(service.dir());
    for (host, expected) in [
        ("localhost", "localhost"),
        ("shop.example", "shop.example"),
        ("a.shop.example", "b.shop.example"),
        ("A.Shop.Example", "a.shop.example"),
        ("one.shop.example", "one.shop.example"),
        ("a.b.shop.example", "localhost"),
        ("none.example", "localhost"),
    ] {
        let options = format!("-servername {host} -verify_hostname {expected} -verify_return_error");
        get(&service, &serving, "/", &options).is_answered().has("Verify return code: 0 (ok)");
    }
    get(&service, &serving, "/", "-noservername -verify_hostname localhost -verify_return_error").is_answered();
    get(&service, &serving, "/", "-servername one.shop.example -verify_hostname two.shop.example")
        .has("hostname mismatch");

    for (offered, chosen) in [("http/1.1", "ALPN protocol: http/1.1"), ("h2,http/1.1", "ALPN protocol: h2")] {
        connect(&service, &serving.listen, &format!("-alpn {offered}"), "").has(chosen);
    }
    connect(&service, &serving.listen, "-alpn http/1.1,h2", "").has("ALPN protocol: h2");
    get(&service, &serving, "/", "").is_answered().has("No ALPN negotiated");
    connect(&service, &serving.listen, "-alpn spdy/3", "").is_refused().has("no application protocol");
}

#[test]
fn sessions_are_resumed_by_any_worker_and_after_a_reload() {
    let service = Service::new("", "");
    let serving = Serving::start(service.dir());
    // Five more connections with the session of the first, by tickets and by ids.
    for options in ["-tls1_2 -reconnect", "-tls1_2 -no_ticket -reconnect"] {
        let seen = connect(&service, &serving.listen, options, "");
        assert_eq!((seen.count("New, TLSv1.2"), seen.count("Reused, TLSv1.2")), (1, 5), "{options}: {seen:?}");
    }
    for version in ["-tls1_2", "-tls1_3"] {
        get(&service, &serving, "/", &format!("{version} -sess_out {version}.session")).is_answered().has("New, ");
        let again = format!("{version} -sess_in {version}.session");
        // More than there are workers.
        for _ in 0..6 {
            get(&service, &serving, "/", &again).is_answered().has("Reused, ");
        }
        // A session is for one host.
        get(&service, &serving, "/", &format!("{again} -servername other.example")).is_answered().has("New, ");
    }
    serving.signal("-HUP");
    serving.logged("reloaded");
    get(&service, &serving, "/", "-tls1_3 -sess_in -tls1_3.session").is_answered().has("Reused, ");

    let page = metrics(&serving);
    let count = |labels: &str| metric(&page, &format!("fanin_tls_handshakes_total{{{labels}}}"));
    assert_eq!(count("version=\"1.2\",result=\"resumed\""), 16.0, "{page}");
    assert_eq!(count("version=\"1.3\",result=\"resumed\""), 7.0);
    assert_eq!(count("version=\"1.2\",result=\"full\""), 4.0);

    service.configure("resumption = false", "");
    serving.logged("reloaded");
    get(&service, &serving, "/", "-tls1_3 -sess_in -tls1_3.session").is_answered().has("New, ");
    let seen = connect(&service, &serving.listen, "-tls1_2 -reconnect", "");
    assert_eq!((seen.count("New, TLSv1.2"), seen.count("Reused, TLSv1.2")), (6, 0), "{seen:?}");
}
