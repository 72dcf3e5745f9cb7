//! `fanin load URL`: open-loop load from the command line.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fanin_load::{Arrivals, LoadError, Plan, Protocol, Request, Segment, Shape, Trust, parse_headers};
use http::Method;

use crate::report;

/// The options of `fanin load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// A URL: `http://127.0.0.1:8080/vacancies?text=rust`, or a model over gRPC: `grpc://127.0.0.1:8001/antispam`
    url: String,
    /// Requests per second: `100`, `100..500` (rising evenly) or `100,200,400` (steps)
    #[arg(long, short, default_value = "100", value_parser = shape)]
    rate: Rates,
    /// Duration of each step, or of the whole rise
    #[arg(long, short, default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Space requests at random, as independent users do, with this seed; otherwise evenly
    #[arg(long, value_name = "SEED")]
    poisson: Option<u64>,
    /// Use HTTP/2 (by prior knowledge, with https by ALPN) instead of HTTP/1.1
    #[arg(long)]
    http2: bool,
    /// Accept any certificate of an https server
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// PEM file with root certificates to trust instead of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Most connections at a time
    #[arg(long, short, default_value_t = 1000)]
    connections: usize,
    /// Method; by default GET, or POST with a body
    #[arg(long, short = 'X')]
    method: Option<Method>,
    /// A header, "name: value"; may be repeated
    #[arg(long, short = 'H', value_name = "HEADER")]
    header: Vec<String>,
    /// File of headers, one per line
    #[arg(long, value_name = "FILE")]
    headers: Option<PathBuf>,
    /// File with the body; for a model its inputs, as JSON of the Open Inference Protocol
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Give up a request that has no response this long after its planned moment
    #[arg(long, default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Count a response as good only if it took at most this long
    #[arg(long, value_parser = duration)]
    good_within: Option<Duration>,
    /// Retry up to this often without a good response, after a random pause of up to 200 ms each time
    #[arg(long, default_value_t = 0, value_name = "TIMES")]
    retries: u32,
    /// Write the result as JSON to this file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Plot rate, goodput and percentiles over time to this file (.svg or .html)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Rates as they are written.
#[derive(Clone, Debug, PartialEq)]
enum Rates {
    Rise(f64, f64),
    Steps(Vec<f64>),
}

fn shape(text: &str) -> Result<Rates, String> {
    let number = |part: &str| match part.trim().parse::<f64>() {
        Ok(rate) if rate >= 0.0 && rate.is_finite() => Ok(rate),
        _ => Err(format!("`{part}` is not a number of requests a second")),
    };
    match text.split_once("..") {
        Some((from, to)) => Ok(Rates::Rise(number(from)?, number(to)?)),
        None => text.split(',').map(number).collect::<Result<_, _>>().map(Rates::Steps),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    fanin_config::parse_duration(text)
}

fn plan(args: &LoadArgs) -> Result<Plan, LoadError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| LoadError::Plan(format!("{} cannot be read: {error}", path.display())))
    };
    let mut body = args.body.as_deref().map(read).transpose()?;
    let target = Target::of(args, &mut body)?;
    let mut lines = args.header.join("\n");
    if let Some(path) = &args.headers {
        lines.push('\n');
        lines.push_str(&String::from_utf8_lossy(&read(path)?));
    }
    let method = args.method.clone().unwrap_or(if body.is_some() { Method::POST } else { Method::GET });
    let mut request = Request::new(method, &target.url)?.with_headers(parse_headers(&lines)?);
    if let Some(body) = body {
        request = request.with_body(body);
    }
    let shape = match &args.rate {
        Rates::Rise(from, to) => Shape::ramp(*from, *to, args.duration),
        Rates::Steps(rates) => {
            Shape::of(rates.iter().map(|rate| Segment { from: *rate, to: *rate, duration: args.duration }))
        }
    };
    let mut plan = Plan::new(request, shape);
    plan.arrivals = args.poisson.map_or(Arrivals::Even, |seed| Arrivals::Poisson { seed });
    plan.protocol = target.protocol;
    plan.connections = args.connections;
    plan.trust = match &args.ca {
        Some(path) => Trust::Roots(read(path)?),
        None if args.insecure => Trust::Anything,
        None => Trust::System,
    };
    plan.retries = args.retries;
    plan.timeout = args.timeout;
    plan.good_within = args.good_within;
    plan.check()?;
    Ok(plan)
}

