//! Balanced partitioning of startup traces (Dhulipala et al., "Compressing Graphs and Indexes with Recursive
//! Graph Bisection", 2016; Hoag et al., "Optimizing Function Layout for Mobile Applications", 2023).
//!
//! A bipartite graph connects units with *utilities*. A utility is a part of a trace: its first function, its first
//! two, four, and so on. An order is good if the members of a utility are close together, because then few pages hold
//! the code that has run up to that time. The units are split into halves, pairs are exchanged as long as that
//! concentrates the utilities in one half, and each half is split again.

use std::ops::Range;

use super::{Unit, first_use};

/// Maximum number of improvement rounds. Later rounds move little; the papers use 20 to 40.
const MAX_ROUNDS: usize = 40;

/// Number of nodes of the other half that are tried for an exchange, in the order of their gains.
const PARTNERS: usize = 64;

/// Gains in bits below this are rounding errors.
const LEAST_GAIN: f64 = 1e-9;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// A unit, and its utilities.
struct Node {
    unit: usize,
    utilities: Vec<usize>,
}

/// Returns the units in the order of balanced partitioning. A trace lists units by first execution.
pub fn balanced(units: &[Unit], traces: &[Vec<usize>]) -> Vec<usize> {
    let (utilities, count) = utilities(units.len(), traces);
    // The result depends on the start of the search: begin with an order that is good already.
    let order = first_use(units).into_iter();
    let mut nodes: Vec<Node> = order.map(|unit| Node { unit, utilities: utilities[unit].clone() }).collect();
    let mut sides = vec![[0; 2]; count];
    bisect(&mut nodes, &mut sides);
    nodes.into_iter().map(|node| node.unit).collect()
}

/// Returns the utilities of each unit, and their number: one for each prefix of a trace whose length is a power of two.
/// A prefix is part of all longer ones, so splitting early code costs the most.
fn utilities(units: usize, traces: &[Vec<usize>]) -> (Vec<Vec<usize>>, usize) {
    let mut of = vec![Vec::new(); units];
    let mut count = 0;
    for trace in traces {
        let mut length = 1;
        // The whole trace would be part of both halves alike.
        while length < trace.len() {
            for &unit in &trace[..length] {
                of[unit].push(count);
            }
            count += 1;
            length *= 2;
        }
    }
    (of, count)
}

/// Orders `nodes`. `sides` has room for the number of members of each utility in either half.
fn bisect(nodes: &mut [Node], sides: &mut [[u32; 2]]) {
    if nodes.len() < 2 {
        return;
    }
    let middle = nodes.len().div_ceil(2);
    for _ in 0..MAX_ROUNDS {
        if !improve(nodes, middle, sides) {
            break;
        }
    }
    let (left, right) = nodes.split_at_mut(middle);
    bisect(left, sides);
    bisect(right, sides);
}

/// Exchanges pairs of nodes, largest gain first, and returns whether there were any. The papers compute all gains and
/// then exchange. Here the gain of an exchange accounts for the previous ones, so that the cost only falls. In the
/// papers, two exchanges can undo one another round after round, so they skip some at random.
fn improve(nodes: &mut [Node], middle: usize, sides: &mut [[u32; 2]]) -> bool {
    for node in nodes.iter() {
        for &utility in &node.utilities {
            sides[utility] = [0; 2];
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        for &utility in &node.utilities {
            sides[utility][usize::from(index >= middle)] += 1;
        }
    }
    let by_gain = |range: Range<usize>, side| {
        let mut gains: Vec<(f64, usize)> =
            range.map(|index| (gain(&nodes[index], side, sides), index)).collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0));
        gains.into_iter().map(|(_, index)| index).collect::<Vec<usize>>()
    };
    let (left, mut right) = (by_gain(0..middle, LEFT), by_gain(middle..nodes.len(), RIGHT));
    let mut improved = false;
    for here in left {
        let moving = gain(&nodes[here], LEFT, sides);
        shift(&nodes[here], LEFT, sides);
        let partners = right.iter().take(PARTNERS).enumerate();
        let gains = partners.map(|(position, &there)| (gain(&nodes[there], RIGHT, sides), position));
        match gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) {
            Some((partner, position)) if moving + partner > LEAST_GAIN => {
                let there = right.remove(position);
                shift(&nodes[there], RIGHT, sides);
                nodes.swap(here, there);
                improved = true;
            }
            _ => shift(&nodes[here], RIGHT, sides),
        }
    }
    improved
}

