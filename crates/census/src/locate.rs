//! The place of a kernel in a core: where it was loaded, and whether it is this kernel.

use kelf::Dump;
use memchr::memmem;

use crate::error::{Error, Result};
use crate::kernel::{Kernel, first_line};
use crate::memory::{Memory, PAGE};

/// Number of bytes that are searched at a time for the text of another kernel.
const CHUNK: usize = 1 << 20;

/// Maximum length of the text that is shown of another kernel, in bytes.
const MAX_TEXT: usize = 300;

/// Maximum number of bytes that are searched for a kernel.
const MAX_SEARCHED: u64 = 4 << 30;

/// The place of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The difference between virtual and physical addresses of the linear mapping.
    pub linear: u64,
    /// The difference between the addresses at which the kernel runs and the linked ones (`CONFIG_RANDOMIZE_BASE`).
    pub slide: u64,
}

/// Finds `kernel` in a core, and checks by its version and build ID that it is this kernel.
///
/// # Errors
/// If the core is of another kernel, or cannot be read.
pub fn locate(dump: &mut Dump, kernel: &Kernel) -> Result<Location> {
    let (banner, text) = &kernel.banner;
    let recorded = dump.linear_at(*banner).unwrap_or(kernel.linear);
    let mut candidate = Location { linear: recorded, slide: 0 };
    // Whether the notes at each place with the version are those of the kernel.
    let mut notes = Vec::new();
    if is_at(dump, candidate, kernel, *banner, text)? == Some(true) {
        notes.push(has_notes(dump, candidate, kernel)?);
    }
    let mut is_found = notes.contains(&Some(true));
    let mut searched = 0;
    for range in dump.physical_ranges() {
        let start = range.start.checked_next_multiple_of(PAGE);
        let mut next = start.and_then(|start| start.checked_add(banner % PAGE));
        while let (false, Some(physical)) = (is_found, next) {
            if physical.saturating_add(text.len() as u64) > range.end || searched > MAX_SEARCHED {
                break;
            }
            let mut bytes = vec![0; text.len()];
            if dump.read_physical(physical, &mut bytes)? && bytes == *text {
                candidate = if kernel.rules.slides {
                    let slide = physical.wrapping_add(kernel.linear).wrapping_sub(*banner);
                    Location { linear: kernel.linear, slide }
                } else {
                    Location { linear: banner.wrapping_sub(physical), slide: 0 }
                };
                notes.push(has_notes(dump, candidate, kernel)?);
                is_found = notes.contains(&Some(true));
            }
            next = physical.checked_add(PAGE);
            searched += PAGE;
        }
    }
    if is_found {
        return Ok(candidate);
    }
    if notes.contains(&None) {
        return Err(Error::Damaged {
            name: dump.name().into(),
            kernel: kernel.path.clone(),
            place: "the build ID".into(),
            problem: "the core has the version of the kernel, but not the memory with its build ID".into(),
            expected: "the whole memory of the machine".into(),
        });
    }
    let problem = match find_text(dump)? {
        Some(found) if found == kernel.banner_line() => {
            "the version is the same, but the build ID differs".into()
        }
        Some(found) => format!("its memory has `{found}` and not `{}`", kernel.banner_line()),
        None => format!("its memory does not have `{}`", kernel.banner_line()),
    };
    Err(Error::OtherKernel { name: dump.name().into(), kernel: kernel.path.clone(), problem })
}

/// Whether the core has the notes of the kernel, which contain the build ID; `None` if it does not have their address.
fn has_notes(dump: &mut Dump, location: Location, kernel: &Kernel) -> Result<Option<bool>> {
    match &kernel.notes {
        Some((address, bytes)) => is_at(dump, location, kernel, *address, bytes),
        None => Ok(Some(true)),
    }
}

/// Whether the core has these bytes at a linked address; `None` if it does not have the address.
fn is_at(
    dump: &mut Dump,
    location: Location,
    kernel: &Kernel,
    address: u64,
    bytes: &[u8],
) -> Result<Option<bool>> {
    let mut found = vec![0; bytes.len()];
    let mut memory = Memory::new(dump, location.linear, &kernel.path);
    let is_there = memory.try_read(address.wrapping_add(location.slide), &mut found)?;
    Ok(is_there.then(|| found == bytes))
}

/// Returns the version of the first kernel in a core.
fn find_text(dump: &mut Dump) -> Result<Option<String>> {
    let wanted = memmem::Finder::new(b"Linux version ");
    let mut bytes = vec![0; CHUNK];
    let mut searched = 0;
    for range in dump.physical_ranges() {
        let mut at = range.start;
        while at < range.end && searched < MAX_SEARCHED {
            let size = (range.end - at).min(CHUNK as u64) as usize;
            if dump.read_physical(at, &mut bytes[..size])? {
                // A kernel also has this text without the number of its build.
                let mut found =
                    wanted.find_iter(&bytes[..size]).map(|at| &bytes[at..size.min(at + MAX_TEXT)]);
                let has_number = |text: &&[u8]| {
                    let line = first_line(text);
                    let number = line.split_once('#').map(|(_, after)| after);
                    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
                };
                if let Some(text) = found.find(has_number) {
                    return Ok(Some(first_line(text)));
                }
            }
            at += size as u64;
            searched += size as u64;
        }
    }
    Ok(None)
}
