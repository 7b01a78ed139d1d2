//! Stores of page addresses to frames, and loads that may return them.

use kisa::Reg;

use super::tracker::{Held, MAX_NUMBERS, Tracker, may_add, numbers};
use crate::code::reachable::Code;
use crate::code::work::Work;
use crate::image::Addr;

impl Code<'_> {
    /// Stores a number in the frame. If it is the page part of an address, loads of the function may return it.
    pub(super) fn store_page(&mut self, at: Addr, number: u64) {
        if self.uses_literals() {
            return;
        }
        let function = self.image.extent_around(at).map_or(Addr(0), |extent| extent.start);
        let Some(tracker) = &mut self.tracker else { return };
        if number & 0xfff != 0 || !tracker.addresses.contains(&number) {
            return;
        }
        let spills = tracker.spills.entry(function).or_default();
        if spills.pages.insert(number) {
            self.work.push(Work::Reloads { function, page: number, loads: spills.loads.len() });
        }
    }

    /// Delivers a spilled page address to the last of the first `loads` loads of a function that is not full, and
    /// leaves the other loads for later.
    pub(in crate::code) fn reload(&mut self, function: Addr, page: u64, loads: usize) {
        let Some(Tracker { spills, starts, .. }) = &mut self.tracker else { return };
        let is_full = |&(next, dst): &(Addr, Reg)| {
            starts.get(&next).is_some_and(|known| numbers(known, dst).count() >= MAX_NUMBERS)
        };
        let load = spills.get_mut(&function).and_then(|spills| spills.last_open(loads, is_full));
        let Some((index, (next, dst))) = load else { return };
        self.work.push(Work::Reloads { function, page, loads: index });
        self.arrive_holding(next, vec![(dst, page)]);
    }

    /// Loads a word from the frame.
    pub(super) fn load_page(&mut self, (at, next): (Addr, Addr), dst: Reg, holding: &mut Vec<Held>) {
        if self.uses_literals() {
            return;
        }
        let function = self.image.extent_around(at).map_or(Addr(0), |extent| extent.start);
        let Some(tracker) = &mut self.tracker else { return };
        let spills = tracker.spills.entry(function).or_default();
        spills.add_load(next, dst);
        for &number in &spills.pages {
            if numbers(holding, dst).count() >= MAX_NUMBERS {
                break;
            }
            if may_add(holding, (dst, number), MAX_NUMBERS) {
                holding.push((dst, number));
            }
        }
    }
}
