/*!
Pass `instrument`: every basic block records that it ran (Chanet et al. 2007, section 4.2).

A block begins with one more instruction, a store of 1 to a byte of its own in a zero-initialised array; flags and
registers are not changed. `coverage kcore` reads the array of a running kernel.

Not instrumented, and reported:

- hand-written and opaque code, which is carried whole;
- code without a symbol (the slow paths of `static_cpu_has()`) and blocks that a pass made, which have no name for
  reports;
- functions that compute with their own address (position-independent code of i386);
- patch sites, which are found by address or compared byte by byte at run time;
- code that runs before paging is on, when the array is not mapped at its address: what the hand-written code of the
  boot section calls directly, and what control reaches from there by calls, jumps and fall-throughs. (The rest of the
  kernel is entered from there through a pointer.)
*/

use fixedbitset::FixedBitSet;
use goblin::elf::section_header::SHT_NOBITS;
use goblin::elf::sym::{STB_GLOBAL, STT_OBJECT};
use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Contents, Counters, Editor, Graph, NodeKind, Section, Symbol, SymbolPlace, Target};
use kcfg::index::{FunctionId, NodeId, SymbolId};

use crate::report::PassReport;

/// The name of the array.
const SYMBOL: &str = "kshrink_counters";

/// The section whose hand-written code starts the kernel (`__HEAD` in include/linux/init.h).
const BOOT_SECTION: &str = ".head.text";

/// Instruments every block that can be instrumented.
pub fn run(graph: &mut Graph) -> PassReport {
    let mut report = PassReport::new("instrument");
    let (early, named) = (early_code(graph), named_functions(graph));
    let relative = position_independent(graph);
    let mut blocks = Vec::new();
    for node in graph.node_ids() {
        let Some(block) = graph.block(node) else { continue };
        if !graph.node(node).live {
            continue;
        }
        if early.contains(block.function.get()) {
            report.count("blocks that run before paging, left alone", 1);
        } else if block.is_fixed() {
            report.count("patch sites, left alone", 1);
        } else if relative.contains(block.function.get()) {
            report.count("blocks of position-independent functions, left alone", 1);
        } else if !named.contains(block.function.get()) {
            report.count("blocks of code without a name, left alone", 1);
        } else if graph.node(node).origin().is_none() {
            report.count("blocks that a pass made, left alone", 1);
        } else {
            blocks.push(node);
        }
    }
    report.count("blocks instrumented", blocks.len() as u64);
    for opaque in graph.opaque.iter().filter(|opaque| graph.node(opaque.node).live) {
        report.keep(&opaque.name, format!("not instrumented: {}", opaque.reason));
    }
    for function in early.ones() {
        report.keep(&graph.functions[function].name, "not instrumented: runs before paging is on");
    }
    if blocks.is_empty() {
        return report;
    }
    let isa = graph.isa();
    if isa.encode_store_one(&mut Vec::new()).is_none() {
        report.keep("every block", format!("not instrumented: not known how on {}", graph.machine));
        return report;
    }
    let mut editor = Editor::new(graph, "instrument");
    let symbol = add_counters(&mut editor, blocks.len() as u32);
    for (number, &node) in blocks.iter().enumerate() {
        let store = Contents::store_one(isa, Target::Symbol(symbol), number as i64);
        store.into_iter().for_each(|store| editor.prepend(node, store));
    }
    editor.finish();
    graph.counters = Some(Counters { symbol, blocks });
    report
}

/// The functions that compute with their own address ([`Graph::knows_own_address`]), as a set of bits.
pub(crate) fn position_independent(graph: &Graph) -> FixedBitSet {
    let blocks = graph.node_ids().filter(|&node| graph.knows_own_address(node));
    let functions = blocks.filter_map(|node| graph.block(node).map(|block| block.function.get()));
    let mut all = FixedBitSet::with_capacity(graph.functions.len());
    all.extend(functions);
    all
}

/// The functions that have a symbol, as a set of bits: only these can be reported to have run.
fn named_functions(graph: &Graph) -> FixedBitSet {
    let mut named = FixedBitSet::with_capacity(graph.functions.len());
    for symbol in &graph.symbols {
        let SymbolPlace::Node(node, 0) = symbol.place else { continue };
        let function = graph.function_of(node).filter(|&id| graph.function(id).entry() == node);
        named.extend(function.map(FunctionId::get));
    }
    named
}

/// The functions that run before paging is on, as a set of bits: those that control reaches from the hand-written code of
/// the boot section, other than through a pointer.
pub(crate) fn early_code(graph: &Graph) -> FixedBitSet {
    let edges = Edges::of(graph);
    let mut early = FixedBitSet::with_capacity(graph.functions.len());
    let is_boot = |&node: &NodeId| {
        let code = graph.chunk(node).is_some_and(|chunk| chunk.code);
        code && *graph.section_of(node).name == *BOOT_SECTION
    };
    let mut worklist: Vec<NodeId> = graph.node_ids().filter(is_boot).collect();
    let mut chunks = FixedBitSet::with_capacity(graph.nodes.len());
    while let Some(node) = worklist.pop() {
        let mut enter = |to: NodeId| match &graph.node(to).kind {
            NodeKind::Block(block) if !early.put(block.function.get()) => {
                worklist.extend(&graph.function(block.function).blocks);
            }
            NodeKind::Chunk(chunk) if chunk.code && !chunks.put(to.get()) => worklist.push(to),
            _ => {}
        };
        // The branches of opaque code and of patch sites are references.
        for reference in graph.refs_of(node) {
            let direct = matches!(reference.class, kelf::RelocClass::Branch | kelf::RelocClass::Relative);
            graph.resolve_node(reference.target).filter(|_| direct).into_iter().for_each(&mut enter);
        }
        edges.for_each(node, |edge| match (edge.kind, edge.to) {
            (EdgeKind::Data | EdgeKind::Site, _) => {}
            (_, Destination::Node(to)) => enter(to),
            _ => {}
        });
    }
    early
}

/// Adds the array to the program: a zero-initialised section of one byte for each block.
fn add_counters(editor: &mut Editor<'_>, size: u32) -> SymbolId {
    let section = editor.add_section(Section::writable(".bss", SHT_NOBITS));
    let node = editor.add_zeros(section, size, 1);
    editor.add_symbol(Symbol {
        name: SYMBOL.to_owned(),
        file: None,
        binding: STB_GLOBAL,
        kind: STT_OBJECT,
        other: 0,
        size: u64::from(size),
        thumb: false,
        place: SymbolPlace::Node(node, 0),
        overridden: false,
    })
}
