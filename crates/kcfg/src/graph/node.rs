//! Nodes, and what they contain.

use std::ops::Range;

use kelf::RelocClass;
use kisa::Branch;

use crate::index::{FunctionId, InputId, NodeId, SectionId, SymbolId, TableId};
use crate::special::TableKind;

/// A basic block or a chunk of data.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it comes from, by which it is named.
    pub provenance: Provenance,
    /// The section that it lies in.
    pub section: SectionId,
    /// Size in bytes, without the branch that ends a block.
    pub size: u32,
    /// Its bytes in the graph's; empty for zero-initialised data.
    pub(crate) bytes: Range<u32>,
    /// Its references in the graph's, in ascending order of offset.
    pub(crate) refs: Range<u32>,
    /// What lies in the input between it and the node in front, in the graph's bytes: `nop`s before a function.
    pub(crate) padding: Range<u32>,
    /// Alignment in bytes.
    pub align: u32,
    /// The node that it stays directly behind: a reference to its first byte may mean the end of that one. Such a
    /// reference keeps both alive, and both keep their places relative to one another.
    pub glued_to: Option<NodeId>,
    /// Block or chunk.
    pub kind: NodeKind,
    /// Whether it is part of the program; a pass that removes a node clears this.
    pub live: bool,
}

/// Where a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// From the input.
    Input(Origin),
    /// The pass of this name made it.
    Made(&'static str),
}

/// A place of the input, with all that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The input section.
    pub section: InputId,
    /// Offset in bytes in it.
    pub offset: u32,
    /// Size in bytes there, with the branch that ends a block and any padding behind it.
    pub size: u32,
    /// Length in bytes there of the branch that ends a block and is not among its bytes; 0 if there is none.
    pub branch_len: u32,
}

impl Origin {
    /// Offset in bytes of what comes behind it in the input section.
    pub fn end(&self) -> u32 {
        self.offset + self.size
    }
}

impl Node {
    /// Its place in the input; `None` if a pass made it.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.provenance {
            Provenance::Input(origin) => Some(origin),
            Provenance::Made(_) => None,
        }
    }
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
    /// A direct call: the reference with [`Role::Callee`] names the callee.
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
    /// Its site: this is one entry of a weak table, and its reference with [`Role::Site`] names the code that
    /// it is about.
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
    /// What it is there for.
    pub role: Role,
}

/// What a reference is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whoever runs or reads the node can compute the address.
    Address,
    /// It names the callee of the direct call that ends the block.
    Callee,
    /// It names what an entry of a weak table is about, and does not keep that alive.
    Site,
    /// It is a slot of this jump table, and counts only while the jump through it can run.
    Slot(TableId),
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
