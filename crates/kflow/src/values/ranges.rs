//! The ranges of unknown values, learnt from comparisons. They bound the index of a jump table.

use std::sync::Arc;

use kisa::{Condition, low_mask};

use super::set::{Element, ValueSet};

/// Unsigned numbers from `low` to `high`, inclusive, at distances of `step`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The lowest number.
    pub low: u64,
    /// The highest number.
    pub high: u64,
    /// The distance of neighbours; 1 unless more is known.
    pub step: u64,
}

impl Span {
    /// Creates the span of all numbers from `low` to `high`.
    pub fn new(low: u64, high: u64) -> Span {
        Span { low, high, step: 1 }
    }

    /// Returns the number of steps from the lowest to the highest number.
    pub fn steps(self) -> u64 {
        (self.high - self.low) / self.step
    }

    /// Iterates over the numbers.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..=self.steps()).map(move |index| self.low + index * self.step)
    }

    /// Returns the smallest power of two of bytes that holds all numbers.
    pub fn width(self) -> u8 {
        [1, 2, 4].into_iter().find(|&width| self.high <= low_mask(width)).unwrap_or(8)
    }

    /// Adds a number to each, in words with this mask; `None` if they wrap around.
    fn plus(self, number: u64, mask: u64) -> Option<Span> {
        let [low, high] = [self.low, self.high].map(|bound| bound.wrapping_add(number) & mask);
        (low <= high && high - low == self.high - self.low).then_some(Span { low, high, ..self })
    }

    /// Returns the numbers in both spans; `None` if there are none.
    fn meet(self, other: Span) -> Option<Span> {
        if self.step == 1 && other.step == 1 {
            let (low, high) = (self.low.max(other.low), self.high.min(other.high));
            return (low <= high).then_some(Span::new(low, high));
        }
        let (coarse, fine) = if self.step >= other.step { (self, other) } else { (other, self) };
        // Steps are powers of two: either every number of the coarse span is in the fine one, or none that this can
        // show.
        let low = match coarse.low >= fine.low {
            true => coarse.low,
            false => coarse.low + (fine.low - coarse.low).next_multiple_of(coarse.step),
        };
        let high = coarse.high.min(fine.high);
        let high = high.checked_sub(low)? / coarse.step * coarse.step + low;
        Some(Span { low, high, step: coarse.step })
    }

    /// Returns a span of the numbers in either, and perhaps more.
    fn join(self, other: Span) -> Span {
        let step = self.step.min(other.step);
        let aligned = self.low.abs_diff(other.low) % step == 0;
        Span {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            step: if aligned { step } else { 1 },
        }
    }
}

/// Facts about unknowns that hold everywhere, derived from their origin.
pub trait Unknowns<T> {
    /// Returns all ones in the machine's word.
    fn mask(&self) -> u64;

    /// Returns the number of bytes that an unknown fits into; and, if it is the low bytes of another value, that value.
    fn fits(&self, unknown: T) -> Option<(u8, Option<T>)>;

    /// Whether all copies of an unknown in one state are equal, so that a fact about one holds for the others.
    fn are_copies_equal(&self, _unknown: T) -> bool {
        true
    }
}

/// The comparison in the flags.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison<T> {
    /// The left operand.
    pub left: ValueSet<T>,
    /// The right operand.
    pub right: ValueSet<T>,
    /// Number of bytes compared.
    pub width: u8,
    /// Whether the flags only tell whether the operands are equal.
    pub equality: bool,
}

impl<T: Element> Comparison<T> {
    /// Whether the flags determine a condition.
    pub fn tells(&self, condition: Condition) -> bool {
        !self.equality || matches!(condition, Condition::Equal | Condition::NotEqual)
    }

    /// Whether a condition may hold, given whether it may hold for an unknown and a number.
    pub fn may_hold(&self, condition: Condition, mut may_hold_of: impl FnMut(T, u64) -> bool) -> bool {
        let Comparison { left, right, width, .. } = self;
        if !self.tells(condition) || left.is_any() || right.is_any() {
            return true;
        }
        let mut pairs = left.elements().iter().flat_map(|&a| right.elements().iter().map(move |&b| (a, b)));
        pairs.any(|(a, b)| match (a.as_number(), b.as_number()) {
            (Some(a), Some(b)) => condition.holds(a, b, *width) != Some(false),
            (None, Some(number)) => may_hold_of(a, number),
            (_, None) => true,
        })
    }
}

/// The known ranges at one point. States with the same ranges share them.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranges<T>(Arc<Vec<(T, Span)>>);

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges(Arc::default())
    }
}

