//! The tables of devices in the objects of a kernel.
//!
//! A module lists its devices with `MODULE_DEVICE_TABLE(TYPE, NAME)`, which leaves nothing in code that is built in. So
//! the table is found by its name in the recorded source, and read from the object, as scripts/mod/file2alias.c reads
//! it. The layouts of three types are known (include/linux/mod_devicetable.h). A table of another type counts as one
//! for every device of its bus.

use std::fs;
use std::path::Path;

use kelf::{Input, Machine, Place, Program};

/// The macro that names a table.
const MACRO: &str = "MODULE_DEVICE_TABLE";

/// Any vendor or device in tables of PCI and virtio.
const ANY: u32 = u32::MAX;

/// Returns the patterns of the devices that each object of a program has a table for, by the object's name. `build` is
/// the directory that recorded paths of sources are relative to.
pub fn patterns(program: &Program<'_>, build: &Path) -> Vec<(String, Vec<String>)> {
    let with_tables = program.objects.iter().filter_map(|input| {
        let source = fs::read(build.join(input.source.as_ref()?)).ok()?;
        let source = String::from_utf8_lossy(&source);
        let patterns: Vec<String> = tables(&source)
            .flat_map(|(kind, name)| match table(input, name) {
                Some(bytes) => read(kind, &bytes, program.machine),
                None => vec![any_of_bus(kind)],
            })
            .collect();
        (!patterns.is_empty()).then(|| (input.object.name.clone(), patterns))
    });
    with_tables.collect()
}

/// Iterates over the type and the name of each table in a source.
fn tables(source: &str) -> impl Iterator<Item = (&str, &str)> {
    source.match_indices(MACRO).filter_map(|(at, _)| {
        let inside = source[at + MACRO.len()..].trim_start().strip_prefix('(')?;
        let (kind, name) = inside.split_once(')')?.0.split_once(',')?;
        Some((kind.trim(), name.trim()))
    })
}

/// Returns the content of a variable of an object.
fn table(input: &Input<'_>, name: &str) -> Option<Vec<u8>> {
    let symbol = input.object.symbols.iter().find(|symbol| symbol.name == name && symbol.size > 0)?;
    let Place::Section(section) = symbol.place else { return None };
    let (start, size) = (usize::try_from(symbol.value).ok()?, usize::try_from(symbol.size).ok()?);
    let data = &input.object.section(section).data;
    Some(data.get(start..start.checked_add(size)?)?.to_vec())
}

/// Returns the pattern of all devices of the bus of a type of table.
fn any_of_bus(kind: &str) -> String {
    match kind {
        "x86cpu" => "cpu:*".to_owned(),
        "dmi" => "dmi*".to_owned(),
        kind => format!("{kind}:*"),
    }
}

/// Returns the patterns of the entries of a table.
fn read(kind: &str, bytes: &[u8], machine: Machine) -> Vec<String> {
    let word = usize::from(machine.word_size());
    // The fields that are read, and the whole entry with the driver's data after them.
    let (fields, entry): (usize, usize) = match kind {
        "pci" => (24, 24 + 2 * word),
        "virtio" => (8, 8),
        "x86cpu" => (10, 8 + 2 * word),
        _ => return vec![any_of_bus(kind)],
    };
    let pattern = match kind {
        "pci" => pci,
        "virtio" => virtio,
        _ => x86cpu,
    };
    if bytes.len() % entry != 0 {
        return vec![any_of_bus(kind)];
    }
    // An entry of zeros ends the table.
    let entries = bytes.chunks_exact(entry).map(|entry| &entry[..fields]);
    entries.take_while(|entry| entry.iter().any(|&byte| byte != 0)).map(pattern).collect()
}

