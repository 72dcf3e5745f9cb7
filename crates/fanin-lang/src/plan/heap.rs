//! The abstract heap: containers that a flow has made.

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

/// How many containers are in a block.
const BLOCK: usize = 16;

type Block = [Option<Rc<Object>>; BLOCK];

/// All containers, by number. Where ways part each has its own, but what neither changes is there once: containers, and blocks of them,
/// so that a copy takes little time however many containers there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Heap(Vec<Option<Rc<Block>>>);

fn place(id: u32) -> (usize, usize) {
    (id as usize / BLOCK, id as usize % BLOCK)
}

impl Heap {
    fn rc(&self, id: u32) -> Option<&Rc<Object>> {
        let (block, at) = place(id);
        self.0.get(block)?.as_ref()?[at].as_ref()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Object> {
        self.rc(id).map(|object| &**object)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Object> {
        let (block, at) = place(id);
        // A block that is shared is copied only if it has the container.
        self.rc(id)?;
        Rc::make_mut(self.0.get_mut(block)?.as_mut()?)[at].as_mut().map(Rc::make_mut)
    }

    pub(super) fn insert(&mut self, id: u32, object: Object) {
        let (block, at) = place(id);
        if self.0.len() <= block {
            self.0.resize(block + 1, None);
        }
        Rc::make_mut(self.0[block].get_or_insert_default())[at] = Some(Rc::new(object));
    }

    /// The containers that are not the same as in another heap, with those there. None that is only there.
    pub(super) fn changed<'h>(
        &'h self,
        other: &'h Self,
    ) -> impl Iterator<Item = (u32, &'h Object, Option<&'h Object>)> {
        self.0.iter().enumerate().flat_map(move |(number, own)| {
            let theirs = other.0.get(number).and_then(Option::as_ref);
            let own = own.as_ref().filter(|own| !theirs.is_some_and(|theirs| Rc::ptr_eq(own, theirs)));
            own.into_iter().flat_map(move |own| {
                own.iter().enumerate().filter_map(move |(at, object)| {
                    let (object, before) = (object.as_ref()?, theirs.and_then(|theirs| theirs[at].as_ref()));
                    let same = before.is_some_and(|before| Rc::ptr_eq(object, before));
                    (!same).then(|| ((number * BLOCK + at) as u32, &**object, before.map(|before| &**before)))
                })
            })
        })
    }

    pub(super) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), None);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            match (&mut *own, other) {
                (_, None) => {}
                (None, Some(_)) => own.clone_from(other),
                (Some(own), Some(other)) if Rc::ptr_eq(own, other) => {}
                (Some(own), Some(other)) => {
                    for (own, object) in Rc::make_mut(own).iter_mut().zip(other.iter()) {
                        match (&mut *own, object) {
                            (_, None) => {}
                            (None, Some(_)) => own.clone_from(object),
                            (Some(own), Some(object)) if Rc::ptr_eq(own, object) => {}
                            (Some(own), Some(object)) => Rc::make_mut(own).join(object),
                        }
                    }
                }
            }
        }
    }
}
