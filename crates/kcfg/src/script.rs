//! Linker scripts: their symbols, and the input sections that they place or discard.

use std::fs;
use std::path::Path;

use glob::Pattern;
use rustc_hash::FxHashMap;

use crate::error::Error;

/// A preprocessed linker script.
#[derive(Clone, Debug, Default)]
pub struct LinkerScript {
    text: String,
    /// The lists of input sections, in order: the contents of `*(…)`.
    lists: Vec<List>,
    /// For names without wildcards, the first list that contains them.
    names: FxHashMap<String, usize>,
    /// Names with wildcards.
    wildcards: Vec<Wildcard>,
}

/// A name with wildcards.
#[derive(Clone, Debug)]
struct Wildcard {
    /// The text before the first wildcard, which rejects most names much faster than the pattern.
    prefix: String,
    pattern: Pattern,
    /// The list that contains it.
    list: usize,
}

/// A list of input sections.
#[derive(Clone, Debug)]
struct List {
    /// The first name or pattern.
    first: String,
    /// It is part of `/DISCARD/`.
    discarded: bool,
}

impl LinkerScript {
    /// Reads a script.
    ///
    /// # Errors
    /// [`Error::Script`].
    pub fn read(path: &Path) -> Result<LinkerScript, Error> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(LinkerScript::parse(text)),
            Err(source) => Err(Error::Script { path: path.to_owned(), source }),
        }
    }

    /// Parses the text of a script.
    fn parse(text: String) -> LinkerScript {
        let mut script = LinkerScript::default();
        let mut reader = Reader { words: words(&text), at: 0 };
        let (mut depth, mut discarded, mut assignment) = (0, false, false);
        while let Some(word) = reader.next() {
            match word {
                "{" => (depth, assignment) = (depth + 1, false),
                "}" => (depth, assignment, discarded) = (depth - 1, false, false),
                ";" => assignment = false,
                "/DISCARD/" => discarded = true,
                "KEEP" => _ = reader.take("("),
                _ if word.ends_with('=') => assignment = true,
                // Within an output section, a file name and the sections to take from it.
                _ if depth == 2 && !assignment && !matches!(word, "(" | ")") && reader.take("(") => {
                    script.add_list(reader.list(), discarded);
                }
                _ => {}
            }
        }
        script.text = text;
        script
    }

    fn add_list(&mut self, names: Vec<&str>, discarded: bool) {
        let Some(&first) = names.first() else { return };
        for name in names {
            let list = self.lists.len();
            match (name.find(['*', '?', '[']), Pattern::new(name)) {
                (Some(at), Ok(pattern)) => {
                    self.wildcards.push(Wildcard { prefix: name[..at].to_owned(), pattern, list });
                }
                _ => _ = self.names.entry(name.to_owned()).or_insert(list),
            }
        }
        self.lists.push(List { first: first.to_owned(), discarded });
    }

    /// Returns every word that could be a symbol. This includes keywords and section names of the script, which is
    /// harmless: no symbol has such a name.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.text
            .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
            .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    }

    /// Returns the list that places input sections of this name: the first that contains it.
    fn list_of(&self, section: &str) -> Option<&List> {
        let is_it =
            |name: &&Wildcard| section.starts_with(name.prefix.as_str()) && name.pattern.matches(section);
        let matching = self.wildcards.iter().find(is_it).map(|name| name.list);
        let found = self.names.get(section).copied().into_iter().chain(matching).min();
        found.map(|list| &self.lists[list])
    }

    /// Whether the script discards input sections of this name (`/DISCARD/`), so that they are not part of the program.
    pub fn discards(&self, section: &str) -> bool {
        self.list_of(section).is_some_and(|list| list.discarded)
    }

    /// Whether any list of the script contains input sections of this name.
    pub fn takes(&self, section: &str) -> bool {
        self.list_of(section).is_some()
    }

    /// Returns the first name of the list that places input sections of this name.
    pub fn list(&self, section: &str) -> Option<&str> {
        self.list_of(section).map(|list| list.first.as_str())
    }
}

/// Returns the words of a script, and `(`, `)`, `{`, `}` and `;`, without its comments and strings.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let skipped = [("/*", "*/"), ("\"", "\"")].into_iter().find_map(|(open, close)| {
            let inside = rest.strip_prefix(open)?;
            Some(inside.split_once(close).map_or("", |(_, behind)| behind))
        });
        if let Some(behind) = skipped {
            rest = behind.trim_start();
            continue;
        }
        let is_sign = |c: char| matches!(c, '(' | ')' | '{' | '}' | ';' | '"');
        let end = rest.find(|c: char| is_sign(c) || c.is_whitespace()).unwrap_or(rest.len()).max(1);
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

struct Reader<'s> {
    words: Vec<&'s str>,
    at: usize,
}

impl<'s> Reader<'s> {
    fn next(&mut self) -> Option<&'s str> {
        self.at += 1;
        self.words.get(self.at - 1).copied()
    }

    /// Consumes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Returns the names up to the parenthesis that closes a list, including names in `SORT(…)`, but not in
    /// `EXCLUDE_FILE(…)`.
    fn list(&mut self) -> Vec<&'s str> {
        let (mut names, mut depth) = (Vec::new(), 1);
        while let Some(word) = self.next() {
            match word {
                "EXCLUDE_FILE" => while self.next().is_some_and(|word| word != ")") {},
                ")" if depth == 1 => break,
                ")" => depth -= 1,
                _ if self.take("(") => depth += 1,
                _ => names.push(word),
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> LinkerScript {
        let text = "/* *(.comment) */ ENTRY(phys_startup_32) SECTIONS { . = (0x1000 * (2));\n\
                    .text : AT(ADDR(.text) - 0x1000) { *(.text .text.fixup) *(.text.hot .text.hot.*)\n\
                    . = ALIGN(2 * (4)); KEEP(*(SORT(___ksymtab+*))) *(EXCLUDE_FILE(*x.o *y.o) .once[0-9]) } = 0xcc\n\
                    ASSERT(. < 1, \"} *(.assert)\") .exit.text : { *(.exit.text) }\n\
                    /DISCARD/ : { *(.exit.data .exit.data.*) *(.exit.text .exitcall.exit) *(.discard) }\n\
                    /DISCARD/ : { *(.eh_frame) } }";
        LinkerScript::parse(text.to_owned())
    }

    #[test]
    fn discarded_sections() {
        let script = script();
        for name in [".exit.data", ".exit.data.x", ".exitcall.exit", ".eh_frame"] {
            assert!(script.discards(name), "{name}");
        }
        // The first list with the name applies.
        for name in [".text", ".exit.text", ".discard.x", ".exitcall"] {
            assert!(!script.discards(name), "{name}");
        }
    }

    #[test]
    fn lists_of_sections() {
        let script = script();
        let lists =
            [".text", ".text.fixup", ".text.hot.x", "___ksymtab+x", ".once7"].map(|name| script.list(name));
        assert_eq!(lists, [".text", ".text", ".text.hot", "___ksymtab+*", ".once[0-9]"].map(Some));
        for name in [".comment", ".text.cold", ".once", "y.o", ".assert", "2", "*y.o", ".data"] {
            assert!(!script.takes(name), "{name}");
        }
    }

    #[test]
    fn words_are_symbols_and_more() {
        assert!(script().words().any(|word| word == "phys_startup_32"));
    }
}
