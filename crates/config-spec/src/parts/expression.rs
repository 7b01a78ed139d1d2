//! Conditions of the C preprocessor over options.

use crate::condition::{Condition, Piece, Text};

/// Macros of include/linux/kconfig.h that hold for `y` alone, or for `y` and some uses of `m`.
const BUILT_IN: [&str; 2] = ["IS_BUILTIN", "IS_REACHABLE"];

/// Returns the condition of `#if`, by the text after the directive. Everything but options, `defined` and the macros
/// of include/linux/kconfig.h is unknown.
pub fn parse(text: &str) -> Condition {
    let mut parser = Parser { rest: text, depth: 0 };
    let condition = parser.any();
    if parser.rest.trim().is_empty() { condition } else { unknown(text) }
}

/// Returns the condition of `#ifdef NAME`. Text behind the name makes it unknown.
pub fn defined(name: &str) -> Condition {
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match name.strip_prefix("CONFIG_").filter(|_| is_name) {
        // The macro of an option that is `m` is `CONFIG_NAME_MODULE`.
        Some(option) => match option.strip_suffix("_MODULE") {
            Some(option) => equals(option, "m"),
            None => not_empty(option).and(equals(option, "m").negated()),
        },
        None => unknown(name),
    }
}

/// Returns a condition that is neither true nor false.
pub fn unknown(text: &str) -> Condition {
    Condition::Equal(Text(vec![Piece::Unknown(text.trim().to_owned())]), Text::literal("1"))
}

fn equals(option: &str, value: &str) -> Condition {
    Condition::Equal(Text(vec![Piece::Option(option.to_owned())]), Text::literal(value))
}

fn not_empty(option: &str) -> Condition {
    equals(option, "").negated()
}

/// Returns the condition of a macro of include/linux/kconfig.h for an option.
fn enabled(name: &str, option: &str) -> Condition {
    match name {
        "IS_ENABLED" => not_empty(option),
        "IS_MODULE" => equals(option, "m"),
        // `IS_REACHABLE` of an option that is `m` depends on where the macro stands.
        "IS_REACHABLE" => {
            Condition::any([equals(option, "y"), Condition::all([equals(option, "m"), unknown(name)])])
        }
        _ => equals(option, "y"),
    }
}

/// The text that is left to parse.
struct Parser<'a> {
    rest: &'a str,
    /// The number of terms around the next one.
    depth: usize,
}

/// Maximum depth of terms; deeper ones are unknown.
const MAX_DEPTH: usize = 64;

impl<'a> Parser<'a> {
    fn any(&mut self) -> Condition {
        let mut parts = vec![self.all()];
        while self.take("||") {
            parts.push(self.all());
        }
        Condition::any(parts)
    }

    fn all(&mut self) -> Condition {
        let mut parts = vec![self.term()];
        while self.take("&&") {
            parts.push(self.term());
        }
        Condition::all(parts)
    }

    fn term(&mut self) -> Condition {
        if self.depth == MAX_DEPTH {
            return self.skip_term();
        }
        self.depth += 1;
        let term = self.shallow_term();
        self.depth -= 1;
        term
    }

    fn shallow_term(&mut self) -> Condition {
        self.rest = self.rest.trim_start();
        if !self.rest.starts_with("!=") && self.take("!") {
            return self.term().negated();
        }
        let before = self.rest;
        if self.take("(") {
            let inner = self.any();
            if self.take(")") && self.at_end_of_term() {
                return inner;
            }
        } else if let Some(name) = self.name() {
            let parsed = match name {
                "defined" => self.argument().map(defined),
                "IS_ENABLED" | "IS_MODULE" => self.option().map(|option| enabled(name, option)),
                _ if BUILT_IN.contains(&name) => self.option().map(|option| enabled(name, option)),
                // The macro of a boolean option is 1; a number may be 0.
                _ => None,
            };
            if let Some(parsed) = parsed.filter(|_| self.at_end_of_term()) {
                return parsed;
            }
        }
        self.rest = before;
        self.skip_term()
    }

    /// Whether an operator of conditions or the end follows, and not one of arithmetic.
    fn at_end_of_term(&self) -> bool {
        let rest = self.rest.trim_start();
        rest.is_empty() || ["&&", "||", ")"].iter().any(|operator| rest.starts_with(operator))
    }

    /// Skips what this program does not evaluate, up to an operator outside of parentheses.
    fn skip_term(&mut self) -> Condition {
        let mut depth = 0usize;
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            match bytes[end] {
                b'(' => depth += 1,
                b')' if depth == 0 => break,
                b')' => depth -= 1,
                b'&' | b'|' if depth == 0 && bytes.get(end + 1) == Some(&bytes[end]) => break,
                _ => {}
            }
            end += 1;
        }
        let (skipped, rest) = self.rest.split_at(end);
        self.rest = rest;
        unknown(skipped)
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        (!name.is_empty()).then(|| {
            self.rest = rest;
            name
        })
    }

    /// Takes `NAME` or `(NAME)`.
    fn argument(&mut self) -> Option<&'a str> {
        let in_parentheses = self.take("(");
        let name = self.name()?;
        (!in_parentheses || self.take(")")).then_some(name)
    }

    /// Takes `(CONFIG_NAME)`.
    fn option(&mut self) -> Option<&'a str> {
        self.argument()?.strip_prefix("CONFIG_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn holds(text: &str) -> Option<bool> {
        parse(text).holds(&Config::parse("CONFIG_Y=y\nCONFIG_M=m\nCONFIG_N=4\n"))
    }

    #[test]
    fn conditions_over_options_have_a_value() {
        for (text, expected) in [
            ("defined(CONFIG_Y)", Some(true)),
            ("defined CONFIG_Y && !defined(CONFIG_OFF)", Some(true)),
            ("defined(CONFIG_M)", Some(false)),
            ("IS_ENABLED(CONFIG_M)", Some(true)),
            ("IS_BUILTIN(CONFIG_M) || IS_MODULE(CONFIG_M)", Some(true)),
            ("IS_REACHABLE(CONFIG_Y)", Some(true)),
            ("IS_REACHABLE(CONFIG_OFF)", Some(false)),
            ("(defined(CONFIG_OFF) || (IS_ENABLED(CONFIG_Y)))", Some(true)),
            ("defined(CONFIG_OFF) && BITS_PER_LONG == 64", Some(false)),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn names_with_text_behind_and_deep_terms_are_unknown() {
        let config = Config::parse("CONFIG_Y=y\nCONFIG_M=m\n");
        assert_eq!(defined("CONFIG_Y").holds(&config), Some(true));
        assert_eq!(defined("CONFIG_Y )").holds(&config), None);
        assert_eq!(defined("CONFIG_M_MODULE").holds(&config), Some(true));
        for deep in ["(", "!"] {
            let text = format!("{}defined(CONFIG_Y)", deep.repeat(100_000));
            assert_eq!(parse(&text).holds(&config), None);
        }
    }

    #[test]
    fn what_is_not_evaluated_is_unknown() {
        for text in [
            "CONFIG_N > 3",
            "CONFIG_Y",
            "defined(CONFIG_Y) + 1",
            "BITS_PER_LONG == 64",
            "!(defined(CONFIG_Y) == 1)",
            "defined(CONFIG_Y) ? 1 : 0",
            "IS_REACHABLE(CONFIG_M)",
            "IS_ENABLED(FOO)",
            "defined(CONFIG_Y) \\",
            "defined(__KERNEL__) && defined(CONFIG_Y)",
            "defined(CONFIG_Y))",
            "",
        ] {
            assert_eq!(holds(text), None, "{text}");
        }
    }
}
