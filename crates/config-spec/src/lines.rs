//! The logical lines of a Makefile: continued lines joined, comments and recipes removed.

/// Returns the logical lines of a Makefile, without spaces at their ends. Empty lines and recipes are left out.
pub fn logical(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_rule = false;
    let mut physical = text.lines();
    while let Some(first) = physical.next() {
        let mut joined = first.to_owned();
        while let Some(start) = joined.strip_suffix('\\') {
            joined = format!("{} {}", start.trim_end(), physical.next().unwrap_or_default().trim_start());
        }
        // Kbuild files indent assignments with tabs, too. Only the lines that follow a rule are its recipe.
        if in_rule && joined.starts_with('\t') {
            continue;
        }
        let line = without_comment(&joined).trim();
        if line.is_empty() {
            continue;
        }
        in_rule = is_rule(line);
        lines.push(line.to_owned());
    }
    lines
}

/// Returns the line up to a `#` that no backslash precedes.
fn without_comment(line: &str) -> &str {
    let is_comment = |&(at, _): &(usize, &str)| !line[..at].ends_with('\\');
    line.match_indices('#').find(is_comment).map_or(line, |(at, _)| &line[..at])
}

/// Whether a line is a rule: it has a colon outside of references that no `=` follows, before any assignment.
fn is_rule(line: &str) -> bool {
    let mut depth = 0usize;
    let bytes = line.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 => return false,
            b':' if depth == 0 => {
                return !matches!(bytes.get(at + 1), Some(b'=')) && !line[at..].starts_with("::=");
            }
            _ => {}
        }
    }
    false
}

/// An assignment to a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<'a> {
    /// The name, with references.
    pub name: &'a str,
    /// The operator.
    pub operator: Operator,
    /// The value.
    pub value: &'a str,
}

/// The operator of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Recursive,
    /// `:=` and `::=`
    Simple,
    /// `+=`
    Append,
    /// `?=`
    IfUnset,
}

/// Parses an assignment; `None` if the line is none.
pub fn assignment(line: &str) -> Option<Assignment<'_>> {
    let line =
        ["export ", "override "].iter().fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
    let mut depth = 0usize;
    let equals = line.bytes().position(|byte| {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b'=' && depth == 0
    })?;
    let (left, value) = (&line[..equals], line[equals + 1..].trim());
    let (name, operator) = if let Some(name) = left.strip_suffix('+') {
        (name, Operator::Append)
    } else if let Some(name) = left.strip_suffix("::").or_else(|| left.strip_suffix(':')) {
        (name, Operator::Simple)
    } else if let Some(name) = left.strip_suffix('?') {
        (name, Operator::IfUnset)
    } else {
        (left, Operator::Recursive)
    };
    let name = name.trim();
    // `target: variable = value` is an assignment for one target.
    let is_name = !name.is_empty() && split_words(name).len() == 1 && !is_rule(name);
    is_name.then_some(Assignment { name, operator, value })
}

/// Splits a text at spaces outside of references.
pub fn split_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut depth, mut start) = (0usize, None);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character.is_whitespace() && depth == 0 {
            words.extend(start.take().map(|start: usize| &text[start..at]));
        } else {
            start.get_or_insert(at);
        }
    }
    words.extend(start.map(|start| &text[start..]));
    words
}

/// Splits the arguments of a function at commas outside of references.
pub fn split_arguments(text: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                arguments.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    arguments.push(&text[start..]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_and_comments_are_no_lines() {
        let text = "a.o: b \\\n  c # why\n\tobj-y += recipe.o\n\n\tobj-y += still.o\nx := 1\n\tobj-y += d.o\\\n\te.o\n# all\n";
        assert_eq!(logical(text), ["a.o: b c", "x := 1", "obj-y += d.o e.o"]);
        assert_eq!(logical("a \\# b # c\nlast \\"), ["a \\# b", "last"]);
    }

    #[test]
    fn rules_are_told_from_assignments() {
        assert!(is_rule("$(obj)/%.o: $(src)/%.c FORCE") && is_rule("a::"));
        assert!(!is_rule("a := b:c") && !is_rule("a ::= b") && !is_rule("x = $(y:.o=.c)"));
        assert!(!is_rule("obj-$(subst m,y,$(X:a=b)) += c.o"));
    }

    #[test]
    fn assignments_have_name_operator_and_value() {
        let parsed = |line| assignment(line).map(|found| (found.name, found.operator, found.value));
        assert_eq!(parsed("obj-$(A)+=b.o  c.o"), Some(("obj-$(A)", Operator::Append, "b.o  c.o")));
        assert_eq!(parsed("export X ::= a=b"), Some(("X", Operator::Simple, "a=b")));
        assert_eq!(parsed("X ?="), Some(("X", Operator::IfUnset, "")));
        assert_eq!(parsed("$(if $(x:a=b),c) = d"), Some(("$(if $(x:a=b),c)", Operator::Recursive, "d")));
        for line in ["$(obj)/a.o: CFLAGS += -g", "ifeq ($(A),y)", "a b = c", "= c", "include x"] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    #[test]
    fn words_and_arguments_keep_references_whole() {
        assert_eq!(split_words(" a.o $(sort $(b c) d)e  f "), ["a.o", "$(sort $(b c) d)e", "f"]);
        assert_eq!(split_arguments("a,$(f b,c),"), ["a", "$(f b,c)", ""]);
    }
}
