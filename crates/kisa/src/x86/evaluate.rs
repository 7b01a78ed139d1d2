//! Results of instructions some of whose inputs are known.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register, RflagsBits};

use super::branch::CONDITION_CODES;
use super::semantics::{general, is_move_on_condition, is_set_on_condition};
use crate::low_bytes;
use crate::specializing::{Bits, Equality, Inputs, Outcome, Written};

const CF: u32 = 1;
const PF: u32 = 1 << 2;
const ZF: u32 = 1 << 6;
const SF: u32 = 1 << 7;
const OF: u32 = 1 << 11;
/// The flags that conditions test.
const TESTED: u32 = CF | PF | ZF | SF | OF;

/// See [`crate::specializing::Specialize::evaluate`].
pub(super) fn evaluate(instruction: &Instruction, inputs: &Inputs<'_>) -> Outcome {
    let evaluator = Evaluator { instruction, inputs, width: width(instruction, 0) };
    let kept = !changed_flags(instruction);
    let old = Bits::of(inputs.flags.known & kept & TESTED, inputs.flags.value);
    let mut outcome = Outcome { result: None, flags: old, condition: None };
    if instruction.op_count() > 0 && !instruction.has_lock_prefix() {
        evaluator.run(&mut outcome);
    }
    outcome
}

/// See [`crate::specializing::Specialize::flags_of`].
pub(super) fn flags_of(equality: Equality, flags: Bits) -> Bits {
    let (known, value) = match equality {
        Equality::Equal => (TESTED, ZF | PF),
        Equality::Different => (ZF, 0),
    };
    Bits { known: flags.known | known, value: flags.value & !known | value }
}

/// See [`crate::specializing::Specialize::holds`].
pub(super) fn holds(condition: u8, flags: Bits) -> Option<bool> {
    let flag = |bit: u32| (flags.known & bit != 0).then_some(flags.value & bit != 0);
    let or = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    };
    let less = || flag(SF).zip(flag(OF)).map(|(sign, overflow)| sign != overflow);
    let holds = match condition & !1 {
        0 => flag(OF),
        2 => flag(CF),
        4 => flag(ZF),
        6 => or(flag(CF), flag(ZF)),
        8 => flag(SF),
        10 => flag(PF),
        12 => less(),
        14 => or(flag(ZF), less()),
        _ => None,
    };
    holds.map(|holds| holds != (condition & 1 != 0))
}

/// See [`crate::specializing::Specialize::overwrites_flags`].
pub(super) fn overwrites_flags(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let shifts =
        matches!(instruction.mnemonic(), Shl | Sal | Shr | Sar | Shld | Shrd | Rcl | Rcr | Rol | Ror);
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    changed_flags(instruction) == TESTED && !shifts && !repeats
}

/// The flags that an instruction may change. A shift by a number in a register may change none or all.
fn changed_flags(instruction: &Instruction) -> u32 {
    let mut changed = 0;
    let modified = instruction.rflags_modified();
    for (theirs, ours) in [
        (RflagsBits::CF, CF),
        (RflagsBits::PF, PF),
        (RflagsBits::ZF, ZF),
        (RflagsBits::SF, SF),
        (RflagsBits::OF, OF),
    ] {
        changed |= if modified & theirs != 0 { ours } else { 0 };
    }
    changed
}

/// The width of an operand in bytes; 0 if it has none.
fn width(instruction: &Instruction, operand: u32) -> u8 {
    match instruction.op_kind(operand.min(instruction.op_count().saturating_sub(1))) {
        OpKind::Register => instruction.op_register(operand).size() as u8,
        OpKind::Memory => instruction.memory_size().size().min(255) as u8,
        _ => 0,
    }
}

struct Evaluator<'a> {
    instruction: &'a Instruction,
    inputs: &'a Inputs<'a>,
    /// Width of the first operand in bytes.
    width: u8,
}

