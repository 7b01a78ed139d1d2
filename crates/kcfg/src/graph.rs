/*!
The augmented whole-program control-flow graph (Chanet et al. 2007, section 2.2), as data.

Nodes are basic blocks and chunks of data. What a node *contains* is the only truth: its bytes, the
relocations in them ([`Ref`]), and for a block the [`Terminator`] that says how control leaves it. Edges
are not stored; [`crate::edges`] derives them from the contents, so that a pass that changes a node can
never leave a stale edge behind.

The bytes and references of all nodes lie in two arenas of the graph. A pass that rewrites a node appends
to the arenas and moves the node's ranges.
*/

use std::ops::Range;
use std::sync::Arc;

use goblin::elf::reloc::R_386_GOTPC;
use goblin::elf::section_header::{SHF_EXECINSTR, SHF_MERGE};
use kelf::{Machine, ObjectIndex, RelocClass};
use rustc_hash::FxHashMap;

use crate::index::{FunctionId, NodeId, SectionId, SymbolId, TableId};
use crate::special::{RootReason, TableKind, World};
use kisa::{Branch, Effect, Reg, Rewritable, Value};

/// A program as one graph.
pub struct Graph {
    /// The machine of every object in it.
    pub machine: Machine,
    /// What the names of its sections mean.
    pub world: World,
    /// Nodes; those of one section are adjacent and in the order of their offsets.
    pub nodes: Vec<Node>,
    /// The input sections, in link order.
    pub sections: Vec<Section>,
    /// The functions of compiler-made code, in the order of their first blocks.
    pub functions: Vec<Function>,
    /// Symbols: every defined one, and the undefined ones that something names.
    pub symbols: Vec<Symbol>,
    /// Jump tables that are resolved.
    pub tables: Vec<JumpTable>,
    /// Code that a pass has put in an order of its own.
    pub regions: Vec<Region>,
    /// The array in which the blocks note that they ran, if a pass has made them do so.
    pub counters: Option<Counters>,
    /// Nodes that are alive by themselves.
    pub roots: Vec<Root>,
    /// Code that could not be taken apart, by reason.
    pub opaque: Vec<Opaque>,
    /// What the objects say of the stack.
    pub stack: StackNote,
    /// Bytes of all nodes.
    pub bytes: Vec<u8>,
    /// References of all nodes.
    pub refs: Vec<Ref>,
}

/// A basic block or a chunk of data.
#[derive(Clone, Debug)]
pub struct Node {
    /// The input section that it came from.
    pub section: SectionId,
    /// Its offset there in bytes, by which it is named.
    pub offset: u32,
    /// Size in bytes in the input, without the branch that ends a block.
    pub size: u32,
    /// Content in [`Graph::bytes`]; empty for zero-initialised data.
    pub bytes: Range<u32>,
    /// References in [`Graph::refs`], in ascending order of offset.
    pub refs: Range<u32>,
    /// What lies between it and the node in front in the input, in [`Graph::bytes`]: `nop`s before a function.
    pub padding: Range<u32>,
    /// Alignment in bytes.
    pub align: u32,
    /// Whether a reference to its first byte may mean the end of the node before it: such a reference keeps
    /// both alive, and both keep their places relative to one another.
    pub follows: bool,
    /// Block or chunk.
    pub kind: NodeKind,
    /// Whether it is part of the program; a pass that removes a node clears this.
    pub live: bool,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A basic block of compiler-made code.
    Block(Block),
    /// Data, or code that is carried as it is.
    Chunk(Chunk),
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The function that it is part of.
    pub function: FunctionId,
    /// How control leaves it.
    pub end: Terminator,
    /// Something patches these bytes at run time, or finds them by address: they are kept as they are.
    pub fixed: bool,
}

/// How control leaves a block. A direct jump or conditional branch is not among the block's bytes:
/// lowering encodes it. Every other terminator is, calls and returns included.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Into the block behind it.
    FallThrough(NodeId),
    /// `jmp`.
    Jump(Dest),
    /// A conditional branch, or a `jmp` that a static key turns into a `nop`
    /// ([`kisa::BranchKind::Jump`]).
    Branch {
        /// How it is coded.
        branch: Branch,
        /// Where it goes when taken.
        taken: Dest,
        /// Where it goes when not.
        next: NodeId,
    },
    /// A direct call: the last reference of the block names the callee.
    Call {
        /// The return point; `None` where nothing follows, so that the callee cannot return.
        next: Option<NodeId>,
    },
    /// A computed call.
    IndirectCall {
        /// The return point.
        next: Option<NodeId>,
    },
    /// A computed jump through a resolved jump table.
    Switch(TableId),
    /// Any other computed jump: to the unknown node.
    IndirectJump,
    /// Back to the caller.
    Return,
    /// `ud2`: behind it, where a trap handler or a signal handler may resume, unless the kernel's table of bugs says that
    /// it does not (`BUG`).
    Trap {
        /// Where it resumes.
        next: Option<NodeId>,
    },
    /// Code that is patched at run time: to any code that the block's references or those of its
    /// table entries name, or behind it.
    Patched {
        /// The block behind it.
        next: Option<NodeId>,
    },
    /// The function ends without a branch: the compiler proved that control does not come here.
    Unreachable,
}

