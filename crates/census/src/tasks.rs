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

/// The first word of a stack (`STACK_END_MAGIC` in `include/uapi/linux/magic.h`).
const STACK_END: u64 = 0x57ac_6e9d;

/// Memory that tasks hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// The physical addresses of the pages of their stacks.
    pub stacks: Vec<u64>,
    /// The physical addresses of the pages of the upper page tables.
    pub tables: Vec<u64>,
    /// The addresses of their `struct mm_struct`.
    spaces: FxHashSet<u64>,
}

impl Tasks {
    /// Walks the list of tasks, and adds the idle tasks of the processors, which are not on it (`fork_idle` in
    /// `kernel/fork.c`).
    ///
    /// # Errors
    /// If the core contradicts itself or lacks a part.
    pub fn read(running: &mut Running<'_>) -> Result<Tasks> {
        // The linker script reserves exactly the stack of the first task (`include/asm-generic/vmlinux.lds.h`).
        let stack_size =
            running.symbol("__end_init_stack")?.wrapping_sub(running.symbol("__start_init_stack")?);
        if stack_size == 0 || stack_size > MAX_STACK {
            let problem = format!("stacks of {stack_size} bytes");
            return Err(running.memory.damaged("__end_init_stack", problem, "some pages"));
        }
        let tasks = listed(running)?;
        // The idle task of the first processor is on the list.
        let known: FxHashSet<u64> = tasks.iter().copied().collect();
        let mut idle = idle_tasks(running)?;
        idle.retain(|task| !known.contains(task));
        let mut found = Tasks::default();
        for task in tasks.into_iter().chain(idle) {
            found.add(running, task, stack_size)?;
        }
        Ok(found)
    }

    /// Adds the memory of a task.
    fn add(&mut self, running: &mut Running<'_>, task: u64, stack_size: u64) -> Result<()> {
        let stack = running.member(task, "task_struct", "stack")?;
        // A task that has ended has no stack.
        if stack != 0 {
            let first = running.memory.word(stack)?;
            if first != STACK_END {
                let place = format!("the stack of the task at {task:#x}");
                let problem = format!("it begins at {stack:#x} with {first:#x}");
                return Err(running.memory.damaged(&place, problem, format!("{STACK_END:#x}")));
            }
            let pages = (0..stack_size / PAGE).map(|number| stack.wrapping_add(number * PAGE));
            self.stacks.extend(pages.map(|page| running.memory.physical(page)));
        }
        // The table of 32-bit ARM has 4,096 entries of 4 bytes.
        let table_size = if running.machine() == Machine::Arm { 4 * PAGE } else { PAGE };
        for member in ["mm", "active_mm"] {
            let space = running.member(task, "task_struct", member)?;
            if space != 0 && self.spaces.insert(space) {
                let table = running.member(space, "mm_struct", "pgd")?;
                let pages = (0..table_size / PAGE).map(|number| table.wrapping_add(number * PAGE));
                self.tables.extend(pages.map(|page| running.memory.physical(page)));
            }
        }
        Ok(())
    }
}

/// Returns the addresses of the tasks on the list of tasks: the threads of each leader.
fn listed(running: &mut Running<'_>) -> Result<Vec<u64>> {
    let layouts = running.layouts;
    let (tasks, node) =
        (layouts.offset("task_struct", "tasks")?, layouts.offset("task_struct", "thread_node")?);
    let threads = layouts.offset("signal_struct", "thread_head")?;
    let first = running.symbol("init_task")?;
    let others = running.memory.list(first.wrapping_add(tasks), MAX_TASKS, "the list of tasks")?;
    let leaders = others.into_iter().map(|member| member.wrapping_sub(tasks));
    let mut found = Vec::new();
    let mut groups = FxHashSet::default();
    for leader in std::iter::once(first).chain(leaders) {
        let place = format!("the threads of the task at {leader:#x}");
        let signals = running.member(leader, "task_struct", "signal")?;
        // Each list has its own members, because their links lead back to its head.
        if !groups.insert(signals) {
            let problem = format!("the threads at {signals:#x} are also those of another task");
            return Err(running.memory.damaged(&place, problem, "threads of its own"));
        }
        let limit = MAX_TASKS - found.len() as u64;
        let members = running.memory.list(signals.wrapping_add(threads), limit, &place)?;
        found.extend(members.into_iter().map(|member| member.wrapping_sub(node)));
    }
    Ok(found)
}

/// Returns the addresses of the idle tasks (`kernel/smpboot.c`), if the kernel supports several processors.
fn idle_tasks(running: &mut Running<'_>) -> Result<Vec<u64>> {
    let Some(variable) = running.optional_symbol("idle_threads") else { return Ok(Vec::new()) };
    let mut tasks = Vec::new();
    for copy in running.per_cpu(variable)? {
        tasks.push(running.memory.word(copy)?);
    }
    // A processor that never ran has none.
    tasks.retain(|&task| task != 0);
    Ok(tasks)
}
