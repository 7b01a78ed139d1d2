/*!
Instruction sets behind one trait.

The graph, the passes and the scanners ask an [`Isa`] two things: where an instruction ends and where
control goes after it ([`Isa::decode`]), and what it computes, in the small language of [`semantics`]
([`Isa::effects`]). The rewriter also needs to know how branches are encoded and what may be moved, which
is what a [`Rewritable`] instruction set adds. Nothing outside this crate looks at an opcode, so that a
new machine comes in as one directory here.
*/

pub mod aarch64;
pub mod arm;
mod instruction;
pub mod semantics;
pub mod x86;

use kelf::{Machine, RelocClass};

pub use instruction::{
    AddressField, Branch, BranchForm, BranchKind, BranchRelocation, Encoding, Exclusive, Explained, FAR,
    Flow, Insn, Literal, MemoryOperand, Predicates, Reads, RelocatedField, StoreLayout, StoreOne,
};
pub use semantics::{
    Address, BinaryOp, Condition, Effect, Flags, Memory, Reg, Segment, Symbol, TEMPORARY, Value, low_bytes,
    low_mask, sign_extend,
};

/// An instruction set whose code can be read.
pub trait Isa: Sync {
    /// The machine whose code this decodes.
    fn machine(&self) -> Machine;

    /// Decodes the instruction at the start of `bytes`, which lies at `address` (an address of a
    /// program, or an offset in a section). `None` if the bytes are no instruction or end within it.
    fn decode(&self, bytes: &[u8], address: u64) -> Option<Insn>;

    /// Appends to `out` what the instruction at the start of `bytes` computes, in order. An
    /// instruction that the model does not know clobbers every register that it writes.
    fn effects(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>);

    /// The memory operand of the instruction at the start of `bytes`, if it has one that is written out.
    fn memory_operand(&self, bytes: &[u8], address: u64) -> Option<MemoryOperand>;

    /// The registers that the instruction at the start of `bytes` reads, as a set of bits by [`Reg`]; all of
    /// them if it is not understood.
    fn registers_read(&self, bytes: &[u8], address: u64) -> u64;

    /// What [`Isa::decode`] and [`Isa::memory_operand`] return for the instruction at the start of `bytes`, with its
    /// effects appended to `out`. Decodes once, where three calls would decode three times.
    fn explain(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>) -> Option<Explained> {
        let insn = self.decode(bytes, address)?;
        self.effects(bytes, address, out);
        Some(Explained { insn, operand: self.memory_operand(bytes, address) })
    }

    /// A reader of the instructions in `bytes`, for callers that read one behind the other.
    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader + 'b>;

    /// The stack pointer.
    fn stack_pointer(&self) -> Reg;

    /// The number of registers of the model: every [`Reg`] has a number below it.
    fn registers(&self) -> usize {
        usize::from(TEMPORARY.0) + 1
    }
}

/// Reads the instructions of one piece of code. `offset` says where in it, the rest is as an [`Isa`] has it.
pub trait Reader {
    /// See [`Isa::decode`].
    fn decode(&mut self, offset: usize, address: u64) -> Option<Insn>;

    /// See [`Isa::effects`].
    fn effects(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>);

    /// See [`Isa::explain`].
    fn explain(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) -> Option<Explained>;
}

/// A reader for instruction sets whose decoder keeps no state from one instruction to the next.
struct PlainReader<'b> {
    isa: &'b dyn Isa,
    bytes: &'b [u8],
}

impl Reader for PlainReader<'_> {
    fn decode(&mut self, offset: usize, address: u64) -> Option<Insn> {
        self.isa.decode(self.bytes.get(offset..)?, address)
    }

    fn effects(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) {
        self.isa.effects(self.bytes.get(offset..).unwrap_or_default(), address, out)
    }

    fn explain(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) -> Option<Explained> {
        self.isa.explain(self.bytes.get(offset..)?, address, out)
    }
}

/// An instruction set whose code can also be cut apart, changed and laid out anew.
pub trait Rewritable: Isa {
    /// The encodings of a branch, shortest first; at least one.
    fn branch_forms(&self, branch: Branch) -> &'static [BranchForm];

    /// The longest encoding of a branch.
    fn longest_form(&self, branch: Branch) -> BranchForm {
        *self.branch_forms(branch).last().expect("a branch has a form")
    }

