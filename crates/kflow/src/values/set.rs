//! The possible values of a variable: one of a few elements, or anything.

use std::sync::Arc;

use super::ranges::Unknowns;

/// A possible value: a number, or an unknown plus a number.
pub trait Element: Copy + Ord {
    /// Maximum number of numbers in a joined value, at least two; with more, it may be anything.
    const MAX_NUMBERS: usize;
    /// Maximum number of elements in a joined value that are not all numbers.
    const MAX_OTHERS: usize;
    /// Maximum number of pairs of elements that are computed, see [`ValueSet::zip`].
    const MAX_PAIRS: usize;
    /// Maximum number of ranges at one point; the oldest are dropped first, see [`super::Ranges`].
    const MAX_RANGES: usize;

    /// Creates a number.
    fn number(number: u64) -> Self;

    /// Returns the number, if this is one.
    fn as_number(self) -> Option<u64>;

    /// Returns the unknown and its addend; the unknown of a number is 0.
    fn parts(self) -> (Self, u64);

    /// Adds a number, modulo the word with this mask.
    fn plus(self, number: u64, mask: u64) -> Self;
}

/// One of several elements, or anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ValueSet<T> {
    /// Exactly this.
    One(T),
    /// One of these, sorted and without duplicates; at least two.
    Many(Arc<[T]>),
    /// Anything.
    Any,
}

impl<T: Element> ValueSet<T> {
    /// Creates a set of one number.
    pub fn number(number: u64) -> ValueSet<T> {
        ValueSet::One(T::number(number))
    }

    /// Creates a set of these elements, however many; anything if there are none.
    pub fn of(mut elements: Vec<T>) -> ValueSet<T> {
        elements.sort_unstable();
        elements.dedup();
        match elements[..] {
            [] => ValueSet::Any,
            [element] => ValueSet::One(element),
            _ => ValueSet::Many(elements.into()),
        }
    }

    /// Creates a set of these elements; anything if there are none, or too many.
    pub fn of_few(elements: Vec<T>) -> ValueSet<T> {
        let value = ValueSet::of(elements);
        let most = if value.is_numbers() { T::MAX_NUMBERS } else { T::MAX_OTHERS };
        if value.elements().len() > most { ValueSet::Any } else { value }
    }

    /// Whether nothing is known of the value.
    pub fn is_any(&self) -> bool {
        matches!(self, ValueSet::Any)
    }

    /// Returns the elements, in order; none if the value may be anything.
    pub fn elements(&self) -> &[T] {
        match self {
            ValueSet::One(element) => std::slice::from_ref(element),
            ValueSet::Many(elements) => elements,
            ValueSet::Any => &[],
        }
    }

    /// Returns the only element.
    pub fn single(&self) -> Option<T> {
        match self {
            ValueSet::One(element) => Some(*element),
            ValueSet::Many(_) | ValueSet::Any => None,
        }
    }

    /// Returns the only element, if it is a number.
    pub fn as_number(&self) -> Option<u64> {
        self.single().and_then(T::as_number)
    }

    /// Whether all elements are numbers.
    pub fn is_numbers(&self) -> bool {
        !self.is_any() && self.elements().iter().all(|element| element.as_number().is_some())
    }

    /// Returns the union; anything if that is too large.
    pub fn join(&self, other: &ValueSet<T>) -> ValueSet<T> {
        match (self, other) {
            (ValueSet::Any, _) | (_, ValueSet::Any) => ValueSet::Any,
            _ if self.has_all(other) => self.clone(),
            (&ValueSet::One(a), &ValueSet::One(b)) => ValueSet::Many(Arc::new([a.min(b), a.max(b)])),
            _ if other.has_all(self) => other.clone(),
            _ => ValueSet::of_few([self.elements(), other.elements()].concat()),
        }
    }

    /// Whether every element of another value is in this one.
    pub fn has_all(&self, other: &ValueSet<T>) -> bool {
        if let (ValueSet::One(one), ValueSet::One(other)) = (self, other) {
            return one == other;
        }
        let elements = self.elements();
        other.elements().len() <= elements.len()
            && other.elements().iter().all(|element| elements.binary_search(element).is_ok())
    }

