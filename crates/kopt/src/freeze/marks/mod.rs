//! Code that must never freeze in a kernel of Linux 6.1 to 7.2, by name: the roots of [`super::closure`], and the
//! functions where the closure ends. `x86.rs` and `arm.rs` list the code of one machine.
//!
//! A record that matches nothing is an error unless it is optional, so that a renamed function is noticed. Optional
//! names of a newer kernel are looked up in its source ([`names`]).

mod arm;
mod mark;
pub mod names;
mod x86;

use kelf::Machine;

use super::reason::Reason::{Allocator, Thaw};
use mark::Reach::{Alone, Calls};
use mark::What::{Function, Object};
use mark::{needed, perhaps};

pub use mark::{Mark, Reach, Stop, What};

/// The roots in kernels for a machine.
pub fn marks(machine: Machine) -> impl Iterator<Item = &'static Mark> {
    let own: [&[Mark]; 2] = match machine {
        Machine::Arm => [arm::MARKS, &[]],
        Machine::X86_64 => [x86::MARKS, x86::X86_64],
        _ => [x86::MARKS, x86::I386],
    };
    own.into_iter().flatten().chain(COMMON)
}

/// The functions where the closure ends in kernels for a machine.
pub fn stops(machine: Machine) -> impl Iterator<Item = &'static Stop> {
    let own: &[Stop] = match machine {
        Machine::Arm => arm::STOPS,
        _ => x86::STOPS,
    };
    own.iter().chain(COMMON_STOPS)
}

/// The roots of every kernel.
const COMMON: &[Mark] = &[
    // Entry of stubs (kdecomp-rt/kernel/stub.c), and kernel functions that the runtime calls. A fault or a stub in one
    // of these would start the same thaw again.
    perhaps(Thaw, Calls, Function("kshrink_enter")),
    needed(Thaw, Calls, Function("local_clock|sched_clock")),
    perhaps(Thaw, Calls, Function("irq_work_queue")),
    // The runtime does this some time after thaws (kdecomp-rt/kernel/runtime.c). The trace of a kernel without frozen
    // code lacks it.
    perhaps(Thaw, Calls, Function("kshrink_run_settling")),
    perhaps(Thaw, Calls, Function("irq_work_run|irq_work_tick|irq_work_run_list|irq_work_single")),
    // Thawing takes a page. So code must be present that holds the locks of a zone or of a processor's page list
    // (`zone->lock`, `pcp->lock`), or that writes under a seqlock which an allocation reads.
    needed(Allocator, Alone, Object("mm/page_alloc.o")),
    needed(Allocator, Calls, Function("__alloc_pages_noprof|__alloc_pages")),
    needed(Allocator, Calls, Function("get_page_from_freelist")),
    needed(Allocator, Calls, Function("__free_pages")),
    needed(Allocator, Calls, Function("free_unref_page|free_frozen_pages")),
    perhaps(Allocator, Calls, Function("free_unref_folios|free_unref_page_list")),
    perhaps(
        Allocator,
        Calls,
        Function("__isolate_free_page|__free_one_page|free_pcppages_bulk|rmqueue_bulk"),
    ),
    perhaps(
        Allocator,
        Calls,
        Function("drain_all_pages|__drain_all_pages|drain_zone_pages|drain_local_pages"),
    ),
    needed(Allocator, Alone, Function("kswapd|balance_pgdat")),
    perhaps(Allocator, Alone, Object("mm/compaction.o")),
    perhaps(Allocator, Alone, Object("mm/page_isolation.o")),
    perhaps(Allocator, Alone, Object("mm/page_reporting.o")),
    perhaps(Allocator, Alone, Object("mm/memory_hotplug.o")),
    perhaps(Allocator, Alone, Object("mm/shuffle.o")),
    perhaps(Allocator, Alone, Object("mm/page_ext.o")),
    perhaps(Allocator, Alone, Object("kernel/cgroup/cpuset.o")),
    perhaps(Allocator, Alone, Function("show_free_areas|__show_free_areas")),
    // mm/vmstat.c: `walk_zones_in_node` calls these with `zone->lock` held.
    perhaps(Allocator, Alone, Function("walk_zones_in_node")),
    perhaps(Allocator, Calls, Function("frag_show_print|unusable_show_print|extfrag_show_print")),
    perhaps(Allocator, Calls, Function("pagetypeinfo_showfree_print|pagetypeinfo_showblockcount_print")),
    perhaps(Allocator, Calls, Function("zoneinfo_show_print")),
    // Callees of the function tracer at the entry of any function (kernel/trace/trace_functions.c,
    // kernel/trace/ftrace.c), and of trace events that occur with the allocator's locks held or while a page is taken.
    // Following calls does not find them: they are registered when a tracer is switched on.
    perhaps(
        Allocator,
        Calls,
        Function(
            "function_trace_call|function_no_repeats_trace_call|function_stack_trace_call\
             |function_stack_no_repeats_trace_call|arch_ftrace_ops_list_func|ftrace_ops_list_func|ftrace_ops_assist_func\
             |ftrace_pid_func|function_trace_probe_call|prepare_ftrace_return|ftrace_graph_func|ftrace_return_to_handler\
             |trace_graph_entry|trace_graph_return|trace_graph_thresh_return|irqsoff_tracer_call|wakeup_tracer_call\
             |stack_trace_call|perf_ftrace_function_call|function_profile_call",
        ),
    ),
    perhaps(
        Allocator,
        Calls,
        Function(
            "trace_event_raw_event_mm_page_alloc|trace_event_raw_event_mm_page_free|trace_event_raw_event_mm_page\
             |trace_event_raw_event_mm_page_free_batched|trace_event_raw_event_mm_page_pcpu_drain\
             |trace_event_raw_event_mm_page_alloc_extfrag|trace_event_raw_event_contention_begin\
             |trace_event_raw_event_contention_end|trace_event_raw_event_preemptirq_template\
             |trace_event_raw_event_page_ref_mod_template|trace_event_raw_event_page_ref_mod_and_test_template",
        ),
    ),
    perhaps(
        Allocator,
        Calls,
        Function(
            "perf_trace_mm_page_alloc|perf_trace_mm_page_free|perf_trace_mm_page|perf_trace_mm_page_free_batched\
             |perf_trace_mm_page_pcpu_drain|perf_trace_mm_page_alloc_extfrag|perf_trace_contention_begin\
             |perf_trace_contention_end|perf_trace_preemptirq_template|perf_trace_page_ref_mod_template\
             |perf_trace_page_ref_mod_and_test_template",
        ),
    ),
    // Before the page allocator is up, a thaw takes its page from memblock (mm/memblock.c), which may be running.
    needed(Allocator, Alone, Object("mm/memblock.o")),
];

