//! Abstract states: what is known at one place of a flow.

use std::collections::BTreeSet;
use std::mem::discriminant;

use super::heap::{Heap, Object};
use super::ids::Ids;
use super::symbolic::Sum;
use super::value::{AbstractValue, Origins, Shape};

/// A function at one place.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) regs: Vec<AbstractValue>,
    pub(super) heap: Heap,
    /// When control is here.
    pub(super) now: Sum,
    /// The calls that were waited for on the way here.
    pub(super) waited: Origins,
    /// When all required calls above have succeeded.
    pub(super) required: Sum,
    /// When everything that is suspended has ended.
    pub(super) aside: Sum,
    /// Calls made.
    pub(super) calls: Sum,
    /// The share of all ways through the function that lead here.
    pub(super) share: f64,
}

impl State {
    pub(super) fn join(&mut self, other: &Self) {
        self.regs.iter_mut().zip(&other.regs).for_each(|(a, b)| a.join(b));
        self.heap.join(&other.heap);
        self.now.max(&other.now);
        self.waited.extend(&other.waited);
        self.required.max(&other.required);
        self.aside.max(&other.aside);
        self.calls.max(&other.calls);
        self.share += other.share;
    }

    /// When a value is there with everything inside.
    pub(super) fn whole(&self, value: &AbstractValue) -> Sum {
        let mut time = value.whole.clone();
        time.max(&value.there);
        self.objects(value, &mut BTreeSet::new(), &mut |object| {
            time.max(&object.there);
            time.max(&object.element.there);
            time.max(&object.element.whole);
        });
        time
    }

    /// The calls that a value and everything inside come from.
    pub(super) fn all_origins(&self, value: &AbstractValue) -> Origins {
        let mut origins = value.origins.clone();
        self.objects(value, &mut BTreeSet::new(), &mut |object| origins.extend(&object.element.origins));
        origins
    }

    /// When a value can be decided on.
    pub(super) fn there(&self, value: &AbstractValue) -> Sum {
        let mut time = value.there.clone();
        let of = |ids: &Ids, time: &mut Sum| {
            ids.iter().filter_map(|id| self.heap.get(id)).for_each(|object| time.max(&object.there));
        };
        match &value.shape {
            Shape::Object(ids) => of(ids, &mut time),
            // It may be one of the containers, or something else.
            Shape::Unknown | Shape::Blurred => of(&value.refs, &mut time),
            _ => {}
        }
        time
    }

    fn objects(&self, value: &AbstractValue, seen: &mut BTreeSet<u32>, visit: &mut dyn FnMut(&Object)) {
        for id in value.refs.iter() {
            if let (true, Some(object)) = (seen.insert(id), self.heap.get(id)) {
                visit(object);
                self.objects(&object.element, seen, visit);
            }
        }
    }

    /// Containers that can be reached from a value.
    fn reachable(&self, value: &AbstractValue, ids: &mut BTreeSet<u32>) {
        for id in value.refs.iter() {
            if let (true, Some(object)) = (ids.insert(id), self.heap.get(id)) {
                self.reachable(&object.element, ids);
            }
        }
    }

