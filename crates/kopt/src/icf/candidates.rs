//! The functions that may be folded, and whether their addresses are taken.

use goblin::elf::sym::{STB_WEAK, STT_GNU_IFUNC};
use kcfg::edges::Edges;
use kcfg::graph::{Graph, Life, Role, SymbolPlace};
use kcfg::index::{FunctionId, FunctionSet, NodeId};
use kcfg::special::TableKind;

use crate::identical::entries;
use crate::layout;

/// The classes of code that is folded. The kernel does not test whether an address is in the first, and only init code
/// calls the second.
const FOLDED: [&str; 2] = [".text", ".init.text"];

/// A function that may be folded.
pub struct Candidate {
    /// The function.
    pub function: FunctionId,
    /// Its live blocks, in order.
    pub blocks: Vec<NodeId>,
    /// Its code is freed after boot.
    pub is_init: bool,
    /// Something other than a direct call or jump refers to it.
    pub is_address_taken: bool,
}

impl Candidate {
    /// Its first block.
    pub fn entry(&self) -> NodeId {
        self.blocks[0]
    }

    /// Size in bytes, as in the input, with branches.
    pub fn size(&self, graph: &Graph) -> u32 {
        self.blocks.iter().map(|&block| graph.size_with_branch(block)).sum()
    }
}

/// The functions that may be folded, in their order.
pub fn find(graph: &Graph, edges: &Edges<'_>) -> Vec<Candidate> {
    let mut judge = Judge {
        graph,
        excluded: FunctionSet::with_capacity(graph.functions().len()),
        address_taken: FunctionSet::with_capacity(graph.functions().len()),
    };
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        judge.block(id, edges);
        judge.references(id);
    }
    judge.symbols_and_roots();
    let functions = graph.functions().keys();
    functions.filter_map(|function| judge.candidate(function)).collect()
}

struct Judge<'g> {
    graph: &'g Graph,
    /// Functions that are not folded.
    excluded: FunctionSet,
    address_taken: FunctionSet,
}

impl Judge<'_> {
    /// The first live block of a function. If the beginning was removed, others may still jump to the rest.
    fn entry(&self, function: FunctionId) -> Option<NodeId> {
        let mut blocks = self.graph.function(function).blocks.iter();
        blocks.find(|block| self.graph.node(**block).live).copied()
    }

    fn exclude(&mut self, block: NodeId) {
        if let Some(function) = self.graph.function_of(block) {
            self.excluded.insert(function);
        }
    }

    /// Excludes the function of a block that depends on its place.
    fn block(&mut self, id: NodeId, edges: &Edges<'_>) {
        let graph = self.graph;
        if let Some(before) = graph.node(id).glued_to {
            self.exclude(before);
            self.exclude(id);
        }
        let Some(block) = graph.block(id) else { return };
        // Outlined code changes its caller's stack and registers, unlike a function of its own.
        if graph.is_outlined(id) {
            self.exclude(id);
        }
        let entries = entries(edges, id);
        let may_fold = |&entry: &NodeId| match graph.chunk(entry).map(|chunk| chunk.life) {
            // One of two equal entries is kept. It describes the code that is kept, with the same effect.
            Some(Life::Site(kind)) => matches!(
                kind,
                TableKind::ExceptionTable
                    | TableKind::Bug
                    | TableKind::Alternative
                    | TableKind::Paravirt
                    | TableKind::LockPrefix
                    | TableKind::PatchSite
                    | TableKind::RuntimeConst
                    | TableKind::PhysicalOffset
                    | TableKind::SmpAlternative
                    | TableKind::UnwindIndex
                    | TableKind::Annotation
                    | TableKind::DeadEnd
                    | TableKind::FunctionAnnotation
            ),
            _ => false,
        };
        let is_patched = block.is_fixed() && entries.is_empty();
        if is_patched || !entries.iter().all(may_fold) || graph.knows_own_address(id) {
            self.exclude(id);
        }
    }

    /// Records the functions whose addresses a node takes.
    fn references(&mut self, id: NodeId) {
        let graph = self.graph;
        for reference in graph.refs_of(id) {
            let Some((to, inside)) = graph.resolve(reference.target) else { continue };
            let Some(function) = graph.function_of(to) else { continue };
            let is_entry = self.entry(function) == Some(to) && i64::from(inside) + reference.addend == 0;
            match graph.takes_address(id, reference) {
                true if is_entry => self.address_taken.insert(function),
                true => self.excluded.insert(function),
                // The place in a block that an entry describes.
                false if reference.role == Role::Site => {}
                false if i64::from(inside) + reference.addend != 0 => self.excluded.insert(function),
                false => {}
            }
        }
    }

    /// Excludes functions by their symbols and roots: weak ones, which another object of the link may override;
    /// indirect ones, whose address is the value that they return; and functions with a label in the middle, whose
    /// meaning is not known.
    fn symbols_and_roots(&mut self) {
        let graph = self.graph;
        for symbol in graph.symbols() {
            let SymbolPlace::Node(node, offset) = symbol.place else { continue };
            let Some(function) = graph.function_of(node) else { continue };
            let is_entry = offset == 0 && self.entry(function) == Some(node);
            if graph.node(node).live && !is_entry
                || symbol.binding == STB_WEAK
                || symbol.kind == STT_GNU_IFUNC
            {
                self.excluded.insert(function);
            }
        }
        for root in graph.roots() {
            let Some(function) = graph.function_of(root.node) else { continue };
            if self.entry(function) == Some(root.node) {
                self.address_taken.insert(function);
            } else {
                self.excluded.insert(function);
            }
        }
    }

    fn candidate(&self, function: FunctionId) -> Option<Candidate> {
        let graph = self.graph;
        let entry = self.entry(function).filter(|_| !self.excluded.contains(function))?;
        let section = graph.section_of(entry);
        let class = layout::class(graph.world(), &section.name);
        let blocks = graph.function(function).blocks.iter().copied();
        let blocks: Vec<NodeId> = blocks.filter(|&block| graph.node(block).live).collect();
        let together = blocks.iter().all(|&block| graph.node(block).section == graph.node(entry).section);
        (FOLDED.contains(&class) && section.group.is_none() && together).then(|| Candidate {
            function,
            blocks,
            is_init: class == FOLDED[1],
            is_address_taken: self.address_taken.contains(function),
        })
    }
}
