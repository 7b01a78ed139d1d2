//! Placement of regions in sections of their own, entered through stubs (Chanet et al. 2007, section 4.4).

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcfg::graph::{Contents, Dest, Editor, Graph, Section, Target, Terminator};

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
    let frozen = selection.regions.iter().flat_map(|region| &region.nodes);
    for &node in stubs.iter().chain(frozen) {
        let graph = editor.graph();
        if graph.block(node).is_some() {
            let unit = graph.isa().unit(graph.encoding(node));
            editor.align(node, unit as u32);
        }
    }
    editor.finish();
    // A region enters its own entry directly.
    let mut editor = Editor::new(graph, "freeze");
    for (region, &stub) in selection.regions.iter().zip(&stubs) {
        region.nodes.iter().for_each(|&node| editor.redirect_end(node, stub, region.nodes[0]));
    }
    editor.finish();
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
