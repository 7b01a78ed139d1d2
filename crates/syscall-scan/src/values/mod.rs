//! Values: small sets of atoms.
//!
//! An [`Atom`] is a number, or something unknown plus a number: the content of a register when the function was
//! entered, plus 4. The unknown part is an [`Origin`]: it records the source of the value, so that two copies of one
//! unknown are equal, and so that callers can be searched for the value of an argument.

mod origin;

use kflow::values::Element;

pub use origin::{Origin, OriginId, Origins, When};

/// A number, or an unknown plus a number, modulo the machine's word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Atom {
    /// The unknown part; [`OriginId::NUMBER`] if there is none.
    pub origin: OriginId,
    /// The number, or what is added to the unknown.
    pub offset: u64,
}

impl Atom {
    /// An unknown as it is.
    pub fn of(origin: OriginId) -> Atom {
        Atom { origin, offset: 0 }
    }
}

impl Element for Atom {
    // A switch over system calls (`ipc`, `socketcall`) stays well below.
    const MAX_NUMBERS: usize = 64;
    // Few wrappers get a number in more than two ways.
    const MAX_OTHERS: usize = 8;
    const MAX_PAIRS: usize = 64;
    const MAX_RANGES: usize = 12;

    fn number(number: u64) -> Atom {
        Atom { origin: OriginId::NUMBER, offset: number }
    }

    fn as_number(self) -> Option<u64> {
        (self.origin == OriginId::NUMBER).then_some(self.offset)
    }

    fn parts(self) -> (Atom, u64) {
        (Atom::of(self.origin), self.offset)
    }
}

/// One of several atoms, or anything.
pub type ValueSet = kflow::values::ValueSet<Atom>;
