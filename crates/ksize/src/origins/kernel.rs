//! A rewritten kernel with its original, and the original places of its addresses.

use std::path::{Path, PathBuf};

use kcli::{Failure, OrBadInput};
use kelf::{Functions, SourceLines};
use kplan::BlockMap;

/// A rewritten kernel with its original.
pub struct Kernel {
    rewritten: Functions,
    original: Functions,
    map: BlockMap,
    lines: SourceLines,
    /// Addresses of the code symbols in the rewritten kernel, ascending; they bound the kernel's own names.
    symbols: Vec<u64>,
}

impl Kernel {
    /// Opens the output directory of kshrink-spec, or the `vmlinux` in it. Without `original`, uses the kernel named in
    /// `report.json`.
    pub fn open(out: &Path, original: Option<&Path>) -> Result<Kernel, Failure> {
        let directory = if out.is_dir() { out } else { out.parent().unwrap_or(Path::new("")) };
        let map = BlockMap::open(&directory.join("blocks.json")).or_bad_input()?;
        let original = match original {
            Some(original) => original.to_owned(),
            None => input_of(&directory.join("report.json"))?,
        };
        let rewritten = Functions::read(&directory.join("vmlinux")).map_err(Failure::of)?;
        let vmlinux = original;
        let original = Functions::read(&vmlinux).map_err(Failure::of)?;
        let lines = SourceLines::open(&vmlinux, |name| original.address_of(name)).map_err(Failure::of)?;
        let symbols = rewritten.symbol_addresses();
        Ok(Kernel { rewritten, original, map, lines, symbols })
    }

    /// Describes the original places of an address, the block's own first. Empty if no block is there. `is_return`
    /// marks a return address of a call.
    pub fn places(&self, address: u64, is_return: bool) -> Vec<String> {
        // Kernels print addresses of Thumb code with bit 0 set (Arm ARM, A2.3.1).
        let thumb = if self.rewritten.is_thumb(address & !1) { address & 1 } else { 0 };
        let originals = self.map.originals(address - thumb, is_return);
        originals.iter().map(|&(function, offset)| self.place(function, offset, thumb, is_return)).collect()
    }

    fn place(&self, function: usize, offset: u64, thumb: u64, is_return: bool) -> String {
        let function = &self.map.functions[function];
        let (name, size) = (&function.function.name, function.size);
        let place = format!("{name}+{:#x}/{size:#x}", offset + thumb);
        let found = self.original.find(name, function.function.file.as_deref(), function.function.nth);
        let address = found.map(|(index, inside)| self.original.function(index).address + inside + offset);
        // The call instruction precedes its return address.
        let lines = address.map(|address| self.lines.at(address - u64::from(is_return)));
        match lines.filter(|lines| !lines.is_empty()) {
            Some(lines) => format!("{place} ({})", lines.join(", inlined into ")),
            None => place,
        }
    }

    /// Returns the possible addresses of a name and an offset of the rewritten kernel, as the kernel prints them.
    /// `size` is the distance to the next symbol.
    pub(super) fn addresses(&self, name: &str, offset: u64, size: Option<u64>) -> Vec<u64> {
        let all = self.rewritten.addresses_named(name);
        let next = |address: u64| self.symbols.get(self.symbols.partition_point(|&symbol| symbol <= address));
        let fits = |&&address: &&u64| size.is_none_or(|size| next(address) == Some(&(address + size)));
        let fitting: Vec<u64> = all.iter().filter(fits).copied().collect();
        let picked = if fitting.is_empty() { all } else { fitting };
        picked.into_iter().map(|address| address + offset).collect()
    }

    /// Whether code of the rewritten kernel is at an address.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.map.index_at(address).is_some() || self.map.index_at(address.wrapping_sub(1)).is_some()
    }
}

/// Returns the original kernel named in `report.json`.
fn input_of(report: &Path) -> Result<PathBuf, Failure> {
    let expected = "expected the report of kshrink-spec; name the original kernel with --original";
    let bad = |why: String| Failure::bad_input(format!("{}: {why}; {expected}", report.display()));
    let text = std::fs::read_to_string(report).map_err(|error| bad(error.to_string()))?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let input = report.get("input").and_then(serde_json::Value::as_str);
    input.map(PathBuf::from).ok_or_else(|| bad("it names no input".to_owned()))
}
