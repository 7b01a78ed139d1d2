//! Input named on a command line; `-` means standard input.
//!
//! A file of the wrong kind, such as a page of text or a disk image, is not read whole: its head is enough to reject
//! it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::output::named;

/// The size of a file's head in bytes. It holds the header of an ELF file or of an archive, and as much of a script's
/// first line as Linux reads (`BINPRM_BUF_SIZE`).
const HEAD: u64 = 256;

/// Maximum number of bytes read from a device: more than a person types at a terminal.
const MAX_FROM_DEVICE: u64 = 1 << 20;

/// Reads the whole content of `path`, or of standard input for `-`.
///
/// # Errors
/// If it cannot be read, or is an endless device. The error names the path.
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    read_input_if(path, |_| true)
}

/// Reads `path`, or standard input for `-`: the whole content if `is_wanted` accepts the head, else only the head.
///
/// # Errors
/// As for [`read_input`].
pub fn read_input_if(path: &Path, is_wanted: impl FnOnce(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    if path == Path::new("-") {
        return read_if(io::stdin().lock(), is_wanted)
            .map_err(|error| named("read", "standard input", &error));
    }
    read_file_if(path, is_wanted).map_err(|error| named("read", &path.display().to_string(), &error))
}

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

/// Returns whether standard input is a pipe, a socket or a regular file, and so was provided to be read. A terminal is
/// not, nor is `/dev/null`, which services and test runners use as standard input.
pub fn is_piped_stdin() -> bool {
    let Ok(handle) = io::stdin().as_fd().try_clone_to_owned() else {
        return false;
    };
    File::from(handle)
        .metadata()
        .map(|metadata| metadata.file_type())
        .is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_not_read_for_ever() {
        assert_eq!(read_input(Path::new("/dev/null")).unwrap(), b"");
        let error = read_input(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("/dev/zero"), "{error}");
    }

    /// A disk image of one terabyte, a hole that takes no space.
    #[test]
    fn unwanted_file_is_not_read_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, b"head").unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let read = read_input_if(file.path(), |head| head.starts_with(b"\x7fELF")).unwrap();
        assert_eq!((read.len() as u64, &read[..5]), (HEAD, &b"head\0"[..]));
    }

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
