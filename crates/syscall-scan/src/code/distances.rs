//! Tables of distances to functions.
//!
//! To avoid relocations of a table of pointers, compilers can store the distance of each function from the table:
//! relative virtual tables of Clang, Swift's tables, hand-written tables. Code reads a distance, adds its base address,
//! and calls the sum. Once an object does that ([`sums`]), all words after the addresses of constants that it loads are
//! examined. A word that leads to the beginning of a function is treated as a pointer to that function; its base is the
//! beginning of the table, the word itself, or on i386 the global offset table. Entries have 32 bits.

pub(super) mod sums;

use std::collections::BTreeSet;

use kisa::{Effect, Value};

use self::sums::{ENTRY, Sums, place};
use super::entry::Taken;
use super::reachable::Code;
use super::run::{ExitId, ExitKind};
use crate::image::{Addr, Loaded};

/// Maximum size of a table in bytes.
const MAX_TABLE: u64 = 0x1_0000;

impl Code<'_> {
    /// Returns the registers that hold sums after an exit.
    pub(super) fn sums_behind(&self, exit: Option<ExitId>) -> Sums {
        exit.and_then(|exit| self.distances.sums.get(&exit)).copied().unwrap_or_default()
    }

    /// Records the sums in registers when control leaves a run through an instruction with these effects.
    pub(super) fn leave_with_sums(&mut self, exit: ExitId, effects: &[Effect], mut sums: Sums) {
        if sums.is_empty() {
            return;
        }
        let through = match Effect::target(effects) {
            Some(Value::Reg { reg, .. }) => sums.has(reg),
            Some(Value::Load { from, .. }) => sums.stored.is_some() && sums.stored == place(&from),
            _ => false,
        };
        match self.exit(exit).kind {
            ExitKind::IndirectCall if through => self.note_call_of_sum(exit),
            ExitKind::IndirectJump if through => drop(self.distances.jumps.insert(exit)),
            _ => {}
        }
        if matches!(self.exit(exit).kind, ExitKind::Call(_) | ExitKind::IndirectCall) {
            sums.forget(self.isa.convention().call_clobbered);
        }
        if !sums.is_empty() {
            self.distances.sums.insert(exit, sums);
        }
    }

    fn note_call_of_sum(&mut self, exit: ExitId) {
        self.distances.callers.extend(self.image.object_index(self.exit(exit).at));
    }

    /// Records the address of a constant that code loads.
    pub(super) fn note_base(&mut self, address: Addr) {
        if self.image.constant(address, ENTRY).is_some() && !self.image.is_code(address) {
            self.distances.bases.insert(address);
        }
    }

    /// Adds the functions that tables of distances lead to. A computed jump that leaves its function is a call, except
    /// on 32-bit machines, where hand-written code jumps in this way within functions. Returns whether any function is
    /// new.
    pub(crate) fn take_distances(&mut self, leaving: impl Iterator<Item = ExitId>) -> bool {
        for jump in leaving {
            if self.image.machine.is_64() && self.distances.jumps.contains(&jump) {
                self.note_call_of_sum(jump);
            }
        }
        let before = self.work.len();
        let image = self.image;
        for index in self.distances.callers.clone() {
            let loaded = &image.objects[index.get()];
            let pointed_to = loaded.data_pointers.iter().map(|&(_, target)| target);
            let bases = self.distances.bases.iter().copied().chain(pointed_to);
            let own = |&base: &Addr| image.object_index(base) == Some(index);
            let known = &mut self.distances.looked_at;
            let new: BTreeSet<Addr> = bases.filter(own).filter(|&base| known.insert(base)).collect();
            for base in new {
                self.take_table(loaded, base);
            }
        }
        self.work.len() > before
    }

    /// Adds the functions that the words after an address lead to.
    fn take_table(&mut self, loaded: &Loaded, base: Addr) {
        let image = self.image;
        let end = image.variable(base).end.min(base.0.saturating_add(MAX_TABLE));
        let got = loaded.global_offset_table().filter(|_| image.machine.target().has_got_register);
        // Without known beginnings of functions, the first word that leads to no code ends the table.
        let mut is_unbroken = loaded.object.extents.iter().next().is_none();
        let entries = image.bytes_in(&(base.0..end)).chunks_exact(ENTRY.into());
        // The unwind table leads to all functions.
        let is_unwinding = |word: Addr| loaded.object.extents.is_in_table(loaded.own(word));
        for (word, entry) in (base.0..).step_by(ENTRY.into()).map(Addr).zip(entries) {
            let distance = entry.try_into().map_or(0, i32::from_le_bytes) as u64;
            let target = |from: Addr| Addr(image.wrap(from.0.wrapping_add(distance)));
            is_unbroken &= image.is_code(target(base));
            for from in [Some(base), Some(word), got].into_iter().flatten() {
                let target = target(from);
                if distance == 0 || !image.is_code(target) {
                    continue;
                }
                let is_entry = image.constant(word, ENTRY).is_some() && !is_unwinding(word);
                let is_own = image.object_at(target).is_some_and(|own| own.base == loaded.base);
                let begins = image.is_function(target)
                    || loaded.is_linkage(target)
                    || image.extent_around(target).is_some_and(|extent| extent.start == target)
                    || is_unbroken && from == base && self.is_instruction(target);
                if is_entry && is_own && begins && self.distances.taken.insert((word, target)) {
                    self.take(target, Taken::Data(word));
                }
            }
        }
    }
}
