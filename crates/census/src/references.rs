//! The owners of pages without a type, by what points to them.
//!
//! The kernel does not record who allocated a page. But the owner of a block has a pointer to its first byte, to its
//! `struct page`, or to the list links in that structure. The pointers in two places are evidence: in a variable of the
//! kernel, and in an allocated object of the slab allocator. Blocks to which the objects of several caches point keep no
//! owner.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::document::Kind;
use crate::error::Result;
use crate::memory::PAGE;
use crate::pages::Block;
use crate::running::{Frames, Running};
use crate::slab::{Caches, Slab};

/// Maximum size of a variable that is searched, in bytes.
const MAX_VARIABLE: u64 = 1 << 20;

/// The evidence for the owner of a block.
#[derive(Clone, Debug, Default)]
struct Evidence {
    variable: Option<String>,
    caches: FxHashSet<usize>,
}

/// Returns for each block its owner, if the pointers to it show one.
///
/// # Errors
/// If the core lacks a part of the kernel.
pub fn owners(
    running: &mut Running<'_>,
    frames: &Frames,
    caches: &Caches,
    blocks: &[Block],
) -> Result<Vec<Option<(Kind, String)>>> {
    let links = running.layouts.offset("page", "lru")?;
    let mut targets: FxHashMap<u64, usize> = FxHashMap::default();
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| block.references > 0) {
        let page = frames.page(block.index);
        let first = running.memory.linear((frames.first + block.index) * PAGE);
        targets.extend([first, page, page.wrapping_add(links)].map(|target| (target, number)));
    }
    let mut evidence = vec![Evidence::default(); blocks.len()];
    search_variables(running, frames, &targets, &mut evidence)?;
    for slab in &caches.slabs {
        search_slab(running, caches, slab, &targets, &mut evidence)?;
    }
    let owner = |evidence: Evidence| {
        let mut pointing = evidence.caches.iter();
        let name = match (evidence.variable, pointing.next(), pointing.next()) {
            (Some(variable), ..) => variable,
            (None, Some(&cache), None) => format!("objects of {}", caches.caches[cache].name),
            _ => return None,
        };
        Some((Kind::Referenced, name))
    };
    Ok(evidence.into_iter().map(owner).collect())
}

/// Searches the variables of the kernel, also the copies of each processor, for pointers to targets.
fn search_variables(
    running: &mut Running<'_>,
    frames: &Frames,
    targets: &FxHashMap<u64, usize>,
    evidence: &mut [Evidence],
) -> Result<()> {
    let per_cpu = match (
        running.kernel.optional_symbol("__per_cpu_start"),
        running.kernel.optional_symbol("__per_cpu_end"),
    ) {
        (Some(start), Some(end)) => start..end,
        _ => 0..0,
    };
    let word = running.memory.word_size();
    for variable in running.kernel.variables.iter().filter(|variable| variable.size <= MAX_VARIABLE) {
        let address = running.at(variable.address);
        let copies = match per_cpu.contains(&variable.address) {
            true => running.per_cpu(address)?,
            false => vec![address],
        };
        let mut bytes = vec![0; variable.size as usize];
        for copy in copies {
            // A symbol may be at an address that is not mapped, as those of 32-bit ARM's vectors are.
            if !running.is_kept(frames, copy)? || !running.memory.try_read(copy, &mut bytes)? {
                continue;
            }
            for number in words(&bytes, word).filter_map(|word| targets.get(&word)) {
                evidence[*number].variable.get_or_insert_with(|| variable.name.clone());
            }
        }
    }
    Ok(())
}

/// Searches the allocated objects of a slab for pointers to targets.
fn search_slab(
    running: &mut Running<'_>,
    caches: &Caches,
    slab: &Slab,
    targets: &FxHashMap<u64, usize>,
    evidence: &mut [Evidence],
) -> Result<()> {
    let (cache, base) = (&caches.caches[slab.cache], running.memory.linear(slab.frame * PAGE));
    let (free, word) = (caches.free_objects(running, slab)?, running.memory.word_size());
    let mut bytes = vec![0; cache.size as usize];
    for (number, _) in free.into_iter().enumerate().filter(|&(_, is_free)| !is_free) {
        running.memory.read(base.wrapping_add(number as u64 * cache.size), &mut bytes)?;
        for target in words(&bytes, word).filter_map(|word| targets.get(&word)) {
            evidence[*target].caches.insert(slab.cache);
        }
    }
    Ok(())
}

/// Returns the aligned words of an object.
fn words(bytes: &[u8], size: u64) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(size as usize)
        .map(|word| word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}