/// A chunk: data, or code that is carried as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Whether it holds instructions.
    pub code: bool,
    /// What keeps it alive.
    pub life: Life,
}

/// What keeps a chunk alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Whoever refers to it.
    Referenced,
    /// Its site: this is one entry of a weak table, and its first reference names the code that it is
    /// about.
    Site(TableKind),
}

/// One relocation of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ref {
    /// Offset in bytes within the node of the field.
    pub offset: u32,
    /// The machine's relocation number.
    pub r_type: u32,
    /// What it computes.
    pub class: RelocClass,
    /// Width in bytes of the field.
    pub width: u8,
    /// For program-counter-relative fields of instructions: bytes from the field to the end of the
    /// instruction, from which the processor counts. The relocation's addend is `addend - bias`.
    pub bias: u8,
    /// What it names.
    pub target: Target,
    /// Offset in bytes from the target.
    pub addend: i64,
    /// The jump table that this is a slot of.
    pub slot_of: Option<TableId>,
}

/// What a reference or a branch names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A node, by its start.
    Node(NodeId),
    /// A symbol, wherever the linker finds it.
    Symbol(SymbolId),
}

/// Where a branch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dest {
    /// What it names.
    pub target: Target,
    /// Bytes from the start of the target; not 0 only for places within a chunk.
    pub offset: i64,
}

/// An input section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name in the object.
    pub name: String,
    /// The object: a path, or `archive(member)`.
    pub object: String,
    /// Which object of the program that is.
    pub origin: ObjectIndex,
    /// Size in bytes in the input.
    pub size: u32,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Alignment in bytes.
    pub align: u32,
    /// Size of an entry in bytes, or 0.
    pub entsize: u64,
    /// The signature of the COMDAT group that it belongs to.
    pub group: Option<SymbolId>,
    /// Whether it is data that is not cut at its variables: hand-written, or with a label of `asm`.
    pub whole: bool,
    /// Its nodes.
    pub nodes: Range<u32>,
}

/// A function of compiler-made code.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name, of the symbol that defines it, or `section+offset` where there is none.
    pub name: String,
    /// Its blocks, in the order of the input; the first is the entry.
    pub blocks: Range<u32>,
}

/// Code that becomes one output section, in an order of a pass's making.
#[derive(Clone, Debug)]
pub struct Region {
    /// The one of the sections that gives name and attributes.
    pub named: SectionId,
    /// The input sections whose nodes these are.
    pub sections: Vec<SectionId>,
    /// All of their nodes, in the order wanted. Nodes that follow one another ([`Node::follows`]) do so here.
    pub nodes: Vec<NodeId>,
}

/// An array of one byte for each instrumented block: 0 until the block has run.
#[derive(Clone, Debug)]
pub struct Counters {
    /// The symbol at its first byte.
    pub symbol: SymbolId,
    /// The block of each byte.
    pub blocks: Vec<NodeId>,
}

/// A symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// For a local symbol, the source file that its object names (`STT_FILE`), or the object's own name.
    pub file: Option<Arc<str>>,
    /// `STB_*`.
    pub binding: u8,
    /// `STT_*`.
    pub kind: u8,
    /// `st_other`.
    pub other: u8,
    /// Size in bytes in the input.
    pub size: u64,
    /// Where it is.
    pub place: SymbolPlace,
    /// A weak definition that another one overrides: it is known here by its name, and in the link by none.
    pub overridden: bool,
}

/// A symbol of code. Name, file and number say which function it is in every link of the same objects.
#[derive(Clone, Copy, Debug)]
pub struct CodeName<'g> {
    /// The symbol.
    pub symbol: &'g Symbol,
    /// How many symbols of code of the same name and file come before it.
    pub nth: u32,
    /// The node that it lies in.
    pub node: NodeId,
    /// Its offset in bytes there.
    pub offset: u32,
}