/// Returns the 32-bit number at an offset. Tables with these types exist on little-endian machines only.
fn u32_at(entry: &[u8], offset: usize) -> u32 {
    let bytes = entry.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// Returns a letter with a number of `digits` hexadecimal digits, or with `*`.
fn field(letter: &str, is_fixed: bool, value: u32, digits: usize) -> String {
    if is_fixed { format!("{letter}{value:0digits$X}") } else { format!("{letter}*") }
}

fn pci(entry: &[u8]) -> String {
    let mut pattern = "pci:".to_owned();
    for (number, letter) in ["v", "d", "sv", "sd"].into_iter().enumerate() {
        let value = u32_at(entry, 4 * number);
        pattern.push_str(&field(letter, value != ANY, value, 8));
    }
    let (class, mask) = (u32_at(entry, 16), u32_at(entry, 20));
    for (letter, shift) in [("bc", 16), ("sc", 8), ("i", 0)] {
        pattern.push_str(&field(letter, mask >> shift & 0xFF == 0xFF, class >> shift & 0xFF, 2));
    }
    ended(pattern)
}

fn virtio(entry: &[u8]) -> String {
    let (device, vendor) = (u32_at(entry, 0), u32_at(entry, 4));
    ended(format!("virtio:{}{}", field("d", device != ANY, device, 8), field("v", vendor != ANY, vendor, 8)))
}

fn x86cpu(entry: &[u8]) -> String {
    let half = |offset: usize| u32_at(&[entry, &[0, 0]].concat(), offset) & 0xFFFF;
    let (vendor, family, model, feature) = (half(0), half(2), half(4), half(8));
    let mut pattern = format!(
        "cpu:type:x86,{}{}{}:feature:*",
        field("ven", vendor != 0xFFFF, vendor, 4),
        field("fam", family != 0, family, 4),
        field("mod", model != 0, model, 4)
    );
    if feature != 0 {
        pattern.push_str(&format!("{feature:04X}*"));
    }
    pattern
}

/// Ends a pattern with `*`, for the fields that a newer kernel adds to names.
fn ended(mut pattern: String) -> String {
    if !pattern.ends_with('*') {
        pattern.push('*');
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn tables_are_found_in_sources() {
        let source = "static ids[] = {};\nMODULE_DEVICE_TABLE(pci, ids);\nMODULE_DEVICE_TABLE ( of,\n\tmatch );\n#define MODULE_DEVICE_TABLE";
        assert_eq!(tables(source).collect::<Vec<_>>(), [("pci", "ids"), ("of", "match")]);
    }

    #[test]
    fn entries_become_patterns() {
        let ids = words(&[0x8086, 0x1237, ANY, ANY, 0x02_0000, 0xFF_0000, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read("pci", &ids, Machine::I386), ["pci:v00008086d00001237sv*sd*bc02sc*i*"]);
        let wide = [&ids[..24], &[0; 16], &ids[..24], &[0; 16], &[0; 40]].concat();
        assert_eq!(read("pci", &wide, Machine::X86_64), ["pci:v00008086d00001237sv*sd*bc02sc*i*"; 2]);
        assert_eq!(read("virtio", &words(&[1, ANY, 0, 0]), Machine::Arm), ["virtio:d00000001v*"]);
        let cpu = words(&[0x0006_0000, 0xFFFF_009A, 0x0000_0074, 5, 0, 0, 0, 0]);
        assert_eq!(
            read("x86cpu", &cpu, Machine::I386),
            ["cpu:type:x86,ven0000fam0006mod009A:feature:*0074*"]
        );
        let wide = [&cpu[..16], &[0; 32]].concat();
        assert_eq!(read("x86cpu", &wide, Machine::X86_64), read("x86cpu", &cpu, Machine::I386));
        let any = words(&[0x0000_FFFF, 0, 0, 1]);
        assert_eq!(read("x86cpu", &any, Machine::I386), ["cpu:type:x86,ven*fam*mod*:feature:*"]);
    }

    #[test]
    fn unknown_table_is_for_its_whole_bus() {
        assert_eq!(read("of", &words(&[1]), Machine::I386), ["of:*"]);
        assert_eq!(read("pci", &words(&[1]), Machine::I386), ["pci:*"]);
        assert_eq!((any_of_bus("x86cpu"), any_of_bus("dmi")), ("cpu:*".to_owned(), "dmi*".to_owned()));
    }
}
