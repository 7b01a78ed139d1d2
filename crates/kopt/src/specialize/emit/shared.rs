//! The division of the words that exits store into code of each exit and code that several exits share.
//!
//! Words that the same exits store are together. If every exit of some shared code also makes the stores of other shared code,
//! the first continues in the second, and one call is enough for both.

use std::collections::{BTreeMap, BTreeSet};

use super::super::demand::Content;
use super::CALL;

/// A word of the stack, and what an exit stores there.
pub type Store = (i32, Content);

/// Stores that several exits share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The stores.
    pub stores: Vec<Store>,
    /// The exits, by number.
    pub exits: BTreeSet<usize>,
    /// The number of the shared stores that follow these.
    pub next: Option<usize>,
}

/// Size in bytes of a return, and of a jump at most.
const RETURN: usize = 1;
const JUMP: usize = 5;

/// Returns the stores that exits share, each right before those that follow it where possible. `exits` are the stores of each
/// exit, and `size` returns the size in bytes of the code of stores.
///
/// # Errors
/// Those of `size`.
pub fn divide<E>(exits: &[&[Store]], size: impl Fn(&[Store]) -> Result<usize, E>) -> Result<Vec<Shared>, E> {
    let mut users: BTreeMap<Store, BTreeSet<usize>> = BTreeMap::new();
    for (number, stores) in exits.iter().enumerate() {
        for &store in *stores {
            users.entry(store).or_default().insert(number);
        }
    }
    let mut groups: BTreeMap<BTreeSet<usize>, Vec<Store>> = BTreeMap::new();
    for (store, exits) in users {
        groups.entry(exits).or_default().push(store);
    }
    let mut groups: Vec<_> = groups.into_iter().filter(|(exits, _)| exits.len() > 1).collect();
    groups.sort_by_key(|(exits, _)| std::cmp::Reverse(exits.len()));
    let mut made: Vec<Shared> = Vec::new();
    for (exits, stores) in groups {
        // The last one that has all these exits has the fewest others.
        let next = made.iter().rposition(|other| other.exits.is_superset(&exits));
        let others = match next {
            // These exits call it already, or other stores that continue in it. Then, they need one more call.
            Some(_) => {
                let calls_more =
                    |exit: &&usize| made.iter().any(|other| other.next == next && other.exits.contains(exit));
                JUMP + CALL * exits.iter().filter(calls_more).count()
            }
            None => RETURN + CALL * exits.len(),
        };
        if size(&stores)? * (exits.len() - 1) > others {
            made.push(Shared { stores, exits, next });
        }
    }
    Ok(in_order(made))
}

/// Puts shared stores right before those that follow them, where possible.
fn in_order(mut made: Vec<Shared>) -> Vec<Shared> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); made.len()];
    for (number, shared) in made.iter().enumerate() {
        if let Some(next) = shared.next {
            before[next].push(number);
        }
    }
    let mut order: Vec<usize> = Vec::with_capacity(made.len());
    let mut pending: Vec<(usize, bool)> =
        (0..made.len()).filter(|&number| made[number].next.is_none()).map(|number| (number, false)).collect();
    while let Some((number, is_placed)) = pending.pop() {
        if is_placed {
            order.push(number);
            continue;
        }
        pending.push((number, true));
        pending.extend(before[number].iter().map(|&other| (other, false)));
    }
    let mut places = vec![0; made.len()];
    for (place, &number) in order.iter().enumerate() {
        places[number] = place;
    }
    for shared in &mut made {
        shared.next = shared.next.map(|next| places[next]);
    }
    order.into_iter().map(|number| made[number].clone()).collect()
}

/// Returns the numbers of the shared code that an exit calls.
pub fn calls(shared: &[Shared], exit: usize) -> Vec<usize> {
    let mut own: Vec<usize> =
        (0..shared.len()).filter(|&number| shared[number].exits.contains(&exit)).collect();
    own.sort_by_key(|&number| shared[number].exits.len());
    let mut stored = BTreeSet::new();
    let mut calls = Vec::new();
    for number in own {
        if stored.contains(&number) {
            continue;
        }
        calls.push(number);
        let mut at = Some(number);
        while let Some(number) = at {
            stored.insert(number);
            at = shared[number].next;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::super::super::value::Value;
    use super::*;

    fn store(word: i32) -> Store {
        (word, Content::Known(Value::number(word as u32)))
    }

    /// Divides stores of ten bytes each.
    fn divided(exits: &[&[i32]]) -> (Vec<Shared>, Vec<Vec<i32>>) {
        let stores: Vec<Vec<Store>> =
            exits.iter().map(|words| words.iter().copied().map(store).collect()).collect();
        let slices: Vec<&[Store]> = stores.iter().map(Vec::as_slice).collect();
        let shared = divide(&slices, |stores| Ok::<_, ()>(10 * stores.len())).unwrap();
        let words = |number: usize| {
            let mut words = Vec::new();
            for mut at in calls(&shared, number).into_iter().map(Some) {
                while let Some(number) = at {
                    words.extend(shared[number].stores.iter().map(|&(word, _)| word));
                    at = shared[number].next;
                }
            }
            words
        };
        let words = (0..exits.len()).map(words).collect();
        (shared, words)
    }

    #[test]
    fn inner_stores_go_on_to_outer_ones() {
        let (shared, words) = divided(&[&[1, 2, 3, 4], &[1, 2, 3, 4, 5], &[1, 2, 9], &[1, 2, 8]]);
        assert_eq!(shared.len(), 2);
        assert_eq!((shared[0].next, shared[1].next), (Some(1), None));
        assert_eq!(words, [vec![3, 4, 1, 2], vec![3, 4, 1, 2], vec![1, 2], vec![1, 2]]);
        assert_eq!(calls(&shared, 0), [0]);
    }

    #[test]
    fn exits_of_two_families_call_both() {
        let (shared, words) = divided(&[&[1, 2, 3, 4], &[1, 2, 5, 6], &[3, 4, 5, 6]]);
        assert_eq!(shared.len(), 3);
        assert!(shared.iter().all(|shared| shared.next.is_none()));
        for (number, expected) in [[1, 2, 3, 4], [1, 2, 5, 6], [3, 4, 5, 6]].iter().enumerate() {
            let found: BTreeSet<i32> = words[number].iter().copied().collect();
            assert_eq!(found, expected.iter().copied().collect());
        }
    }

    #[test]
    fn exits_may_call_two_stores_that_continue_in_the_same() {
        let (shared, words) = divided(&[&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 3, 4], &[1, 2, 5, 6, 7], &[1, 2]]);
        let last = shared.iter().position(|shared| shared.exits.len() == 4);
        assert_eq!(shared.iter().filter(|shared| shared.next == last && last.is_some()).count(), 2);
        assert_eq!(calls(&shared, 0).len(), 2);
        assert_eq!(words[0].iter().copied().collect::<BTreeSet<_>>(), (1..=7).collect());
        assert_eq!(calls(&shared, 3), [last.unwrap()]);
    }

    #[test]
    fn little_is_not_shared() {
        assert_eq!(divided(&[&[1], &[1]]).0, []);
        assert_eq!(divided(&[&[1, 2], &[3, 4]]).0, []);
    }
}