/// Where a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolPlace {
    /// Outside of the program: the linker script, an object linked beside, or nowhere.
    Undefined,
    /// Wherever the linker makes room for it (`SHN_COMMON`), with this alignment in bytes.
    Common(u64),
    /// A number.
    Absolute(u64),
    /// So many bytes into a node; at a node's size, behind its end.
    Node(NodeId, u32),
}

/// A resolved jump table: `slots` consecutive references of a chunk.
#[derive(Clone, Debug)]
pub struct JumpTable {
    /// The chunk that holds it.
    pub chunk: NodeId,
    /// Its slots, in [`Graph::refs`].
    pub slots: Range<u32>,
}

/// What the section `.note.GNU-stack` of the objects says of the program's stack. The linker takes the least strict of
/// them (GNU ld, option `-z execstack`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackNote {
    /// Every object has one: nothing needs an executable stack.
    NotExecutable,
    /// An object has none; what that means is the linker's choice.
    Missing,
    /// An object needs an executable stack: it makes trampolines for nested functions.
    Executable,
}

/// A node that is alive by itself.
#[derive(Clone, Debug)]
pub struct Root {
    /// Which node.
    pub node: NodeId,
    /// Why.
    pub reason: RootReason,
}

/// Code that is carried as it is.
#[derive(Clone, Debug)]
pub struct Opaque {
    /// The chunk that holds it.
    pub node: NodeId,
    /// Function, or section of hand-written code.
    pub name: String,
    /// Why, in a few words.
    pub reason: &'static str,
}

