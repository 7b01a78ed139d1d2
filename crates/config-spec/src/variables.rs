//! The variables of a Makefile: lists of words, each with the condition under which it is there.

use rustc_hash::FxHashMap;

use crate::condition::{Condition, Piece, Text};
use crate::config::Config;
use crate::evaluation;
use crate::lines::{split_arguments, split_words};
use crate::references::{RawPiece, function_call, pieces, substitute};

/// Maximum depth of references within references.
const MAX_DEPTH: usize = 32;

/// The text that stands for what this program cannot expand. No path in a Makefile has such a character.
const UNKNOWN: &str = "\0";

/// A word of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word; with references if the variable expands them when it is used.
    pub text: String,
    /// The condition under which the variable holds it.
    pub condition: Condition,
}

impl Word {
    /// Creates a word that stands for any number of others.
    fn unknown() -> Word {
        Word { text: UNKNOWN.to_owned(), condition: Condition::Always }
    }

    /// Whether the word, or a part of it, cannot be expanded. It may stand for any words.
    pub fn is_unknown(&self) -> bool {
        self.text.contains(UNKNOWN)
    }
}

/// The variables of a Makefile.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    words: FxHashMap<String, Vec<Word>>,
    exported: Vec<String>,
}

/// The variables and references that an expansion is within.
#[derive(Clone, Copy, Default)]
struct Within<'a> {
    outer: Option<&'a Within<'a>>,
    variable: Option<&'a str>,
    depth: usize,
}

impl Within<'_> {
    fn is_in(&self, variable: &str) -> bool {
        self.variable == Some(variable) || self.outer.is_some_and(|outer| outer.is_in(variable))
    }

    /// Returns the place within one more reference; `None` if there are too many.
    fn deeper(self) -> Option<Self> {
        (self.depth < MAX_DEPTH).then_some(Within { depth: self.depth + 1, ..self })
    }
}

impl Variables {
    /// Sets a variable to one word.
    pub fn set(&mut self, name: &str, value: &str) {
        let word = Word { text: value.to_owned(), condition: Condition::Always };
        self.words.insert(name.to_owned(), vec![word]);
    }

