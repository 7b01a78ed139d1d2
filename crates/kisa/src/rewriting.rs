//! Instruction sets whose code can also be rewritten.

use kelf::RelocClass;

use crate::inst::Inst;
use crate::instruction::{
    AddressField, At, Branch, BranchForm, BranchRelocation, Encoding, Exclusive, Literal, Reads,
    RelocatedField, StoreLayout, StoreOne,
};
use crate::reading::Isa;
use crate::semantics::{Condition, Effect, Reg};
use crate::specializing::Specialize;

/// An instruction set whose code can also be split, changed and laid out again.
pub trait Rewritable: Isa {
    /// Returns the encodings of a branch, shortest first; at least one.
    fn branch_forms(&self, branch: Branch) -> &'static [BranchForm];

    /// Returns the longest encoding of a branch.
    fn longest_form(&self, branch: Branch) -> BranchForm {
        *self.branch_forms(branch).last().expect("a branch has a form")
    }

    /// Whether a branch has a form that reaches the whole program.
    fn reaches_everywhere(&self, branch: Branch) -> bool {
        self.longest_form(branch).reaches_everywhere()
    }

    /// Appends the branch in one of its forms to `out`. `displacement` counts in bytes from the end of the branch, and
    /// is within the form's reach.
    fn encode_branch(&self, branch: Branch, form: BranchForm, displacement: i64, out: &mut Vec<u8>);

    /// Returns the branch with the opposite condition; `None` if there is no such branch.
    fn inverse(&self, branch: Branch) -> Option<Branch>;

    /// Returns the unconditional jump of an encoding.
    fn jump(&self, encoding: Encoding) -> Branch;

    /// Returns the relocation of a branch whose target is left to the linker. `len` is the length in bytes of a form
    /// that reaches everywhere ([`BranchForm::reaches_everywhere`]).
    fn branch_relocation(&self, branch: Branch, len: u8) -> BranchRelocation;

    /// Appends `size` bytes of executable padding.
    fn encode_nops(&self, encoding: Encoding, size: usize, out: &mut Vec<u8>);

    /// Returns the layout of the bytes that [`Rewritable::encode_store_one`] stores to. Returns `None` if no store of 1
    /// to a byte is known to work on all processors of an architecture, given as `Tag_CPU_arch` of the attributes of
    /// ARM objects.
    fn store_layout(&self, architecture: Option<u64>) -> Option<StoreLayout>;

    /// Appends instructions in this encoding that store 1 to the byte `displacement` bytes after an address that
    /// relocations fill in. They change no flags, and only registers in `free`, a set of bits by [`Reg`].
    /// [`Rewritable::store_layout`] describes the position of the byte.
    fn encode_store_one(
        &self,
        encoding: Encoding,
        free: u64,
        displacement: u32,
        out: &mut Vec<u8>,
    ) -> StoreOne;

