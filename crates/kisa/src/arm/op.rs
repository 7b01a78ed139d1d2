//! Operations: decoded instructions of either encoding, before they are turned into effects.

use crate::semantics::Condition;

/// The number of a general register; 15 is the program counter.
pub(super) type R = u8;

/// The frame pointer of ARM code that is compiled with `-mapcs-frame`.
pub(super) const FP: R = 11;
const IP: R = 12;
pub(super) const SP: R = 13;
pub(super) const LR: R = 14;
pub(super) const PC: R = 15;

/// The condition that always holds.
pub(super) const ALWAYS: u8 = 14;

/// Decodes a condition field; AArch64 has the same numbers.
pub(crate) fn condition(number: u8) -> Condition {
    match number {
        0 => Condition::Equal,
        1 => Condition::NotEqual,
        2 => Condition::AboveOrEqual,
        3 => Condition::Below,
        8 => Condition::Above,
        9 => Condition::BelowOrEqual,
        10 => Condition::GreaterOrEqual,
        11 => Condition::Less,
        12 => Condition::Greater,
        13 => Condition::LessOrEqual,
        _ => Condition::Other,
    }
}

/// A decoded instruction.
#[derive(Clone, Copy)]
pub(crate) struct Decoded {
    /// Length in bytes.
    pub(super) len: u8,
    /// The machine's number of its condition.
    pub(super) condition: u8,
    pub(super) op: Op,
}

/// The operation of an instruction.
#[derive(Clone, Copy)]
pub(super) enum Op {
    /// An instruction without effects on what the model knows (hints, barriers).
    Nothing,
    /// Arithmetic and moves. `dst` is missing if only the flags are set.
    Data { data: Data, dst: Option<R>, left: Source, right: Source, flags: bool },
    /// Sets the upper half of a register (`movt`).
    MoveTop { dst: R, number: u16 },
    /// Extracts a field of a register.
    Field { dst: R, src: R, low: u8, width: u8, signed: bool },
    /// Loads registers of `width` bytes each from consecutive addresses. An exclusive load (`ldrex`) precedes an
    /// exclusive store; an acquire load (`lda`) is treated as one.
    Load { dst: [Option<R>; 2], width: u8, signed: bool, exclusive: bool, from: Place },
    /// Stores registers.
    Store { src: [Option<R>; 2], width: u8, to: Place },
    /// An exclusive store (`strex`): it may store registers, given as a set of bits; another register gets the status.
    StoreExclusive { status: R, src: u16, width: u8, to: Place },
    /// Loads or stores several registers, the lowest one `start` bytes from the base, which then moves.
    Multiple { loads: bool, base: R, list: u16, start: i32, moves: Option<i32> },
    /// Loads or stores vector registers.
    Vector { loads: bool, size: u8, place: Place },
    /// A branch to a fixed address (Thumb code: with bit 0 set).
    Branch { target: u32, link: bool },
    /// A branch that compares a register with 0.
    CompareBranch { src: R, equal: bool, target: u32 },
    /// A branch to the address in a register.
    BranchTo { src: R, link: bool },
    /// A branch through a table of distances in halfwords (`tbb`, `tbh`).
    Table { base: R, index: R, width: u8 },
    /// A system call, with its number if that is part of the instruction.
    SystemCall { number: Option<u32> },
    /// `it`: makes the instructions that follow conditional.
    Predicate { conditions: [u8; 4], count: u8 },
    /// A trap: execution does not continue.
    Trap,
    /// A coprocessor instruction that the architecture does not define: it may write to these registers, and to memory
    /// around the address in the second.
    Foreign { first: R, second: R },
    /// Reads some registers, given as sets of bits, and writes others with results that the model does not know.
    Other { writes: u16, reads: u16, flags: bool },
}

impl Op {
    /// Whether this stores the start of an APCS frame (GCC's `-mapcs-frame`): `push {fp, ip, lr, pc}`, or more
    /// registers. Only backtraces use the stored `pc`, to read the instruction before that address
    /// (`arch/arm/lib/backtrace.S`), which is this one wherever it is moved.
    pub(super) fn begins_apcs_frame(&self) -> bool {
        const LINK: u16 = 1 << FP | 1 << IP | 1 << LR | 1 << PC;
        match *self {
            Op::Multiple { loads: false, base: SP, list, start, moves } => {
                list & LINK == LINK && start < 0 && moves == Some(start)
            }
            _ => false,
        }
    }

