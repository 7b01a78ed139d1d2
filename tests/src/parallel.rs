//! Parallel jobs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `job` for 0 to `count` on a thread for each core, and returns the results in no particular order.
pub fn parallel<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    parallel_on(thread::available_parallelism().map_or(1, usize::from), count, job)
}

/// Like [`parallel`], on a number of threads, for jobs that wait more than they compute.
pub fn parallel_on<T: Send>(threads: usize, count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|&number| number < count).map(&job).collect::<Vec<T>>()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a job panicked")).collect()
    })
}
