//! Caches in a few pages of memory that are made by hand.

use super::*;
use crate::kernel::Kernel;
use crate::layout::{Field, Layouts, Structure};
use crate::memory::PAGE;
use crate::memory::handmade::{self, Pages, START};
use crate::running::FrameArray;

/// The head of the list of caches, and the caches.
const HEAD: u64 = START;
const CACHES: [u64; 2] = [START + 0x100, START + 0x200];
/// The nodes of the caches.
const NODES: [u64; 2] = [START + 0x300, START + 0x320];
const NAME: u64 = START + 0x340;
/// The array of `struct page`: one for each page.
const PAGES: u64 = START + 0x400;

/// Adds members, each of one word, to a structure.
fn add(layouts: &mut Layouts, name: &str, size: u64, fields: &[(&str, u64)]) {
    let structure =
        layouts.types.entry(name.to_owned()).or_insert(Structure { size, ..Structure::default() });
    for &(field, offset) in fields {
        structure.fields.insert(field.to_owned(), Field { offset, size: 4, count: 1, bits: None });
    }
}

fn layouts(hardened: bool) -> Layouts {
    let mut layouts = Layouts::default();
    let cache = [
        ("list", 0),
        ("name", 8),
        ("size", 12),
        ("object_size", 16),
        ("refcount", 20),
        ("offset", 24),
        ("node", 28),
        ("random", 32),
    ];
    add(&mut layouts, "kmem_cache", 36, &cache[..if hardened { 8 } else { 7 }]);
    add(&mut layouts, "kmem_cache_node", 8, &[("partial", 0)]);
    add(&mut layouts, "slab", 32, &[("slab_cache", 4), ("slab_list", 8), ("freelist", 16)]);
    let bits = |bits| Field { offset: 20, size: 4, count: 1, bits: Some(bits) };
    let slab = layouts.types.get_mut("slab").unwrap();
    slab.fields.insert("inuse".into(), bits((0, 16)));
    slab.fields.insert("objects".into(), bits((16, 15)));
    layouts
}

/// Two caches. The first has objects of 1,024 bytes; its slab on page 1 has 4 objects, `used` of them allocated, and is
/// on the list of partly used slabs. The second has objects of 2,048 bytes, and a full slab on page 2.
fn memory(used: u64) -> Pages {
    let mut pages = Pages::new(3);
    pages.write(HEAD, &[CACHES[0], CACHES[1]]);
    pages.write(NAME, &[u64::from(u32::from_le_bytes(*b"name"))]);
    let (partial, slab) = (PAGES + 32 + 8, PAGES + 32);
    pages.write(CACHES[0], &[CACHES[1], HEAD, NAME, 1024, 1000, 3, 8, NODES[0], 0]);
    pages.write(CACHES[1], &[HEAD, CACHES[0], NAME, 2048, 2048, u64::from(u32::MAX), 0, NODES[1], 0]);
    pages.write(NODES[0], &[partial, partial]);
    pages.write(NODES[1], &[NODES[1], NODES[1]]);
    // The objects 3 and 1 are free.
    let free = START + PAGE + 3 * 1024;
    pages.write(slab, &[0, CACHES[0], NODES[0], NODES[0], free, 4 << 16 | used]);
    pages.write(free + 8, &[START + PAGE + 1024]);
    pages.write(PAGES + 64, &[0, CACHES[1], 0, 0, 0, 2 << 16 | 2]);
    pages
}

/// Walks the two slabs, and returns the caches and, for each object of each slab, whether it is free.
fn walk(pages: &mut Pages, layouts: &Layouts) -> Result<(Caches, Vec<Vec<bool>>)> {
    let kernel = Kernel::with_symbols(&[("slab_caches", HEAD)]);
    let mut running = Running { kernel: &kernel, layouts, memory: handmade::memory(pages), slide: 0 };
    let arrays = vec![FrameArray { indices: 0..3, map: PAGES }];
    let frames = Frames { first: 0, count: 3, size: 32, arrays };
    let mut caches = Caches::read(&mut running)?;
    caches.add(&mut running, frames.page(1), 1, 1)?;
    caches.add(&mut running, frames.page(2), 2, 1)?;
    caches.finish(&mut running, &frames)?;
    let free =
        caches.slabs.iter().map(|slab| caches.free_objects(&mut running, slab)).collect::<Result<_>>()?;
    Ok((caches, free))
}

fn error(pages: &mut Pages) -> String {
    walk(pages, &layouts(false)).unwrap_err().to_string()
}

#[test]
fn objects_of_slabs_are_counted() {
    let (caches, free) = walk(&mut memory(2), &layouts(false)).unwrap();
    let figures =
        |cache: &Cache| (cache.size, cache.merged, cache.pages, cache.objects, cache.used, cache.active);
    let all: Vec<_> = caches.caches.iter().map(figures).collect();
    assert_eq!(all, [(1024, 2, 1, 4, 2, 2), (2048, 0, 1, 2, 2, 2)]);
    assert_eq!(caches.caches[0].name, "name");
    assert_eq!(free, [vec![false, true, false, true], vec![false, false]]);
    assert_eq!(caches.unlisted, 0);
}