/// The URL and protocol of the requests.
struct Target {
    url: String,
    protocol: Protocol,
}

impl Target {
    /// `grpc://HOST:PORT/MODEL` or `/MODEL/VERSION` is a ModelInfer whose inputs stand in the body's file.
    fn of(args: &LoadArgs, body: &mut Option<Vec<u8>>) -> Result<Target, LoadError> {
        let protocol = if args.http2 { Protocol::Http2 } else { Protocol::Http1 };
        let schemes = [("grpc://", "http://"), ("grpcs://", "https://")];
        let grpc = schemes.iter().find_map(|(ours, http)| Some((http, args.url.strip_prefix(ours)?)));
        let Some((scheme, rest)) = grpc else { return Ok(Target { url: args.url.clone(), protocol }) };
        let bad = |why: &str| LoadError::Url { url: args.url.clone(), why: why.to_owned() };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (model, version) = path.split_once('/').unwrap_or((path, ""));
        if model.is_empty() || version.contains(['/', '?']) || model.contains('?') {
            return Err(bad("the model is missing: grpc://HOST:PORT/MODEL, or /MODEL/VERSION"));
        }
        let Some(json) = body.take() else {
            return Err(bad("a model needs inputs: --body FILE, as JSON: {\"inputs\": [...]}"));
        };
        let message = fanin_model::protocol::infer_message(model, version, json.into());
        *body = Some(message.map_err(|why| LoadError::Plan(format!("the inputs in --body: {why}")))?.into());
        let path = fanin_model::protocol::INFER_PATH;
        Ok(Target { url: format!("{scheme}{host}{path}"), protocol: Protocol::Grpc })
    }
}

/// Runs the load and shows what came of it. Exit status 0 when it ran, whatever the answers were.
pub fn run(args: &LoadArgs) -> ExitCode {
    match load(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::chain(&*error);
            ExitCode::FAILURE
        }
    }
}

fn load(args: &LoadArgs) -> Result<(), Box<dyn std::error::Error>> {
    let plan = plan(args)?;
    let live = std::io::stderr().is_terminal();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = tokio::task::LocalSet::new().block_on(
        &runtime,
        fanin_load::run(&plan, |progress| {
            if live {
                eprint!("\r\x1b[2K{progress}");
            } else {
                eprintln!("{progress}");
            }
        }),
    )?;
    if live {
        eprint!("\r\x1b[2K");
    }
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if !to_stdout {
        report::out(format_args!("{}\n", outcome.text()));
    }
    if let Some(path) = &args.json {
        let json = format!("{:#}\n", outcome.json());
        if to_stdout {
            report::out(format_args!("{json}"));
        } else {
            std::fs::write(path, json).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if let Some(path) = &args.plot {
        let html = path.extension().is_some_and(|end| end == "html");
        let plot = if html { outcome.html()? } else { outcome.svg()? };
        std::fs::write(path, plot).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(shape("100"), Ok(Rates::Steps(vec![100.0])));
        assert_eq!(shape("10..20.5"), Ok(Rates::Rise(10.0, 20.5)));
        assert_eq!(shape("1, 2,3"), Ok(Rates::Steps(vec![1.0, 2.0, 3.0])));
        for bad in ["", "x", "1..", "-1", "nan", "1,,2"] {
            assert!(shape(bad).is_err(), "{bad}");
        }
    }
}
