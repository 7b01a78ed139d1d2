/*!
The calls between functions, and the order in which the functions can be analysed in parallel: first functions without
calls, then functions that only call functions of earlier levels.
*/

use crate::program::{Callee, FunctionIndex, Program};

/// Returns the callers and the callees of each function.
pub(crate) fn calls(program: &impl Program) -> (Vec<Vec<FunctionIndex>>, Vec<Vec<FunctionIndex>>) {
    let count = program.functions();
    let (mut callers, mut callees) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for function in (0..count).map(FunctionIndex::from) {
        for &block in program.blocks_of(function) {
            for way in program.ways(block) {
                if let Some(Callee::Function(callee)) = way.callee {
                    callers[callee.get()].push(function);
                    callees[function.get()].push(callee);
                }
            }
        }
    }
    (callers, callees)
}

/// Returns the position of each function in an order of callees before callers, except in recursion.
pub(crate) fn callees_first(callees: &[Vec<FunctionIndex>]) -> Vec<usize> {
    let mut order = vec![usize::MAX; callees.len()];
    let mut is_seen = vec![false; callees.len()];
    let mut count = 0;
    for first in (0..callees.len()).map(FunctionIndex::from) {
        let mut open = vec![(first, 0)];
        while let Some((function, next)) = open.last_mut() {
            let is_new = *next > 0 || !std::mem::replace(&mut is_seen[function.get()], true);
            match callees[function.get()].get(*next).filter(|_| is_new) {
                Some(&callee) => {
                    *next += 1;
                    if !is_seen[callee.get()] {
                        open.push((callee, 0));
                    }
                }
                None => {
                    if is_new {
                        order[function.get()] = count;
                        count += 1;
                    }
                    open.pop();
                }
            }
        }
    }
    order
}

/// Functions that do not call one another, except in one cycle.
#[derive(Default)]
pub(super) struct Level {
    /// Functions that do not call themselves, directly or indirectly.
    pub(super) alone: Vec<FunctionIndex>,
    /// Cycles of functions that call one another.
    pub(super) circles: Vec<Vec<FunctionIndex>>,
}

/// Returns the levels of a program, given the callers and callees of each function and its position in an order of
/// callees first ([`callees_first`]).
pub(super) fn levels(
    (callers, callees): (&[Vec<FunctionIndex>], &[Vec<FunctionIndex>]),
    order: &[usize],
) -> Vec<Level> {
    let circles = circles(callers, order);
    let mut circle_of = vec![0; order.len()];
    for (number, circle) in circles.iter().enumerate() {
        circle.iter().for_each(|function| circle_of[function.get()] = number);
    }
    let mut levels: Vec<Level> = Vec::new();
    let mut level_of = vec![0; circles.len()];
    for (number, circle) in circles.into_iter().enumerate().rev() {
        let called = || circle.iter().flat_map(|function| &callees[function.get()]);
        let others = called().map(|callee| circle_of[callee.get()]).filter(|&other| other != number);
        let level = others.map(|other| level_of[other] + 1).max().unwrap_or(0);
        level_of[number] = level;
        if levels.len() <= level {
            levels.resize_with(level + 1, Level::default);
        }
        match circle[..] {
            [function] if !called().any(|&callee| callee == function) => levels[level].alone.push(function),
            _ => levels[level].circles.push(circle),
        }
    }
    levels
}

/// Returns the strongly connected components, callers before their callees (Kosaraju).
fn circles(callers: &[Vec<FunctionIndex>], order: &[usize]) -> Vec<Vec<FunctionIndex>> {
    let mut functions: Vec<FunctionIndex> = (0..order.len()).map(FunctionIndex::from).collect();
    functions.sort_by_key(|function| std::cmp::Reverse(order[function.get()]));
    let mut is_seen = vec![false; order.len()];
    let mut circles = Vec::new();
    for first in functions {
        let (mut circle, mut open) = (Vec::new(), vec![first]);
        while let Some(function) = open.pop() {
            if !std::mem::replace(&mut is_seen[function.get()], true) {
                circle.push(function);
                open.extend(&callers[function.get()]);
            }
        }
        if !circle.is_empty() {
            circles.push(circle);
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the levels of functions with these calls: the single functions and the cycles, each in order.
    fn levels_of(calls: &[&[u32]]) -> Vec<(Vec<u32>, Vec<Vec<u32>>)> {
        let callees: Vec<Vec<FunctionIndex>> =
            calls.iter().map(|own| own.iter().map(|&callee| FunctionIndex(callee)).collect()).collect();
        let mut callers = vec![Vec::new(); calls.len()];
        for (caller, own) in callees.iter().enumerate() {
            own.iter().for_each(|callee| callers[callee.get()].push(FunctionIndex::from(caller)));
        }
        let sorted = |functions: &[FunctionIndex]| {
            let mut numbers: Vec<u32> = functions.iter().map(|function| function.0).collect();
            numbers.sort_unstable();
            numbers
        };
        let levels = levels((&callers, &callees), &callees_first(&callees));
        let in_order = |level: &Level| {
            let mut circles: Vec<Vec<u32>> = level.circles.iter().map(|circle| sorted(circle)).collect();
            circles.sort_unstable();
            (sorted(&level.alone), circles)
        };
        levels.iter().map(in_order).collect()
    }

    #[test]
    fn callees_are_in_earlier_levels() {
        // 0 calls 1 and 2, which both call 3; 4 calls only 3, and nobody calls 5.
        let levels = levels_of(&[&[1, 2], &[3], &[3], &[], &[3], &[]]);
        assert_eq!(levels, [(vec![3, 5], vec![]), (vec![1, 2, 4], vec![]), (vec![0], vec![])]);
    }

    #[test]
    fn circles_are_one() {
        // 1 and 2 call one another, and 3; 4 calls itself; 0 calls 2.
        let levels = levels_of(&[&[2], &[2, 3], &[1, 3], &[], &[4]]);
        assert_eq!(levels, [(vec![3], vec![vec![4]]), (vec![], vec![vec![1, 2]]), (vec![0], vec![])]);
    }
}
