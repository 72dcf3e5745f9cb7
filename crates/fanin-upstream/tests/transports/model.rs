//! Models of this process as upstreams: the same policies for another kind of work.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::run;
use fanin_upstream::{
    Answer, CallContext, CallError, ErrorKind, Fault, ModelAnswer, ModelBackend, ModelFailure, ModelFuture,
    ModelRequest, Request, Upstreams, WorkerClient,
};
use http::{HeaderMap, Method};
use tokio::time::{Instant, sleep};

/// Answers as scripted, each after a delay, and counts what it computes at once.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<(u64, Result<ModelAnswer, ModelFailure>)>>,
    asked: Mutex<Vec<ModelRequest>>,
    running: AtomicUsize,
    most: AtomicUsize,
}

struct Running(Arc<Script>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

#[derive(Debug)]
struct Scripted(Arc<Script>);

impl ModelBackend for Scripted {
    fn infer(&self, question: ModelRequest) -> ModelFuture {
        let script = self.0.clone();
        Box::pin(async move {
            script.asked.lock().unwrap().push(question);
            script.most.fetch_max(script.running.fetch_add(1, SeqCst) + 1, SeqCst);
            let _running = Running(script.clone());
            let next = script.answers.lock().unwrap().pop_front();
            let (after, answer) = next.unwrap_or((5, Ok(computed("{}"))));
            sleep(Duration::from_millis(after)).await;
            answer
        })
    }
}

fn computed(body: &'static str) -> ModelAnswer {
    ModelAnswer { body: body.into(), version: "3".into() }
}

struct Setup {
    script: Arc<Script>,
    upstreams: Rc<RefCell<Upstreams>>,
    worker: Rc<WorkerClient>,
}

fn setup(more: &str) -> Setup {
    let text = format!("[models]\nrepository = 'none'\n[upstreams.spam]\nmodel = 'words'\n{more}");
    let config = fanin_config::Config::parse(&text, "fanin.toml", ".".as_ref(), &|_| None).unwrap();
    let worker = WorkerClient::new();
    let script = Arc::new(Script::default());
    worker.set_model_backend(Arc::new(Scripted(script.clone())));
    let upstreams = Upstreams::new(config.upstreams.values()).unwrap();
    Setup { script, upstreams: Rc::new(RefCell::new(upstreams)), worker }
}

impl Setup {
    fn answers(&self, answers: impl IntoIterator<Item = (u64, Result<ModelAnswer, ModelFailure>)>) {
        self.script.answers.lock().unwrap().extend(answers);
    }

    fn call(&self) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let request = Request {
            method: Method::GET,
            path_and_query: "/infer".into(),
            headers: HeaderMap::new(),
            body: "[[1],null,null]".into(),
        };
        let context = CallContext::new(Instant::now() + Duration::from_millis(200));
        self.upstreams.borrow().get("spam").unwrap().call(&self.worker, request, context)
    }

    async fn told(&self) -> (ErrorKind, Fault, String) {
        let error = self.call().await.unwrap_err();
        (error.kind, error.fault, error.detail.into_owned())
    }
}

/// In virtual time.
fn paused<F: Future<Output = ()>>(test: F) {
    run(async {
        tokio::time::pause();
        test.await;
    });
}

#[test]
fn an_answer_names_its_version() {
    paused(async {
        let it = setup("timeout = '50ms'");
        it.answers([(0, Ok(computed("{\"y\":[1.5]}")))]);
        let begun = Instant::now();
        let answer = it.call().await.unwrap();
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, &b"{\"y\":[1.5]}"[..]));
        assert_eq!(answer.headers.get("model-version").unwrap(), "3");
        let asked = it.script.asked.lock().unwrap();
        assert_eq!((&*asked[0].model, &*asked[0].body), ("words", &b"[[1],null,null]"[..]));
        assert_eq!(asked[0].deadline, begun + Duration::from_millis(50), "the nearer of the two");
    });
}

#[test]
fn failures_of_models_are_those_of_any_upstream() {
    paused(async {
        let it = setup("");
        let no = |no: fn(String) -> ModelFailure| (0, Err(no("because".to_owned())));
        it.answers([
            no(ModelFailure::Invalid),
            no(ModelFailure::NotFound),
            no(ModelFailure::Unavailable),
            no(ModelFailure::Failed),
        ]);
        for status in [400, 404, 503, 500] {
            let answer = it.call().await.unwrap();
            assert_eq!((answer.status.as_u16(), &*answer.body), (status, &b"{\"message\":\"because\"}"[..]));
        }
        it.answers([no(ModelFailure::Overloaded), no(ModelFailure::Late)]);
        assert_eq!(it.told().await, (ErrorKind::Limit, Fault::Us, "because".to_owned()));
        assert_eq!(it.told().await, (ErrorKind::Timeout, Fault::Upstream, "because".to_owned()));
    });
}

#[test]
fn limit_and_timeout_hold_and_dropped_calls_are_cancelled() {
    paused(async {
        let it = setup("timeout = '20ms'\nlimit = 2\nmax_waiting = 1\nbreaker = 'off'");
        it.answers([(10, Ok(computed("{}"))), (1000, Ok(computed("{}")))]);
        let calls = [it.call(), it.call(), it.call(), it.call()];
        let ended: Vec<_> = futures_util::future::join_all(calls).await;
        let kinds: Vec<_> =
            ended.iter().map(|result| result.as_ref().map(|_| ()).map_err(|error| error.kind)).collect();
        assert_eq!(kinds, [Ok(()), Err(ErrorKind::Timeout), Ok(()), Err(ErrorKind::Limit)]);
        assert_eq!((it.script.most.load(SeqCst), it.script.running.load(SeqCst)), (2, 0));
    });
}

#[test]
fn an_answer_is_bounded_and_a_worker_without_models_fails() {
    paused(async {
        let it = setup("max_answer = '8B'");
        it.answers([(0, Ok(computed("{\"y\":[1.5]}")))]);
        let (kind, _, detail) = it.told().await;
        assert_eq!(kind, ErrorKind::TooLarge);
        assert!(detail.contains("11 bytes as JSON, 8 are allowed (max_answer)"), "{detail}");
        let without = Setup { worker: WorkerClient::new(), ..it };
        assert_eq!(without.told().await.2, "this process serves no models");
    });
}
