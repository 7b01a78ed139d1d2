//! The free objects of slab caches: on the lists of slabs, and kept by processors and memory nodes.

use rustc_hash::FxHashSet;

use super::caches::{Cache, Caches, Slab};
use crate::error::Result;
use crate::memory::PAGE;
use crate::running::{Frames, Running};

/// The parts of a cache for one memory node, by address; 0 if the node has none.
#[derive(Clone, Copy)]
pub struct Node {
    /// The `struct kmem_cache_node`.
    lists: u64,
    /// The `struct node_barn`, since Linux 6.18.
    barn: u64,
}

/// Returns the parts of a cache for each memory node. `seen` has the addresses of the parts of earlier caches.
///
/// # Errors
/// If two caches share a part, or the core lacks one.
pub fn nodes(running: &mut Running<'_>, cache: &Cache, seen: &mut FxHashSet<u64>) -> Result<Vec<Node>> {
    let nodes = listed_nodes(running, cache)?;
    for part in nodes.iter().flat_map(|node| [node.lists, node.barn]).filter(|&part| part != 0) {
        if !seen.insert(part) {
            let place = format!("the memory nodes of the cache {}", cache.name);
            let problem = format!("the lists at {part:#x} are used twice");
            return Err(running.memory.damaged(&place, problem, "lists of its own"));
        }
    }
    Ok(nodes)
}

/// Reads the pointers of a cache to its parts.
fn listed_nodes(running: &mut Running<'_>, cache: &Cache) -> Result<Vec<Node>> {
    let layouts = running.layouts;
    let mut nodes = Vec::new();
    if layouts.has("kmem_cache", "per_node") {
        let field = layouts.array("kmem_cache", "per_node")?;
        for number in 0..field.count {
            let size = layouts.size("kmem_cache_per_node_ptrs")?;
            let pointers = cache.address.wrapping_add(field.offset.wrapping_add(number.wrapping_mul(size)));
            nodes.push(Node {
                lists: running.member(pointers, "kmem_cache_per_node_ptrs", "node")?,
                barn: running.member(pointers, "kmem_cache_per_node_ptrs", "barn")?,
            });
        }
        return Ok(nodes);
    }
    let (field, word) = (layouts.array("kmem_cache", "node")?, running.memory.word_size());
    for number in 0..field.count {
        let pointer = cache.address.wrapping_add(field.offset.wrapping_add(number.wrapping_mul(word)));
        nodes.push(Node { lists: running.memory.word(pointer)?, barn: 0 });
    }
    Ok(nodes)
}

/// Returns the number of free objects in the slabs on a cache's lists of partly used slabs.
///
/// # Errors
/// If the core contradicts itself or lacks a part.
pub fn free_in_partial(
    running: &mut Running<'_>,
    frames: &Frames,
    cache: &Cache,
    nodes: &[Node],
) -> Result<u64> {
    let layouts = running.layouts;
    let partial = layouts.offset("kmem_cache_node", "partial")?;
    let link = layouts.offset("slab", "slab_list")?;
    let (inuse, objects) = (layouts.field("slab", "inuse")?, layouts.field("slab", "objects")?);
    let mut free = 0u64;
    for node in nodes.iter().filter(|node| node.lists != 0) {
        let place = format!("the partly used slabs of the cache {}", cache.name);
        for member in running.memory.list(node.lists.wrapping_add(partial), frames.count, &place)? {
            let slab = member.wrapping_sub(link);
            let all = running.memory.field(slab, objects)?;
            free = free.saturating_add(all.saturating_sub(running.memory.field(slab, inuse)?));
        }
    }
    Ok(free)
}

impl Caches {
    /// Finds the free objects of a cache that its slabs count as used, and adds them to those of earlier caches. Returns
    /// their number.
    ///
    /// # Errors
    /// If the core contradicts itself or lacks a part.
    pub fn add_kept(
        &mut self,
        running: &mut Running<'_>,
        frames: &Frames,
        cache: usize,
        nodes: &[Node],
    ) -> Result<u64> {
        let before = self.kept.len();
        self.add_lists_of_processors(running, cache)?;
        self.add_sheaves(running, frames, cache, nodes)?;
        Ok((self.kept.len() - before) as u64)
    }

    /// Adds the free objects in the slabs from which processors allocate. Such a slab counts all of its objects as used.
    fn add_lists_of_processors(&mut self, running: &mut Running<'_>, cache: usize) -> Result<()> {
        let Some(processors) = running.layouts.optional_field("kmem_cache", "cpu_slab")? else {
            return Ok(());
        };
        let pointer = running.memory.field(self.caches[cache].address, processors)?;
        for processor in running.per_cpu(pointer)? {
            let mut object = running.member(processor, "kmem_cache_cpu", "freelist")?;
            while object != 0 {
                self.add_kept_object(running, cache, object)?;
                object = self.caches[cache].next_free(running, object)?;
            }
        }
        Ok(())
    }

