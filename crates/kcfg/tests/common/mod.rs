//! Compiles fixtures, lifts them, and queries the graph.

// Each test binary uses a different part of this.
#![allow(dead_code)]

pub mod small;

use std::path::{Path, PathBuf};
use std::process::Command;

use kcfg::Error;
use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, Opaque, SymbolPlace};
use kcfg::index::{NodeId, NodeMap};
use kcfg::lift::{Lifter, Options};
use kcfg::roots::Roots;
use kcfg::script::LinkerScript;
use kcfg::special::World;
use kelf::{InputFiles, Program};
use kshrink_tests::process::run;
use typed_index_collections::ti_vec;

/// A directory for one test, removed at its end.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles `fixtures/cfg/<source>` like the kernel for i386, with additional options.
    pub fn compile(&self, source: &str, options: &[&str]) -> PathBuf {
        let name = source.replace('/', "-");
        let output = self.path(&format!("{name}.o"));
        let kernel = ["-m32", "-mregparm=3", "-march=i686", "-fno-pic"];
        self.gcc(&fixture(source), &output, &[&kernel, options].concat());
        output
    }

    /// Compiles a fixture for x86-64, as a position-dependent kernel.
    pub fn compile_64(&self, source: &str, options: &[&str]) -> PathBuf {
        let output = self.path(&format!("{source}.64.o"));
        let kernel = ["-m64", "-mcmodel=kernel", "-fno-pic"];
        self.gcc(&fixture(source), &output, &[&kernel, options].concat());
        output
    }

    /// Assembles a text for i386.
    pub fn assemble(&self, name: &str, text: &str) -> PathBuf {
        let (source, object) = (self.path(&format!("{name}.s")), self.path(&format!("{name}.o")));
        std::fs::write(&source, text).unwrap();
        run(Command::new("as").arg("--32").arg("-o").arg(&object).arg(&source));
        object
    }

    fn gcc(&self, source: &Path, output: &Path, options: &[&str]) {
        let mut command = Command::new("gcc");
        command.args(["-ffreestanding", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"]);
        command.args(["-fcf-protection=none", "-c"]).args(options);
        run(command.arg(source).arg("-o").arg(output));
    }

    /// Links a freestanding program for i386.
    pub fn link(&self, objects: &[PathBuf], output: &str) -> PathBuf {
        let output = self.path(output);
        run(Command::new("ld")
            .args(["-m", "elf_i386", "-z", "noexecstack", "-o"])
            .arg(&output)
            .args(objects));
        output
    }
}

/// Assembles a text for 32-bit ARM.
pub fn assemble(dir: &Dir, name: &str, text: &str) -> PathBuf {
    let (source, object) = (dir.path(&format!("{name}.s")), dir.path(&format!("{name}.o")));
    std::fs::write(&source, format!(".syntax unified\n.arch armv7-a\n.file \"{name}.c\"\n{text}")).unwrap();
    run(Command::new("arm-linux-gnueabihf-as").arg("-o").arg(&object).arg(&source));
    object
}

/// Returns a fixture's path.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cfg").join(name)
}

/// Returns the finest graph of some objects of a kernel, with everything alive.
pub fn lift(objects: &[PathBuf]) -> Graph {
    let files = InputFiles::of_objects(objects).unwrap();
    let program = Program::link(&files).unwrap();
    of_kernel(&program, &[]).unwrap().fine_graph().unwrap()
}

/// Returns the same for objects of a user program.
pub fn lift_program(objects: &[PathBuf]) -> Graph {
    let files = InputFiles::of_objects(objects).unwrap();
    let program = Program::link(&files).unwrap();
    Lifter::of_objects(&program, &[]).unwrap().fine_graph().unwrap()
}

/// Plans objects of a kernel linked by `fixtures/cfg/kernel.lds`.
pub fn of_kernel<'p>(program: &'p Program<'p>, entries: &[String]) -> Result<Lifter<'p>, Error> {
    let script = LinkerScript::read(&fixture("kernel.lds")).unwrap();
    let world = World::kernel(script, program.machine, None);
    let options = Options { world, keep_exports: false };
    Lifter::new(program, options, Roots::of_entries(entries))
}

/// Returns the finest graph of some objects in which only the nodes reachable from `entry` are alive.
pub fn lift_reachable(objects: &[PathBuf], entry: &str) -> Graph {
    let entries = [entry.to_owned()];
    let files = InputFiles::of_objects(objects).unwrap().entered_by(&entries);
    let program = Program::link(&files).unwrap();
    let mut lifter = of_kernel(&program, &entries).unwrap();
    let mut graph = lifter.graph().unwrap();
    for _ in 0..5 {
        let reachable = View::of(&graph).reachable();
        let unreachable = graph.node_ids().filter(|&node| !reachable[node]);
        unreachable.for_each(|node| graph.remove(node));
        if !lifter.refine(&mut graph) {
            return graph;
        }
    }
    panic!("splitting data at variables does not terminate");
}

