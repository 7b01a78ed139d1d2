//! The files of kernel builds that can use a member.
//!
//! A file is parsed if its text has the name of a member and the name of something that leads to the structure: the
//! structure itself, or a member, variable or function that headers declare with a pointer to it. A macro stands for the
//! names in its body. Headers are parsed with the files that include them; a file is also parsed for a header that no
//! other selected file includes.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kcli::Failure;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::command::ClangCommand;
use crate::patch::tokens::{Kind, Token, tokens};

/// A file of a build, with the command that compiles it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unit {
    /// The build directory, where the command runs.
    pub dir: PathBuf,
    /// The command.
    pub command: ClangCommand,
    /// The object, relative to the build directory.
    pub object: String,
    /// The headers that the compiler read, as the build recorded them.
    #[serde(skip)]
    pub headers: Vec<PathBuf>,
}

/// A structure and the members whose uses are wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// The structure.
    pub of: String,
    /// The members.
    pub members: Vec<String>,
}

impl Wanted {
    /// Whether it has the structure and all members of another.
    pub fn has(&self, other: &Wanted) -> bool {
        self.of == other.of && other.members.iter().all(|member| self.members.contains(member))
    }

    /// Adds the members of another one of the same structure.
    pub fn add(&mut self, other: Wanted) {
        for member in other.members {
            if !self.members.contains(&member) {
                self.members.push(member);
            }
        }
    }
}

/// Returns the C files that a build compiled, from the commands that it recorded.
///
/// # Errors
/// Bad input if there are none.
pub fn units(build: &Path) -> Result<Vec<Unit>, Failure> {
    let mut found = Vec::new();
    for record in kbuild::records(build) {
        let (object, record) = record?;
        if loads_the_kernel(&object) {
            continue;
        }
        let text = fs::read_to_string(record)?;
        let command = kbuild::recorded_command(&text).and_then(|words| ClangCommand::of(&words));
        let Some(command) = command else { continue };
        found.push(Unit { dir: build.to_owned(), command, object, headers: headers(&text) });
    }
    found.sort_by(|a: &Unit, b: &Unit| a.command.file.cmp(&b.command.file));
    if found.is_empty() {
        return Err(Failure::bad_input(format!(
            "{}: no file .NAME.o.cmd with a compiler's command; expected a directory where a kernel was built",
            build.display()
        )));
    }
    Ok(found)
}

/// Whether an object belongs to a program that loads the kernel (`arch/*/boot/`). These have none of its structures, and their
/// objects cannot be made one by one.
fn loads_the_kernel(object: &str) -> bool {
    object.starts_with("arch/") && object.split('/').any(|part| part == "boot")
}

/// Returns the headers in a record.
fn headers(record: &str) -> Vec<PathBuf> {
    let lines = record.lines().skip_while(|line| !line.starts_with("deps_")).skip(1);
    let names = lines.map(|line| line.trim().trim_end_matches('\\').trim());
    names
        .take_while(|name| !name.is_empty())
        .filter(|name| !name.starts_with('$'))
        .map(PathBuf::from)
        .collect()
}

/// Returns the units that have to be parsed to find all uses of members.
pub fn select(units: Vec<Unit>, wanted: &[Wanted]) -> Vec<Unit> {
    let mut texts = Texts::default();
    let headers: FxHashSet<PathBuf> =
        units.iter().flat_map(|unit| unit.headers.iter().map(|header| unit.dir.join(header))).collect();
    let wanted = leading(&headers, wanted);
    let mut can_use = |path: PathBuf| {
        let names = texts.names(path);
        let has = |set: &FxHashSet<String>| names.iter().any(|name| set.contains(&**name));
        wanted.iter().any(|(members, leading)| has(members) && has(leading))
    };
    let (mut selected, rest): (Vec<Unit>, Vec<Unit>) =
        units.into_iter().partition(|unit| can_use(unit.dir.join(&unit.command.file)));
    let mut covered: FxHashSet<PathBuf> = FxHashSet::default();
    for unit in &selected {
        covered.extend(unit.headers.iter().map(|header| unit.dir.join(header)));
    }
    for unit in rest {
        let headers: Vec<PathBuf> = unit.headers.iter().map(|header| unit.dir.join(header)).collect();
        if headers.iter().any(|header| !covered.contains(header) && can_use(header.clone())) {
            covered.extend(headers);
            selected.push(unit);
        }
    }
    selected
}

/// The names in files, each file read once.
#[derive(Default)]
struct Texts {
    names: FxHashMap<PathBuf, Rc<FxHashSet<Box<str>>>>,
}

