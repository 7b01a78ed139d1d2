//! Which data section comes after which, so that little is lost to alignment between them.
//!
//! The linker puts sections of one name behind one another in the order in which the object has them. Nothing
//! depends on that order for plain data. The rule is greedy: next comes the most aligned section that fits
//! without padding, and only if there is none, the most aligned of all. Sections that are aligned to more
//! than a cache line come first where the image begins their kind on a page (zero-initialised data), and
//! last where it does not.

use goblin::elf::section_header::{SHF_MERGE, SHT_NOBITS};
use indexmap::IndexMap;

use super::relax::Placed;
use crate::graph::{Graph, Section};
use crate::index::SectionId;
use crate::special::{Rule, output_name, rule};

/// The largest alignment in bytes that the place where a run of sections begins can be trusted with.
const CACHE_LINE: u32 = 64;

/// Reorders plain data among itself; everything else keeps its place.
pub(super) fn order(graph: &Graph, placed: &mut Vec<(SectionId, Placed)>) {
    let section = |id: SectionId| &graph.sections[id.get()];
    let (plain, others) = std::mem::take(placed).into_iter().partition(|(id, _)| is_plain(section(*id)));
    *placed = others;
    let plain: Vec<(SectionId, Placed)> = plain;
    let mut runs: IndexMap<&str, Vec<(SectionId, Placed)>> = IndexMap::new();
    for (id, nodes) in plain {
        runs.entry(output_name(&section(id).name)).or_default().push((id, nodes));
    }
    for run in runs.into_values() {
        let zero = section(run[0].0).kind == SHT_NOBITS;
        let (wide, narrow): (Vec<_>, Vec<_>) =
            run.into_iter().partition(|(id, _)| section(*id).align > CACHE_LINE);
        let parts = if zero { [wide, narrow] } else { [narrow, wide] };
        for part in parts {
            pack(graph, part, placed);
        }
    }
}

fn pack(graph: &Graph, mut rest: Vec<(SectionId, Placed)>, out: &mut Vec<(SectionId, Placed)>) {
    let align = |id: SectionId| graph.sections[id.get()].align.max(1);
    // The most aligned last, so that it is the first to be found from behind.
    rest.sort_by_key(|(id, nodes)| (align(*id), nodes.size % align(*id) == 0));
    let mut at = 0u32;
    while !rest.is_empty() {
        let fits = rest.iter().rposition(|(id, _)| at % align(*id) == 0);
        let (id, nodes) = rest.remove(fits.unwrap_or(rest.len() - 1));
        at = at.next_multiple_of(align(id)) + nodes.size;
        out.push((id, nodes));
    }
}

fn is_plain(section: &Section) -> bool {
    rule(&section.name, section.kind, section.flags) == Rule::Data
        && section.flags & u64::from(SHF_MERGE) == 0
}
