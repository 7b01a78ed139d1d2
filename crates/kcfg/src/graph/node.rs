//! Nodes and their contents.

use std::ops::Range;

use kelf::RelocClass;
use kisa::{Branch, FAR};

use crate::index::{FunctionId, InputId, NodeId, SectionId, SymbolId, TableId};
use crate::special::TableKind;

/// A basic block or a chunk of data.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its origin, which also names it.
    pub provenance: Provenance,
    /// The section that contains it.
    pub section: SectionId,
    /// Size in bytes, without the branch that ends a block.
    pub size: u32,
    /// Its bytes, as a range of [`Graph::bytes`](super::Graph); empty for zero-initialised data.
    pub(crate) bytes: Range<u32>,
    /// Its references, as a range of [`Graph::refs`](super::Graph), in ascending order of offset.
    pub(crate) refs: Range<u32>,
    /// The padding before it in the input (`nop`s before a function), as a range of [`Graph::bytes`](super::Graph).
    pub(crate) padding: Range<u32>,
    /// Alignment in bytes.
    pub align: u32,
    /// The node that must be directly before it, because a reference to its first byte may be to the end of that node.
    /// Such a reference keeps both alive.
    pub glued_to: Option<NodeId>,
    /// Block or chunk.
    pub kind: NodeKind,
    /// Whether it is part of the program, and not removed ([`Graph::remove`](super::Graph::remove)).
    pub live: bool,
}

/// The origin of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// From the input.
    Input(Origin),
    /// Made by the pass with this name.
    Made(&'static str),
}

/// A range of bytes of an input section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The input section.
    pub section: InputId,
    /// Offset in bytes in it.
    pub offset: u32,
    /// Size in bytes there, including the branch that ends a block and any padding after it.
    pub size: u32,
    /// Length in bytes there of a final branch that is not among the block's bytes; 0 if there is none.
    pub branch_len: u32,
}

impl Origin {
    /// Returns the offset in bytes of its end in the input section.
    pub fn end(&self) -> u32 {
        self.offset + self.size
    }
}

impl Node {
    /// Returns its place in the input; `None` if a pass made it.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.provenance {
            Provenance::Input(origin) => Some(origin),
            Provenance::Made(_) => None,
        }
    }
}

/// The kind of a node, with its properties.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A basic block of compiler-made code.
    Block(Block),
    /// Data, or opaque code.
    Chunk(Chunk),
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The function that it is part of.
    pub function: FunctionId,
    /// Its end.
    pub end: Terminator,
}

impl Block {
    /// Whether it is a patch site, which no pass may change: the program patches these bytes at run time, or finds them
    /// by address.
    pub fn is_fixed(&self) -> bool {
        matches!(self.end, Terminator::Patched { .. })
    }
}

/// The end of a block. The instruction of a direct jump or conditional branch is not among the block's bytes: lowering
/// encodes it. The instruction of every other terminator is, including calls and returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Falls through into this block.
    FallThrough(NodeId),
    /// `jmp`.
    Jump(Dest),
    /// A conditional branch, or a `jmp` that a static key turns into a `nop`
    /// ([`kisa::BranchKind::Jump`]).
    Branch {
        /// Its kind and condition.
        branch: Branch,
        /// The successor if it is taken.
        taken: Dest,
        /// The successor if it is not taken.
        next: NodeId,
    },
    /// A direct call; the reference with [`Role::Callee`] is to the callee.
    Call {
        /// The return point; `None` if nothing follows, so that the callee cannot return.
        next: Option<NodeId>,
    },
    /// A computed call.
    IndirectCall {
        /// The return point.
        next: Option<NodeId>,
    },
    /// A computed jump through a resolved jump table.
    Switch(TableId),
    /// Any other computed jump, to the unknown node.
    IndirectJump,
    /// A return to the caller.
    Return,
    /// A conditional transfer other than a direct branch: a return, a call or a computed jump of ARM. It continues at
    /// any code that references of the block name, at the caller, or at the unknown node; or it falls through.
    Conditional {
        /// The next block; `None` if it is never reached.
        next: Option<NodeId>,
    },
    /// `ud2`: falls through, because a trap handler or a signal handler may resume after it, unless the kernel's
    /// `__bug_table` says that it does not (`BUG`).
    Trap {
        /// The block at which it resumes.
        next: Option<NodeId>,
    },
    /// Code that is patched at run time. It continues at any code that the block's references name, or references of
    /// table entries whose site it is, or falls through. It is a kind of terminator, not an extra property, so that no
    /// analysis of terminators mistakes the instruction in the input for the one that runs.
    Patched {
        /// The next block.
        next: Option<NodeId>,
    },
    /// The function ends without a branch: the compiler proved that control does not get here.
    Unreachable,
}

