/*!
Pass `syscalls`: system-call elimination (Chanet et al. 2007, section 3.1).

The dispatch of every number that no program uses is redirected to `sys_ni_syscall`, which returns `-ENOSYS`. A handler
without other references thus becomes unreachable. There are two dispatchers: the table of pointers, which the kernel
jumps through up to 6.8 and later keeps for tracing, and the `switch` in `ia32_sys_call()` and the corresponding
functions of other ABIs (`dispatch`). The calls that the kernel and its vDSO make on a program's behalf are always kept
([`kplan::implicit_calls`]).

A kernel for 32-bit ARM has a second table if it also runs programs of the old ABI (`CONFIG_OABI_COMPAT`): `vector_swi`
in arch/arm/kernel/entry-common.S uses it if the `svc` instruction contains a number. Both ABIs use the same numbers,
and the plan lists the calls of both together. So a listed call is kept in both tables, and any other call is removed
from both. The old ABI has a call that makes another call by number (`sys_syscall`). If programs may use it, the table
is not changed.
*/

mod dispatch;
mod handlers;

use kcfg::graph::{Graph, SymbolPlace, Target};
use kcfg::index::{NodeId, SymbolId};
use kelf::Machine;
use kplan::{Abi, AbiCalls, Plan, implicit_calls};
use rustc_hash::FxHashSet;

use crate::Options;
use crate::report::PassReport;

pub(crate) use handlers::Handlers;

/// A number beyond every table, for which a dispatcher takes its default.
const NO_CALL: u32 = u32::MAX;
/// Numbers below this one are examined. The largest of Linux 6.12 is 466.
const NUMBERS: u32 = 1024;

/// The dispatchers of one ABI of a kernel.
struct Dispatchers {
    abi: Abi,
    /// The function with the `switch`, if the ABI has one.
    function: Option<&'static str>,
    /// The tables of handlers; the first is for the machine's own programs.
    tables: &'static [&'static str],
    /// The call that makes another call of the same table by its number.
    indirect: Option<u32>,
}

/// The dispatchers of the system calls of a machine (arch/x86/entry/syscall_*.c, arch/arm/kernel/entry-common.S).
fn dispatchers(machine: Machine) -> &'static [Dispatchers] {
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

/// Redirects the dispatch of unused numbers to `sys_ni_syscall`.
pub fn run(graph: &mut Graph, plan: &Plan, options: Options) -> PassReport {
    let mut report = PassReport::new("syscalls");
    for dispatchers in dispatchers(graph.machine) {
        let all = || format!("every system call of {}", dispatchers.abi);
        let calls = match all_calls(plan, dispatchers.abi, options) {
            Ok(calls) => calls,
            Err(why) => {
                report.keep(all(), why);
                continue;
            }
        };
        let mut used: FxHashSet<u32> = calls.calls.iter().map(|call| call.nr).collect();
        used.extend(implicit_calls(dispatchers.abi).iter().map(|call| call.nr));
        let known = || dispatchers.function.iter().chain(dispatchers.tables);
        if !known().any(|name| defined(graph, name).is_some()) {
            let names: Vec<&str> = known().copied().collect();
            report.keep(all(), format!("the kernel has none of its known dispatchers: {}", names.join(", ")));
            continue;
        }
        redirect_switch(graph, dispatchers, &used, &mut report);
        for name in dispatchers.tables {
            redirect_table(graph, name, dispatchers.indirect, &used, &mut report);
        }
    }
    report
}

/// Returns the calls of an ABI that programs make, if the list is complete. `Err`: the reason why it cannot be relied
/// on.
pub(crate) fn all_calls(plan: &Plan, abi: Abi, options: Options) -> Result<&AbiCalls, String> {
    let calls = plan.syscalls.as_ref().and_then(|syscalls| syscalls.get(abi));
    let calls = calls.ok_or("the plan does not list the calls that programs make")?;
    if calls.complete || options.assume_complete {
        return Ok(calls);
    }
    let unresolved = calls.unresolved.len();
    Err(format!("the plan is incomplete ({unresolved} unresolved sites); see --assume-complete"))
}

fn redirect_switch(
    graph: &mut Graph,
    dispatchers: &Dispatchers,
    used: &FxHashSet<u32>,
    report: &mut PassReport,
) {
    let Some(function) = dispatchers.function else { return };
    let Some(entry) = defined(graph, function) else { return };
    match dispatch::redirect_unused(graph, entry, used) {
        Ok(outcome) => {
            report.redirected += outcome.redirected;
            for nr in outcome.stuck {
                report.keep(
                    format!("the handler of unused system call {nr}"),
                    format!("{function} reaches it by the path of a used call"),
                );
            }
        }
        Err(why) => report.keep(format!("every handler that {function} calls"), why),
    }
}

fn redirect_table(
    graph: &mut Graph,
    name: &str,
    indirect: Option<u32>,
    used: &FxHashSet<u32>,
    report: &mut PassReport,
) {
    let Some(table) = Table::of(graph, name) else { return };
    let handlers = NI_SYSCALLS.iter().find_map(|name| symbol(graph, name));
    let Some(ni) = handlers else {
        report.keep(name, "the kernel has no sys_ni_syscall for its unused slots");
        return;
    };
    if let Some(nr) = indirect.filter(|nr| used.contains(nr) && table.handles(graph, *nr)) {
        report.keep(name, format!("programs make its call {nr}, which makes any other call by number"));
        return;
    }
    for slot in graph.refs_of_mut(table.node) {
        let Some(nr) = table.number(slot.offset) else { continue };
        if !used.contains(&nr) && slot.target != Target::Symbol(ni) {
            slot.target = Target::Symbol(ni);
            slot.addend = 0;
            report.redirected += 1;
        }
    }
}

/// A table of handlers.
struct Table {
    /// The data node that contains it, and its start and size in bytes.
    node: NodeId,
    start: u32,
    size: u64,
    word: u32,
}

impl Table {
    fn of(graph: &Graph, name: &str) -> Option<Table> {
        let symbol = &graph.symbols[symbol(graph, name)?.get()];
        let SymbolPlace::Node(node, start) = symbol.place else { return None };
        Some(Table { node, start, size: symbol.size, word: u32::from(graph.machine.word_size()) })
    }

    /// The number of the call whose slot is at an offset of the node.
    fn number(&self, offset: u32) -> Option<u32> {
        let inside = offset.checked_sub(self.start).filter(|&inside| u64::from(inside) < self.size)?;
        Some(inside / self.word)
    }

    /// Whether a call does more than return `-ENOSYS`.
    fn handles(&self, graph: &Graph, nr: u32) -> bool {
        let slots = graph.refs_of(self.node).iter();
        slots
            .filter(|slot| self.number(slot.offset) == Some(nr))
            .any(|slot| !is_ni_syscall(graph, slot.target))
    }
}

/// The names of the handler that returns `-ENOSYS`, by the ABI's calling convention.
const NI_SYSCALLS: &[&str] = &["__ia32_sys_ni_syscall", "__x64_sys_ni_syscall", "sys_ni_syscall"];

fn is_ni_syscall(graph: &Graph, target: Target) -> bool {
    matches!(target, Target::Symbol(symbol) if NI_SYSCALLS.contains(&graph.symbols[symbol.get()].name.as_str()))
}

fn symbol(graph: &Graph, name: &str) -> Option<SymbolId> {
    graph.symbols.iter().position(|symbol| symbol.name == name).map(SymbolId::from)
}

fn defined(graph: &Graph, name: &str) -> Option<NodeId> {
    graph.resolve_node(Target::Symbol(symbol(graph, name)?))
}
