//! Our coders: the paper's, and the current one.

use super::outcome::Outcome;
use crate::codec::code::InstructionSet;
use crate::codec::data::DataModel;
use crate::codec::entropy::huffman::{Codes, Symbols};
use crate::codec::error::Damaged;
use crate::codec::format::Packed;
use crate::codec::pack::{Piece, pack_for, record_code, record_data};
use crate::codec::symbols::{Field, Step};

/// Returns the results of our coders for pieces, all code or all data, given the instruction set
/// of the kernel and the size of the decoder.
pub(super) fn outcomes(
    pieces: &[Piece],
    page_size: u32,
    set: InstructionSet,
    decoder: usize,
) -> Result<Vec<Outcome<'static>>, Damaged> {
    let packed = pack_for(pieces, page_size, set)?;
    let baseline = match pieces.iter().all(|piece| piece.code.is_some()) {
        true => {
            let (model, pages) = record_code(pieces, page_size as usize, Some(0), None, false)?;
            let tables = model.template_size();
            let by_place = model.fields_by_place();
            let decode = move |source: &mut Symbols<'_>, address: u32, out: &mut [u8]| {
                model.decode(source, address, address, out)
            };
            huffman(&packed, pages, by_place, tables, decode)?
        }
        false => {
            let model = DataModel::default();
            let pages = record_data(pieces, page_size as usize, &model, None)?;
            let decode = move |source: &mut Symbols<'_>, _: u32, out: &mut [u8]| model.decode(source, out);
            huffman(&packed, pages, &[], 0, decode)?
        }
    };
    Ok(vec![baseline, own(packed, decoder)])
}

fn own(packed: Packed, decoder: usize) -> Outcome<'static> {
    let pages = 0..packed.index.len() as u32;
    let streams = pages.filter_map(|page| Some(packed.stream(page)?.to_vec())).collect();
    let sizes = packed.sizes();
    let unpack = move |page: usize, _: &[u8]| packed.page(page as u32).map_err(|damaged| damaged.to_string());
    let (coder, tables) = ("frozen-pack", sizes.code + sizes.data);
    Outcome { coder, streams, tables, decoder: Some(decoder), unpack: Box::new(unpack) }
}

/// Encodes with one Huffman code for each stream, over the same pages that are packed.
fn huffman(
    packed: &Packed,
    pages: Vec<Vec<Step>>,
    by_place: &'static [Field],
    tables: usize,
    decode: impl Fn(&mut Symbols<'_>, u32, &mut [u8]) -> Result<(), Damaged> + 'static,
) -> Result<Outcome<'static>, Damaged> {
    let codes = Codes::new(pages.iter().flatten(), by_place);
    let streams = pages.iter().map(|steps| codes.encode(steps)).collect::<Result<_, _>>()?;
    let tables = tables + codes.size();
    let places: Vec<_> = (0..packed.index.len() as u32).filter_map(|page| packed.place(page)).collect();
    let unpack = move |page: usize, stream: &[u8]| {
        let (address, size) = places[page];
        let mut out = vec![0; size];
        let mut symbols = Symbols::new(&codes, stream);
        decode(&mut symbols, address, &mut out).map_err(|damaged| damaged.to_string())?;
        Ok(out)
    };
    Ok(Outcome { coder: "Huffman, split streams", streams, tables, decoder: None, unpack: Box::new(unpack) })
}
