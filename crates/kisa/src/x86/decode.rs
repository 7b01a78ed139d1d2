//! Decoding: instruction length and control flow.

use iced_x86::{
    Code, ConditionCode, ConstantOffsets, Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter,
    Instruction, Mnemonic, OpKind, Register,
};

use super::branch::{CONDITION_CODES, ECXZ, LOOP, LOOPE, LOOPNE};
use crate::{Branch, BranchKind, Flow, Insn, Predicates};

/// Decodes one instruction.
pub(super) fn instruction(bits: u32, bytes: &[u8], address: u64) -> Option<Instruction> {
    let instruction = Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE).decode();
    is_known(&instruction).then_some(instruction)
}

/// Whether every processor executes the instruction in the same way. `pause` with a REX prefix that extends the
/// register is `xchg %r8,%rax` on some.
fn is_known(instruction: &Instruction) -> bool {
    !instruction.is_invalid() && (instruction.mnemonic() != Mnemonic::Pause || instruction.len() == 2)
}

/// One decoded instruction with the offsets of its constants.
#[derive(Clone, Copy)]
pub(crate) struct Decoded {
    pub(super) bits: u32,
    pub(super) instruction: Instruction,
    /// The offsets of all constants, if the instruction is a branch or has a memory operand.
    pub(super) constants: ConstantOffsets,
}

impl Decoded {
    /// Decodes the instruction at the start of `bytes`.
    pub(super) fn new(bits: u32, bytes: &[u8], address: u64) -> Option<Decoded> {
        Decoded::next(&mut Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE))
    }

    /// Decodes the next instruction.
    pub(super) fn next(decoder: &mut Decoder) -> Option<Decoded> {
        let instruction = decoder.decode();
        if !is_known(&instruction) {
            return None;
        }
        // Most instructions have neither displacement nor immediate, and finding their offsets takes time.
        let constants = match has_constants(&instruction) {
            true => decoder.get_constant_offsets(&instruction),
            false => ConstantOffsets::default(),
        };
        Some(Decoded { bits: decoder.bitness(), instruction, constants })
    }

    /// Returns the offsets of all constants; `bytes` are those of the instruction.
    pub(super) fn all_constants(&self, bytes: &[u8]) -> ConstantOffsets {
        if has_constants(&self.instruction) {
            return self.constants;
        }
        let mut decoder = Decoder::new(self.bits, bytes, DecoderOptions::NONE);
        let instruction = decoder.decode();
        decoder.get_constant_offsets(&instruction)
    }

    /// Returns the length and the control flow.
    pub(super) fn insn(&self) -> Option<Insn> {
        let Decoded { bits, instruction, constants } = self;
        let direct = |kind, condition| Flow::Direct {
            branch: Branch { kind, condition },
            target: near_target(*bits, instruction),
            field_offset: constants.immediate_offset() as u8,
            field_width: constants.immediate_size() as u8,
        };
        let flow = match instruction.flow_control() {
            // `ud0` and `ud1` are not branches, but the code after them does not run either.
            FlowControl::Exception if instruction.code() != Code::INVALID => Flow::Trap,
            FlowControl::UnconditionalBranch if is_near(instruction) => direct(BranchKind::Jump, 0),
            FlowControl::ConditionalBranch => direct(BranchKind::Conditional, condition(instruction)?),
            FlowControl::Call if is_near(instruction) => direct(BranchKind::Call, 0),
            // Far jumps and calls change segments: hand-written, target unknown.
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::IndirectJump,
            // iced treats `syscall`, `sysenter` and `vmcall` as calls; control returns after them (in user space) or
            // the instruction is the kernel's own.
            FlowControl::Call if !is_far_call(instruction) => Flow::Next,
            FlowControl::Call | FlowControl::IndirectCall => Flow::IndirectCall,
            FlowControl::Return => Flow::Return,
            // `int` returns.
            _ => Flow::Next,
        };
        Some(Insn {
            len: instruction.len() as u8,
            flow,
            system_call: is_system_call(*bits, instruction),
            conditional: false,
            predicates: Predicates::NONE,
        })
    }
}

/// Whether [`Decoded`] has the offsets of the instruction's constants.
fn has_constants(instruction: &Instruction) -> bool {
    is_near(instruction) || has_memory_operand(instruction)
}

pub(super) fn has_memory_operand(instruction: &Instruction) -> bool {
    instruction.op_kinds().any(|kind| kind == OpKind::Memory)
}

