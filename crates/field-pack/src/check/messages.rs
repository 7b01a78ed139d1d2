//! The compiler's messages about members.

use std::collections::BTreeMap;

use crate::patch::Name;

/// A message of the compiler, with the lines that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `file:line`, as far as the compiler names one.
    pub place: String,
    /// The first line without the place.
    pub text: String,
    /// All lines.
    pub lines: String,
}

/// Returns the messages of a kind, `error` or `warning`, in the compiler's output.
pub fn messages(output: &str, kind: &str) -> Vec<Message> {
    let marks = [format!(" {kind}: "), format!(" fatal {kind}: ")];
    let mut found: Vec<Message> = Vec::new();
    let mut context = String::new();
    let mut is_open = false;
    // In some locales, the compiler has other quotation marks.
    let output = output.replace(['\u{2018}', '\u{2019}'], "'");
    for line in output.lines() {
        let mark = marks.iter().find_map(|mark| line.find(mark.as_str()).map(|at| (at, mark.len())));
        if let Some((at, length)) = mark {
            let place: Vec<&str> = line[..at].split(':').take(2).collect();
            found.push(Message {
                place: place.join(":"),
                text: line[at + length..].to_owned(),
                lines: std::mem::take(&mut context) + line + "\n",
            });
            is_open = true;
        } else if line.starts_with("In file included")
            || line.contains(": In function")
            || line.contains("inlined from")
        {
            // They come before the message that they belong to.
            context += line;
            context.push('\n');
            is_open = false;
        } else if line.starts_with("make") || line.starts_with("  CC ") || line.starts_with("  LD ") {
            is_open = false;
        } else if is_open && let Some(last) = found.last_mut() {
            last.lines += line;
            last.lines.push('\n');
        } else if !context.is_empty() {
            context += line;
            context.push('\n');
        }
    }
    found
}

/// Returns the members that errors are about, each with the first reason. `all` has names, and the member for each.
///
/// An error names a member if code still uses its old form (`'struct inode' has no member named 'i_op'`), or one of its
/// accessors.
pub fn members(errors: &[Message], all: &[(Name, Name)]) -> BTreeMap<Name, String> {
    let mut found = BTreeMap::new();
    for error in errors {
        for ((of, member), name) in all {
            let is_old = error.text.contains(&format!("no member named '{member}'"))
                && (error.text.contains(&format!("struct {of}'")) || !error.text.contains("struct "));
            let is_accessor = [format!("kf_{of}_{member}"), format!("kf_set_{of}_{member}")]
                .iter()
                .any(|accessor| has_word(&error.lines, accessor));
            if is_old || is_accessor {
                let reason = format!("it does not compile: {} ({})", error.text.trim(), error.place);
                found.entry(name.clone()).or_insert(reason);
            }
        }
    }
    found
}

/// Whether a text has a word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
  CC      fs/inode.o
fs/inode.c: In function 'f':
fs/inode.c:10:8: error: \u{2018}struct inode\u{2019} has no member named \u{2018}i_op\u{2019}; did you mean 'kf_i_op'?
   10 |  inode->i_op = 0;
      |         ^~~~
fs/inode.c:12:2: error: lvalue required as unary '&' operand
   12 |  &kf_inode_i_sb(inode);
      |  ^
make[3]: *** [fs/inode.o] Error 1
fs/a.c:1:1: warning: unused
";

    #[test]
    fn errors_name_members_or_accessors() {
        let errors = messages(OUTPUT, "error");
        let places: Vec<&str> = errors.iter().map(|error| error.place.as_str()).collect();
        assert_eq!(places, ["fs/inode.c:10", "fs/inode.c:12"]);
        let all = ["i_op", "i_sb", "i_s"].map(|name| ("inode".to_owned(), name.to_owned()));
        let names = all.clone().map(|name| (name.clone(), name));
        let found = members(&errors, &names);
        let names: Vec<&str> = found.keys().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["i_op", "i_sb"]);
        assert_eq!(
            found[&all[1]],
            "it does not compile: lvalue required as unary '&' operand (fs/inode.c:12)"
        );
        assert_eq!(messages(OUTPUT, "warning").len(), 1);
    }
}
