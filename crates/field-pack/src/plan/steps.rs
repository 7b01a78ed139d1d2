//! The memory of slab caches as a function of a plan's changes, and the smallest set of changes that gives the same memory.
//!
//! A smaller object saves memory only if a slab then holds one more. Changes that do not take a structure below such a step
//! are dropped, those of the most used members first.

use rustc_hash::FxHashMap;

use super::layout::{Changes, Layout, Layouts};
use crate::allocator::Slab;
use crate::document::{Allocator, CacheProfile};

/// The caches whose objects can change, with the rules of the allocator.
pub struct Memory<'a> {
    /// The rules.
    pub allocator: Allocator,
    /// The caches.
    pub caches: Vec<&'a CacheProfile>,
}

impl Memory<'_> {
    /// Returns the slab of a cache with new layouts of structures.
    pub fn slab(&self, cache: &CacheProfile, layouts: &FxHashMap<&str, Layout>) -> Slab {
        let layout = cache.of.as_deref().and_then(|of| layouts.get(of));
        self.allocator.slab(cache, layout.map_or(cache.object_size, |layout| layout.size))
    }

    /// Returns the size of all slabs in bytes with new layouts of structures.
    pub fn bytes(&self, layouts: &FxHashMap<&str, Layout>) -> u64 {
        self.caches.iter().map(|cache| cache.bytes_with(self.slab(cache, layouts))).sum()
    }
}

/// A change of a member, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The structure.
    pub of: &'a str,
    /// The member.
    pub member: &'a str,
    /// Number of its loads and stores.
    pub cost: u64,
}

/// Takes back the changes without which the memory is the same. Returns the members of which it did so.
pub fn drop_useless<'a>(
    memory: &Memory<'_>,
    layouts: &Layouts<'a>,
    changes: &mut Changes<'a>,
    candidates: &mut Vec<Change<'a>>,
) -> Vec<Change<'a>> {
    let least = memory.bytes(&layouts.with(changes));
    candidates
        .sort_by(|one, other| (other.cost, one.of, one.member).cmp(&(one.cost, other.of, other.member)));
    let mut dropped = Vec::new();
    for change in &*candidates {
        let key = (change.of, change.member);
        let Some(width) = changes.widths.remove(&key) else { continue };
        if memory.bytes(&layouts.with(changes)) > least {
            changes.widths.insert(key, width);
        } else {
            dropped.push(*change);
        }
    }
    let mut ordered: Vec<&str> = changes.ordered.iter().copied().collect();
    ordered.sort_unstable();
    for of in ordered {
        changes.ordered.remove(of);
        if memory.bytes(&layouts.with(changes)) > least {
            changes.ordered.insert(of);
        }
    }
    dropped
}
