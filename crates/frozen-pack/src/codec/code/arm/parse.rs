//! Splitting code into instructions, fitting an [`ArmModel`] to it, and encoding it with that model.

use rustc_hash::FxHashMap;

use super::format::{self, Format, Part, distance};
use super::template::Template;
use super::{ArmModel, field};
use crate::codec::code::choose::{Atom, Matcher, choose};
use crate::codec::code::pages::{Encode, Unit, Units};
use crate::codec::code::values::{Kind, Recent, Writer, frequent, indices};
use crate::codec::code::{Code, InstructionSet};

/// A unit of code.
#[derive(Clone, Copy, Debug)]
pub enum ArmUnit {
    /// An instruction or a literal.
    Insn(u32, Format),
    /// Two bytes of something else.
    Raw,
}

impl Unit for ArmUnit {
    type Template = Template;

    const RAW_BYTES: usize = 2;

    fn size(&self) -> usize {
        match self {
            ArmUnit::Insn(_, format) => format.size(),
            ArmUnit::Raw => 2,
        }
    }

    fn atoms(&self, out: &mut Vec<Atom<Template>>) {
        let ArmUnit::Insn(word, format) = self else { return out.push(Atom::Other) };
        out.push(Atom::Start(Template::new(*word, *format)));
        out.extend(format.parts.iter().flatten().map(|part| match part.is_plain() {
            true => Atom::Symbol(part.of(*word)),
            false => Atom::Other,
        }));
    }
}

/// Returns the offset of the literal that the instruction at `at` reads, if it reads one.
fn literal(set: InstructionSet, at: usize, word: u32) -> Option<usize> {
    let base = |ahead: usize| (at + ahead) & !3;
    match set {
        InstructionSet::Arm => (word & 0xFFFF_0000 == 0xE59F_0000).then(|| base(8) + (word & 0xFFF) as usize),
        _ if word & 0xF800 == 0x4800 => Some(base(4) + 4 * (word & 0xFF) as usize),
        _ => (word & 0xFFFF == 0xF8DF).then(|| base(4) + (word >> 16 & 0xFFF) as usize),
    }
}

/// Returns the end of the table of distances after a `tbb` or `tbh` that ends at `start`. No distance of the table
/// leads into the table.
fn table_end(bytes: &[u8], start: usize, word: u32) -> Option<usize> {
    let size = match word & 0xFFF0_FFFF {
        0xF000_E8DF => 1,
        0xF010_E8DF => 2,
        _ => return None,
    };
    let (mut at, mut end) = (start, bytes.len());
    while at < end {
        let entry = bytes.get(at..at + size)?;
        let distance = 2 * entry.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        end = end.min(start + distance);
        at += size;
    }
    Some(at.next_multiple_of(2))
}

impl Code<'_> {
    /// Whether the bytes at an offset look like a branch out of the code although they are not one, if the leaving
    /// branches are known.
    fn seems_to_leave(&self, set: InstructionSet, at: usize, word: u32, format: Format) -> bool {
        let branch = format.parts.iter().flatten().find(|part| part.field == field::BRANCH);
        let ahead = if set == InstructionSet::Arm { 8 } else { 4 };
        self.leaving.is_some()
            && branch.is_some_and(|branch| {
                let target = (at as u32).wrapping_add(ahead).wrapping_add(distance(*branch, word));
                target as usize >= self.bytes.len()
            })
    }
}

/// A piece of code, split into its instructions.
pub struct Parser<'b> {
    set: InstructionSet,
    cut: Units<'b, ArmUnit>,
}

