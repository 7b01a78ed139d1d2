//! Ranges of unknown values, learnt from comparisons. They bound the index of a jump table.

use std::rc::Rc;

use kisa::Condition;

use super::domain::Domain;
use crate::values::{Atom, Origin, OriginId, ValueSet, low_mask};

/// How many ranges are remembered; the oldest goes first.
const MAX_RANGES: usize = 12;

/// Numbers from `low` to `high`, both included, `step` apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The least.
    pub low: u64,
    /// The greatest.
    pub high: u64,
    /// From one to the next; 1 unless more is known.
    pub step: u64,
}

impl Span {
    /// One number after the other.
    pub fn new(low: u64, high: u64) -> Span {
        Span { low, high, step: 1 }
    }

    /// How many steps there are from the least to the greatest.
    pub fn steps(self) -> u64 {
        (self.high - self.low) / self.step
    }

    /// The numbers.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..=self.steps()).map(move |index| self.low + index * self.step)
    }

    /// The numbers that are in both; `None` if there are none.
    fn meet(self, other: Span) -> Option<Span> {
        let (coarse, fine) = if self.step >= other.step { (self, other) } else { (other, self) };
        // Steps are powers of two: every other number of the coarse one is in the fine one, or none that
        // this can tell.
        let low = match coarse.low >= fine.low {
            true => coarse.low,
            false => coarse.low + (fine.low - coarse.low).next_multiple_of(coarse.step),
        };
        let high = coarse.high.min(fine.high);
        let high = high.checked_sub(low)? / coarse.step * coarse.step + low;
        Some(Span { low, high, step: coarse.step })
    }

    /// The numbers that are in either, and perhaps more.
    pub(super) fn join(self, other: Span) -> Span {
        let step = self.step.min(other.step);
        let aligned = self.low.abs_diff(other.low) % step == 0;
        Span {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            step: if aligned { step } else { 1 },
        }
    }
}

/// What an atom is one of.
#[derive(Clone, Copy, PartialEq, Debug)]
struct AtomRange {
    of: Atom,
    span: Span,
}

/// The flags compare `left` with `right`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Compared {
    pub(super) left: Atom,
    pub(super) right: u64,
    pub(super) width: u8,
    /// Whether the flags tell no more than whether the two are equal.
    pub(super) equality: bool,
}

/// The ranges that are known at one point.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ranges {
    /// Shared among the states that know the same.
    ranges: Rc<Vec<AtomRange>>,
}

impl Ranges {
    /// The numbers that an atom can be.
    pub fn get(&self, atom: Atom, domain: &Domain) -> Span {
        if let Some(number) = atom.as_number() {
            return Span::new(number, number);
        }
        let mask = domain.mask;
        let mut known = Span::new(0, mask);
        let mut learn = |AtomRange { of, span }: AtomRange| {
            let shift = atom.offset.wrapping_sub(of.offset);
            let low = span.low.wrapping_add(shift) & mask;
            let high = span.high.wrapping_add(shift) & mask;
            // A range that wraps around is none.
            if low <= high && high - low == span.high - span.low {
                known = known.meet(Span { low, high, ..span }).unwrap_or(known);
            }
        };
        let of = Atom::of(atom.origin);
        learn(AtomRange { of, span: self.by_origin(atom.origin, domain) });
        self.ranges.iter().filter(|range| range.of.origin == atom.origin).for_each(|&r| learn(r));
        known
    }

    /// The least power of two of bytes that a value fits into.
    pub fn width(&self, value: &ValueSet, domain: &Domain) -> u8 {
        let high = value.atoms().iter().map(|&atom| self.get(atom, domain).high).max();
        let high = high.unwrap_or(u64::MAX);
        [1, 2, 4].into_iter().find(|&width| high <= low_mask(width)).unwrap_or(8)
    }

    /// What follows from where a value comes from.
    fn by_origin(&self, origin: OriginId, domain: &Domain) -> Span {
        match domain.origins.get(origin) {
            Origin::Low { of, width } => {
                let mask = low_mask(width) & domain.mask;
                let span = self.get(of, domain);
                if span.high <= mask { span } else { Span::new(0, mask) }
            }
            Origin::Memory { width, .. } | Origin::Element { width, signed: false, .. } => {
                Span::new(0, low_mask(width) & domain.mask)
            }
            _ => Span::new(0, domain.mask),
        }
    }

    /// Learns that an atom is one of these numbers. Returns whether that is possible.
    pub fn limit(&mut self, of: Atom, span: Span, domain: &Domain) -> bool {
        let known = self.get(of, domain);
        let Some(span) = known.meet(span) else { return false };
        let nameless = of.as_number().is_some() || of.origin == OriginId::UNKNOWN;
        if nameless || span == known {
            return true;
        }
        let ranges = Rc::make_mut(&mut self.ranges);
        ranges.retain(|range| range.of != of);
        if ranges.len() >= MAX_RANGES {
            ranges.remove(0);
        }
        ranges.push(AtomRange { of, span });
        // `sub $0x20,%eax; cmp $0x5a,%al` also says something about the `%eax` before, if that was a byte.
        if let (Origin::Low { of: inner, width }, 0) = (domain.origins.get(of.origin), of.offset) {
            let mask = low_mask(width) & domain.mask;
            let whole = Atom::of(inner.origin);
            let back = |number: u64| number.wrapping_sub(inner.offset) & mask;
            let (low, high) = (back(span.low), back(span.high));
            if low <= high && self.get(whole, domain).high <= mask {
                return self.limit(whole, Span { low, high, ..span }, domain);
            }
        }
        true
    }

