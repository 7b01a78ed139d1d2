//! Nodes, and what they contain.

use std::ops::Range;

use kelf::RelocClass;
use kisa::{Branch, FAR};

use crate::index::{FunctionId, InputId, NodeId, SectionId, SymbolId, TableId};
use crate::special::TableKind;

/// A basic block or a chunk of data.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its source, which also names it.
    pub provenance: Provenance,
    /// The section that it lies in.
    pub section: SectionId,
    /// Size in bytes, without the branch that ends a block.
    pub size: u32,
    /// Its bytes, as a range of [`Graph::bytes`](super::Graph); empty for zero-initialised data.
    pub(crate) bytes: Range<u32>,
    /// Its references, as a range of [`Graph::refs`](super::Graph), in ascending order of offset.
    pub(crate) refs: Range<u32>,
    /// The padding between it and the node in front in the input (`nop`s before a function), as a range of
    /// [`Graph::bytes`](super::Graph).
    pub(crate) padding: Range<u32>,
    /// Alignment in bytes.
    pub align: u32,
    /// The node directly behind which it has to be placed, because a reference to its first byte may be to the end of
    /// that node. Such a reference keeps both alive.
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

/// A range of bytes of an input section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The input section.
    pub section: InputId,
    /// Offset in bytes in it.
    pub offset: u32,
    /// Size in bytes there, including the branch that ends a block and any padding behind it.
    pub size: u32,
    /// Length in bytes there of the branch that ends a block and is not among its bytes; 0 if there is none.
    pub branch_len: u32,
}

impl Origin {
    /// Offset in bytes of its end in the input section.
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
}

impl Block {
    /// Whether it is a patch site: the program patches these bytes at run time, or finds them by address, so that no pass
    /// may change them.
    pub fn is_fixed(&self) -> bool {
        matches!(self.end, Terminator::Patched { .. })
    }
}

/// How control leaves a block. The instruction of a direct jump or conditional branch is not among the block's bytes:
/// lowering encodes it. That of every other terminator is, calls and returns included.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Falls through into this block.
    FallThrough(NodeId),
    /// `jmp`.
    Jump(Dest),
    /// A conditional branch, or a `jmp` that a static key turns into a `nop`
    /// ([`kisa::BranchKind::Jump`]).
    Branch {
        /// How it is coded.
        branch: Branch,
        /// The successor if it is taken.
        taken: Dest,
        /// The successor if it is not taken.
        next: NodeId,
    },
    /// A direct call; the reference with [`Role::Callee`] is to the callee.
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
    /// An instruction that transfers control on a condition, other than a direct branch: a return, a call or a computed
    /// jump of ARM. It goes to any code that references of the block refer to, back to the caller, or to the unknown node;
    /// or it falls through.
    Conditional {
        /// The block behind it; `None` if control never comes there.
        next: Option<NodeId>,
    },
    /// `ud2`: falls through, because a trap handler or a signal handler may resume behind it, unless the kernel's
    /// `__bug_table` says that it does not (`BUG`).
    Trap {
        /// Where it resumes.
        next: Option<NodeId>,
    },
    /// Code that is patched at run time. It continues at any code that the block's references name, or references of
    /// table entries whose site it is, or falls through. It is a kind of terminator, not an extra property, so that no
    /// analysis of terminators mistakes the instruction in the input for the one that runs.
    Patched {
        /// The block behind it.
        next: Option<NodeId>,
    },
    /// The function ends without a branch: the compiler proved that control does not come here.
    Unreachable,
}

impl Terminator {
    /// The next block if control continues: by falling through, if a branch is not taken, or after a call, a trap or a
    /// patch site. `None` if it does not.
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

    /// The same, to redirect it.
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

/// A chunk: data, or code that is carried as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Whether it holds instructions.
    pub code: bool,
    /// What keeps it alive.
    pub life: Life,
    /// The function among whose instructions it lies, if it is data that these read by its distance.
    pub function: Option<FunctionId>,
}

/// What keeps a chunk alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Any node that refers to it.
    Referenced,
    /// Its site: this is one entry of a weak table, and its reference with [`Role::Site`] is to the code that it
    /// describes.
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
    /// What it refers to.
    pub target: Target,
    /// Offset in bytes from the target.
    pub addend: i64,
    /// What it is used for.
    pub role: Role,
}

impl Ref {
    /// Whether it is a distance that reaches only a few bytes, as in a short branch.
    pub fn is_short(&self) -> bool {
        self.width < FAR && matches!(self.class, RelocClass::Relative | RelocClass::Branch)
    }
}

/// What a reference is used for, which decides what it keeps alive.
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

/// What a reference or a branch refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The first byte of a node.
    Node(NodeId),
    /// A symbol, which the linker resolves.
    Symbol(SymbolId),
}

/// Where a branch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dest {
    /// What it refers to.
    pub target: Target,
    /// Bytes from the start of the target; not 0 only for places within a chunk.
    pub offset: i64,
}
