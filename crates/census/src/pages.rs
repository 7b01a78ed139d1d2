//! All pages of a kernel, by owner: a walk over the array of `struct page`.

use std::collections::BTreeMap;

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::document::Kind;
use crate::error::{Error, Result};
use crate::layout::{Field, Layouts};
use crate::memblock;
use crate::memory::{PAGE, pages_of};
use crate::paging::Mappings;
use crate::reserved::{self, Reserved};
use crate::running::{Frames, Running, bit};
use crate::slab::Caches;
use crate::tasks::Tasks;

/// Maximum order of a block of pages: 4 GiB.
const MAX_ORDER: u64 = 20;

/// The highest order with lists of processors for each type of mobility (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u64 = 3;

/// Number of pages by kind and name.
pub type PageCounts = BTreeMap<(Kind, String), u64>;

/// The values of the highest byte of `page_type` in a `struct page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageTypes {
    slab: u64,
    buddy: u64,
    table: u64,
    offline: u64,
    /// Since Linux 6.14.
    large_kmalloc: Option<u64>,
}

/// Bits of `page->mapping` (`include/linux/page-flags.h`): anonymous memory, and pages that a driver can move.
const MAPPING_ANON: u64 = 1;
const MAPPING_BITS: u64 = 3;

/// The members of `struct page` that the walk reads.
struct PageReader {
    flags: Field,
    page_type: Field,
    references: Field,
    mapping: Field,
    private: Field,
    /// The offset of the list links.
    links: u64,
    folio_order: Field,
    reserved: u64,
    head: u64,
    types: PageTypes,
}

impl PageReader {
    fn new(layouts: &Layouts) -> Result<PageReader> {
        let types = PageTypes {
            slab: layouts.constant("PGTY_slab")?,
            buddy: layouts.constant("PGTY_buddy")?,
            table: layouts.constant("PGTY_table")?,
            offline: layouts.constant("PGTY_offline")?,
            large_kmalloc: layouts.constant("PGTY_large_kmalloc").ok(),
        };
        Ok(PageReader {
            flags: layouts.field("page", "flags")?,
            page_type: layouts.field("page", "page_type")?,
            references: layouts.field("page", "_refcount")?,
            mapping: layouts.field("page", "mapping")?,
            private: layouts.field("page", "private")?,
            links: layouts.offset("page", "lru")?,
            // The order is in the lowest byte.
            folio_order: Field { size: 1, ..layouts.field("folio", "_flags_1")? },
            reserved: bit(layouts.constant("PG_reserved")?),
            head: bit(layouts.constant("PG_head")?),
            types,
        })
    }
}

/// The type of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageType {
    Slab,
    Buddy,
    Table,
    LargeKmalloc,
    Offline,
    Other,
}

impl PageTypes {
    fn of(self, page_type: u64) -> PageType {
        match page_type >> 24 {
            byte if byte == self.slab => PageType::Slab,
            byte if byte == self.buddy => PageType::Buddy,
            byte if byte == self.table => PageType::Table,
            byte if byte == self.offline => PageType::Offline,
            byte if Some(byte) == self.large_kmalloc => PageType::LargeKmalloc,
            _ => PageType::Other,
        }
    }
}

/// The name of the owner of `kmalloc` of more than a slab holds.
pub const LARGE_KMALLOC: &str = "large kmalloc";

/// The name of the owner of pages that a driver gave back to the host (`virtio_balloon`).
pub const OFFLINE: &str = "given to the host";

/// Pages without a type that were allocated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The index of the first page frame.
    pub index: u64,
    /// Number of its pages.
    pub pages: u64,
    /// Whether they form one compound page.
    pub is_compound: bool,
    /// The count of references of the first page.
    pub references: u64,
}

