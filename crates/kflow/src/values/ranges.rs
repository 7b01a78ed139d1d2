//! The ranges that unknown values are known to lie in.

use std::rc::Rc;

use kisa::{Condition, low_mask};

use super::{Name, NameId, Names, Term, Value};

/// How many ranges are kept at one point; the oldest are forgotten first.
const MAX_RANGES: usize = 24;

/// Unsigned numbers from `low` to `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The least.
    pub low: u64,
    /// The greatest.
    pub high: u64,
}

impl Range {
    fn meet(self, other: Range) -> Option<Range> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(Range { low, high })
    }

    fn join(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// What the flags compare.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Compared {
    pub(super) left: Value,
    pub(super) right: Value,
    pub(super) width: u8,
    /// Whether the flags tell no more than whether the two are equal.
    pub(super) equality: bool,
}

/// The ranges that are known at one point.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Ranges(Rc<Vec<(Term, Range)>>);

impl Ranges {
    /// The numbers that a term can be.
    pub(super) fn get(&self, term: Term, names: &Names) -> Range {
        if let Some(number) = term.as_number() {
            return Range { low: number, high: number };
        }
        let mut known = Range { low: 0, high: names.mask };
        let mut learn = |of: Term, range: Range| {
            let shift = term.offset.wrapping_sub(of.offset);
            let (low, high) = (range.low.wrapping_add(shift), range.high.wrapping_add(shift));
            let (low, high) = (low & names.mask, high & names.mask);
            // A range that wraps around is none.
            if low <= high && high - low == range.high - range.low {
                known = known.meet(Range { low, high }).unwrap_or(known);
            }
        };
        if let Name::Low { of, width } = names.get(term.name) {
            let whole = self.get(of, names);
            let all = Range { low: 0, high: low_mask(width) & names.mask };
            learn(Term::of(term.name), if whole.high <= all.high { whole } else { all });
        }
        self.0.iter().filter(|(of, _)| of.name == term.name).for_each(|&(of, range)| learn(of, range));
        known
    }

    /// Learns that a term is one of these numbers. Returns whether that is possible.
    pub(super) fn limit(&mut self, term: Term, range: Range, names: &Names) -> bool {
        let known = self.get(term, names);
        let Some(range) = known.meet(range) else { return false };
        if term.as_number().is_none() && range != known {
            let ranges = Rc::make_mut(&mut self.0);
            ranges.retain(|(of, _)| *of != term);
            if ranges.len() >= MAX_RANGES {
                ranges.remove(0);
            }
            ranges.push((term, range));
        }
        true
    }

    /// The range that a value lies in.
    pub(super) fn of(&self, value: &Value, names: &Names) -> Range {
        let ranges = value.terms().iter().map(|&term| self.get(term, names));
        ranges.reduce(Range::join).unwrap_or(Range { low: 0, high: names.mask })
    }

    /// What a term has to be for a condition to hold of its comparison with a number; `None` if it never does.
    fn implied(
        &self,
        term: Term,
        condition: Condition,
        right: u64,
        width: u8,
        names: &Names,
    ) -> Option<Range> {
        let top = low_mask(width) & names.mask;
        let known = self.get(term, names);
        let Range { low, high } = known;
        if high > top {
            return Some(known);
        }
        // Signed and unsigned order agree where neither side is negative.
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
        known.meet(Range { low: least, high: greatest })
    }

    /// Whether a condition may hold of a comparison.
    pub(super) fn may_hold(&self, compared: &Compared, condition: Condition, names: &Names) -> bool {
        let Compared { left, right, width, equality } = compared;
        let tells = !equality || matches!(condition, Condition::Equal | Condition::NotEqual);
        if !tells || left.is_any() || right.is_any() {
            return true;
        }
        let mut pairs = left.terms().iter().flat_map(|&a| right.terms().iter().map(move |&b| (a, b)));
        pairs.any(|(a, b)| match (a.as_number(), b.as_number()) {
            (Some(a), Some(b)) => condition.holds(a, b, *width) != Some(false),
            (None, Some(number)) => self.implied(a, condition, number, *width, names).is_some(),
            (_, None) => true,
        })
    }

    /// Learns that a condition holds of a comparison. Returns whether that is possible.
    pub(super) fn assume(&mut self, compared: &Compared, condition: Condition, names: &Names) -> bool {
        if !self.may_hold(compared, condition, names) {
            return false;
        }
        let Compared { left, right, width, equality } = compared;
        let tells = !equality || matches!(condition, Condition::Equal | Condition::NotEqual);
        match (left.single(), right.as_number()) {
            (Some(left), Some(right)) if tells && left.as_number().is_none() => {
                let implied = self.implied(left, condition, right, *width, names);
                implied.is_some_and(|range| self.limit(left, range, names))
            }
            _ => true,
        }
    }

    /// Makes them hold for `other` too; where `widens`, those that change are forgotten.
    pub(super) fn join(&mut self, other: &Ranges, names: &Names, widens: bool) {
        if Rc::ptr_eq(&self.0, &other.0) || self.0 == other.0 {
            return;
        }
        Rc::make_mut(&mut self.0).retain_mut(|(term, range)| {
            let joined = range.join(other.get(*term, names));
            let kept = joined == *range || !widens;
            *range = joined;
            kept && joined != Range { low: 0, high: names.mask }
        });
    }

    pub(super) fn forget(&mut self, is_stale: impl Fn(NameId) -> bool) {
        if self.0.iter().any(|(term, _)| is_stale(term.name)) {
            Rc::make_mut(&mut self.0).retain(|(term, _)| !is_stale(term.name));
        }
    }
}
