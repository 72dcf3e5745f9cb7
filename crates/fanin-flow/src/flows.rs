//! All flows of a configuration, compiled.

use std::rc::Rc;
use std::sync::Arc;

use fanin_config::{Config, Diagnostic, Executor, FILE_NAME, Source};
use fanin_lang::{Instance, Limits, Machine, Program, Value};
use fanin_upstream::Upstreams;
use prometheus_client::registry::Registry;

use crate::builtins;
use crate::caller::Caller;
use crate::drive::{FlowFuture, RouteFlow, Worker};
use crate::incoming::Incoming;
use crate::log::FailureLog;
use crate::modules::Modules;
use crate::threads::{Pool, Pools};
use crate::upstream::UpstreamObject;

/// The flows of a configuration's routes: compiled once, shared by all workers.
pub struct Flows {
    program: Program,
    routes: Vec<Arc<RouteFlow>>,
    /// For each route its pool of threads, if it has one.
    pools: Vec<Option<Arc<Pool>>>,
}

impl Flows {
    /// Loads and checks every flow that a route names, and all that these load.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn load(config: &Config, upstreams: &Upstreams) -> Result<Flows, Vec<Diagnostic>> {
        let objects = upstreams.iter().map(|upstream| UpstreamObject::new(upstream.clone()));
        let modules = Modules::new(&config.dir, objects);
        let mut roots: Vec<String> = Vec::new();
        for route in &config.routes {
            let name = route.flow.file.to_string_lossy().replace('\\', "/");
            if !roots.contains(&name) {
                roots.push(name);
            }
        }
        let names: Vec<&str> = roots.iter().map(String::as_str).collect();
        let globals = Arc::new(builtins::globals());
        let program = Program::load(globals, &modules, &names).map_err(|problems| {
            let sources = modules.sources.borrow();
            problems.iter().map(|problem| diagnostic(problem, &sources)).collect::<Vec<_>>()
        })?;
        let mut problems = Vec::new();
        let mut routes = Vec::new();
        for (index, route) in config.routes.iter().enumerate() {
            let file = route.flow.file.to_string_lossy().replace('\\', "/");
            match function(&program, &file, &route.flow.function) {
                Ok(function) => routes.push(Arc::new(RouteFlow {
                    index,
                    name: format!("{} {}", route.method, route.path),
                    function,
                    limits: Arc::new(route.limits.clone()),
                    on_disconnect: route.on_disconnect,
                    errors: route.errors,
                })),
                Err((message, hint)) => {
                    let file = config.dir.join(FILE_NAME);
                    let text = std::fs::read_to_string(&file).unwrap_or_default();
                    problems.push(Diagnostic {
                        severity: fanin_config::Severity::Error,
                        source: Arc::new(Source::new(file.display().to_string(), text)),
                        at: route.flow.at,
                        message,
                        hint,
                    });
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let pools = config.routes.iter().map(|route| pool(route, false)).collect();
        Ok(Flows { program, routes, pools })
    }

    /// Keeps the pools of threads of `old`, the flows before a reload, for routes that need the same.
    pub fn keep_threads(&mut self, old: &Flows) {
        for pool in self.pools.iter_mut().flatten() {
            if let Some(kept) = old.pools.iter().flatten().find(|old| old.serves(pool)) {
                *pool = kept.clone();
            }
        }
    }

    /// For tests in paused time: before a worker's runtime rests it waits until all threads of pools have come to rest, so that
    /// time, which jumps whenever the runtime rests, does not run away from them.
    #[doc(hidden)]
    pub fn in_paused_time(&mut self, config: &Config) {
        self.pools = config.routes.iter().map(|route| pool(route, true)).collect();
    }

    /// Adds the metrics of pools of threads, if there are any.
    pub fn register(&self, registry: &mut Registry) {
        let pools = Pools::of(self.pools.iter().flatten());
        if !pools.is_empty() {
            registry.register_collector(Box::new(pools));
        }
    }

    /// Words for a route's flow, for the watchdog and for logs.
    pub fn describe(&self, route: usize) -> &str {
        self.routes.get(route).map_or("", |route| &route.name)
    }

    /// The same flows on one worker. `activity` is told which route runs whenever a flow gets the worker, and `None` when it
    /// lets go; with `traced`, replies say what happened to each call.
    pub fn worker(
        self: &Arc<Self>,
        caller: Rc<dyn Caller>,
        activity: Box<dyn Fn(Option<usize>)>,
        traced: bool,
    ) -> WorkerFlows {
        let machine = Machine::new().into();
        WorkerFlows {
            flows: self.clone(),
            worker: Rc::new(Worker {
                machine,
                caller,
                open: Rc::default(),
                activity,
                log: Arc::new(FailureLog::new()),
                traced,
            }),
        }
    }
}

/// The pool of threads that a route asks for. Its threads are made when they are first needed.
fn pool(route: &fanin_config::Route, paused: bool) -> Option<Arc<Pool>> {
    match route.executor {
        Executor::Coroutines => None,
        Executor::Threads(bounds) => {
            Some(Arc::new(Pool::new(route.method.to_string(), route.path.clone(), bounds, paused)))
        }
    }
}

/// A function that can serve as a flow, or why it cannot, and a hint.
fn function(program: &Program, file: &str, name: &str) -> Result<fanin_lang::FunctionRef, (String, Option<String>)> {
    let Some(function) = program.function(file, name) else {
        let functions = program.functions(file);
        let near = functions.iter().max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
        let hint = near.filter(|near| strsim::jaro(near, name) > 0.6).map(|near| format!("did you mean {near}?"));
        return Err((format!("{file} has no function {name}"), hint));
    };
    let limits = Limits { steps: 1, memory: 1, depth: 1, fibers: 1 };
    if Instance::new(program, function, vec![Value::None], limits).is_err() {
        let hint = "a flow is a function of one argument, the request: def f(req): ...";
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
    shown
}

/// The flows of one worker.
pub struct WorkerFlows {
    flows: Arc<Flows>,
    worker: Rc<Worker>,
}

impl WorkerFlows {
    /// Runs the flow of a route, by its place in the configuration.
    ///
    /// # Panics
    /// If there is no such route.
    pub fn run(&self, route: usize, incoming: Incoming) -> FlowFuture {
        let flow = self.flows.routes[route].clone();
        let (worker, program) = (self.worker.clone(), self.flows.program.clone());
        match &self.flows.pools[route] {
            None => FlowFuture::new(worker, program, flow, incoming),
            Some(pool) => FlowFuture::on_thread(worker, pool.clone(), program, flow, incoming),
        }
    }
}
