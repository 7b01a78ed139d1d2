//! Takes the census of a core.

use std::path::Path;

use kcli::{Failure, Progress};
use kelf::Dump;

use crate::document::{Document, Kind, Owner, SCHEMA, Sums};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layouts;
use crate::locate::locate;
use crate::memory::{Memory, PAGE};
use crate::pages::{self, Block, LARGE_KMALLOC, OFFLINE, PageCounts, Pages};
use crate::paging;
use crate::references;
use crate::running::{Frames, Running};
use crate::slab::{Cache, Caches};

/// The difference, in pages, that is always allowed between free pages and the kernel's counter.
const MAX_LATE: u64 = 256;

/// Takes the census of the kernel `vmlinux` from a core.
///
/// # Errors
/// If a file cannot be read, the core is damaged or of another kernel, or the kernel is not supported.
pub fn census(vmlinux: &Path, core: &Path, progress: &Progress) -> Result<Document, Failure> {
    let mut document = with_running(vmlinux, core, progress, take)?;
    document.core = core.display().to_string();
    Ok(document)
}

/// Calls `take` with the kernel `vmlinux` as it runs in a core, and returns its result.
///
/// # Errors
/// If a file cannot be read, the core is damaged or of another kernel, or the kernel is not supported.
pub fn with_running<T>(
    vmlinux: &Path,
    core: &Path,
    progress: &Progress,
    mut take: impl FnMut(&mut Running<'_>) -> Result<T>,
) -> Result<T, Failure> {
    let (kernel, bytes) = Kernel::read(vmlinux).map_err(Failure::of)?;
    let mut dump = Dump::open(core, None).map_err(Failure::of)?;
    let location = locate(&mut dump, &kernel).map_err(Failure::of)?;
    progress.message("reading layouts");
    let own = Layouts::read(&kernel.path, &bytes).map_err(Failure::of)?;
    drop(bytes);
    let mut take_with = |layouts: &Layouts| {
        progress.message("counting pages");
        let memory = Memory::new(&mut dump, location.space, &kernel.path);
        take(&mut Running { kernel: &kernel, layouts, memory, slide: location.slide })
    };
    match own.map(|layouts| take_with(&layouts)) {
        // The compiler also has what reduced debugging information lacks.
        None | Some(Err(Error::Layout { .. })) => {
            progress.message("compiling layouts");
            take_with(&Layouts::compile(vmlinux)?).map_err(Failure::of)
        }
        Some(taken) => taken.map_err(Failure::of),
    }
}

/// The pages of a running kernel.
#[derive(Debug)]
pub struct Walked {
    /// The array of all `struct page`.
    pub frames: Frames,
    /// The slab caches, with their slabs.
    pub caches: Caches,
    /// The pages.
    pub pages: Pages,
}

impl Walked {
    /// Counts all pages of a running kernel. All pages that are not reserved have to be `MemTotal`.
    ///
    /// # Errors
    /// If the kernel is not supported, or the core contradicts itself or lacks a part.
    pub fn new(running: &mut Running<'_>) -> Result<Walked> {
        running.check()?;
        let (format, table) = (running.tables()?, running.symbol(running.kernel.rules.upper_table)?);
        let mappings = paging::read(&mut running.memory, format, table)?;
        running.memory.map(mappings.memory.iter().copied());
        let frames = running.frames()?;
        let mut caches = Caches::read(running)?;
        let pages = pages::count(running, &frames, &mut caches, &mappings)?;
        caches.finish(running, &frames)?;
        check_total(running, &pages, &caches)?;
        Ok(Walked { frames, caches, pages })
    }
}

/// Takes the census of a running kernel.
fn take(running: &mut Running<'_>) -> Result<Document> {
    let Walked { frames, caches, pages: Pages { mut counts, mut blocks, .. } } = Walked::new(running)?;
    let mut memory = Sums {
        total: running.variable("_totalram_pages")? * PAGE,
        free: counter(running, "vm_zone_stat", "NR_FREE_PAGES")? * PAGE,
        slab: slab_counter(running)? * PAGE,
        explained: 0,
    };
    check_free(running, &counts, &memory)?;
    if !running.layouts.constants.contains_key("PGTY_large_kmalloc") {
        let counted = (memory.slab / PAGE).saturating_add_signed(slab_counted_by_processors(running)?);
        take_large_kmalloc(&mut counts, &mut blocks, counted.saturating_sub(caches.pages()));
    }
    for (block, owner) in blocks.iter().zip(references::owners(running, &frames, &caches, &blocks)?) {
        *counts.entry(owner.unwrap_or((Kind::Unknown, unknown_name(block).into()))).or_default() +=
            block.pages;
    }
    let mut owners: Vec<Owner> =
        caches.caches.into_iter().filter(|cache| cache.pages > 0).map(owner_of).collect();
    owners.extend(counts.into_iter().map(|((kind, name), pages)| Owner::new(kind, name, pages * PAGE)));
    owners
        .sort_by(|one, other| (one.kind, other.bytes, &one.name).cmp(&(other.kind, one.bytes, &other.name)));
    memory.explained = owners.iter().filter(|owner| owner.kind.is_explained()).map(|owner| owner.bytes).sum();
    Ok(Document {
        schema: SCHEMA.into(),
        kernel: running.kernel.banner_line(),
        build_id: running.kernel.build_id.clone(),
        core: String::new(),
        page_size: PAGE,
        memory,
        owners,
    })
}

/// Checks that all pages but the reserved ones are `MemTotal`. Pages that were given to the host are part of `MemTotal` if
/// the driver may take them back when memory is short.
fn check_total(running: &mut Running<'_>, pages: &Pages, caches: &Caches) -> Result<()> {
    let total = running.variable("_totalram_pages")?;
    let Pages { counts, blocks, .. } = pages;
    let managed = counts.iter().filter(|((kind, _), _)| *kind != Kind::Reserved).map(|(_, pages)| pages);
    let blocks: u64 = blocks.iter().map(|block| block.pages).sum();
    let found = managed.sum::<u64>() + caches.caches.iter().map(|cache| cache.pages).sum::<u64>() + blocks;
    let given = counts.get(&(Kind::Reserved, OFFLINE.to_owned())).copied().unwrap_or(0);
    if total == found || total == found + given {
        return Ok(());
    }
    let problem = format!("{total} pages, but {found} are not reserved");
    Err(running.memory.damaged("_totalram_pages", problem, "the same number"))
}

/// Checks that the number of free pages is near the kernel's counter. Processors count some pages later, and
/// `/proc/kcore` changes while it is read.
fn check_free(running: &Running<'_>, counts: &PageCounts, memory: &Sums) -> Result<()> {
    let found =
        counts.iter().filter(|((kind, _), _)| *kind == Kind::Free).map(|(_, pages)| pages).sum::<u64>();
    let counted = memory.free / PAGE;
    if found.abs_diff(counted) <= memory.total / PAGE / 16 + MAX_LATE {
        return Ok(());
    }
    let problem = format!("{counted} free pages, but {found} are free");
    Err(running.memory.damaged("vm_zone_stat", problem, "nearly the same number"))
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
    let word = running.memory.word_size();
    let address = running.symbol(array)?.wrapping_add(running.layouts.constant(item)?.wrapping_mul(word));
    let value = running.memory.word(address)?;
    Ok(if value >> (8 * word - 1) != 0 { 0 } else { value })
}

/// The counters of slab pages.
const SLAB_COUNTERS: [&str; 2] = ["NR_SLAB_RECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE_B"];

/// Returns the number of pages that `/proc/meminfo` prints as slab.
fn slab_counter(running: &mut Running<'_>) -> Result<u64> {
    let mut pages = 0;
    for item in SLAB_COUNTERS {
        pages += counter(running, "vm_node_stat", item)?;
    }
    Ok(pages)
}

/// Returns the number of slab pages that processors have counted and not yet added to the counters; it may be negative.
fn slab_counted_by_processors(running: &mut Running<'_>) -> Result<i64> {
    let Some(field) = running.layouts.optional_field("pglist_data", "per_cpu_nodestats")? else {
        return Ok(0);
    };
    let differences = running.layouts.offset("per_cpu_nodestat", "vm_node_stat_diff")?;
    let node = running.symbol("contig_page_data")?;
    let pointer = running.memory.field(node, field)?;
    let mut pages = 0i64;
    for processor in running.per_cpu(pointer)? {
        for item in SLAB_COUNTERS {
            let offset = differences.wrapping_add(running.layouts.constant(item)?);
            let difference = running.memory.integer(processor.wrapping_add(offset), 1)? as u8 as i8;
            pages += i64::from(difference);
        }
    }
    Ok(pages)
}

/// Counts compound pages as large `kmalloc`. Kernels before Linux 6.14 do not mark its pages, but count them as slab
/// (`___kmalloc_large_node` in `mm/slub.c`): `pages` is the number of such pages that are in no slab. They are among the
/// compound pages with one reference. The others of these are unknown, because nothing distinguishes them.
fn take_large_kmalloc(counts: &mut PageCounts, blocks: &mut Vec<Block>, pages: u64) {
    let large = (Kind::Slab, LARGE_KMALLOC.to_owned());
    if pages == 0 {
        return;
    }
    let is_candidate = |block: &Block| block.is_compound && block.references == 1;
    let candidates: u64 = blocks.iter().filter(|block| is_candidate(block)).map(|block| block.pages).sum();
    blocks.retain(|block| !is_candidate(block));
    let taken = pages.min(candidates);
    for (owner, pages) in [(large, taken), ((Kind::Unknown, COMPOUND.to_owned()), candidates - taken)] {
        if pages > 0 {
            counts.insert(owner, pages);
        }
    }
}

/// The name of compound pages whose owner is not known.
const COMPOUND: &str = "compound pages";

/// Returns the name of pages whose owner is not known.
fn unknown_name(block: &Block) -> &'static str {
    match block {
        Block { is_compound: true, .. } => COMPOUND,
        Block { references: 0, .. } => "pages without references",
        Block { pages: 1, .. } => "single pages",
        _ => "blocks of pages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_kmalloc_is_among_compound_pages() {
        let block = |index, is_compound, references| Block { index, pages: 4, is_compound, references };
        let all = [block(0, true, 1), block(4, false, 1), block(8, true, 1), block(12, true, 2)];
        let taken = |pages| {
            let (mut counts, mut blocks) = (PageCounts::new(), all.to_vec());
            take_large_kmalloc(&mut counts, &mut blocks, pages);
            (counts.into_values().collect::<Vec<_>>(), blocks.len())
        };
        assert_eq!(taken(0), (vec![], 4));
        assert_eq!(taken(3), (vec![3, 5], 2));
        assert_eq!(taken(100), (vec![8], 2));
    }
}
