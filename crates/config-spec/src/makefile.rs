//! Reads Kbuild files and Makefiles: the words of their variables, each with the condition under which it is there.
//!
//! The reader follows the rules of make for assignments and conditionals, and for the functions that Kbuild files use
//! in lists. Rules, recipes, `define` and other functions have no effect on the lists of objects and are left out. A
//! comparison with something that only make knows is an unknown condition.

use std::fs;
use std::path::Path;

use crate::condition::{Condition, Piece, Text};
use crate::config::Config;
use crate::lines::{self, Assignment, Operator, assignment, split_arguments, split_words};
use crate::references::closing;
use crate::variables::{Variables, Word};

/// Maximum depth of includes.
const MAX_DEPTH: usize = 16;

/// Maximum number of options in the name of a variable.
const MAX_OPTIONS: usize = 2;

/// A branch of a conditional.
struct Branch {
    /// The condition of this branch, without those around it.
    condition: Condition,
    /// The condition that no earlier branch was taken.
    otherwise: Condition,
}

/// Reads a file, and the files that it includes, into `variables`. Paths of includes are relative to `tree`. A file
/// that cannot be read sets nothing.
pub fn read(path: &Path, tree: &Path, config: &Config, variables: &mut Variables) {
    Reader { tree, config, variables, branches: Vec::new() }.file(path, 0);
}

struct Reader<'a> {
    tree: &'a Path,
    config: &'a Config,
    variables: &'a mut Variables,
    branches: Vec<Branch>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, depth: usize) {
        let Ok(bytes) = fs::read(path) else { return };
        let outer = self.branches.len();
        let mut in_define = false;
        for line in lines::logical(&String::from_utf8_lossy(&bytes)) {
            let word = line.split_whitespace().next().unwrap_or_default();
            if in_define || word == "define" {
                in_define = word != "endef";
                continue;
            }
            let rest = line[word.len()..].trim();
            match word {
                "ifdef" | "ifndef" | "ifeq" | "ifneq" => {
                    let condition = self.condition(word, rest);
                    let otherwise = condition.clone().negated();
                    self.branches.push(Branch { condition, otherwise });
                }
                "else" if self.branches.len() > outer => self.otherwise(rest),
                "endif" if self.branches.len() > outer => drop(self.branches.pop()),
                "include" | "-include" | "sinclude" if depth < MAX_DEPTH => self.include(rest, depth),
                "export" if !rest.contains('=') => {
                    rest.split_whitespace().for_each(|name| self.variables.export(name));
                }
                _ => {
                    if let Some(assignment) = assignment(&line) {
                        if word == "export" {
                            self.variables.export(assignment.name);
                        }
                        self.assign(&assignment);
                    }
                }
            }
        }
        self.branches.truncate(outer);
    }

    fn include(&mut self, files: &str, depth: usize) {
        if self.here().holds(self.config) == Some(false) {
            return;
        }
        for file in self.variables.expand(files, self.config) {
            self.file(&self.tree.join(&file.text), depth + 1);
        }
    }

    /// The condition of the current line.
    fn here(&self) -> Condition {
        Condition::all(self.branches.iter().map(|branch| branch.condition.clone()))
    }

    /// Begins the next branch of the innermost conditional.
    fn otherwise(&mut self, rest: &str) {
        let word = rest.split_whitespace().next().unwrap_or_default();
        let next = match word {
            "" => Condition::Always,
            _ => self.condition(word, rest[word.len()..].trim()),
        };
        if let Some(branch) = self.branches.last_mut() {
            branch.condition = branch.otherwise.clone().and(next.clone());
            branch.otherwise = branch.otherwise.clone().and(next.negated());
        }
    }

    /// Returns the condition of a directive.
    fn condition(&self, directive: &str, rest: &str) -> Condition {
        let text = |text: &str| self.variables.text(text.trim(), self.config);
        let equal = match directive {
            "ifdef" | "ifndef" => {
                let name = format!("$({rest})");
                Condition::Equal(text(&name), Text::default()).negated()
            }
            _ => {
                let Some((a, b)) = compared(rest) else {
                    return Condition::Equal(Text(vec![Piece::Unknown(rest.to_owned())]), Text::default());
                };
                let (a, b) = (text(a), text(b));
                match (a.as_literal(), b.as_literal()) {
                    (_, Some(literal)) => a.equals(literal.trim()),
                    (Some(literal), None) => b.equals(literal.trim()),
                    (None, None) => Condition::Equal(a, b),
                }
            }
        };
        if directive.starts_with("ifn") { equal.negated() } else { equal }
    }

    fn assign(&mut self, assignment: &Assignment<'_>) {
        let Assignment { name, operator, value } = *assignment;
        let here = self.here();
        for (name, named) in self.names(name) {
            let condition = here.clone().and(named);
            let words: Vec<Word> = match operator {
                Operator::Simple => self.variables.expand(value, self.config),
                _ => split_words(value)
                    .into_iter()
                    .map(|word| Word { text: word.to_owned(), condition: Condition::Always })
                    .collect(),
            };
            let old = self.variables.words_mut(name);
            match operator {
                Operator::IfUnset if !old.is_empty() => continue,
                Operator::Append | Operator::IfUnset => {}
                Operator::Simple | Operator::Recursive => {
                    let kept = condition.clone().negated();
                    old.iter_mut().for_each(|word| word.condition = word.condition.clone().and(kept.clone()));
                    old.retain(|word| word.condition != Condition::never());
                }
            }
            old.extend(
                words
                    .into_iter()
                    .map(|word| Word { condition: condition.clone().and(word.condition), text: word.text }),
            );
        }
    }

    /// Returns the names that the name of a variable may expand to, each with its condition.
    fn names(&self, name: &str) -> Vec<(String, Condition)> {
        if !name.contains('$') {
            return vec![(name.to_owned(), Condition::Always)];
        }
        let text = self.variables.text(name, self.config);
        let mut options = Vec::new();
        text.options(&mut options);
        if options.len() > MAX_OPTIONS {
            return Vec::new();
        }
        let mut names: Vec<(String, Condition)> = Vec::new();
        let values = ["y", "m", ""];
        for choice in 0..values.len().pow(options.len() as u32) {
            let mut config = Config::default();
            let mut rest = choice;
            for option in &options {
                config.set(option, values[rest % values.len()]);
                rest /= values.len();
            }
            if let Some(value) = text.value(&config)
                && names.iter().all(|(name, _)| *name != value)
            {
                let condition = text.equals(&value);
                names.push((value, condition));
            }
        }
        names
    }
}

