//! Loops: item by item where the items are known, else by widening: a few iterations show which times grow,
//! and by how much for each item.

use std::collections::BTreeMap;

use super::LoopFound;
use super::heap::Object;
use super::ids::Ids;
use super::interpreter::{Context, Frame, Interpreter, join_into, jump_to};
use super::state::{Place, State};
use super::symbolic::Sum;
use super::value::{AbstractValue, MOST_ITEMS, Shape};
use crate::code::Reg;

/// Iterations that are interpreted before widening: what still grows then is taken to grow with each item.
const ITERATIONS: usize = 4;

/// How often the worst iteration is interpreted; each may show more that grows.
const WORST: usize = 12;

/// A loop: its body from after `header` up to `exit`.
pub(super) struct Loop {
    pub(super) header: usize,
    pub(super) exit: usize,
    /// Where the items go.
    pub(super) dst: Reg,
    /// Its items, if they can be suspended.
    item: Option<Item>,
}

/// What matters of an item that can be suspended.
struct Item {
    element: u16,
    live: Box<[Reg]>,
}

/// Exits that leave a loop other than by its end.
#[derive(Default, Clone)]
struct Exits {
    left: Option<State>,
    jumps: BTreeMap<usize, State>,
}

type Times = BTreeMap<Place, Sum>;

/// What has grown in the last iteration. A container made in the iteration does not count.
fn grown(history: &[State]) -> Times {
    let mut all = Times::new();
    if let [.., before, after] = history {
        after.compare(before, &mut |place, before, now| {
            let growth = now.above(before);
            if !growth.is_zero() {
                all.insert(place, growth);
            }
        });
    }
    all
}

/// The time of a place that grows with each item of a loop.
fn bound(history: &[State], place: Place, growth: &Sum, id: u32) -> Sum {
    let mut times = history.iter().map(|state| state.time_of(place).cloned().unwrap_or_default());
    let base = times.next().unwrap_or_default();
    // What the first iterations add beyond so much for each they add once.
    let (mut once, mut so_far) = (Sum::default(), base.clone());
    for time in times {
        so_far = so_far.plus(growth);
        once.max(&time.above(&so_far));
    }
    base.plus(&once).plus(&growth.for_each(id))
}

fn set_times(state: &mut State, times: &Times) {
    for (place, bound) in times {
        if let Some(time) = state.time(*place) {
            time.clone_from(bound);
        }
    }
}

/// What a loop of unknown length puts into a container is known only as a whole.
fn forget_items(start: &State, state: &mut State) {
    let count = |object: &Object| object.items.as_ref().map(Vec::len);
    let changed = state.heap.changed(&start.heap);
    let longer = changed.filter(|(_, now, before)| before.is_some_and(|before| count(now) != count(before)));
    for id in longer.map(|(id, ..)| id).collect::<Vec<_>>() {
        if let Some(now) = state.heap.get_mut(id) {
            now.items = None;
        }
    }
}

