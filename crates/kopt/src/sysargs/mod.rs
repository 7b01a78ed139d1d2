/*!
Pass `sysargs`: system calls that do one of several things, of which programs ask for some (Chanet et al. 2007, section 3.2).

The plan lists what an argument can be at every place of every program that makes a call. For arguments that select an
operation (`selectors`: the command of `ioctl`, the operation of `socketcall`, the option of `prctl`), this pass
enforces the listed values. A guard before the handler (`guard`) answers all other values with -ENOSYS, as pass
[`syscalls`](crate::syscalls) answers other calls. [`fold`](crate::fold) finds out from the guard which values the
handler meets, and decides its branches. So nothing rests on the plan but what a program may ask for: what it asks for
in spite of the plan is turned away, and never meets code that takes something else for granted.

This holds because the guard and the handler read the same place (`convention`), which nothing changes in between. On
32-bit ARM, handlers get what programs pass as functions get their arguments, in registers and on the stack. On i386,
it is `struct pt_regs` on the stack of the kernel: a tracer changes the registers of a process that is stopped, before
the dispatch or in a function that the handler calls, and then the handler has loaded them, or is taken to find there
anything ([`Guard::Memory`](kflow::Guard)).

A handler is guarded if all calls that get there have known values, and nothing else than the dispatch leads there. It has no
guard where the function tracer patches its beginning, where calls of the old ABI of ARM get there as well
(`sys_oabi_call_table`), or where the kernel was compiled without it (`COND_SYSCALL`). The arguments of the operations of
`socketcall` lie in memory that the program may change at any time, and are not known.

With BusyBox's plan for `web-i386`, 11 handlers are guarded, and 10 kB go: `getsockopt`, `recvmmsg`, `semop` and
message queues of System V, `ioprio_get` of groups and users. (Chanet et al. 2007, section 6.2.3: 0.03 % of the code,
without such guards, and nothing on i386.) The operations of `ioctl` and `prctl` are kept: not all commands of `ioctl`
are known, and `prctl` is not followed. With its plan for `arm-virt`, 9 handlers are guarded, and 3 kB go, most of that
from `prctl`, which is followed there. Sockets, semaphores and message queues have calls of their own on ARM, which
[`syscalls`](crate::syscalls) removes.
*/

mod convention;
mod guard;
mod selectors;

use kcfg::flow::GraphProgram;
use kcfg::graph::{Graph, Provenance, Target};
use kcfg::index::NodeId;
use kflow::{FunctionIndex, Guards, Program};
use kplan::{Abi, AbiCalls, Plan, implicit_calls};

use crate::Options;
use crate::exercise::can_begin_otherwise;
use crate::report::PassReport;
use crate::syscalls::{Handlers, all_calls};
use convention::Convention;
use guard::{Check, Comparisons, Guarded};

/// The name of the pass.
const PASS: &str = "sysargs";

/// The most values that a guard compares with: analyses of constants follow no more.
const MAX_VALUES: usize = 16;

/// Puts guards in front of handlers.
pub fn run(graph: &mut Graph, plan: &Plan, options: Options) -> PassReport {
    let mut report = PassReport::new(PASS);
    let all = "every operation of system calls";
    let Some(convention) = Convention::of(graph.machine) else {
        report.keep(all, "handlers of this machine are not known");
        return report;
    };
    let abi = convention.abi;
    let handlers = all_calls(plan, abi, options).and_then(|calls| {
        let mut numbers: Vec<u32> = calls.calls.iter().map(|call| call.nr).collect();
        numbers.extend(implicit_calls(abi).iter().map(|call| call.nr));
        Ok((calls, Handlers::of(graph, abi, &numbers)?))
    });
    let (calls, handlers) = match handlers {
        Ok(found) => found,
        Err(why) => {
            report.keep(all, why);
            return report;
        }
    };
    // Of handlers that the kernel was compiled without, COND_SYSCALL makes other names of this one on some machines.
    let ni = graph.resolve_node(Target::Symbol(handlers.ni));
    let mut entries: Vec<(NodeId, &[u32])> = handlers
        .numbers
        .iter()
        .filter(|&(&entry, _)| Some(entry) != ni)
        .map(|(&entry, numbers)| (entry, &numbers[..]))
        .collect();
    entries.sort_unstable();
    let mut guarded = Vec::new();
    for (entry, numbers) in entries {
        let Some((name, arguments)) = selected(graph, convention, entry) else { continue };
        let checks = arguments.iter().map(|&argument| {
            let check = check(calls, abi, numbers, argument)?;
            instructions(graph, convention, entry, &check)
        });
        let checks: Result<Vec<Comparisons>, String> = checks.collect();
        match checks.and_then(|checks| {
            may_be_guarded(graph, &handlers, entry)?;
            Ok(checks)
        }) {
            Ok(checks) => {
                report.count("arguments checked", checks.len() as u64);
                guarded.push(Guarded { entry, checks });
            }
            Err(why) => report.keep(format!("every operation of {name}"), why),
        }
    }
    report.redirected += guarded.len();
    guard::insert(graph, &guarded, handlers.ni);
    report
}

