//! The block map of a rewritten kernel: which of its addresses holds which block of the original kernel.
//!
//! The rewriter writes it next to a kernel (`blocks.json`), so that a trace of the rewritten or instrumented kernel can
//! be translated to original functions and offsets. It is a separate document, not a section of a plan, because it
//! belongs to one link.
//!
//! ```
//! let map = kplan::BlockMap::parse(include_str!("../examples/blocks.json"), "blocks.json")?;
//! let (block, offset) = map.at(0xc100_0006).unwrap();
//! assert_eq!((block.function, block.original_offset, offset), (1, 48, 2));
//! # Ok::<(), kplan::Error>(())
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::document::{Document, Error};
use crate::function::FunctionName;

const DOCUMENT: Document = Document { what: "a map of blocks", schema: "kshrink-blocks/1" };

/// The block map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedBlockMap")]
pub struct BlockMap {
    /// The original functions.
    pub functions: Vec<BlockFunction>,
    /// The blocks, by rising address, not overlapping.
    pub blocks: Vec<Block>,
    /// Code that a pass created and no original function contains, by rising address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<MadeBlock>,
    /// Original code that a pass merged into one of `blocks`, by rising address: the block's present address, and the
    /// function and place of the code in the original.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Block>,
    /// Instructions whose distance from the start of their block changed, by rising address. The instructions after one
    /// of them, up to the next one in the same block, keep their distance from it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedInstruction>,
    /// The counters of an instrumented kernel; absent for other kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

/// A function of the original kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFunction {
    /// The function's name.
    #[serde(flatten)]
    pub function: FunctionName,
    /// Its original size in bytes.
    pub size: u64,
}

/// A block of the rewritten kernel. In JSON an array of five numbers, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 5]", into = "[u64; 5]")]
pub struct Block {
    /// Its address in the rewritten kernel.
    pub address: u64,
    /// Its size in the rewritten kernel, in bytes.
    pub size: u64,
    /// Its original function, as an index into [`BlockMap::functions`].
    pub function: usize,
    /// Its offset in the original function, in bytes.
    pub original_offset: u64,
    /// Its size in the original function, in bytes. Any difference is due to branches (and the store that counts).
    pub original_size: u64,
}

/// An instruction whose place in its block changed. In JSON an array of two numbers, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 2]", into = "[u64; 2]")]
pub struct MovedInstruction {
    /// Its address in the rewritten kernel.
    pub address: u64,
    /// Its offset in the original function of the block, in bytes.
    pub original_offset: u64,
}

impl From<[u64; 2]> for MovedInstruction {
    fn from([address, original_offset]: [u64; 2]) -> MovedInstruction {
        MovedInstruction { address, original_offset }
    }
}

impl From<MovedInstruction> for [u64; 2] {
    fn from(moved: MovedInstruction) -> [u64; 2] {
        [moved.address, moved.original_offset]
    }
}

/// Code that a pass created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBlock {
    /// Its address in the rewritten kernel.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The pass that created it.
    pub made_by: String,
}

impl From<[u64; 5]> for Block {
    fn from([address, size, function, original_offset, original_size]: [u64; 5]) -> Block {
        // An index that does not fit is out of range in any case.
        let function = usize::try_from(function).unwrap_or(usize::MAX);
        Block { address, size, function, original_offset, original_size }
    }
}

impl From<Block> for [u64; 5] {
    fn from(block: Block) -> [u64; 5] {
        let Block { address, size, function, original_offset, original_size } = block;
        [address, size, function as u64, original_offset, original_size]
    }
}

/// The array in which an instrumented kernel records executed blocks: one byte per block, 0 until it has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The symbol at the array's first byte.
    pub symbol: String,
    /// The block of each byte, as an index into [`BlockMap::blocks`]; `None` for a block that the link has dropped.
    pub blocks: Vec<Option<usize>>,
}

