//! The algorithms: from the data of each function to a permutation.
//!
//! An algorithm sees [`Unit`]s, which move as a whole: functions, or their hot parts. It is called once for each region
//! of the text, because nothing moves from one region to another.

mod balanced;
mod call_chain;
mod packed;

use std::ops::Range;

pub use balanced::balanced;
pub use call_chain::call_chain;
pub use packed::{packed, touched};

/// The algorithm that finds an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Algorithm {
    /// By first execution
    FirstUse,
    /// Callees after their callers: the C3 clusters of hfsort
    CallChain,
    /// Balanced partitioning of startup traces, as LLVM's --bp-startup-sort
    Balanced,
    /// By first execution, but with long cold parts of hot functions aligned to cover whole pages
    Packed,
}

impl Algorithm {
    /// Its name on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::FirstUse => "first-use",
            Algorithm::CallChain => "call-chain",
            Algorithm::Balanced => "balanced",
            Algorithm::Packed => "packed",
        }
    }
}

/// Code that moves as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Size in bytes.
    pub size: u64,
    /// Time of its first execution, on the scale of the coverage.
    pub first: u64,
    /// Number of executions; 1 if not known.
    pub heat: u64,
    /// Number of traces in which it ran.
    pub seen: usize,
    /// Its bytes that ran: rising, disjoint and non-empty offsets.
    pub ran: Vec<Range<u64>>,
}

/// Calls from one unit to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedCall {
    /// Index of the calling unit.
    pub from: usize,
    /// Index of the called unit.
    pub to: usize,
    /// Number of calls.
    pub weight: u64,
}

/// Returns the units by first execution.
pub fn first_use(units: &[Unit]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|&unit| units[unit].first);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_run_comes_first() {
        let unit = |first| Unit { size: 1, first, heat: 1, ..Unit::default() };
        assert_eq!(first_use(&[unit(7), unit(3), unit(5)]), [1, 2, 0]);
        assert!(first_use(&[]).is_empty());
    }
}
