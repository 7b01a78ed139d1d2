//! The slab caches of a core, with the bytes of their live objects.

use std::path::Path;

use census::memory::PAGE;
use census::running::Running;
use census::take::{Walked, with_running};
use kcli::{Failure, Progress};

use crate::document::{Allocator, CacheProfile, Constructor};

/// Maximum number of bytes of live objects.
const MAX_BYTES: u64 = 1 << 30;

/// A live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveObject {
    /// Its virtual address.
    pub address: u64,
    /// Its physical address.
    pub place: u64,
    /// Its bytes, without padding.
    pub bytes: Vec<u8>,
}

/// A slab cache in a core.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreCache {
    /// Its figures.
    pub profile: CacheProfile,
    /// Number of caches that were merged into it.
    pub merged: u64,
    /// Its live objects.
    pub live: Vec<LiveObject>,
    /// The physical addresses of all places for objects, used and free.
    pub places: Vec<u64>,
}

/// What a core holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    /// The version of the kernel, `Linux version …`.
    pub kernel: String,
    /// The build ID of the kernel.
    pub build_id: Option<String>,
    /// The difference between the addresses at which the kernel runs and the linked ones.
    pub slide: u64,
    /// The size of all slabs in bytes.
    pub slab: u64,
    /// The rules of the slab allocator.
    pub allocator: Allocator,
    /// The caches with slabs.
    pub caches: Vec<CoreCache>,
}

/// Reads the slab caches of the kernel `vmlinux` from a core.
///
/// # Errors
/// If a file cannot be read, the core is damaged or of another kernel, or the kernel is not supported.
pub fn read(vmlinux: &Path, core: &Path, progress: &Progress) -> Result<Core, Failure> {
    with_running(vmlinux, core, progress, read_running)
}

fn read_running(running: &mut Running<'_>) -> census::error::Result<Core> {
    let walked = Walked::new(running)?;
    let mut caches = Vec::new();
    for cache in &walked.caches.caches {
        caches.push(CoreCache {
            profile: profile_of(running, cache)?,
            merged: cache.merged,
            live: Vec::new(),
            places: Vec::new(),
        });
    }
    let mut read = 0u64;
    for slab in &walked.caches.slabs {
        let cache = &mut caches[slab.cache];
        let free = walked.caches.free_objects(running, slab)?;
        let base = running.memory.linear(slab.frame * PAGE);
        for (number, is_free) in (0u64..).zip(free) {
            let offset = number * cache.profile.size;
            let place = slab.frame * PAGE + offset;
            cache.places.push(place);
            if is_free {
                continue;
            }
            read += cache.profile.object_size;
            if read > MAX_BYTES {
                return Err(running.memory.damaged(
                    "the slabs",
                    format!("more than {MAX_BYTES} bytes"),
                    "fewer",
                ));
            }
            let address = base.wrapping_add(offset);
            let mut bytes = vec![0; cache.profile.object_size as usize];
            running.memory.read(address, &mut bytes)?;
            cache.live.push(LiveObject { address, place, bytes });
        }
    }
    let allocator = allocator_of(running, &caches)?;
    caches.retain(|cache| cache.profile.bytes > 0);
    Ok(Core {
        kernel: running.kernel.banner_line(),
        build_id: running.kernel.build_id.clone(),
        slide: running.slide,
        slab: walked.caches.pages() * PAGE,
        allocator,
        caches,
    })
}

/// Returns the figures of a cache.
fn profile_of(running: &mut Running<'_>, cache: &census::slab::Cache) -> census::error::Result<CacheProfile> {
    let mut member = |name: &str| running.member(cache.address, "kmem_cache", name);
    let (flags, constructor, align, order) =
        (member("flags")?, member("ctor")?, member("align")?, member("oo")?);
    let offset = member("offset")?;
    let constants = running.layouts;
    let flag = |name: &str| -> census::error::Result<bool> {
        Ok(flags >> constants.constant(name)?.min(63) & 1 != 0)
    };
    // `oo` is the order above 16 bits with the number of objects (`OO_SHIFT` in `mm/slub.c`).
    let is_after = constructor != 0 || (flag("_SLAB_TYPESAFE_BY_RCU")? && offset >= cache.object_size);
    Ok(CacheProfile {
        name: cache.name.clone(),
        of: None,
        untyped: None,
        object_size: cache.object_size,
        size: cache.size,
        align,
        cache_lines: flag("_SLAB_HWCACHE_ALIGN")?,
        constructor: if is_after { Constructor::After } else { Constructor::Inside },
        per_slab: order & 0xffff,
        slab_bytes: PAGE << (order >> 16).min(20),
        bytes: cache.pages * PAGE,
        objects: cache.objects,
        used: cache.used,
    })
}

/// Returns the rules of the slab allocator.
fn allocator_of(running: &mut Running<'_>, caches: &[CoreCache]) -> census::error::Result<Allocator> {
    let mut variable = |name: &str, default: u64| -> census::error::Result<u64> {
        match running.kernel.optional_symbol(name) {
            Some(_) => running.variable(name),
            None => Ok(default),
        }
    };
    let orders = [variable("slub_min_order", 0)?, variable("slub_max_order", 3)?];
    let processors = variable("nr_cpu_ids", 1)?;
    let asked = variable("slub_min_objects", 0)?;
    // Objects of at least this size begin at whole lines of 64 or 128 bytes.
    let lines = caches.iter().filter(|cache| cache.profile.cache_lines && cache.profile.object_size > 64);
    Ok(Allocator {
        word: 4,
        page: PAGE,
        align: 8,
        cache_line: lines.map(|cache| cache.profile.align).min().unwrap_or(64),
        orders: orders.map(|order| order.min(11)),
        objects: if asked == 0 { Allocator::objects_for(processors) } else { asked },
    })
}