impl<'b> Parser<'b> {
    /// Splits a piece of code into successive instructions and the literals that they read.
    pub fn new(set: InstructionSet, code: Code<'b>) -> Parser<'b> {
        let bytes = code.bytes;
        let mut units = Vec::new();
        let mut is_literal = vec![false; bytes.len() + 4];
        let (mut at, mut table) = (0, 0);
        while at < bytes.len() {
            let word = bytes[at..].first_chunk().map(|word| u32::from_le_bytes(*word));
            let leaves =
                |at: usize| code.leaving.is_some_and(|leaving| leaving.binary_search(&(at as u32)).is_ok());
            let found = format::instruction(set, &bytes[at..]);
            if !leaves(at)
                && let Some((word, format)) = found
                && code.seems_to_leave(set, at, word, format)
            {
                table = table.max(at + format.size());
            }
            let unit = match (word, found) {
                (_, Some((word, format))) if leaves(at) => ArmUnit::Insn(word, format),
                _ if at < table => ArmUnit::Raw,
                (_, Some((_, format))) if format.is_wide && leaves(at + 2) => ArmUnit::Raw,
                // Data may look like a load of a literal at a place where a leaving branch has its second half.
                (Some(word), _) if is_literal[at] && !leaves(at + 2) => ArmUnit::Insn(word, format::WORD),
                (_, Some((_, format))) if format.is_wide && is_literal[at + 2] => ArmUnit::Raw,
                (_, Some((word, format))) => {
                    if let Some(place) = literal(set, at, word).filter(|place| *place < bytes.len()) {
                        is_literal[place] = true;
                    }
                    if let Some(end) = table_end(bytes, at + 4, word) {
                        table = end;
                    }
                    ArmUnit::Insn(word, format)
                }
                (_, None) => ArmUnit::Raw,
            };
            units.push((at as u32, unit));
            at += unit.size();
        }
        Parser { set, cut: Units { code, units } }
    }

    /// Fits a model to pieces of code, with this number of merged templates, and with the upper byte of nearby
    /// addresses unless it varies.
    pub fn model(pieces: &[Parser<'b>], merges: usize, high: Option<u32>) -> ArmModel {
        let is_arm = pieces.iter().any(|piece| piece.set == InstructionSet::Arm);
        let model = ArmModel { is_arm, high, ..ArmModel::default() };
        let mut runs = Vec::new();
        let mut values: [FxHashMap<u32, u32>; 2] = Default::default();
        for piece in pieces {
            let mut run = Vec::new();
            for (insn, unit) in piece.cut.by_address() {
                unit.atoms(&mut run);
                let ArmUnit::Insn(word, format) = *unit else { continue };
                for (kind, value) in
                    format.parts.iter().flatten().filter_map(|part| model.value_of(*part, word, insn))
                {
                    if let Some(entry) = kind.entry(value, model.high(insn)) {
                        *values[kind as usize].entry(entry).or_default() += 1;
                    }
                }
            }
            runs.push(run);
        }
        let [branches, words] = values.map(frequent);
        ArmModel { templates: choose(&runs, merges), branches, words, ..model }
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
    literal: u32,
    recent: [Recent; 2],
}

/// Encodes code with a model.
pub struct Encoder<'m> {
    model: &'m ArmModel,
    templates: Matcher<Template>,
    dictionaries: [FxHashMap<u32, u32>; 2],
}

impl<'m> Encoder<'m> {
    /// Returns an encoder for a model.
    pub fn new(model: &'m ArmModel) -> Encoder<'m> {
        Encoder {
            model,
            templates: Matcher::new(&model.templates),
            dictionaries: [indices(&model.branches), indices(&model.words)],
        }
    }
}

impl Encode<ArmUnit> for Encoder<'_> {
    type State = State;

    fn templates(&self) -> &Matcher<Template> {
        &self.templates
    }

    fn start(&self, page: u32) -> State {
        State { page, ..State::default() }
    }

    fn rest(&self, unit: &ArmUnit, known: usize, insn: u32, state: &mut State, out: &mut Vec<u32>) {
        let ArmUnit::Insn(word, format) = *unit else { return };
        // The first atom is the start of the instruction, each later one a part.
        for part in format.parts[known - 1..].iter().map_while(|part| *part) {
            if let Some((kind, value)) = self.model.value_of(part, word, insn) {
                let end = if kind == Kind::Branch { self.model.end(insn) } else { state.page };
                let (index, recent) = (&self.dictionaries[kind as usize], &mut state.recent[kind as usize]);
                let high = self.model.high(state.page);
                Writer { index, recent, kind, end, high }.write(value, out);
            } else if part.field == field::LITERAL {
                let place = self.model.base(insn).wrapping_add(4 * u32::from(part.of(word)));
                let symbol = place.wrapping_sub(state.literal) >> 2 & 0xFF;
                state.literal = state.literal.wrapping_add(4 * symbol);
                out.push(symbol);
            } else {
                out.push(u32::from(part.of(word)));
            }
        }
    }
}

impl ArmModel {
    /// Returns the value of a part of the instruction at an address, if it is one. The value of a branch is its target.
    fn value_of(&self, part: Part, word: u32, insn: u32) -> Option<(Kind, u32)> {
        match part.field {
            field::BRANCH => Some((Kind::Branch, self.end(insn).wrapping_add(distance(part, word)))),
            field::WORD => Some((Kind::Word, word)),
            _ => None,
        }
    }
}