    /// Whether a branch has a form that reaches all of a program.
    fn reaches_everywhere(&self, branch: Branch) -> bool {
        self.longest_form(branch).reaches_everywhere()
    }

    /// Appends the branch in one of its forms to `out`. `displacement` counts in bytes from the end
    /// of the branch, and lies within the form's reach.
    fn encode_branch(&self, branch: Branch, form: BranchForm, displacement: i64, out: &mut Vec<u8>);

    /// The branch that is taken when this one is not; `None` if there is no such branch.
    fn inverse(&self, branch: Branch) -> Option<Branch>;

    /// The unconditional jump of an encoding.
    fn jump(&self, encoding: Encoding) -> Branch;

    /// The relocation of a branch in a form of this length in bytes, if its target is left to the linker. It is a form
    /// that reaches everywhere ([`BranchForm::reaches_everywhere`]).
    fn branch_relocation(&self, branch: Branch, len: u8) -> BranchRelocation;

    /// Appends `size` bytes of padding that may be executed.
    fn encode_nops(&self, encoding: Encoding, size: usize, out: &mut Vec<u8>);

    /// Where the bytes lie that [`Rewritable::encode_store_one`] stores to; `None` if it is not known how to store 1 to a
    /// byte on all processors of an architecture, which is the value of `Tag_CPU_arch` in the attributes of ARM objects.
    fn store_layout(&self, architecture: Option<u64>) -> Option<StoreLayout>;

    /// Appends instructions in this encoding that store 1 to a byte `displacement` bytes behind an address that is left to
    /// relocations, and that change neither flags nor registers but those in `free`, a set of bits by [`Reg`]. The byte lies as
    /// [`Rewritable::store_layout`] says.
    fn encode_store_one(
        &self,
        encoding: Encoding,
        free: u64,
        displacement: u32,
        out: &mut Vec<u8>,
    ) -> StoreOne;

    /// Whether the processor may take no interrupt between the instruction at the start of `bytes` and the next one, so that
    /// nothing may come between them (`sti; hlt`: Intel SDM, volume 3A, section 6.8).
    fn holds_interrupts(&self, bytes: &[u8]) -> bool {
        let _ = bytes;
        false
    }

    /// What the instruction at the start of `bytes` has to do with exclusive access to memory; `None` if nothing.
    fn exclusive(&self, bytes: &[u8], address: u64) -> Option<Exclusive> {
        let _ = (bytes, address);
        None
    }

    /// Appends a direct call in this encoding whose callee is left to a relocation.
    fn encode_call(&self, encoding: Encoding, out: &mut Vec<u8>) -> AddressField;

    /// Appends an instruction in this encoding that returns from a function: to where a call of it said, with the stack pointer
    /// as it was there.
    fn encode_return(&self, encoding: Encoding, out: &mut Vec<u8>);

    /// Appends an instruction in this encoding that pushes [`Rewritable::link_register`], if there is one: with it in front of a
    /// call, the two change no register but the stack pointer and that one, and what that one held lies on the stack.
    fn encode_push_link(&self, encoding: Encoding, out: &mut Vec<u8>) {
        let _ = (encoding, out);
    }

    /// Appends an instruction in this encoding that gives a register other contents, and changes nothing else. Returns
    /// whether it is known how.
    fn encode_overwrite(&self, encoding: Encoding, reg: Reg, out: &mut Vec<u8>) -> bool;

