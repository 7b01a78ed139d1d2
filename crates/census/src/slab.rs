//! The slab allocator (SLUB): its caches, and how many objects each has.
//!
//! `/proc/slabinfo` counts objects as used that are free in a slab of a processor; [`Cache::active`] does so too,
//! [`Cache::used`] does not. The sources are `get_slabinfo` and `count_partial` in `mm/slub.c`.

mod caches;
mod free;

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::running::{Frames, Running};

pub use caches::{Cache, Caches, Slab};

impl Caches {
    /// Completes the counts of objects, after all slabs were added, and finds the variables that point to caches.
    ///
    /// # Errors
    /// If the core contradicts itself or lacks a part.
    pub fn finish(&mut self, running: &mut Running<'_>, frames: &Frames) -> Result<()> {
        let mut seen = FxHashSet::default();
        for index in 0..self.caches.len() {
            let cache = &mut self.caches[index];
            let nodes = free::nodes(running, cache, &mut seen)?;
            let free = free::free_in_partial(running, frames, cache, &nodes)?;
            cache.active = cache.objects.saturating_sub(free);
            let kept = self.add_kept(running, frames, index, &nodes)?;
            let cache = &mut self.caches[index];
            cache.used = cache.used.saturating_sub(kept);
        }
        let mut seen = FxHashSet::default();
        let word = running.memory.word_size();
        for variable in running.kernel.variables.iter().filter(|variable| variable.size == word) {
            let (name, address) = (&variable.name, running.at(variable.address));
            let Some(value) = running.memory.try_word(address)? else { continue };
            let Some(&index) = self.indices.get(&value) else { continue };
            if running.is_kept(frames, address)? && seen.insert(name) {
                self.caches[index].variables.push(name.clone());
            }
        }
        self.caches.iter_mut().for_each(|cache| cache.variables.sort_unstable());
        for &index in &self.unnamed {
            let cache = &mut self.caches[index];
            if let Some(variable) = cache.variables.first() {
                cache.name.clone_from(variable);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
