//! A32, the encoding in words: section F4.1 of the Arm Architecture Reference Manual (DDI 0487).

use super::number::rotated_number;
use super::op::{
    ALWAYS, Data, Decoded, Mode, Offset, Op, PC, Place, R, SP, Source, bit, field, reg, shifted, writes,
};

/// Decodes a word at address `at`. Returns `None` if it is not an instruction.
pub(super) fn decode(word: u32, at: u32) -> Option<Decoded> {
    let condition = (word >> 28) as u8;
    if condition == 15 {
        return Some(Decoded { len: 4, condition: ALWAYS, op: unconditional(word, at)? });
    }
    let op = match field(word, 25, 3) {
        0 if bit(word, 7) && bit(word, 4) => {
            if field(word, 5, 2) == 0 {
                multiply(word)?
            } else {
                narrow_access(word)?
            }
        }
        0 if field(word, 23, 2) == 2 && !bit(word, 20) => miscellaneous(word)?,
        0 => data(word, register_operand(word)),
        1 => immediate(word),
        2 => access(word, Offset::Number(signed(word, field(word, 0, 12)))),
        3 if bit(word, 4) => media(word)?,
        3 => access(word, register_offset(word)),
        4 => multiple(word),
        5 => {
            let distance = ((word << 8) as i32) >> 6;
            Op::Branch { target: at.wrapping_add(8).wrapping_add_signed(distance), link: bit(word, 24) }
        }
        _ if field(word, 24, 4) == 15 => system_call(word),
        _ => coprocessor(word),
    };
    Some(Decoded { len: 4, condition, op })
}

/// Applies the sign in bit U to an offset.
fn signed(word: u32, offset: u32) -> i32 {
    if bit(word, 23) { offset as i32 } else { -(offset as i32) }
}

/// Returns a system call. The old ABI has the number in the instruction, from 0x900000 on.
fn system_call(word: u32) -> Op {
    Op::SystemCall { number: field(word, 0, 24).checked_sub(0x90_0000) }
}

fn register_operand(word: u32) -> Source {
    let src = reg(word, 0);
    match bit(word, 4) {
        true => Source::Unknown { reads: 1 << src | 1 << reg(word, 8) },
        false => shifted(src, field(word, 5, 2), field(word, 7, 5)),
    }
}

/// Decodes data processing; `right` is the second operand, the rest is in the word.
fn data(word: u32, right: Source) -> Op {
    let (dst, left) = (Some(reg(word, 12)), Source::Reg(reg(word, 16)));
    let (data, dst) = match field(word, 21, 4) {
        0 => (Data::And, dst),
        1 => (Data::Xor, dst),
        2 => (Data::Sub, dst),
        3 => (Data::ReverseSub, dst),
        4 => (Data::Add, dst),
        8 => (Data::And, None),
        9 => (Data::Xor, None),
        10 => (Data::Sub, None),
        11 => (Data::Add, None),
        12 => (Data::Or, dst),
        13 => (Data::Move, dst),
        14 => (Data::Clear, dst),
        15 => (Data::Not, dst),
        _ => (Data::WithCarry, dst),
    };
    // Moves have no first operand.
    let left = if matches!(data, Data::Move | Data::Not) { Source::Number(0) } else { left };
    Op::Data { data, dst, left, right, flags: bit(word, 20) }
}

fn immediate(word: u32) -> Op {
    let wide = field(word, 16, 4) << 12 | field(word, 0, 12);
    match field(word, 20, 5) {
        0b10000 => Op::Data {
            data: Data::Move,
            dst: Some(reg(word, 12)),
            left: Source::Number(0),
            right: Source::Number(wide),
            flags: false,
        },
        0b10100 => Op::MoveTop { dst: reg(word, 12), number: wide as u16 },
        // Hints, and `msr`.
        0b10010 | 0b10110 => Op::Other { writes: 0, reads: 0, flags: true },
        _ => data(word, Source::Number(rotated_number(word))),
    }
}

fn miscellaneous(word: u32) -> Option<Op> {
    let (kind, src) = (field(word, 21, 2), reg(word, 0));
    Some(match (field(word, 4, 4), kind) {
        (1, 1) | (2, 1) => Op::BranchTo { src, link: false },
        (3, 1) => Op::BranchTo { src, link: true },
        (0, _) if bit(word, 21) => Op::Other { writes: 0, reads: 1 << src, flags: true },
        (0 | 4 | 5, _) | (1, 3) => writes(word, &[reg(word, 12)]),
        (7, 1) => Op::Trap,
        (7, 2 | 3) => call_of_firmware(),
        (8 | 10 | 12 | 14, _) => writes(word, &[reg(word, 16), reg(word, 12)]),
        _ => return None,
    })
}

