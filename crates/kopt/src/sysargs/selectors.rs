//! The arguments that select the operation of a system call.

/// System calls that do one of several things: the name of the handler without its prefix, and the index from 0 of the
/// argument that selects the operation (`SYSCALL_DEFINE…` in the kernel's source). These arguments and all arguments
/// before them are as wide as a register.
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

/// Returns the selecting arguments of a system call, given the name of its handler and the prefix of such names.
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
