//! The listeners of the admin pages. They answer while others hold many silent connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::{Body, Response};

/// Most connections of a listener at once. For a further one, the oldest without a request is closed.
const CONNECTIONS: usize = 64;
/// A connection is closed after this long.
const MAX_LIFETIME: Duration = Duration::from_secs(300);
/// For the head of a request, and between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// An open connection.
#[derive(Default)]
struct Open {
    /// A request of it is being answered.
    busy: Cell<bool>,
    close: Notify,
}

/// The open connections of a listener, the oldest first.
type AllOpen = Rc<RefCell<VecDeque<Rc<Open>>>>;

/// Serves until the runtime ends, also while the server drains, since `/ready` matters then.
pub(super) async fn run<F, A>(listener: TcpListener, answer: F)
where
    F: Fn(SocketAddr, Request<Incoming>) -> A + Clone + 'static,
    A: Future<Output = Response> + 'static,
{
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let all = AllOpen::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections to the admin pages");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if permits.available_permits() == 0
            && let Some(oldest) = all.borrow().iter().find(|open| !open.busy.get())
        {
            oldest.close.notify_one();
        }
        // Never an error: the semaphore is never closed.
        let permit = permits.clone().acquire_owned().await;
        let open = Rc::<Open>::default();
        all.borrow_mut().push_back(open.clone());
        let (all, answer) = (all.clone(), answer.clone());
        spawn_local(async move {
            tokio::select! {
                () = open.close.notified() => {}
                () = serve(stream, peer, &open, answer) => {}
            }
            all.borrow_mut().retain(|other| !Rc::ptr_eq(other, &open));
            drop(permit);
        });
    }
}

async fn serve<F, A>(stream: TcpStream, peer: SocketAddr, open: &Rc<Open>, answer: F)
where
    F: Fn(SocketAddr, Request<Incoming>) -> A + 'static,
    A: Future<Output = Response> + 'static,
{
    let open = open.clone();
    let service = service_fn(move |request| {
        open.busy.set(true);
        let (open, response) = (open.clone(), answer(peer, request));
        async move {
            let response = response.await;
            open.busy.set(false);
            let mut result = http::Response::<Body>::new(response.body);
            *result.status_mut() = response.status;
            *result.headers_mut() = response.headers;
            Ok::<_, Infallible>(result)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // An error is the client's.
    let _ = timeout(MAX_LIFETIME, connection).await;
}
