//! The computation of A64 instructions, in the language of [`crate::semantics`].
//!
//! Pointer authentication is ignored: signing a pointer and then authenticating it gives the same pointer, and
//! compilers do not compute with a signed one.

use crate::arm::condition;
use crate::semantics::{Address, BinaryOp, Condition, Effect, Reg, TEMPORARY, Value, let_escape, low_mask};

use super::decode;
use super::memory::Access;
use super::registers::{LR, SP, X0};
use super::word::Word;

/// See [`crate::Isa::effects`].
pub(super) fn effects(word: Word, at: u64, out: &mut Vec<Effect>) {
    let start = out.len();
    Model { word, at, out }.run();
    // The fields of an instruction with a model need not be registers.
    let is_followed = |effect: &Effect| {
        !matches!(
            effect,
            Effect::Clobber(_)
                | Effect::ClobberFlags
                | Effect::ClobberMemory
                | Effect::ClobberRange(_)
                | Effect::Store { value: Value::Unknown, .. }
        )
    };
    let is_direct_branch = word.is(0x7c00_0000, 0x1400_0000);
    if !is_direct_branch && !out[start..].iter().any(is_followed) {
        let address = Access::of(word, at).map_or(0, |access| access.address.registers());
        let_escape(out, start, registers_read(word) & !address, 8);
    }
}

/// Turns one instruction into effects.
struct Model<'a> {
    word: Word,
    at: u64,
    out: &'a mut Vec<Effect>,
}

