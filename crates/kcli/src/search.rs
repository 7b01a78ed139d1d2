//! The search for the candidates that a failure needs, by halving, and the tests that it runs.

use std::path::Path;

use fixedbitset::FixedBitSet;

use crate::Failure;
use crate::scratch::{self, last_lines};

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The test passes.
    Good,
    /// The test fails.
    Bad,
    /// The test cannot be run.
    Untestable,
}

/// Runs a user's test, `sh -c COMMAND NAME PATH`, without input. Returns its verdict and the end of its output, for
/// messages. The exit status is that of `git bisect run`: 0 is good, 125 untestable, and any other is bad. `option` gave
/// the command.
///
/// # Errors
/// Bad input if the shell cannot run the command (exit status 126 or 127); a failed job if there is no shell.
pub fn run_test(option: &str, test: &str, name: &str, path: &Path) -> Result<(Verdict, String), Failure> {
    let ran = scratch::run_shell(test, name, path);
    let ran = ran.map_err(|error| Failure::job(format!("cannot run sh: {error}")))?;
    let verdict = match ran.status.code() {
        Some(0) => Verdict::Good,
        Some(125) => Verdict::Untestable,
        Some(status @ (126 | 127)) => {
            return Err(Failure::bad_input(format!(
                "{option}: the shell cannot run the command (exit status {status}):{}",
                last_lines(&ran)
            )));
        }
        _ => Verdict::Bad,
    };
    Ok((verdict, format!("\n  ({}){}", ran.status, last_lines(&ran))))
}

/// Finds a set of candidates with which the test fails, and without any one of which it passes, provided that more
/// candidates never make a failing test pass. `trial` gets the candidates that change; it must be bad for all of the
/// `count` candidates, and good for none. `closure` adds to a set the candidates that must change with it.
///
/// Each element of the result is one candidate of the set, or several candidates that contain one of the set, if the
/// trials that would separate them are impossible. That ends the search.
///
/// Each candidate of the set takes about log2(`count`) trials, as in the search for a commit with `git bisect`.
///
/// # Errors
/// The errors of `trial`.
pub fn smallest_failing<E>(
    count: usize,
    closure: impl Fn(&[usize]) -> FixedBitSet,
    mut trial: impl FnMut(&FixedBitSet) -> Result<Verdict, E>,
) -> Result<Vec<Vec<usize>>, E> {
    let mut needed = Vec::new();
    let mut result = Vec::new();
    // Invariant: with the closure of `needed` and all of `rest` the test fails.
    let mut rest: Vec<usize> = (0..count).collect();
    loop {
        let base = closure(&needed);
        rest.retain(|&candidate| !base.contains(candidate));
        if rest.is_empty() || !needed.is_empty() && trial(&base)? == Verdict::Bad {
            return Ok(result);
        }
        // Invariant: the test does not fail with the first `low` of the rest, and fails with the first `high`.
        let (mut low, mut high) = (0, rest.len());
        'halve: while high - low > 1 {
            for middle in from_the_middle(low, high) {
                let mut set = base.clone();
                set.extend(rest[..middle].iter().copied());
                match trial(&set)? {
                    Verdict::Good => low = middle,
                    Verdict::Bad => high = middle,
                    Verdict::Untestable => continue,
                }
                continue 'halve;
            }
            break;
        }
        result.push(rest[low..high].to_vec());
        if high - low > 1 {
            return Ok(result);
        }
        needed.push(rest[low]);
        rest.truncate(low);
    }
}

/// The numbers between `low` and `high`, from the middle outwards.
fn from_the_middle(low: usize, high: usize) -> impl Iterator<Item = usize> {
    let middle = low + (high - low) / 2;
    let mut all: Vec<usize> = (low + 1..high).collect();
    all.sort_by_key(|number| number.abs_diff(middle));
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of a search with this failure condition, and its number of trials.
    fn found(count: usize, fails: impl Fn(&FixedBitSet) -> Option<bool>) -> (Vec<Vec<usize>>, usize) {
        let mut trials = 0;
        let result = smallest_failing(
            count,
            |set| set.iter().copied().collect(),
            |set| {
                trials += 1;
                Ok::<_, ()>(match fails(set) {
                    Some(true) => Verdict::Bad,
                    Some(false) => Verdict::Good,
                    None => Verdict::Untestable,
                })
            },
        );
        (result.unwrap(), trials)
    }

    #[test]
    fn one_of_many() {
        for culprit in 0..100 {
            let (result, trials) = found(100, |set| Some(set.contains(culprit)));
            assert_eq!(result, [vec![culprit]]);
            assert!(trials <= 8, "{trials} trials");
        }
    }

    #[test]
    fn several_that_fail_only_together() {
        let (result, trials) = found(1000, |set| Some([3, 500, 999].iter().all(|&c| set.contains(c))));
        assert_eq!(result, [vec![999], vec![500], vec![3]]);
        assert!(trials <= 33, "{trials} trials");
    }

    #[test]
    fn what_cannot_be_tested_is_passed_over() {
        let untestable = |set: &FixedBitSet| set.count_ones(..) == 8;
        let (result, _) = found(16, |set| (!untestable(set)).then(|| set.contains(4)));
        assert_eq!(result, [vec![4]]);
        // The verdict for 8 candidates is not known, so the culprit is the eighth or the ninth.
        let (result, _) = found(16, |set| (!untestable(set)).then(|| set.contains(7)));
        assert_eq!(result, [vec![7, 8]]);
        let (result, _) = found(16, |_| None);
        assert_eq!(result, [(0..16).collect::<Vec<_>>()]);
    }

    #[test]
    fn what_a_candidate_needs_is_not_named() {
        // Each candidate needs all earlier ones.
        let closure = |set: &[usize]| (0..set.iter().max().map_or(0, |max| max + 1)).collect();
        let bad = |set: &FixedBitSet| if set.contains(5) { Verdict::Bad } else { Verdict::Good };
        assert_eq!(smallest_failing(9, closure, |set| Ok::<_, ()>(bad(set))), Ok(vec![vec![5]]));
    }
}
