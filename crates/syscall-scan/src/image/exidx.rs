//! Landing pads of 32-bit ARM programs, from the index of exception tables (`.ARM.exidx`) and the tables themselves
//! (`.ARM.extab`): "Exception Handling ABI for the Arm Architecture" (ARM IHI 0038).
//!
//! The index has the first address of each function that can be unwound, and the address of its table. It does not
//! contain the ends of functions, and linkers merge the entries of functions with equal unwinding. It therefore
//! identifies landing pads, but not whether an address is in the middle of a function.

use super::bytes::{number, u32_at};
use super::unwind::{Extent, Handlers};
use crate::address::Addr;

/// Size of an index entry in bytes: the function, and its unwinding.
const ENTRY: usize = 8;

/// Marks a function that is not unwound.
const CANNOT_UNWIND: u32 = 1;

/// Marks a word that does not point to a table or a personality routine.
const COMPACT: u32 = 1 << 31;

/// Maximum number of descriptors read for one function.
const MAX_DESCRIPTORS: usize = 4096;

/// Reads the index at `address`: the functions with landing pads. `memory` returns the bytes from an address on, and
/// code ends at `end`.
pub(super) fn read<'m>(
    index: &[u8],
    address: u64,
    end: u64,
    memory: impl Fn(u64) -> &'m [u8],
) -> Vec<Extent> {
    let places = (address..).step_by(ENTRY);
    let mut entries: Vec<(u64, u32, u64)> = places
        .zip(index.chunks_exact(ENTRY))
        .map(|(place, entry)| {
            let (function, content) = (number(&entry[..4]) as u32, number(&entry[4..]) as u32);
            (relative(place, function), content, place + 4)
        })
        .collect();
    entries.sort_unstable();
    let ends: Vec<u64> = entries.iter().skip(1).map(|&(start, ..)| start).chain([end]).collect();
    let mut extents = Vec::new();
    for (&(start, content, place), &end) in entries.iter().zip(&ends) {
        // A function whose unwinding fits into the index has no landing pads.
        if content == CANNOT_UNWIND || content & COMPACT != 0 {
            continue;
        }
        let table = relative(place, content);
        let Some(first) = u32_at(memory(table), 0) else { continue };
        let (handlers, personality) = match first & COMPACT {
            0 => {
                // The routine's own data follows the unwinding words.
                let Some(words) = u32_at(memory(table), 4).map(|word| word >> 24) else { continue };
                let own = Handlers::Sites(Addr(table + 8 + 4 * u64::from(words)));
                (own, Some(Addr(relative(table, first))))
            }
            _ => {
                let words = if first >> 24 & 0xf == 0 { 0 } else { first >> 16 & 0xff };
                let at = Addr(table + 4 + 4 * u64::from(words));
                (Handlers::Descriptors { at, wide: first >> 24 & 0xf == 2 }, None)
            }
        };
        extents.push(Extent { start: Addr(start), end: Addr(end), handlers: Some(handlers), personality });
    }
    extents
}

/// Returns the landing pads in the list of descriptors at `at`; `wide` ones have 32-bit scopes.
pub(super) fn described_pads(list: &[u8], at: Addr, wide: bool) -> Vec<Addr> {
    let mut pads = Vec::new();
    let mut place = 0;
    for _ in 0..MAX_DESCRIPTORS {
        let scope = if wide { (u32_at(list, place), u32_at(list, place + 4)) } else { halves(list, place) };
        let (Some(length), Some(start)) = scope else { break };
        // Bit 0 of both is the kind; no scope is empty.
        if length == 0 {
            break;
        }
        place += if wide { 8 } else { 4 };
        let mut pad = |place: usize| {
            let distance = u32_at(list, place)?;
            pads.push(Addr(relative(at.plus(place as u64).0, distance) & !1));
            Some(())
        };
        let size = match (length & 1, start & 1) {
            // A cleanup.
            (0, 0) => pad(place).map(|()| 4),
            // A handler and the type that it catches.
            (1, 0) => pad(place).map(|()| 8),
            // The permitted exceptions of a function, and a handler for others.
            (0, _) => u32_at(list, place).and_then(|count| {
                let types = 4 * (count & !COMPACT) as usize;
                if count & COMPACT == 0 {
                    Some(4 + types)
                } else {
                    pad(place + 4 + types).map(|()| 8 + types)
                }
            }),
            _ => None,
        };
        let Some(size) = size else { break };
        place += size;
    }
    pads
}

