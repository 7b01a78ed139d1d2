//! Encodings of simple operations, and of instructions with another operand.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

use super::decode::Decoded;
use super::semantics::general;
use super::semantics::registers::{EAX, ECX, EDI, ESP};
use crate::Reg;
use crate::specializing::{Encoded, Fill, Place, Simple};

/// See [`crate::specializing::Specialize::encode`].
pub(super) fn encode(simple: Simple, wide: bool) -> Option<Encoded> {
    let at = |place: Place| memory(place, wide);
    let signed = |number: u32| !wide && i8::try_from(number as i32).is_ok();
    let instruction = match simple {
        Simple::Copy(to, from) => {
            Instruction::with2(Code::Mov_r32_rm32, register(to, 4)?, register(from, 4)?)
        }
        Simple::Number(to, number) => Instruction::with2(Code::Mov_r32_imm32, register(to, 4)?, number),
        Simple::Address(to, place) => Instruction::with2(Code::Lea_r32_m, register(to, 4)?, at(place)?),
        Simple::Load(to, place) => Instruction::with2(Code::Mov_r32_rm32, register(to, 4)?, at(place)?),
        Simple::Store(place, from, width) => {
            let code = by_width(width, [Code::Mov_rm8_r8, Code::Mov_rm16_r16, Code::Mov_rm32_r32])?;
            Instruction::with2(code, at(place)?, register(from, width)?)
        }
        Simple::StoreNumber(place, number, width) => {
            let code = by_width(width, [Code::Mov_rm8_imm8, Code::Mov_rm16_imm16, Code::Mov_rm32_imm32])?;
            Instruction::with2(code, at(place)?, cut(number, width))
        }
        Simple::Compare(place, number, width) if signed(number) && width > 1 => {
            let code = if width == 2 { Code::Cmp_rm16_imm8 } else { Code::Cmp_rm32_imm8 };
            Instruction::with2(code, at(place)?, number as i32)
        }
        Simple::Compare(place, number, width) => {
            let code = by_width(width, [Code::Cmp_rm8_imm8, Code::Cmp_rm16_imm16, Code::Cmp_rm32_imm32])?;
            Instruction::with2(code, at(place)?, cut(number, width))
        }
        Simple::Test(place, number, width) => {
            let code = by_width(width, [Code::Test_rm8_imm8, Code::Test_rm16_imm16, Code::Test_rm32_imm32])?;
            Instruction::with2(code, at(place)?, cut(number, width))
        }
        Simple::Or(to, place) => Instruction::with2(Code::Or_r32_rm32, register(to, 4)?, at(place)?),
        Simple::CompareRegister(reg, number) => {
            Instruction::with2(Code::Cmp_rm32_imm32, register(reg, 4)?, number)
        }
        Simple::TestRegister(reg) => {
            Instruction::with2(Code::Test_rm32_r32, register(reg, 4)?, register(reg, 4)?)
        }
        Simple::Push(reg) => Instruction::with1(Code::Push_r32, register(reg, 4)?),
        Simple::Pop(reg) => Instruction::with1(Code::Pop_r32, register(reg, 4)?),
        Simple::MoveStack(by) => {
            let place = Place { base: Some(ESP), displacement: by };
            Instruction::with2(Code::Lea_r32_m, register(ESP, 4)?, at(place)?)
        }
        Simple::Count(place) => Instruction::with1(Code::Inc_rm32, at(place)?),
        Simple::JumpThrough(place) => Instruction::with1(Code::Jmp_rm32, at(place)?),
    };
    encoded(&instruction.ok()?)
}

/// See [`crate::specializing::Specialize::with_operand`].
pub(super) fn with_operand(instruction: &Instruction, place: Place) -> Option<Vec<u8>> {
    let explicit = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    if !explicit {
        return None;
    }
    let mut changed = *instruction;
    changed.set_memory_base(place.base.map_or(Some(Register::None), |base| register(base, 4))?);
    changed.set_memory_index(Register::None);
    changed.set_memory_index_scale(1);
    changed.set_memory_displacement64(u64::from(place.displacement as u32));
    let size = match (place.base, place.displacement) {
        (None, _) => 4,
        (Some(_), 0) => 0,
        (Some(_), _) => 1,
    };
    changed.set_memory_displ_size(size);
    encoded(&changed).map(|encoded| encoded.bytes)
}

