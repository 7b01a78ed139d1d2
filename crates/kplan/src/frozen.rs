//! The section `frozen`: the code and read-only data that are kept compressed in memory until they are used.
//!
//! The author of the plan considers the listed parts safe to freeze. The pass `freeze` of `kshrink-spec` does not move
//! parts that a page fault needs, and reports them. Code is identified by function and offset *as it was compiled*,
//! data by its object and section. A list is therefore valid for every link of the same objects.
//!
//! ```
//! let plan = kplan::Plan::parse(include_str!("../examples/frozen.json"), "frozen.json")?;
//! let frozen = plan.frozen.unwrap();
//! assert!(frozen.code[0].contains(500, 12) && !frozen.code[1].contains(70, 20));
//! assert_eq!(frozen.data[0].section, ".rodata.str1.1");
//! # Ok::<(), kplan::Error>(())
//! ```

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::function::FunctionName;
use crate::order::ByteRange;

/// The section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedFrozen")]
pub struct Frozen {
    /// The mechanism that restores frozen parts.
    pub mechanism: Mechanism,
    /// Smallest region to freeze with the stub mechanism, in bytes; if absent, every region that saves memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<u32>,
    /// Functions, or parts of them, each function once.
    pub code: Vec<FrozenCode>,
    /// Read-only data, each input section once.
    pub data: Vec<FrozenData>,
}

/// The mechanism that restores frozen parts when they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// Absent pages; the page fault of the first use decodes the page.
    Page,
    /// Regions of code that are entered through stubs; the stub decodes the region. Data does not freeze.
    Stub,
}

/// Code of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatCode")]
pub struct FrozenCode {
    /// The function's name.
    #[serde(flatten)]
    pub function: FunctionName,
    /// The parts that freeze, by rising offset and not touching; an empty list stands for the whole function.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<ByteRange>,
    /// The parts that every boot uses, and nothing later does; also by rising offset and not touching.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_boot: Vec<ByteRange>,
}

/// Data of one input section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenData {
    /// The object that has the section: a path as in the build, or `ARCHIVE(MEMBER)` for a member of an archive.
    pub object: String,
    /// The name of the section.
    pub section: String,
    /// Number of sections of this name before it in the object.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nth: u32,
    /// The parts that freeze, by rising offset and not touching; an empty list stands for the whole section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<ByteRange>,
    /// The parts that every boot uses, and nothing later does; also by rising offset and not touching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_boot: Vec<ByteRange>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl FrozenCode {
    /// Returns whether all of the `size` bytes at `offset` freeze.
    pub fn contains(&self, offset: u64, size: u64) -> bool {
        contains(&self.ranges, offset, size)
    }

    /// Returns whether every boot uses any of the `size` bytes at `offset`.
    pub fn is_used_at_boot(&self, offset: u64, size: u64) -> bool {
        touches(&self.at_boot, offset, size)
    }
}

impl FrozenData {
    /// Returns whether all of the `size` bytes at `offset` freeze.
    pub fn contains(&self, offset: u64, size: u64) -> bool {
        contains(&self.ranges, offset, size)
    }

    /// Returns whether every boot uses any of the `size` bytes at `offset`.
    pub fn is_used_at_boot(&self, offset: u64, size: u64) -> bool {
        touches(&self.at_boot, offset, size)
    }
}

/// `net/core/dev.o:.rodata`, or `net/core/dev.o:.rodata#2` for the third section of that name.
impl fmt::Display for FrozenData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.object, self.section)?;
        if self.nth != 0 {
            write!(f, "#{}", self.nth)?;
        }
        Ok(())
    }
}

fn contains(ranges: &[ByteRange], offset: u64, size: u64) -> bool {
    let Some(end) = offset.checked_add(size) else { return false };
    let before = ranges.partition_point(|range| range.offset <= offset);
    ranges.is_empty() || before > 0 && end <= ranges[before - 1].end()
}

fn touches(ranges: &[ByteRange], offset: u64, size: u64) -> bool {
    let ends_before = ranges.partition_point(|range| range.end() <= offset);
    ranges.get(ends_before).is_some_and(|range| range.offset < offset.saturating_add(size))
}

/// Code as read. Serde cannot refuse unknown fields next to flattened ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatCode {
    name: String,
    file: Option<String>,
    #[serde(default)]
    nth: u32,
    #[serde(default)]
    ranges: Vec<ByteRange>,
    #[serde(default)]
    at_boot: Vec<ByteRange>,
}

impl From<FlatCode> for FrozenCode {
    fn from(FlatCode { name, file, nth, ranges, at_boot }: FlatCode) -> FrozenCode {
        FrozenCode { function: FunctionName { name, file, nth }, ranges, at_boot }
    }
}

/// The section as read, before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedFrozen {
    mechanism: Mechanism,
    #[serde(default)]
    minimum: Option<u32>,
    code: Vec<FrozenCode>,
    data: Vec<FrozenData>,
}

