//! Words for instructions: how one is encoded, where control goes behind it, and what its fields are.

use kelf::RelocClass;

use crate::semantics::{Address, Symbol};

/// Which of the encodings of its machine a piece of code is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encoding {
    /// The only one, or on 32-bit ARM, A32 (ARM code).
    #[default]
    Main,
    /// T32 of 32-bit ARM (Thumb code).
    Thumb,
}

impl Encoding {
    /// The address by which an [`crate::Isa`] is told of an instruction in this encoding at an offset.
    pub fn address(self, offset: u64) -> u64 {
        offset | u64::from(self == Encoding::Thumb)
    }
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Length in bytes.
    pub len: u8,
    /// Where control goes next.
    pub flow: Flow,
    /// Whether it enters the kernel for a system call (`int $0x80`, `sysenter`, `syscall`,
    /// `call *%gs:0x10`, `svc`).
    pub system_call: bool,
    /// Whether a transfer of control other than a [`BranchKind::Conditional`] (a conditional return of 32-bit ARM) happens
    /// only if a condition holds, so that control may also go on to the next instruction.
    pub conditional: bool,
    /// The conditions that it puts on the instructions that follow (`it` of Thumb code).
    pub predicates: Predicates,
}

/// The result of [`crate::Isa::explain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The instruction.
    pub insn: Insn,
    /// Its memory operand, if it has one that is written out.
    pub operand: Option<MemoryOperand>,
}

/// The result of [`crate::Rewritable::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The registers, see [`crate::Isa::registers_read`].
    pub registers: u64,
    /// Whether it reads flags, see [`crate::Rewritable::reads_flags`].
    pub flags: bool,
    /// Whether it reads or writes memory at an operand that is written out, or as a string instruction does.
    pub memory: bool,
}

/// The conditions that `it` of Thumb code puts on the instructions that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predicates {
    conditions: [u8; 4],
    count: u8,
}

impl Predicates {
    /// Those of any other instruction.
    pub const NONE: Predicates = Predicates { conditions: [0; 4], count: 0 };

    /// The first `count` of these conditions.
    pub(crate) fn new(conditions: [u8; 4], count: u8) -> Predicates {
        Predicates { conditions, count }
    }

    /// The conditions by the machine's own numbers, one for each instruction that follows.
    pub fn conditions(&self) -> &[u8] {
        &self.conditions[..usize::from(self.count)]
    }
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To a fixed target, always ([`BranchKind::Jump`]), on a condition, or as a call.
    Direct {
        /// Which branch.
        branch: Branch,
        /// Target, in the terms of the address given to [`crate::Isa::decode`].
        target: u64,
        /// Where in the instruction the displacement is, in bytes from its start.
        field_offset: u8,
        /// Width of the displacement in bytes.
        field_width: u8,
    },
    /// To a computed target.
    IndirectJump,
    /// To a computed target and back.
    IndirectCall,
    /// Back to the caller, or out of an interrupt or system call.
    Return,
    /// To a trap handler, which may resume behind it (`ud2`).
    Trap,
}

impl Flow {
    /// The same, where the branch comes back because something else has seen to that.
    pub fn as_call(self) -> Flow {
        match self {
            Flow::IndirectJump => Flow::IndirectCall,
            Flow::Direct {
                branch: Branch { kind: BranchKind::Jump, condition },
                target,
                field_offset,
                field_width,
            } => {
                let branch = Branch { kind: BranchKind::Call, condition };
                Flow::Direct { branch, target, field_offset, field_width }
            }
            other => other,
        }
    }
}

/// A direct branch: its kind and condition, in the machine's own coding of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Branch {
    /// Jump, conditional or call.
    pub kind: BranchKind,
    /// The machine's own number of the condition (`jcc`: 0 to 15); 0 for jumps and calls.
    pub condition: u8,
}

/// The kinds of direct branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchKind {
    /// Always taken.
    Jump,
    /// Taken on a condition, else falls through.
    Conditional,
    /// Taken, and comes back unless the callee does not return.
    Call,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Its address.
    pub address: Address,
    /// Bytes that are read or written there; 0 if only the address is taken (`lea`).
    pub width: u8,
    /// Where in the instruction the displacement is, in bytes from its start, if it has one.
    pub displacement_offset: Option<u8>,
}

/// A field of an instruction that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressField {
    /// Where in the instruction, in bytes from its start.
    pub offset: u8,
    /// Width in bytes.
    pub width: u8,
    /// Bytes from the field to the end of the instruction where the processor counts from there, else 0.
    pub bias: u8,
    /// The machine's relocation number.
    pub r_type: u32,
    /// What that computes.
    pub class: RelocClass,
}

/// Where bytes lie that [`crate::Rewritable::encode_store_one`] stores to: from `first` bytes behind a multiple of `align` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLayout {
    /// In bytes.
    pub align: u32,
    /// In bytes.
    pub first: u32,
    /// How many bytes from there on a store reaches. An address for the next ones is this many bytes further.
    pub span: u32,
    /// Whether the store changes a register, so that it is shorter where one is free.
    pub takes_register: bool,
}

/// What [`crate::Rewritable::encode_store_one`] appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOne {
    /// The fields that relocations fill in, by rising offset in bytes from the start of what was appended.
    pub fields: Vec<AddressField>,
    /// What each of them adds to the address.
    pub addend: i64,
    /// Whether it saves a register on the stack, because none is free.
    pub saves: bool,
}

/// What an instruction has to do with exclusive access to memory (`ldrex` and `strex` of ARM). Any store between an
/// exclusive load and its store may make that one fail, every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusive {
    /// Whether it loads, and does not store.
    pub loads: bool,
    /// Whether it is known to do so whenever control comes there.
    pub always: bool,
}

/// A field of an instruction that the linker fills in: with `symbol + addend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelocatedField {
    /// Where in the instruction, in bytes from its start.
    pub offset: u8,
    /// Width in bytes.
    pub width: u8,
    /// What the linker computes, the address of the instruction aside.
    pub symbol: Symbol,
    /// What is added to it.
    pub addend: i64,
}

/// Width in bytes of a branch field that reaches all of a program, if only by code that the linker puts in between.
pub const FAR: u8 = 4;

/// One encoding of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchForm {
    /// Length of the whole branch in bytes.
    pub len: u8,
    /// Where in it the displacement is, in bytes from its start.
    pub field_offset: u8,
    /// Width of the displacement in bytes; on ARM, of the instruction that holds it.
    pub field_width: u8,
    /// The least and the greatest displacement that it spans, in bytes from the end of the branch.
    pub reach: (i64, i64),
}

impl BranchForm {
    /// Whether this form spans `displacement` bytes, counted from the end of the branch.
    pub fn reaches(self, displacement: i64) -> bool {
        (self.reach.0..=self.reach.1).contains(&displacement)
    }

    /// Whether this form reaches all of a program, with a relocation.
    pub fn reaches_everywhere(self) -> bool {
        self.field_width >= FAR
    }
}

/// The relocation of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchRelocation {
    /// The machine's relocation number.
    pub r_type: u32,
    /// Bytes from the field to where the processor counts from.
    pub bias: u8,
}

/// What [`crate::Rewritable::literal`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The place, in the terms of the address that was given, without the bit that says Thumb.
    pub target: u64,
    /// How many bytes are read there; `None` if the address is computed.
    pub read: Option<u8>,
}
