//! Finding the repeated sequences of a text.
//!
//! The search extends each sequence item by item as long as at least two places share it. The result is a tree, as for
//! block tails (`identical/tails.rs`), and each of its nodes is a sequence with all its places. The choice is greedy:
//! repeatedly take the sequence that saves most among the items that are still free.

use std::collections::BinaryHeap;

/// Maximum number of items in a sequence.
const LONGEST: usize = 64;

/// An item of a text.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Equal for equal items.
    pub number: u32,
    /// Size in bytes.
    pub size: u32,
    /// Whether it must be the last item of a sequence.
    pub is_last: bool,
}

/// The cost of outlining, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    /// The call in each place.
    pub call: u32,
    /// The return, unless the last item returns.
    pub back: u32,
}

/// A sequence and its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Number of items.
    pub length: usize,
    /// Start indices in the text, rising; the places do not overlap.
    pub starts: Vec<usize>,
}

/// Returns the sequences of a text that are worth outlining. No sequence contains a `None`, and no two share an item.
pub fn repeated(text: &[Option<Item>], price: Price) -> Vec<Repeated> {
    let mut candidates = candidates(text, price);
    let saves = |candidate: &Repeated| saved(text, candidate, price);
    let mut best: BinaryHeap<(i64, usize)> =
        candidates.iter().enumerate().map(|(i, candidate)| (saves(candidate), i)).collect();
    let mut is_taken = vec![false; text.len()];
    let mut chosen = Vec::new();
    while let Some((expected, i)) = best.pop() {
        let candidate = &mut candidates[i];
        let mut end = 0;
        candidate.starts.retain(|&start| {
            let range = start..start + candidate.length;
            let is_free = start >= end && !is_taken[range.clone()].contains(&true);
            end = if is_free { range.end } else { end };
            is_free
        });
        let now = saves(candidate);
        if now < expected {
            best.extend((now > 0).then_some((now, i)));
            continue;
        }
        candidate.starts.iter().for_each(|&start| is_taken[start..start + candidate.length].fill(true));
        chosen.push(candidate.clone());
    }
    chosen
}

/// The sequences that would be worth outlining if none overlapped.
fn candidates(text: &[Option<Item>], price: Price) -> Vec<Repeated> {
    let mut candidates = Vec::new();
    let all = (0..text.len()).filter(|&at| text[at].is_some()).collect();
    let mut pending = vec![Repeated { length: 0, starts: all }];
    while let Some(Repeated { length, mut starts }) = pending.pop() {
        let next = |start: usize| text.get(start + length).copied().flatten();
        starts.retain(|&start| next(start).is_some());
        // The sort is stable, so starts remain in order within a class.
        starts.sort_by_key(|&start| next(start).map(|item| item.number));
        let alike = |&one: &usize, &other: &usize| {
            next(one).map(|item| item.number) == next(other).map(|item| item.number)
        };
        for class in starts.chunk_by(alike).filter(|class| class.len() > 1) {
            let longer = Repeated { length: length + 1, starts: class.to_vec() };
            candidates.extend((saved(text, &longer, price) > 0).then(|| longer.clone()));
            let goes_on = next(class[0]).is_some_and(|item| !item.is_last) && longer.length < LONGEST;
            pending.extend(goes_on.then_some(longer));
        }
    }
    candidates
}

/// The bytes saved by outlining a sequence in all its places.
fn saved(text: &[Option<Item>], sequence: &Repeated, price: Price) -> i64 {
    let Some(&first) = sequence.starts.first() else { return 0 };
    let items = || text[first..first + sequence.length].iter().flatten();
    let size: i64 = items().map(|item| i64::from(item.size)).sum();
    let back = if items().any(|item| item.is_last) { 0 } else { i64::from(price.back) };
    sequence.starts.len() as i64 * (size - i64::from(price.call)) - size - back
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses from a text of letters of three bytes each; a capital letter ends a sequence, and a dot is `None`.
    fn chosen(text: &str) -> Vec<(usize, Vec<usize>)> {
        let item = |letter: char| {
            let item = Item { number: letter.into(), size: 3, is_last: letter.is_uppercase() };
            (letter != '.').then_some(item)
        };
        let text: Vec<Option<Item>> = text.chars().map(item).collect();
        let chosen = repeated(&text, Price { call: 5, back: 1 });
        chosen.into_iter().map(|sequence| (sequence.length, sequence.starts)).collect()
    }

    #[test]
    fn what_saves_most_comes_first() {
        // Each place saves four bytes, and the outlined code takes ten.
        assert_eq!(chosen("abc.abc"), []);
        assert_eq!(chosen("abc.abc.abc"), [(3, vec![0, 4, 8])]);
        assert_eq!(chosen("abcd.abcd.abc.xabcd"), [(4, vec![0, 5, 15])]);
    }

    #[test]
    fn nothing_is_outlined_twice() {
        assert_eq!(chosen("aaaaaaaaaaaa"), [(4, vec![0, 4, 8])]);
    }

    #[test]
    fn nothing_lasts_over_a_last_item() {
        assert_eq!(chosen("abCd.abCd.abCe"), [(3, vec![0, 5, 10])]);
    }
}
