//! PostgreSQL: tests against a real server.

mod broken;
mod connections;
mod sessions;
mod statements;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::common::run;
use fanin_testbed::Server;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Request, Upstream, Upstreams, WorkerClient};
use http::{HeaderMap, Method};
use tokio::time::Instant;

struct Db {
    upstreams: Arc<Upstreams>,
    worker: Rc<WorkerClient>,
}

fn config(text: &str) -> Vec<fanin_config::Upstream> {
    let config = fanin_config::Config::parse(text, "fanin.toml", Path::new("."), &|_| None).unwrap();
    config.upstreams.into_values().collect()
}

impl Db {
    /// The upstream `db` with further keys.
    fn new(server: &Server, more: &str) -> Db {
        Db::at(&server.url, more)
    }

    fn at(url: &str, more: &str) -> Db {
        let text = format!("[upstreams.db]\npostgres = '{url}'\ntimeout = '20s'\nconnect_timeout = '10s'\n{more}");
        Db { upstreams: Arc::new(Upstreams::new(&config(&text)).unwrap()), worker: WorkerClient::new() }
    }

    fn upstream(&self) -> &Arc<Upstream> {
        self.upstreams.get("db").unwrap()
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
        context: CallContext,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let request = Request { method, path_and_query: path.into(), headers: HeaderMap::new(), body: body.into() };
        self.upstream().call(&self.worker, request, context)
    }

    /// `params` is JSON without the brackets.
    async fn query(&self, sql: &str, params: &str) -> Result<Answer, CallError> {
        self.send(Method::GET, "/query", body(sql, params), within(Duration::from_secs(20))).await
    }

    async fn write(&self, sql: &str, params: &str) -> Result<Answer, CallError> {
        self.send(Method::POST, "/execute", body(sql, params), within(Duration::from_secs(20))).await
    }

    /// The body of an error answer.
    async fn refused(&self, sql: &str, params: &str) -> String {
        let answer = self.query(sql, params).await.unwrap();
        let text = format!("{} {}", answer.status.as_u16(), text(&answer));
        let error = CallError::status(self.upstream().name(), &answer);
        assert!(error.to_string().contains("status 4") || error.to_string().contains("status 5"), "{error}");
        text
    }

    /// Statements of the pool that run at the server now.
    async fn running(&self) -> String {
        let sql = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep%' \
                   and pid <> pg_backend_pid()";
        text(&self.query(sql, "").await.unwrap())
    }
}

fn within(time: Duration) -> CallContext {
    CallContext::new(Instant::now() + time)
}

fn body(sql: &str, params: &str) -> String {
    let mut text = Vec::new();
    fanin_json::write_str(&mut text, sql);
    let text = String::from_utf8(text).unwrap();
    if params.is_empty() { format!("[{text}]") } else { format!("[{text}, {params}]") }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}
