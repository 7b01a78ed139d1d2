//! Splitting code into instructions, fitting a [`CodeModel`] to it, and encoding it with that model.

use kisa::{Encoding, Isa};
use rustc_hash::FxHashMap;

use super::CodeModel;
use super::opcodes::{self, Displacement, Format, Operand};
use super::template::Template;
use crate::codec::code::Code;
use crate::codec::code::choose::{Atom, Matcher, choose};
use crate::codec::code::pages::{Encode, Unit, Units};
use crate::codec::code::values::{Kind, Recent, Writer, frequent, indices};

/// An instruction, by its fields.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'b> {
    bytes: &'b [u8],
    start: Template,
    mod_rm: Option<u8>,
    sib: Option<u8>,
    /// The offset and the kind of the displacement after ModRM.
    displacement: (usize, Displacement),
    /// Whether the displacement counts from the end of the instruction.
    is_relative: bool,
    /// The operand at the end.
    operand: Operand,
}

impl<'b> Parsed<'b> {
    /// Returns the instruction at the start of `bytes`, if its fields are known. `whole` is its size in bytes
    /// according to the decoder of the instruction set.
    fn new(bytes: &'b [u8], is_64: bool, whole: usize) -> Option<Parsed<'b>> {
        let (prefix, format) = opcodes::opcode(bytes, is_64)?;
        let start = Template::new(prefix, format);
        let mut len = prefix.len();
        let (mut mod_rm, mut sib, mut displacement) = (None, None, (0, Displacement::None));
        let mut operand = format.operand;
        if format.mod_rm {
            let byte = *bytes.get(len)?;
            len += 1;
            mod_rm = Some(byte);
            if opcodes::has_sib(byte) {
                sib = Some(*bytes.get(len)?);
                len += 1;
            }
            displacement = (len, opcodes::displacement(byte, sib.unwrap_or(byte)));
            len += displacement.1.size();
            if format.only_test && byte >> 3 & 7 > 1 {
                operand = Operand::None;
            }
        }
        len += operand.size();
        let is_relative = is_64 && mod_rm.is_some_and(opcodes::is_relative);
        let bytes = bytes.get(..len)?;
        (len == whole).then_some(Parsed { bytes, start, mod_rm, sib, displacement, is_relative, operand })
    }

    /// Splits off the first prefix as an instruction, unless the fields after it depend on it.
    fn split(&self) -> Option<[Parsed<'b>; 2]> {
        let (prefix, rest) = self.bytes.split_at_checked(1)?;
        let (_, format) = opcodes::opcode(self.bytes, true)?;
        let is_prefix = opcodes::is_prefix(prefix[0], true);
        let (start, same) = opcodes::opcode(rest, true).filter(|(_, other)| is_prefix && *other == format)?;
        let displacement = (self.displacement.0.saturating_sub(1), self.displacement.1);
        let alone = Template::new(prefix, Format::default());
        let nothing = (0, Displacement::None);
        Some([
            Parsed {
                bytes: prefix,
                start: alone,
                mod_rm: None,
                sib: None,
                displacement: nothing,
                is_relative: false,
                operand: Operand::None,
            },
            Parsed { bytes: rest, start: Template::new(start, same), displacement, ..*self },
        ])
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..at + 4].try_into().expect("a range of 4 bytes");
        u32::from_le_bytes(bytes)
    }

    /// Returns the address after it, if it is at `address`.
    fn end(&self, address: u32) -> u32 {
        address.wrapping_add(self.bytes.len() as u32)
    }

    /// Appends the atoms of the instruction.
    fn atoms(&self, out: &mut Vec<Atom<Template>>) {
        out.push(Atom::Start(self.start));
        out.extend(self.mod_rm.map(Atom::Symbol));
        out.extend(self.sib.map(Atom::Symbol));
        match self.displacement {
            (_, Displacement::None) => {}
            (at, Displacement::Byte) => out.push(Atom::Symbol(self.bytes[at])),
            (_, Displacement::Word) => out.push(Atom::Other),
        }
        match self.operand {
            Operand::None => {}
            Operand::Imm8 | Operand::Rel8 => out.push(Atom::Symbol(self.bytes[self.bytes.len() - 1])),
            _ => out.push(Atom::Other),
        }
    }

    /// Returns the displacement, if it is a value: its target, if it counts from the end of the instruction.
    fn displacement(&self, address: u32) -> Option<(Kind, u32)> {
        let from = if self.is_relative { self.end(address) } else { 0 };
        let value = || self.word(self.displacement.0).wrapping_add(from);
        (self.displacement.1 == Displacement::Word).then(|| (Kind::Word, value()))
    }

    /// Returns the values of the operand. The value of a branch is its target.
    fn values(&self, address: u32) -> impl Iterator<Item = (Kind, u32)> {
        let word = |back: usize| self.word(self.bytes.len() - back);
        let (first, last) = match self.operand {
            Operand::Imm64 => (Some((Kind::Word, word(8))), Some((Kind::Word, word(4)))),
            Operand::Imm32 | Operand::Address => (None, Some((Kind::Word, word(4)))),
            Operand::Rel32 => (None, Some((Kind::Branch, self.end(address).wrapping_add(word(4))))),
            _ => (None, None),
        };
        first.into_iter().chain(last)
    }
}

