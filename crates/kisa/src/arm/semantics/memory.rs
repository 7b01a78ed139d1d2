//! Instructions that read and write memory.

use super::model::{Model, TEMPORARY_VALUE, program_counter, reg};
use crate::MemoryOperand;
use crate::arm::op::{Decoded, Mode, Offset, Op, PC, Place, R};
use crate::semantics::{Address, BinaryOp, Effect, Reg, TEMPORARY, Value};

impl Model<'_> {
    /// Returns the address of the access. An intermediate result is left in the model's temporary.
    pub(super) fn address(&mut self, place: Place) -> Address {
        let address = base_of(place, self.at);
        match (place.mode, place.offset) {
            (Mode::After, _) => address,
            (_, Offset::Number(number)) => {
                Address { displacement: address.displacement + i64::from(number), ..address }
            }
            (_, Offset::Reg { src, by }) => Address { index: Some((Reg(src), 1 << by)), ..address },
            (_, Offset::Unknown { .. }) => {
                self.clobber(TEMPORARY);
                Address { index: Some((TEMPORARY, 1)), ..address }
            }
        }
    }

    /// Updates the base register according to the addressing mode.
    pub(super) fn write_back(&mut self, place: Place) {
        let base = Reg(place.base);
        if place.mode == Mode::Offset {
            return;
        }
        match place.offset {
            Offset::Number(number) => self.move_by(base, number),
            Offset::Reg { src, by: 0 } => {
                self.binary(BinaryOp::Add, base, reg(place.base), reg(src));
            }
            _ => self.clobber(base),
        }
    }

    fn move_by(&mut self, base: Reg, bytes: i32) {
        let op = if bytes < 0 { BinaryOp::Sub } else { BinaryOp::Add };
        let own = Value::Reg { reg: base, width: 4 };
        self.binary(op, base, own, Value::Const(bytes.unsigned_abs().into()));
    }

    pub(super) fn load(&mut self, dst: [Option<R>; 2], width: u8, signed: bool, from: Place) {
        let address = self.address(from);
        if dst[0] == Some(PC) {
            // The base moves before the transfer, and the value is read before that.
            self.set(TEMPORARY, Value::Load { from: address, width });
            self.out.push(Effect::Transfer(TEMPORARY_VALUE));
            return self.write_back(from);
        }
        let unpredictable = dst[0] == dst[1] || (from.mode != Mode::Offset && dst.contains(&Some(from.base)));
        let start = self.out.len();
        for (number, distance) in dst.into_iter().zip([0, i64::from(width)]) {
            let Some(number) = number.filter(|&number| number != PC) else { continue };
            let from = Address { displacement: address.displacement + distance, ..address };
            let (dst, value) = (Reg(number), Value::Load { from, width });
            self.out.push(match signed {
                true => Effect::SetSigned { dst, value, from: width, width: 4 },
                false => Effect::Set { dst, value, width: 4 },
            });
        }
        // Write the register of the address last.
        let first = dst[0].map(Reg);
        if first.is_some() && (address.base == first || address.index.map(|(index, _)| index) == first) {
            self.out[start..].reverse();
        }
        self.write_back(from);
        if unpredictable {
            // The manual leaves the result to the processor (UNPREDICTABLE); compilers do not emit it.
            dst.into_iter().flatten().for_each(|number| self.clobber(Reg(number)));
            self.clobber(Reg(from.base));
        }
    }

    pub(super) fn store(&mut self, src: [Option<R>; 2], width: u8, to: Place) {
        let address = self.address(to);
        for (number, distance) in src.into_iter().zip([0, i64::from(width)]) {
            let Some(number) = number else { continue };
            let to = Address { displacement: address.displacement + distance, ..address };
            let value = match self.source(number) {
                Value::Reg { reg, .. } => Value::Reg { reg, width },
                other => other,
            };
            self.out.push(Effect::Store { to, value, width });
        }
        self.write_back(to);
    }

    pub(super) fn multiple(&mut self, loads: bool, base: R, list: u16, start: i32, moves: Option<i32>) {
        let registers = (0..16).filter(|number| list >> number & 1 != 0);
        let places = registers.zip((0..).map(|index| start + 4 * index));
        let at = |displacement: i32| Address {
            base: Some(Reg(base)),
            displacement: displacement.into(),
            ..Address::default()
        };
        if !loads {
            for (number, place) in places {
                let is_own_address = number == PC && self.decoded.op.begins_apcs_frame();
                let value = if is_own_address { Value::Unknown } else { self.source(number) };
                self.out.push(Effect::Store { to: at(place), value, width: 4 });
            }
            if let Some(bytes) = moves {
                self.move_by(Reg(base), bytes);
            }
            return;
        }
        let mut own = None;
        for (number, place) in places {
            let value = Value::Load { from: at(place), width: 4 };
            match number {
                PC => {
                    self.set(TEMPORARY, value);
                    self.out.push(Effect::Transfer(TEMPORARY_VALUE));
                }
                // Write the base last.
                number if number == base => own = Some(value),
                number => self.set(Reg(number), value),
            }
        }
        match (own, moves) {
            (Some(value), _) => self.set(Reg(base), value),
            (None, Some(bytes)) => self.move_by(Reg(base), bytes),
            (None, None) => {}
        }
    }

    /// `tbb [pc, r0]`
    pub(super) fn table(&mut self, base: R, index: R, width: u8) {
        // The program counter is used as it is here, without rounding to a word.
        let (base, displacement) = match base {
            PC => (None, i64::from(program_counter(self.at))),
            base => (Some(Reg(base)), 0),
        };
        let from = Address { base, index: Some((Reg(index), width)), displacement, ..Address::default() };
        let pc = program_counter(self.at) | 1;
        self.set(TEMPORARY, Value::Load { from, width });
        self.binary(BinaryOp::Shl, TEMPORARY, TEMPORARY_VALUE, Value::Const(1));
        self.binary(BinaryOp::Add, TEMPORARY, TEMPORARY_VALUE, Value::Const(pc.into()));
        self.out.push(Effect::Transfer(TEMPORARY_VALUE));
    }
}

/// Returns the base of an operand in memory. The program counter as a base is rounded to a word.
fn base_of(place: Place, at: u32) -> Address {
    match place.base {
        PC => Address { displacement: (program_counter(at) & !3).into(), ..Address::default() },
        base => Address { base: Some(Reg(base)), ..Address::default() },
    }
}

/// See [`crate::Isa::memory_operand`].
pub(in crate::arm) fn memory_operand(decoded: &Decoded, at: u32) -> Option<MemoryOperand> {
    let (place, width) = match decoded.op {
        Op::Load { width, from: place, .. }
        | Op::Store { width, to: place, .. }
        | Op::StoreExclusive { width, to: place, .. }
        | Op::Vector { size: width, place, .. } => (place, width),
        _ => return None,
    };
    let mut out = Vec::new();
    let address = Model { decoded, at, out: &mut out }.address(place);
    Some(MemoryOperand { address, width, displacement_offset: None })
}