    /// Maps every element to another; the result is anything if `f` returns `None` for one.
    pub fn map(&self, mut f: impl FnMut(T) -> Option<T>) -> ValueSet<T> {
        match self {
            ValueSet::Any => ValueSet::Any,
            ValueSet::One(element) => f(*element).map_or(ValueSet::Any, ValueSet::One),
            ValueSet::Many(elements) => {
                let elements: Option<Vec<T>> = elements.iter().map(|&element| f(element)).collect();
                elements.map_or(ValueSet::Any, ValueSet::of)
            }
        }
    }

    /// Maps every pair of elements to an element; the result is anything if `f` returns `None` for one, or if there are
    /// too many pairs.
    pub fn zip(&self, other: &ValueSet<T>, mut f: impl FnMut(T, T) -> Option<T>) -> ValueSet<T> {
        match (self, other) {
            (_, ValueSet::One(right)) => self.map(|left| f(left, *right)),
            (ValueSet::One(left), _) => other.map(|right| f(*left, right)),
            _ if self.elements().len() * other.elements().len() > T::MAX_PAIRS => ValueSet::Any,
            _ => {
                let pairs = |&left| other.elements().iter().map(move |&right| (left, right));
                let pairs = self.elements().iter().flat_map(pairs);
                let elements: Option<Vec<T>> = pairs.map(|(left, right)| f(left, right)).collect();
                elements.map_or(ValueSet::Any, ValueSet::of_few)
            }
        }
    }

    /// Returns the sums with another value; anything if both are unknown.
    pub fn sum(&self, other: &ValueSet<T>, mask: u64) -> ValueSet<T> {
        self.zip(other, |a, b| match (a.as_number(), b.as_number()) {
            (_, Some(number)) => Some(a.plus(number, mask)),
            (Some(number), _) => Some(b.plus(number, mask)),
            _ => None,
        })
    }

    /// Returns the differences from another value; anything if they depend on two unknowns.
    pub fn difference(&self, other: &ValueSet<T>, unknowns: &impl Unknowns<T>) -> ValueSet<T> {
        let mask = unknowns.mask();
        self.zip(other, |a, b| {
            let ((one, from), (other, offset)) = (a.parts(), b.parts());
            let is_same = one == other && unknowns.are_copies_equal(one);
            match b.as_number() {
                Some(number) => Some(a.plus(number.wrapping_neg(), mask)),
                None => is_same.then(|| T::number(from.wrapping_sub(offset) & mask)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Term;
    use super::*;

    fn numbers(numbers: impl IntoIterator<Item = u64>) -> ValueSet<Term> {
        ValueSet::of(numbers.into_iter().map(Term::number).collect())
    }

    #[test]
    fn joins_are_sets() {
        let both = numbers([1]).join(&numbers([2]));
        assert_eq!(both.elements(), [1, 2].map(Term::number));
        assert_eq!(both.join(&numbers([1])), both);
        assert_eq!(both.join(&ValueSet::Any), ValueSet::Any);
        assert!(both.is_numbers() && !ValueSet::<Term>::Any.is_numbers());
        let all = (0..1000).map(|number| numbers([number])).reduce(|a, b| a.join(&b));
        assert_eq!(all, Some(ValueSet::Any), "too many");
    }

    #[test]
    fn pairs_are_sets() {
        let add = |a: Term, b: Term| Some(Term::number(a.as_number()? + b.as_number()?));
        let few = numbers([1, 2]);
        assert_eq!(few.zip(&few, add), numbers([2, 3, 4]));
        assert_eq!(few.zip(&ValueSet::Any, add), ValueSet::Any);
        assert_eq!(few.zip(&numbers([1]), |_, _| None), ValueSet::Any);
        let spread = numbers((0..8).map(|number| 100 * number));
        assert_eq!(numbers(0..8).zip(&spread, add), ValueSet::Any, "too many");
    }
}
