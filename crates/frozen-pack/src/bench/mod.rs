//! Comparison of coders on the same pages, each packed on its own, including all that is needed to decode one of them.

pub mod foreign;
mod outcome;
pub mod own;

use std::time::Instant;

use kcli::{Table, human};
use serde::Serialize;

use crate::codec::code::InstructionSet;
use crate::codec::pack::Piece;
use foreign::Foreign;
use outcome::Outcome;

/// Size of an index entry for a page, in bytes, with any coder.
pub const INDEX_ENTRY: usize = 4;

/// The result of one coder for the code or the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `code` or `data`.
    pub part: &'static str,
    /// The name of the coder.
    pub coder: &'static str,
    /// The size of the part in bytes.
    pub size: usize,
    /// The packed pages; pages that would not become smaller count unpacked.
    pub pages: usize,
    /// Tables or a dictionary that all pages share.
    pub tables: usize,
    /// The index of the pages.
    pub index: usize,
    /// Our own decoder: code for the machine and constants. It counts once, in the first part.
    pub decoder: Option<usize>,
    /// The sum of all these.
    pub total: usize,
    /// `total` by `size`.
    pub ratio: f64,
    /// Speed of decoding on this machine, in 10^6 bytes of pages per second.
    pub speed: f64,
}

/// Packs code and data of `pieces` in pages of `page_size` bytes with each coder, unpacks it, and compares.
///
/// # Errors
/// If a page does not decode to its original bytes, or a coder fails.
pub fn bench(pieces: &[Piece], page_size: u32) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    // Both parts share one decoder.
    let set = pieces.iter().find_map(|piece| piece.code).unwrap_or(InstructionSet::I386);
    let mut decoder = set.decoder_size();
    for (part, is_code) in [("code", true), ("data", false)] {
        let of_part: Vec<Piece> = pieces
            .iter()
            .filter(|piece| piece.code.is_some() == is_code && !piece.bytes.is_empty())
            .cloned()
            .collect();
        if of_part.is_empty() {
            continue;
        }
        let pages: Vec<&[u8]> =
            of_part.iter().flat_map(|piece| piece.bytes.chunks(page_size as usize)).collect();
        for foreign in Foreign::ALL {
            rows.push(row(part, &pages, foreign.outcome(&pages, set).map_err(|error| error.to_string())?)?);
        }
        for outcome in own::outcomes(&of_part, page_size, set, std::mem::take(&mut decoder))
            .map_err(|damaged| damaged.to_string())?
        {
            rows.push(row(part, &pages, outcome)?);
        }
    }
    Ok(rows)
}

fn row(part: &'static str, pages: &[&[u8]], outcome: Outcome<'_>) -> Result<Row, String> {
    let Outcome { coder, streams, tables, decoder, unpack } = outcome;
    let start = Instant::now();
    let unpacked: Vec<_> = streams.iter().enumerate().map(|(page, stream)| unpack(page, stream)).collect();
    let seconds = start.elapsed().as_secs_f64();
    for ((number, page), unpacked) in pages.iter().enumerate().zip(unpacked) {
        if unpacked.map_err(|error| format!("{coder}, page {number} of {part}: {error}"))? != *page {
            return Err(format!(
                "{coder}, page {number} of {part}: it does not decode to its original bytes"
            ));
        }
    }
    let size = pages.iter().map(|page| page.len()).sum();
    let packed = streams.iter().zip(pages).map(|(stream, page)| stream.len().min(page.len())).sum();
    let index = INDEX_ENTRY * pages.len();
    let total = packed + tables + index + decoder.unwrap_or(0);
    let (ratio, speed) = (total as f64 / size as f64, size as f64 / seconds / 1e6);
    Ok(Row { part, coder, size, pages: packed, tables, index, decoder, total, ratio, speed })
}

/// Returns the rows as a human-readable table.
pub fn text(rows: &[Row]) -> String {
    let heading =
        ["part, coder", "size", "pages", "tables", "index", "decoder", "total", "ratio", "decoding, MB/s"];
    let mut table = Table::new(heading);
    for row in rows {
        let figure = |figure: usize| human(figure as u64);
        table.row([
            format!("{}, {}", row.part, row.coder),
            figure(row.size),
            figure(row.pages),
            figure(row.tables),
            figure(row.index),
            row.decoder.map_or("not counted".to_owned(), figure),
            figure(row.total),
            format!("{:.4}", row.ratio),
            format!("{:.1}", row.speed),
        ]);
    }
    table.to_string()
}
