//! Members of `ar` archives, ordinary and thin.
//!
//! A thin archive holds the names of its members without their bytes; Kbuild makes only thin archives (`vmlinux.a`,
//! `lib/lib.a`). goblin reads only ordinary archives, so the format is read here: a magic line, then headers of 60
//! bytes, each followed (in an ordinary archive) by the member. Two special members are inline in both kinds: `/`, the
//! symbol map, and `//`, the names longer than 15 bytes. Names in a thin archive are relative to the directory of the
//! archive.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"!<arch>\n";
const THIN_MAGIC: &[u8] = b"!<thin>\n";
/// Size in bytes of a member header.
const HEADER_SIZE: usize = 60;

/// An archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive<'a> {
    /// Whether the members are separate files.
    pub is_thin: bool,
    /// Members in order, without the symbol map and the table of long names.
    pub members: Vec<Member<'a>>,
    /// The archive's own symbol map, if it has one: the number of a member and a symbol that it defines.
    ///
    /// `Program` ignores it and reads the symbols of the members, which are never out of date.
    pub symbol_map: Option<Vec<(usize, &'a [u8])>>,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// File name; in a thin archive a path.
    pub name: &'a str,
    /// The location of the bytes.
    pub content: MemberContent,
}

/// The location of an archive member's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberContent {
    /// In the archive itself, at these offsets.
    Inside(Range<usize>),
    /// In a file of its own (thin archives).
    File(PathBuf),
}

/// Whether `bytes` begin with the magic line of an archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) || bytes.starts_with(THIN_MAGIC)
}

impl<'a> Archive<'a> {
    /// Reads the archive `bytes`, which is the content of `path`.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if this is not an archive, [`Error::Damaged`] if it ends too early or
    /// contradicts itself, [`Error::Unsupported`] for member names in BSD's form.
    pub fn read(path: &Path, bytes: &'a [u8]) -> Result<Archive<'a>> {
        let is_thin = bytes.starts_with(THIN_MAGIC);
        if !is_archive(bytes) {
            return Err(Error::WrongKind {
                file: path.display().to_string(),
                found: "not an archive".into(),
                expected: "an archive made by ar".into(),
            });
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut reader = Reader { path, bytes, at: MAGIC.len(), long_names: &[] };
        let mut members = Vec::new();
        // Offset of each member's header, which identifies the member in the symbol map.
        let mut headers = Vec::new();
        let mut map = None;
        while let Some(header) = reader.header()? {
            match header.name {
                b"/" | b"/SYM64/" => map = Some((header.name == b"/SYM64/", reader.content(&header)?)),
                b"//" => reader.long_names = &bytes[reader.content(&header)?],
                _ => {
                    let name = reader.name(&header)?;
                    let content = if is_thin {
                        MemberContent::File(directory.join(name))
                    } else {
                        MemberContent::Inside(reader.content(&header)?)
                    };
                    headers.push(header.at);
                    members.push(Member { name, content });
                }
            }
        }
        let symbol_map = match map {
            Some((wide, content)) => {
                let at = content.start;
                let map = symbol_map(&bytes[content], wide, &headers);
                Some(map.ok_or_else(|| reader.damaged(at, "symbol map does not fit the members"))?)
            }
            None => None,
        };
        Ok(Archive { is_thin, members, symbol_map })
    }
}

struct Header<'a> {
    /// Offset in bytes of the header in the archive.
    at: usize,
    /// Name field without the trailing blanks.
    name: &'a [u8],
    /// Size in bytes of the member.
    size: usize,
}

struct Reader<'a, 'p> {
    path: &'p Path,
    bytes: &'a [u8],
    at: usize,
    long_names: &'a [u8],
}

impl<'a> Reader<'a, '_> {
    fn damaged(&self, at: usize, problem: &str) -> Error {
        Error::Damaged {
            file: self.path.display().to_string(),
            place: format!("archive member at offset {at}"),
            problem: problem.into(),
        }
    }

