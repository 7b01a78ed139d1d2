//! Ranges of unknown values, learnt from comparisons. They bound the index of a jump table.

use std::rc::Rc;

use kcfg::isa::Condition;

use super::domain::{Domain, low_mask};
use crate::values::{Atom, Origin, OriginId, Value};

/// How many ranges are remembered; the oldest goes first.
const MAX_RANGES: usize = 12;

/// An atom lies within `low..=high`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    of: Atom,
    low: u64,
    high: u64,
}

/// The flags compare `left` with `right`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Compared {
    pub(super) left: Atom,
    pub(super) right: u64,
    pub(super) width: u8,
}

/// The ranges that are known at one point.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ranges {
    /// Shared among the states that know the same.
    ranges: Rc<Vec<Range>>,
}

impl Ranges {
    /// The range that an atom lies in, both ends included.
    pub fn get(&self, atom: Atom, domain: &Domain) -> (u64, u64) {
        if let Some(number) = atom.as_number() {
            return (number, number);
        }
        let mask = domain.mask;
        let (mut low, mut high) = (0, mask);
        let mut learn = |range: Range| {
            let shift = atom.offset.wrapping_sub(range.of.offset);
            let from = range.low.wrapping_add(shift) & mask;
            let to = range.high.wrapping_add(shift) & mask;
            // A range that wraps around is none.
            if from <= to && to - from == range.high - range.low {
                (low, high) = (low.max(from), high.min(to));
            }
        };
        let (from, to) = self.by_origin(atom.origin, domain);
        learn(Range { of: Atom::of(atom.origin), low: from, high: to });
        self.ranges.iter().filter(|range| range.of.origin == atom.origin).for_each(|&r| learn(r));
        (low, high)
    }

    /// The least power of two of bytes that a value fits into.
    pub fn width(&self, value: &Value, domain: &Domain) -> u8 {
        let high = value.atoms().iter().map(|&atom| self.get(atom, domain).1).max();
        let high = high.unwrap_or(u64::MAX);
        [1, 2, 4].into_iter().find(|&width| high <= low_mask(width)).unwrap_or(8)
    }

    /// The range that follows from where a value comes from.
    fn by_origin(&self, origin: OriginId, domain: &Domain) -> (u64, u64) {
        match domain.origins.get(origin) {
            Origin::Low { of, width } => {
                let mask = low_mask(width) & domain.mask;
                let (low, high) = self.get(of, domain);
                if high <= mask { (low, high) } else { (0, mask) }
            }
            Origin::Memory { width, .. } | Origin::Element { width, signed: false, .. } => {
                (0, low_mask(width) & domain.mask)
            }
            _ => (0, domain.mask),
        }
    }

    /// Learns that an atom lies in a range. Returns whether that is possible.
    pub fn limit(&mut self, of: Atom, (low, high): (u64, u64), domain: &Domain) -> bool {
        let (from, to) = self.get(of, domain);
        let (low, high) = (low.max(from), high.min(to));
        if low > high {
            return false;
        }
        let nameless = of.as_number().is_some() || of.origin == OriginId::UNKNOWN;
        if nameless || (low, high) == (from, to) {
            return true;
        }
        let ranges = Rc::make_mut(&mut self.ranges);
        ranges.retain(|range| range.of != of);
        if ranges.len() >= MAX_RANGES {
            ranges.remove(0);
        }
        ranges.push(Range { of, low, high });
        // `sub $0x20,%eax; cmp $0x5a,%al` also says something about the `%eax` before, if that was a byte.
        if let (Origin::Low { of: inner, width }, 0) = (domain.origins.get(of.origin), of.offset) {
            let mask = low_mask(width) & domain.mask;
            let whole = Atom::of(inner.origin);
            let (from, to) = (low.wrapping_sub(inner.offset) & mask, high.wrapping_sub(inner.offset) & mask);
            if from <= to && self.get(whole, domain).1 <= mask {
                return self.limit(whole, (from, to), domain);
            }
        }
        true
    }

    /// Learns from a comparison that came out this way. Returns whether that is possible.
    pub(super) fn assume(&mut self, compared: Compared, condition: Condition, domain: &Domain) -> bool {
        let Compared { left, right, width } = compared;
        let top = low_mask(width) & domain.mask;
        let (low, high) = self.get(left, domain);
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
        self.limit(left, limit, domain)
    }

    /// Forgets the ranges of some atoms.
    pub(super) fn forget(&mut self, which: impl Fn(Atom) -> bool) {
        if self.ranges.iter().any(|range| which(range.of)) {
            Rc::make_mut(&mut self.ranges).retain(|range| !which(range.of));
        }
    }

    /// Keeps what holds on both ways. With `widen`, what differs is forgotten at once.
    pub(super) fn join(&mut self, other: &Ranges, widen: bool) {
        if Rc::ptr_eq(&self.ranges, &other.ranges) || self.ranges == other.ranges {
            return;
        }
        Rc::make_mut(&mut self.ranges).retain_mut(|range| {
            let Some(theirs) = other.ranges.iter().find(|theirs| theirs.of == range.of) else {
                return false;
            };
            let (low, high) = (range.low.min(theirs.low), range.high.max(theirs.high));
            let changed = (low, high) != (range.low, range.high);
            (range.low, range.high) = (low, high);
            !(changed && widen)
        });
    }
}

#[cfg(test)]
mod tests {
    use kcfg::isa::Reg;

    use super::*;

    fn domain() -> (Domain, Atom) {
        let domain = Domain::new(4, Reg(4));
        let atom = Atom::of(domain.frame);
        (domain, atom)
    }

    #[test]
    fn comparisons_bound() {
        let (domain, atom) = domain();
        let mut ranges = Ranges::default();
        let compared = Compared { left: atom, right: 5, width: 4 };
        assert!(ranges.assume(compared, Condition::BelowOrEqual, &domain));
        assert_eq!(ranges.get(atom, &domain), (0, 5));
        assert_eq!(ranges.get(domain.plus(atom, 3), &domain), (3, 8));
        // The range of the atom minus 1 wraps around.
        assert_eq!(ranges.get(domain.plus(atom, 0xffff_ffff), &domain), (0, 0xffff_ffff));
        assert!(ranges.assume(compared, Condition::NotEqual, &domain));
        assert_eq!(ranges.get(atom, &domain), (0, 4));
        assert!(!ranges.assume(compared, Condition::Above, &domain));
    }

    #[test]
    fn signed_comparisons_count_where_signs_are_known() {
        let (domain, atom) = domain();
        let mut ranges = Ranges::default();
        let compared = Compared { left: atom, right: 5, width: 4 };
        assert!(ranges.assume(compared, Condition::Less, &domain));
        assert_eq!(ranges.get(atom, &domain), (0, 0xffff_ffff));
        ranges.limit(atom, (0, 100), &domain);
        assert!(ranges.assume(compared, Condition::Less, &domain));
        assert_eq!(ranges.get(atom, &domain), (0, 4));
    }

    #[test]
    fn joins_unite() {
        let (domain, atom) = domain();
        let (mut one, mut two) = (Ranges::default(), Ranges::default());
        one.limit(atom, (0, 4), &domain);
        two.limit(atom, (3, 9), &domain);
        one.join(&two, false);
        assert_eq!(one.get(atom, &domain), (0, 9));
        one.join(&Ranges::default(), false);
        assert_eq!(one.get(atom, &domain), (0, 0xffff_ffff));
    }
}
