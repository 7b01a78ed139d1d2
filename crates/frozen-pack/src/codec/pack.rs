//! Packing: fits models and tables to all pages, then packs every page.

use kelf::Machine;
use rayon::prelude::*;

use crate::codec::code::values::HIGH;
use crate::codec::code::{Code, InstructionSet, Model, arm, x86};
use crate::codec::data::parse::{Costs, Finder};
use crate::codec::data::{self, DataModel};
use crate::codec::entropy::tables::Tables;
use crate::codec::entropy::train::{Price, train};
use crate::codec::error::Damaged;
use crate::codec::format::{Layout, MOST_OF_REGION, Packed, PageEntry, Segment};
use crate::codec::symbols::{Recorder, Step};

/// Number of times that repetitions are chosen again, with the costs of their symbols.
const ROUNDS: usize = 6;

/// The price of decoding time for code: two thirds of a symbol a byte, 45 instructions each, 4 more for each examined
/// class and 25 for an escape.
const CODE_PRICE: Price = Price { escape: 0.5, probe: 0.0, class: 0.1 };

/// Thumb-2 code has nine symbols for ten bytes. Half as much again saves an instruction per byte, and costs 0.002 of
/// the size.
const ARM_PRICE: Price = Price { escape: 0.25, probe: 0.0, class: 0.025 };

/// Data decodes in a third of the time.
const DATA_PRICE: Price = Price { escape: 0.0, probe: 0.0, class: 0.0 };

/// A piece of code or data to pack.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The name of its section, or another name.
    pub name: String,
    /// Its address.
    pub address: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The instruction set for code, `None` for data.
    pub code: Option<InstructionSet>,
    /// For a region of ARM code that will run elsewhere, the byte offsets of the branches that leave it, in order. Data
    /// that looks like such a branch must not change. `None` if they are not known; then everything that looks like one
    /// counts.
    pub leaving: Option<Vec<u32>>,
}

impl<'b> Code<'b> {
    /// Returns the code of a piece.
    pub fn of(piece: &'b Piece) -> Code<'b> {
        Code { address: piece.address, bytes: &piece.bytes, leaving: piece.leaving.as_deref() }
    }
}

/// Packs `pieces` in pages of `page_size` bytes, and checks that all pages decode to their original bytes.
///
/// # Errors
/// If it exceeds the limits of the format.
pub fn pack(pieces: &[Piece], page_size: u32) -> Result<Packed, Damaged> {
    pack_for(pieces, page_size, instruction_set(pieces)?)
}

/// Like [`pack`], for a kernel with an instruction set.
pub(crate) fn pack_for(pieces: &[Piece], page_size: u32, set: InstructionSet) -> Result<Packed, Damaged> {
    let page = page_size as usize;
    let model = DataModel { is_64: set == InstructionSet::X86_64, dictionary: Vec::new() };
    let (code, data) = rayon::join(|| pack_code(pieces, page, None), || pack_data(pieces, page, &model));
    let ((code, code_pages), (data, data_pages)) = (code?, data?);
    let (mut code_pages, mut data_pages) = (code_pages.into_iter(), data_pages.into_iter());
    let mut packed = Packed { page_size, code, data, ..Packed::default() };
    for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
        let size = u32::try_from(piece.bytes.len()).map_err(|_| Damaged("a section exceeds 4 GiB"))?;
        let first_page = packed.index.len() as u32;
        packed.segments.push(Segment { address: piece.address, size, first_page });
        let streams = if piece.code.is_some() { &mut code_pages } else { &mut data_pages };
        for (page, stream) in piece.bytes.chunks(page_size as usize).zip(streams) {
            let (layout, bytes) = match (&piece.code, stream.len() < page.len()) {
                (_, false) => (Layout::Plain, page),
                (Some(_), true) => (Layout::Code, &stream[..]),
                (None, true) if model.has_distances(page) => (Layout::Distances, &stream[..]),
                (None, true) => (Layout::Data, &stream[..]),
            };
            let offset = packed.streams.len() as u32;
            packed.index.push(PageEntry { offset, layout });
            packed.streams.extend(bytes);
        }
    }
    for (segment, piece) in packed.segments.iter().zip(pieces.iter().filter(|piece| !piece.bytes.is_empty()))
    {
        if packed.unpack(segment).map_err(|(_, damaged)| damaged)? != piece.bytes {
            return Err(Damaged(
                "the packed bytes do not decode to the original; this is an error in frozen-pack",
            ));
        }
    }
    Ok(packed)
}

