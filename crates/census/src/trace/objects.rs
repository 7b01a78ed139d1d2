//! The memory that allocators gave out and that is in use in a core, with the call that allocated it.
//!
//! Three places identify the last call for an object. They are written in [`super::recording`] by the plugin:
//!
//! - of a slab object, the link to the next free object, which the allocator reads when it gives out the object
//!   (`get_freepointer` in `mm/slub.c`). While an object is in use, no code of the allocator reads it;
//! - of a page, the members `private` and `_refcount` of its `struct page`, which the allocator writes when it gives out or
//!   splits a block (`post_alloc_hook` and `split_page` in `mm/page_alloc.c`);
//! - of early memory, the memory itself, which `memblock_alloc_try_nid` (`mm/memblock.c`) zeroes.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::allocators::{self, Allocator};
use super::recording::{Call, Idle, Recording};
use crate::error::{Error, Result};
use crate::memory::PAGE;
use crate::running::Running;
use crate::slab::Slab;
use crate::take::Walked;

/// The share of slab objects, in percent, whose call is known at least if the recording is of the same run as the core.
/// Nearly all have one then; with another run of the same kernel and programs, a third.
const MIN_KNOWN: usize = 90;

/// The size of a word of the recording in bytes, on all machines.
const WORD: u64 = 4;

/// Memory that was allocated together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind of allocator.
    pub kind: Allocator,
    /// The name of its slab cache.
    pub cache: Option<String>,
    /// Its size in bytes, with padding.
    pub bytes: u64,
    /// Its share of the pages, in bytes: objects in use share the pages of their slab.
    pub held: u64,
    /// Its bytes without an access since the call ended; none if the call is not known.
    pub idle: Idle,
    /// The chain of callers, as an index into [`Recording::chains`]; `None` if the call is not known.
    pub chain: Option<usize>,
}

impl Object {
    /// Creates an object at a range of physical addresses.
    fn new(
        recording: &Recording,
        kind: Allocator,
        cache: Option<&str>,
        range: Range<u64>,
        call: Option<Call>,
    ) -> Object {
        let known = call.and_then(|call| Some((call.chain?, call.end)));
        Object {
            kind,
            cache: cache.map(str::to_owned),
            bytes: range.end - range.start,
            held: range.end - range.start,
            idle: known.map_or(Idle::default(), |(_, end)| recording.idle(range, end)),
            chain: known.map(|(chain, _)| chain),
        }
    }
}

/// Finds all memory in use that slab and page allocators gave out for the kernel's data, and the memory that was reserved
/// at boot. Page tables, files and memory of programs are left out: the processor also reads them without instructions
/// that load, and [`crate::take`] knows their owners.
///
/// # Errors
/// If the core contradicts itself or lacks a part, or the kernel is not supported.
pub fn find(running: &mut Running<'_>, recording: &Recording) -> Result<Vec<Object>> {
    let unsupported = |problem: &str| allocators::unsupported(&running.kernel.path, problem.into());
    if running.slide != 0 {
        return Err(unsupported("the kernel ran at another address than it was linked for"));
    }
    if running.layouts.has("kmem_cache", "cpu_sheaves") {
        return Err(unsupported("a kernel whose slab caches have sheaves"));
    }
    let walked = Walked::new(running)?;
    let mut objects = slab_objects(running, &walked, recording)?;
    objects.extend(page_objects(running, &walked, recording)?);
    objects.extend(early_objects(&walked, recording));
    Ok(objects)
}

/// Returns the allocated objects of all slabs.
fn slab_objects(running: &mut Running<'_>, walked: &Walked, recording: &Recording) -> Result<Vec<Object>> {
    let ambiguous = ambiguous_objects(running, walked)?;
    let (mut found, mut distinct) = (Vec::new(), 0);
    let mut objects_of_call: FxHashMap<u64, u64> = FxHashMap::default();
    for slab in &walked.caches.slabs {
        let ranges = allocated(running, walked, slab)?;
        let held = slab.pages * PAGE / ranges.len().max(1) as u64;
        for range in ranges {
            let cache = &walked.caches.caches[slab.cache];
            let link = range.start + link_offset(running, cache.address)?;
            let is_ambiguous = ambiguous.caches.contains(&cache.address)
                || ambiguous.objects.contains(&running.memory.linear(range.start));
            let call = recording.call(link, Allocator::Slab).filter(|_| !is_ambiguous);
            distinct += usize::from(!is_ambiguous);
            if let Some(call) = call {
                *objects_of_call.entry(call.number).or_default() += 1;
            }
            found.push((&cache.name, range, held, call));
        }
    }
    // A call that an interrupt overtook may have read an object that it then did not get.
    let is_sure = |call: &Call| call.is_bulk || objects_of_call.get(&call.number) == Some(&1);
    let object = |(cache, range, held, call): (&String, Range<u64>, u64, Option<Call>)| Object {
        held,
        ..Object::new(recording, Allocator::Slab, Some(cache), range, call.filter(is_sure))
    };
    let objects: Vec<Object> = found.into_iter().map(object).collect();
    let known = objects.iter().filter(|object| object.chain.is_some()).count();
    if known * 100 < distinct * MIN_KNOWN {
        let problem = format!("it has the calls of {known} of {distinct} slab objects");
        return Err(Error::OtherRun { name: recording.name.clone(), problem });
    }
    Ok(objects)
}

