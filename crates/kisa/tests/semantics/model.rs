//! The machine as the effects of its instructions describe it.

use kisa::{Address, BinaryOp, Condition, Effect, Reg, Value};

use super::{MEMORY, MEMORY_SIZE};

/// The machine as the effects describe it. A register holds one of a few numbers, or anything.
#[derive(Clone)]
pub struct State {
    pub registers: [Option<Vec<u64>>; 33],
    /// Ranges of memory that may have changed; `None` for all memory.
    pub stores: Vec<Option<(u64, u64)>>,
    pub flags: Status,
}

/// The flags.
#[derive(Clone, PartialEq, Debug)]
pub enum Status {
    Unchanged,
    Unknown,
    Compared(u64, u64, u8),
    Zero(u64, u8),
}

pub struct Model {
    pub mask: u64,
    pub state: State,
    /// The state without the conditional effects.
    pub skipped: Option<State>,
}

pub fn low(value: u64, width: u8) -> u64 {
    if width >= 8 { value } else { value & ((1 << (8 * width)) - 1) }
}

pub fn sign_extend(value: u64, width: u8) -> u64 {
    let unused = 64 - 8 * u32::from(width);
    ((value << unused) as i64 >> unused) as u64
}

/// Returns the byte in the harness's memory.
pub fn byte(address: u64) -> Option<u64> {
    let index = address.checked_sub(MEMORY).filter(|&index| index < MEMORY_SIZE)?;
    Some(index.wrapping_mul(167).wrapping_add(13).wrapping_add((index >> 8).wrapping_mul(31)) & 0xff)
}

impl Model {
    pub fn addresses(&self, address: &Address) -> Option<Vec<u64>> {
        let mut sums = vec![address.displacement as u64];
        let index = address.index.map(|(reg, scale)| (reg, u64::from(scale)));
        for (reg, scale) in address.base.map(|reg| (reg, 1)).into_iter().chain(index) {
            let values = self.state.registers[usize::from(reg.0)].as_ref()?;
            sums = sums
                .iter()
                .flat_map(|sum| {
                    values.iter().map(|value| sum.wrapping_add(value.wrapping_mul(scale)) & self.mask)
                })
                .collect();
        }
        Some(sums.into_iter().map(|sum| sum & self.mask).collect())
    }

    fn value(&self, value: Value) -> Option<Vec<u64>> {
        match value {
            Value::Const(number) => Some(vec![number]),
            Value::Reg { reg, width } => {
                let values = self.state.registers[usize::from(reg.0)].as_ref()?;
                Some(values.iter().map(|&value| low(value, width)).collect())
            }
            Value::Address(address) => self.addresses(&address),
            Value::Load { from, width } => {
                let load = |address: u64| {
                    let mut bytes =
                        (0..u64::from(width)).rev().map(|index| byte(address.wrapping_add(index)));
                    bytes.try_fold(0, |value, byte| Some(value << 8 | byte?))
                };
                self.addresses(&from)?.into_iter().map(load).collect()
            }
            Value::Symbol { .. } | Value::Unknown => None,
        }
    }

    fn write(&mut self, dst: Reg, values: Option<Vec<u64>>, width: u8) {
        let register = &mut self.state.registers[usize::from(dst.0)];
        let kept: Vec<u64> = match width >= 4 {
            true => vec![0],
            false => match register.take() {
                Some(old) => old.into_iter().map(|old| old - low(old, width)).collect(),
                None => return,
            },
        };
        let mask = self.mask;
        let merged = |value: u64| kept.iter().map(move |kept| kept | low(value, width) & mask);
        *register = values.map(|values| values.into_iter().flat_map(merged).collect());
    }

