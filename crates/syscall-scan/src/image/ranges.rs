//! Sorted ranges of addresses.

use std::ops::Range;

/// Returns whether `size` bytes at an address are in one of the ranges, which are sorted.
pub(super) fn contains(ranges: &[Range<u64>], address: u64, size: u64) -> bool {
    let next = ranges.partition_point(|range| range.start <= address);
    next > 0 && address.checked_add(size).is_some_and(|end| end <= ranges[next - 1].end)
}

/// Sorts ranges and joins those that touch.
pub(super) fn normalize(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let ranges = normalize(vec![10..20, 0..5, 20..30, 40..40]);
        assert_eq!(ranges, [0..5, 10..30]);
        assert!(contains(&ranges, 10, 20) && contains(&ranges, 29, 1));
        assert!(!contains(&ranges, 29, 2) && !contains(&ranges, 5, 1));
        assert!(!contains(&ranges, u64::MAX, 8));
    }
}
