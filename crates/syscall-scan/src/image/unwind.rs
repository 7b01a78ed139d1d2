//! Function boundaries from the unwind table (`.eh_frame`). (32-bit ARM has a different table, see
//! [`super::exidx`].)
//!
//! A stripped program keeps the table, because exceptions and thread cancellation need it at run time. The table
//! distinguishes a pointer to a function from a number that looks like an address in the middle of one. It also leads
//! to the lists of code that only the unwinder jumps to.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, Pointer, UnwindSection};
use kelf::Machine;

use crate::address::Addr;

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
