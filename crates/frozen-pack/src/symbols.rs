//! The seam between what a page consists of and how that is coded.
//!
//! A page is described by a sequence of *symbols*: bytes, each of some [`Field`], each with a [`Context`] of up to two
//! bytes that are known before it. A *layout* ([`crate::code`], [`crate::data`]) says which symbols a page consists
//! of; it asks a [`Source`] for one symbol after the other, and so decodes. To encode, the same layout runs against a
//! [`Recorder`], which gets the symbols beforehand and records the context of each request. With one description of
//! the layout, encoder and decoder cannot disagree about a context.

use std::collections::VecDeque;

use crate::error::Damaged;

/// How many values a context has at most.
pub const DEPTH: usize = 2;

/// Which part of a page a symbol is. Fields have numbers below 32, which are part of the format.
pub type Field = u8;

/// The fields of a layout, as the format has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// By field: how many first values its contexts have, from 0 on.
    pub values: &'static [usize],
    /// How many values a context has, 1 or 2.
    pub depth: usize,
}

impl Fields {
    /// How many contexts there are by fields and first values.
    pub fn contexts(self) -> usize {
        self.values.iter().sum()
    }

    /// The first of a field's contexts.
    pub fn first(self, field: Field) -> usize {
        self.values.iter().take(usize::from(field)).sum()
    }

    /// The number of a context by its field and first value, `None` if there is none.
    pub fn index(self, context: Context) -> Option<usize> {
        let values = *self.values.get(usize::from(context.field))?;
        let value = usize::from(context.values[0]);
        (value < values).then(|| self.first(context.field) + value)
    }
}

/// What is known about a symbol before it: its field and up to two values, the most telling first. Where a layout has one
/// value, the other is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The field.
    pub field: Field,
    /// What precedes.
    pub values: [u8; DEPTH],
}

impl Context {
    /// A context of one value.
    pub fn one(field: Field, value: u8) -> Context {
        Context { field, values: [value, 0] }
    }
}

/// Where symbols come from.
pub trait Source {
    /// The next symbol.
    ///
    /// # Errors
    /// If the packed page is damaged.
    fn symbol(&mut self, context: Context) -> Result<u8, Damaged>;

    /// The next `count` bits that have no context, at most 16, the lowest first.
    ///
    /// # Errors
    /// If the packed page is damaged.
    fn bits(&mut self, count: u32) -> Result<u32, Damaged>;
}

/// One step of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A symbol with its context.
    Symbol(Context, u8),
    /// So many bits without a context.
    Bits(u32, u32),
}

/// A source that is given the symbols beforehand, and notes how they are asked for.
#[derive(Debug, Default)]
pub struct Recorder {
    /// What comes next: symbols, and values of bits.
    next: VecDeque<u32>,
    /// What was asked for.
    pub steps: Vec<Step>,
}

impl Recorder {
    /// A recorder that gives these symbols and values of bits.
    pub fn new(symbols: impl IntoIterator<Item = u32>) -> Recorder {
        Recorder { next: symbols.into_iter().collect(), steps: Vec::new() }
    }

    fn next(&mut self) -> Result<u32, Damaged> {
        self.next.pop_front().ok_or(Damaged("more symbols are asked for than the page has"))
    }
}

impl Source for Recorder {
    fn symbol(&mut self, context: Context) -> Result<u8, Damaged> {
        let symbol = self.next()?;
        let symbol = u8::try_from(symbol).map_err(|_| Damaged("bits stand where a symbol is asked for"))?;
        self.steps.push(Step::Symbol(context, symbol));
        Ok(symbol)
    }

    fn bits(&mut self, count: u32) -> Result<u32, Damaged> {
        let value = self.next()?;
        self.steps.push(Step::Bits(count, value));
        Ok(value)
    }
}
