//! Calls of natives and of the host. Calls of functions of the program are [`super::args`]'s.

use arcstr::ArcStr;

use super::charge::scan_steps;
use super::context::{Cx, place, target_name};
use super::registers::{put, store};
use crate::code::{CallInfo, Target};
use crate::error::{Failure, Kind, Stop};
use crate::host::{Args, Effect, HostCall, HostRef};
use crate::meter::Meter;
use crate::native::{Awaits, NativeFn};
use crate::program_order::ProgramOrder;
use crate::suggest;
use crate::value::capture::{Readiness, readiness};
use crate::value::object::BoundMethod;
use crate::value::view::{self, type_name};
use crate::value::{Frozen, FrozenValue, Value};

use super::index::no_attribute;

/// Makes a call, the result of which goes to register `dst`. `false` if it calls a function of the
/// program, whose arguments are then still in their registers.
pub(crate) fn call(regs: &mut [Value], info: &CallInfo, dst: usize, cx: &mut Cx<'_>, pc: usize) -> Result<bool, Stop> {
    match &info.target {
        Target::Global(index) => match cx.program.globals.get(*index as usize) {
            Some(FrozenValue::Frozen(frozen)) if matches!(&**frozen, Frozen::Function(_)) => Ok(false),
            Some(value) => dynamic(regs, info, dst, &value.to_value(), cx, pc),
            None => {
                let value = cx.building.and_then(|building| building.get(*index)).unwrap_or(Value::UNBOUND);
                if matches!(value, Value::Unbound | Value::Iter(_) | Value::Cell(_) | Value::Accumulator(_)) {
                    return Err(Stop::fail(Kind::Name, "a function of the module is called before it is defined"));
                }
                dynamic(regs, info, dst, &value, cx, pc)
            }
        },
        Target::Known(FrozenValue::Frozen(frozen)) if matches!(&**frozen, Frozen::Function(_)) => Ok(false),
        Target::Known(value) => dynamic(regs, info, dst, &value.to_value(), cx, pc),
        Target::Value(reg) => {
            let value = regs[usize::from(*reg)].clone();
            dynamic(regs, info, dst, &value, cx, pc)
        }
        Target::Native(native) => {
            native_call(regs, info, native, dst, cx, pc)?;
            Ok(true)
        }
        Target::Host { object, method, effect } => {
            let value = if info.simple() {
                let args = args_of(regs, info);
                host_call(object, *method, *effect, info.awaited, args, cx, pc)?
            } else {
                let spread = Spread::of(regs, info, cx.meter)?;
                host_call(object, *method, *effect, info.awaited, spread.args(), cx, pc)?
            };
            store(&mut regs[dst], value);
            Ok(true)
        }
        Target::Method { of, name, id } => method_call(regs, info, dst, usize::from(*of), name, *id, cx, pc),
    }
}

fn args_of<'a>(regs: &'a [Value], info: &'a CallInfo) -> Args<'a> {
    let base = usize::from(info.base);
    let named = base + usize::from(info.positional);
    Args { pos: &regs[base..named], names: &info.names, named: &regs[named..named + info.names.len()] }
}

/// Arguments with those of `*args` and `**kwargs` spread out.
pub(crate) struct Spread {
    pub(crate) pos: Vec<Value>,
    pub(crate) names: Vec<ArcStr>,
    pub(crate) named: Vec<Value>,
}

impl Spread {
    pub(crate) fn of(regs: &[Value], info: &CallInfo, meter: &Meter) -> Result<Self, Stop> {
        let plain = args_of(regs, info);
        let mut spread = Self { pos: plain.pos.to_vec(), names: plain.names.to_vec(), named: plain.named.to_vec() };
        if let Some(star) = info.star {
            let more = regs[usize::from(star)].decide()?;
            // A range may stand for more arguments than there is memory.
            meter.value(view::len(&more).unwrap_or(0).saturating_mul(size_of::<Value>()))?;
            spread.pos.extend(view::elements(&more)?);
        }
        if let Some(star_star) = info.star_star {
            let more = regs[usize::from(star_star)].decide()?;
            let Some(entries) = view::entries(&more) else {
                return Err(Stop::fail(Kind::Type, format!("** needs a dict, not {}", type_name(&more))));
            };
            for (key, value) in entries {
                let Value::Str(name) = key.decide()? else {
                    return Err(Stop::fail(Kind::Type, "** needs a dict whose keys are strings"));
                };
                if spread.names.contains(&name) {
                    return Err(Stop::fail(Kind::Arguments, format!("the argument {name} is given twice")));
                }
                spread.names.push(name);
                spread.named.push(value);
            }
        }
        Ok(spread)
    }

