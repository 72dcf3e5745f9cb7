//! Arguments of functions of the program.

use std::rc::Rc;

use arcstr::ArcStr;

use super::call::Spread;
use crate::code::{CallInfo, Code, Target};
use crate::error::{Failure, Kind, Stop};
use crate::program::ProgramData;
use crate::suggest;
use crate::value::object::FrozenFunction;
use crate::value::{Frozen, FrozenValue, Function, Map, Value};

/// A function of the program about to be called.
pub(crate) enum Callee<'a> {
    Live(Rc<Function>),
    Frozen(&'a FrozenFunction),
    Shared(std::sync::Arc<Frozen>),
}

impl<'a> Callee<'a> {
    /// What a call's target is, known to be a function of the program.
    pub(crate) fn of(
        target: &'a Target,
        regs: &[Value],
        program: &'a ProgramData,
        building: Option<&super::Building>,
    ) -> Option<Self> {
        match target {
            Target::Global(index) => match program.globals.get(*index as usize) {
                Some(FrozenValue::Frozen(frozen)) => Self::frozen(frozen),
                Some(_) => None,
                None => Self::value(&building?.get(*index)?),
            },
            Target::Known(FrozenValue::Frozen(frozen)) => Self::frozen(frozen),
            Target::Value(reg) => Self::value(&regs[usize::from(*reg)].decide().ok()?),
            Target::Method { of, name, .. } => {
                let this = regs[usize::from(*of)].decide().ok()?;
                let field = match &this {
                    Value::Object(object) => object.attribute(name).ok().flatten(),
                    other => crate::value::part::field(other, name),
                };
                Self::value(&field?)
            }
            _ => None,
        }
    }

    fn frozen(frozen: &'a Frozen) -> Option<Self> {
        match frozen {
            Frozen::Function(function) => Some(Self::Frozen(function)),
            _ => None,
        }
    }

    fn value(value: &Value) -> Option<Self> {
        match value {
            Value::Function(function) => Some(Self::Live(function.clone())),
            Value::Frozen(frozen) => Some(Self::Shared(frozen.clone())),
            _ => None,
        }
    }

    fn function(&self) -> Option<&FrozenFunction> {
        match self {
            Self::Live(_) => None,
            Self::Frozen(function) => Some(function),
            Self::Shared(frozen) => match &**frozen {
                Frozen::Function(function) => Some(function),
                _ => None,
            },
        }
    }

    pub(crate) fn code(&self) -> u32 {
        match self {
            Self::Live(function) => function.code,
            _ => self.function().map_or(0, |function| function.code),
        }
    }

    fn default(&self, at: u16) -> Option<Value> {
        match self {
            Self::Live(function) => function.defaults.get(usize::from(at)).cloned(),
            _ => self.function()?.defaults.get(usize::from(at)).map(FrozenValue::to_value),
        }
    }

    /// Whether it has captured variables.
    pub(crate) fn captures(&self) -> bool {
        match self {
            Self::Live(function) => !function.captured.is_empty(),
            _ => self.function().is_some_and(|function| !function.captured.is_empty()),
        }
    }

    /// Puts captured variables into their registers.
    pub(crate) fn captured(&self, regs: &mut [Value]) {
        match self {
            Self::Live(function) => {
                regs.iter_mut().zip(&function.captured).for_each(|(reg, value)| *reg = value.clone())
            }
            _ => {
                if let Some(function) = self.function() {
                    regs.iter_mut().zip(&function.captured).for_each(|(reg, value)| *reg = value.to_value());
                }
            }
        }
    }
}

/// Moves a call's arguments into the registers of the function's new frame, which start at `base`.
pub(crate) fn pass(
    regs: &mut [Value],
    caller: usize,
    info: &CallInfo,
    callee: &Callee<'_>,
    code: &Code,
    base: usize,
    meter: &crate::meter::Meter,
) -> Result<(), Stop> {
    let (below, frame) = regs.split_at_mut(base);
    let below = &mut below[caller..];
    // The object of a method is not an argument of a function in its field.
    let skip = usize::from(matches!(info.target, Target::Method { .. }));
    let first = usize::from(info.base) + skip;
    let positional = usize::from(info.positional) - skip;
    if info.simple() && info.names.is_empty() && code.params.fits(positional) {
        for (to, from) in frame.iter_mut().zip(&mut below[first..first + positional]) {
            *to = std::mem::take(from);
        }
    } else {
        let mut spread = Spread::of(below, info, meter)?;
        if skip == 1 {
            spread.pos.remove(0);
        }
        bind(frame, code, callee, spread.pos, spread.names, spread.named)?;
    }
    callee.captured(&mut frame[code.params.registers()..]);
    Ok(())
}

/// Binds arguments to parameters.
pub(crate) fn bind(
    frame: &mut [Value],
    code: &Code,
    callee: &Callee<'_>,
    pos: Vec<Value>,
    names: Vec<ArcStr>,
    named: Vec<Value>,
) -> Result<(), Stop> {
    let params = &code.params;
    let count = params.names.len();
    let positional = usize::from(params.positional);
    let mut given = vec![false; count];
    let mut extra = Vec::new();
    let total = pos.len();
    for (at, value) in pos.into_iter().enumerate() {
        if at < positional {
            frame[at] = value;
            given[at] = true;
        } else {
            extra.push(value);
        }
    }
    if !extra.is_empty() && !params.args {
        return Err(wrong(
            code,
            format!("takes {positional} argument{} by position, {total} given", if positional == 1 { "" } else { "s" }),
            None,
        ));
    }
    let mut more = Map::new();
    for (name, value) in names.into_iter().zip(named) {
        let place = params
            .names
            .iter()
            .position(|param| *param == name)
            .filter(|at| *at >= usize::from(params.positional_only));
        match place {
            Some(at) if given[at] => {
                return Err(wrong(code, format!("got two values for the argument '{name}'"), None));
            }
            Some(at) => {
                frame[at] = value;
                given[at] = true;
            }
            None if params.kwargs => {
                more.insert(Value::Str(name), value)?;
            }
            None => {
                let near = suggest::nearest(&name, params.names.iter().map(ArcStr::as_str));
                return Err(wrong(
                    code,
                    format!("got an unexpected keyword argument '{name}'"),
                    near.map(|near| format!("did you mean {near}?")),
                ));
            }
        }
    }
    for at in 0..count {
        if given[at] {
            continue;
        }
        match params.defaults[at].and_then(|place| callee.default(place)) {
            Some(default) => frame[at] = default,
            None => return Err(wrong(code, format!("needs the argument '{}'", params.names[at]), None)),
        }
    }
    let mut next = count;
    if params.args {
        frame[next] = Value::tuple(extra);
        next += 1;
    }
    if params.kwargs {
        frame[next] = Value::Dict(Rc::new(crate::value::Dict::new(more)));
    }
    Ok(())
}

#[cold]
fn wrong(code: &Code, what: String, hint: Option<String>) -> Stop {
    let mut failure = Failure::new(Kind::Arguments, format!("{}() {what}", code.name));
    failure.hint = hint;
    failure.into()
}
