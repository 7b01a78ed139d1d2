//! Expressions of Kconfig, as after `if`, in a given configuration.

use crate::config::Config;
use crate::kconfig::{Definitions, Kind};

/// A truth value of Kconfig: 0 for `n`, 1 for `m`, 2 for `y`.
pub type Truth = u8;

/// Options with their values.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The options. Another word is a constant.
    pub definitions: &'a Definitions,
}

impl Values<'_> {
    /// Returns the value of a word: of the option with this name, or the word itself.
    pub fn of(self, word: &str) -> String {
        let Some(definition) = self.definitions.options.get(word) else { return word.to_owned() };
        match (self.config.value(word), definition.kind) {
            ("", None | Some(Kind::Truth)) => "n".to_owned(),
            (value, _) => value.trim_matches('"').to_owned(),
        }
    }

    /// Returns the truth of an expression; `None` if it calls a function of Kconfig, or is no expression, or one of more
    /// than [`MAX_PREFIXES`] parentheses and negations.
    pub fn truth(self, expression: &str) -> Option<Truth> {
        let words = words(expression)?;
        if words.iter().filter(|word| ["(", "!"].contains(word)).count() > MAX_PREFIXES {
            return None;
        }
        let mut parser = Parser { words, at: 0, values: self };
        let truth = parser.any()?;
        (parser.at == parser.words.len()).then_some(truth)
    }
}

/// Returns the number that a text is: decimal, or hexadecimal with `0x`.
pub fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Maximum number of parentheses and negations of an expression.
const MAX_PREFIXES: usize = 256;

/// A parser that computes the truth as it reads.
struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
    values: Values<'a>,
}

impl Parser<'_> {
    fn any(&mut self) -> Option<Truth> {
        let mut truth = self.all()?;
        while self.skip("||") {
            truth = truth.max(self.all()?);
        }
        Some(truth)
    }

    fn all(&mut self) -> Option<Truth> {
        let mut truth = self.one()?;
        while self.skip("&&") {
            truth = truth.min(self.one()?);
        }
        Some(truth)
    }

    fn one(&mut self) -> Option<Truth> {
        if self.skip("!") {
            return Some(2 - self.one()?);
        }
        if self.skip("(") {
            let truth = self.any()?;
            return self.skip(")").then_some(truth);
        }
        let left = self.value()?;
        let holds = match self.words.get(self.at).copied() {
            Some(operator @ ("=" | "!=" | "<" | "<=" | ">" | ">=")) => {
                self.at += 1;
                let right = self.value()?;
                let order = match (number(&left), number(&right)) {
                    (Some(left), Some(right)) => left.cmp(&right),
                    _ => left.cmp(&right),
                };
                match operator {
                    "=" => order.is_eq(),
                    "!=" => order.is_ne(),
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    _ => order.is_ge(),
                }
            }
            _ => {
                return Some(match left.as_str() {
                    "y" => 2,
                    "m" => 1,
                    _ => 0,
                });
            }
        };
        Some(if holds { 2 } else { 0 })
    }

    fn value(&mut self) -> Option<String> {
        let word = *self.words.get(self.at)?;
        self.at += 1;
        if let Some(text) = word.strip_prefix(['"', '\'']) {
            return Some(text.to_owned());
        }
        word.starts_with(is_part).then(|| self.values.of(word))
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_next);
        is_next
    }
}

/// Whether a character is part of a name or a number.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || ['_', '-', '.'].contains(&c)
}

/// Splits an expression into names, operators, and texts in quotes (without the last quote). Returns `None` if a text has
/// no end.
fn words(expression: &str) -> Option<Vec<&str>> {
    const OPERATORS: [&str; 5] = ["&&", "||", "!=", "<=", ">="];
    let mut found = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let (length, quote) = if is_part(first) {
            (rest.find(|c| !is_part(c)).unwrap_or(rest.len()), 0)
        } else if ['"', '\''].contains(&first) {
            (rest[1..].find(first)? + 1, 1)
        } else {
            let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
            (operator.map_or(first.len_utf8(), |operator| operator.len()), 0)
        };
        found.push(&rest[..length]);
        rest = rest[length + quote..].trim_start();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kconfig::Definition;

    #[test]
    fn expressions_have_the_truth_of_kconfig() {
        let kinds = [
            ("ON", Kind::Truth),
            ("MODULE", Kind::Truth),
            ("OFF", Kind::Truth),
            ("64BIT", Kind::Truth),
            ("BITS", Kind::Int),
            ("NAME", Kind::Text),
        ];
        let mut definitions = Definitions::default();
        for (name, kind) in kinds {
            let definition = Definition { kind: Some(kind), ..Definition::default() };
            definitions.options.insert(name.to_owned(), definition);
        }
        let config = Config::parse("CONFIG_ON=y\nCONFIG_MODULE=m\nCONFIG_BITS=10\nCONFIG_NAME=\"a b\"\n");
        let truth = |text: &str| Values { config: &config, definitions: &definitions }.truth(text);
        for (text, expected) in [
            ("ON", 2),
            ("MODULE", 1),
            ("OFF", 0),
            ("!64BIT", 2),
            ("!MODULE", 1),
            ("ON && MODULE", 1),
            ("OFF || MODULE", 1),
            ("OFF && OFF || ON", 2),
            ("OFF && (OFF || ON)", 0),
            ("!(ON && OFF)", 2),
            ("BITS > 9", 2),
            ("BITS<=9", 0),
            ("BITS", 0),
            ("OFF = n", 2),
            ("MODULE!=y", 2),
            ("NAME = \"a b\"", 2),
            ("UNDEFINED", 0),
            ("y", 2),
        ] {
            assert_eq!(truth(text), Some(expected), "{text}");
        }
        for text in ["$(success,true)", "ON &&", "(ON", "ON OFF", "", "NAME = \"a", "ON == OFF"] {
            assert_eq!(truth(text), None, "{text}");
        }
    }
}
