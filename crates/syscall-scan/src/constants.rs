//! The names of system call arguments in the kernel's headers: `TCGETS`, `O_CREAT|O_TRUNC`.
//!
//! `fixtures/tables/names.py` extracts names and values from the headers, separately for each ABI: an `ioctl` request
//! contains the size of a structure, and ARM has other `O_` flags than x86. A crate of constants has only those of the
//! machine that it is compiled for, but this program reads programs of every machine.

use std::fmt::Write;
use std::sync::LazyLock;

use kplan::Abi;
use rustc_hash::FxHashMap;

use crate::abi::of_abi;

/// The composition of an argument from groups of names.
#[derive(Clone, Copy)]
struct Form {
    /// The bits that hold one value of the group `one`.
    mask: u64,
    one: &'static str,
    /// The group of flags in the other bits, or-ed together; `None` if there are no others.
    flags: Option<&'static str>,
}

/// The arguments that have names, by call and index. A line of the table has the form, the index and the calls. A form
/// is `GROUP` (one of the values), `|GROUP` (flags), or `GROUP&MASK|GROUP` (one of the values under a mask, and flags).
static ARGUMENTS: LazyLock<FxHashMap<(&'static str, usize), Form>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let mut words = line.split(' ');
        let form = words.next().and_then(form);
        let index = words.next().and_then(|index| index.parse().ok());
        words.filter_map(move |call| Some(((call, index?), form?)))
    };
    include_str!("../tables/arguments.txt").lines().flat_map(line).collect()
});

fn form(text: &'static str) -> Option<Form> {
    let (one, flags) = text.split_once('|').map_or((text, None), |(one, flags)| (one, Some(flags)));
    let (one, mask) = match one.split_once("&0x") {
        Some((one, mask)) => (one, u64::from_str_radix(mask, 16).ok()?),
        None if one.is_empty() => (one, 0),
        None => (one, u64::MAX),
    };
    Some(Form { mask, one, flags })
}

/// The names of one ABI by group, in the order of the table.
type Groups = FxHashMap<&'static str, Vec<(&'static str, u64)>>;

static NAMES: LazyLock<FxHashMap<Abi, Groups>> =
    LazyLock::new(|| kplan::Abi::ALL.into_iter().map(|abi| (abi, groups(abi))).collect());

fn groups(abi: Abi) -> Groups {
    let mut groups = Groups::default();
    let mut names = Vec::new();
    let mut group = "";
    for line in include_str!("../tables/names.txt").lines() {
        if let Some(next) = line.strip_prefix('[') {
            groups.insert(group, std::mem::take(&mut names));
            group = next.trim_end_matches(']');
            continue;
        }
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let value = of_abi(words, abi).and_then(|value| value.strip_prefix("0x"));
        if let Some(value) = value.and_then(|value| u64::from_str_radix(value, 16).ok()) {
            names.push((name, value));
        }
    }
    groups.insert(group, names);
    groups
}

/// Returns the name of an argument's value in the headers. `None` if the argument has no names, or not for this value.
pub fn name(abi: Abi, call: &str, argument: usize, value: u64) -> Option<String> {
    let &Form { mask, one: group, flags: others } = ARGUMENTS.get(&(call, argument))?;
    let groups = NAMES.get(&abi)?;
    let low = one(groups, group, value & mask);
    let Some(others) = others else { return low.map(str::to_owned) };
    let first = match low {
        Some(name) => name.to_owned(),
        None if value & mask == 0 => String::new(),
        None => format!("{:#x}", value & mask),
    };
    flags(groups, others, value & !mask, first)
}

/// Returns the name of a multiplexed operation in the headers, and the call that is equivalent to it.
pub fn operation(abi: Abi, call: &str, value: u64) -> (Option<String>, Option<String>) {
    let name = name(abi, call, 0, value);
    let stands_for = name.as_ref().map(|name| name.trim_start_matches("SYS_").to_lowercase());
    (name, stands_for)
}