/// Compiles and lifts one fixture.
pub fn lift_fixture(source: &str) -> Graph {
    let dir = Dir::new();
    lift(&[dir.compile(source, &["-Os"])])
}

/// A graph with the names that tests use.
pub struct View<'g> {
    pub graph: &'g Graph,
    edges: Edges<'g>,
}

/// An edge, by the names of its ends.
pub type NamedEdge = (EdgeKind, String);

impl<'g> View<'g> {
    pub fn of(graph: &'g Graph) -> View<'g> {
        View { graph, edges: Edges::of(graph) }
    }

    /// Returns the blocks of the function with this name, in order.
    pub fn blocks(&self, function: &str) -> Vec<NodeId> {
        let found = self.graph.functions().iter().find(|f| f.name == function);
        let found = found.unwrap_or_else(|| panic!("no function {function}: {:?}", self.names()));
        found.blocks.clone()
    }

    fn names(&self) -> Vec<&str> {
        self.graph.functions().iter().map(|function| function.name.as_str()).collect()
    }

    /// Returns the edges out of a node.
    pub fn edges(&self, node: NodeId) -> Vec<(EdgeKind, Destination)> {
        let mut edges = Vec::new();
        self.edges.for_each(node, |edge| edges.push((edge.kind, edge.to)));
        edges
    }

    /// Returns the targets of a node's edges of one kind to nodes.
    pub fn to(&self, node: NodeId, kind: EdgeKind) -> Vec<NodeId> {
        let edges = self.edges(node).into_iter().filter(|(other, _)| *other == kind);
        edges
            .filter_map(|(_, to)| match to {
                Destination::Node(to) => Some(to),
                _ => None,
            })
            .collect()
    }

    /// Returns the edges out of a node, except data edges, by name.
    pub fn control(&self, node: NodeId) -> Vec<NamedEdge> {
        let control = |kind| !matches!(kind, EdgeKind::Data | EdgeKind::Site);
        self.edges(node).into_iter().filter(|(kind, _)| control(*kind)).map(|edge| self.named(edge)).collect()
    }

    pub fn named(&self, (kind, to): (EdgeKind, Destination)) -> NamedEdge {
        let name = match to {
            Destination::Node(node) => self.name(node),
            Destination::Unknown => "unknown".to_owned(),
            Destination::Outside(symbol) => self.graph.symbols()[symbol].name.clone(),
        };
        (kind, name)
    }

    /// Returns a node's name without the path of its object.
    pub fn name(&self, node: NodeId) -> String {
        let name = self.graph.name_of(node);
        match name.rsplit_once(".o:") {
            Some((_, rest)) => rest.to_owned(),
            None => name,
        }
    }

    /// Returns the callees of the blocks that end with a call.
    pub fn callees(&self, function: &str) -> Vec<String> {
        let calls = |edge: &NamedEdge| matches!(edge.0, EdgeKind::Call | EdgeKind::NoReturn);
        let blocks = self.blocks(function);
        blocks.into_iter().flat_map(|node| self.control(node)).filter(calls).map(|(_, name)| name).collect()
    }

    /// Returns the node and offset of a symbol.
    pub fn symbol(&self, name: &str) -> (NodeId, u32) {
        let symbol = self.graph.symbols().iter().find(|symbol| symbol.name == name);
        match symbol.unwrap_or_else(|| panic!("no symbol {name}")).place {
            SymbolPlace::Node(node, offset) => (node, offset),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Returns the chunks of a section.
    pub fn chunks(&self, section: &str) -> Vec<NodeId> {
        let nodes = self.graph.node_ids();
        nodes
            .filter(|&n| *self.graph.section_of(n).name == *section && self.graph.chunk(n).is_some())
            .collect()
    }

    /// Returns the opaque entry with this name.
    pub fn opaque(&self, name: &str) -> Option<&'g Opaque> {
        self.graph.opaque().iter().find(|opaque| opaque.name == name)
    }

    /// Returns whether each node is reachable from a root.
    pub fn reachable(&self) -> NodeMap<bool> {
        let mut reached = ti_vec![false; self.graph.nodes().len()];
        let mut pending: Vec<NodeId> = self.graph.roots().iter().map(|root| root.node).collect();
        while let Some(node) = pending.pop() {
            if std::mem::replace(&mut reached[node], true) {
                continue;
            }
            self.edges.for_each(node, |edge| {
                if let Destination::Node(to) = edge.to {
                    pending.push(to);
                }
            });
        }
        reached
    }
}
