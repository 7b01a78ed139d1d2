//! Values in registers and memory, as far as a path knows them.

use kisa::specializing::{Bits, Equality};
use kisa::{BinaryOp, Symbol};

/// The number of an unknown value that may be in several places at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameId(pub u32);

/// A value of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// Anything.
    Any,
    /// A number, some or all of whose bits are known.
    Bits(Bits),
    /// The address that a symbol stands for, and a number.
    Symbol(Symbol, i64),
    /// A number of bytes after the stack pointer at the entry of the path.
    Stack(i32),
    /// An unknown value, and a number.
    Name(NameId, i32),
}

/// The start of an address in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// The stack pointer at the entry of the path.
    Stack,
    /// A symbol.
    Symbol(Symbol),
    /// An unknown value.
    Name(NameId),
    /// Address 0.
    Absolute,
}

impl Value {
    /// Creates a number.
    pub fn number(number: u32) -> Value {
        Value::Bits(Bits::number(number))
    }

    /// Returns the number.
    pub fn get(self) -> Option<u32> {
        match self {
            Value::Bits(bits) => bits.get(),
            _ => None,
        }
    }

    /// Returns the known bits.
    pub fn bits(self) -> Bits {
        match self {
            Value::Bits(bits) => bits,
            _ => Bits::UNKNOWN,
        }
    }

    /// Returns the value as an address.
    pub fn place(self) -> Option<(Base, i32)> {
        match self {
            Value::Any => None,
            Value::Bits(bits) => Some((Base::Absolute, bits.get()? as i32)),
            Value::Symbol(symbol, addend) => Some((Base::Symbol(symbol), addend as i32)),
            Value::Stack(offset) => Some((Base::Stack, offset)),
            Value::Name(name, offset) => Some((Base::Name(name), offset)),
        }
    }

    /// Returns an address as a value.
    pub fn at((base, offset): (Base, i32)) -> Value {
        match base {
            Base::Stack => Value::Stack(offset),
            Base::Symbol(symbol) => Value::Symbol(symbol, offset.into()),
            Base::Name(name) => Value::Name(name, offset),
            Base::Absolute => Value::number(offset as u32),
        }
    }

    /// Returns the sum with a number.
    pub fn plus(self, number: i32) -> Value {
        match self.place() {
            Some((base, offset)) => Value::at((base, offset.wrapping_add(number))),
            None => Value::Any,
        }
    }

    /// Returns the result of an operation on words.
    pub fn binary(op: BinaryOp, left: Value, right: Value) -> Value {
        match (op, left.get(), right.get()) {
            (_, Some(left), Some(right)) => Value::number(match op {
                BinaryOp::Add => left.wrapping_add(right),
                BinaryOp::Sub => left.wrapping_sub(right),
                BinaryOp::And => left & right,
                BinaryOp::Or => left | right,
                BinaryOp::Xor => left ^ right,
                BinaryOp::Shl => left.checked_shl(right & 31).unwrap_or(0),
                BinaryOp::Shr => left.checked_shr(right & 31).unwrap_or(0),
            }),
            (BinaryOp::Add, Some(number), None) => right.plus(number as i32),
            (BinaryOp::Add, None, Some(number)) => left.plus(number as i32),
            (BinaryOp::Sub, None, Some(number)) => left.plus((number as i32).wrapping_neg()),
            (BinaryOp::Sub, None, None) => match (left.place(), right.place()) {
                (Some((base, one)), Some((other, two))) if base == other => {
                    Value::number(one.wrapping_sub(two) as u32)
                }
                _ => Value::Any,
            },
            _ => Value::Any,
        }
    }

    /// Whether code can compute the value without any input except the stack pointer.
    pub fn is_known(self) -> bool {
        match self {
            Value::Any | Value::Name(..) => false,
            Value::Bits(bits) => bits.get().is_some(),
            Value::Symbol(..) | Value::Stack(_) => true,
        }
    }

    /// Whether two values are known to be equal or different. `is_address` says of a value whether it is the address of
    /// something.
    pub fn compare(self, other: Value, is_address: impl Fn(Value) -> bool) -> Option<Equality> {
        let (left, right) = (self.place()?, other.place()?);
        if left.0 == right.0 {
            return Some(if left.1 == right.1 { Equality::Equal } else { Equality::Different });
        }
        let differs = |one: Value, zero: Value| zero.get() == Some(0) && is_address(one);
        (differs(self, other) || differs(other, self)).then_some(Equality::Different)
    }
}