impl Graph {
    /// The node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.get()]
    }

    /// Every node's number.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from)
    }

    /// Size in bytes in the input, with the branch that ends a block and any padding behind it.
    pub fn input_size(&self, id: NodeId) -> u32 {
        let section = self.section_of(id);
        let next = id.0 + 1;
        let end = if next < section.nodes.end { self.nodes[next as usize].offset } else { section.size };
        end - self.node(id).offset
    }

    /// Length in bytes in the input of the branch that ends a block and is not among its bytes; 0 if there is none.
    pub fn branch_len(&self, id: NodeId) -> u32 {
        let (node, section) = (self.node(id), self.section_of(id));
        let behind = Some(id.0 + 1).filter(|&behind| behind < section.nodes.end);
        let end = behind.map_or(section.size, |behind| {
            let behind = &self.nodes[behind as usize];
            behind.offset - behind.padding.len() as u32
        });
        end.saturating_sub(node.offset + node.size)
    }

    /// The section that the node came from.
    pub fn section_of(&self, id: NodeId) -> &Section {
        &self.sections[self.node(id).section.get()]
    }

    /// The block, unless the node is a chunk.
    pub fn block(&self, id: NodeId) -> Option<&Block> {
        match &self.node(id).kind {
            NodeKind::Block(block) => Some(block),
            NodeKind::Chunk(_) => None,
        }
    }

    /// The chunk, unless the node is a block.
    pub fn chunk(&self, id: NodeId) -> Option<&Chunk> {
        match &self.node(id).kind {
            NodeKind::Chunk(chunk) => Some(chunk),
            NodeKind::Block(_) => None,
        }
    }

    /// Whether the node is a piece of a data section that was cut at its variables.
    pub fn is_cut_variable(&self, id: NodeId) -> bool {
        let section = self.section_of(id);
        section.nodes.len() > 1
            && section.flags & u64::from(SHF_MERGE) == 0
            && self.chunk(id).is_some_and(|chunk| !chunk.code && chunk.life == Life::Referenced)
    }

    /// The node's bytes.
    pub fn bytes_of(&self, id: NodeId) -> &[u8] {
        let range = &self.node(id).bytes;
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// The node's references.
    pub fn refs_of(&self, id: NodeId) -> &[Ref] {
        let range = &self.node(id).refs;
        &self.refs[range.start as usize..range.end as usize]
    }

    /// The slots of a jump table.
    pub fn slots(&self, table: TableId) -> &[Ref] {
        let range = &self.tables[table.get()].slots;
        &self.refs[range.start as usize..range.end as usize]
    }

    /// The node that a target names, and the offset in bytes of the target in it; `None` if it is not
    /// part of the program.
    pub fn resolve(&self, target: Target) -> Option<(NodeId, u32)> {
        match target {
            Target::Node(node) => Some((node, 0)),
            Target::Symbol(symbol) => match self.symbols[symbol.get()].place {
                SymbolPlace::Node(node, offset) => Some((node, offset)),
                _ => None,
            },
        }
    }

    /// The node that a target names.
    pub fn resolve_node(&self, target: Target) -> Option<NodeId> {
        self.resolve(target).map(|(node, _)| node)
    }

    /// The reference that names the callee of a block that ends in a direct call.
    pub fn callee(&self, id: NodeId) -> Option<&Ref> {
        match self.block(id)?.end {
            Terminator::Call { .. } => self.refs_of(id).last(),
            _ => None,
        }
    }

    /// Whether a block computes with the distance from its own place to another, which code does that has found out
    /// its address from a call (position-independent code of i386: `call` a thunk, add `_GLOBAL_OFFSET_TABLE_`).
    /// The bytes between the call and the reference then count.
    pub fn knows_own_address(&self, id: NodeId) -> bool {
        let counts_from_itself = |reference: &Ref| match reference.class {
            RelocClass::Relative => reference.bias == 0,
            RelocClass::Got => self.machine == Machine::I386 && reference.r_type == R_386_GOTPC,
            _ => false,
        };
        self.block(id).is_some() && self.refs_of(id).iter().any(counts_from_itself)
    }

    /// The instruction set.
    pub fn isa(&self) -> &'static dyn Rewritable {
        kisa::rewritable(self.machine).expect("lifting needed it already")
    }

    /// The node's bytes with a number of its own in every relocated field, so that no two fields, and no
    /// field and a constant, look alike.
    pub fn masked_bytes(&self, id: NodeId) -> Vec<u8> {
        let mut bytes = self.bytes_of(id).to_vec();
        let first = self.node(id).refs.start;
        for (i, reference) in self.refs_of(id).iter().enumerate() {
            let mark = (0x6000_0000 + first + i as u32).to_le_bytes();
            let start = reference.offset as usize;
            let width = usize::from(reference.width).min(mark.len());
            if let Some(field) = bytes.get_mut(start..start + width) {
                field.copy_from_slice(&mark[..width]);
            }
        }
        bytes
    }

    /// What each instruction of a node computes; empty if the node holds something else than instructions.
    pub fn effects(&self, id: NodeId) -> Vec<Vec<Effect>> {
        let (isa, bytes) = (self.isa(), &self.masked_bytes(id));
        let mut all = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let Some(insn) = isa.decode(&bytes[at..], at as u64) else { return Vec::new() };
            let mut effects = Vec::new();
            isa.effects(&bytes[at..], at as u64, &mut effects);
            all.push(effects);
            at += usize::from(insn.len);
        }
        all
    }

    /// The register that indexes the table, if the block ends with a jump through a table of addresses
    /// (`jmp *table(, index, word size)`).
    pub fn table_index(&self, id: NodeId) -> Option<Reg> {
        let last = self.effects(id).pop()?;
        let address = last.iter().find_map(|effect| match effect {
            Effect::Transfer(Value::Load { from, .. }) => Some(*from),
            _ => None,
        })?;
        let (index, scale) = address.index?;
        let plain = address.base.is_none() && !address.segment && scale == self.machine.word_size();
        plain.then_some(index)
    }

    /// The symbols of code, in the order of the link.
    pub fn code_names(&self) -> impl Iterator<Item = CodeName<'_>> {
        let mut counts: FxHashMap<(&str, Option<&str>), u32> = FxHashMap::default();
        self.symbols.iter().filter_map(move |symbol| {
            let SymbolPlace::Node(node, offset) = symbol.place else { return None };
            if self.section_of(node).flags & u64::from(SHF_EXECINSTR) == 0 {
                return None;
            }
            let count = counts.entry((&symbol.name, symbol.file.as_deref())).or_default();
            let nth = *count;
            *count += 1;
            Some(CodeName { symbol, nth, node, offset })
        })
    }

    /// The symbols that lie in a node.
    pub fn names_in(&self, id: NodeId) -> impl Iterator<Item = &str> {
        let inside = move |symbol: &&Symbol| matches!(symbol.place, SymbolPlace::Node(node, _) if node == id);
        self.symbols.iter().filter(inside).map(|symbol| symbol.name.as_str())
    }

    /// A node's name for people: function or symbol, else `object:section`, with an offset.
    pub fn name_of(&self, id: NodeId) -> String {
        let node = self.node(id);
        if let NodeKind::Block(block) = &node.kind {
            let function = &self.functions[block.function.get()];
            let entry = &self.nodes[function.blocks.start as usize];
            return with_offset(&function.name, node.offset - entry.offset);
        }
        let section = &self.sections[node.section.get()];
        with_offset(&format!("{}:{}", section.object, section.name), node.offset)
    }
}

fn with_offset(name: &str, offset: u32) -> String {
    if offset == 0 { name.to_owned() } else { format!("{name}+{offset:#x}") }
}
