//! Code that pointers in data and the unwind tables lead to.

use super::entry::Taken;
use super::reachable::{Activity, Code};
use super::run::ExitId;
use crate::image::{Addr, Extent, caught_types, landing_pads};
use kisa::Addressing;

impl Code<'_> {
    /// Treats words of data in loaded objects that point to code as pointers to functions, except for jump tables and
    /// words that point into the middle of a function. Returns whether any is new.
    pub(super) fn take_pointers(&mut self) -> bool {
        let image = self.image;
        let computes_distances = self.isa.addressing() == Addressing::Literals;
        let before = self.work.len();
        for (index, loaded) in image.objects.iter().enumerate() {
            if self.active[index] != Activity::Loaded {
                continue;
            }
            self.active[index] = Activity::Counts;
            // Position-independent code with literals refers to slots by distances from the table, which it may compute
            // anywhere.
            let slots = if computes_distances { &loaded.slots[..] } else { &[] };
            for &(word, target) in loaded.code_pointers.iter().chain(slots) {
                self.take_pointer(word, target);
            }
        }
        self.work.len() > before
    }

    /// Treats a word of data as a pointer to a function, unless it is in a jump table. A pointer into the middle of a
    /// function may belong to a jump table that is not yet known.
    pub(super) fn take_pointer(&mut self, word: Addr, target: Addr) {
        let middle = self.image.extent_around(target).is_some_and(|extent| extent.start != target);
        let function = !middle || self.image.is_function(target);
        if !function && !self.is_blind() {
            return self.inner.push((word, target));
        }
        if self.image.machine.target().has_unwind_index {
            if !self.is_likely_pointer(word, target) {
                return;
            }
            let is_aligned = word.0 % u64::from(self.image.machine.word_size()) == 0;
            if !is_aligned && self.image.is_fixed(word) {
                return self.inner.push((word, target));
            }
        }
        if function && !self.claimed.contains(&word) {
            self.take(target, Taken::Data(word));
        }
    }

    /// Returns whether a word of ARM data may be a pointer to a function. The extents of functions are unknown, so that
    /// numbers look like pointers. A relocated address of Thumb code always counts. Any other word needs a function at
    /// its target; the code around the target does not matter, because it may be constants that were decoded as code.
    fn is_likely_pointer(&self, word: Addr, target: Addr) -> bool {
        let is_relocated = !self.image.is_fixed(word) && target.0 & 1 != 0;
        self.image.is_function(target) || is_relocated || self.begins_sensibly(target)
    }

    /// Returns the same for unaligned words, after all other code is known. Most of these are ends of strings and parts
    /// of numbers. They count if they lead to a called function or to a place without known code.
    fn is_likely_inner_pointer(&self, target: Addr) -> bool {
        let is_text = |byte: u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        match self.length(target) {
            Some(_) => self.entry(target).is_some(),
            None if (target.0 as u32).to_le_bytes()[..3].iter().all(|&byte| is_text(byte)) => false,
            None => self.is_instruction(target) && !self.is_fallen_into(target),
        }
    }

    /// Treats words of data that point into the middle of live functions as entries, if nothing else reaches that code
    /// although all jump tables are known. Such entries are labels that are jumped to by address, and the places at
    /// which the program or the kernel lets a signal handler return. On ARM, adds unaligned words; on AArch64,
    /// addresses that code assembles. Returns whether any is new.
    pub fn take_inner_pointers(&mut self) -> bool {
        let before = self.work.len();
        let mut inner = std::mem::take(&mut self.inner);
        inner.retain(|&(word, target)| {
            if self.image.machine.target().has_unwind_index {
                if self.is_likely_inner_pointer(target) {
                    self.take(target, Taken::Data(word));
                }
                return false;
            }
            if self.claimed.contains(&word) || self.length(target).is_some() {
                return false;
            }
            let extent = self.image.extent_around(target);
            let runs = extent.is_some_and(|extent| self.marks.any(extent.start, extent.end));
            if runs && self.is_instruction(target) {
                self.take(target, Taken::Data(word));
            }
            !runs
        });
        self.inner = inner;
        for (target, at) in std::mem::take(&mut self.made_inner) {
            if self.length(target).is_none() && self.decode(target).is_some() {
                self.take(target, Taken::Code(at));
            }
        }
        self.work.len() > before
    }

    /// Adds the landing pads of the reachable functions. Returns whether any is new.
    pub fn take_landing_pads(&mut self) -> bool {
        let image = self.image;
        let before = self.work.len();
        for extent in image.extents_with_pads() {
            let runs = self.marks.any(extent.start, extent.end);
            if runs && self.landed.insert(extent.start) {
                let pads = landing_pads(image, extent).into_iter();
                let pads = pads.flat_map(|pad| self.in_encoding_of(extent, pad)).flatten();
                let pads: Vec<Addr> = pads.chain(extent.personality).collect();
                for pad in pads.into_iter().filter(|&pad| image.is_code(pad)) {
                    self.take(pad, Taken::Unwinder);
                }
                for address in caught_types(image, extent).into_iter().chain(extent.personality) {
                    self.open(address);
                }
            }
        }
        self.work.len() > before
    }

    /// Returns the address of a landing pad of a reachable function. On ARM, the unwinder enters it in the function's
    /// instruction set, which addresses in its tables do not show.
    fn in_encoding_of(&self, extent: Extent, pad: Addr) -> [Option<Addr>; 2] {
        if !self.image.machine.target().has_encoding_bit {
            return [Some(pad), None];
        }
        let runs = |bit: u64| {
            let mut places = (extent.start.0..extent.end.0).step_by(2).map(|at| Addr(at | bit));
            places.any(|at| self.length(at).is_some())
        };
        [runs(0).then_some(pad), runs(1).then_some(pad.plus(1))]
    }

    /// Returns whether control falls through to an instruction from the preceding one. Compilers emit no functions that
    /// begin there.
    fn is_fallen_into(&self, target: Addr) -> bool {
        [2, 4].into_iter().any(|length| {
            let before = Addr(target.0.wrapping_sub(length));
            let goes_on = |exit: ExitId| self.exit(exit).successors.contains(&target);
            self.length(before) == Some(length) && self.exit_at(before).is_none_or(goes_on)
        })
    }
}
