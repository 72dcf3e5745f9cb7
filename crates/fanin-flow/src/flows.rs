//! All flows of a configuration, compiled.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use arcstr::ArcStr;
use fanin_config::{Config, Diagnostic, Executor, FILE_NAME, FlowLimits, FlowRef, Route, Severity, Source};
use fanin_lang::{CoveredPoint, HostRef, Instance, Limits, Machine, Program, Value};
use fanin_push::{Channels, Hub};
use fanin_upstream::Upstreams;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::before::Before;
use crate::budget;
use crate::builtins;
use crate::call::STREAM;
use crate::call_record::Detail;
use crate::caller::Caller;
use crate::fair_scheduler::FairScheduler;
use crate::flow_future::FlowFuture;
use crate::incoming_request::IncomingRequest;
use crate::kinds::UpstreamObject;
use crate::log::{FailureLog, FlowLog};
use crate::modules::{Module, Modules};
use crate::own_objects::OwnObjects;
use crate::plan::RoutePlan;
use crate::push::ChannelsCell;
use crate::route::{LargeBodies, RouteFlow};
use crate::sequential_waits::SequentialWaits;
use crate::signing_keys::Keys;
use crate::threads::{Pool, Pools};
use crate::worker::{StandIns, Worker};

/// The flows of a configuration's routes: compiled once, shared by all workers.
pub struct Flows {
    program: Program,
    /// `None` for a route that something else answers.
    routes: Vec<Option<Arc<RouteFlow>>>,
    sequential_waits: Arc<SequentialWaits>,
    /// Lines of `log` and `print` above `max_log_rate`.
    log_dropped: Counter,
    /// The flow before that of each route that has one.
    before: Vec<Option<Arc<RouteFlow>>>,
    /// The pool of threads of each route that has one.
    pools: Vec<Option<Arc<Pool>>>,
    channels: ChannelsCell,
    /// The upstreams as values of flows.
    objects: Vec<HostRef>,
    /// What is called in place of these.
    own: Option<Arc<OwnObjects>>,
}

impl Flows {
    /// Loads and checks the flows of all routes, and all files that these load.
    ///
    /// # Errors
    /// All errors.
    pub fn load(config: &Config, upstreams: &Upstreams) -> Result<Flows, Vec<Diagnostic>> {
        let checked = Flows::check(config, upstreams, &[], false);
        match checked.flows {
            Some(flows) => Ok(flows),
            None => Err(checked.diagnostics),
        }
    }

    /// As [`load`](Self::load), with warnings, and also for an invalid configuration. Each upstream of `placeholders` counts as having
    /// every method. With `config_reported`, errors of the configuration itself, such as missing files, are not reported again.
    #[must_use]
    pub fn check(config: &Config, upstreams: &Upstreams, placeholders: &[String], config_reported: bool) -> Checked {
        Flows::check_with(config, upstreams, placeholders, config_reported, &[])
    }

    /// The same where files may load further modules: in an editor, files of tests are open beside flows.
    #[must_use]
    pub fn check_with(
        config: &Config,
        upstreams: &Upstreams,
        placeholders: &[String],
        config_reported: bool,
        more: &[Module],
    ) -> Checked {
        let mut all = Flows::link(config, upstreams, placeholders, config_reported, more, |modules, names| {
            let checked = Program::check(Arc::new(builtins::globals()), modules, names);
            (checked.program, checked.found, checked.defined)
        });
        // Of an upstream that is missing, nobody knows which calls are effects.
        let judged = all.flows.as_ref().filter(|_| placeholders.is_empty());
        let exceeded = judged.map(|flows| flows.exceeded(config)).unwrap_or_default();
        if !exceeded.is_empty() {
            all.over_budget = all.flows.take();
            all.diagnostics.extend(exceeded);
        }
        all
    }

