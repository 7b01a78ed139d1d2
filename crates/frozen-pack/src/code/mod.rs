//! The layout of pages of i386 code: which symbols an instruction consists of, and what each depends on.
//!
//! - An *opcode* symbol stands for prefixes and opcode; it depends on the instruction before.
//! - ModRM depends on the opcode and the ModRM byte of the instruction before, SIB on ModRM, a displacement of a byte on
//!   what ModRM says, an immediate of a byte on the opcode.
//! - 32-bit fields are [`values`], branches by the address that they lead to.
//! - Bytes that are no instruction are coded as they are, each behind the opcode symbol 0.
//!
//! An instruction that straddles the end of the page is coded as a whole and cut off; the next page begins with how
//! many bytes of it are left, and these bytes as they are.

pub mod i386;
pub mod parse;
pub mod values;

use crate::error::Damaged;
use crate::symbols::{Context, Field, Source};
use i386::{Displacement, Format, Operand};
use values::{Kind, Reader, Recent};

/// The fields, with their numbers in the format.
pub mod field {
    #![allow(missing_docs)]
    use super::Field;
    pub const HEAD: Field = 0;
    pub const OPCODE: Field = 1;
    pub const MOD_RM: Field = 2;
    pub const SIB: Field = 3;
    pub const DISP8: Field = 4;
    pub const IMM8: Field = 5;
    pub const IMM16: Field = 6;
    pub const REL8: Field = 7;
    pub const RAW: Field = 8;
    pub const BRANCH: Field = 9;
    pub const DISP32: Field = 10;
    pub const IMM32: Field = 11;
    pub const BYTES: Field = 12;
    pub const NAMES: [&str; 13] = [
        "head", "opcode", "ModRM", "SIB", "disp8", "imm8", "imm16", "rel8", "raw", "branch", "disp32",
        "imm32", "bytes",
    ];
}

/// The opcode symbol that stands for one byte that is no instruction.
pub const RAW_BYTE: u8 = 0;

/// What an opcode symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode {
    /// Prefixes and opcode; what of it counts is given by `len`.
    pub bytes: [u8; 3],
    /// How many of the bytes there are.
    pub len: u8,
    /// How the instruction goes on.
    pub format: Format,
}

/// What all pages of code have in common besides the distributions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeModel {
    /// What the opcode symbols from 1 stand for.
    pub opcodes: Vec<Opcode>,
    /// Targets of branches, the most frequent first: the lower 3 bytes, the upper one being that of the branch.
    pub branches: Vec<u32>,
    /// Addresses and immediates, the most frequent first.
    pub words: Vec<u32>,
}

/// An instruction in the making: no longer than 3 bytes of opcode, ModRM, SIB, displacement and immediate.
#[derive(Default)]
struct Bytes {
    bytes: [u8; 16],
    len: usize,
}

impl Bytes {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// What is known of an instruction when the next one is decoded.
#[derive(Clone, Copy, Default)]
struct Before {
    opcode: u8,
    mod_rm: u8,
}

impl CodeModel {
    /// Decodes a page that lies at `address`.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode<S: Source>(&self, source: &mut S, address: u32, out: &mut [u8]) -> Result<(), Damaged> {
        let head = usize::from(source.symbol(Context { field: field::HEAD, values: [0; 3] })?);
        if head > out.len() {
            return Err(Damaged("a page begins with more of an instruction than it has room for"));
        }
        for byte in &mut out[..head] {
            *byte = source.symbol(Context { field: field::RAW, values: [1, 0, 0] })?;
        }
        let mut at = head;
        let mut before = [Before::default(); 2];
        let mut recent = [Recent::default(), Recent::default()];
        while at < out.len() {
            let mut bytes = Bytes::default();
            let here = address.wrapping_add(at as u32);
            let now = self.instruction(source, here, before, &mut recent, &mut bytes)?;
            let len = bytes.len.min(out.len() - at);
            out[at..at + len].copy_from_slice(&bytes.bytes[..len]);
            at += len;
            before = [now, before[0]];
        }
        Ok(())
    }

