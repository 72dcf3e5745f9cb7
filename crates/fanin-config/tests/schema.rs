//! The schema, the reader and the documentation speak of the same keys.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{FULL, folder, parse};
use fanin_config::Config;
use serde_json::{Value, json};

fn valid(value: &Value) -> Result<(), String> {
    let schema = Config::json_schema();
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let problems: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn toml_to_json(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(text).expect("TOML")).expect("JSON")
}

#[test]
fn the_schema_is_one() {
    jsonschema::meta::validate(&Config::json_schema()).expect("valid by its own draft");
}

#[test]
fn good_files_are_valid() {
    valid(&toml_to_json(FULL)).expect("valid");
    valid(&json!({})).expect("valid");
    for kind in [
        "grpc = 'http://a'\nreflection = true",
        "grpc = ['https://a']\nproto = ['a']",
        "postgres = 'postgres://u@h/d'",
        "postgres = ['postgres://u@h/d']",
        "files = '.'",
        "model = 'spam'",
    ] {
        valid(&toml_to_json(&format!("[upstreams.a]\n{kind}"))).expect(kind);
    }
    for limit in ["64", "'adaptive'", "{ min = 4 }", "'${LIMIT}'"] {
        valid(&toml_to_json(&format!("[upstreams.a]\nurl = 'http://a'\nlimit = {limit}"))).expect(limit);
    }
}

#[test]
fn both_executors_are_valid() {
    for executor in ["'coroutines'", "{ threads = 8 }", "{ threads = 8, waiting = 0 }"] {
        valid(&toml_to_json(&format!("[[routes]]\npath = '/'\nflow = 'a.star:b'\nexecutor = {executor}")))
            .expect(executor);
    }
    valid(&toml_to_json("[[routes]]\npath = '/'\nflow = 'a.star:b'\nexecutor = 'threads'")).expect_err("no such word");
}

#[test]
fn what_we_show_is_valid() {
    let dir = folder();
    let config = parse(FULL, dir.path()).expect("valid");
    valid(&config.masked()).expect("valid");
    valid(&Config::default().masked()).expect("valid");
}

#[test]
fn bad_files_are_not_valid() {
    for text in [
        "[servers]",
        "[server]\nlimit = 0",
        "[server]\nlimit = 'x'",
        "[server]\nstall = '20'",
        "[server]\nmax_body = '1M'",
        "[server.tls]\ncert = 'a'",
        "[flow]\nmax_callss = 1",
        "[upstreams.a]",
        "[upstreams.a]\nurl = 'http://a'\nurls = ['http://b']",
        "[upstreams.a]\nurl = 'http://a'\nhttp = '3'",
        "[upstreams.a]\nurl = 'http://a'\nfiles = 'b'",
        "[upstreams.a]\ngrpc = 'dns:///a'",
        "[upstreams.a]\ngrpc = 'http://a'\nint64 = 'float'",
        "[upstreams.a]\npostgres = 'http://a'",
        "[upstreams.a]\npostgres = 'postgres://u@h/d'\n[upstreams.a.statements.b]",
        "[upstreams.a]\nurls = []",
        "[upstreams.a]\nurl = 'http://a'\nretry = 'on'",
        "[upstreams.a]\nurl = 'http://a'\nretry = { budget = 2 }",
        "[upstreams.a]\nurl = 'http://a'\nhedge = 'sometimes'",
        "[upstreams.a]\nurl = 'http://a'\n[upstreams.a.operations.b]\npath = '/'\nparams = { a = 'text' }",
        "[upstreams.a]\nurl = 'http://a'\n[upstreams.a.operations.b]\npath = '/'\nbatch = { max_keys = 3 }",
        "[upstreams.a]\nurl = 'http://a'\n[upstreams.a.operations.b]\npath = '/'\ncache = {}",
        "[upstreams.a]\nurl = 'http://a'\nsnapshot = {}",
        "[auth.a]\nissuers = []",
        "[auth.a]\nkind = 'magic'",
        "[auth.a]\nkind = 'jwt'\nalgorithms = ['none']",
        "[rate_limits.a]\nrequests = 1",
        "[rate_limits.a]\nrequests = 1\nper = '1s'\nkey = 'cookie'",
        "[[routes]]\npath = '/'\nflow = 'a.star:b'\nauth = []",
        "[[routes]]\npath = '/'",
        "[[routes]]\npath = 'a'\nflow = 'a.star:b'",
        "[[routes]]\npath = '/'\nflow = 'a.star'",
        "[[routes]]\npath = '/'\nflow = 'a.star:b'\nmethod = 'get'",
        "[[routes]]\npath = '/'\nflow = 'a.star:b'\nunknown = 1",
    ] {
        assert!(valid(&toml_to_json(text)).is_err(), "{text}");
    }
}

