//! The layout of pages of i386 and x86-64 code: the symbols of an instruction, and their contexts.
//!
//! - An *opcode* symbol means a template; it depends on the previous one.
//! - SIB and the form of a displacement of four bytes depend on ModRM, all other fields on the opcode symbol.
//! - 32-bit fields are [`values`]; the value of a branch is its target. In x86-64 code, the value of a displacement from
//!   the end of the instruction is also its target. Addresses are their lower 32 bits.
//! - Prefixes of x86-64 code are instructions of their own, unless they change the size of the operand.
//! - Bytes that are not an instruction are literal, each after the opcode symbol 0.

pub mod opcodes;
pub mod parse;
pub mod template;

use super::choose::Template as _;
use super::values::{self, Kind, Reader, Recent};
use super::{MORE, RAW_BYTE};
use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, Field, Fields, Source};
use opcodes::{Displacement, Operand};
use template::Template;

/// The fields, with their numbers in the format.
pub mod field {
    use super::{Field, Fields};

    /// Number of bytes that remain of an instruction from the previous page.
    pub const HEAD: Field = 0;
    /// A template, or a marker for a byte that is not an instruction.
    pub const OPCODE: Field = 1;
    /// ModRM.
    pub const MOD_RM: Field = 2;
    /// SIB.
    pub const SIB: Field = 3;
    /// A displacement of 1 byte.
    pub const DISP8: Field = 4;
    /// An immediate of 1 byte.
    pub const IMM8: Field = 5;
    /// A byte of an immediate of 2 bytes.
    pub const IMM16: Field = 6;
    /// A displacement of a branch, of 1 byte.
    pub const REL8: Field = 7;
    /// A literal byte.
    pub const RAW: Field = 8;
    /// The form of the target of a branch.
    pub const BRANCH: Field = 9;
    /// The form of a displacement of 4 bytes.
    pub const DISP32: Field = 10;
    /// The form of an immediate of 4 bytes.
    pub const IMM32: Field = 11;
    /// A byte of a value.
    pub const BYTES: Field = 12;
    /// The number of a template without an opcode symbol of its own.
    pub const MORE: Field = 13;
    /// All fields.
    pub const ALL: Fields =
        Fields { values: &[1, 256, 256, 256, 256, 256, 2, 256, 2, 256, 256, 256, 81, 256], depth: 1 };
}

/// The data besides the distributions that all pages of i386 or x86-64 code share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeModel {
    /// Whether it is x86-64 code.
    pub is_64: bool,
    /// The templates of the opcode symbols from 1 on.
    pub templates: Vec<Template>,
    /// Targets of branches, most frequent first, as the lower 3 bytes; the upper byte is the branch's own.
    pub branches: Vec<u32>,
    /// Addresses and immediates, the most frequent first.
    pub words: Vec<u32>,
    /// The upper byte of nearby addresses; `None` if it is the page's.
    pub high: Option<u32>,
}

/// The bytes that a symbol and its fields decode to: a template, ModRM, SIB, at most 4 bytes of displacement and 8
/// of operand.
#[derive(Default)]
struct Bytes {
    bytes: [u8; template::LONGEST + 14],
    len: usize,
}

impl Bytes {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// The addresses of a page and of a place in it.
#[derive(Clone, Copy)]
struct Place {
    page: u32,
    /// The size of the page in bytes.
    size: u32,
    /// The distance that is added to the targets of branches that leave the page.
    moved: u32,
    here: u32,
}

impl Place {
    /// Returns the distance from `end` to a target, which is the same for all copies of the page only within it.
    fn distance(self, target: u32, end: u32) -> u32 {
        let leaves = target.wrapping_sub(self.page) >= self.size;
        target.wrapping_sub(end).wrapping_sub(if leaves { self.moved } else { 0 })
    }
}

impl CodeModel {
    /// Decodes a page with the address `address` that runs at `runs_at`.
    ///
    /// # Errors
    /// If the page is damaged.
    pub fn decode<S: Source>(
        &self,
        source: &mut S,
        address: u32,
        runs_at: u32,
        out: &mut [u8],
    ) -> Result<(), Damaged> {
        let head = usize::from(source.symbol(Context::one(field::HEAD, 0))?);
        if head > out.len() {
            return Err(Damaged("a page begins with more of an instruction than it has room for"));
        }
        for byte in &mut out[..head] {
            *byte = source.symbol(Context::one(field::RAW, 1))?;
        }
        let mut at = head;
        let mut last = 0;
        let mut recent = [Recent::default(), Recent::default()];
        while at < out.len() {
            let mut bytes = Bytes::default();
            let place = Place {
                page: address,
                size: out.len() as u32,
                moved: runs_at.wrapping_sub(address),
                here: address.wrapping_add(at as u32),
            };
            last = self.instruction(source, place, last, &mut recent, &mut bytes)?;
            let len = bytes.len.min(out.len() - at);
            out[at..at + len].copy_from_slice(&bytes.bytes[..len]);
            at += len;
        }
        Ok(())
    }