    /// Returns the next header, or `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header<'a>>> {
        // Members begin at even offsets; the filler is a newline.
        self.at += self.at % 2;
        let at = self.at;
        if at >= self.bytes.len() {
            return Ok(None);
        }
        let field = self.bytes.get(at..at + HEADER_SIZE);
        let field = field.ok_or_else(|| self.damaged(at, "ends within a header"))?;
        let (name, b"`\n") = (field[..16].trim_ascii_end(), &field[58..]) else {
            return Err(self.damaged(at, "expected a member header"));
        };
        let size = std::str::from_utf8(&field[48..58]).ok().and_then(|size| size.trim_end().parse().ok());
        let size = size.ok_or_else(|| self.damaged(at, "its size is not a number"))?;
        self.at += HEADER_SIZE;
        Ok(Some(Header { at, name, size }))
    }

    /// Returns the offsets of the content that follows `header`, and advances past it.
    fn content(&mut self, header: &Header<'_>) -> Result<Range<usize>> {
        let start = self.at;
        let end = start.checked_add(header.size).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| {
            let (size, rest) = (header.size, self.bytes.len() - start);
            self.damaged(header.at, &format!("{size} bytes, of which the file holds {rest}"))
        })?;
        self.at = end;
        Ok(start..end)
    }

    fn name(&self, header: &Header<'a>) -> Result<&'a str> {
        let name = self.name_bytes(header)?;
        let place = || format!("archive member at offset {}", header.at);
        std::str::from_utf8(name).map_err(|_| Error::not_utf8(self.path.display(), place(), name))
    }

    fn name_bytes(&self, header: &Header<'a>) -> Result<&'a [u8]> {
        if header.name.starts_with(b"#1/") {
            return Err(Error::Unsupported {
                file: self.path.display().to_string(),
                place: format!("archive member at offset {}", header.at),
                problem: "its name is in BSD's form; make the archive again with GNU ar or llvm-ar \
                          --format=gnu"
                    .into(),
            });
        }
        let Some(offset) = header.name.strip_prefix(b"/") else {
            return Ok(header.name.strip_suffix(b"/").unwrap_or(header.name));
        };
        // After `ar m`, which orders vmlinux.a, GNU ar leaves a slash at the end of the field:
        // "/4146   /".
        let offset = std::str::from_utf8(offset).ok().map(|offset| offset.trim_end_matches(['/', ' ']));
        let rest = offset.and_then(|offset| self.long_names.get(offset.parse::<usize>().ok()?..));
        let end = rest.and_then(|rest| rest.windows(2).position(|end| end == b"/\n"));
        rest.zip(end).map(|(rest, end)| &rest[..end]).ok_or_else(|| {
            let name = header.name.escape_ascii();
            let problem = format!("its name {name} is not in the table of long names");
            self.damaged(header.at, &problem)
        })
    }
}

/// Reads the symbol map: a count, an offset for each symbol, then the names. Big-endian on every machine.
fn symbol_map<'a>(bytes: &'a [u8], wide: bool, headers: &[usize]) -> Option<Vec<(usize, &'a [u8])>> {
    let size = if wide { 8 } else { 4 };
    let number = |field: &[u8]| field.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    let (count, rest) = bytes.split_at_checked(size)?;
    let length = usize::try_from(number(count)).ok()?.checked_mul(size)?;
    let (offsets, names) = rest.split_at_checked(length)?;
    let mut names = names.split(|&byte| byte == 0);
    offsets
        .chunks_exact(size)
        .map(|offset| {
            let offset = usize::try_from(number(offset)).ok()?;
            let member = headers.binary_search(&offset).ok()?;
            Some((member, names.next()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{name:<48}{:<10}`\n", content.len()).into_bytes();
        bytes.extend_from_slice(content);
        if bytes.len() % 2 == 1 {
            bytes.push(b'\n');
        }
        bytes
    }

    #[test]
    fn ordinary() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(member("//", b"a_name_longer_than_15.o/\n"));
        let first = bytes.len();
        bytes.extend(member("a.o/", b"one"));
        bytes.extend(member("/0             /", b"two"));
        let archive = Archive::read(Path::new("x/lib.a"), &bytes).unwrap();
        assert!(!archive.is_thin);
        let names: Vec<_> = archive.members.iter().map(|member| member.name).collect();
        assert_eq!(names, ["a.o", "a_name_longer_than_15.o"]);
        let range = first + HEADER_SIZE..first + HEADER_SIZE + 3;
        assert_eq!(archive.members[0].content, MemberContent::Inside(range));
        assert_eq!(archive.symbol_map, None);
    }

    #[test]
    fn thin_names_are_relative_to_the_archive() {
        let mut bytes = THIN_MAGIC.to_vec();
        bytes.extend(member("/", &[0, 0, 0, 1, 0, 0, 0, 78, b'f', 0]));
        bytes.extend(format!("{:<48}{:<10}`\n", "a.o/", 1000).into_bytes());
        let archive = Archive::read(Path::new("x/lib.a"), &bytes).unwrap();
        assert!(archive.is_thin);
        assert_eq!(archive.members[0].content, MemberContent::File("x/a.o".into()));
        assert_eq!(archive.symbol_map, Some(vec![(0, &b"f"[..])]));
    }

    #[test]
    fn names_that_are_not_utf8_are_quoted() {
        let header = |name: &[u8], size: usize| {
            let mut header = name.to_vec();
            header.resize(48, b' ');
            header.extend(format!("{size:<10}`\n").bytes());
            header
        };
        let short = [MAGIC, &header(b"\xe4.o/", 0)].concat();
        let long = [MAGIC, &header(b"//", 5), b"\xe4.o/\n\n", &header(b"/0", 0)].concat();
        for bytes in [short, long] {
            let error = Archive::read(Path::new("lib.a"), &bytes).unwrap_err().to_string();
            assert!(error.starts_with("lib.a: archive member at offset "), "{error}");
            assert!(error.contains("its name \"\\xe4.o\" is not UTF-8"), "{error}");
        }
    }

    #[test]
    fn damage_is_found() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(member("a.o/", b"content"));
        for length in MAGIC.len() + 1..bytes.len() - 1 {
            let result = Archive::read(Path::new("lib.a"), &bytes[..length]);
            assert!(matches!(result, Err(Error::Damaged { .. })), "{length}: {result:?}");
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(member("/7", b""));
        assert!(Archive::read(Path::new("lib.a"), &bytes).is_err());
        assert!(Archive::read(Path::new("lib.a"), b"ELF").is_err());
    }
}
