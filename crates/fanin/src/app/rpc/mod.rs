//! Routes that serve methods, by gRPC, gRPC-Web and Connect: the request's message becomes JSON for the flow, and what the flow returns
//! becomes messages. The protocols themselves are in `fanin_server::rpc`.
//!
//! - `method`: a method, its requests and its responses. `lines`: responses whose messages come one after the other.
//! - `health`, `reflection`: what is served without a route.

mod health;
mod lines;
mod method;
mod reflection;

use std::rc::Rc;
use std::sync::Arc;

use fanin_config::{Config, Diagnostic};
use fanin_flow::{FlowError, MessageStream, ReplyBody, WorkerFlows};
use fanin_grpc::{HEALTH, MAX_CONVERSATION, REFLECTION, REFLECTION_METHOD, Reflector};
use fanin_server::rpc::Status;
use fanin_server::{Priority, Problem, Request, Response, RouteSpec};
use fanin_upstream::grpc::Served;
use http::{Method as HttpMethod, StatusCode};

pub(super) use health::Health;
use method::RouteMethod;

use super::request_record::RequestRecord;
use super::{App, convert};
use crate::recorder::WorkerRecorder;

/// What answers the calls of a method.
#[derive(Clone)]
pub(super) enum Target {
    /// The flow of its route.
    Flow(Arc<RouteMethod>),
    /// The health of services: once, or whenever it changes.
    Health(Arc<RouteMethod>),
    /// Descriptions of services.
    Reflection(Arc<Reflector>),
}

/// The methods that a configuration serves.
#[derive(Default)]
pub(super) struct Methods {
    /// By the index of the route; those without a route of the configuration follow.
    targets: Vec<Option<Target>>,
    /// The routes of those.
    standard: Vec<RouteSpec>,
    /// Services of which routes serve methods.
    pub(super) services: Vec<String>,
}

