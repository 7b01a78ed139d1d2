/*!
Edits of a graph.

An [`Editor`] adds, splits and rewrites nodes for one pass. Such an edit moves bytes to another offset or into another
node. The editor records each move. [`Editor::finish`] redirects everything that refers to a moved place (references,
branches, symbols, roots, jump tables), in one walk over the graph for all edits of the pass. References that a pass
hands to the editor use the nodes and offsets from before its edits, or, for nodes that it has added, those at the time
of the addition.

Edits are not checked here: [`Graph::verify`] finds what an edit broke.
*/

use rustc_hash::FxHashMap;

use super::contents::Contents;
use super::moves::{Move, Moves};
use super::{
    Block, Chunk, Counters, Dest, Function, Graph, JumpTable, Life, MergedCode, Node, NodeKind, Origin,
    Provenance, Ref, Role, Section, Symbol, SymbolPlace, Target, Terminator,
};
use crate::index::{NodeId, SectionId, SymbolId, TableId};

/// Edits a graph for one pass. The graph is inconsistent before [`Editor::finish`].
pub struct Editor<'g> {
    pub(super) graph: &'g mut Graph,
    pass: &'static str,
    pub(super) moves: Moves,
    /// Nodes to insert directly before others, in their order.
    pub(super) in_front: FxHashMap<NodeId, Vec<NodeId>>,
    /// Nodes to insert directly after others, the nearest last.
    pub(super) behind: FxHashMap<NodeId, Vec<NodeId>>,
}

