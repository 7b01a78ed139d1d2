//! The tokens of a C file, with their places.
//!
//! Edits insert and replace parts of the text. The rest of a file does not change.

use memchr::memmem;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword.
    Name,
    /// A number, character or string.
    Literal,
    /// An operator or another mark.
    Mark,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: Kind,
    /// Offset of its first byte in the file.
    pub start: usize,
    /// Offset of the byte after it.
    pub end: usize,
    /// The number of the preprocessor's directive that it is part of, from 1 on; 0 for other tokens.
    pub directive: u32,
}

/// Operators of more than one character, the longest first.
const MARKS: [&str; 22] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=",
];

/// Splits a C file into tokens. Comments are no tokens.
pub fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut directive, mut last, mut starts_line) = (0, 0, 0, true);
    while at < bytes.len() {
        let rest = &bytes[at..];
        match bytes[at] {
            b'\n' => {
                (directive, starts_line) = (0, true);
                at += 1;
            }
            b'\\' if rest.starts_with(b"\\\n") => at += 2,
            byte if byte.is_ascii_whitespace() => at += 1,
            _ if rest.starts_with(b"/*") => {
                at += memmem::find(&rest[2..], b"*/").map_or(rest.len(), |length| length + 4);
            }
            _ if rest.starts_with(b"//") => at += memchr::memchr(b'\n', rest).unwrap_or(rest.len()),
            byte => {
                if byte == b'#' && starts_line {
                    last += 1;
                    directive = last;
                }
                starts_line = false;
                let (kind, length) = token(text, at);
                found.push(Token { kind, start: at, end: at + length, directive });
                at += length;
            }
        }
    }
    found
}

/// Returns the kind and the length of the token at a place.
fn token(text: &str, at: usize) -> (Kind, usize) {
    let bytes = &text.as_bytes()[at..];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let word = || bytes.iter().position(|byte| !is_part(byte)).unwrap_or(bytes.len());
    match bytes[0] {
        quote @ (b'"' | b'\'') => (Kind::Literal, quoted(bytes, quote)),
        b'0'..=b'9' => (Kind::Literal, word()),
        byte if is_part(&byte) => (Kind::Name, word()),
        _ => match MARKS.iter().find(|mark| bytes.starts_with(mark.as_bytes())) {
            Some(mark) => (Kind::Mark, mark.len()),
            None => (Kind::Mark, 1),
        },
    }
}

/// Returns the length of a string or character. It ends at the end of its line at the latest.
fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| &text[token.start..token.end]).collect()
    }

    #[test]
    fn tokens_without_comments_and_space() {
        assert_eq!(
            words("a->b /* x->y */ <<= 'c' \"d\\\"->\" // e\n... f"),
            ["a", "->", "b", "<<=", "'c'", "\"d\\\"->\"", "...", "f"]
        );
    }

    #[test]
    fn directives_end_with_their_line() {
        let text = "a\n#define b \\\n c /*\n*/ d\ne # f";
        let directives: Vec<u32> = tokens(text).iter().map(|token| token.directive).collect();
        // a; # define b c d; e # f
        assert_eq!(directives, [0, 1, 1, 1, 1, 1, 0, 0, 0]);
    }
}