impl Texts {
    /// Returns all names in a file.
    fn names(&mut self, path: PathBuf) -> Rc<FxHashSet<Box<str>>> {
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let names = tokens(&text).into_iter().filter(|token| token.kind == Kind::Name);
            Rc::new(names.map(|token| text[token.start..token.end].into()).collect())
        };
        self.names.entry(path).or_insert_with_key(read).clone()
    }
}

/// Returns for each structure the names that stand for its members, and the names that lead to it: names that headers
/// declare with its type. Macros with such names in their bodies are among both.
fn leading(headers: &FxHashSet<PathBuf>, wanted: &[Wanted]) -> Vec<(FxHashSet<String>, FxHashSet<String>)> {
    let mut sets: Vec<(FxHashSet<String>, FxHashSet<String>)> = wanted
        .iter()
        .map(|wanted| (wanted.members.iter().cloned().collect(), FxHashSet::from_iter([wanted.of.clone()])))
        .collect();
    let mut macros: Vec<(String, Vec<String>)> = Vec::new();
    for header in headers {
        let Ok(text) = fs::read_to_string(header) else { continue };
        let tokens = tokens(&text);
        let word = |at: usize| tokens.get(at).map_or("", |token: &Token| &text[token.start..token.end]);
        for (wanted, (_, leading)) in wanted.iter().zip(&mut sets) {
            declared(&tokens, &word, &wanted.of, leading);
        }
        collect_macros(&tokens, &word, &mut macros);
    }
    for found in sets.iter_mut().flat_map(|(members, leading)| [members, leading]) {
        loop {
            let before = found.len();
            for (name, body) in &macros {
                if body.iter().any(|word| found.contains(word)) {
                    found.insert(name.clone());
                }
            }
            if found.len() == before {
                break;
            }
        }
    }
    sets
}

/// Collects the names that are declared with the type `struct of`, except parameters.
fn declared<'t>(tokens: &[Token], word: &impl Fn(usize) -> &'t str, of: &str, found: &mut FxHashSet<String>) {
    let mut depth = 0_usize;
    for at in 0..tokens.len() {
        match word(at) {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "struct" if depth == 0 && word(at + 1) == of => {
                let mut next = at + 2;
                while matches!(word(next), "*" | "const" | "__rcu" | "inline" | "__must_check" | ",")
                    || tokens.get(next).is_some_and(|token| token.kind == Kind::Name)
                {
                    if tokens[next].kind == Kind::Name {
                        found.insert(word(next).to_owned());
                    }
                    next += 1;
                }
            }
            _ => {}
        }
    }
}

/// Collects macros, each with the names in its body.
fn collect_macros<'t>(
    tokens: &[Token],
    word: &impl Fn(usize) -> &'t str,
    macros: &mut Vec<(String, Vec<String>)>,
) {
    let mut at = 0;
    while at < tokens.len() {
        let directive = tokens[at].directive;
        let end =
            (at..tokens.len()).find(|&next| tokens[next].directive != directive).unwrap_or(tokens.len());
        if directive != 0 && word(at + 1) == "define" {
            let body = (at + 3..end).filter(|&next| tokens[next].kind == Kind::Name);
            macros.push((word(at + 2).to_owned(), body.map(|next| word(next).to_owned()).collect()));
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_lead_to_a_structure() {
        let text = "struct a *f(struct a *parameter); struct b { struct a *m, **n; struct a own; };
#define M(x) ((x)->m)
#define N(x) M(x)
static inline const struct a *g(int x) { return 0; }";
        let dir = tempfile::tempdir().unwrap();
        let header = dir.path().join("a.h");
        fs::write(&header, text).unwrap();
        let wanted = Wanted { of: "a".into(), members: vec!["x".into()] };
        let (members, leading) = leading(&FxHashSet::from_iter([header]), &[wanted]).remove(0);
        let sorted = |names: FxHashSet<String>| {
            let mut names: Vec<String> = names.into_iter().collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(sorted(leading), "M N a f g m n own");
        assert_eq!(sorted(members), "M N x");
    }

    #[test]
    fn programs_that_load_the_kernel_are_left_out() {
        let loads = ["arch/arm/boot/compressed/fdt.o", "arch/x86/boot/cmdline.o"];
        let others = ["arch/arm/kernel/boot.o", "fs/inode.o", "drivers/boot/a.o"];
        assert!(loads.into_iter().all(loads_the_kernel) && !others.into_iter().any(loads_the_kernel));
    }

    #[test]
    fn headers_of_a_record() {
        let record = "savedcmd_a.o := gcc -c -o a.o a.c\n\nsource_a.o := a.c\n\ndeps_a.o := \\\n  a.h \\\n    \
                      $(wildcard include/config/B) \\\n  b.h \\\n\na.o: $(deps_a.o)\n";
        assert_eq!(headers(record), [PathBuf::from("a.h"), PathBuf::from("b.h")]);
    }
}
