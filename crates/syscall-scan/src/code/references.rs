//! The instructions that refer to each variable.
//!
//! They are recorded during exploration, which decodes every instruction, and sorted on demand.

pub(super) mod recorder;

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use self::recorder::Reference;
use super::reachable::Code;
use crate::image::{Addr, Image};

impl Code<'_> {
    /// Returns the addresses in constant memory that the C library and its services refer to, in order of discovery.
    pub fn named_strings(&self) -> &[Addr] {
        &self.references.strings
    }
}

/// The instructions that refer to writable addresses, by address.
pub struct References {
    /// See [`Image::pointed_to`].
    pointed_to: Arc<[Addr]>,
    references: Vec<Reference>,
}

impl References {
    /// Creates the references of all reachable code.
    pub fn new(code: &Code) -> References {
        let is_data = |reference: &Reference| code.image.is_writable(reference.to);
        let relative = code.references.distances.iter().filter_map(|&(distance, reference)| {
            let table = code.global_offset_table(reference.at)?;
            let to = code.image.wrap(table.0.wrapping_add_signed(distance));
            Some(Reference { to: Addr(to), ..reference })
        });
        let absolute = code
            .references
            .absolute
            .iter()
            .map(|&reference| Reference { to: Addr(code.image.wrap(reference.to.0)), ..reference });
        let mut references: Vec<Reference> = absolute.chain(relative).filter(is_data).collect();
        references.par_sort_unstable();
        references.dedup();
        References { pointed_to: Arc::clone(&code.image.pointed_to), references }
    }

    /// Returns the instructions that refer to exactly this address.
    pub fn to(&self, address: Addr) -> &[Reference] {
        self.within(address.0..address.0.saturating_add(1))
    }

    /// Returns whether the `width` bytes at an address are a separate variable, as far as code shows. Code refers to
    /// them only as a whole, and neither code nor data makes a pointer to them or to their variable. Their variable is
    /// known if symbols give sizes of variables; otherwise the bytes count as the whole variable.
    pub fn is_variable(&self, image: &Image, address: Addr, width: u8) -> bool {
        let named = !self.to(address).is_empty();
        let end = address.plus(width.into());
        let whole = image.known_variable(address).unwrap_or(address.0..end.0);
        let parts = self.within(address.0.saturating_add(1)..end.0);
        named
            && parts.is_empty()
            && self.pointed_to(whole.clone()).is_empty()
            && !self.within(whole).iter().any(|reference| reference.as_pointer)
    }

    /// Returns the instructions that refer to an address in a range.
    pub fn within(&self, range: Range<u64>) -> &[Reference] {
        let first = self.references.partition_point(|reference| reference.to.0 < range.start);
        let count = self.references[first..].partition_point(|reference| reference.to.0 < range.end);
        &self.references[first..first + count]
    }

    /// Returns the addresses in a range that words of data point to.
    pub fn pointed_to(&self, range: Range<u64>) -> &[Addr] {
        let first = self.pointed_to.partition_point(|address| address.0 < range.start);
        let count = self.pointed_to[first..].partition_point(|address| address.0 < range.end);
        &self.pointed_to[first..first + count]
    }
}