impl Model<'_> {
    /// Selects a group by the main encoding table: bits 28 to 25.
    fn run(&mut self) {
        match self.word.field(25, 4) {
            0b1000 | 0b1001 => self.immediate(),
            0b1010 | 0b1011 => self.branch(),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => match Access::of(self.word, self.at) {
                Some(access) => access.effects(self.out),
                None => self.forget_access(),
            },
            0b0101 | 0b1101 => self.register(),
            0b0111 | 0b1111 => self.vector(),
            // Scalable vectors and matrices, and reserved encodings.
            _ => self.forget_scalable(),
        }
    }

    // Helpers.

    fn set(&mut self, dst: Reg, value: Value, width: u8) {
        self.out.push(Effect::Set { dst, value, width });
    }

    fn binary(&mut self, op: BinaryOp, dst: Reg, left: Value, right: Value, width: u8) {
        self.out.push(Effect::Binary { op, dst, left, right, width });
    }

    fn clobber(&mut self, dst: Reg) {
        self.out.push(Effect::Clobber(dst));
    }

    fn temporary(width: u8) -> Value {
        Value::Reg { reg: TEMPORARY, width }
    }

    /// Sets a register to one of two numbers.
    fn choose(&mut self, dst: Reg, one: u64, other: u64, width: u8) {
        self.set(dst, Value::Const(one & low_mask(width)), width);
        self.out.push(Effect::MaybeSet { dst, value: Value::Const(other & low_mask(width)), width });
    }

    // Branches, exceptions and system instructions.

    fn branch(&mut self) {
        let word = self.word;
        if decode::is_system_call(word) {
            self.out.push(Effect::SystemCall { compat: false, number: None });
            self.clobber(X0);
            self.out.push(Effect::ClobberMemory);
        } else if word.is(0xfc00_0000, 0x9400_0000) {
            self.link();
        } else if decode::is_conditional(word) {
            if word.field(0, 4) < 14 {
                self.out.push(Effect::BranchIf(condition(word.field(0, 4) as u8)));
            }
        } else if decode::is_compare(word) {
            let width = word.width();
            let (left, right) = (word.value(0, width), Value::Const(0));
            let condition = if word.bit(24) { Condition::NotEqual } else { Condition::Equal };
            self.out.push(Effect::BranchIfCompared { left, right, width, condition });
        } else if decode::is_bit_test(word) {
            self.out.push(Effect::BranchIf(Condition::Other));
        } else if decode::is_computed(word) {
            self.out.push(Effect::Transfer(word.value(5, 8)));
            if word.field(21, 4) & 0b0111 == 1 {
                self.link();
            }
        } else if word.is(0xff00_0000, 0xd500_0000) {
            self.system();
        } else if word.is(0xff00_0000, 0xd400_0000) {
            // The monitor and the hypervisor return values in registers.
            (0..SP.0).for_each(|number| self.clobber(Reg(number)));
            self.out.push(Effect::ClobberMemory);
        }
    }

    fn link(&mut self) {
        let displacement = self.at.wrapping_add(4) as i64;
        let back = Value::Address(Address { displacement, ..Address::default() });
        self.set(LR, back, 8);
    }

    /// `mrs`, `msr`, hints, barriers, cache maintenance.
    fn system(&mut self) {
        let word = self.word;
        // `mrs`, `sysl`; of the others, only `tstart` and `wfet` have a register.
        if word.bit(21) || word.is(0xffff_f000, 0xd523_3000) {
            self.clobber(word.reg(0));
        }
        if word.is(0xffff_ff00, 0xd50b_7400) {
            // `dc zva` clears the block around an address, up to 2 KiB.
            let block = Address { base: Some(word.reg(0)), displacement: -2048, ..Address::default() };
            self.out.push(Effect::ClobberRange(block));
            self.out.push(Effect::ClobberMemory);
        }
        // Hints and barriers keep the flags.
        if !word.is(0xffff_f01f, 0xd503_201f)
            && !word.is(0xffff_f01f, 0xd503_301f)
            && !word.is(0xfff8_0000, 0xd508_0000)
        {
            self.out.push(Effect::ClobberFlags);
        }
    }

    // Data processing with an immediate.

    fn immediate(&mut self) {
        let (word, width) = (self.word, self.word.width());
        match word.field(23, 3) {
            // `adr`, `adrp`
            0 | 1 => {
                let distance = word.signed(5, 19) << 2 | i64::from(word.field(29, 2));
                let target = match word.bit(31) {
                    true => (self.at & !0xfff).wrapping_add_signed(distance << 12),
                    false => self.at.wrapping_add_signed(distance),
                };
                let address = Address { displacement: target as i64, ..Address::default() };
                self.set(word.reg(0), Value::Address(address), 8);
            }
            2 => {
                let number = u64::from(word.field(10, 12)) << if word.bit(22) { 12 } else { 0 };
                self.add_or_subtract(word.value_or_sp(5, width), Value::Const(number));
            }
            4 => match word.bit_mask() {
                Some(mask) => self.logical(Value::Const(mask), word.field(29, 2) != 3),
                None => self.clobber(word.reg_or_sp(0)),
            },
            5 => self.move_wide(),
            6 => self.bit_field(),
            // `extr`, whose usual use is `ror`; tagged addresses, minima and maxima.
            7 => self.clobber(word.reg(0)),
            _ => self.clobber(word.reg_or_sp(0)),
        }
    }

    /// `add`, `sub` and, setting the flags, `adds`, `subs`, `cmn`, `cmp`. Without flags, register 31 is the
    /// stack pointer.
    fn add_or_subtract(&mut self, left: Value, right: Value) {
        let (word, width) = (self.word, self.word.width());
        let (subtracts, sets_flags) = (word.bit(30), word.bit(29));
        let op = if subtracts { BinaryOp::Sub } else { BinaryOp::Add };
        if !sets_flags {
            return self.binary(op, word.reg_or_sp(0), left, right, width);
        }
        self.out.push(match (subtracts, right) {
            (true, right) => Effect::Compare { left, right, width },
            // `cmn x0, #1` sets the flags as `cmp x0, #-1` does.
            (false, Value::Const(number)) if number != 0 => {
                let right = Value::Const(number.wrapping_neg() & low_mask(width));
                Effect::Compare { left, right, width }
            }
            _ => Effect::ClobberFlags,
        });
        self.binary(op, word.reg(0), left, right, width);
    }

    /// `and`, `orr`, `eor`, `ands`. An immediate form without flags may write to the stack pointer.
    fn logical(&mut self, right: Value, to_sp: bool) {
        let (word, width) = (self.word, self.word.width());
        let (left, opcode) = (word.value(5, width), word.field(29, 2));
        let dst = if to_sp { word.reg_or_sp(0) } else { word.reg(0) };
        match (opcode, left) {
            // `mov`
            (1, Value::Const(0)) => self.set(dst, right, width),
            (1, _) if left == right => self.set(dst, left, width),
            (0 | 3, _) => self.binary(BinaryOp::And, dst, left, right, width),
            (1, _) => self.binary(BinaryOp::Or, dst, left, right, width),
            (_, _) => self.binary(BinaryOp::Xor, dst, left, right, width),
        }
        if opcode == 3 {
            // `tst x0, x0`
            let value = if left == right { left } else { Value::Reg { reg: dst, width } };
            self.out.push(Effect::CompareZero { value, width });
        }
    }

    /// `movz`, `movn`, `movk`
    fn move_wide(&mut self) {
        let (word, width) = (self.word, self.word.width());
        let (dst, shift) = (word.reg(0), 16 * word.field(21, 2));
        let number = u64::from(word.field(5, 16)) << shift;
        match word.field(29, 2) {
            0 => self.set(dst, Value::Const(!number & low_mask(width)), width),
            2 => self.set(dst, Value::Const(number & low_mask(width)), width),
            3 => {
                let keep = Value::Const(!(0xffff << shift) & low_mask(width));
                let own = Value::Reg { reg: dst, width };
                self.binary(BinaryOp::And, dst, own, keep, width);
                self.binary(BinaryOp::Or, dst, own, Value::Const(number), width);
            }
            _ => self.clobber(dst),
        }
    }

    /// `sbfm`, `bfm`, `ubfm`: shifts by an immediate, extensions, bit fields.
    fn bit_field(&mut self) {
        let (word, width) = (self.word, self.word.width());
        let bits = 8 * u32::from(width);
        let (dst, src, opcode) = (word.reg(0), word.value(5, width), word.field(29, 2));
        let (rotation, last) = (word.field(16, 6), word.field(10, 6));
        let own = Value::Reg { reg: dst, width };
        if rotation >= bits || last >= bits || opcode == 1 || opcode == 3 {
            return self.clobber(dst);
        }
        let number = |number: u32| Value::Const(number.into());
        // The field begins at bit `rotation` and goes down, or at bit 0 and goes up.
        let (down, length) =
            (last >= rotation, if last >= rotation { last - rotation + 1 } else { last + 1 });
        let bytes = matches!(length, 8 | 16 | 32).then_some((length / 8) as u8);
        let whole = match bytes {
            Some(bytes) if bytes <= width => narrow(src, bytes),
            _ => None,
        };
        match (opcode, down) {
            (0, true) if rotation == bits - 1 => self.choose(dst, 0, u64::MAX, width),
            (0, _) => match (whole, bytes) {
                (Some(value), Some(from)) if !down || rotation == 0 => {
                    self.out.push(Effect::SetSigned { dst, value, from, width });
                    if !down {
                        self.binary(BinaryOp::Shl, dst, own, number(bits - rotation), width);
                    }
                }
                _ => self.clobber(dst),
            },
            (_, true) if last == bits - 1 => self.binary(BinaryOp::Shr, dst, src, number(rotation), width),
            (_, true) => match whole {
                Some(value) if rotation == 0 => self.set(dst, value, width),
                _ => {
                    self.binary(BinaryOp::Shr, dst, src, number(rotation), width);
                    self.binary(BinaryOp::And, dst, own, Value::Const((1 << length) - 1), width);
                }
            },
            (_, false) => {
                let shift = number(bits - rotation);
                if length + (bits - rotation) >= bits {
                    return self.binary(BinaryOp::Shl, dst, src, shift, width);
                }
                match whole {
                    Some(value) => self.set(dst, value, width),
                    None => self.binary(BinaryOp::And, dst, src, Value::Const((1 << length) - 1), width),
                }
                self.binary(BinaryOp::Shl, dst, own, shift, width);
            }
        }
    }

    // Data processing with registers.

    fn register(&mut self) {
        let (word, width) = (self.word, self.word.width());
        if word.is(0x1f00_0000, 0x0a00_0000) {
            return self.logical_register();
        }
        if word.is(0x1f20_0000, 0x0b00_0000) {
            return self.add_shifted();
        }
        if word.is(0x1fe0_0000, 0x0b20_0000) {
            return self.add_extended();
        }
        if word.is(0x1fe0_0000, 0x1a40_0000) {
            return self.out.push(Effect::ClobberFlags); // `ccmp`
        }
        if word.is(0x1fe0_0000, 0x1a80_0000) {
            return self.select(width);
        }
        // `adc`, `mul`, `udiv`, `rev` and all others; `irg` may write to the stack pointer.
        let tags = word.is(0xffe0_fc00, 0x9ac0_1000);
        self.clobber(if tags { word.reg_or_sp(0) } else { word.reg(0) });
        if word.bit(29) {
            self.out.push(Effect::ClobberFlags);
        }
    }

    /// Returns the second operand, shifted by the instruction. Returns `None` for a shift that the model does not
    /// support.
    fn shifted(&mut self) -> Option<Value> {
        let (word, width) = (self.word, self.word.width());
        let (value, amount) = (word.value(16, width), word.field(10, 6));
        if amount == 0 {
            return Some(value);
        }
        let op = match word.field(22, 2) {
            0 => BinaryOp::Shl,
            1 => BinaryOp::Shr,
            _ => return None,
        };
        if amount >= 8 * u32::from(width) {
            return None;
        }
        self.binary(op, TEMPORARY, value, Value::Const(amount.into()), width);
        Some(Self::temporary(width))
    }

    fn logical_register(&mut self) {
        let (word, width) = (self.word, self.word.width());
        let (sets_flags, dst) = (word.field(29, 2) == 3, word.reg(0));
        let Some(mut right) = self.shifted() else {
            self.clobber(dst);
            return if sets_flags {
                self.out.push(Effect::ClobberFlags)
            };
        };
        if word.bit(21) {
            // `bic`, `orn`, `eon`, `mvn`
            self.binary(BinaryOp::Xor, TEMPORARY, right, Value::Const(low_mask(width)), width);
            right = Self::temporary(width);
        }
        self.logical(right, false);
    }

    fn add_shifted(&mut self) {
        let (word, width) = (self.word, self.word.width());
        let (dst, left, amount) = (word.reg(0), word.value(5, width), word.field(10, 6));
        // `add x0, x1, x2, lsl #3` is an address; so is a 32-bit sum, whose upper half is cut off.
        if let (true, 1..=3, Value::Reg { reg, .. }) = (word.is(0x60c0_0000, 0), amount, left) {
            if word.field(16, 5) != 31 {
                let index = Some((word.reg(16), 1 << amount));
                let address = Address { base: Some(reg), index, ..Address::default() };
                return self.set(dst, Value::Address(address), width);
            }
        }
        match self.shifted() {
            Some(right) if left == right && word.bit(30) => {
                self.set(dst, Value::Const(0), width);
                if word.bit(29) {
                    self.out.push(Effect::ClobberFlags);
                }
            }
            Some(right) => self.add_or_subtract_to(dst, left, right),
            None => {
                self.clobber(dst);
                if word.bit(29) {
                    self.out.push(Effect::ClobberFlags);
                }
            }
        }
    }

    /// Like [`Model::add_or_subtract`], but register 31 is zero.
    fn add_or_subtract_to(&mut self, dst: Reg, left: Value, right: Value) {
        let (word, width) = (self.word, self.word.width());
        let (subtracts, sets_flags) = (word.bit(30), word.bit(29));
        if sets_flags {
            self.out.push(match subtracts {
                true => Effect::Compare { left, right, width },
                false => Effect::ClobberFlags,
            });
        }
        let op = if subtracts { BinaryOp::Sub } else { BinaryOp::Add };
        self.binary(op, dst, left, right, width);
    }

    /// `add x0, x1, w2, uxtw #2`
    fn add_extended(&mut self) {
        let (word, width) = (self.word, self.word.width());
        let (option, shift) = (word.field(13, 3), word.field(10, 3));
        let from = (1u8 << (option & 3)).min(width);
        let Some(value) = narrow(word.value(16, width), from) else {
            return self.add_or_subtract(word.value_or_sp(5, width), Value::Const(0));
        };
        if option >= 4 && from < width {
            self.out.push(Effect::SetSigned { dst: TEMPORARY, value, from, width });
        } else {
            self.set(TEMPORARY, value, width);
        }
        let right = Self::temporary(width);
        if shift > 0 {
            self.binary(BinaryOp::Shl, TEMPORARY, right, Value::Const(shift.into()), width);
        }
        self.add_or_subtract(word.value_or_sp(5, width), right);
    }

    /// `csel`, `csinc`, `csinv`, `csneg`
    fn select(&mut self, width: u8) {
        let word = self.word;
        let (dst, first, second) = (word.reg(0), word.value(5, width), word.value(16, width));
        // The second operand, incremented, inverted or negated.
        let other = match (word.bit(30), word.bit(10), second) {
            (false, false, _) => Some(second),
            (false, true, Value::Const(_)) => Some(Value::Const(1)),
            (false, true, Value::Reg { reg, .. }) => {
                Some(Value::Address(Address { base: Some(reg), displacement: 1, ..Address::default() }))
            }
            (true, false, Value::Const(_)) => Some(Value::Const(low_mask(width))),
            (true, true, Value::Const(_)) => Some(Value::Const(0)),
            _ => None,
        };
        let Some(other) = other.filter(|_| !word.bit(29) && !word.bit(11)) else {
            return self.clobber(dst);
        };
        // Choose the result before any write.
        self.set(TEMPORARY, first, width);
        self.out.push(Effect::MaybeSet { dst: TEMPORARY, value: other, width });
        self.set(dst, Self::temporary(width), width);
    }

    // Everything else.

    /// Vector instructions use general registers only to convert and to copy.
    fn vector(&mut self) {
        let word = self.word;
        let converts = word.is(0x5f20_fc00, 0x1e20_0000) || word.is(0x5f20_0000, 0x1e00_0000);
        // `umov`, `smov`, and the copies within vectors that have the same place in the table
        let copies = word.is(0x9fe0_8400, 0x0e00_0400);
        if converts || copies {
            self.clobber(word.reg(0));
        }
        // `fcmp`, `fccmp`
        if word.is(0x5f20_3c00, 0x1e20_2000) || word.is(0x5f20_0c00, 0x1e20_0400) {
            self.out.push(Effect::ClobberFlags);
        }
    }

    /// Loads and stores that clobber everything they may write: tags, copies of whole blocks.
    fn forget_access(&mut self) {
        for low in [0, 5, 16] {
            self.clobber(self.word.reg_or_sp(low));
        }
        self.out.extend([Effect::ClobberMemory, Effect::ClobberFlags]);
    }

    /// Scalable vectors: they count in general registers and may move the stack pointer, and their stores reach any
    /// number of vectors below and above an address.
    fn forget_scalable(&mut self) {
        let from =
            Address { base: Some(self.word.reg_or_sp(5)), displacement: -0x1_0000, ..Address::default() };
        self.out.extend([Effect::ClobberRange(from), Effect::ClobberMemory, Effect::ClobberFlags]);
        self.clobber(self.word.reg_or_sp(0));
    }
}

/// Returns the low bytes of a register; `None` for the zero register.
fn narrow(value: Value, width: u8) -> Option<Value> {
    match value {
        Value::Reg { reg, .. } => Some(Value::Reg { reg, width }),
        _ => None,
    }
}

/// See [`crate::Isa::registers_read`]. Includes every field that may name a general register; for vector instructions
/// only the second field, which they convert, copy, or address memory with.
pub(super) fn registers_read(word: Word) -> u64 {
    match word.field(25, 4) {
        // Unsupported branches and system instructions have their register in the first field.
        0b1010 | 0b1011 => word.as_bit(0),
        0b0111 | 0b1111 => word.as_bit(5),
        0b0110 | 0b1110 => word.as_bit(5) | word.as_bit(16),
        _ => word.as_bit(0) | word.as_bit(5) | word.as_bit(10) | word.as_bit(16),
    }
}
