//! Splitting code into instructions, fitting a [`CodeModel`] to it, and encoding it with that model.

use kisa::{Encoding, Isa};
use rustc_hash::FxHashMap;

use super::CodeModel;
use super::opcodes::{self, Displacement, Operand};
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
    /// The operand at the end.
    operand: Operand,
}

impl<'b> Parsed<'b> {
    /// Returns the instruction at the start of `bytes`, if its fields are known.
    fn new(isa: &dyn Isa, bytes: &'b [u8]) -> Option<Parsed<'b>> {
        let (prefix, format) = opcodes::opcode(bytes)?;
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
            len += match displacement.1 {
                Displacement::None => 0,
                Displacement::Byte => 1,
                Displacement::Word => 4,
            };
            if format.only_test && byte >> 3 & 7 > 1 {
                operand = Operand::None;
            }
        }
        len += match operand {
            Operand::None => 0,
            Operand::Imm8 | Operand::Rel8 => 1,
            Operand::Imm16 => 2,
            Operand::Imm32 | Operand::Rel32 | Operand::Address => 4,
        };
        let bytes = bytes.get(..len)?;
        // The instruction set's decoder decides whether it is an instruction.
        let insn = isa.decode(bytes, Encoding::Main.at(0))?.insn;
        (usize::from(insn.len) == len).then_some(Parsed { bytes, start, mod_rm, sib, displacement, operand })
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

    fn displacement(&self) -> Option<u32> {
        (self.displacement.1 == Displacement::Word).then(|| self.word(self.displacement.0))
    }

    /// Returns the operand, if it is a value. The value of a branch is its target.
    fn value(&self, address: u32) -> Option<(Kind, u32)> {
        let last = || self.word(self.bytes.len() - 4);
        match self.operand {
            Operand::Imm32 | Operand::Address => Some((Kind::Word, last())),
            Operand::Rel32 => Some((Kind::Branch, self.end(address).wrapping_add(last()))),
            _ => None,
        }
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
    pub fn new(isa: &dyn Isa, code: Code<'b>) -> Parser<'b> {
        let mut units = Vec::new();
        let mut at = 0;
        while at < code.bytes.len() {
            let unit = Parsed::new(isa, &code.bytes[at..]);
            units.push((at as u32, unit));
            at += unit.size();
        }
        Parser { cut: Units { code, units } }
    }

    /// Fits a model to pieces of code, with this number of merged templates, and with the upper byte of nearby
    /// addresses unless it varies.
    pub fn model(pieces: &[Parser<'b>], merges: usize, high: Option<u32>) -> CodeModel {
        let model = CodeModel { high, ..CodeModel::default() };
        let mut runs = Vec::new();
        let mut values: [FxHashMap<u32, u32>; 2] = Default::default();
        for piece in pieces {
            let mut run = Vec::new();
            for (address, insn) in piece.cut.by_address() {
                insn.atoms(&mut run);
                let Some(insn) = insn else { continue };
                let displacement = insn.displacement().map(|value| (Kind::Word, value));
                for (kind, value) in displacement.into_iter().chain(insn.value(address)) {
                    if let Some(entry) = kind.entry(value, model.high(insn.end(address))) {
                        *values[kind as usize].entry(entry).or_default() += 1;
                    }
                }
            }
            runs.push(run);
        }
        let [branches, words] = values.map(frequent);
        CodeModel { templates: choose(&runs, merges), branches, words, high }
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
                    if let Some(value) = insn.displacement() {
                        self.value(Kind::Word, value, state.page, state, out);
                    }
                }
                Atom::Other => match insn.value(address) {
                    Some((kind, value)) => {
                        let end = if kind == Kind::Branch { insn.end(address) } else { state.page };
                        self.value(kind, value, end, state, out);
                    }
                    // An immediate of 2 bytes.
                    None => out.extend(insn.bytes.iter().rev().take(2).map(|&byte| u32::from(byte))),
                },
            }
        }
    }
}
