//! The vsyscall page, which the x86-64 kernel maps into every process at a fixed address.
//!
//! It is older than the vDSO. Programs that were linked with a C library from before 2012, and some runtimes, call it:
//! three functions, each a separate system call (`arch/x86/entry/vsyscall/vsyscall_emu_64.S` of Linux). No file
//! contains it. The process therefore has an object for the page if some file contains one of the addresses.

use std::ops::Range;
use std::sync::Arc;

use goblin::elf::header::{EM_X86_64, ET_EXEC};
use goblin::elf::program_header::{PF_R, PF_X, PT_LOAD};
use memchr::memmem;

use super::object::Object;

/// Its name in reports, as in `/proc/PID/maps`.
pub(super) const NAME: &str = "[vsyscall]";

/// Its addresses.
const PAGE: Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;

/// Its functions: the offset in the page, and the number of the call (`gettimeofday`, `time`, `getcpu`).
const FUNCTIONS: [(usize, u32); 3] = [(0, 96), (0x400, 201), (0x800, 309)];

/// The sizes of the headers of a 64-bit ELF file.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// Returns the addresses of its functions.
pub(super) fn functions() -> impl Iterator<Item = u64> {
    FUNCTIONS.into_iter().map(|(distance, _)| PAGE.start + distance as u64)
}

/// Returns whether bytes of a file contain the address of one of its functions, either whole or as a sign-extended
/// 32-bit immediate.
pub(super) fn is_named_in(bytes: &[u8]) -> bool {
    functions().any(|function| memmem::find(bytes, &(function as u32).to_le_bytes()).is_some())
}

/// Returns the page as an object.
pub(super) fn object() -> Option<Arc<Object>> {
    let mut page = vec![0xcc; (PAGE.end - PAGE.start) as usize];
    for (distance, number) in FUNCTIONS {
        // mov $number,%eax; syscall; ret
        let code = [&[0xb8][..], &number.to_le_bytes(), &[0x0f, 0x05, 0xc3]].concat();
        page[distance..distance + code.len()].copy_from_slice(&code);
    }
    let mut file = Vec::with_capacity(HEADER + PROGRAM_HEADER + page.len());
    file.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    file.extend([0; 8]);
    file.extend(ET_EXEC.to_le_bytes());
    file.extend(EM_X86_64.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(PAGE.start.to_le_bytes());
    file.extend((HEADER as u64).to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend(0u32.to_le_bytes());
    let sizes = [HEADER, PROGRAM_HEADER, 1, 0, 0, 0];
    file.extend(sizes.into_iter().flat_map(|size| (size as u16).to_le_bytes()));
    file.extend(PT_LOAD.to_le_bytes());
    file.extend((PF_R | PF_X).to_le_bytes());
    let size = page.len() as u64;
    let words = [(HEADER + PROGRAM_HEADER) as u64, PAGE.start, PAGE.start, size, size, size];
    file.extend(words.into_iter().flat_map(u64::to_le_bytes));
    file.extend(page);
    Object::read(&file).ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vsyscall_object_has_code() {
        let object = object().unwrap();
        assert!(object.fixed && object.memory() == PAGE);
        assert!(functions().all(|function| object.is_code(function)));
        assert!(is_named_in(&[0x48, 0xc7, 0xc0, 0x00, 0x04, 0x60, 0xff]));
        assert!(!is_named_in(&[0x00, 0x05, 0x60, 0xff]));
    }
}
