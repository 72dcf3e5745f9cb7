//! How soon an editor has the first diagnostics of a flow.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::report::{Report, Table, median};
use crate::{Failure, Options};

/// The first diagnostics come within so many milliseconds.
const MOST_MS: f64 = 50.0;
/// The two big examples, and the flow of each that is opened.
const FLOWS: [(&str, &str); 2] = [("shop", "flows/products.star"), ("vacancies", "flows/vacancies.star")];

/// Starts the language server again and again, and opens a flow.
pub fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let runs = if options.quick { 5 } else { 30 };
    let header = ["example", "flow", "from opening, ms", "from the start of the process, ms"];
    let mut table = Table::new(&format!("First diagnostics of fanin lsp, medians of {runs}"), &header);
    for (example, flow) in FLOWS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example).canonicalize()?;
        let mut times = Vec::new();
        for _ in 0..runs {
            times.push(once(&folder.join(flow))?);
        }
        let (opened, started) = (median(times.iter().map(|time| time.0)), median(times.iter().map(|time| time.1)));
        table.rows.push(vec![example.into(), flow.into(), format!("{opened:.1}"), format!("{started:.1}")]);
        report.at_most(&format!("first diagnostics, {example}"), opened, MOST_MS, " ms");
        report.data["first_diagnostics_ms"][example] = json!(times);
    }
    report.tables.push(table);
    Ok(())
}

/// Milliseconds until the diagnostics of a flow are there: from opening it, and from the start of the process.
fn once(flow: &Path) -> Result<(f64, f64), Failure> {
    let program: PathBuf = std::env::current_exe()?.with_file_name("fanin");
    let started = Instant::now();
    let mut command = Command::new(program);
    let mut child = command.arg("lsp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let times = talk(&mut child, flow, started);
    drop(child.kill());
    drop(child.wait());
    times
}

fn talk(child: &mut Child, flow: &Path, started: Instant) -> Result<(f64, f64), Failure> {
    let broken = || Failure::Wrong("fanin lsp has no pipe".into());
    let mut to = child.stdin.take().ok_or_else(broken)?;
    let mut from = BufReader::new(child.stdout.take().ok_or_else(broken)?);
    let mut send = |message: Value| -> Result<(), Failure> {
        let text = message.to_string();
        write!(to, "Content-Length: {}\r\n\r\n{text}", text.len())?;
        Ok(to.flush()?)
    };
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}))?;
    receive(&mut from, |message| message["id"] == 1)?;
    let text = std::fs::read_to_string(flow)?;
    let uri = format!("file://{}", flow.display());
    let document = json!({"uri": uri, "languageId": "starlark", "version": 1, "text": text});
    let opened = Instant::now();
    let params = json!({"textDocument": document});
    send(json!({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": params}))?;
    let found = receive(&mut from, |message| message["params"]["uri"] == uri.as_str())?;
    let millis = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    let times = (millis(opened), millis(started));
    let errors = found["params"]["diagnostics"]
        .as_array()
        .map_or(0, |all| all.iter().filter(|one| one["severity"] == 1).count());
    match errors {
        0 => Ok(times),
        _ => Err(Failure::Wrong(format!("{} has errors: {found}", flow.display()))),
    }
}

/// The next message that is wanted.
fn receive(from: &mut BufReader<ChildStdout>, wanted: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Err(Failure::Wrong("fanin lsp has ended".into()));
            }
            match line.trim().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or_default();
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        if wanted(&message) {
            return Ok(message);
        }
    }
}
