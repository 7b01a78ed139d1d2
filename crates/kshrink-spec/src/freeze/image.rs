//! The frozen sections as they are when they run.

use std::path::Path;

use frozen_pack::pack::Piece;
use goblin::elf::Elf;
use kcli::Failure;

use super::layout::Layout;
use super::split::{ADDRESSES, Split, Value};

/// What of a linked kernel the frozen sections depend on: the words of [`ADDRESSES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<u32>);

impl Addresses {
    /// Reads them from a linked kernel.
    ///
    /// # Errors
    /// If the kernel was not linked from the split object.
    pub fn read(vmlinux: &Path, split: &Split<'_>) -> Result<Addresses, Failure> {
        let bytes = std::fs::read(vmlinux)?;
        let bad = |problem: String| Failure::job(format!("{}: {problem}", vmlinux.display()));
        let elf = Elf::parse(&bytes).map_err(|error| bad(error.to_string()))?;
        let is_it = |name: usize| elf.shdr_strtab.get_at(name) == Some(ADDRESSES);
        let header = elf.section_headers.iter().find(|header| is_it(header.sh_name));
        let content = header.and_then(|header| header.file_range()).and_then(|range| bytes.get(range));
        let words = content.map_or(&[][..], |content| content).chunks_exact(4);
        let words: Vec<u32> =
            words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
        if words.len() != split.linked {
            let problem = format!("has {} words in {ADDRESSES}; expected {}", words.len(), split.linked);
            return Err(bad(problem));
        }
        Ok(Addresses(words))
    }
}

/// Code and data, relocated.
pub fn pieces(split: &Split<'_>, layout: &Layout, addresses: &Addresses) -> Vec<Piece> {
    let piece = |name: &str, range: &std::ops::Range<u32>, is_code: bool| Piece {
        name: name.to_owned(),
        address: range.start,
        bytes: vec![if is_code { 0xcc } else { 0 }; range.len()],
        is_code,
    };
    let mut code = piece("frozen code", &layout.code, true);
    let mut data = piece("frozen data", &layout.data, false);
    for section in &split.frozen {
        let piece = if layout.code.contains(&section.address) { &mut code } else { &mut data };
        let start = (section.address - piece.address) as usize;
        let bytes = &mut piece.bytes[start..start + section.bytes.len()];
        bytes.copy_from_slice(&section.bytes);
        for field in &section.fields {
            let at = field.offset as usize;
            let value = match field.value {
                Value::Known(value) => value,
                Value::Linked(entry) => addresses.0[entry],
            };
            let own = if field.relative { section.address + field.offset } else { 0 };
            bytes[at..at + 4].copy_from_slice(&value.wrapping_sub(own).to_le_bytes());
        }
    }
    vec![code, data]
}