    fn link(
        config: &Config,
        upstreams: &Upstreams,
        placeholders: &[String],
        config_reported: bool,
        more: &[Module],
        load: impl FnOnce(&Modules<'_>, &[&str]) -> (Option<Program>, Vec<fanin_lang::Diagnostic>, Defined),
    ) -> Checked {
        let objects = upstreams.iter().filter(|upstream| !placeholders.iter().any(|name| *name == **upstream.name()));
        let objects = objects.map(|upstream| UpstreamObject::new(upstream.clone()));
        let channels: ChannelsCell = Arc::new(OnceLock::new());
        let modules = Modules::new(&config.dir, objects, placeholders, channels.clone(), config.editing.clone());
        let modules = modules.with(more);
        let mut roots: Vec<String> = Vec::new();
        for flow in config.routes.iter().flat_map(flows_of) {
            let name = flow.file.to_string_lossy().replace('\\', "/");
            if !roots.contains(&name) && (!config_reported || config.dir.join(&name).is_file()) {
                roots.push(name);
            }
        }
        for name in config.editing.flows() {
            if !roots.contains(name) {
                roots.push(name.clone());
            }
        }
        let names: Vec<&str> = roots.iter().map(String::as_str).collect();
        let (program, found, all_defined) = load(&modules, &names);
        let mut diagnostics: Vec<Diagnostic> = {
            let sources = modules.sources.borrow();
            found.iter().map(|problem| diagnostic(problem, &sources)).collect()
        };
        let Some(program) = program else {
            for flow in config.routes.iter().flat_map(flows_of) {
                let file = flow.file.to_string_lossy().replace('\\', "/");
                let name = &flow.function;
                if let Some(defined) = all_defined.get(file.as_str()).filter(|defined| !defined.contains(name)) {
                    let (message, hint) = no_function(&file, name, defined.iter().map(String::as_str));
                    diagnostics.push(at_flow(config, flow, message, hint));
                }
            }
            return Checked { flows: None, over_budget: None, diagnostics, files: modules.into_sources() };
        };
        let (mut routes, mut before) = (Vec::new(), Vec::new());
        let sequential_waits = Arc::new(SequentialWaits::default());
        let log_dropped = Counter::default();
        let signing = match config.signing.as_ref().map(|signing| Keys::read(&signing.key_files)).transpose() {
            Ok(keys) => keys,
            Err(wrong) => {
                let file = config.dir.join(FILE_NAME).display().to_string();
                diagnostics.push(Diagnostic::file(file, format!("signing.key_files: {wrong}")));
                None
            }
        };
        let make = |index: usize, route: &Route, flow: &FlowRef, is_before: bool| {
            let file = flow.file.to_string_lossy().replace('\\', "/");
            let function = function(&program, &file, &flow.function)
                .map_err(|(message, hint)| at_flow(config, flow, message, hint))?;
            Ok(Arc::new(RouteFlow {
                index,
                name: if is_before { format!("{} (before)", route.label()) } else { route.label() },
                flow: flow.to_string(),
                program: program.clone(),
                function,
                bounds: Arc::new(bounds(&route.limits)),
                limits: route.limits.clone(),
                calls: AtomicU32::new(1),
                on_disconnect: route.on_disconnect,
                errors: route.errors && !is_before,
                progressive: route.progressive && !is_before,
                grpc: route.grpc.is_some() && !is_before,
                streams: modules.mention(&file, STREAM),
                sequential_waits: sequential_waits.clone(),
                signing: signing.clone(),
                log: FlowLog::new(route.limits.max_log_rate, log_dropped.clone()),
                large_bodies: LargeBodies::default(),
            }))
        };
        for (index, route) in config.routes.iter().enumerate() {
            match route.flow.as_ref().map(|flow| make(index, route, flow, false)).transpose() {
                Ok(flow) => routes.push(flow),
                Err(wrong) => diagnostics.push(wrong),
            }
            match route.access.before.as_ref().map(|flow| make(index, route, flow, true)).transpose() {
                Ok(flow) => before.push(flow),
                Err(wrong) => diagnostics.push(wrong),
            }
        }
        let sound = !diagnostics.iter().any(|one| one.severity == Severity::Error);
        let pools = config.routes.iter().map(|route| pool(route, false)).collect();
        let objects = modules.upstreams();
        let flows = sound.then(|| Flows {
            program,
            routes,
            before,
            sequential_waits,
            log_dropped,
            pools,
            channels,
            objects,
            own: None,
        });
        Checked { flows, over_budget: None, diagnostics, files: modules.into_sources() }
    }

    /// What routes do beyond their budgets. Only routes with a budget cost a plan.
    fn exceeded(&self, config: &Config) -> Vec<Diagnostic> {
        let mut source = None;
        let mut found = Vec::new();
        for (route, flow) in config.routes.iter().zip(&self.routes) {
            if let (Some(budget), Some(flow)) = (&route.budget, flow) {
                let source = source.get_or_insert_with(|| configuration(config));
                found.extend(budget::check(route, budget, &self.plan(flow), source));
            }
        }
        found
    }

    fn plan(&self, route: &RouteFlow) -> RoutePlan {
        RoutePlan { route: route.name.clone(), flow: route.flow.clone(), plan: self.program.plan(route.function) }
    }

    /// The flows of a configuration that has been checked, compiled again without checks and budgets. With `coverage`, they count what of them runs.
    ///
    /// # Errors
    /// All errors.
    pub fn compile(config: &Config, upstreams: &Upstreams, coverage: bool) -> Result<Flows, Vec<Diagnostic>> {
        let checked = Flows::link(config, upstreams, &[], false, &[], |modules, names| {
            let globals = Arc::new(builtins::globals().with_coverage(coverage));
            match Program::load(globals, modules, names) {
                Ok(program) => (Some(program), Vec::new(), HashMap::new()),
                Err(found) => (None, found, HashMap::new()),
            }
        });
        checked.flows.ok_or(checked.diagnostics)
    }

    /// The same compiled flows as if no request had run: they call these upstreams, made from the same configuration, and publish to these
    /// channels. They run on the worker whatever their routes say.
    #[must_use]
    pub fn anew(&self, upstreams: &Upstreams, channels: &Arc<Channels>) -> Flows {
        let sequential_waits = Arc::new(SequentialWaits::default());
        let log_dropped = Counter::default();
        let again = |route: &Arc<RouteFlow>| Arc::new(route.anew(&sequential_waits, &log_dropped));
        Flows {
            program: self.program.clone(),
            routes: self.routes.iter().map(|route| route.as_ref().map(again)).collect(),
            before: self.before.iter().map(|route| route.as_ref().map(again)).collect(),
            pools: vec![None; self.pools.len()],
            channels: Arc::default(),
            objects: self.objects.clone(),
            own: Some(Arc::new(OwnObjects::new(&self.objects, upstreams, channels))),
            sequential_waits,
            log_dropped,
        }
    }

    /// What of the flows has run how often, if they count it.
    #[must_use]
    pub fn coverage(&self) -> Vec<CoveredPoint> {
        self.program.coverage()
    }

    /// Loads files that are no flows, such as tests, with modules of their own. They may load flows.
    #[must_use]
    pub fn load_program(config: &Config, upstreams: &Upstreams, files: &[&str], more: &[Module]) -> LoadedProgram {
        let objects = upstreams.iter().map(|upstream| UpstreamObject::new(upstream.clone()));
        let modules = Modules::new(&config.dir, objects, &[], Arc::default(), config.editing.clone()).with(more);
        let checked = Program::check(Arc::new(builtins::globals()), &modules, files);
        let diagnostics = {
            let sources = modules.sources.borrow();
            checked.found.iter().map(|problem| diagnostic(problem, &sources)).collect()
        };
        LoadedProgram { program: checked.program, diagnostics }
    }

    /// The plan of each route's flow, in the order of the configuration, each after that of the flow before it.
    pub fn plans(&self) -> Vec<RoutePlan> {
        let both = self.routes.iter().zip(&self.before).flat_map(|(route, before)| [before.as_ref(), route.as_ref()]);
        both.flatten().map(|route| self.plan(route)).collect()
    }

    /// Takes over the pools of threads of `old`, the flows before a reload, for routes whose pool is unchanged.
    pub fn keep_threads(&mut self, old: &Flows) {
        for pool in self.pools.iter_mut().flatten() {
            if let Some(kept) = old.pools.iter().flatten().find(|old| old.serves(pool)) {
                *pool = kept.clone();
            }
        }
    }

    /// Sets where `push.publish` publishes. Later calls change nothing.
    pub fn set_channels(&self, channels: &Arc<Channels>) {
        let _ = self.channels.set(channels.clone());
    }

    /// For tests in paused time, which advances whenever the runtime is idle: makes the pools count their active threads, so that
    /// [`idle_waiter`](Self::idle_waiter) can wait for them.
    #[doc(hidden)]
    pub fn use_paused_time(&mut self, config: &Config) {
        self.pools = config.routes.iter().map(|route| pool(route, true)).collect();
    }

    /// For such tests: blocks until all threads of the pools are idle. Call it before the runtime parks.
    #[doc(hidden)]
    pub fn idle_waiter(&self) -> impl Fn() + use<> {
        let pools: Vec<_> = self.pools.iter().flatten().filter_map(|pool| pool.shared.quiescence.clone()).collect();
        move || pools.iter().for_each(|pool| pool.wait())
    }

    /// Adds the metrics of flows, and of pools of threads if there are any.
    pub fn register(&self, registry: &mut Registry) {
        self.sequential_waits.register(registry);
        registry.register(
            "fanin_flow_log_lines_dropped",
            "Lines of log and print above max_log_rate",
            self.log_dropped.clone(),
        );
        let pools = Pools::of(self.pools.iter().flatten());
        if !pools.is_empty() {
            registry.register_collector(Box::new(pools));
        }
    }

    /// Name of a route's flow, for the watchdog and for logs.
    pub fn describe(&self, route: usize) -> &str {
        self.routes.get(route).and_then(Option::as_ref).map_or("", |route| &route.name)
    }

    /// The flows on one worker. `activity` is called with a route's index when its flow starts to compute, and with `None` when it
    /// stops. `detail`: how much is recorded of each flow.
    pub fn worker(
        self: &Arc<Self>,
        caller: Rc<dyn Caller>,
        activity: Box<dyn Fn(Option<usize>)>,
        detail: Detail,
    ) -> WorkerFlows {
        let machine = Machine::new().into();
        WorkerFlows {
            flows: self.clone(),
            worker: Rc::new(Worker {
                machine,
                scheduler: FairScheduler::default(),
                caller,
                open: Rc::default(),
                activity,
                log: Arc::new(FailureLog::new()),
                detail,
                hub: OnceCell::new(),
                own: self.own.clone().map(|own| own as Arc<dyn StandIns>),
            }),
        }
    }
}

/// The limits that the machine enforces.
fn bounds(limits: &FlowLimits) -> Limits {
    Limits {
        steps: limits.max_steps,
        memory: limits.max_memory as u64,
        depth: limits.max_depth as u32,
        fibers: limits.max_fibers as u32,
        value: limits.max_value as u64,
    }
}

/// The pool of threads of a route. Threads start when they are first needed.
fn pool(route: &Route, paused: bool) -> Option<Arc<Pool>> {
    match route.executor {
        Executor::Coroutines => None,
        Executor::Threads(bounds) => {
            Some(Arc::new(Pool::new(route.methods_text(), route.path.clone(), bounds, paused)))
        }
    }
}

/// For each file that could be parsed, the names that it defines.
type Defined = HashMap<ArcStr, Vec<String>>;

/// Result of [`Flows::load_program`].
pub struct LoadedProgram {
    /// The program, if there is no error.
    pub program: Option<Program>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Result of [`Flows::check`].
pub struct Checked {
    /// The flows, if there is no error.
    pub flows: Option<Flows>,
    /// The flows, if the only errors are that routes exceed their budgets: for their plans, not to be served.
    pub over_budget: Option<Flows>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The flow files that were read, named from the configuration's folder.
    pub files: Vec<Arc<Source>>,
}

/// The flows that a route names.
fn flows_of(route: &Route) -> impl Iterator<Item = &FlowRef> {
    route.flow.iter().chain(&route.access.before)
}

/// The configuration file, for messages about it.
fn configuration(config: &Config) -> Arc<Source> {
    let file = config.dir.join(FILE_NAME);
    let edited = config.editing.text(&file).map(ToOwned::to_owned);
    let text = edited.unwrap_or_else(|| std::fs::read_to_string(&file).unwrap_or_default());
    Arc::new(Source::new(file.display().to_string(), text))
}

/// An error about a flow that a route names.
fn at_flow(config: &Config, flow: &FlowRef, message: String, hint: Option<String>) -> Diagnostic {
    Diagnostic { severity: Severity::Error, source: configuration(config), at: flow.at, message, hint, lint: None }
}

fn no_function<'n>(file: &str, name: &str, defined: impl Iterator<Item = &'n str>) -> (String, Option<String>) {
    let near = defined.max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
    let hint = near.filter(|near| strsim::jaro(near, name) > 0.6).map(|near| format!("did you mean {near}?"));
    (format!("{file} has no function {name}"), hint)
}

/// A function that can be a route's flow; else why it cannot, and a hint.
fn function(program: &Program, file: &str, name: &str) -> Result<fanin_lang::FunctionRef, (String, Option<String>)> {
    let Some(function) = program.function(file, name) else {
        let functions = program.functions(file);
        return Err(no_function(file, name, functions.iter().map(|name| name.as_str())));
    };
    let limits = Limits { steps: 1, memory: 1, depth: 1, fibers: 1, value: 1 };
    if Instance::new(program, function, vec![Value::None], limits).is_err() {
        let hint = "a flow is a function with one argument, the request: def f(req): ...";
        return Err((format!("{name} of {file} cannot be called with one argument"), Some(hint.to_owned())));
    }
    Ok(function)
}

fn diagnostic(
    problem: &fanin_lang::Diagnostic,
    sources: &std::collections::BTreeMap<String, Arc<Source>>,
) -> Diagnostic {
    let file = problem.position.file.to_string();
    let mut shown = match sources.get(&file) {
        Some(source) if problem.position.line > 0 => {
            let (start, end) = problem.position.span;
            Diagnostic::error(source, start as usize..end as usize, problem.message.clone())
        }
        _ => Diagnostic::file(file, problem.message.clone()),
    };
    shown.hint = problem.hint.clone();
    shown.lint = problem.lint;
    match problem.severity {
        fanin_lang::Severity::Error => shown,
        fanin_lang::Severity::Warning => shown.warning(),
    }
}

/// The flows of one worker.
#[derive(Clone)]
pub struct WorkerFlows {
    flows: Arc<Flows>,
    worker: Rc<Worker>,
}

impl WorkerFlows {
    /// CPU-bound flows in the queue of the fair scheduler.
    pub fn computing(&self) -> usize {
        self.worker.scheduler.queued()
    }

