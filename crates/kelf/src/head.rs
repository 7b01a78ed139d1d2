//! Files whose head shows whether they are of the expected kind.
//!
//! A file of the wrong kind, such as a page of text or a disk image, is not read whole: its head is enough to reject
//! it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The size of a file's head in bytes. It holds the header of an ELF file or of an archive, and as much of a script's
/// first line as Linux reads (`BINPRM_BUF_SIZE`).
const HEAD: u64 = 256;

/// Maximum number of bytes read from a device: more than a person types at a terminal.
const MAX_FROM_DEVICE: u64 = 1 << 20;

/// Reads a file: the whole content if `is_wanted` accepts the head, else only the head.
///
/// # Errors
/// If it cannot be read, or is an endless device. The error does not name the file.
pub fn read_file_if(path: &Path, is_wanted: impl FnOnce(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.file_type().is_char_device() {
        return read_if(file, is_wanted);
    }
    let bytes = read_if(file.take(MAX_FROM_DEVICE), is_wanted)?;
    if bytes.len() as u64 == MAX_FROM_DEVICE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device without end; expected a file"));
    }
    Ok(bytes)
}

/// Reads to the end if `is_wanted` accepts the head, the first 256 bytes or fewer; else returns the head.
///
/// # Errors
/// If reading fails.
pub fn read_if(mut from: impl Read, is_wanted: impl FnOnce(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.by_ref().take(HEAD).read_to_end(&mut bytes)?;
    if is_wanted(&bytes) {
        from.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_file_is_read_whole() {
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for size in [0, 1, 255, 256, 257, 1000] {
            let read = read_if(&content[..size], |head| {
                assert_eq!(head, &content[..size.min(256)]);
                true
            });
            assert_eq!(read.unwrap(), &content[..size]);
        }
    }
}