/// The pages of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Numbers of pages with a known owner, of free pages and of reserved ones.
    pub counts: PageCounts,
    /// The other pages.
    pub blocks: Vec<Block>,
    /// The pages in use with data of the kernel, except slabs and reserved pages; those in `blocks` are among them.
    pub allocated: Vec<Block>,
    /// The indices of the page frames that the kernel reserved at boot, except its image and the first megabyte.
    pub early: Vec<u64>,
}

/// Counts all pages by owner, and adds the slabs to their caches.
///
/// # Errors
/// If the core contradicts itself or lacks a part.
pub fn count(
    running: &mut Running<'_>,
    frames: &Frames,
    caches: &mut Caches,
    mappings: &Mappings,
) -> Result<Pages> {
    let mut walk = Walk {
        reader: PageReader::new(running.layouts)?,
        owned: owned_pages(running, frames, mappings)?,
        reserved: Reserved::read(running, frames)?,
        files: FxHashMap::default(),
        pages: Pages::default(),
    };
    for bank in memblock::banks(running, frames)? {
        let mut index = bank.start;
        while index < bank.end {
            index += walk.count_block(running, frames, caches, index, bank.end - index)?;
        }
    }
    if caches.unlisted > 0 {
        walk.pages.counts.insert((Kind::Unknown, "slabs of no listed cache".into()), caches.unlisted);
    }
    Ok(walk.pages)
}

/// The walk over the array of `struct page`.
struct Walk {
    reader: PageReader,
    /// The kinds of pages that other structures identify, by the index of the page frame.
    owned: FxHashMap<u64, Kind>,
    reserved: Reserved,
    /// The file systems of files, by the address of their `struct address_space`; `None` if there is no file.
    files: FxHashMap<u64, Option<String>>,
    pages: Pages,
}

impl Walk {
    /// Counts the block that begins at the page frame with an index, of at most `limit` pages. Returns their number.
    fn count_block(
        &mut self,
        running: &mut Running<'_>,
        frames: &Frames,
        caches: &mut Caches,
        index: u64,
        limit: u64,
    ) -> Result<u64> {
        let (page, reader) = (frames.page(index), &self.reader);
        let flags = running.memory.field(page, reader.flags)?;
        if flags & reader.reserved != 0 {
            let owner = self.reserved.owner(frames.first + index);
            self.pages.add((Kind::Reserved, owner.into()), 1);
            if !matches!(owner, reserved::IMAGE | reserved::LOW) {
                self.pages.early.push(index);
            }
            return Ok(1);
        }
        let page_type = reader.types.of(running.memory.field(page, reader.page_type)?);
        let order = match page_type {
            PageType::Buddy => running.memory.field(page, reader.private)?,
            _ if flags & reader.head != 0 => running.memory.field(page, reader.folio_order)?,
            _ => 0,
        };
        if order > MAX_ORDER || 1 << order > limit {
            let place = format!("the struct page at {page:#x} of page frame {}", frames.first + index);
            let problem = format!("a block of 2 to the power of {order} pages");
            return Err(running.memory.damaged(&place, problem, format!("at most {limit}")));
        }
        let pages = 1 << order;
        let owned = self.owned.get(&index).copied();
        let owner = match (page_type, owned) {
            (PageType::Buddy, _) => Some((Kind::Free, "free pages".to_owned())),
            (_, Some(kind)) if kind != Kind::Vmalloc => Some((kind, owned_name(kind).into())),
            (PageType::Slab, _) => {
                caches.add(running, page, frames.first + index, pages)?;
                return Ok(pages);
            }
            (PageType::Table, _) => Some((Kind::PageTables, owned_name(Kind::PageTables).into())),
            (PageType::LargeKmalloc, _) => Some((Kind::Slab, LARGE_KMALLOC.into())),
            (PageType::Offline, _) => Some((Kind::Reserved, OFFLINE.into())),
            (PageType::Other, owned) => {
                let own = other_owner(running, reader, page, &mut self.files)?;
                own.or(owned.map(|kind| (kind, owned_name(kind).into())))
            }
        };
        if owner.as_ref().is_none_or(|(kind, _)| kind.is_kernel_data()) {
            add_block(running, &self.reader, frames, index, order, &mut self.pages.allocated)?;
        }
        match owner {
            Some(owner) => self.pages.add(owner, pages),
            None => add_block(running, &self.reader, frames, index, order, &mut self.pages.blocks)?,
        }
        Ok(pages)
    }
}

