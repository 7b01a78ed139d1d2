//! Values: small sets of atoms.
//!
//! An [`Atom`] is a number, or an unknown plus a number, such as the content of a register at the function's entry plus
//! 4. The unknown part is an [`Origin`], which records the source of the value. Two copies of one unknown are therefore
//! equal, and callers can be searched for the value of an argument.

mod origin;

use kflow::values::Element;

pub use origin::{Origin, OriginId, Origins, When};

/// A number, or an unknown plus a number, modulo the machine's word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Atom {
    /// The unknown part; [`OriginId::NUMBER`] if there is none.
    pub origin: OriginId,
    /// The number, or the offset from the unknown.
    pub offset: u64,
}

impl Atom {
    /// Creates an unknown without offset.
    pub fn of(origin: OriginId) -> Atom {
        Atom { origin, offset: 0 }
    }
}

impl Element for Atom {
    // A switch over system calls (`ipc`, `socketcall`) needs far fewer.
    const MAX_NUMBERS: usize = 64;
    // Few wrappers receive a number in more than two ways.
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

    fn plus(self, number: u64, mask: u64) -> Atom {
        Atom { offset: self.offset.wrapping_add(number) & mask, ..self }
    }
}

/// One of several atoms, or any value.
pub type ValueSet = kflow::values::ValueSet<Atom>;
