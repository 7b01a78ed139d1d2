//! The properties of machines: what their files, compilers and kernels do, one record each.
//!
//! Code asks for a property ([`Target::has_literals`]), never for a machine by its name. A new machine is one more
//! record here and one directory of `kisa`; the compiler names every property that the record lacks.

mod aarch64;
mod arm;
mod i386;
mod x86_64;

use kplan::Abi;

use crate::addend::Coding;
use crate::machine::Machine;
use crate::reloc::{DynamicReloc, Half, RelocClass};

/// The properties of a machine.
#[derive(Debug)]
pub struct Target {
    /// The name in messages and documents.
    pub name: &'static str,
    /// `e_machine` of its ELF files.
    pub e_machine: u16,
    /// Whether its ELF files are of class 64.
    pub is_64: bool,
    /// Whether relocation sections carry their addends (RELA) or leave them in place (REL).
    pub is_rela: bool,
    /// Whether kshrink rewrites its code.
    pub is_rewritten: bool,
    /// Whether bit 0 of the address of a function or a label in code gives the encoding of its instructions, and is not
    /// part of the address (IHI 0044, 5.5.3). Such an address is always relative to the symbol of the function.
    pub has_encoding_bit: bool,
    /// The symbols, without a suffix, that only give the kind of the bytes after them (IHI 0044, 5.5.5; IHI 0056,
    /// 5.7.2).
    pub mapping_symbols: &'static [&'static str],
    /// Whether the field of a branch is the whole instruction, in the machine's own encoding, and not a plain number.
    pub has_encoded_branches: bool,
    /// Whether instructions compute the address of data from a relocated distance to themselves.
    pub has_relative_addresses: bool,
    /// Whether instructions read constants and addresses among the code, within a short distance.
    pub has_literals: bool,
    /// Whether compilers reach several variables from the address of one (`-fsection-anchors`).
    pub has_section_anchors: bool,
    /// Whether a branch to another section must refer to a symbol at its destination, because GNU ld (2.40) drops the
    /// addend if it leads the branch around an erratum of the processor (`--fix-cortex-a8`, on by default for ARMv7-A).
    pub drops_branch_addends: bool,
    /// Whether an index of unwind tables lists the functions in the order of their addresses (`.ARM.exidx`, IHI 0038).
    pub has_unwind_index: bool,
    /// The alignment of instructions in bytes; on machines with an encoding bit, of those without the bit.
    pub code_alignment: u8,
    /// Whether position-independent code computes the address of the global offset table from a return address and
    /// keeps it in a register, because instructions have no addresses relative to their own.
    pub has_got_register: bool,
    /// Its relocations.
    pub relocs: Relocs,
    /// Its programs.
    pub programs: Programs,
    /// Its kernels.
    pub kernel: Kernel,
}

/// The relocations of a machine, by the numbers of its System V ABI supplement.
#[derive(Debug)]
pub struct Relocs {
    /// The machine in the names of relocations: `386` of `R_386_32`.
    pub(crate) prefix: &'static str,
    /// See [`crate::reloc::describe`].
    pub(crate) describe: fn(u32) -> Option<(RelocClass, u8)>,
    /// See [`crate::reloc::absolute_word`].
    pub(crate) absolute_word: u32,
    /// See [`crate::reloc::absolute_32`].
    pub(crate) absolute_32: u32,
    /// See [`crate::reloc::relative_32`].
    pub(crate) relative_32: u32,
    /// See [`crate::reloc::branch`].
    pub(crate) branch: u32,
    /// See [`crate::reloc::branch_bias`].
    pub(crate) branch_bias: fn(u32) -> Option<u8>,
    /// The relocations that do not reach every place of a program, see [`crate::reloc::reaches_everywhere`].
    pub(crate) is_short: fn(u32) -> bool,
    /// See [`crate::reloc::is_distance`].
    pub(crate) is_distance: fn(u32) -> bool,
    /// See [`crate::reloc::counts_from_place`].
    pub(crate) counts_from_place: fn(u32) -> bool,
    /// See [`crate::reloc::is_added_to_pc`].
    pub(crate) is_added_to_pc: fn(u32) -> bool,
    /// See [`crate::reloc::counts_from_end`].
    pub(crate) counts_from_end: fn(u32) -> bool,
    /// See [`crate::reloc::is_in_sequence`].
    pub(crate) is_in_sequence: fn(u32) -> bool,
    /// See [`crate::reloc::counts_from_itself`].
    pub(crate) counts_from_itself: fn(u32) -> bool,
    /// Whether the linker accepts no section symbol for thread-local storage.
    pub(crate) names_thread_storage: bool,
    /// The name of a relocation for which goblin has none, or an older one.
    pub(crate) renamed: fn(u32) -> Option<&'static str>,
    /// The encoding of addends in instructions; `None` for plain numbers.
    pub(crate) coding: fn(u32) -> Option<Coding>,
    /// See [`crate::reloc::is_in_thumb_code`].
    pub(crate) is_in_thumb_code: fn(u32) -> bool,
    /// See [`crate::reloc::half`].
    pub(crate) half: fn(u32) -> Option<Half>,
    /// See [`crate::reloc::dynamic`].
    pub(crate) dynamic: fn(u32) -> DynamicReloc,
}

