//! The macros that use members.
//!
//! libclang names the place where a macro was expanded, not the place in its body. The body is found by the macro's
//! name: in every definition of the macro, and of the macros that it uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::text::{SourceFile, Tree};
use super::tokens::Kind;
use crate::scan::Use;

/// The definitions of macros in headers, and in the files that use members.
pub struct Macros<'t> {
    tree: &'t Tree,
    /// The files that define each macro.
    files: FxHashMap<String, Vec<String>>,
}

impl<'t> Macros<'t> {
    /// Finds the macros of the headers in `include`, and of all files in the directories of uses.
    pub fn new(tree: &'t Tree, uses: &[Use]) -> Macros<'t> {
        let mut macros = Macros { tree, files: FxHashMap::default() };
        let mut directories: FxHashSet<PathBuf> = FxHashSet::default();
        for found in uses {
            directories.extend(Path::new(&found.file).parent().map(Path::to_owned));
        }
        let is_header = |name: &str| name.ends_with(".h");
        macros.index(Path::new("include"), true, &is_header);
        for directory in directories.iter().filter(|directory| !directory.starts_with("include")) {
            macros.index(directory, false, &|name| name.ends_with(".h") || name.ends_with(".c"));
        }
        macros
    }

    /// Adds the definitions in a directory.
    fn index(&mut self, directory: &Path, is_deep: bool, is_wanted: &dyn Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(self.tree.root.join(directory)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let path = directory.join(&name);
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match (is_dir, name.to_str(), path.to_str()) {
                (true, ..) if is_deep => self.index(&path, true, is_wanted),
                (false, Some(name), Some(path)) if is_wanted(name) => self.index_file(path),
                _ => {}
            }
        }
    }

    fn index_file(&mut self, path: &str) {
        let Ok(text) = fs::read_to_string(self.tree.root.join(path)) else { return };
        for line in text.lines() {
            let Some(rest) = line.strip_prefix('#').map(str::trim_start) else { continue };
            let Some(rest) = rest.strip_prefix("define").map(str::trim_start) else { continue };
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let files = self.files.entry(rest[..end.unwrap_or(rest.len())].to_owned()).or_default();
            if files.last().is_none_or(|last| last != path) {
                files.push(path.to_owned());
            }
        }
    }

    /// Replaces uses whose place is not known by uses in the bodies of macros.
    pub fn resolve(&self, uses: &[Use]) -> Vec<Use> {
        let mut resolved = Vec::new();
        for found in uses {
            if !found.is_hidden {
                resolved.push(found.clone());
                continue;
            }
            let is_ambiguous = uses.iter().any(|other| {
                other.is_hidden
                    && other.member == found.member
                    && other.of != found.of
                    && (&other.file, other.offset) == (&found.file, found.offset)
            });
            let places = if is_ambiguous { Vec::new() } else { self.places(found) };
            if places.is_empty() {
                resolved.push(found.clone());
            }
            for (file, offset) in places {
                resolved.push(Use {
                    file,
                    offset,
                    start: offset,
                    in_macro: true,
                    is_hidden: false,
                    ..found.clone()
                });
            }
        }
        resolved.sort_by(|a, b| {
            (&a.file, a.offset, &a.of, &a.member, a.form).cmp(&(&b.file, b.offset, &b.of, &b.member, b.form))
        });
        resolved.dedup();
        resolved
    }

    /// Returns the places of a member's name in the macro that is expanded at a use.
    fn places(&self, found: &Use) -> Vec<(String, usize)> {
        let Some(file) = self.tree.file(&found.file) else { return Vec::new() };
        let Some(token) = file.token_at(found.offset) else { return Vec::new() };
        let (mut places, mut seen) = (Vec::new(), FxHashSet::default());
        let mut pending = vec![file.word(token).to_owned()];
        while let Some(name) = pending.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            for path in self.files.get(&name).into_iter().flatten() {
                if let Some(file) = self.tree.file(path) {
                    self.body(&file, &name, &found.member, &mut places, &mut pending);
                }
            }
        }
        places
    }

    /// Collects the places of a member in all definitions of a macro in a file, and the macros in the bodies.
    fn body(
        &self,
        file: &Rc<SourceFile>,
        name: &str,
        member: &str,
        places: &mut Vec<(String, usize)>,
        pending: &mut Vec<String>,
    ) {
        let starts = (0..file.tokens.len()).filter(|&at| {
            file.tokens[at].directive != 0
                && file.word(at) == name
                && at >= 2
                && file.word(at - 1) == "define"
                && file.word(at - 2) == "#"
        });
        for start in starts {
            let directive = file.tokens[start].directive;
            let body =
                (start + 1..file.tokens.len()).take_while(|&at| file.tokens[at].directive == directive);
            for at in body.filter(|&at| file.tokens[at].kind == Kind::Name) {
                let word = file.word(at);
                let is_member = matches!(file.word(at - 1), "->" | ".");
                if is_member && word == member {
                    places.push((file.name.clone(), file.tokens[at].start));
                } else if !is_member && self.files.contains_key(word) {
                    pending.push(word.to_owned());
                }
            }
        }
    }
}
