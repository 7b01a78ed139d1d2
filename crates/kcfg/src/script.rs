//! What a linker script says of symbols and sections, as far as reachability needs it.

use std::fs;
use std::path::Path;

use crate::lift::Error;

/// A preprocessed linker script.
#[derive(Clone, Debug, Default)]
pub struct LinkerScript {
    text: String,
}

impl LinkerScript {
    /// Reads a script.
    ///
    /// # Errors
    /// [`Error::Script`].
    pub fn read(path: &Path) -> Result<LinkerScript, Error> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(LinkerScript { text }),
            Err(source) => Err(Error::Script { path: path.to_owned(), source }),
        }
    }

    /// Every word that could be a symbol. The script's own keywords and section names are among them, and
    /// harmless.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.text
            .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
            .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    }

    /// Whether the script throws input sections of this name away (`/DISCARD/`), so that they are no part of
    /// the program. A built-in driver's `.exitcall.exit` is the one that matters: nothing ever calls what
    /// it lists.
    pub fn discards(&self, section: &str) -> bool {
        let blocks = self.text.split("/DISCARD/").skip(1);
        let patterns = blocks.flat_map(|block| {
            let body = block.split_once('{').map_or("", |(_, rest)| rest);
            body.split_once('}').map_or("", |(body, _)| body).split("*(").skip(1)
        });
        let mut names = patterns
            .flat_map(|pattern| pattern.split_once(')').map_or("", |(names, _)| names).split_whitespace());
        names.any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => section.starts_with(prefix),
            None => section == pattern,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> LinkerScript {
        let text = "ENTRY(phys_startup_32) .text : { *(.text) }\n\
                    /DISCARD/ : { *(.exit.data .exit.data.*) *(.exitcall.exit) *(.discard) }\n\
                    /DISCARD/ : { *(.eh_frame) }";
        LinkerScript { text: text.to_owned() }
    }

    #[test]
    fn discarded_sections() {
        let script = script();
        for name in [".exit.data", ".exit.data.x", ".exitcall.exit", ".eh_frame"] {
            assert!(script.discards(name), "{name}");
        }
        for name in [".text", ".exit.text", ".discard.x", ".exitcall"] {
            assert!(!script.discards(name), "{name}");
        }
    }

    #[test]
    fn words_are_symbols_and_more() {
        assert!(script().words().any(|word| word == "phys_startup_32"));
    }
}
