//! How many arguments a system call takes.
//!
//! A register behind the last argument holds whatever the program happens to have there. What it points to,
//! the kernel neither reads nor writes.

use kplan::Abi;

use crate::abi::name;

/// The calls by the number of arguments that the kernel declares for them (`SYSCALL_DEFINEn` in Linux 6.12,
/// the larger one where i386 and x86-64 differ). Calls of 6, and those that are not listed, may take 6.
const BY_COUNT: [&str; 6] = [
    // 0
    "fork getegid getegid32 geteuid geteuid32 getgid getgid32 getpgrp getpid getppid gettid getuid \
     getuid32 inotify_init munlockall pause restart_syscall rt_sigreturn sched_yield setsid sgetmask \
     sigreturn sync uretprobe vfork vhangup",
    // 1
    "acct adjtimex alarm brk chdir chroot close dup epoll_create epoll_create1 eventfd exit exit_group \
     fchdir fdatasync fsync getpgid getsid inotify_init1 io_destroy iopl memfd_secret mlockall \
     mq_unlink nice oldolduname olduname personality pipe pkey_free rmdir sched_get_priority_max \
     sched_get_priority_min sched_getscheduler set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 \
     setgid setgid32 setuid setuid32 shmdt sigpending ssetmask stime swapoff syncfs sysinfo time \
     timer_delete timer_getoverrun times umask umount uname unlink unshare userfaultfd",
    // 2
    "access arch_prctl capget capset chmod clock_adjtime clock_adjtime64 clock_getres \
     clock_getres_time64 clock_gettime clock_gettime64 clock_settime clock_settime64 clone3 creat \
     delete_module dup2 eventfd2 fanotify_init fchmod flock fremovexattr fsopen fstat fstat64 fstatfs \
     ftruncate getcwd getgroups getgroups32 getitimer getpriority getrlimit getrusage gettimeofday \
     inotify_rm_watch io_setup io_uring_setup ioprio_get kill landlock_restrict_self link listen \
     lremovexattr lstat lstat64 memfd_create mkdir mlock mq_notify msgget munlock munmap nanosleep \
     oldfstat oldlstat oldstat pidfd_open pipe2 pivot_root pkey_alloc process_mrelease removexattr \
     rename rt_sigpending rt_sigsuspend sched_getparam sched_rr_get_interval \
     sched_rr_get_interval_time64 sched_setparam set_robust_list setdomainname setgroups setgroups32 \
     sethostname setns setpgid setregid setregid32 setreuid setreuid32 setrlimit settimeofday shutdown \
     sigaltstack signal socketcall stat stat64 statfs swapon symlink timer_gettime timer_gettime64 \
     timerfd_create timerfd_gettime timerfd_gettime64 tkill truncate ugetrlimit umount2 ustat utime \
     utimes",
    // 3
    "accept bind bpf chown chown32 close_range connect dup3 execve faccessat fchmodat fchown fchown32 \
     fcntl fcntl64 finit_module flistxattr fsmount fspick fstatfs64 ftruncate64 futimesat \
     get_robust_list getcpu getdents getdents64 getpeername getrandom getresgid getresgid32 getresuid \
     getresuid32 getsockname init_module inotify_add_watch io_cancel io_submit ioctl ioperm ioprio_set \
     landlock_create_ruleset lchown lchown32 listxattr llistxattr lseek lsm_list_modules madvise \
     map_shadow_stack membarrier mincore mkdirat mknod mlock2 modify_ldt mprotect mq_getsetattr mseal \
     msgctl msync open open_by_handle_at open_tree pidfd_getfd poll read readdir readlink readv recvmsg \
     rt_sigqueueinfo sched_getaffinity sched_setaffinity sched_setattr sched_setscheduler seccomp \
     semget semop sendmsg set_mempolicy setitimer setpriority setresgid setresgid32 setresuid \
     setresuid32 shmat shmctl shmget sigaction signalfd sigprocmask sigsuspend socket statfs64 \
     symlinkat sysfs syslog tgkill timer_create truncate64 unlinkat waitpid write writev",
    // 4
    "accept4 cachestat clock_nanosleep clock_nanosleep_time64 epoll_ctl epoll_wait faccessat2 fchmodat2 \
     fgetxattr fstatat64 futex_requeue futex_wake getxattr io_uring_register kexec_load \
     landlock_add_rule lgetxattr listmount lsm_get_self_attr lsm_set_self_attr migrate_pages mknodat \
     mq_open msgsnd newfstatat openat openat2 pidfd_send_signal pkey_mprotect prlimit64 ptrace quotactl \
     quotactl_fd readahead readlinkat reboot renameat request_key rseq rt_sigprocmask rt_sigtimedwait \
     rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_getattr semctl semtimedop semtimedop_time64 \
     sendfile sendfile64 sendmmsg set_mempolicy_home_node signalfd4 socketpair statmount tee \
     timer_settime timer_settime64 timerfd_settime timerfd_settime64 utimensat utimensat_time64 \
     vmsplice wait4",
    // 5
    "_llseek _newselect add_key execveat fadvise64 fchownat fsconfig fsetxattr futex_waitv \
     get_mempolicy getsockopt io_getevents kcmp kexec_file_load keyctl linkat lsetxattr mount \
     mount_setattr move_mount mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 \
     mremap msgrcv name_to_handle_at perf_event_open ppoll ppoll_time64 prctl pread64 preadv \
     process_madvise pwrite64 pwritev recvmmsg recvmmsg_time64 remap_file_pages renameat2 rt_sigaction \
     select setsockopt setxattr statx waitid",
];

/// How many arguments of a system call the kernel looks at, at most. `argument` knows some of them by their
/// index.
pub fn arguments_used(abi: Abi, number: u64, argument: impl Fn(usize) -> Option<u64>) -> usize {
    let name = u32::try_from(number).ok().and_then(|number| name(abi, number));
    let Some(name) = name else { return 6 };
    // FUTEX_WAIT and FUTEX_WAKE, the private flag aside, have no use for the last two.
    if name == "futex" && argument(1).is_some_and(|operation| matches!(operation & 0x7f, 0 | 1)) {
        return 4;
    }
    let listed = |names: &&str| names.split(' ').any(|listed| listed == name);
    BY_COUNT.iter().position(listed).unwrap_or(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let count = |abi, nr| arguments_used(abi, nr, |_| None);
        assert_eq!(count(Abi::I386, 20), 0);
        assert_eq!(count(Abi::I386, 208), 3);
        assert_eq!(count(Abi::X86_64, 1), 3);
        assert_eq!(count(Abi::X86_64, 9), 6);
        assert_eq!(count(Abi::X86_64, 9999), 6);
        assert_eq!(arguments_used(Abi::X86_64, 202, |index| (index == 1).then_some(0x81)), 4);
        assert_eq!(count(Abi::X86_64, 202), 6);
    }

    #[test]
    fn no_call_is_listed_twice() {
        let mut names: Vec<&str> = BY_COUNT.iter().flat_map(|names| names.split(' ')).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
