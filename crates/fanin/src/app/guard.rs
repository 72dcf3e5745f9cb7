//! The guards of routes: their decisions for the server, and the keys of issuers for them.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use fanin_auth::{Admitted, Decision, Guards, KeySource, Refusal, Subject};
use fanin_flow::ClientIdentity;
use fanin_json::Doc;
use fanin_server::{GuardedHead, Identity, Pass, Problem, Response, Verdict};
use fanin_tls::ClientCertificate;
use fanin_upstream::{CallContext, Request, Upstream, Upstreams, WorkerClient};
use http::StatusCode;
use tokio::time::Instant;

/// Who sends a request, as the server keeps it between the guard and the flow.
struct Known(Arc<fanin_auth::Identity>);

impl Identity for Known {
    fn principal(&self) -> Option<&str> {
        self.0.principal.as_deref()
    }
}

/// Decides about a request.
pub(super) fn decide(guards: &Guards, head: &GuardedHead<'_>) -> Verdict {
    let Some(guard) = guards.get(head.route) else { return Verdict::Pass(Pass::default()) };
    let subject = Subject {
        client: head.client,
        certificate: head.certificate.map(|certificate| &**certificate),
        headers: head.headers,
        query: head.uri.query(),
        now: head.start,
    };
    match guard.check(&subject) {
        Decision::Wait(wait) => {
            let deadline = head.deadline;
            Verdict::Wait(Box::pin(async move { verdict(wait.decide(deadline).await) }))
        }
        decided => verdict(decided),
    }
}

fn verdict(decision: Decision) -> Verdict {
    match decision {
        Decision::Admit(Admitted { identity, headers }) => {
            let identity = identity.map(|identity| Arc::new(Known(identity)) as Arc<dyn Identity>);
            Verdict::Pass(Pass { identity, headers })
        }
        Decision::Refuse(refusal) => Verdict::Refuse(Box::new(response(*refusal))),
        // What has been decided does not wait.
        Decision::Wait(_) => Verdict::Pass(Pass::default()),
    }
}

fn response(refusal: Refusal) -> Response {
    let Refusal { reason, detail, retry_after, headers } = refusal;
    let status = StatusCode::from_u16(reason.status()).unwrap_or(StatusCode::FORBIDDEN);
    let mut problem = Problem::new(status, reason.name(), reason.title()).detail(detail);
    if let Some(after) = retry_after {
        problem = problem.retry_after(after);
    }
    let mut response = Response::from(problem);
    for (name, value) in headers {
        response.headers.append(name, value);
    }
    response
}

/// Who sends a request, as its flow sees it.
pub(super) fn identity(
    known: Option<Arc<dyn Identity>>,
    certificate: Option<&ClientCertificate>,
) -> Option<Box<ClientIdentity>> {
    if known.is_none() && certificate.is_none() {
        return None;
    }
    let known: Option<&dyn Any> = known.as_ref().map(|known| &**known as &dyn Any);
    let known = known.and_then(|known| known.downcast_ref::<Known>()).map(|Known(identity)| identity);
    Some(Box::new(ClientIdentity {
        principal: known.and_then(|identity| identity.principal.clone()),
        claims: known.and_then(|identity| identity.claims.clone()),
        auth: None,
        // Its JSON is flat, so it can be parsed.
        client: certificate.and_then(|client| Doc::parse(Bytes::from(client.to_json()), 4).ok()),
    }))
}

/// Fetches the keys of issuers from this worker, until another generation takes over. `before`: the generation before.
pub(super) fn fetch_keys(guards: &Guards, before: Option<&Guards>, upstreams: &Upstreams, client: &Rc<WorkerClient>) {
    for source in before.into_iter().flat_map(Guards::key_sources) {
        source.keys.take_over();
    }
    for source in guards.key_sources() {
        let Some(upstream) = upstreams.get(&source.upstream).cloned() else { continue };
        let (owner, client) = (source.keys.take_over(), Rc::downgrade(client));
        tokio::task::spawn_local(async move {
            loop {
                source.keys.due(owner).await;
                let Some(client) = client.upgrade().filter(|_| source.keys.is_owner(owner)) else { return };
                source.keys.begin();
                let fetched = fetch(&source, &upstream, &client).await;
                if let Err(why) = source.keys.end(fetched) {
                    let KeySource { auth, upstream, .. } = &source;
                    tracing::warn!(%auth, %upstream, "the keys of the tokens' issuer could not be fetched: {why}");
                }
            }
        });
    }
}

async fn fetch(source: &KeySource, upstream: &Arc<Upstream>, client: &Rc<WorkerClient>) -> Result<Bytes, String> {
    let context = CallContext::new(Instant::now() + upstream.config().timeout).safe();
    let answer = upstream.call(client, Request::get(source.path.clone()), context).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if !answer.is_success() {
        return Err(format!("{} answered with status {}", source.path, answer.status.as_u16()));
    }
    Ok(answer.body)
}