/// Formats one instruction in AT&T syntax.
pub(super) fn format(bits: u32, bytes: &[u8], address: u64) -> String {
    let Some(instruction) = instruction(bits, bytes, address) else {
        return "(bad)".to_owned();
    };
    let mut text = String::new();
    GasFormatter::new().format(&instruction, &mut text);
    text
}

/// See [`crate::Rewritable::padding_len`].
pub(super) fn padding_len(bits: u32, bytes: &[u8]) -> Option<usize> {
    // The zeros that fill a section up to its alignment.
    if bytes.first() == Some(&0) {
        return Some(1);
    }
    let instruction = instruction(bits, bytes, 0)?;
    // Before long `nop`s existed, GNU as used `lea 0(%esi), %esi` in several lengths as padding.
    let same_register = instruction.op_count() == 2
        && match instruction.mnemonic() {
            Mnemonic::Lea => {
                instruction.memory_base() == instruction.op0_register()
                    && instruction.memory_displacement64() == 0
                    && instruction.memory_index() == Register::None
            }
            Mnemonic::Mov | Mnemonic::Xchg => {
                instruction.op1_kind() == OpKind::Register
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register()
            }
            _ => false,
        };
    let padding = same_register || matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    padding.then_some(instruction.len())
}

fn is_near(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn is_far_call(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Call)
}

/// See [`crate::Rewritable::holds_interrupts`].
pub(super) fn holds_interrupts(instruction: &Instruction) -> bool {
    let loads_stack_segment = instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::SS
        && matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop);
    instruction.mnemonic() == Mnemonic::Sti || loads_stack_segment
}

/// See [`crate::Rewritable::can_move`].
pub(super) fn can_move(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        // `xbegin` branches to its abort path.
        FlowControl::XbeginXabortXend => false,
        // `loop` and `jecxz` read and write a register.
        FlowControl::ConditionalBranch => {
            instruction.condition_code() != ConditionCode::None && matches!(instruction.len(), 2 | 6)
        }
        FlowControl::UnconditionalBranch if is_near(instruction) => {
            matches!(instruction.len(), 2 | 5) || is_padded(instruction)
        }
        FlowControl::Call if is_near(instruction) => instruction.len() == 5 || is_padded(instruction),
        _ => true,
    }
}

/// Whether a jump or call has the prefix that makes room for an indirect one, without another effect (GCC's
/// `-mindirect-branch-cs-prefix`).
fn is_padded(instruction: &Instruction) -> bool {
    instruction.len() == 6 && instruction.segment_prefix() == Register::CS
}

/// See [`crate::Rewritable::is_constant`].
pub(super) fn is_constant(decoded: &Decoded, bytes: &[u8], offset: u8, width: u8) -> bool {
    let constants = decoded.all_constants(bytes);
    let field = (usize::from(offset), usize::from(width));
    [
        (constants.displacement_offset(), constants.displacement_size()),
        (constants.immediate_offset(), constants.immediate_size()),
        (constants.immediate_offset2(), constants.immediate_size2()),
    ]
    .contains(&field)
}

/// Returns the branch target; in 32-bit mode as a sign-extended section offset, so that a target before the section
/// does not look like one 4 GiB after it.
fn near_target(bits: u32, instruction: &Instruction) -> u64 {
    let target = instruction.near_branch_target();
    if bits == 32 { target & 0xffff_ffff } else { target }
}

/// Returns the number of a condition in [`Branch`]: the low half of the `jcc` opcode, or an unusual branch.
fn condition(instruction: &Instruction) -> Option<u8> {
    match instruction.mnemonic() {
        Mnemonic::Loop => Some(LOOP),
        Mnemonic::Loope => Some(LOOPE),
        Mnemonic::Loopne => Some(LOOPNE),
        Mnemonic::Jcxz | Mnemonic::Jecxz | Mnemonic::Jrcxz => Some(ECXZ),
        _ => {
            let code = instruction.condition_code();
            CONDITION_CODES.iter().position(|&c| c == code).map(|number| number as u8)
        }
    }
}

pub(super) fn is_system_call(bits: u32, instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Int => instruction.immediate8() == 0x80,
        Mnemonic::Syscall | Mnemonic::Sysenter => true,
        // The i386 C libraries enter the kernel through the vDSO. The kernel stores its address at offset 0x10 of the
        // thread control block.
        Mnemonic::Call => {
            bits == 32
                && instruction.op0_kind() == OpKind::Memory
                && instruction.segment_prefix() == Register::GS
                && instruction.memory_base() == Register::None
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64() == 0x10
        }
        _ => false,
    }
}
