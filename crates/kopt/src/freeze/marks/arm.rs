//! Roots and ends in kernels for 32-bit ARM.

use super::Reach::{Alone, Calls, UpTo};
use super::Reason::{Early, Exception, Power, Thaw};
use super::What::{Function, GivenTo, HandWritten, Object, OperationsOf, Section};
use super::{Mark, Stop, needed, perhaps};

/// The roots.
pub const MARKS: &[Mark] = &[
    // The fault handlers of the runtime (kdecomp-rt/kernel/arm_page.c).
    perhaps(Thaw, Calls, Function("__wrap_do_DataAbort|__wrap_do_PrefetchAbort|kshrink_early_abort")),
    // What assembly calls before the handlers, where events of interrupts are traced (arch/arm/kernel/entry-header.S).
    perhaps(Thaw, Calls, Function("trace_hardirqs_on|trace_hardirqs_off")),
    // kernel/time/sched_clock.c calls what a driver of a timer has registered.
    perhaps(Thaw, Calls, GivenTo("sched_clock_register")),
    // arch/arm/mm/fault.c: the kernel's own handlers, up to where they know what the fault is.
    needed(Thaw, Alone, Function("do_DataAbort|do_PrefetchAbort")),
    // What is frozen can come back from `start_kernel` on, before which the runtime begins (arch/arm/kernel/head-common.S).
    perhaps(Early, UpTo("start_kernel"), Function("__wrap_start_kernel")),
    perhaps(Early, Alone, Object("arch/arm/kernel/early_printk.o")),
    // Assembly does not freeze itself; what it reads must be there as well: some of it runs in modes whose stacks have room for
    // one exception.
    perhaps(Exception, Alone, HandWritten),
    perhaps(Exception, Alone, Section(".noinstr.text")),
    perhaps(Exception, Alone, Section(".cpuidle.text")),
    perhaps(Exception, Alone, Section(".irqentry.text")),
    perhaps(Exception, Alone, Section(".softirqentry.text")),
    // What every oops says: there is no page for it if the allocator has the defect.
    perhaps(Exception, Calls, Function("show_regs|__show_regs")),
    // What runs in a fast interrupt, which may come while an entry of the page table is being made.
    perhaps(Exception, Calls, Function("handle_fiq_as_nmi")),
    // A task is switched: `__switch_to` (arch/arm/kernel/entry-armv.S) calls these, which are registered with
    // thread_register_notifier(), when the current task is neither of the two.
    needed(Exception, Alone, Function("atomic_notifier_call_chain|notifier_call_chain")),
    perhaps(Exception, Calls, Function("vfp_notifier|contextidr_notifier|thumbee_notifier|nwfpe_notify")),
    // Translation buffers, and the page tables that a processor is about to use.
    perhaps(Exception, Alone, Object("arch/arm/mm/context.o")),
    perhaps(Exception, Alone, Object("arch/arm/mm/idmap.o")),
    perhaps(Exception, Alone, Object("arch/arm/kernel/smp_tlb.o")),
    // A processor that starts has no stacks for exceptions before `cpu_init`; one that stops has its caches off in the end, where
    // no lock can be taken.
    perhaps(Power, Alone, Function("secondary_start_kernel")),
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
pub const STOPS: &[Stop] = &[Stop {
    function: "do_DataAbort|do_PrefetchAbort",
    why: "the kernel's own handlers come behind those of the runtime; they are pinned alone, above",
}];
