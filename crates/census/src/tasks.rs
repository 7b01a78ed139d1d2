//! The tasks of a kernel: their stacks and their upper page tables.

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
        let table_size = running.kernel.rules.upper_size;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::layout::{Field, Layouts, Structure};
    use crate::memory::handmade::{Pages, START, memory};

    /// The first task, one that has ended, the idle task of another processor, and the threads of the first two.
    const FIRST: u64 = START + 0x100;
    const ENDED: u64 = START + 0x200;
    const IDLE: u64 = START + 0x300;
    const SIGNALS: u64 = START + 0x400;
    const IDLE_THREADS: u64 = START + 0x500;

    fn pages_of_tasks() -> Pages {
        let mut pages = Pages::new(3);
        let (tasks, nodes) = (FIRST + 4, [FIRST + 12, ENDED + 12]);
        pages.write(FIRST, &[START + PAGE, tasks, tasks, nodes[1], SIGNALS, 0, 0, SIGNALS]);
        pages.write(ENDED, &[0, 0, 0, SIGNALS, nodes[0], 0, 0, SIGNALS]);
        pages.write(SIGNALS, &[nodes[0], nodes[1]]);
        pages.write(IDLE, &[START + 2 * PAGE]);
        pages.write(IDLE_THREADS, &[IDLE]);
        pages.write(START + PAGE, &[STACK_END]);
        pages.write(START + 2 * PAGE, &[STACK_END]);
        pages
    }

    fn read(pages: &mut Pages) -> Result<Tasks> {
        let mut layouts = Layouts::default();
        let mut add = |name: &str, fields: &[(&str, u64)]| {
            let word = |&(name, offset): &(&str, u64)| {
                (name.to_owned(), Field { offset, size: 4, count: 1, bits: None })
            };
            let fields = fields.iter().map(word).collect();
            layouts.types.insert(name.to_owned(), Structure { size: 32, fields });
        };
        let task = ["stack", "tasks", "thread_node", "mm", "active_mm", "signal"];
        let offsets = [0, 4, 12, 20, 24, 28];
        add("task_struct", &task.into_iter().zip(offsets).collect::<Vec<_>>());
        add("signal_struct", &[("thread_head", 0)]);
        let kernel = Kernel::with_symbols(&[
            ("init_task", FIRST),
            ("idle_threads", IDLE_THREADS),
            ("__start_init_stack", START + PAGE),
            ("__end_init_stack", START + 2 * PAGE),
        ]);
        let memory = memory(pages);
        Tasks::read(&mut Running { kernel: &kernel, layouts: &layouts, memory, slide: 0 })
    }

    #[test]
    fn idle_task_has_a_stack_and_ended_task_has_none() {
        let mut pages = pages_of_tasks();
        assert_eq!(read(&mut pages).unwrap().stacks, [PAGE, 2 * PAGE]);
        // On the first processor, the first task is the idle one.
        pages.write(IDLE_THREADS, &[FIRST]);
        assert_eq!(read(&mut pages).unwrap().stacks, [PAGE]);
    }

    #[test]
    fn stack_without_its_mark_is_damage() {
        let mut pages = pages_of_tasks();
        pages.write(START + 2 * PAGE, &[7]);
        let error = read(&mut pages).unwrap_err().to_string();
        assert!(
            error.contains("the stack of the task at 0xc0000300: it begins at 0xc0002000 with 0x7"),
            "{error}"
        );
    }
}
