//! The functions of make that the conditions of Kbuild files use.

use crate::condition::Text;
use crate::config::Config;

/// The functions that [`call`] evaluates.
pub const KNOWN: [&str; 10] =
    ["and", "filter", "filter-out", "findstring", "firstword", "if", "or", "sort", "strip", "subst"];

/// Returns the value of a call of a function in a configuration; `None` if the function or an argument is unknown.
pub fn call(function: &str, arguments: &[Text], config: &Config) -> Option<String> {
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
    use crate::condition::Piece;
    use crate::condition::tests::value_of;

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
