//! The arithmetic of the slab allocator (SLUB): the size of an object's place, and the number of objects of a slab.
//!
//! The sources are `calculate_sizes` and `calculate_order` in `mm/slub.c` and `calculate_alignment` in
//! `mm/slab_common.c` (Linux 6.12), without the debugging options, which add red zones and owners to objects.

use crate::document::{Allocator, CacheProfile, Constructor};

/// Maximum number of objects of a slab (`MAX_OBJS_PER_PAGE`).
const MAX_OBJECTS: u64 = 32767;

/// A slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The size of an object in bytes, with padding.
    pub size: u64,
    /// Number of objects.
    pub objects: u64,
    /// The size of the slab in bytes.
    pub bytes: u64,
}

impl Allocator {
    /// Returns the preferred number of objects of a slab for a number of processors: those that are present or, if that
    /// is one, those that are possible.
    pub fn objects_for(processors: u64) -> u64 {
        let bits = u64::from(u64::BITS - processors.leading_zeros());
        4 * (bits + 1)
    }

    /// Returns the slab of objects of `object_size` bytes that are placed like those of `cache`.
    pub fn slab(&self, cache: &CacheProfile, object_size: u64) -> Slab {
        let mut size = object_size.max(1).next_multiple_of(self.word);
        if cache.constructor == Constructor::After {
            size += self.word;
        }
        let size = size.next_multiple_of(self.alignment(cache, object_size).max(1));
        let bytes = self.page << self.order(size);
        Slab { size, objects: bytes / size, bytes }
    }

    /// Whether the slabs of a cache are as computed.
    pub fn explains(&self, cache: &CacheProfile) -> bool {
        let slab = self.slab(cache, cache.object_size);
        [slab.size, slab.objects, slab.bytes] == [cache.size, cache.per_slab, cache.slab_bytes]
    }

    /// Returns the alignment of objects of `object_size` bytes in bytes.
    fn alignment(&self, cache: &CacheProfile, object_size: u64) -> u64 {
        if !cache.cache_lines {
            return cache.align.max(self.align);
        }
        // The cache may also have asked for an alignment of its own, which only shows if it is the greater one.
        let mut line = self.cache_line;
        while object_size <= line / 2 {
            line /= 2;
        }
        let asked = if cache.align > self.lines(cache.object_size) { cache.align } else { 1 };
        line.max(asked).max(self.align)
    }

    /// Returns the alignment of objects at cache lines in bytes.
    fn lines(&self, object_size: u64) -> u64 {
        let mut line = self.cache_line;
        while object_size <= line / 2 {
            line /= 2;
        }
        line.max(self.align)
    }

    /// Returns the order of a slab of objects of `size` bytes with padding (`calculate_order`).
    fn order(&self, size: u64) -> u64 {
        let [least, greatest] = self.orders;
        let fitting = ((self.page << greatest) / size).max(1);
        let objects = self.objects.min(fitting);
        let first = least.max(self.order_of(objects * size));
        if (self.page << first) / size > MAX_OBJECTS {
            return self.order_of(size * MAX_OBJECTS).saturating_sub(1);
        }
        for fraction in [16, 8, 4, 2] {
            let fits = |order: &u64| (self.page << order) % size <= (self.page << order) / fraction;
            if let Some(order) = (first..=greatest).find(fits) {
                return order;
            }
        }
        self.order_of(size)
    }

    /// Returns the order of the smallest block of pages with this many bytes (`get_order`).
    fn order_of(&self, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(self.page).max(1);
        u64::from(pages.next_power_of_two().trailing_zeros())
    }
}