    /// Whether the processor takes no interrupt between an instruction and the next one, so
    /// that no instruction may be inserted between them (`sti; hlt`: Intel SDM, volume 3A, section 6.8).
    fn holds_interrupts(&self, inst: &Inst<'_>) -> bool;

    /// Returns the role of an instruction in an exclusive access to memory; `None` if it has
    /// none.
    fn exclusive(&self, inst: &Inst<'_>) -> Option<Exclusive>;

    /// Appends a direct call in this encoding. A relocation supplies the callee.
    fn encode_call(&self, encoding: Encoding, out: &mut Vec<u8>) -> AddressField;

    /// Appends an instruction in this encoding that returns from a function: to the return address of its call, with
    /// the stack pointer as it was at the call.
    fn encode_return(&self, encoding: Encoding, out: &mut Vec<u8>);

    /// Appends an instruction in this encoding that pushes the link register, if there is one. Before a call, the two
    /// change only the stack pointer and the link register, whose old value is then on the stack.
    fn encode_push_link(&self, encoding: Encoding, out: &mut Vec<u8>);

    /// Appends an instruction in this encoding that changes the contents of a register and nothing else. Returns
    /// whether the set has such an encoding.
    fn encode_overwrite(&self, encoding: Encoding, reg: Reg, out: &mut Vec<u8>) -> bool;

    /// Appends the shortest instruction in this encoding that puts a number, zero-extended from 4 bytes, into a
    /// register. It changes nothing else but the flags, and those only if they may change. Returns whether a supported
    /// instruction exists.
    fn encode_number(
        &self,
        encoding: Encoding,
        reg: Reg,
        number: u32,
        flags_may_change: bool,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Appends an instruction in this encoding that loads 4 bytes, zero-extended, into a register, from `displacement`
    /// bytes after the address in another register, and changes nothing else. Returns whether this is supported; if not, appends
    /// nothing.
    fn encode_load_word(
        &self,
        encoding: Encoding,
        dst: Reg,
        base: Reg,
        displacement: u8,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Appends instructions in this encoding that compare the low 4 bytes of a register with a number, for
    /// [`Rewritable::branch_if_equal`]. They change only the flags and, if given, `scratch`, a register other than
    /// `reg`. Returns whether this is supported; if not, appends nothing.
    fn encode_compare(
        &self,
        encoding: Encoding,
        reg: Reg,
        number: u32,
        scratch: Option<Reg>,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Returns the branch in this encoding that is taken if the operands of the last comparison are equal; `None` if
    /// this is not supported.
    fn branch_if_equal(&self, encoding: Encoding) -> Option<Branch>;

    /// Appends an instruction in this encoding that changes the flags and nothing else.
    fn encode_overwrite_flags(&self, encoding: Encoding, out: &mut Vec<u8>);

    /// Returns the length of the instruction at the start of `bytes` if assemblers use it as padding.
    fn padding_len(&self, bytes: &[u8], encoding: Encoding) -> Option<usize>;

    /// Returns the condition of a conditional branch, in terms of the last comparison.
    fn condition(&self, branch: Branch) -> Condition;

    /// Returns the register that a conditional branch itself compares with 0, and the condition on that comparison. An
    /// example is `cbz` of Thumb code, whose [`Rewritable::condition`] is unknown.
    fn compared(&self, branch: Branch) -> Option<(Reg, Condition)>;

    /// Whether an instruction can be moved: it does the same at another address once its
    /// direct target is encoded again, and [`crate::Insn`] describes its control flow completely. False for branches
    /// that compilers do not emit (loop instructions, transactions, branches with most prefixes).
    fn can_move(&self, inst: &Inst<'_>) -> bool;

    /// Returns the nearby place that an instruction reads, or whose address it computes, by
    /// its distance from the instruction (`ldr r0, [pc, #8]`, `adr` of ARM). The place may have no relocation.
    fn literal(&self, inst: &Inst<'_>) -> Option<Literal>;

    /// Returns the program counter, if an instruction computes an address from it and from a
    /// register (`add r3, pc, r3` of ARM, `add r3, pc` of Thumb code).
    fn computes_from_pc(&self, inst: &Inst<'_>) -> Option<u64>;

    /// Returns the offset of the 4 bytes in an instruction that hold the distance of its memory operand from its end,
    /// and the address of the operand; `None` if its operand, if any, is addressed otherwise.
    fn operand_beside(&self, _inst: &Inst<'_>) -> Option<(u8, u64)> {
        None
    }

    /// Returns the register, the number, and whether it is the upper half, if an instruction
    /// puts a number of two bytes into half of a register (`movw` and `movt` of ARM). `movt` does not change the lower
    /// half.
    fn half_of_number(&self, inst: &Inst<'_>) -> Option<(Reg, u16, bool)>;

    /// Returns the length of the instruction at the start of `bytes`, even if [`Isa::decode`] does not support it;
    /// `None` if the encoding does not determine the length. Machines that return a length support every branch.
    fn length(&self, bytes: &[u8], encoding: Encoding) -> Option<usize>;

    /// Makes the instruction at the start of `bytes`, which has a [`Rewritable::literal`], refer to `target`. Returns
    /// whether the target is within reach; if not, the bytes are unchanged.
    fn set_literal(&self, bytes: &mut [u8], at: At, target: u64) -> bool;

    /// Clears the distance in the instruction at the start of `bytes`, which has a [`Rewritable::literal`], so that
    /// instructions that differ only in the distance become equal bytes.
    fn clear_literal(&self, bytes: &mut [u8], encoding: Encoding);

    /// Returns the width in bytes of the slots of the table after an instruction, if it jumps
    /// through such a table. Each slot is the distance in halfwords from the start of the table to a target (`tbb [pc,
    /// r0]` of Thumb code).
    fn distance_table(&self, inst: &Inst<'_>) -> Option<u8>;

    /// Returns the register that holds the index, from 0, into that table; `None` if there is no such table.
    fn distance_index(&self, inst: &Inst<'_>) -> Option<Reg>;

    /// Returns the register that holds the address of the table of addresses through which the instruction at the start
    /// of `bytes` jumps (`ldr pc, [r2, r3, lsl #2]` of ARM). Returns the program counter if the table is two
    /// instructions further; [`Rewritable::literal`] then gives its address.
    fn address_table(&self, inst: &Inst<'_>) -> Option<Reg>;

    /// Makes the instruction at the start of `bytes`, which has a [`Rewritable::distance_table`], use a table with
    /// slots of this width in bytes. Returns whether there is such an instruction; it has the same length.
    fn set_distance_table(&self, bytes: &mut [u8], encoding: Encoding, width: u8) -> bool;

    /// Returns the unit in bytes of instruction lengths: every length is a multiple of it.
    fn unit(&self, encoding: Encoding) -> usize;

    /// Whether the `width` bytes at `offset` of an instruction are one of its constants: a
    /// displacement or an immediate. A relocation of this class fills them. The instruction is the same for any value
    /// of a constant.
    fn is_constant(&self, inst: &Inst<'_>, offset: u8, width: u8, class: RelocClass) -> bool;

    /// Returns the registers through which an instruction implicitly accesses memory (string
    /// instructions), as a set of bits by [`Reg`]. Each register points to the first byte.
    fn string_registers(&self, inst: &Inst<'_>) -> u64;

    /// Appends to `out` the computation of an instruction, some of whose fields the linker
    /// fills in. An address relative to the instruction itself is unknown unless it is relocated.
    fn relocated_effects(&self, inst: &Inst<'_>, fields: &[RelocatedField], out: &mut Vec<Effect>);

    /// Whether an instruction only computes: it reads registers, flags and its memory
    /// operand, writes registers and the flags that conditions use, and has no other effect, however often it runs.
    /// False for unsupported instructions.
    fn only_computes(&self, inst: &Inst<'_>) -> bool;

    /// Adapts the instruction at the start of `bytes` to code that is called from its old place: an operand relative to
    /// the stack pointer skips the return address, if calls push one. Returns whether the instruction then has the same
    /// effect. Returns `false`, with the bytes unchanged, if the instruction does more than compute or store, or uses
    /// the stack pointer, the link register of a call, or its own address in another way.
    fn move_into_callee(&self, bytes: &mut [u8], at: At) -> bool;

    /// Adds a number of bytes to the displacement of the memory operand of the instruction at the start of `bytes`.
    /// Returns whether this is supported, and the instruction has a field that holds the sum; if not, the bytes are
    /// unchanged.
    fn shift_operand(&self, _bytes: &mut [u8], _at: At, _by: i32) -> bool {
        false
    }

    /// Returns the operations that copies of code with known inputs need, if the instruction set supports them.
    fn specialize(&self) -> Option<&dyn Specialize> {
        None
    }

    /// Whether an instruction writes its memory operand, and flags, and has no other effect.
    /// The written value may depend on the old one. False for unsupported instructions.
    fn only_stores(&self, inst: &Inst<'_>) -> bool;

    /// Whether an instruction reads one of the flags that conditions test. True for bytes that
    /// are not an instruction.
    fn reads_flags(&self, inst: &Inst<'_>) -> bool;

    /// Whether bytes begin with an instruction to which computed calls and jumps must lead (`endbr64` of x86).
    fn is_landing_pad(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// Returns what an instruction reads.
    fn reads(&self, inst: &Inst<'_>) -> Reads;

    /// Formats one instruction as human-readable text.
    fn format(&self, bytes: &[u8], at: At) -> String;
}
