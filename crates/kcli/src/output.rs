//! Output named on a command line; `-` means standard output.
//!
//! An output file is written under a temporary name in its own directory and renamed when it is complete. A rename
//! within a directory is atomic. A reader (or the next `make`) therefore sees the old file or the new one, never half
//! of one, and a failed or interrupted job leaves no file.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Stdout, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::scratch::ScratchFile;

/// Set when a write to standard output found no reader.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Returns whether a write through [`Output`] found that standard output has lost its reader.
pub(crate) fn stdout_is_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// A buffered output. [`Output::commit`] makes it visible under its name; if it is dropped before,
/// or a signal ends the process, it leaves no file.
#[derive(Debug)]
pub struct Output {
    name: String,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Stdout(BufWriter<Stdout>),
    /// A file that is not a regular file (`/dev/null`, a named pipe). A rename would replace it.
    Device(BufWriter<File>),
    File {
        temporary: BufWriter<ScratchFile>,
        path: PathBuf,
    },
}

impl Output {
    /// Opens standard output.
    pub fn stdout() -> Output {
        Output { name: "standard output".into(), sink: Sink::Stdout(BufWriter::new(io::stdout())) }
    }

    /// Opens `path`, or standard output for `-`.
    ///
    /// # Errors
    /// If the directory does not exist or cannot be written to. The error names the path.
    pub fn create(path: &Path) -> io::Result<Output> {
        if path == Path::new("-") {
            return Ok(Output::stdout());
        }
        let name = path.display().to_string();
        let sink = open(path).map_err(|error| named("write", &name, &error))?;
        Ok(Output { name, sink })
    }

    /// Flushes the content and gives the file its name.
    ///
    /// # Errors
    /// If the last bytes cannot be written or the file cannot be renamed. The error names the path, and a file that
    /// already had the name is unchanged.
    pub fn commit(self) -> io::Result<()> {
        let Output { name, sink } = self;
        let result = match sink {
            Sink::Stdout(mut stdout) => note_closed(stdout.flush()),
            Sink::Device(mut file) => file.flush(),
            Sink::File { temporary, path } => match temporary.into_inner() {
                Ok(file) => file.keep(&path),
                Err(error) => Err(error.into_error()),
            },
        };
        result.map_err(|error| named("write", &name, &error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Stdout(stdout) => note_closed(stdout.write(bytes)),
            Sink::Device(file) => file.write(bytes),
            Sink::File { temporary, .. } => temporary.write(bytes),
        }
        .map_err(|error| named("write", &self.name, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stdout(stdout) => note_closed(stdout.flush()),
            Sink::Device(file) => file.flush(),
            Sink::File { temporary, .. } => temporary.flush(),
        }
        .map_err(|error| named("write", &self.name, &error))
    }
}

fn open(path: &Path) -> io::Result<Sink> {
    // Replace the target of a symbolic link, not the link.
    let path = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
        Err(error) => return Err(error),
    };
    let existing = fs::metadata(&path).ok();
    let mode = match &existing {
        Some(old) if old.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Some(old) if !old.is_file() => {
            return Ok(Sink::Device(BufWriter::new(File::options().write(true).open(&path)?)));
        }
        Some(old) => old.permissions().mode() & 0o777,
        None => 0o666,
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The message of tempfile contains the temporary name, which means nothing to the user.
    let temporary = ScratchFile::new_in(directory, ".kshrink-", Permissions::from_mode(mode)).map_err(
        |error| match error.kind() {
            io::ErrorKind::NotFound => {
                let message = format!("there is no directory {}; create it first", directory.display());
                io::Error::new(io::ErrorKind::NotFound, message)
            }
            kind => kind.into(),
        },
    )?;
    Ok(Sink::File { temporary: BufWriter::new(temporary), path })
}

/// Remembers a broken pipe on standard output, for [`crate::main`].
fn note_closed<T>(result: io::Result<T>) -> io::Result<T> {
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        STDOUT_CLOSED.store(true, Ordering::Relaxed);
    }
    result
}

pub(crate) fn named(verb: &str, name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;

    #[test]
    fn nothing_appears_before_commit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"whole").unwrap();
        output.flush().unwrap();
        assert!(!path.exists());
        output.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn dropped_output_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        fs::write(&path, "old").unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn replaced_file_keeps_its_mode_and_a_link_its_target() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("out"), directory.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut output = Output::create(&link).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn devices_are_not_replaced() {
        let mut output = Output::create(Path::new("/dev/null")).unwrap();
        output.write_all(b"gone").unwrap();
        output.commit().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Output::create(Path::new("/nonexistent/out")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/out"), "{error}");
    }
}
