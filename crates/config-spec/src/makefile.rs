//! Reads Kbuild files and Makefiles: the words of their variables, each with the condition under which it is there.
//!
//! The reader follows the rules of make for assignments and conditionals, and for the functions that Kbuild files use
//! in lists. Rules, recipes, `define` and other functions have no effect on the lists of objects and are left out. A
//! comparison with something that only make knows is an unknown condition.

use std::fs;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::condition::{Condition, Piece, Text};
use crate::config::Config;
use crate::functions;
use crate::lines::{self, Assignment, Operator, assignment, split_arguments, split_words};

/// Maximum depth of variables that refer to variables, and of includes.
const MAX_DEPTH: usize = 16;

/// Maximum number of options in the name of a variable.
const MAX_OPTIONS: usize = 2;

/// A word of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word; with references if the variable expands them when it is used.
    pub text: String,
    /// The condition under which the variable holds it.
    pub condition: Condition,
}

/// The variables of a Makefile.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    words: FxHashMap<String, Vec<Word>>,
    exported: Vec<String>,
}

impl Variables {
    /// Sets a variable to one word.
    pub fn set(&mut self, name: &str, value: &str) {
        let word = Word { text: value.to_owned(), condition: Condition::Always };
        self.words.insert(name.to_owned(), vec![word]);
    }

    /// Returns the words of a variable, with their references expanded. Words that cannot be expanded are left out.
    pub fn words(&self, name: &str, config: &Config) -> Vec<Word> {
        self.expand_variable(name, config, 0).unwrap_or_default()
    }

    /// Returns the variables that make passes to the Makefiles of other directories.
    pub fn into_exported(mut self) -> Variables {
        let exported = std::mem::take(&mut self.exported);
        self.words.retain(|name, _| exported.contains(name));
        self
    }

    /// Sets a variable to a list of words.
    pub fn set_words(&mut self, name: &str, words: Vec<Word>) {
        self.words.insert(name.to_owned(), words);
    }

    /// Returns the expanded words of a variable; `None` if it is not set.
    fn expand_variable(&self, name: &str, config: &Config, depth: usize) -> Option<Vec<Word>> {
        let words = self.words.get(name)?;
        let mut expanded = Vec::new();
        for word in words {
            for inner in self.expand_word(&word.text, config, depth + 1) {
                let condition = word.condition.clone().and(inner.condition);
                expanded.push(Word { text: inner.text, condition });
            }
        }
        Some(expanded)
    }

    /// Returns the words that a word expands to.
    fn expand_word(&self, word: &str, config: &Config, depth: usize) -> Vec<Word> {
        let plain = |text: String| Word { text, condition: Condition::Always };
        if !word.contains('$') {
            return vec![plain(word.to_owned())];
        }
        if depth > MAX_DEPTH {
            return Vec::new();
        }
        // The words before the next reference, each continued by every expansion of the reference.
        let mut results = vec![plain(String::new())];
        for piece in pieces(word) {
            let expansions = match piece {
                RawPiece::Literal(text) => vec![plain(text)],
                RawPiece::Reference(inside) => self.expand_reference(inside, config, depth),
            };
            let continued = |start: &Word| {
                let continue_with = |end: &Word| Word {
                    text: format!("{}{}", start.text, end.text),
                    condition: start.condition.clone().and(end.condition.clone()),
                };
                expansions.iter().map(continue_with).collect::<Vec<_>>()
            };
            results = results.iter().flat_map(continued).collect();
        }
        results
    }

    /// Returns the words of a list.
    fn expand_list(&self, list: &str, config: &Config, depth: usize) -> Vec<Word> {
        split_words(list).into_iter().flat_map(|word| self.expand_word(word, config, depth)).collect()
    }

