//! `fanin record`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::{StatusCode, Uri};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::admin::{Admin, AdminError};
use crate::report;

/// Between two looks at the file.
const EVERY: Duration = Duration::from_millis(200);
/// How often a page that is busy is requested again.
const TRIES: u32 = 50;
/// How long a server may take after the end of its recording.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to record, and where.
#[derive(Debug, clap::Args)]
pub struct RecordArgs {
    /// Address of the admin pages
    #[arg(long, default_value = "http://127.0.0.1:9090")]
    url: Uri,
    /// The token of the admin pages, if they need one; a file is safer, because others can see a command line
    #[arg(long, conflicts_with = "token_file")]
    token: Option<String>,
    /// A file with the token
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "fanin.rec")]
    out: PathBuf,
    /// How many of the requests: `5%`, `0.05`
    #[arg(long, default_value = "100%", value_parser = share)]
    share: f64,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = fanin_config::parse_duration)]
    time: Duration,
    /// At most so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// At most so many bytes of the file
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = fanin_config::parse_size)]
    size: u64,
    /// Also remove the values of this header; may be repeated
    #[arg(long, value_name = "NAME")]
    remove_header: Vec<String>,
    /// Also remove the values of this query parameter or field of a form; may be repeated
    #[arg(long, value_name = "NAME")]
    remove_query: Vec<String>,
    /// Also remove the values at this place in JSON, such as `user.email` or `**.card`; may be repeated
    #[arg(long, value_name = "PLACE")]
    remove_json: Vec<String>,
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("the server does not record: {0}")]
    Refused(String),
    #[error("{0} cannot be written")]
    File(PathBuf, #[source] io::Error),
    #[error("the server has stopped giving its recording: the file is not complete")]
    Stuck,
    #[error("the runtime cannot start")]
    Runtime(#[source] io::Error),
}

/// `5%` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| "write a share such as 5% or 0.05".to_owned());
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err("a share is above 0 and at most 100%".to_owned()) }
}

/// Runs the command.
pub fn run(args: &RecordArgs) -> ExitCode {
    match try_run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::chain(&error);
            ExitCode::FAILURE
        }
    }
}

fn try_run(args: &RecordArgs) -> Result<(), RecordError> {
    let admin = Admin::new(&args.url, args.token.as_deref(), args.token_file.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RecordError::Runtime)?;
    let wrong = |error| RecordError::File(args.out.clone(), error);
    // Before anything is recorded: a file that cannot be written is an error at once.
    let part = part_of(&args.out);
    let mut file = private(&part).map_err(wrong)?;
    let status = runtime.block_on(record(&admin, args, &mut file));
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            drop(std::fs::remove_file(&part));
            return Err(error);
        }
    };
    file.flush().map_err(wrong)?;
    std::fs::rename(&part, &args.out).map_err(wrong)?;
    tell(args, &status);
    Ok(())
}

fn part_of(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// A new file that only its owner may read.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A page; requested again if the server makes others.
async fn page(admin: &Admin, method: &str, page: &str) -> Result<bytes::Bytes, AdminError> {
    let mut left = TRIES;
    loop {
        match admin.page(method, page).await {
            Err(AdminError::Status(_, StatusCode::SERVICE_UNAVAILABLE, _)) if left > 0 => {
                left -= 1;
                sleep(EVERY).await;
            }
            other => return other,
        }
    }
}

async fn json(admin: &Admin, method: &str, at: &str) -> Result<Value, AdminError> {
    let body = page(admin, method, at).await?;
    serde_json::from_slice(&body).map_err(|error| AdminError::Data(at.to_owned(), error))
}

async fn record(admin: &Admin, args: &RecordArgs, file: &mut File) -> Result<Value, RecordError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("share", &args.share.to_string());
    query.append_pair("seconds", &args.time.as_secs_f64().to_string());
    query.append_pair("size", &args.size.to_string());
    if let Some(requests) = args.requests {
        query.append_pair("requests", &requests.to_string());
    }
    let lists = [("header", &args.remove_header), ("query", &args.remove_query), ("json", &args.remove_json)];
    for (name, values) in lists {
        for value in values {
            query.append_pair(name, value);
        }
    }
    let status = json(admin, "POST", &format!("/requests/recording?{}", query.finish())).await?;
    let Some(id) = status["id"].as_str() else {
        return Err(RecordError::Refused(status["error"].as_str().unwrap_or("it gives no id").to_owned()));
    };
    let base = format!("/requests/recording/{id}");
    let end = Instant::now() + args.time;
    let (mut from, mut last) = (0, Instant::now());
    let mut stopped = false;
    loop {
        let status = json(admin, "GET", &base).await?;
        let bytes = page(admin, "GET", &format!("{base}/file?from={from}")).await?;
        file.write_all(&bytes).map_err(|error| RecordError::File(args.out.clone(), error))?;
        from += bytes.len();
        let now = Instant::now();
        if !bytes.is_empty() {
            last = now;
            continue;
        }
        // The status came first: what it tells as complete has all been fetched.
        if status["complete"].as_bool() == Some(true) && status["bytes"].as_u64() == Some(from as u64) {
            // Tells the server that it can forget the file.
            drop(page(admin, "GET", &format!("{base}/file?from={from}")).await);
            return Ok(status);
        }
        if now > end + PATIENCE && now > last + PATIENCE {
            return Err(RecordError::Stuck);
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = tokio::signal::ctrl_c(), if !stopped => {
                stopped = true;
                json(admin, "POST", &format!("{base}/end")).await?;
            }
        }
    }
}

/// Says what was recorded, and what is not in it.
fn tell(args: &RecordArgs, status: &Value) {
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    let names = |kind: &str| {
        let list = status["removes"][kind].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let (requests, size) = (number("requests"), fanin_config::format_size(number("bytes")));
    report::out(format_args!("{}: {requests} requests, {size}\n", args.out.display()));
    report::out(format_args!("removed: {} values, of\n", number("removed")));
    for (kind, title) in [("headers", "headers"), ("query", "query parameters"), ("json", "JSON")] {
        report::out(format_args!("  {title}: {}\n", names(kind)));
    }
    if number("dropped") > 0 {
        report::out(format_args!("dropped: {} requests, because memory or file were full\n", number("dropped")));
    }
    for (why, number) in status["left_out"].as_object().into_iter().flatten() {
        report::out(format_args!("left out: {number} requests: {why}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!((share("1%"), share("100%"), share("0.05")), (Ok(0.01), Ok(1.0), Ok(0.05)));
        for wrong in ["", "0", "0%", "101%", "2", "-1%", "x%", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
