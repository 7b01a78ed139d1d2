//! The place of a kernel in a core: where it was loaded, and whether it is this kernel.

use kelf::Dump;
use memchr::memmem;

use crate::error::{Error, Result};
use crate::kernel::{Kernel, first_line};
use crate::machine::ImageMapping;
use crate::memory::{AddressSpace, Mapping, Memory, PAGE};

/// Number of bytes that are searched at a time for the text of another kernel.
const CHUNK: usize = 1 << 20;

/// Maximum length of the text that is shown of another kernel, in bytes.
const MAX_TEXT: usize = 300;

/// Maximum number of bytes that are searched for a kernel.
const MAX_SEARCHED: u64 = 4 << 30;

/// The place of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The addresses that need no page tables to translate.
    pub space: AddressSpace,
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
    let mut candidate = Location { space: kernel.space(recorded), slide: 0 };
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
                    Location { space: kernel.space(kernel.linear), slide }
                } else {
                    Location { space: kernel.space(banner.wrapping_sub(physical)), slide: 0 }
                };
                notes.push(has_notes(dump, candidate, kernel)?);
                is_found = notes.contains(&Some(true));
            }
            next = physical.checked_add(PAGE);
            searched += PAGE;
        }
    }
    if is_found {
        return match &kernel.rules.image {
            Some(image) => beside_linear_mapping(dump, kernel, image, candidate),
            None => Ok(candidate),
        };
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

/// Returns the place of a kernel whose image is not in the linear mapping, from the place at which its linked addresses are
/// found in the core. It moves independently of physical memory.
///
/// # Errors
/// If the kernel's variables contradict each other, or the core lacks them.
fn beside_linear_mapping(
    dump: &mut Dump,
    kernel: &Kernel,
    mapping: &ImageMapping,
    found: Location,
) -> Result<Location> {
    let mut memory = Memory::new(dump, found.space, &kernel.path);
    let base = memory.word(kernel.symbol("phys_base")?)?;
    let banner = kernel.banner.0;
    let running = mapping.start.wrapping_add(memory.physical(banner)).wrapping_sub(base);
    let slide = running.wrapping_sub(banner);
    if slide % PAGE != 0 || slide >= mapping.size {
        let problem = format!("{base:#x}, with the kernel moved by {slide:#x} bytes");
        return Err(memory.damaged("phys_base", problem, "less than 1 GiB, and whole pages"));
    }
    let linear = match kernel.optional_symbol("page_offset_base") {
        Some(variable) => memory.word(variable)?,
        None => mapping.linear,
    };
    let size = kernel.image_size(mapping) + slide;
    let image = Some(Mapping { address: mapping.start, physical: base, size });
    Ok(Location { space: AddressSpace { linear, image, ..found.space }, slide })
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
    let mut memory = Memory::new(dump, location.space, &kernel.path);
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

#[cfg(test)]
mod tests {
    use kelf::Machine;

    use super::*;
    use crate::machine::Rules;

    const IMAGE: u64 = 0xffff_ffff_8000_0000;
    const BANNER: &[u8] = b"Linux version 6.12.0 #1";

    /// Returns an ELF core of 64 bits with this memory.
    fn core(physical: u64, memory: &[u8]) -> tempfile::NamedTempFile {
        let mut core = b"\x7fELF\x02\x01\x01".to_vec();
        core.resize(16, 0);
        // A core for x86-64, version 1; no entry, the program headers, no sections.
        core.extend([4u16, 62].iter().flat_map(|half| half.to_le_bytes()));
        core.extend(1u32.to_le_bytes());
        core.extend([0u64, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
        core.extend(0u32.to_le_bytes());
        core.extend([64u16, 56, 1, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
        core.extend([1u32, 0].iter().flat_map(|word| word.to_le_bytes()));
        let size = memory.len() as u64;
        core.extend([64 + 56, physical, physical, size, size, 0].iter().flat_map(|word| word.to_le_bytes()));
        core.extend(memory);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), core).unwrap();
        file
    }

    /// Locates a kernel that is linked at 16 MiB of the image's mapping and runs at 64 MiB of physical memory, with this
    /// value of `phys_base`.
    fn located(base: u64) -> Result<Location> {
        let linked = IMAGE + (16 << 20);
        let symbols =
            [("phys_base", linked + 0x100), ("page_offset_base", linked + 0x108), ("_end", linked + 0x2000)];
        let mut kernel = Kernel::with_symbols(&symbols);
        kernel.rules = Rules::of(Machine::X86_64).unwrap();
        kernel.banner = (linked + 0x10, BANNER.to_vec());
        kernel.linear = IMAGE;
        let mut memory = vec![0; 2 * PAGE as usize];
        memory[0x10..0x10 + BANNER.len()].copy_from_slice(BANNER);
        memory[0x100..0x108].copy_from_slice(&base.to_le_bytes());
        memory[0x108..0x110].copy_from_slice(&0xffff_9000_0000_0000u64.to_le_bytes());
        let core = core(64 << 20, &memory);
        locate(&mut Dump::open(core.path(), None).unwrap(), &kernel)
    }

    #[test]
    fn virtual_address_moves_apart_from_physical_one() {
        let place = |physical, slide| {
            let image = Some(Mapping { address: IMAGE, physical, size: (18 << 20) + slide });
            Location { space: AddressSpace { word: 8, linear: 0xffff_9000_0000_0000, image }, slide }
        };
        assert_eq!(located(48 << 20).unwrap(), place(48 << 20, 0));
        assert_eq!(located(16 << 20).unwrap(), place(16 << 20, 32 << 20));
        // Nearer to the start of physical memory than to that of the mapping.
        let below = (64u64 << 20).wrapping_sub(80 << 20);
        assert_eq!(located(below).unwrap(), place(below, 64 << 20));
        for wrong in [(48 << 20) + 1, 64 << 20] {
            let error = located(wrong).unwrap_err().to_string();
            assert!(error.contains("phys_base") && error.contains("less than 1 GiB"), "{error}");
        }
    }
}
