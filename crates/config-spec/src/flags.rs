//! The options that change flags of the compiler or the linker, for all objects.
//!
//! Kbuild sets these flags in `Makefile`, `arch/ARCH/Makefile` and `scripts/Makefile.*`. A change compiles every object
//! again, although no source mentions the option. The code of such an option is everywhere (`STACKPROTECTOR`), so neither
//! objects nor lines tell what it brings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Closure;

/// The options in Makefiles of the whole kernel.
#[derive(Debug, Default)]
pub struct Flags {
    options: BTreeSet<String>,
}

impl Flags {
    /// Reads the Makefiles of a source tree.
    pub fn read(source: &Path, arch: &str) -> Flags {
        let mut files = vec![source.join("Makefile")];
        files.extend(makefiles(&source.join("arch").join(arch)));
        files.extend(makefiles(&source.join("scripts")));
        let mut options = BTreeSet::new();
        for text in files.iter().filter_map(|file| fs::read(file).ok()) {
            collect(&String::from_utf8_lossy(&text), &mut options);
        }
        Flags { options }
    }

    /// Returns an option with flags that changes, if there is one.
    pub fn changed_by<'c>(&self, changes: &'c Closure) -> Option<&'c str> {
        changes.keys().map(String::as_str).find(|name| self.options.contains(*name))
    }
}

/// Adds the options that decide about flags in a Makefile: in an assignment to a variable of flags, in a condition around
/// one, or in a list of further Makefiles (`include-$(CONFIG_KASAN)`).
fn collect(text: &str, options: &mut BTreeSet<String>) {
    let mut conditions: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let is_flag = line.to_ascii_lowercase().contains("flags") || line.starts_with("include-");
        if line.starts_with("if") {
            conditions.push(mentioned(line).collect());
        } else if line.starts_with("endif") {
            conditions.pop();
        } else if let (true, Some(own)) = (line.starts_with("else"), conditions.last_mut()) {
            own.extend(mentioned(line));
        } else if is_flag {
            let deciding = conditions.iter().flatten().copied().chain(mentioned(line));
            options.extend(deciding.map(str::to_owned));
        }
    }
}

/// Returns the files `Makefile` and `Makefile.*` of a directory.
fn makefiles(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_makefile = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name == "Makefile" || name.starts_with("Makefile.") || name.starts_with("Makefile_")
    };
    entries.map(|entry| entry.path()).filter(is_makefile).collect()
}

/// Returns the names of the options in a line, without `CONFIG_`.
fn mentioned(line: &str) -> impl Iterator<Item = &str> {
    let line = if line.trim_start().starts_with('#') { "" } else { line };
    line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter_map(|word| word.strip_prefix("CONFIG_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_flags_are_no_gates() {
        let source = tempfile::tempdir().unwrap();
        for directory in ["arch/x86", "scripts"] {
            fs::create_dir_all(source.path().join(directory)).unwrap();
        }
        let write = |path: &str, text: &str| fs::write(source.path().join(path), text).unwrap();
        write(
            "Makefile",
            "stackp-flags-$(CONFIG_STACKPROTECTOR) := -fstack-protector\n# CFLAGS CONFIG_OLD\n\
             ifdef CONFIG_BPF\nprepare: tools/bpf\nendif\n\
             ifeq ($(CONFIG_A),y)\nelse ifdef CONFIG_B\nKBUILD_CFLAGS += -g\nendif\n\
             include-$(CONFIG_KASAN) += scripts/Makefile.kasan\n",
        );
        write("arch/x86/Makefile", "drivers-$(CONFIG_PCI) += arch/x86/pci/\n");
        write("arch/x86/Makefile_32.cpu", "cflags-$(CONFIG_M686) += -march=i686\n");
        write("scripts/Makefile.kasan", "ifdef CONFIG_KASAN_STACK\n CFLAGS_KASAN := 1\nendif\n");
        let flags = Flags::read(source.path(), "x86");
        let changed =
            |name: &str| flags.changed_by(&Closure::from([(name.to_owned(), String::new())])).is_some();
        assert!(["STACKPROTECTOR", "M686", "KASAN_STACK", "A", "B", "KASAN"].into_iter().all(changed));
        assert!(!["PCI", "OLD", "STACK", "BPF"].into_iter().any(changed));
    }
}