/// Properties of the programs of a machine.
#[derive(Debug)]
pub struct Programs {
    /// The ABI of their system calls.
    pub abi: Abi,
    /// The ABI of system calls through the 32-bit gate of a 64-bit machine (`int $0x80`); elsewhere, the same.
    pub gate_abi: Abi,
    /// The name in the paths of musl (`/etc/ld-musl-NAME.path`).
    pub musl: &'static str,
    /// The names of their library directories on multiarch systems.
    pub triplets: &'static [&'static str],
    /// Whether the kernel maps the vsyscall page into them (arch/x86/entry/vsyscall/vsyscall_64.c).
    pub has_vsyscall: bool,
}

/// Properties of the kernels of a machine.
#[derive(Debug)]
pub struct Kernel {
    /// `ARCH` of the kernel's own make.
    pub arch: &'static str,
    /// The boot images, below the build directory and beside the kernel.
    pub boot_images: [&'static str; 2],
    /// The symbols that bound the image in memory; the first pair that a kernel has counts.
    pub reserved: &'static [Bounds],
    /// The symbols that bound the parts that the kernel frees at boot.
    pub freed: &'static [Bounds],
    /// The lowest address of code of the kernel and its modules.
    pub lowest: Lowest,
    /// The way in which the command line is made; `None` if it is not supported.
    pub command_line: Option<BootLine>,
    /// `COMMAND_LINE_SIZE` (arch/x86/include/asm/setup.h, arch/arm/include/uapi/asm/setup.h,
    /// include/uapi/asm-generic/setup.h), in bytes, with the 0 byte at the end.
    pub command_line_size: usize,
}

/// The way in which a kernel makes its command line from the boot loader's and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootLine {
    /// `setup_arch` puts them together.
    Setup,
    /// It is in the device tree.
    DeviceTree,
}

/// The lowest address of code of a kernel and its modules.
#[derive(Clone, Copy, Debug)]
pub enum Lowest {
    /// The upper half of the address space.
    UpperHalf,
    /// This number of bytes below the first section of the kernel.
    BelowKernel(u64),
}

/// A pair of symbols that bound a range.
pub type Bounds = (&'static str, &'static str);

/// The initialization code and data, which every kernel frees.
const INIT: Bounds = ("__init_begin", "__init_end");

/// The image of a kernel for x86.
const X86_IMAGE: &[Bounds] = &[("_text", "__end_of_kernel_reserve"), ("_text", "__bss_stop")];

impl Machine {
    /// Every machine.
    pub const ALL: [Machine; 4] = [Machine::I386, Machine::X86_64, Machine::Arm, Machine::Aarch64];

    /// Returns the machine whose programs use an ABI.
    pub fn of_abi(abi: Abi) -> Machine {
        match abi {
            Abi::I386 => Machine::I386,
            Abi::X86_64 | Abi::X32 => Machine::X86_64,
            Abi::Arm => Machine::Arm,
            Abi::Aarch64 => Machine::Aarch64,
        }
    }

    /// Returns the machine's properties.
    pub fn target(self) -> &'static Target {
        match self {
            Machine::I386 => &i386::TARGET,
            Machine::X86_64 => &x86_64::TARGET,
            Machine::Arm => &arm::TARGET,
            Machine::Aarch64 => &aarch64::TARGET,
        }
    }
}
