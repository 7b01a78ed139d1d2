//! The functions of a kernel that allocate memory, and the check that the plugin can watch them.

use std::fmt::Write;

use kelf::{Function, Functions, Machine};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::Rules;

/// A kind of allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocator {
    /// The slab allocator, `mm/slub.c`.
    Slab,
    /// The page allocator, `mm/page_alloc.c`.
    Pages,
    /// The allocator of early boot, `mm/memblock.c`.
    Memblock,
}

impl Allocator {
    /// All kinds.
    pub const ALL: [Allocator; 3] = [Allocator::Slab, Allocator::Pages, Allocator::Memblock];

    /// Returns the name, as in the document.
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Slab => "slab",
            Allocator::Pages => "pages",
            Allocator::Memblock => "memblock",
        }
    }
}

/// The functions whose calls are recorded, by the kind in the list for the plugin, without suffixes. A name that ends in
/// `*` is a prefix. `bulk` allocates several slab objects; memory of `none` does not belong to the caller, because the
/// function moves the content of other pages (`compaction_alloc` in `mm/compaction.c`).
const ENTERED: [(&str, &[&str]); 5] = [
    ("bulk", &["kmem_cache_alloc_bulk"]),
    ("slab", &["kmem_cache_alloc*", "__kmalloc*", "___kmalloc*"]),
    (
        "pages",
        &[
            "__alloc_pages",
            "__alloc_frozen_pages",
            "alloc_pages_bulk*",
            "alloc_pages_exact*",
            "alloc_pages_nolock*",
        ],
    ),
    ("memblock", &["memblock_alloc_*", "memblock_phys_alloc_*", "__memblock_alloc_or_panic"]),
    ("none", &["compact_zone", "alloc_contig_range", "alloc_contig_frozen_range"]),
];

/// The functions of the page allocator that write to the `struct page` of pages that they give out.
const PREPARING: [&str; 8] = [
    "post_alloc_hook",
    "prep_new_page",
    "prep_compound_page",
    "split_page",
    "get_page_from_freelist",
    "__alloc_pages",
    "__alloc_frozen_pages",
    "alloc_pages_bulk*",
];

/// The file with the slab allocator.
const SLUB: &str = "slub.c";

/// The functions that allocate for their caller, besides [`ENTERED`] and the ones of [`SLUB`].
const FORWARDING: [&str; 42] = [
    "__alloc_pages_node",
    "__folio_alloc*",
    "__get_free_pages",
    "__kvmalloc*",
    "__vmalloc*",
    "_dev_kmalloc*",
    "alloc_large_system_hash",
    "alloc_pages*",
    "alloc_percpu*",
    "bioset_init",
    "biovec_init_pool",
    "create_workqueue*",
    "devm_kasprintf",
    "devm_kmalloc*",
    "devm_kmemdup*",
    "devm_kstrdup*",
    "devm_kvasprintf",
    "dma_alloc*",
    "dma_direct_alloc*",
    "__dma_alloc_pages",
    "__dma_direct_alloc_pages",
    "folio_alloc*",
    "get_free_pages",
    "get_zeroed_page",
    "kasprintf",
    "kcalloc*",
    "kmalloc*",
    "kmemdup*",
    "krealloc*",
    "kstrdup*",
    "kstrndup",
    "kvasprintf*",
    "kvmalloc*",
    "kvmemdup",
    "kzalloc*",
    "memdup_user*",
    "mempool_*",
    "strndup_user",
    "vm_area_alloc_pages",
    "vmalloc*",
    "vmemdup_user",
    "vzalloc*",
];

/// Returns the name of a function without the suffixes of the compiler and of memory allocation profiling.
pub fn plain_name(name: &str) -> &str {
    let name = name.split('.').next().unwrap_or(name);
    name.strip_suffix("_noprof").unwrap_or(name)
}

/// Whether a name is one of a list.
fn is_among(name: &str, list: &[&str]) -> bool {
    list.iter().any(|one| match one.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => *one == name,
    })
}

