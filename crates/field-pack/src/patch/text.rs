//! The files of the kernel's source, as text and tokens.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::tokens::{Kind, Token, tokens};

/// A C file of the kernel.
#[derive(Debug)]
pub struct SourceFile {
    /// The path in the source tree.
    pub name: String,
    /// The content.
    pub text: String,
    /// The tokens of the content.
    pub tokens: Vec<Token>,
}

impl SourceFile {
    /// Splits the content of a file.
    pub fn new(name: &str, text: String) -> SourceFile {
        SourceFile { name: name.to_owned(), tokens: tokens(&text), text }
    }

    /// Returns the text of a token.
    pub fn word(&self, token: usize) -> &str {
        self.tokens.get(token).map_or("", |token| &self.text[token.start..token.end])
    }

    /// Returns the number of the token that begins at an offset.
    pub fn token_at(&self, offset: usize) -> Option<usize> {
        self.tokens.binary_search_by_key(&offset, |token| token.start).ok()
    }

    /// Returns the place of an offset, `file:line`.
    pub fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.name, self.line(offset))
    }

    /// Returns the number of the line with an offset.
    pub fn line(&self, offset: usize) -> usize {
        1 + memchr::memchr_iter(b'\n', &self.text.as_bytes()[..offset.min(self.text.len())]).count()
    }

    /// Returns the closing bracket that matches an opening one.
    pub fn closing(&self, open: usize) -> Option<usize> {
        self.matching(open..self.tokens.len(), ["(", "[", "{"], [")", "]", "}"])
    }

    /// Returns the opening bracket that matches a closing one.
    pub fn opening(&self, close: usize) -> Option<usize> {
        self.matching((0..=close).rev(), [")", "]", "}"], ["(", "[", "{"])
    }

    /// Returns the first token that ends as many brackets as began before it.
    fn matching(
        &self,
        tokens: impl IntoIterator<Item = usize>,
        starts: [&str; 3],
        ends: [&str; 3],
    ) -> Option<usize> {
        let mut depth = 0;
        tokens.into_iter().find(|&number| {
            let word = self.word(number);
            depth += i32::from(starts.contains(&word)) - i32::from(ends.contains(&word));
            ends.contains(&word) && depth == 0
        })
    }

    /// Returns the first token of the expression before `->` or `.`: names, calls, indices and members.
    pub fn start_of_base(&self, arrow: usize) -> Option<usize> {
        let floor = self.start_of_macro(arrow);
        let mut at = arrow.checked_sub(1).filter(|&at| at >= floor)?;
        loop {
            // The end of an operand. An expression in brackets may be the arguments of a call.
            while matches!(self.word(at), ")" | "]") {
                at = self.opening(at).filter(|&at| at >= floor)?;
                match at.checked_sub(1).filter(|&before| before >= floor && self.ends_operand(before)) {
                    Some(before) => at = before,
                    None => return Some(at),
                }
            }
            if self.tokens[at].kind != Kind::Name {
                return None;
            }
            match at.checked_sub(1).filter(|&before| before >= floor).map(|before| self.word(before)) {
                Some("->" | ".") => at = at.checked_sub(2)?,
                _ => return Some(at),
            }
        }
    }

    /// Whether an operand ends with a token, so that a bracket after it belongs to a call or an index.
    fn ends_operand(&self, token: usize) -> bool {
        match self.word(token) {
            "]" => true,
            // Neither the condition of a statement nor a cast.
            ")" => self.opening(token).is_some_and(|open| {
                (open == 0 || !is_keyword(self.word(open - 1))) && !self.is_type(open + 1, token)
            }),
            word => self.tokens[token].kind == Kind::Name && !is_keyword(word),
        }
    }

    /// Whether tokens name a type, as far as its form shows that.
    fn is_type(&self, first: usize, end: usize) -> bool {
        let is_word = matches!(
            self.word(first),
            "struct"
                | "union"
                | "enum"
                | "const"
                | "volatile"
                | "unsigned"
                | "signed"
                | "char"
                | "short"
                | "int"
                | "long"
                | "void"
                | "bool"
                | "u8"
                | "u16"
                | "u32"
                | "u64"
                | "s8"
                | "s16"
                | "s32"
                | "s64"
        );
        is_word
            || end > first && self.word(end - 1) == "*"
            || end == first + 1 && self.word(first).ends_with("_t")
    }

    /// Returns the first token that an expression may begin with: in a macro, the one after its parameters.
    fn start_of_macro(&self, token: usize) -> usize {
        let directive = self.tokens[token].directive;
        if directive == 0 {
            return 0;
        }
        let first = (0..=token).rev().take_while(|&at| self.tokens[at].directive == directive).last();
        let first = first.unwrap_or(token);
        let has_parameters = self.word(first + 1) == "define"
            && self.word(first + 3) == "("
            && self.tokens[first + 2].end == self.tokens[first + 3].start;
        match has_parameters.then(|| self.closing(first + 3)).flatten() {
            Some(close) => close + 1,
            None => first + 3,
        }
    }
}

/// Whether a name before a bracket is no function.
fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "while" | "for" | "switch" | "return" | "sizeof" | "typeof" | "case" | "else" | "do"
    )
}

/// The files of a source tree that were read.
pub struct Tree {
    /// The tree.
    pub root: PathBuf,
    files: RefCell<FxHashMap<String, Option<Rc<SourceFile>>>>,
}

impl Tree {
    /// A tree of which nothing is read yet.
    pub fn new(root: &Path) -> Tree {
        Tree { root: root.to_owned(), files: RefCell::default() }
    }

    /// Returns a file; `None` if it is not there or no text.
    pub fn file(&self, name: &str) -> Option<Rc<SourceFile>> {
        let mut files = self.files.borrow_mut();
        let read = || fs::read_to_string(self.root.join(name)).ok();
        files
            .entry(name.to_owned())
            .or_insert_with(|| read().map(|text| Rc::new(SourceFile::new(name, text))))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Option<String> {
        let file = SourceFile::new("a.c", text.to_owned());
        let member = (0..file.tokens.len()).find(|&number| file.word(number) == "m").unwrap();
        let start = file.start_of_base(member - 1)?;
        Some(text[file.tokens[start].start..file.tokens[member - 1].start].to_owned())
    }

    #[test]
    fn base_is_the_whole_operand() {
        for (text, expected) in [
            ("x = &a->m;", "a"),
            ("x = *b(c, d)->e.m;", "b(c, d)->e"),
            ("if (y) (a)->m = 1;", "(a)"),
            ("return (a[1])->m;", "(a[1])"),
            ("f(a, b[i].c->m)", "b[i].c"),
            ("#define F(i) ((i)->m)", "(i)"),
            ("#define F(i) (i)->m", "(i)"),
            ("#define F(i) ((struct a *)(i)->m)", "(i)"),
        ] {
            assert_eq!(base(text).as_deref(), Some(expected), "{text}");
        }
    }
}
