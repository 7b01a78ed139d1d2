//! Function boundaries from the unwinding table (`.eh_frame`).
//!
//! The table stays in a stripped program, because exceptions and thread cancellation need it at run time.
//! It tells a pointer to a function from a number that happens to look like an address in the middle of
//! one.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use kelf::Machine;

use super::Addr;

/// The extents of functions, as the unwinding table has them, by rising address. A function may have
/// several (its cold part is one of its own), and hand-written code may have none.
#[derive(Debug, Default)]
pub struct Extents {
    extents: Vec<(Addr, Addr)>,
}

impl Extents {
    /// Reads `.eh_frame`, which lies at `address`. Reading ends at the first entry that is damaged.
    pub(super) fn read(bytes: &[u8], address: u64, machine: Machine) -> Extents {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(machine.word_size());
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut entries = section.entries(&bases);
        let mut extents = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { break };
            let mask = if machine.is_64() { u64::MAX } else { 0xffff_ffff };
            let start = fde.initial_address() & mask;
            extents.push((Addr(start), Addr(start.saturating_add(fde.len()))));
        }
        extents.sort_unstable();
        Extents { extents }
    }

    /// The extent that holds this address: its first byte and the first byte after it.
    pub fn around(&self, address: Addr) -> Option<(Addr, Addr)> {
        let next = self.extents.partition_point(|&(start, _)| start <= address);
        self.extents[..next].last().copied().filter(|&(_, end)| address < end)
    }
}
