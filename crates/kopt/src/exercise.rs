/*!
Pass `exercise`: a test of the graph's editor, which makes every kind of edit without changing the program's behaviour.

- Every block is split after its first instruction.
- Every function gets a block before its entry. For every third function this block stores 1 to a byte in a data
  section of its own, for the others it does nothing.
- Every third function moves to a new section of the same name.
- Before that, dead flags and up to two dead registers ([`kflow::Liveness`]) are overwritten at the start of each
  block.

The pass respects the limits of all passes: it does not edit patch sites, and entries that are glued to the node before
them or patched by the function tracer. Code that runs before paging is on (see pass [`instrument`]) gets no store and
is not moved. Nothing is overwritten in position-independent functions, or between a jump and its table.
*/

mod overwrite;

use goblin::elf::section_header::SHT_PROGBITS;
use kcfg::graph::{Contents, Editor, Graph, Section, Target, Terminator};
use kcfg::index::{FunctionId, FunctionSet};
use kisa::Inst;

use crate::instrument;
use crate::near;
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;

/// One function in this many is moved.
const EVERY: usize = 3;

/// Minimum size, in bytes, of the `nop`s before functions that are not moved.
const NOPS: usize = 3;

/// Pass `exercise`: makes the edits.
pub struct Exercise;

impl Pass for Exercise {
    fn facts(&self) -> Facts {
        Facts {
            name: "exercise",
            summary: "edits all code without changing its behaviour, to test kshrink",
            phase: Phase::Finishes,
            runs: Runs::IfNamed,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        let early = instrument::early_code(graph);
        report.count("blocks split", split_blocks(graph));
        overwrite::overwrite(graph, &mut report);
        let functions: Vec<FunctionId> =
            graph.functions().keys().filter(|&id| can_begin_otherwise(graph, id)).collect();
        let mut excluded = early;
        excluded.union_with(&glued_functions(graph));
        let bound = near::bound(graph);
        excluded.extend(bound.iter().filter_map(|node| graph.function_of(node)));
        let (moving, staying): (Vec<_>, Vec<_>) = functions
            .into_iter()
            .partition(|&id| id.get() % EVERY == 0 && !excluded.contains(id) && can_move(graph, id));
        report.count("blocks added", (moving.len() + staying.len()) as u64);
        report.count("functions moved", moving.len() as u64);
        add_blocks(graph, &moving, &staying);
        move_functions(graph, &moving);
        report
    }
}

/// Splits blocks after their first instructions; returns their number.
fn split_blocks(graph: &mut Graph) -> u64 {
    let mut at = Vec::new();
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        if graph.block(id).is_none_or(|block| block.is_fixed()) {
            continue;
        }
        let mut instructions = graph.decode(id).flatten();
        let Some(Inst { insn: first, .. }) = instructions.next() else { continue };
        // Instructions after an `it` remain with it.
        if first.predicates.conditions().is_empty() && instructions.next().is_some() {
            at.push((id, u32::from(first.len)));
        }
    }
    let mut editor = Editor::new(graph, "exercise");
    for &(id, first) in &at {
        editor.split_block(id, first);
    }
    editor.finish();
    at.len() as u64
}

/// Whether a block can be placed before a function. It cannot where the function tracer patches the entry, because the
/// kernel ignores a site that is not at the function's symbol (`test_for_valid_rec` in kernel/trace/ftrace.c), or where
/// computed calls must find a landing pad.
pub(crate) fn can_begin_otherwise(graph: &Graph, id: FunctionId) -> bool {
    let entry = graph.function(id).entry();
    let (node, is_patched) = (graph.node(entry), graph.block(entry).is_none_or(|block| block.is_fixed()));
    node.live && node.glued_to.is_none() && !is_patched && !graph.begins_with_landing_pad(entry)
}

/// The functions that are glued to other code, as a set of bits.
fn glued_functions(graph: &Graph) -> FunctionSet {
    let mut glued = FunctionSet::with_capacity(graph.functions().len());
    for id in graph.node_ids() {
        let Some(before) = graph.node(id).glued_to else { continue };
        let (before, own) = (graph.function_of(before), graph.function_of(id));
        if before != own {
            glued.extend([before, own].into_iter().flatten());
        }
    }
    glued
}

/// Whether a function that is not glued to other code can be moved to another section: it is in one section outside of
/// a COMDAT group, and does not depend on its own address.
fn can_move(graph: &Graph, id: FunctionId) -> bool {
    let function = graph.function(id);
    let section = graph.node(function.entry()).section;
    graph.sections()[section].group.is_none()
        && function
            .blocks
            .iter()
            .all(|&block| graph.node(block).section == section && !graph.knows_own_address(block))
}

/// Adds the blocks before functions.
fn add_blocks(graph: &mut Graph, moving: &[FunctionId], staying: &[FunctionId]) {
    let isa = graph.isa();
    // Without an alignment of 1 there is no store: bytes in sections of their own would be mostly padding.
    let stores = graph.store_layout().is_some_and(|layout| layout.align == 1);
    let mut editor = Editor::new(graph, "exercise");
    for &id in staying {
        let mut bytes = Vec::new();
        let entry = editor.graph().function(id).entry();
        let encoding = editor.graph().encoding(entry);
        isa.encode_nops(encoding, NOPS.next_multiple_of(isa.unit(encoding)), &mut bytes);
        add_block(&mut editor, id, Contents { bytes, refs: Vec::new() });
    }
    for &id in moving {
        let section = editor.add_section(Section::writable(".data", SHT_PROGBITS));
        let byte = editor.add_data(section, Contents { bytes: vec![0], refs: Vec::new() }, 1);
        if stores {
            let encoding = editor.graph().encoding(editor.graph().function(id).entry());
            let (store, _) = Contents::store_one(isa, encoding, 0, Target::Node(byte), 0);
            add_block(&mut editor, id, store);
        }
    }
    editor.finish();
}

fn add_block(editor: &mut Editor<'_>, function: FunctionId, contents: Contents) {
    let entry = editor.graph().function(function).entry();
    let block = editor.add_block(entry, contents, Terminator::FallThrough(entry));
    editor.replace_uses(entry, block);
}

/// Puts each function into a section of its own.
fn move_functions(graph: &mut Graph, functions: &[FunctionId]) {
    let owned = graph.owned();
    let mut editor = Editor::new(graph, "exercise");
    for &id in functions {
        // The literals of a function may be elsewhere.
        let old = editor.graph().section_of(editor.graph().function(id).entry());
        let section = editor.add_section(Section { nodes: Vec::new(), ..old.clone() });
        editor.place(&owned[id], section);
    }
    editor.finish();
}
