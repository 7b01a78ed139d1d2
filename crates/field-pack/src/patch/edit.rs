//! Edits of a text.

use std::cmp::Reverse;

/// Replaces the bytes from `start` to `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset of the byte after the last one.
    pub end: usize,
    /// The new text.
    pub text: String,
    /// Offset of the end of the expression that the edit is part of. Of two insertions at one place, the one for the
    /// longer expression comes first.
    pub extent: usize,
}

impl Edit {
    /// An edit.
    pub fn new(start: usize, end: usize, text: String) -> Edit {
        Edit { start, end, text, extent: end }
    }
}

/// Applies edits.
///
/// # Errors
/// The offset where two edits overlap.
pub fn apply(text: &str, edits: &[Edit]) -> Result<String, usize> {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.start, edit.end, Reverse(edit.extent)));
    let (mut result, mut at) = (String::with_capacity(text.len() + 1024), 0);
    for edit in sorted {
        if edit.start < at {
            return Err(edit.start);
        }
        result += &text[at..edit.start];
        result += &edit.text;
        at = edit.end;
    }
    Ok(result + &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_expression_begins_first() {
        let edit = |start, end, text: &str, extent| Edit { extent, ..Edit::new(start, end, text.to_owned()) };
        let inner = [edit(0, 0, "b(", 4), edit(1, 4, ")", 4)];
        let outer = [edit(0, 0, "c(", 7), edit(4, 7, ")", 7)];
        let edits: Vec<Edit> = inner.into_iter().chain(outer).collect();
        assert_eq!(apply("a->b->c", &edits).as_deref(), Ok("c(b(a))"));
        assert_eq!(apply("abc", &[Edit::new(0, 2, String::new()), Edit::new(1, 3, String::new())]), Err(1));
    }
}
