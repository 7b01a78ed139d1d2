//! The model and tables that pages of one layout share, as bytes of the packed file.

use super::words::{Input, SHORT, put};
use super::{ARM_VERSION, X86_64_VERSION};
use crate::codec::code::arm::ArmModel;
use crate::codec::code::arm::format::{Format, PARTS};
use crate::codec::code::x86::CodeModel;
use crate::codec::code::x86::opcodes::Operand;
use crate::codec::code::x86::template::{Follows, LONGEST};
use crate::codec::code::{Model, arm, x86};
use crate::codec::data::DataModel;
use crate::codec::entropy::tables::Tables;
use crate::codec::error::Damaged;
use crate::codec::symbols::Fields;

/// Bytes of a template: its bytes, and 4 bytes about them.
pub const TEMPLATE_SIZE: usize = LONGEST + 4;

/// Bytes of a format of instructions.
pub const FORMAT_SIZE: usize = 2 * (PARTS + 2);

impl Model {
    /// Returns the size of the templates, in bytes.
    pub fn template_size(&self) -> usize {
        match self {
            Model::X86(model) => TEMPLATE_SIZE * model.templates.len(),
            Model::Arm(model) => TEMPLATE_SIZE * model.templates.len() + FORMAT_SIZE * model.formats().len(),
        }
    }
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Encodes the part for code.
pub(super) fn write_code(model: &Model, tables: &Tables) -> Vec<u8> {
    let mut out = Vec::new();
    let templates = match model {
        Model::X86(model) => model.templates.len(),
        Model::Arm(model) => model.templates.len(),
    };
    let (words, branches) = match model {
        Model::X86(CodeModel { words, branches, .. }) | Model::Arm(ArmModel { words, branches, .. }) => {
            (words, branches)
        }
    };
    put(&mut out, [templates, words.len(), branches.len(), tables.nodes.len()].map(|count| count as u32));
    match model {
        Model::X86(model) => {
            for template in &model.templates {
                out.extend(template.bytes);
                out.extend([template.len, template.follows.to_byte(), template.mod_rm, 0]);
            }
        }
        Model::Arm(model) => {
            let formats = model.formats();
            put(&mut out, [formats.len() as u32, u32::from(model.is_arm)]);
            for format in &formats {
                out.extend(format.to_halfwords().into_iter().flat_map(u16::to_le_bytes));
            }
            for template in &model.templates {
                let format = formats.iter().position(|format| *format == template.format);
                out.extend(template.bytes);
                out.extend([template.len, format.unwrap_or_default() as u8, template.included_parts, 0]);
            }
        }
    }
    put(&mut out, words.iter().copied());
    write_tables(&mut out, tables);
    out.extend(branches.iter().flat_map(|branch| branch.to_le_bytes().into_iter().take(3)));
    pad(&mut out);
    out
}

/// Decodes the part for code, given the version of the format with full pages and the upper byte of nearby addresses.
pub(super) fn read_code(part: &[u8], version: u32, high: Option<u32>) -> Result<(Model, Tables), Damaged> {
    let mut input = Input(part);
    let [templates, words, branches, nodes] = input.counts()?;
    let template_size = templates.checked_mul(TEMPLATE_SIZE).ok_or(SHORT)?;
    let damaged = Damaged("a template is invalid");
    let mut model = if version == ARM_VERSION {
        let [formats, is_arm] = input.counts()?;
        let formats = input.take(formats.checked_mul(FORMAT_SIZE).ok_or(SHORT)?)?.chunks_exact(FORMAT_SIZE);
        let formats = formats.map(read_format).collect::<Option<Vec<_>>>();
        let formats = formats.ok_or(Damaged("a format of instructions is invalid"))?;
        let templates = input.take(template_size)?.chunks_exact(TEMPLATE_SIZE);
        let templates = templates.map(|entry| read_arm_template(entry, &formats)).collect::<Option<_>>();
        let templates = templates.ok_or(damaged)?;
        if is_arm > 1 {
            return Err(Damaged("its code has an unknown instruction set"));
        }
        Model::Arm(ArmModel { is_arm: is_arm == 1, templates, high, ..ArmModel::default() })
    } else {
        let templates = input.take(template_size)?.chunks_exact(TEMPLATE_SIZE);
        let is_64 = version == X86_64_VERSION;
        let templates = templates.map(|entry| read_x86_template(entry, is_64)).collect::<Option<_>>();
        Model::X86(CodeModel { is_64, templates: templates.ok_or(damaged)?, high, ..CodeModel::default() })
    };
    let words = input.words(words)?;
    let tables = input.tables(model.fields(), nodes)?;
    let branches = input.take(branches.checked_mul(3).ok_or(SHORT)?)?.chunks_exact(3);
    let branches = branches.map(|low| u32::from_le_bytes([low[0], low[1], low[2], 0])).collect();
    match &mut model {
        Model::X86(model) => (model.words, model.branches) = (words, branches),
        Model::Arm(model) => (model.words, model.branches) = (words, branches),
    }
    Ok((model, tables))
}

fn read_x86_template(entry: &[u8], is_64: bool) -> Option<x86::template::Template> {
    let (bytes, &[len, follows, mod_rm, _]) = entry.split_first_chunk::<LONGEST>()? else { return None };
    let follows = Follows::from_byte(follows)?;
    let fits = (1..=LONGEST).contains(&usize::from(len)) && (is_64 || follows.operand != Operand::Imm64);
    fits.then_some(x86::template::Template { bytes: *bytes, len, mod_rm, follows })
}

fn read_arm_template(entry: &[u8], formats: &[Format]) -> Option<arm::template::Template> {
    let (bytes, &[len, format, included_parts, _]) = entry.split_first_chunk::<LONGEST>()? else {
        return None;
    };
    let format = *formats.get(usize::from(format))?;
    let fits = (format.size()..=LONGEST).contains(&usize::from(len)) && usize::from(included_parts) <= PARTS;
    fits.then_some(arm::template::Template { bytes: *bytes, len, format, included_parts })
}

fn read_format(entry: &[u8]) -> Option<Format> {
    let mut halfwords = [0; PARTS + 2];
    for (halfword, bytes) in halfwords.iter_mut().zip(entry.chunks_exact(2)) {
        *halfword = u16::from_le_bytes([bytes[0], bytes[1]]);
    }
    Format::from_halfwords(halfwords)
}

/// Encodes the part for data.
pub(super) fn write_data(model: &DataModel, tables: &Tables) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, [model.dictionary.len(), tables.nodes.len()].map(|size| size as u32));
    write_tables(&mut out, tables);
    out.extend(&model.dictionary);
    pad(&mut out);
    out
}

/// Decodes the part for data.
pub(super) fn read_data(part: &[u8], is_64: bool) -> Result<(DataModel, Tables), Damaged> {
    let mut input = Input(part);
    let [dictionary, nodes] = input.counts()?;
    let mut model = DataModel { is_64, dictionary: Vec::new() };
    let tables = input.tables(model.fields(), nodes)?;
    model.dictionary = input.take(dictionary)?.to_vec();
    Ok((model, tables))
}

fn write_tables(out: &mut Vec<u8>, tables: &Tables) {
    out.extend(tables.contexts.iter().flat_map(|context| context.to_le_bytes()));
    out.extend(&tables.nodes);
}

impl Input<'_> {
    fn tables(&mut self, fields: Fields, nodes: usize) -> Result<Tables, Damaged> {
        let contexts = self.take(2 * fields.contexts())?.chunks_exact(2);
        let contexts = contexts.map(|context| u16::from_le_bytes([context[0], context[1]])).collect();
        Tables::new(fields, contexts, self.take(nodes)?.to_vec())
    }
}