    /// Adds the objects in the arrays (sheaves) that processors and nodes keep since Linux 6.18. Objects that wait for
    /// readers (`kfree_rcu`) still are in use.
    fn add_sheaves(
        &mut self,
        running: &mut Running<'_>,
        frames: &Frames,
        cache: usize,
        nodes: &[Node],
    ) -> Result<()> {
        let layouts = running.layouts;
        let Some(processors) = layouts.optional_field("kmem_cache", "cpu_sheaves")? else { return Ok(()) };
        let pointer = running.memory.field(self.caches[cache].address, processors)?;
        let mut sheaves = Vec::new();
        for processor in if pointer == 0 { Vec::new() } else { running.per_cpu(pointer)? } {
            for member in ["main", "spare"] {
                sheaves.push(running.member(processor, "slub_percpu_sheaves", member)?);
            }
        }
        let (full, link) =
            (layouts.offset("node_barn", "sheaves_full")?, layouts.offset("slab_sheaf", "barn_list")?);
        for node in nodes.iter().filter(|node| node.barn != 0) {
            let place = format!("the full sheaves of the cache {}", self.caches[cache].name);
            let members = running.memory.list(node.barn.wrapping_add(full), frames.count, &place)?;
            sheaves.extend(members.into_iter().map(|member| member.wrapping_sub(link)));
        }
        let (objects, word) = (layouts.offset("slab_sheaf", "objects")?, running.memory.word_size());
        for sheaf in sheaves.into_iter().filter(|&sheaf| sheaf != 0) {
            for number in 0..running.member(sheaf, "slab_sheaf", "size")? {
                let object = running.memory.word(sheaf.wrapping_add(objects + number * word))?;
                self.add_kept_object(running, cache, object)?;
            }
        }
        Ok(())
    }

    /// Adds a free object that its slab counts as used. It must be an object of the cache, and not be added twice.
    fn add_kept_object(&mut self, running: &Running<'_>, cache: usize, object: u64) -> Result<()> {
        let owner = &self.caches[cache];
        let frame = running.memory.physical(object) / PAGE;
        // The slabs are in ascending order.
        let next = self.slabs.partition_point(|slab| slab.frame <= frame);
        let slab = next.checked_sub(1).map(|number| &self.slabs[number]).filter(|slab| slab.cache == cache);
        let number = slab.and_then(|slab| Some((slab, owner.number_of(running, slab, object)?)));
        let Some((slab, number)) = number else {
            return Err(owner.wrong_object(running, format!("{object:#x} is in none of its slabs")));
        };
        if !self.kept.insert((slab.address, number)) {
            return Err(owner.wrong_object(running, format!("{object:#x} is free twice")));
        }
        Ok(())
    }

    /// Returns for each object of a slab whether it is free.
    ///
    /// # Errors
    /// If the list of free objects is damaged.
    pub fn free_objects(&self, running: &mut Running<'_>, slab: &Slab) -> Result<Vec<bool>> {
        let cache = &self.caches[slab.cache];
        let kept = |number| self.kept.contains(&(slab.address, number));
        let mut free: Vec<bool> = (0..slab.objects).map(kept).collect();
        let mut object = running.member(slab.address, "slab", "freelist")?;
        while object != 0 {
            let Some(number) = cache.number_of(running, slab, object) else {
                return Err(cache.wrong_object(running, format!("{object:#x} is not in the slab")));
            };
            if std::mem::replace(&mut free[number as usize], true) {
                return Err(cache.wrong_object(running, format!("{object:#x} is free twice")));
            }
            object = cache.next_free(running, object)?;
        }
        Ok(free)
    }
}

impl Cache {
    /// Returns the number of the object at an address in a slab; `None` if the slab has none there. With red zones, the
    /// address of an object is not where its place begins.
    fn number_of(&self, running: &Running<'_>, slab: &Slab, object: u64) -> Option<u64> {
        let base = running.memory.linear(slab.frame.wrapping_mul(PAGE));
        let number = object.checked_sub(base)?.checked_div(self.size)?;
        (number < slab.objects).then_some(number)
    }

    /// Returns the address of the free object after another on a list; 0 after the last one.
    fn next_free(&self, running: &mut Running<'_>, object: u64) -> Result<u64> {
        let offset = running.member(self.address, "kmem_cache", "offset")?;
        let at = running.memory.wrap(object.wrapping_add(offset));
        let next = running.memory.word(at)?;
        // The pointers are disguised with CONFIG_SLAB_FREELIST_HARDENED (`freelist_ptr_decode` in `mm/slub.c`).
        Ok(match running.layouts.optional_field("kmem_cache", "random")? {
            Some(field) => {
                // The bytes of the address in reverse order.
                let disguise = at.swap_bytes() >> (64 - 8 * running.memory.word_size());
                next ^ running.memory.field(self.address, field)? ^ disguise
            }
            None => next,
        })
    }

    fn wrong_object(&self, running: &Running<'_>, problem: String) -> crate::error::Error {
        let place = format!("the free objects of the cache {}", self.name);
        running.memory.damaged(&place, problem, "each free object of a slab once")
    }
}
