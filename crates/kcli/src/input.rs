//! Input named on a command line; `-` means standard input.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use kelf::{read_file_if, read_if};

use crate::output::named;

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
        assert_eq!((read.len() as u64, &read[..5]), (256, &b"head\0"[..]));
    }
}
