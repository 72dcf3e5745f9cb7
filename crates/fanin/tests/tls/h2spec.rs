//! HTTP/2 as h2spec tests it: over cleartext with prior knowledge, and over TLS.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{Serving, root};
use crate::files::Service;

/// Cases that fail over cleartext, each with the argument why that is right. Over TLS none does.
const FAILING: &[(&str, &str)] = &[(
    "http2/3.5: Sends invalid connection preface",
    "Without TLS the listener speaks HTTP/1.1 as well, and tells the two apart by the preface. What does not begin with it is HTTP/1.1, and \
     no valid request: it gets 400 and the end of the connection, where the case expects an end without a word.",
)];

#[test]
fn h2spec_fails_in_what_is_listed_only() {
    // It takes POST, too. So a body is read before the response, and what is wrong with it comes first.
    let service = Service::new("", "method = [\"GET\", \"POST\"]");
    let tls = Serving::start(service.dir());
    check(&tls, &["-t", "-k"], &[]);
    let toml = std::fs::read_to_string(service.path("fanin.toml")).expect("a file");
    let (before, rest) = toml.split_once("[server.tls]").expect("a section");
    let routes = rest.split_once("[[routes]]").expect("routes").1;
    service.write("fanin.toml", &format!("{before}[[routes]]{routes}"));
    let plain = Serving::start(service.dir());
    check(&plain, &[], FAILING);
}

/// All cases, the strict ones included.
fn check(serving: &Serving, options: &[&str], known: &[(&str, &str)]) {
    let known: BTreeSet<String> = known.iter().map(|(case, _)| (*case).to_owned()).collect();
    let (failed, text) = run(serving, options);
    assert_eq!(failed, known, "{options:?}, left: fail now; right: listed as failing: {text}");
}

/// The cases that fail, and what h2spec shows.
fn run(serving: &Serving, options: &[&str]) -> (BTreeSet<String>, String) {
    let program = root().join(".venv/go/bin/h2spec");
    let (host, port) = serving.listen.rsplit_once(':').expect("an address");
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.xml");
    let mut command = Command::new("timeout");
    command.arg("240").arg(&program).args(["-S", "-h", host, "-p", port, "-P", "/", "-j"]).arg(&report).args(options);
    let output = command.output().unwrap_or_else(|error| panic!("{error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = std::fs::read_to_string(&report)
        .unwrap_or_else(|error| panic!("{error}; is {} there? Run .ci/setup h2spec. {text}", program.display()));
    let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
    assert_eq!(cases.len(), 146, "{text}");
    (cases.iter().filter_map(|case| failed(case)).collect(), text)
}

/// The name of a case of the report if it failed or was not run.
fn failed(case: &str) -> Option<String> {
    let attribute = |name: &str| case.split(&format!("{name}=\"")).nth(1)?.split('"').next();
    let is_failure = ["<failure", "<error", "<skipped"].iter().any(|what| case.contains(what));
    is_failure.then(|| format!("{}: {}", attribute("package").unwrap_or("?"), attribute("classname").unwrap_or("?")))
}
