//! Reading a trace line by line, with only a line in memory, and with progress on a terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use kcli::Progress;

use crate::error::{Error, Result};

/// Maximum length of a line in bytes that is returned in one piece; no trace has longer lines.
const MAX_LINE: u64 = 1 << 16;

/// Size in bytes of the buffer.
const BUFFER: usize = 1 << 20;

/// Bytes between two updates of the progress bar.
const STEP: u64 = 1 << 22;

/// The lines of a file, or of standard input.
pub struct Lines {
    /// The name of the file in messages.
    pub name: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    progress: Option<Progress>,
    since_step: u64,
    is_cut: bool,
}

impl Lines {
    /// Opens `path`, or standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Lines> {
        if path == Path::new("-") {
            let progress = Progress::spinner("reading the trace");
            return Ok(Lines::new("standard input", io::stdin().lock(), Some(progress)));
        }
        let name = path.display().to_string();
        let failed = |source| Error::Read { name: name.clone(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let progress = match metadata.len() {
            0 => Progress::spinner("reading the trace"),
            length => Progress::bar(length, "reading the trace"),
        };
        Ok(Lines::new(&name, BufReader::with_capacity(BUFFER, file), Some(progress)))
    }

    /// Creates the lines of `reader`.
    pub fn of(name: &str, reader: impl Read + 'static) -> Lines {
        Lines::new(name, BufReader::new(reader), None)
    }

    fn new(name: &str, reader: impl BufRead + 'static, progress: Option<Progress>) -> Lines {
        let reader = Box::new(reader);
        Lines { name: name.into(), reader, line: Vec::new(), progress, since_step: 0, is_cut: false }
    }

    /// Returns the next line without its end, or `None` at the end. A truncated last line without a newline is not
    /// returned. A line of more than 64 KiB is returned in pieces.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_line(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let mut limited = self.reader.as_mut().take(MAX_LINE);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| Error::Read { name: self.name.clone(), source })?;
        self.since_step += read as u64;
        if self.since_step >= STEP || read == 0 {
            if let Some(progress) = &self.progress {
                progress.advance(self.since_step);
            }
            self.since_step = 0;
        }
        self.is_cut = read > 0 && (read as u64) < MAX_LINE && self.line.last() != Some(&b'\n');
        if read == 0 || self.is_cut {
            return Ok(None);
        }
        let end = self.line.trim_ascii_end().len();
        Ok(Some(&self.line[..end]))
    }

    /// Whether there was a last line without a newline.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_without_end_is_not_given() {
        let mut lines = Lines::of("t", &b"one\r\n\ntwo"[..]);
        assert_eq!(lines.read_line().unwrap(), Some(&b"one"[..]));
        assert!(!lines.is_cut());
        assert_eq!(lines.read_line().unwrap(), Some(&b""[..]));
        assert_eq!(lines.read_line().unwrap(), None);
        assert!(lines.is_cut());
    }
}
