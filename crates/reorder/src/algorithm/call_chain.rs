//! Call-chain clustering: C3, the algorithm of hfsort (Ottoni and Maher, "Optimizing Function Placement for
//! Large-Scale Data-Center Applications", 2017).
//!
//! Every function begins as a cluster of its own. Hottest first, each cluster is appended to the cluster of its
//! function's most likely caller, unless the two would exceed a page, beyond which proximity has no effect. The
//! clusters are then sorted by density, heat per byte.
//!
//! This benefits the caches and the TLB of a running system. It touches no fewer pages than first use, as long as all
//! hot code is kept together.

use std::cmp::Reverse;

use super::{Unit, WeightedCall, first_use};

struct Cluster {
    units: Vec<usize>,
    size: u64,
    heat: u64,
}

/// Returns the units in the order of C3, in clusters of at most `page_size` bytes. Calls of a unit to itself are
/// ignored.
pub fn call_chain(units: &[Unit], calls: &[WeightedCall], page_size: u64) -> Vec<usize> {
    let callers = likely_callers(units.len(), calls);
    let single = |unit: usize| Cluster { units: vec![unit], size: units[unit].size, heat: units[unit].heat };
    let mut clusters: Vec<Option<Cluster>> = (0..units.len()).map(|unit| Some(single(unit))).collect();
    let mut cluster_of: Vec<usize> = (0..units.len()).collect();

    let mut hottest = first_use(units);
    hottest.sort_by_key(|&unit| Reverse(units[unit].heat));
    for unit in hottest {
        let Some(caller) = callers[unit] else { continue };
        let (to, from) = (cluster_of[caller], cluster_of[unit]);
        let size = |cluster: usize| clusters[cluster].as_ref().map_or(0, |cluster| cluster.size);
        if to == from || size(to) + size(from) > page_size {
            continue;
        }
        if let (Some(appended), Some(cluster)) = (clusters[from].take(), &mut clusters[to]) {
            for &moved in &appended.units {
                cluster_of[moved] = to;
            }
            cluster.units.extend(appended.units);
            cluster.size += appended.size;
            cluster.heat += appended.heat;
        }
    }

    let mut clusters: Vec<Cluster> = clusters.into_iter().flatten().collect();
    // Compares densities without division; equal ones by first execution.
    clusters.sort_by(|a, b| {
        let (mine, other) =
            (u128::from(a.heat) * u128::from(b.size), u128::from(b.heat) * u128::from(a.size));
        let first = |cluster: &Cluster| cluster.units.iter().map(|&unit| units[unit].first).min();
        other.cmp(&mine).then_with(|| first(a).cmp(&first(b)))
    });
    clusters.into_iter().flat_map(|cluster| cluster.units).collect()
}

/// Returns the most frequent caller of each unit; the first of equals.
fn likely_callers(units: usize, calls: &[WeightedCall]) -> Vec<Option<usize>> {
    let mut sums = rustc_hash::FxHashMap::<(usize, usize), u64>::default();
    for call in calls.iter().filter(|call| call.from != call.to) {
        *sums.entry((call.to, call.from)).or_default() += call.weight;
    }
    let mut best = vec![None; units];
    for ((to, from), weight) in sums {
        let found = (Reverse(weight), from);
        if best[to].is_none_or(|best| found < best) {
            best[to] = Some(found);
        }
    }
    best.into_iter().map(|best| best.map(|(_, from)| from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(size: u64, heat: u64, first: u64) -> Unit {
        Unit { size, first, heat, ..Unit::default() }
    }

    fn call(from: usize, to: usize, weight: u64) -> WeightedCall {
        WeightedCall { from, to, weight }
    }

    #[test]
    fn a_callee_follows_its_likeliest_caller() {
        let units = [unit(10, 100, 0), unit(10, 40, 1), unit(10, 60, 2), unit(10, 90, 3)];
        // 0 calls 1 and 2; 2 calls 3 more often than 1 does.
        let calls = [call(0, 1, 40), call(0, 2, 60), call(2, 3, 80), call(1, 3, 10)];
        assert_eq!(call_chain(&units, &calls, 4096), [0, 2, 3, 1]);
    }

    #[test]
    fn clusters_stay_within_a_page() {
        let units = [unit(3000, 10, 0), unit(2000, 9, 1), unit(1000, 8, 2)];
        let calls = [call(0, 1, 9), call(0, 2, 8)];
        // Unit 1 does not fit after 0, 2 does; the rest by density: 1 is 9/2000, 0 with 2 is 18/4000.
        assert_eq!(call_chain(&units, &calls, 4096), [0, 2, 1]);
        assert_eq!(call_chain(&units, &calls, 8192), [0, 1, 2]);
    }

    #[test]
    fn recursion_is_no_reason_to_move() {
        let units = [unit(10, 1, 0), unit(10, 5, 1)];
        assert_eq!(call_chain(&units, &[call(1, 1, 100)], 4096), [1, 0]);
        assert_eq!(call_chain(&units, &[call(0, 1, 1), call(1, 0, 1)], 4096), [0, 1]);
    }

    #[test]
    fn many_callers_add_up_by_caller() {
        let units = [unit(10, 9, 0), unit(10, 8, 1), unit(10, 7, 2)];
        let calls = [call(0, 2, 3), call(1, 2, 2), call(1, 2, 2)];
        assert_eq!(call_chain(&units, &calls, 4096), [0, 1, 2]);
        let calls = [call(0, 2, 5), call(1, 2, 2), call(1, 2, 2)];
        assert_eq!(call_chain(&units, &calls, 4096), [0, 2, 1]);
    }
}
