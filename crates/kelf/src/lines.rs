//! Source lines of addresses, from the debugging information of a kernel.

use std::path::Path;

use addr2line::fallible_iterator::FallibleIterator;
use addr2line::{Loader, Location};

use crate::error::{Error, Result};

/// A function of every kernel and its file, which locate the source directory.
const KNOWN: (&str, &str) = ("start_kernel", "init/main.c");

/// The source lines of a kernel.
pub struct SourceLines {
    loader: Loader,
    /// The source directory, with a `/` at its end; empty if unknown.
    root: String,
}

impl SourceLines {
    /// Opens a kernel. `address_of` returns the address of one of its global symbols.
    ///
    /// # Errors
    /// [`Error::Damaged`] if its debugging information cannot be read.
    pub fn open(vmlinux: &Path, address_of: impl Fn(&str) -> Option<u64>) -> Result<SourceLines> {
        let loader = Loader::new(vmlinux).map_err(|error| Error::Damaged {
            file: vmlinux.display().to_string(),
            place: "debugging information".into(),
            problem: error.to_string(),
        })?;
        let location = address_of(KNOWN.0).and_then(|address| loader.find_location(address).ok().flatten());
        let root = location.and_then(|location| location.file?.strip_suffix(KNOWN.1).map(str::to_owned));
        Ok(SourceLines { loader, root: root.unwrap_or_default() })
    }

    /// Returns the source lines of an address, as `FILE:LINE`: first the line of the code itself, then those that it is
    /// inlined into. Empty without debugging information.
    pub fn at(&self, address: u64) -> Vec<String> {
        let Ok(frames) = self.loader.find_frames(address) else { return Vec::new() };
        let locations =
            frames.filter_map(|frame| Ok(frame.location.and_then(|location| self.line(&location))));
        locations.collect().unwrap_or_default()
    }

    fn line(&self, location: &Location<'_>) -> Option<String> {
        let file = location.file?;
        let file = file.strip_prefix(&self.root).unwrap_or(file);
        Some(match location.line {
            Some(line) => format!("{file}:{line}"),
            None => format!("{file}:?"),
        })
    }
}