/// An instruction; `None` is a byte that is not one.
impl Unit for Option<Parsed<'_>> {
    type Template = Template;

    const RAW_BYTES: usize = 1;

    fn size(&self) -> usize {
        self.map_or(1, |insn| insn.bytes.len())
    }

    fn atoms(&self, out: &mut Vec<Atom<Template>>) {
        match self {
            Some(insn) => insn.atoms(out),
            None => out.push(Atom::Other),
        }
    }
}

/// A piece of code, split into its instructions.
pub struct Parser<'b> {
    cut: Units<'b, Option<Parsed<'b>>>,
}

impl<'b> Parser<'b> {
    /// Splits a piece of code into successive instructions.
    pub fn new(isa: &dyn Isa, is_64: bool, code: Code<'b>) -> Parser<'b> {
        let mut units = Vec::new();
        let mut at = 0;
        while at < code.bytes.len() {
            let bytes = &code.bytes[at..];
            let len = isa.decode(bytes, Encoding::Main.at(0)).map(|inst| usize::from(inst.insn.len));
            let mut rest = len.and_then(|len| Parsed::new(bytes, is_64, len));
            while let Some([prefix, behind]) = rest.filter(|_| is_64).and_then(|insn| insn.split()) {
                units.push((at as u32, Some(prefix)));
                at += prefix.bytes.len();
                rest = Some(behind);
            }
            // The next instruction follows the bytes of an unknown one. An i386 page is coded without this knowledge.
            let literals = len.filter(|_| is_64 && rest.is_none()).unwrap_or(1);
            for _ in 0..literals {
                units.push((at as u32, rest));
                at += rest.size();
            }
        }
        Parser { cut: Units { code, units } }
    }

    /// Fits a model to pieces of code, with this number of merged templates, and with the upper byte of nearby
    /// addresses unless it varies.
    pub fn model(pieces: &[Parser<'b>], is_64: bool, merges: usize, high: Option<u32>) -> CodeModel {
        let model = CodeModel { is_64, high, ..CodeModel::default() };
        let mut runs = Vec::new();
        let mut values: [FxHashMap<u32, u32>; 2] = Default::default();
        for piece in pieces {
            let mut run = Vec::new();
            for (address, insn) in piece.cut.by_address() {
                insn.atoms(&mut run);
                let Some(insn) = insn else { continue };
                for (kind, value) in insn.displacement(address).into_iter().chain(insn.values(address)) {
                    if let Some(entry) = kind.entry(value, model.high(insn.end(address))) {
                        *values[kind as usize].entry(entry).or_default() += 1;
                    }
                }
            }
            runs.push(run);
        }
        let [branches, words] = values.map(frequent);
        CodeModel { templates: choose(&runs, merges), branches, words, ..model }
    }

    /// Returns the symbols of the pages, as input of [`crate::codec::symbols::Recorder`].
    pub fn pages(&self, encoder: &Encoder<'_>, page_size: usize) -> Vec<Vec<u32>> {
        self.cut.pages(encoder, page_size)
    }
}

/// The context at a place of a page.
#[derive(Default)]
pub struct State {
    page: u32,
    recent: [Recent; 2],
}

/// Encodes code with a model.
pub struct Encoder<'m> {
    model: &'m CodeModel,
    templates: Matcher<Template>,
    dictionaries: [FxHashMap<u32, u32>; 2],
}

impl<'m> Encoder<'m> {
    /// Returns an encoder for a model.
    pub fn new(model: &'m CodeModel) -> Encoder<'m> {
        Encoder {
            model,
            templates: Matcher::new(&model.templates),
            dictionaries: [indices(&model.branches), indices(&model.words)],
        }
    }

    /// Encodes a value, given the address that branches are relative to.
    fn value(&self, kind: Kind, value: u32, end: u32, state: &mut State, out: &mut Vec<u32>) {
        let index = &self.dictionaries[kind as usize];
        let (recent, high) = (&mut state.recent[kind as usize], self.model.high(state.page));
        Writer { index, recent, kind, end, high }.write(value, out)
    }
}

impl<'b> Encode<Option<Parsed<'b>>> for Encoder<'_> {
    type State = State;

    fn templates(&self) -> &Matcher<Template> {
        &self.templates
    }

    fn start(&self, page: u32) -> State {
        State { page, ..State::default() }
    }

    fn rest(
        &self,
        unit: &Option<Parsed<'b>>,
        known: usize,
        address: u32,
        state: &mut State,
        out: &mut Vec<u32>,
    ) {
        let Some(insn) = unit else { return };
        let mut atoms = Vec::new();
        insn.atoms(&mut atoms);
        let operand_at = atoms.len() - usize::from(insn.operand != Operand::None);
        for (index, atom) in atoms.iter().enumerate().skip(known) {
            match atom {
                Atom::Start(_) => {}
                Atom::Symbol(byte) => out.push(u32::from(*byte)),
                Atom::Other if index < operand_at => {
                    if let Some((kind, value)) = insn.displacement(address) {
                        self.value(kind, value, state.page, state, out);
                    }
                }
                Atom::Other if insn.operand == Operand::Imm16 => {
                    out.extend(insn.bytes.iter().rev().take(2).map(|&byte| u32::from(byte)));
                }
                Atom::Other => {
                    for (kind, value) in insn.values(address) {
                        let end = if kind == Kind::Branch { insn.end(address) } else { state.page };
                        self.value(kind, value, end, state, out);
                    }
                }
            }
        }
    }
}
