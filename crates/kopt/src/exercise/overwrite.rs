//! Overwriting dead registers and flags, to show that they are dead.

use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::{Block, Contents, Editor, Graph};
use kcfg::index::NodeId;
use kflow::{FLAGS, FunctionIndex, Liveness, Program, Summaries, bit};
use kisa::{Encoding, Reg, Rewritable};

use crate::instrument;
use crate::report::PassReport;

/// Maximum number of registers overwritten at the start of one block, to limit the growth of the program.
const MAX_REGISTERS: usize = 2;

/// Overwrites dead registers and flags at the start of every block that may change.
pub(super) fn overwrite(graph: &mut Graph, report: &mut PassReport) {
    let isa = graph.isa();
    let fronts: Vec<(NodeId, Vec<u8>)> = {
        let program = GraphProgram::of(graph);
        let summaries =
            Summaries::of(&program, program.machine(), DataUses::of(graph).constant_memory(graph));
        let liveness = Liveness::of(&program, &summaries);
        let functions = (0..program.functions()).map(FunctionIndex::from);
        let known = functions.filter(|&function| summaries.is_known(function)).count();
        report.count("functions whose calls are known", known as u64);
        let relative = instrument::position_independent(graph);
        let in_front_of_tables = instrument::in_front_of_tables(graph);
        let can_change = |&id: &NodeId| {
            let changes = |block: &Block| !block.is_fixed() && !relative.contains(block.function);
            graph.block(id).is_some_and(changes)
                && !in_front_of_tables.contains(id)
                && !graph.begins_with_landing_pad(id)
        };
        let blocks = graph.node_ids().filter(|&id| graph.node(id).live).filter(can_change);
        let fronts = blocks.filter_map(|id| {
            let dead = !liveness.before(program.block(id)?);
            let front = front(isa, graph.encoding(id), dead, id.get(), report);
            (!front.is_empty()).then_some((id, front))
        });
        fronts.collect()
    };
    report.count("blocks with overwrites in front", fronts.len() as u64);
    let mut editor = Editor::new(graph, "exercise");
    for (id, bytes) in fronts {
        editor.prepend(id, Contents { bytes, refs: Vec::new() });
    }
    editor.finish();
}

/// Returns instructions that overwrite some dead registers and flags; `number` selects the registers.
fn front(
    isa: &dyn Rewritable,
    encoding: Encoding,
    dead: u64,
    number: usize,
    report: &mut PassReport,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if dead & FLAGS != 0 {
        isa.encode_overwrite_flags(encoding, &mut bytes);
        report.count("flags overwritten", 1);
    }
    let count = isa.registers();
    let registers = (0..count).map(|index| Reg(((index + number) % count) as u8));
    for reg in registers.filter(|&reg| dead & bit(reg) != 0).take(MAX_REGISTERS) {
        report.count("registers overwritten", isa.encode_overwrite(encoding, reg, &mut bytes).into());
    }
    bytes
}
