//! From code to the symbols that a page of it consists of, and to the [`CodeModel`] that fits it.

use kisa::Isa;
use rustc_hash::FxHashMap;

use super::CodeModel;
use super::opcodes::{self, Displacement, Operand};
use super::template::Template;
use crate::code::choose::{Atom, Matcher, choose};
use crate::code::values::{Kind, Recent, Writer, frequent, indices};
use crate::code::{Code, MORE, RAW_BYTE};

/// An instruction, by its fields.
#[derive(Clone, Copy, Debug)]
struct Parsed<'b> {
    bytes: &'b [u8],
    start: Template,
    mod_rm: Option<u8>,
    sib: Option<u8>,
    /// Where the displacement of ModRM is, and what it is.
    displacement: (usize, Displacement),
    /// What stands last.
    operand: Operand,
}

impl<'b> Parsed<'b> {
    /// The instruction at the start of `bytes`, if it is one whose fields are known.
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
        // The decoder of the instruction set has the last word on what is one.
        let insn = isa.decode(bytes, 0)?;
        (usize::from(insn.len) == len).then_some(Parsed { bytes, start, mod_rm, sib, displacement, operand })
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..at + 4].try_into().expect("4 bytes were asked for");
        u32::from_le_bytes(bytes)
    }

    /// The address behind it, if it lies at `address`.
    fn end(&self, address: u32) -> u32 {
        address.wrapping_add(self.bytes.len() as u32)
    }

    /// Appends its atoms.
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

    /// The operand, if it is a value: branches by their target.
    fn value(&self, address: u32) -> Option<(Kind, u32)> {
        let last = || self.word(self.bytes.len() - 4);
        match self.operand {
            Operand::Imm32 | Operand::Address => Some((Kind::Word, last())),
            Operand::Rel32 => Some((Kind::Branch, self.end(address).wrapping_add(last()))),
            _ => None,
        }
    }
}

/// Which model fits the code, and the symbols of its pages by that model.
pub struct Parser<'b> {
    isa: &'b dyn Isa,
    code: Code<'b>,
    /// Where its instructions begin, as offsets; a byte that is none counts as one.
    starts: Vec<u32>,
}

