//! Endpoints: the instances of an upstream, and how they are reached.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fanin_config::{HttpVersion, UpstreamKind};
use http::header::HeaderMap;
use http::uri::{Authority, Scheme};

use crate::policy::load_balancing::EndpointLoad;
use crate::policy::outlier::Health;
use crate::transport::connection_budget::ConnectionBudget;
use crate::transport::tls::Tls;

/// What all endpoints behind one URL have in common.
#[derive(Debug)]
pub(crate) struct Origin {
    pub target: Target,
    pub protocol: HttpVersion,
    pub scheme: Scheme,
    pub authority: Authority,
    /// The URL's path without a final slash. It precedes each call's path.
    pub base_path: String,
    pub tls: Option<Tls>,
    /// Headers of every request: `host` and the configured ones.
    pub default_headers: HeaderMap,
    /// The same headers as text of HTTP/1.1.
    pub header_lines: Vec<u8>,
    pub kind: UpstreamKind,
    pub data: Option<Box<dyn TransportData>>,
    pub connect_timeout: Duration,
    pub idle_timeout: Duration,
    /// HTTP/1.1: in the process. HTTP/2: for each worker.
    pub max_connections: usize,
    pub max_connecting: usize,
    pub ping_interval: Duration,
    /// Whether connections without calls are pinged too.
    pub ping_idle: bool,
    pub pong_timeout: Duration,
}

/// What a transport keeps beside these settings: of an origin, such as a database's user, or of an endpoint, such as the
/// process-wide pool of its connections. Only that transport looks inside, by downcasting.
pub(crate) trait TransportData: Any + fmt::Debug + Send + Sync {
    /// What all workers share at one endpoint of the origin that this belongs to.
    fn endpoint_data(&self, _max_connections: usize) -> Option<Box<dyn TransportData>> {
        None
    }

    /// The endpoint that this belongs to is retired: unused connections are closed.
    fn retire(&self) {}
}

/// The data of one transport, if it is that transport's.
fn downcast<T: TransportData>(data: &Option<Box<dyn TransportData>>) -> Option<&T> {
    let data: &dyn Any = &**data.as_ref()?;
    data.downcast_ref()
}

impl Origin {
    /// What the transport of this origin keeps, if it is a `T`.
    pub fn data<T: TransportData>(&self) -> Option<&T> {
        downcast(&self.data)
    }
}

/// Where a URL points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Address(SocketAddr),
    Name(String, u16),
}

/// One instance of an upstream, known to the whole process.
pub(crate) struct Endpoint {
    /// Unique in the process: never used again.
    pub id: u64,
    pub origin: Arc<Origin>,
    pub address: SocketAddr,
    pub budget: Arc<ConnectionBudget>,
    data: Option<Box<dyn TransportData>>,
    pub load: EndpointLoad,
    pub health: Health,
    retired: AtomicBool,
    /// It has closed a connection because of too many pings.
    reduced_pings: AtomicBool,
}

/// How often servers of gRPC's C core accept a ping by default.
const REDUCED_PING_INTERVAL: Duration = Duration::from_secs(300);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint {} at {}", self.id, self.address)
    }
}

impl Endpoint {
    pub fn new(origin: Arc<Origin>, address: SocketAddr) -> Arc<Endpoint> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let data = origin.data.as_ref().and_then(|data| data.endpoint_data(origin.max_connections));
        let max_open = match origin.protocol {
            HttpVersion::Http1 => origin.max_connections,
            HttpVersion::Http2 => usize::MAX,
        };
        Arc::new(Endpoint {
            id: NEXT.fetch_add(1, Relaxed),
            budget: ConnectionBudget::new(max_open, origin.max_connecting),
            data,
            address,
            origin,
            load: EndpointLoad::default(),
            health: Health::default(),
            retired: AtomicBool::new(false),
            reduced_pings: AtomicBool::new(false),
        })
    }

    /// No new call uses the endpoint. Connections are closed as they become free.
    pub fn retire(&self) {
        self.retired.store(true, Relaxed);
        self.budget.wake_all();
        if let Some(data) = &self.data {
            data.retire();
        }
    }

    /// What the transport keeps at this endpoint, if it is a `T`.
    pub fn data<T: TransportData>(&self) -> Option<&T> {
        downcast(&self.data)
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// How often its HTTP/2 connections are pinged.
    pub fn ping_interval(&self) -> Duration {
        match self.reduced_pings.load(Relaxed) {
            true => self.origin.ping_interval.max(REDUCED_PING_INTERVAL),
            false => self.origin.ping_interval,
        }
    }

    /// From now on the endpoint is pinged less often. Whether that is new.
    pub fn reduce_pings(&self) -> bool {
        !self.reduced_pings.swap(true, Relaxed)
    }

    /// Whether this is the endpoint of that origin at that address.
    pub fn is(&self, origin: &Arc<Origin>, address: SocketAddr) -> bool {
        self.address == address && Arc::ptr_eq(&self.origin, origin)
    }
}
