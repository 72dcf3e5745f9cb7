//! The admin pages that `fanin record` uses.
//!
//! - `POST /requests/recording?share=0.01&seconds=60&requests=N&size=BYTES&header=…&query=…&json=…` begins a recording.
//! - `GET /requests/recording/ID` tells how far it is, `GET …/ID/file?from=BYTE` gives a part of its file.
//! - `POST /requests/recording/ID/end` ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use fanin_recording::{Answer, Exchange, Rules};
use fanin_server::{DebugPage, DebugWork};
use fanin_upstream::Upstreams;
use http::Method;
use serde_json::{Value, json};

use super::Recordings;
use super::session::{Options, Session};

/// Longest recording.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// Largest file.
const MAX_SIZE: usize = 4 << 30;
/// Bytes of a file, unless the request names them.
const SIZE: usize = 256 << 20;

/// The work that makes a page. `None` if there is no such page. `rules`: what the configuration removes.
pub fn page(
    recordings: &Arc<Recordings>,
    upstreams: &Arc<Upstreams>,
    rules: &fanin_config::Recorder,
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Option<DebugWork> {
    let rest = path.strip_prefix("/requests/recording")?;
    let query = query.unwrap_or_default().to_owned();
    let recordings = recordings.clone();
    if rest.is_empty() && *method == Method::POST {
        let (upstreams, config) = (upstreams.clone(), rules.clone());
        return Some(Box::new(move || as_json(&begin(&recordings, &upstreams, &config, &query))));
    }
    let mut parts = rest.strip_prefix('/')?.splitn(2, '/');
    let (id, what) = (parts.next()?, parts.next());
    let session = recordings.current.load_full().filter(|session| session.id == id)?;
    let get = *method == Method::GET;
    match what {
        None if get => Some(Box::new(move || as_json(&session.status()))),
        Some("file") if get => {
            let from = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "from");
            let from = from.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
            Some(Box::new(move || DebugPage { kind: "application/octet-stream", body: session.part(from) }))
        }
        Some("end") if *method == Method::POST => Some(Box::new(move || {
            session.end();
            as_json(&session.status())
        })),
        _ => None,
    }
}

fn as_json(value: &Value) -> DebugPage {
    DebugPage { kind: "application/json", body: value.to_string().into_bytes() }
}

fn begin(recordings: &Recordings, upstreams: &Upstreams, config: &fanin_config::Recorder, query: &str) -> Value {
    let started = options(config, query).and_then(|options| {
        if let Some(session) = recordings.current.load_full().filter(|session| !session.has_ended()) {
            return Err(format!("a recording is being made already ({}); one at a time", session.id));
        }
        let counts = recordings.counts.clone();
        Session::begin(options, tables(upstreams), counts).map_err(|error| format!("its thread cannot start: {error}"))
    });
    match started {
        Ok(session) => {
            let status = session.status();
            recordings.current.store(Some(session));
            recordings.is_on.store(true, Relaxed);
            status
        }
        Err(error) => json!({ "error": error }),
    }
}

fn options(config: &fanin_config::Recorder, query: &str) -> Result<Options, String> {
    let mut rules = Rules::default();
    config.remove_headers.iter().for_each(|name| rules.add_header(name));
    config.remove_query.iter().for_each(|name| rules.add_query(name));
    for place in &config.remove_json {
        rules.add_json(place).map_err(|error| format!("remove_json of [recorder]: {error}"))?;
    }
    let time = Duration::from_secs(60);
    let mut options = Options { share: 1.0, time, requests: u64::MAX, size: SIZE, rules };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let wrong = || format!("{name}={value} is not possible");
        match &*name {
            "share" => {
                let share = value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
                options.share = share.ok_or_else(wrong)?;
            }
            "seconds" => {
                let seconds: f64 = value.parse().map_err(|_| wrong())?;
                let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
                options.time = Some(time).filter(|time| *time <= MAX_TIME).ok_or_else(wrong)?;
            }
            "requests" => options.requests = value.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?,
            "size" => {
                let size = value.parse().ok().filter(|size| (65_536..=MAX_SIZE).contains(size));
                options.size = size.ok_or_else(wrong)?;
            }
            "header" => options.rules.add_header(&value),
            "query" => options.rules.add_query(&value),
            "json" => options.rules.add_json(&value).map_err(|error| error.to_string())?,
            _ => return Err(format!("there is no option {name:?}")),
        }
    }
    Ok(options)
}

/// The tables that flows look things up in, as they are now.
fn tables(upstreams: &Upstreams) -> Vec<Exchange> {
    let table = |upstream: &Arc<fanin_upstream::Upstream>| {
        let snapshot = upstream.config().snapshot.as_ref()?;
        let table = upstream.snapshot()?.table()?;
        let body: Bytes = table.rows().doc().bytes().clone();
        Some(Exchange {
            upstream: upstream.name().to_string(),
            method: "GET".into(),
            path: snapshot.path.clone(),
            answer: Some(Answer { status: 200, headers: Vec::new(), body }),
            ended_us: Some(0),
            ..Exchange::default()
        })
    };
    upstreams.iter().filter_map(table).collect()
}
