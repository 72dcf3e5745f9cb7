//! Calls: of the program's functions, of natives, of the host.

use std::rc::Rc;

use arcstr::ArcStr;

use super::CallFound;
use super::heap::Object;
use super::interpreter::{Failed, Frame, Interpreter};
use super::state::State;
use super::symbolic::Sum;
use super::value::{AbstractValue, FunctionValue, MOST_ITEMS, Origins, Shape};
use crate::code::{CallInfo, Target};
use crate::host::{Effect, HostRef};
use crate::native::{Awaits, Changes, NativeFn};

/// Natives that read their arguments but not the elements in them.
const SHALLOW: [&str; 18] = [
    "append",
    "dict",
    "enumerate",
    "extend",
    "get",
    "insert",
    "items",
    "keys",
    "len",
    "list",
    "pop",
    "range",
    "reversed",
    "setdefault",
    "tuple",
    "update",
    "values",
    "zip",
];
/// Functions deeper than this are not followed.
const MOST_DEPTH: usize = 40;

impl Interpreter<'_> {
    /// A call. `None` if it always fails.
    pub(super) fn call(
        &mut self,
        frame: &mut Frame<'_>,
        state: &mut State,
        pc: usize,
        call: u16,
    ) -> Option<AbstractValue> {
        let code = frame.code;
        let info = &code.calls[usize::from(call)];
        let base = usize::from(info.base);
        let count = usize::from(info.positional) + info.names.len();
        let mut args: Vec<AbstractValue> = state.regs[base..base + count].to_vec();
        for reg in info.star.iter().chain(&info.star_star) {
            self.decide(frame, state, pc, *reg);
            let element = state.elements(&state.regs[usize::from(*reg)]).1;
            args.push(element);
        }
        let callee = match &info.target {
            Target::Host { object, effect, .. } => {
                let method = self.written_method(frame, pc);
                return Some(self.host_call(frame, state, pc, info, vec![object.clone()], method, *effect, args));
            }
            Target::Native(native) => return self.native(frame, state, pc, info, native, &args),
            Target::Method { name, id, .. } => return self.method(frame, state, pc, info, name, *id, args),
            Target::Global(index) => match self.program.globals.get(*index as usize) {
                Some(value) => self.frozen(state, value),
                None => AbstractValue::plain(Shape::Unknown),
            },
            Target::Known(value) => self.frozen(state, value),
            Target::Value(reg) => {
                self.decide(frame, state, pc, *reg);
                state.regs[usize::from(*reg)].clone()
            }
        };
        match &callee.shape {
            Shape::Function(function) => self.enter(frame, state, pc, info, &function.clone(), &args),
            Shape::Native(native) => self.native(frame, state, pc, info, native, &args),
            _ => Some(self.unknown(frame, state, pc, "calls a value that is not known before it runs", &args)),
        }
    }

    fn unknown(
        &mut self,
        frame: &Frame<'_>,
        state: &State,
        pc: usize,
        what: &str,
        args: &[AbstractValue],
    ) -> AbstractValue {
        self.notes.insert(((frame.index, pc as u32), what.to_owned()));
        self.given(state, args)
    }

    /// What can only hold what it was given.
    fn given(&self, state: &State, args: &[AbstractValue]) -> AbstractValue {
        let mut result = AbstractValue::plain(Shape::Unknown);
        for arg in args {
            result.whole.max(&state.whole(arg));
            result.origins.extend(&state.all_origins(arg));
            result.refs.extend(&arg.refs);
            if state.may_hold_host(arg) {
                result.shape = Shape::Blurred;
            }
        }
        result
    }

    /// A call of a function of the program.
    fn enter(
        &mut self,
        frame: &mut Frame<'_>,
        state: &mut State,
        pc: usize,
        info: &CallInfo,
        function: &Rc<FunctionValue>,
        args: &[AbstractValue],
    ) -> Option<AbstractValue> {
        let code = &self.program.codes[function.code as usize];
        if self.stack.contains(&function.code) || self.stack.len() >= MOST_DEPTH {
            return Some(self.unknown(frame, state, pc, "calls itself", args));
        }
        let params = &code.params;
        let spread = !info.simple();
        let any = |state: &State| {
            let mut all = AbstractValue::plain(Shape::Nothing);
            args.iter().for_each(|arg| all.join(arg));
            all.whole.max(&state.whole(&all.clone()));
            all
        };
        let mut regs: Vec<AbstractValue> = vec![AbstractValue::plain(Shape::Nothing); params.names.len()];
        let positional = usize::from(info.positional);
        let mut more = Vec::new();
        for (at, arg) in args.iter().enumerate().take(positional) {
            match regs.get_mut(at).filter(|_| at < usize::from(params.positional)) {
                Some(reg) => *reg = arg.clone(),
                None => more.push(arg.clone()),
            }
        }
        let mut named_more = AbstractValue::plain(Shape::Nothing);
        for (name, arg) in info.names.iter().zip(args.iter().skip(positional)) {
            match params.names.iter().position(|param| param == name) {
                Some(at) => regs[at] = arg.clone(),
                None => named_more.join(arg),
            }
        }
        for (at, reg) in regs.iter_mut().enumerate() {
            if matches!(reg.shape, Shape::Nothing) && reg.there.is_zero() {
                if let Some(default) = params.defaults[at].and_then(|at| function.defaults.get(usize::from(at))) {
                    *reg = default.clone();
                }
                if spread {
                    reg.join(&any(state));
                }
            }
        }
        if params.args {
            let items = (!spread).then_some(more.clone());
            let mut object = Object::new(items, None);
            if spread {
                object.element = any(state);
            }
            regs.push(self.make(state, object));
        }
        if params.kwargs {
            let mut object = Object::new(None, None);
            object.element = if spread { any(state) } else { named_more };
            regs.push(self.make(state, object));
        }
        regs.extend(function.captured.iter().cloned());
        let (now, waited) = (state.now.clone(), state.waited.clone());
        let conditional = frame.is_conditional(state);
        self.conditional += u32::from(conditional);
        self.context.push((frame.index, pc as u32, 0));
        let before = std::mem::take(&mut self.failed);
        // What the caller has in its registers is not the function's business.
        let own = std::mem::take(&mut state.regs);
        let ended = self.function(function.code, regs, state.clone());
        state.regs = own;
        self.context.pop();
        self.conditional -= u32::from(conditional);
        let failed = self.failed.clone();
        self.failed.max(&before);
        let Some((mut value, mut after)) = ended else {
            // Its caller continues until the failure is there.
            if !(code.pure && failed.at.exceeds(&now)) {
                return None;
            }
            state.aside.max(&failed.at);
            failed.calls.iter().for_each(|calls| state.calls.max(calls));
            return Some(AbstractValue::at(failed.at, Origins::new()));
        };
        after.regs = std::mem::take(&mut state.regs);
        let waits = after.waited.without(&waited);
        value.origins.extend(&waits);
        if code.pure {
            let end = after.now.clone();
            if end.exceeds(&now) {
                // It is suspended: its result comes when it ends, and what it sees cannot be changed until then.
                value.there.max(&end);
                after.aside.max(&end);
                after.borrow(args.iter().chain(&function.captured).chain(&function.defaults), &end, &waits);
            }
            after.now = now;
            after.waited = waited;
        }
        *state = after;
        Some(value)
    }

    fn native(
        &mut self,
        frame: &mut Frame<'_>,
        state: &mut State,
        pc: usize,
        info: &CallInfo,
        native: &'static NativeFn,
        args: &[AbstractValue],
    ) -> Option<AbstractValue> {
        let method = matches!(info.target, Target::Method { .. });
        let shallow = SHALLOW.contains(&native.name);
        for (at, arg) in args.iter().enumerate() {
            let positional = at < usize::from(info.positional);
            let (time, origins) = match native.awaits {
                Awaits::These(bits) if positional && at < 32 && bits & 1 << at == 0 => continue,
                Awaits::These(_) if !positional => continue,
                Awaits::Deep => (state.whole(arg), state.all_origins(arg)),
                // What a container is given is only put into it.
                Awaits::All if method && shallow && at > 0 && native.changes == Changes::This => continue,
                Awaits::All | Awaits::These(_) if shallow => (state.there(arg), arg.origins.clone()),
                Awaits::All | Awaits::These(_) => (state.whole(arg), state.all_origins(arg)),
            };
            self.wait(frame, state, pc, &time, &origins);
        }
        if matches!(native.name, "fail" | "abort") {
            let mut whole = state.now.clone();
            whole.max(&state.aside);
            self.failed.max(&Failed { at: state.now.clone(), whole, calls: Some(state.calls.clone()) });
            return None;
        }
        if native.changes == Changes::This
            && let Some((of, put)) = args.split_first()
        {
            let spread = matches!(native.name, "extend" | "update");
            let put: Vec<AbstractValue> = put
                .iter()
                .map(|one| {
                    if !spread {
                        return one.clone();
                    }
                    let mut element = state.elements(one).1;
                    element.whole.max(&state.whole(one));
                    element
                })
                .collect();
            let of = of.clone();
            self.change(frame, state, pc, &of, &put, native.name == "append");
        }
        Some(match native.name {
            "range" => match args {
                [AbstractValue { shape: Shape::Int(count), .. }] if (0..=MOST_ITEMS as i64).contains(count) => {
                    let items = (0..*count).map(|at| AbstractValue::plain(Shape::Int(at))).collect();
                    self.make(state, Object::new(Some(items), None))
                }
                _ => AbstractValue::plain(Shape::Unknown),
            },
            "list" | "tuple" | "reversed" if args.len() == 1 => {
                let (items, element) = (state.in_places(&args[0]), state.elements(&args[0]).1);
                let items = items.map(|mut items| {
                    if native.name == "reversed" {
                        items.reverse();
                    }
                    items
                });
                self.make(state, Object { element, items, ..Object::new(None, None) })
            }
            "enumerate" | "zip" => {
                let columns: Vec<_> = args
                    .iter()
                    .take(usize::from(info.positional))
                    .map(|arg| (state.in_places(arg), state.elements(arg).1))
                    .collect();
                let length =
                    columns.iter().map(|(items, _)| items.as_ref().map(Vec::len)).reduce(|a, b| Some(a?.min(b?)));
                let mut tuple = |this: &mut Self, at: Option<usize>| {
                    let mut row = Vec::new();
                    if native.name == "enumerate" {
                        row.push(AbstractValue::plain(at.map_or(Shape::Unknown, |at| Shape::Int(at as i64))));
                    }
                    for (items, element) in &columns {
                        let item = at.and_then(|at| items.as_ref().and_then(|items| items.get(at)));
                        row.push(item.unwrap_or(element).clone());
                    }
                    this.make(state, Object::new(Some(row), None))
                };
                let (items, element) = match length.flatten() {
                    Some(length) => {
                        let items: Vec<AbstractValue> = (0..length).map(|at| tuple(self, Some(at))).collect();
                        (Some(items), AbstractValue::plain(Shape::Nothing))
                    }
                    None => (None, tuple(self, None)),
                };
                let mut object = Object::new(items, None);
                object.element.join(&element);
                self.make(state, object)
            }
            "dict" if args.len() == 1 => {
                let mut object = Object::new(None, None);
                object.element = state.elements(&args[0]).1;
                object.element.whole.max(&state.whole(&args[0]));
                self.make(state, object)
            }
            "len" | "str" | "type" | "bool" | "int" | "float" | "print" => AbstractValue::plain(Shape::Unknown),
            "getattr" => {
                let mut found = self.given(state, args);
                found.there.clone_from(&found.whole);
                found
            }
            _ => self.given(state, args),
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a call")]
    fn method(
        &mut self,
        frame: &mut Frame<'_>,
        state: &mut State,
        pc: usize,
        info: &CallInfo,
        name: &ArcStr,
        id: Option<u16>,
        args: Vec<AbstractValue>,
    ) -> Option<AbstractValue> {
        let this = args[0].clone();
        let time = state.there(&this);
        self.wait(frame, state, pc, &time, &this.origins);
        if let Shape::Host(objects) = &this.shape {
            let effect = objects.iter().filter_map(|object| object.method(name, &|_| None)).map(|method| method.effect);
            let worst = effect.max_by_key(|effect| *effect as u8).unwrap_or(Effect::Read);
            return Some(self.host_call(
                frame,
                state,
                pc,
                info,
                objects.clone(),
                name.to_string(),
                worst,
                args[1..].to_vec(),
            ));
        }
        let reads_host = ["get", "head"].contains(&name.as_str());
        if matches!(this.shape, Shape::Blurred) && reads_host {
            let what = format!("calls .{name} of a value that may be an upstream");
            return Some(self.unknown(frame, state, pc, &what, &args));
        }
        let natives = id.map(|id| &self.program.builtins.methods[usize::from(id)].1);
        let native = natives.and_then(|kinds| {
            kinds.iter().flatten().copied().max_by_key(|native| match native.changes {
                Changes::Nothing => 0,
                Changes::This => 1,
                Changes::World => 2,
            })
        });
        let Some(native) = native else {
            let what = format!("calls .{name} of a value that is not known before it runs");
            return Some(self.unknown(frame, state, pc, &what, &args));
        };
        if matches!(name.as_str(), "get" | "pop" | "setdefault") {
            self.native(frame, state, pc, info, native, &args)?;
            let mut found = state.part(&this, args.get(1).map(|key| &key.shape));
            if let Some(default) = args.get(2) {
                found.join(default);
            }
            return Some(found);
        }
        if matches!(name.as_str(), "values" | "items") {
            self.native(frame, state, pc, info, native, &args)?;
            let element = state.elements(&this).1;
            let mut object = Object::new(None, None);
            object.element = if name == "values" {
                element
            } else {
                let pair = vec![AbstractValue::plain(Shape::Unknown), element];
                self.make(state, Object::new(Some(pair), None))
            };
            return Some(self.make(state, object));
        }
        self.native(frame, state, pc, info, native, &args)
    }

    /// The method's name as it is written.
    fn written_method(&self, frame: &Frame<'_>, pc: usize) -> String {
        let text = &self.program.files[frame.code.file as usize].text;
        let (from, to) = frame.code.spans[pc];
        let whole = text.get(from as usize..to as usize).unwrap_or_default();
        let callee = whole.split('(').next().unwrap_or_default();
        callee.rsplit('.').next().unwrap_or_default().trim().to_owned()
    }

    /// A call of an upstream.
    #[allow(clippy::too_many_arguments, reason = "the parts of a call")]
    fn host_call(
        &mut self,
        frame: &mut Frame<'_>,
        state: &mut State,
        pc: usize,
        info: &CallInfo,
        objects: Vec<HostRef>,
        method: String,
        effect: Effect,
        args: Vec<AbstractValue>,
    ) -> AbstractValue {
        let mut ready = Sum::default();
        let mut needs = Origins::new();
        for arg in &args {
            ready.max(&state.whole(arg));
            needs.extend(&state.all_origins(arg));
        }
        let this = usize::from(matches!(info.target, Target::Method { .. }));
        let named = |name: &str| {
            let at = info.names.iter().position(|given| given == name)?;
            args.get(usize::from(info.positional) - this + at)
        };
        let optional = match (named("default"), named("optional").map(|value| &value.shape)) {
            (Some(_), _) | (_, Some(Shape::Bool(true))) => Some(true),
            (None, None | Some(Shape::Bool(false))) => Some(false),
            _ => None,
        };
        let writes = effect == Effect::Write;
        if writes {
            // It starts when everything above has ended and every required call above has succeeded.
            let (aside, required) = (state.aside.clone(), state.required.clone());
            let mut above = aside;
            above.max(&required);
            above.max(&ready);
            let all: Origins = (0..self.calls.len() as u32).collect();
            self.wait(frame, state, pc, &above, &all);
            self.writes += 1;
        }
        let mut start = state.now.clone();
        start.max(&ready);
        let end = start.next();
        let mut key = self.context.clone();
        key.push((frame.index, pc as u32, 0));
        let next = self.calls.len() as u32;
        let number = *self.call_ids.entry(key).or_insert(next);
        if number == next {
            let path = match args.first().map(|path| &path.shape) {
                Some(Shape::Text(path)) if info.positional as usize > this => Some(path.to_string()),
                _ => None,
            };
            self.calls.push(CallFound {
                place: (frame.index, pc as u32),
                via: self
                    .context
                    .iter()
                    .filter(|(.., iteration)| *iteration == 0)
                    .map(|(code, pc, _)| (*code, *pc))
                    .collect(),
                upstreams: objects.iter().map(|object| object.name().to_owned()).collect(),
                method,
                path,
                writes,
                optional,
                conditional: self.conditional > 0 || frame.is_conditional(state),
                loops: self.loop_stack.clone(),
                start: start.clone(),
                later: Sum::default(),
                needs: needs.clone(),
                decided: Origins::new(),
            });
        } else {
            let found = &mut self.calls[number as usize];
            if self.passing == 0 {
                found.later.max(&start.above(&found.start));
            }
            found.needs.extend(&needs);
        }
        // What was waited for on the way here counts if the call starts because of it.
        if !writes && !state.now.is_zero() && !ready.exceeds(&state.now) {
            self.calls[number as usize].decided.extend(&state.waited);
        }
        state.calls = state.calls.plus(&Sum::of(1));
        if optional != Some(true) {
            state.required.max(&end);
        }
        if writes {
            self.wait(frame, state, pc, &end, &Origins::one(number));
        }
        AbstractValue::at(end, Origins::one(number))
    }
}
