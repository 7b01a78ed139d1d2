//! From code to the symbols that a page of it consists of, and to the [`CodeModel`] that fits it.

use kcfg::isa::Isa;
use rustc_hash::FxHashMap;

use super::i386::{self, Displacement, Operand};
use super::values::{Kind, Recent, Writer};
use super::{CodeModel, Opcode, RAW_BYTE};

/// How often a value has to occur to be worth its 4 bytes in a dictionary.
const WORTHWHILE: u32 = 4;

/// An instruction, by its fields.
#[derive(Clone, Copy, Debug)]
struct Parsed<'b> {
    bytes: &'b [u8],
    opcode: Opcode,
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
        let (prefix, format) = i386::opcode(bytes)?;
        let mut opcode = Opcode { bytes: [0; 3], len: prefix.len() as u8, format };
        opcode.bytes[..prefix.len()].copy_from_slice(prefix);
        let mut len = prefix.len();
        let (mut mod_rm, mut sib, mut displacement) = (None, None, (0, Displacement::None));
        let mut operand = format.operand;
        if format.mod_rm {
            let byte = *bytes.get(len)?;
            len += 1;
            mod_rm = Some(byte);
            if i386::has_sib(byte) {
                sib = Some(*bytes.get(len)?);
                len += 1;
            }
            displacement = (len, i386::displacement(byte, sib.unwrap_or(0)));
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
        (usize::from(insn.len) == len).then_some(Parsed { bytes, opcode, mod_rm, sib, displacement, operand })
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..at + 4].try_into().expect("4 bytes were asked for");
        u32::from_le_bytes(bytes)
    }

    /// The address behind it, if it lies at `address`.
    fn end(&self, address: u32) -> u32 {
        address.wrapping_add(self.bytes.len() as u32)
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

/// A piece of code that is to be packed.
#[derive(Clone, Copy, Debug)]
pub struct Code<'b> {
    /// Where it lies.
    pub address: u32,
    /// Its bytes.
    pub bytes: &'b [u8],
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

    /// The model that fits pieces of code.
    pub fn model(pieces: &[Parser<'b>]) -> CodeModel {
        let mut opcodes: FxHashMap<Opcode, u32> = FxHashMap::default();
        let mut values: [FxHashMap<u32, u32>; 2] = Default::default();
        for piece in pieces {
            for (address, insn) in
                piece.insns(&piece.starts).filter_map(|(address, insn)| Some((address, insn?)))
            {
                *opcodes.entry(insn.opcode).or_default() += 1;
                let displacement = insn.displacement().map(|value| (Kind::Word, value));
                for (kind, value) in displacement.into_iter().chain(insn.value(address)) {
                    if let Some(entry) = kind.entry(value, insn.end(address)) {
                        *values[kind as usize].entry(entry).or_default() += 1;
                    }
                }
            }
        }
        let mut opcodes: Vec<_> = opcodes.into_iter().collect();
        opcodes.sort_by_key(|(opcode, count)| (std::cmp::Reverse(*count), opcode.bytes));
        opcodes.truncate(255);
        let [branches, words] = values.map(|counts| {
            let mut values: Vec<_> = counts.into_iter().filter(|(_, count)| *count >= WORTHWHILE).collect();
            values.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
            values.truncate(1 << 17);
            values.into_iter().map(|(value, _)| value).collect()
        });
        CodeModel { opcodes: opcodes.into_iter().map(|(opcode, _)| opcode).collect(), branches, words }
    }

    /// The symbols of the pages, as a [`crate::symbols::Recorder`] takes them.
    pub fn pages(&self, model: &CodeModel, page_size: usize) -> Vec<Vec<u32>> {
        let tell = Teller::new(model);
        let count = self.code.bytes.len().div_ceil(page_size);
        (0..count).map(|page| self.page(&tell, page * page_size, page_size)).collect()
    }

    fn page(&self, tell: &Teller, start: usize, page_size: usize) -> Vec<u32> {
        let end = (start + page_size).min(self.code.bytes.len());
        let first = self.starts.partition_point(|&at| (at as usize) < start);
        let behind = self.starts.partition_point(|&at| (at as usize) < end);
        let head = self.starts.get(first).map_or(end, |&at| (at as usize).min(end)) - start;
        let mut out = vec![head as u32];
        out.extend(self.code.bytes[start..start + head].iter().map(|&byte| u32::from(byte)));
        let mut recent = [Recent::default(), Recent::default()];
        for (place, (address, insn)) in (first..behind).zip(self.insns(&self.starts[first..behind])) {
            match insn.and_then(|insn| Some((insn, *tell.opcodes.get(&insn.opcode)?))) {
                Some((insn, symbol)) => tell.insn(&insn, symbol, address, &mut recent, &mut out),
                None => {
                    let from = self.starts[place] as usize;
                    let to = self.starts.get(place + 1).map_or(end, |&at| (at as usize).min(end));
                    for &byte in &self.code.bytes[from..to] {
                        out.extend([u32::from(RAW_BYTE), u32::from(byte)]);
                    }
                }
            }
        }
        out
    }
}

/// A model the other way round: from what is there to symbols.
struct Teller {
    opcodes: FxHashMap<Opcode, u8>,
    dictionaries: [FxHashMap<u32, u32>; 2],
}

impl Teller {
    fn new(model: &CodeModel) -> Teller {
        let index = |values: &[u32]| values.iter().zip(0..).map(|(&value, index)| (value, index)).collect();
        Teller {
            opcodes: model.opcodes.iter().zip(1..).map(|(&opcode, symbol)| (opcode, symbol)).collect(),
            dictionaries: [index(&model.branches), index(&model.words)],
        }
    }

    fn insn(
        &self,
        insn: &Parsed<'_>,
        symbol: u8,
        address: u32,
        recent: &mut [Recent; 2],
        out: &mut Vec<u32>,
    ) {
        out.push(u32::from(symbol));
        out.extend(insn.mod_rm.map(u32::from));
        out.extend(insn.sib.map(u32::from));
        if insn.displacement.1 == Displacement::Byte {
            out.push(u32::from(insn.bytes[insn.displacement.0]));
        }
        if let Some(value) = insn.displacement() {
            self.value(Kind::Word, value, address, recent, out);
        }
        let last = insn.bytes.len() - 1;
        match insn.operand {
            Operand::None => {}
            Operand::Imm8 | Operand::Rel8 => out.push(u32::from(insn.bytes[last])),
            Operand::Imm16 => out.extend([insn.bytes[last], insn.bytes[last - 1]].map(u32::from)),
            Operand::Imm32 | Operand::Address | Operand::Rel32 => {
                if let Some((kind, value)) = insn.value(address) {
                    let end = if kind == Kind::Branch { insn.end(address) } else { address };
                    self.value(kind, value, end, recent, out);
                }
            }
        }
    }

    fn value(&self, kind: Kind, value: u32, end: u32, recent: &mut [Recent; 2], out: &mut Vec<u32>) {
        let index = &self.dictionaries[kind as usize];
        Writer { index, recent: &mut recent[kind as usize], kind, end }.write(value, out)
    }
}