    fn args(&self) -> Args<'_> {
        Args { pos: &self.pos, names: &self.names, named: &self.named }
    }
}

/// Makes sure that what a native waits for is there. Registers of arguments are temporaries, so
/// decided values replace what they were decided from.
fn settle_args(waits: Awaits, pos: &mut [Value], named: &mut [Value]) -> Result<(), Stop> {
    match waits {
        Awaits::All => {
            for value in pos.iter_mut().chain(named) {
                if !value.is_plain() {
                    *value = value.decide()?;
                }
            }
        }
        Awaits::These(bits) => {
            for (at, value) in pos.iter_mut().enumerate().take(32) {
                if bits & 1 << at != 0 && !value.is_plain() {
                    *value = value.decide()?;
                }
            }
        }
        Awaits::Deep => {
            for value in pos.iter_mut().chain(named) {
                settled(value)?;
                if !value.is_plain() {
                    *value = value.decide()?;
                }
            }
        }
    }
    Ok(())
}

/// Waits for everything in a value.
fn settled(value: &Value) -> Result<(), Stop> {
    match readiness(value) {
        Readiness::Ready | Readiness::Absent(_) => Ok(()),
        Readiness::Pending(pending) => Err(Stop::Wait(pending)),
        Readiness::Failed(failure) => Err(Stop::Fail(Box::new((*failure).clone()))),
        Readiness::TooDeep => Err(view_too_deep()),
    }
}

#[cold]
fn view_too_deep() -> Stop {
    crate::value::compare::too_deep().into()
}

/// Calls a native and writes its result to register `dst`.
fn native_call(
    regs: &mut [Value],
    info: &CallInfo,
    native: &NativeFn,
    dst: usize,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<(), Stop> {
    if !info.simple() {
        let mut spread = Spread::of(regs, info, cx.meter)?;
        settle_args(native.awaits, &mut spread.pos, &mut spread.named)?;
        regs[dst] = run_native(native, cx, pc, spread.args())?;
        return Ok(());
    }
    let base = usize::from(info.base);
    let positional = usize::from(info.positional);
    let (pos, named) = regs[base..base + positional + info.names.len()].split_at_mut(positional);
    if !are_there(native.awaits, pos) || !are_there(native.awaits, named) {
        settle_args(native.awaits, pos, named)?;
    }
    let mark = cx.meter.mark();
    charge(cx.meter, pos)?;
    let mut ctx = cx.ctx(pc);
    if let (Some(taking), []) = (native.taking, &*named) {
        // Registers of arguments are temporaries of this call.
        put!(Ok, &mut regs[dst], taking(&mut ctx, pos), Err(stop) => {
            cx.meter.stopped(mark, &stop);
            return Err(stop);
        });
        return Ok(());
    }
    let args = Args { pos, names: &info.names, named };
    put!(Ok, &mut regs[dst], (native.code)(&mut ctx, args), Err(stop) => {
        cx.meter.stopped(mark, &stop);
        return Err(stop);
    });
    Ok(())
}

/// Whether arguments are ready, seen from their kinds alone: most are, and need no second look.
#[inline]
fn are_there(waits: Awaits, values: &[Value]) -> bool {
    match waits {
        Awaits::Deep => values.iter().all(|value| {
            matches!(value, Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_))
        }),
        Awaits::All | Awaits::These(_) => values.iter().all(Value::is_plain),
    }
}