impl<T: Element> Ranges<T> {
    /// Returns the possible numbers of an element.
    pub fn get(&self, element: T, unknowns: &impl Unknowns<T>) -> Span {
        if let Some(number) = element.as_number() {
            return Span::new(number, number);
        }
        let mask = unknowns.mask();
        let (unknown, offset) = element.parts();
        let mut known = Span::new(0, mask);
        if let Some((width, of)) = unknowns.fits(unknown) {
            let all = Span::new(0, low_mask(width) & mask);
            let whole = of.map(|of| self.get(of, unknowns)).filter(|whole| whole.high <= all.high);
            known = whole.unwrap_or(all).plus(offset, mask).unwrap_or(known);
        }
        for &(of, span) in self.0.iter() {
            let (other, from) = of.parts();
            if other == unknown {
                let span = span.plus(offset.wrapping_sub(from), mask);
                known = span.and_then(|span| known.meet(span)).unwrap_or(known);
            }
        }
        known
    }

    /// Returns the possible numbers of a value.
    pub fn of(&self, value: &ValueSet<T>, unknowns: &impl Unknowns<T>) -> Span {
        let spans = value.elements().iter().map(|&element| self.get(element, unknowns));
        spans.reduce(Span::join).unwrap_or(Span::new(0, unknowns.mask()))
    }

    /// Records that an element is one of these numbers. Returns whether that is possible.
    pub fn limit(&mut self, element: T, span: Span, unknowns: &impl Unknowns<T>) -> bool {
        let known = self.get(element, unknowns);
        let Some(span) = known.meet(span) else { return false };
        let (unknown, offset) = element.parts();
        if element.as_number().is_some() || span == known || !unknowns.are_copies_equal(unknown) {
            return true;
        }
        let ranges = Arc::make_mut(&mut self.0);
        ranges.retain(|(of, _)| *of != element);
        if ranges.len() >= T::MAX_RANGES {
            ranges.remove(0);
        }
        ranges.push((element, span));
        // `sub $0x20,%eax; cmp $0x5a,%al` also restricts the previous `%eax`, if that was a byte.
        if let (Some((width, Some(of))), 0) = (unknowns.fits(unknown), offset) {
            let mask = low_mask(width) & unknowns.mask();
            let (whole, added) = of.parts();
            let back = |number: u64| number.wrapping_sub(added) & mask;
            let (low, high) = (back(span.low), back(span.high));
            if low <= high && self.get(whole, unknowns).high <= mask {
                return self.limit(whole, Span { low, high, ..span }, unknowns);
            }
        }
        true
    }

    /// Returns the numbers of an unknown for which a condition on its comparison with a number holds; `None` if it
    /// never does.
    fn implied(
        &self,
        unknown: T,
        condition: Condition,
        right: u64,
        width: u8,
        unknowns: &impl Unknowns<T>,
    ) -> Option<Span> {
        let top = low_mask(width) & unknowns.mask();
        let known = self.get(unknown, unknowns);
        let Span { low, high, .. } = known;
        if high > top {
            return Some(known);
        }
        // Signed and unsigned order agree if neither side is negative.
        let same_order = high <= top / 2 && right <= top / 2;
        let (least, greatest) = match condition {
            Condition::Equal => (right, right),
            Condition::NotEqual if right == low && right == high => return None,
            Condition::NotEqual if right == low => (low + 1, high),
            Condition::NotEqual if right == high => (low, high - 1),
            Condition::Below => (0, right.checked_sub(1)?),
            Condition::BelowOrEqual => (0, right),
            Condition::Above if right >= top => return None,
            Condition::Above => (right + 1, top),
            Condition::AboveOrEqual => (right, top),
            Condition::Less if same_order => (0, right.checked_sub(1)?),
            Condition::LessOrEqual if same_order => (0, right),
            Condition::Greater if same_order => (right + 1, top),
            Condition::GreaterOrEqual if same_order => (right, top),
            Condition::NotEqual
            | Condition::Less
            | Condition::LessOrEqual
            | Condition::Greater
            | Condition::GreaterOrEqual
            | Condition::Other => return Some(known),
        };
        known.meet(Span::new(least, greatest))
    }

    /// Whether a condition may hold for a comparison.
    pub fn may_hold(
        &self,
        comparison: &Comparison<T>,
        condition: Condition,
        unknowns: &impl Unknowns<T>,
    ) -> bool {
        comparison.may_hold(condition, |left, right| {
            self.implied(left, condition, right, comparison.width, unknowns).is_some()
        })
    }

