//! The arguments by which system calls tell what they are asked for.

/// What the name of a handler begins with (arch/x86/include/asm/syscall_wrapper.h).
pub(super) const PREFIX: &str = "__ia32_sys_";

/// Calls that do one of several things, by the name of their handler without [`PREFIX`], and the argument that says which
/// (`SYSCALL_DEFINE…` in the kernel's source), by its index from 0. All of these arguments are as wide as a register.
const SELECTORS: &[(&str, u8)] = &[
    ("bpf", 0),
    ("cachestat", 3),
    ("epoll_ctl", 1),
    ("fallocate", 1),
    ("fcntl", 1),
    ("fcntl64", 1),
    ("futex", 1),
    ("futex_time32", 1),
    ("getitimer", 0),
    ("getpriority", 0),
    ("getrusage", 1),
    ("ia32_fallocate", 1),
    ("ioctl", 1),
    ("ioprio_get", 0),
    ("ioprio_set", 0),
    ("ipc", 0),
    ("keyctl", 0),
    ("landlock_add_rule", 1),
    ("llseek", 4),
    ("lseek", 2),
    ("madvise", 2),
    ("membarrier", 0),
    ("modify_ldt", 0),
    ("mremap", 3),
    ("msgctl", 1),
    ("old_msgctl", 1),
    ("old_semctl", 2),
    ("old_shmctl", 1),
    ("personality", 0),
    ("prctl", 0),
    ("process_madvise", 3),
    ("ptrace", 0),
    ("quotactl", 0),
    ("reboot", 2),
    ("seccomp", 0),
    ("semctl", 2),
    ("setitimer", 0),
    ("setpriority", 0),
    ("shmctl", 1),
    ("socketcall", 0),
    ("syslog", 0),
    ("waitid", 0),
];

/// The arguments that say what a call is asked for, given the name of its handler.
pub(super) fn of(handler: &str) -> impl Iterator<Item = u8> {
    let name = handler.strip_prefix(PREFIX).map(str::to_owned);
    SELECTORS.iter().filter(move |(call, _)| name.as_deref() == Some(call)).map(|&(_, argument)| argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_sorted_and_found() {
        assert!(SELECTORS.is_sorted());
        assert_eq!(of("__ia32_sys_ioctl").collect::<Vec<_>>(), [1]);
        assert_eq!(of("__ia32_sys_read").count() + of("ioctl").count(), 0);
    }
}
