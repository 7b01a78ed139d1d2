//! What the kernel's headers call the arguments of system calls: `TCGETS`, `O_CREAT|O_TRUNC`.
//!
//! The names and their values come from the headers by `fixtures/tables/names.py`, for each ABI from its own:
//! an `ioctl` request has the size of a structure in it, and ARM has other `O_` flags than x86. A crate with
//! these constants has those of the machine that it is compiled for, and this program reads all.

use std::fmt::Write;
use std::sync::LazyLock;

use kplan::Abi;
use rustc_hash::FxHashMap;

/// How the names of a group make up an argument.
#[derive(Clone, Copy)]
enum Form {
    /// It is one of them.
    One(&'static str),
    /// It is any of them, or-ed together.
    Flags(&'static str),
    /// Under a mask it is one of them; the rest are flags of another group.
    Mixed(&'static str, u64, &'static str),
}

use Form::{Flags, Mixed, One};

const OPEN: Form = Mixed("access_mode", 3, "open");
const CLONE: Form = Mixed("signal", 0xff, "clone");
const SOCKET: Form = Mixed("socket", 0xf, "socket_flags");
const FUTEX: Form = Mixed("futex", 0x7f, "futex_flags");

/// The arguments that have names: the calls, the argument, the form.
const USES: &[(&str, usize, Form)] = &[
    ("ioctl", 1, One("ioctl")),
    ("fcntl fcntl64", 1, One("fcntl")),
    ("open", 1, OPEN),
    ("openat open_by_handle_at", 2, OPEN),
    ("pipe2 eventfd2", 1, Flags("open")),
    ("signalfd4", 3, Flags("open")),
    ("dup3 userfaultfd", 2, Flags("open")),
    ("inotify_init1", 0, Flags("inotify")),
    ("epoll_create1", 0, Flags("epoll_flags")),
    ("epoll_ctl", 1, One("epoll")),
    (
        "openat faccessat faccessat2 fchmodat fchmodat2 fchownat futimesat fstatat64 newfstatat linkat mkdirat \
      mknodat name_to_handle_at openat2 readlinkat renameat renameat2 statx unlinkat utimensat \
      utimensat_time64 execveat",
        0,
        One("at"),
    ),
    ("linkat renameat renameat2", 2, One("at")),
    ("symlinkat", 1, One("at")),
    ("fstatat64 newfstatat utimensat utimensat_time64 faccessat2 fchmodat2", 3, Flags("at_flags")),
    ("statx", 2, Flags("at_flags")),
    ("linkat fchownat execveat", 4, Flags("at_flags")),
    ("unlinkat", 2, Flags("unlink")),
    ("access", 1, Flags("access")),
    ("faccessat faccessat2", 2, Flags("access")),
    ("lseek", 2, One("seek")),
    ("_llseek", 4, One("seek")),
    ("prctl", 0, One("prctl")),
    ("arch_prctl", 0, One("arch_prctl")),
    ("futex futex_time64", 1, FUTEX),
    ("socket socketpair", 0, One("family")),
    ("socket socketpair", 1, SOCKET),
    ("accept4", 3, Flags("socket_flags")),
    ("setsockopt getsockopt", 1, One("socket_level")),
    ("shutdown", 1, One("shutdown")),
    ("sendto recvfrom send recv", 3, Flags("message")),
    ("sendmsg recvmsg", 2, Flags("message")),
    ("recvmmsg sendmmsg recvmmsg_time64", 3, Flags("message")),
    ("socketcall", 0, One("socketcall")),
    ("ipc", 0, One("ipc")),
    ("clone", 0, CLONE),
    ("unshare", 0, Flags("clone")),
    ("setns", 1, Flags("clone")),
    ("kill tkill signal rt_sigqueueinfo pidfd_send_signal", 1, One("signal")),
    ("tgkill rt_tgsigqueueinfo", 2, One("signal")),
    ("rt_sigaction sigaction signal", 0, One("signal")),
    ("rt_sigprocmask sigprocmask", 0, One("sigprocmask")),
    ("mmap mmap2 mprotect pkey_mprotect", 2, Flags("protection")),
    ("mmap mmap2", 3, Flags("map")),
    ("mremap", 3, Flags("mremap")),
    ("madvise", 2, One("madvise")),
    ("msync", 2, Flags("msync")),
    ("mlockall", 0, Flags("mlockall")),
    ("mount", 3, Flags("mount")),
    ("umount2", 1, Flags("umount")),
    ("flock", 1, Flags("flock")),
    (
        "clock_gettime clock_settime clock_getres clock_nanosleep clock_gettime64 clock_settime64 \
      clock_getres_time64 clock_nanosleep_time64 clock_adjtime clock_adjtime64 timer_create \
      timerfd_create",
        0,
        One("clock"),
    ),
    (
        "clock_nanosleep clock_nanosleep_time64 timer_settime timer_settime64 timerfd_settime \
      timerfd_settime64",
        1,
        Flags("timer_flags"),
    ),
    ("timerfd_create", 1, Flags("open")),
    ("getitimer setitimer", 0, One("itimer")),
    ("getrlimit setrlimit ugetrlimit", 0, One("rlimit")),
    ("prlimit64", 1, One("rlimit")),
    ("getrusage", 0, One("rusage")),
    ("getpriority setpriority", 0, One("priority")),
    ("sched_setscheduler", 1, One("scheduler")),
    ("sched_get_priority_max sched_get_priority_min", 0, One("scheduler")),
    ("wait4", 2, Flags("wait")),
    ("waitpid", 2, Flags("wait")),
    ("waitid", 0, One("waitid")),
    ("waitid", 3, Flags("wait")),
    ("reboot", 0, One("reboot_magic")),
    ("reboot", 1, One("reboot_magic")),
    ("reboot", 2, One("reboot")),
    ("personality", 0, One("personality")),
    ("ptrace", 0, One("ptrace")),
    ("keyctl", 0, One("keyctl")),
    ("membarrier", 0, One("membarrier")),
    ("seccomp", 0, One("seccomp")),
    ("getrandom", 2, Flags("random")),
    ("memfd_create", 1, Flags("memfd")),
    ("renameat2", 4, Flags("rename")),
    ("splice tee vmsplice", 3, Flags("splice")),
    ("splice", 5, Flags("splice")),
    ("fallocate", 1, Flags("fallocate")),
    ("ioprio_get ioprio_set", 0, One("ioprio")),
    ("close_range", 2, Flags("close_range")),
    ("rseq", 2, Flags("getcpu_rseq")),
];

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
        let of_abi = |word: &'static str| match word.split_once('=') {
            Some((own, value)) => (own == abi.to_string()).then_some(value),
            None => Some(word),
        };
        let value = words.find_map(of_abi).and_then(|value| value.strip_prefix("0x"));
        if let Some(value) = value.and_then(|value| u64::from_str_radix(value, 16).ok()) {
            names.push((name, value));
        }
    }
    groups.insert(group, names);
    groups
}

