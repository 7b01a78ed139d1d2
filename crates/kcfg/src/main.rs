//! Scratch.
use kelf::{InputFiles, KernelBuild, Program};
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let t = std::time::Instant::now();
    let build = KernelBuild::find(path.as_ref()).unwrap();
    let files = InputFiles::of_kernel(&build).unwrap();
    eprintln!("read {:?}", t.elapsed());
    let program = Program::link(&files).unwrap();
    eprintln!("link {:?}", t.elapsed());
    let graph = match kcfg::roots::lift_kernel(&build, &program) { Ok(g) => g, Err(e) => { eprintln!("{e}"); return } };
    eprintln!("lift {:?}", t.elapsed());
    let s = kcfg::summary::Summary::of(&graph);
    println!("{}", serde_json::to_string_pretty(&s).unwrap());
    for o in &graph.opaque { if o.reason != "hand-written" { println!("{} {}", o.name, o.reason); } }
    for o in &graph.unresolved_switches { println!("{} unresolved", graph.name_of(*o)); }
    for o in &graph.roots { if o.reason == kcfg::special::RootReason::UnknownSection { println!("{} unknown", graph.name_of(o.node)); } }
    eprintln!("sum {:?}", t.elapsed());
    let o = match kcfg::lower::lower(&graph, kcfg::lower::Relax::AsAssembled) { Ok(g) => g, Err(e) => { eprintln!("{e}"); return } };
    eprintln!("lower {:?}", t.elapsed());
    let mut sizes = std::collections::BTreeMap::new();
    for s in &o.sections { *sizes.entry(s.name).or_insert(0u64) += s.size; }
    println!("{sizes:?}");
}