/// Packs regions of code for the same address, each a piece of at most a page. `near` has the upper byte of most
/// addresses that they refer to.
///
/// # Errors
/// If it exceeds the limits of the format, or a region exceeds a page.
pub fn pack_regions(regions: &[Piece], page_size: u32, near: u32) -> Result<Packed, Damaged> {
    let (code, pages) = pack_code(regions, page_size as usize, Some(near & HIGH))?;
    let mut packed = Packed { page_size, code, ..Packed::default() };
    let mut sizes = Vec::new();
    for (region, stream) in regions.iter().zip(&pages) {
        let size = region.bytes.len();
        let first = regions[0].address;
        if region.address != first || size > (page_size as usize).min(MOST_OF_REGION) {
            return Err(Damaged("a region exceeds a page, or has another address than the others"));
        }
        sizes.push(u16::try_from(size).map_err(|_| Damaged("a region is too large"))?);
        let offset = packed.streams.len() as u32;
        packed.index.push(PageEntry { offset, layout: Layout::Code });
        packed.streams.extend(stream);
    }
    if let Some(first) = regions.first() {
        let size = regions.len() as u32 * page_size;
        packed.segments.push(Segment { address: first.address, size, first_page: 0 });
    }
    packed.sizes = Some(sizes);
    Ok(packed)
}

type Coded<M> = (Option<(M, Tables)>, Vec<Vec<u8>>);

fn encode(tables: &Tables, pages: &[Vec<Step>]) -> Result<Vec<Vec<u8>>, Damaged> {
    pages.iter().map(|steps| tables.encode(steps)).collect()
}

/// Returns the instruction set of the code among `pieces`, i386 without code.
///
/// # Errors
/// If it is more than one.
fn instruction_set(pieces: &[Piece]) -> Result<InstructionSet, Damaged> {
    let mut sets = pieces.iter().filter_map(|piece| piece.code);
    let set = sets.next().unwrap_or(InstructionSet::I386);
    if sets.any(|other| other != set) {
        return Err(Damaged("there is code of several instruction sets; pack one at a time"));
    }
    Ok(set)
}

/// Returns the model that fits the code among `pieces`, and the steps of its pages. The model has this number of merged
/// templates, or the best number, and has dictionaries of values or none.
///
/// # Errors
/// If there is an error in the layout, or code of more than one instruction set.
pub(crate) fn record_code(
    pieces: &[Piece],
    page_size: usize,
    merges: Option<usize>,
    high: Option<u32>,
    with_dictionaries: bool,
) -> Result<(Model, Vec<Vec<Step>>), Damaged> {
    let set = instruction_set(pieces)?;
    let merges = merges.unwrap_or(set.merges());
    let code = pieces.iter().filter(|piece| piece.code.is_some());
    let code: Vec<Code> = code.map(Code::of).collect();
    let (model, symbols): (Model, Vec<Vec<Vec<u32>>>) = match set {
        InstructionSet::I386 | InstructionSet::X86_64 => {
            let is_64 = set == InstructionSet::X86_64;
            let isa = kisa::isa(if is_64 { Machine::X86_64 } else { Machine::I386 });
            let parsers: Vec<_> =
                code.iter().map(|code| x86::parse::Parser::new(isa, is_64, *code)).collect();
            let mut model = x86::parse::Parser::model(&parsers, is_64, merges, high);
            if !with_dictionaries {
                (model.words, model.branches) = Default::default();
            }
            let encoder = x86::parse::Encoder::new(&model);
            let symbols = parsers.iter().map(|parser| parser.pages(&encoder, page_size)).collect();
            (Model::X86(model), symbols)
        }
        InstructionSet::Thumb | InstructionSet::Arm => {
            let parsers: Vec<_> = code.iter().map(|code| arm::parse::Parser::new(set, *code)).collect();
            let mut model = arm::parse::Parser::model(&parsers, merges, high);
            if !with_dictionaries {
                (model.words, model.branches) = Default::default();
            }
            let encoder = arm::parse::Encoder::new(&model);
            let symbols = parsers.iter().map(|parser| parser.pages(&encoder, page_size)).collect();
            (Model::Arm(model), symbols)
        }
    };
    let mut pages = Vec::new();
    for (symbols, code) in symbols.into_iter().zip(&code) {
        let mut address = code.address;
        for (symbols, bytes) in symbols.into_iter().zip(code.bytes.chunks(page_size)) {
            let mut recorder = Recorder::new(symbols);
            let mut decoded = vec![0; bytes.len()];
            model.decode(&mut recorder, address, address, &mut decoded)?;
            pages.push(recorder.steps);
            address = address.wrapping_add(page_size as u32);
        }
    }
    Ok((model, pages))
}

