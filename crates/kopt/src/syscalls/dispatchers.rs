//! The dispatchers of system calls on each machine, their tables, and the handler of unused calls, by name.

use kcfg::graph::{Graph, SymbolPlace, Target};
use kcfg::index::{NodeId, SymbolId};
use kelf::Machine;
use kplan::Abi;

/// The dispatchers of one ABI of a kernel.
pub(super) struct Dispatchers {
    pub(super) abi: Abi,
    /// The function with the `switch`, if the ABI has one.
    pub(super) function: Option<&'static str>,
    /// The tables of handlers; the first is for the machine's own programs.
    pub(super) tables: &'static [&'static str],
    /// The call that makes another call of the same table by its number.
    pub(super) indirect: Option<u32>,
}

/// The dispatchers of the system calls of a machine (arch/x86/entry/syscall_*.c, arch/arm/kernel/entry-common.S).
pub(super) fn dispatchers(machine: Machine) -> &'static [Dispatchers] {
    const I386: Dispatchers = Dispatchers {
        abi: Abi::I386,
        function: Some("ia32_sys_call"),
        tables: &["sys_call_table"],
        indirect: None,
    };
    const COMPAT: Dispatchers = Dispatchers { tables: &["ia32_sys_call_table"], ..I386 };
    const X86_64: Dispatchers = Dispatchers { abi: Abi::X86_64, function: Some("x64_sys_call"), ..I386 };
    const ARM: Dispatchers = Dispatchers {
        abi: Abi::Arm,
        function: None,
        tables: &["sys_call_table", "sys_oabi_call_table"],
        indirect: Some(113),
    };
    match machine {
        Machine::I386 => &[I386],
        Machine::X86_64 => &[X86_64, COMPAT],
        Machine::Arm => &[ARM],
        Machine::Aarch64 => &[],
    }
}

/// A table of handlers.
pub(super) struct Table {
    /// The data node that contains it, and its start and size in bytes.
    pub(super) node: NodeId,
    start: u32,
    size: u64,
    word: u32,
}

impl Table {
    pub(super) fn of(graph: &Graph, name: &str) -> Option<Table> {
        let symbol = &graph.symbols()[symbol(graph, name)?];
        let SymbolPlace::Node(node, start) = symbol.place else { return None };
        Some(Table { node, start, size: symbol.size, word: u32::from(graph.machine().word_size()) })
    }

    /// The number of the call whose slot is at an offset of the node.
    pub(super) fn number(&self, offset: u32) -> Option<u32> {
        let inside = offset.checked_sub(self.start).filter(|&inside| u64::from(inside) < self.size)?;
        Some(inside / self.word)
    }

    /// Whether a call does more than return `-ENOSYS`.
    pub(super) fn handles(&self, graph: &Graph, nr: u32) -> bool {
        let slots = graph.refs_of(self.node).iter();
        slots
            .filter(|slot| self.number(slot.offset) == Some(nr))
            .any(|slot| !is_ni_syscall(graph, slot.target))
    }
}

/// The names of the handler that returns `-ENOSYS`, by the ABI's calling convention.
pub(super) const NI_SYSCALLS: &[&str] = &["__ia32_sys_ni_syscall", "__x64_sys_ni_syscall", "sys_ni_syscall"];

pub(super) fn is_ni_syscall(graph: &Graph, target: Target) -> bool {
    matches!(target, Target::Symbol(symbol) if NI_SYSCALLS.contains(&graph.symbols()[symbol].name.as_str()))
}

pub(super) fn symbol(graph: &Graph, name: &str) -> Option<SymbolId> {
    graph.symbols().position(|symbol| symbol.name == name)
}

pub(super) fn defined(graph: &Graph, name: &str) -> Option<NodeId> {
    graph.resolve_node(Target::Symbol(symbol(graph, name)?))
}
