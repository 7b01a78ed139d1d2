//! The values of conditions and texts in a configuration, and the functions of make in them.

use crate::condition::{Condition, Piece, Text};
use crate::config::Config;

impl Condition {
    /// Returns whether it is true in a configuration; `None` if that cannot be decided.
    pub fn holds(&self, config: &Config) -> Option<bool> {
        match self {
            Condition::Always => Some(true),
            Condition::Equal(a, b) => Some(a.value(config)?.trim() == b.value(config)?.trim()),
            Condition::Not(inner) => inner.holds(config).map(|holds| !holds),
            Condition::All(parts) => decide(parts, config, false),
            Condition::Any(parts) => decide(parts, config, true),
        }
    }
}

/// Returns `decisive` if any part has this value, `None` if none has and one is undecided.
fn decide(parts: &[Condition], config: &Config, decisive: bool) -> Option<bool> {
    let mut result = Some(!decisive);
    for part in parts {
        match part.holds(config) {
            Some(holds) if holds == decisive => return Some(decisive),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

impl Text {
    /// Returns its value in a configuration; `None` if it has an unknown part.
    pub fn value(&self, config: &Config) -> Option<String> {
        let mut value = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => value.push_str(text),
                Piece::Option(name) => value.push_str(config.value(name)),
                Piece::Call(function, arguments) => {
                    value.push_str(&call(function, arguments, config)?);
                }
                Piece::Unknown(_) => return None,
            }
        }
        Some(value)
    }
}

/// The functions of make that are evaluated.
pub const FUNCTIONS: [&str; 10] =
    ["and", "filter", "filter-out", "findstring", "firstword", "if", "or", "sort", "strip", "subst"];

/// Returns the value of a call of a function in a configuration; `None` if the function or an argument is unknown.
fn call(function: &str, arguments: &[Text], config: &Config) -> Option<String> {
    let value = |number: usize| arguments.get(number).map_or(Some(String::new()), |text| text.value(config));
    let is_pattern = |pattern: &str, word: &str| match pattern.split_once('%') {
        None => pattern == word,
        Some((prefix, suffix)) => {
            word.len() >= prefix.len() + suffix.len() && word.starts_with(prefix) && word.ends_with(suffix)
        }
    };
    let filter = |wanted: bool| -> Option<String> {
        let (patterns, words) = (value(0)?, value(1)?);
        let is_wanted =
            |word: &&str| patterns.split_whitespace().any(|pattern| is_pattern(pattern, word)) == wanted;
        Some(words.split_whitespace().filter(is_wanted).collect::<Vec<_>>().join(" "))
    };
    match function {
        "subst" => match value(0)?.as_str() {
            "" => value(2),
            from => Some(value(2)?.replace(from, &value(1)?)),
        },
        "filter" => filter(true),
        "filter-out" => filter(false),
        "findstring" => {
            let wanted = value(0)?;
            Some(if value(1)?.contains(&wanted) { wanted } else { String::new() })
        }
        "strip" => Some(value(0)?.split_whitespace().collect::<Vec<_>>().join(" ")),
        "sort" => {
            let all = value(0)?;
            let mut words: Vec<&str> = all.split_whitespace().collect();
            words.sort_unstable();
            words.dedup();
            Some(words.join(" "))
        }
        "firstword" => Some(value(0)?.split_whitespace().next().unwrap_or_default().to_owned()),
        "if" => {
            let is_true = !value(0)?.trim().is_empty();
            value(if is_true { 1 } else { 2 })
        }
        "or" => {
            for number in 0..arguments.len() {
                let text = value(number)?;
                if !text.trim().is_empty() {
                    return Some(text);
                }
            }
            Some(String::new())
        }
        "and" => {
            let mut last = String::new();
            for number in 0..arguments.len() {
                last = value(number)?;
                if last.trim().is_empty() {
                    return Some(String::new());
                }
            }
            Some(last)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::tests::{is_set, value_of};

    fn unknown() -> Condition {
        Condition::Equal(Text(vec![Piece::Unknown("KBUILD_EXTMOD".into())]), Text::default())
    }

    #[test]
    fn unknown_part_decides_nothing() {
        let config = Config::parse("CONFIG_A=y\n");
        let (on, off) = (is_set("A"), is_set("B"));
        assert_eq!(unknown().holds(&config), None);
        assert_eq!(unknown().negated().holds(&config), None);
        assert_eq!(unknown().and(on.clone()).holds(&config), None);
        assert_eq!(unknown().and(off.clone()).holds(&config), Some(false));
        assert_eq!(Condition::any([unknown(), on]).holds(&config), Some(true));
        assert_eq!(Condition::any([unknown(), off]).holds(&config), None);
    }

    #[test]
    fn functions_give_what_make_gives() {
        let config = Config::parse("CONFIG_A=m\nCONFIG_B=y\n");
        let result = |function: &str, arguments: &[Text]| call(function, arguments, &config);
        let (a, b, none) = (value_of("A"), value_of("B"), value_of("NONE"));
        let text = Text::literal;
        assert_eq!(result("subst", &[text("m"), text("y"), a.clone()]).as_deref(), Some("y"));
        assert_eq!(result("subst", &[text(""), text("y"), a.clone()]).as_deref(), Some("m"));
        assert_eq!(result("filter", &[text("y m"), a.clone()]).as_deref(), Some("m"));
        assert_eq!(result("filter-out", &[text("%.o"), text("a.o b.c")]).as_deref(), Some("b.c"));
        assert_eq!(result("or", &[none.clone(), b.clone()]).as_deref(), Some("y"));
        assert_eq!(result("and", &[b.clone(), none.clone()]).as_deref(), Some(""));
        assert_eq!(result("if", &[none, text("1"), text("2")]).as_deref(), Some("2"));
        assert_eq!(result("if", &[b, text("1")]).as_deref(), Some("1"));
        assert_eq!(result("findstring", &[text("m"), a]).as_deref(), Some("m"));
        assert_eq!(result("shell", &[text("uname")]), None);
        assert_eq!(result("strip", &[Text(vec![Piece::Unknown("CC".into())])]), None);
    }
}
