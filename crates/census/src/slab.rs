//! The slab allocator (SLUB): its caches, and how many objects each has.
//!
//! `/proc/slabinfo` counts objects as used that are free in a slab of a processor; [`Cache::active`] does so too,
//! [`Cache::used`] does not. The sources are `get_slabinfo` and `count_partial` in `mm/slub.c`.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::layout::Field;
use crate::memory::PAGE;
use crate::running::{Frames, Running};

/// Maximum number of caches.
const MAX_CACHES: u64 = 1 << 16;

/// Maximum length of the name of a cache, in bytes.
const MAX_NAME: u64 = 256;

/// A slab cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// The address of its `struct kmem_cache`.
    pub address: u64,
    /// Its name.
    pub name: String,
    /// The size of an object in bytes, with padding.
    pub size: u64,
    /// The size of an object in bytes, as it was asked for.
    pub object_size: u64,
    /// Number of caches that were merged into it.
    pub merged: u64,
    /// The variables that point to it.
    pub variables: Vec<String>,
    /// Number of its pages.
    pub pages: u64,
    /// Number of its objects, used and free.
    pub objects: u64,
    /// Number of its objects that are allocated.
    pub used: u64,
    /// Number of its objects that `/proc/slabinfo` counts as active.
    pub active: u64,
}

/// A slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The address of its `struct slab`.
    pub address: u64,
    /// The number of its first page frame.
    pub frame: u64,
    /// Number of its objects.
    pub objects: u64,
    /// Its cache, as an index into [`Caches::caches`].
    pub cache: usize,
}

/// The slab caches of a kernel.
#[derive(Debug)]
pub struct Caches {
    /// The caches, in the order of the kernel's list.
    pub caches: Vec<Cache>,
    /// Number of pages of slabs whose cache is not in the list.
    pub unlisted: u64,
    /// The slabs.
    pub slabs: Vec<Slab>,
    indices: FxHashMap<u64, usize>,
    slab_cache: Field,
    inuse: Field,
    objects: Field,
}

impl Caches {
    /// Reads the list of caches.
    ///
    /// # Errors
    /// If the core contradicts itself or lacks a part.
    pub fn read(running: &mut Running<'_>) -> Result<Caches> {
        let layouts = running.layouts;
        let list = layouts.field("kmem_cache", "list")?;
        let head = running.symbol("slab_caches")?;
        let members = running.memory.list(head, MAX_CACHES, "the list slab_caches")?;
        let mut caches = Caches {
            caches: Vec::new(),
            unlisted: 0,
            slabs: Vec::new(),
            indices: FxHashMap::default(),
            slab_cache: layouts.field("slab", "slab_cache")?,
            inuse: layouts.field("slab", "inuse")?,
            objects: layouts.field("slab", "objects")?,
        };
        for member in members {
            let address = member.wrapping_sub(list.offset);
            let place = format!("the slab cache at {address:#x}");
            let name = running.member(address, "kmem_cache", "name")?;
            let cache = Cache {
                address,
                name: running.memory.text(name, MAX_NAME, &place)?,
                size: running.member(address, "kmem_cache", "size")?,
                object_size: running.member(address, "kmem_cache", "object_size")?,
                // Caches for which merging is forbidden have a negative number.
                merged: match running.member(address, "kmem_cache", "refcount")? as i32 {
                    references @ 1.. => references as u64 - 1,
                    _ => 0,
                },
                ..Cache::default()
            };
            if cache.object_size == 0 || cache.size < cache.object_size {
                let problem = format!("objects of {} bytes take {}", cache.object_size, cache.size);
                return Err(running.memory.damaged(&place, problem, "at least their size"));
            }
            caches.indices.insert(address, caches.caches.len());
            caches.caches.push(cache);
        }
        Ok(caches)
    }