/// Returns the operation of `hvc` and `smc`. The callee takes arguments from registers and returns results in registers
/// (DEN 0028), but the model does not know which.
pub(super) fn call_of_firmware() -> Op {
    Op::Other { writes: 0x7fff & !(1 << SP), reads: 0x7fff, flags: true }
}

/// Multiplications, `swp`, and exclusive accesses.
fn multiply(word: u32) -> Option<Op> {
    if !bit(word, 24) {
        return Some(writes(word, &[reg(word, 16), reg(word, 12)]));
    }
    let (place, dst, src) = (Place::at(reg(word, 16), 0), reg(word, 12), reg(word, 0));
    if !bit(word, 23) {
        return Some(Op::StoreExclusive { status: dst, src: 1 << src, width: 4, to: place });
    }
    let (width, double) = match field(word, 21, 2) {
        0 => (4, false),
        1 => (4, true),
        2 => (1, false),
        _ => (2, false),
    };
    let pair = |first: R| [Some(first), double.then_some(first | 1)];
    let ordered = field(word, 8, 2) == 0;
    Some(match (bit(word, 20), ordered) {
        (true, _) => Op::Load { dst: pair(dst), width, signed: false, exclusive: true, from: place },
        (false, true) => Op::Store { src: pair(src), width, to: place },
        (false, false) => {
            let width = if double { 8 } else { width };
            Op::StoreExclusive { status: dst, src: 1 << src | 1 << (src | 1), width, to: place }
        }
    })
}

/// `ldrh`, `ldrsb`, `ldrd` and the other loads and stores of this encoding class.
fn narrow_access(word: u32) -> Option<Op> {
    let offset = match bit(word, 22) {
        true => Offset::Number(signed(word, field(word, 8, 4) << 4 | field(word, 0, 4))),
        false if bit(word, 23) => Offset::Reg { src: reg(word, 0), by: 0 },
        false => Offset::Unknown { src: reg(word, 0) },
    };
    let place = Place { base: reg(word, 16), offset, mode: Mode::of(bit(word, 24), bit(word, 21)) };
    let first = reg(word, 12);
    let pair = [Some(first), Some(first | 1)];
    let one = [Some(first), None];
    Some(match (bit(word, 20), field(word, 5, 2)) {
        (false, 1) => Op::Store { src: one, width: 2, to: place },
        (false, 2) => Op::Load { dst: pair, width: 4, signed: false, exclusive: false, from: place },
        (false, _) => Op::Store { src: pair, width: 4, to: place },
        (true, 1) => Op::Load { dst: one, width: 2, signed: false, exclusive: false, from: place },
        (true, 2) => Op::Load { dst: one, width: 1, signed: true, exclusive: false, from: place },
        (true, _) => Op::Load { dst: one, width: 2, signed: true, exclusive: false, from: place },
    })
}

fn register_offset(word: u32) -> Offset {
    let src = reg(word, 0);
    match (bit(word, 23), field(word, 5, 2), field(word, 7, 5)) {
        (true, 0, by @ 0..=3) if src != PC => Offset::Reg { src, by: by as u8 },
        _ => Offset::Unknown { src },
    }
}

/// `ldr`, `str`, `ldrb`, `strb`
fn access(word: u32, offset: Offset) -> Op {
    let place = Place { base: reg(word, 16), offset, mode: Mode::of(bit(word, 24), bit(word, 21)) };
    let (one, width) = ([Some(reg(word, 12)), None], if bit(word, 22) { 1 } else { 4 });
    match bit(word, 20) {
        true => Op::Load { dst: one, width, signed: false, exclusive: false, from: place },
        false => Op::Store { src: one, width, to: place },
    }
}

/// Decodes instructions of the media extensions, which write to one of two fields, or to both.
fn media(word: u32) -> Option<Op> {
    let (dst, src) = (reg(word, 12), reg(word, 0));
    if word & 0x0fe0_0070 == 0x07e0_0050 || word & 0x0fe0_0070 == 0x07a0_0050 {
        let (low, width) = (field(word, 7, 5) as u8, field(word, 16, 5) as u8 + 1);
        return Some(Op::Field { dst, src, low, width, signed: !bit(word, 22) });
    }
    if word & 0x0f8f_03f0 == 0x068f_0070 && matches!(field(word, 20, 3), 2 | 3 | 6 | 7) {
        let (low, width) = (field(word, 10, 2) as u8 * 8, if bit(word, 20) { 16 } else { 8 });
        // A field that wraps around the end of the word is not one range of bits.
        if low + width <= 32 {
            return Some(Op::Field { dst, src, low, width, signed: !bit(word, 22) });
        }
    }
    if word & 0x0ff0_00f0 == 0x07f0_00f0 {
        return Some(Op::Trap);
    }
    Some(writes(word, &[dst, reg(word, 16)]))
}