    fn instruction<S: Source>(
        &self,
        source: &mut S,
        place: Place,
        last: u8,
        recent: &mut [Recent; 2],
        bytes: &mut Bytes,
    ) -> Result<u8, Damaged> {
        let mut symbol = |field: Field, value: u8| source.symbol(Context::one(field, value));
        let op = symbol(field::OPCODE, last)?;
        if op == RAW_BYTE {
            bytes.put(&[symbol(field::RAW, 0)?]);
            return Ok(op);
        }
        let more = if op == MORE { usize::from(symbol(field::MORE, last)?) } else { 0 };
        let template = self.templates.get(usize::from(op) - 1 + more);
        let template = template.ok_or(Damaged("an opcode symbol has no template"))?;
        bytes.put(template.bytes());
        let Template { mut mod_rm, mut follows, .. } = *template;
        if follows.mod_rm {
            mod_rm = symbol(field::MOD_RM, op)?;
            bytes.put(&[mod_rm]);
            follows = follows.given_mod_rm(mod_rm);
        }
        if follows.sib {
            let sib = symbol(field::SIB, mod_rm)?;
            bytes.put(&[sib]);
            follows = follows.given_sib(mod_rm, sib);
        }
        match follows.displacement {
            Displacement::None => {}
            Displacement::Byte => bytes.put(&[symbol(field::DISP8, op)?]),
            Displacement::Word => {
                let form = Context::one(field::DISP32, mod_rm);
                let mut value = self.value(source, form, Kind::Word, recent, place, place.page)?;
                if self.is_64 && opcodes::is_relative(mod_rm) {
                    let len = bytes.len + follows.displacement.size() + follows.operand.size();
                    value = place.distance(value, place.here.wrapping_add(len as u32));
                }
                bytes.put(&value.to_le_bytes());
            }
        }
        let mut symbol = |field: Field, value: u8| source.symbol(Context::one(field, value));
        match follows.operand {
            Operand::None => {}
            Operand::Imm8 => bytes.put(&[symbol(field::IMM8, op)?]),
            Operand::Imm16 => {
                let high = symbol(field::IMM16, 0)?;
                let low = symbol(field::IMM16, 1)?;
                bytes.put(&[low, high]);
            }
            Operand::Rel8 => bytes.put(&[symbol(field::REL8, op)?]),
            Operand::Imm32 | Operand::Address | Operand::Imm64 => {
                let form = Context::one(field::IMM32, op);
                for _ in 0..follows.operand.size() / 4 {
                    let value = self.value(source, form, Kind::Word, recent, place, place.page)?;
                    bytes.put(&value.to_le_bytes());
                }
            }
            Operand::Rel32 => {
                let end = place.here.wrapping_add(bytes.len as u32 + 4);
                let form = Context::one(field::BRANCH, op);
                let target = self.value(source, form, Kind::Branch, recent, place, end)?;
                bytes.put(&place.distance(target, end).to_le_bytes());
            }
        }
        Ok(op)
    }

    fn value<S: Source>(
        &self,
        source: &mut S,
        form: Context,
        kind: Kind,
        recent: &mut [Recent; 2],
        place: Place,
        end: u32,
    ) -> Result<u32, Damaged> {
        let dictionary = match kind {
            Kind::Branch => &self.branches,
            Kind::Word => &self.words,
        };
        let (recent, high) = (&mut recent[kind as usize], self.high(place.page));
        Reader { dictionary, recent, form, bytes: field::BYTES, kind, end, high }.read(source)
    }

    /// The upper byte of addresses near a page, given that of the page.
    pub fn high(&self, page: u32) -> u32 {
        self.high.unwrap_or(page) & values::HIGH
    }
}
