//! Loads and stores: the memory that they access, and how they update the base register.

use crate::semantics::{Address, BinaryOp, Effect, Reg, TEMPORARY, Value};

use super::word::Word;

/// One access to memory: what all kinds of loads and stores have in common.
pub(super) struct Access {
    /// An effect that must precede the access because the address needs its result (a 32-bit index that is extended).
    pub(super) first: Option<Effect>,
    pub(super) address: Address,
    /// Number of bytes read or written, in all registers together; an upper bound where the model does not distinguish
    /// sizes.
    pub(super) size: u8,
    pub(super) kind: Kind,
    /// The new value of the base register, if it is updated.
    pub(super) update: Update,
}

/// The data that is loaded or stored.
pub(super) enum Kind {
    /// Loads general registers of `width` bytes each; sign-extends them to `signed` bytes.
    Load { width: u8, signed: Option<u8>, registers: [Option<Reg>; 2] },
    /// Stores values.
    Store { width: u8, values: [Option<Value>; 2] },
    /// Loads vector registers, or nothing (`prfm`).
    Nothing,
    /// Stores vector registers.
    Vector,
    /// Gives these registers and the memory values that the model does not know (`stxr`, `cas`, `ldadd`).
    Atomic { registers: [Option<Reg>; 2] },
}

impl Kind {
    /// Whether one register would get two values (a load into its own updated base). The manual leaves the result to
    /// the processor (CONSTRAINED UNPREDICTABLE), and compilers do not emit it.
    fn is_unpredictable(&self, base: Reg, update: Update) -> bool {
        match self {
            Kind::Load { registers, .. } => {
                !matches!(update, Update::None) && registers.contains(&Some(base))
            }
            _ => false,
        }
    }
}

/// The change of the base register.
#[derive(Clone, Copy)]
pub(super) enum Update {
    None,
    Add(i64),
    Unknown,
}

impl Access {
    /// Returns the access of an instruction, if the model supports the instruction.
    pub(super) fn of(word: Word, at: u64) -> Option<Access> {
        if word.is(0x3b00_0000, 0x1800_0000) {
            return Some(literal(word, at));
        }
        if word.is(0x3f00_0000, 0x0800_0000) {
            return exclusive(word);
        }
        if word.is(0x3a00_0000, 0x2800_0000) {
            return pair(word);
        }
        if word.is(0x3a00_0000, 0x3800_0000) {
            return single(word);
        }
        // Vector structures: use the largest size, 64 bytes, for all.
        if word.is(0xbe00_0000, 0x0c00_0000) {
            let kind = if word.bit(22) { Kind::Nothing } else { Kind::Vector };
            let update = if word.bit(23) { Update::Unknown } else { Update::None };
            return Some(Access { first: None, address: base(word, 0), size: 64, kind, update });
        }
        None
    }

    /// Appends the effects of the access.
    pub(super) fn effects(self, out: &mut Vec<Effect>) {
        out.extend(self.first);
        let behind = |bytes: u8| Address {
            displacement: self.address.displacement.wrapping_add(bytes.into()),
            ..self.address
        };
        match self.kind {
            Kind::Load { width, signed, registers: [first, second] } => {
                let parts = [(first, self.address), (second, behind(width))];
                let loads = parts.into_iter().filter_map(|(dst, from)| Some((dst?, from)));
                let loads = loads.map(|(dst, from)| {
                    let value = Value::Load { from, width };
                    match signed {
                        Some(to) => Effect::SetSigned { dst, value, from: width, width: to },
                        None => Effect::Set { dst, value, width: width.max(4) },
                    }
                });
                let start = out.len();
                out.extend(loads);
                // The manual leaves the result to the processor.
                if let (Some(first), true) = (first, first == second) {
                    out.push(Effect::Clobber(first));
                }
                // Write the register of the address last.
                if self.address.base == first {
                    out[start..].reverse();
                }
            }
            Kind::Store { width, values: [first, second] } => {
                let parts = [(first, self.address), (second, behind(width))];
                let stores = parts.into_iter().filter_map(|(value, to)| Some((value?, to)));
                out.extend(stores.map(|(value, to)| Effect::Store { to, value, width }));
            }
            Kind::Nothing => {}
            Kind::Vector => {
                out.push(Effect::Store { to: self.address, value: Value::Unknown, width: self.size });
            }
            Kind::Atomic { registers } => {
                out.push(Effect::Store { to: self.address, value: Value::Unknown, width: self.size });
                out.extend(registers.into_iter().flatten().map(Effect::Clobber));
            }
        }
        let Some(dst) = self.address.base else { return };
        if self.kind.is_unpredictable(dst, self.update) {
            return out.push(Effect::Clobber(dst));
        }
        match self.update {
            Update::None => {}
            Update::Add(bytes) => out.push(add(dst, bytes)),
            Update::Unknown => out.push(Effect::Clobber(dst)),
        }
    }
}

