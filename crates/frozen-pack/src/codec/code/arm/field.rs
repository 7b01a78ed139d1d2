//! The fields, with their numbers in the format.

use crate::codec::symbols::{Field, Fields};

/// Number of bytes that remain of an instruction from the previous page.
pub const HEAD: Field = 0;
/// A template, or a marker for bytes that are not an instruction.
pub const OPCODE: Field = 1;
/// The number of a template without an opcode symbol of its own.
pub const MORE: Field = 2;
/// A literal byte.
pub const RAW: Field = 3;
/// A byte of a value.
pub const BYTES: Field = 4;
/// The form of the target of a branch.
pub const BRANCH: Field = 5;
/// The form of a literal.
pub const WORD: Field = 6;
/// The distance of a literal from the previous one, in words.
pub const LITERAL: Field = 7;
/// The numbers of two registers, one of them in the lowest bits of the instruction.
pub const PAIR: Field = 8;
/// Numbers of registers.
pub const REGISTER: Field = 9;
/// Immediates.
pub const IMMEDIATE: Field = 10;
/// Distances of branches.
pub const DISTANCE: Field = 11;
/// Lists of registers.
pub const LIST: Field = 12;
/// The fields for parts of instructions.
pub const PARTS: std::ops::RangeInclusive<Field> = BRANCH..=LIST;
/// All fields.
pub const ALL: Fields =
    Fields { values: &[1, 256, 256, 2, 81, 256, 256, 256, 256, 256, 256, 256, 256], depth: 2 };
