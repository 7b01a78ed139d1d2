//! Comparison of the variables that the references of a graph mean with the variables in the other build.

use std::fmt;
use std::ops::Range;

use goblin::elf::section_header::SHF_MERGE;
use kcfg::graph::{Graph, Origin, Ref, Target};
use kcfg::index::{InputId, NodeId};
use kelf::{Program, SectionIndex};
use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

use crate::twins::{Input, Twins, Variable};

/// A graph of the build whose variables share sections, and the other build.
pub struct Comparison<'c> {
    graph: &'c Graph,
    twins: &'c Twins<'c>,
    /// For each input section of the graph, its section in the objects; `None` if its name is not unique.
    inputs: TiVec<InputId, Option<Input>>,
    /// The cut sections that hold variables with sections of their own in the other build, and the places of the
    /// variables, in order.
    cut: FxHashMap<InputId, Vec<Range<u64>>>,
}

/// The results of a comparison.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// Sections that are cut.
    pub sections: usize,
    /// Live pieces of them.
    pub pieces: usize,
    /// References to the piece with the variable that the other build names.
    pub same: usize,
    /// References that keep two pieces next to each other; the other build names a variable of the first.
    pub behind: usize,
    /// References to a variable without bytes, such as a lock of a kernel for one processor.
    pub empty: usize,
    /// References to something without a section of its own in the other build, such as a jump table, in a piece that
    /// holds more than variables with sections of their own.
    pub shared: usize,
    /// References into other cut sections, whose variables share a section in both builds, because the source names
    /// that section (`__initdata`). They are not compared.
    pub not_told: usize,
    /// References without a counterpart.
    pub unpaired: usize,
    /// References that mean another variable in the other build.
    pub wrong: Vec<String>,
    /// The references of `same`.
    pub found: Vec<(NodeId, usize)>,
}

/// The result for one reference.
enum Finding {
    Same,
    Behind,
    Empty,
    Shared,
    Unpaired,
    Wrong(String),
}

