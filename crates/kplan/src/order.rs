//! The section `order`: the functions, or parts of functions, that belong together in memory, in their new order.
//!
//! Listed code is hot. All other code is cold and keeps its order. A layout moves nothing from one output section to
//! another: the list orders each output section separately, and the relative order of different sections has no
//! meaning.

use serde::{Deserialize, Serialize};

use crate::function::FunctionName;

/// The section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The unit that is moved.
    pub granularity: Granularity,
    /// The algorithm that found the order, such as `first-use`; for people.
    pub algorithm: String,
    /// The hot list, each function once.
    pub functions: Vec<HotFunction>,
}

/// The unit that a layout moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    /// Whole functions.
    Function,
    /// Basic blocks: the parts of a function that ran stay together, and its other parts move elsewhere.
    Block,
}

/// A function of the hot list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotFunction {
    /// The function's name.
    #[serde(flatten)]
    pub function: FunctionName,
    /// The hot parts with [`Granularity::Block`], by rising offset, not overlapping. A listed function without ranges
    /// is hot as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<ByteRange>,
}

/// Bytes of a function or of an input section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// Offset in bytes in the compiled function or section, before any rewriting.
    pub offset: u64,
    /// Size in bytes, at least 1.
    pub size: u64,
}

impl ByteRange {
    /// Returns the offset of the end in bytes.
    pub fn end(&self) -> u64 {
        self.offset + self.size
    }
}

impl HotFunction {
    /// Returns whether any of the `size` bytes at `offset` is hot.
    pub fn is_hot(&self, offset: u64, size: u64) -> bool {
        let hits = |range: &ByteRange| range.offset < offset + size && offset < range.end();
        self.ranges.is_empty() || self.ranges.iter().any(hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_say_what_is_hot() {
        let ranges = vec![ByteRange { offset: 0, size: 16 }, ByteRange { offset: 40, size: 8 }];
        let part = HotFunction { function: FunctionName::global("vfs_read"), ranges };
        assert!(part.is_hot(0, 1) && part.is_hot(15, 4) && part.is_hot(30, 11) && part.is_hot(10, 100));
        assert!(!part.is_hot(16, 24) && !part.is_hot(48, 8));
        let whole = HotFunction { function: FunctionName::global("vfs_read"), ranges: Vec::new() };
        assert!(whole.is_hot(1000, 1));
    }

    #[test]
    fn a_section_reads_as_written() {
        let text = r#"{"granularity":"block","algorithm":"first-use","functions":[
            {"name":"start_kernel","ranges":[{"offset":0,"size":9}]},
            {"name":"init","file":"core.c","nth":1}]}"#;
        let order: Order = serde_json::from_str(text).unwrap();
        assert_eq!(order.granularity, Granularity::Block);
        assert_eq!(order.functions[1].function.to_string(), "core.c:init#1");
        let again = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&again).unwrap(), order);
        assert_eq!(again, text.replace(['\n', ' '], ""));
    }

    #[test]
    fn misspelt_fields_are_errors() {
        let read = |text| serde_json::from_str::<Order>(text).unwrap_err().to_string();
        let error = read(r#"{"granularity":"page","algorithm":"","functions":[]}"#);
        assert!(error.contains("unknown variant `page`, expected `function` or `block`"), "{error}");
        let error = read(r#"{"granularity":"block","algorithm":"","functions":[{"names":"f"}]}"#);
        assert!(error.contains("missing field `name`"), "{error}");
    }
}