    /// Adds the slab of `pages` pages from the page frame `frame` on. Its `struct slab` is at `slab`.
    ///
    /// # Errors
    /// If its counts are impossible.
    pub fn add(&mut self, running: &mut Running<'_>, slab: u64, frame: u64, pages: u64) -> Result<()> {
        let cache = running.memory.field(slab, self.slab_cache)?;
        let Some(&index) = self.indices.get(&cache) else {
            self.unlisted += pages;
            return Ok(());
        };
        let (objects, used) =
            (running.memory.field(slab, self.objects)?, running.memory.field(slab, self.inuse)?);
        let cache = &mut self.caches[index];
        if used > objects || objects == 0 || objects * cache.size > pages * PAGE {
            let place = format!("the slab at {slab:#x} of the cache {}", cache.name);
            let problem =
                format!("{used} of {objects} objects of {} bytes on {pages} pages are used", cache.size);
            return Err(running.memory.damaged(&place, problem, "objects that fit into the slab"));
        }
        cache.pages += pages;
        cache.objects += objects;
        cache.used += used;
        self.slabs.push(Slab { address: slab, frame, objects, cache: index });
        Ok(())
    }

    /// Completes the counts of objects, after all slabs were added, and finds the variables that point to caches.
    ///
    /// # Errors
    /// If the core contradicts itself or lacks a part.
    pub fn finish(&mut self, running: &mut Running<'_>, frames: &Frames) -> Result<()> {
        for cache in &mut self.caches {
            cache.active = cache.objects.saturating_sub(free_in_partial(running, frames, cache)?);
            let kept = free_of_processors(running, cache)? + free_in_sheaves(running, frames, cache)?;
            cache.used = cache.used.saturating_sub(kept);
        }
        let mut seen = FxHashSet::default();
        for variable in running.kernel.variables.iter().filter(|variable| variable.size == 4) {
            let (name, address) =
                (&variable.name, variable.address.wrapping_add(running.slide) & 0xffff_ffff);
            let Some(&index) = self.indices.get(&running.memory.word(address).unwrap_or(0)) else { continue };
            if running.is_kept(frames, address)? && seen.insert(name) {
                self.caches[index].variables.push(name.clone());
            }
        }
        self.caches.iter_mut().for_each(|cache| cache.variables.sort_unstable());
        Ok(())
    }
}

/// The parts of a cache for one memory node, by address; 0 if the node has none.
#[derive(Clone, Copy)]
struct Node {
    /// The `struct kmem_cache_node`.
    lists: u64,
    /// The `struct node_barn`, since Linux 6.18.
    barn: u64,
}

/// Returns the parts of a cache for each memory node.
fn nodes(running: &mut Running<'_>, cache: &Cache) -> Result<Vec<Node>> {
    let layouts = running.layouts;
    let mut nodes = Vec::new();
    if let Some(field) = layouts.optional_field("kmem_cache", "per_node") {
        for number in 0..field.count {
            let size = layouts.size("kmem_cache_per_node_ptrs")?;
            let pointers = cache.address.wrapping_add(field.offset + number * size);
            nodes.push(Node {
                lists: running.member(pointers, "kmem_cache_per_node_ptrs", "node")?,
                barn: running.member(pointers, "kmem_cache_per_node_ptrs", "barn")?,
            });
        }
        return Ok(nodes);
    }
    let field = layouts.field("kmem_cache", "node")?;
    for number in 0..field.count {
        let lists = running.memory.word(cache.address.wrapping_add(field.offset + number * 4))?;
        nodes.push(Node { lists, barn: 0 });
    }
    Ok(nodes)
}

/// Returns the number of free objects in the slabs on a cache's lists of partly used slabs.
fn free_in_partial(running: &mut Running<'_>, frames: &Frames, cache: &Cache) -> Result<u64> {
    let layouts = running.layouts;
    let partial = layouts.field("kmem_cache_node", "partial")?;
    let link = layouts.field("slab", "slab_list")?;
    let (inuse, objects) = (layouts.field("slab", "inuse")?, layouts.field("slab", "objects")?);
    let mut free = 0u64;
    for node in nodes(running, cache)?.into_iter().filter(|node| node.lists != 0) {
        let place = format!("the partly used slabs of the cache {}", cache.name);
        for member in running.memory.list(node.lists.wrapping_add(partial.offset), frames.count, &place)? {
            let slab = member.wrapping_sub(link.offset);
            let all = running.memory.field(slab, objects)?;
            free += all.saturating_sub(running.memory.field(slab, inuse)?);
        }
    }
    Ok(free)
}

