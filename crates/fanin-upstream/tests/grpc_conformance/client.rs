//! The client under test: makes the calls that the suite asks for on standard input, and tells what came on standard output.
//!
//! It sees what flows see. Headers and trailers of a collected answer are one map, so it reports all of them as both.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::Config;
use fanin_upstream::{Bodies, BodySlot, CallContext, Request, StreamBounds, Upstream, Upstreams, WorkerClient};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use prost::Message;
use prost_reflect::{DynamicMessage, Value};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use crate::messages::{Messages, get, has, list, message, number, set, string};
use crate::outcome::{Failed, Outcome};

/// Longer than `grpc-timeout` can say: a call of the suite that has no timeout must not send one.
const NO_TIMEOUT: Duration = Duration::from_secs(200_000_000);
/// Calls at the same time.
const PARALLEL: usize = 16;

const GZIP: u32 = 2;

pub fn run(protos: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (sender, mut requests) = mpsc::channel(PARALLEL);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut length = [0; 4];
        while input.read_exact(&mut length).is_ok() {
            let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
            if input.read_exact(&mut bytes).is_err() || sender.blocking_send(bytes).is_err() {
                break;
            }
        }
    });
    let messages = Messages::load(protos);
    LocalSet::new().block_on(&runtime, async {
        let client = Rc::new(Client {
            messages,
            worker: WorkerClient::new(),
            upstreams: std::cell::RefCell::default(),
            certificates: tempfile::tempdir().expect("a folder"),
        });
        let permits = Arc::new(Semaphore::new(PARALLEL));
        let mut calls = tokio::task::JoinSet::new();
        while let Some(bytes) = requests.recv().await {
            let permit = permits.clone().acquire_owned().await.expect("open");
            let client = client.clone();
            calls.spawn_local(async move {
                let _permit = permit;
                let request = client.messages.decode("ClientCompatRequest", &bytes);
                let response = client.answer(&request).await.encode_to_vec();
                let length = u32::try_from(response.len()).expect("small").to_be_bytes();
                let mut out = std::io::stdout().lock();
                out.write_all(&[&length[..], &response].concat()).expect("the suite reads");
                out.flush().expect("the suite reads");
            });
        }
        while let Some(call) = calls.join_next().await {
            call.expect("no panic");
        }
    });
}

struct Client {
    messages: Messages,
    worker: Rc<WorkerClient>,
    /// By their configuration.
    upstreams: std::cell::RefCell<HashMap<String, Arc<Upstream>>>,
    certificates: tempfile::TempDir,
}

impl Client {
    /// A `ClientCompatResponse`.
    async fn answer(&self, request: &DynamicMessage) -> DynamicMessage {
        let mut response = self.messages.empty("ClientCompatResponse");
        set(&mut response, "test_name", get(request, "test_name").into_owned());
        let (service, method) = (string(request, "service"), string(request, "method"));
        match self.call(request, &service, &method).await {
            Ok(outcome) => {
                let result = outcome.result(&self.messages, &self.messages.output(&service, &method));
                set(&mut response, "response", Value::Message(result));
            }
            Err(why) => {
                let mut error = self.messages.empty("ClientErrorResult");
                set(&mut error, "message", Value::String(why.to_owned()));
                set(&mut response, "error", Value::Message(error));
            }
        }
        response
    }

