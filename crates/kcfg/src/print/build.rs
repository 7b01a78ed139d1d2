//! Builds the records of the JSON document from the graph.

use goblin::elf::section_header::{SHF_MERGE, SHF_STRINGS};
use goblin::elf::sym::{STB_LOCAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, STT_TLS};

use super::Printer;
use super::record::{
    BlockRecord, ChunkRecord, EdgeRecord, FunctionRecord, LifeRecord, NodeRecord, OutsideRecord, RefRecord,
    SymbolRecord, TableRecord, To,
};
use crate::edges::Destination;
use crate::graph::{Life, Ref, Role, Symbol, SymbolPlace, Target, Terminator};
use crate::index::{FunctionId, NodeId, SymbolId, TableId};
use crate::special::RootReason;
use crate::summary::count_instructions;

impl Printer<'_> {
    /// Builds the record of a function with its blocks; with the text of their instructions, if requested.
    pub(super) fn function_record(&self, id: FunctionId, text: bool) -> FunctionRecord<'_> {
        let function = self.graph.function(id);
        let (entry, end) = (function.entry(), self.end_of_function(id));
        let place = self.place_of(entry);
        let mut record = FunctionRecord {
            id,
            name: &function.name,
            object: place.object,
            section: place.section,
            offset: place.offset,
            size: end.saturating_sub(place.offset),
            global: self.symbols_in(entry).any(|(at, symbol)| at == 0 && symbol.binding != STB_LOCAL),
            symbols: Vec::new(),
            blocks: Vec::with_capacity(function.blocks.len()),
        };
        for (i, &node) in function.blocks.iter().enumerate() {
            record.symbols.extend(self.symbol_records(node));
            let next = function.blocks.get(i + 1).map_or(end, |&next| self.place_of(next).offset);
            let end = if self.before_data.contains(&node) { self.end_of_block(node).min(next) } else { next };
            record.blocks.extend(self.block_record(node, end, text));
        }
        record
    }

    fn block_record(&self, id: NodeId, end: u32, text: bool) -> Option<BlockRecord<'_>> {
        let block = self.graph.block(id)?;
        let offset = self.place_of(id).offset;
        let table = match block.end {
            Terminator::Switch(table) => Some(table),
            _ => None,
        };
        Some(BlockRecord {
            id,
            offset,
            size: end.saturating_sub(offset),
            instructions: count_instructions(self.graph, id),
            end: end_name(&block.end),
            table,
            fixed: block.is_fixed(),
            root: self.roots_of(id),
            edges: self.edge_records(id),
            refs: self.graph.refs_of(id).iter().map(|reference| self.ref_record(reference)).collect(),
            text: if text { self.instructions(id) } else { Vec::new() },
        })
    }

    /// Builds the record of a chunk; with the text of its instructions, if requested and if it is code.
    pub(super) fn chunk_record(&self, id: NodeId, text: bool) -> Option<ChunkRecord<'_>> {
        let chunk = self.graph.chunk(id)?;
        let place = self.place_of(id);
        let (life, site) = match chunk.life {
            Life::Referenced => (LifeRecord::Referenced, None),
            Life::Site(kind) => (LifeRecord::Site(kind), self.graph.site(id)),
        };
        Some(ChunkRecord {
            id,
            object: place.object,
            section: place.section,
            offset: place.offset,
            size: self.graph.node(id).size,
            code: chunk.code,
            opaque: self.opaque.get(&id).map(|opaque| opaque.reason),
            life,
            site: site.map(|site| self.to(site.target)),
            root: self.roots_of(id),
            string: self.string(id),
            symbols: self.symbol_records(id).collect(),
            edges: self.edge_records(id),
            refs: self.graph.refs_of(id).iter().map(|reference| self.ref_record(reference)).collect(),
            text: if text { self.instructions(id) } else { Vec::new() },
        })
    }

    /// Returns the text of a chunk that is one string of a section that the linker merges.
    pub(super) fn string(&self, id: NodeId) -> Option<&str> {
        let section = self.graph.section_of(id);
        let mergeable = u64::from(SHF_MERGE | SHF_STRINGS);
        let text = self.graph.bytes_of(id).strip_suffix(&[0])?;
        let one = section.flags & mergeable == mergeable && section.entsize == 1 && !text.contains(&0);
        std::str::from_utf8(text).ok().filter(|_| one)
    }

    /// Builds the record of a jump table.
    pub(super) fn table_record(&self, id: TableId) -> TableRecord<'_> {
        let slots = self.graph.slots(id);
        TableRecord {
            id,
            chunk: self.graph.tables[id].chunk,
            offset: slots.first().map_or(0, |slot| slot.offset),
            slots: slots.iter().map(|slot| self.to(slot.target)).collect(),
        }
    }

    /// Builds the record of a symbol, unless the graph defines it.
    pub(super) fn outside_record(&self, id: SymbolId) -> Option<OutsideRecord<'_>> {
        let symbol = &self.graph.symbols[id];
        let (place, value) = match symbol.place {
            SymbolPlace::Node(..) => return None,
            SymbolPlace::Undefined => ("undefined", None),
            SymbolPlace::Common(_) => ("common", None),
            SymbolPlace::Absolute(value) => ("absolute", Some(value)),
        };
        Some(OutsideRecord { name: &symbol.name, place, value, weak: symbol.binding == STB_WEAK })
    }

    /// Builds the record of a node, by name.
    pub(super) fn node_record(&self, id: NodeId) -> NodeRecord {
        NodeRecord { id, name: self.name_of_place(id, 0) }
    }

    fn symbol_records(&self, node: NodeId) -> impl Iterator<Item = SymbolRecord<'_>> {
        let start = self.place_of(node).offset;
        self.symbols_in(node).map(move |(offset, symbol)| SymbolRecord {
            name: &symbol.name,
            offset: start + offset,
            size: symbol.size,
            kind: kind_name(symbol),
            binding: binding_name(symbol),
        })
    }

    fn edge_records(&self, node: NodeId) -> Vec<EdgeRecord<'_>> {
        let mut edges = Vec::new();
        self.edges.for_each(node, |edge| {
            let to = match edge.to {
                Destination::Node(node) => To::Node(node),
                Destination::Unknown => To::Unknown,
                Destination::Outside(symbol) => To::Outside(&self.graph.symbols[symbol].name),
            };
            edges.push(EdgeRecord { kind: edge.kind, to });
        });
        edges
    }

    fn ref_record(&self, reference: &Ref) -> RefRecord<'_> {
        let inside = self.graph.resolve(reference.target).map_or(0, |(_, offset)| i64::from(offset));
        let to = self.to(reference.target);
        let symbol = match (reference.target, to) {
            (Target::Symbol(symbol), To::Node(_)) => Some(self.graph.symbols[symbol].name.as_str()),
            _ => None,
        };
        RefRecord {
            at: reference.offset,
            r_type: kelf::reloc::name(self.graph.machine, reference.r_type),
            to,
            offset: inside + reference.addend,
            symbol,
            table: match reference.role {
                Role::Slot(table) => Some(table),
                _ => None,
            },
        }
    }

    fn to(&self, target: Target) -> To<'_> {
        match (self.graph.resolve_node(target), target) {
            (Some(node), _) | (None, Target::Node(node)) => To::Node(node),
            (None, Target::Symbol(symbol)) => To::Outside(&self.graph.symbols[symbol].name),
        }
    }

    pub(super) fn roots_of(&self, node: NodeId) -> &[RootReason] {
        self.roots.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// Returns the name of a terminator in the document.
fn end_name(end: &Terminator) -> &'static str {
    match end {
        Terminator::FallThrough(_) => "fall-through",
        Terminator::Jump(_) => "jump",
        Terminator::Branch { .. } => "branch",
        Terminator::Call { .. } => "call",
        Terminator::IndirectCall { .. } => "indirect-call",
        Terminator::Switch(_) => "switch",
        Terminator::IndirectJump => "indirect-jump",
        Terminator::Return => "return",
        Terminator::Trap { .. } => "trap",
        Terminator::Patched { .. } => "patched",
        Terminator::Conditional { .. } => "conditional",
        Terminator::Unreachable => "unreachable",
    }
}

fn kind_name(symbol: &Symbol) -> &'static str {
    match symbol.kind {
        STT_FUNC => "function",
        STT_GNU_IFUNC => "indirect-function",
        STT_OBJECT => "object",
        STT_TLS => "thread-local",
        STT_NOTYPE => "untyped",
        _ => "other",
    }
}

fn binding_name(symbol: &Symbol) -> &'static str {
    match symbol.binding {
        STB_LOCAL => "local",
        STB_WEAK => "weak",
        _ => "global",
    }
}