fn pack_code(pieces: &[Piece], page_size: usize, high: Option<u32>) -> Result<Coded<Model>, Damaged> {
    let (model, pages) = record_code(pieces, page_size, None, high, true)?;
    if pages.is_empty() {
        return Ok((None, Vec::new()));
    }
    let price = match model {
        Model::X86(_) => CODE_PRICE,
        Model::Arm(_) => ARM_PRICE,
    };
    let tables = train(pages.iter().flatten(), model.fields(), price);
    let streams = encode(&tables, &pages)?;
    Ok((Some((model, tables)), streams))
}

/// Returns the steps of the pages of data among `pieces`, with the best repetitions for these distributions.
///
/// # Errors
/// If there is an error in the layout.
pub(crate) fn record_data(
    pieces: &[Piece],
    page_size: usize,
    model: &DataModel,
    tables: Option<&Tables>,
) -> Result<Vec<Vec<Step>>, Damaged> {
    let finder = Finder::new(&model.dictionary);
    let data = pieces.iter().filter(|piece| piece.code.is_none());
    let pages: Vec<&[u8]> = data.flat_map(|piece| piece.bytes.chunks(page_size)).collect();
    let record = |costs: &mut Costs<'_>, page: &&[u8]| {
        let mut decoded = vec![0; page.len()];
        if model.has_distances(page) {
            let mut recorder = Recorder::new(data::distances::symbols(page));
            data::distances::decode(&mut recorder, &mut decoded)?;
            return Ok(recorder.steps);
        }
        let mut recorder = Recorder::new(data::parse::page(model, &finder, page, costs));
        model.decode(&mut recorder, &mut decoded)?;
        Ok(recorder.steps)
    };
    pages.par_iter().map_init(|| Costs::new(tables), record).collect()
}

fn pack_data(pieces: &[Piece], page_size: usize, model: &DataModel) -> Result<Coded<DataModel>, Damaged> {
    let mut tables = None;
    let mut best: Option<(usize, Tables, Vec<Vec<u8>>)> = None;
    for _ in 0..ROUNDS {
        let pages = record_data(pieces, page_size, model, tables.as_ref())?;
        if pages.is_empty() {
            return Ok((None, Vec::new()));
        }
        let fitting = train(pages.iter().flatten(), model.fields(), DATA_PRICE);
        let streams = encode(&fitting, &pages)?;
        let size = fitting.size() + streams.iter().map(Vec::len).sum::<usize>();
        if best.as_ref().is_none_or(|best| size < best.0) {
            best = Some((size, fitting.clone(), streams));
        }
        tables = Some(fitting);
    }
    let (tables, streams) = best.map_or_else(Default::default, |(_, tables, streams)| (tables, streams));
    Ok((Some((model.clone(), tables)), streams))
}
