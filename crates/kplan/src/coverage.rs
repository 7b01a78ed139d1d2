//! The section `coverage`: the code of a kernel that ran, in which order, and how often if known.
//!
//! One section holds the union of any number of traces of any kind. A trace of instructions records which bytes of a
//! function ran; a trace of calls records only that the function ran. Code is identified by function and offset in the
//! function *as it was compiled*, never by address. A trace of one link therefore remains valid for the next.
//!
//! ```
//! let plan = kplan::Plan::parse(include_str!("../examples/coverage.json"), "coverage.json")?;
//! let coverage = plan.coverage.unwrap();
//! let start = &coverage.functions[0];
//! assert_eq!((start.function.name.as_str(), start.first), ("start_kernel", 0));
//! assert_eq!(start.bytes_run(), Some(40));
//! # Ok::<(), kplan::Error>(())
//! ```

mod merge;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::function::FunctionName;
use crate::order::ByteRange;

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedCoverage")]
pub struct Coverage {
    /// The traces.
    pub runs: Vec<Run>,
    /// The functions that ran, by rising `first`.
    pub functions: Vec<CoveredFunction>,
    /// Caller and callee pairs, if a trace records them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallEdge>,
}

/// One trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The kind of trace: `qemu`, `ftrace`, `kcore`.
    pub source: String,
    /// The trace file.
    pub trace: String,
    /// The linked kernel that was traced.
    pub kernel: String,
    /// The build ID of that kernel in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Number of events in the kernel that no function was found for.
    pub unknown: u64,
    /// Whether the trace has no order; `first` then follows the addresses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
    /// The read-only data that was read, if the trace records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
}

/// The bytes of an address range that were read. Addresses are valid only for the kernel that ran, not for another
/// link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// The first watched address.
    pub address: u64,
    /// The number of watched bytes.
    pub size: u64,
    /// The bytes that were read, as offsets from `address`; rising and not touching one another.
    pub ranges: Vec<ByteRange>,
}

impl Reads {
    /// Returns whether the `size` bytes at `address` were watched and none of them was read.
    pub fn are_unread(&self, address: u64, size: u64) -> bool {
        let Some(start) = address.checked_sub(self.address) else { return false };
        let Some(end) = start.checked_add(size).filter(|&end| end <= self.size) else { return false };
        let next = self.ranges.partition_point(|range| range.end() <= start);
        self.ranges.get(next).is_none_or(|range| range.offset >= end)
    }
}

/// A function that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredFunction {
    /// The function's name.
    #[serde(flatten)]
    pub function: FunctionName,
    /// Its section in the linked kernel: `.text`, `.init.text`, …
    pub section: String,
    /// Its size in bytes.
    pub size: u64,
    /// The rank of its first run, from 0, on one scale for all functions and ranges of this section.
    pub first: u64,
    /// Number of times it was entered, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The bytes that ran, as rising ranges that do not touch. Absent if the traces record only functions; nothing is
    /// known about the bytes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Vec<RanRange>>,
}

impl CoveredFunction {
    /// Returns how many of its bytes ran, if known.
    pub fn bytes_run(&self) -> Option<u64> {
        self.ran.as_ref().map(|ran| ran.iter().map(|range| range.size).sum())
    }
}

/// A run of bytes of a function, all of which ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanRange {
    /// Offset in the function, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// The rank of the first run of any of its bytes, on the scale of [`CoveredFunction::first`].
    pub first: u64,
    /// Execution count of its hottest instruction, if known; an upper bound if traces were merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl RanRange {
    /// Returns the offsets of its bytes.
    pub fn offsets(&self) -> Range<u64> {
        self.offset..self.offset + self.size
    }
}

/// Traced calls from one function to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEdge {
    /// The caller, as an index into [`Coverage::functions`].
    pub from: usize,
    /// The callee, as an index into [`Coverage::functions`].
    pub to: usize,
    /// The number of calls.
    pub count: u64,
}

/// The section as read, before validation.
#[derive(Deserialize)]
struct UncheckedCoverage {
    runs: Vec<Run>,
    functions: Vec<CoveredFunction>,
    #[serde(default)]
    calls: Vec<CallEdge>,
}

impl TryFrom<UncheckedCoverage> for Coverage {
    type Error = String;