/// Returns the target of a 31-bit distance at `place`.
fn relative(place: u64, distance: u32) -> u64 {
    let distance = ((distance << 1) as i32) >> 1;
    place.wrapping_add_signed(distance.into()) & 0xffff_ffff
}

fn halves(bytes: &[u8], at: usize) -> (Option<u32>, Option<u32>) {
    let word = u32_at(bytes, at);
    (word.map(|word| word & 0xffff), word.map(|word| word >> 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns words as bytes.
    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns a 31-bit distance.
    fn distance(from: u64, to: u64) -> u32 {
        (to.wrapping_sub(from) as u32) & !COMPACT
    }

    #[test]
    fn entries_with_tables() {
        // A function of the generic model, whose unwinding takes one word more; one of the compact model; others.
        let table = [
            distance(0x2000, 0x905),
            0x01_b0_b0_b0,
            0,
            0xffff_ffff,
            0x81_01_00_b0,
            0xb0b0_b0b0,
            0x0010_0008,
            distance(0x201c, 0x1148),
            0,
        ];
        let table = bytes(&table);
        let index = [
            (0x1000, distance(0x1804, 0x2000)),
            (0x1040, CANNOT_UNWIND),
            (0x1080, 0x80b0_b0b0),
            (0x1100, distance(0x181c, 0x2010)),
        ];
        let words = (0x1800..)
            .step_by(ENTRY)
            .zip(index)
            .flat_map(|(at, (function, content))| [distance(at, function), content]);
        let index = bytes(&words.collect::<Vec<_>>());
        let memory = |address: u64| table.get(address.wrapping_sub(0x2000) as usize..).unwrap_or(&[]);
        let extents = read(&index, 0x1800, 0x1200, memory);
        let [generic, compact] = &extents[..] else { panic!("{extents:?}") };
        assert_eq!((generic.start, generic.end), (Addr(0x1000), Addr(0x1040)));
        assert_eq!(generic.personality, Some(Addr(0x905)));
        assert_eq!(generic.handlers, Some(Handlers::Sites(Addr(0x200c))));
        assert_eq!((compact.start, compact.end), (Addr(0x1100), Addr(0x1200)));
        let list = Addr(0x2018);
        assert_eq!(compact.handlers, Some(Handlers::Descriptors { at: list, wide: false }));
        assert_eq!(described_pads(memory(list.0), list, false), [Addr(0x1148)]);
        for length in 0..table.len() {
            read(&index, 0x1800, 0x1200, |address| {
                table[..length].get(address.wrapping_sub(0x2000) as usize..).unwrap_or(&[])
            });
        }
    }

    #[test]
    fn descriptors_of_every_kind() {
        let at = Addr(0x2000);
        let list = [
            (8, 0x10, vec![distance(0x2008, 0x1100)]),
            (9, 0x10, vec![distance(0x2014, 0x1201), 0xffff_ffff]),
            (8, 0x11, vec![COMPACT | 1, 7, distance(0x202c, 0x1300)]),
            (8, 0x11, vec![0]),
        ];
        let words: Vec<u32> =
            list.into_iter().flat_map(|(length, start, rest)| [vec![length, start], rest].concat()).collect();
        let pads = described_pads(&bytes(&[words, vec![0, 0]].concat()), at, true);
        assert_eq!(pads, [Addr(0x1100), Addr(0x1200), Addr(0x1300)]);
    }
}
