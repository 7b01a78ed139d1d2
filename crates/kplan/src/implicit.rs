//! The system calls that no scan of a program can find.
//!
//! The kernel maps a shared object, the vDSO, into every process. Its functions read the clock without entering the
//! kernel, and fall back to a system call where the clock source does not allow that. Its signal trampolines return
//! from a handler that has no restorer of its own. The kernel also restarts an interrupted call by writing the number
//! of `restart_syscall` into the program's registers. The program's file contains none of these calls, and a program
//! cannot avoid them: it does not choose its clock source.
//!
//! The scanner adds these calls to its plan, marked with [`Via`]. A pass that removes system calls adds them to any
//! plan, because a plan may have been written by hand.

use crate::abi::Abi;
use crate::call::Via;

/// An implicit call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImplicitCall {
    /// Its number in the ABI.
    pub nr: u32,
    /// Its name, as in `<asm/unistd.h>`.
    pub name: &'static str,
    /// The code that makes it.
    pub via: Via,
    /// The place in the kernel's source (6.12) that makes it.
    pub source: &'static str,
}

const fn kernel(nr: u32, name: &'static str, source: &'static str) -> ImplicitCall {
    ImplicitCall { nr, name, via: Via::Kernel, source }
}

const fn vdso(nr: u32, name: &'static str, source: &'static str) -> ImplicitCall {
    ImplicitCall { nr, name, via: Via::Vdso, source }
}

const X86_RESTART: &str = "arch/x86/kernel/signal.c: get_nr_restart_syscall()";
const X86_FALLBACKS: &str = "arch/x86/include/asm/vdso/gettimeofday.h";

/// `clock_getres_time64` (406) is in the same header, but no function of the 32-bit vDSO uses it; `time`
/// and `getcpu` have no fallback.
const I386: &[ImplicitCall] = &[
    kernel(0, "restart_syscall", X86_RESTART),
    vdso(78, "gettimeofday", X86_FALLBACKS),
    vdso(119, "sigreturn", "arch/x86/entry/vdso/vdso32/sigreturn.S"),
    vdso(173, "rt_sigreturn", "arch/x86/entry/vdso/vdso32/sigreturn.S"),
    vdso(265, "clock_gettime", X86_FALLBACKS),
    vdso(266, "clock_getres", X86_FALLBACKS),
    vdso(403, "clock_gettime64", X86_FALLBACKS),
];

/// A 64-bit program brings its own signal restorer, which a scan finds.
const X86_64: &[ImplicitCall] = &[
    vdso(96, "gettimeofday", X86_FALLBACKS),
    kernel(219, "restart_syscall", X86_RESTART),
    vdso(228, "clock_gettime", X86_FALLBACKS),
    vdso(229, "clock_getres", X86_FALLBACKS),
    vdso(318, "getrandom", "arch/x86/include/asm/vdso/getrandom.h"),
];

const ARM: &[ImplicitCall] = &[
    kernel(0, "restart_syscall", "arch/arm/kernel/entry-common.S: slow_work_pending"),
    vdso(78, "gettimeofday", "arch/arm/include/asm/vdso/gettimeofday.h"),
    kernel(119, "sigreturn", "arch/arm/kernel/sigreturn_codes.S"),
    kernel(173, "rt_sigreturn", "arch/arm/kernel/sigreturn_codes.S"),
    vdso(263, "clock_gettime", "arch/arm/include/asm/vdso/gettimeofday.h"),
    vdso(264, "clock_getres", "arch/arm/include/asm/vdso/gettimeofday.h"),
    vdso(403, "clock_gettime64", "arch/arm/include/asm/vdso/gettimeofday.h"),
];

const AARCH64: &[ImplicitCall] = &[
    vdso(113, "clock_gettime", "arch/arm64/include/asm/vdso/gettimeofday.h"),
    vdso(114, "clock_getres", "arch/arm64/include/asm/vdso/gettimeofday.h"),
    kernel(128, "restart_syscall", "arch/arm64/kernel/signal.c: setup_restart_syscall()"),
    vdso(139, "rt_sigreturn", "arch/arm64/kernel/vdso/sigreturn.S"),
    vdso(169, "gettimeofday", "arch/arm64/include/asm/vdso/gettimeofday.h"),
    vdso(278, "getrandom", "arch/arm64/include/asm/vdso/getrandom.h"),
];

/// Returns the calls that the kernel and its vDSO make on behalf of any program of this ABI, by rising number.
pub fn implicit_calls(abi: Abi) -> &'static [ImplicitCall] {
    match abi {
        Abi::I386 => I386,
        // The vDSO uses the program's own ABI. Programs here are x86-64, even if they make x32 calls.
        Abi::X32 => &[],
        Abi::X86_64 => X86_64,
        Abi::Arm => ARM,
        Abi::Aarch64 => AARCH64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        for abi in [Abi::I386, Abi::X86_64, Abi::Arm, Abi::Aarch64] {
            assert!(implicit_calls(abi).is_sorted_by_key(|call| call.nr), "{abi}");
        }
    }
}
