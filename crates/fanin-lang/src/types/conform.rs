//! Whether a value is of a type.

use super::Type;
use crate::error::Stop;
use crate::meter::Meter;
use crate::value::view::{self, Kind};
use crate::value::{Value, compare};

/// Where a value differs from its type.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// The part that differs, such as `[3]["id"]`; empty for the value itself.
    pub(crate) path: String,
    /// What is there.
    pub(crate) got: String,
}

/// The name of a decided value's type as annotations spell it.
fn name_of(value: &Value) -> String {
    match view::kind(value) {
        Kind::None => "None".to_owned(),
        Kind::Str => "str".to_owned(),
        _ => view::type_name(value),
    }
}

/// Checks a value and, where the type says something of them, its elements. Values that failed are of
/// every type: they fail where they are decided on, not where they are passed. What an optional call
/// left behind is of every type too.
///
/// # Errors
/// `Wait` for what is pending; a limit.
pub(crate) fn mismatch(ty: &Type, value: &Value, meter: &mut Meter) -> Result<Option<Mismatch>, Stop> {
    if *ty == Type::Any {
        return Ok(None);
    }
    let value = match value {
        Value::Absent(_) => return Ok(None),
        Value::Pending(pending) => match pending.outcome() {
            None => return Err(Stop::Wait(pending.clone())),
            Some(Err(_)) => return Ok(None),
            Some(Ok(value)) => return mismatch(ty, &value, meter),
        },
        Value::Json { .. } => &value.decide()?,
        plain => plain,
    };
    let kind = view::kind(value);
    let plain = |is: bool| Ok((!is).then(|| wrong(value)));
    match ty {
        Type::Any => Ok(None),
        Type::None => plain(kind == Kind::None),
        Type::Bool => plain(kind == Kind::Bool),
        Type::Int => plain(kind == Kind::Int),
        Type::Float => plain(matches!(kind, Kind::Float | Kind::Int)),
        Type::Str => plain(kind == Kind::Str),
        Type::Bytes => plain(kind == Kind::Bytes),
        Type::Range => plain(kind == Kind::Range),
        Type::Struct => plain(kind == Kind::Struct),
        Type::Callable => plain(kind == Kind::Function),
        Type::Host(name) => plain(view::type_name(value) == *name),
        Type::List(of) if kind == Kind::List => elements(of, value, meter),
        Type::Set(of) if kind == Kind::Set => elements(of, value, meter),
        Type::Tuples(of) if kind == Kind::Tuple => elements(of, value, meter),
        Type::Iterable(of) if matches!(kind, Kind::List | Kind::Set | Kind::Tuple | Kind::Dict | Kind::Range) => {
            elements(of, value, meter)
        }
        Type::Tuple(all) if kind == Kind::Tuple => {
            let items = view::elements(value)?;
            if items.len() != all.len() {
                let got = format!("a tuple of {}", items.len());
                return Ok(Some(Mismatch { path: String::new(), got }));
            }
            for (at, (ty, item)) in all.iter().zip(&items).enumerate() {
                if let Some(found) = mismatch(ty, item, meter)? {
                    return Ok(Some(found.below(&format!("[{at}]"))));
                }
            }
            Ok(None)
        }
        Type::Dict(key_type, value_type) if kind == Kind::Dict => {
            if **key_type == Type::Any && **value_type == Type::Any {
                return Ok(None);
            }
            let entries = view::entries(value).unwrap_or_default();
            meter.steps(entries.len() as u64)?;
            for (key, item) in &entries {
                if let Some(found) = mismatch(key_type, key, meter)? {
                    return Ok(Some(Mismatch { path: format!("the key {key:?}"), ..found }));
                }
                if let Some(found) = mismatch(value_type, item, meter)? {
                    return Ok(Some(found.below(&format!("[{key:?}]"))));
                }
            }
            Ok(None)
        }
        Type::Union(all) => {
            // What is pending in one of them may not matter for another.
            let mut waits = None;
            for one in all {
                match mismatch(one, value, meter) {
                    Ok(None) => return Ok(None),
                    Ok(Some(_)) => {}
                    Err(Stop::Wait(pending)) => waits = waits.or(Some(pending)),
                    Err(stop) => return Err(stop),
                }
            }
            waits.map_or_else(|| plain(false), |pending| Err(Stop::Wait(pending)))
        }
        Type::List(_) | Type::Dict(..) | Type::Set(_) | Type::Tuple(_) | Type::Tuples(_) | Type::Iterable(_) => {
            plain(false)
        }
    }
}

fn elements(of: &Type, value: &Value, meter: &mut Meter) -> Result<Option<Mismatch>, Stop> {
    if *of == Type::Any {
        return Ok(None);
    }
    meter.steps(view::len(value).unwrap_or(0) as u64)?;
    for (at, item) in view::elements(value)?.iter().enumerate() {
        if let Some(found) = mismatch(of, item, meter)? {
            return Ok(Some(found.below(&format!("[{at}]"))));
        }
    }
    Ok(None)
}

#[cold]
fn wrong(value: &Value) -> Mismatch {
    let mut got = name_of(value);
    if let Kind::Struct = view::kind(value) {
        let fields: Vec<String> =
            compare::fields(value).into_iter().take(4).map(|(name, _)| name.to_string()).collect();
        got = format!("struct({})", fields.join(", "));
    }
    Mismatch { path: String::new(), got }
}

impl Mismatch {
    #[cold]
    fn below(mut self, step: &str) -> Self {
        self.path.insert_str(0, step);
        self
    }
}
