//! Random numbers that never change, and the number of random programs.

use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u32, high: u32) -> u32 {
        low + self.next() % (high - low + 1)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u32) -> bool {
        self.next() % n == 0
    }

    /// One of several.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.next() as usize % from.len()]
    }
}

/// Returns the total number of random programs, and the numbers of the selected ones: the default is `programs` of
/// them, `KSHRINK_PROGRAMS` sets another number, and `KSHRINK_SEED` selects one.
pub fn random_programs(programs: usize) -> (usize, Vec<usize>) {
    let programs = number("KSHRINK_PROGRAMS").unwrap_or(programs);
    let numbers = number("KSHRINK_SEED").map_or_else(|| (0..programs).collect(), |number| vec![number]);
    (programs, numbers)
}

/// Returns the time for each reader of bad input, if `KSHRINK_MINUTES` is set.
pub fn minutes() -> Option<Duration> {
    number("KSHRINK_MINUTES").map(|minutes| Duration::from_secs(60 * minutes as u64))
}

/// Returns the number in an environment variable, if it is set.
fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}; expected a number")))
}