impl<'g> Editor<'g> {
    /// Begins the edits of the pass with this name.
    pub fn new(graph: &'g mut Graph, pass: &'static str) -> Editor<'g> {
        Editor {
            graph,
            pass,
            moves: Moves::default(),
            in_front: FxHashMap::default(),
            behind: FxHashMap::default(),
        }
    }

    /// Returns the graph, in which uses of moved places are not redirected yet.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// Adds a section without nodes after all others.
    pub fn add_section(&mut self, section: Section) -> SectionId {
        self.graph.sections.push_and_get_key(Section { nodes: Vec::new(), ..section })
    }

    /// Adds a symbol.
    pub fn add_symbol(&mut self, symbol: Symbol) -> SymbolId {
        self.graph.symbols.push_and_get_key(symbol)
    }

    /// Adds data to the end of a section.
    pub fn add_data(&mut self, section: SectionId, contents: Contents, align: u32) -> NodeId {
        let size = contents.bytes.len() as u32;
        let id = self.add_chunk(section, size, align);
        self.set_contents(id, contents);
        id
    }

    /// Adds `size` bytes of zeros to the end of a section without bytes in the file (`SHT_NOBITS`).
    pub fn add_zeros(&mut self, section: SectionId, size: u32, align: u32) -> NodeId {
        self.add_chunk(section, size, align)
    }

    /// Adds a copy of data directly after a node of a function, which then owns it.
    pub fn copy_behind(&mut self, of: NodeId, behind: NodeId) -> NodeId {
        let contents =
            Contents { bytes: self.graph.bytes_of(of).to_vec(), refs: self.graph.refs_of(of).to_vec() };
        let (size, align) = (self.graph.node(of).size, self.graph.node(of).align);
        let (section, function) = (self.graph.node(behind).section, self.graph.owner(behind));
        let kind = NodeKind::Chunk(Chunk { code: false, life: Life::Referenced, function });
        let id = self.push(self.made(section, size, align, kind));
        self.set_contents(id, contents);
        self.behind.entry(behind).or_default().push(id);
        id
    }

    /// Widens the slots of a table of distances to two bytes, and adapts the block that jumps through it.
    pub fn widen_table(&mut self, jump: NodeId, table: TableId) {
        const WIDTH: u8 = 2;
        let JumpTable { chunk, range } = self.graph.tables[table].clone();
        let slots: Vec<Ref> = self.graph.slots(table).to_vec();
        let narrow = slots.first().map_or(WIDTH, |slot| slot.width);
        let refs: Vec<Ref> = (0u32..)
            .zip(&slots)
            .map(|(i, slot)| Ref { offset: i * u32::from(WIDTH), width: WIDTH, ..*slot })
            .collect();
        debug_assert!(
            range.start == 0 && slots.len() == self.graph.refs_of(chunk).len(),
            "the chunk is one table of distances"
        );
        let size = slots.len() as u32 * u32::from(WIDTH);
        self.graph.nodes[chunk].size = size;
        self.graph.nodes[chunk].align = WIDTH.into();
        self.set_contents(chunk, Contents { bytes: vec![0; size as usize], refs });
        self.graph.tables[table].range = 0..size;
        let (isa, encoding) = (self.graph.isa(), self.graph.encoding(jump));
        let last = self.graph.decode(jump).flatten().last().map(|inst| inst.at.address as usize);
        let (mut bytes, refs) = (self.graph.bytes_of(jump).to_vec(), self.graph.refs_of(jump).to_vec());
        if let Some(at) = last {
            let changed = isa.set_distance_table(&mut bytes[at..], encoding, WIDTH);
            debug_assert!(changed && narrow < WIDTH, "the block jumps through a table of bytes");
        }
        self.set_contents(jump, Contents { bytes, refs });
    }

    /// Replaces the bytes of data without references by others of the same number.
    pub fn set_data(&mut self, id: NodeId, bytes: Vec<u8>) {
        debug_assert_eq!(self.graph.node(id).size as usize, bytes.len(), "data keeps its size");
        self.set_contents(id, Contents { bytes, refs: Vec::new() });
    }

    /// Defines an undefined symbol, or redefines one, as the first byte of a node, with this type (`STT_*`) and size in
    /// bytes.
    pub fn define_symbol(&mut self, symbol: SymbolId, node: NodeId, kind: u8, size: u64) {
        let symbol = &mut self.graph.symbols[symbol];
        symbol.place = SymbolPlace::Node(node, 0);
        (symbol.kind, symbol.size) = (kind, size);
    }

    /// Turns a patch site that nothing will patch any more into an ordinary block without instructions of its own, with
    /// this terminator. Only its own table entry may refer to its bytes.
    pub fn settle_site(&mut self, id: NodeId, end: Terminator) {
        self.graph.nodes[id].size = 0;
        self.set_contents(id, Contents::default());
        if let NodeKind::Block(block) = &mut self.graph.nodes[id].kind {
            block.end = end;
        }
    }

    /// Adds a block directly before another one, in its section and its function, and gives it the other one's
    /// alignment. Nothing leads to the new block until [`Editor::replace_uses`] redirects the uses of the other one.
    /// The other one must not be glued to its previous node.
    pub fn add_block(&mut self, in_front_of: NodeId, contents: Contents, end: Terminator) -> NodeId {
        let size = contents.bytes.len() as u32;
        let neighbour = &mut self.graph.nodes[in_front_of];
        let padding = std::mem::replace(&mut neighbour.padding, 0..0);
        let align = std::mem::replace(&mut neighbour.align, 1);
        let (section, NodeKind::Block(block)) = (neighbour.section, &neighbour.kind) else {
            unreachable!("a block is added before a block")
        };
        let kind = NodeKind::Block(Block { function: block.function, end });
        let id = self.push(Node { padding, ..self.made(section, size, align, kind) });
        self.set_contents(id, contents);
        self.in_front.entry(in_front_of).or_default().push(id);
        id
    }

    /// Adds a function of one block to the end of a section, in the encoding of the block whose code it replaces
    /// ([`Function::is_outlined`]).
    pub fn outline(&mut self, of: NodeId, section: SectionId, contents: Contents, end: Terminator) -> NodeId {
        let encoding = self.graph.encoding(of);
        let owner = self.graph.function_of(of).map(|function| &self.graph.function(function).name);
        let name = format!("{}.outlined", owner.map_or("", String::as_str));
        let function = self.graph.functions.next_key();
        let kind = NodeKind::Block(Block { function, end });
        let align = self.graph.isa().unit(encoding) as u32;
        let id = self.push(self.made(section, contents.bytes.len() as u32, align, kind));
        self.set_contents(id, contents);
        self.graph.sections[section].nodes.push(id);
        self.graph.functions.push(Function { name, encoding, blocks: vec![id], is_outlined: true });
        id
    }

    /// Adds a function of these blocks, in this order, to the end of the section of another block, in its encoding and
    /// with its alignment. The blocks have no terminators yet ([`Editor::end_block`]), and the function no symbol.
    pub fn add_function(&mut self, like: NodeId, name: String, blocks: Vec<Contents>) -> Vec<NodeId> {
        let (section, encoding) = (self.graph.node(like).section, self.graph.encoding(like));
        let function = self.graph.functions.next_key();
        let unit = self.graph.isa().unit(encoding) as u32;
        let mut align = self.graph.node(like).align;
        let mut nodes = Vec::with_capacity(blocks.len());
        for contents in blocks {
            let kind = NodeKind::Block(Block { function, end: Terminator::Unreachable });
            let id = self.push(self.made(section, contents.bytes.len() as u32, align, kind));
            self.set_contents(id, contents);
            nodes.push(id);
            align = unit;
        }
        self.graph.sections[section].nodes.extend(&nodes);
        self.graph.functions.push(Function { name, encoding, blocks: nodes.clone(), is_outlined: false });
        nodes
    }

    /// Moves blocks directly after a block, in this order, into its function and its section. Returns the nodes that
    /// take their places; the listed nodes are to be removed.
    pub fn adopt(&mut self, blocks: &[NodeId], behind: NodeId) -> Vec<NodeId> {
        let (section, function) = (self.graph.node(behind).section, self.graph.function_of(behind));
        let adopted: Vec<NodeId> = blocks
            .iter()
            .filter_map(|&id| {
                let end = self.graph.block(id)?.end.clone();
                let kind = NodeKind::Block(Block { function: function?, end });
                let home = self.graph.home_of(id)?;
                let new = self.push(Node { section, kind, padding: 0..0, ..self.graph.node(id).clone() });
                self.graph.sources.hand_over(id, home, new);
                let old = &mut self.graph.nodes[id];
                old.size = 0;
                (old.bytes.end, old.refs.end) = (old.bytes.start, old.refs.start);
                self.moves.note(id, Move::Split(0, new));
                Some(new)
            })
            .collect();
        self.behind.entry(behind).or_default().extend(adopted.iter().rev());
        adopted
    }

    /// Removes the symbols at the start of a node from the link. Plans still find the code by their names.
    pub fn unlink_symbols(&mut self, node: NodeId) {
        for symbol in &mut self.graph.symbols {
            symbol.unlinked |= symbol.place == SymbolPlace::Node(node, 0);
        }
    }

    /// Adds a copy of an entry after it in its table, about another block.
    pub fn copy_entry(&mut self, of: NodeId, about: NodeId) {
        let bytes = self.graph.bytes_of(of).to_vec();
        let mut refs = self.graph.refs_of(of).to_vec();
        for reference in refs.iter_mut().filter(|reference| reference.role == Role::Site) {
            (reference.target, reference.addend) = (Target::Node(about), 0);
        }
        let entry = self.graph.node(of);
        let id = self.push(self.made(entry.section, entry.size, entry.align, entry.kind.clone()));
        self.set_contents(id, Contents { bytes, refs });
        self.behind.entry(of).or_default().push(id);
    }

    /// Splits a block in two at an instruction, given by its offset in bytes, or after its last one. Returns the second
    /// part, into which the first falls through, and which gets the terminator. The block must not be
    /// [`Block::is_fixed`]. For a block that [`Editor::edit_block`] lengthened, the input bytes of each part are
    /// unknown; the first part then keeps all of the provenance.
    pub fn split_block(&mut self, id: NodeId, at: u32) -> NodeId {
        let NodeKind::Block(block) = &self.graph.node(id).kind else { unreachable!("only blocks are split") };
        debug_assert!(
            !block.is_fixed() && 0 < at && at <= self.graph.node(id).size,
            "a split after an instruction"
        );
        let rest = self.split(id, at, 1);
        if let NodeKind::Block(block) = &mut self.graph.nodes[id].kind {
            block.end = Terminator::FallThrough(rest);
        }
        rest
    }

    /// Splits data in two or more parts at ascending offsets in bytes, each with the alignment in bytes of the part
    /// that begins there.
    pub fn split_data(&mut self, id: NodeId, cuts: &[(u32, u32)]) {
        for &(at, align) in cuts.iter().rev() {
            self.split(id, at, align);
        }
    }

    /// Replaces the contents of a block. `moved` lists pairs of an old and a new offset in bytes: the bytes from the
    /// old offset up to the one of the next pair are now at the new offset. Uses of the block itself refer to its new
    /// first byte. The block must not be [`Block::is_fixed`].
    pub fn edit_block(&mut self, id: NodeId, contents: Contents, moved: &[(u32, u32)]) {
        debug_assert!(
            self.graph.block(id).is_none_or(|block| !block.is_fixed()),
            "a patch site keeps its bytes"
        );
        self.graph.nodes[id].size = contents.bytes.len() as u32;
        self.set_contents(id, contents);
        let Graph { nodes, sources, .. } = &mut *self.graph;
        sources.edit(id, nodes[id].origin(), moved);
        self.moves.note(id, Move::Within(moved.to_vec()));
    }

    /// Replaces the contents of data by others of the same size. Zero-initialised data, which has none, must be moved
    /// to a section with bytes.
    pub fn set_bytes(&mut self, id: NodeId, contents: Contents) {
        debug_assert!(
            self.graph.chunk(id).is_some() && self.graph.node(id).size == contents.bytes.len() as u32
        );
        self.set_contents(id, contents);
    }

    /// Replaces the terminator of a block. The block must not be [`Block::is_fixed`].
    pub fn end_block(&mut self, id: NodeId, end: Terminator) {
        let NodeKind::Block(block) = &mut self.graph.nodes[id].kind else {
            unreachable!("only blocks have terminators")
        };
        debug_assert!(!block.is_fixed(), "a patch site keeps its terminator");
        block.end = end;
    }

    /// Redirects a reference of a node, given by its number among them, to an offset in bytes from a target.
    pub fn redirect(&mut self, id: NodeId, number: usize, target: Target, addend: i64) {
        let first = self.graph.node(id).refs.start as usize;
        let reference = &mut self.graph.refs[first + number];
        (reference.target, reference.addend) = (target, addend);
    }

    /// Redirects a slot of a jump table, given by its number, to an offset in bytes from a target. In a table of
    /// distances, the offset counts from the start of the table.
    pub fn redirect_slot(&mut self, table: TableId, slot: usize, target: Target, addend: i64) {
        let slots = self.graph.slot_indices(table);
        let slot = &mut self.graph.refs[slots][slot];
        (slot.target, slot.addend) = (target, addend);
    }

    /// Redirects the branches and the fall-through of a block from one node to another. Unlike
    /// [`Editor::replace_uses`], this changes only the uses by this block.
    pub fn redirect_end(&mut self, id: NodeId, from: NodeId, to: NodeId) {
        let NodeKind::Block(Block { end, .. }) = &mut self.graph.nodes[id].kind else { return };
        if let Terminator::Jump(dest) | Terminator::Branch { taken: dest, .. } = end
            && dest.target == Target::Node(from)
        {
            dest.target = Target::Node(to);
        }
        if let Some(next) = end.next_mut().filter(|next| **next == from) {
            *next = to;
        }
    }

    /// Sets the alignment of a node, in bytes.
    pub fn align(&mut self, id: NodeId, align: u32) {
        self.graph.nodes[id].align = align;
    }

    /// Gives a section the name and the attributes of another one. It keeps its nodes.
    pub fn set_attributes(&mut self, id: SectionId, of: SectionId) {
        let nodes = std::mem::take(&mut self.graph.sections[id].nodes);
        self.graph.sections[id] = Section { nodes, ..self.graph.sections[of].clone() };
    }

    /// Records the array in which instrumented blocks record that they ran.
    pub fn set_counters(&mut self, counters: Counters) {
        self.graph.counters = Some(counters);
    }

    /// Inserts instructions at the start of a block. Uses of the block refer to them, except for table entries about
    /// its first instruction. The block must not be [`Block::is_fixed`].
    pub fn prepend(&mut self, id: NodeId, front: Contents) {
        let Contents { mut bytes, mut refs } = front;
        let length = bytes.len() as u32;
        bytes.extend_from_slice(self.graph.bytes_of(id));
        refs.extend(self.graph.refs_of(id).iter().map(|r| Ref { offset: r.offset + length, ..*r }));
        self.edit_block(id, Contents { bytes, refs }, &[(0, length)]);
    }

    /// Redirects all uses of the first byte of a node (branches, references and symbols) to another node. Uses by that
    /// other node, or by parts split off it, are kept; so are table entries whose site is the instruction there. If a
    /// second block is added before a node, replace the uses of the first such block.
    pub fn replace_uses(&mut self, of: NodeId, by: NodeId) {
        self.moves.note(of, Move::Start(by));
    }

    /// Redirects everything that refers to a place in a node to the same place in an equal node, except for table
    /// entries whose site is there. The redirected node is to be removed. The other one must not be redirected itself.
    pub fn merge(&mut self, of: NodeId, into: NodeId) {
        debug_assert!(self.graph.node(of).size == self.graph.node(into).size, "the nodes are equal");
        self.represent(into, of);
        self.moves.note(of, Move::Merged(into));
    }

    /// Records that a node also represents the code of a block, so that its addresses lead back to both.
    pub fn represent(&mut self, node: NodeId, block: NodeId) {
        let code = self.graph.node(block).origin().zip(self.graph.home_of(block));
        let code = code.map(|(&origin, function)| MergedCode { function, origin });
        self.graph.sources.merge(block, code, node);
    }

    /// Replaces the contents of a block by a jump. The block must not be [`Block::is_fixed`].
    pub fn jump_instead(&mut self, id: NodeId, to: NodeId) {
        self.edit_block(id, Contents::default(), &[]);
        if let NodeKind::Block(block) = &mut self.graph.nodes[id].kind {
            block.end = Terminator::Jump(Dest { target: Target::Node(to), offset: 0 });
        }
    }

    /// Moves nodes to the end of a section, in this order. Nodes that are glued together must move together. If a node
    /// was split, or a block was added before it, only the listed parts move.
    pub fn place(&mut self, nodes: &[NodeId], section: SectionId) {
        // Added nodes are in the lists that they are moved from.
        self.insert();
        let mut left: Vec<SectionId> = nodes.iter().map(|&id| self.graph.node(id).section).collect();
        left.sort_unstable();
        left.dedup();
        let none = SectionId(u32::MAX);
        for &id in nodes {
            self.graph.nodes[id].section = none;
        }
        let Graph { nodes: all, sections, .. } = &mut *self.graph;
        for left in left {
            sections[left].nodes.retain(|&id| all[id].section != none);
        }
        for &id in nodes {
            all[id].section = section;
        }
        sections[section].nodes.extend(nodes);
    }

    /// Moves the contents of a node from an offset in bytes on into a new node directly after it, with the same kind
    /// and terminator, and with this alignment in bytes.
    fn split(&mut self, id: NodeId, at: u32, align: u32) -> NodeId {
        let node = self.graph.node(id).clone();
        let (first, second) = match node.provenance {
            // The input bytes within a lengthened block are unknown.
            Provenance::Input(origin) if node.size + origin.branch_len > origin.size => {
                (Provenance::Input(Origin { branch_len: 0, ..origin }), Provenance::Made(self.pass))
            }
            Provenance::Input(origin) => {
                let second = Origin { offset: origin.offset + at, size: origin.size - at, ..origin };
                (Provenance::Input(Origin { size: at, branch_len: 0, ..origin }), Provenance::Input(second))
            }
            made => (made, made),
        };
        let before = self.graph.refs_of(id).partition_point(|reference| reference.offset < at) as u32;
        let refs = node.refs.start + before..node.refs.end;
        for reference in &mut self.graph.refs[refs.start as usize..refs.end as usize] {
            reference.offset -= at;
        }
        // Zero-initialised data has no bytes.
        let bytes = node.bytes.end.min(node.bytes.start + at);
        let first_refs = node.refs.start..refs.start;
        let rest = self.push(Node {
            provenance: second,
            size: node.size - at,
            bytes: bytes..node.bytes.end,
            refs,
            padding: 0..0,
            align,
            glued_to: None,
            ..node
        });
        let node = &mut self.graph.nodes[id];
        node.provenance = first;
        node.size = at;
        node.bytes.end = bytes;
        node.refs = first_refs;
        self.behind.entry(id).or_default().push(rest);
        self.graph.sources.split(id, at, rest);
        self.moves.note(id, Move::Split(at, rest));
        rest
    }

    fn made(&self, section: SectionId, size: u32, align: u32, kind: NodeKind) -> Node {
        Node {
            provenance: Provenance::Made(self.pass),
            section,
            size,
            bytes: 0..0,
            refs: 0..0,
            padding: 0..0,
            align,
            glued_to: None,
            kind,
            live: true,
        }
    }

    fn add_chunk(&mut self, section: SectionId, size: u32, align: u32) -> NodeId {
        let kind = NodeKind::Chunk(Chunk { code: false, life: Life::Referenced, function: None });
        let id = self.push(self.made(section, size, align, kind));
        self.graph.sections[section].nodes.push(id);
        id
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.graph.nodes.push_and_get_key(node)
    }

    fn set_contents(&mut self, id: NodeId, contents: Contents) {
        let Graph { nodes, bytes, refs, .. } = &mut *self.graph;
        let (first_byte, first_ref) = (bytes.len() as u32, refs.len() as u32);
        bytes.extend(contents.bytes);
        refs.extend(contents.refs);
        let node = &mut nodes[id];
        node.bytes = first_byte..bytes.len() as u32;
        node.refs = first_ref..refs.len() as u32;
    }
}
