//! The census of a core.

use std::path::Path;

use kcli::{Failure, Progress};
use kelf::Dump;

use crate::document::{Document, Kind, Owner, SCHEMA, Sums};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::layout::Layouts;
use crate::locate::locate;
use crate::memory::{Memory, PAGE};
use crate::pages::{self, COMPOUND, LARGE_KMALLOC, PageCounts};
use crate::running::Running;
use crate::slab::{Cache, Caches};

/// Takes the census of the kernel `vmlinux` from a core.
///
/// # Errors
/// If a file cannot be read, the core is damaged or of another kernel, or the kernel is not supported.
pub fn census(vmlinux: &Path, core: &Path, progress: &Progress) -> Result<Document, Failure> {
    let (kernel, bytes) = Kernel::read(vmlinux).map_err(Failure::of)?;
    let mut dump = Dump::open(core, None).map_err(Failure::of)?;
    let location = locate(&mut dump, &kernel).map_err(Failure::of)?;
    progress.message("reading layouts");
    let layouts = Layouts::of_kernel(vmlinux, &bytes)?;
    drop(bytes);
    progress.message("counting pages");
    let memory = Memory::new(&mut dump, location.linear);
    let mut running = Running { kernel: &kernel, layouts: &layouts, memory, slide: location.slide };
    let mut document = take(&mut running).map_err(Failure::of)?;
    document.core = core.display().to_string();
    Ok(document)
}

/// Takes the census of a running kernel.
fn take(running: &mut Running<'_>) -> Result<Document> {
    let frames = running.frames()?;
    let mut caches = Caches::read(running)?;
    let mut counts = pages::count(running, &frames, &mut caches)?;
    caches.finish(running, &frames)?;
    let mut memory = Sums {
        total: running.variable("_totalram_pages")? * PAGE,
        free: counter(running, "vm_zone_stat", "NR_FREE_PAGES")? * PAGE,
        slab: slab_counter(running)? * PAGE,
        explained: 0,
    };
    let walked: u64 = caches.caches.iter().map(|cache| cache.pages).sum();
    move_large_kmalloc(&mut counts, (memory.slab / PAGE).saturating_sub(walked));
    let mut owners: Vec<Owner> =
        caches.caches.into_iter().filter(|cache| cache.pages > 0).map(owner_of).collect();
    owners.extend(counts.into_iter().map(|((kind, name), pages)| Owner::new(kind, name, pages * PAGE)));
    owners
        .sort_by(|one, other| (one.kind, other.bytes, &one.name).cmp(&(other.kind, one.bytes, &other.name)));
    memory.explained = owners.iter().filter(|owner| owner.kind.is_explained()).map(|owner| owner.bytes).sum();
    Ok(Document {
        schema: SCHEMA.into(),
        kernel: running.kernel.banner_line(),
        core: String::new(),
        page_size: PAGE,
        memory,
        owners,
    })
}

fn owner_of(cache: Cache) -> Owner {
    Owner {
        objects: Some(cache.objects),
        used: Some(cache.used),
        active: Some(cache.active),
        object_size: Some(cache.size),
        merged: Some(cache.merged),
        variables: cache.variables,
        ..Owner::new(Kind::Slab, cache.name, cache.pages * PAGE)
    }
}

/// Reads a counter of pages from an array of counters; a negative one as 0, as the kernel does.
fn counter(running: &mut Running<'_>, array: &str, item: &str) -> Result<u64> {
    let address = running.symbol(array)?.wrapping_add(running.layouts.constant(item)? * 4);
    let value = running.memory.word(address)? as u32 as i32;
    Ok(value.max(0) as u64)
}

/// Returns the number of pages that the kernel counts as slab.
fn slab_counter(running: &mut Running<'_>) -> Result<u64> {
    let reclaimable = counter(running, "vm_node_stat", "NR_SLAB_RECLAIMABLE_B")?;
    Ok(reclaimable + counter(running, "vm_node_stat", "NR_SLAB_UNRECLAIMABLE_B")?)
}

/// Counts compound pages as large `kmalloc`. Kernels before Linux 6.14 do not mark its pages, but count them as slab
/// (`___kmalloc_large_node` in `mm/slub.c`): `pages` is the number of such pages that are in no slab.
fn move_large_kmalloc(counts: &mut PageCounts, pages: u64) {
    let large = (Kind::Slab, LARGE_KMALLOC.to_owned());
    let key = (Kind::Unknown, COMPOUND.to_owned());
    let compound = counts.get(&key).copied().unwrap_or(0);
    let moved = pages.min(compound);
    if moved == 0 || counts.contains_key(&large) {
        return;
    }
    counts.insert(large, moved);
    if compound == moved {
        counts.remove(&key);
    } else {
        counts.insert(key, compound - moved);
    }
}
