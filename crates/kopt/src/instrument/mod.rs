/*!
Pass `instrument`: every basic block records that it ran (Chanet et al. 2007, section 4.2).

A block begins with a store of 1 to a byte of its own in a zero-initialised array; live flags and registers are
preserved. On x86 that is one instruction. On 32-bit ARM, the store needs a register: a dead one
([`kflow::Liveness`]), or one that is saved on the stack. The register holds an address of the array whose lowest byte
is 1, the stored value; the array is aligned accordingly. `coverage kcore` reads the array of a running kernel.

Not instrumented, and reported:

- hand-written and opaque code;
- code without a symbol (the slow paths of `static_cpu_has()`) and blocks that a pass made, because reports cannot name
  them;
- blocks that begin with a landing pad of computed calls (`endbr64`);
- functions that compute with their own address (position-independent code of i386);
- patch sites, which are found by address or compared byte by byte at run time;
- blocks that are entered between an exclusive load and its store (`ldrex` and `strex` of ARM), which no other store
  may separate, and code between a jump of ARM code and the table of addresses that it finds by distance;
- code that runs before paging is on, when the array is not mapped at its address: the direct callees of the
  hand-written code in the boot sections, and code that control reaches from there by calls, jumps and fall-throughs.
  (The boot code enters the rest of the kernel through a pointer.)
*/

pub(crate) mod exclusive;

use goblin::elf::section_header::SHT_NOBITS;
use goblin::elf::sym::{STB_GLOBAL, STB_LOCAL, STT_OBJECT};
use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::{Contents, Counters, Editor, Graph, NodeKind, Section, Symbol, SymbolPlace, Target};
use kcfg::index::{FunctionSet, NodeId, NodeSet, SymbolId};
use kflow::{Liveness, Summaries};
use kisa::StoreLayout;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;

/// The name of the array.
const SYMBOL: &str = "kshrink_counters";

/// The sections whose hand-written code runs without paging: the startup code (`__HEAD` in include/linux/init.h), and
/// the code that turns paging on and off (arch/arm/kernel/head.S, sleep.S).
const BOOT_SECTIONS: [&str; 2] = [".head.text", ".idmap.text"];

/// Pass `instrument`: instruments every block that can be instrumented.
pub struct Instrument;

