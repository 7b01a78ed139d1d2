//! Function boundaries and landing pads from the unwind table (`.eh_frame`). (32-bit ARM has a different table, see
//! [`super::exidx`].)
//!
//! A stripped program keeps the table, because exceptions and thread cancellation need it at run time. The table
//! distinguishes a pointer to a function from a number that looks like an address in the middle of one. It also lists
//! the code that only the unwinder jumps to.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, DwEhPe, EhFrame, EndianSlice, LittleEndian, Pointer, Reader, UnwindSection,
};
use kelf::Machine;

use super::relocs::number;
use super::{Addr, Image, exidx};

/// The extents of functions in the unwind table, by rising address. A function may have several (its cold part has its
/// own), and hand-written code may have none.
#[derive(Debug, Default)]
pub struct Extents {
    extents: Vec<Extent>,
    /// The addresses of the table itself, up to the end of reading.
    table: Range<u64>,
}

/// A piece of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// Its first byte.
    pub start: Addr,
    /// The byte after its last.
    pub end: Addr,
    /// The list of its landing pads, if it has any.
    pub handlers: Option<Handlers>,
    /// The function that reads that list, or the word with its address.
    pub personality: Option<Addr>,
}

/// A list of landing pads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Handlers {
    /// A table of call sites at this address, as for C++ and Rust on all machines.
    Sites(Addr),
    /// A list of descriptors at an address, as in the ABI of 32-bit ARM for compilers that use its personality
    /// routines.
    Descriptors {
        /// The address.
        at: Addr,
        /// Whether scopes have 32 bits.
        wide: bool,
    },
}

impl Handlers {
    fn moved(self, base: u64) -> Handlers {
        match self {
            Handlers::Sites(at) => Handlers::Sites(at.plus(base)),
            Handlers::Descriptors { at, wide } => Handlers::Descriptors { at: at.plus(base), wide },
        }
    }
}

impl Extent {
    /// Returns the same extent in an object that is loaded `base` bytes further on.
    pub(super) fn moved(self, base: u64) -> Extent {
        let handlers = self.handlers.map(|handlers| handlers.moved(base));
        let personality = self.personality.map(|address| address.plus(base));
        Extent { start: self.start.plus(base), end: self.end.plus(base), handlers, personality }
    }
}

impl Extents {
    /// Reads `.eh_frame` at `address`, up to the first damaged entry.
    pub(super) fn read(bytes: &[u8], address: u64, machine: Machine) -> Extents {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(machine.word_size());
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mask = if machine.is_64() { u64::MAX } else { 0xffff_ffff };
        let mut entries = section.entries(&bases);
        let mut extents = Vec::new();
        let mut table = address..address;
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { break };
            let length =
                fde.entry_len() as u64 + u64::from(fde.cie().encoding().format.initial_length_size());
            table.end = address.saturating_add(fde.offset() as u64).saturating_add(length);
            let start = fde.initial_address() & mask;
            let handlers = match fde.lsda() {
                Some(Pointer::Direct(address)) => Some(Handlers::Sites(Addr(address & mask))),
                _ => None,
            };
            let end = Addr(start.saturating_add(fde.len()));
            let personality =
                fde.personality().map(|(Pointer::Direct(at) | Pointer::Indirect(at))| Addr(at & mask));
            extents.push(Extent { start: Addr(start), end, handlers, personality });
        }
        extents.sort_unstable();
        // No byte is in two functions.
        for index in 1..extents.len() {
            let next = extents[index].start;
            let extent = &mut extents[index - 1];
            extent.end = extent.end.min(next);
        }
        Extents { extents, table }
    }

    /// Returns whether an address is in the table itself.
    pub fn is_in_table(&self, address: Addr) -> bool {
        self.table.contains(&address.0)
    }

    /// Returns the extent around this address.
    pub fn around(&self, address: Addr) -> Option<Extent> {
        let next = self.extents.partition_point(|extent| extent.start <= address);
        self.extents[..next].last().copied().filter(|extent| address < extent.end)
    }

    /// Returns all extents.
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter()
    }
}

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
