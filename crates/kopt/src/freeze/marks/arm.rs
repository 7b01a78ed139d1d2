//! Roots of the closure, and where it ends, in kernels for 32-bit ARM.

use super::mark::Reach::{Alone, Calls, UpTo};
use super::mark::What::{Function, GivenTo, HandWritten, Object, OperationsOf, Section};
use super::mark::{Mark, Stop, needed, perhaps};
use crate::freeze::reason::Reason::{Early, Exception, Power, Thaw};

/// The roots.
pub const MARKS: &[Mark] = &[
    // The fault handlers of the runtime (kdecomp-rt/kernel/arm_page.c).
    perhaps(Thaw, Calls, Function("__wrap_do_DataAbort|__wrap_do_PrefetchAbort|kshrink_early_abort")),
    // Assembly calls these before the handlers if interrupt events are traced (arch/arm/kernel/entry-header.S).
    perhaps(Thaw, Calls, Function("trace_hardirqs_on|trace_hardirqs_off")),
    // kernel/time/sched_clock.c calls the function that a timer driver has registered.
    perhaps(Thaw, Calls, GivenTo("sched_clock_register")),
    // arch/arm/mm/fault.c: the kernel's own handlers, up to the point where they have identified the fault.
    needed(Thaw, Alone, Function("do_DataAbort|do_PrefetchAbort")),
    // With long descriptors, it copies the entries of the module area, of frozen addresses, to the tables of a process.
    perhaps(Thaw, Alone, Function("do_translation_fault")),
    // Thawing works from `start_kernel` on; the runtime starts just before it (arch/arm/kernel/head-common.S).
    perhaps(Early, UpTo("start_kernel"), Function("__wrap_start_kernel")),
    perhaps(Early, Alone, Object("arch/arm/kernel/early_printk.o")),
    // Assembly does not freeze itself. The data that it reads must be present as well, because some of it runs in modes
    // whose stacks have room for one exception only.
    perhaps(Exception, Alone, HandWritten),
    perhaps(Exception, Alone, Section(".noinstr.text")),
    perhaps(Exception, Alone, Section(".cpuidle.text")),
    perhaps(Exception, Alone, Section(".irqentry.text")),
    perhaps(Exception, Alone, Section(".softirqentry.text")),
    // Every oops prints this. No page may be available for it if the allocator is the defect.
    perhaps(Exception, Calls, Function("show_regs|__show_regs")),
    // This runs in a fast interrupt, which may occur while a page-table entry is being made.
    perhaps(Exception, Calls, Function("handle_fiq_as_nmi")),
    // During a task switch, `__switch_to` (arch/arm/kernel/entry-armv.S) calls these, registered with
    // thread_register_notifier(), while the current task is neither of the two.
    needed(Exception, Alone, Function("atomic_notifier_call_chain|notifier_call_chain")),
    perhaps(Exception, Calls, Function("vfp_notifier|contextidr_notifier|thumbee_notifier|nwfpe_notify")),
    // Translation buffers, and the page tables that a processor will use next.
    perhaps(Exception, Alone, Object("arch/arm/mm/context.o")),
    perhaps(Exception, Alone, Object("arch/arm/mm/idmap.o")),
    perhaps(Exception, Alone, Object("arch/arm/kernel/smp_tlb.o")),
    // A starting processor has no exception stacks before `cpu_init`. A stopping one finally has its caches off, when
    // no lock can be taken.
    perhaps(Power, Alone, Function("secondary_start_kernel")),
    perhaps(Power, Alone, Function("idle_task_exit")),
    perhaps(Power, Calls, Function("secondary_biglittle_init|enter_lazy_tlb|cpu_init|arch_cpu_idle_dead")),
    perhaps(Power, Calls, OperationsOf("__cpu_method_of_table|.arch.info.init|.init.arch.info")),
    perhaps(Power, Calls, GivenTo("cpu_suspend")),
    perhaps(Power, Alone, Object("arch/arm/common/mcpm_entry.o")),
    perhaps(Power, Alone, Object("arch/arm/common/mcpm_platsmp.o")),
    perhaps(Power, Alone, Object("arch/arm/common/bL_switcher.o")),
    perhaps(Power, Alone, Object("arch/arm/mm/cache-l2x0.o")),
    perhaps(Power, Alone, Object("arch/arm/kernel/psci_smp.o")),
    perhaps(Power, Alone, Object("drivers/firmware/psci/psci.o")),
    perhaps(Power, Alone, Object("arch/arm/kernel/reboot.o")),
    perhaps(Power, Alone, Object("arch/arm/kernel/machine_kexec.o")),
    perhaps(Power, Alone, Object("arch/arm/kernel/suspend.o")),
    perhaps(Power, Alone, Object("arch/arm/kernel/hibernate.o")),
    perhaps(Power, Alone, Object("kernel/power/snapshot.o")),
];

/// Where the closure ends.
pub const STOPS: &[Stop] = &[
    Stop {
        function: "do_DataAbort|do_PrefetchAbort",
        why: "the kernel's own handlers run after those of the runtime; they are pinned alone, above",
    },
    Stop {
        function: "secondary_start_kernel",
        why: "a stopped processor starts again there; it is pinned alone, above, with what it needs before it can thaw",
    },
    Stop {
        function: "idle_task_exit",
        why: "a processor that stops runs it while its caches are on; it calls only code that is pinned, above",
    },
];