impl TryFrom<UncheckedFrozen> for Frozen {
    type Error = String;

    fn try_from(
        UncheckedFrozen { mechanism, minimum, code, data }: UncheckedFrozen,
    ) -> Result<Frozen, String> {
        if let (Mechanism::Stub, Some(first)) = (mechanism, data.first()) {
            return Err(format!(
                "frozen: {first} cannot freeze: mechanism `stub` supports only code; expected `data` to be empty"
            ));
        }
        let mut functions = HashSet::new();
        for part in &code {
            check(&part.ranges, &part.function)?;
            check(&part.at_boot, &part.function)?;
            if !functions.insert(&part.function) {
                return Err(format!(
                    "frozen: function {} is listed twice; expected all its ranges once",
                    part.function
                ));
            }
        }
        let mut sections = HashSet::new();
        for part in &data {
            check(&part.ranges, part)?;
            check(&part.at_boot, part)?;
            if !sections.insert((&part.object, &part.section, part.nth)) {
                return Err(format!("frozen: section {part} is listed twice; expected all its ranges once"));
            }
        }
        Ok(Frozen { mechanism, minimum, code, data })
    }
}

/// Checks that ranges are not empty, rise and do not touch.
fn check(ranges: &[ByteRange], of: &impl fmt::Display) -> Result<(), String> {
    let mut end = None;
    for range in ranges {
        let fits = range.size > 0
            && range.offset.checked_add(range.size).is_some()
            && end.is_none_or(|end| range.offset > end);
        if !fits {
            return Err(format!(
                "frozen: {of}: the range of {} bytes at {}; expected rising ranges that do not touch",
                range.size, range.offset
            ));
        }
        end = Some(range.end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    const EXAMPLE: &str = include_str!("../examples/frozen.json");

    /// Returns the error message for the example with one change.
    fn message(from: &str, to: &str) -> String {
        assert!(EXAMPLE.contains(from), "{from}");
        Plan::parse(&EXAMPLE.replacen(from, to, 1), "f.json").unwrap_err().to_string()
    }

    #[test]
    fn the_example_is_what_would_be_written() {
        let mut out = Vec::new();
        Plan::parse(EXAMPLE, "frozen.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), EXAMPLE);
    }

    #[test]
    fn ranges_contain_what_lies_within_one_of_them() {
        let frozen = Plan::parse(EXAMPLE, "frozen.json").unwrap().frozen.unwrap();
        let parts = &frozen.code[1];
        assert!(parts.contains(64, 16) && parts.contains(70, 10) && parts.contains(96, 32));
        for (offset, size) in [(0, 8), (60, 8), (64, 17), (64, 40), (128, 1), (u64::MAX, 2)] {
            assert!(!parts.contains(offset, size), "{size} bytes at {offset}");
        }
        assert!(frozen.data[1].contains(1 << 40, 4096));
        // Bytes 96 to 112 are used at boot.
        for (offset, size, used) in
            [(64, 16, false), (64, 33, true), (111, 1, true), (112, 8, false), (0, u64::MAX, true)]
        {
            assert_eq!(parts.is_used_at_boot(offset, size), used, "{size} bytes at {offset}");
        }
        assert!(!frozen.code[0].is_used_at_boot(0, 8) && frozen.data[2].is_used_at_boot(8, 4));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let cases = [
            (
                r#""offset": 96"#,
                r#""offset": 80"#,
                "vfs_read: the range of 32 bytes at 80; expected rising ranges",
            ),
            (r#""size": 32"#, r#""size": 0"#, "vfs_read: the range of 0 bytes at 96"),
            (
                r#""size": 32"#,
                r#""size": 18446744073709551615"#,
                "vfs_read: the range of 18446744073709551615",
            ),
            (r#""name": "vfs_read""#, r#""name": "panic""#, "function panic is listed twice"),
            (r#""nth": 1"#, r#""nth": 0"#, "net/core/dev.o:.rodata is listed twice"),
            (
                r#""mechanism": "page""#,
                r#""mechanism": "swap""#,
                "unknown variant `swap`, expected `page` or `stub`",
            ),
            (r#""mechanism": "page""#, r#""mechanism": "stub""#, "expected `data` to be empty"),
            (
                r#""at_boot": [{"offset": 96"#,
                r#""at_boot": [{"offset": 18446744073709551615"#,
                "vfs_read: the range of 16 bytes at 18446744073709551615",
            ),
            (r#""ranges""#, r#""range""#, "unknown field `range`"),
            (r#""section": ".rodata.str1.1""#, r#""sections": ".rodata""#, "unknown field `sections`"),
            (r#""data""#, r#""date""#, "unknown field `date`"),
        ];
        for (from, to, expected) in cases {
            let message = message(from, to);
            assert!(
                message.starts_with("f.json: not a valid plan: ") && message.contains(expected),
                "{message}"
            );
        }
    }
}