/// Moves the node's count to the other side.
fn shift(node: &Node, from: usize, sides: &mut [[u32; 2]]) {
    for &utility in &node.utilities {
        sides[utility][from] -= 1;
        sides[utility][1 - from] += 1;
    }
}

/// Returns the bits saved by moving the node to the other half.
fn gain(node: &Node, side: usize, sides: &[[u32; 2]]) -> f64 {
    let saved = node.utilities.iter().map(|&utility| {
        let (here, there) = (sides[utility][side], sides[utility][1 - side]);
        cost(here, there) - cost(here - 1, there + 1)
    });
    saved.sum()
}

/// Returns the cost in bits of a utility with these numbers of members in the halves, up to a constant. It is lower the
/// more members one half has.
fn cost(left: u32, right: u32) -> f64 {
    let term = |members: u32| f64::from(members) * f64::from(members + 1).log2();
    -(term(left) + term(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(firsts: &[u64]) -> Vec<Unit> {
        firsts.iter().map(|&first| Unit { size: 1, first, heat: 1, ..Unit::default() }).collect()
    }

    fn positions(order: &[usize]) -> Vec<usize> {
        let mut positions = vec![0; order.len()];
        for (position, &unit) in order.iter().enumerate() {
            positions[unit] = position;
        }
        positions
    }

    /// Returns the half of each unit.
    fn halves(order: &[usize]) -> Vec<bool> {
        positions(order).into_iter().map(|position| position >= order.len().div_ceil(2)).collect()
    }

    #[test]
    fn one_trace_keeps_its_order_by_powers_of_two() {
        let units = units(&[7, 6, 5, 4, 3, 2, 1, 0]);
        let order = balanced(&units, &[first_use(&units)]);
        assert_eq!(order, [7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn a_bad_start_is_mended() {
        // The ranks mix two programs; each trace runs one of them.
        let units = units(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let traces = [vec![0, 2, 4, 6, 1], vec![1, 3, 5, 7, 0]];
        let halves = halves(&balanced(&units, &traces));
        assert!(halves[0] == halves[2] && halves[2] == halves[4] && halves[4] == halves[6], "{halves:?}");
        assert!(halves[1] == halves[3] && halves[3] == halves[5] && halves[5] == halves[7], "{halves:?}");
        assert_ne!(halves[0], halves[1]);
    }

    /// The first split of a small instance costs no more than any other split into the same sizes.
    #[test]
    fn the_first_split_is_the_best_of_all() {
        let traces = [vec![0, 5, 3, 1, 2], vec![5, 0, 3, 4, 6], vec![1, 2, 4, 7, 5], vec![2, 1, 7, 4, 0]];
        let units = units(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let (utilities, count) = utilities(8, &traces);
        let price = |right: u32| -> f64 {
            let mut sides = vec![[0; 2]; count];
            for (unit, of) in utilities.iter().enumerate() {
                of.iter().for_each(|&utility| sides[utility][(right >> unit & 1) as usize] += 1);
            }
            sides.iter().map(|[left, right]| cost(*left, *right)).sum()
        };
        let found = halves(&balanced(&units, &traces));
        let found = found.iter().enumerate().map(|(unit, &right)| u32::from(right) << unit).sum();
        let best = (0..256_u32).filter(|mask| mask.count_ones() == 4).map(price).fold(f64::MAX, f64::min);
        assert!(price(found) <= best + 1e-9, "{} for {best}", price(found));
    }

    #[test]
    fn every_unit_comes_once() {
        let firsts: Vec<u64> = (0..100).map(|unit| unit * 37 % 101).collect();
        let units = units(&firsts);
        let traces = [first_use(&units), (0..50).rev().collect()];
        let mut order = balanced(&units, &traces);
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