/// The methods of the routes, and of the standard services.
///
/// # Errors
/// All that is wrong with `[grpc]` and with the names of methods.
pub(super) fn load(config: &Config, file: &str) -> Result<Methods, Vec<Diagnostic>> {
    let is_used = config.routes.iter().any(|route| route.grpc.is_some());
    let wrong_section = |what: String| vec![Diagnostic::file(file, what)];
    let (grpc, served) = match &config.grpc {
        Some(grpc) => match Served::load(grpc) {
            Ok(served) => (grpc, Arc::new(served)),
            Err((key, what)) => return Err(wrong_section(format!("grpc.{key}: {what}"))),
        },
        None if is_used => {
            let message = "a route has `grpc`, and nothing describes its method";
            let hint = "add a section [grpc] with proto = \"service.proto\"";
            return Err(vec![Diagnostic::file(file, message).hint(hint)]);
        }
        None => return Ok(Methods { targets: config.routes.iter().map(|_| None).collect(), ..Methods::default() }),
    };
    let mut methods = Methods::default();
    let mut wrong = Vec::new();
    for route in &config.routes {
        let target = route.grpc.as_deref().and_then(|full| match served.find(full) {
            Ok(method) => {
                let service = full.split('/').next().unwrap_or_default().to_owned();
                if !methods.services.contains(&service) {
                    methods.services.push(service);
                }
                let (served, method) = (served.clone(), method.clone());
                let method = RouteMethod::new(served, method, route.max_body, grpc.compress_from);
                Some(Target::Flow(Arc::new(method)))
            }
            Err(what) => {
                let of_flow = route.flow.as_ref().map(|flow| format!("line {}, the route of {flow}: ", flow.at.line));
                let message = format!("{}{what}", of_flow.unwrap_or_default());
                wrong.push(Diagnostic::file(file, message));
                None
            }
        });
        methods.targets.push(target);
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    methods.add_health(config).map_err(wrong_section)?;
    if grpc.reflection {
        methods.add_reflection(config, &served.descriptors()).map_err(wrong_section)?;
    }
    Ok(methods)
}

/// Largest message to a standard service.
const MAX_MESSAGE: usize = 64 << 10;

impl Methods {
    /// What answers the calls of a route, if it serves a method.
    #[inline]
    pub(super) fn get(&self, route: usize) -> Option<&Target> {
        self.targets.get(route)?.as_ref()
    }

    /// The routes of the configuration as the server sees them, and those of the standard services.
    pub(super) fn routes(&self, config: &Config) -> Vec<RouteSpec> {
        let mut routes: Vec<RouteSpec> = config.routes.iter().map(RouteSpec::from).collect();
        for (route, target) in routes.iter_mut().zip(&self.targets) {
            if let Some(Target::Flow(method)) = target
                && method.allows_get()
                && !config.routes.iter().any(|one| one.path == route.path && one.methods.contains(&HttpMethod::GET))
            {
                route.methods.push(HttpMethod::GET);
            }
        }
        routes.extend(self.standard.iter().cloned());
        routes
    }

    /// Serves a method of a standard service, unless a route of the configuration has its path.
    fn add(&mut self, config: &Config, full: &str, target: Target) -> Option<&mut RouteSpec> {
        let path = format!("/{full}");
        if config.routes.iter().any(|route| route.path == path && route.methods.contains(&HttpMethod::POST)) {
            return None;
        }
        let mut route = RouteSpec::new(HttpMethod::POST, path);
        route.grpc = true;
        route.max_body = MAX_MESSAGE;
        (route.limit, route.max_waiting) = (config.server.limit, config.server.max_waiting);
        self.targets.push(Some(target));
        self.standard.push(route);
        self.standard.last_mut()
    }

    fn add_health(&mut self, config: &Config) -> Result<(), String> {
        let served = Arc::new(Served::decode(fanin_grpc::DESCRIPTORS)?);
        for name in ["Check", "List", "Watch"] {
            let full = format!("{HEALTH}/{name}");
            let method = RouteMethod::new(served.clone(), served.find(&full)?.clone(), MAX_MESSAGE, None);
            if let Some(route) = self.add(config, &full, Target::Health(Arc::new(method))) {
                route.priority = Priority::Critical;
            }
        }
        Ok(())
    }

    fn add_reflection(&mut self, config: &Config, descriptors: &[u8]) -> Result<(), String> {
        let services: Vec<&str> = self.services.iter().map(String::as_str).chain([HEALTH]).chain(REFLECTION).collect();
        let reflector = Reflector::new(&services, &[descriptors]).map_err(|error| error.to_string())?;
        let reflector = Arc::new(reflector);
        for service in REFLECTION {
            let target = Target::Reflection(reflector.clone());
            if let Some(route) = self.add(config, &format!("{service}/{REFLECTION_METHOD}"), target) {
                route.stream_body = true;
                route.max_body = MAX_CONVERSATION;
            }
        }
        Ok(())
    }
}

/// Answers one call.
pub(super) async fn serve(
    target: Target,
    app: Arc<App>,
    flows: WorkerFlows,
    recorder: Rc<WorkerRecorder>,
    mut request: Request,
) -> Response {
    let (id, route) = (request.id, request.route);
    match target {
        Target::Reflection(reflector) => match reflection::serve(reflector, request) {
            Ok(response) => response,
            Err(problem) => problem.request(id).into(),
        },
        Target::Health(method) => {
            let call = match method.receive(&mut request).await {
                Ok(call) => call,
                Err(refused) => return refused.response(id),
            };
            let response = match method.name() {
                "Watch" => app.health.watch(&request),
                "List" => Ok(app.health.list()),
                _ => app.health.check(&request.body),
            };
            match response {
                Ok(response) => method.send(call, response, None, None, "health").await,
                Err(status) => method.fail(call, *status),
            }
        }
        Target::Flow(method) => {
            let call = match method.receive(&mut request).await {
                Ok(call) => call,
                Err(refused) => return refused.response(id),
            };
            let mut record = RequestRecord::begin(&recorder, app.spans.is_some(), &request);
            let mut incoming = convert::incoming(&[], request);
            incoming.detail = record.detail();
            let mut reply = flows.run(route, incoming).await;
            record.end(&mut reply);
            let (rpc, messages) = match &mut reply.result {
                Ok(success) => (success.rpc.take(), messages(&mut success.body)),
                Err(FlowError { rpc, .. }) => (rpc.take(), None),
            };
            let response = convert::response(reply, id);
            method.send(call, response, messages, rpc, app.flows.describe(route)).await
        }
    }
}

/// Takes the messages of a stream out of a body.
fn messages(body: &mut ReplyBody) -> Option<Box<dyn MessageStream>> {
    match std::mem::replace(body, ReplyBody::Pieces(Default::default())) {
        ReplyBody::Messages(messages) => Some(messages),
        other => {
            *body = other;
            None
        }
    }
}

/// A request that is no call by any protocol.
fn no_call() -> Problem {
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-grpc", "This is a method of gRPC or Connect");
    problem.detail("send content-type: application/grpc, application/grpc-web, application/json or application/proto")
}

/// What the client learns of a mistake of ours. The log has the details.
fn ours() -> Status {
    Status::new(INTERNAL, "see the log of the server")
}

const INTERNAL: u8 = 13;