/// See [`crate::specializing::Specialize::with_number`].
pub(super) fn with_number(instruction: &Instruction, number: u32) -> Option<Vec<u8>> {
    use Mnemonic::*;
    if instruction.op_count() != 2 || instruction.has_lock_prefix() {
        return None;
    }
    if !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory) {
        return None;
    }
    let width = match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size() as u8,
        OpKind::Memory => instruction.memory_size().size() as u8,
        _ => return None,
    };
    if instruction.op1_kind() == OpKind::Register && general(instruction.op1_register()).is_none() {
        return None;
    }
    let codes = |small: [Code; 2], large: [Code; 3]| {
        let short = i8::try_from(number as i32).is_ok() && width > 1;
        if short { Some(small[usize::from(width == 4)]) } else { by_width(width, large) }
    };
    let code = match instruction.mnemonic() {
        Mov => by_width(width, [Code::Mov_rm8_imm8, Code::Mov_rm16_imm16, Code::Mov_rm32_imm32]),
        Add => codes(
            [Code::Add_rm16_imm8, Code::Add_rm32_imm8],
            [Code::Add_rm8_imm8, Code::Add_rm16_imm16, Code::Add_rm32_imm32],
        ),
        Or => codes(
            [Code::Or_rm16_imm8, Code::Or_rm32_imm8],
            [Code::Or_rm8_imm8, Code::Or_rm16_imm16, Code::Or_rm32_imm32],
        ),
        And => codes(
            [Code::And_rm16_imm8, Code::And_rm32_imm8],
            [Code::And_rm8_imm8, Code::And_rm16_imm16, Code::And_rm32_imm32],
        ),
        Sub => codes(
            [Code::Sub_rm16_imm8, Code::Sub_rm32_imm8],
            [Code::Sub_rm8_imm8, Code::Sub_rm16_imm16, Code::Sub_rm32_imm32],
        ),
        Xor => codes(
            [Code::Xor_rm16_imm8, Code::Xor_rm32_imm8],
            [Code::Xor_rm8_imm8, Code::Xor_rm16_imm16, Code::Xor_rm32_imm32],
        ),
        Cmp => codes(
            [Code::Cmp_rm16_imm8, Code::Cmp_rm32_imm8],
            [Code::Cmp_rm8_imm8, Code::Cmp_rm16_imm16, Code::Cmp_rm32_imm32],
        ),
        _ => None,
    }?;
    let small = matches!(
        code,
        Code::Add_rm16_imm8
            | Code::Add_rm32_imm8
            | Code::Or_rm16_imm8
            | Code::Or_rm32_imm8
            | Code::And_rm16_imm8
            | Code::And_rm32_imm8
            | Code::Sub_rm16_imm8
            | Code::Sub_rm32_imm8
            | Code::Xor_rm16_imm8
            | Code::Xor_rm32_imm8
            | Code::Cmp_rm16_imm8
            | Code::Cmp_rm32_imm8
    );
    let number = if small { number as i32 } else { cut(number, width) as i32 };
    let changed = match instruction.op0_kind() {
        OpKind::Register => Instruction::with2(code, instruction.op0_register(), number),
        _ => {
            let operand = MemoryOperand::new(
                instruction.memory_base(),
                instruction.memory_index(),
                instruction.memory_index_scale(),
                instruction.memory_displacement64() as u32 as i32 as i64,
                instruction.memory_displ_size(),
                false,
                instruction.segment_prefix(),
            );
            Instruction::with2(code, operand, number)
        }
    };
    encoded(&changed.ok()?).map(|encoded| encoded.bytes)
}

/// See [`crate::specializing::Specialize::fill`].
pub(super) fn fill(instruction: &Instruction) -> Option<Fill> {
    let width = match instruction.mnemonic() {
        Mnemonic::Stosb => 1,
        Mnemonic::Stosw => 2,
        Mnemonic::Stosd => 4,
        _ => return None,
    };
    (instruction.has_rep_prefix() && instruction.op0_kind() == OpKind::MemoryESEDI).then_some(Fill {
        width,
        to: EDI,
        count: ECX,
        value: EAX,
    })
}

/// See [`crate::specializing::Specialize::uses_stack_pointer`].
pub(super) fn uses_stack_pointer(decoded: &Decoded) -> bool {
    let instruction = &decoded.instruction;
    let is_stack = |register: Register| general(register) == Some(ESP);
    let mut registers = (0..instruction.op_count()).filter(|&at| instruction.op_kind(at) == OpKind::Register);
    instruction.is_stack_instruction()
        || registers.any(|at| is_stack(instruction.op_register(at)))
        || instruction.mnemonic() == Mnemonic::Leave
}

fn by_width(width: u8, codes: [Code; 3]) -> Option<Code> {
    match width {
        1 => Some(codes[0]),
        2 => Some(codes[1]),
        4 => Some(codes[2]),
        _ => None,
    }
}

/// The number as iced expects it for an immediate of this width.
fn cut(number: u32, width: u8) -> u32 {
    crate::low_bytes(number.into(), width) as u32
}