fn run_native(native: &NativeFn, cx: &mut Cx<'_>, pc: usize, args: Args<'_>) -> Result<Value, Stop> {
    let mark = cx.meter.mark();
    charge(cx.meter, args.pos)?;
    let result = (native.code)(&mut cx.ctx(pc), args);
    cx.meter.settle(mark, result)
}

/// A native may read all of its arguments: a key is hashed, a prefix compared.
#[inline]
fn charge(meter: &mut Meter, args: &[Value]) -> Result<(), Stop> {
    match args.iter().map(scan_steps).sum() {
        0 => Ok(()),
        // What it continues with has been charged for.
        _ if meter.resumes() => Ok(()),
        steps => meter.steps(steps as u64),
    }
}

/// A call of a native with its object before the arguments of the call.
fn bound_call(
    regs: &[Value],
    info: &CallInfo,
    this: &Value,
    native: &'static NativeFn,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<Value, Stop> {
    let mut spread = Spread::of(regs, info, cx.meter)?;
    spread.pos.insert(0, this.clone());
    settle_args(native.awaits, &mut spread.pos, &mut spread.named)?;
    run_native(native, cx, pc, spread.args())
}

fn dynamic(
    regs: &mut [Value],
    info: &CallInfo,
    dst: usize,
    callee: &Value,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<bool, Stop> {
    let callee = callee.decide()?;
    regs[dst] = match &callee {
        Value::Function(_) => return Ok(false),
        Value::Frozen(frozen) if matches!(&**frozen, Frozen::Function(_)) => return Ok(false),
        Value::Native(native) => {
            native_call(regs, info, native, dst, cx, pc)?;
            return Ok(true);
        }
        Value::Bound(bound) => match (&bound.method, &bound.this) {
            (BoundMethod::Native(native), this) => bound_call(regs, info, this, native, cx, pc)?,
            (BoundMethod::Host(name), Value::Host(object)) => {
                let spread = Spread::of(regs, info, cx.meter)?;
                host_by_name(object, name, info.awaited, spread.args(), cx, pc)?
            }
            _ => return Err(not_called(&callee)),
        },
        other => return Err(not_called(other)),
    };
    Ok(true)
}

#[cold]
fn not_called(value: &Value) -> Stop {
    Stop::fail(Kind::Type, format!("{} cannot be called", type_name(value)))
}

#[allow(clippy::too_many_arguments, reason = "what the one caller has at hand")]
fn method_call(
    regs: &mut [Value],
    info: &CallInfo,
    dst: usize,
    this: usize,
    name: &ArcStr,
    id: Option<u16>,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<bool, Stop> {
    if !regs[this].is_plain() {
        // The soft form of a part stays soft where an optional call left nothing.
        if name == "get" && matches!(regs[this], Value::Absent(_)) {
            regs[dst] = regs[this].clone();
            return Ok(true);
        }
        let decided = regs[this].decide()?;
        if name == "get"
            && matches!(decided, Value::None)
            && let Some(absent) = absent_of(&regs[this])
        {
            regs[dst] = absent;
            return Ok(true);
        }
        regs[this] = decided;
    }
    let kind = view::kind(&regs[this]);
    let native = id.and_then(|id| cx.program.builtins.methods[usize::from(id)].1[kind as usize]);
    if let Some(native) = native {
        native_call(regs, info, native, dst, cx, pc)?;
        return Ok(true);
    }
    match &regs[this] {
        Value::Object(object) => {
            if let Some(native) = object.method(name) {
                native_call(regs, info, native, dst, cx, pc)?;
                return Ok(true);
            }
            if let Some(field) = object.attribute(name)? {
                return field_call(regs, info, dst, &field, cx, pc);
            }
        }
        Value::Host(object) => {
            let object = object.clone();
            let mut spread = Spread::of(regs, info, cx.meter)?;
            spread.pos.remove(0);
            regs[dst] = host_by_name(&object, name, info.awaited, spread.args(), cx, pc)?;
            return Ok(true);
        }
        other => {
            if let Some(field) = crate::value::part::field(other, name) {
                return field_call(regs, info, dst, &field, cx, pc);
            }
        }
    }
    let of = regs[this].clone();
    let failure = no_attribute(&cx.ctx(pc), &of, &of, name);
    Err(failure)
}

/// What an optional call left behind a settled pending.
fn absent_of(value: &Value) -> Option<Value> {
    let Value::Pending(pending) = value else { return None };
    match pending.outcome() {
        Some(Ok(absent @ Value::Absent(_))) => Some(absent),
        Some(Ok(inner @ Value::Pending(_))) => absent_of(&inner),
        _ => None,
    }
}

/// A function in a field of a struct, called like a method.
fn field_call(
    regs: &mut [Value],
    info: &CallInfo,
    dst: usize,
    field: &Value,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<bool, Stop> {
    let code = match field {
        Value::Function(function) => Some(function.code),
        Value::Frozen(frozen) => match &**frozen {
            Frozen::Function(function) => Some(function.code),
            _ => None,
        },
        _ => None,
    };
    match code {
        Some(code) => {
            // The analysis took the name for a method of a builtin type. What may run side by side with
            // other code must not reach a function that changes things by this way.
            let running = cx.frames.last().map_or(0, |frame| frame.code);
            let alone = cx.fiber.is_root() && !cx.program.codes[running as usize].pure;
            if !alone && !cx.program.codes[code as usize].pure {
                return Err(Stop::fail(
                    Kind::Type,
                    format!(
                        "the field {} holds a function that may change something: call it through a variable",
                        target_name(&info.target)
                    ),
                ));
            }
            Ok(false)
        }
        None => match field {
            Value::Native(native) => {
                let mut spread = Spread::of(regs, info, cx.meter)?;
                spread.pos.remove(0);
                settle_args(native.awaits, &mut spread.pos, &mut spread.named)?;
                regs[dst] = run_native(native, cx, pc, spread.args())?;
                Ok(true)
            }
            other => Err(not_called(other)),
        },
    }
}

fn host_by_name(
    object: &HostRef,
    name: &str,
    awaited: bool,
    args: Args<'_>,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<Value, Stop> {
    match object.method(name, &|_| None) {
        Some(method) => host_call(object, method.id, method.effect, awaited, args, cx, pc),
        None => {
            let mut failure = Failure::new(Kind::Attribute, format!("{} has no method {name}", object.name()));
            failure.hint =
                suggest::nearest(name, object.names().into_iter()).map(|near| format!("did you mean {near}?"));
            Err(failure.into())
        }
    }
}

fn host_call(
    object: &HostRef,
    method: u32,
    effect: Effect,
    awaited: bool,
    args: Args<'_>,
    cx: &mut Cx<'_>,
    pc: usize,
) -> Result<Value, Stop> {
    let next = ProgramOrder { path: cx.fiber.path.clone(), tick: cx.fiber.tick + 1 };
    if effect == Effect::Write {
        let running = cx.frames.last().map_or(0, |frame| frame.code);
        if !awaited || !cx.fiber.is_root() || cx.program.codes[running as usize].pure {
            return Err(Stop::fail(
                Kind::Type,
                format!(
                    "{} may be changed by this call, which was not known before it ran: call the method by its upstream's name",
                    object.name()
                ),
            ));
        }
        if cx.others > 0 {
            return Err(Stop::Barrier);
        }
        if let Some(pending) = cx.host.barrier(&next) {
            return match pending.outcome() {
                Some(Err(failure)) => Err(Stop::Fail(Box::new((*failure).clone()))),
                Some(Ok(_)) => Err(Stop::fail(Kind::Host, "the host holds a call back behind one that has succeeded")),
                None => Err(Stop::Wait(pending)),
            };
        }
    }
    if object.awaits_arguments() {
        args.pos.iter().chain(args.named).try_for_each(settled)?;
    }
    let call_site = cx.call_site(pc);
    cx.fiber.tick += 1;
    let (frames, callers) = (cx.frames, &cx.fiber.callers);
    let call = HostCall { object, method, effect, args, call_site, order: next, place: &|| place(frames, callers, pc) };
    cx.host.call(call).map_err(Stop::from)
}