    /// Returns the words that the inside of `$(…)` expands to.
    fn expand_reference(&self, inside: &str, config: &Config, depth: usize) -> Vec<Word> {
        let list = |text: &str| self.expand_list(text.trim(), config, depth + 1);
        if let Some((function, arguments)) = function_call(inside) {
            let arguments = split_arguments(arguments);
            let map = |words: Vec<Word>, change: &dyn Fn(&str) -> Option<String>| {
                let changed = |word: Word| Some(Word { text: change(&word.text)?, condition: word.condition });
                words.into_iter().filter_map(changed).collect()
            };
            return match (function, arguments.as_slice()) {
                ("addprefix", [prefix, words]) => self.with_fixed(prefix, config, depth, |prefix| {
                    map(list(words), &|word| Some(format!("{prefix}{word}")))
                }),
                ("addsuffix", [suffix, words]) => self.with_fixed(suffix, config, depth, |suffix| {
                    map(list(words), &|word| Some(format!("{word}{suffix}")))
                }),
                ("patsubst", [from, to, words]) => {
                    map(list(words), &|word| Some(substitute(from.trim(), to.trim(), word)))
                }
                ("filter-out", [patterns, words]) => {
                    let unwanted = list(patterns);
                    let is_wanted = |word: &&str| unwanted.iter().all(|unwanted| unwanted.text != **word);
                    map(list(words), &|word| Some(word).filter(is_wanted).map(str::to_owned))
                }
                ("sort" | "strip", [words]) => list(words),
                ("if", [condition, yes, rest @ ..]) => {
                    let text = self.text(condition.trim(), config, depth + 1);
                    let is_false = Condition::Equal(text, Text::default());
                    let under = |words: Vec<Word>, condition: &Condition| -> Vec<Word> {
                        let under = |word: Word| Word { condition: word.condition.and(condition.clone()), ..word };
                        words.into_iter().map(under).collect()
                    };
                    let mut words = under(list(yes), &is_false.clone().negated());
                    words.extend(rest.first().map(|no| under(list(no), &is_false)).unwrap_or_default());
                    words
                }
                _ => Vec::new(),
            };
        }
        if let Some(option) = inside.strip_prefix("CONFIG_") {
            let text = config.value(option).trim_matches('"').to_owned();
            return vec![Word { text, condition: Condition::Always }];
        }
        if let Some((name, change)) = inside.split_once(':')
            && let Some((from, to)) = change.split_once('=')
        {
            let (from, to) = if from.contains('%') {
                (from.to_owned(), to.to_owned())
            } else {
                (format!("%{from}"), format!("%{to}"))
            };
            let words = self.expand_variable(name, config, depth).unwrap_or_default();
            let changed = |word: Word| Word { text: substitute(&from, &to, &word.text), ..word };
            return words.into_iter().map(changed).collect();
        }
        self.expand_variable(inside, config, depth).unwrap_or_default()
    }

    fn with_fixed(
        &self,
        text: &str,
        config: &Config,
        depth: usize,
        then: impl FnOnce(&str) -> Vec<Word>,
    ) -> Vec<Word> {
        match self.expand_list(text.trim(), config, depth + 1).as_slice() {
            [only] => then(&only.text),
            [] if text.trim().is_empty() => then(""),
            _ => Vec::new(),
        }
    }

    /// Returns a text with the options that it names. A variable is replaced by its value in the present configuration,
    /// if that is certain.
    fn text(&self, text: &str, config: &Config, depth: usize) -> Text {
        let mut found = Vec::new();
        for piece in pieces(text) {
            found.push(match piece {
                RawPiece::Literal(text) => Piece::Literal(text),
                RawPiece::Reference(inside) => self.reference(inside, config, depth),
            });
        }
        Text(found)
    }

    fn reference(&self, inside: &str, config: &Config, depth: usize) -> Piece {
        let unknown = || Piece::Unknown(inside.to_owned());
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if let Some(option) = inside.strip_prefix("CONFIG_").filter(|option| is_name(option)) {
            return Piece::Option(option.to_owned());
        }
        if depth > MAX_DEPTH {
            return unknown();
        }
        if let Some((function, arguments)) = function_call(inside) {
            if !functions::KNOWN.contains(&function) {
                return unknown();
            }
            let arguments = split_arguments(arguments);
            let arguments = arguments.iter().map(|text| self.text(text, config, depth + 1)).collect();
            return Piece::Call(function.to_owned(), arguments);
        }
        let Some(words) = self.expand_variable(inside, config, depth) else { return unknown() };
        let mut value: Vec<String> = Vec::new();
        for word in words {
            match word.condition.holds(config) {
                Some(true) => value.push(word.text),
                Some(false) => {}
                None => return unknown(),
            }
        }
        Piece::Literal(value.join(" "))
    }
}

/// A part of a text before expansion.
enum RawPiece<'a> {
    Literal(String),
    /// The inside of `$(…)`.
    Reference(&'a str),
}

