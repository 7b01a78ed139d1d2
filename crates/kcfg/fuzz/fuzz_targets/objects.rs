//! Treats any bytes as an object, or as an archive of objects to link: reads, lifts and reduces them, changes them in
//! every way that a pass may, and writes them again, or refuses them with an error. After every step the graph's
//! invariants must hold, and the written object must be readable.
//!
//! docs/objects.md has the command, the initial objects, and the last run.

#![no_main]

use std::path::Path;

use kcfg::edges::Edges;
use kcfg::graph::Graph;
use kcfg::lift::{self, Lifter};
use kcfg::lower::{Relax, lower};
use kcfg::summary::Summary;
use kelf::archive::{MemberContent, is_archive, members};
use kelf::{Definition, InputFiles, Object, Program};
use kopt::exercise::Exercise;
use kopt::reach::Reach;
use kopt::{Options, rounds};
use kplan::Plan;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let files = InputFiles::of_bytes(objects(bytes));
    let Ok(program) = Program::link(&files) else { return };
    let _ = whole(&program);
    let _ = reachable(&program);
});

/// Returns the members of an archive; anything else is one object.
fn objects(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    if !is_archive(bytes) {
        return vec![("fuzz.o".to_owned(), bytes.to_vec())];
    }
    let Ok(members) = members(Path::new("fuzz.a"), bytes) else { return Vec::new() };
    let inside = members.into_iter().filter_map(|member| match member.content {
        MemberContent::Inside(content) => Some((member.name.to_owned(), content.to_vec())),
        MemberContent::File(_) => None,
    });
    inside.collect()
}

/// Acts like `kcfg --objects`, and like `kshrink-spec --objects --passes none`.
fn whole(program: &Program<'_>) -> Result<(), lift::Error> {
    let graph = Lifter::of_objects(program, &[])?.fine_graph()?;
    let edges = Edges::of(&graph);
    graph.node_ids().for_each(|node| edges.for_each(node, drop));
    let _ = Summary::of(&graph);
    write(&graph, Relax::AsAssembled);
    Ok(())
}

/// Acts like `kshrink-spec --objects --passes reach,exercise --verify`, with the first defined symbol as the entry.
///
/// # Panics
/// If a step breaks an invariant of the graph.
fn reachable(program: &Program<'_>) -> Result<(), lift::Error> {
    let defined = program.globals().find(|(_, _, global)| matches!(global.definition, Definition::In(..)));
    let Some((_, entry, _)) = defined else { return Ok(()) };
    let lifter = Lifter::of_objects(program, &[entry.to_owned()])?;
    let options = Options { verify: true, ..Options::default() };
    match rounds::run(lifter, &Plan::default(), &[&Reach, &Exercise], options, |_| {}) {
        Ok((graph, _)) => write(&graph, Relax::Shortest),
        Err(rounds::Error::Lift(error)) => return Err(error),
        Err(broken) => panic!("{broken}"),
    }
    Ok(())
}

fn write(graph: &Graph, relax: Relax) {
    let Ok(lowered) = lower(graph, relax) else { return };
    let Ok(written) = lowered.object.write() else { return };
    Object::read("written.o", &written).expect("kshrink can read its own output");
}
