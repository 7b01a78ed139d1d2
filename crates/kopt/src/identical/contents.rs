//! Contents of pieces of code, encoded so that equal contents have equal bytes.

use std::ops::Range;

use goblin::elf::section_header::{SHF_MERGE, SHF_WRITE};
use goblin::elf::sym::{STB_WEAK, STT_GNU_IFUNC};
use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Dest, Graph, Life, Ref, Role, Section, SymbolPlace, Target, Terminator};
use kcfg::index::{FunctionId, NodeId, SectionId, TableId};
use kcfg::special::Rule;
use kelf::RelocClass;
use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

/// The contents of a piece of code.
#[derive(PartialEq, Eq, Hash)]
pub struct Contents {
    /// All contents except the pieces that it refers to.
    pub shape: Vec<u8>,
    /// The pieces that it calls and jumps to, in order, as indices.
    pub targets: Vec<usize>,
}

/// Reads pieces of code.
pub struct Reader<'g> {
    graph: &'g Graph,
    edges: &'g Edges<'g>,
    /// For each block, the index of its piece, and its index in the piece.
    places: FxHashMap<NodeId, (usize, usize)>,
    /// For each function, its unwind entry. Blocks of functions with different unwind information are not identical: a
    /// backtrace through them would fail.
    unwinding: FxHashMap<FunctionId, NodeId>,
    /// For each section, the kind of its constants.
    kinds: TiVec<SectionId, Option<Constant>>,
}

/// Kinds of constants, which are compared by their contents.
#[derive(Clone, Copy)]
enum Constant {
    /// Code that is copied over other code.
    Replacement,
    /// A string or constant that the linker merges (`SHF_MERGE`), if it has no relocations.
    Merged,
    /// A literal among code.
    Literal,
}

impl<'g> Reader<'g> {
    /// Returns a reader of these pieces.
    pub fn new(graph: &'g Graph, edges: &'g Edges<'g>, pieces: &[&[NodeId]]) -> Reader<'g> {
        let mut places = FxHashMap::default();
        for (i, piece) in pieces.iter().enumerate() {
            places.extend(piece.iter().enumerate().map(|(number, &block)| (block, (i, number))));
        }
        Reader {
            graph,
            edges,
            places,
            unwinding: graph.unwind_entries().collect(),
            kinds: graph.sections().iter().map(|section| kind(graph, section)).collect(),
        }
    }

    /// Returns the contents of a piece.
    pub fn read(&self, piece: &[NodeId]) -> Contents {
        let graph = self.graph;
        let tables = piece.iter().filter_map(|&block| match graph.block(block)?.end {
            Terminator::Switch(table) => Some(table),
            _ => None,
        });
        let tables: Vec<TableId> = tables.collect();
        let mut writer = Writer { reader: self, tables: &tables, shape: Vec::new(), targets: Vec::new() };
        writer.part(piece.first().copied());
        for &block in piece {
            writer.block(block);
        }
        for &table in &tables {
            let slots = graph.slots(table);
            writer.number(slots.len() as u64);
            slots.iter().for_each(|slot| writer.field(slot, true));
        }
        Contents { shape: writer.shape, targets: writer.targets }
    }

    /// Returns the parts of a block besides its instructions that blocks with a common tail must share: how it ends,
    /// and the kind of its function.
    pub fn read_end(&self, block: NodeId) -> Contents {
        let mut writer = Writer { reader: self, tables: &[], shape: Vec::new(), targets: Vec::new() };
        writer.part(Some(block));
        writer.end(block);
        Contents { shape: writer.shape, targets: writer.targets }
    }

    /// Returns the contents of some bytes of a block.
    pub fn read_bytes(&self, block: NodeId, range: Range<u32>) -> Contents {
        let mut writer = Writer { reader: self, tables: &[], shape: Vec::new(), targets: Vec::new() };
        writer.contents(block, range);
        Contents { shape: writer.shape, targets: writer.targets }
    }

    /// Returns bytes that are equal for constants with equal contents and kind; `None` for anything else.
    fn constant(&self, id: NodeId) -> Option<Vec<u8>> {
        let graph = self.graph;
        let node = graph.node(id);
        let section = &graph.sections()[node.section];
        let is_literal = graph.is_among_code(id);
        let kind = match self.kinds[node.section] {
            _ if is_literal => Constant::Literal,
            Some(Constant::Merged) if !graph.refs_of(id).is_empty() => return None,
            kind => kind?,
        };
        let align = if is_literal { node.align.into() } else { section.align.into() };
        let mut writer = Writer { reader: self, tables: &[], shape: Vec::new(), targets: Vec::new() };
        [kind as u64, align, section.entsize].into_iter().for_each(|number| writer.number(number));
        writer.contents(id, 0..node.size);
        // Here, a branch to a piece means that very piece.
        let Writer { mut shape, targets, .. } = writer;
        targets.iter().for_each(|&target| shape.extend((target as u64).to_le_bytes()));
        Some(shape)
    }
}

/// The kind of constants that a section holds, by its name and flags.
fn kind(graph: &Graph, section: &Section) -> Option<Constant> {
    let is_merged = section.flags & u64::from(SHF_MERGE) != 0 && section.flags & u64::from(SHF_WRITE) == 0;
    match graph.world().rule(&section.name, section.kind, section.flags) {
        _ if is_merged => Some(Constant::Merged),
        Rule::Replacement => Some(Constant::Replacement),
        _ => None,
    }
}

/// Clears the undefined bits of a field: all that a relocation or lowering fills in, but not the rest of an ARM
/// instruction.
fn clear(graph: &Graph, id: NodeId, reference: &Ref, field: &mut [u8]) {
    match (reference.class, reference.role) {
        (RelocClass::Literal, Role::Slot(_)) => field.fill(0),
        (RelocClass::Literal, _) => graph.isa().clear_literal(field, graph.encoding(id)),
        _ if kelf::put_field(graph.machine(), reference.r_type, field, 0).is_err() => field.fill(0),
        _ => {}
    }
}

struct Writer<'r, 'g> {
    reader: &'r Reader<'g>,
    /// The jump tables of the piece.
    tables: &'r [TableId],
    shape: Vec<u8>,
    targets: Vec<usize>,
}

impl Writer<'_, '_> {
    /// Adds a number, seven bits a byte plus a continuation bit, because most numbers are small.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.shape.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.shape.push(number as u8);
    }

