//! The loaded segments of an object, and the bytes at their addresses.

use std::ops::Range;
use std::sync::Arc;

/// A loaded segment with its bytes in the file. Zeros that exist only in memory are omitted.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    /// Shared with every process that has not relocated them.
    pub(super) bytes: Arc<Vec<u8>>,
    /// Size in memory, in bytes.
    pub(super) memory_size: u64,
    pub(super) writable: bool,
}

impl Segment {
    /// Returns the address after its last byte in memory.
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.memory_size)
    }
}

/// Returns the bytes from `address` to the end of its segment; empty outside of any segment. Segments are sorted.
pub(super) fn bytes_at(segments: &[Segment], address: u64) -> &[u8] {
    let next = segments.partition_point(|segment| segment.address <= address);
    let Some(segment) = next.checked_sub(1).map(|index| &segments[index]) else { return &[] };
    let offset = usize::try_from(address - segment.address).unwrap_or(usize::MAX);
    segment.bytes.get(offset..).unwrap_or(&[])
}

/// Returns the bytes in a range of addresses, as far as one segment has them.
pub(super) fn bytes_in<'s>(segments: &'s [Segment], range: &Range<u64>) -> &'s [u8] {
    let bytes = bytes_at(segments, range.start);
    let size = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    &bytes[..size.min(bytes.len())]
}
