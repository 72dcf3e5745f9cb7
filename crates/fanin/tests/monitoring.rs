//! `monitoring/`: the alert rules and the Grafana dashboard are valid, do what they say, and use metrics that the server exports.
#![cfg(unix)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use common::{Serving, TIMEOUT, root};
use serde_json::Value;

fn promtool(arguments: &[&str]) -> (bool, String) {
    let here = root().join(".venv/prometheus/usr/bin/promtool");
    let program = if here.exists() { here } else { PathBuf::from("promtool") };
    let output = Command::new(&program).args(arguments).current_dir(root().join("monitoring")).output();
    let output = output.unwrap_or_else(|error| panic!("promtool: {error}; run .ci/setup prometheus"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn file(name: &str) -> String {
    fs::read_to_string(root().join("monitoring").join(name)).expect("a file")
}

/// The expressions of the Grafana dashboard as Prometheus gets them: with values for Grafana's variables.
fn grafana_expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&file("grafana.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let annotations = dashboard["annotations"]["list"].as_array().expect("a list").clone();
    let mut all: Vec<String> = targets
        .chain(annotations)
        .map(|one| one["expr"].as_str().expect("an expression").to_owned())
        .map(|text| text.replace("$__rate_interval", "5m").replace("$__interval", "1m"))
        .collect();
    for expression in &mut all {
        for variable in ["job", "instance", "route", "upstream"] {
            *expression = expression.replace(&format!("${variable}\""), ".*\"");
        }
        assert!(!expression.contains('$'), "an unknown variable in {expression}");
    }
    all
}

#[test]
fn the_rules_are_valid_and_alert_when_they_should() {
    let (good, text) = promtool(&["check", "rules", "rules.yml"]);
    assert!(good && text.contains("SUCCESS"), "{text}");
    let (good, text) = promtool(&["test", "rules", "rules-test.yml"]);
    assert!(good && text.contains("SUCCESS"), "{text}");
    // The tests can fail.
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("rules.yml"), file("rules.yml").replace("14.4 *", "140 *")).expect("written");
    fs::write(dir.path().join("rules-test.yml"), file("rules-test.yml")).expect("written");
    let path = dir.path().join("rules-test.yml");
    let (good, text) = promtool(&["test", "rules", path.to_str().expect("text")]);
    assert!(!good && text.contains("FaninErrorBudgetBurnsFast"), "{text}");
}

#[test]
fn the_queries_of_the_grafana_dashboard_are_valid() {
    let expressions = grafana_expressions();
    assert!(expressions.len() > 20, "{}", expressions.len());
    let rules = expressions.iter().enumerate().map(|(at, expression)| {
        let expression = serde_json::to_string(expression).expect("text");
        format!("      - {{ record: 'grafana:query:{at}', expr: {expression} }}\n")
    });
    let text = format!("groups:\n  - name: grafana\n    rules:\n{}", rules.collect::<String>());
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rules.yml");
    fs::write(&path, text).expect("written");
    let (good, text) = promtool(&["check", "rules", path.to_str().expect("text")]);
    assert!(good, "{text}");
}

/// Each `fanin_...` of a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let starts = text.match_indices("fanin_").filter(|(at, _)| !text[..*at].ends_with(is_part));
    starts.map(|(at, _)| text[at..].chars().take_while(|char| is_part(*char)).collect()).collect()
}

/// All series of a server with something of each kind that has metrics of its own, and their labels.
fn exported() -> String {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("models")).expect("created");
    let toml = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\naccess_log = \"off\"\n\
                [upstreams.catalog]\nurl = \"http://127.0.0.1:9\"\n\
                [upstreams.catalog.operations.products]\npath = \"/products\"\nparams = { ids = \"list\" }\n\
                batch = { key = \"ids\" }\ncache = { ttl = \"1s\" }\n\
                [models]\nrepository = \"models\"\n\
                [[routes]]\npath = \"/\"\nflow = \"flow.star:page\"\nobjective = \"99 % < 200 ms\"\n\
                [[routes]]\npath = \"/slow\"\nflow = \"flow.star:page\"\nobjective = \"99.9 % < 1us\"\n\
                [[routes]]\npath = \"/other\"\nflow = \"flow.star:page\"\n";
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    let flow = "load(\"@upstreams\", \"catalog\")\n\ndef page(req):\n    return catalog.get(\"/\", optional = True)\n";
    fs::write(dir.path().join("flow.star"), flow).expect("written");
    let serving = Serving::start(dir.path());
    for path in ["/", "/slow", "/other"] {
        let response = serving.get(path);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    let mut stream =
        TcpStream::connect_timeout(&serving.admin.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    page
}

#[test]
fn rules_and_dashboards_use_metrics_that_the_server_exports() {
    let page = exported();
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let served: BTreeSet<String> = families
        .flat_map(|(name, kind)| match kind {
            "counter" => vec![format!("{name}_total")],
            "info" => vec![format!("{name}_info")],
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            _ => vec![name.to_owned()],
        })
        .collect();
    let own = fs::read_to_string(root().join("crates/fanin-dashboard/src/sample.rs")).expect("a file");
    let own: String = own.lines().filter(|line| line.contains("=>") || line.trim_start().starts_with('|')).collect();
    // Beginnings of names, which the text of the program compares with.
    let complete = |name: &String| !name.ends_with('_') && name != "fanin_request";
    let texts = [
        ("monitoring/rules.yml", file("rules.yml")),
        ("monitoring/rules-test.yml", file("rules-test.yml")),
        ("monitoring/grafana.json", file("grafana.json")),
        ("fanin-dashboard", own),
    ];
    for (place, text) in texts {
        let used: BTreeSet<String> = names(&text).into_iter().filter(complete).collect();
        assert!(used.len() >= 6, "{place}: {used:?}");
        let unknown: Vec<_> = used.difference(&served).collect();
        assert!(unknown.is_empty(), "{place} uses metrics that do not exist: {unknown:?}");
    }
    // A quantile of Prometheus needs the last bucket of a histogram to be infinite.
    let histograms = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram"));
    for name in histograms.filter(|name| page.contains(&format!("{name}_count"))) {
        let counts = page.matches(&format!("\n{name}_count")).count();
        let infinite =
            page.lines().filter(|line| line.starts_with(&format!("{name}_bucket")) && line.contains("le=\"+Inf\""));
        assert_eq!(infinite.count(), counts, "{name} has no bucket +Inf");
    }
}

#[test]
fn an_objective_counts_what_is_good() {
    let page = exported();
    let value = |name: &str, route: &str| {
        let start = format!("{name}{{method=\"GET\",route=\"{route}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&start)).and_then(|text| text.parse::<f64>().ok())
    };
    assert_eq!(value("fanin_objective_ratio", "/"), Some(0.99));
    assert_eq!(value("fanin_objective_seconds", "/"), Some(0.2));
    assert_eq!(value("fanin_objective_requests_total", "/"), Some(1.0));
    assert_eq!(
        (value("fanin_objective_ratio", "/slow"), value("fanin_objective_requests_total", "/slow")),
        (Some(0.999), Some(1.0))
    );
    // No request takes less than a microsecond.
    assert_eq!(value("fanin_objective_good_total", "/slow"), Some(0.0));
    assert_eq!(value("fanin_objective_ratio", "/other"), None);
}