impl BlockMap {
    /// Reads the map in the file at `path`.
    ///
    /// # Errors
    /// As for [`BlockMap::read`].
    pub fn open(path: &Path) -> Result<BlockMap, Error> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => BlockMap::read(file, &name),
            Err(error) => Err(Error::Read { name, error }),
        }
    }

    /// Reads a map to the end of `reader`. Messages call it `name`.
    ///
    /// # Errors
    /// One of [`Error`], each with the name and, where one exists, line and column.
    pub fn read(reader: impl Read, name: &str) -> Result<BlockMap, Error> {
        DOCUMENT.read(reader, name)
    }

    /// Parses a map.
    ///
    /// # Errors
    /// As for [`BlockMap::read`].
    pub fn parse(text: &str, name: &str) -> Result<BlockMap, Error> {
        DOCUMENT.parse(text, name)
    }

    /// Writes the map as JSON, one line for each function and block.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        DOCUMENT.write(self, out)
    }

    /// Returns the block that holds an address, and the offset of the address in it.
    pub fn at(&self, address: u64) -> Option<(&Block, u64)> {
        let block = &self.blocks[self.index_at(address)?];
        Some((block, address - block.address))
    }

    /// Returns the original places of an address: functions, as indices into [`BlockMap::functions`], and offsets in
    /// bytes. The first place is the block's own; the others are those of merged code.
    ///
    /// `is_return` says that the address is a return address: it then belongs to the code before it.
    pub fn originals(&self, address: u64, is_return: bool) -> Vec<(usize, u64)> {
        let inside = address.wrapping_sub(is_return.into());
        let mut places = Vec::new();
        if let Some((block, _)) = self.at(inside) {
            places.push((block.function, self.original_offset(block, address)));
        }
        // All code merged into one block has the address of that block.
        let after = self.merged.partition_point(|block| block.address <= inside);
        let start = self.merged[..after].last().map_or(0, |block| block.address);
        let first = self.merged[..after].partition_point(|block| block.address < start);
        let merged = self.merged[first..after].iter().filter(|block| inside - start < block.size);
        places.extend(merged.map(|block| (block.function, offset_in(block, address))));
        places
    }

    /// Returns the offset in the original function of an address in a block, or at its end.
    fn original_offset(&self, block: &Block, address: u64) -> u64 {
        let after = self.moved.partition_point(|moved| moved.address <= address);
        let moved = self.moved[..after].last().filter(|moved| moved.address >= block.address);
        match moved.filter(|_| address < block.address + block.size) {
            Some(moved) => {
                let offset = moved.original_offset + (address - moved.address);
                offset.min(block.original_offset + block.original_size)
            }
            None => offset_in(block, address),
        }
    }

    /// Returns the block that holds an address, as an index into [`BlockMap::blocks`].
    pub fn index_at(&self, address: u64) -> Option<usize> {
        let index = self.blocks.partition_point(|block| block.address <= address).checked_sub(1)?;
        let block = self.blocks[index];
        (address - block.address < block.size).then_some(index)
    }
}

/// Returns the offset in the original function of an address in a block, or at its end, if no instruction before it
/// moved.
fn offset_in(block: &Block, address: u64) -> u64 {
    let inside = address - block.address;
    let inside = if inside >= block.size { block.original_size } else { inside.min(block.original_size) };
    block.original_offset + inside
}

/// The map as read, before validation.
#[derive(Deserialize)]
struct UncheckedBlockMap {
    functions: Vec<BlockFunction>,
    blocks: Vec<Block>,
    #[serde(default)]
    made: Vec<MadeBlock>,
    #[serde(default)]
    merged: Vec<Block>,
    #[serde(default)]
    moved: Vec<MovedInstruction>,
    #[serde(default)]
    counters: Option<Counters>,
}

impl TryFrom<UncheckedBlockMap> for BlockMap {
    type Error = String;

