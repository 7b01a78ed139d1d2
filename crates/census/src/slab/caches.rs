//! The slab caches of a kernel, and their slabs.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::layout::Field;
use crate::memory::PAGE;
use crate::running::Running;

/// Maximum number of caches.
const MAX_CACHES: u64 = 1 << 16;

/// Maximum number of pages of a slab: SLUB takes no larger blocks than the page allocator has (`MAX_PAGE_ORDER`, at most
/// 11 on 32-bit ARM).
const MAX_SLAB: u64 = 1 << 11;

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
    /// Number of its pages.
    pub pages: u64,
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
    /// The slabs, by ascending page frame.
    pub slabs: Vec<Slab>,
    /// The caches whose names are not known yet, as indices: they are frozen data.
    pub(super) unnamed: Vec<usize>,
    pub(super) indices: FxHashMap<u64, usize>,
    /// The free objects that their slabs count as used: the address of the `struct slab`, and the object's number.
    pub(super) kept: FxHashSet<(u64, u64)>,
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
        let list = layouts.offset("kmem_cache", "list")?;
        let head = running.symbol("slab_caches")?;
        let members = running.memory.list(head, MAX_CACHES, "the list slab_caches")?;
        let mut caches = Caches {
            caches: Vec::new(),
            unlisted: 0,
            slabs: Vec::new(),
            unnamed: Vec::new(),
            indices: FxHashMap::default(),
            kept: FxHashSet::default(),
            slab_cache: layouts.field("slab", "slab_cache")?,
            inuse: layouts.field("slab", "inuse")?,
            objects: layouts.field("slab", "objects")?,
        };
        for member in members {
            let address = member.wrapping_sub(list);
            let place = format!("the slab cache at {address:#x}");
            let name = running.member(address, "kmem_cache", "name")?;
            let size = running.member(address, "kmem_cache", "size")?;
            let name = running.name(name, MAX_NAME, &place)?;
            if name.is_none() {
                caches.unnamed.push(caches.caches.len());
            }
            let cache = Cache {
                address,
                name: name.unwrap_or_else(|| format!("a cache at {address:#x}")),
                size,
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
        let fits = objects.checked_mul(cache.size).is_some_and(|bytes| bytes <= pages * PAGE);
        if used > objects || objects == 0 || pages > MAX_SLAB || !fits {
            let place = format!("the slab at {slab:#x} of the cache {}", cache.name);
            let problem =
                format!("{used} of {objects} objects of {} bytes on {pages} pages are used", cache.size);
            return Err(running.memory.damaged(&place, problem, "objects that fit into the slab"));
        }
        cache.pages += pages;
        cache.objects += objects;
        cache.used += used;
        self.slabs.push(Slab { address: slab, frame, pages, objects, cache: index });
        Ok(())
    }

    /// Returns the number of pages of all slabs.
    pub fn pages(&self) -> u64 {
        self.unlisted + self.caches.iter().map(|cache| cache.pages).sum::<u64>()
    }
}