impl Pass for Instrument {
    fn facts(&self) -> Facts {
        Facts {
            name: "instrument",
            summary: "instruments every block to record that it ran, for `coverage kcore`",
            phase: Phase::Finishes,
            runs: Runs::IfNamed,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        let early = early_code(graph);
        let blocks = blocks_to_count(graph, &early, &mut report);
        for opaque in graph.opaque().iter().filter(|opaque| graph.node(opaque.node).live) {
            report.keep(&opaque.name, format!("not instrumented: {}", opaque.reason));
        }
        for function in early.iter() {
            report.keep(&graph.functions()[function].name, "not instrumented: runs before paging is on");
        }
        if blocks.is_empty() {
            return report;
        }
        let Some(layout) = graph.store_layout() else {
            report.keep("every block", format!("not instrumented: {} is not supported", processor(graph)));
            return report;
        };
        report.count("blocks instrumented", blocks.len() as u64);
        let free = match layout.takes_register {
            true => free_registers(graph, &blocks),
            false => vec![0; blocks.len()],
        };
        let isa = graph.isa();
        let mut editor = Editor::new(graph, "instrument");
        let symbols = add_counters(&mut editor, layout, blocks.len() as u32);
        for ((number, &node), free) in (0u32..).zip(&blocks).zip(free) {
            let target = Target::Symbol(symbols[(number / layout.span) as usize]);
            let encoding = editor.graph().encoding(node);
            let (store, saves) = Contents::store_one(isa, encoding, free, target, number % layout.span);
            if saves {
                report.count("blocks that save a register for it", 1);
            }
            editor.prepend(node, store);
        }
        editor.set_counters(Counters { symbol: symbols[0], blocks });
        editor.finish();
        report
    }
}

/// The blocks to instrument. Reports the others.
fn blocks_to_count(graph: &Graph, early: &FunctionSet, report: &mut PassReport) -> Vec<NodeId> {
    let (named, relative) = (named_functions(graph), position_independent(graph));
    let between = exclusive::entered_between(graph);
    let in_front_of_tables = in_front_of_tables(graph);
    let mut blocks = Vec::new();
    for node in graph.node_ids() {
        let Some(block) = graph.block(node) else { continue };
        if !graph.node(node).live {
            continue;
        }
        if early.contains(block.function) {
            report.count("blocks that run before paging, left alone", 1);
        } else if block.is_fixed() {
            report.count("patch sites, left alone", 1);
        } else if relative.contains(block.function) {
            report.count("blocks of position-independent functions, left alone", 1);
        } else if !named.contains(block.function) {
            report.count("blocks of code without a name, left alone", 1);
        } else if graph.node(node).origin().is_none() {
            report.count("blocks that a pass made, left alone", 1);
        } else if between.contains(node) {
            report.count("blocks between an exclusive load and its store, left alone", 1);
        } else if graph.begins_with_landing_pad(node) {
            report.count("blocks that begin with a landing pad, left alone", 1);
        } else if in_front_of_tables.contains(node) {
            report.count("blocks between a jump and its table, left alone", 1);
        } else {
            blocks.push(node);
        }
    }
    blocks
}

/// The machine and, for ARM, the lowest architecture of the objects.
fn processor(graph: &Graph) -> String {
    match graph.attributes() {
        Some(attributes) => {
            format!("{} of architecture {} (Tag_CPU_arch)", graph.machine(), attributes.architecture)
        }
        None => graph.machine().to_string(),
    }
}

/// For each block, the dead registers at its start, as bits by [`kisa::Reg`].
fn free_registers(graph: &Graph, blocks: &[NodeId]) -> Vec<u64> {
    let program = GraphProgram::of(graph);
    let summaries = Summaries::of(&program, program.machine(), DataUses::of(graph).constant_memory(graph));
    let liveness = Liveness::of(&program, &summaries);
    blocks.iter().map(|&id| program.block(id).map_or(0, |block| !liveness.before(block))).collect()
}

/// The blocks between a jump and the table that is glued to them. The jump finds its table by distance.
pub(crate) fn in_front_of_tables(graph: &Graph) -> NodeSet {
    let mut all = NodeSet::with_capacity(graph.nodes().len());
    for node in graph.node_ids().filter(|&node| graph.chunk(node).is_some_and(|chunk| !chunk.code)) {
        let block = graph.node(node).glued_to.filter(|&block| graph.block(block).is_some());
        all.extend(block.filter(|&block| graph.node(block).glued_to.is_some()));
    }
    all
}

/// The functions that compute with their own address ([`Graph::knows_own_address`]), as a set of bits.
pub(crate) fn position_independent(graph: &Graph) -> FunctionSet {
    let blocks = graph.node_ids().filter(|&node| graph.knows_own_address(node));
    let functions = blocks.filter_map(|node| graph.block(node).map(|block| block.function));
    let mut all = FunctionSet::with_capacity(graph.functions().len());
    all.extend(functions);
    all
}

/// The functions with a symbol in the output, as a set of bits: only these can be reported to have run. A weak definition
/// that another one overrides has none.
fn named_functions(graph: &Graph) -> FunctionSet {
    let mut named = FunctionSet::with_capacity(graph.functions().len());
    for symbol in graph.symbols().iter().filter(|symbol| !symbol.unlinked) {
        let SymbolPlace::Node(node, 0) = symbol.place else { continue };
        let function = graph.function_of(node).filter(|&id| graph.function(id).entry() == node);
        named.extend(function);
    }
    named
}

/// The functions that run before paging is on, as a set of bits: control reaches them from the hand-written code of the
/// boot sections, other than through a pointer.
pub(crate) fn early_code(graph: &Graph) -> FunctionSet {
    let edges = Edges::of(graph);
    let mut early = FunctionSet::with_capacity(graph.functions().len());
    let is_boot = |&node: &NodeId| {
        let code = graph.chunk(node).is_some_and(|chunk| chunk.code);
        code && BOOT_SECTIONS.contains(&&*graph.section_of(node).name)
    };
    let mut worklist: Vec<NodeId> = graph.node_ids().filter(is_boot).collect();
    let mut chunks = NodeSet::with_capacity(graph.nodes().len());
    while let Some(node) = worklist.pop() {
        let mut enter = |to: NodeId| match &graph.node(to).kind {
            NodeKind::Block(block) if !early.put(block.function) => {
                worklist.extend(&graph.function(block.function).blocks);
            }
            NodeKind::Chunk(chunk) if chunk.code && !chunks.put(to) => worklist.push(to),
            _ => {}
        };
        // Branches of opaque code and of patch sites are references.
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

/// Adds the array to the program, a zero-initialised section of one byte for each block. Returns the symbols from which
/// its bytes are addressed; the first is the name of the array.
fn add_counters(editor: &mut Editor<'_>, layout: StoreLayout, size: u32) -> Vec<SymbolId> {
    let section = editor.add_section(Section::writable(".bss", SHT_NOBITS));
    let node = editor.add_zeros(section, layout.first + size, layout.align);
    let starts = (0..size).step_by(layout.span as usize);
    let symbols = starts.map(|start| {
        let (name, binding, size) = match start {
            0 => (SYMBOL.to_owned(), STB_GLOBAL, size),
            _ => (format!("{SYMBOL}.{start}"), STB_LOCAL, layout.span.min(size - start)),
        };
        let place = SymbolPlace::Node(node, layout.first + start);
        let (size, kind) = (u64::from(size), STT_OBJECT);
        editor.add_symbol(Symbol {
            name,
            file: None,
            binding,
            kind,
            other: 0,
            size,
            thumb: false,
            place,
            unlinked: false,
        })
    });
    symbols.collect()
}