    /// # Errors
    /// Why the call cannot be made as the suite wants it.
    async fn call(&self, request: &DynamicMessage, service: &str, method: &str) -> Result<Outcome, &'static str> {
        let upstream = self.upstream(request);
        let cancel = has(request, "cancel").then(|| message(request, "cancel"));
        if cancel.as_ref().is_some_and(|cancel| has(cancel, "before_close_send")) {
            return Err("all messages of a call are there before it is sent: its side is never left open");
        }
        let (takes_stream, returns_stream) = match number(request, "stream_type") {
            1 => (false, false),
            2 => (true, false),
            3 => (false, true),
            4 => (true, true),
            _ => return Err("full-duplex streams are not supported"),
        };
        let sent: Vec<String> =
            list(request, "request_messages").iter().map(|any| self.messages.any_as_json(any)).collect();
        let body = match (takes_stream, sent.as_slice()) {
            (true, sent) => format!("[{}]", sent.join(",")),
            (false, [only]) => only.clone(),
            (false, _) => return Err("not one message"),
        };
        let mut headers = HeaderMap::new();
        for header in list(request, "request_headers") {
            let name = HeaderName::try_from(string(&header, "name")).map_err(|_| "not a header")?;
            for value in get(&header, "value").as_list().expect("a list") {
                let value = HeaderValue::try_from(value.as_str().expect("a string")).map_err(|_| "not a header")?;
                headers.append(name.clone(), value);
            }
        }
        let delay = u64::from(number(request, "request_delay_ms"));
        sleep(Duration::from_millis(delay * if takes_stream { sent.len() as u64 } else { 1 })).await;
        let path_and_query = format!("/{service}/{method}");
        let timeout = has(request, "timeout_ms").then(|| Duration::from_millis(number(request, "timeout_ms").into()));
        let mut context = CallContext::new(Instant::now() + NO_TIMEOUT);
        context.timeout = Some(timeout.unwrap_or(NO_TIMEOUT));
        let call = Request { method: Method::POST, path_and_query, headers, body: body.into() };
        let Some(cancel) = cancel else {
            return Ok(self.run(&upstream, call, context, timeout, returns_stream, None).await);
        };
        if has(&cancel, "after_num_responses") {
            let most = number(&cancel, "after_num_responses") as usize;
            return Ok(self.run(&upstream, call, context, timeout, returns_stream, Some(most)).await);
        }
        let after = if has(&cancel, "after_close_send_ms") { number(&cancel, "after_close_send_ms") } else { 0 };
        tokio::select! {
            outcome = self.run(&upstream, call, context, timeout, returns_stream, None) => Ok(outcome),
            () = sleep(Duration::from_millis(after.into())) => {
                Ok(Outcome { failed: Some(Failed::cancelled()), ..Outcome::default() })
            }
        }
    }

    /// Makes the call. `most`: it is dropped after so many messages.
    async fn run(
        &self,
        upstream: &Arc<Upstream>,
        request: Request,
        context: CallContext,
        timeout: Option<Duration>,
        returns_stream: bool,
        most: Option<usize>,
    ) -> Outcome {
        if returns_stream {
            return self.stream(upstream, request, context, timeout, most).await;
        }
        match upstream.call(&self.worker, request, context).await {
            Err(error) => Outcome { failed: Some(Failed::of(error.kind, &error.detail)), ..Outcome::default() },
            Ok(answer) => {
                let headers = answer.headers.into_map();
                let mut outcome = Outcome { trailers: headers.clone(), headers, ..Outcome::default() };
                match answer.status {
                    StatusCode::OK => outcome.messages.push(answer.body.to_vec()),
                    _ => outcome.failed = Some(Failed::from_body(&answer.body)),
                }
                outcome
            }
        }
    }

    async fn stream(
        &self,
        upstream: &Arc<Upstream>,
        request: Request,
        context: CallContext,
        timeout: Option<Duration>,
        most: Option<usize>,
    ) -> Outcome {
        let slot = BodySlot::new(StreamBounds { timeout, ..StreamBounds::default() });
        let bodies = Bodies { answer: Some(slot.clone()), request: None };
        let answer = match upstream.stream(&self.worker, request, context, bodies).await {
            Err(error) => {
                return Outcome { failed: Some(Failed::of(error.kind, &error.detail)), ..Outcome::default() };
            }
            Ok(answer) => answer,
        };
        let mut outcome = Outcome { headers: answer.headers.into_map(), ..Outcome::default() };
        let mut body = slot.take().expect("every answer has a body");
        loop {
            match poll_fn(|cx| body.poll_part(cx)).await {
                Some(Ok(part)) => outcome.messages.push(part.to_vec()),
                Some(Err(kind)) => {
                    outcome.failed = Some(match body.ending() {
                        Some(ending) => Failed { code: ending.code.to_owned(), message: ending.message.clone() },
                        None => Failed::of(kind, "the stream is incomplete"),
                    });
                    break;
                }
                None => break,
            }
            if most == Some(outcome.messages.len()) {
                outcome.failed = Some(Failed::cancelled());
                return outcome;
            }
        }
        outcome.trailers = body.ending().map_or_else(|| outcome.headers.clone(), |ending| ending.trailers.clone());
        if answer.status != StatusCode::OK {
            // The only part of an answer with an error says why.
            let error = outcome.messages.drain(..).collect::<Vec<_>>().concat();
            outcome.failed = Some(Failed::from_body(&error));
        }
        outcome
    }

    /// The upstream for the server that a request names.
    fn upstream(&self, request: &DynamicMessage) -> Arc<Upstream> {
        let (host, port) = (string(request, "host"), number(request, "port"));
        let certificate = get(request, "server_tls_cert").as_bytes().expect("bytes").clone();
        let limit = number(request, "message_receive_limit");
        let secure = !certificate.is_empty();
        let mut tls = String::new();
        if secure {
            tls = format!("tls = {{ ca = '{}'", self.file("ca", port, &certificate));
            if has(request, "client_tls_creds") {
                let creds = message(request, "client_tls_creds");
                let part = |name: &str| self.file(name, port, get(&creds, name).as_bytes().expect("bytes"));
                tls.push_str(&format!(", cert = '{}', key = '{}'", part("cert"), part("key")));
            }
            tls.push_str(" }\n");
        }
        let compression = if number(request, "compression") == GZIP { "gzip" } else { "off" };
        let files: Vec<String> = self.messages.files.iter().map(|file| format!("'{}'", file.display())).collect();
        let mut text = format!(
            "[upstreams.suite]\ngrpc = '{scheme}://{host}:{port}'\nproto = [{files}]\nproto_path = '{folder}'\n\
             retry = 'off'\nhedge = 'off'\nbreaker = 'off'\nejection = false\ntimeout = '60s'\nconnect_timeout = '30s'\n\
             compression = '{compression}'\n{tls}",
            scheme = if secure { "https" } else { "http" },
            files = files.join(", "),
            folder = self.messages.folder.display(),
        );
        if limit > 0 {
            text.push_str(&format!("max_answer = {limit}\n"));
        }
        let mut known = self.upstreams.borrow_mut();
        let upstream = known.entry(text).or_insert_with_key(|text| {
            let config = Config::parse(text, "suite.toml", Path::new("/"), &|_| None);
            let config = config.unwrap_or_else(|error| panic!("{error}"));
            let upstreams = Upstreams::new(config.upstreams.values()).expect("valid");
            upstreams.get("suite").expect("it is there").clone()
        });
        upstream.clone()
    }

    /// A file with these bytes.
    fn file(&self, name: &str, port: u32, bytes: &[u8]) -> String {
        let path = self.certificates.path().join(format!("{name}-{port}.pem"));
        if !path.exists() {
            std::fs::write(&path, bytes).expect("written");
        }
        path.display().to_string()
    }
}
