//! Landing pads, which only the unwinder enters, and the types that they catch.

use gimli::{DwEhPe, EndianSlice, LittleEndian, Reader};

use super::bytes::number;
use super::exidx;
use super::memory::Image;
use super::unwind::{Extent, Handlers};
use crate::address::Addr;

/// Returns the landing pads of an extent: the addresses at which the unwinder enters it to run its cleanups and
/// handlers. Empty if it has none, or an invalid table.
pub fn landing_pads(image: &Image, extent: Extent) -> Vec<Addr> {
    match extent.handlers {
        Some(Handlers::Sites(table)) => {
            read_pads(EndianSlice::new(image.bytes(table), LittleEndian), extent.start).unwrap_or_default()
        }
        Some(Handlers::Descriptors { at, wide }) => exidx::described_pads(image.bytes(at), at, wide),
        None => Vec::new(),
    }
}

/// Returns the types that the handlers of an extent catch: the addresses in its table, of types or of words that point
/// to types. Some numbers may not be addresses.
pub fn caught_types(image: &Image, extent: Extent) -> Vec<Addr> {
    let Some(Handlers::Sites(start)) = extent.handlers else { return Vec::new() };
    let table = image.bytes(start);
    let mut types = Vec::new();
    let Ok(Header { encoding: Some(encoding), types_end, sites_end, .. }) =
        Header::read(EndianSlice::new(table, LittleEndian))
    else {
        return types;
    };
    let size = match encoding.format() {
        gimli::DW_EH_PE_udata4 | gimli::DW_EH_PE_sdata4 => 4,
        gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_sdata8 => 8,
        gimli::DW_EH_PE_absptr => usize::from(image.machine.word_size()),
        _ => return types,
    };
    // The first type is just before the end, and the others precede it.
    let mut end = types_end.min(table.len());
    while end >= sites_end.saturating_add(size) && types.len() < MAX_TYPES {
        let at = end - size;
        let number = number(&table[at..end]);
        if number != 0 {
            let relative = encoding.application() == gimli::DW_EH_PE_pcrel;
            let signed = if size == 4 && relative { i64::from(number as u32 as i32) as u64 } else { number };
            let base = if relative { start.plus(at as u64).0 } else { 0 };
            types.push(Addr(image.wrap(base.wrapping_add(signed))));
        }
        end = at;
    }
    types
}

/// Maximum number of types that a function can catch.
const MAX_TYPES: usize = 1024;

/// The head of a table of landing pads. The layout is that of the Itanium C++ ABI's exception handling part, and of
/// LLVM's and GCC's sources.
struct Header {
    /// The encoding of type addresses, if there are any.
    encoding: Option<DwEhPe>,
    /// The end of the types, in bytes from the beginning.
    types_end: usize,
    sites_encoding: DwEhPe,
    /// The start and the end of the call sites.
    sites_start: usize,
    sites_end: usize,
}

impl Header {
    fn read(table: EndianSlice<LittleEndian>) -> gimli::Result<Header> {
        let overflow = |_| gimli::Error::BadUnsignedLeb128;
        let mut rest = table;
        // Landing pads are relative to the function in the output of every compiler; no other base is supported.
        if rest.read_u8()? != gimli::DW_EH_PE_omit.0 {
            return Err(gimli::Error::UnknownPointerEncoding(gimli::DW_EH_PE_omit));
        }
        let encoding = Some(DwEhPe(rest.read_u8()?)).filter(|&encoding| encoding != gimli::DW_EH_PE_omit);
        let mut types_end = 0;
        if encoding.is_some() {
            let distance = usize::try_from(rest.read_uleb128()?).map_err(overflow)?;
            types_end = (table.len() - rest.len()).saturating_add(distance);
        }
        let sites_encoding = DwEhPe(rest.read_u8()?);
        let size = usize::try_from(rest.read_uleb128()?).map_err(overflow)?;
        let sites_start = table.len() - rest.len();
        let sites_end = sites_start.saturating_add(size);
        Ok(Header { encoding, types_end, sites_encoding, sites_start, sites_end })
    }
}

fn read_pads(mut table: EndianSlice<LittleEndian>, function: Addr) -> gimli::Result<Vec<Addr>> {
    let Header { sites_encoding, sites_start, sites_end, .. } = Header::read(table)?;
    table.skip(sites_start)?;
    let mut sites = table.split(sites_end - sites_start)?;
    let mut pads = Vec::new();
    while !sites.is_empty() {
        let mut number = || match sites_encoding.format() {
            gimli::DW_EH_PE_uleb128 => sites.read_uleb128(),
            gimli::DW_EH_PE_udata2 => sites.read_u16().map(u64::from),
            gimli::DW_EH_PE_udata4 | gimli::DW_EH_PE_sdata4 => sites.read_u32().map(u64::from),
            _ => Err(gimli::Error::UnknownPointerEncoding(sites_encoding)),
        };
        let (_start, _length, pad) = (number()?, number()?, number()?);
        sites.read_uleb128()?; // the index of the caught types
        if pad != 0 {
            pads.push(function.plus(pad));
        }
    }
    pads.sort_unstable();
    pads.dedup();
    Ok(pads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_of_a_table() {
        // @LPStart omitted, @TType omitted, call sites as ULEB128: two sites, one with a pad at 0x82.
        let table = [0xff, 0xff, 0x01, 9, 0x10, 5, 0, 0, 0x20, 5, 0x82, 0x01, 0];
        let pads = read_pads(EndianSlice::new(&table, LittleEndian), Addr(0x1000)).unwrap();
        assert_eq!(pads, [Addr(0x1082)]);
        for length in 0..table.len() {
            assert!(read_pads(EndianSlice::new(&table[..length], LittleEndian), Addr(0)).is_err());
        }
    }
}
