/*!
The augmented whole-program control-flow graph (Chanet et al. 2007, section 2.2), as data.

Nodes are basic blocks and chunks of data. The *contents* of a node are the only truth: its bytes, the relocations in
them ([`Ref`]), and for a block the [`Terminator`] that ends it. Edges are not stored: [`crate::edges`] derives them
from the contents, so a pass that changes a node cannot leave a stale edge.

The bytes and references of all nodes are in two arenas of the graph. Rewriting a node appends to the arenas and points
the node's ranges there.
*/

mod contents;
mod edit;
mod moves;
mod names;
mod node;
mod opaque;
mod program;
mod redirect;
mod sites;
mod sources;
mod successors;
#[cfg(test)]
mod tests;
mod verify;

use std::ops::Range;

use goblin::elf::section_header::SHF_MERGE;
use goblin::elf::sym::{STB_WEAK, STT_FUNC, STT_GNU_IFUNC};
use kelf::{Attributes, Machine, RelocClass};
use kisa::{Encoding, Rewritable, StoreLayout};
use typed_index_collections::{TiSlice, TiVec, ti_vec};

use crate::index::{FunctionId, FunctionMap, InputId, NodeId, NodeMap, SectionId, SymbolId, TableId};
use crate::special::{TableKind, World};

pub use contents::Contents;
pub use edit::Editor;
pub use node::{Block, Chunk, Dest, Life, Node, NodeKind, Origin, Provenance, Ref, Role, Target, Terminator};
pub use program::{
    CodeName, Counters, Function, InputSection, JumpTable, Opaque, Root, Section, StackNote, Symbol,
    SymbolPlace,
};
pub(crate) use sites::SiteIndex;
pub use sources::{MergedCode, Sources};
pub(crate) use successors::Predecessors;
pub use successors::for_each_successor;
pub use verify::Broken;

/// Minimum number of single-byte `nop`s before a function that are more than padding.
const LEAST_ROOM: usize = 2;

/// A program as one graph. Lifting builds it. Passes change it through an [`Editor`], and through
/// [`Graph::remove`] and [`Graph::retain_roots`], which redirect nothing.
#[derive(Clone)]
pub struct Graph {
    pub(crate) machine: Machine,
    pub(crate) world: World,
    pub(crate) nodes: NodeMap<Node>,
    pub(crate) inputs: TiVec<InputId, InputSection>,
    pub(crate) sections: TiVec<SectionId, Section>,
    pub(crate) functions: FunctionMap<Function>,
    pub(crate) symbols: TiVec<SymbolId, Symbol>,
    pub(crate) tables: TiVec<TableId, JumpTable>,
    pub(crate) counters: Option<Counters>,
    pub(crate) roots: Vec<Root>,
    pub(crate) opaque: Vec<Opaque>,
    /// Whether the objects ask for an executable stack.
    pub(crate) stack: StackNote,
    /// `e_flags` of the objects: the bits that any object has set.
    pub(crate) flags: u32,
    pub(crate) attributes: Option<Attributes>,
    pub(crate) sources: Sources,
    /// Bytes of all nodes.
    pub(crate) bytes: Vec<u8>,
    /// References of all nodes.
    pub(crate) refs: Vec<Ref>,
}

impl Graph {
    /// Returns the machine of every object in the program.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns whether the program is a kernel or a user program, which gives its section names their meaning.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns all nodes. [`Section::nodes`] and [`Function::blocks`] list the nodes of each section and function, in
    /// order.
    pub fn nodes(&self) -> &TiSlice<NodeId, Node> {
        &self.nodes
    }

    /// Returns the input sections that are part of the program, in link order.
    pub fn inputs(&self) -> &TiSlice<InputId, InputSection> {
        &self.inputs
    }

    /// Returns the sections, in lowering order.
    pub fn sections(&self) -> &TiSlice<SectionId, Section> {
        &self.sections
    }

    /// Returns the functions of compiler-made code, in the order of their first blocks.
    pub fn functions(&self) -> &TiSlice<FunctionId, Function> {
        &self.functions
    }

    /// Returns the symbols: every defined one, and the referenced undefined ones.
    pub fn symbols(&self) -> &TiSlice<SymbolId, Symbol> {
        &self.symbols
    }

    /// Returns the resolved jump tables.
    pub fn tables(&self) -> &TiSlice<TableId, JumpTable> {
        &self.tables
    }

