//! The arguments by which system calls tell what they are asked for.

/// Calls that do one of several things, by the name of their handler without what all names begin with, and the argument that
/// says which (`SYSCALL_DEFINE…` in the kernel's source), by its index from 0. All of these arguments are as wide as a
/// register, as are those in front of them.
const SELECTORS: &[(&str, u8)] = &[
    ("arm_fadvise64_64", 1),
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

/// The arguments that say what a call is asked for, given the name of its handler and what all such names begin with.
pub(super) fn of<'n>(handler: &'n str, prefix: &str) -> impl Iterator<Item = u8> + use<'n> {
    let name = handler.strip_prefix(prefix);
    SELECTORS.iter().filter(move |(call, _)| name == Some(call)).map(|&(_, argument)| argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_sorted_and_found() {
        assert!(SELECTORS.is_sorted());
        assert_eq!(of("__ia32_sys_ioctl", "__ia32_sys_").collect::<Vec<_>>(), [1]);
        assert_eq!(of("sys_llseek", "sys_").collect::<Vec<_>>(), [4]);
        assert_eq!(of("sys_read", "sys_").count() + of("ioctl", "sys_").count(), 0);
    }
}
