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
mod dispatchers;
mod handlers;

use kcfg::graph::{Editor, Graph, Target};
use kplan::{Abi, AbiCalls, Plan, implicit_calls};
use rustc_hash::FxHashSet;

use crate::options::Options;
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use dispatchers::{Dispatchers, NI_SYSCALLS, Table, defined, dispatchers, symbol};

pub(crate) use handlers::Handlers;

/// Pass `syscalls`: redirects the dispatch of unused numbers to `sys_ni_syscall`.
pub struct Syscalls;

impl Pass for Syscalls {
    fn facts(&self) -> Facts {
        Facts {
            name: "syscalls",
            summary: "redirects unused system calls to `sys_ni_syscall`",
            phase: Phase::Removes,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let (plan, options) = (context.plan, context.options);
        let mut report = PassReport::new(self.name());
        for dispatchers in dispatchers(graph.machine()) {
            let all = || format!("every system call of {}", dispatchers.abi);
            let known = || dispatchers.function.iter().chain(dispatchers.tables);
            if !known().any(|name| defined(graph, name).is_some()) {
                // The other programs of a machine are optional (`CONFIG_IA32_EMULATION`).
                if dispatchers.abi == graph.machine().target().programs.abi {
                    let names: Vec<&str> = known().copied().collect();
                    report.keep(
                        all(),
                        format!("the kernel has none of its known dispatchers: {}", names.join(", ")),
                    );
                }
                continue;
            }
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
    let slots = graph.refs_of(table.node).to_vec();
    let mut editor = Editor::new(graph, "syscalls");
    for (number, slot) in slots.iter().enumerate() {
        let Some(nr) = table.number(slot.offset) else { continue };
        if !used.contains(&nr) && slot.target != Target::Symbol(ni) {
            editor.redirect(table.node, number, Target::Symbol(ni), 0);
            report.redirected += 1;
        }
    }
    editor.finish();
}
