//! Placement of regions in sections of their own, entered through stubs (Chanet et al. 2007, section 4.4).

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcfg::graph::{Block, Contents, Dest, Editor, Graph, NodeKind, Section, Target, Terminator};
use kcfg::index::NodeId;

use super::sections::{PART, TEXT};
use super::select::Selection;
use crate::layout::invert::invert_branches;
use crate::layout::name_parts;
use crate::layout::split::ColdPart;
use crate::report::PassReport;

/// The section of the stubs, in the order of the regions. Each stub is a jump in its long form, after an instruction
/// that saves the link register where a call changes that register.
pub const STUBS: &str = ".text.unlikely.kshrink";

/// Moves the selected regions, and redirects all uses of their entries to stubs.
pub fn place(graph: &mut Graph, selection: &Selection, report: &mut PassReport) {
    if selection.regions.is_empty() {
        return;
    }
    let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let mut editor = Editor::new(graph, "freeze");
    let section = editor.add_section(Section { flags, ..Section::writable(STUBS, SHT_PROGBITS) });
    let mut stubs = Vec::new();
    for region in &selection.regions {
        let entry = region.nodes[0];
        let end = Terminator::Jump(Dest { target: Target::Node(entry), offset: 0 });
        let mut bytes = Vec::new();
        editor.graph().isa().encode_push_link(editor.graph().encoding(entry), &mut bytes);
        let stub = editor.add_block(entry, Contents { bytes, refs: Vec::new() }, end);
        editor.replace_uses(entry, stub);
        stubs.push(stub);
    }
    editor.place(&stubs, section);
    for (number, region) in selection.regions.iter().enumerate() {
        let name = format!("{TEXT}.{number}");
        let section = editor.add_section(Section { flags, ..Section::writable(&name, SHT_PROGBITS) });
        editor.place(&region.nodes, section);
    }
    editor.finish();
    let frozen = selection.regions.iter().flat_map(|region| &region.nodes);
    for &node in stubs.iter().chain(frozen) {
        if graph.block(node).is_none() {
            continue;
        }
        let unit = graph.isa().unit(graph.encoding(node));
        graph.nodes[node].align = unit as u32;
    }
    for (region, &stub) in selection.regions.iter().zip(&stubs) {
        enter_directly(graph, &region.nodes, stub);
    }
    let parts = selection.parts.iter().map(|part| &part.ordinary);
    for nodes in parts.chain(selection.regions.iter().map(|region| &region.nodes)) {
        let inverted = invert_branches(graph, nodes, |node| nodes.contains(&node));
        report.count("branches inverted", inverted);
    }
    let named: Vec<ColdPart> = selection
        .regions
        .iter()
        .filter_map(|region| {
            let first = region.nodes[0];
            Some(ColdPart { function: graph.function_of(first)?, first, bytes: region.bytes })
        })
        .collect();
    name_parts(graph, &named, PART);
}

/// Redirects the branches of a region to its own entry from the stub to the entry.
fn enter_directly(graph: &mut Graph, nodes: &[NodeId], stub: NodeId) {
    let entry = nodes[0];
    for &node in nodes {
        let NodeKind::Block(Block { end, .. }) = &mut graph.nodes[node].kind else { continue };
        if let Terminator::Jump(to) | Terminator::Branch { taken: to, .. } = end
            && to.target == Target::Node(stub)
        {
            to.target = Target::Node(entry);
        }
        if let Some(next) = end.next_mut().filter(|next| **next == stub) {
            *next = entry;
        }
    }
}
