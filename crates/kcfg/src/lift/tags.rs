/*!
Addresses of functions with a number added.

A program can keep a tag in the low bits of a pointer to a function, as an integer: `(uintptr_t)f + 1`. For a local
function, the relocation is against the symbol of the section, with the offset of `f + 1` as its addend. If `f` is not
longer than the tag (a single `ret`), that place is in the next function, and the relocation looks like a reference to
that one. A short function before a place with such a reference is therefore opaque, and the code at the place is glued
to it. A place in the middle of a function that has no table of labels may be any other function of the section plus a
larger number; all code of the section is then opaque.
*/

use super::decode::CodeSection;

/// The largest tag considered.
const MAX_TAG: u32 = 8;

/// The reason why such functions are opaque.
const REASON: &str = "a pointer to it with a tag may point past its end";

/// The reason why all code of a section is opaque.
const FAR: &str = "a pointer into the middle of a function may be another function's with a number added";

impl CodeSection {
    /// Makes functions opaque if their address plus a tag may be a place that is referenced by offset. Returns the
    /// entries of functions that must be glued to the previous, opaque function.
    pub(super) fn merge_short_functions(&mut self) -> Vec<u32> {
        let mut places = std::mem::take(&mut self.referred_by_offset);
        places.sort_unstable();
        places.dedup();
        self.leaders.sort_unstable();
        let mut entries = Vec::new();
        for place in places {
            let Some(last) = self.span_containing(place) else { continue };
            let may_have_tag = |i: &usize| {
                let (span, behind) = (&self.spans[*i], &self.spans[*i + 1]);
                // If functions are aligned, an address with a tag is in the padding after its function. A rewritten
                // object lists the short functions that were opaque; others may have become neighbours by the rewrite.
                span.end == behind.start
                    && place - span.start <= MAX_TAG
                    && (span.carried || !self.lists_carried)
            };
            let count = (0..last).rev().take_while(may_have_tag).count();
            if count == 0 {
                continue;
            }
            if self.spans[last].start == place {
                self.merge(last - count, last - 1, REASON);
                entries.push(place);
            } else {
                if !self.jumps_to_a_computed_place(&self.spans[last]) {
                    self.opaque.get_or_insert(FAR);
                }
                self.merge(last - count, last, REASON);
            }
        }
        entries
    }
}
