//! `stub`, `reply`, `each`, `requests`.

use std::cell::Cell;
use std::rc::Rc;

use fanin_lang::value::view;
use fanin_lang::{Args, Changes, Ctx, Kind, NativeFn, Stop, Value};

use super::{host, text, wrong};
use crate::pattern::Pattern;
use crate::script::request_fields;
use crate::stub::{AnswerSpec, SentRequest, StubRule};
use crate::values::{self, ANSWER_OPTIONS, number, structure};

pub(super) static FUNCTIONS: [NativeFn; 4] = [
    NativeFn::new("stub", stub).changes(Changes::World),
    NativeFn::new("reply", reply),
    NativeFn::new("each", each),
    NativeFn::new("requests", requests).changes(Changes::World),
];

/// What a stub is for: an upstream, or a method of it.
pub(super) fn target(name: &str, value: &Value) -> Result<(String, Option<String>), Stop> {
    if let Some((object, method)) = view::host_method(value) {
        return Ok((object.name().to_owned(), Some(method.to_owned())));
    }
    match value {
        Value::Host(object) => Ok((object.name().to_owned(), None)),
        other => Err(Stop::fail(
            Kind::Type,
            format!(
                "{name}() takes an upstream or a method of one, such as catalog.get, not {}",
                view::type_name(other)
            ),
        )),
    }
}

fn query_pairs(value: &Value) -> Result<Vec<(String, String)>, Stop> {
    let entries = view::entries(value).ok_or_else(|| wrong("stub", "query must be a dict"))?;
    let mut pairs = Vec::new();
    for (key, value) in &entries {
        match view::elements(&value.decide()?) {
            Ok(items) => pairs.extend(items.iter().map(|item| (values::plain(key), values::plain(item)))),
            Err(_) => pairs.push((values::plain(key), values::plain(value))),
        }
    }
    Ok(pairs)
}

/// `stub(catalog.get, "/products/{id}", answer = {...}, delay = "20ms")`
fn stub(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let names = ["target", "path", "query", "answers", "items", "times"];
    let own: Vec<usize> =
        (0..args.names.len()).filter(|at| !ANSWER_OPTIONS.contains(&args.names[*at].as_str())).collect();
    let own_names: Vec<_> = own.iter().map(|at| args.names[*at].clone()).collect();
    let own_values: Vec<_> = own.iter().map(|at| args.named[*at].clone()).collect();
    let bound = Args { pos: args.pos, names: &own_names, named: &own_values };
    let [of, path, query, answers, items, times] = bound.bind("stub", false, names, 1)?;
    let of = of.map(Value::decide).transpose()?.unwrap_or_default();
    let (upstream, method) = target("stub", &of)?;
    let given: Vec<(&str, &Value)> = args
        .names
        .iter()
        .zip(args.named)
        .filter(|(name, _)| ANSWER_OPTIONS.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    let base = values::spec(&given).map_err(|what| wrong("stub", what))?;
    let path = match path {
        None => None,
        Some(path) => {
            let path = text("stub", "path", path)?;
            // The full name of a gRPC method has no slash in front.
            let path = if path.starts_with('/') || !path.contains('/') { path } else { format!("/{path}") };
            Some(Pattern::parse(&path).map_err(|what| wrong("stub", what))?)
        }
    };
    let says = |name: &str| given.iter().any(|(given, _)| *given == name);
    let mut sequence = vec![base.clone()];
    if let Some(answers) = answers {
        if ["answer", "text", "status", "fail"].into_iter().any(says) {
            return Err(wrong(
                "stub",
                "answers has an answer for each request in turn: no answer, text, status or fail",
            ));
        }
        sequence.clear();
        for one in ctx.elements(answers)? {
            let spec = match values::reply_of(&one).map_err(|what| wrong("stub", what))? {
                Some(spec) => spec,
                None => AnswerSpec { answer: Some(one), ..AnswerSpec::default() },
            };
            sequence.push(spec.or(&base));
        }
        if sequence.is_empty() {
            return Err(wrong("stub", "answers is empty"));
        }
    } else if items.is_some() {
        if ["answer", "text", "status", "fail"].into_iter().any(says) {
            return Err(wrong("stub", "items makes the answers: no answer, text, status or fail"));
        }
    } else if !["answer", "text", "status", "fail"].into_iter().any(says) {
        return Err(wrong("stub", "it needs answer, text, status, fail, answers or items"));
    }
    let times = match times.map(Value::decide).transpose()? {
        None | Some(Value::None) => None,
        Some(Value::Int(times)) if times >= 0 => Some(times as u64),
        Some(_) => return Err(wrong("stub", "times must be a number of requests")),
    };
    let query = query.map(query_pairs).transpose()?.unwrap_or_default();
    let items = items.cloned();
    let site = ctx.call_site;
    let host = host(ctx, "stub")?;
    let position = host.program.position(site);
    let rule =
        StubRule { upstream, method, path, query, answers: sequence, items, times, used: Cell::new(0), position };
    host.world.shared.stubs.rules.borrow_mut().push(Rc::new(rule));
    Ok(Value::None)
}

/// `reply(status = 503, delay = "5ms")`: an answer for sequences and functions.
fn reply(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let bound = args.bind("reply", false, ANSWER_OPTIONS, 0)?;
    let given: Vec<(&str, &Value)> =
        ANSWER_OPTIONS.iter().zip(bound).filter_map(|(name, value)| Some((*name, value?))).collect();
    values::reply(&given).map_err(|what| wrong("reply", what))
}

/// `each(1, 2, 3)` or `each(small = 1, large = 2)`: the cases of a test.
fn each(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let mut cases = Vec::new();
    for value in args.pos {
        let shown = ctx.repr(value)?;
        cases.push((shown.chars().take(40).collect(), value.clone()));
    }
    cases.extend(args.names.iter().zip(args.named).map(|(name, value)| (name.to_string(), value.clone())));
    if cases.is_empty() {
        return Err(wrong("each", "it needs at least one case"));
    }
    Ok(values::each(cases))
}

/// `requests(catalog.get)`: what reached the stubs, in order.
fn requests(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [of] = args.bind("requests", false, ["target"], 0)?;
    let of = match of.map(Value::decide).transpose()? {
        None | Some(Value::None) => None,
        Some(of) => Some(target("requests", &of)?),
    };
    let host = host(ctx, "requests")?;
    let sent = host.world.shared.stubs.sent.borrow();
    let fits = |one: &&SentRequest| match &of {
        None => true,
        Some((upstream, method)) => {
            *one.request.upstream == **upstream && method.as_ref().is_none_or(|method| *method == one.method)
        }
    };
    let value = |one: &SentRequest| {
        let mut fields = request_fields(&one.request);
        fields.push(("method", Value::str(&one.method)));
        fields.push(("at", number(one.at)));
        fields.push(("effect", Value::Bool(!one.request.safe)));
        structure(fields)
    };
    Ok(Value::list(sent.iter().filter(fits).map(value).collect()))
}
