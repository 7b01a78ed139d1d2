/*!
Splitting of the command line as in the kernel.

A word is defined by `next_arg` (lib/cmdline.c): it extends to white space outside of double quotes, with a name up to
the first `=` and a value after it. Words after `--` are for init.
*/

use std::fmt;

/// A word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The text before `=`, or the whole word.
    pub name: String,
    /// The text after `=`, without quotes.
    pub value: Option<String>,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns the words of a command line, up to `--`.
pub fn words(line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = line.trim_start_matches(is_space);
    while !rest.is_empty() {
        let (word, behind) = next(rest);
        if word.name == "--" && word.value.is_none() {
            break;
        }
        words.push(word);
        rest = behind.trim_start_matches(is_space);
    }
    words
}

/// `isspace` of the kernel (include/linux/ctype.h), for ASCII.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Returns the first word, and the rest.
fn next(line: &str) -> (Word, &str) {
    let quoted = line.starts_with('"');
    let line = line.strip_prefix('"').unwrap_or(line);
    let (mut in_quotes, mut equals, mut end) = (quoted, None, line.len());
    for (at, c) in line.char_indices() {
        if is_space(c) && !in_quotes {
            end = at;
            break;
        }
        // An `=` at the very beginning is part of the name.
        if c == '=' && equals.is_none() && at > 0 {
            equals = Some(at);
        }
        in_quotes ^= c == '"';
    }
    let (word, behind) = line.split_at(end);
    // The end of a quoted word or of a quoted value, but only one of them.
    let unquoted = |text: &str| text.strip_suffix('"').unwrap_or(text).to_owned();
    let end_of = |text: &str, is_quoted: bool| if is_quoted { unquoted(text) } else { text.to_owned() };
    let word = match equals {
        None => Word { name: end_of(word, quoted), value: None },
        Some(at) => {
            let value = &word[at + 1..];
            let value = match value.strip_prefix('"') {
                Some(value) => unquoted(value),
                None => end_of(value, quoted),
            };
            Word { name: word[..at].to_owned(), value: Some(value) }
        }
    };
    (word, behind)
}

/// Whether two names mean the same parameter: dashes and underscores are equal (`parameq` in kernel/params.c).
pub fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && begins_with(one, other)
}

/// Whether a text begins with the name of a parameter (`parameqn` in kernel/params.c).
pub fn begins_with(text: &str, name: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    text.len() >= name.len() && text.bytes().zip(name.bytes()).all(|(a, b)| plain(a) == plain(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Vec<(String, Option<String>)> {
        words(line).into_iter().map(|word| (word.name, word.value)).collect()
    }

    fn word(name: &str, value: Option<&str>) -> (String, Option<String>) {
        (name.to_owned(), value.map(str::to_owned))
    }

    #[test]
    fn words_are_as_the_kernel_has_them() {
        assert_eq!(told("  quiet\tpanic=-1 "), [word("quiet", None), word("panic", Some("-1"))]);
        assert_eq!(told("a=b=c x="), [word("a", Some("b=c")), word("x", Some(""))]);
        assert_eq!(told("a=\"b c\" d"), [word("a", Some("b c")), word("d", None)]);
        assert_eq!(told("\"a=b c\" d"), [word("a", Some("b c")), word("d", None)]);
        assert_eq!(told("\"two words\""), [word("two words", None)]);
        assert_eq!(told("a=b\"c d\"e f"), [word("a", Some("b\"c d\"e")), word("f", None)]);
        assert_eq!(told("=x y"), [word("=x", None), word("y", None)]);
        assert_eq!(told("\"unended a=b"), [word("unended a", Some("b"))]);
        assert_eq!(told(""), []);
    }

    #[test]
    fn what_is_for_init_is_left_out() {
        assert_eq!(told("a -- b"), [word("a", None)]);
        assert_eq!(told("a --b"), [word("a", None), word("--b", None)]);
    }

    #[test]
    fn dashes_are_underscores() {
        assert!(is_same("no-hlt", "no_hlt") && !is_same("nohlt", "no_hlt") && !is_same("no", "nohlt"));
        assert!(begins_with("console=ttyS0", "console=") && !begins_with("console", "console="));
        assert!(begins_with("anything", ""));
    }
}
