//! The frozen sections in their run-time form.

use std::path::Path;

use frozen_pack::codec::code::InstructionSet;
use frozen_pack::codec::pack::Piece;
use goblin::elf::Elf;
use goblin::elf::section_header::SHT_PROGBITS;
use kcli::Failure;
use kelf::Machine;

use super::layout::Layout;
use super::split::{BOOT_PAGES, FrozenSection, Split, Value};
use crate::linked::{self, Purpose};

/// The addresses of a linked kernel that the frozen sections depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<u32>);

impl Addresses {
    /// Reads the addresses from a linked kernel.
    ///
    /// # Errors
    /// If the kernel was not linked from the split object.
    pub fn read(vmlinux: &Path, split: &Split<'_>) -> Result<Addresses, Failure> {
        linked::read(vmlinux, Purpose::Frozen, split.linked).map(Addresses)
    }

    /// Uses the given words.
    #[cfg(test)]
    pub fn of_words(words: Vec<u32>) -> Addresses {
        Addresses(words)
    }

    /// Returns an address with the most frequent upper byte.
    pub fn most_frequent_near(&self) -> u32 {
        let mut counts = [0u32; 256];
        self.0.iter().for_each(|address| counts[(address >> 24) as usize] += 1);
        (0..256u32).max_by_key(|&high| counts[high as usize]).unwrap_or_default() << 24
    }
}

/// Returns the error for a linked kernel with a problem.
fn bad(vmlinux: &Path, problem: &str) -> Failure {
    Failure::job(format!("{}: {problem}", vmlinux.display()))
}

fn parse<'b>(vmlinux: &Path, bytes: &'b [u8]) -> Result<Elf<'b>, Failure> {
    Elf::parse(bytes).map_err(|error| bad(vmlinux, &error.to_string()))
}

/// Returns the bytes of a frozen section that runs at an address.
///
/// # Errors
/// If a branch is out of range.
pub fn section_at(
    section: &FrozenSection<'_>,
    addresses: &Addresses,
    runs_at: u32,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = section.bytes.to_vec();
    for field in &section.fields {
        let value = match field.value {
            Value::Known(value) => value,
            Value::Linked(entry) => addresses.0[entry],
        };
        // A branch within the section leads to the same place in every copy.
        let own = if section.is_own(field) { section.address } else { runs_at }.wrapping_add(field.offset);
        let at = field.offset as usize;
        let end = at + usize::from(field.width);
        field.put(&mut bytes[at..end], value, own).map_err(|problem| {
            Failure::job(format!("the field at {own:#x} of frozen code cannot hold {value:#x}: {problem}"))
        })?;
    }
    Ok(bytes)
}

