//! The comments and literals of a C file.

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    /// Text that is neither a comment nor a literal.
    Code(&'t str),
    /// A text in quotes, with them.
    Literal(&'t str),
    /// A comment; one to the end of the line is without the line's end.
    Comment(&'t str),
}

/// Splits a file into its pieces.
pub fn pieces<'t>(text: &'t str) -> impl Iterator<Item = Piece<'t>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (length, piece): (usize, fn(&'t str) -> Piece<'t>) = if let Some(behind) = rest.strip_prefix("/*")
        {
            (behind.find("*/").map_or(rest.len(), |end| end + 4), Piece::Comment)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), Piece::Comment)
        } else if first == '"' || first == '\'' {
            (literal(rest), Piece::Literal)
        } else {
            // A slash that begins no comment is code.
            let next = rest[first.len_utf8()..].find(['/', '"', '\'']);
            (next.map_or(rest.len(), |at| at + first.len_utf8()), Piece::Code)
        };
        let (own, behind) = rest.split_at(length);
        rest = behind;
        Some(piece(own))
    })
}

/// Returns the length of the literal at the start of `text`. A literal without an end, as an apostrophe in `#error`, ends
/// with its line.
fn literal(text: &str) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\n' => return at,
            '\\' => escaped = true,
            c if Some(c) == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_split_into_comments_literals_and_code() {
        use Piece::{Code, Comment, Literal};
        let split = |text| pieces(text).collect::<Vec<_>>();
        assert_eq!(
            split("a/b /*/ \" */ \"/*\\\"\" // c\nd"),
            [
                Code("a"),
                Code("/b "),
                Comment("/*/ \" */"),
                Code(" "),
                Literal("\"/*\\\"\""),
                Code(" "),
                Comment("// c"),
                Code("\nd")
            ]
        );
        assert_eq!(split("'t\nx /*"), [Literal("'t"), Code("\nx "), Comment("/*")]);
        assert_eq!(split("\"a\\\nb\"c"), [Literal("\"a\\\nb\""), Code("c")]);
        assert!(split("").is_empty());
    }
}
