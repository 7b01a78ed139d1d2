//! T32, Thumb's encoding in halfwords: section F3.1 of the Arm Architecture Reference Manual (DDI 0487).

use super::a32;
use super::number::spread_number;
use super::op::{
    ALWAYS, Data, Decoded, LR, Mode, Offset, Op, PC, Place, R, SP, Source, bit, field, reg, shifted, writes,
};

/// Decodes the instruction at the start of `bytes`, at the even address `at`. `predicate` is the condition that a
/// preceding `it` applies to it.
pub(super) fn decode(bytes: &[u8], at: u32, predicate: Option<u8>) -> Option<Decoded> {
    let half = |index: usize| {
        let bytes = bytes.get(2 * index..2 * index + 2)?;
        Some(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    };
    let first = half(0)?;
    let (len, op, own) = if first >> 11 >= 0b11101 {
        let word = first << 16 | half(1)?;
        let (op, own) = wide(word, at)?;
        (4, op, own)
    } else {
        let (op, own) = narrow(first, at, predicate.is_none())?;
        (2, op, own)
    };
    let condition = predicate.unwrap_or(own.unwrap_or(ALWAYS));
    Some(Decoded { len, condition, op })
}

fn low_reg(word: u32, low: u32) -> R {
    field(word, low, 3) as R
}

fn sign_extend(value: u32, width: u32) -> i32 {
    ((value << (32 - width)) as i32) >> (32 - width)
}

fn branch(at: u32, distance: i32, link: bool) -> Op {
    Op::Branch { target: at.wrapping_add(4).wrapping_add_signed(distance) | 1, link }
}

fn data(data: Data, dst: R, left: Source, right: Source, flags: bool) -> Op {
    Op::Data { data, dst: Some(dst), left, right, flags }
}

fn compare(data: Data, left: Source, right: Source) -> Op {
    Op::Data { data, dst: None, left, right, flags: true }
}

/// Decodes instructions of 16 bits, and the condition of a branch. Outside of an `it` block, they set the flags.
fn narrow(half: u32, at: u32, flags: bool) -> Option<(Op, Option<u8>)> {
    let (dst, src) = (low_reg(half, 0), low_reg(half, 3));
    let number = |low, width| Source::Number(field(half, low, width));
    let op = match half >> 11 {
        0..=2 => {
            let by = field(half, 6, 5);
            data(Data::Move, dst, Source::Number(0), shifted(src, field(half, 11, 2), by), flags)
        }
        3 => {
            let kind = if bit(half, 9) { Data::Sub } else { Data::Add };
            let right = if bit(half, 10) { number(6, 3) } else { Source::Reg(low_reg(half, 6)) };
            data(kind, dst, Source::Reg(src), right, flags)
        }
        4 => data(Data::Move, low_reg(half, 8), Source::Number(0), number(0, 8), flags),
        5 => compare(Data::Sub, Source::Reg(low_reg(half, 8)), number(0, 8)),
        6 => data(Data::Add, low_reg(half, 8), Source::Reg(low_reg(half, 8)), number(0, 8), flags),
        7 => data(Data::Sub, low_reg(half, 8), Source::Reg(low_reg(half, 8)), number(0, 8), flags),
        8 if !bit(half, 10) => arithmetic(half, flags),
        8 => special(half),
        9 => {
            let from = Place::at(PC, (field(half, 0, 8) * 4) as i32);
            load(low_reg(half, 8), 4, false, from)
        }
        10 | 11 => {
            let offset = Offset::Reg { src: low_reg(half, 6), by: 0 };
            let place = Place { base: src, offset, mode: Mode::Offset };
            match field(half, 9, 3) {
                0 => store(dst, 4, place),
                1 => store(dst, 2, place),
                2 => store(dst, 1, place),
                3 => load(dst, 1, true, place),
                4 => load(dst, 4, false, place),
                5 => load(dst, 2, false, place),
                6 => load(dst, 1, false, place),
                _ => load(dst, 2, true, place),
            }
        }
        12..=17 => {
            let width = [4, 1, 2][(half as usize >> 12) - 6];
            let place = Place::at(src, (field(half, 6, 5) * u32::from(width)) as i32);
            if bit(half, 11) { load(dst, width, false, place) } else { store(dst, width, place) }
        }
        18 | 19 => {
            let place = Place::at(SP, (field(half, 0, 8) * 4) as i32);
            let dst = low_reg(half, 8);
            if bit(half, 11) { load(dst, 4, false, place) } else { store(dst, 4, place) }
        }
        20 => {
            let target = (at & !3).wrapping_add(4 + 4 * field(half, 0, 8));
            data(Data::Move, low_reg(half, 8), Source::Number(0), Source::Number(target), false)
        }
        21 => {
            data(Data::Add, low_reg(half, 8), Source::Reg(SP), Source::Number(4 * field(half, 0, 8)), false)
        }
        22 | 23 => return miscellaneous(half, at).map(|op| (op, None)),
        24 | 25 => {
            let (base, list) = (low_reg(half, 8), field(half, 0, 8) as u16);
            let loads = bit(half, 11);
            let moves = (!loads || list >> base & 1 == 0).then_some(4 * list.count_ones() as i32);
            Op::Multiple { loads, base, list, start: 0, moves }
        }
        26 | 27 => match field(half, 8, 4) {
            14 => Op::Trap,
            15 => Op::SystemCall { number: None },
            condition => {
                let distance = sign_extend(field(half, 0, 8), 8) * 2;
                return Some((branch(at, distance, false), Some(condition as u8)));
            }
        },
        _ => branch(at, sign_extend(field(half, 0, 11), 11) * 2, false),
    };
    Some((op, None))
}

fn load(dst: R, width: u8, signed: bool, from: Place) -> Op {
    Op::Load { dst: [Some(dst), None], width, signed, exclusive: false, from }
}

/// `ldrex`, `lda` and the like.
fn load_exclusive(dst: [Option<R>; 2], width: u8, from: Place) -> Op {
    Op::Load { dst, width, signed: false, exclusive: true, from }
}

fn store(src: R, width: u8, to: Place) -> Op {
    Op::Store { src: [Some(src), None], width, to }
}

fn arithmetic(half: u32, flags: bool) -> Op {
    let (dst, src) = (low_reg(half, 0), low_reg(half, 3));
    let (left, right) = (Source::Reg(dst), Source::Reg(src));
    let unknown = Source::Unknown { reads: 1 << dst | 1 << src };
    let zero = Source::Number(0);
    match field(half, 6, 4) {
        0 => data(Data::And, dst, left, right, flags),
        1 => data(Data::Xor, dst, left, right, flags),
        5 | 6 => data(Data::WithCarry, dst, left, right, flags),
        8 => compare(Data::And, left, right),
        9 => data(Data::ReverseSub, dst, right, zero, flags),
        10 => compare(Data::Sub, left, right),
        11 => compare(Data::Add, left, right),
        12 => data(Data::Or, dst, left, right, flags),
        14 => data(Data::Clear, dst, left, right, flags),
        15 => data(Data::Not, dst, zero, right, flags),
        // Shifts by a register, and the product.
        _ => data(Data::Move, dst, zero, unknown, flags),
    }
}

/// Decodes the 16-bit instructions that can name the high registers.
fn special(half: u32) -> Op {
    let (dst, src) = (low_reg(half, 0) | (field(half, 7, 1) << 3) as R, reg(half, 3));
    match field(half, 8, 2) {
        0 => data(Data::Add, dst, Source::Reg(dst), Source::Reg(src), false),
        1 => compare(Data::Sub, Source::Reg(dst), Source::Reg(src)),
        2 => data(Data::Move, dst, Source::Number(0), Source::Reg(src), false),
        _ => Op::BranchTo { src, link: bit(half, 7) },
    }
}

fn miscellaneous(half: u32, at: u32) -> Option<Op> {
    let (dst, src) = (low_reg(half, 0), low_reg(half, 3));
    let list = field(half, 0, 8) as u16;
    Some(match field(half, 8, 4) {
        0 => {
            let number = Source::Number(4 * field(half, 0, 7));
            data(if bit(half, 7) { Data::Sub } else { Data::Add }, SP, Source::Reg(SP), number, false)
        }
        1 | 3 | 9 | 11 => {
            let distance = field(half, 9, 1) << 6 | field(half, 3, 5) << 1;
            let target = at.wrapping_add(4 + distance) | 1;
            Op::CompareBranch { src: dst, equal: !bit(half, 11), target }
        }
        2 => {
            let width = if bit(half, 6) { 8 } else { 16 };
            Op::Field { dst, src, low: 0, width, signed: !bit(half, 7) }
        }
        4 | 5 => {
            let list = list | (field(half, 8, 1) << LR) as u16;
            let size = 4 * list.count_ones() as i32;
            Op::Multiple { loads: false, base: SP, list, start: -size, moves: Some(-size) }
        }
        12 | 13 => {
            let list = list | (field(half, 8, 1) << PC) as u16;
            Op::Multiple { loads: true, base: SP, list, start: 0, moves: Some(4 * list.count_ones() as i32) }
        }
        // `setend`, `cps`
        6 => Op::Nothing,
        10 if field(half, 6, 2) == 2 => Op::Trap,
        10 => Op::Other { writes: 1 << dst, reads: 1 << src, flags: false },
        14 => Op::Trap,
        15 if field(half, 0, 4) == 0 => Op::Nothing,
        15 => predicate(field(half, 4, 4), field(half, 0, 4)),
        _ => return None,
    })
}

/// Decodes `it` and its longer forms. The mask has one bit for each further instruction, the low bit of its condition,
/// and a 1 after the last.
fn predicate(condition: u32, mask: u32) -> Op {
    let count = 4 - mask.trailing_zeros() as u8;
    let mut conditions = [condition as u8; 4];
    for (index, condition) in conditions.iter_mut().enumerate().skip(1) {
        *condition = *condition & !1 | field(mask, 4 - index as u32, 1) as u8;
    }
    Op::Predicate { conditions, count }
}

/// Decodes instructions of 32 bits: the first halfword is the upper one.
fn wide(word: u32, at: u32) -> Option<(Op, Option<u8>)> {
    let op = match field(word, 27, 2) {
        1 if bit(word, 26) => a32::coprocessor_of(word)?,
        1 if bit(word, 25) => data_shifted(word),
        1 if bit(word, 22) => dual(word)?,
        1 => multiple(word)?,
        2 if bit(word, 15) => return branches(word, at),
        2 if bit(word, 25) => data_plain(word, at)?,
        2 => data_immediate(word),
        3 if field(word, 25, 2) == 0 => access(word)?,
        3 if field(word, 24, 3) == 2 => data_register(word),
        3 if field(word, 24, 3) == 3 => multiply(word),
        _ => a32::coprocessor_of(word)?,
    };
    Some((op, None))
}

/// `ldm`, `stm`
fn multiple(word: u32) -> Option<Op> {
    let list = field(word, 0, 16) as u16;
    let size = 4 * list.count_ones() as i32;
    let (start, moved) = match field(word, 23, 2) {
        1 => (0, size),
        2 => (-size, -size),
        _ => return None, // privileged
    };
    let moves = bit(word, 21).then_some(moved);
    Some(Op::Multiple { loads: bit(word, 20), base: reg(word, 16), list, start, moves })
}

/// `ldrd`, `strd`, exclusive accesses, `tbb`
fn dual(word: u32) -> Option<Op> {
    let (base, first, second) = (reg(word, 16), reg(word, 12), reg(word, 8));
    let (before, up, moves, loads) = (bit(word, 24), bit(word, 23), bit(word, 21), bit(word, 20));
    let offset = 4 * field(word, 0, 8) as i32;
    if before || moves {
        let offset = Offset::Number(if up { offset } else { -offset });
        let place = Place { base, offset, mode: Mode::of(before, moves) };
        let pair = [Some(first), Some(second)];
        return Some(match loads {
            true => Op::Load { dst: pair, width: 4, signed: false, exclusive: false, from: place },
            false => Op::Store { src: pair, width: 4, to: place },
        });
    }
    if !up {
        let place = Place::at(base, offset);
        return Some(match loads {
            true => load_exclusive([Some(first), None], 4, place),
            false => Op::StoreExclusive { status: second, src: 1 << first, width: 4, to: place },
        });
    }
    let (kind, place) = (field(word, 4, 4), Place::at(base, 0));
    if loads && kind <= 1 {
        return Some(Op::Table { base, index: reg(word, 0), width: kind as u8 + 1 });
    }
    let width = 1u8 << (kind & 3);
    Some(match (loads, kind) {
        (true, 7 | 15) => load_exclusive([Some(first), Some(second)], 4, place),
        (true, 4 | 5 | 8..=10 | 12..=14) => load_exclusive([Some(first), None], width, place),
        (false, 8..=10) => store(first, width, place),
        (false, 4 | 5 | 7 | 12..=15) => {
            Op::StoreExclusive { status: reg(word, 0), src: 1 << first | 1 << second, width, to: place }
        }
        _ => return None,
    })
}

/// Decodes data processing. Register 15 as the destination means a comparison, and as the first operand a move.
fn data_of(word: u32, right: Source) -> Op {
    let (left, dst, flags) = (reg(word, 16), reg(word, 8), bit(word, 20));
    let (kind, compares, moves) = match field(word, 21, 4) {
        0 => (Data::And, true, false),
        1 => (Data::Clear, false, false),
        2 => (if left == PC { Data::Move } else { Data::Or }, false, left == PC),
        3 => (if left == PC { Data::Not } else { Data::OrNot }, false, left == PC),
        4 => (Data::Xor, true, false),
        8 => (Data::Add, true, false),
        13 => (Data::Sub, true, false),
        14 => (Data::ReverseSub, false, false),
        // With the carry, and `pkh`.
        _ => (Data::WithCarry, false, false),
    };
    // UNPREDICTABLE by the manual: compilers do not emit it.
    let reads_pc =
        matches!(right, Source::Reg(PC) | Source::Shifted { src: PC, .. }) || (left == PC && !moves);
    let moves_sp = dst == SP && !matches!(kind, Data::Add | Data::Sub | Data::Move);
    if reads_pc || moves_sp {
        return writes(word, &[dst]);
    }
    let left = if moves { Source::Number(0) } else { Source::Reg(left) };
    if compares && flags && dst == PC {
        compare(kind, left, right)
    } else {
        data(kind, dst, left, right, flags)
    }
}

fn data_shifted(word: u32) -> Op {
    let by = field(word, 12, 3) << 2 | field(word, 6, 2);
    data_of(word, shifted(reg(word, 0), field(word, 4, 2), by))
}

fn data_immediate(word: u32) -> Op {
    let code = spread_number(word);
    let byte = code & 0xff;
    let number = match code >> 8 {
        0 => byte,
        1 => byte << 16 | byte,
        2 => byte << 24 | byte << 8,
        3 => byte * 0x0101_0101,
        _ => (byte & 0x7f | 0x80).rotate_right(code >> 7),
    };
    data_of(word, Source::Number(number))
}

/// `addw`, `movw`, `movt`, bit fields, saturation.
fn data_plain(word: u32, at: u32) -> Option<Op> {
    let (src, dst) = (reg(word, 16), reg(word, 8));
    let number = spread_number(word);
    let wide = field(word, 16, 4) << 12 | number;
    let low = (field(word, 12, 3) << 2 | field(word, 6, 2)) as u8;
    let pc = at.wrapping_add(4) & !3;
    let to = |number| data(Data::Move, dst, Source::Number(0), Source::Number(number), false);
    Some(match field(word, 20, 5) {
        0b00000 if src == PC => to(pc.wrapping_add(number)),
        0b01010 if src == PC => to(pc.wrapping_sub(number)),
        0b00000 => data(Data::Add, dst, Source::Reg(src), Source::Number(number), false),
        0b01010 => data(Data::Sub, dst, Source::Reg(src), Source::Number(number), false),
        0b00100 => to(wide),
        0b01100 => Op::MoveTop { dst, number: wide as u16 },
        0b10100 | 0b11100 => {
            let width = field(word, 0, 5) as u8 + 1;
            Op::Field { dst, src, low, width, signed: !bit(word, 23) }
        }
        0b10000 | 0b10010 | 0b10110 | 0b11000 | 0b11010 => writes(word, &[dst]),
        _ => return None,
    })
}

/// Branches, system registers and hints.
fn branches(word: u32, at: u32) -> Option<(Op, Option<u8>)> {
    let sign = field(word, 26, 1);
    let (j1, j2) = (field(word, 13, 1), field(word, 11, 1));
    let far = || {
        let (i1, i2) = (!(j1 ^ sign) & 1, !(j2 ^ sign) & 1);
        let distance = sign << 24 | i1 << 23 | i2 << 22 | field(word, 16, 10) << 12 | field(word, 0, 11) << 1;
        sign_extend(distance, 25)
    };
    let op = match (bit(word, 14), bit(word, 12)) {
        (false, true) => branch(at, far(), false),
        (true, true) => branch(at, far(), true),
        // To A32 code.
        (true, false) => {
            let target = (at.wrapping_add(4) & !3).wrapping_add_signed(far() & !3);
            Op::Branch { target, link: true }
        }
        (false, false) => {
            let condition = field(word, 22, 4);
            if condition < 14 {
                let distance =
                    sign << 20 | j2 << 19 | j1 << 18 | field(word, 16, 6) << 12 | field(word, 0, 11) << 1;
                return Some((branch(at, sign_extend(distance, 21), false), Some(condition as u8)));
            }
            match field(word, 20, 7) {
                0b0111000 | 0b0111001 => Op::Other { writes: 0, reads: 1 << reg(word, 16), flags: true },
                0b0111010 | 0b0111011 => Op::Nothing,
                // `subs pc, lr, #4`
                0b0111101 => {
                    let (left, right) = (Source::Reg(reg(word, 16)), Source::Number(field(word, 0, 8)));
                    data(Data::Sub, PC, left, right, true)
                }
                0b0111110 | 0b0111111 => writes(word, &[reg(word, 8)]),
                0b1111110 | 0b1111111 if !bit(word, 13) => a32::call_of_firmware(),
                0b1111111 => Op::Trap,
                _ => return None, // privileged
            }
        }
    };
    Some((op, None))
}

/// `ldr`, `str` and their narrow forms; vector structures.
fn access(word: u32) -> Option<Op> {
    let (base, dst) = (reg(word, 16), reg(word, 12));
    let (signed, loads, size) = (bit(word, 24), bit(word, 20), field(word, 21, 2));
    if signed && !loads {
        return Some(a32::structures(word));
    }
    if size == 3 {
        return None;
    }
    let width = 1u8 << size;
    let number = field(word, 0, 12) as i32;
    let place = if base == PC {
        Place::at(PC, if bit(word, 23) { number } else { -number })
    } else if bit(word, 23) {
        Place::at(base, number)
    } else if bit(word, 11) {
        let number = number & 0xff;
        let offset = Offset::Number(if bit(word, 9) { number } else { -number });
        Place { base, offset, mode: Mode::of(bit(word, 10), bit(word, 8)) }
    } else {
        let offset = Offset::Reg { src: reg(word, 0), by: field(word, 4, 2) as u8 };
        Place { base, offset, mode: Mode::Offset }
    };
    // `pld`
    if dst == PC && width < 4 && loads {
        return Some(Op::Nothing);
    }
    Some(if loads { load(dst, width, signed, place) } else { store(dst, width, place) })
}

/// Extensions, shifts by a register, and other data processing (`rev`, `clz`).
fn data_register(word: u32) -> Op {
    let (dst, src) = (reg(word, 8), reg(word, 0));
    let extends = field(word, 20, 4);
    if matches!(extends, 0 | 1 | 4 | 5) && bit(word, 7) && reg(word, 16) == PC {
        let (low, width) = (field(word, 4, 2) as u8 * 8, if extends >= 4 { 8 } else { 16 });
        if low + width <= 32 {
            return Op::Field { dst, src, low, width, signed: !bit(word, 20) };
        }
    }
    writes(word, &[dst])
}

/// Products and quotients: one register or two.
fn multiply(word: u32) -> Op {
    if bit(word, 23) { writes(word, &[reg(word, 8), reg(word, 12)]) } else { writes(word, &[reg(word, 8)]) }
}
