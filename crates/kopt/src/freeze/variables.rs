//! The part of a data node that a reference means: the variable at its address, found by symbols.

use std::ops::Range;

use goblin::elf::sym::STT_OBJECT;
use kcfg::graph::{Graph, Ref, Role, SymbolPlace};
use kcfg::index::NodeId;
use kisa::MemoryOperand;
use rustc_hash::FxHashMap;

/// The variables of a graph.
pub struct Variables<'g> {
    graph: &'g Graph,
    /// For each node, the byte ranges of its variables, in rising order.
    by_node: FxHashMap<NodeId, Vec<Range<u32>>>,
}

/// A part of a data node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The node.
    pub node: NodeId,
    /// The bytes from its start.
    pub range: Range<u32>,
}

impl<'g> Variables<'g> {
    /// Finds the variables of a graph by their symbols.
    pub fn of(graph: &'g Graph) -> Variables<'g> {
        let mut by_node: FxHashMap<NodeId, Vec<Range<u32>>> = FxHashMap::default();
        for symbol in graph.symbols().iter().filter(|symbol| symbol.kind == STT_OBJECT) {
            if let SymbolPlace::Node(node, start) = symbol.place
                && let Ok(size) = u32::try_from(symbol.size)
            {
                by_node.entry(node).or_default().push(start..start.saturating_add(size));
            }
        }
        by_node.values_mut().for_each(|ranges| ranges.sort_unstable_by_key(|range| (range.start, range.end)));
        Variables { graph, by_node }
    }

    /// The references of code; a literal that it reads is replaced by the references of the literal.
    pub fn references(&self, code: NodeId) -> impl Iterator<Item = &'g Ref> {
        let graph = self.graph;
        graph.refs_of(code).iter().flat_map(move |reference| {
            let literal = graph.resolve_node(reference.target).filter(|&to| graph.is_among_code(to));
            literal.map_or(std::slice::from_ref(reference), |literal| graph.refs_of(literal))
        })
    }

    /// Returns the data that code refers to, with the part that each reference means. An access to memory at a fixed
    /// address means the accessed bytes. Any other address means its variable, or the whole node without a symbol.
    pub fn of_code(&self, code: NodeId) -> Vec<Part> {
        let fixed = fixed_accesses(self.graph, code);
        self.references(code)
            .filter_map(|reference| {
                let (node, at) = self.place(reference)?;
                let range = match fixed.get(&reference.offset) {
                    Some(&width) => u32::try_from(at).ok().map(|at| at..at + u32::from(width)),
                    None => self.variable(node, at),
                };
                Some(Part { node, range: range.unwrap_or_else(|| self.whole(node)) })
            })
            .collect()
    }

    /// The data whose address a part holds.
    pub fn of_part<'p>(&'p self, part: &'p Part) -> impl Iterator<Item = Part> + 'p {
        self.addresses(part).filter_map(|reference| {
            let (node, at) = self.place(reference)?;
            Some(Part { node, range: self.variable(node, at).unwrap_or_else(|| self.whole(node)) })
        })
    }

    /// The code whose address a part holds.
    pub fn code_of_part<'p>(&'p self, part: &'p Part) -> impl Iterator<Item = NodeId> + 'p {
        let targets = self.addresses(part).filter_map(|reference| self.graph.resolve_node(reference.target));
        targets.filter(|&to| self.graph.is_code(to))
    }

    /// The references in a part that are addresses.
    fn addresses<'p>(&'p self, part: &'p Part) -> impl Iterator<Item = &'g Ref> + 'p {
        let refs = self.graph.refs_of(part.node).iter();
        refs.filter(|reference| reference.role == Role::Address && part.range.contains(&reference.offset))
    }

    /// Returns the data node that a reference leads to, and the offset in bytes in it.
    fn place(&self, reference: &Ref) -> Option<(NodeId, i64)> {
        let (node, inside) = self.graph.resolve(reference.target)?;
        (!self.graph.is_code(node)).then(|| (node, i64::from(inside) + reference.addend))
    }

    /// Returns the variable that contains an offset in bytes. `None` where compilers reach several variables from the
    /// address of one.
    fn variable(&self, node: NodeId, at: i64) -> Option<Range<u32>> {
        if self.graph.machine().target().has_section_anchors {
            return None;
        }
        let at = u32::try_from(at).ok()?;
        let ranges = self.by_node.get(&node)?;
        let before = ranges.partition_point(|range| range.start <= at);
        ranges[..before].iter().rev().find(|range| range.contains(&at)).cloned()
    }

    fn whole(&self, node: NodeId) -> Range<u32> {
        0..self.graph.node(node).size
    }
}

/// Returns the memory accesses of code whose address is a field alone: their widths in bytes, by the byte offset of the
/// field.
fn fixed_accesses(graph: &Graph, code: NodeId) -> FxHashMap<u32, u8> {
    let instructions = graph.instructions(code).unwrap_or_default();
    let fixed = instructions.iter().filter_map(|instruction| {
        let MemoryOperand { address, width, displacement_offset } =
            graph.isa().memory_operand(&instruction.inst)?;
        let is_whole = address.base.is_none() && address.index.is_none() && width > 0;
        let field = instruction.offset + u32::from(displacement_offset?);
        is_whole.then_some((field, width))
    });
    fixed.collect()
}
