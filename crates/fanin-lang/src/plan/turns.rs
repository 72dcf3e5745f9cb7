//! Loops: turn by turn where the items are known, else until what grows is known.

use std::collections::BTreeMap;

use super::LoopFound;
use super::run::{Context, Frame, Walk, join_into, jump_to};
use super::state::{Known, MOST_ITEMS, Place, Shape, State};
use super::time::Sum;
use crate::code::Reg;

/// Turns of a loop that are looked at before what still grows is taken to grow with each item.
const TURNS: usize = 4;

impl Walk<'_> {
    /// A loop: its body from after `header` up to `exit`.
    pub(super) fn turns(
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
            _ => Known::plain(Shape::Unknown),
        };
        let (items, element) = state.elements(&source);
        let aside = frame.code.items.iter().any(|item| usize::from(item.start) == header + 1 && item.pure);
        let is_item = frame.code.items.iter().any(|item| usize::from(item.start) == header + 1);
        let (share, dead) = (state.share, frame.dead);
        let had_returned = frame.returns.is_some();
        let mut jumps = BTreeMap::new();
        let mut left: Option<State> = None;
        let after = match items {
            Some(items) if items.len() <= MOST_ITEMS => {
                // Each may be absent.
                let sparse = state.in_places(&source).is_none();
                self.conditional += u32::from(sparse);
                let mut state = Some(state);
                for (turn, item) in items.into_iter().enumerate() {
                    let Some(before) = state.take() else { break };
                    self.context.push((frame.index, header as u32, turn as u32 + 1));
                    state = self.turn(frame, before, item, header, dst, exit, aside, &mut left, &mut jumps);
                    self.context.pop();
                }
                self.conditional -= u32::from(sparse);
                state
            }
            _ => {
                let id = self.loop_id(frame, header, !is_item);
                self.loop_stack.push(id);
                let writes = self.writes;
                let after = self.grow(frame, state, element, header, dst, exit, aside, id, &mut left, &mut jumps);
                self.loop_stack.pop();
                let found = &mut self.loops[id as usize];
                found.writes |= self.writes > writes;
                found.leaves |= left.is_some() || frame.returns.is_some() && !had_returned;
                after
            }
        };
        frame.dead = dead;
        let returned = frame.returns.is_some() && !had_returned;
        let mut after = after;
        if let Some(left) = left {
            join_into(&mut after, left);
        }
        if let Some(after) = &mut after {
            after.share = if returned { share / 2.0 } else { share };
        }
        (after, jumps)
    }

    /// One turn of a loop: the state at its end.
    #[allow(clippy::too_many_arguments, reason = "the parts of a loop")]
    fn turn(
        &mut self,
        frame: &mut Frame<'_>,
        mut state: State,
        item: Known,
        header: usize,
        dst: Reg,
        exit: usize,
        aside: bool,
        left: &mut Option<State>,
        jumps: &mut BTreeMap<usize, State>,
    ) -> Option<State> {
        let (now, waited) = (state.now.clone(), state.waited.clone());
        state.regs[usize::from(dst)] = item;
        let mut out = self.stretch(frame, header + 1, exit, state);
        if let Some(state) = out.end {
            join_into(left, state);
        }
        let mut back = out.jumps.remove(&header);
        for (target, state) in out.jumps {
            jump_to(jumps, target, state);
        }
        if let (true, Some(back)) = (aside, &mut back) {
            // The item has stepped aside where it had to wait, and the loop goes on with the next.
            back.aside.max(&back.now);
            back.now = now;
            back.waited = waited;
        }
        back
    }

    /// A loop whose number of items is not known.
    #[allow(clippy::too_many_arguments, reason = "the parts of a loop")]
    fn grow(
        &mut self,
        frame: &mut Frame<'_>,
        start: State,
        element: Known,
        header: usize,
        dst: Reg,
        exit: usize,
        aside: bool,
        id: u32,
        left: &mut Option<State>,
        jumps: &mut BTreeMap<usize, State>,
    ) -> Option<State> {
        let calls = start.calls.clone();
        let mut joined = start.clone();
        let mut before: Vec<(Place, Sum)> = joined.times();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let mut per_item = Sum::default();
        self.touched.push(Default::default());
        for turn in 0..TURNS {
            if let Some((calls, waits)) = self.touched.last_mut() {
                calls.clear();
                waits.clear();
            }
            let mut from = joined.clone();
            from.calls = calls.clone();
            let Some(mut back) = self.turn(frame, from, element.clone(), header, dst, exit, aside, left, jumps) else {
                break;
            };
            let made = back.calls.above(&calls);
            per_item.max(&made);
            back.share = 0.0;
            joined.join(&back);
            let now = joined.times();
            let old = |place| before.iter().find(|(other, _)| *other == place).map(|(_, sum)| sum.clone());
            let grown: Vec<(Place, Sum)> = now
                .iter()
                .filter_map(|(place, sum)| {
                    // A container that this turn has made is not something that grows.
                    let growth = sum.above(&old(*place)?);
                    (!growth.is_zero()).then_some((*place, growth))
                })
                .collect();
            before = now;
            if turn == 0 {
                first.clone_from(&grown);
            }
            last = grown;
            if last.is_empty() {
                break;
            }
        }
        let touched = self.touched.pop().unwrap_or_default();
        // What a loop of unknown length puts into a container is known only as a whole.
        for (id, object) in &start.heap {
            let count = object.items.as_ref().map(Vec::len);
            if let Some(now) = joined.heap.get_mut(id)
                && now.items.as_ref().map(Vec::len) != count
            {
                now.items = None;
            }
        }
        joined.calls = calls.plus(&per_item.for_each(id));
        if !last.is_empty() {
            let mut growth = Sum::default();
            last.iter().for_each(|(_, grown)| growth.max(grown));
            let found = &mut self.loops[id as usize];
            if last.iter().any(|(place, _)| *place == Place::Now) {
                found.waits.max(&growth);
            }
            let mut start = start;
            for (place, _) in &last {
                let initial = first.iter().find(|(other, _)| other == place).map(|(_, grown)| grown.clone());
                // What the first turn adds beyond the others it adds once.
                let once = initial.unwrap_or_default().above(&growth);
                let base = start.time(*place).map(|sum| sum.clone()).unwrap_or_default();
                if let Some(time) = joined.time(*place) {
                    *time = base.plus(&once).plus(&growth.for_each(id));
                }
                if let Place::Element(object) | Place::ElementWhole(object) = place
                    && let Some(object) = joined.heap.get_mut(object)
                {
                    object.items = None;
                }
            }
            for call in touched.0 {
                let call = &mut self.calls[call as usize];
                call.later.max(&growth.for_each(id));
            }
            for wait in touched.1 {
                if let Some(wait) = self.waits.get_mut(&wait) {
                    wait.later.max(&growth.for_each(id));
                }
            }
        }
        Some(joined)
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