    fn instruction<S: Source>(
        &self,
        source: &mut S,
        address: u32,
        before: [Before; 2],
        recent: &mut [Recent; 2],
        bytes: &mut Bytes,
    ) -> Result<Before, Damaged> {
        let [last, earlier] = before;
        let mut symbol =
            |field: Field, a: u8, b: u8, c: u8| source.symbol(Context { field, values: [a, b, c] });
        let op = symbol(field::OPCODE, last.opcode, last.mod_rm, earlier.opcode)?;
        if op == RAW_BYTE {
            bytes.put(&[symbol(field::RAW, 0, 0, 0)?]);
            return Ok(Before { opcode: op, mod_rm: 0 });
        }
        let opcode =
            self.opcodes.get(usize::from(op) - 1).ok_or(Damaged("an opcode symbol stands for nothing"))?;
        bytes.put(&opcode.bytes[..usize::from(opcode.len)]);
        let (mut mod_rm, mut operand) = (0, opcode.format.operand);
        if opcode.format.mod_rm {
            mod_rm = symbol(field::MOD_RM, op, last.mod_rm, last.opcode)?;
            bytes.put(&[mod_rm]);
            let mut sib = 0;
            if i386::has_sib(mod_rm) {
                sib = symbol(field::SIB, mod_rm, op, last.mod_rm)?;
                bytes.put(&[sib]);
            }
            match i386::displacement(mod_rm, sib) {
                Displacement::None => {}
                Displacement::Byte => bytes.put(&[symbol(field::DISP8, mod_rm & 7 | sib << 3, op, mod_rm)?]),
                Displacement::Word => {
                    let form = Context { field: field::DISP32, values: [mod_rm, op, sib] };
                    let value = self.value(source, form, Kind::Word, recent, address)?;
                    bytes.put(&value.to_le_bytes());
                }
            }
            if opcode.format.only_test && mod_rm >> 3 & 7 > 1 {
                operand = Operand::None;
            }
        }
        let mut symbol =
            |field: Field, a: u8, b: u8, c: u8| source.symbol(Context { field, values: [a, b, c] });
        match operand {
            Operand::None => {}
            Operand::Imm8 => bytes.put(&[symbol(field::IMM8, op, mod_rm, last.opcode)?]),
            Operand::Imm16 => {
                let high = symbol(field::IMM16, 0, op, mod_rm)?;
                let low = symbol(field::IMM16, 1, high, op)?;
                bytes.put(&[low, high]);
            }
            Operand::Rel8 => bytes.put(&[symbol(field::REL8, op, last.opcode, last.mod_rm)?]),
            Operand::Imm32 | Operand::Address => {
                let form = Context { field: field::IMM32, values: [op, mod_rm, last.opcode] };
                let value = self.value(source, form, Kind::Word, recent, address)?;
                bytes.put(&value.to_le_bytes());
            }
            Operand::Rel32 => {
                let end = address.wrapping_add(bytes.len as u32 + 4);
                let form = Context { field: field::BRANCH, values: [op, last.opcode, last.mod_rm] };
                let target = self.value(source, form, Kind::Branch, recent, end)?;
                bytes.put(&target.wrapping_sub(end).to_le_bytes());
            }
        }
        Ok(Before { opcode: op, mod_rm })
    }

    fn value<S: Source>(
        &self,
        source: &mut S,
        form: Context,
        kind: Kind,
        recent: &mut [Recent; 2],
        end: u32,
    ) -> Result<u32, Damaged> {
        let dictionary = match kind {
            Kind::Branch => &self.branches,
            Kind::Word => &self.words,
        };
        Reader { dictionary, recent: &mut recent[kind as usize], form, bytes: field::BYTES, kind, end }
            .read(source)
    }
}
