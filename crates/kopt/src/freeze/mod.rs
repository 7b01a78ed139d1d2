/*!
Pass `freeze`: moves the code and read-only data that the plan lists to sections of their own (Chanet et al. 2007,
section 4; here by memory page, and with data).

The plan's section `frozen` lists functions, parts of functions, and parts of data sections. The nodes that may freeze
([`closure`]) are moved ([`select`]): code to `.kshrink.frozen.text`, data to `.kshrink.frozen.rodata`, in the order of
the link, so that one source file thaws together. Nodes that every boot uses move to `.kshrink.frozen.text.boot` and
`.kshrink.frozen.rodata.boot`. Linked like any other section, each keeps its behaviour. Equal strings among frozen data
are merged, as a linker merges strings.

With mechanism `stub`, only code freezes, in [`regions`] that are a section each, `.kshrink.frozen.text.NUMBER`. Users
of a region call or jump to its stub ([`stubs`]), a jump to the region in a section that does not freeze.
*/

mod bonds;
pub mod closure;
pub mod marks;
mod reason;
mod region;
pub mod regions;
mod roots;
mod sections;
pub mod select;
mod strings;
pub mod stubs;
mod variables;
pub mod wanted;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcfg::graph::{Editor, Graph, Section};
use kcfg::index::{NodeId, NodeSet};
use kplan::Mechanism;

use crate::layout::hot_cold::move_together;
use crate::layout::invert::invert_branches;
use crate::layout::split::ColdPart;
use crate::layout::{COLD, name_parts};
use crate::near;
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use closure::Closure;
use region::size;
use sections::PART;
use select::Selection;
use wanted::Wanted;

pub use sections::{BOOT_RODATA, BOOT_TEXT, RODATA, TEXT};

/// Pass `freeze`: moves the selected code and data to the frozen sections.
pub struct Freeze;

impl Pass for Freeze {
    fn facts(&self) -> Facts {
        Facts {
            name: "freeze",
            summary: "moves the code and data listed under `frozen` in the plan to sections of their own",
            phase: Phase::Finishes,
            runs: Runs::WithPlan(|plan| plan.frozen.is_some()),
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let plan = context.plan;
        let mut report = PassReport::new(self.name());
        let Some(frozen) = &plan.frozen else {
            report.keep(
                "all code and data",
                "the plan has no section `frozen`; make one with frozen-pack plan",
            );
            return report;
        };
        let closure = match Closure::of(graph) {
            Ok(closure) => closure,
            Err(unmatched) => {
                report.keep("all code and data", unmatched.to_string());
                return report;
            }
        };
        let mut wanted = Wanted::find(graph, frozen);
        let bound = near::bound(graph);
        for node in bound.intersection(&wanted.nodes) {
            report.keep(
                graph.name_of(node),
                "a branch between it and other code reaches only a part of the program",
            );
        }
        wanted.nodes.difference_with(&bound);
        for name in &wanted.unknown {
            report.keep(name, "the plan lists it as frozen, but this program has no such code or data");
        }
        let selection =
            Selection::of(graph, &wanted.nodes, &closure, frozen.mechanism, frozen.minimum.map(u64::from));
        report.count("functions frozen whole", selection.functions);
        report.count("functions frozen in part", selection.parts.len() as u64);
        report.count("code bytes frozen", selection.code_bytes);
        report.count("code bytes left between code that is not frozen", selection.inline_bytes);
        for (reason, &bytes) in &selection.pinned {
            report.count(reason.counted(), bytes);
        }
        for &(node, why) in &selection.whole {
            report.keep(graph.name_of(node), why);
        }
        if frozen.mechanism == Mechanism::Stub {
            report.count("regions", selection.regions.len() as u64);
            stubs::place(graph, &selection, &mut report);
            return report;
        }
        let data = strings::merge(graph, &selection.data, &mut report);
        let data_bytes = data.iter().map(|&node| u64::from(graph.node(node).size)).sum();
        report.count("data bytes frozen", data_bytes);
        let text = u64::from(SHF_ALLOC | SHF_EXECINSTR);
        let functions = selection.code.chunk_by(|&one, &other| move_together(graph, one, other));
        let (boot_code, code) = by_use_at_boot(functions, &wanted.at_boot);
        let pieces = data.chunk_by(|&one, &other| graph.node(other).glued_to == Some(one));
        let (boot_data, data) = by_use_at_boot(pieces, &wanted.at_boot);
        let at_boot = boot_code.iter().chain(&boot_data).map(|&node| size(graph, node)).sum();
        report.count("bytes used at boot", at_boot);
        move_to(graph, BOOT_TEXT, text, &boot_code);
        move_to(graph, TEXT, text, &code);
        move_to(graph, BOOT_RODATA, SHF_ALLOC.into(), &boot_data);
        move_to(graph, RODATA, SHF_ALLOC.into(), &data);
        for part in &selection.parts {
            for nodes in [&part.ordinary, &part.frozen] {
                let inverted = invert_branches(graph, nodes, |node| nodes.contains(&node));
                report.count("branches inverted", inverted);
            }
        }
        if graph.world().is_checked_by_objtool() {
            // objtool recognizes the rest of a function with a frozen entry by its name.
            let stays = selection.parts.iter().filter(|part| part.out_of_line.is_none());
            let stays: Vec<ColdPart> =
                stays.filter_map(|part| ordinary_part(graph, &part.ordinary)).collect();
            name_parts(graph, &stays, COLD);
        }
        let named: Vec<ColdPart> = selection.parts.into_iter().filter_map(|part| part.out_of_line).collect();
        name_parts(graph, &named, PART);
        report
    }
}

/// Returns the part of a function that stays, given its nodes.
fn ordinary_part(graph: &Graph, nodes: &[NodeId]) -> Option<ColdPart> {
    let &first = nodes.iter().find(|&&node| graph.block(node).is_some())?;
    let bytes = nodes.iter().map(|&node| size(graph, node)).sum();
    Some(ColdPart { function: graph.function_of(first)?, first, bytes })
}

/// Splits groups of adjacent nodes: first the groups with a node that is used at boot, then the others.
fn by_use_at_boot<'n>(
    groups: impl Iterator<Item = &'n [NodeId]>,
    at_boot: &NodeSet,
) -> (Vec<NodeId>, Vec<NodeId>) {
    let is_used = |group: &&[NodeId]| group.iter().any(|node| at_boot.contains(*node));
    let (used, others): (Vec<&[NodeId]>, Vec<&[NodeId]>) = groups.partition(is_used);
    (used.concat(), others.concat())
}

/// Moves nodes to a new section.
fn move_to(graph: &mut Graph, name: &str, flags: u64, nodes: &[NodeId]) {
    if nodes.is_empty() {
        return;
    }
    let mut editor = Editor::new(graph, "freeze");
    let section = editor.add_section(Section { flags, ..Section::writable(name, SHT_PROGBITS) });
    editor.place(nodes, section);
    editor.finish();
}
