//! Classes of identical functions, by partition refinement.
//!
//! At first, functions are in one class if all is equal but for which functions they call and jump to. A class is then
//! divided by the classes of those, until nothing is left to divide. This finds the coarsest partition that is stable, so
//! that functions that call themselves or one another are found identical, too.

use indexmap::IndexMap;
use kcfg::edges::Edges;
use kcfg::graph::Graph;
use rustc_hash::FxBuildHasher;

use super::candidates::Candidate;
use super::contents::{Contents, Reader};

/// The classes of more than one function, each in the order of the candidates.
pub fn of<'c>(graph: &Graph, edges: &Edges<'_>, candidates: &'c [Candidate]) -> Vec<Vec<&'c Candidate>> {
    let mut reader = Reader::new(graph, edges, candidates);
    let all: Vec<Contents> = candidates.iter().map(|candidate| reader.read(candidate)).collect();
    let mut classes = number(all.iter().map(|contents| (contents.shape(), contents.targets.len())));
    loop {
        let before = count(&classes);
        let keys = all.iter().zip(&classes).map(|(contents, &own)| {
            let targets: Vec<usize> = contents.targets.iter().map(|&target| classes[target]).collect();
            (own, targets)
        });
        classes = number(keys);
        if count(&classes) == before {
            break;
        }
    }
    let mut members: Vec<Vec<&Candidate>> = vec![Vec::new(); count(&classes)];
    for (candidate, &class) in candidates.iter().zip(&classes) {
        members[class].push(candidate);
    }
    members.retain(|class| class.len() > 1);
    members
}

/// For each key a number: the same for equal keys, from 0 in the order in which they come.
fn number<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut numbers: IndexMap<K, (), FxBuildHasher> = IndexMap::default();
    keys.map(|key| numbers.insert_full(key, ()).0).collect()
}

/// How many classes there are.
fn count(classes: &[usize]) -> usize {
    classes.iter().max().map_or(0, |last| last + 1)
}