    /// Returns the words of a variable, with their references expanded.
    pub fn words(&self, name: &str, config: &Config) -> Vec<Word> {
        self.expand_variable(name, config, Within::default()).unwrap_or_default()
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

    /// Adds a variable to those that make passes to other directories.
    pub fn export(&mut self, name: &str) {
        self.exported.push(name.to_owned());
    }

    /// Returns the unexpanded words of a variable, to change them.
    pub fn words_mut(&mut self, name: String) -> &mut Vec<Word> {
        self.words.entry(name).or_default()
    }

    /// Returns the words that a text expands to.
    pub fn expand(&self, text: &str, config: &Config) -> Vec<Word> {
        self.expand_list(text, config, Within::default())
    }

    /// Returns a text with the options that it names. A variable is replaced by its value in the present configuration,
    /// if that is certain.
    pub fn text(&self, text: &str, config: &Config) -> Text {
        self.text_within(text, config, Within::default())
    }

    /// Returns the expanded words of a variable; `None` if it is not set.
    fn expand_variable(&self, name: &str, config: &Config, within: Within<'_>) -> Option<Vec<Word>> {
        let words = self.words.get(name)?;
        // A variable that refers to itself is an error of make.
        if within.is_in(name) {
            return Some(Vec::new());
        }
        let within = Within { outer: Some(&within), variable: Some(name), depth: within.depth };
        let mut expanded = Vec::new();
        for word in words {
            for inner in self.expand_word(&word.text, config, within) {
                let condition = word.condition.clone().and(inner.condition);
                expanded.push(Word { text: inner.text, condition });
            }
        }
        Some(expanded)
    }

    /// Returns the words that a word expands to.
    fn expand_word(&self, word: &str, config: &Config, within: Within<'_>) -> Vec<Word> {
        let plain = |text: String| Word { text, condition: Condition::Always };
        if !word.contains('$') {
            return vec![plain(word.to_owned())];
        }
        // The words before the next reference, each continued by every expansion of the reference.
        let mut results = vec![plain(String::new())];
        let pieces = pieces(word);
        let is_part_of_word = pieces.len() > 1;
        for piece in pieces {
            let expansions = match piece {
                RawPiece::Literal(text) => vec![plain(text)],
                RawPiece::Reference(inside) => {
                    let mut words = self.expand_reference(inside, config, within);
                    // A variable that is not set is empty, and leaves the rest of the word.
                    if is_part_of_word && function_call(inside).is_none() {
                        let is_set = Condition::any(words.iter().map(|word| word.condition.clone()));
                        let unset = is_set.negated();
                        if unset != Condition::never() {
                            words.push(Word { text: String::new(), condition: unset });
                        }
                    }
                    words
                }
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
    fn expand_list(&self, list: &str, config: &Config, within: Within<'_>) -> Vec<Word> {
        split_words(list).into_iter().flat_map(|word| self.expand_word(word, config, within)).collect()
    }

    /// Returns the words that the inside of `$(…)` expands to.
    fn expand_reference(&self, inside: &str, config: &Config, within: Within<'_>) -> Vec<Word> {
        let Some(within) = within.deeper() else { return vec![Word::unknown()] };
        let list = |text: &str| self.expand_list(text.trim(), config, within);
        if let Some((function, arguments)) = function_call(inside) {
            let arguments = split_arguments(arguments);
            let map = |words: Vec<Word>, change: &dyn Fn(&str) -> Option<String>| {
                let changed =
                    |word: Word| Some(Word { text: change(&word.text)?, condition: word.condition });
                words.into_iter().filter_map(changed).collect()
            };
            return match (function, arguments.as_slice()) {
                ("addprefix", [prefix, words]) => self.with_fixed(prefix, config, within, |prefix| {
                    map(list(words), &|word| Some(format!("{prefix}{word}")))
                }),
                ("addsuffix", [suffix, words]) => self.with_fixed(suffix, config, within, |suffix| {
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
                    let text = self.text_within(condition.trim(), config, within);
                    let is_false = Condition::Equal(text, Text::default());
                    let under = |words: Vec<Word>, condition: &Condition| -> Vec<Word> {
                        let under =
                            |word: Word| Word { condition: word.condition.and(condition.clone()), ..word };
                        words.into_iter().map(under).collect()
                    };
                    let mut words = under(list(yes), &is_false.clone().negated());
                    words.extend(rest.first().map(|no| under(list(no), &is_false)).unwrap_or_default());
                    words
                }
                _ => vec![Word::unknown()],
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
            let words = self.expand_variable(name, config, within).unwrap_or_default();
            let changed = |word: Word| Word { text: substitute(&from, &to, &word.text), ..word };
            return words.into_iter().map(changed).collect();
        }
        self.expand_variable(inside, config, within).unwrap_or_default()
    }

    fn with_fixed(
        &self,
        text: &str,
        config: &Config,
        within: Within<'_>,
        then: impl FnOnce(&str) -> Vec<Word>,
    ) -> Vec<Word> {
        match self.expand_list(text.trim(), config, within).as_slice() {
            [only] => then(&only.text),
            [] if text.trim().is_empty() => then(""),
            _ => vec![Word::unknown()],
        }
    }

    fn text_within(&self, text: &str, config: &Config, within: Within<'_>) -> Text {
        let mut found = Vec::new();
        for piece in pieces(text) {
            found.push(match piece {
                RawPiece::Literal(text) => Piece::Literal(text),
                RawPiece::Reference(inside) => self.reference(inside, config, within),
            });
        }
        Text(found)
    }

    fn reference(&self, inside: &str, config: &Config, within: Within<'_>) -> Piece {
        let unknown = || Piece::Unknown(inside.to_owned());
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if let Some(option) = inside.strip_prefix("CONFIG_").filter(|option| is_name(option)) {
            return Piece::Option(option.to_owned());
        }
        let Some(within) = within.deeper() else { return unknown() };
        if let Some((function, arguments)) = function_call(inside) {
            if !evaluation::FUNCTIONS.contains(&function) {
                return unknown();
            }
            let arguments = split_arguments(arguments);
            let arguments = arguments.iter().map(|text| self.text_within(text, config, within)).collect();
            return Piece::Call(function.to_owned(), arguments);
        }
        let Some(words) = self.expand_variable(inside, config, within) else { return unknown() };
        let mut value: Vec<String> = Vec::new();
        for word in words {
            match word.condition.holds(config) {
                Some(true) if word.is_unknown() => return unknown(),
                Some(true) => value.push(word.text),
                Some(false) => {}
                None => return unknown(),
            }
        }
        Piece::Literal(value.join(" "))
    }
}