/// Splits a text into characters and references.
fn pieces(text: &str) -> Vec<RawPiece<'_>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        literal.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let Some(first) = after.chars().next() else {
            rest = after;
            continue;
        };
        let (inside, end) = match first {
            '$' => {
                literal.push('$');
                rest = &after[1..];
                continue;
            }
            '(' | '{' => match closing(after) {
                Some(end) => (&after[1..end], end + 1),
                None => (&after[1..], after.len()),
            },
            other => (&after[..other.len_utf8()], other.len_utf8()),
        };
        if !literal.is_empty() {
            pieces.push(RawPiece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(RawPiece::Reference(inside));
        rest = &after[end..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(RawPiece::Literal(literal));
    }
    pieces
}

/// Returns the place of the bracket that closes the one at the start of the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the function and the arguments of the inside of a reference; `None` if it is a variable.
fn function_call(inside: &str) -> Option<(&str, &str)> {
    let end = inside.find(|c: char| !c.is_ascii_lowercase() && c != '-')?;
    let rest = &inside[end..];
    rest.starts_with(char::is_whitespace).then(|| (&inside[..end], rest.trim_start()))
}

/// Replaces the part of a word that `%` stands for, as `patsubst` does.
fn substitute(from: &str, to: &str, word: &str) -> String {
    let Some((prefix, suffix)) = from.split_once('%') else {
        return if word == from { to.to_owned() } else { word.to_owned() };
    };
    let stem = word.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    stem.map_or(word.to_owned(), |stem| to.replacen('%', stem, 1))
}

/// A branch of a conditional.
struct Branch {
    /// The condition of this branch, without those around it.
    condition: Condition,
    /// The condition that no earlier branch was taken.
    otherwise: Condition,
}

/// Reads a file, and the files that it includes, into `variables`. Paths of includes are relative to `tree`. A file
/// that cannot be read sets nothing.
pub fn read(path: &Path, tree: &Path, config: &Config, variables: &mut Variables) {
    Reader { tree, config, variables, branches: Vec::new() }.file(path, 0);
}

struct Reader<'a> {
    tree: &'a Path,
    config: &'a Config,
    variables: &'a mut Variables,
    branches: Vec<Branch>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, depth: usize) {
        let Ok(bytes) = fs::read(path) else { return };
        let outer = self.branches.len();
        let mut in_define = false;
        for line in lines::logical(&String::from_utf8_lossy(&bytes)) {
            let word = line.split_whitespace().next().unwrap_or_default();
            if in_define || word == "define" {
                in_define = word != "endef";
                continue;
            }
            let rest = line[word.len()..].trim();
            match word {
                "ifdef" | "ifndef" | "ifeq" | "ifneq" => {
                    let condition = self.condition(word, rest);
                    let otherwise = condition.clone().negated();
                    self.branches.push(Branch { condition, otherwise });
                }
                "else" if self.branches.len() > outer => self.otherwise(rest),
                "endif" if self.branches.len() > outer => drop(self.branches.pop()),
                "include" | "-include" | "sinclude" if depth < MAX_DEPTH => self.include(rest, depth),
                "export" if !rest.contains('=') => {
                    let names = rest.split_whitespace().map(str::to_owned);
                    self.variables.exported.extend(names);
                }
                _ => {
                    if let Some(assignment) = assignment(&line) {
                        if word == "export" {
                            self.variables.exported.push(assignment.name.to_owned());
                        }
                        self.assign(&assignment);
                    }
                }
            }
        }
        self.branches.truncate(outer);
    }

    fn include(&mut self, files: &str, depth: usize) {
        if self.here().holds(self.config) == Some(false) {
            return;
        }
        for file in self.variables.expand_list(files, self.config, 0) {
            self.file(&self.tree.join(&file.text), depth + 1);
        }
    }

    /// The condition of the current line.
    fn here(&self) -> Condition {
        Condition::all(self.branches.iter().map(|branch| branch.condition.clone()))
    }

    /// Begins the next branch of the innermost conditional.
    fn otherwise(&mut self, rest: &str) {
        let word = rest.split_whitespace().next().unwrap_or_default();
        let next = match word {
            "" => Condition::Always,
            _ => self.condition(word, rest[word.len()..].trim()),
        };
        if let Some(branch) = self.branches.last_mut() {
            branch.condition = branch.otherwise.clone().and(next.clone());
            branch.otherwise = branch.otherwise.clone().and(next.negated());
        }
    }

    /// Returns the condition of a directive.
    fn condition(&self, directive: &str, rest: &str) -> Condition {
        let text = |text: &str| self.variables.text(text.trim(), self.config, 0);
        let equal = match directive {
            "ifdef" | "ifndef" => {
                let name = format!("$({rest})");
                Condition::Equal(text(&name), Text::default()).negated()
            }
            _ => {
                let Some((a, b)) = compared(rest) else {
                    return Condition::Equal(Text(vec![Piece::Unknown(rest.to_owned())]), Text::default());
                };
                let (a, b) = (text(a), text(b));
                match (a.as_literal(), b.as_literal()) {
                    (_, Some(literal)) => a.equals(literal.trim()),
                    (Some(literal), None) => b.equals(literal.trim()),
                    (None, None) => Condition::Equal(a, b),
                }
            }
        };
        if directive.starts_with("ifn") { equal.negated() } else { equal }
    }

    fn assign(&mut self, assignment: &Assignment<'_>) {
        let Assignment { name, operator, value } = *assignment;
        let here = self.here();
        for (name, named) in self.names(name) {
            let condition = here.clone().and(named);
            let words: Vec<Word> = match operator {
                Operator::Simple => self.variables.expand_list(value, self.config, 0),
                _ => split_words(value)
                    .into_iter()
                    .map(|word| Word { text: word.to_owned(), condition: Condition::Always })
                    .collect(),
            };
            let old = self.variables.words.entry(name).or_default();
            match operator {
                Operator::IfUnset if !old.is_empty() => continue,
                Operator::Append | Operator::IfUnset => {}
                Operator::Simple | Operator::Recursive => {
                    let kept = condition.clone().negated();
                    old.iter_mut().for_each(|word| word.condition = word.condition.clone().and(kept.clone()));
                    old.retain(|word| word.condition != Condition::never());
                }
            }
            old.extend(words.into_iter().map(|word| Word {
                condition: condition.clone().and(word.condition),
                text: word.text,
            }));
        }
    }

    /// Returns the names that the name of a variable may expand to, each with its condition.
    fn names(&self, name: &str) -> Vec<(String, Condition)> {
        if !name.contains('$') {
            return vec![(name.to_owned(), Condition::Always)];
        }
        let text = self.variables.text(name, self.config, 0);
        let mut options = Vec::new();
        text.options(&mut options);
        if options.len() > MAX_OPTIONS {
            return Vec::new();
        }
        let mut names: Vec<(String, Condition)> = Vec::new();
        let values = ["y", "m", ""];
        for choice in 0..values.len().pow(options.len() as u32) {
            let mut config = Config::default();
            let mut rest = choice;
            for option in &options {
                config.set(option, values[rest % values.len()]);
                rest /= values.len();
            }
            if let Some(value) = text.value(&config)
                && names.iter().all(|(name, _)| *name != value)
            {
                let condition = text.equals(&value);
                names.push((value, condition));
            }
        }
        names
    }
}

