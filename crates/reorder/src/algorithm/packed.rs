//! First use, but with long cold parts of hot functions aligned to cover whole pages.
//!
//! In any order of the hot functions, the pages that they fill are touched, with one exception: a function may have a
//! run of cold bytes that covers a page. Whether it does depends on the function's position in a page. So each function
//! with such a gap is placed where its gaps cover the most pages. Functions without gaps fill the space before it, in
//! the order of first use as far as they fit. The function whose cold end covers the most is placed last, next to the
//! cold code, which is not touched either.
//!
//! With several traces, code that ran in all of them precedes code that ran in some: the next run is then likely not to
//! touch the pages at the end.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Unit, first_use};

/// Returns the units in an order that touches few pages, if the first begins at `start` bytes into a page.
pub fn packed(units: &[Unit], page_size: u64, start: u64) -> Vec<usize> {
    let mut order = first_use(units);
    order.sort_by_key(|&unit| Reverse(units[unit].seen));
    let (mut gapped, mut fillers): (Vec<usize>, Vec<usize>) =
        order.iter().partition(|&&unit| gaps(&units[unit]).any(|gap| gap.end - gap.start >= page_size));
    let last = take_last(units, &order, &mut gapped, &mut fillers);

    let mut packed = Vec::with_capacity(units.len());
    let mut at = start;
    for unit in gapped {
        let wanted = best_places(&units[unit], page_size);
        while !wanted[(at % page_size) as usize] {
            let Some(filler) = take_filler(units, &mut fillers, at, &wanted, page_size) else { break };
            at += units[filler].size;
            packed.push(filler);
        }
        at += units[unit].size;
        packed.push(unit);
    }
    packed.extend(fillers);
    packed.extend(last);
    // If there are few gaps, the fillers may have been wasted on them.
    let cost = |order: &[usize]| touched(order.iter().map(|&unit| &units[unit]), page_size, start);
    if cost(&packed) < cost(&order) { packed } else { order }
}

/// Returns the number of pages with bytes that ran, if the units are placed one after the other from `start` bytes into
/// a page.
pub fn touched<'a>(units: impl IntoIterator<Item = &'a Unit>, page_size: u64, start: u64) -> u64 {
    let (mut count, mut next, mut at) = (0, 0, start);
    for unit in units {
        for range in &unit.ran {
            let first = ((at + range.start) / page_size).max(next);
            next = next.max((at + range.end - 1) / page_size + 1);
            count += next.saturating_sub(first);
        }
        at += unit.size;
    }
    count
}

/// Returns the ranges of the unit that did not run.
fn gaps(unit: &Unit) -> impl Iterator<Item = Range<u64>> {
    let starts = std::iter::once(0).chain(unit.ran.iter().map(|range| range.end));
    let ends = unit.ran.iter().map(|range| range.start).chain(std::iter::once(unit.size));
    starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty())
}

/// Removes the unit with the longest cold end.
fn take_last(
    units: &[Unit],
    order: &[usize],
    gapped: &mut Vec<usize>,
    fillers: &mut Vec<usize>,
) -> Option<usize> {
    let end = |unit: &Unit| unit.ran.last().map_or(0, |range| unit.size - range.end);
    let last = *order.iter().max_by_key(|&&unit| end(&units[unit]))?;
    gapped.retain(|&unit| unit != last);
    fillers.retain(|&unit| unit != last);
    Some(last)
}

/// Returns, for each position in a page, whether the unit's gaps cover as many pages as possible from there.
fn best_places(unit: &Unit, page_size: u64) -> Vec<bool> {
    let pages = |at: u64| -> u64 {
        let whole = |gap: Range<u64>| {
            ((at + gap.end) / page_size).saturating_sub((at + gap.start).div_ceil(page_size))
        };
        gaps(unit).map(whole).sum()
    };
    let covered: Vec<u64> = (0..page_size).map(pages).collect();
    let best = covered.iter().max().copied();
    covered.into_iter().map(|pages| Some(pages) == best).collect()
}