impl Terminator {
    /// Returns the next block if control may continue there: by falling through, by a branch that is not taken, or
    /// after a call, a trap or a patch site. `None` otherwise.
    pub fn next(&self) -> Option<NodeId> {
        match *self {
            Terminator::FallThrough(next) | Terminator::Branch { next, .. } => Some(next),
            Terminator::Call { next }
            | Terminator::IndirectCall { next }
            | Terminator::Trap { next }
            | Terminator::Patched { next }
            | Terminator::Conditional { next } => next,
            Terminator::Jump(_)
            | Terminator::Switch(_)
            | Terminator::IndirectJump
            | Terminator::Return
            | Terminator::Unreachable => None,
        }
    }

    /// Returns the next block, to redirect it.
    pub fn next_mut(&mut self) -> Option<&mut NodeId> {
        match self {
            Terminator::FallThrough(next) | Terminator::Branch { next, .. } => Some(next),
            Terminator::Call { next }
            | Terminator::IndirectCall { next }
            | Terminator::Trap { next }
            | Terminator::Patched { next }
            | Terminator::Conditional { next } => next.as_mut(),
            Terminator::Jump(_)
            | Terminator::Switch(_)
            | Terminator::IndirectJump
            | Terminator::Return
            | Terminator::Unreachable => None,
        }
    }
}

/// A chunk: data, or opaque code.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Whether it holds instructions.
    pub code: bool,
    /// The nodes that keep it alive.
    pub life: Life,
    /// The function that contains it, if it is data among instructions that read it by its distance.
    pub function: Option<FunctionId>,
}

/// The nodes that keep a chunk alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Any node that refers to it.
    Referenced,
    /// Its site: the chunk is one entry of a weak table, and its reference with [`Role::Site`] is to the code that it
    /// describes.
    Site(TableKind),
}

/// One relocation of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ref {
    /// Offset in bytes of the field within the node.
    pub offset: u32,
    /// The machine's relocation number.
    pub r_type: u32,
    /// Its formula.
    pub class: RelocClass,
    /// Width in bytes of the field.
    pub width: u8,
    /// For program-counter-relative fields of instructions: bytes from the field to the end of the instruction, from
    /// which the processor counts. The relocation's addend is `addend - bias`.
    pub bias: u8,
    /// Its target.
    pub target: Target,
    /// Offset in bytes from the target.
    pub addend: i64,
    /// Its use.
    pub role: Role,
}

impl Ref {
    /// Whether it is a distance of short reach, as in a short branch.
    pub fn is_short(&self) -> bool {
        self.width < FAR && matches!(self.class, RelocClass::Relative | RelocClass::Branch)
    }
}

/// The use of a reference, which decides what it keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An address in code or data: the node keeps the target alive.
    Address,
    /// The callee of the direct call that ends the block.
    Callee,
    /// The site of an entry of a weak table, which the entry does not keep alive.
    Site,
    /// A slot of this jump table, which keeps its target alive only while a jump through the table is alive.
    Slot(TableId),
}

/// The target of a reference or a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The first byte of a node.
    Node(NodeId),
    /// A symbol, which the linker resolves.
    Symbol(SymbolId),
}

/// The destination of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dest {
    /// The target.
    pub target: Target,
    /// Bytes from the start of the target; nonzero only for places within a chunk.
    pub offset: i64,
}