fn one(groups: &Groups, group: &str, value: u64) -> Option<&'static str> {
    groups.get(group)?.iter().find(|(_, known)| *known == value).map(|&(name, _)| name)
}

/// Appends the flags of a value to the text so far. Unnamed bits remain a number.
fn flags(groups: &Groups, group: &str, value: u64, mut text: String) -> Option<String> {
    if value == 0 {
        let zero = one(groups, group, 0).unwrap_or_default();
        let text = if text.is_empty() { zero.to_owned() } else { text };
        return (!text.is_empty()).then_some(text);
    }
    let mut left = value;
    let mut named = !text.is_empty();
    // A name for several bits has precedence over names for one of them.
    let mut names: Vec<_> = groups.get(group)?.iter().filter(|(_, bits)| *bits != 0).collect();
    names.sort_by_key(|(_, bits)| std::cmp::Reverse(bits.count_ones()));
    let mut add = |part: &str| {
        let separator = if text.is_empty() { "" } else { "|" };
        let _ = write!(text, "{separator}{part}");
    };
    for (name, bits) in names {
        if left & bits == *bits {
            left &= !bits;
            named = true;
            add(name);
        }
    }
    if left != 0 {
        add(&format!("{left:#x}"));
    }
    named.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(abi: Abi, call: &str, argument: usize, value: u64) -> String {
        name(abi, call, argument, value).unwrap_or_default()
    }

    #[test]
    fn names_are_those_of_the_abi() {
        assert_eq!(named(Abi::I386, "ioctl", 1, 0x5401), "TCGETS");
        assert_eq!(named(Abi::I386, "ioctl", 1, 0x8004_1272), "BLKGETSIZE64");
        assert_eq!(named(Abi::X86_64, "ioctl", 1, 0x8008_1272), "BLKGETSIZE64");
        assert_eq!(named(Abi::X86_64, "openat", 2, 0x10000), "O_RDONLY|O_DIRECTORY");
        assert_eq!(named(Abi::Arm, "openat", 2, 0x4000), "O_RDONLY|O_DIRECTORY");
        assert_eq!(named(Abi::X86_64, "openat", 0, 0xffff_ff9c), "AT_FDCWD");
    }

    #[test]
    fn flags_are_taken_apart() {
        assert_eq!(named(Abi::I386, "open", 1, 0x242), "O_RDWR|O_CREAT|O_TRUNC");
        assert_eq!(named(Abi::I386, "clone", 0, 0x4111), "SIGCHLD|CLONE_VM|CLONE_VFORK");
        assert_eq!(named(Abi::I386, "clone", 0, 0x4100), "CLONE_VM|CLONE_VFORK");
        assert_eq!(named(Abi::X86_64, "socket", 1, 0x80001), "SOCK_STREAM|SOCK_CLOEXEC");
        assert_eq!(named(Abi::X86_64, "futex", 1, 0x81), "FUTEX_WAKE|FUTEX_PRIVATE_FLAG");
        assert_eq!(named(Abi::X86_64, "mmap", 3, 0x22), "MAP_ANONYMOUS|MAP_PRIVATE");
        assert_eq!(named(Abi::X86_64, "access", 1, 0), "F_OK");
        assert_eq!(named(Abi::X86_64, "mmap", 2, 0), "PROT_NONE");
        assert_eq!(name(Abi::X86_64, "ioctl", 1, 0x7777_7777), None);
        assert_eq!(name(Abi::X86_64, "read", 0, 0), None);
    }

    #[test]
    fn every_argument_has_a_group() {
        assert_eq!(ARGUMENTS.len(), 162);
        for abi in Abi::ALL {
            for ((call, _), form) in ARGUMENTS.iter() {
                for group in form.flags.into_iter().chain([form.one]).filter(|group| !group.is_empty()) {
                    // Only x86 has arch_prctl.
                    let absent = NAMES[&abi].get(group).is_none_or(Vec::is_empty);
                    assert!(!absent || *call == "arch_prctl", "{abi}: {group}");
                }
            }
        }
    }
}