impl<'c> Comparison<'c> {
    /// Prepares the comparison for a graph of `program`, the first of the twins.
    pub fn of(graph: &'c Graph, program: &Program<'_>, twins: &'c Twins<'c>) -> Comparison<'c> {
        let inputs: TiVec<InputId, Option<Input>> = graph
            .inputs()
            .iter()
            .map(|section| {
                let sections = program.object(section.object_index).sections.iter().enumerate();
                let mut named =
                    sections.filter(|(_, other)| !other.is_table() && *other.name == *section.name);
                let (only, None) = (named.next()?, named.next()) else { return None };
                Some((section.object_index, SectionIndex::from(only.0)))
            })
            .collect();
        let mut variables: FxHashMap<Input, Vec<Range<u64>>> = FxHashMap::default();
        for variable in twins.variables() {
            variables.entry(variable.section).or_default().push(variable.range.clone());
        }
        let sections = graph.sections().iter().zip(&inputs).enumerate();
        let cut = sections.filter_map(|(i, (section, input))| {
            let is_cut = section.nodes.len() > 1 && section.flags & u64::from(SHF_MERGE) == 0;
            let mut variables = variables.remove(&input.filter(|_| is_cut)?)?;
            variables.sort_unstable_by_key(|range| (range.start, range.end));
            Some((InputId::from(i), variables))
        });
        let cut = cut.collect();
        Comparison { graph, twins, inputs, cut }
    }

    /// Compares the references of all live nodes.
    pub fn run(&self) -> Outcome {
        let graph = self.graph;
        let live = |id: &NodeId| graph.node(*id).live;
        let mut outcome = Outcome { sections: self.cut.len(), ..Outcome::default() };
        for id in graph.node_ids().filter(live) {
            outcome.pieces += usize::from(self.cut.contains_key(&origin(graph, id).section));
            for (number, reference) in graph.refs_of(id).iter().enumerate() {
                let Some((to, inside)) = graph.resolve(reference.target) else { continue };
                if !self.cut.contains_key(&origin(graph, to).section) {
                    outcome.not_told += usize::from(graph.is_cut_variable(to));
                    continue;
                }
                match self.finding(id, reference, to, inside) {
                    Finding::Same => {
                        outcome.same += 1;
                        outcome.found.push((id, number));
                    }
                    Finding::Behind => outcome.behind += 1,
                    Finding::Empty => outcome.empty += 1,
                    Finding::Shared => outcome.shared += 1,
                    Finding::Unpaired => outcome.unpaired += 1,
                    Finding::Wrong(why) => outcome.wrong.push(why),
                }
            }
        }
        outcome
    }

    fn finding(&self, from: NodeId, reference: &Ref, to: NodeId, inside: u32) -> Finding {
        let (node, piece) = (origin(self.graph, from), origin(self.graph, to));
        let offset = u64::from(node.offset) + u64::from(reference.offset);
        let twin = self.inputs[node.section].and_then(|input| {
            let reloc = self.twins.reloc(input, offset)?;
            self.twins.place(input.0, reloc)
        });
        let Some((own, at)) = twin else { return Finding::Unpaired };
        let address = i64::from(piece.offset) + i64::from(inside) + reference.addend;
        let Some(variable) = self.twins.variable(own) else {
            return match self.is_apart(to) {
                true => self.wrong(from, reference, to, "something that shares its section"),
                false => Finding::Shared,
            };
        };
        let is_here = self.inputs[piece.section] == Some(variable.section)
            && variable.range.start as i64 + at + i64::from(reference.bias) == address;
        if !is_here {
            return self.wrong(from, reference, to, &format!("{} elsewhere", variable.name));
        }
        let start = matches!(reference.target, Target::Node(_)) && reference.addend == 0;
        let before = self.graph.node(to).glued_to.filter(|_| start);
        if variable.range.is_empty() {
            Finding::Empty
        } else if self.contains(to, variable) {
            Finding::Same
        } else if before.is_some_and(|before| self.contains(before, variable)) {
            Finding::Behind
        } else {
            self.wrong(from, reference, to, &variable.name)
        }
    }

    fn contains(&self, piece: NodeId, variable: &Variable) -> bool {
        let bytes = self.bytes(piece);
        self.inputs[origin(self.graph, piece).section] == Some(variable.section)
            && bytes.start <= variable.range.start
            && variable.range.end <= bytes.end
    }

    /// Whether a piece holds only variables with sections of their own in the other build.
    fn is_apart(&self, piece: NodeId) -> bool {
        let bytes = self.bytes(piece);
        let mut at = bytes.start;
        for variable in &self.cut[&origin(self.graph, piece).section] {
            if variable.start <= at && variable.end > at {
                at = variable.end;
            }
        }
        at >= bytes.end
    }

    fn bytes(&self, piece: NodeId) -> Range<u64> {
        let start = u64::from(origin(self.graph, piece).offset);
        start..start + u64::from(self.graph.node(piece).size)
    }

    fn wrong(&self, from: NodeId, reference: &Ref, to: NodeId, meant: &str) -> Finding {
        let (graph, piece) = (self.graph, self.bytes(to));
        Finding::Wrong(format!(
            "{}: the reference at byte {} leads to {} ({:#x}..{:#x}), and means {meant}",
            graph.name_of(from),
            reference.offset,
            graph.name_of(to),
            piece.start,
            piece.end
        ))
    }
}

/// The place in the input of a lifted node.
pub fn origin(graph: &Graph, node: NodeId) -> &Origin {
    graph.node(node).origin().expect("lifted from the input")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sections in {} pieces; {} references to the same variable, {} to one and its neighbour, {} to \
             one without bytes, {} to a piece that shares its section, {} without a counterpart; {} into sections of both builds",
            self.sections,
            self.pieces,
            self.same,
            self.behind,
            self.empty,
            self.shared,
            self.unpaired,
            self.not_told
        )
    }
}
