//! The parts of a C file that its preprocessor includes under conditions, and the places that mention options.

mod effect;

use std::ops::Range;

use super::expression;
use crate::c_text::{Piece, pieces};
use crate::condition::Condition;

pub use effect::Lost;

/// A source file with mentions of options. Lines count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFile {
    regions: Vec<Region>,
    mentions: Vec<Mention>,
    /// The text without comments, by line.
    lines: Vec<String>,
}

/// Lines between two directives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    lines: Range<u32>,
    /// The condition of the region, without that of the regions around it.
    condition: Condition,
    /// The first line of the directive that begins it.
    directive: u32,
}

/// A condition whose end has not been read.
struct Open {
    /// The first line of its last directive.
    directive: u32,
    /// The line behind that directive.
    behind: u32,
    /// The condition since that directive.
    condition: Condition,
    /// The condition that no branch so far has been true.
    others: Condition,
    /// The number of branches so far.
    branches: usize,
}

/// An option's name in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mention {
    line: u32,
    option: String,
    in_condition: bool,
}

/// Maximum number of branches of one `#if` whose conditions are evaluated; further ones are unknown.
const MAX_BRANCHES: usize = 64;

impl SourceFile {
    /// Parses a file.
    pub fn parse(text: &str) -> SourceFile {
        let text = without_comments(text);
        let mut file =
            SourceFile { lines: text.lines().map(str::to_owned).collect(), ..SourceFile::default() };
        let mut open: Vec<Open> = Vec::new();
        let mut at = 0;
        while at < file.lines.len() {
            let directive_line = at as u32 + 1;
            let mut line = file.lines[at].clone();
            while let Some(start) = line.strip_suffix('\\') {
                at += 1;
                line = format!("{start} {}", file.lines.get(at).map_or("", String::as_str));
            }
            at += 1;
            let behind = at as u32 + 1;
            let (name, rest) = directive(&line).unwrap_or_default();
            let in_condition = matches!(name, "if" | "ifdef" | "ifndef" | "elif");
            let mention =
                |option: &str| Mention { line: directive_line, option: option.to_owned(), in_condition };
            file.mentions.extend(options(&line).map(mention));
            let condition = match name {
                "if" | "elif" => expression::parse(rest),
                "ifdef" => expression::defined(rest),
                "ifndef" => expression::defined(rest).negated(),
                "else" => Condition::Always,
                _ => Condition::never(),
            };
            let (others, branches) = match name {
                "if" | "ifdef" | "ifndef" => (Condition::Always, 0),
                "elif" | "else" | "endif" => {
                    let Some(last) = open.pop() else { continue };
                    let lines = last.behind..directive_line;
                    let (condition, directive) = (last.condition, last.directive);
                    file.regions.push(Region { lines, condition, directive });
                    (last.others, last.branches)
                }
                _ => continue,
            };
            if name != "endif" {
                let (condition, others) = match branches < MAX_BRANCHES {
                    true => (others.clone().and(condition.clone()), others.and(condition.negated())),
                    false => (expression::unknown(rest), expression::unknown(rest)),
                };
                open.push(Open {
                    directive: directive_line,
                    behind,
                    condition,
                    others,
                    branches: branches + 1,
                });
            }
        }
        file
    }

    /// Iterates over the options that the file mentions, each as often as it does.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.mentions.iter().map(|mention| mention.option.as_str())
    }
}

/// Returns the name of a directive and the text behind it.
fn directive(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    Some((name, rest.trim()))
}

/// Iterates over the identifiers and numbers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Iterates over the names of options in a text. A name that `_MODULE` ends stands for the option before it.
fn options(text: &str) -> impl Iterator<Item = &str> {
    words(text)
        .filter_map(|word| word.strip_prefix("CONFIG_"))
        .map(|name| name.strip_suffix("_MODULE").unwrap_or(name))
        .filter(|name| !name.is_empty())
}

/// Returns the text with a space for each comment. Lines stay where they are.
fn without_comments(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Code(text) | Piece::Literal(text) => result.push_str(text),
            Piece::Comment(text) => {
                result.push(' ');
                result.extend(text.chars().filter(|c| *c == '\n'));
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chains_are_evaluated_in_time() {
        let branches: String =
            (0..20_000).map(|n| format!("#elif defined(CONFIG_B{n})\nint b{n};\n")).collect();
        let text = format!("#ifdef CONFIG_A\nint a;\n{branches}#endif\n");
        assert!(SourceFile::parse(&text).regions.len() > 20_000);
    }
}
