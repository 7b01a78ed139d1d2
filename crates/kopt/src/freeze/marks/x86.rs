//! Roots of the closure, and where it ends, in kernels for i386 and x86-64, and in those for each.

use super::mark::Reach::{Alone, Calls, UpTo};
use super::mark::What::{Function, Object, Section};
use super::mark::{Mark, Stop, needed, perhaps};
use crate::freeze::reason::Reason::{Early, Exception, Power, Thaw};

/// The roots of both.
pub const MARKS: &[Mark] = &[
    // The fault handlers of the runtime (kdecomp-rt/kernel/x86_page.c).
    perhaps(Thaw, Calls, Function("__wrap_exc_page_fault|__wrap_early_fixup_exception")),
    perhaps(Thaw, Calls, Function("kvm_sched_clock_read|vmware_sched_clock|read_hv_sched_clock_tsc")),
    // arch/x86/mm/fault.c: up to the read of the fault's address, which another fault would overwrite.
    needed(Thaw, Alone, Function("exc_page_fault")),
    // Thawing works from `start_kernel` on; the runtime starts just before it.
    perhaps(Early, UpTo("start_kernel"), Function("__wrap_start_kernel")),
    // An instruction that may fault: a model-specific register that the processor may lack (microcode).
    perhaps(Early, Calls, Function("fixup_exception")),
    perhaps(Early, Alone, Object("arch/x86/kernel/early_printk.o")),
    perhaps(Early, Alone, Object("drivers/tty/serial/8250/8250_early.o")),
    // Code of these sections does not freeze itself. The data that it reads must be present as well.
    needed(Exception, Alone, Section(".entry.text")),
    needed(Exception, Alone, Section(".noinstr.text")),
    perhaps(Exception, Alone, Section(".head.text")),
    perhaps(Exception, Alone, Section(".cpuidle.text")),
    perhaps(Exception, Alone, Section(".irqentry.text")),
    perhaps(Exception, Alone, Section(".softirqentry.text")),
    // arch/x86/kernel/nmi.c: this runs in every NMI. A handler that finds a defect may thaw.
    needed(Exception, Calls, Function("exc_nmi")),
    // A processor prints this report in an NMI at another one's request (lib/nmi_backtrace.c), or in every oops. Few
    // pages are available for NMIs, and none if the allocator is the defect.
    perhaps(Exception, Calls, Function("nmi_cpu_backtrace")),
    needed(Exception, Calls, Function("show_regs")),
    perhaps(Exception, Alone, Function("doublefault_shim|exc_double_fault")),
    // During a task switch, the stack is already the next task's, and the current task is still the previous one.
    needed(Exception, Calls, Function("__switch_to")),
    // Translation buffers, and the page tables that a processor will use next.
    needed(Exception, Alone, Object("arch/x86/mm/tlb.o")),
    // A starting processor has no handler before `cpu_init_exception_handling`. One that stops for kexec, or copies
    // memory for hibernation, must not change memory.
    perhaps(Power, Alone, Function("start_secondary")),
    perhaps(Power, Calls, Function("cpu_init_exception_handling|cr4_init")),
    perhaps(Power, Calls, Function("cpu_init")),
    perhaps(Power, Calls, Function("native_play_dead|play_dead_common|hlt_play_dead|machine_real_restart")),
    perhaps(Power, Alone, Object("kernel/power/snapshot.o")),
    perhaps(Power, Alone, Object("arch/x86/power/cpu.o")),
    perhaps(Power, Alone, Object("arch/x86/power/hibernate.o")),
    perhaps(Power, Alone, Object("arch/x86/kernel/acpi/sleep.o")),
];

/// The roots of i386.
pub const I386: &[Mark] = &[
    // arch/x86/kernel/head32.c.
    needed(Early, UpTo("__wrap_start_kernel|start_kernel"), Function("i386_start_kernel")),
    // Before paging: `.head.text`, and from Linux 7 on `.init.text`.
    needed(Early, Alone, Object("arch/x86/kernel/head_32.o")),
    perhaps(Early, Calls, Function("mk_early_pgtbl_32")),
    perhaps(Power, Alone, Object("arch/x86/power/hibernate_32.o")),
    perhaps(Power, Alone, Object("arch/x86/kernel/machine_kexec_32.o")),
    // Firmware that is called with page tables of its own.
    perhaps(Power, Alone, Object("arch/x86/platform/efi/efi_32.o")),
];

/// The roots of x86-64.
pub const X86_64: &[Mark] = &[
    // arch/x86/kernel/head64.c. Some of it runs at physical addresses.
    needed(Early, UpTo("__wrap_start_kernel|start_kernel"), Function("x86_64_start_reservations")),
    needed(Early, UpTo("x86_64_start_reservations"), Function("x86_64_start_kernel")),
    needed(Early, Alone, Object("arch/x86/kernel/head64.o")),
    needed(Early, Alone, Object("arch/x86/kernel/head_64.o")),
    // The handler of faults before `setup_arch` replaces it, and its page tables of the linear mapping.
    needed(Thaw, Calls, Function("do_early_exception")),
    needed(Thaw, Calls, Function("early_make_pgtable|__early_make_pgtable")),
    // The descriptors, and the base of per-CPU data, which every handler reads.
    perhaps(Exception, Calls, Function("switch_gdt_and_percpu_base|load_direct_gdt|load_fixmap_gdt")),
    // Exceptions with stacks of their own.
    perhaps(Exception, Alone, Function("exc_debug|exc_debug_user|exc_debug_kernel|exc_machine_check")),
    perhaps(Power, Alone, Function("syscall_init|idt_syscall_init")),
    perhaps(Power, Alone, Object("arch/x86/power/hibernate_64.o")),
    perhaps(Power, Alone, Object("arch/x86/kernel/machine_kexec_64.o")),
    perhaps(Power, Alone, Object("arch/x86/platform/efi/efi_64.o")),
];

/// The functions where the closure ends.
pub const STOPS: &[Stop] = &[
    Stop {
        function: "restore_regs_and_return_to_kernel",
        why: "early handlers return through the text of entries, which is pinned alone, above",
    },
    Stop {
        function: "syscall_init|idt_syscall_init",
        why: "a starting processor gets the addresses of entries there, and calls none; pinned alone, above",
    },
    Stop {
        function: "exc_page_fault|early_fixup_exception",
        why: "the kernel's own handlers run after those of the runtime; the first is pinned alone, above",
    },
    Stop {
        function: "ret_from_fork|schedule_tail|syscall_exit_to_user_mode",
        why: "the unwinder compares addresses with the text where a new task begins, and calls none of it",
    },
    Stop {
        function: "insn_decode|insn_init|insn_get_length|insn_get_addr_ref|insn_get_modrm|insn_get_opcode|send_sigio|kill_fasync",
        why: "it handles an access to user memory, or a signal to a task; before anything can thaw there is no task",
    },
];
