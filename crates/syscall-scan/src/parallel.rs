//! Distribution of work over all threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

/// Works on all pieces on several threads. Each thread takes the next piece when it has finished one, so that large
/// pieces are best listed first. `begin` creates the context that a thread keeps from one piece to the next. Returns
/// the results in the order of the pieces.
pub(crate) fn share<P: Sync, K, R: Send>(
    pieces: &[P],
    begin: impl Fn() -> K + Sync,
    work: impl Fn(&mut K, &P) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        pieces.get(number).map(|piece| (number, piece))
    };
    let on_thread = |_| {
        let mut kept = begin();
        let results = std::iter::from_fn(|| take().map(|(number, piece)| (number, work(&mut kept, piece))));
        results.collect::<Vec<_>>()
    };
    let threads = rayon::current_num_threads().min(pieces.len());
    let results = (0..threads).into_par_iter().with_max_len(1).flat_map_iter(on_thread);
    let mut results: Vec<(usize, R)> = results.collect();
    results.sort_unstable_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn results_are_in_order() {
        let numbers: Vec<u32> = (0..1000).collect();
        let square = |(): &mut (), number: &u32| number * number;
        let squares = share(&numbers, || (), square);
        assert!(squares.iter().zip(&numbers).all(|(square, number)| *square == number * number));
        assert!(share(&numbers[..0], || (), square).is_empty());
    }
}
