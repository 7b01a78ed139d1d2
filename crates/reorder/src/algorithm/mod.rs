//! The algorithms: from what is known of each function to a permutation of them.
//!
//! An algorithm sees [`Unit`]s, not functions: what is moved as a whole, which is a function or the hot parts
//! of one. It is called once for each region of the text, because nothing moves from one region to another.

mod balanced;
mod call_chain;
mod packed;

use std::ops::Range;

pub use balanced::balanced;
pub use call_chain::call_chain;
pub use packed::{packed, touched};

/// How to find an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Algorithm {
    /// By first execution
    FirstUse,
    /// Callees behind their callers: the C3 clusters of hfsort
    CallChain,
    /// Balanced partitioning of startup traces, as LLVM's --bp-startup-sort
    Balanced,
    /// By first execution, but so that the long cold parts of hot functions cover whole pages
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

/// What is moved as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Size in bytes.
    pub size: u64,
    /// When it ran first, on the scale of the coverage.
    pub first: u64,
    /// How often it ran; 1 where that is not known.
    pub heat: u64,
    /// In how many of the traces it ran.
    pub seen: usize,
    /// Its bytes that ran: offsets, rising, not overlapping and not empty.
    pub ran: Vec<Range<u64>>,
}

/// Calls from one unit to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedCall {
    /// Index of the calling unit.
    pub from: usize,
    /// Index of the called unit.
    pub to: usize,
    /// How often.
    pub weight: u64,
}

/// The units by first execution.
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
