//! Newtypes for the indices of the graph, with maps and sets of them.

use std::marker::PhantomData;

use fixedbitset::FixedBitSet;
use kelf::index;
use typed_index_collections::TiVec;

index! {
    /// A node: a basic block or a chunk.
    NodeId
}
index! {
    /// A function of compiler-made code.
    FunctionId
}
index! {
    /// A symbol of the program.
    SymbolId
}
index! {
    /// An input section that is part of the program.
    InputId
}
index! {
    /// A section of the program for lowering. A lifted graph has one for each input section, in the same order.
    SectionId
}
index! {
    /// A jump table of a `switch`.
    TableId
}

impl SectionId {
    /// Returns the input section from which lifting made the section.
    pub(crate) fn lifted_from(self) -> InputId {
        InputId(self.0)
    }
}

impl InputId {
    /// Returns the section that lifting made from the input section.
    pub(crate) fn lifted(self) -> SectionId {
        SectionId(self.0)
    }
}

/// A value for each node.
pub type NodeMap<T> = TiVec<NodeId, T>;
/// A value for each function.
pub type FunctionMap<T> = TiVec<FunctionId, T>;

/// A set of nodes.
pub type NodeSet = IdSet<NodeId>;
/// A set of functions.
pub type FunctionSet = IdSet<FunctionId>;

/// A set of ids, with one bit for each id below the capacity.
#[derive(Clone, Debug)]
pub struct IdSet<I> {
    bits: FixedBitSet,
    ids: PhantomData<I>,
}

impl<I: From<usize> + Into<usize>> IdSet<I> {
    /// Creates an empty set for the ids below a number.
    pub fn with_capacity(count: usize) -> IdSet<I> {
        IdSet { bits: FixedBitSet::with_capacity(count), ids: PhantomData }
    }

    /// Whether the set contains an id; false beyond the capacity.
    pub fn contains(&self, id: I) -> bool {
        self.bits.contains(id.into())
    }

    /// Adds an id, which must be below the capacity.
    pub fn insert(&mut self, id: I) {
        self.bits.insert(id.into());
    }

    /// Adds an id, which must be below the capacity. Returns whether the set contained it before.
    pub fn put(&mut self, id: I) -> bool {
        self.bits.put(id.into())
    }

    /// Adds or removes an id, which must be below the capacity.
    pub fn set(&mut self, id: I, is_member: bool) {
        self.bits.set(id.into(), is_member);
    }

    /// Adds the members of another set.
    pub fn union_with(&mut self, other: &IdSet<I>) {
        self.bits.union_with(&other.bits);
    }

    /// Removes the members of another set.
    pub fn difference_with(&mut self, other: &IdSet<I>) {
        self.bits.difference_with(&other.bits);
    }

    /// Iterates over the members, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = I> {
        self.bits.ones().map(I::from)
    }

    /// Iterates over the members that are in another set as well, in ascending order.
    pub fn intersection<'s>(&'s self, other: &'s IdSet<I>) -> impl Iterator<Item = I> + 's {
        self.bits.intersection(&other.bits).map(I::from)
    }

    /// Iterates over the members that are not in another set, in ascending order.
    pub fn difference<'s>(&'s self, other: &'s IdSet<I>) -> impl Iterator<Item = I> + 's {
        self.bits.difference(&other.bits).map(I::from)
    }
}

impl<I> Default for IdSet<I> {
    /// Creates an empty set of capacity 0.
    fn default() -> IdSet<I> {
        IdSet { bits: FixedBitSet::new(), ids: PhantomData }
    }
}

impl<I: Into<usize>> Extend<I> for IdSet<I> {
    /// Adds ids, and raises the capacity for them.
    fn extend<T: IntoIterator<Item = I>>(&mut self, ids: T) {
        self.bits.extend(ids.into_iter().map(I::into));
    }
}

impl<I: Into<usize>> FromIterator<I> for IdSet<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> IdSet<I> {
        IdSet { bits: ids.into_iter().map(I::into).collect(), ids: PhantomData }
    }
}