/// Returns the two sides of `ifeq (a,b)` or `ifeq "a" 'b'`.
fn compared(rest: &str) -> Option<(&str, &str)> {
    if rest.starts_with('(') {
        let inside = &rest[1..closing(rest)?];
        let first = split_arguments(inside)[0];
        return Some((first, inside.get(first.len() + 1..)?));
    }
    let quoted = |text: &str| -> Option<(usize, usize)> {
        let quote = text.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
        Some((1, 1 + text[1..].find(quote)?))
    };
    let (start, end) = quoted(rest)?;
    let second = rest[end + 1..].trim_start();
    let (second_start, second_end) = quoted(second)?;
    Some((&rest[start..end], &second[second_start..second_end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::tests::is_set;

    /// Returns the words of a variable with their conditions, as text.
    fn words(makefile: &str, name: &str, config: &str) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Makefile");
        fs::write(&path, makefile).unwrap();
        let config = Config::parse(config);
        let mut variables = Variables::default();
        variables.set("src", directory.path().to_str().unwrap());
        read(&path, directory.path(), &config, &mut variables);
        let words = variables.words(name, &config);
        let known = words.iter().filter(|word| !word.is_unknown());
        known.map(|word| format!("{}: {}", word.text, word.condition)).collect()
    }

    #[test]
    fn assignment_replaces_under_its_condition() {
        let text = "mmu-y := nommu.o\nmmu-$(CONFIG_MMU) := memory.o mmap.o\nobj-y += $(mmu-y)\nobj-y += a.o";
        let expected = ["nommu.o: MMU!=y", "memory.o: MMU=y", "mmap.o: MMU=y", "a.o: always"];
        assert_eq!(words(text, "obj-y", ""), expected);
        assert_eq!(words("obj-y := a.o\nobj-y = b.o\nobj-y ?= c.o", "obj-y", ""), ["b.o: always"]);
    }

    #[test]
    fn branches_exclude_one_another() {
        let text = "ifdef CONFIG_A\nobj-y += a.o\nelse ifeq ($(CONFIG_B)$(CONFIG_C),yy)\n\tobj-y += b.o\n\
                    else\nobj-y += c.o\nendif\nobj-y += d.o";
        let expected = ["a.o: A", "b.o: !A && BC=yy", "c.o: !A && BC!=yy", "d.o: always"];
        assert_eq!(words(text, "obj-y", ""), expected);
        let text =
            "ifneq ($(CONFIG_A),)\nifndef CONFIG_B\nobj-y += a.o\nendif\nendif\nendif\nelse\nobj-y += b.o";
        assert_eq!(words(text, "obj-y", ""), ["a.o: A && !B", "b.o: always"]);
        assert_eq!(words("ifeq \"$(CONFIG_A)\" 'm'\nobj-y += a.o\nendif", "obj-y", ""), ["a.o: A=m"]);
    }

    #[test]
    fn names_depend_on_options() {
        let text = "obj-$(subst m,y,$(CONFIG_A)) += a/\nobj-$(CONFIG_A)$(CONFIG_B) += b.o\n\
                    $(CONFIG_C)-y += c.o\nobj-$(or $(CONFIG_D),$(CONFIG_E)) += d.o";
        let expected = ["a/: $(subst m,y,A)=y", "b.o: AB=y", "d.o: $(or D,E)=y"];
        assert_eq!(words(text, "obj-y", ""), expected);
    }

    #[test]
    fn unknown_comparisons_are_kept() {
        let text = "ifeq ($(KBUILD_EXTMOD),)\nobj-y += a.o\nendif\nifneq ($(shell uname),Linux)\nobj-y += b.o\nendif\n\
                    ifeq ($(A,y)\nobj-y += c.o\nendif";
        let expected = ["a.o: !$(KBUILD_EXTMOD)", "b.o: $(shell uname)!=Linux", "c.o: !$(($(A,y))"];
        assert_eq!(words(text, "obj-y", ""), expected);
    }

    #[test]
    fn lists_are_computed() {
        let text = "ifeq ($(CONFIG_64BIT),y)\nBITS := 64\nelse\nBITS := 32\nendif\n\
                    all := a.c b.c\nobj-y := head_$(BITS).o $(all:.c=.o) $(patsubst %.c,x_%.o,$(all))\n\
                    obj-y += $(addprefix d/,$(filter-out b.c,$(all))) $(if $(CONFIG_A),e.o,f.o) $(wildcard *.c)\n\
                    ifeq ($(BITS),32)\nobj-y += g.o\nendif\nloop = $(loop) h.o\nobj-y += $(loop)";
        let found = words(text, "obj-y", "CONFIG_X=y");
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let expected = [
            "head_64.o: 64BIT=y",
            "head_32.o: 64BIT!=y",
            "a.o: always",
            "b.o: always",
            "x_a.o: always",
            "x_b.o: always",
            "d/a.c: always",
            "e.o: A",
            "f.o: !A",
            "g.o: always",
        ];
        assert_eq!(found[..expected.len()], expected);
        assert!(found[expected.len()..].iter().all(|word| *word == "h.o: always"), "{found:?}");
    }

    #[test]
    fn unset_variable_is_empty() {
        let text =
            "ifndef CONFIG_MMU\nMMUEXT := -nommu\nendif\nobj-y := head$(MMUEXT).o $(UNSET) a$(UNSET).o";
        let expected = ["head-nommu.o: !MMU", "head.o: MMU", "a.o: always"];
        assert_eq!(words(text, "obj-y", ""), expected);
        assert!(words("obj-y := $(shell ls)a.o $(wildcard *)", "obj-y", "").is_empty());
    }

    #[test]
    fn includes_are_read_in_place() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("inner"), "obj-y += a.o\nifdef CONFIG_OPEN\n").unwrap();
        let outer = directory.path().join("Makefile");
        let text = "ifdef CONFIG_A\ninclude $(src)/inner\nobj-y += b.o\nendif\ninclude $(src)/Makefile absent\nobj-y += c.o";
        fs::write(&outer, text).unwrap();
        let config = Config::parse("CONFIG_A=y");
        let mut variables = Variables::default();
        variables.set("src", directory.path().to_str().unwrap());
        read(&outer, directory.path(), &config, &mut variables);
        let words = variables.words("obj-y", &config);
        assert!(words.iter().any(|word| word.text == "b.o" && word.condition == is_set("A")));
        assert_eq!(words[0].condition, is_set("A"));
    }

    #[test]
    fn damaged_files_set_nothing() {
        for text in [
            "",
            "endif\nelse\nendef",
            "define x\nobj-y += a.o",
            "$",
            "obj-$( += a.o",
            "ifeq\nifdef\n$(",
            "$(a)$",
        ] {
            assert!(words(text, "obj-y", "").is_empty(), "{text}");
        }
    }
}
