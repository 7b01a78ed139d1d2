//! The objects whose sources mention an option, by the records of fixdep.
//!
//! Kbuild compiles an object again if an option changes whose name occurs in a file that the object includes
//! (scripts/basic/fixdep.c). The record is in `.NAME.o.cmd` beside the object. A mention says what a rebuild compiles,
//! not what an option costs: a header that everybody includes mentions options for everybody.

use std::fs;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

/// The objects that mention each option.
#[derive(Clone, Debug, Default)]
pub struct Mentions {
    objects: Vec<String>,
    of_option: FxHashMap<String, Vec<usize>>,
    of_file: FxHashMap<String, Vec<usize>>,
    /// The objects whose records have a source and the end of the list of files.
    whole: FxHashSet<String>,
}

impl Mentions {
    /// Reads the records of a build directory.
    pub fn read(build: &Path) -> Mentions {
        let mut mentions = Mentions::default();
        for (object, path) in kbuild::records(build).flatten() {
            if let Ok(record) = fs::read(path) {
                mentions.record(object, &String::from_utf8_lossy(&record));
            }
        }
        mentions
    }

    /// Returns the objects that mention one of `options`, without those in `besides`, by name.
    pub fn of<'a>(&self, options: impl IntoIterator<Item = &'a str>, besides: &[&str]) -> Vec<&str> {
        let mut numbers: Vec<usize> =
            options.into_iter().filter_map(|option| self.of_option.get(option)).flatten().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        sorted_without(numbers.into_iter().map(|number| self.objects[number].as_str()), besides)
    }

    /// Returns all objects with a whole record, which are compiled, without those in `besides`, by name.
    pub fn all(&self, besides: &[&str]) -> Vec<&str> {
        sorted_without(self.whole.iter().map(String::as_str), besides)
    }

    /// Iterates over the files that objects include, as the records name them: absolute, or relative to the build directory.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.of_file.keys().map(String::as_str)
    }

    /// Whether an object has a whole record.
    pub fn has(&self, object: &str) -> bool {
        self.whole.contains(object)
    }

    /// Returns the files that an object includes, in no order.
    pub fn files_of(&self, object: &str) -> Vec<&str> {
        let Some(number) = self.objects.iter().position(|own| own == object) else { return Vec::new() };
        let includes = |(_, objects): &(&String, &Vec<usize>)| objects.binary_search(&number).is_ok();
        self.of_file.iter().filter(includes).map(|(file, _)| file.as_str()).collect()
    }

    /// Iterates over the objects that include a file, by name.
    pub fn includers(&self, file: &str) -> impl Iterator<Item = &str> {
        self.of_file.get(file).into_iter().flatten().map(|&number| self.objects[number].as_str())
    }

    fn record(&mut self, object: String, record: &str) {
        let number = self.objects.len();
        let has = |start: &str| record.lines().any(|line| line.starts_with(start));
        if has("source_") && has(&format!("$(deps_{object}):")) {
            self.whole.insert(object.clone());
        }
        self.objects.push(object);
        for line in
            record.lines().skip_while(|line| !line.starts_with("deps") && !line.starts_with("source_"))
        {
            let line = line.trim_end_matches('\\').trim();
            let (map, key) = match line.strip_prefix("$(wildcard include/config/") {
                Some(option) => (&mut self.of_option, option.trim_end_matches(')')),
                None if line.starts_with("source_") => {
                    (&mut self.of_file, line.rsplit(' ').next().unwrap_or(line))
                }
                None if line.contains([' ', '$', ':']) || line.is_empty() => continue,
                None => (&mut self.of_file, line),
            };
            let objects = map.entry(key.to_owned()).or_default();
            if objects.last() != Some(&number) {
                objects.push(number);
            }
        }
    }
}

/// Returns the names that are not in `besides`, which is sorted, in order.
fn sorted_without<'n>(names: impl Iterator<Item = &'n str>, besides: &[&str]) -> Vec<&'n str> {
    let mut names: Vec<&str> = names.filter(|name| besides.binary_search(name).is_err()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_go_are_not_compiled() {
        let build = tempfile::tempdir().unwrap();
        for directory in ["fs", "scripts/mod"] {
            fs::create_dir_all(build.path().join(directory)).unwrap();
        }
        let record = |path: &str, options: &[&str]| {
            let wildcards: String = options
                .iter()
                .map(|option| format!("    $(wildcard include/config/{option}) \\\n"))
                .collect();
            fs::write(build.path().join(path), format!("deps := \\\n{wildcards}")).unwrap();
        };
        record("fs/.aio.o.cmd", &["AIO", "AIO", "NET"]);
        record("fs/.exec.o.cmd", &["AIO"]);
        record("scripts/mod/.devicetable.o.cmd", &["AIO"]);
        record(".vmlinux.cmd", &["AIO"]);
        let mentions = Mentions::read(build.path());
        assert_eq!(mentions.of(["AIO", "NET"], &[]), ["fs/aio.o", "fs/exec.o"]);
        assert_eq!(mentions.of(["AIO"], &["fs/aio.o"]), ["fs/exec.o"]);
        assert!(mentions.of(["ABSENT"], &[]).is_empty());
    }
}