fn add(dst: Reg, bytes: i64) -> Effect {
    let (op, count) = if bytes < 0 { (BinaryOp::Sub, -bytes) } else { (BinaryOp::Add, bytes) };
    let left = Value::Reg { reg: dst, width: 8 };
    Effect::Binary { op, dst, left, right: Value::Const(count as u64), width: 8 }
}

fn base(word: Word, displacement: i64) -> Address {
    Address { base: Some(word.reg_or_sp(5)), displacement, ..Address::default() }
}

/// `ldr x0, label`
fn literal(word: Word, at: u64) -> Access {
    let displacement = at.wrapping_add_signed(word.signed(5, 19) * 4) as i64;
    let (width, signed) = match word.field(30, 2) {
        0 => (4, None),
        1 => (8, None),
        _ => (4, Some(8)),
    };
    let vector = word.bit(26) || word.field(30, 2) == 3;
    let kind = if vector { Kind::Nothing } else { load(width, signed, word.reg(0), None) };
    let address = Address { displacement, ..Address::default() };
    let size = if vector { 16 } else { width };
    Access { first: None, address, size, kind, update: Update::None }
}

fn load(width: u8, signed: Option<u8>, first: Reg, second: Option<Reg>) -> Kind {
    Kind::Load { width, signed, registers: [Some(first), second] }
}

/// `ldxr`, `stlr`, `cas` and other exclusive, ordered and compare-and-swap accesses.
fn exclusive(word: Word) -> Option<Access> {
    let width = 1u8 << word.field(30, 2);
    let (ordered, loads, other) = (word.bit(23), word.bit(22), word.bit(21));
    let (kind, size) = match (ordered, other) {
        // `stxr`, `ldxr`
        (false, false) if loads => (load(width, None, word.reg(0), None), width),
        (false, false) => (Kind::Atomic { registers: [Some(word.reg(16)), None] }, width),
        // `stxp`, `ldxp`
        (false, true) if width >= 4 && loads => {
            (load(width, None, word.reg(0), Some(word.reg(10))), 2 * width)
        }
        (false, true) if width >= 4 => (Kind::Atomic { registers: [Some(word.reg(16)), None] }, 2 * width),
        // `casp`: an even register and the one after it
        (false, true) => {
            let registers = [Some(word.reg(16)), Some(Reg(word.reg(16).0 | 1))];
            (Kind::Atomic { registers }, 16)
        }
        // `stlr`, `ldar`
        (true, false) if loads => (load(width, None, word.reg(0), None), width),
        (true, false) => {
            let values = [Some(word.value(0, width)), None];
            (Kind::Store { width, values }, width)
        }
        // `cas`
        (true, true) => (Kind::Atomic { registers: [Some(word.reg(16)), None] }, width),
    };
    Some(Access { first: None, address: base(word, 0), size, kind, update: Update::None })
}