impl Pages {
    fn add(&mut self, owner: (Kind, String), pages: u64) {
        *self.counts.entry(owner).or_default() += pages;
    }
}

/// Returns the name of owners that are found through other structures than the page's own.
fn owned_name(kind: Kind) -> &'static str {
    match kind {
        Kind::PageTables => "page tables",
        Kind::Stacks => "stacks of tasks",
        Kind::ProcessorLists => "free pages of processors",
        _ => "mapped pages",
    }
}

/// Returns the kinds of the pages that other structures than their own identify, by the index of the page frame.
fn owned_pages(
    running: &mut Running<'_>,
    frames: &Frames,
    mappings: &Mappings,
) -> Result<FxHashMap<u64, Kind>> {
    let mut owned = FxHashMap::default();
    let mut own = |pages: &[u64], kind: Kind| {
        owned.extend(pages.iter().filter_map(|&physical| Some((frames.index_of(physical)?, kind))));
    };
    own(&mapped_pages(frames, mappings), Kind::Vmalloc);
    own(&mappings.tables, Kind::PageTables);
    let tasks = Tasks::read(running)?;
    own(&tasks.stacks, Kind::Stacks);
    own(&tasks.tables, Kind::PageTables);
    own(&processor_lists(running, frames)?, Kind::ProcessorLists);
    Ok(owned)
}

/// Returns the physical addresses of the page frames that are mapped outside of the linear mapping.
fn mapped_pages(frames: &Frames, mappings: &Mappings) -> Vec<u64> {
    let mut ranges: Vec<Range<u64>> = mappings
        .memory
        .iter()
        .map(|mapping| pages_of(mapping.physical..mapping.physical + mapping.size))
        .collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut next, mut pages) = (frames.first, Vec::new());
    for range in ranges {
        let end = range.end.min(frames.first + frames.count);
        pages.extend((range.start.max(next)..end).map(|frame| frame * PAGE));
        next = next.max(end);
    }
    pages
}

/// Returns the physical addresses of the free pages that processors keep.
fn processor_lists(running: &mut Running<'_>, frames: &Frames) -> Result<Vec<u64>> {
    let layouts = running.layouts;
    let (zones, zone_size) = (layouts.array("pglist_data", "node_zones")?, layouts.size("zone")?);
    let (lists, link) = (layouts.array("per_cpu_pages", "lists")?, layouts.offset("page", "lru")?);
    let (types, huge) = (layouts.constant("MIGRATE_PCPTYPES")?, running.kernel.rules.huge_order);
    let head_size = 2 * running.memory.word_size();
    let node = running.symbol("contig_page_data")?;
    let mut pages = Vec::new();
    for number in 0..zones.count {
        let zone = node.wrapping_add(zones.offset + number * zone_size);
        let pointer = running.member(zone, "zone", "per_cpu_pageset")?;
        for processor in running.per_cpu(pointer)? {
            for list in 0..lists.count {
                let order = order_of_list(list, types, huge);
                let head = processor.wrapping_add(lists.offset + list * head_size);
                let place = format!("the free pages of a processor at {head:#x}");
                for member in running.memory.list(head, frames.count, &place)? {
                    let page = member.wrapping_sub(link);
                    let Some(index) = frames.index_of_page(page) else {
                        return Err(running.memory.damaged(
                            &place,
                            format!("the page {page:#x}"),
                            "a struct page",
                        ));
                    };
                    pages.extend((0..1u64 << order).map(|offset| (frames.first + index + offset) * PAGE));
                }
            }
        }
    }
    Ok(pages)
}

