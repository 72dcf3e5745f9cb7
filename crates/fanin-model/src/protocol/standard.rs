//! The standard services of gRPC: health, and reflection if it is on.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use fanin_grpc::health::health_check_response::ServingStatus;
use fanin_grpc::health::{HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse};
use fanin_grpc::{Conversation, HEALTH, MAX_CONVERSATION, REFLECTION, REFLECTION_METHOD, Reflector, Refused};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::framing::framed;
use super::methods::decoded;
use super::proto::{DESCRIPTORS, INFERENCE};
use super::reply::Messages;
use super::service::Service;
use super::serving::Serving;
use super::status::{Code, Status, late};
use crate::Models;

/// How often it is looked whether models are ready, for clients that watch.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A method of a standard service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Check,
    List,
    Watch,
    Reflection,
}

impl Method {
    pub fn parse(path: &str) -> Option<Method> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        match method {
            "Check" if service == HEALTH => Some(Method::Check),
            "List" if service == HEALTH => Some(Method::List),
            "Watch" if service == HEALTH => Some(Method::Watch),
            REFLECTION_METHOD if REFLECTION.contains(&service) => Some(Method::Reflection),
            _ => None,
        }
    }
}

/// The status of a service; the empty name is the server.
fn health(models: &Models, serving: &Serving, name: &str) -> Option<ServingStatus> {
    let is_up = !serving.draining.get() && models.is_ready();
    let is_known = name.is_empty() || name == INFERENCE;
    is_known.then_some(if is_up { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// Answers a call of health with one message.
pub(super) fn call(service: &Service, serving: &Serving, method: Method, message: Bytes) -> Result<Bytes, Status> {
    if method == Method::List {
        let _all: HealthListRequest = decoded(message)?;
        let known = ["", INFERENCE].into_iter();
        let status = |name| Some((String::from(name), response(health(&service.models, serving, name)?)));
        return Ok(framed(&HealthListResponse { statuses: known.filter_map(status).collect() }));
    }
    let HealthCheckRequest { service: name } = decoded(message)?;
    let status = health(&service.models, serving, &name);
    let status = status.ok_or_else(|| Status::new(Code::NotFound, format!("{name} is not served here")))?;
    Ok(framed(&response(status)))
}

/// Counts a client that watches until dropped. Such clients are not among the requests in flight.
struct Watching(Arc<Service>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watching.fetch_sub(1, Relaxed);
    }
}

/// The statuses of a service, one after the other, until the server drains.
pub(super) struct Watch {
    watching: Watching,
    serving: Rc<Serving>,
    name: String,
    told: Option<ServingStatus>,
    deadline: Option<Instant>,
    next_look: Pin<Box<dyn Future<Output = ()>>>,
}

impl Watch {
    /// # Errors
    /// The message is none, or as many clients watch as may be connected.
    pub fn new(
        service: &Arc<Service>,
        serving: &Rc<Serving>,
        message: Bytes,
        deadline: Option<Instant>,
    ) -> Result<Watch, Status> {
        let HealthCheckRequest { service: name } = decoded(message)?;
        let most = service.models.config().max_connections;
        let before = service.watching.fetch_add(1, Relaxed);
        let watching = Watching(service.clone());
        if before >= most {
            let message = format!("{most} clients watch already (models.max_connections)");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        let (serving, next_look) = (serving.clone(), Box::pin(std::future::ready(())));
        Ok(Watch { watching, serving, name, told: None, deadline, next_look })
    }
}

impl Messages for Watch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            let status = health(&self.watching.0.models, &self.serving, &self.name);
            let status = status.unwrap_or(ServingStatus::ServiceUnknown);
            if self.told != Some(status) {
                self.told = Some(status);
                return Poll::Ready(Ok(Some(framed(&response(status)))));
            }
            if self.serving.draining.get() {
                return Poll::Ready(Err(Status::new(Code::Unavailable, "the server is shutting down")));
            }
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(Err(late(false)));
            }
            ready!(self.next_look.as_mut().poll(cx));
            let (serving, look) = (self.serving.clone(), now + LOOK_INTERVAL);
            let look = self.deadline.map_or(look, |deadline| deadline.min(look));
            self.next_look = Box::pin(async move {
                // Either may end it.
                let _ = timeout_at(look, serving.drained()).await;
            });
        }
    }
}

/// A stream to a reflection service.
pub(super) struct Reflection {
    conversation: Conversation,
    body: Option<Incoming>,
    left: usize,
    until: Pin<Box<Sleep>>,
}

impl Reflection {
    pub fn new(body: Incoming, until: Instant) -> Reflection {
        static REFLECTOR: OnceLock<Arc<Reflector>> = OnceLock::new();
        let reflector = REFLECTOR.get_or_init(|| {
            let services = [INFERENCE, HEALTH, REFLECTION[0], REFLECTION[1]];
            // The build script has made the descriptions.
            Arc::new(Reflector::new(&services, &[DESCRIPTORS]).unwrap_or_default())
        });
        let (conversation, until) = (Conversation::new(reflector.clone()), Box::pin(sleep_until(until)));
        Reflection { conversation, body: Some(body), left: MAX_CONVERSATION, until }
    }
}

impl Messages for Reflection {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(answer) = self.conversation.answer()? {
                let mut frame = BytesMut::with_capacity(5 + answer.len());
                frame.put_u8(0);
                // Descriptions are far below 4 GB.
                frame.put_u32(answer.len() as u32);
                frame.extend_from_slice(&answer);
                return Poll::Ready(Ok(Some(frame.freeze())));
            }
            let Some(body) = &mut self.body else {
                self.conversation.end()?;
                return Poll::Ready(Ok(None));
            };
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    ready!(self.until.as_mut().poll(cx));
                    return Poll::Ready(Err(late(true)));
                }
            };
            match frame {
                None => self.body = None,
                Some(Err(_)) => return Poll::Ready(Err(Status::new(Code::Internal, "the client aborted the request"))),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let Some(left) = self.left.checked_sub(data.len()) else {
                        let message = format!("a conversation has at most {MAX_CONVERSATION} bytes");
                        return Poll::Ready(Err(Status::new(Code::ResourceExhausted, message)));
                    };
                    self.left = left;
                    self.conversation.receive(&data);
                }
            }
        }
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        let code = match refused.code {
            3 => Code::InvalidArgument,
            8 => Code::ResourceExhausted,
            12 => Code::Unimplemented,
            _ => Code::Internal,
        };
        Status::new(code, refused.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_methods() {
        assert_eq!(Method::parse("/grpc.health.v1.Health/Watch"), Some(Method::Watch));
        for service in REFLECTION {
            assert_eq!(Method::parse(&format!("/{service}/ServerReflectionInfo")), Some(Method::Reflection));
        }
        for other in ["/grpc.health.v1.Health/Watches", "/grpc.health.v2.Health/Check", "/Check", "Check", ""] {
            assert_eq!(Method::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_protocol_is_described() {
        let services = [INFERENCE];
        assert!(Reflector::new(&services, &[DESCRIPTORS]).is_ok());
    }
}