/// The functions where the closure ends in every kernel.
const COMMON_STOPS: &[Stop] = &[
    Stop {
        function: "try_to_free_pages|try_to_compact_pages|out_of_memory|wakeup_kswapd|throttle_direct_reclaim\
                   |__alloc_pages_direct_reclaim|__alloc_pages_direct_compact|__alloc_pages_may_oom\
                   |node_reclaim|compaction_defer_reset",
        why: "a thaw allocates without reclaim; an allocation that reclaims holds no lock of the allocator meanwhile",
    },
    Stop {
        function: "__memcg_kmem_charge_page|__memcg_kmem_uncharge_page|__memcg_slab_post_alloc_hook\
                   |__memcg_slab_free_hook|__mem_cgroup_uncharge|__mem_cgroup_uncharge_folios",
        why: "a thaw allocates without __GFP_ACCOUNT; what charges memory to a group, or takes it back, holds no lock of \
              the allocator, and before there are tasks there is no group",
    },
    Stop {
        function: "warn_alloc|bad_page|dump_page|__dump_page|show_mem|__show_mem|warn_alloc_show_mem",
        why: "it reports a defect that already occurred, and a thaw allocates with __GFP_NOWARN",
    },
    Stop {
        function: "panic|vpanic|nmi_panic|die|oops_begin|oops_end|make_task_dead|do_exit|dump_stack|dump_stack_lvl\
                   |show_regs|__warn|__warn_printk|warn_slowpath_fmt|report_bug|__stack_chk_fail|fortify_panic\
                   |__fortify_panic|__fortify_report|add_taint|print_tainted|handle_bug",
        why: "the kernel is about to stop, or reports a defect of its own",
    },
    Stop {
        function: "schedule|__schedule|preempt_schedule|schedule_timeout|schedule_timeout_uninterruptible\
                   |__cond_resched|io_schedule|io_schedule_timeout|schedule_preempt_disabled|__mutex_lock_slowpath\
                   |__mutex_unlock_slowpath|mutex_lock|mutex_unlock|__down|__up|rwsem_down_read_slowpath\
                   |rwsem_down_write_slowpath|wait_for_completion",
        why: "code that thaws, holds a lock of the allocator, or runs before there are tasks does not sleep",
    },
    Stop {
        function: "try_to_wake_up|wake_up_process|__wake_up|__wake_up_common|__wake_up_locked|swake_up_one\
                   |swake_up_locked|complete|wake_up_q|queue_work_on|__queue_work|schedule_work|mod_timer|add_timer\
                   |irq_work_sync|call_rcu|kvfree_call_rcu|__put_task_struct|raise_softirq",
        why: "before there are tasks nothing waits, and code that holds a lock of the allocator wakes nothing",
    },
];

/// Functions that use a buffer by its physical address, or let others do so: devices (include/linux/scatterlist.h,
/// include/linux/dma-mapping.h, include/linux/bio.h), mappings for user space (include/linux/mm.h), and files and
/// sockets, which may take the pages instead of copying their bytes (include/linux/uio.h).
pub const PHYSICAL: &[&str] = &[
    "sg_init_one",
    "sg_set_page",
    "dma_map_page_attrs",
    "dma_map_phys",
    "dma_map_single_attrs",
    "dma_map_sg_attrs",
    "dma_map_resource",
    "bio_add_page",
    "__bio_add_page",
    "bio_add_virt_nofail",
    "bio_add_vmalloc_chunk",
    "bio_map_kern",
    "blk_rq_map_kern",
    "virtqueue_add_outbuf",
    "virtqueue_add_inbuf",
    "virtqueue_add_sgs",
    "usb_control_msg",
    "usb_bulk_msg",
    "usb_interrupt_msg",
    "spi_sync",
    "remap_pfn_range",
    "vm_insert_page",
    "vm_insert_pages",
    "vm_map_pages",
    "vmf_insert_pfn",
    "vmf_insert_mixed",
    "_install_special_mapping",
    "iov_iter_kvec",
    "iov_iter_bvec",
    "kernel_write",
    "__kernel_write",
    "kernel_sendmsg",
    "kernel_sendmsg_locked",
    "__phys_addr",
    "slow_virt_to_phys",
    "virt_to_head_page",
    "page_address",
];