    fn try_from(
        UncheckedBlockMap { functions, blocks, made, merged, moved, counters }: UncheckedBlockMap,
    ) -> Result<BlockMap, String> {
        let mut end = Some(0);
        for (index, block) in blocks.iter().enumerate() {
            let Some(function) = functions.get(block.function) else {
                let count = functions.len();
                return Err(format!(
                    "block {index} belongs to function {}, but there are {count} functions",
                    block.function
                ));
            };
            let original_end = block.original_offset.checked_add(block.original_size);
            if original_end.is_none_or(|end| end > function.size) {
                return Err(format!(
                    "block {index} had {} bytes at offset {} of {}, which has {} bytes",
                    block.original_size, block.original_offset, function.function, function.size
                ));
            }
            let follows = end.is_some_and(|end| block.address >= end);
            end = block.address.checked_add(block.size).filter(|_| follows);
            if end.is_none() {
                return Err(format!(
                    "block {index} at {:#x} does not follow the one before it; expected rising addresses \
                     without overlap",
                    block.address
                ));
            }
        }
        if let Some(block) =
            counters.iter().flat_map(|c| c.blocks.iter().flatten()).find(|&&block| block >= blocks.len())
        {
            return Err(format!("a counter refers to block {block}, but there are {} blocks", blocks.len()));
        }
        let damaged = merged.iter().position(|block| {
            functions.get(block.function).is_none_or(|function| block.original_offset > function.size)
        });
        if let Some(index) = damaged {
            return Err(format!("merged code {index} is in no function of the map"));
        }
        if !merged.is_sorted_by_key(|block| block.address) || !moved.is_sorted_by_key(|moved| moved.address) {
            return Err("merged code or moved instructions are not sorted by address".to_owned());
        }
        Ok(BlockMap { functions, blocks, made, merged, moved, counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../examples/blocks.json");

    #[test]
    fn an_address_stands_for_its_own_code_and_what_was_merged() {
        let block = |address, size, function, original_offset, original_size| Block {
            address,
            size,
            function,
            original_offset,
            original_size,
        };
        let map = BlockMap {
            blocks: vec![block(0x100, 8, 0, 16, 12), block(0x108, 4, 1, 0, 4)],
            merged: vec![block(0x100, 8, 2, 40, 12), block(0x100, 8, 3, 0, 12)],
            moved: vec![MovedInstruction { address: 0x104, original_offset: 24 }],
            ..BlockMap::default()
        };
        // The instruction at 0x104 is four bytes further on in the original.
        assert_eq!(map.originals(0x102, false), [(0, 18), (2, 42), (3, 2)]);
        assert_eq!(map.originals(0x104, false)[0], (0, 24));
        // A call at the end of the block returns to the end of the original block.
        assert_eq!(map.originals(0x108, true), [(0, 28), (2, 52), (3, 12)]);
        assert_eq!(map.originals(0x108, false), [(1, 0)]);
        assert_eq!(map.originals(0x200, false), []);
    }

    #[test]
    fn the_example_is_what_would_be_written() {
        let mut out = Vec::new();
        BlockMap::parse(EXAMPLE, "b.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), EXAMPLE);
    }

    #[test]
    fn addresses_between_blocks_belong_to_none() {
        let map = BlockMap::parse(EXAMPLE, "b.json").unwrap();
        let at = |address| map.at(address).map(|(block, offset)| (block.original_offset, offset));
        assert_eq!(at(0xc0ff_ffff), None);
        assert_eq!(at(0xc100_0003), Some((0, 3)));
        assert_eq!(at(0xc100_0004), Some((48, 0)));
        assert_eq!(at(0xc100_000c), None);
        assert_eq!(at(0xc100_0010), Some((16, 0)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |from: &str, to: &str, expected: &str| {
            assert!(EXAMPLE.contains(from), "{from}");
            let message = BlockMap::parse(&EXAMPLE.replace(from, to), "b.json").unwrap_err().to_string();
            assert!(message.starts_with("b.json: not a valid map of blocks: "), "{message}");
            assert!(message.contains(expected), "{message}");
        };
        refused("4, 0, 0, 4]", "4, 7, 0, 4]", "block 0 belongs to function 7, but there are 2 functions");
        refused("8, 1, 48, 9]", "8, 1, 60, 9]", "block 1 had 9 bytes at offset 60 of setup.c:init");
        refused("4, 0, 0, 4]", "5, 0, 0, 4]", "block 1 at 0xc1000004 does not follow");
        refused("      2,", "      3,", "a counter refers to block 3, but there are 3 blocks");
        let message = BlockMap::parse("{\"schema\": \"kshrink/1\"}", "b.json").unwrap_err().to_string();
        assert_eq!(message, "b.json: expected schema kshrink-blocks/1, found kshrink/1");
    }
}