    /// Appends the shortest instruction in this encoding that puts a number, zero-extended from 4 bytes, into a register,
    /// and changes nothing else but the flags, if those may change. Returns whether there is one that is known.
    fn encode_number(
        &self,
        encoding: Encoding,
        reg: Reg,
        number: u32,
        flags_may_change: bool,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Appends an instruction in this encoding that loads a word into a register from so many bytes behind where another
    /// register points, and changes nothing else. Returns whether it is known how; if not, nothing is appended.
    fn encode_load_word(
        &self,
        encoding: Encoding,
        dst: Reg,
        base: Reg,
        displacement: u8,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Appends instructions in this encoding that compare a register with a number, so that [`Rewritable::branch_if_equal`]
    /// tells whether it holds that. They change nothing but the flags, and perhaps `scratch` if there is such a register,
    /// another than `reg`. Returns whether it is known how; if not, nothing is appended.
    fn encode_compare(
        &self,
        encoding: Encoding,
        reg: Reg,
        number: u32,
        scratch: Option<Reg>,
        out: &mut Vec<u8>,
    ) -> bool;

    /// The branch in this encoding that is taken if the operands of the last comparison are equal; `None` if it is not
    /// known.
    fn branch_if_equal(&self, encoding: Encoding) -> Option<Branch>;

    /// Appends an instruction in this encoding that gives the flags other contents, and changes nothing else.
    fn encode_overwrite_flags(&self, encoding: Encoding, out: &mut Vec<u8>);

    /// The length of the instruction at the start of `bytes` if it is one that assemblers pad with.
    fn padding_len(&self, bytes: &[u8], address: u64) -> Option<usize>;

    /// The condition of a conditional branch, in terms of the last comparison.
    fn condition(&self, branch: Branch) -> Condition;

    /// The register that a conditional branch itself compares with 0, and the condition on that comparison (`cbz` of Thumb
    /// code, for which [`Rewritable::condition`] says nothing).
    fn compared(&self, branch: Branch) -> Option<(Reg, Condition)> {
        let _ = branch;
        None
    }

    /// Whether the instruction at the start of `bytes` can be moved: it does the same at another address once its direct
    /// target is encoded again, and [`Insn`] describes its control flow completely. That is not so for branches that
    /// compilers do not emit (loop instructions, transactions, branches with prefixes).
    fn can_move(&self, bytes: &[u8], address: u64) -> bool;

    /// The place near by that the instruction at the start of `bytes` reads, or whose address it computes, by its
    /// distance from the instruction (`ldr r0, [pc, #8]`, `adr` of ARM). No relocation need tell of it.
    fn literal(&self, bytes: &[u8], address: u64) -> Option<Literal> {
        let _ = (bytes, address);
        None
    }

    /// The program counter that the instruction at the start of `bytes` computes an address from, together with a register
    /// (`add r3, pc, r3` of ARM, `add r3, pc` of Thumb code); `None` if it does not.
    fn computes_from_pc(&self, bytes: &[u8], address: u64) -> Option<u64> {
        let _ = (bytes, address);
        None
    }

    /// The register, the number, and whether it is the upper half, if the instruction at the start of `bytes` puts a number of two
    /// bytes into half of a register (`movw` and `movt` of ARM). `movt` does not change the lower half.
    fn half_of_number(&self, bytes: &[u8], address: u64) -> Option<(Reg, u16, bool)> {
        let _ = (bytes, address);
        None
    }

    /// The length of the instruction at the start of `bytes`, also of one that [`Isa::decode`] does not know; `None` if the
    /// machine does not tell. On such machines, every branch is known.
    fn length(&self, bytes: &[u8], address: u64) -> Option<usize> {
        let _ = (bytes, address);
        None
    }

    /// Makes the instruction at the start of `bytes`, for which there is [`Rewritable::literal`], refer to `target`.
    /// Returns whether it reaches; if not, the bytes are unchanged.
    fn set_literal(&self, bytes: &mut [u8], address: u64, target: u64) -> bool {
        let _ = (bytes, address, target);
        false
    }

    /// Clears the distance in the instruction at the start of `bytes`, for which there is [`Rewritable::literal`], so that
    /// instructions that differ in nothing else become the same bytes.
    fn clear_literal(&self, bytes: &mut [u8], address: u64) {
        let _ = (bytes, address);
    }

    /// The width in bytes of the slots of the table behind the instruction at the start of `bytes`, if that jumps by
    /// such a table: each slot is the distance in halfwords from the start of the table to a target (`tbb [pc, r0]` of
    /// Thumb code).
    fn distance_table(&self, bytes: &[u8], address: u64) -> Option<u8> {
        let _ = (bytes, address);
        None
    }

    /// The register that says which slot of that table control goes by, from 0; `None` where there is no such table.
    fn distance_index(&self, bytes: &[u8], address: u64) -> Option<Reg> {
        let _ = (bytes, address);
        None
    }

    /// The register that holds the address of a table of addresses by which the instruction at the start of `bytes` jumps
    /// (`ldr pc, [r2, r3, lsl #2]` of ARM); the program counter if the table lies two instructions further, for which there
    /// is then [`Rewritable::literal`].
    fn address_table(&self, bytes: &[u8], address: u64) -> Option<Reg> {
        let _ = (bytes, address);
        None
    }

    /// Makes the instruction at the start of `bytes`, for which there is [`Rewritable::distance_table`], jump by a table with
    /// slots of this width in bytes. Returns whether there is such an instruction; it has the same length.
    fn set_distance_table(&self, bytes: &mut [u8], address: u64, width: u8) -> bool {
        let _ = (bytes, address, width);
        false
    }

    /// The multiple of bytes that the length of every instruction is.
    fn unit(&self, encoding: Encoding) -> usize {
        let _ = encoding;
        1
    }

    /// Whether the `width` bytes at `offset` of the instruction at the start of `bytes`, which a relocation of this
    /// class fills, are one of its constants: a displacement or an immediate, which can be any number without making it
    /// another instruction.
    fn is_constant(&self, bytes: &[u8], address: u64, offset: u8, width: u8, class: RelocClass) -> bool;

    /// The registers through which the instruction at the start of `bytes` implicitly accesses memory (string
    /// instructions), as a set of bits by [`Reg`]: the first byte is where the register points.
    fn string_registers(&self, bytes: &[u8]) -> u64;

    /// Appends to `out` what the instruction at the start of `bytes` computes, where some of its fields are left to the
    /// linker. An address that counts from the instruction itself, and that nothing relocates, is unknown.
    fn relocated_effects(&self, bytes: &[u8], address: u64, fields: &[RelocatedField], out: &mut Vec<Effect>);

    /// Whether the instruction at the start of `bytes` does nothing but to compute: it reads registers, flags and its
    /// memory operand, writes registers and the flags that conditions ask for, and would do nothing else, however often
    /// it ran. `false` also of what is not known.
    fn only_computes(&self, bytes: &[u8], address: u64) -> bool;

    /// Makes the instruction at the start of `bytes` fit for code that is called from where it was: what counts from the stack
    /// pointer counts from behind the return address, where a call pushes that. Returns whether it does there what it did. `false`
    /// of all that does more than to compute or to store, or has to do with the stack pointer, the register that a call leaves
    /// the return address in, or its own address in another way; the bytes are as they were then.
    fn move_into_callee(&self, bytes: &mut [u8], address: u64) -> bool;

    /// Whether the instruction at the start of `bytes` writes its memory operand, and flags, and does nothing else. What it
    /// writes may be computed from what was there. `false` also of what is not known.
    fn only_stores(&self, bytes: &[u8], address: u64) -> bool;

    /// Whether the instruction at the start of `bytes` reads one of the flags that conditions are about. True for bytes that
    /// are no instruction.
    fn reads_flags(&self, bytes: &[u8], address: u64) -> bool;

    /// What the instruction at the start of `bytes` reads; everything if it is not understood.
    fn reads(&self, bytes: &[u8], address: u64) -> Reads {
        let operand = self.memory_operand(bytes, address);
        Reads {
            registers: self.registers_read(bytes, address),
            flags: self.reads_flags(bytes, address),
            memory: operand.is_some_and(|operand| operand.width > 0) || self.string_registers(bytes) != 0,
        }
    }

    /// The register that a call leaves the return address in; `None` if it pushes it.
    fn link_register(&self) -> Option<Reg> {
        None
    }

    /// The registers that a called function may change, as a set of bits.
    fn call_clobbered(&self) -> u64;

    /// The registers that a function's result is in, the low half first if it takes two.
    fn results(&self) -> [Reg; 2];

    /// All registers that a function's result may be in, as a set of bits.
    fn returned(&self) -> u64;

    /// The register that carries a function's argument of this number, from 0, in the kernel's calling
    /// convention (`-mregparm=3` on i386).
    fn argument(&self, number: usize) -> Option<Reg>;

    /// One instruction as text, for people.
    fn format(&self, bytes: &[u8], address: u64) -> String;
}

/// The instruction set of a machine.
pub fn isa(machine: Machine) -> &'static dyn Isa {
    match machine {
        Machine::I386 => &x86::I386,
        Machine::X86_64 => &x86::X86_64,
        Machine::Arm => &arm::Arm,
        Machine::Aarch64 => &aarch64::Aarch64,
    }
}

/// The instruction set of a machine, if kshrink can rewrite its code.
pub fn rewritable(machine: Machine) -> Option<&'static dyn Rewritable> {
    match machine {
        Machine::I386 => Some(&x86::I386),
        Machine::X86_64 => Some(&x86::X86_64),
        Machine::Arm => Some(&arm::Arm),
        Machine::Aarch64 => None,
    }
}
