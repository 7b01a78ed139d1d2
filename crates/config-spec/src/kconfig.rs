//! What the Kconfig files say about each option by itself: its prompt, its ranges, and the options that it selects.
//!
//! The kernel's own `conf` decides about values ([`crate::closure`]). This scan reads lines, not expressions, to find
//! the options that a person can set, and to explain who selects an option. Only the conditions of ranges are
//! evaluated ([`crate::ranges`]).

use std::collections::BTreeMap;
use std::fs;

use rustc_hash::FxHashSet;

use crate::tree::Tree;

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bool` or `tristate`.
    Truth,
    /// `int`.
    Int,
    /// `hex`.
    Hex,
    /// `string`.
    Text,
}

/// A range of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The smallest number, or the option that has it.
    pub low: String,
    /// The largest number, or the option that has it.
    pub high: String,
    /// The condition under which the range counts, as in the file.
    pub condition: Option<String>,
}

/// An option as Kconfig files define it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Its type; `None` if the files do not give one.
    pub kind: Option<Kind>,
    /// Its prompt; `None` if a person cannot set it.
    pub prompt: Option<String>,
    /// Whether it is one of the options of a `choice`.
    pub in_choice: bool,
    /// Its ranges, in the order of the file. The first one whose condition is not `n` counts.
    pub ranges: Vec<Range>,
    /// Whether it has several definitions. The ranges of each count only if its own dependencies are met.
    pub is_defined_again: bool,
    /// The options that it selects, each with the condition, as in the file.
    pub selects: Vec<(String, Option<String>)>,
    /// Its first definition: file and line.
    pub place: String,
}

impl Definition {
    /// Whether its value is a number.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, Some(Kind::Int | Kind::Hex))
    }
}

/// The definitions of all options, by name.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    /// The options.
    pub options: BTreeMap<String, Definition>,
    /// The text of all files that were read, for a key of what depends on them.
    pub text: String,
}

impl Definitions {
    /// Reads the Kconfig files of a source tree. Files that do not exist define nothing.
    pub fn read(tree: &Tree) -> Definitions {
        let mut scan = Scan { tree, found: Definitions::default(), seen: FxHashSet::default() };
        scan.file("Kconfig");
        scan.found
    }

    /// Returns the options with `y` in `enabled` that select an option, each with the condition of the `select`.
    pub fn selectors<'a>(
        &'a self,
        option: &'a str,
        enabled: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        self.options.iter().filter(move |(name, _)| enabled(name)).flat_map(move |(name, definition)| {
            let of_option = definition.selects.iter().filter(move |(selected, _)| selected == option);
            of_option.map(move |(_, condition)| (name.as_str(), condition.as_deref()))
        })
    }
}

struct Scan<'a> {
    tree: &'a Tree,
    found: Definitions,
    seen: FxHashSet<String>,
}

/// The help text that the scan is in.
enum Help {
    No,
    /// Before its first line.
    Begins,
    /// Its first line has this indentation in columns.
    Indented(usize),
}

impl Scan<'_> {
    fn file(&mut self, name: &str) {
        if !self.seen.insert(name.to_owned()) {
            return;
        }
        let Ok(bytes) = fs::read(self.tree.source.join(name)) else { return };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.found.text.push_str(&text);
        let (mut option, mut in_choice, mut help) = (None::<String>, false, Help::No);
        for (at, line) in joined_lines(&text) {
            let trimmed = line.trim();
            let indent = indentation(&line);
            match help {
                _ if trimmed.is_empty() => continue,
                Help::Begins => {
                    help = Help::Indented(indent);
                    if indent > 0 {
                        continue;
                    }
                }
                Help::Indented(first) if first > 0 && indent >= first => continue,
                _ => {}
            }
            help = Help::No;
            let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
            let rest = rest.trim();
            match word {
                "config" | "menuconfig" => {
                    let definition = self.found.options.entry(rest.to_owned()).or_default();
                    definition.in_choice |= in_choice;
                    definition.is_defined_again = !definition.place.is_empty();
                    if definition.place.is_empty() {
                        definition.place = format!("{name}:{at}");
                    }
                    option = Some(rest.to_owned());
                }
                "choice" => (option, in_choice) = (None, true),
                "endchoice" => (option, in_choice) = (None, false),
                "menu" | "endmenu" | "comment" | "if" | "endif" => option = None,
                "source" => {
                    option = None;
                    let path = rest.trim_matches('"');
                    self.file(&self.expanded(path));
                }
                "help" | "---help---" => help = Help::Begins,
                "bool" | "tristate" | "prompt" | "int" | "hex" | "string" | "def_bool" | "def_tristate" => {
                    if let Some(definition) = self.definition(&option) {
                        definition.kind = kind(word).or(definition.kind);
                        definition.prompt = definition.prompt.take().or_else(|| quoted(rest));
                    }
                }
                "select" => {
                    let (selected, condition) = conditional(rest);
                    if let Some(definition) = self.definition(&option) {
                        definition.selects.push((selected.to_owned(), condition));
                    }
                }
                "range" => {
                    let (bounds, condition) = conditional(rest);
                    if let (Some((low, high)), Some(definition)) =
                        (bounds.split_once(char::is_whitespace), self.definition(&option))
                    {
                        let bound = |text: &str| text.trim().trim_matches('"').to_owned();
                        definition.ranges.push(Range { low: bound(low), high: bound(high), condition });
                    }
                }
                _ => {}
            }
        }
    }

    fn definition(&mut self, option: &Option<String>) -> Option<&mut Definition> {
        self.found.options.get_mut(option.as_ref()?)
    }

    /// Replaces the variables of the environment in a path.
    fn expanded(&self, path: &str) -> String {
        let mut path = path.replace("$(srctree)/", "").replace("$(SRCARCH)", &self.tree.arch);
        for (name, value) in &self.tree.environment {
            path = path.replace(&format!("$({name})"), value);
        }
        path
    }
}

/// Returns the type that a line with this first word gives its option.
fn kind(word: &str) -> Option<Kind> {
    match word {
        "bool" | "tristate" | "def_bool" | "def_tristate" => Some(Kind::Truth),
        "int" => Some(Kind::Int),
        "hex" => Some(Kind::Hex),
        "string" => Some(Kind::Text),
        _ => None,
    }
}

/// Splits the end of a line into a property and its condition.
fn conditional(rest: &str) -> (&str, Option<String>) {
    match rest.split_once(" if ") {
        Some((property, condition)) => (property.trim(), Some(condition.trim().to_owned())),
        None => (rest, None),
    }
}

/// Returns the lines of a file, continued lines joined, each with the number of its first line.
fn joined_lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut line = first.to_owned();
        while let Some(start) = line.strip_suffix('\\') {
            line = format!("{start} {}", lines.next().map_or("", |(_, next)| next.trim_start()));
        }
        Some((number + 1, line))
    })
}

/// Returns the indentation of a line in columns, with a tab every 8.
fn indentation(line: &str) -> usize {
    let blank = line.chars().take_while(|c| c.is_whitespace());
    blank.fold(0, |column, c| if c == '\t' { (column / 8 + 1) * 8 } else { column + 1 })
}

/// Returns the text in quotes at the start of `rest`.
fn quoted(rest: &str) -> Option<String> {
    let quote = rest.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    let mut text = String::new();
    let mut escaped = false;
    for c in rest[1..].chars() {
        match c {
            '\\' if !escaped => escaped = true,
            c if c == quote && !escaped => return Some(text),
            c => {
                text.push(c);
                escaped = false;
            }
        }
    }
    None
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::config::Config;

    /// A source tree for x86 that is its own build directory.
    pub fn tree(source: &std::path::Path) -> Tree {
        Tree {
            build: source.into(),
            source: source.into(),
            arch: "x86".into(),
            text: String::new(),
            config: Config::default(),
            environment: BTreeMap::new(),
        }
    }

    #[test]
    fn options_have_prompts_and_selects() {
        let source = tempfile::tempdir().unwrap();
        let main = "menuconfig NET\n\tbool \"Networking\" if EXPERT\n\tselect NLATTR\n\tselect BPF if \\\n\t  (A && B)\n\thelp\n\
                    \t  select HELP_TEXT\n\n\t  config NO_OPTION\n\nchoice\n\tprompt \"Which\"\nconfig ONE\n\tbool \"say \\\"one\\\"\"\n\
                    endchoice\nsource \"arch/$(SRCARCH)/Kconfig\"\nconfig NLATTR\n\tdef_bool y\n\thelp\nconfig BPF\n\tbool\n";
        fs::write(source.path().join("Kconfig"), main).unwrap();
        fs::create_dir_all(source.path().join("arch/x86")).unwrap();
        fs::write(
            source.path().join("arch/x86/Kconfig"),
            "config X86\n\tbool 'x'\nsource \"Kconfig\"\nsource \"absent\"\n",
        )
        .unwrap();
        let tree = tree(source.path());
        let found = Definitions::read(&tree);
        let prompt = |name: &str| found.options[name].prompt.as_deref();
        assert!(found.options.keys().eq(["BPF", "NET", "NLATTR", "ONE", "X86"]));
        assert_eq!(
            (prompt("NET"), prompt("ONE"), prompt("X86")),
            (Some("Networking"), Some("say \"one\""), Some("x"))
        );
        assert_eq!((prompt("NLATTR"), prompt("BPF")), (None, None));
        assert!(found.options["ONE"].in_choice && !found.options["X86"].in_choice);
        assert_eq!(found.options["BPF"].place, "Kconfig:20");
        let selectors = |option| found.selectors(option, |name| name == "NET").collect::<Vec<_>>();
        assert_eq!(selectors("BPF"), [("NET", Some("(A && B)"))]);
        assert_eq!(selectors("NLATTR"), [("NET", None)]);
    }
}
