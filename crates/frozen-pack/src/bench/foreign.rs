//! Deflate, LZMA and zstd on single pages, with as few bytes of headers as the library allows.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{Action, Filters, LzmaOptions, Stream};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use super::outcome::Outcome;
use crate::codec::code::InstructionSet;

/// Size of the dictionary for zstd, in bytes.
const DICTIONARY: usize = 16 << 10;

/// Size of the samples that pages are cut into to find a dictionary, in bytes.
const SAMPLE: usize = 512;

/// A general-purpose coder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// RFC 1951, without a header.
    Deflate,
    /// LZMA, without a header.
    Lzma,
    /// LZMA after a filter that makes the targets of calls absolute.
    LzmaBcj,
    /// zstd.
    Zstd,
    /// zstd with a dictionary.
    ZstdDictionary,
}

impl Foreign {
    /// All coders.
    pub const ALL: [Foreign; 5] =
        [Foreign::Deflate, Foreign::Lzma, Foreign::LzmaBcj, Foreign::Zstd, Foreign::ZstdDictionary];

    /// Returns the result of this coder for pages of a kernel with an instruction set.
    pub(super) fn outcome<'p>(self, pages: &'p [&'p [u8]], set: InstructionSet) -> io::Result<Outcome<'p>> {
        let bcj = (self == Foreign::LzmaBcj).then_some(set);
        let dictionary = match self {
            Foreign::ZstdDictionary => dictionary(pages)?,
            _ => Vec::new(),
        };
        let streams = match self {
            Foreign::Deflate => pages.iter().map(|page| deflate(page)).collect::<io::Result<_>>()?,
            Foreign::Lzma | Foreign::LzmaBcj => {
                pages.iter().map(|page| lzma(page, bcj)).collect::<io::Result<_>>()?
            }
            Foreign::Zstd | Foreign::ZstdDictionary => {
                let mut compressor = Compressor::with_dictionary(22, &dictionary)?;
                compressor.set_parameter(CParameter::ContentSizeFlag(false))?;
                compressor.set_parameter(CParameter::DictIdFlag(false))?;
                pages.iter().map(|page| compressor.compress(page)).collect::<io::Result<_>>()?
            }
        };
        let coder = match self {
            Foreign::Deflate => "deflate",
            Foreign::Lzma => "LZMA",
            Foreign::LzmaBcj => "LZMA with BCJ",
            Foreign::Zstd => "zstd",
            Foreign::ZstdDictionary => "zstd, 16 KiB dictionary",
        };
        let tables = dictionary.len();
        let unpack = move |page: usize, stream: &[u8]| {
            let size = pages[page].len();
            self.unpack(stream, size, &dictionary, bcj).map_err(|error| error.to_string())
        };
        Ok(Outcome { coder, streams, tables, decoder: None, unpack: Box::new(unpack) })
    }

    fn unpack(
        self,
        stream: &[u8],
        size: usize,
        dictionary: &[u8],
        bcj: Option<InstructionSet>,
    ) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(size);
        match self {
            Foreign::Deflate => drop(DeflateDecoder::new(stream).read_to_end(&mut out)?),
            Foreign::Lzma | Foreign::LzmaBcj => {
                let decoder = Stream::new_raw_decoder(&filters(size, bcj)?)?;
                XzDecoder::new_stream(stream, decoder).take(size as u64).read_to_end(&mut out)?;
            }
            Foreign::Zstd | Foreign::ZstdDictionary => {
                out = Decompressor::with_dictionary(dictionary)?.decompress(stream, size)?;
            }
        }
        Ok(out)
    }
}

fn dictionary(pages: &[&[u8]]) -> io::Result<Vec<u8>> {
    let samples: Vec<&[u8]> = pages.iter().flat_map(|page| page.chunks(SAMPLE)).collect();
    // If there is too little data for a dictionary, there is none.
    Ok(zstd::dict::from_samples(&samples, DICTIONARY).unwrap_or_default())
}

fn deflate(page: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(page)?;
    encoder.finish()
}

fn filters(size: usize, bcj: Option<InstructionSet>) -> io::Result<Filters> {
    let mut options = LzmaOptions::new_preset(9)?;
    // Code is not assumed to be aligned; the dictionary is the page.
    options.position_bits(0).dict_size((size as u32).max(4096));
    let mut filters = Filters::new();
    match bcj {
        None => {}
        Some(InstructionSet::I386 | InstructionSet::X86_64) => drop(filters.x86()),
        Some(InstructionSet::Thumb) => drop(filters.arm_thumb()),
        Some(InstructionSet::Arm) => drop(filters.arm()),
    }
    filters.lzma1(&options);
    Ok(filters)
}

fn lzma(page: &[u8], bcj: Option<InstructionSet>) -> io::Result<Vec<u8>> {
    let mut encoder = Stream::new_raw_encoder(&filters(page.len(), bcj)?)?;
    let mut out = Vec::with_capacity(2 * page.len() + 1024);
    encoder.process_vec(page, &mut out, Action::Finish)?;
    Ok(out)
}
