/*!
Addresses of functions with a number added.

A program can keep a tag in the low bits of a pointer to a function, as an integer: `(uintptr_t)f + 1`. The assembler
names that by its distance from the beginning of the section, as it does all local functions. Where `f` is no longer than
the tag, as a `ret` by itself, the place belongs to the function behind it, and looks as if that were meant. So a short
function in front of a place that is named stays as it is, and directly in front of it.
*/

use super::decode::CodeSection;

/// The largest number that is taken for a tag.
const MAX_TAG: u32 = 8;

/// Why such functions are carried whole.
const REASON: &str = "a function as short as a tag in its address";

impl CodeSection {
    /// Carries the functions whole of which the address with a tag may be a place that something names; they are tied to
    /// the function that the place lies in. Gives the entries that have to stay directly behind such a function.
    pub(super) fn tie_short_functions(&mut self) -> Vec<u32> {
        let mut places = std::mem::take(&mut self.named_by_distance);
        places.sort_unstable();
        places.dedup();
        let mut entries = Vec::new();
        for place in places {
            let Some(last) = self.span_containing(place) else { continue };
            let may_be_meant = |i: &usize| {
                let (span, behind) = (&self.spans[*i], &self.spans[*i + 1]);
                // Functions that are aligned have padding behind them, and tags that stay within that. An object that
                // was rewritten says which short functions were carried whole; others may be neighbours only since.
                span.end == behind.start
                    && place - span.start <= MAX_TAG
                    && (span.carried || !self.says_carried)
            };
            let count = (0..last).rev().take_while(may_be_meant).count();
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