impl CacheProfile {
    /// Returns the size in bytes of this cache's slabs with `slab` instead of its own, with as many places for objects.
    pub fn bytes_with(&self, slab: Slab) -> u64 {
        self.objects.div_ceil(slab.objects.max(1)) * slab.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel for i386 with `CONFIG_SLUB_TINY`, one processor.
    const TINY: Allocator =
        Allocator { word: 4, page: 4096, align: 8, cache_line: 64, orders: [0, 1], objects: 8 };

    fn cache(object_size: u64, align: u64, cache_lines: bool, constructor: Constructor) -> CacheProfile {
        CacheProfile {
            name: "cache".into(),
            of: None,
            untyped: None,
            object_size,
            size: 0,
            align,
            cache_lines,
            constructor,
            per_slab: 0,
            slab_bytes: 0,
            bytes: 0,
            objects: 3661,
            used: 3661,
        }
    }

    #[test]
    fn ext2_inodes_take_the_steps_of_slub_tiny() {
        // Size of an object with padding: KiB of 3,661 of them.
        let steps = [
            (464, 1728),
            (452, 1628),
            (424, 1544),
            (408, 1468),
            (372, 1332),
            (340, 1224),
            (312, 1128),
            (272, 980),
            (256, 916),
        ];
        let cache = cache(456, 4, false, Constructor::Inside);
        for (size, kib) in steps {
            // Here the step counts, not the alignment of 8.
            let rules = Allocator { align: 4, ..TINY };
            let slab = rules.slab(&cache, size);
            assert_eq!((slab.size, cache.bytes_with(slab) / 1024), (size, kib));
        }
    }

    #[test]
    fn the_free_pointer_is_after_objects_with_a_constructor() {
        let with = |size, constructor| TINY.slab(&cache(size, 8, false, constructor), size);
        assert_eq!(with(456, Constructor::After), Slab { size: 464, objects: 17, bytes: 8192 });
        assert_eq!(with(456, Constructor::Inside), Slab { size: 456, objects: 17, bytes: 8192 });
        assert_eq!(with(452, Constructor::After).size, 456);
        assert_eq!(with(400, Constructor::After), Slab { size: 408, objects: 10, bytes: 4096 });
        assert_eq!(with(84, Constructor::Inside), Slab { size: 88, objects: 46, bytes: 4096 });
    }

    #[test]
    fn cache_lines_halve_for_small_objects() {
        let with = |size| TINY.slab(&cache(100, 64, true, Constructor::Inside), size).size;
        assert_eq!([with(8), with(16), with(17), with(33), with(65)], [8, 16, 32, 64, 128]);
        // An alignment of its own is greater, and stays.
        assert_eq!(TINY.slab(&cache(256, 256, true, Constructor::Inside), 200).size, 256);
    }

    /// `/proc/slabinfo` of a kernel for x86-64 with two processors: size, objects per slab and pages per slab.
    #[rustfmt::skip]
    const SLABINFO: [(u64, u64, u64); 88] = [
        (8, 512, 1), (16, 256, 1), (24, 170, 1), (32, 128, 1), (40, 102, 1), (48, 85, 1), (56, 73, 1), (64, 64, 1),
        (72, 56, 1), (80, 51, 1), (88, 46, 1), (96, 42, 1), (104, 39, 1), (112, 36, 1), (120, 34, 1), (128, 32, 1),
        (136, 30, 1), (160, 25, 1), (168, 24, 1), (176, 23, 1), (184, 22, 1), (192, 21, 1), (200, 20, 1),
        (208, 19, 1), (216, 18, 1), (232, 17, 1), (240, 17, 1), (248, 16, 1), (256, 16, 1), (272, 15, 1),
        (280, 14, 1), (288, 14, 1), (312, 13, 1), (320, 12, 1), (344, 23, 2), (376, 21, 2), (384, 21, 2),
        (392, 20, 2), (416, 19, 2), (432, 18, 2), (440, 18, 2), (448, 18, 2), (456, 17, 2), (480, 17, 2),
        (488, 16, 2), (512, 16, 2), (560, 14, 2), (576, 14, 2), (584, 14, 2), (624, 13, 2), (632, 25, 4),
        (640, 12, 2), (656, 12, 2), (672, 12, 2), (688, 23, 4), (696, 23, 4), (704, 23, 4), (752, 21, 4),
        (768, 21, 4), (832, 19, 4), (896, 18, 4), (960, 17, 4), (984, 16, 4), (1016, 16, 4), (1024, 16, 4),
        (1128, 14, 4), (1144, 14, 4), (1152, 14, 4), (1232, 13, 4), (1280, 12, 4), (1344, 12, 4), (1352, 12, 4),
        (1472, 22, 8), (1536, 21, 8), (1600, 20, 8), (1984, 16, 8), (2048, 16, 8), (2112, 15, 8), (2168, 15, 8),
        (2240, 14, 8), (2368, 13, 8), (2496, 13, 8), (2672, 12, 8), (4096, 8, 8), (4232, 7, 8), (4288, 7, 8),
        (8192, 4, 8), (51488, 1, 16),
    ];

    #[test]
    fn slabs_of_x86_64_are_as_slabinfo_prints_them() {
        let rules =
            Allocator { word: 8, align: 8, orders: [0, 3], objects: Allocator::objects_for(2), ..TINY };
        for (size, objects, pages) in SLABINFO {
            let slab = rules.slab(&cache(size, 8, false, Constructor::Inside), size);
            assert_eq!((slab.objects, slab.bytes / 4096), (objects, pages), "{size}");
        }
    }

    #[test]
    fn more_processors_prefer_more_objects() {
        assert_eq!([1, 2, 3, 4, 8].map(Allocator::objects_for), [8, 12, 12, 16, 20]);
    }
}
