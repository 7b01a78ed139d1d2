//! Page addresses that functions spill to their frames, and loads that may return them.

use indexmap::IndexSet;
use kisa::Reg;
use rustc_hash::FxBuildHasher;

use crate::image::Addr;

type FxIndexSet<T> = IndexSet<T, FxBuildHasher>;

/// The page addresses that a function spills, and its loads from the frame. All functions without an extent share one
/// entry.
#[derive(Default)]
pub(super) struct Spills {
    /// The page addresses that it stores.
    pub(super) pages: FxIndexSet<u64>,
    /// Its loads from the frame: the address of the next instruction, and the register.
    pub(super) loads: FxIndexSet<(Addr, Reg)>,
    /// For each load, the number of loads up to the last one, including itself, that is not known to be full.
    open: Vec<usize>,
}

impl Spills {
    pub(super) fn add_load(&mut self, next: Addr, dst: Reg) {
        if self.loads.insert((next, dst)) {
            self.open.push(self.loads.len());
        }
    }

    /// Returns the last of the first `count` loads that is not full, and its index. A full load remains full.
    pub(super) fn last_open(
        &mut self,
        count: usize,
        is_full: impl Fn(&(Addr, Reg)) -> bool,
    ) -> Option<(usize, (Addr, Reg))> {
        let mut found = count;
        while let Some(index) = found.checked_sub(1) {
            if self.open[index] < found {
                found = self.open[index];
            } else if is_full(&self.loads[index]) {
                self.open[index] = index;
            } else {
                break;
            }
        }
        // Shorten the path for the next search.
        let mut at = count;
        while at > found {
            at = std::mem::replace(&mut self.open[at - 1], found);
        }
        let index = found.checked_sub(1)?;
        Some((index, self.loads[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each page address reaches the loads that have received fewer than `room` of them.
    #[test]
    fn loads_get_pages_until_they_are_full() {
        let mut spills = Spills::default();
        let mut got = [0; 10];
        (0..10).for_each(|load| spills.add_load(Addr(load), Reg(0)));
        spills.add_load(Addr(3), Reg(0));
        assert_eq!(spills.loads.len(), 10);
        for (count, room, expected) in
            [(10, 1, 10), (10, 1, 0), (10, 2, 10), (4, 3, 4), (10, 3, 6), (10, 3, 0), (6, 4, 6), (0, 9, 0)]
        {
            // Only this test gives full loads more room later.
            spills.open = (1..=10).collect();
            let mut next = count;
            let mut delivered = 0;
            while let Some((index, (at, _))) = spills.last_open(next, |load| got[load.0.0 as usize] >= room) {
                assert!(index < next && at == Addr(index as u64));
                got[index] += 1;
                (next, delivered) = (index, delivered + 1);
            }
            assert_eq!(delivered, expected, "{count} loads, room for {room}");
        }
    }
}
