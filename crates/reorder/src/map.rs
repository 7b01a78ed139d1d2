//! The map of a link by `ld.lld -Map`: the input section at each address.
//!
//! The symbols of a linked kernel give the source file of a local function without its directory, and the kernel has
//! many equal names of files and of local functions. The map has the full path of the object and the exact name of the
//! section. The kernel's build writes it as `vmlinux.map` if `CONFIG_VMLINUX_MAP` is set.

use std::ops::Range;

use kcli::Failure;

/// The first line of ld.lld's map.
const HEADER: [&str; 7] = ["VMA", "LMA", "Size", "Align", "Out", "In", "Symbol"];

/// The input sections of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMap {
    /// By rising address, without empty ones.
    sections: Vec<(Range<u64>, InputSection)>,
}

/// An input section, as a linker script names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputSection {
    /// A pattern for its object: its path, preceded by the path of its archive and a colon if it is a member of one.
    pub object: String,
    /// Its name.
    pub name: String,
}

impl LinkMap {
    /// Reads a map; `origin` is its name in errors.
    ///
    /// # Errors
    /// Bad input if it is not a map of ld.lld, or has no input section.
    pub fn parse(text: &str, origin: &str) -> Result<LinkMap, Failure> {
        let mut lines = text.lines();
        if !lines.next().unwrap_or_default().split_ascii_whitespace().eq(HEADER) {
            return Err(Failure::bad_input(format!(
                "{origin}:1: expected the columns `{}`; name the map that `ld.lld -Map` wrote",
                HEADER.join(" ")
            )));
        }
        let mut sections: Vec<_> = lines.filter_map(input_section).collect();
        if sections.is_empty() {
            return Err(Failure::bad_input(format!("{origin}: it has no input section; it is not complete")));
        }
        sections.sort_by_key(|(addresses, _)| addresses.start);
        Ok(LinkMap { sections })
    }

    /// Returns the input section that contains an address.
    pub fn section_at(&self, address: u64) -> Option<&InputSection> {
        let after = self.sections.partition_point(|(addresses, _)| addresses.start <= address);
        let (addresses, section) = &self.sections[after.checked_sub(1)?];
        addresses.contains(&address).then_some(section)
    }
}

/// Parses an input section with bytes: a line whose fifth column is `OBJECT:(SECTION)` or `ARCHIVE(OBJECT):(SECTION)`.
/// Other lines are output sections, symbols and commands of the script.
fn input_section(line: &str) -> Option<(Range<u64>, InputSection)> {
    let mut columns = line.split_ascii_whitespace();
    let mut number = |radix| u64::from_str_radix(columns.next()?, radix).ok();
    let (address, _load_address, size, _alignment) = (number(16)?, number(16)?, number(16)?, number(10)?);
    let (object, name) = columns.next()?.strip_suffix(')')?.split_once(":(")?;
    let object = match object.strip_suffix(')').and_then(|object| object.split_once('(')) {
        Some((archive, member)) => format!("{archive}:{member}"),
        None => object.to_owned(),
    };
    let end = address.checked_add(size).filter(|_| size > 0)?;
    Some((address..end, InputSection { object, name: name.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
               0                0    10000     1 . = 0x10000
ffff800080010000 ffff800080010000       2c  4096 .text
ffff800080010000 ffff800080010000        0     1         _stext = .
ffff800080010000 ffff800080010000        0     1         vmlinux.a(fs/open.o):(.text)
ffff800080010000 ffff800080010000       10     4         vmlinux.a(fs/open.o):(.text.build_open_flags)
ffff800080010000 ffff800080010000        0     1                 $x
ffff800080010000 ffff800080010000       10     1                 build_open_flags
ffff800080010020 ffff800080010020        c     4         init/version-timestamp.o:(.ref.text)
";

    #[test]
    fn sections_are_found_by_address() {
        let map = LinkMap::parse(MAP, "vmlinux.map").unwrap();
        let at = |address| map.section_at(address).map(|s| (s.object.as_str(), s.name.as_str()));
        let open = Some(("vmlinux.a:fs/open.o", ".text.build_open_flags"));
        assert_eq!(at(0xffff_8000_8001_0000), open);
        assert_eq!(at(0xffff_8000_8001_000f), open);
        assert_eq!(at(0xffff_8000_8001_0010), None);
        assert_eq!(at(0xffff_8000_8001_002b), Some(("init/version-timestamp.o", ".ref.text")));
        assert_eq!(at(0), None);
    }

    #[test]
    fn other_files_are_bad_input() {
        let error = |text| LinkMap::parse(text, "a.map").unwrap_err().message();
        assert!(error("Archive member included\n").contains("a.map:1: expected the columns `VMA LMA"));
        assert!(error("").contains("a.map:1"));
        assert!(error(MAP.lines().next().unwrap()).contains("no input section"));
    }
}
