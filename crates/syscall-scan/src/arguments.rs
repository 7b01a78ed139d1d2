//! Arguments of system calls and their registers.
//!
//! Registers after the last argument hold leftover values. The kernel neither reads nor writes through them. It reads
//! only the low half of a 64-bit register for an argument declared as `int`.
//!
//! `fixtures/tables/prototypes.py` extracts the prototypes from the kernel's own declarations (`SYSCALL_DEFINEn` of
//! Linux 6.12).

use std::sync::LazyLock;

use kisa::low_mask;
use kplan::Abi;
use rustc_hash::FxHashMap;

use crate::abi::{name, of_abi, word_size};

/// Maximum number of registers with arguments of a system call.
pub const MAX_ARGUMENTS: usize = 6;

/// The arguments that a system call takes, register by register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prototype {
    /// The letters of its arguments; see the head of `prototypes.py`.
    letters: &'static str,
    /// Size of a register in bytes.
    word: u8,
}

/// The lines of the table, by name.
static PROTOTYPES: LazyLock<FxHashMap<&'static str, &'static str>> = LazyLock::new(|| {
    include_str!("../tables/prototypes.txt").lines().filter_map(|line| line.split_once(' ')).collect()
});

impl Prototype {
    /// Returns the prototype of a system call; `None` if the number is unknown.
    pub fn of(abi: Abi, number: u64) -> Option<Prototype> {
        Prototype::named(abi, name(abi, u32::try_from(number).ok()?)?)
    }

    /// Returns the prototype of the system call of this name, which need not have a number in the ABI.
    pub fn named(abi: Abi, name: &str) -> Option<Prototype> {
        let letters = of_abi(PROTOTYPES.get(name)?.split(' '), abi)?.trim_matches(['(', ')']);
        Some(Prototype { letters, word: word_size(abi) })
    }

    /// Returns the number of its registers, including skipped ones in the middle.
    pub fn count(self) -> usize {
        self.letters.len()
    }

    /// Returns how many bits of an argument's register the kernel reads.
    pub fn bits(self, argument: usize) -> u8 {
        match self.letters.as_bytes().get(argument) {
            None | Some(b'-') => 0,
            Some(b'h') => 16,
            Some(b'i') => 32,
            Some(_) => 8 * self.word,
        }
    }

    /// Returns whether an argument is a pointer.
    pub fn is_pointer(self, argument: usize) -> bool {
        self.letters.as_bytes().get(argument) == Some(&b'p')
    }

    /// Returns the part of a register's content that the kernel reads.
    pub fn seen(self, argument: usize, content: u64) -> u64 {
        match self.bits(argument) {
            0 => 0,
            bits => content & low_mask(bits / 8),
        }
    }
}

/// Returns the maximum number of arguments of a system call that the kernel reads. `argument` returns the known value
/// of an argument.
pub fn arguments_used(abi: Abi, number: u64, argument: impl Fn(usize) -> Option<u64>) -> usize {
    let name = u32::try_from(number).ok().and_then(|number| name(abi, number));
    // FUTEX_WAIT and FUTEX_WAKE, apart from the private flag, do not use the last two arguments.
    if name == Some("futex") && argument(1).is_some_and(|operation| matches!(operation & 0x7f, 0 | 1)) {
        return 4;
    }
    Prototype::of(abi, number).map_or(MAX_ARGUMENTS, Prototype::count)
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
    fn the_kernel_sees_so_many_bits() {
        let openat = Prototype::of(Abi::X86_64, 257).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|argument| openat.bits(argument)), [32, 64, 32, 16, 0]);
        assert_eq!(openat.seen(0, -100i64 as u64), 0xffff_ff9c);
        assert_eq!(openat.seen(3, 0xffff_01ff), 0x1ff);
        // On ARM, the position starts at an even register.
        let pread = |abi| Prototype::of(abi, 180).unwrap();
        assert_eq!(pread(Abi::Arm).bits(3), 0);
        assert_eq!((pread(Abi::Arm).count(), pread(Abi::I386).count()), (6, 5));
    }

    #[test]
    fn every_call_has_a_prototype() {
        for abi in [Abi::I386, Abi::X86_64, Abi::Arm, Abi::Aarch64] {
            for call in (0..1024).filter(|&number| name(abi, number).is_some()) {
                let prototype = Prototype::of(abi, call.into());
                if !UNKNOWN.split(' ').any(|unknown| Some(unknown) == name(abi, call)) {
                    assert!(prototype.is_some(), "{abi}: {call}");
                }
            }
        }
    }

    /// Calls that Linux 6.12 does not have: removed earlier or added later.
    const UNKNOWN: &str = "\
        _sysctl afs_syscall bdflush break create_module epoll_ctl_old epoll_wait_old file_getattr \
        file_setattr ftime get_kernel_syms getpmsg getxattrat gtty idle listxattrat lock \
        lookup_dcookie mpx nfsservctl open_tree_attr pciconfig_iobase prof profil putpmsg query_module \
        removexattrat security setxattrat stty tuxcall ulimit uprobe vserver";
}