impl<'b> Parser<'b> {
    /// Finds the instructions of a piece of code, one behind the other.
    pub fn new(isa: &'b dyn Isa, code: Code<'b>) -> Parser<'b> {
        let mut starts = Vec::new();
        let mut at = 0;
        while at < code.bytes.len() {
            starts.push(at as u32);
            at += Parsed::new(isa, &code.bytes[at..]).map_or(1, |insn| insn.bytes.len());
        }
        Parser { isa, code, starts }
    }

    fn insns(&self, starts: &[u32]) -> impl Iterator<Item = (u32, Option<Parsed<'b>>)> {
        starts.iter().map(|&start| {
            let address = self.code.address.wrapping_add(start);
            (address, Parsed::new(self.isa, &self.code.bytes[start as usize..]))
        })
    }

    /// The model that fits pieces of code, with so many templates made of others, given the upper byte of addresses near by
    /// unless it is that of each place.
    pub fn model(pieces: &[Parser<'b>], merges: usize, high: Option<u32>) -> CodeModel {
        let model = CodeModel { high, ..CodeModel::default() };
        let mut runs = Vec::new();
        let mut values: [FxHashMap<u32, u32>; 2] = Default::default();
        for piece in pieces {
            let mut run = Vec::new();
            for (address, insn) in piece.insns(&piece.starts) {
                let Some(insn) = insn else {
                    run.push(Atom::Other);
                    continue;
                };
                insn.atoms(&mut run);
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

    /// The symbols of the pages, as a [`crate::symbols::Recorder`] takes them.
    pub fn pages(&self, tell: &Teller<'_>, page_size: usize) -> Vec<Vec<u32>> {
        let count = self.code.bytes.len().div_ceil(page_size);
        (0..count).map(|page| self.page(tell, page * page_size, page_size)).collect()
    }

    fn page(&self, tell: &Teller<'_>, start: usize, page_size: usize) -> Vec<u32> {
        let end = (start + page_size).min(self.code.bytes.len());
        let first = self.starts.partition_point(|&at| (at as usize) < start);
        let behind = self.starts.partition_point(|&at| (at as usize) < end);
        let head = self.starts.get(first).map_or(end, |&at| (at as usize).min(end)) - start;
        let mut out = vec![head as u32];
        out.extend(self.code.bytes[start..start + head].iter().map(|&byte| u32::from(byte)));
        let page = self.code.address.wrapping_add(start as u32);
        let mut recent = [Recent::default(), Recent::default()];
        let insns: Vec<_> = self.insns(&self.starts[first..behind]).collect();
        let mut atoms = Vec::new();
        // Where the atoms of each instruction begin; those of what is none are a plain byte.
        let places: Vec<usize> = insns
            .iter()
            .map(|(_, insn)| {
                let place = atoms.len();
                match insn {
                    Some(insn) => insn.atoms(&mut atoms),
                    None => atoms.push(Atom::Other),
                }
                place
            })
            .collect();
        let mut index = 0;
        while let Some((address, insn)) = insns.get(index) {
            let from = address.wrapping_sub(self.code.address) as usize;
            let found = insn.and_then(|_| tell.templates.longest(&atoms[places[index]..]));
            let Some((symbol, count)) = found else {
                let size = insn.map_or(1, |insn| insn.bytes.len());
                for &byte in &self.code.bytes[from..end.min(from + size)] {
                    out.extend([u32::from(RAW_BYTE), u32::from(byte)]);
                }
                index += 1;
                continue;
            };
            match symbol.checked_sub(u16::from(MORE)) {
                None => out.push(u32::from(symbol)),
                Some(more) => out.extend([u32::from(MORE), u32::from(more)]),
            }
            let behind = places[index] + count;
            // The last instruction of which the template has something.
            index = places.partition_point(|&place| place < behind) - 1;
            let (address, insn) = &insns[index];
            if let Some(insn) = insn {
                tell.rest(insn, behind - places[index], page, *address, &mut recent, &mut out);
            }
            index += 1;
        }
        out
    }
}

/// A model the other way round: from what is there to symbols.
pub struct Teller<'m> {
    model: &'m CodeModel,
    templates: Matcher<Template>,
    dictionaries: [FxHashMap<u32, u32>; 2],
}

impl<'m> Teller<'m> {
    /// That of a model.
    pub fn new(model: &'m CodeModel) -> Teller<'m> {
        Teller {
            model,
            templates: Matcher::new(&model.templates),
            dictionaries: [indices(&model.branches), indices(&model.words)],
        }
    }

    /// Tells what of an instruction stands behind its first `told` atoms.
    fn rest(
        &self,
        insn: &Parsed<'_>,
        told: usize,
        page: u32,
        address: u32,
        recent: &mut [Recent; 2],
        out: &mut Vec<u32>,
    ) {
        let mut atoms = Vec::new();
        insn.atoms(&mut atoms);
        let operand_at = atoms.len() - usize::from(insn.operand != Operand::None);
        for (index, atom) in atoms.iter().enumerate().skip(told) {
            match atom {
                Atom::Start(_) => {}
                Atom::Symbol(byte) => out.push(u32::from(*byte)),
                Atom::Other if index < operand_at => {
                    if let Some(value) = insn.displacement() {
                        self.value(Kind::Word, value, page, page, recent, out);
                    }
                }
                Atom::Other => match insn.value(address) {
                    Some((kind, value)) => {
                        let end = if kind == Kind::Branch { insn.end(address) } else { page };
                        self.value(kind, value, page, end, recent, out);
                    }
                    // An immediate of 2 bytes.
                    None => out.extend(insn.bytes.iter().rev().take(2).map(|&byte| u32::from(byte))),
                },
            }
        }
    }

    fn value(
        &self,
        kind: Kind,
        value: u32,
        page: u32,
        end: u32,
        recent: &mut [Recent; 2],
        out: &mut Vec<u32>,
    ) {
        let index = &self.dictionaries[kind as usize];
        let (recent, high) = (&mut recent[kind as usize], self.model.high(page));
        Writer { index, recent, kind, end, high }.write(value, out)
    }
}
