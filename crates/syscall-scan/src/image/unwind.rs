//! Function boundaries and landing pads from the unwinding table (`.eh_frame`).
//!
//! The table stays in a stripped program, because exceptions and thread cancellation need it at run time.
//! It tells a pointer to a function from a number that happens to look like an address in the middle of
//! one, and it knows the code that nothing but the unwinder jumps to.

use gimli::{
    BaseAddresses, CieOrFde, DwEhPe, EhFrame, EndianSlice, LittleEndian, Pointer, Reader, UnwindSection,
};
use kelf::Machine;

use super::{Addr, Image};

/// The extents of functions, as the unwinding table has them, by rising address. A function may have
/// several (its cold part is one of its own), and hand-written code may have none.
#[derive(Debug, Default)]
pub struct Extents {
    extents: Vec<Extent>,
}

/// A piece of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Extent {
    /// Its first byte.
    pub start: Addr,
    /// The byte after its last.
    pub end: Addr,
    /// Where the table of its landing pads is, if it has any.
    pub handlers: Option<Addr>,
}

impl Extent {
    /// The same extent in an object that is loaded so many bytes further on.
    pub(super) fn moved(self, base: u64) -> Extent {
        let handlers = self.handlers.map(|table| table.plus(base));
        Extent { start: self.start.plus(base), end: self.end.plus(base), handlers }
    }
}

impl Extents {
    /// Reads `.eh_frame`, which lies at `address`. Reading ends at the first entry that is damaged.
    pub(super) fn read(bytes: &[u8], address: u64, machine: Machine) -> Extents {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(machine.word_size());
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mask = if machine.is_64() { u64::MAX } else { 0xffff_ffff };
        let mut entries = section.entries(&bases);
        let mut extents = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { break };
            let start = fde.initial_address() & mask;
            let handlers = match fde.lsda() {
                Some(Pointer::Direct(address)) => Some(Addr(address & mask)),
                _ => None,
            };
            let end = Addr(start.saturating_add(fde.len()));
            extents.push(Extent { start: Addr(start), end, handlers });
        }
        extents.sort_unstable();
        // No byte is in two functions.
        for index in 1..extents.len() {
            let next = extents[index].start;
            let extent = &mut extents[index - 1];
            extent.end = extent.end.min(next);
        }
        Extents { extents }
    }

    /// The extent that holds this address.
    pub fn around(&self, address: Addr) -> Option<Extent> {
        let next = self.extents.partition_point(|extent| extent.start <= address);
        self.extents[..next].last().copied().filter(|extent| address < extent.end)
    }

    /// All extents.
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter()
    }
}

/// The landing pads of an extent: where the unwinder enters it to run its cleanups and handlers. Empty if it
/// has none, or a table that makes no sense.
pub fn landing_pads(image: &Image, extent: Extent) -> Vec<Addr> {
    let table = extent.handlers.map_or(&[][..], |table| image.bytes(table));
    read_pads(EndianSlice::new(table, LittleEndian), extent.start).unwrap_or_default()
}

/// The table's layout is in the Itanium C++ ABI's exception handling part, and LLVM's and GCC's sources.
fn read_pads(mut table: EndianSlice<LittleEndian>, function: Addr) -> gimli::Result<Vec<Addr>> {
    // Landing pads count from the function, as every compiler has it; another base is not read.
    if table.read_u8()? != gimli::DW_EH_PE_omit.0 {
        return Ok(Vec::new());
    }
    if table.read_u8()? != gimli::DW_EH_PE_omit.0 {
        table.read_uleb128()?; // the distance to the table of types
    }
    let encoding = DwEhPe(table.read_u8()?);
    let size = table.read_uleb128()?;
    let mut sites = table.split(usize::try_from(size).map_err(|_| gimli::Error::BadUnsignedLeb128)?)?;
    let mut pads = Vec::new();
    while !sites.is_empty() {
        let mut number = || match encoding.format() {
            gimli::DW_EH_PE_uleb128 => sites.read_uleb128(),
            gimli::DW_EH_PE_udata2 => sites.read_u16().map(u64::from),
            gimli::DW_EH_PE_udata4 | gimli::DW_EH_PE_sdata4 => sites.read_u32().map(u64::from),
            _ => Err(gimli::Error::UnknownPointerEncoding(encoding)),
        };
        let (_start, _length, pad) = (number()?, number()?, number()?);
        sites.read_uleb128()?; // what it catches
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
