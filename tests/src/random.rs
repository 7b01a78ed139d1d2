//! Random numbers, the same everywhere and for ever, and how many random programs are tried.

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

/// How many random programs there are, and the numbers of those that are asked for: `programs` of them unless
/// `KSHRINK_PROGRAMS` says otherwise, or the one that `KSHRINK_SEED` says.
pub fn random_programs(programs: usize) -> (usize, Vec<usize>) {
    let programs = number("KSHRINK_PROGRAMS").unwrap_or(programs);
    let numbers = number("KSHRINK_SEED").map_or_else(|| (0..programs).collect(), |number| vec![number]);
    (programs, numbers)
}

/// How long each reader of bad input is tried, if `KSHRINK_MINUTES` says that.
pub fn minutes() -> Option<Duration> {
    number("KSHRINK_MINUTES").map(|minutes| Duration::from_secs(60 * minutes as u64))
}

/// The number that an environment variable holds, if it is set.
fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}; expected a number")))
}