/// The keys that the reader knows, which it tells when it meets one that resembles none of them.
fn known(text: &str) -> BTreeSet<String> {
    let dir = folder();
    let error = parse(text, dir.path()).expect_err("an unknown key");
    let hints: Vec<_> = error.diagnostics.iter().filter_map(|diagnostic| diagnostic.hint.as_deref()).collect();
    let list = hints.iter().find_map(|hint| hint.strip_prefix("known keys: ")).expect("a list of keys");
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_reader_knows_what_the_schema_says() {
    let schema = Config::json_schema();
    let keys = |section: &Value| -> BTreeSet<String> {
        section["properties"].as_object().expect("properties").keys().cloned().collect()
    };
    assert_eq!(known("zzzzzzzzzzzz = 1"), keys(&schema), "the file");
    for (name, text) in [
        ("Server", "[server]\nzzzzzzzzzzzz = 1"),
        ("ServerTls", "[server.tls]\nzzzzzzzzzzzz = 1"),
        ("ServerCertificate", "[[server.tls.certificates]]\nzzzzzzzzzzzz = 1"),
        ("FlowLimits", "[flow]\nzzzzzzzzzzzz = 1"),
        ("Upstream", "[upstreams.a]\nzzzzzzzzzzzz = 1"),
        ("AdaptiveLimit", "[upstreams.a.limit]\nzzzzzzzzzzzz = 1"),
        ("Retry", "[upstreams.a.retry]\nzzzzzzzzzzzz = 1"),
        ("Breaker", "[upstreams.a.breaker]\nzzzzzzzzzzzz = 1"),
        ("ClientTls", "[upstreams.a.tls]\nzzzzzzzzzzzz = 1"),
        ("Operation", "[upstreams.a.operations.b]\nzzzzzzzzzzzz = 1"),
        ("Param", "[upstreams.a.operations.b]\npath = '/'\n[upstreams.a.operations.b.params.c]\nzzzzzzzzzzzz = 1"),
        ("Batch", "[upstreams.a.operations.b]\npath = '/'\nbatch = { zzzzzzzzzzzz = 1 }"),
        ("Cache", "[upstreams.a.operations.b]\npath = '/'\ncache = { zzzzzzzzzzzz = 1 }"),
        ("Snapshot", "[upstreams.a.snapshot]\nzzzzzzzzzzzz = 1"),
        ("Statement", "[upstreams.a.statements.b]\nzzzzzzzzzzzz = 1"),
        ("StatementBatch", "[upstreams.a.statements.b]\nbatch = { zzzzzzzzzzzz = 1 }"),
        ("Route", "[[routes]]\nzzzzzzzzzzzz = 1"),
        ("Models", "[models]\nrepository = 'm'\nzzzzzzzzzzzz = 1"),
        ("ModelSettings", "[models]\nrepository = 'm'\n[models.settings.a]\nzzzzzzzzzzzz = 1"),
        ("Grpc", "[grpc]\nzzzzzzzzzzzz = 1"),
        ("Push", "[push]\nzzzzzzzzzzzz = 1"),
        ("Recorder", "[recorder]\nzzzzzzzzzzzz = 1"),
        ("Otlp", "[otlp]\nzzzzzzzzzzzz = 1"),
        ("Tracing", "[tracing]\nzzzzzzzzzzzz = 1"),
        ("Auth", "[auth.a]\nkind = 'jwt'\nzzzzzzzzzzzz = 1"),
        ("RateLimit", "[rate_limits.a]\nzzzzzzzzzzzz = 1"),
        ("Budget", "[[routes]]\n[routes.budget]\nzzzzzzzzzzzz = 1"),
        ("Threads", "[[routes]]\n[routes.executor]\nzzzzzzzzzzzz = 1"),
        ("Compression", "[compression]\nzzzzzzzzzzzz = 1"),
        ("HeaderRules", "[response_headers]\nzzzzzzzzzzzz = 1"),
        ("ResponseCache", "[[routes]]\n[routes.cache]\nzzzzzzzzzzzz = 1"),
        ("Cors", "[cors]\nzzzzzzzzzzzz = 1"),
        ("RequestHeaderRules", "[request_headers]\nzzzzzzzzzzzz = 1"),
        ("AnswerHeaders", "[upstreams.a.answer_headers]\nzzzzzzzzzzzz = 1"),
        ("Signing", "[signing]\nzzzzzzzzzzzz = 1"),
        ("Redirect", "[[routes]]\n[routes.redirect]\nzzzzzzzzzzzz = 1"),
        ("Respond", "[[routes]]\n[routes.respond]\nzzzzzzzzzzzz = 1"),
        ("Folder", "[[routes]]\n[routes.folder]\nzzzzzzzzzzzz = 1"),
    ] {
        assert_eq!(known(text), keys(&schema["$defs"][name]), "{name}");
    }
    let sections = schema["$defs"].as_object().expect("sections");
    assert_eq!(sections.len(), 38, "a section that is not compared above: {:?}", sections.keys());
}

#[test]
fn every_key_is_described() {
    let schema = Config::json_schema();
    for (section, schema) in schema["$defs"].as_object().expect("sections") {
        for (key, property) in schema["properties"].as_object().expect("properties") {
            assert!(property["description"].as_str().is_some_and(|text| text.len() > 10), "{section}.{key}");
        }
    }
}

#[test]
fn the_examples_are_valid_by_schema_and_reader() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(examples).expect("the examples") {
        let dir = entry.expect("an entry").path();
        let file = dir.join("fanin.toml");
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        valid(&toml_to_json(&text)).unwrap_or_else(|problem| panic!("{}: {problem}", file.display()));
        if let Err(error) = Config::load_with(&dir, &|_| None) {
            panic!("{error}");
        }
        seen += 1;
    }
    assert!(seen >= 2, "only {seen} examples");
}

#[test]
fn toml_in_the_documentation_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = std::fs::read_dir(root.join("docs")).expect("the pages").map(|entry| entry.expect("an entry").path());
    let mut blocks = 0;
    for page in pages.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(&page).expect("text");
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            valid(&toml_to_json(block)).unwrap_or_else(|problem| panic!("{}: {problem}\n{block}", page.display()));
            blocks += 1;
        }
    }
    assert!(blocks >= 3, "only {blocks}");
}