/// The name of a handler, and the arguments that say what it is asked for. `None` if there are none, or it is guarded.
fn selected(graph: &Graph, convention: &Convention, entry: NodeId) -> Option<(String, Vec<u8>)> {
    if is_guard(graph, entry) {
        return None;
    }
    graph.names_in(entry).find_map(|name| {
        let arguments: Vec<u8> = selectors::of(name, convention.prefix).collect();
        (!arguments.is_empty()).then(|| (name.to_owned(), arguments))
    })
}

/// What an argument of these calls can be. `Err` says why that is not known.
fn check(calls: &AbiCalls, abi: Abi, numbers: &[u32], argument: u8) -> Result<Check, String> {
    let mut all = Vec::new();
    for &nr in numbers {
        let is_implicit = implicit_calls(abi).iter().any(|call| call.nr == nr);
        let listed = calls.call(nr).filter(|_| !is_implicit);
        let values = listed.and_then(|call| call.args.get(argument.into())).ok_or_else(|| {
            format!("argument {argument} of call {nr} can be anything, as far as the plan knows")
        })?;
        for value in values {
            let value = u32::try_from(value.value)
                .map_err(|_| format!("{:#x} is no argument of call {nr} on this machine", value.value))?;
            all.push(value);
        }
    }
    all.sort_unstable();
    all.dedup();
    match all.len() {
        0 => Err(format!("the plan has an empty list of what argument {argument} can be")),
        1..=MAX_VALUES => Ok(Check { argument, values: all }),
        many => Err(format!("argument {argument} can be one of {many}, more than {MAX_VALUES}")),
    }
}

/// The instructions of a check in front of a handler. `Err` says why it has none.
fn instructions(
    graph: &Graph,
    convention: &Convention,
    entry: NodeId,
    check: &Check,
) -> Result<Comparisons, String> {
    guard::comparisons(graph.isa(), convention, graph.encoding(entry), check).ok_or_else(|| {
        format!("it is not known how to compare argument {} with what it can be", check.argument)
    })
}

/// Whether a guard can be put in front of a handler; `Err` says why not.
fn may_be_guarded(graph: &Graph, handlers: &Handlers, entry: NodeId) -> Result<(), &'static str> {
    let function = graph.function_of(entry).ok_or("its handler is carried whole")?;
    if graph.function(function).entry() != entry || !can_begin_otherwise(graph, function) {
        return Err("the beginning of its handler is patched, or glued to other code");
    }
    if !handlers.is_only_dispatched(entry) {
        return Err("something else than the dispatch leads to its handler, or has its address");
    }
    // No branch on a condition changes the encoding.
    let ni = graph.resolve_node(Target::Symbol(handlers.ni));
    if ni.is_none_or(|ni| graph.encoding(ni) != graph.encoding(entry)) {
        return Err("what answers -ENOSYS is in another encoding than its handler");
    }
    Ok(())
}

/// Whether a block is of a guard.
fn is_guard(graph: &Graph, node: NodeId) -> bool {
    graph.node(node).provenance == Provenance::Made(PASS)
}

/// The guarded handlers of a program, and what their guards compare.
pub(crate) fn guards(graph: &Graph, program: &GraphProgram<'_>) -> Guards {
    let guard = Convention::of(graph.machine).and_then(|convention| convention.guard(graph.isa()));
    let Some(guard) = guard else { return Guards::default() };
    let functions = (0..program.functions()).map(FunctionIndex::from);
    let is_guarded = |&function: &FunctionIndex| {
        let first = program.blocks_of(function).first();
        first.is_some_and(|&first| is_guard(graph, program.node(first)))
    };
    functions.filter(is_guarded).map(|function| (function, guard)).collect()
}
