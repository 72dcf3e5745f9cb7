//! Resolves the names in an upstream's URLs to endpoints, and again when their time to live ends.
//!
//! A stub resolver runs on the worker that needs the names, without threads of its own. The known endpoints stay in use
//! during a lookup, and after a failed one until another succeeds: an outage of DNS is no outage of the upstream.
//! Endpoints that a new answer still contains keep their connections and their state.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::endpoint::{Endpoint, Origin, Target};
use crate::error::{ErrorKind, Failure};

/// Bounds of the time between two lookups, whatever a name's time to live is.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(300);
/// Time between lookups after a failed one.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The endpoints of one upstream, shared by all workers.
#[derive(Debug)]
pub(crate) struct Endpoints {
    origins: Vec<Arc<Origin>>,
    has_names: bool,
    /// Increased with each change of the list, so that a worker can tell cheaply whether its copy is old.
    version: AtomicU64,
    /// When names are due for a lookup, in milliseconds after `epoch`.
    due: AtomicU64,
    epoch: Instant,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    list: Vec<Arc<Endpoint>>,
    running: bool,
    lookups: u64,
    failure: Option<Arc<str>>,
    retired: bool,
}

impl Endpoints {
    pub fn new(origins: Vec<Arc<Origin>>) -> Arc<Endpoints> {
        let has_names = origins.iter().any(|origin| matches!(origin.target, Target::Name(..)));
        let list = match has_names {
            // No call is sent before all names are resolved: otherwise the first address would get the whole load.
            true => Vec::new(),
            false => merge(&[], origins.iter().map(|origin| (origin, addresses(origin)))),
        };
        Arc::new(Endpoints {
            origins,
            has_names,
            version: AtomicU64::new(1),
            due: AtomicU64::new(0),
            epoch: Instant::now(),
            state: Mutex::new(State { list, ..State::default() }),
            changed: Notify::new(),
        })
    }

    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// The endpoints, and the version to compare with [`Endpoints::version`].
    pub fn list(&self) -> (u64, Vec<Arc<Endpoint>>) {
        let state = self.lock();
        (self.version(), state.list.clone())
    }

    /// Retires all endpoints. Calls in flight end normally.
    pub fn retire(&self) {
        let mut state = self.lock();
        state.retired = true;
        state.list.iter().for_each(|endpoint| endpoint.retire());
    }

    /// Starts a lookup on this worker if one is due and none is running.
    pub fn refresh(self: &Arc<Self>, worker: &Rc<WorkerResolver>) {
        if self.has_names && self.millis(Instant::now()) >= self.due.load(Relaxed) {
            self.start(worker);
        }
    }

    fn start(self: &Arc<Self>, worker: &Rc<WorkerResolver>) {
        {
            let mut state = self.lock();
            if state.running || state.retired {
                return;
            }
            state.running = true;
        }
        let run = Run { endpoints: self.clone() };
        let worker = worker.clone();
        tokio::task::spawn_local(async move {
            let result = run.endpoints.lookup(&worker).await;
            run.endpoints.finish_lookup(result);
            drop(run);
        });
    }

    /// Waits until there are endpoints, or the lookup has failed.
    pub async fn wait_for_endpoints(self: &Arc<Self>, worker: &Rc<WorkerResolver>) -> Result<(), Failure> {
        let first_lookup = self.lock().lookups;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.lock();
                if !state.list.is_empty() {
                    return Ok(());
                }
                if state.lookups > first_lookup {
                    let detail = state.failure.as_deref().unwrap_or("no addresses").to_owned();
                    return Err(Failure::new(ErrorKind::Connect, detail));
                }
            }
            self.start(worker);
            changed.await;
        }
    }

    async fn lookup(&self, worker: &WorkerResolver) -> Result<(Vec<Arc<Endpoint>>, Duration), String> {
        let mut ttl = LONGEST_TTL;
        let mut found = Vec::new();
        let mut failures = Vec::new();
        let known = self.lock().list.clone();
        for origin in &self.origins {
            let Target::Name(name, port) = &origin.target else {
                found.push((origin, addresses(origin)));
                continue;
            };
            match worker.lookup(name).await {
                Ok((ips, ttl_left)) => {
                    ttl = ttl.min(ttl_left);
                    found.push((origin, ips.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect()));
                }
                Err(failure) => {
                    ttl = RETRY_AFTER;
                    let before: Vec<SocketAddr> = known
                        .iter()
                        .filter(|endpoint| Arc::ptr_eq(&endpoint.origin, origin))
                        .map(|endpoint| endpoint.address)
                        .collect();
                    found.push((origin, before));
                    failures.push(format!("{name}: {failure}"));
                }
            }
        }
        let list = merge(&known, found.into_iter());
        match list.is_empty() {
            true => Err(failures.join("; ")),
            false => Ok((list, ttl.max(SHORTEST_TTL))),
        }
    }

    fn finish_lookup(&self, result: Result<(Vec<Arc<Endpoint>>, Duration), String>) {
        let mut state = self.lock();
        state.lookups += 1;
        let next = match result {
            Ok((list, ttl)) => {
                let gone = state.list.iter().filter(|old| !list.iter().any(|new| Arc::ptr_eq(old, new)));
                gone.for_each(|endpoint| endpoint.retire());
                let changed = state.list.len() != list.len()
                    || state.list.iter().zip(&list).any(|(old, new)| !Arc::ptr_eq(old, new));
                state.failure = None;
                if state.retired {
                    list.iter().for_each(|endpoint| endpoint.retire());
                }
                if changed {
                    state.list = list;
                    self.version.fetch_add(1, Release);
                }
                ttl
            }
            Err(failure) => {
                tracing::warn!(%failure, "names of an upstream cannot be resolved");
                state.failure = Some(failure.into());
                RETRY_AFTER
            }
        };
        self.due.store(self.millis(Instant::now() + next), Relaxed);
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running lookup. When it is dropped, another may start and waiting calls go on.
struct Run {
    endpoints: Arc<Endpoints>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.endpoints.lock().running = false;
        self.endpoints.changed.notify_waiters();
    }
}