/// Returns the two sides of `ifeq (a,b)` or `ifeq "a" 'b'`.
fn compared(rest: &str) -> Option<(&str, &str)> {
    if rest.starts_with('(') {
        let inside = &rest[1..closing(rest)?];
        let first = split_arguments(inside)[0];
        return Some((first, inside.get(first.len() + 1..)?));
    }
    let quoted = |text: &str| -> Option<(usize, usize)> {
        let quote = text.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
        Some((1, 1 + text[1..].find(quote)?))
    };
    let (start, end) = quoted(rest)?;
    let second = rest[end + 1..].trim_start();
    let (second_start, second_end) = quoted(second)?;
    Some((&rest[start..end], &second[second_start..second_end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::tests::is_set;

    /// Returns the words of a variable with their conditions, as text.
    fn words(makefile: &str, name: &str, config: &str) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Makefile");
        fs::write(&path, makefile).unwrap();
        let config = Config::parse(config);
        let mut variables = Variables::default();
        variables.set("src", directory.path().to_str().unwrap());
        read(&path, directory.path(), &config, &mut variables);
        let words = variables.words(name, &config);
        words.iter().map(|word| format!("{}: {}", word.text, word.condition)).collect()
    }

    #[test]
    fn assignment_replaces_under_its_condition() {
        let text = "mmu-y := nommu.o\nmmu-$(CONFIG_MMU) := memory.o mmap.o\nobj-y += $(mmu-y)\nobj-y += a.o";
        let expected = ["nommu.o: MMU!=y", "memory.o: MMU=y", "mmap.o: MMU=y", "a.o: always"];
        assert_eq!(words(text, "obj-y", ""), expected);
        assert_eq!(words("obj-y := a.o\nobj-y = b.o\nobj-y ?= c.o", "obj-y", ""), ["b.o: always"]);
    }

    #[test]
    fn branches_exclude_one_another() {
        let text = "ifdef CONFIG_A\nobj-y += a.o\nelse ifeq ($(CONFIG_B)$(CONFIG_C),yy)\n\tobj-y += b.o\n\
                    else\nobj-y += c.o\nendif\nobj-y += d.o";
        let expected = ["a.o: A", "b.o: !A && BC=yy", "c.o: !A && BC!=yy", "d.o: always"];
        assert_eq!(words(text, "obj-y", ""), expected);
        let text = "ifneq ($(CONFIG_A),)\nifndef CONFIG_B\nobj-y += a.o\nendif\nendif\nendif\nelse\nobj-y += b.o";
        assert_eq!(words(text, "obj-y", ""), ["a.o: A && !B", "b.o: always"]);
        assert_eq!(words("ifeq \"$(CONFIG_A)\" 'm'\nobj-y += a.o\nendif", "obj-y", ""), ["a.o: A=m"]);
    }

    #[test]
    fn names_depend_on_options() {
        let text = "obj-$(subst m,y,$(CONFIG_A)) += a/\nobj-$(CONFIG_A)$(CONFIG_B) += b.o\n\
                    $(CONFIG_C)-y += c.o\nobj-$(or $(CONFIG_D),$(CONFIG_E)) += d.o";
        let expected = ["a/: $(subst m,y,A)=y", "b.o: AB=y", "d.o: $(or D,E)=y"];
        assert_eq!(words(text, "obj-y", ""), expected);
    }

    #[test]
    fn unknown_comparisons_are_kept() {
        let text = "ifeq ($(KBUILD_EXTMOD),)\nobj-y += a.o\nendif\nifneq ($(shell uname),Linux)\nobj-y += b.o\nendif\n\
                    ifeq ($(A,y)\nobj-y += c.o\nendif";
        let expected = ["a.o: !$(KBUILD_EXTMOD)", "b.o: $(shell uname)!=Linux", "c.o: !$(($(A,y))"];
        assert_eq!(words(text, "obj-y", ""), expected);
    }

    #[test]
    fn lists_are_computed() {
        let text = "ifeq ($(CONFIG_64BIT),y)\nBITS := 64\nelse\nBITS := 32\nendif\n\
                    all := a.c b.c\nobj-y := head_$(BITS).o $(all:.c=.o) $(patsubst %.c,x_%.o,$(all))\n\
                    obj-y += $(addprefix d/,$(filter-out b.c,$(all))) $(if $(CONFIG_A),e.o,f.o) $(wildcard *.c)\n\
                    ifeq ($(BITS),32)\nobj-y += g.o\nendif\nloop = $(loop) h.o\nobj-y += $(loop)";
        let found = words(text, "obj-y", "CONFIG_X=y");
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let expected = [
            "head_64.o: 64BIT=y",
            "head_32.o: 64BIT!=y",
            "a.o: always",
            "b.o: always",
            "x_a.o: always",
            "x_b.o: always",
            "d/a.c: always",
            "e.o: A",
            "f.o: !A",
            "g.o: always",
        ];
        assert_eq!(found[..expected.len()], expected);
        assert!(found[expected.len()..].iter().all(|word| *word == "h.o: always"), "{found:?}");
    }

    #[test]
    fn includes_are_read_in_place() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("inner"), "obj-y += a.o\nifdef CONFIG_OPEN\n").unwrap();
        let outer = directory.path().join("Makefile");
        let text = "ifdef CONFIG_A\ninclude $(src)/inner\nobj-y += b.o\nendif\ninclude $(src)/Makefile absent\nobj-y += c.o";
        fs::write(&outer, text).unwrap();
        let config = Config::parse("CONFIG_A=y");
        let mut variables = Variables::default();
        variables.set("src", directory.path().to_str().unwrap());
        read(&outer, directory.path(), &config, &mut variables);
        let words = variables.words("obj-y", &config);
        assert!(words.iter().any(|word| word.text == "b.o" && word.condition == is_set("A")));
        assert_eq!(words[0].condition, is_set("A"));
    }

    #[test]
    fn damaged_files_set_nothing() {
        for text in ["", "endif\nelse\nendef", "define x\nobj-y += a.o", "$", "obj-$( += a.o", "ifeq\nifdef\n$(", "$(a)$"] {
            assert!(words(text, "obj-y", "").is_empty(), "{text}");
        }
    }
}
