/*!
Addresses of functions with a number added.

A program can keep a tag in the low bits of a pointer to a function, as an integer: `(uintptr_t)f + 1`. For a local
function, the relocation is against the symbol of the section, with the offset of `f + 1` as its addend. If `f` is no
longer than the tag (a single `ret`), that place lies in the function behind `f`, and the relocation looks like one to
that function. So a short function in front of a place with such a reference is opaque, and what is there is glued to it.
*/

use super::decode::CodeSection;

/// The largest tag that is looked for.
const MAX_TAG: u32 = 8;

/// Why such functions are carried whole.
const REASON: &str = "a function as short as a tag in its address";

impl CodeSection {
    /// Makes the functions opaque whose address plus a tag may be a place that is referred to by offset. Returns the
    /// entries of functions that have to be glued to such a function in front of them.
    pub(super) fn merge_short_functions(&mut self) -> Vec<u32> {
        let mut places = std::mem::take(&mut self.referred_by_offset);
        places.sort_unstable();
        places.dedup();
        let mut entries = Vec::new();
        for place in places {
            let Some(last) = self.span_containing(place) else { continue };
            let may_have_tag = |i: &usize| {
                let (span, behind) = (&self.spans[*i], &self.spans[*i + 1]);
                // If functions are aligned, an address with a tag lies in the padding behind its function. An object
                // that was rewritten lists the short functions that were carried whole; others may have become
                // neighbours by the rewriting.
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
                self.merge(last - count, last, REASON);
            }
        }
        entries
    }
}
