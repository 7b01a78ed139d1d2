//! Reads of the kernel's read-only data in a log.

use std::ops::Range;

use kplan::{ByteRange, Reads};
use ktext::KernelText;

use super::line::{Span, hexadecimal};
use crate::error::{Error, Result};

/// Records a line about data. Returns whether it is one.
pub(super) fn note(line: &[u8], span: Span, reads: &mut Option<Reads>) -> bool {
    if let Some(watched) = line.strip_prefix(b"data ").and_then(addresses) {
        *reads =
            Some(Reads { address: watched.start, size: watched.end - watched.start, ranges: Vec::new() });
        return true;
    }
    let (ever, later) = (line.strip_prefix(b"read "), line.strip_prefix(b"later "));
    let (wanted, other) = if span == Span::All { (ever, later) } else { (later, ever) };
    if other.and_then(addresses).is_some() && reads.is_some() {
        return true;
    }
    let read = wanted.and_then(addresses);
    let (Some(read), Some(Reads { address, size, ranges })) = (read, reads) else { return false };
    let last = ranges.last().map(ByteRange::end);
    let offset = read.start.checked_sub(*address).filter(|&offset| last.is_none_or(|last| offset > last));
    let range = offset.map(|offset| ByteRange { offset, size: read.end - read.start });
    let range = range.filter(|range| range.end() <= *size);
    ranges.extend(range);
    range.is_some()
}

/// Parses `0xSTART-0xEND`.
fn addresses(text: &[u8]) -> Option<Range<u64>> {
    let dash = text.iter().position(|&byte| byte == b'-')?;
    let address = |text: &[u8]| hexadecimal(text.strip_prefix(b"0x")?);
    let range = address(&text[..dash])?..address(&text[dash + 1..])?;
    (!range.is_empty()).then_some(range)
}

/// Checks that the watched range is the kernel's read-only data.
pub(super) fn check(reads: Option<&Reads>, name: &str, kernel: &KernelText) -> Result<()> {
    let own = kernel.linked.address_of("__start_rodata");
    let Some(Reads { address, .. }) = reads.filter(|reads| Some(reads.address) != own) else { return Ok(()) };
    let problem = match own {
        Some(own) => {
            format!("it watched the data at {address:#x}, and the kernel has its read-only data at {own:#x}")
        }
        None => format!("it watched the data at {address:#x}, and the kernel has no symbol `__start_rodata`"),
    };
    Err(Error::OtherKernel { name: name.into(), kernel: kernel.path.clone(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_taken_in_order_and_within_what_was_watched() {
        let mut reads = None;
        let lines = [
            ("read 0xc0101000-0xc0101008", false),
            ("data 0xc0101000-0xc0102000", true),
            ("read 0xc0101000-0xc0101008", true),
            ("read 0xc0101008-0xc0101010", false),
            ("read 0xc0101ff8-0xc0102000", true),
            ("read 0xc0101ff9-0xc0102001", false),
            ("read 0xc0100ff8-0xc0101000", false),
            ("read 0xc0101ff8", false),
        ];
        for (line, taken) in lines {
            assert_eq!(note(line.as_bytes(), Span::All, &mut reads), taken, "{line}");
        }
        let range = |offset| ByteRange { offset, size: 8 };
        let ranges = vec![range(0), range(0xFF8)];
        let of_boot = Reads { address: 0xC010_1000, size: 0x1000, ranges };
        assert_eq!(reads, Some(of_boot.clone()));
        // Lines of the other kind are recognized and ignored.
        assert!(note(b"later 0xc0101ff8-0xc0102000", Span::All, &mut reads));
        assert_eq!(reads, Some(of_boot));
        let mut reads = None;
        for line in
            ["data 0xc0101000-0xc0102000", "read 0xc0101000-0xc0101008", "later 0xc0101008-0xc0101010"]
        {
            assert!(note(line.as_bytes(), Span::AfterBoot, &mut reads), "{line}");
        }
        assert_eq!(reads.map(|reads| reads.ranges), Some(vec![range(8)]));
    }
}