fn addresses(origin: &Origin) -> Vec<SocketAddr> {
    match origin.target {
        Target::Address(address) => vec![address],
        Target::Name(..) => Vec::new(),
    }
}

/// The endpoints at those addresses. Known ones are kept.
fn merge<'a>(
    known: &[Arc<Endpoint>],
    found: impl Iterator<Item = (&'a Arc<Origin>, Vec<SocketAddr>)>,
) -> Vec<Arc<Endpoint>> {
    let mut list: Vec<Arc<Endpoint>> = Vec::new();
    for (origin, addresses) in found {
        for address in addresses {
            if list.iter().any(|endpoint| endpoint.is(origin, address)) {
                continue;
            }
            let old = known.iter().find(|endpoint| endpoint.is(origin, address));
            list.push(old.cloned().unwrap_or_else(|| Endpoint::new(origin.clone(), address)));
        }
    }
    // DNS answers have any order. A stable order shows whether something has changed.
    list.sort_by_key(|endpoint| endpoint.id);
    list
}

/// A worker's resolver, built when it is first needed. Its sockets belong to the worker's runtime.
#[derive(Default)]
pub(crate) struct WorkerResolver {
    resolver: std::cell::OnceCell<Result<TokioResolver, String>>,
}

impl WorkerResolver {
    /// A resolver that uses these name servers.
    #[cfg(test)]
    fn with_servers(config: ResolverConfig) -> WorkerResolver {
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
        // Each lookup of a test is to reach the server.
        builder.options_mut().cache_size = 0;
        let resolver = WorkerResolver::default();
        let _ = resolver.resolver.set(builder.build().map_err(|error| error.to_string()));
        resolver
    }

    async fn lookup(&self, name: &str) -> Result<(Vec<IpAddr>, Duration), String> {
        let resolver = self.resolver.get_or_init(|| {
            // Without a system configuration, names in the hosts file are still found.
            let mut builder = TokioResolver::builder_tokio().unwrap_or_else(|error| {
                tracing::warn!(%error, "no DNS servers are configured");
                TokioResolver::builder_with_config(ResolverConfig::default(), TokioRuntimeProvider::default())
            });
            // One address family: an instance with two addresses must not count twice.
            builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
            builder.build().map_err(|error| format!("no resolver: {error}"))
        });
        let resolver = resolver.as_ref().map_err(String::clone)?;
        let found = resolver.lookup_ip(name).await.map_err(|error| error.to_string())?;
        let ttl_left = found.valid_until().saturating_duration_since(std::time::Instant::now());
        Ok((found.iter().collect(), ttl_left))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv4Addr;

    use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::{RData, Record, RecordType, rdata::A};
    use tokio::net::UdpSocket;
    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// A name server that gives every name the same addresses, or none.
    struct Names {
        addresses: Rc<RefCell<Vec<Ipv4Addr>>>,
        resolver: Rc<WorkerResolver>,
    }

    impl Names {
        async fn new() -> Names {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut server = ConnectionConfig::udp();
            server.port = socket.local_addr().unwrap().port();
            let server = NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![server]);
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            let addresses = Rc::new(RefCell::new(Vec::new()));
            spawn_local(serve(socket, addresses.clone()));
            Names { addresses, resolver: Rc::new(WorkerResolver::with_servers(config)) }
        }

        fn set(&self, addresses: &[[u8; 4]]) {
            *self.addresses.borrow_mut() = addresses.iter().map(|address| Ipv4Addr::from(*address)).collect();
        }
    }