/// Returns the relocated code and data or, with mechanism `stub`, the relocated regions.
///
/// # Errors
/// If a branch is out of range.
pub fn pieces(split: &Split<'_>, layout: &Layout, addresses: &Addresses) -> Result<Vec<Piece>, Failure> {
    if layout.stubs.is_some() {
        let address = layout.code.start;
        let regions = split.frozen.iter().map(|section| section_at(section, addresses, address));
        let regions: Vec<Vec<u8>> = regions.collect::<Result<_, _>>()?;
        let code = Some(instruction_set(split, &regions.concat()));
        let named = |(number, (bytes, section)): (usize, (Vec<u8>, &FrozenSection<'_>))| {
            let leaving = Some(section.leaving().collect());
            Piece { name: format!("region {number}"), address, bytes, code, leaving }
        };
        return Ok(regions.into_iter().zip(&split.frozen).enumerate().map(named).collect());
    }
    let piece = |name: &str, range: &std::ops::Range<u32>, fill: u8| Piece {
        name: name.to_owned(),
        address: range.start,
        bytes: vec![fill; range.len()],
        code: None,
        leaving: None,
    };
    let mut code = piece("frozen code", &layout.code, 0xcc);
    let mut data = piece("frozen data", &layout.data, 0);
    for section in &split.frozen {
        let piece = if layout.code.contains(&section.address) { &mut code } else { &mut data };
        let start = (section.address - piece.address) as usize;
        let bytes = section_at(section, addresses, section.address)?;
        piece.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
    }
    code.code = Some(instruction_set(split, &code.bytes));
    Ok(vec![code, data])
}

/// Returns the instruction set of frozen code, which has only one.
fn instruction_set(split: &Split<'_>, code: &[u8]) -> InstructionSet {
    match split.object().machine {
        Machine::Arm => InstructionSet::of_arm(code),
        Machine::X86_64 => InstructionSet::X86_64,
        _ => InstructionSet::I386,
    }
}

/// With mechanism `page`, returns the pages that are used at boot: first code, then data. `pieces` are the pieces of
/// the layout.
pub fn boot_pages(pieces: &[Piece], layout: &Layout) -> Vec<u8> {
    let pages = pieces.iter().zip(&layout.at_boot).flat_map(|(piece, range)| {
        let mut pages = piece.bytes[..range.len().min(piece.bytes.len())].to_vec();
        // The runtime fills the last page in the same way.
        pages.resize(range.len(), 0);
        pages
    });
    pages.collect()
}

/// Checks that a linked kernel has these pages where its runtime expects them.
///
/// # Errors
/// If it does not.
pub fn check_boot_pages(vmlinux: &Path, pages: &[u8]) -> Result<(), Failure> {
    let bytes = std::fs::read(vmlinux)?;
    let elf = parse(vmlinux, &bytes)?;
    let address = elf.syms.iter().find(|symbol| elf.strtab.get_at(symbol.st_name) == Some(BOOT_PAGES));
    let address = address.map_or(0, |symbol| symbol.st_value);
    let found =
        elf.section_headers.iter().filter(|header| header.sh_type == SHT_PROGBITS).find_map(|header| {
            let inside = usize::try_from(address.checked_sub(header.sh_addr)?).ok()?;
            bytes.get(header.file_range()?)?.get(inside..inside.checked_add(pages.len())?)
        });
    match found {
        Some(found) if found == pages => Ok(()),
        _ => Err(bad(
            vmlinux,
            &format!("the pages at {BOOT_PAGES} ({address:#x}) are not the pages that are used at boot"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use goblin::elf::section_header::{SHF_EXECINSTR, SHF_WRITE};
    use kelf::{Object, Place, RelocClass};

    use super::super::handmade::{
        self, LIMIT, RANGE, address, distance, global, of_section, place, section, split_up,
    };
    use super::{Addresses, boot_pages, pieces};

    /// A function in the kernel that calls a frozen function. The frozen function refers to frozen data, calls the
    /// first function, and reads a variable twice.
    fn object() -> Object<'static> {
        let frozen = vec![address(1, 3, 8), distance(6, 1, -4), address(12, 4, 2), address(20, 4, 2)];
        let bytes = |size| vec![0x90; size];
        handmade::object(
            vec![
                section(".text", SHF_EXECINSTR, 4, bytes(8), vec![distance(1, 2, -4)]),
                section(".kshrink.frozen.text", SHF_EXECINSTR, 4, bytes(5000), frozen),
                section(".kshrink.frozen.rodata", 0, 4, bytes(100), Vec::new()),
            ],
            vec![of_section(1), global("cold", 0, place(2)), of_section(3)],
            &[
                "variable",
                "kshrink_frozen_text",
                "kshrink_frozen_data",
                "kshrink_frozen_end",
                "kshrink_packed",
                "kshrink_page_tables",
                "kshrink_mapped",
                "kshrink_boot_pages",
                "kshrink_boot_text_end",
                "kshrink_boot_data_end",
            ],
        )
    }

    #[test]
    fn frozen_sections_are_relocated_to_their_addresses() {
        let (layout, split) = split_up(object());
        // Two pages of code, one of data.
        let start = LIMIT - 3 * 4096;
        assert_eq!(
            (layout.code.clone(), layout.data.clone()),
            (start..start + 5000, LIMIT - 4096..LIMIT - 3996)
        );
        assert_eq!((layout.pages(), layout.page_tables), (3, 1));
        // The function in the kernel, by its section, and the variable once.
        assert_eq!(split.linked, 2);
        let addresses = Addresses(vec![0xc100_0ffc, 0xc120_0002]);
        let pieces = pieces(&split, &layout, &addresses).unwrap();
        let word = |at: usize| u32::from_le_bytes(*pieces[0].bytes[at..].first_chunk().expect("four bytes"));
        assert_eq!(word(1), layout.data.start + 8);
        assert_eq!(word(6), 0xc100_0ffc_u32.wrapping_sub(start + 6));
        assert_eq!((word(12), word(20)), (0xc120_0002, 0xc120_0002));
        assert_eq!(
            (pieces[0].code.is_some(), pieces[1].code.is_some(), pieces[1].bytes.len()),
            (true, false, 100)
        );
        // The kernel's link gets no bytes of frozen sections, only symbols as numbers.
        let cold = split.object().symbols.iter().find(|symbol| symbol.name == "cold").expect("the symbol");
        assert_eq!((cold.place, cold.value), (Place::Absolute, u64::from(start)));
        assert!(split.object().sections.iter().all(|section| !section.name.starts_with(".kshrink.frozen")));
        assert!(split.names(&layout).contains(&(start, 'T', "cold")));
    }

    #[test]
    fn what_is_used_at_boot_lies_first_and_has_pages_of_its_own() {
        let mut object = object();
        object.sections[2].name = ".kshrink.frozen.text.boot";
        object.sections.push(section(".kshrink.frozen.text", SHF_EXECINSTR, 1, vec![0xc3; 4000], Vec::new()));
        let (layout, mut split) = split_up(object);
        let start = LIMIT - 4 * 4096;
        assert_eq!(layout.code, start..start + 9000);
        assert_eq!(layout.at_boot, [start..start + 2 * 4096, LIMIT - 4096..LIMIT - 4096]);
        let pieces = pieces(&split, &layout, &Addresses(vec![0, 0])).unwrap();
        let pages = boot_pages(&pieces, &layout);
        assert_eq!((pages.len(), pages[4999], &pages[5000..]), (2 * 4096, 0x90, &[0xc3; 3192][..]));
        split.set_boot_pages(pages);
        let ends = ["kshrink_boot_text_end", "kshrink_boot_data_end"].map(|name| {
            let symbol = split.object().symbols.iter().find(|symbol| symbol.name == name);
            symbol.expect("the symbol").value
        });
        assert_eq!(ends, [u64::from(start) + 2 * 4096, u64::from(LIMIT) - 4096]);
    }

    #[test]
    fn what_cannot_be_frozen_is_an_error() {
        let refuses = |change: &dyn Fn(&mut Object<'static>), limit: u32, expected: &str| {
            handmade::refuses(object(), &(RANGE.start..limit), change, expected);
        };
        refuses(&|object| object.sections.truncate(2), LIMIT, "nothing is frozen");
        refuses(&|object| object.sections[2].flags |= u64::from(SHF_WRITE), LIMIT, "not plain read-only");
        refuses(&|object| object.sections[3].align = 8192, LIMIT, "needs a larger alignment");
        refuses(&|object| object.sections[2].size = 65 << 20, LIMIT, "too large");
        refuses(&|object| object.sections[2].relocs[0].class = RelocClass::Got, LIMIT, "cannot be applied");
        refuses(&|object| object.symbols.truncate(8), LIMIT, "does not refer to kshrink_packed");
        refuses(&|_| (), LIMIT + 1, "the start of a page");
    }
}
