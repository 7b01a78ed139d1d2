//! The conditions under which Kbuild links each object of a kernel.
//!
//! Kbuild reads the file `Kbuild` of the source tree, and then `Kbuild` or `Makefile` of each directory that a list
//! names. `obj-y` and `lib-y` list objects and directories; an object with a list `NAME-y` or `NAME-objs` is a
//! composite of the objects there (Documentation/kbuild/makefiles.rst, scripts/Makefile.lib). The variables `core-y`,
//! `libs-y` and `drivers-y` of the machine's Makefile add further directories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::condition::{Condition, Piece, Text};
use crate::config::Config;
use crate::makefile;
use crate::variables::{Variables, Word};

/// A place where Kbuild lists an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The condition of the place, with the conditions of the directories that lead to it.
    pub condition: Condition,
    /// The object or composite that the list names, without `.o`: the module, if it were one.
    pub module: String,
}

/// The gates of the objects of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    gates: BTreeMap<String, Vec<Gate>>,
    /// The objects without a gate that holds in the present configuration, by name. Nothing is known about them.
    pub unplaced: Vec<String>,
}

impl Gates {
    /// Reads the gates of `objects` (paths relative to the build directory) for the configuration that they were built
    /// with. `source` is the source tree, and `arch` is the directory of the machine below `arch/`.
    pub fn read(source: &Path, arch: &str, config: &Config, objects: &BTreeSet<String>) -> Gates {
        let mut walk = Walk::new(source, arch, config, objects);
        walk.run();
        let mut gates = Gates { gates: walk.gates(), unplaced: Vec::new() };
        for object in objects {
            let conditions = gates.of(object).iter().map(|gate| gate.condition.clone());
            if Condition::any(conditions).holds(config) == Some(false) {
                gates.gates.remove(object);
                gates.unplaced.push(object.clone());
            }
        }
        gates
    }

