//! Finding addresses that no relocation describes.

use std::ops::Range;

use super::{Linker, next_word};
use crate::address::Addr;
use crate::image::bytes::number;
use crate::image::object::Object;
use crate::image::process::{Member, MemberIndex};
use crate::image::ranges::contains;
use crate::image::segment::bytes_in;

impl Linker<'_> {
    /// Finds the words of a program at a fixed address that hold code addresses without a relocation.
    pub(super) fn scan(&mut self, index: MemberIndex, member: &Member) {
        let word = self.word();
        let object = &member.object;
        let mut found = Vec::new();
        let mut data = Vec::new();
        for range in &object.data {
            self.scan_unaligned(object, range, &mut found);
            let start = next_word(range.start, word.into());
            let words = bytes_in(&self.segments, &(start..range.end)).chunks_exact(word.into()).map(number);
            for (place, target) in words.enumerate().map(|(i, n)| (start + i as u64 * u64::from(word), n)) {
                let protected = contains(&object.relro, place, word.into());
                let is_slot = contains(&object.got, place, 1);
                // A slot of 0 belongs to an undefined weak symbol.
                if object.is_loaded(target) && (protected || is_slot) || target == 0 && is_slot {
                    self.filled.insert(Addr(place));
                }
                if object.is_code(target) {
                    found.push((Addr(place), Addr(target)));
                } else if object.is_loaded(target) {
                    self.pointed_to.push(Addr(target));
                    data.push((Addr(place), Addr(target)));
                }
            }
        }
        let (slots, pointers): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(place, _)| contains(&object.got, place.0, 1));
        self.found[index.get()].slots.extend(slots);
        self.found[index.get()].pointers.extend(pointers);
        self.found[index.get()].data.extend(data);
    }

    /// Finds unaligned words with code addresses, as in packed structures. Since many numbers look like such a word,
    /// only the addresses of functions count.
    fn scan_unaligned(&self, object: &Object, range: &Range<u64>, found: &mut Vec<(Addr, Addr)>) {
        let word = u64::from(self.word());
        let bytes = bytes_in(&self.segments, range);
        let begins = |target: u64| match object.extents.around(Addr(target)) {
            Some(extent) => extent.start == Addr(target),
            // Parts of numbers resemble addresses of ARM code more often than those of Thumb code, which are odd.
            None => word == 8 || object.machine.target().has_encoding_bit && target & 1 != 0,
        };
        for (place, bytes) in (range.start..).zip(bytes.windows(word as usize)) {
            let target = number(bytes);
            let is_code = place % word != 0 && object.is_code(target);
            if is_code && (object.symbols.is_function(Addr(target)) || begins(target)) {
                found.push((Addr(place), Addr(target)));
            }
        }
    }
}