    async fn serve(socket: UdpSocket, addresses: Rc<RefCell<Vec<Ipv4Addr>>>) {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let query = Message::from_vec(&buffer[..length]).unwrap();
            let question = query.queries[0].clone();
            let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
            answer.add_query(question.clone());
            let addresses = addresses.borrow().clone();
            if addresses.is_empty() {
                answer.metadata.response_code = ResponseCode::NXDomain;
            } else if question.query_type() == RecordType::A {
                for address in addresses {
                    answer.add_answer(Record::from_rdata(question.name().clone(), 60, RData::A(A(address))));
                }
            }
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    }

    fn endpoints(url: &str) -> Arc<Endpoints> {
        let config = fanin_config::Upstream::new("u", url.parse().unwrap());
        Endpoints::new(crate::transport::origins(&config).unwrap())
    }

    fn addresses(endpoints: &Endpoints) -> Vec<String> {
        let mut list: Vec<_> = endpoints.list().1.iter().map(|endpoint| endpoint.address.to_string()).collect();
        list.sort();
        list
    }

    async fn again(endpoints: &Arc<Endpoints>, names: &Names) {
        let lookups = endpoints.lock().lookups;
        endpoints.due.store(0, Relaxed);
        endpoints.refresh(&names.resolver);
        while endpoints.lock().lookups == lookups {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn run<F: Future<Output = ()>>(test: F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            tokio::time::timeout(Duration::from_secs(30), test).await.expect("the test hangs");
        });
    }

    #[test]
    fn endpoints_follow_the_name_and_known_ones_stay_the_same() {
        run(async {
            let names = Names::new().await;
            names.set(&[[127, 0, 0, 1], [127, 0, 0, 2]]);
            let endpoints = endpoints("http://catalog.internal:8080");
            assert!(endpoints.list().1.is_empty());
            endpoints.wait_for_endpoints(&names.resolver).await.unwrap();
            assert_eq!(addresses(&endpoints), ["127.0.0.1:8080", "127.0.0.2:8080"]);
            let (version, before) = endpoints.list();
            again(&endpoints, &names).await;
            assert_eq!(endpoints.version(), version, "nothing has changed");

            names.set(&[[127, 0, 0, 3], [127, 0, 0, 2]]);
            again(&endpoints, &names).await;
            assert_eq!(addresses(&endpoints), ["127.0.0.2:8080", "127.0.0.3:8080"]);
            assert!(endpoints.version() > version);
            let (_, after) = endpoints.list();
            let of = |list: &[Arc<Endpoint>], ip: [u8; 4]| {
                list.iter().find(|endpoint| endpoint.address.ip() == IpAddr::from(ip)).cloned().unwrap()
            };
            assert!(Arc::ptr_eq(&of(&before, [127, 0, 0, 2]), &of(&after, [127, 0, 0, 2])));
            assert!(of(&before, [127, 0, 0, 1]).is_retired());
        });
    }

    #[test]
    fn an_unknown_name_fails_at_first_and_not_during_a_later_outage() {
        run(async {
            let names = Names::new().await;
            let endpoints = endpoints("http://catalog.internal:8080");
            let failure = endpoints.wait_for_endpoints(&names.resolver).await.unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Connect);
            assert!(failure.detail.starts_with("catalog.internal: "), "{}", failure.detail);
            names.set(&[[127, 0, 0, 1]]);
            endpoints.wait_for_endpoints(&names.resolver).await.unwrap();
            names.set(&[]);
            again(&endpoints, &names).await;
            assert_eq!(addresses(&endpoints), ["127.0.0.1:8080"], "an outage of DNS is no outage of the upstream");
        });
    }

    #[test]
    fn the_time_to_live_decides_the_next_lookup_and_one_worker_makes_it() {
        run(async {
            let names = Names::new().await;
            names.set(&[[127, 0, 0, 1]]);
            let endpoints = endpoints("http://catalog.internal:8080");
            let all = (0..10).map(|_| endpoints.wait_for_endpoints(&names.resolver));
            assert!(futures_util::future::join_all(all).await.into_iter().all(|known| known.is_ok()));
            assert_eq!(endpoints.lock().lookups, 1);
            let due = endpoints.due.load(Relaxed);
            assert!((59_000..=61_000 + 30_000).contains(&due), "{due}");
            endpoints.refresh(&names.resolver);
            assert!(!endpoints.lock().running, "it is not due");
        });
    }
}
