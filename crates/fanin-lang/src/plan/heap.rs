//! The abstract heap: containers that a flow has made.

use std::collections::BTreeMap;
use std::rc::Rc;

use arcstr::ArcStr;

use super::symbolic::Sum;
use super::value::{AbstractValue, MOST_ITEMS, Origins, Shape};

/// A container that the flow has made.
#[derive(Debug, Clone)]
pub(super) struct Object {
    /// When its length is known.
    pub(super) there: Sum,
    /// All elements in one.
    pub(super) element: AbstractValue,
    /// Each element, if all are known.
    pub(super) items: Option<Vec<AbstractValue>>,
    /// Some of `items` may be absent, so that their places say nothing.
    pub(super) sparse: bool,
    /// The keys of `items`, if it is a dict.
    pub(super) keys: Option<Rc<[ArcStr]>>,
    /// Until then something that waits can still see it, and it cannot be changed.
    pub(super) lent: Sum,
    /// What that waits for.
    pub(super) lent_for: Origins,
}

impl Object {
    pub(super) fn new(items: Option<Vec<AbstractValue>>, keys: Option<Rc<[ArcStr]>>) -> Self {
        let mut element = AbstractValue::plain(Shape::Nothing);
        items.iter().flatten().for_each(|item| element.join(item));
        let items = items.filter(|items| items.len() <= MOST_ITEMS);
        Self {
            there: Sum::default(),
            element,
            items,
            sparse: false,
            keys,
            lent: Sum::default(),
            lent_for: Origins::new(),
        }
    }

    fn join(&mut self, other: &Self) {
        self.there.max(&other.there);
        self.lent.max(&other.lent);
        self.lent_for.extend(&other.lent_for);
        self.sparse |= other.sparse;
        self.element.join(&other.element);
        self.items = match (self.items.take(), &other.items) {
            (Some(mut a), Some(b)) if a.len() == b.len() && self.keys == other.keys => {
                a.iter_mut().zip(b).for_each(|(a, b)| a.join(b));
                Some(a)
            }
            // One way has put more into it than the other.
            (Some(mut a), Some(b)) if self.keys.is_none() && other.keys.is_none() => {
                self.sparse = true;
                a.iter_mut().zip(b).for_each(|(a, b)| a.join(b));
                let more = b.iter().skip(a.len()).cloned().collect::<Vec<_>>();
                a.extend(more);
                Some(a)
            }
            _ => None,
        };
    }
}

/// All containers, by number. Where ways part each has its own, but what neither changes is there once.
#[derive(Debug, Clone, Default)]
pub(super) struct Heap(BTreeMap<u32, Rc<Object>>);

impl Heap {
    pub(super) fn get(&self, id: u32) -> Option<&Object> {
        self.0.get(&id).map(|object| &**object)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Object> {
        self.0.get_mut(&id).map(Rc::make_mut)
    }

    pub(super) fn insert(&mut self, id: u32, object: Object) {
        self.0.insert(id, Rc::new(object));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.0.iter().map(|(id, object)| (*id, &**object))
    }

    pub(super) fn join(&mut self, other: &Self) {
        for (id, object) in &other.0 {
            match self.0.get_mut(id) {
                Some(own) if Rc::ptr_eq(own, object) => {}
                Some(own) => Rc::make_mut(own).join(object),
                None => drop(self.0.insert(*id, Rc::clone(object))),
            }
        }
    }
}
