//! Values: small sets of atoms.
//!
//! An [`Atom`] is a number, or something unknown plus a number: the content of a register when the
//! function was entered, plus 4. The unknown part is an [`Origin`]: it says where the value comes from, so
//! that two copies of one unknown are known to be equal, and so that the value of an argument can be
//! looked for at the callers.

mod arithmetic;
mod origin;

use std::rc::Rc;

pub(crate) use arithmetic::{compute, low_mask, sign_extend};
pub use origin::{Origin, OriginId, Origins, When};

/// How many numbers a value may be one of after a join; a value with more is unknown. A switch over system
/// calls (`ipc`, `socketcall`) stays well below.
const MAX_NUMBERS: usize = 64;

/// The same for values that are not all numbers. Few wrappers get a number in more than two ways.
const MAX_ATOMS: usize = 8;

/// A number, or an unknown plus a number, modulo the machine's word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Atom {
    /// The unknown part; [`OriginId::NUMBER`] if there is none.
    pub origin: OriginId,
    /// The number, or what is added to the unknown.
    pub offset: u64,
}

impl Atom {
    /// A number.
    pub fn number(number: u64) -> Atom {
        Atom { origin: OriginId::NUMBER, offset: number }
    }

    /// An unknown as it is.
    pub fn of(origin: OriginId) -> Atom {
        Atom { origin, offset: 0 }
    }

    /// The number, if this is one.
    pub fn as_number(self) -> Option<u64> {
        (self.origin == OriginId::NUMBER).then_some(self.offset)
    }
}

/// One of several atoms, or anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueSet {
    /// Exactly this.
    One(Atom),
    /// One of these, sorted and without duplicates; never empty.
    Many(Rc<[Atom]>),
    /// Anything.
    Any,
}

impl ValueSet {
    /// A number.
    pub fn number(number: u64) -> ValueSet {
        ValueSet::One(Atom::number(number))
    }

    /// One of these atoms; anything if there are none.
    pub fn of(mut atoms: Vec<Atom>) -> ValueSet {
        atoms.sort_unstable();
        atoms.dedup();
        match atoms[..] {
            [] => ValueSet::Any,
            [atom] => ValueSet::One(atom),
            _ => ValueSet::Many(atoms.into()),
        }
    }

    /// The atoms; empty if the value may be anything.
    pub fn atoms(&self) -> &[Atom] {
        match self {
            ValueSet::One(atom) => std::slice::from_ref(atom),
            ValueSet::Many(atoms) => atoms,
            ValueSet::Any => &[],
        }
    }

    /// The only atom.
    pub fn single(&self) -> Option<Atom> {
        match self {
            ValueSet::One(atom) => Some(*atom),
            _ => None,
        }
    }

    /// The only atom, if it is a number.
    pub fn as_number(&self) -> Option<u64> {
        self.single().and_then(Atom::as_number)
    }

    /// Whether all atoms are numbers.
    pub fn is_numbers(&self) -> bool {
        !matches!(self, ValueSet::Any) && self.atoms().iter().all(|atom| atom.as_number().is_some())
    }

    /// One of either; anything if that is too many.
    pub fn join(&self, other: &ValueSet) -> ValueSet {
        if self == other {
            return self.clone();
        }
        match (self, other) {
            (ValueSet::Any, _) | (_, ValueSet::Any) => ValueSet::Any,
            (&ValueSet::One(a), &ValueSet::One(b)) => ValueSet::Many(Rc::new([a.min(b), a.max(b)])),
            _ if self.has_all(other) => self.clone(),
            _ if other.has_all(self) => other.clone(),
            _ => {
                let value = ValueSet::of([self.atoms(), other.atoms()].concat());
                let max = if value.is_numbers() { MAX_NUMBERS } else { MAX_ATOMS };
                if value.atoms().len() > max { ValueSet::Any } else { value }
            }
        }
    }

    fn has_all(&self, other: &ValueSet) -> bool {
        let atoms = self.atoms();
        other.atoms().len() <= atoms.len()
            && other.atoms().iter().all(|atom| atoms.binary_search(atom).is_ok())
    }

    /// Every atom made into another one; anything if one of them is.
    pub fn map(&self, mut f: impl FnMut(Atom) -> Option<Atom>) -> ValueSet {
        match self {
            ValueSet::Any => ValueSet::Any,
            ValueSet::One(atom) => f(*atom).map_or(ValueSet::Any, ValueSet::One),
            ValueSet::Many(atoms) => {
                let atoms: Option<Vec<Atom>> = atoms.iter().map(|&atom| f(atom)).collect();
                atoms.map_or(ValueSet::Any, ValueSet::of)
            }
        }
    }

    /// Every pair of atoms made into another one; anything if one pair is, or there are too many.
    pub fn zip(&self, other: &ValueSet, mut f: impl FnMut(Atom, Atom) -> Option<Atom>) -> ValueSet {
        match (self, other) {
            (_, ValueSet::One(right)) => self.map(|left| f(left, *right)),
            (ValueSet::One(left), _) => other.map(|right| f(*left, right)),
            _ if self.atoms().len() * other.atoms().len() > MAX_NUMBERS => ValueSet::Any,
            _ => {
                let pairs = |&left| other.atoms().iter().map(move |&right| (left, right));
                let atoms: Option<Vec<Atom>> =
                    self.atoms().iter().flat_map(pairs).map(|(left, right)| f(left, right)).collect();
                atoms.map_or(ValueSet::Any, ValueSet::of)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_are_sets() {
        let (one, two) = (ValueSet::number(1), ValueSet::number(2));
        let both = one.join(&two);
        assert_eq!(both.atoms(), [Atom::number(1), Atom::number(2)]);
        assert_eq!(both.join(&one), both);
        assert_eq!(both.join(&ValueSet::Any), ValueSet::Any);
        assert!(both.is_numbers() && !ValueSet::Any.is_numbers());
    }

    #[test]
    fn large_sets_are_anything() {
        let all = (0..1000).map(ValueSet::number).reduce(|a, b| a.join(&b)).unwrap();
        assert_eq!(all, ValueSet::Any);
    }

    #[test]
    fn pairs() {
        let add = |a: Atom, b: Atom| Some(Atom::number(a.as_number()? + b.as_number()?));
        let few = ValueSet::number(1).join(&ValueSet::number(2));
        let sums = few.zip(&few, add);
        assert_eq!(sums.atoms(), [2, 3, 4].map(Atom::number));
        assert_eq!(few.zip(&ValueSet::Any, add), ValueSet::Any);
        assert_eq!(few.zip(&ValueSet::number(1), |_, _| None), ValueSet::Any);
    }
}