    pub fn apply(&mut self, effect: &Effect) {
        match *effect {
            Effect::Set { dst, value, width } => self.write(dst, self.value(value), width),
            Effect::MaybeSet { dst, value, width } => {
                let old = self.state.registers[usize::from(dst.0)].clone();
                self.write(dst, self.value(value), width);
                let register = &mut self.state.registers[usize::from(dst.0)];
                *register = old.zip(register.take()).map(|(old, new)| [old, new].concat());
            }
            Effect::SetSigned { dst, value, from, width } => {
                let values = self.value(value);
                let values = values.map(|values| values.into_iter().map(|v| sign_extend(v, from)).collect());
                self.write(dst, values, width);
            }
            Effect::Binary { op, dst, left, right, width } => {
                let result = self.value(left).zip(self.value(right)).map(|(lefts, rights)| {
                    let pairs = lefts.iter().flat_map(|&l| rights.iter().map(move |&r| (l, r)));
                    pairs.map(|(left, right)| binary(op, left, right, width)).collect()
                });
                self.write(dst, result, width);
            }
            Effect::Store { to, width, .. } => {
                let stores = self.addresses(&to);
                match stores {
                    Some(stores) => {
                        let range = |at: u64| Some((at, at.wrapping_add(width.into())));
                        self.state.stores.extend(stores.into_iter().map(range));
                    }
                    None => self.state.stores.push(None),
                }
            }
            Effect::ClobberMemory | Effect::ClobberRange(_) => self.state.stores.push(None),
            Effect::Compare { left, right, width } => {
                self.state.flags = match (self.value(left).as_deref(), self.value(right).as_deref()) {
                    (Some(&[left]), Some(&[right])) => Status::Compared(left, right, width),
                    _ => Status::Unknown,
                };
            }
            Effect::CompareZero { value, width } => {
                self.state.flags = match self.value(value).as_deref() {
                    Some(&[value]) => Status::Zero(value, width),
                    _ => Status::Unknown,
                };
            }
            Effect::ClobberFlags => self.state.flags = Status::Unknown,
            Effect::Clobber(reg) => self.state.registers[usize::from(reg.0)] = None,
            Effect::Escape(_) => {}
            Effect::OnlyIf(_) => self.skipped = Some(self.state.clone()),
            Effect::Swap(a, b) => self.state.registers.swap(usize::from(a.0), usize::from(b.0)),
            Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::SystemCall { .. } => unreachable!("{effect:?} in a straight instruction"),
        }
    }
}

pub fn binary(op: BinaryOp, left: u64, right: u64, width: u8) -> u64 {
    let result = match op {
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Sub => left.wrapping_sub(right),
        BinaryOp::And => left & right,
        BinaryOp::Or => left | right,
        BinaryOp::Xor => left ^ right,
        BinaryOp::Shl => left.checked_shl(right as u32).unwrap_or(0),
        BinaryOp::Shr => low(left, width).checked_shr(right as u32).unwrap_or(0),
    };
    low(result, width)
}

/// Whether the flags in the status register agree with the effects.
pub fn flags_agree(is_x86: bool, flags: &Status, before: u64, after: u64) -> bool {
    let bit = |bit: u32| after >> bit & 1 != 0;
    // The carry of x86 is set if a subtraction borrows.
    let (n, z, c, v) = match is_x86 {
        true => (bit(7), bit(6), !bit(0), bit(11)),
        false => (bit(31), bit(30), bit(29), bit(28)),
    };
    match *flags {
        Status::Unknown => true,
        Status::Unchanged => before == after,
        Status::Zero(value, width) => z == (low(value, width) == 0),
        Status::Compared(left, right, width) => {
            let conditions = [
                (Condition::Equal, z),
                (Condition::NotEqual, !z),
                (Condition::AboveOrEqual, c),
                (Condition::Below, !c),
                (Condition::Above, c && !z),
                (Condition::BelowOrEqual, !c || z),
                (Condition::GreaterOrEqual, n == v),
                (Condition::Less, n != v),
                (Condition::Greater, !z && n == v),
                (Condition::LessOrEqual, z || n != v),
            ];
            conditions.iter().all(|&(condition, holds)| condition.holds(left, right, width) == Some(holds))
        }
    }
}