    /// Records that a condition holds for a comparison. Returns whether that is possible.
    pub fn assume(
        &mut self,
        comparison: &Comparison<T>,
        condition: Condition,
        unknowns: &impl Unknowns<T>,
    ) -> bool {
        match (comparison.left.single(), comparison.right.as_number()) {
            (Some(left), Some(right)) if comparison.tells(condition) && left.as_number().is_none() => {
                let implied = self.implied(left, condition, right, comparison.width, unknowns);
                implied.is_some_and(|span| self.limit(left, span, unknowns))
            }
            _ => self.may_hold(comparison, condition, unknowns),
        }
    }

    /// Makes the ranges hold for `other` too; with `widens`, forgets ranges that change.
    pub fn join(&mut self, other: &Ranges<T>, unknowns: &impl Unknowns<T>, widens: bool) {
        if Arc::ptr_eq(&self.0, &other.0) || self.0.iter().all(|range| other.0.contains(range)) {
            return;
        }
        Arc::make_mut(&mut self.0).retain_mut(|(element, span)| {
            if other.0.contains(&(*element, *span)) {
                return true;
            }
            let joined = span.join(other.get(*element, unknowns));
            let kept = joined == *span || !widens;
            *span = joined;
            kept && joined != Span::new(0, unknowns.mask())
        });
    }

    /// Forgets the ranges of some elements.
    pub fn forget(&mut self, which: impl Fn(T) -> bool) {
        if self.0.iter().any(|(element, _)| which(*element)) {
            Arc::make_mut(&mut self.0).retain(|(element, _)| !which(*element));
        }
    }
}

#[cfg(test)]
mod tests {
    use kisa::Reg;

    use super::super::{Names, Term};
    use super::*;

    fn names() -> (Names, Term) {
        let mut names = Names::new(4, 8, Reg(4));
        let term = names.entry(Reg(0));
        (names, term)
    }

    fn compared(term: Term, right: u64) -> Comparison<Term> {
        Comparison { left: ValueSet::One(term), right: ValueSet::number(right), width: 4, equality: false }
    }

    #[test]
    fn comparisons_bound() {
        let (names, term) = names();
        let mut ranges = Ranges::default();
        let compared = compared(term, 5);
        assert!(ranges.assume(&compared, Condition::BelowOrEqual, &names));
        assert_eq!(ranges.get(term, &names), Span::new(0, 5));
        assert_eq!(ranges.get(names.plus(term, 3), &names), Span::new(3, 8));
        // The range of the unknown minus 1 wraps around.
        assert_eq!(ranges.get(names.plus(term, 0xffff_ffff), &names), Span::new(0, 0xffff_ffff));
        assert!(ranges.assume(&compared, Condition::NotEqual, &names));
        assert_eq!(ranges.get(term, &names), Span::new(0, 4));
        assert!(!ranges.assume(&compared, Condition::Above, &names));
    }

    #[test]
    fn signed_comparisons_count_where_signs_are_known() {
        let (names, term) = names();
        let mut ranges = Ranges::default();
        let compared = compared(term, 5);
        assert!(ranges.assume(&compared, Condition::Less, &names));
        assert_eq!(ranges.get(term, &names), Span::new(0, 0xffff_ffff));
        ranges.limit(term, Span::new(0, 100), &names);
        assert!(ranges.assume(&compared, Condition::Less, &names));
        assert_eq!(ranges.get(term, &names), Span::new(0, 4));
    }

    #[test]
    fn spans_step() {
        let fours = Span { low: 0, high: 28, step: 4 };
        assert_eq!(fours.steps(), 7);
        assert_eq!(fours.meet(Span::new(5, 17)), Some(Span { low: 8, high: 16, step: 4 }));
        assert_eq!(fours.meet(Span::new(29, 40)), None);
        assert_eq!(fours.join(Span { low: 32, high: 40, step: 8 }).step, 4);
        assert_eq!(fours.join(Span::new(1, 1)), Span::new(0, 28));
        assert_eq!(fours.iter().collect::<Vec<_>>(), [0, 4, 8, 12, 16, 20, 24, 28]);
    }

    #[test]
    fn joins_unite() {
        let (names, term) = names();
        let (mut one, mut two) = (Ranges::default(), Ranges::default());
        one.limit(term, Span::new(0, 4), &names);
        two.limit(term, Span::new(3, 9), &names);
        one.join(&two, &names, false);
        assert_eq!(one.get(term, &names), Span::new(0, 9));
        one.join(&Ranges::default(), &names, false);
        assert_eq!(one.get(term, &names), Span::new(0, 0xffff_ffff));
    }
}