    /// Returns the array in which instrumented blocks record that they ran, if a pass added it.
    pub fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    /// Returns the roots of reachability.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Returns the opaque code, by reason.
    pub fn opaque(&self) -> &[Opaque] {
        &self.opaque
    }

    /// Returns the merged attributes of the objects, on ARM.
    pub fn attributes(&self) -> Option<&Attributes> {
        self.attributes.as_ref()
    }

    /// Returns the input of merged and edited blocks.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Removes a node from the program. Live nodes must not refer to it any more, except by slots of jump tables.
    pub fn remove(&mut self, id: NodeId) {
        self.nodes[id].live = false;
    }

    /// Removes the roots for which `keeps` returns false.
    pub fn retain_roots(&mut self, keeps: impl Fn(&Graph, &Root) -> bool) {
        self.roots = self.roots.iter().filter(|root| keeps(self, root)).cloned().collect();
    }

    /// Returns the node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// Iterates over the numbers of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.nodes.keys()
    }

    /// Returns the `nop`s directly before a function that the program may write over (`-fpatchable-function-entry`;
    /// call thunks of the kernel, arch/x86/kernel/callthunks.c). The compiler emits these as single bytes, the assembler
    /// aligns with long ones.
    pub fn room_before(&self, id: NodeId) -> &[u8] {
        let padding = &self.node(id).padding;
        let padding = &self.bytes[padding.start as usize..padding.end as usize];
        if padding.is_empty() || self.isa().unit(self.encoding(id)) > 1 {
            return &[];
        }
        let mut nop = Vec::new();
        self.isa().encode_nops(self.encoding(id), 1, &mut nop);
        let count = padding.iter().rev().take_while(|&&byte| nop == [byte]).count();
        if count < LEAST_ROOM { &[] } else { &padding[padding.len() - count..] }
    }

    /// Returns the size in bytes in the input, including the final branch of a block and any padding after it; 0 for
    /// code that a pass made.
    pub fn input_size(&self, id: NodeId) -> u32 {
        self.node(id).origin().map_or(0, |origin| origin.size)
    }

    /// Returns the length in bytes in the input of a final branch that is not among the block's bytes; 0 if there is
    /// none.
    pub fn branch_len(&self, id: NodeId) -> u32 {
        self.node(id).origin().map_or(0, |origin| origin.branch_len)
    }

    /// Whether a node holds instructions.
    pub fn is_code(&self, id: NodeId) -> bool {
        match &self.node(id).kind {
            NodeKind::Block(_) => true,
            NodeKind::Chunk(chunk) => chunk.code,
        }
    }

    /// Returns the size in bytes, including the final branch of a block with its length in the input. Excludes padding.
    pub fn size_with_branch(&self, id: NodeId) -> u32 {
        self.node(id).size + self.branch_len(id)
    }

    /// Whether one node directly follows another in the input.
    pub fn are_neighbours_in_input(&self, before: NodeId, behind: NodeId) -> bool {
        let (before, behind) = (self.node(before).origin(), self.node(behind).origin());
        before
            .zip(behind)
            .is_some_and(|(before, behind)| before.section == behind.section && before.end() == behind.offset)
    }

    /// Returns the section that contains the node.
    pub fn section_of(&self, id: NodeId) -> &Section {
        &self.sections[self.node(id).section]
    }

    /// Returns the input section of the node; `None` if a pass made it.
    pub fn input_of(&self, id: NodeId) -> Option<&InputSection> {
        self.node(id).origin().map(|origin| &self.inputs[origin.section])
    }

    /// Returns the function.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id]
    }

    /// Returns the function of a block; `None` for a chunk.
    pub fn function_of(&self, id: NodeId) -> Option<FunctionId> {
        self.block(id).map(|block| block.function)
    }

    /// Returns the function that had a block in the input. This is the present one, unless a pass put the code of one
    /// function into another ([`Editor::adopt`]). `None` for a chunk.
    pub fn home_of(&self, id: NodeId) -> Option<FunctionId> {
        let function = self.function_of(id)?;
        Some(self.sources.home(id).unwrap_or(function))
    }

    /// Whether the node is part of a function into which a pass outlined shared code ([`Function::is_outlined`]).
    pub fn is_outlined(&self, id: NodeId) -> bool {
        self.function_of(id).is_some_and(|function| self.function(function).is_outlined)
    }

    /// Returns the nodes that begin with a symbol of a function, also an unlinked one.
    pub(crate) fn function_symbols(&self) -> impl Iterator<Item = NodeId> {
        let functions = self.symbols.iter().filter(|symbol| symbol.kind == STT_FUNC);
        functions.filter_map(|symbol| match symbol.place {
            SymbolPlace::Node(node, 0) => Some(node),
            _ => None,
        })
    }

    /// Whether a block ends with a call of an outlined function.
    pub fn calls_outlined(&self, id: NodeId) -> bool {
        let callee = self.callee(id).and_then(|callee| self.resolve_node(callee.target));
        callee.is_some_and(|callee| self.is_outlined(callee))
    }

    /// Returns the block, unless the node is a chunk.
    pub fn block(&self, id: NodeId) -> Option<&Block> {
        match &self.node(id).kind {
            NodeKind::Block(block) => Some(block),
            NodeKind::Chunk(_) => None,
        }
    }

    /// Returns the chunk, unless the node is a block.
    pub fn chunk(&self, id: NodeId) -> Option<&Chunk> {
        match &self.node(id).kind {
            NodeKind::Chunk(chunk) => Some(chunk),
            NodeKind::Block(_) => None,
        }
    }

    /// Whether the node is an entry of ARM's index of unwind tables.
    pub fn is_unwind_entry(&self, id: NodeId) -> bool {
        self.chunk(id).is_some_and(|chunk| chunk.life == Life::Site(TableKind::UnwindIndex))
    }

    /// Returns the live entries of ARM's index of unwind tables that are about a function, each with that function.
    pub fn unwind_entries(&self) -> impl Iterator<Item = (FunctionId, NodeId)> {
        let is_entry = |&id: &NodeId| self.node(id).live && self.is_unwind_entry(id);
        self.node_ids().filter(is_entry).filter_map(|entry| {
            let code = self.resolve_node(self.site(entry)?.target)?;
            Some((self.function_of(code)?, entry))
        })
    }

    /// Whether the node is a piece of a data section that was split at its variables.
    pub fn is_cut_variable(&self, id: NodeId) -> bool {
        let section = self.section_of(id);
        section.nodes.len() > 1
            && section.flags & u64::from(SHF_MERGE) == 0
            && self.chunk(id).is_some_and(|chunk| !chunk.code && chunk.life == Life::Referenced)
    }

    /// Returns the node's bytes.
    pub fn bytes_of(&self, id: NodeId) -> &[u8] {
        let range = &self.node(id).bytes;
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// Returns the node's references.
    pub fn refs_of(&self, id: NodeId) -> &[Ref] {
        let range = &self.node(id).refs;
        &self.refs[range.start as usize..range.end as usize]
    }

    /// Returns the slots of a jump table.
    pub fn slots(&self, table: TableId) -> &[Ref] {
        &self.refs[self.slot_indices(table)]
    }

    /// Returns the indices of a jump table's slots among the references of all nodes.
    pub(crate) fn slot_indices(&self, table: TableId) -> Range<usize> {
        let JumpTable { chunk, range } = &self.tables[table];
        let (refs, first) = (self.refs_of(*chunk), self.node(*chunk).refs.start as usize);
        let before = |end: u32| first + refs.partition_point(|slot| slot.offset < end);
        before(range.start)..before(range.end)
    }

    /// Returns the node that a target refers to, and the offset in bytes of the target in it; `None` if it is not part
    /// of the program.
    pub fn resolve(&self, target: Target) -> Option<(NodeId, u32)> {
        match target {
            Target::Node(node) => Some((node, 0)),
            Target::Symbol(symbol) => match self.symbols[symbol].place {
                SymbolPlace::Node(node, offset) => Some((node, offset)),
                _ => None,
            },
        }
    }

    /// Returns the node that a target refers to.
    pub fn resolve_node(&self, target: Target) -> Option<NodeId> {
        self.resolve(target).map(|(node, _)| node)
    }

    /// Whether a reference to a target may lead elsewhere after the link: another input may define a weak symbol, and
    /// an indirect function chooses its address.
    pub fn may_be_replaced(&self, target: Target) -> bool {
        match target {
            Target::Node(_) => false,
            Target::Symbol(symbol) => {
                let symbol = &self.symbols[symbol];
                symbol.binding == STB_WEAK || symbol.kind == STT_GNU_IFUNC
            }
        }
    }

    /// Returns the reference to the callee of a block that ends with a direct call.
    pub fn callee(&self, id: NodeId) -> Option<&Ref> {
        self.block(id)?;
        self.refs_of(id).iter().find(|reference| reference.role == Role::Callee)
    }

    /// Returns the reference of a weak table's entry to its site.
    pub fn site(&self, entry: NodeId) -> Option<&Ref> {
        self.refs_of(entry).iter().find(|reference| reference.role == Role::Site)
    }

    /// Whether a block begins with an instruction that must stay the first: computed calls lead there.
    pub fn begins_with_landing_pad(&self, id: NodeId) -> bool {
        self.isa().is_landing_pad(self.bytes_of(id))
    }

    /// Whether a block uses the distance from its own address to another place, as position-independent code of i386
    /// does (it calls a thunk that returns the program counter, and adds `_GLOBAL_OFFSET_TABLE_`). The number of bytes
    /// between the call and the reference is then part of the addend and must not change.
    pub fn knows_own_address(&self, id: NodeId) -> bool {
        let counts_from_itself = |reference: &Ref| match reference.class {
            RelocClass::Relative => reference.bias == 0,
            RelocClass::Got => kelf::reloc::counts_from_itself(self.machine, reference.r_type),
            _ => false,
        };
        self.block(id).is_some() && self.refs_of(id).iter().any(counts_from_itself)
    }

    /// Whether a reference of a node makes the address of its target a value of the program. Direct branches, slots of
    /// jump tables, and entries of tables about code do not: they are continuations of control. Literals that
    /// instructions read do not either.
    pub fn takes_address(&self, id: NodeId, reference: &Ref) -> bool {
        let is_branch = match reference.class {
            RelocClass::Branch => reference.bias > 0,
            RelocClass::Relative => reference.bias > 0 && !self.machine.target().has_relative_addresses,
            RelocClass::Literal => {
                return reference.role == Role::Address && !self.reads_literal(id, reference);
            }
            _ => false,
        };
        let holds_code = match &self.node(id).kind {
            NodeKind::Block(_) => true,
            NodeKind::Chunk(chunk) if chunk.life != Life::Referenced => return false,
            NodeKind::Chunk(chunk) => chunk.code,
        };
        reference.role == Role::Address && !(holds_code && is_branch)
    }

    /// Whether the instruction of a block at a reference reads the literal that it refers to instead of computing its
    /// address. False for opaque code, whose instruction boundaries are unknown.
    fn reads_literal(&self, id: NodeId, reference: &Ref) -> bool {
        if self.block(id).is_none() {
            return false;
        }
        let bytes = self.bytes_of(id).get(reference.offset as usize..).unwrap_or_default();
        let inst = self.isa().decode(bytes, self.encoding(id).at(reference.offset.into()));
        inst.and_then(|inst| self.isa().literal(&inst)).is_some_and(|literal| literal.read.is_some())
    }

    /// Returns the encoding of a block's instructions; for other nodes, the machine's first encoding.
    pub fn encoding(&self, id: NodeId) -> Encoding {
        self.function_of(id).map_or(Encoding::Main, |function| self.function(function).encoding)
    }

    /// Returns the function that contains a block, or that contains data among its instructions.
    pub fn owner(&self, id: NodeId) -> Option<FunctionId> {
        match &self.node(id).kind {
            NodeKind::Block(block) => Some(block.function),
            NodeKind::Chunk(chunk) => chunk.function,
        }
    }

    /// Whether a node is data among the instructions of its function, such as a literal that they read by its distance.
    pub fn is_among_code(&self, id: NodeId) -> bool {
        self.chunk(id).is_some_and(|chunk| !chunk.code && chunk.function.is_some())
    }

    /// Returns for each function its blocks and the data among its instructions, in the order of the sections.
    pub fn owned(&self) -> FunctionMap<Vec<NodeId>> {
        let mut owned = ti_vec![Vec::new(); self.functions.len()];
        for &node in self.sections.iter().flat_map(|section| &section.nodes) {
            if let Some(function) = self.owner(node) {
                owned[function].push(node);
            }
        }
        owned
    }

    /// Returns the instruction set.
    pub fn isa(&self) -> &'static dyn Rewritable {
        kisa::rewritable(self.machine).expect("lifting required a rewritable instruction set")
    }

    /// Returns the layout of bytes for [`Contents::store_one`]; `None` if no store to them is known to work on all
    /// processors of the program.
    pub fn store_layout(&self) -> Option<StoreLayout> {
        self.isa().store_layout(self.attributes.as_ref().map(|attributes| attributes.architecture))
    }
}
