//! The ABIs of system calls: their registers, their names and numbers.

use kelf::Machine;
use kisa::SystemCall;
use kplan::Abi;

/// Returns the ABI of a system call in this machine's code. `compat`: through the 32-bit gate of a 64-bit machine.
pub fn abi(machine: Machine, compat: bool) -> Abi {
    let programs = &machine.target().programs;
    if compat { programs.gate_abi } else { programs.abi }
}

/// Returns the size of an address in bytes.
pub fn word_size(abi: Abi) -> u8 {
    Machine::of_abi(abi).word_size()
}

/// Returns the registers of a system call.
pub fn registers(abi: Abi) -> &'static SystemCall {
    &kisa::isa(Machine::of_abi(abi)).convention().system_call
}

/// The bit that distinguishes an x32 number from an x86-64 number (`__X32_SYSCALL_BIT`).
const X32_BIT: u32 = 1 << 30;

/// The number of the first x32-only call, and the names of those calls, as in `syscall_64.tbl`. All other calls are
/// those of x86-64.
const X32_OWN: usize = 512;
const X32_NAMES: &str = "\
    rt_sigaction rt_sigreturn ioctl readv writev recvfrom sendmsg recvmsg execve ptrace rt_sigpending \
    rt_sigtimedwait rt_sigqueueinfo sigaltstack timer_create mq_notify kexec_load waitid \
    set_robust_list get_robust_list vmsplice move_pages preadv pwritev rt_tgsigqueueinfo recvmmsg \
    sendmmsg process_vm_readv process_vm_writev setsockopt getsockopt io_setup io_submit execveat \
    preadv2 pwritev2";

/// The number of the first ARM-only call (`__ARM_NR_BASE + 1`), and the names of those calls, as in `libseccomp`.
const ARM_OWN: usize = 0xf_0001;
const ARM_NAMES: [&str; 6] = ["breakpoint", "cacheflush", "usr26", "usr32", "set_tls", "get_tls"];

/// Returns the ABI of a call with this number, and its number in that ABI.
pub fn split(abi: Abi, number: u32) -> (Abi, u32) {
    match abi {
        Abi::X86_64 if number & X32_BIT != 0 => (Abi::X32, number & !X32_BIT),
        _ => (abi, number),
    }
}

/// Returns the name of a system call, as in `<asm/unistd.h>`.
pub fn name(abi: Abi, number: u32) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    let name = match abi {
        Abi::I386 => syscalls::x86::Sysno::new(number).map(|call| call.name()),
        Abi::X86_64 => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
        Abi::X32 => match number.checked_sub(X32_OWN) {
            Some(own) => X32_NAMES.split(' ').nth(own),
            None => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
        },
        Abi::Arm => match number.checked_sub(ARM_OWN) {
            Some(own) => ARM_NAMES.get(own).copied(),
            None => syscalls::arm::Sysno::new(number).map(|call| call.name()),
        },
        Abi::Aarch64 => syscalls::aarch64::Sysno::new(number).map(|call| call.name()),
    };
    // Names that differ between the crate and the kernel's headers.
    name.map(|name| match name {
        "fstatat" => "newfstatat",
        name => name.trim_start_matches("r#"),
    })
}

/// Returns the entry for an ABI in a table line: the first word `ABI=WORD` for it, or a plain `WORD` for all ABIs.
pub(crate) fn of_abi<'w>(mut words: impl Iterator<Item = &'w str>, abi: Abi) -> Option<&'w str> {
    let abi = abi.to_string();
    words.find_map(|word| match word.split_once('=') {
        Some((own, rest)) => (own == abi).then_some(rest),
        None => Some(word),
    })
}

/// Returns the number of the system call of this name, if the ABI has it.
pub fn number(abi: Abi, call: &str) -> Option<u32> {
    let private = 0x000f_0000..0x000f_0010; // private to ARM
    (0..1024).chain(private).find(|&number| name(abi, number) == Some(call))
}

/// Returns whether this system call never returns.
pub fn ends(abi: Abi, number: u64) -> bool {
    let name = u32::try_from(number).ok().and_then(|number| name(abi, number));
    matches!(name, Some("exit" | "exit_group" | "sigreturn" | "rt_sigreturn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(name(Abi::I386, 1), Some("exit"));
        assert_eq!(name(Abi::I386, 403), Some("clock_gettime64"));
        assert_eq!(name(Abi::X86_64, 231), Some("exit_group"));
        assert_eq!(name(Abi::X86_64, 100_000), None);
        assert_eq!(split(Abi::X86_64, 0x4000_0208), (Abi::X32, 520));
        assert_eq!((name(Abi::X32, 520), name(Abi::X32, 547)), (Some("execve"), Some("pwritev2")));
        assert_eq!((name(Abi::X32, 39), name(Abi::X32, 548)), (Some("getpid"), None));
        assert_eq!(
            (name(Abi::Arm, 0xf_0005), number(Abi::Arm, "set_tls")),
            (Some("set_tls"), Some(0xf_0005))
        );
        assert!(ends(Abi::I386, 252) && !ends(Abi::I386, 4));
        for abi in [Abi::I386, Abi::X86_64, Abi::Arm, Abi::Aarch64] {
            for call in kplan::implicit_calls(abi) {
                assert_eq!(name(abi, call.nr), Some(call.name), "{abi}");
            }
        }
    }
}
