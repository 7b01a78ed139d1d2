//! Looks up the names of [`super::marks()`] and [`super::PHYSICAL`] in the source of a kernel.
//!
//! A kernel may lack a function because of its configuration, or because the compiler has inlined it. Only its source
//! tells whether the function has another name.

use std::io;
use std::path::{Path, PathBuf};

use kelf::{KernelVersion, Machine};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::{PHYSICAL, Reach, What, marks};

/// The newest Linux whose source has every name that is not gone.
pub const KNOWN: KernelVersion = KernelVersion::new(7, 2);

/// Names of older kernels that Linux [`KNOWN`] no longer has.
const GONE: &[&str] =
    &["__show_free_areas", "free_unref_page", "free_unref_page_list", "kernel_sendmsg_locked"];

/// Functions of [`PHYSICAL`] that only kernels for x86 have.
const ONLY_X86: &[&str] = &["__phys_addr", "slow_virt_to_phys"];

/// The directories of a source tree that have the names, besides that of the machine.
const DIRECTORIES: &[&str] = &[
    "block",
    "drivers/base",
    "drivers/clocksource",
    "drivers/firmware",
    "drivers/spi",
    "drivers/tty",
    "drivers/usb/core",
    "drivers/virtio",
    "fs",
    "include",
    "init",
    "kernel",
    "lib",
    "mm",
    "net",
];

/// Prefixes of functions that macros make for a trace event (include/trace/trace_events.h, include/trace/perf.h).
const OF_EVENTS: &[&str] = &["trace_event_raw_event_", "perf_trace_"];

/// Prefixes of symbols of the runtime, and of the linker's option `--wrap`.
const OWN: &[&str] = &["kshrink_", "__wrap_"];

/// Returns the names that a source tree no longer has, in order.
///
/// # Errors
/// If a directory or a file cannot be read.
pub fn lacking(source: &Path, machine: Machine) -> io::Result<Vec<&'static str>> {
    let arch = match machine {
        Machine::Arm => "arch/arm",
        _ => "arch/x86",
    };
    let (objects, mut words): (Vec<&str>, Vec<&str>) =
        names(machine).into_iter().partition(|name| name.ends_with(".o"));
    let mut files = Vec::new();
    for directory in DIRECTORIES.iter().chain([&arch]) {
        find(&source.join(directory), &mut files)?;
    }
    let wanted: FxHashSet<&[u8]> = words.iter().map(|word| in_source(word).as_bytes()).collect();
    let found = files.par_iter().map(|file| std::fs::read(file).map(|text| found_in(&text, &wanted)));
    let union = |mut all: FxHashSet<_>, some| {
        all.extend(some);
        Ok(all)
    };
    let found: FxHashSet<&[u8]> = found.try_reduce(FxHashSet::default, union)?;
    words.retain(|word| !found.contains(in_source(word).as_bytes()));
    let is_missing = |object: &&str| {
        let stem = object.strip_suffix('o').unwrap_or(object);
        !["c", "S"].iter().any(|suffix| source.join(format!("{stem}{suffix}")).is_file())
    };
    words.extend(objects.into_iter().filter(is_missing));
    words.sort_unstable();
    Ok(words)
}

/// Returns all names that a kernel for a machine may have, once each.
fn names(machine: Machine) -> Vec<&'static str> {
    let of_mark = marks(machine).flat_map(|mark| {
        let end = match mark.reach {
            Reach::UpTo(callee) => callee,
            Reach::Alone | Reach::Calls => "",
        };
        let what = match mark.what {
            What::HandWritten => "",
            named => named.name(),
        };
        what.split('|').chain(end.split('|'))
    });
    let is_of = |name: &&str| machine != Machine::Arm || !ONLY_X86.contains(name);
    let is_own = |name: &str| OWN.iter().any(|prefix| name.starts_with(prefix));
    let mut names: Vec<&str> = of_mark.chain(PHYSICAL.iter().copied().filter(is_of)).collect();
    names.retain(|name| !name.is_empty() && !is_own(name) && !GONE.contains(name));
    names.sort_unstable();
    names.dedup();
    names
}

/// The word of the source that stands for a name.
fn in_source(name: &'static str) -> &'static str {
    OF_EVENTS.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// The wanted words of a text. Words have letters, digits, underscores and dots.
fn found_in<'w>(text: &[u8], wanted: &FxHashSet<&'w [u8]>) -> FxHashSet<&'w [u8]> {
    let is_end = |byte: &u8| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'.');
    text.split(is_end).filter_map(|word| wanted.get(word).copied()).collect()
}

/// Adds the C and assembly files of a directory and of those below it.
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|suffix| suffix == "c" || suffix == "h" || suffix == "S") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a source tree with all names for i386 except these.
    fn tree(without: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for directory in DIRECTORIES.iter().chain([&"arch/x86"]) {
            std::fs::create_dir_all(dir.path().join(directory)).unwrap();
        }
        let kept = names(Machine::I386).into_iter().filter(|name| !without.contains(name));
        let (objects, words): (Vec<&str>, Vec<&str>) = kept.partition(|name| name.ends_with(".o"));
        let text: String = words.iter().map(|word| format!("TRACE_EVENT({},\n", in_source(word))).collect();
        std::fs::write(dir.path().join("kernel/all.c"), text).unwrap();
        for object in objects {
            let path = dir.path().join(object).with_extension("c");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        dir
    }

    #[test]
    fn each_name_is_missed() {
        assert!(lacking(tree(&[]).path(), Machine::I386).unwrap().is_empty());
        for name in ["bio_add_page", "exc_nmi", ".noinstr.text", "mm/shuffle.o", "start_kernel"] {
            assert_eq!(lacking(tree(&[name]).path(), Machine::I386).unwrap(), [name]);
        }
        // One event stands for both of its functions.
        let events = ["perf_trace_mm_page_alloc", "trace_event_raw_event_mm_page_alloc"];
        assert_eq!(lacking(tree(&events).path(), Machine::I386).unwrap(), events);
    }

    #[test]
    fn names_are_whole_words() {
        let wanted = FxHashSet::from_iter([&b"panic"[..], b".head.text"]);
        assert!(found_in(b"vpanic(panic_x) head.text .head.texts", &wanted).is_empty());
        assert_eq!(found_in(b"int\tpanic(void), \".head.text\"", &wanted).len(), 2);
    }
}