    fn try_from(UncheckedCoverage { runs, functions, calls }: UncheckedCoverage) -> Result<Coverage, String> {
        for function in &functions {
            let mut end = None;
            for range in function.ran.iter().flatten() {
                let range_end = range.offset.checked_add(range.size).filter(|&end| end <= function.size);
                let rises = range.size > 0 && end.is_none_or(|end| range.offset > end);
                end = range_end.filter(|_| rises);
                if end.is_none() {
                    return Err(format!(
                        "coverage: function {}: the range of {} bytes at {}; expected rising ranges that do \
                         not touch, within its {} bytes",
                        function.function, range.size, range.offset, function.size
                    ));
                }
            }
        }
        for Reads { address, size, ranges } in runs.iter().filter_map(|run| run.reads.as_ref()) {
            let mut last = None;
            for range in ranges {
                let end = range.offset.checked_add(range.size).filter(|end| end <= size);
                let rises = range.size > 0 && last.is_none_or(|last| range.offset > last);
                last = end.filter(|_| rises);
                if last.is_none() {
                    return Err(format!(
                        "coverage: reads at {address:#x}: the range of {} bytes at {}; expected rising ranges that do \
                         not touch, within {size} bytes",
                        range.size, range.offset
                    ));
                }
            }
        }
        let count = functions.len();
        if let Some(call) = calls.iter().find(|call| call.from.max(call.to) >= count) {
            let CallEdge { from, to, .. } = call;
            return Err(format!("coverage: a call from {from} to {to}, but there are {count} functions"));
        }
        Ok(Coverage { runs, functions, calls })
    }
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    /// Returns the error message for the example with one change.
    fn message(from: &str, to: &str) -> String {
        let example = include_str!("../examples/coverage.json");
        assert!(example.contains(from), "{from}");
        Plan::parse(&example.replace(from, to), "c.json").unwrap_err().to_string()
    }

    #[test]
    fn the_example_is_what_would_be_written() {
        let example = include_str!("../examples/coverage.json");
        let mut out = Vec::new();
        Plan::parse(example, "coverage.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), example);
    }

    #[test]
    fn unread_is_what_was_watched_and_not_read() {
        let example = include_str!("../examples/coverage.json");
        let coverage = Plan::parse(example, "coverage.json").unwrap().coverage.unwrap();
        let reads = coverage.runs[0].reads.as_ref().unwrap();
        // 128 bytes are watched; 0 to 8 and 96 to 128 were read.
        for (address, size) in [(0xC120_0008, 88), (0xC120_0040, 32), (0xC120_0050, 0)] {
            assert!(reads.are_unread(address, size), "{address:#x} {size}");
        }
        for (address, size) in [(0xC120_0000, 1), (0xC120_0007, 2), (0xC120_0008, 89), (0xC120_007F, 1)] {
            assert!(!reads.are_unread(address, size), "{address:#x} {size}");
        }
        for (address, size) in [(0xC11F_FFFF, 1), (0xC120_0080, 1), (0xC120_0040, u64::MAX)] {
            assert!(!reads.are_unread(address, size), "{address:#x} {size}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let message_of = |from, to| {
            let message = message(from, to);
            assert!(message.starts_with("c.json: not a valid plan: coverage: "), "{message}");
            message
        };
        let outside = message_of(r#""offset": 48, "size": 16"#, r#""offset": 48, "size": 17"#);
        assert!(outside.contains("start_kernel: the range of 17 bytes at 48"), "{outside}");
        message_of(r#""offset": 48"#, r#""offset": 24"#);
        message_of(r#""offset": 48, "size": 16"#, r#""offset": 48, "size": 0"#);
        message_of(r#""offset": 48"#, r#""offset": 18446744073709551615"#);
        let reads = message_of(r#""offset": 96, "size": 32"#, r#""offset": 96, "size": 33"#);
        assert!(reads.contains("reads at 0xc1200000: the range of 33 bytes at 96"), "{reads}");
        message_of(r#""offset": 96, "size": 32"#, r#""offset": 8, "size": 32"#);
        let call = message_of(r#""to": 2"#, r#""to": 3"#);
        assert!(call.contains("a call from 1 to 3, but there are 3 functions"), "{call}");
    }
}
