//! The section `coverage`: which code of a kernel ran, in which order, and how often where that is known.
//!
//! One section holds what any number of traces saw, of whatever kind. A trace of instructions says which bytes of a
//! function ran; a trace of calls says only that the function did. Code is identified by function and offset in the
//! function *as it was compiled*, never by address, so that a trace of one link is useful for the next.
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
    /// Where it comes from, one entry a trace.
    pub runs: Vec<Run>,
    /// The functions that ran, by rising `first`.
    pub functions: Vec<CoveredFunction>,
    /// Who called whom, where a trace says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallEdge>,
}

/// One trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The kind of trace: `qemu`, `ftrace`, `kcore`.
    pub source: String,
    /// The file that it was read from.
    pub trace: String,
    /// The linked kernel that it is a trace of.
    pub kernel: String,
    /// The build ID of that kernel in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Events of the trace that are of the kernel, and that no function could be found for.
    pub unknown: u64,
    /// Set where the trace has no order: `first` follows the addresses then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
    /// The read-only data that was read, where the trace knows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
}

/// What was read of a range of addresses. Addresses are those of the kernel that ran, and hold for no other link of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// The first address that was watched.
    pub address: u64,
    /// How many bytes were watched.
    pub size: u64,
    /// What of them was read, as offsets from the first one; rising and not touching one another.
    pub ranges: Vec<ByteRange>,
}

impl Reads {
    /// Whether the `size` bytes at an address were watched, and none of them was read.
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
    /// Which function.
    #[serde(flatten)]
    pub function: FunctionName,
    /// The section of the linked kernel that it lies in: `.text`, `.init.text`, …
    pub section: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it first ran: a number on one scale for the functions and ranges of this section, from 0.
    pub first: u64,
    /// How often it was entered, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What of it ran, rising and not touching one another. Absent where the trace knows functions alone;
    /// nothing is known of its bytes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Vec<RanRange>>,
}

impl CoveredFunction {
    /// How many of its bytes ran, if that is known.
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
    /// When the first of its bytes first ran, on the scale of [`CoveredFunction::first`].
    pub first: u64,
    /// How often the instruction of it that ran most did so, where that is known. Of merged traces, an
    /// upper bound of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl RanRange {
    /// The offsets of its bytes.
    pub fn offsets(&self) -> Range<u64> {
        self.offset..self.offset + self.size
    }
}

/// Calls from one function to another, as a trace saw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEdge {
    /// The caller, as an index into [`Coverage::functions`].
    pub from: usize,
    /// The callee, likewise.
    pub to: usize,
    /// How many calls.
    pub count: u64,
}

/// The section as it is written, before it is known to make sense.
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

    /// The example with one change, read.
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
        // Watched are 128 bytes, of which 0 to 8 and 96 to 128 were read.
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
