//! The interface between the layout of a page and its coding.
//!
//! A page is described by a sequence of *symbols*: bytes, each of some [`Field`], each with a [`Context`] of up to two
//! bytes that are known before it. A *layout* ([`super::code`], [`super::data`]) defines the symbols of a page. It
//! requests one symbol after the other from a [`Source`], and so decodes. To encode, the same layout runs against a
//! [`Recorder`], which gets the symbols beforehand and records the context of each request. With one description of the
//! layout, encoder and decoder cannot disagree about a context.

use std::collections::VecDeque;

use crate::codec::error::Damaged;

/// Maximum number of values of a context.
pub const DEPTH: usize = 2;

/// The part of a page that a symbol belongs to. Fields have numbers below 32, which are part of the format.
pub type Field = u8;

/// The fields of a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// For each field, the number of first values of its contexts, from 0 on.
    pub values: &'static [usize],
    /// Number of values of a context, 1 or 2.
    pub depth: usize,
}

impl Fields {
    /// Returns the number of contexts by fields and first values.
    pub fn contexts(self) -> usize {
        self.values.iter().sum()
    }

    /// Returns the first of a field's contexts.
    pub fn first(self, field: Field) -> usize {
        self.values.iter().take(usize::from(field)).sum()
    }

    /// Returns the number of a context by its field and first value, `None` if there is none.
    pub fn index(self, context: Context) -> Option<usize> {
        let values = *self.values.get(usize::from(context.field))?;
        let value = usize::from(context.values[0]);
        (value < values).then(|| self.first(context.field) + value)
    }
}

/// The context of a symbol: its field and up to two values, the best predictor first. In a layout with one value, the
/// other is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The field.
    pub field: Field,
    /// The preceding values.
    pub values: [u8; DEPTH],
}

impl Context {
    /// A context of one value.
    pub fn one(field: Field, value: u8) -> Context {
        Context { field, values: [value, 0] }
    }
}

/// A source of symbols.
pub trait Source {
    /// Returns the next symbol.
    ///
    /// # Errors
    /// If the packed page is damaged.
    fn symbol(&mut self, context: Context) -> Result<u8, Damaged>;

    /// Returns the next `count` bits without a context, at most 16, lowest first.
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
    /// A number of bits without a context.
    Bits(u32, u32),
}

/// A source that gets the symbols beforehand, and records the requests for them.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The remaining symbols and bit values.
    next: VecDeque<u32>,
    /// The requests.
    pub steps: Vec<Step>,
}

impl Recorder {
    /// Creates a recorder that returns these symbols and bit values.
    pub fn new(symbols: impl IntoIterator<Item = u32>) -> Recorder {
        Recorder { next: symbols.into_iter().collect(), steps: Vec::new() }
    }

    fn next(&mut self) -> Result<u32, Damaged> {
        self.next.pop_front().ok_or(Damaged("more symbols are requested than the page has"))
    }
}

impl Source for Recorder {
    fn symbol(&mut self, context: Context) -> Result<u8, Damaged> {
        let symbol = self.next()?;
        let symbol =
            u8::try_from(symbol).map_err(|_| Damaged("a symbol is requested where there are bits"))?;
        self.steps.push(Step::Symbol(context, symbol));
        Ok(symbol)
    }

    fn bits(&mut self, count: u32) -> Result<u32, Damaged> {
        let value = self.next()?;
        self.steps.push(Step::Bits(count, value));
        Ok(value)
    }
}