    /// Learns from a comparison that came out this way. Returns whether that is possible.
    pub(super) fn assume(&mut self, compared: Compared, condition: Condition, domain: &Domain) -> bool {
        let Compared { left, right, width, equality } = compared;
        if equality && !matches!(condition, Condition::Equal | Condition::NotEqual) {
            return true;
        }
        let top = low_mask(width) & domain.mask;
        let Span { low, high, .. } = self.get(left, domain);
        if high > top {
            return true;
        }
        // Signed and unsigned order agree where both sides are not negative.
        let same_order = high <= top / 2 && right <= top / 2;
        let limit = match condition {
            Condition::Equal => (right, right),
            Condition::NotEqual if right == low && right == high => return false,
            Condition::NotEqual if right == low => (low + 1, high),
            Condition::NotEqual if right == high => (low, high - 1),
            Condition::Below if right == 0 => return false,
            Condition::Below => (0, right - 1),
            Condition::BelowOrEqual => (0, right),
            Condition::Above if right >= top => return false,
            Condition::Above => (right + 1, top),
            Condition::AboveOrEqual => (right, top),
            Condition::Less if same_order && right == 0 => return false,
            Condition::Less if same_order => (0, right - 1),
            Condition::LessOrEqual if same_order => (0, right),
            Condition::Greater if same_order => (right + 1, top),
            Condition::GreaterOrEqual if same_order => (right, top),
            _ => return true,
        };
        self.limit(left, Span::new(limit.0, limit.1), domain)
    }

    /// Forgets the ranges of some atoms.
    pub(super) fn forget(&mut self, which: impl Fn(Atom) -> bool) {
        if self.ranges.iter().any(|range| which(range.of)) {
            Rc::make_mut(&mut self.ranges).retain(|range| !which(range.of));
        }
    }

    /// Keeps what holds on both ways. With `widen`, what differs is forgotten at once.
    pub(super) fn join(&mut self, other: &Ranges, widen: bool) {
        if Rc::ptr_eq(&self.ranges, &other.ranges)
            || self.ranges.iter().all(|range| other.ranges.contains(range))
        {
            return;
        }
        Rc::make_mut(&mut self.ranges).retain_mut(|range| {
            let Some(theirs) = other.ranges.iter().find(|theirs| theirs.of == range.of) else {
                return false;
            };
            let joined = range.span.join(theirs.span);
            let changed = joined != range.span;
            range.span = joined;
            !(changed && widen)
        });
    }
}

#[cfg(test)]
mod tests {
    use kisa::Reg;

    use super::*;

    fn domain() -> (Domain, Atom) {
        let domain = Domain::new(4, Reg(4), 8);
        let atom = Atom::of(domain.frame);
        (domain, atom)
    }

    #[test]
    fn comparisons_bound() {
        let (domain, atom) = domain();
        let mut ranges = Ranges::default();
        let compared = Compared { left: atom, right: 5, width: 4, equality: false };
        assert!(ranges.assume(compared, Condition::BelowOrEqual, &domain));
        assert_eq!(ranges.get(atom, &domain), Span::new(0, 5));
        assert_eq!(ranges.get(domain.plus(atom, 3), &domain), Span::new(3, 8));
        // The range of the atom minus 1 wraps around.
        assert_eq!(ranges.get(domain.plus(atom, 0xffff_ffff), &domain), Span::new(0, 0xffff_ffff));
        assert!(ranges.assume(compared, Condition::NotEqual, &domain));
        assert_eq!(ranges.get(atom, &domain), Span::new(0, 4));
        assert!(!ranges.assume(compared, Condition::Above, &domain));
    }

    #[test]
    fn signed_comparisons_count_where_signs_are_known() {
        let (domain, atom) = domain();
        let mut ranges = Ranges::default();
        let compared = Compared { left: atom, right: 5, width: 4, equality: false };
        assert!(ranges.assume(compared, Condition::Less, &domain));
        assert_eq!(ranges.get(atom, &domain), Span::new(0, 0xffff_ffff));
        ranges.limit(atom, Span::new(0, 100), &domain);
        assert!(ranges.assume(compared, Condition::Less, &domain));
        assert_eq!(ranges.get(atom, &domain), Span::new(0, 4));
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
        let (domain, atom) = domain();
        let (mut one, mut two) = (Ranges::default(), Ranges::default());
        one.limit(atom, Span::new(0, 4), &domain);
        two.limit(atom, Span::new(3, 9), &domain);
        one.join(&two, false);
        assert_eq!(one.get(atom, &domain), Span::new(0, 9));
        one.join(&Ranges::default(), false);
        assert_eq!(one.get(atom, &domain), Span::new(0, 0xffff_ffff));
    }
}