impl Evaluator<'_> {
    fn run(&self, outcome: &mut Outcome) {
        use Mnemonic::*;
        let instruction = self.instruction;
        if !matches!(self.width, 1 | 2 | 4) {
            return;
        }
        let code = instruction.condition_code();
        if is_set_on_condition(instruction) || is_move_on_condition(instruction) {
            outcome.condition = condition(code).and_then(|code| holds(code, self.inputs.flags));
        }
        let old = outcome.flags;
        let (result, flags) = match instruction.mnemonic() {
            Mov | Movzx => (self.operand(1), None),
            Movsx => (self.sign_extended(), None),
            And | Test => {
                let result = and(self.operand(0), self.operand(1));
                (result, Some(self.logical(result)))
            }
            Or => {
                let result = or(self.operand(0), self.operand(1));
                (result, Some(self.logical(result)))
            }
            Xor | Sub if self.clears() => (Bits::number(0), Some(self.logical(Bits::number(0)))),
            Xor => {
                let (a, b) = (self.operand(0), self.operand(1));
                let known = a.known & b.known;
                let result = Bits::of(known, a.value ^ b.value);
                (result, Some(self.logical(result)))
            }
            Add => self.sum(self.operand(0), self.operand(1), Some(false)),
            Adc => self.sum(self.operand(0), self.operand(1), self.carry()),
            Sub | Cmp => self.difference(self.operand(0), self.operand(1), Some(false)),
            Sbb if self.clears() => match self.carry() {
                Some(carry) => self.difference(Bits::number(0), Bits::number(0), Some(carry)),
                None => (Bits::UNKNOWN, None),
            },
            Sbb => self.difference(self.operand(0), self.operand(1), self.carry()),
            Neg => self.difference(Bits::number(0), self.operand(0), Some(false)),
            Not => {
                let value = self.operand(0);
                (Bits::of(value.known, !value.value).low(self.width), None)
            }
            Inc | Dec => {
                let one = Bits::number(1);
                let (result, flags) = match instruction.mnemonic() {
                    Inc => self.sum(self.operand(0), one, Some(false)),
                    _ => self.difference(self.operand(0), one, Some(false)),
                };
                // They keep the carry.
                let flags = flags.map(|flags| Bits::of(flags.known & !CF, flags.value));
                (result, flags)
            }
            Shl | Sal | Shr | Sar => {
                let result = self.shifted();
                // A shift by 0 keeps the flags.
                let shifts = self.operand(1).get().is_some_and(|by| by & 31 != 0);
                (result, shifts.then(|| self.zero(result.low(self.width))))
            }
            Bt => (Bits::UNKNOWN, self.bit()),
            _ if is_set_on_condition(instruction) => {
                let bit = outcome.condition.map_or(Bits::of(!1, 0), |holds| Bits::number(holds.into()));
                (bit, None)
            }
            _ if is_move_on_condition(instruction) => match outcome.condition {
                Some(true) => (self.operand(1), None),
                Some(false) => (self.operand(0), None),
                None => (self.operand(0).join(self.operand(1)), None),
            },
            _ => return,
        };
        if let Some(flags) = flags {
            let changed = changed_flags(instruction);
            outcome.flags = Bits {
                known: old.known | flags.known & changed,
                value: old.value | flags.value & flags.known & changed,
            };
        }
        if !matches!(instruction.mnemonic(), Cmp | Test | Bt) {
            outcome.result = self.written().map(|written| (written, result.low(self.width)));
        }
    }

    fn written(&self) -> Option<Written> {
        match self.instruction.op0_kind() {
            OpKind::Register => {
                let register = self.instruction.op0_register();
                let shift = if is_high(register) { 8 } else { 0 };
                Some(Written::Register { reg: general(register)?, width: self.width, shift })
            }
            OpKind::Memory => Some(Written::Memory { width: self.width }),
            _ => None,
        }
    }

    /// An operand, zero-extended from its width.
    fn operand(&self, operand: u32) -> Bits {
        let own = match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let register = self.instruction.op_register(operand);
                let Some(reg) = general(register) else { return Bits::UNKNOWN };
                let all = (self.inputs.register)(reg);
                let all = if is_high(register) { all.shifted(8) } else { all };
                return all.low(register.size() as u8);
            }
            OpKind::Memory => return self.inputs.memory.low(width(self.instruction, operand)),
            _ if self.inputs.relocated_immediate => return Bits::UNKNOWN.low(self.width),
            _ => self.instruction.try_immediate(operand),
        };
        own.map_or(Bits::UNKNOWN, |number| Bits::number(low_bytes(number, self.width) as u32))
    }

    fn sign_extended(&self) -> Bits {
        let from = width(self.instruction, 1);
        match self.operand(1).get() {
            Some(value) if from == 1 => Bits::number(value as u8 as i8 as i32 as u32),
            Some(value) if from == 2 => Bits::number(value as u16 as i16 as i32 as u32),
            _ => Bits::UNKNOWN,
        }
    }

    fn clears(&self) -> bool {
        let instruction = self.instruction;
        instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register()
    }

    fn carry(&self) -> Option<bool> {
        (self.inputs.flags.known & CF != 0).then_some(self.inputs.flags.value & CF != 0)
    }

    fn sign(&self) -> u32 {
        1 << (8 * u32::from(self.width) - 1)
    }

    /// The flags after a logical operation.
    fn logical(&self, result: Bits) -> Bits {
        let zero = self.zero(result.low(self.width));
        Bits { known: CF | OF | zero.known, value: zero.value }
    }

    /// The flags that show the sign, the parity and whether a result is 0.
    fn zero(&self, result: Bits) -> Bits {
        let (mut known, mut value) = (0, 0);
        if result.value != 0 {
            known |= ZF;
        } else if result.get().is_some() {
            (known, value) = (known | ZF, value | ZF);
        }
        if result.known & self.sign() != 0 {
            known |= SF;
            value |= if result.value & self.sign() != 0 { SF } else { 0 };
        }
        if result.known & 0xff == 0xff {
            known |= PF;
            value |= if (result.value & 0xff).count_ones() % 2 == 0 { PF } else { 0 };
        }
        Bits { known, value }
    }

    fn sum(&self, a: Bits, b: Bits, carry: Option<bool>) -> (Bits, Option<Bits>) {
        let (a, b) = (a.low(self.width), b.low(self.width));
        let (Some(left), Some(right), Some(carry)) = (a.get(), b.get(), carry) else {
            return (Bits::UNKNOWN, None);
        };
        let wide = u64::from(left) + u64::from(right) + u64::from(carry);
        let result = low_bytes(wide, self.width) as u32;
        let mut flags = self.zero(Bits::number(result));
        flags.known |= CF | OF;
        flags.value |= if wide != u64::from(result) { CF } else { 0 };
        flags.value |= if (left ^ result) & (right ^ result) & self.sign() != 0 { OF } else { 0 };
        (Bits::number(result), Some(flags))
    }

    fn difference(&self, a: Bits, b: Bits, borrow: Option<bool>) -> (Bits, Option<Bits>) {
        let (a, b) = (a.low(self.width), b.low(self.width));
        let (Some(left), Some(right), Some(borrow)) = (a.get(), b.get(), borrow) else {
            return (Bits::UNKNOWN, self.partial_difference(a, b, borrow));
        };
        let wide = u64::from(left).wrapping_sub(u64::from(right)).wrapping_sub(u64::from(borrow));
        let result = low_bytes(wide, self.width) as u32;
        let mut flags = self.zero(Bits::number(result));
        flags.known |= CF | OF;
        let borrows = u64::from(left) < u64::from(right) + u64::from(borrow);
        flags.value |= if borrows { CF } else { 0 };
        flags.value |= if (left ^ right) & (left ^ result) & self.sign() != 0 { OF } else { 0 };
        (Bits::number(result), Some(flags))
    }

    /// The flags after a difference of which not all is known.
    fn partial_difference(&self, a: Bits, b: Bits, borrow: Option<bool>) -> Option<Bits> {
        if borrow != Some(false) {
            return None;
        }
        let mut flags = Bits::UNKNOWN;
        if (a.value ^ b.value) & a.known & b.known != 0 {
            flags.known |= ZF;
        }
        // Nothing is below 0; the difference to 0 is the number itself.
        if b.get() == Some(0) {
            let own = self.zero(a);
            flags.known |= own.known | CF | OF;
            flags.value |= own.value;
        } else {
            let (least, most) = (a.value, a.value | !a.known);
            let (low, high) = (b.value, b.value | !b.known);
            if least >= high {
                flags.known |= CF;
            } else if most < low {
                (flags.known, flags.value) = (flags.known | CF, flags.value | CF);
            }
        }
        Some(flags)
    }

    fn shifted(&self) -> Bits {
        let value = self.operand(0);
        let Some(by) = self.operand(1).get().map(|by| by & 31) else { return Bits::UNKNOWN };
        match self.instruction.mnemonic() {
            Mnemonic::Shr => value.shifted(by),
            Mnemonic::Sar => match value.get() {
                Some(number) => {
                    let spare = 32 - 8 * u32::from(self.width);
                    Bits::number(((number << spare) as i32 >> spare >> by.min(31)) as u32)
                }
                None => Bits::UNKNOWN,
            },
            _ => Bits { known: value.known << by | !(u32::MAX << by), value: value.value << by },
        }
    }

    /// The carry after `bt`: a bit of a register, or of the memory at the operand itself.
    fn bit(&self) -> Option<Bits> {
        let index = self.operand(1).get()?;
        let bits = 8 * u32::from(self.width);
        let in_register = self.instruction.op0_kind() == OpKind::Register;
        let by_number = self.instruction.op1_kind() != OpKind::Register;
        if index >= bits && !in_register && !by_number {
            return None;
        }
        let bit = 1u32 << (index % bits);
        let value = self.operand(0);
        (value.known & bit != 0)
            .then_some(Bits { known: CF, value: if value.value & bit != 0 { CF } else { 0 } })
    }
}

