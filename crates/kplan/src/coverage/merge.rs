//! The union of two coverages: counts add, and code that only the second contains follows all code of the first.

use std::collections::HashMap;

use super::{CallEdge, Coverage, CoveredFunction, RanRange};

impl Coverage {
    /// Adds the coverage of other traces.
    ///
    /// The order of this coverage comes first; code that only `other` contains follows in its own order. The bytes of a
    /// function are kept even if only one of the two records bytes.
    pub fn merge(&mut self, other: Coverage) {
        let behind = self.ranks();
        let mut places: HashMap<_, usize> =
            self.functions.iter().enumerate().map(|(at, function)| (function.function.clone(), at)).collect();
        let mut moved = Vec::with_capacity(other.functions.len());
        for mut function in other.functions {
            function.delay(behind);
            let place = *places.entry(function.function.clone()).or_insert(self.functions.len());
            moved.push(place);
            match self.functions.get_mut(place) {
                Some(own) => own.merge(function),
                None => self.functions.push(function),
            }
        }
        for call in other.calls {
            let (from, to) = (moved[call.from], moved[call.to]);
            self.calls.push(CallEdge { from, to, ..call });
        }
        self.runs.extend(other.runs);
        self.normalise();
    }

    /// Returns the lowest rank after all ranks in use.
    fn ranks(&self) -> u64 {
        let ranges = self.functions.iter().flat_map(|function| function.ran.iter().flatten());
        let functions = self.functions.iter().map(|function| function.first);
        ranges.map(|range| range.first).chain(functions).max().map_or(0, |last| last + 1)
    }

    /// Sorts the functions by their first run and the calls by index, joins equal calls, and renumbers the ranks 0, 1,
    /// 2, …
    pub fn normalise(&mut self) {
        let mut ranks: Vec<u64> = self
            .functions
            .iter()
            .flat_map(|function| {
                let ranges = function.ran.iter().flatten().map(|range| range.first);
                ranges.chain([function.first])
            })
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        // Every rank is in the list.
        let rank = |first: u64| ranks.partition_point(|&rank| rank < first) as u64;
        for function in &mut self.functions {
            function.first = rank(function.first);
            for range in function.ran.iter_mut().flatten() {
                range.first = rank(range.first);
            }
        }
        let mut order: Vec<usize> = (0..self.functions.len()).collect();
        order.sort_by_key(|&index| self.functions[index].first);
        let mut place = vec![0; order.len()];
        for (now, &before) in order.iter().enumerate() {
            place[before] = now;
        }
        self.functions.sort_by_key(|function| function.first);
        for call in &mut self.calls {
            (call.from, call.to) = (place[call.from], place[call.to]);
        }
        self.calls.sort_by_key(|call| (call.from, call.to));
        self.calls.dedup_by(|call, kept| {
            let same = (call.from, call.to) == (kept.from, kept.to);
            if same {
                kept.count += call.count;
            }
            same
        });
    }
}

impl CoveredFunction {
    fn delay(&mut self, ranks: u64) {
        self.first += ranks;
        for range in self.ran.iter_mut().flatten() {
            range.first += ranks;
        }
    }

    fn merge(&mut self, other: CoveredFunction) {
        self.first = self.first.min(other.first);
        self.count = sum(self.count, other.count);
        self.size = self.size.max(other.size);
        self.ran = match (self.ran.take(), other.ran) {
            (Some(own), Some(other)) => Some(union(own, other)),
            (own, other) => own.or(other),
        };
    }
}

