//! Turns operations into effects.

use crate::arm::op::{ALWAYS, Data, Decoded, LR, Op, PC, R, Shift, Source, condition};
use crate::arm::registers::R0;
use crate::semantics::{Address, BinaryOp, Condition, Effect, Reg, TEMPORARY, Value};

const ONES: u64 = 0xffff_ffff;

/// Turns one operation into effects.
pub(super) struct Model<'a> {
    pub(super) decoded: &'a Decoded,
    /// Its address; bit 0 is set for Thumb code.
    pub(super) at: u32,
    pub(super) out: &'a mut Vec<Effect>,
}

pub(super) fn reg(number: R) -> Value {
    Value::Reg { reg: Reg(number), width: 4 }
}

pub(super) const TEMPORARY_VALUE: Value = Value::Reg { reg: TEMPORARY, width: 4 };

/// Returns the program counter as the instruction at an address reads it.
pub fn program_counter(at: u32) -> u32 {
    if at & 1 == 0 { at.wrapping_add(8) } else { (at & !1).wrapping_add(4) }
}

impl Model<'_> {
    pub(super) fn run(&mut self) {
        let is_branch = matches!(self.decoded.op, Op::Branch { link: false, .. });
        if self.decoded.condition < ALWAYS {
            let condition = condition(self.decoded.condition);
            self.out.push(if is_branch { Effect::BranchIf(condition) } else { Effect::OnlyIf(condition) });
        }
        match self.decoded.op {
            Op::Nothing | Op::Predicate { .. } | Op::Trap | Op::Branch { link: false, .. } => {}
            Op::Data { data, dst, left, right, flags } => self.data(data, dst, left, right, flags),
            Op::MoveTop { dst, number } => {
                self.binary(BinaryOp::And, Reg(dst), reg(dst), Value::Const(0xffff));
                self.binary(BinaryOp::Or, Reg(dst), reg(dst), Value::Const(u64::from(number) << 16));
            }
            Op::Field { dst, src, low, width, signed } => self.field(dst, src, (low, width), signed),
            Op::Load { dst, width, signed, from, .. } => self.load(dst, width, signed, from),
            Op::Store { src, width, to } => self.store(src, width, to),
            Op::StoreExclusive { status, width, to, .. } => {
                let address = self.address(to);
                self.out.push(Effect::Store { to: address, value: Value::Unknown, width });
                self.clobber(Reg(status));
            }
            Op::Multiple { loads, base, list, start, moves } => {
                self.multiple(loads, base, list, start, moves)
            }
            Op::Vector { loads, size, place } => {
                let address = self.address(place);
                self.out.push(match loads {
                    true => Effect::Escape(Value::Unknown),
                    false => Effect::Store { to: address, value: Value::Unknown, width: size },
                });
                self.write_back(place);
            }
            Op::Branch { .. } => self.link(),
            Op::CompareBranch { src, equal, .. } => {
                let condition = if equal { Condition::Equal } else { Condition::NotEqual };
                let (left, right) = (reg(src), Value::Const(0));
                self.out.push(Effect::BranchIfCompared { left, right, width: 4, condition });
            }
            Op::BranchTo { src, link } => {
                let target = self.source(src);
                self.out.push(Effect::Transfer(target));
                if link {
                    self.link();
                }
            }
            Op::Table { base, index, width } => self.table(base, index, width),
            Op::SystemCall { number } => {
                self.out.push(Effect::SystemCall { compat: false, number });
                self.clobber(R0);
                self.out.push(Effect::ClobberMemory);
            }
            Op::Foreign { first, second } => {
                self.out.push(Effect::Escape(Value::Unknown));
                let around = Address { base: Some(Reg(second)), displacement: -1024, ..Address::default() };
                self.out.extend([Effect::ClobberRange(around), Effect::ClobberMemory, Effect::ClobberFlags]);
                self.clobber(Reg(first));
                self.clobber(Reg(second));
            }
            Op::Other { writes, flags, .. } => {
                (0..16)
                    .filter(|number| writes >> number & 1 != 0)
                    .for_each(|number| self.clobber(Reg(number)));
                if flags {
                    self.out.push(Effect::ClobberFlags);
                }
            }
        }
    }

    // Helpers.

    pub(super) fn set(&mut self, dst: Reg, value: Value) {
        self.out.push(Effect::Set { dst, value, width: 4 });
    }

    pub(super) fn binary(&mut self, op: BinaryOp, dst: Reg, left: Value, right: Value) {
        self.out.push(Effect::Binary { op, dst, left, right, width: 4 });
    }

    pub(super) fn clobber(&mut self, dst: Reg) {
        self.out.push(Effect::Clobber(dst));
    }

    fn is_thumb(&self) -> bool {
        self.at & 1 != 0
    }

    /// Returns the value of a register, which may be the program counter.
    pub(super) fn source(&self, number: R) -> Value {
        match number {
            PC => Value::Const(program_counter(self.at).into()),
            number => reg(number),
        }
    }

    /// Puts the address after the instruction into the link register.
    fn link(&mut self) {
        let back = self.at.wrapping_add(self.decoded.len.into());
        let address = Address { displacement: back.into(), ..Address::default() };
        self.set(Reg(LR), Value::Address(address));
    }

    /// Transfers control to a computed address, in the same encoding.
    pub(super) fn transfer_within(&mut self, value: Value) {
        if self.is_thumb() {
            self.binary(BinaryOp::Or, TEMPORARY, value, Value::Const(1));
            self.out.push(Effect::Transfer(TEMPORARY_VALUE));
        } else {
            self.out.push(Effect::Transfer(value));
        }
    }

    // Data processing.

    /// Returns an operand as a value; `None` if the model does not support it.
    fn operand(&mut self, source: Source) -> Option<Value> {
        Some(match source {
            Source::Number(number) => Value::Const(number.into()),
            Source::Reg(number) => self.source(number),
            Source::Shifted { src, shift: Shift::Left, by } => {
                let value = self.source(src);
                self.binary(BinaryOp::Shl, TEMPORARY, value, Value::Const(by.into()));
                TEMPORARY_VALUE
            }
            Source::Shifted { src, shift: Shift::Right, by } => {
                let value = self.source(src);
                self.binary(BinaryOp::Shr, TEMPORARY, value, Value::Const(by.into()));
                TEMPORARY_VALUE
            }
            // All bits are copies of the sign.
            Source::Shifted { by: 31, .. } => {
                self.set(TEMPORARY, Value::Const(0));
                self.out.push(Effect::MaybeSet { dst: TEMPORARY, value: Value::Const(ONES), width: 4 });
                TEMPORARY_VALUE
            }
            Source::Shifted { .. } | Source::Unknown { .. } => return None,
        })
    }

    fn data(&mut self, data: Data, dst: Option<R>, left: Source, right: Source, flags: bool) {
        let goes = dst == Some(PC);
        let dst = match dst {
            Some(number) if !goes => Reg(number),
            _ => TEMPORARY,
        };
        // `add r0, r1, r2, lsl #2` is an address.
        if let (
            Data::Add,
            Source::Reg(base),
            Source::Shifted { src, shift: Shift::Left, by: by @ 1..=3 },
            false,
        ) = (data, left, right, flags || matches!(right, Source::Shifted { src: PC, .. }))
        {
            let (base, displacement) = match base {
                PC => (None, i64::from(program_counter(self.at))),
                base => (Some(Reg(base)), 0),
            };
            let index = Some((Reg(src), 1 << by));
            self.set(dst, Value::Address(Address { base, index, displacement, ..Address::default() }));
        } else {
            self.compute(data, dst, left, right, flags);
        }
        if goes {
            self.transfer_within(TEMPORARY_VALUE);
        }
    }

    fn compute(&mut self, data: Data, dst: Reg, left: Source, right: Source, flags: bool) {
        let first = self.operand(left);
        let (Some(first), Some(mut second)) = (first, self.operand(right)) else {
            return self.unfollowed(dst, flags);
        };
        let op = match data {
            Data::WithCarry => return self.unfollowed(dst, flags),
            Data::And | Data::Clear => BinaryOp::And,
            Data::Or | Data::OrNot => BinaryOp::Or,
            Data::Xor => BinaryOp::Xor,
            Data::Add => BinaryOp::Add,
            Data::Sub | Data::ReverseSub => BinaryOp::Sub,
            Data::Move | Data::Not => {
                let not = data == Data::Not;
                if not {
                    second = self.not(second);
                }
                return self.r#move(dst, second, flags);
            }
        };
        if matches!(data, Data::Clear | Data::OrNot) {
            second = self.not(second);
        }
        let (first, second) = if data == Data::ReverseSub { (second, first) } else { (first, second) };
        if flags {
            match (data, second) {
                (Data::Sub | Data::ReverseSub, _) => {
                    self.out.push(Effect::Compare { left: first, right: second, width: 4 });
                }
                // `cmn r0, #1` sets the flags as `cmp r0, #-1` does; 0 and the least number are their own negatives.
                (Data::Add, Value::Const(number)) if number != number.wrapping_neg() & ONES => {
                    let right = Value::Const(number.wrapping_neg() & ONES);
                    self.out.push(Effect::Compare { left: first, right, width: 4 });
                }
                (Data::Add, _) => self.out.push(Effect::ClobberFlags),
                _ => {}
            }
        }
        match (first == second, op) {
            (true, BinaryOp::Xor | BinaryOp::Sub) => self.set(dst, Value::Const(0)),
            (true, BinaryOp::And | BinaryOp::Or) => self.set(dst, first),
            _ => self.binary(op, dst, first, second),
        }
        if flags && matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor) {
            let own = Value::Reg { reg: dst, width: 4 };
            // `tst r0, r0`
            let value = if first == second && op != BinaryOp::Xor { first } else { own };
            self.out.push(Effect::CompareZero { value, width: 4 });
        }
    }

    fn not(&mut self, value: Value) -> Value {
        if let Value::Const(number) = value {
            return Value::Const(!number & ONES);
        }
        self.binary(BinaryOp::Xor, TEMPORARY, value, Value::Const(ONES));
        TEMPORARY_VALUE
    }

    fn r#move(&mut self, dst: Reg, value: Value, flags: bool) {
        self.set(dst, value);
        if flags {
            self.out.push(Effect::CompareZero { value: Value::Reg { reg: dst, width: 4 }, width: 4 });
        }
    }

    fn unfollowed(&mut self, dst: Reg, flags: bool) {
        self.clobber(dst);
        if flags {
            self.out.push(Effect::ClobberFlags);
        }
    }

    fn field(&mut self, dst: R, src: R, (low, width): (u8, u8), signed: bool) {
        let dst = Reg(dst);
        let bytes = if low == 0 && matches!(width, 8 | 16 | 32) { Some(width / 8) } else { None };
        match (bytes, signed) {
            (Some(from), true) => {
                let value = Value::Reg { reg: Reg(src), width: from };
                self.out.push(Effect::SetSigned { dst, value, from, width: 4 });
            }
            (Some(width), false) => self.set(dst, Value::Reg { reg: Reg(src), width }),
            (None, true) => self.clobber(dst),
            (None, false) => {
                let own = Value::Reg { reg: dst, width: 4 };
                self.binary(BinaryOp::Shr, dst, reg(src), Value::Const(low.into()));
                self.binary(BinaryOp::And, dst, own, Value::Const((1 << width.min(32)) - 1));
            }
        }
    }
}