    /// Whether this sets up the frame pointer of an APCS frame: `sub fp, ip, #4`.
    pub(super) fn sets_apcs_frame(&self) -> bool {
        matches!(
            *self,
            Op::Data { data: Data::Sub, dst: Some(FP), left: Source::Reg(IP), right: Source::Number(4), .. }
        )
    }

    /// Whether this leaves an APCS frame: `ldm sp, {fp, sp, pc}`, or with other registers, another base, or `lr`.
    pub(super) fn leaves_apcs_frame(&self) -> bool {
        const BOTH: u16 = 1 << FP | 1 << SP;
        matches!(*self, Op::Multiple { loads: true, list, .. } if list & BOTH == BOTH)
    }
}

/// Operations of [`Op::Data`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    And,
    Xor,
    Sub,
    /// `right - left`
    ReverseSub,
    Add,
    Or,
    /// `left & !right`
    Clear,
    /// `left | !right`
    OrNot,
    /// `right`
    Move,
    /// `!right`
    Not,
    /// An operation with the carry, whose result is unknown.
    WithCarry,
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Number(u32),
    Reg(R),
    /// A shifted register.
    Shifted {
        src: R,
        shift: Shift,
        by: u8,
    },
    /// A register that is shifted by another one, or rotated.
    Unknown {
        reads: u16,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    Left,
    Right,
    Arithmetic,
}

/// An operand in memory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) base: R,
    pub(super) offset: Offset,
    /// Whether the offset is part of the address, and whether the base moves by it.
    pub(super) mode: Mode,
}

#[derive(Clone, Copy)]
pub(super) enum Offset {
    Number(i32),
    /// A register, shifted left.
    Reg {
        src: R,
        by: u8,
    },
    /// A register, shifted otherwise or subtracted: an unknown address.
    Unknown {
        src: R,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Offset,
    Before,
    After,
}

impl Place {
    /// Creates the address in a register plus a number.
    pub(super) fn at(base: R, number: i32) -> Place {
        Place { base, offset: Offset::Number(number), mode: Mode::Offset }
    }
}

impl Mode {
    /// Decodes the bits P and W.
    pub(super) fn of(before: bool, writes_back: bool) -> Mode {
        match (before, writes_back) {
            (true, false) => Mode::Offset,
            (true, true) => Mode::Before,
            (false, _) => Mode::After,
        }
    }
}

/// Creates a shift by an immediate. Returns an unknown operand for rotations and where no bit of the register is left.
pub(super) fn shifted(src: R, kind: u32, by: u32) -> Source {
    let unknown = Source::Unknown { reads: 1 << src };
    let by = by as u8;
    match (kind, by) {
        (0, 0) => Source::Reg(src),
        (0, _) => Source::Shifted { src, shift: Shift::Left, by },
        (1, 1..) => Source::Shifted { src, shift: Shift::Right, by },
        (2, 1..) => Source::Shifted { src, shift: Shift::Arithmetic, by },
        _ => unknown,
    }
}

/// Returns a field of an instruction word, given its lowest bit and its width in bits.
pub(super) fn field(word: u32, low: u32, width: u32) -> u32 {
    word >> low & ((1 << width) - 1)
}

/// Returns a bit of an instruction word.
pub(super) fn bit(word: u32, bit: u32) -> bool {
    word >> bit & 1 != 0
}

/// Returns a register field of an instruction word, given its lowest bit.
pub(super) fn reg(word: u32, low: u32) -> R {
    field(word, low, 4) as R
}

/// Returns an operation that writes these registers with an unknown result, computed from the registers in the other
/// fields.
pub(super) fn writes(word: u32, registers: &[R]) -> Op {
    let writes = registers.iter().filter(|&&reg| reg != PC).fold(0, |bits, reg| bits | 1 << reg);
    let reads = [0, 8, 12, 16].iter().fold(0, |bits, &low| bits | 1 << reg(word, low));
    Op::Other { writes, reads, flags: true }
}