/// Removes a filler for the position `at`: one that ends at a wanted position; otherwise the first that does not extend
/// beyond the next wanted position; `None` if there is none.
fn take_filler(
    units: &[Unit],
    fillers: &mut Vec<usize>,
    at: u64,
    wanted: &[bool],
    page_size: u64,
) -> Option<usize> {
    let is_wanted = |place: u64| wanted[(place % page_size) as usize];
    let distance = (1..page_size).find(|distance| is_wanted(at + distance))?;
    let exact = || fillers.iter().position(|&unit| is_wanted(at + units[unit].size));
    // Far from a wanted position, the order of first use; near it, a unit that ends there.
    let first = fillers.iter().position(|&unit| units[unit].size <= distance);
    let far = first.filter(|&position| distance - units[fillers[position]].size > page_size / 4);
    let found = far.or_else(exact).or(first)?;
    Some(fillers.remove(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 16;

    /// A unit with these executed bytes.
    fn unit(size: u64, first: u64, ran: &[(u64, u64)]) -> Unit {
        let ran = ran.iter().map(|&(start, end)| start..end).collect();
        Unit { size, first, ran, ..Unit::default() }
    }

    fn cost(units: &[Unit], order: &[usize], start: u64) -> u64 {
        touched(order.iter().map(|&unit| &units[unit]), PAGE, start)
    }

    /// The minimum number of pages that any order touches.
    fn least(units: &[Unit], start: u64) -> u64 {
        fn search(units: &[Unit], order: &mut Vec<usize>, start: u64) -> u64 {
            if order.len() == units.len() {
                return cost(units, order, start);
            }
            let mut best = u64::MAX;
            for unit in 0..units.len() {
                if !order.contains(&unit) {
                    order.push(unit);
                    best = best.min(search(units, order, start));
                    order.pop();
                }
            }
            best
        }
        search(units, &mut Vec::new(), start)
    }

    #[test]
    fn pages_are_counted_once() {
        let units =
            [unit(10, 0, &[(0, 2), (4, 10)]), unit(30, 1, &[(0, 1), (29, 30)]), unit(1, 2, &[(0, 1)])];
        // Bytes 0..2, 4..11, 39, 40: pages 0 and 2.
        assert_eq!(cost(&units, &[0, 1, 2], 0), 2);
        assert_eq!(cost(&units, &[0, 1, 2], 8), 4);
        assert_eq!(cost(&units, &[], 3), 0);
        // Computes the same from a map of bytes.
        let naive = |order: &[usize], start: u64| {
            let (mut pages, mut at) = (std::collections::BTreeSet::new(), start);
            for &unit in order {
                let bytes = units[unit].ran.iter().cloned().flatten();
                pages.extend(bytes.map(|byte| (at + byte) / PAGE));
                at += units[unit].size;
            }
            pages.len() as u64
        };
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for start in 0..PAGE {
                assert_eq!(cost(&units, &order, start), naive(&order, start), "{order:?} at {start}");
            }
        }
    }

    #[test]
    fn the_longest_cold_end_goes_last() {
        let units = [unit(40, 0, &[(0, 4)]), unit(12, 1, &[(0, 12)])];
        assert_eq!(packed(&units, PAGE, 0), [1, 0]);
        assert_eq!(cost(&units, &[0, 1], 0), 3);
        assert_eq!(cost(&units, &[1, 0], 0), 1);
    }

    #[test]
    fn what_few_traces_have_goes_last() {
        let mut units = [unit(9, 0, &[(0, 9)]), unit(20, 1, &[(0, 20)]), unit(5, 2, &[(0, 5)])];
        for (unit, seen) in units.iter_mut().zip([1, 3, 3]) {
            unit.seen = seen;
        }
        assert_eq!(packed(&units, PAGE, 0), [1, 2, 0]);
    }

    #[test]
    fn fillers_bring_a_gap_to_a_page() {
        // The gap of unit 0 is one page long, from 8 bytes on: the unit has to begin 8 bytes before the end of a page.
        let units = [
            unit(28, 0, &[(0, 8), (24, 28)]),
            unit(5, 1, &[(0, 5)]),
            unit(3, 2, &[(0, 3)]),
            unit(4, 3, &[(0, 4)]),
        ];
        let order = packed(&units, PAGE, 0);
        assert_eq!(cost(&units, &order, 0), least(&units, 0));
        assert!(cost(&units, &order, 0) < cost(&units, &first_use(&units), 0), "{order:?}");
    }

    #[test]
    fn without_gaps_first_use_stays() {
        let units = [unit(9, 2, &[(0, 9)]), unit(20, 0, &[(0, 1), (10, 20)]), unit(5, 1, &[(0, 5)])];
        assert_eq!(packed(&units, PAGE, 0), first_use(&units));
    }

    /// Never worse than first use, and on these small instances rarely worse than the best order.
    #[test]
    fn small_instances_against_all_orders() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut found, mut best, mut plain) = (0, 0, 0);
        for _ in 0..200 {
            let mut units = Vec::new();
            for first in 0..5 {
                let head = 1 + random(8);
                let gap = random(24);
                let tail = random(6);
                let mut ran = vec![(0, head), (head + gap, head + gap + tail)];
                ran.retain(|(start, end)| start < end);
                units.push(unit(head + gap + tail, first, &ran));
            }
            let start = random(PAGE);
            let order = packed(&units, PAGE, start);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            let (packed, first_use) = (cost(&units, &order, start), cost(&units, &first_use(&units), start));
            assert!(packed <= first_use);
            found += packed;
            best += least(&units, start);
            plain += first_use;
        }
        assert!(found - best < (plain - best) / 2, "{found} for {best}; first use: {plain}");
    }
}