impl Interpreter<'_> {
    /// A loop.
    pub(super) fn loop_iterations(
        &mut self,
        frame: &mut Frame<'_>,
        state: State,
        header: usize,
        iter: Reg,
        dst: Reg,
        exit: usize,
    ) -> (Option<State>, BTreeMap<usize, State>) {
        let source = match &state.regs[usize::from(iter)].shape {
            Shape::Iter(of) => (**of).clone(),
            _ => AbstractValue::plain(Shape::Unknown),
        };
        let (items, element) = state.elements(&source);
        let info = frame.code.items.iter().find(|item| usize::from(item.start) == header + 1);
        let item = info.filter(|item| item.pure).map(|item| Item { element: item.element, live: item.live.clone() });
        let one = Loop { header, exit, dst, item };
        let (share, dead) = (state.share, frame.dead);
        let returns = frame.returns.take();
        let mut exits = Exits::default();
        let after = match items {
            Some(items) if items.len() <= MOST_ITEMS => {
                // Each may be absent.
                let sparse = state.in_places(&source).is_none();
                self.conditional += u32::from(sparse);
                let mut state = Some(state);
                for (iteration, item) in items.into_iter().enumerate() {
                    let Some(before) = state.take() else { break };
                    let kept = sparse.then(|| State { share: 0.0, ..before.clone() });
                    self.context.push((frame.index, header as u32, iteration as u32 + 1));
                    state = self.iteration(frame, &one, before, item, &mut exits);
                    self.context.pop();
                    if let Some(kept) = kept {
                        join_into(&mut state, kept);
                    }
                }
                self.conditional -= u32::from(sparse);
                state
            }
            _ => {
                let id = self.loop_id(frame, header, info.is_none());
                self.loop_stack.push(id);
                let writes = self.writes;
                let after = self.grow(frame, &one, state, &element, id, &mut exits);
                self.loop_stack.pop();
                let found = &mut self.loops[id as usize];
                found.writes |= self.writes > writes;
                found.leaves |= exits.left.is_some() || frame.returns.is_some();
                after
            }
        };
        frame.dead = dead;
        let returned = frame.returns.is_some();
        if let Some((value, state)) = returns {
            frame.returned(value, state);
        }
        let mut after = after;
        if let Some(left) = exits.left {
            join_into(&mut after, left);
        }
        if let Some(after) = &mut after {
            after.share = if returned { share / 2.0 } else { share };
        }
        (after, exits.jumps)
    }

    /// One iteration of a loop: the state at its end. `None` if it never comes there.
    fn iteration(
        &mut self,
        frame: &mut Frame<'_>,
        one: &Loop,
        mut state: State,
        item: AbstractValue,
        exits: &mut Exits,
    ) -> Option<State> {
        let start = state.clone();
        // To tell what an item starts; an item that can be suspended changes nothing, so that nothing in it waits for the rest.
        let aside = if one.item.is_some() { std::mem::take(&mut state.aside) } else { Sum::default() };
        state.regs[usize::from(one.dst)] = item;
        let failed = std::mem::take(&mut self.failed);
        if let Some(item) = &one.item {
            self.items.push((self.stack.len(), item.live.clone(), Ids::new()));
        }
        let mut out = self.stretch(frame, one.header + 1, one.exit, state);
        let seen = if one.item.is_some() { self.items.pop() } else { None };
        let mut own = std::mem::replace(&mut self.failed, failed);
        own.whole.max(&aside);
        self.failed.max(&own);
        let mut back = out.jumps.remove(&one.header);
        for state in out.end.iter_mut().chain(out.jumps.values_mut()).chain(&mut back) {
            state.aside.max(&aside);
        }
        if let Some(state) = out.end {
            join_into(&mut exits.left, state);
        }
        for (target, state) in out.jumps {
            jump_to(&mut exits.jumps, target, state);
        }
        let Some(info) = &one.item else { return back };
        let Some(mut back) = back else {
            // The loop continues until the failure of the item is there.
            let aside = own.at.exceeds(&start.now);
            let mut state = start;
            state.aside.max(&own.at);
            own.calls.iter().for_each(|calls| state.calls.max(calls));
            return aside.then_some(state);
        };
        if back.now.exceeds(&start.now) {
            // It is suspended where it had to wait, and the loop continues with the next.
            let mut end = back.now.clone();
            if info.element == u16::MAX {
                // It ends when the items of the loops in it have ended.
                end.max(&back.aside);
            }
            let waits = back.waited.without(&start.waited);
            let refs = seen.map(|(.., refs)| refs).unwrap_or_default();
            back.borrow([&AbstractValue { refs, ..AbstractValue::plain(Shape::Unknown) }], &end, &waits);
            back.aside.max(&end);
        }
        back.now = start.now;
        back.waited = start.waited;
        Some(back)
    }

    /// An iteration interpreted only for the state at its end: its calls and waits are not recorded.
    fn passing_iteration(
        &mut self,
        frame: &mut Frame<'_>,
        one: &Loop,
        state: State,
        item: AbstractValue,
    ) -> Option<State> {
        let (returns, failed) = (frame.returns.take(), self.failed.clone());
        self.passing += 1;
        let back = self.iteration(frame, one, state, item, &mut Exits::default());
        self.passing -= 1;
        frame.returns = returns;
        self.failed = failed;
        back
    }

    /// A loop whose number of items is not known.
    ///
    /// The state after an iteration depends on the state before it. A few iterations show which times grow, and by how much at
    /// most: if all times before an iteration are later by some amount, all times after it are later by at most that amount. So
    /// one state, with that amount added for each item, bounds every iteration. The iteration that starts from it is the worst one: calls and waits in it, and
    /// exits of it, are what they are at worst.
    fn grow(
        &mut self,
        frame: &mut Frame<'_>,
        one: &Loop,
        start: State,
        element: &AbstractValue,
        id: u32,
        exits: &mut Exits,
    ) -> Option<State> {
        let calls = start.calls.clone();
        let failed = std::mem::take(&mut self.failed);
        let mut per_item = Sum::default();
        let mut worst = start.clone();
        // The states before the first iteration and after each.
        let mut history = vec![start.clone()];
        let mut joined = start.clone();
        let mut settled = false;
        for iteration in 0..ITERATIONS {
            let mut from = joined.clone();
            from.calls.clone_from(&calls);
            // If the first iteration has moved nothing, the second one is as late as all that follow.
            let passing = iteration > 1 || iteration == 1 && !grown(&history).is_empty();
            let back = match passing {
                false => self.iteration(frame, one, from, element.clone(), exits),
                true => self.passing_iteration(frame, one, from, element.clone()),
            };
            let Some(mut back) = back else {
                settled = iteration == 0;
                break;
            };
            per_item.max(&back.calls.above(&calls));
            back.share = 0.0;
            joined.join(&back);
            if iteration == 0 {
                worst.join(&back);
            }
            history.push(joined.clone());
            let [.., before, _] = &history[..] else { break };
            if grown(&history).is_empty() && joined.is_like(before, &start) {
                settled = !passing;
                break;
            }
        }
        forget_items(&start, &mut joined);
        if settled {
            worst = joined;
        } else {
            let last = grown(&history);
            let mut growth = Sum::default();
            last.values().for_each(|grown| growth.max(grown));
            if last.contains_key(&Place::Now) {
                self.loops[id as usize].waits.max(&growth);
            }
            forget_items(&start, &mut worst);
            let mut bounds: Times = last
                .into_keys()
                .filter(|place| worst.time(*place).is_some())
                .map(|place| (place, bound(&history, place, &growth, id)))
                .collect();
            set_times(&mut worst, &bounds);
            let mut known = false;
            for _ in 0..WORST {
                let mut from = worst.clone();
                from.calls.clone_from(&calls);
                let outside = (exits.clone(), frame.returns.clone(), self.failed.clone());
                let Some(mut back) = self.iteration(frame, one, from, element.clone(), exits) else {
                    known = true;
                    break;
                };
                per_item.max(&back.calls.above(&calls));
                back.share = 0.0;
                let before = worst.clone();
                worst.join(&back);
                forget_items(&start, &mut worst);
                let within = |place: &Place, bound: &Sum| {
                    worst.time_of(*place).is_none_or(|time| !time.exceeds(&bound.plus(&growth)))
                };
                known = worst.is_like(&before, &start) && bounds.iter().all(|(place, bound)| within(place, bound));
                worst.compare(&before, &mut |place, time, now| {
                    // What grows only later, or was hidden by something larger in the first iterations.
                    if now.exceeds(time) && !bounds.contains_key(&place) {
                        let mut bound = time.plus(&growth.for_each(id));
                        bound.max(now);
                        bounds.insert(place, bound);
                        known = false;
                    }
                });
                set_times(&mut worst, &bounds);
                if known {
                    break;
                }
                (*exits, frame.returns, self.failed) = outside;
            }
            if !known {
                // The bound is unknown, and the plan reports it as incomplete.
                self.fuel = 0;
            }
            for place in bounds.keys() {
                if let Place::Element(object) | Place::ElementWhole(object) = place
                    && let Some(object) = worst.heap.get_mut(*object)
                {
                    object.items = None;
                }
            }
        }
        let all = per_item.for_each(id);
        worst.calls = calls.plus(&all);
        let returned = frame.returns.iter_mut().map(|(_, state)| state);
        for state in exits.left.iter_mut().chain(exits.jumps.values_mut()).chain(returned) {
            state.calls = state.calls.plus(&all);
        }
        self.failed.calls = self.failed.calls.take().map(|calls| calls.plus(&all));
        self.failed.max(&failed);
        Some(worst)
    }

    fn loop_id(&mut self, frame: &Frame<'_>, header: usize, statement: bool) -> u32 {
        let mut key: Context = self.context.iter().map(|(code, pc, _)| (*code, *pc, 0)).collect();
        key.push((frame.index, header as u32, 0));
        let next = self.loops.len() as u32;
        let id = *self.loop_ids.entry(key).or_insert(next);
        if id == next {
            self.loops.push(LoopFound {
                place: (frame.index, header as u32 - 1),
                statement,
                waits: Sum::default(),
                writes: false,
                leaves: false,
            });
        }
        id
    }
}
