//! The layout of pages of code of 32-bit ARM.
//!
//! An opcode symbol depends on the previous one. The parts of an instruction ([`format`](mod@format)) depend on the
//! opcode symbol and on the previous part, or on the register that was written last.

pub mod field;
pub mod format;
pub mod parse;
pub mod template;

use super::values::{self, Kind, Reader, Recent};
use super::{MORE, RAW_BYTE};
use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, Source};
use format::{After, Format};
use template::Template;

/// The data besides the distributions that all pages of code of 32-bit ARM share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArmModel {
    /// Whether it is ARM code rather than Thumb code.
    pub is_arm: bool,
    /// The templates of the opcode symbols from 1 on.
    pub templates: Vec<Template>,
    /// Targets of branches, most frequent first, as the lower 3 bytes; the upper byte is the branch's own.
    pub branches: Vec<u32>,
    /// Literals, the most frequent first.
    pub words: Vec<u32>,
    /// The upper byte of nearby addresses; `None` if it is the page's.
    pub high: Option<u32>,
}

/// The addresses of a page.
#[derive(Clone, Copy)]
struct Place {
    page: u32,
    /// The size of the page in bytes.
    size: u32,
    /// The distance that is added to the targets of branches that leave the page.
    moved: u32,
}

/// The context from the code before an instruction.
#[derive(Default)]
struct State {
    /// The last opcode symbol.
    last: u8,
    /// The opcode symbol before it.
    before: u8,
    /// The register that was written last.
    register: u8,
    /// The address of the literal that was read last.
    literal: u32,
    recent: [Recent; 2],
}

/// The bytes that a symbol and its parts decode to.
type Bytes = [u8; template::LONGEST];

impl ArmModel {
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
        let place = Place { page: address, size: out.len() as u32, moved: runs_at.wrapping_sub(address) };
        let mut state = State::default();
        let mut at = head;
        while at < out.len() {
            let (bytes, len) =
                self.instruction(source, place, address.wrapping_add(at as u32), &mut state)?;
            let len = len.min(out.len() - at);
            out[at..at + len].copy_from_slice(&bytes[..len]);
            at += len;
        }
        Ok(())
    }

    /// Decodes the instruction or bytes at `here`, and returns the bytes and their number.
    fn instruction<S: Source>(
        &self,
        source: &mut S,
        place: Place,
        here: u32,
        state: &mut State,
    ) -> Result<(Bytes, usize), Damaged> {
        let values = [state.last, state.before];
        let op = source.symbol(Context { field: field::OPCODE, values })?;
        state.before = state.last;
        state.last = op;
        if op == RAW_BYTE {
            let mut bytes = Bytes::default();
            for byte in &mut bytes[..2] {
                *byte = source.symbol(Context::one(field::RAW, 0))?;
            }
            return Ok((bytes, 2));
        }
        let more =
            if op == MORE { usize::from(source.symbol(Context { field: field::MORE, values })?) } else { 0 };
        let template = self.templates.get(usize::from(op) - 1 + more);
        let template = template.ok_or(Damaged("an opcode symbol has no template"))?;
        let mut bytes = template.bytes;
        let insn = here.wrapping_add(template.last() as u32);
        let mut word = 0;
        let mut before = 0;
        for part in
            template.format.parts[usize::from(template.included_parts)..].iter().map_while(|part| *part)
        {
            let second = match part.after {
                After::Nothing => 0,
                After::Part => before,
                After::Register => state.register,
                After::Opcode => state.before,
            };
            let context = Context { field: part.field, values: [op, second] };
            word |= match part.field {
                field::BRANCH => {
                    let end = self.end(insn);
                    let target = self.value(source, context, Kind::Branch, state, place, end)?;
                    let leaves = target.wrapping_sub(place.page) >= place.size;
                    let moved = if leaves { place.moved } else { 0 };
                    format::of_distance(self.is_arm, target.wrapping_sub(end).wrapping_sub(moved))
                }
                field::WORD => self.value(source, context, Kind::Word, state, place, place.page)?,
                field::LITERAL => {
                    let symbol = u32::from(source.symbol(context)?);
                    state.literal = state.literal.wrapping_add(4 * symbol);
                    (state.literal.wrapping_sub(self.base(insn)) >> 2 & 0xFF) << part.shift
                }
                _ => {
                    before = source.symbol(context)?;
                    part.place(before)
                }
            };
        }
        for (byte, bits) in bytes[template.last()..].iter_mut().zip(word.to_le_bytes()) {
            *byte |= bits;
        }
        let mut whole = [0; 4];
        whole[..template.format.size()].copy_from_slice(&bytes[template.last()..usize::from(template.len)]);
        state.register = template.format.register_of(u32::from_le_bytes(whole), state.register);
        Ok((bytes, usize::from(template.len)))
    }

    fn value<S: Source>(
        &self,
        source: &mut S,
        form: Context,
        kind: Kind,
        state: &mut State,
        place: Place,
        end: u32,
    ) -> Result<u32, Damaged> {
        let dictionary = match kind {
            Kind::Branch => &self.branches,
            Kind::Word => &self.words,
        };
        let (recent, high) = (&mut state.recent[kind as usize], self.high(place.page));
        Reader { dictionary, recent, form, bytes: field::BYTES, kind, end, high }.read(source)
    }

    /// The formats of the templates, each once.
    pub fn formats(&self) -> Vec<Format> {
        let mut formats = Vec::new();
        for template in &self.templates {
            if !formats.contains(&template.format) {
                formats.push(template.format);
            }
        }
        formats
    }

    /// The address that the distance of a branch is relative to, given the branch's address.
    pub fn end(&self, insn: u32) -> u32 {
        insn.wrapping_add(if self.is_arm { 8 } else { 4 })
    }

    /// The address that the distance of a literal is relative to, given the address of the instruction that reads it.
    pub fn base(&self, insn: u32) -> u32 {
        self.end(insn) & !3
    }

    /// The upper byte of addresses near a page, given that of the page.
    pub fn high(&self, page: u32) -> u32 {
        self.high.unwrap_or(page) & values::HIGH
    }
}
