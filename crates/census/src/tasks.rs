//! The tasks of a kernel: their stacks and their upper page tables.

use kelf::Machine;
use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::memory::PAGE;
use crate::running::Running;

/// Maximum number of tasks (`PID_MAX_LIMIT`).
const MAX_TASKS: u64 = 4 << 20;

/// Maximum size of a stack in bytes.
const MAX_STACK: u64 = 1 << 20;

/// Memory that tasks hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// Number of threads.
    pub threads: u64,
    /// The physical addresses of the pages of their stacks.
    pub stacks: Vec<u64>,
    /// The physical addresses of the pages of the upper page tables.
    pub tables: Vec<u64>,
}

impl Tasks {
    /// Walks the list of tasks.
    ///
    /// # Errors
    /// If the core contradicts itself or lacks a part.
    pub fn read(running: &mut Running<'_>) -> Result<Tasks> {
        let layouts = running.layouts;
        let (tasks, node) =
            (layouts.field("task_struct", "tasks")?, layouts.field("task_struct", "thread_node")?);
        let threads = layouts.field("signal_struct", "thread_head")?;
        // The linker script reserves exactly the stack of the first task (`include/asm-generic/vmlinux.lds.h`).
        let stack_size =
            running.symbol("__end_init_stack")?.wrapping_sub(running.symbol("__start_init_stack")?);
        if stack_size == 0 || stack_size > MAX_STACK {
            let problem = format!("stacks of {stack_size} bytes");
            return Err(running.memory.damaged("__end_init_stack", problem, "some pages"));
        }
        // The table of 32-bit ARM has 4,096 entries of 4 bytes.
        let table_size = if running.machine() == Machine::Arm { 4 * PAGE } else { PAGE };
        let first = running.symbol("init_task")?;
        let others = running.memory.list(first.wrapping_add(tasks.offset), MAX_TASKS, "the list of tasks")?;
        let leaders = others.into_iter().map(|member| member.wrapping_sub(tasks.offset));
        let mut found = Tasks::default();
        let mut spaces = FxHashSet::default();
        for leader in std::iter::once(first).chain(leaders) {
            let place = format!("the threads of the task at {leader:#x}");
            let signals = running.member(leader, "task_struct", "signal")?;
            for member in running.memory.list(signals.wrapping_add(threads.offset), MAX_TASKS, &place)? {
                let task = member.wrapping_sub(node.offset);
                found.threads += 1;
                let stack = running.member(task, "task_struct", "stack")?;
                let pages = (0..stack_size / PAGE).map(|number| stack.wrapping_add(number * PAGE));
                found.stacks.extend(pages.map(|page| running.memory.physical(page)));
                for member in ["mm", "active_mm"] {
                    let space = running.member(task, "task_struct", member)?;
                    if space != 0 && spaces.insert(space) {
                        let table = running.member(space, "mm_struct", "pgd")?;
                        let pages = (0..table_size / PAGE).map(|number| table.wrapping_add(number * PAGE));
                        found.tables.extend(pages.map(|page| running.memory.physical(page)));
                    }
                }
            }
        }
        Ok(found)
    }
}