    /// Returns the gates of an object; none if it is unplaced.
    pub fn of(&self, object: &str) -> &[Gate] {
        self.gates.get(object).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of objects that have gates.
    pub fn placed(&self) -> usize {
        self.gates.len()
    }

    /// Returns the objects that a configuration certainly does not link, by name.
    pub fn removed_by(&self, config: &Config) -> Vec<&str> {
        let is_off = |gate: &Gate| gate.condition.holds(config) == Some(false);
        let removed = self.gates.iter().filter(|(_, gates)| gates.iter().all(is_off));
        removed.map(|(object, _)| object.as_str()).collect()
    }
}

/// A directory that Kbuild reads.
#[derive(Default)]
struct Directory {
    /// The directories that list it, each with the condition there. The root lists itself under no condition.
    parents: Vec<(String, Condition)>,
    /// Its listed objects, by path.
    objects: Vec<(String, Gate)>,
    /// Whether a list has words that cannot be expanded, which may name any object of the directory.
    is_unknown: bool,
}

struct Walk<'a> {
    source: &'a Path,
    config: &'a Config,
    objects: &'a BTreeSet<String>,
    /// The directories that hold an object, and those above them.
    wanted: FxHashSet<String>,
    /// The variables of the machine's Makefile that every Makefile sees.
    exported: Variables,
    /// The lists of further directories, by the variable that names them in `Kbuild`.
    lists: Vec<(&'static str, Vec<Word>)>,
    directories: FxHashMap<String, Directory>,
}

impl<'a> Walk<'a> {
    fn new(source: &'a Path, arch: &str, config: &'a Config, objects: &'a BTreeSet<String>) -> Walk<'a> {
        let mut wanted = FxHashSet::default();
        for object in objects {
            let mut directory = object.as_str();
            while let Some((above, _)) = directory.rsplit_once('/') {
                wanted.insert(above.to_owned());
                directory = above;
            }
        }
        let mut machine = Variables::default();
        set_places(&mut machine, source, arch, "");
        makefile::read(&source.join(format!("arch/{arch}/Makefile")), source, config, &mut machine);
        let list = |name: &str| machine.words(name, config);
        // The top Makefile begins this list.
        let mut libraries = vec![Word { text: "lib/".into(), condition: Condition::Always }];
        libraries.extend(list("libs-y"));
        let lists =
            vec![("ARCH_CORE", list("core-y")), ("ARCH_LIB", libraries), ("ARCH_DRIVERS", list("drivers-y"))];
        let mut exported = machine.into_exported();
        set_places(&mut exported, source, arch, "");
        Walk { source, config, objects, wanted, exported, lists, directories: FxHashMap::default() }
    }

    fn run(&mut self) {
        let mut work = vec![String::new()];
        self.directories.entry(String::new()).or_default();
        while let Some(path) = work.pop() {
            for (child, condition) in self.read(&path) {
                if !self.wanted.contains(&child) {
                    continue;
                }
                let is_new = !self.directories.contains_key(&child);
                let directory = self.directories.entry(child.clone()).or_default();
                directory.parents.push((path.clone(), condition));
                if is_new {
                    work.push(child);
                }
            }
        }
    }

    /// Reads the objects of a directory. Returns the directories that it lists.
    fn read(&mut self, path: &str) -> Vec<(String, Condition)> {
        let mut variables = self.exported.clone();
        variables.set("src", &self.source.join(path).display().to_string());
        variables.set("obj", if path.is_empty() { "." } else { path });
        for (name, words) in self.lists.iter().filter(|_| path.is_empty()) {
            variables.set_words(name, words.clone());
        }
        let directory = self.source.join(path);
        let file =
            ["Kbuild", "Makefile"].map(|name| directory.join(name)).into_iter().find(|file| file.is_file());
        let Some(file) = file else { return Vec::new() };
        makefile::read(&file, self.source, self.config, &mut variables);
        let list = |name: &str| variables.words(name, self.config);
        let (mut children, mut objects) = (Vec::new(), Vec::new());
        let mut is_unknown = false;
        for word in ["obj-y", "lib-y", "lib-m"].into_iter().flat_map(list) {
            is_unknown |= word.is_unknown();
            if word.text.ends_with('/') {
                children.push((joined(path, &word.text), word.condition));
                continue;
            }
            let Some(stem) = word.text.strip_suffix(".o") else { continue };
            let module = joined(path, stem);
            let gate = |condition| Gate { condition, module: module.clone() };
            let members: Vec<Word> =
                ["objs", "y"].iter().flat_map(|list_of| list(&format!("{stem}-{list_of}"))).collect();
            is_unknown |= members.iter().any(Word::is_unknown);
            let is_composite = Condition::any(members.iter().map(|member| member.condition.clone()));
            for member in members {
                let condition = word.condition.clone().and(member.condition);
                objects.push((joined(path, &member.text), gate(condition)));
            }
            let alone = word.condition.clone().and(is_composite.negated());
            if alone != Condition::never() {
                objects.push((joined(path, &word.text), gate(alone)));
            }
        }
        if let Some(directory) = self.directories.get_mut(path) {
            directory.objects = objects;
            directory.is_unknown = is_unknown;
        }
        children
    }

    /// Returns the gates of all objects.
    fn gates(&self) -> BTreeMap<String, Vec<Gate>> {
        let mut conditions = FxHashMap::default();
        let mut gates: BTreeMap<String, Vec<Gate>> = BTreeMap::new();
        for (path, directory) in &self.directories {
            let leads_here = self.condition(path, &mut conditions, &mut Vec::new());
            for (object, gate) in directory.objects.iter().filter(|(object, _)| self.objects.contains(object))
            {
                let condition = match directory.is_unknown {
                    true => Condition::any([gate.condition.clone(), unknown_words()]),
                    false => gate.condition.clone(),
                };
                let condition = leads_here.clone().and(condition);
                let of_object = gates.entry(object.clone()).or_default();
                of_object.push(Gate { condition, module: gate.module.clone() });
            }
        }
        // The directories are in no order.
        for of_object in gates.values_mut() {
            of_object.sort_by_key(|gate| (gate.module.clone(), gate.condition.to_string()));
            of_object.dedup();
        }
        gates
    }

    /// Returns the condition under which Kbuild reads a directory.
    fn condition(
        &self,
        path: &str,
        known: &mut FxHashMap<String, Condition>,
        above: &mut Vec<String>,
    ) -> Condition {
        if path.is_empty() {
            return Condition::Always;
        }
        if let Some(condition) = known.get(path) {
            return condition.clone();
        }
        above.push(path.to_owned());
        let mut ways = Vec::new();
        for (parent, condition) in &self.directories[path].parents {
            // A directory that lists one above it adds no way to that one.
            if !above.contains(parent) {
                ways.push(self.condition(parent, known, above).and(condition.clone()));
            }
        }
        above.pop();
        let condition = Condition::any(ways);
        known.insert(path.to_owned(), condition.clone());
        condition
    }
}

/// Returns the condition, which nothing decides, that words of a list that cannot be expanded name an object.
fn unknown_words() -> Condition {
    let unknown = Piece::Unknown("words of the list that are not known".to_owned());
    Condition::Equal(Text(vec![unknown]), Text::default()).negated()
}

/// Sets the variables that name places.
fn set_places(variables: &mut Variables, source: &Path, arch: &str, directory: &str) {
    let source = source.display().to_string();
    variables.set("srctree", &source);
    variables.set("SRCARCH", arch);
    variables.set("src", &format!("{source}/{directory}"));
}

/// Returns a path below a directory, without `.` and `..` and without a slash at its end.
fn joined(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if !parts.is_empty() => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the objects of a tree with one Makefile that go without option A.
    fn removed(makefile: &str, objects: &[&str]) -> Vec<String> {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("Kbuild"), makefile).unwrap();
        let objects = objects.iter().map(|object| (*object).to_owned()).collect();
        let gates = Gates::read(source.path(), "x86", &Config::parse("CONFIG_A=y"), &objects);
        gates.removed_by(&Config::default()).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn object_with_another_place_stays() {
        assert_eq!(removed("obj-$(CONFIG_A) += a.o b.o\nobj-y += b.o", &["a.o", "b.o"]), ["a.o"]);
        assert_eq!(
            removed("obj-$(CONFIG_A) += a.o\nifndef CONFIG_A\nobj-y += a.o\nendif", &["a.o"]),
            [""; 0]
        );
    }

    #[test]
    fn unknown_words_may_name_any_object() {
        let list = "obj-$(CONFIG_A) += a.o\nobj-y += $(wildcard *.o)";
        assert_eq!(removed(list, &["a.o"]), [""; 0]);
        assert_eq!(removed("obj-$(CONFIG_A) += a.o\na-y := b.o $(call list,b)", &["b.o"]), [""; 0]);
        assert_eq!(removed("obj-$(CONFIG_A) += a.o\na-objs := b.o", &["a.o", "b.o"]), ["b.o"]);
    }

    #[test]
    fn paths_are_relative_to_the_tree() {
        assert_eq!(joined("", "init/"), "init");
        assert_eq!(joined("drivers/net", "../char/a.o"), "drivers/char/a.o");
        assert_eq!(joined("a", "./b//c.o"), "a/b/c.o");
        assert_eq!(joined("", "../x.o"), "../x.o");
    }
}
