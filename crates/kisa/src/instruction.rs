//! Types that describe instructions: encoding, control flow and fields.

use kelf::{Machine, RelocClass};

use crate::semantics::{Address, Symbol};

/// The encoding of a piece of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encoding {
    /// The only encoding; on 32-bit ARM, A32 (ARM code).
    #[default]
    Main,
    /// T32 of 32-bit ARM (Thumb code).
    Thumb,
}

impl Encoding {
    /// Returns the place of an unconditional instruction in this encoding.
    pub fn at(self, address: u64) -> At {
        At { address, encoding: self, condition: None }
    }
}

/// The place of an instruction, and what its bytes do not say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// Its address in a program, or its offset in a section.
    pub address: u64,
    /// Its encoding.
    pub encoding: Encoding,
    /// The condition that an instruction before it applies to it ([`Insn::predicates`]).
    pub condition: Option<u8>,
}

impl At {
    /// Returns the place given by the address of code as a value: bit 0 is set for Thumb code, as in ELF and in the
    /// branch instructions.
    pub fn of_pointer(machine: Machine, pointer: u64) -> At {
        let address = machine.first_byte(pointer);
        let encoding = if address == pointer { Encoding::Main } else { Encoding::Thumb };
        encoding.at(address)
    }

    /// Returns the address of the code as a value, see [`At::of_pointer`].
    pub fn pointer(self) -> u64 {
        self.address | u64::from(self.encoding == Encoding::Thumb)
    }

    /// Returns the same place with the condition that an instruction before it applies.
    pub fn on(self, condition: Option<u8>) -> At {
        At { condition, ..self }
    }

    /// Returns the place of the same instruction at another address.
    pub fn moved_to(self, address: u64) -> At {
        At { address, ..self }
    }
}

/// The length and the control flow of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Length in bytes.
    pub len: u8,
    /// The control flow after it.
    pub flow: Flow,
    /// Whether it enters the kernel for a system call (`int $0x80`, `sysenter`, `syscall`,
    /// `call *%gs:0x10`, `svc`).
    pub system_call: bool,
    /// Whether a transfer of control other than a [`BranchKind::Conditional`] (a conditional return of 32-bit ARM)
    /// depends on a condition, so that control may also continue at the next instruction.
    pub conditional: bool,
    /// The conditions that it applies to the following instructions (`it` of Thumb code).
    pub predicates: Predicates,
}

/// The result of [`crate::Rewritable::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The registers, see [`crate::Isa::registers_read`].
    pub registers: u64,
    /// Whether it reads flags, see [`crate::Rewritable::reads_flags`].
    pub flags: bool,
    /// Whether it reads or writes memory, at an explicit operand or as a string instruction.
    pub memory: bool,
}

/// The conditions that `it` of Thumb code applies to the following instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predicates {
    conditions: [u8; 4],
    count: u8,
}

impl Predicates {
    /// No conditions, for all other instructions.
    pub const NONE: Predicates = Predicates { conditions: [0; 4], count: 0 };

    /// Creates the first `count` of these conditions.
    pub(crate) fn new(conditions: [u8; 4], count: u8) -> Predicates {
        Predicates { conditions, count }
    }

    /// Returns the conditions by the machine's own numbers, one for each following instruction.
    pub fn conditions(&self) -> &[u8] {
        &self.conditions[..usize::from(self.count)]
    }
}

/// Control flow after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To a fixed target, always ([`BranchKind::Jump`]), on a condition, or as a call.
    Direct {
        /// The branch.
        branch: Branch,
        /// The address of the target as a value, see [`At::of_pointer`].
        target: u64,
        /// Offset of the displacement, in bytes from the start of the instruction.
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
    /// To a trap handler, which may resume after it (`ud2`).
    Trap,
}

impl Flow {
    /// Returns the same flow as a call, for a branch whose return address another instruction has set.
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
    /// Taken, and returns unless the callee does not return.
    Call,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Its address.
    pub address: Address,
    /// Bytes read or written there; 0 if the instruction only computes the address (`lea`).
    pub width: u8,
    /// Offset of the displacement, in bytes from the start of the instruction, if it has one.
    pub displacement_offset: Option<u8>,
}

/// A field of an instruction that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressField {
    /// Offset in bytes from the start of the instruction.
    pub offset: u8,
    /// Width in bytes.
    pub width: u8,
    /// Bytes from the field to the end of the instruction if the processor counts from there, else 0.
    pub bias: u8,
    /// The machine's relocation number.
    pub r_type: u32,
    /// The formula of the relocation.
    pub class: RelocClass,
}

/// The layout of bytes that [`crate::Rewritable::encode_store_one`] stores to: from `first` bytes after a multiple of
/// `align` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLayout {
    /// In bytes.
    pub align: u32,
    /// In bytes.
    pub first: u32,
    /// Number of bytes in reach of a store from there. The address for the next ones is this many bytes further.
    pub span: u32,
    /// Whether the store changes a register, which makes it shorter if one is free.
    pub takes_register: bool,
}

/// The result of [`crate::Rewritable::encode_store_one`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOne {
    /// The fields that relocations fill in, by ascending offset in bytes from the start of the appended code.
    pub fields: Vec<AddressField>,
    /// The addend of each field.
    pub addend: i64,
    /// Whether it saves a register on the stack, because none is free.
    pub saves: bool,
}

/// The role of an instruction in exclusive access to memory (`ldrex` and `strex` of ARM). Any store between an
/// exclusive load and its exclusive store may make the latter fail, every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusive {
    /// Whether it loads rather than stores.
    pub loads: bool,
    /// Whether it certainly makes this access whenever it executes.
    pub always: bool,
}

/// A field of an instruction that the linker fills in with `symbol + addend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelocatedField {
    /// Offset in bytes from the start of the instruction.
    pub offset: u8,
    /// Width in bytes.
    pub width: u8,
    /// The number that the linker computes, without the address of the instruction.
    pub symbol: Symbol,
    /// The number added to it.
    pub addend: i64,
}

/// Width in bytes of a branch field that reaches the whole program, if need be through code that the linker inserts.
pub const FAR: u8 = 4;

/// One encoding of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchForm {
    /// Length of the whole branch in bytes.
    pub len: u8,
    /// Offset of the displacement, in bytes from the start of the branch.
    pub field_offset: u8,
    /// Width of the displacement in bytes; on ARM, of the instruction that holds it.
    pub field_width: u8,
    /// The least and the greatest displacement, in bytes from the end of the branch.
    pub reach: (i64, i64),
}

impl BranchForm {
    /// Whether this form reaches a target at `displacement` bytes from the end of the branch.
    pub fn reaches(self, displacement: i64) -> bool {
        (self.reach.0..=self.reach.1).contains(&displacement)
    }

    /// Whether this form reaches the whole program, with a relocation.
    pub fn reaches_everywhere(self) -> bool {
        self.field_width >= FAR
    }
}

/// The relocation of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchRelocation {
    /// The machine's relocation number.
    pub r_type: u32,
    /// Bytes from the field to the address that the processor counts from.
    pub bias: u8,
}

/// The result of [`crate::Rewritable::literal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The address of the place, or its offset.
    pub target: u64,
    /// Number of bytes read there; `None` if the instruction computes the address.
    pub read: Option<u8>,
}
