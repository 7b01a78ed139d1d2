//! Retained sizes of parameters, confirmed by removing the parameters.

use std::path::Path;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcfg::lower::{Relax, lower};
use kcfg::parameters;
use kelf::{InputFiles, KernelBuild, Program};
use kopt::retained::{self, Removals};
use kopt::{Options, reach, rounds};
use kplan::Plan;
use kshrink_tests::recipe;

/// Number of parameters to remove, those that retain most.
const PARAMETERS: usize = 20;

/// Returns the reachable graph of a kernel, with its tables of parameters cut into entries.
fn graph(build: &KernelBuild, program: &Program<'_>) -> Graph {
    let lifter = Lifter::of_kernel(build, program).expect("a kernel that can be lifted");
    let run = rounds::run(lifter, &Plan::default(), &[&reach::Reach], Options::default(), |_| ());
    let (mut graph, _) = run.expect("passes that run");
    parameters::cut(&mut graph, "params");
    graph
}

/// The bytes of all live nodes.
fn alive(graph: &Graph) -> u64 {
    let nodes = graph.node_ids().filter(|&id| graph.node(id).live);
    nodes.map(|id| u64::from(graph.size_with_branch(id))).sum()
}

/// The bytes of the sections in the emitted object.
fn emitted(graph: &Graph) -> u64 {
    let lowered = lower(graph, Relax::Shortest).expect("a graph that can be lowered");
    lowered.object.sections.iter().filter(|section| section.is_allocated()).map(|section| section.size).sum()
}

/// `bytes` is exactly what is unreachable without the parameter. In the object, alignment and the lengths of branches
/// change as well.
#[test]
fn parameters_keep_what_goes_with_them() {
    let build = recipe("kernels/build.sh", &["web-i386"]);
    let build = KernelBuild::find(Path::new(&build.join("vmlinux"))).expect("a build");
    let files = InputFiles::of_kernel(&build).expect("its objects");
    let program = Program::link(&files).expect("a link");
    let whole = graph(&build, &program);
    let all = parameters::all(&whole);
    let sets: Vec<_> = all.iter().map(|parameter| vec![parameter.node]).collect();
    let mut figures: Vec<_> = all.iter().zip(retained::of_sets(&whole, &sets)).collect();
    let removals = Removals::of(&whole);
    for (set, (parameter, keeps)) in sets.iter().zip(&figures) {
        let removed = removals.without(set).into_iter();
        let bytes: u64 = removed.map(|node| u64::from(whole.size_with_branch(node))).sum();
        assert_eq!(bytes, keeps.bytes, "{parameter}");
    }
    figures.sort_by_key(|(_, keeps)| std::cmp::Reverse(keeps.bytes));
    let (before, object) = (alive(&whole), emitted(&whole));
    assert!(figures.len() > 150, "only {} parameters", figures.len());
    for (parameter, keeps) in figures.into_iter().take(PARAMETERS) {
        let mut without = whole.clone();
        without.retain_roots(|_, root| root.node != parameter.node);
        without.remove(parameter.node);
        reach::run(&mut without);
        let (gone, smaller) = (before - alive(&without), object as i64 - emitted(&without) as i64);
        println!("{parameter}: keeps {}, removed {gone}, object smaller by {smaller}", keeps.bytes);
        assert_eq!(gone, keeps.bytes, "{parameter}");
        let off = (smaller - keeps.bytes as i64).unsigned_abs();
        assert!(off <= 16 + keeps.bytes / 20, "{parameter}: {smaller} bytes less, expected {}", keeps.bytes);
    }
}