/// What the headers call a value of an argument. `None` if the argument has no names, or the value is not
/// among them.
pub fn name(abi: Abi, call: &str, argument: usize, value: u64) -> Option<String> {
    let form = USES
        .iter()
        .find(|(calls, index, _)| *index == argument && calls.split_whitespace().any(|c| c == call));
    let groups = NAMES.get(&abi)?;
    match form?.2 {
        One(group) => one(groups, group, value).map(str::to_owned),
        Flags(group) => flags(groups, group, value, String::new()),
        Mixed(group, mask, others) => {
            let low = one(groups, group, value & mask);
            let first = match low {
                Some(name) => name.to_owned(),
                None if value & mask == 0 => String::new(),
                None => format!("{:#x}", value & mask),
            };
            flags(groups, others, value & !mask, first)
        }
    }
}

/// What the headers call an operation of a call that is several in one, and the call that it stands for.
pub fn operation(abi: Abi, call: &str, value: u64) -> (Option<String>, Option<String>) {
    let name = name(abi, call, 0, value);
    let stands_for = name.as_ref().map(|name| name.trim_start_matches("SYS_").to_lowercase());
    (name, stands_for)
}

fn one(groups: &Groups, group: &str, value: u64) -> Option<&'static str> {
    groups.get(group)?.iter().find(|(_, known)| *known == value).map(|&(name, _)| name)
}

/// The flags of a value behind what is known of it already. What has no name is left as a number.
fn flags(groups: &Groups, group: &str, value: u64, mut text: String) -> Option<String> {
    if value == 0 {
        let zero = one(groups, group, 0).unwrap_or_default();
        let text = if text.is_empty() { zero.to_owned() } else { text };
        return (!text.is_empty()).then_some(text);
    }
    let mut left = value;
    let mut named = !text.is_empty();
    // A name for several bits goes before the names of one of them.
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
    fn every_use_has_a_group() {
        for abi in Abi::ALL {
            for (calls, _, form) in USES {
                let groups = match *form {
                    One(group) | Flags(group) => vec![group],
                    Mixed(one, _, flags) => vec![one, flags],
                };
                for group in groups {
                    // Only x86 has arch_prctl.
                    let absent = NAMES[&abi].get(group).is_none_or(Vec::is_empty);
                    assert!(!absent || *calls == "arch_prctl", "{abi}: {group}");
                }
            }
        }
    }
}