    /// Adds whether a piece, given by its first block, belongs to a cold part, which shares the frame of another
    /// function.
    fn part(&mut self, first: Option<NodeId>) {
        let graph = self.reader.graph;
        let function = first.and_then(|block| graph.function_of(block));
        let is_cold = function.is_some_and(|function| graph.function(function).name.contains(".cold"));
        self.number(u64::from(is_cold));
    }

    fn block(&mut self, id: NodeId) {
        let graph = self.reader.graph;
        self.contents(id, 0..graph.node(id).size);
        self.end(id);
        let entries: Vec<NodeId> =
            entries(self.reader.edges, id).into_iter().filter(|&entry| graph.node(entry).live).collect();
        self.number(entries.len() as u64);
        for entry in entries {
            let kind = graph.chunk(entry).and_then(|chunk| match chunk.life {
                Life::Site(kind) => Some(kind),
                Life::Referenced => None,
            });
            self.number(kind.map_or(0, |kind| kind as u64 + 1));
            self.contents(entry, 0..graph.node(entry).size);
        }
    }

    /// Adds the encoding, unwind information and terminator of a block.
    fn end(&mut self, id: NodeId) {
        let graph = self.reader.graph;
        let Some(block) = graph.block(id) else { return };
        self.number(graph.encoding(id) as u64);
        let unwinding = self.reader.unwinding.get(&block.function).copied();
        self.number(u64::from(unwinding.is_some()));
        if let Some(entry) = unwinding {
            self.unwinding(entry);
        }
        match &block.end {
            Terminator::FallThrough(next) => self.leaves(0, Some(*next)),
            Terminator::Jump(dest) => {
                self.leaves(1, None);
                self.dest(dest);
            }
            Terminator::Branch { branch, taken, next } => {
                self.leaves(2, Some(*next));
                self.number(branch.kind as u64);
                self.number(branch.condition.into());
                self.dest(taken);
            }
            Terminator::Call { next } => self.leaves(3, *next),
            Terminator::IndirectCall { next } => self.leaves(4, *next),
            Terminator::Trap { next } => self.leaves(5, *next),
            Terminator::Patched { next } => self.leaves(6, *next),
            // The slots are written after the blocks.
            Terminator::Switch(table) => {
                self.leaves(7, None);
                let own = self.tables.iter().position(|own| own == table);
                self.number(own.map_or(0, |own| own as u64));
            }
            Terminator::IndirectJump => self.leaves(8, None),
            Terminator::Return => self.leaves(9, None),
            Terminator::Unreachable => self.leaves(10, None),
            Terminator::Conditional { next } => self.leaves(11, *next),
        }
    }

