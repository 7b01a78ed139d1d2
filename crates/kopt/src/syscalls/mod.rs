/*!
Pass `syscalls`: system-call elimination (Chanet et al. 2007, section 3.1).

The dispatch of every number that no program uses is redirected to `sys_ni_syscall`, which returns `-ENOSYS`, so that
a handler without other references becomes unreachable. There are two dispatchers: the table of pointers, which the
kernel up to 6.8 jumps through and later ones keep for tracing, and the `switch` in `ia32_sys_call()` and the
corresponding functions of other ABIs (`dispatch`). The calls that the kernel and its vDSO make on a program's behalf
are always kept ([`kplan::implicit_calls`]).

A kernel for 32-bit ARM has a second table if it also runs programs of the old ABI (`CONFIG_OABI_COMPAT`): `vector_swi` of
arch/arm/kernel/entry-common.S takes it where the `svc` has a number in the instruction. Both ABIs count alike, and the plan lists
the calls of both together. A call that it lists therefore stays in both tables, and one that it does not list goes from
both. The old ABI has a call that makes another one, whose number it is passed (`sys_syscall`); a table whose programs
may use that stays as it is.
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
/// The dispatch of the numbers below this one is examined. The largest of Linux 6.12 is 466.
const NUMBERS: u32 = 1024;

/// The dispatchers of one ABI of a kernel.
struct Dispatchers {
    abi: Abi,
    /// The function with the `switch`, if there can be one.
    function: Option<&'static str>,
    /// The tables of handlers. The first is the one of the machine's own programs, where there are several.
    tables: &'static [&'static str],
    /// The call that makes another one of the same table, whose number it is passed.
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
        redirect_switch(graph, dispatchers, &used, &mut report);
        for name in dispatchers.tables {
            redirect_table(graph, name, dispatchers.indirect, &used, &mut report);
        }
    }
    report
}

/// The calls of an ABI that programs make, if these are all. `Err` says why nothing may rest on that.
pub(crate) fn all_calls(plan: &Plan, abi: Abi, options: Options) -> Result<&AbiCalls, String> {
    let calls = plan.syscalls.as_ref().and_then(|syscalls| syscalls.get(abi));
    let calls = calls.ok_or("the plan does not say which ones programs make")?;
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
                    format!("{function} shares its way to it with a used one"),
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
        report.keep(name, "the kernel has no sys_ni_syscall to put into it");
        return;
    };
    if let Some(nr) = indirect.filter(|nr| used.contains(nr) && table.handles(graph, *nr)) {
        report.keep(
            name,
            format!("programs use call {nr} of it, which makes any other whose number it is passed"),
        );
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
    /// The data that it lies in, where it begins there, and its size in bytes.
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

    /// The number of the call whose slot is at an offset of the data.
    fn number(&self, offset: u32) -> Option<u32> {
        let inside = offset.checked_sub(self.start).filter(|&inside| u64::from(inside) < self.size)?;
        Some(inside / self.word)
    }

    /// Whether a call does anything but return `-ENOSYS`.
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
