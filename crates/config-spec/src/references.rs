//! The references in the text of a Makefile: `$(…)`, and their parts.

/// A part of a text before expansion.
pub enum RawPiece<'a> {
    /// These characters.
    Literal(String),
    /// The inside of `$(…)`.
    Reference(&'a str),
}

/// Splits a text into characters and references.
pub fn pieces(text: &str) -> Vec<RawPiece<'_>> {
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
pub fn closing(text: &str) -> Option<usize> {
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
pub fn function_call(inside: &str) -> Option<(&str, &str)> {
    let end = inside.find(|c: char| !c.is_ascii_lowercase() && c != '-')?;
    let rest = &inside[end..];
    rest.starts_with(char::is_whitespace).then(|| (&inside[..end], rest.trim_start()))
}

/// Replaces the part of a word that `%` stands for, as `patsubst` does.
pub fn substitute(from: &str, to: &str, word: &str) -> String {
    let Some((prefix, suffix)) = from.split_once('%') else {
        return if word == from { to.to_owned() } else { word.to_owned() };
    };
    let stem = word.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    stem.map_or(word.to_owned(), |stem| to.replacen('%', stem, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let show = |piece: RawPiece<'_>| match piece {
            RawPiece::Literal(text) => text,
            RawPiece::Reference(inside) => format!("<{inside}>"),
        };
        pieces(text).into_iter().map(show).collect()
    }

    #[test]
    fn references_are_found_with_their_brackets() {
        assert_eq!(shown("a$(b $(c))d${e}$@f$$g"), ["a", "<b $(c)>", "d", "<e>", "<@>", "f$g"]);
        assert_eq!(shown("$"), Vec::<String>::new());
        assert_eq!(shown("$(a"), ["<a>"]);
        assert_eq!(shown("$ä"), ["<ä>"]);
    }

    #[test]
    fn functions_have_a_space_after_their_names() {
        assert_eq!(function_call("filter-out a, b"), Some(("filter-out", "a, b")));
        assert_eq!((function_call("core-y"), function_call("X y")), (None, None));
    }

    #[test]
    fn percent_stands_for_a_stem() {
        assert_eq!(substitute("%.c", "x_%.o", "a.c"), "x_a.o");
        assert_eq!((substitute("%.c", "%.o", "a.S"), substitute("a", "b", "a")), ("a.S".into(), "b".into()));
    }
}