/// Returns the sum of the known counts.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the bytes of either, as rising ranges that do not touch.
fn union(own: Vec<RanRange>, other: Vec<RanRange>) -> Vec<RanRange> {
    let mut ranges = own;
    ranges.extend(other);
    ranges.sort_by_key(|range| range.offset);
    let mut merged: Vec<RanRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let end = range.offsets().end;
        match merged.last_mut() {
            Some(last) if range.offset <= last.offsets().end => {
                last.count = match range.offset < last.offsets().end {
                    true => sum(last.count, range.count),
                    false => last.count.max(range.count),
                };
                last.size = last.size.max(end - last.offset);
                last.first = last.first.min(range.first);
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::FunctionName;

    fn function(
        name: &str,
        first: u64,
        count: Option<u64>,
        ran: Option<&[(u64, u64, u64)]>,
    ) -> CoveredFunction {
        let range = |&(offset, size, first)| RanRange { offset, size, first, count: None };
        CoveredFunction {
            function: FunctionName::global(name),
            section: ".text".into(),
            size: 100,
            first,
            count,
            ran: ran.map(|ran| ran.iter().map(range).collect()),
        }
    }

    fn names(coverage: &Coverage) -> Vec<&str> {
        coverage.functions.iter().map(|function| function.function.name.as_str()).collect()
    }

    #[test]
    fn the_order_of_the_first_goes_first() {
        let mut one = Coverage {
            functions: vec![function("a", 0, None, None), function("b", 7, Some(1), None)],
            calls: vec![CallEdge { from: 0, to: 1, count: 1 }],
            ..Coverage::default()
        };
        let other = Coverage {
            functions: vec![
                function("c", 0, None, None),
                function("b", 1, Some(2), None),
                function("a", 2, None, None),
            ],
            calls: vec![CallEdge { from: 2, to: 1, count: 4 }, CallEdge { from: 0, to: 2, count: 8 }],
            ..Coverage::default()
        };
        one.merge(other);
        assert_eq!(names(&one), ["a", "b", "c"]);
        let firsts: Vec<u64> = one.functions.iter().map(|function| function.first).collect();
        assert_eq!(firsts, [0, 1, 2]);
        assert_eq!(one.functions[1].count, Some(3));
        let calls = [CallEdge { from: 0, to: 1, count: 5 }, CallEdge { from: 2, to: 0, count: 8 }];
        assert_eq!(one.calls, calls);
    }

    #[test]
    fn ranges_unite() {
        let mut one = Coverage {
            functions: vec![function("a", 0, None, Some(&[(0, 10, 0), (20, 10, 1), (50, 5, 2)]))],
            ..Coverage::default()
        };
        let ran: &[_] = &[(10, 5, 3), (25, 10, 0), (60, 5, 1)];
        one.merge(Coverage { functions: vec![function("a", 0, None, Some(ran))], ..Coverage::default() });
        let ranges: Vec<_> =
            one.functions[0].ran.iter().flatten().map(|r| (r.offset, r.size, r.first)).collect();
        assert_eq!(ranges, [(0, 15, 0), (20, 15, 1), (50, 5, 2), (60, 5, 3)]);
        assert_eq!(one.functions[0].bytes_run(), Some(40));
    }

    #[test]
    fn bytes_that_are_known_stay_known() {
        let mut one = Coverage { functions: vec![function("a", 0, None, None)], ..Coverage::default() };
        let ran: &[_] = &[(8, 4, 0)];
        one.merge(Coverage { functions: vec![function("a", 0, None, Some(ran))], ..Coverage::default() });
        assert_eq!(one.functions[0].bytes_run(), Some(4));
        one.merge(Coverage { functions: vec![function("a", 0, None, None)], ..Coverage::default() });
        assert_eq!(one.functions[0].bytes_run(), Some(4));
    }

    #[test]
    fn merging_with_nothing_changes_nothing() {
        let plan = crate::Plan::parse(include_str!("../../examples/coverage.json"), "coverage.json").unwrap();
        let example = plan.coverage.unwrap();
        let mut merged = example.clone();
        merged.merge(Coverage::default());
        assert_eq!(merged, example);
        let mut merged = Coverage::default();
        merged.merge(example.clone());
        assert_eq!(merged, example);
    }
}
