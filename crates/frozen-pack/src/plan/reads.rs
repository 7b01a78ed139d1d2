//! Read-only data that a trace saw being read.

use std::path::Path;

use kcfg::graph::Graph;
use kcfg::index::{InputId, NodeId, NodeSet};
use kelf::{Functions, ObjectIndex, Program, SectionIndex};
use kopt::freeze::select::holds_frozen_data;
use kplan::{Coverage, Reads};
use rustc_hash::FxHashMap;

use super::places::Places;

/// The read-only data with a known place in the kernel that ran, as sets of nodes.
#[derive(Default)]
pub struct ReadData {
    /// Data that was read.
    pub read: NodeSet,
    /// Data that was not read.
    pub unread: NodeSet,
    /// The reason why the coverage could not be used.
    pub remark: Option<String>,
}

impl ReadData {
    /// Finds the data of a graph in the coverage of the kernel that was linked from its program, at `vmlinux`.
    ///
    /// A coverage cannot be used for data if one of its runs does not record reads, or is of another link: then the
    /// reads of that run are not known.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub fn of(
        graph: &Graph,
        program: &Program<'_>,
        coverage: &Coverage,
        vmlinux: &Path,
    ) -> Result<ReadData, kelf::Error> {
        let mut found = ReadData::default();
        if coverage.runs.iter().all(|run| run.reads.is_none()) {
            return Ok(found);
        }
        let build_id = Functions::read(vmlinux)?.build_id;
        let mut reads: Vec<&Reads> = Vec::new();
        for run in &coverage.runs {
            let same = build_id.is_some() && run.build_id == build_id;
            match &run.reads {
                Some(of_run) if same => reads.push(of_run),
                of_run => {
                    let problem = match of_run {
                        Some(_) => "is of another link of the kernel",
                        None => "does not say what data was read",
                    };
                    found.remark = Some(format!(
                        "the trace {} {problem}; data that is named by code that ran does not freeze",
                        run.trace
                    ));
                    return Ok(found);
                }
            }
        }
        let bytes = kelf::read_linked(vmlinux)?;
        let places = Places::of(program, &bytes);
        let inputs = inputs(graph, program);
        for node in graph.node_ids().filter(|&node| holds_frozen_data(graph, graph.section_of(node))) {
            let Some(origin) = graph.node(node).origin() else { continue };
            let Some(&input) = inputs.get(&origin.section) else { continue };
            let (offset, size) = (u64::from(origin.offset), u64::from(origin.size));
            let Some(address) = places.address(input, offset, size) else { continue };
            let is_unread = reads.iter().all(|reads| reads.are_unread(address, size));
            found.note(node, is_unread);
        }
        Ok(found)
    }

    fn note(&mut self, node: NodeId, is_unread: bool) {
        let set = if is_unread { &mut self.unread } else { &mut self.read };
        set.extend([node]);
    }
}

/// Maps each input section of a graph to the section of its object. Both have an object's sections in the same order,
/// and the graph leaves some out.
fn inputs(graph: &Graph, program: &Program<'_>) -> FxHashMap<InputId, (ObjectIndex, SectionIndex)> {
    let mut next: FxHashMap<ObjectIndex, usize> = FxHashMap::default();
    let mut found = FxHashMap::default();
    for (id, input) in graph.inputs().iter_enumerated() {
        let next = next.entry(input.object_index).or_default();
        let sections = &program.object(input.object_index).sections;
        let is_it =
            |&at: &usize| sections[at].name == &*input.name && sections[at].size == u64::from(input.size);
        if let Some(at) = (*next..sections.len()).find(is_it) {
            found.insert(id, (input.object_index, SectionIndex::from(at)));
            *next = at + 1;
        }
    }
    found
}