    /// Sets where subscribers of this worker are. Later calls change nothing.
    pub fn set_hub(&self, hub: &Rc<Hub>) {
        let _ = self.worker.hub.set(hub.clone());
    }

    /// Runs the flow of a route, by its index in the configuration.
    ///
    /// # Panics
    /// If there is no such route, or it has no flow.
    pub fn run(&self, route: usize, incoming: IncomingRequest) -> FlowFuture {
        #[allow(clippy::expect_used, reason = "who runs routes without a flow has a defect")]
        let flow = self.flows.routes[route].clone().expect("a route with a flow");
        let worker = self.worker.clone();
        if let Some(before) = &self.flows.before[route] {
            let (own, pool) = (worker.clone(), self.flows.pools[route].clone());
            let start = Box::new(move |incoming| start(own, pool.as_ref(), flow, incoming));
            return FlowFuture::after(Before::new(worker, before.clone(), incoming, start));
        }
        start(worker, self.flows.pools[route].as_ref(), flow, incoming)
    }
}

fn start(worker: Rc<Worker>, pool: Option<&Arc<Pool>>, flow: Arc<RouteFlow>, incoming: IncomingRequest) -> FlowFuture {
    match pool {
        None => FlowFuture::new(worker, flow, incoming),
        Some(pool) => FlowFuture::on_thread(worker, pool.clone(), flow, incoming),
    }
}
