//! Conversions between the values of a function and constants, which are valid in every function.

use smallvec::SmallVec;

use super::names::{Name, Names, Term, TermSet};
use super::set::Element;
use crate::constants::{Constant, ConstantSet};

impl Names {
    /// Returns a term as a constant, if it has the same name in every function.
    pub fn as_constant(&self, term: Term) -> Option<Constant> {
        match self.get(term.name) {
            Name::Zero => Some(Constant { symbol: None, number: term.offset }),
            Name::Symbol(symbol) => Some(Constant { symbol: Some(symbol), number: term.offset }),
            Name::Entry(_) | Name::Made { .. } | Name::Frame { .. } | Name::Low { .. } => None,
        }
    }
}

impl ConstantSet {
    /// Converts a value of a function to the constants that are valid in every function.
    pub fn of_value(value: &TermSet, names: &Names) -> ConstantSet {
        let constants: Option<SmallVec<[Constant; 1]>> =
            value.elements().iter().map(|&term| names.as_constant(term)).collect();
        constants.map_or(ConstantSet::any(), ConstantSet::of)
    }

    /// Converts the set to a value of a function.
    pub fn value(&self, names: &mut Names) -> TermSet {
        let terms = self.constants().iter().map(|constant| match constant.symbol {
            Some(symbol) => names.symbol(symbol, constant.number as i64),
            None => Term::number(constant.number),
        });
        TermSet::of_few(terms.collect())
    }
}