    /// Adds the content of an unwind entry, without its function.
    fn unwinding(&mut self, entry: NodeId) {
        let graph = self.reader.graph;
        let mut bytes = graph.bytes_of(entry).to_vec();
        for reference in graph.refs_of(entry) {
            let field = reference.offset as usize..reference.offset as usize + usize::from(reference.width);
            if let Some(field) = bytes.get_mut(field) {
                clear(graph, entry, reference, field);
            }
            if reference.role != Role::Site {
                self.field(reference, false);
            }
        }
        self.shape.extend(bytes);
    }

    fn leaves(&mut self, kind: u64, next: Option<NodeId>) {
        self.number(kind);
        self.number(u64::from(next.is_some()));
        if let Some(next) = next {
            self.target(Target::Node(next), 0, true);
        }
    }

    fn dest(&mut self, dest: &Dest) {
        self.target(dest.target, dest.offset, true);
    }

    /// Adds some of the bytes of a node, and the references in them.
    fn contents(&mut self, id: NodeId, range: Range<u32>) {
        let graph = self.reader.graph;
        let all = graph.bytes_of(id);
        // Zero-initialised data has no bytes.
        let end = all.len().min(range.end as usize);
        let mut bytes = all[end.min(range.start as usize)..end].to_vec();
        let refs = graph.refs_of(id);
        let before = |at: u32| refs.partition_point(|reference| reference.offset < at);
        let refs = &refs[before(range.start)..before(range.end)];
        // The content of a relocated field is undefined.
        for reference in refs {
            let offset = (reference.offset - range.start) as usize;
            if let Some(field) = bytes.get_mut(offset..offset + usize::from(reference.width)) {
                clear(graph, id, reference, field);
            }
        }
        self.number(range.len() as u64);
        self.number(bytes.len() as u64);
        self.shape.extend(bytes);
        self.number(refs.len() as u64);
        for reference in refs {
            let is_way = reference.role == Role::Site || !graph.takes_address(id, reference);
            self.field(&Ref { offset: reference.offset - range.start, ..*reference }, is_way);
        }
    }

    fn field(&mut self, reference: &Ref, is_way: bool) {
        let Ref { offset, r_type, class, width, bias, target, addend, role } = *reference;
        let role = match role {
            Role::Address => 0,
            Role::Callee => 1,
            Role::Site => 2,
            Role::Slot(_) => 3,
        };
        // Slots are compared by their order in the table.
        let offset = if role == 3 { 0 } else { u64::from(offset) };
        for number in [offset, r_type.into(), class as u64, width.into(), bias.into(), role] {
            self.number(number);
        }
        self.target(target, addend, is_way);
    }

    /// Adds the target of a reference. Two pieces count as possibly identical only as targets of control flow
    /// (`is_way`).
    fn target(&mut self, target: Target, addend: i64, is_way: bool) {
        let graph = self.reader.graph;
        let own_name = match target {
            Target::Symbol(symbol) => {
                let symbol = &graph.symbols()[symbol];
                let is_placed = matches!(symbol.place, SymbolPlace::Node(..));
                !is_placed || symbol.binding == STB_WEAK || symbol.kind == STT_GNU_IFUNC
            }
            Target::Node(_) => false,
        };
        let (kind, number, addend) = match (target, graph.resolve(target).filter(|_| !own_name)) {
            (Target::Symbol(symbol), None) => (0, symbol.get(), addend),
            (Target::Node(node), None) => (1, node.get(), addend),
            (_, Some((node, inside))) => {
                let addend = addend + i64::from(inside);
                let piece = self.reader.places.get(&node).filter(|_| is_way).copied();
                let table = self.tables.iter().position(|&table| {
                    let table = &graph.tables()[table];
                    table.chunk == node && i64::from(table.range.start) == addend
                });
                if let Some((piece, block)) = piece {
                    self.targets.push(piece);
                    (2, block, addend)
                } else if let Some(table) = table {
                    (3, table, 0)
                } else if let Some(constant) = self.reader.constant(node) {
                    self.number(4);
                    self.number(addend as u64);
                    self.number(constant.len() as u64);
                    return self.shape.extend(constant);
                } else {
                    (1, node.get(), addend)
                }
            }
        };
        self.number(kind);
        self.number(number as u64);
        self.number(addend as u64);
    }
}

/// The weak-table entries about a block.
pub fn entries(edges: &Edges<'_>, block: NodeId) -> Vec<NodeId> {
    let mut entries = Vec::new();
    edges.for_each(block, |edge| {
        if let (EdgeKind::Site, Destination::Node(entry)) = (edge.kind, edge.to) {
            entries.push(entry);
        }
    });
    entries
}