/// Returns the number of free objects in the arrays (sheaves) that processors and nodes keep since Linux 6.18. Their slabs
/// count them as used. Objects that wait for readers (`kfree_rcu`) still are in use.
fn free_in_sheaves(running: &mut Running<'_>, frames: &Frames, cache: &Cache) -> Result<u64> {
    let Some(processors) = running.layouts.optional_field("kmem_cache", "cpu_sheaves") else { return Ok(0) };
    let pointer = running.memory.field(cache.address, processors)?;
    let mut free = 0u64;
    for processor in if pointer == 0 { Vec::new() } else { running.per_cpu(pointer)? } {
        for member in ["main", "spare"] {
            let sheaf = running.member(processor, "slub_percpu_sheaves", member)?;
            if sheaf != 0 {
                free += running.member(sheaf, "slab_sheaf", "size")?;
            }
        }
    }
    let capacity = running.member(cache.address, "kmem_cache", "sheaf_capacity")?;
    let full = running.layouts.field("node_barn", "sheaves_full")?;
    for node in nodes(running, cache)?.into_iter().filter(|node| node.barn != 0) {
        let place = format!("the full sheaves of the cache {}", cache.name);
        let sheaves = running.memory.list(node.barn.wrapping_add(full.offset), frames.count, &place)?;
        free += sheaves.len() as u64 * capacity;
    }
    Ok(free)
}

impl Cache {
    /// Returns the addresses of the free objects on the list of a slab.
    ///
    /// # Errors
    /// If the list is longer than the slab.
    pub fn free_objects(&self, running: &mut Running<'_>, slab: &Slab) -> Result<Vec<u64>> {
        let first = running.member(slab.address, "slab", "freelist")?;
        self.free_list(running, first, slab.objects)
    }

    /// Returns the addresses of the objects on a list of free objects, at most `limit`.
    fn free_list(&self, running: &mut Running<'_>, first: u64, limit: u64) -> Result<Vec<u64>> {
        let offset = running.member(self.address, "kmem_cache", "offset")?;
        // The pointers are disguised with CONFIG_SLAB_FREELIST_HARDENED (`freelist_ptr_decode` in `mm/slub.c`).
        let secret = match running.layouts.optional_field("kmem_cache", "random") {
            Some(field) => Some(running.memory.field(self.address, field)?),
            None => None,
        };
        let mut objects = Vec::new();
        let mut object = first;
        while object != 0 {
            if objects.len() as u64 == limit {
                let place = format!("the free objects of the cache {}", self.name);
                return Err(running.memory.damaged(
                    &place,
                    format!("more than {limit}"),
                    "as many as the slab has",
                ));
            }
            objects.push(object);
            let at = object.wrapping_add(offset) & 0xffff_ffff;
            object = running.memory.word(at)?;
            if let Some(secret) = secret {
                object ^= secret ^ u64::from((at as u32).swap_bytes());
            }
        }
        Ok(objects)
    }
}

/// Returns the number of free objects in the slabs from which processors allocate. Such a slab counts all of its objects
/// as used.
fn free_of_processors(running: &mut Running<'_>, cache: &Cache) -> Result<u64> {
    let Some(processors) = running.layouts.optional_field("kmem_cache", "cpu_slab") else { return Ok(0) };
    let pointer = running.memory.field(cache.address, processors)?;
    let mut free = 0;
    for processor in running.per_cpu(pointer)? {
        let slab = running.member(processor, "kmem_cache_cpu", "slab")?;
        let first = running.member(processor, "kmem_cache_cpu", "freelist")?;
        let limit = if slab == 0 { 0 } else { running.member(slab, "slab", "objects")? };
        free += cache.free_list(running, first, limit)?.len() as u64;
    }
    Ok(free)
}

#[cfg(test)]
mod tests;