/// Returns the order of the blocks on a list of a processor (`pindex_to_order` in `mm/page_alloc.c`). There is a list for
/// each order and type of mobility, then with `CONFIG_TRANSPARENT_HUGEPAGE` two for huge pages.
fn order_of_list(list: u64, types: u64, huge: u64) -> u64 {
    match list / types.max(1) {
        order if order <= COSTLY_ORDER => order,
        _ => huge,
    }
}

/// Returns the owner of a page without a type, if the page itself names it.
fn other_owner(
    running: &mut Running<'_>,
    reader: &PageReader,
    page: u64,
    files: &mut FxHashMap<u64, Option<String>>,
) -> Result<Option<(Kind, String)>> {
    if running.memory.field(page, reader.references)? == 0 {
        return Ok(None);
    }
    let mapping = running.memory.field(page, reader.mapping)?;
    if mapping & MAPPING_ANON != 0 {
        return Ok(Some((Kind::Anonymous, "memory of programs".into())));
    }
    if mapping == 0 || mapping & MAPPING_BITS != 0 {
        return Ok(None);
    }
    // A page in use by the kernel may have another value here, which then points to no file.
    if let Some(name) = files.get(&mapping) {
        return Ok(name.clone().map(|name| (Kind::Files, name)));
    }
    let name = match file_system(running, mapping) {
        Ok(name) => Some(name),
        Err(Error::Damaged { .. }) => None,
        Err(error) => return Err(error),
    };
    files.insert(mapping, name.clone());
    Ok(name.map(|name| (Kind::Files, name)))
}

/// Adds the page with an index to the last block, if both were allocated together, or as a new block.
///
/// Two properties show that a page without a type is not the first one of an allocation. It has no reference: the other
/// pages of a block have none unless the block is compound or was split. Or its list links still point to themselves, as
/// at boot: the page has never been the first one of a free block, so that no allocation can have begun there.
fn add_block(
    running: &mut Running<'_>,
    reader: &PageReader,
    frames: &Frames,
    index: u64,
    order: u64,
    blocks: &mut Vec<Block>,
) -> Result<()> {
    let page = frames.page(index);
    let references = running.memory.field(page, reader.references)?;
    let links = page.wrapping_add(reader.links);
    let is_later = order == 0 && (references == 0 || running.memory.word(links)? == links);
    match blocks.last_mut() {
        Some(last)
            if is_later && !last.is_compound && last.references > 0 && last.index + last.pages == index =>
        {
            last.pages += 1;
        }
        _ => blocks.push(Block { index, pages: 1 << order, is_compound: order > 0, references }),
    }
    Ok(())
}

/// Returns the type of the file system of a file's pages.
fn file_system(running: &mut Running<'_>, mapping: u64) -> Result<String> {
    let host = running.member(mapping, "address_space", "host")?;
    let inode_data = running.layouts.offset("inode", "i_data")?;
    let super_block = running.member(host, "inode", "i_sb")?;
    let own = host.wrapping_add(inode_data);
    if own != mapping && running.member(host, "inode", "i_mapping")? != mapping {
        return Err(running.memory.damaged(
            "a file",
            format!("the mapping {mapping:#x}"),
            format!("{own:#x}"),
        ));
    }
    let kind = running.member(super_block, "super_block", "s_type")?;
    let name = running.member(kind, "file_system_type", "name")?;
    let variable = |running: &Running<'_>| {
        let mut variables = running.kernel.variables.iter();
        variables.find(|variable| running.at(variable.address) == kind).map(|variable| variable.name.clone())
    };
    match running.name(name, 64, "a type of file system")? {
        Some(name) => Ok(name),
        None => Ok(variable(running).unwrap_or_else(|| format!("a file system at {kind:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_follow_the_lists_of_orders() {
        let orders: Vec<u64> = (0..14).map(|list| order_of_list(list, 3, 10)).collect();
        assert_eq!(orders, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 10, 10]);
    }
}