/// `ldp`, `stp`
fn pair(word: Word) -> Option<Access> {
    let (loads, vector, opcode) = (word.bit(22), word.bit(26), word.field(30, 2));
    let (width, signed) = match (vector, opcode) {
        (true, 0..3) => (4 << opcode, None),
        (false, 0) => (4, None),
        (false, 1) if loads => (4, Some(8)),
        (false, 2) => (8, None),
        // `stgp` stores a tag as well.
        _ => return None,
    };
    let offset = word.signed(15, 7) * i64::from(width);
    let (displacement, update) = match word.field(23, 2) {
        1 => (0, Update::Add(offset)),
        3 => (offset, Update::Add(offset)),
        _ => (offset, Update::None),
    };
    let kind = match (vector, loads) {
        (true, true) => Kind::Nothing,
        (true, false) => Kind::Vector,
        (false, true) => load(width, signed, word.reg(0), Some(word.reg(10))),
        (false, false) => {
            Kind::Store { width, values: [Some(word.value(0, width)), Some(word.value(10, width))] }
        }
    };
    Some(Access { first: None, address: base(word, displacement), size: 2 * width, kind, update })
}

/// `ldr`, `str`, their narrow forms, and atomic operations.
fn single(word: Word) -> Option<Access> {
    let (size, vector, opcode) = (word.field(30, 2), word.bit(26), word.field(22, 2));
    let width = if vector && opcode >= 2 { 16 } else { 1u8 << size };
    let mut access = Access {
        first: None,
        address: base(word, 0),
        size: width,
        kind: kind(word, width, vector, opcode),
        update: Update::None,
    };
    if word.bit(24) {
        access.address.displacement = i64::from(word.field(10, 12)) * i64::from(width);
        return Some(access);
    }
    if !word.bit(21) {
        let offset = word.signed(12, 9);
        match word.field(10, 2) {
            1 => access.update = Update::Add(offset),
            3 => (access.address.displacement, access.update) = (offset, Update::Add(offset)),
            _ => access.address.displacement = offset,
        }
        return Some(access);
    }
    match word.field(10, 2) {
        2 => indexed(word, width, access),
        // `ldadd`, `swp`; `ldapr` is among them.
        0 if !vector => {
            Some(Access { kind: Kind::Atomic { registers: [Some(word.reg(0)), None] }, ..access })
        }
        // `ldraa` loads through a pointer that it authenticates.
        _ if !vector && size == 3 => {
            let sign = if word.bit(22) { -0x200 } else { 0 };
            let offset = (i64::from(word.field(12, 9)) + sign) * 8;
            access.kind = load(8, None, word.reg(0), None);
            access.address.displacement = offset;
            access.update = if word.bit(11) { Update::Add(offset) } else { Update::None };
            Some(access)
        }
        _ => None,
    }
}

fn kind(word: Word, width: u8, vector: bool, opcode: u32) -> Kind {
    match (vector, opcode) {
        (true, 0 | 2) => Kind::Vector,
        (true, _) => Kind::Nothing,
        (false, 0) => Kind::Store { width, values: [Some(word.value(0, width)), None] },
        (false, 1) => load(width, None, word.reg(0), None),
        // `prfm`
        (false, 2) if width == 8 => Kind::Nothing,
        (false, 2) => load(width, Some(8), word.reg(0), None),
        (false, _) => load(width, Some(4), word.reg(0), None),
    }
}

/// `ldr x0, [x1, x2, lsl #3]`, `ldr x0, [x1, w2, uxtw #3]`
fn indexed(word: Word, width: u8, mut access: Access) -> Option<Access> {
    let scale = if word.bit(12) { width } else { 1 };
    let narrow = || Value::Reg { reg: word.reg_or_sp(16), width: 4 };
    let index = match word.field(13, 3) {
        _ if word.field(16, 5) == 31 => return Some(access),
        3 | 7 => word.reg(16),
        2 => {
            access.first = Some(Effect::Set { dst: TEMPORARY, value: narrow(), width: 8 });
            TEMPORARY
        }
        6 => {
            access.first = Some(Effect::SetSigned { dst: TEMPORARY, value: narrow(), from: 4, width: 8 });
            TEMPORARY
        }
        _ => return None,
    };
    access.address.index = Some((index, scale));
    Some(access)
}
