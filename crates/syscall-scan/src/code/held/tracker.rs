//! The numbers that registers may hold, by place.

use std::ops::Range;

use kisa::{Addressing, Reg};
use rustc_hash::FxHashMap;

use super::spills::Spills;
use crate::code::run::ExitId;
use crate::image::{Addr, Image};

/// A register and a number that it may hold.
pub(in crate::code) type Held = (Reg, u64);

/// Maximum number of tracked numbers per register. Compiled code has one or two; a pointer that a loop increments would
/// have unboundedly many.
pub(super) const MAX_NUMBERS: usize = 8;

/// The same on ARM for constants that are literals or immediates, each of which may become the address of a function.
pub(super) const MAX_CONSTANTS: usize = 64;

/// Numbers below this are dropped at the end of a run, unless they carry the tag [`SMALL`]: the first page is empty.
const LEAST_ADDRESS: u64 = 0x1000;

/// Tag bit of a number below [`LEAST_ADDRESS`], above the 32 bits of ARM numbers: keep it across runs. It comes from a
/// literal pool or from two halves, like distances that later become addresses.
const SMALL: u64 = 1 << 32;

/// The numbers that registers may hold at each place.
pub(in crate::code) struct Tracker {
    /// The range of numbers that are tracked from run to run, because they may become addresses.
    pub(super) addresses: Range<u64>,
    /// The numbers that arrive on edges from other runs, by start of a run.
    pub(super) starts: FxHashMap<Addr, Vec<Held>>,
    /// The numbers after each exit, by exit.
    pub(super) exits: FxHashMap<ExitId, Vec<Held>>,
    /// The spilled page addresses, by function.
    pub(super) spills: FxHashMap<Addr, Spills>,
}

impl Tracker {
    /// Creates a tracker for a machine that needs it.
    pub(in crate::code) fn new(image: &Image) -> Option<Tracker> {
        let (start, end) = image.memory();
        // Position-independent code reads distances from its pools, which may be any number. The C library in a
        // static program at a fixed address may be such code.
        let addresses = match kisa::isa(image.machine).addressing() {
            Addressing::Whole => return None,
            Addressing::Pages => start & !0xfff..end,
            Addressing::Literals => LEAST_ADDRESS..u64::MAX,
        };
        Some(Tracker {
            addresses,
            starts: FxHashMap::default(),
            exits: FxHashMap::default(),
            spills: FxHashMap::default(),
        })
    }
}

/// Returns whether a register does not have this number yet, and has fewer than `most`.
pub(super) fn may_add(known: &[Held], held: Held, most: usize) -> bool {
    let mut count = 0;
    for known in known.iter().filter(|known| known.0 == held.0) {
        if known.1 == held.1 {
            return false;
        }
        count += 1;
    }
    count < most
}

/// Tags a small number to be kept across runs, see [`SMALL`].
pub(super) fn keep_across_runs(number: &mut u64) {
    if *number < LEAST_ADDRESS {
        *number |= SMALL;
    }
}

pub(super) fn numbers(holding: &[Held], reg: Reg) -> impl Iterator<Item = u64> {
    holding.iter().filter(move |held| held.0 == reg).map(|held| held.1)
}
