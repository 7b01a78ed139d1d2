/*!
Instruction sets, each an implementation of one trait.

The graph, the passes and the scanners use an [`Isa`] for two things: [`Isa::decode`] gives an instruction as a value
([`Inst`]), with its length and control flow, and [`Isa::effects`] its results, in the small language of [`semantics`].
The rewriter also needs the encodings of branches and the instructions that can be moved; a [`Rewritable`] instruction set adds these. No
code outside this crate looks at an opcode, so a new machine is one new directory here.
*/

pub mod aarch64;
pub mod arm;
mod convention;
mod inst;
mod instruction;
mod reading;
mod rewriting;
pub mod semantics;
pub mod specializing;
pub mod x86;

use kelf::Machine;

pub use convention::{Convention, SystemCall};
pub use inst::Inst;
pub use instruction::{
    AddressField, At, Branch, BranchForm, BranchKind, BranchRelocation, Encoding, Exclusive, FAR, Flow, Insn,
    Literal, MemoryOperand, Predicates, Reads, RelocatedField, StoreLayout, StoreOne,
};
pub use reading::{Addressing, Isa, Reader};
pub use rewriting::Rewritable;
pub use semantics::{
    Address, BinaryOp, Condition, Effect, Flags, Memory, Reg, Segment, Symbol, TEMPORARY, Value, low_bytes,
    low_mask, sign_extend,
};

/// Returns the instruction set of a machine.
pub fn isa(machine: Machine) -> &'static dyn Isa {
    match machine {
        Machine::I386 => &x86::I386,
        Machine::X86_64 => &x86::X86_64,
        Machine::Arm => &arm::Arm,
        Machine::Aarch64 => &aarch64::Aarch64,
    }
}

/// Returns the instruction set of a machine, if kshrink can rewrite its code.
pub fn rewritable(machine: Machine) -> Option<&'static dyn Rewritable> {
    match machine {
        Machine::I386 => Some(&x86::I386),
        Machine::X86_64 => Some(&x86::X86_64),
        Machine::Arm => Some(&arm::Arm),
        Machine::Aarch64 => None,
    }
}