/// `ldm`, `stm`
fn multiple(word: u32) -> Op {
    let (before, up) = (bit(word, 24), bit(word, 23));
    let list = field(word, 0, 16) as u16;
    let size = 4 * list.count_ones() as i32;
    let start = match (before, up) {
        (false, true) => 0,
        (true, true) => 4,
        (false, false) => 4 - size,
        (true, false) => -size,
    };
    let moves = bit(word, 21).then_some(if up { size } else { -size });
    Op::Multiple { loads: bit(word, 20), base: reg(word, 16), list, start, moves }
}

/// Decodes coprocessor instructions, which include vectors and floating point. T32 uses the same words.
pub(super) fn coprocessor(word: u32) -> Op {
    let (first, second, base) = (reg(word, 12), reg(word, 16), reg(word, 16));
    if !matches!(field(word, 8, 4), 9..=11 | 14 | 15) {
        return Op::Foreign { first, second };
    }
    if word & 0x0f00_0000 == 0x0e00_0000 {
        // Between a general register and a coprocessor; register 15 stands for the flags.
        return match bit(word, 4) && bit(word, 20) {
            true => Op::Other { writes: 1 << first & !(1 << PC), reads: 0, flags: first == PC },
            false if bit(word, 4) => Op::Other { writes: 0, reads: 1 << first, flags: false },
            false => Op::Nothing,
        };
    }
    if word & 0x0fe0_0000 == 0x0c40_0000 {
        return match bit(word, 20) {
            true => Op::Other { writes: (1 << first | 1 << second) & !(1 << PC), reads: 0, flags: false },
            false => Op::Other { writes: 0, reads: 1 << first | 1 << second, flags: false },
        };
    }
    let (loads, before, up, moves) = (bit(word, 20), bit(word, 24), bit(word, 23), bit(word, 21));
    // 16-bit numbers have their own coprocessor.
    let unit = if field(word, 8, 4) == 9 { 2 } else { 4 };
    let size = unit * field(word, 0, 8) as i32;
    let single = before && !moves;
    let (offset, mode) = match (single, up) {
        (true, _) => (signed(word, size as u32), Mode::Offset),
        (false, true) if moves => (size, Mode::After),
        (false, true) => (0, Mode::Offset),
        (false, false) => (-size, Mode::Before),
    };
    // `vldr` transfers up to 8 bytes; other coprocessors transfer up to 16.
    let size = if single { 16 } else { size.clamp(0, 255) as u8 };
    Op::Vector { loads, size, place: Place { base, offset: Offset::Number(offset), mode } }
}

/// Decodes coprocessor words of T32, which has the encodings with and without condition in two places.
pub(super) fn coprocessor_of(word: u32) -> Option<Op> {
    match field(word, 24, 4) {
        12 | 13 if field(word, 28, 1) != 0 && is_vector_extension(word) => Some(Op::Nothing),
        12..=14 => Some(coprocessor(word)),
        // Vectors.
        15 => Some(Op::Nothing),
        _ => None,
    }
}

/// Decodes the unconditional instructions: words whose condition field is 15.
fn unconditional(word: u32, at: u32) -> Option<Op> {
    Some(match field(word, 24, 4) {
        // `cps`, `setend`
        1 if field(word, 20, 4) == 0 => Op::Nothing,
        // Vectors.
        2 | 3 => Op::Nothing,
        4 if !bit(word, 20) => structures(word),
        // `pld`, barriers, and the like.
        4..=7 => Op::Nothing,
        10 | 11 => {
            let distance = ((word << 8) as i32 >> 6) + if bit(word, 24) { 2 } else { 0 };
            Op::Branch { target: at.wrapping_add(8).wrapping_add_signed(distance) | 1, link: true }
        }
        12 | 13 if is_vector_extension(word) => Op::Nothing,
        12..=14 => coprocessor(word),
        _ => return None,
    })
}

/// Whether a word is one of the later vector operations, which share the encodings of a coprocessor's loads and stores.
fn is_vector_extension(word: u32) -> bool {
    field(word, 8, 4) & 0b1010 == 0b1000
}

/// Decodes `vld1`, `vst4` and the like. The words of T32 are nearly the same.
pub(super) fn structures(word: u32) -> Op {
    let (base, index) = (reg(word, 16), reg(word, 0));
    let place = match index {
        PC => Place::at(base, 0),
        // The base moves by the number of bytes transferred.
        SP => Place { base, offset: Offset::Unknown { src: SP }, mode: Mode::After },
        _ => Place { base, offset: Offset::Unknown { src: index }, mode: Mode::After },
    };
    Op::Vector { loads: bit(word, 21), size: 64, place }
}
