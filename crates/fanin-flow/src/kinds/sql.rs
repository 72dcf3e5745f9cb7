//! SQL upstreams: named statements, and statements as literal texts.

use fanin_config::{CALL_OPTIONS, Statement, check_sql};
use fanin_lang::{Failure, HostCall, Method, StaticArgs, Value};
use http::Method as Verb;

use super::effect::effect;
use super::operation;
use crate::call::{Arguments, CallOptions, Merging, argument_error, known};

/// Methods of a database and whether they write. Their index is their number; named statements follow.
const SQL_METHODS: [(&str, bool); 3] = [("query", false), ("query_one", false), ("execute", true)];
/// Number of a method whose text is not a literal. It always fails.
const NOT_LITERAL: u32 = u32::MAX;
/// Reported by the static check, or at run time for a call through a variable.
const LITERAL: &str = "the text of a statement must be a string literal in the call itself";
const LITERAL_HINT: &str = "write the text in place and pass values as parameters: query(\"... where id = $1\", id)";

/// The statements of a database.
pub(crate) struct Sql {
    statements: Vec<(String, Statement)>,
}

impl Sql {
    pub(crate) fn new(config: &fanin_config::Upstream) -> Sql {
        Sql { statements: config.statements.iter().map(|(name, it)| (name.clone(), it.clone())).collect() }
    }

    pub(crate) fn method(&self, name: &str, literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        let (id, writes) = match SQL_METHODS.iter().position(|(method, _)| *method == name) {
            Some(at) => match literal("0") {
                Some(Value::Str(_)) => (at as u32, SQL_METHODS[at].1),
                _ => (NOT_LITERAL, SQL_METHODS[at].1),
            },
            None => {
                let at = self.statements.iter().position(|(other, _)| other == name)?;
                ((SQL_METHODS.len() + at) as u32, self.statements[at].1.writes)
            }
        };
        Some(Method { id, effect: effect(writes, literal) })
    }

    pub(crate) fn check_static(
        &self,
        upstream: &str,
        method: u32,
        args: &StaticArgs<'_>,
    ) -> Option<(String, Option<String>)> {
        if method == NOT_LITERAL {
            return Some((format!("{upstream}: {LITERAL}"), Some(LITERAL_HINT.to_owned())));
        }
        let (name, writes) = SQL_METHODS.get(method as usize)?;
        let Some(Value::Str(sql)) = args.first else { return None };
        let (problem, hint) = check_sql(sql, *writes).err()?;
        Some((format!("the statement of {upstream}.{name}: {problem}"), Some(hint.to_owned())))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let statements = self.statements.iter().map(|(name, _)| name.as_str());
        statements.chain(SQL_METHODS.iter().map(|(name, _)| *name))
    }

    pub(crate) fn parse(&self, upstream: &str, call: &HostCall<'_>) -> Result<(Arguments, CallOptions), Failure> {
        let id = call.method as usize;
        if call.method == NOT_LITERAL {
            return Err(argument_error(format!("{upstream}: {LITERAL}")).with_hint(LITERAL_HINT));
        }
        let (name, writes, statement) = match SQL_METHODS.get(id) {
            Some((name, writes)) => (*name, *writes, None),
            None => {
                let named = self.statements.get(id - SQL_METHODS.len());
                let (name, it) = named.ok_or_else(|| argument_error(format!("{upstream} has no such statement")))?;
                (name.as_str(), it.writes, Some(it))
            }
        };
        let verb = if writes { Verb::POST } else { Verb::GET };
        let mut options = CallOptions::new(verb, !writes);
        options.timeout = statement.and_then(|statement| statement.timeout);
        let mut params: Vec<Option<Value>> = Vec::with_capacity(call.args.pos.len() + call.args.named.len());
        for value in call.args.pos {
            params.push(Some(call.capture(value)?));
        }
        let batch = statement.and_then(|statement| statement.batch.as_ref());
        let mut linger = None;
        for (key, value) in call.args.names.iter().zip(call.args.named) {
            if options.set(upstream, key, value, call)? {
                continue;
            }
            if key.as_str() == "linger" && batch.is_some() {
                linger = Some(operation::linger(upstream, &known(upstream, key, value)?)?);
                continue;
            }
            let names = statement.map(|statement| statement.params.as_slice()).unwrap_or_default();
            let Some(at) = names.iter().position(|name| name == key.as_str()) else {
                let known = [names.iter().map(String::as_str).collect(), CALL_OPTIONS.to_vec()].concat();
                return Err(argument_error(format!("{upstream}.{name} has no parameter {key:?}"))
                    .with_hint(format!("arguments by name are {}", known.join(", "))));
            };
            if params.get(at).is_some_and(Option::is_some) {
                return Err(argument_error(format!(
                    "{upstream}.{name} gets {key:?} by position and by name, or twice"
                )));
            }
            if params.len() <= at {
                params.resize(at + 1, None);
            }
            params[at] = Some(call.capture(value)?);
        }
        if let Some(Statement { params: names, .. }) = statement
            && !names.is_empty()
        {
            if params.len() > names.len() {
                let (takes, given) = (names.len(), params.len());
                return Err(argument_error(format!("{upstream}.{name} takes {takes} parameters, but gets {given}")));
            }
            params.resize(names.len(), None);
            if let Some(missing) = params.iter().position(Option::is_none) {
                return Err(argument_error(format!("{upstream}.{name} needs the parameter {:?}", names[missing])));
            }
        }
        // Gaps exist only if names are known, and then they have been filled or reported.
        let mut params: Vec<Value> = params.into_iter().map(Option::unwrap_or_default).collect();
        let mut keys = None;
        if let Some(statement) = statement {
            let at = id - SQL_METHODS.len();
            options.operation = u32::try_from(at).ok();
            if merges(statement) {
                options.merging = Some(Box::new(Merging { operation: Some(at), batch: batch.is_some(), linger }));
            }
            if let Some(batch) = batch
                && let Some(at) = statement.params.iter().position(|name| *name == batch.key)
            {
                // The batch puts the united keys of its calls back.
                keys = Some((batch.key.as_str().into(), std::mem::take(&mut params[at])));
            }
        }
        let mut arguments = Arguments::plain(format!("/{name}"), Value::tuple(params));
        arguments.named.extend(keys);
        Ok((arguments, options))
    }
}

/// Whether its calls share work with others.
fn merges(statement: &Statement) -> bool {
    statement.batch.is_some() || statement.cache.is_some() || statement.single_flight == Some(true)
}