    /// Something waits until a time, for these calls, and sees values meanwhile: no container in them can be changed before.
    pub(super) fn borrow<'k>(&mut self, seen: impl IntoIterator<Item = &'k AbstractValue>, until: &Sum, on: &Origins) {
        let mut ids = BTreeSet::new();
        seen.into_iter().for_each(|value| self.reachable(value, &mut ids));
        for id in ids {
            if let Some(object) = self.heap.get_mut(id) {
                object.lent.max(until);
                object.lent_for.extend(on);
            }
        }
    }

    /// The elements of a value: each if they are known, and all in one.
    pub(super) fn elements(&self, value: &AbstractValue) -> (Option<Vec<AbstractValue>>, AbstractValue) {
        let mut later = AbstractValue::at(self.there(value), value.origins.clone());
        if let Shape::Object(ids) = &value.shape {
            let mut element = AbstractValue::plain(Shape::Nothing);
            ids.iter().filter_map(|id| self.heap.get(id)).for_each(|object| element.join(&object.element));
            element.there.max(&later.there);
            element.whole.max(&value.whole);
            element.origins.extend(&later.origins);
            let mut items = self.items(ids);
            for item in items.iter_mut().flatten() {
                item.there.max(&later.there);
                item.origins.extend(&later.origins);
            }
            return (items, element);
        }
        later.whole = self.whole(value);
        later.there = later.whole.clone();
        later.refs.clone_from(&value.refs);
        if self.may_hold_host(value) {
            later.shape = Shape::Blurred;
        }
        (None, later)
    }

    /// Whether a value may be one of the host's objects or hold some.
    pub(super) fn may_hold_host(&self, value: &AbstractValue) -> bool {
        let host = |shape: &Shape| matches!(shape, Shape::Host(_) | Shape::Blurred);
        let mut found = host(&value.shape);
        self.objects(value, &mut BTreeSet::new(), &mut |object| {
            found |= host(&object.element.shape);
        });
        found
    }

    /// Each element, if it is known of all these containers which they are.
    fn items(&self, ids: &Ids) -> Option<Vec<AbstractValue>> {
        let mut all: Option<Vec<AbstractValue>> = None;
        for id in ids.iter() {
            let object = self.heap.get(id).filter(|object| object.keys.is_none())?;
            let items = object.items.as_ref()?;
            match &mut all {
                None => all = Some(items.clone()),
                Some(all) if all.len() == items.len() && !object.sparse => {
                    all.iter_mut().zip(items).for_each(|(a, b)| a.join(b));
                }
                Some(_) => return None,
            }
        }
        all
    }

    /// The elements in their places, if that is known.
    pub(super) fn in_places(&self, value: &AbstractValue) -> Option<Vec<AbstractValue>> {
        let Shape::Object(ids) = &value.shape else { return None };
        let sparse = ids.iter().filter_map(|id| self.heap.get(id)).any(|object| object.sparse);
        if sparse { None } else { self.items(ids) }
    }

    /// A part of a value: of `key` if that is known.
    pub(super) fn part(&self, of: &AbstractValue, key: Option<&Shape>) -> AbstractValue {
        if let Shape::Object(ids) = &of.shape
            && let (1, Some(object)) = (ids.len(), ids.first().and_then(|id| self.heap.get(id)))
            && let Some(items) = object.items.as_ref().filter(|_| !object.sparse)
        {
            let at = match (key, &object.keys) {
                (Some(Shape::Text(key)), Some(keys)) => keys.iter().position(|known| known == key),
                (Some(Shape::Int(at)), None) => {
                    let from_start = if *at < 0 { at.saturating_add(items.len() as i64) } else { *at };
                    usize::try_from(from_start).ok()
                }
                _ => None,
            };
            if let Some(item) = at.and_then(|at| items.get(at)) {
                let mut item = item.clone();
                item.there.max(&of.there);
                item.whole.max(&of.there);
                item.origins.extend(&of.origins);
                return item;
            }
        }
        self.elements(of).1
    }

    /// Whether its values are what they were before, as far as iterations of a loop that begins with `start` can differ in it.
    pub(super) fn is_like(&self, before: &Self, start: &Self) -> bool {
        // Each turn makes containers of its own: which, makes no difference.
        let known =
            |value: &AbstractValue| value.refs.iter().filter(|id| start.heap.get(*id).is_some()).collect::<Vec<_>>();
        let alike = |one: &AbstractValue, other: &AbstractValue| {
            discriminant(&one.shape) == discriminant(&other.shape)
                && (one.refs == other.refs || known(one) == known(other))
        };
        let mut of_start = self.heap.changed(&before.heap).filter(|(id, ..)| start.heap.get(*id).is_some());
        self.regs.iter().zip(&before.regs).all(|(now, before)| alike(now, before))
            && of_start.all(|(_, now, before)| before.is_some_and(|before| alike(&now.element, &before.element)))
    }

    /// Visits the times in which it can have grown, with what they were before.
    pub(super) fn compare(&self, before: &Self, visit: &mut dyn FnMut(Place, &Sum, &Sum)) {
        visit(Place::Now, &before.now, &self.now);
        visit(Place::Required, &before.required, &self.required);
        visit(Place::Aside, &before.aside, &self.aside);
        for (at, (now, before)) in self.regs.iter().zip(&before.regs).enumerate() {
            visit(Place::There(at), &before.there, &now.there);
            visit(Place::Whole(at), &before.whole, &now.whole);
        }
        for (id, now, before) in self.heap.changed(&before.heap) {
            // A container that was not there before has not grown.
            let Some(before) = before else { continue };
            visit(Place::Element(id), &before.element.there, &now.element.there);
            visit(Place::ElementWhole(id), &before.element.whole, &now.element.whole);
            visit(Place::Length(id), &before.there, &now.there);
            visit(Place::Borrowed(id), &before.lent, &now.lent);
        }
    }

    /// The time of a place.
    pub(super) fn time_of(&self, place: Place) -> Option<&Sum> {
        Some(match place {
            Place::Now => &self.now,
            Place::Required => &self.required,
            Place::Aside => &self.aside,
            Place::There(at) => &self.regs.get(at)?.there,
            Place::Whole(at) => &self.regs.get(at)?.whole,
            Place::Element(id) => &self.heap.get(id)?.element.there,
            Place::ElementWhole(id) => &self.heap.get(id)?.element.whole,
            Place::Length(id) => &self.heap.get(id)?.there,
            Place::Borrowed(id) => &self.heap.get(id)?.lent,
        })
    }

    /// The same, to change it.
    pub(super) fn time(&mut self, place: Place) -> Option<&mut Sum> {
        Some(match place {
            Place::Now => &mut self.now,
            Place::Required => &mut self.required,
            Place::Aside => &mut self.aside,
            Place::There(at) => &mut self.regs.get_mut(at)?.there,
            Place::Whole(at) => &mut self.regs.get_mut(at)?.whole,
            Place::Element(id) => &mut self.heap.get_mut(id)?.element.there,
            Place::ElementWhole(id) => &mut self.heap.get_mut(id)?.element.whole,
            Place::Length(id) => &mut self.heap.get_mut(id)?.there,
            Place::Borrowed(id) => &mut self.heap.get_mut(id)?.lent,
        })
    }
}

/// A time of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Now,
    Required,
    Aside,
    There(usize),
    Whole(usize),
    Element(u32),
    ElementWhole(u32),
    Length(u32),
    Borrowed(u32),
}
