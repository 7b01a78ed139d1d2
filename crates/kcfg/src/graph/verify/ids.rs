//! Ids and ranges of a graph: each must be within the list that it indexes.

use std::ops::Range;

use super::{Broken, Verdict, Verifier};
use crate::graph::{Counters, Dest, Node, NodeKind, Role, SymbolPlace, Target, Terminator};
use crate::index::{NodeId, TableId};

/// The owner of an id or a range that is checked. It is described by its kind, because finding the name of a node
/// requires valid ids.
struct Owner<'g> {
    /// The node that an error names: the owner if it is a node, else a node that the owner refers to.
    node: NodeId,
    /// Its kind and, except for nodes, its name.
    name: &'g str,
}

impl Verifier<'_> {
    /// Every id is the number of an entry of its list, every node's range of bytes or references is within the arena,
    /// and every function has a block.
    pub(super) fn ids(&self) -> Verdict {
        let graph = self.graph;
        for (id, node) in graph.nodes.iter_enumerated() {
            self.ids_of_node(id, node)?;
        }
        for section in &graph.sections {
            for &node in &section.nodes {
                self.node_id(&Owner { node, name: &section.name }, "lists node", node)?;
            }
            let owner =
                Owner { node: section.nodes.first().copied().unwrap_or(NodeId(0)), name: &section.name };
            if let Some(symbol) = section.group {
                self.id(&owner, "group of symbol", symbol, graph.symbols.len())?;
            }
            if let Some(order) = section.order {
                self.id(&owner, "ordered by section", order, graph.sections.len())?;
            }
        }
        for function in &graph.functions {
            for &node in &function.blocks {
                self.node_id(&Owner { node, name: &function.name }, "lists node", node)?;
            }
            self.id(
                &Owner { node: NodeId(0), name: &function.name },
                "begins with block",
                0usize,
                function.blocks.len(),
            )?;
        }
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, _) = symbol.place {
                self.node_id(&Owner { node, name: &symbol.name }, "symbol in node", node)?;
            }
        }
        for table in &graph.tables {
            self.node_id(&Owner { node: table.chunk, name: "a jump table" }, "in node", table.chunk)?;
        }
        for root in &graph.roots {
            self.node_id(&Owner { node: root.node, name: "a root" }, "is node", root.node)?;
        }
        for opaque in &graph.opaque {
            self.node_id(&Owner { node: opaque.node, name: &opaque.name }, "is node", opaque.node)?;
        }
        if let Some(Counters { symbol, blocks }) = &graph.counters {
            let owner = |node| Owner { node, name: "the counters" };
            self.id(&owner(NodeId(0)), "at symbol", *symbol, graph.symbols.len())?;
            blocks.iter().try_for_each(|&node| self.node_id(&owner(node), "count node", node))?;
        }
        Ok(())
    }

    fn ids_of_node(&self, id: NodeId, node: &Node) -> Verdict {
        let graph = self.graph;
        let name = if matches!(node.kind, NodeKind::Block(_)) { "a block" } else { "a chunk" };
        let owner = Owner { node: id, name };
        self.id(&owner, "in section", node.section, graph.sections.len())?;
        if let Some(origin) = node.origin() {
            self.id(&owner, "from input section", origin.section, graph.inputs.len())?;
        }
        self.range(&owner, "bytes", &node.bytes, graph.bytes.len())?;
        self.range(&owner, "padding", &node.padding, graph.bytes.len())?;
        self.range(&owner, "references", &node.refs, graph.refs.len())?;
        if let Some(before) = node.glued_to {
            self.node_id(&owner, "glued to node", before)?;
        }
        if let NodeKind::Chunk(chunk) = &node.kind
            && let Some(function) = chunk.function
        {
            self.id(&owner, "among the instructions of function", function, graph.functions.len())?;
        }
        if let NodeKind::Block(block) = &node.kind {
            self.id(&owner, "of function", block.function, graph.functions.len())?;
            self.ids_of_terminator(&owner, &block.end)?;
        }
        for reference in graph.refs_of(id) {
            self.target(&owner, reference.target)?;
            if let Role::Slot(table) = reference.role {
                self.table(&owner, table)?;
            }
        }
        Ok(())
    }

    fn ids_of_terminator(&self, owner: &Owner<'_>, end: &Terminator) -> Verdict {
        let next = |node: NodeId| self.node_id(owner, "leads to node", node);
        let dest = |dest: &Dest| self.target(owner, dest.target);
        match end {
            Terminator::FallThrough(behind) => next(*behind),
            Terminator::Jump(to) => dest(to),
            Terminator::Branch { taken, next: behind, .. } => {
                dest(taken)?;
                next(*behind)
            }
            Terminator::Call { next: behind }
            | Terminator::IndirectCall { next: behind }
            | Terminator::Trap { next: behind }
            | Terminator::Patched { next: behind }
            | Terminator::Conditional { next: behind } => behind.map_or(Ok(()), next),
            Terminator::Switch(table) => self.table(owner, *table),
            Terminator::IndirectJump | Terminator::Return | Terminator::Unreachable => Ok(()),
        }
    }

    fn target(&self, owner: &Owner<'_>, target: Target) -> Verdict {
        match target {
            Target::Node(node) => self.node_id(owner, "refers to node", node),
            Target::Symbol(symbol) => self.id(owner, "refers to symbol", symbol, self.graph.symbols.len()),
        }
    }

    fn table(&self, owner: &Owner<'_>, table: TableId) -> Verdict {
        self.id(owner, "uses jump table", table, self.graph.tables.len())
    }

    fn node_id(&self, owner: &Owner<'_>, what: &str, node: NodeId) -> Verdict {
        self.id(owner, what, node, self.graph.nodes.len())
    }

    /// Checks that an id, described by `what`, is below the length of its list.
    fn id(&self, owner: &Owner<'_>, what: &str, id: impl Into<usize>, length: usize) -> Verdict {
        let id = id.into();
        match id < length {
            true => Ok(()),
            false => Err(owner.broken(format!("{what} {id}, of {length} that there are"))),
        }
    }

    fn range(&self, owner: &Owner<'_>, what: &str, range: &Range<u32>, length: usize) -> Verdict {
        match range.start <= range.end && range.end as usize <= length {
            true => Ok(()),
            false => Err(owner.broken(format!("{what} {range:?}, of {length} that there are"))),
        }
    }
}

impl Owner<'_> {
    fn broken(&self, problem: String) -> Broken {
        Broken { node: self.node, name: self.name.to_owned(), problem }
    }
}