/// Returns the physical addresses of the allocated objects of a slab.
fn allocated(running: &mut Running<'_>, walked: &Walked, slab: &Slab) -> Result<Vec<Range<u64>>> {
    let (base, size) = (slab.frame * PAGE, walked.caches.caches[slab.cache].size);
    let free = walked.caches.free_objects(running, slab)?;
    let numbers = free.into_iter().enumerate().filter(|&(_, is_free)| !is_free);
    Ok(numbers.map(|(number, _)| base + number as u64 * size).map(|start| start..start + size).collect())
}

/// Returns the offset of the link to the next free object, from the place of an object of a cache.
fn link_offset(running: &mut Running<'_>, cache: u64) -> Result<u64> {
    let padding = match running.layouts.optional_field("kmem_cache", "red_left_pad")? {
        Some(field) => running.memory.field(cache, field)?,
        None => 0,
    };
    let offset = running.member(cache, "kmem_cache", "offset")?;
    Ok(running.memory.wrap(padding.wrapping_add(offset)))
}

/// The slab objects that the allocator also reads while they are in use.
#[derive(Debug, Default)]
struct Ambiguous {
    /// The addresses of caches, all of whose objects it reads.
    caches: FxHashSet<u64>,
    /// The addresses of objects.
    objects: FxHashSet<u64>,
}

/// Finds the slab objects that the allocator reads for its own purposes.
fn ambiguous_objects(running: &mut Running<'_>, walked: &Walked) -> Result<Ambiguous> {
    let mut ambiguous = Ambiguous::default();
    for variable in ["kmem_cache", "kmem_cache_node"] {
        ambiguous.caches.insert(running.variable(variable)?);
    }
    if let Some(field) = running.layouts.optional_field("kmem_cache", "random_seq")? {
        for cache in &walked.caches.caches {
            ambiguous.objects.insert(running.memory.field(cache.address, field)?);
        }
    }
    if let Some(field) = running.layouts.optional_field("slab", "obj_exts")? {
        for slab in &walked.caches.slabs {
            // The lowest bits are flags.
            ambiguous.objects.insert(running.memory.field(slab.address, field)? & !7);
        }
    }
    Ok(ambiguous)
}

/// Returns the blocks of pages in use that are no slabs.
fn page_objects(running: &mut Running<'_>, walked: &Walked, recording: &Recording) -> Result<Vec<Object>> {
    let layouts = running.layouts;
    let members = [layouts.offset("page", "private")?, layouts.offset("page", "_refcount")?];
    let frames = &walked.frames;
    let object = |block: &crate::pages::Block| {
        let page = running.memory.physical(frames.page(block.index));
        let calls = members.iter().filter_map(|member| recording.call(page + member, Allocator::Pages));
        let start = (frames.first + block.index) * PAGE;
        let range = start..start + block.pages * PAGE;
        Object::new(recording, Allocator::Pages, None, range, calls.max_by_key(|call| call.end))
    };
    Ok(walked.pages.allocated.iter().map(object).collect())
}

/// Returns the memory that was reserved at boot, by call.
fn early_objects(walked: &Walked, recording: &Recording) -> Vec<Object> {
    let mut objects: FxHashMap<Option<u64>, Object> = FxHashMap::default();
    for index in &walked.pages.early {
        let start = (walked.frames.first + index) * PAGE;
        for at in (start..start + PAGE).step_by(WORD as usize) {
            let call = recording.call(at, Allocator::Memblock).filter(|call| call.chain.is_some());
            let word = Object::new(recording, Allocator::Memblock, None, at..at + WORD, call);
            match objects.get_mut(&call.map(|call| call.number)) {
                Some(object) => {
                    object.bytes += word.bytes;
                    object.held += word.held;
                    object.idle.untouched += word.idle.untouched;
                    object.idle.unread += word.idle.unread;
                }
                None => drop(objects.insert(call.map(|call| call.number), word)),
            }
        }
    }
    objects.into_values().collect()
}