fn and(a: Bits, b: Bits) -> Bits {
    let known = a.known & b.known | a.known & !a.value | b.known & !b.value;
    Bits { known, value: a.value & b.value & known }
}

fn or(a: Bits, b: Bits) -> Bits {
    let known = a.known & b.known | a.value | b.value;
    Bits { known, value: (a.value | b.value) & known }
}

/// The number of a condition, as in opcodes.
fn condition(code: ConditionCode) -> Option<u8> {
    CONDITION_CODES.iter().position(|&other| other == code).map(|at| at as u8)
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

#[cfg(test)]
mod tests {
    use super::super::I386;
    use super::super::registers::EAX;
    use super::*;
    use crate::specializing::Specialize;
    use crate::{Encoding, Isa};

    fn outcome(bytes: &[u8], eax: Bits, memory: Bits) -> Outcome {
        let inst = I386.decode(bytes, Encoding::Main.at(0)).unwrap();
        let register = |reg| if reg == EAX { eax } else { Bits::UNKNOWN };
        let flags = Bits::UNKNOWN;
        I386.evaluate(&inst, &Inputs { register: &register, memory, flags, relocated_immediate: false })
    }

    #[test]
    fn a_known_bit_decides_a_test() {
        // testb $0x10,(%ebx)
        let flags = |memory| outcome(&[0xf6, 0x03, 0x10], Bits::UNKNOWN, memory).flags;
        assert_eq!(holds(4, flags(Bits::of(0x10, 0))), Some(true));
        assert_eq!(holds(4, flags(Bits::of(0x10, 0x10))), Some(false));
        assert_eq!(holds(4, flags(Bits::of(0x20, 0x20))), None);
    }

    #[test]
    fn comparisons_of_what_is_partly_known() {
        // cmp $0x44,%eax
        let flags = |eax| outcome(&[0x83, 0xf8, 0x44], eax, Bits::UNKNOWN).flags;
        // A byte above all bits of the number: not equal, above.
        assert_eq!(holds(4, flags(Bits::of(0xf00, 0x100))), Some(false));
        assert_eq!(holds(2, flags(Bits::of(0xf00, 0x100))), Some(false));
        assert_eq!(holds(2, flags(Bits::of(!3, 0x40))), Some(true));
        assert_eq!(holds(2, flags(Bits::of(!7, 0x40))), None);
    }

    #[test]
    fn bits_beyond_the_operand_are_unknown() {
        // bt %eax,0x30(%ebx), whose bit 33 is in the next word
        let flags = |index| outcome(&[0x0f, 0xa3, 0x43, 0x30], Bits::number(index), Bits::number(2)).flags;
        assert_eq!(holds(2, flags(1)), Some(true));
        assert_eq!(holds(2, flags(0)), Some(false));
        assert_eq!(holds(2, flags(33)), None);
    }

    #[test]
    fn increments_keep_the_carry_unknown() {
        // inc %eax
        let outcome = outcome(&[0x40], Bits::number(u32::MAX), Bits::UNKNOWN);
        assert_eq!(holds(4, outcome.flags), Some(true));
        assert_eq!(holds(2, outcome.flags), None);
        let written = Written::Register { reg: EAX, width: 4, shift: 0 };
        assert_eq!(outcome.result, Some((written, Bits::number(0))));
    }
}