#[test]
fn disguised_pointers_are_followed() {
    let mut pages = memory(2);
    let (secret, at) = (0x1234_5678, START + PAGE + 3 * 1024 + 8);
    let disguise = |object: u64, at: u64| object ^ secret ^ u64::from((at as u32).swap_bytes());
    pages.write(CACHES[0] + 32, &[secret]);
    pages.write(at, &[disguise(START + PAGE + 1024, at)]);
    let last = START + PAGE + 1024 + 8;
    pages.write(last, &[disguise(0, last)]);
    let (_, free) = walk(&mut pages, &layouts(true)).unwrap();
    assert_eq!(free[0], [false, true, false, true]);
}

#[test]
fn slab_of_an_unlisted_cache_has_no_owner() {
    let mut pages = memory(2);
    pages.write(PAGES + 64 + 4, &[START + 0x380]);
    let (caches, _) = walk(&mut pages, &layouts(false)).unwrap();
    assert_eq!((caches.unlisted, caches.caches[1].pages), (1, 0));
}

#[test]
fn impossible_counts_are_damage() {
    let message = error(&mut memory(5));
    assert!(
        message.contains("of the cache name: 5 of 4 objects of 1024 bytes on 1 pages are used"),
        "{message}"
    );
    let mut pages = memory(2);
    pages.write(PAGES + 64 + 20, &[3 << 16 | 3]);
    assert!(error(&mut pages).contains("3 of 3 objects of 2048 bytes on 1 pages"));
    let mut pages = memory(2);
    pages.write(PAGES + 64 + 20, &[0]);
    assert!(error(&mut pages).contains("0 of 0 objects"));
    // A free object that follows itself.
    let mut pages = memory(2);
    pages.write(START + PAGE + 1024 + 8, &[START + PAGE + 1024]);
    assert!(error(&mut pages).contains("the free objects of the cache name: 0xc0001400 is free twice"));
    // A free object of another slab.
    let mut pages = memory(2);
    pages.write(START + PAGE + 3 * 1024 + 8, &[START + 2 * PAGE]);
    assert!(error(&mut pages).contains("the free objects of the cache name: 0xc0002000 is not in the slab"));
    // Two caches with the same list of partly used slabs.
    let mut pages = memory(2);
    pages.write(CACHES[1] + 28, &[NODES[0]]);
    assert!(error(&mut pages).contains("the lists at 0xc0000300 are used twice"));
    // A list of partly used slabs that leads to another cache's.
    let mut pages = memory(2);
    pages.write(NODES[1], &[PAGES + 32 + 8]);
    assert!(error(&mut pages).contains("the partly used slabs of the cache name: "));
}

/// The object that a processor's list has is free, also if its slab counts it as used.
#[test]
fn free_objects_of_processors_are_not_used() {
    let mut layouts = layouts(false);
    add(&mut layouts, "kmem_cache", 40, &[("cpu_slab", 36)]);
    add(&mut layouts, "kmem_cache_cpu", 4, &[("freelist", 0)]);
    let (processors, object) = (START + 0x380, START + 2 * PAGE + 2048);
    let mut pages = memory(2);
    pages.write(CACHES[0] + 36, &[processors + 4]);
    pages.write(CACHES[1] + 36, &[processors]);
    pages.write(processors, &[object]);
    let (caches, free) = walk(&mut pages, &layouts).unwrap();
    assert_eq!((caches.caches[1].used, caches.caches[1].active), (1, 2));
    assert_eq!(free, [vec![false, true, false, true], vec![false, true]]);
    // An object that follows itself, and one of another cache.
    pages.write(object, &[object]);
    let error = walk(&mut pages, &layouts).unwrap_err().to_string();
    assert!(error.contains("0xc0002800 is free twice"), "{error}");
    pages.write(processors, &[START + PAGE]);
    let error = walk(&mut pages, &layouts).unwrap_err().to_string();
    assert!(error.contains("0xc0001000 is in none of its slabs"), "{error}");
}

#[test]
fn free_objects_of_sheaves_are_not_used() {
    let mut layouts = layouts(false);
    add(&mut layouts, "kmem_cache", 40, &[("cpu_sheaves", 36)]);
    add(&mut layouts, "slub_percpu_sheaves", 8, &[("main", 0), ("spare", 4)]);
    add(&mut layouts, "slab_sheaf", 12, &[("barn_list", 0), ("size", 8)]);
    // An array of unknown length.
    let objects = Field { offset: 12, size: 0, count: 0, bits: None };
    layouts.types.get_mut("slab_sheaf").unwrap().fields.insert("objects".into(), objects);
    add(&mut layouts, "node_barn", 8, &[("sheaves_full", 0)]);
    let (processor, sheaf) = (START + 0x380, START + 0x390);
    let mut pages = memory(2);
    pages.write(CACHES[1] + 36, &[processor]);
    pages.write(processor, &[sheaf, 0]);
    pages.write(sheaf, &[0, 0, 1, START + 2 * PAGE]);
    let (caches, free) = walk(&mut pages, &layouts).unwrap();
    assert_eq!((caches.caches[0].used, caches.caches[1].used), (2, 1));
    assert_eq!(free[1], [true, false]);
    pages.write(sheaf + 8, &[u64::from(u32::MAX)]);
    let error = walk(&mut pages, &layouts).unwrap_err().to_string();
    assert!(error.contains("0x0 is in none of its slabs"), "{error}");
}
