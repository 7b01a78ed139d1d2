/*! x */
mod condition; mod config; mod functions; mod gates; mod lines; mod makefile; mod tree;
use std::collections::BTreeSet;
fn main() {
    let build = kelf::KernelBuild::find(std::path::Path::new(&std::env::args().nth(1).unwrap())).unwrap();
    let tree = tree::Tree::find(&build).map_err(|e| e.message()).unwrap();
    let files = kelf::InputFiles::of_kernel(&build).unwrap();
    let program = kelf::Program::link(&files).unwrap();
    let objects: BTreeSet<String> = program.objects.iter().map(|o| o.object.name.clone()).collect();
    let t = std::time::Instant::now();
    let g = gates::Gates::read(&tree.source, &tree.arch, &tree.config, &objects);
    println!("{} placed, {} unplaced {:?} {:?}", g.placed(), g.unplaced.len(), g.unplaced, t.elapsed());
    for o in &objects { for x in g.of(o) { println!("{o}\t{}\t{}", x.module, x.condition); } }
    let mut n = 0;
    for x in tree.config.enabled() { let mut c = tree.config.clone(); c.set(x, ""); let r = g.removed_by(&c); if !r.is_empty() { n += 1; println!("OFF {x} {}", r.len()); } }
    println!("{n} gating");
}
