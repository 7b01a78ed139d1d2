//! Members of `ar` archives, ordinary and thin.
//!
//! A thin archive holds the names of its members without their bytes; Kbuild makes only thin archives (`vmlinux.a`,
//! `lib/lib.a`). The names are relative to the directory of the archive. Its symbol map is ignored: `Program` reads the
//! symbols of the members, which are never out of date.

use std::path::{Path, PathBuf};

use object::archive::{MAGIC, THIN_MAGIC};
use object::read::archive::ArchiveFile;

use crate::error::{Error, Result};

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// File name; in a thin archive a path.
    pub name: &'a str,
    /// The bytes, or their location.
    pub content: MemberContent<'a>,
}

/// The bytes of an archive member, or their location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberContent<'a> {
    /// In the archive itself.
    Inside(&'a [u8]),
    /// In a file of its own (thin archives).
    File(PathBuf),
}

/// Whether `bytes` begin with the magic line of an archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || bytes.starts_with(&THIN_MAGIC)
}

/// Returns the members of the archive `bytes`, which is the content of `path`, in order.
///
/// # Errors
/// [`Error::WrongKind`] if this is not an archive, [`Error::Damaged`] if it ends too early or contradicts itself,
/// [`Error::Unsupported`] for a name that is not UTF-8.
pub fn members<'a>(path: &Path, bytes: &'a [u8]) -> Result<Vec<Member<'a>>> {
    let file = path.display().to_string();
    if !is_archive(bytes) {
        let (found, expected) = ("not an archive".into(), "an archive made by ar".into());
        return Err(Error::WrongKind { file, found, expected });
    }
    let damaged =
        |place: &str, problem: String| Error::Damaged { file: file.clone(), place: place.into(), problem };
    let special = |error: object::Error| damaged("first archive members", error.to_string());
    let directory = path.parent().unwrap_or(Path::new(""));
    let archive = ArchiveFile::parse(bytes).map_err(special)?;
    // `parse` accepts an archive that ends within its symbol map.
    archive.symbols().map_err(special)?;
    let mut members = Vec::new();
    for (index, member) in archive.members().enumerate() {
        let place = format!("archive member {}", index + 1);
        let member = member.map_err(|error| damaged(&place, error.to_string()))?;
        let name = std::str::from_utf8(member.name());
        let name = name.map_err(|_| Error::not_utf8(&file, &place, member.name()))?;
        let content = if archive.is_thin() {
            MemberContent::File(directory.join(name))
        } else {
            let problem = || format!("its {} bytes exceed the file of {}", member.size(), bytes.len());
            MemberContent::Inside(member.data(bytes).map_err(|_| damaged(&place, problem()))?)
        };
        members.push(Member { name, content });
    }
    Ok(members)
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
        bytes.extend(member("a.o/", b"one"));
        bytes.extend(member("/0             /", b"two"));
        let inside = |name, content| Member { name, content: MemberContent::Inside(content) };
        let expected = [inside("a.o", b"one"), inside("a_name_longer_than_15.o", b"two")];
        assert_eq!(members(Path::new("x/lib.a"), &bytes).unwrap(), expected);
    }

    #[test]
    fn thin_names_are_relative_to_the_archive() {
        let mut bytes = THIN_MAGIC.to_vec();
        bytes.extend(member("/", &[0, 0, 0, 1, 0, 0, 0, 78, b'f', 0]));
        bytes.extend(format!("{:<48}{:<10}`\n", "a.o/", 1000).into_bytes());
        let expected = [Member { name: "a.o", content: MemberContent::File("x/a.o".into()) }];
        assert_eq!(members(Path::new("x/lib.a"), &bytes).unwrap(), expected);
    }

    #[test]
    fn names_that_are_not_utf8_are_quoted() {
        let header = |name: &[u8], size: usize| {
            let mut header = name.to_vec();
            header.resize(48, b' ');
            header.extend(format!("{size:<10}`\n").bytes());
            header
        };
        let short = [&MAGIC[..], &header(b"\xe4.o/", 0)].concat();
        let long = [&MAGIC[..], &header(b"//", 5), b"\xe4.o/\n\n", &header(b"/0", 0)].concat();
        for bytes in [short, long] {
            let error = members(Path::new("lib.a"), &bytes).unwrap_err().to_string();
            assert!(error.starts_with("lib.a: archive member "), "{error}");
            assert!(error.contains("its name \"\\xe4.o\" is not UTF-8"), "{error}");
        }
    }

    #[test]
    fn damage_is_found() {
        let special = [("/", &b"\0\0\0\x01\0\0\0\x08f\0"[..]), ("//", b"name/\n"), ("a.o/", b"content")];
        for (name, content) in special {
            let bytes = [&MAGIC[..], &member(name, content)].concat();
            for length in MAGIC.len() + 1..MAGIC.len() + 60 + content.len() {
                let result = members(Path::new("lib.a"), &bytes[..length]);
                assert!(matches!(result, Err(Error::Damaged { .. })), "{name} {length}: {result:?}");
            }
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(member("/7", b""));
        assert!(members(Path::new("lib.a"), &bytes).is_err());
        assert!(members(Path::new("lib.a"), b"ELF").is_err());
    }
}