/// Returns the kind of allocator in the list for the plugin, if calls of the function are recorded.
fn entered(name: &str) -> Option<&'static str> {
    ENTERED.iter().find(|(_, names)| is_among(name, names)).map(|&(kind, _)| kind)
}

/// Whether a function allocates for its caller.
pub fn is_forwarding(function: &Function) -> bool {
    let name = plain_name(&function.name);
    function.file.as_deref() == Some(SLUB) || entered(name).is_some() || is_among(name, &FORWARDING)
}

/// Returns the list of the allocators of a kernel, for the plugin (`fixtures/qemu/allocations.c`).
///
/// # Errors
/// If the kernel is not supported.
pub fn places(functions: &Functions, kernel: &str) -> Result<String> {
    let start = check_machine(functions.machine, kernel)?.kernel_start;
    let mut text = format!("kernel {}\n", functions.build_id.as_deref().unwrap_or("-"));
    let _ = writeln!(text, "stacks {:#x} {start:#x}", stack_size(functions, kernel)?);
    let mut has_slub = false;
    for function in functions.functions.iter().filter(|function| !function.is_label) {
        let name = plain_name(&function.name);
        let kind = entered(name);
        if let Some(kind) = kind {
            let _ = writeln!(text, "enter {kind} {:#x} {}", function.address, function.name);
        }
        let is_slub = function.file.as_deref() == Some(SLUB) || matches!(kind, Some("slab" | "bulk"));
        let code = match name {
            _ if is_slub => "slab",
            _ if is_among(name, &PREPARING) => "pages",
            _ => continue,
        };
        has_slub |= is_slub;
        let range = function.addresses();
        let _ = writeln!(text, "code {code} {:#x}-{:#x}", range.start, range.end);
    }
    if !has_slub {
        return Err(unsupported(kernel, "it has no function of mm/slub.c".into()));
    }
    Ok(text)
}

/// Returns the error for a kernel of which no allocations can be recorded.
pub(super) fn unsupported(kernel: &str, problem: String) -> Error {
    let advice = "census trace supports kernels for i386 and x86-64 at their linked address (nokaslr), with SLUB without sheaves (before Linux 6.18)";
    Error::Unsupported { kernel: kernel.into(), problem, advice }
}

/// Checks that allocations of a kernel for this machine can be recorded, and returns its rules.
fn check_machine(machine: Machine, kernel: &str) -> Result<&'static Rules> {
    match Rules::of(machine) {
        Some(rules) if rules.writes_return_addresses => Ok(rules),
        _ => Err(unsupported(kernel, format!("a kernel for {machine}"))),
    }
}

/// Returns the size of the stack of a task in bytes, which is also its alignment.
fn stack_size(functions: &Functions, kernel: &str) -> Result<u64> {
    let [start, end] = ["__start_init_stack", "__end_init_stack"].map(|name| functions.address_of(name));
    match (start, end) {
        (Some(start), Some(end)) if end.wrapping_sub(start).is_power_of_two() => Ok(end - start),
        _ => Err(unsupported(kernel, "its symbols do not have the size of a stack".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_no_part_of_a_name() {
        for (name, plain) in [
            ("kmem_cache_alloc_noprof", "kmem_cache_alloc"),
            ("kmalloc_array_noprof.constprop.0", "kmalloc_array"),
            ("get_page_from_freelist", "get_page_from_freelist"),
        ] {
            assert_eq!(plain_name(name), plain);
        }
    }

    #[test]
    fn kinds_of_allocators() {
        let kinds = [
            ("kmem_cache_alloc_bulk", Some("bulk")),
            ("kmem_cache_alloc_lru", Some("slab")),
            ("kmem_cache_free", None),
            ("__alloc_pages", Some("pages")),
            ("__alloc_pages_node", None),
            ("memblock_alloc_try_nid", Some("memblock")),
            ("memblock_add", None),
        ];
        assert!(kinds.iter().all(|&(name, kind)| entered(name) == kind));
    }
}