/// The name of the low bytes of a register; `None` if they have none.
fn register(reg: Reg, width: u8) -> Option<Register> {
    const BYTES: [Register; 4] = [Register::AL, Register::CL, Register::DL, Register::BL];
    let first = match width {
        1 => return BYTES.get(usize::from(reg.0)).copied(),
        2 => Register::AX,
        _ => Register::EAX,
    };
    (reg.0 < 8).then(|| first + u32::from(reg.0))
}

fn memory(place: Place, wide: bool) -> Option<MemoryOperand> {
    let size = match place {
        _ if wide => 4,
        Place { base: None, .. } => 4,
        Place { displacement: 0, .. } => 0,
        _ => 1,
    };
    let base = place.base.map_or(Some(Register::None), |base| register(base, 4))?;
    Some(MemoryOperand::new(base, Register::None, 1, place.displacement.into(), size, false, Register::None))
}

fn encoded(instruction: &Instruction) -> Option<Encoded> {
    let mut encoder = Encoder::new(32);
    encoder.encode(instruction, 0).ok()?;
    let constants = encoder.get_constant_offsets();
    let displacement = (constants.displacement_size() == 4).then_some(constants.displacement_offset() as u8);
    let number = (constants.immediate_size() == 4).then_some(constants.immediate_offset() as u8);
    Some(Encoded { bytes: encoder.take_buffer(), displacement, number })
}

#[cfg(test)]
mod tests {
    use super::super::I386;
    use super::super::registers::EBX;
    use super::*;
    use crate::{Encoding, Isa, Rewritable};

    fn text(bytes: &[u8]) -> String {
        let at = Encoding::Main.at(0);
        assert_eq!(I386.decode(bytes, at).map(|inst| inst.bytes.len()), Some(bytes.len()));
        I386.format(bytes, at)
    }

    #[test]
    fn operations_are_encoded() {
        let place = |base, displacement| Place { base: Some(base), displacement };
        let cases = [
            (Simple::Copy(EAX, EBX), "mov %ebx,%eax"),
            (Simple::Number(EDI, 7), "mov $7,%edi"),
            (Simple::Address(EAX, place(ESP, 0x80)), "lea 0x80(%esp),%eax"),
            (Simple::Load(EAX, place(EBX, 0)), "mov (%ebx),%eax"),
            (Simple::Store(place(ESP, 4), EDI, 4), "mov %edi,4(%esp)"),
            (Simple::StoreNumber(place(ESP, 0x100), 0xffff, 2), "movw $0xFFFF,0x100(%esp)"),
            (Simple::Compare(place(EBX, 0x12), 1, 1), "cmpb $1,0x12(%ebx)"),
            (Simple::Compare(place(EBX, 0x10), 2, 2), "cmpw $2,0x10(%ebx)"),
            (Simple::Compare(place(EBX, 8), 0x1000, 4), "cmpl $0x1000,8(%ebx)"),
            (Simple::Test(place(EBX, 0x2c), 0x40, 1), "testb $0x40,0x2C(%ebx)"),
            (Simple::Or(EAX, place(EBX, 0x1d4)), "or 0x1D4(%ebx),%eax"),
            (Simple::MoveStack(-0x40), "lea -0x40(%esp),%esp"),
            (Simple::Count(Place { base: None, displacement: 0x100 }), "incl 0x100"),
            (Simple::JumpThrough(Place { base: None, displacement: 0x100 }), "jmpl *0x100"),
        ];
        for (simple, expected) in cases {
            assert_eq!(text(&encode(simple, false).unwrap().bytes), expected);
        }
        // The low byte of %edi has no name.
        assert_eq!(encode(Simple::Store(place(ESP, 4), EDI, 1), false), None);
    }

    #[test]
    fn operands_are_replaced() {
        let decode = |bytes: &[u8]| Decoded::new(32, bytes, 0).unwrap().instruction;
        let place = Place { base: Some(ESP), displacement: 0x90 };
        // mov 8(%ebp),%eax; movzwl 4(%ebx,%ecx,2),%eax
        assert_eq!(text(&with_operand(&decode(&[0x8b, 0x45, 8]), place).unwrap()), "mov 0x90(%esp),%eax");
        let wide = with_operand(&decode(&[0x0f, 0xb7, 0x44, 0x4b, 4]), place).unwrap();
        assert_eq!(text(&wide), "movzwl 0x90(%esp),%eax");
        // add %ebx,%eax; mov %al,2(%ebx); cmp 4(%esp),%eax
        assert_eq!(text(&with_number(&decode(&[0x01, 0xd8]), 5).unwrap()), "add $5,%eax");
        assert_eq!(text(&with_number(&decode(&[0x88, 0x43, 2]), 0xff).unwrap()), "movb $0xFF,2(%ebx)");
        assert_eq!(text(&with_number(&decode(&[0x3b, 0x44, 0x24, 4]), 0x1000).unwrap()), "cmp $0x1000,%eax");
    }
}
