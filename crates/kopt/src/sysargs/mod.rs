/*!
Pass `sysargs`: refuses unused operations of system calls that do one of several things (Chanet et al. 2007, section
3.2).

The plan lists the possible values of an argument at every call site of every program. For arguments that select an
operation (`selectors`: the command of `ioctl`, the operation of `socketcall`, the option of `prctl`), this pass
enforces the listed values. A guard before the handler (`guard`) answers all other values with -ENOSYS, as pass
[`syscalls`](crate::syscalls) answers unused calls. [`fold`](crate::fold) derives from the guard which values reach the
handler, and decides its branches. So the plan only limits the operations that a program may request. An operation
outside of the plan is refused, and never reaches code that assumes its absence.

This is sound because the guard and the handler read the same place (`convention`), which nothing changes in between.
On 32-bit ARM, handlers get the arguments like ordinary functions, in registers and on the stack. On i386, they are in
`struct pt_regs` on the kernel stack. A tracer may change the registers of a stopped process, before the dispatch or in
a function that the handler calls. By then the handler has loaded them, or is assumed to find any value there
([`Guard::Memory`](kflow::Guard)).

A handler is guarded if all system calls that reach it have known values, and only the dispatch leads to it. It gets no
guard if the function tracer patches its entry, if calls of the old ABI of ARM reach it as well
(`sys_oabi_call_table`), or if the kernel was compiled without it (`COND_SYSCALL`). The operands of `socketcall`
operations are not known, because they are in memory that the program may change at any time.

With BusyBox's plan for `web-i386`, 11 handlers are guarded, and 10 kB are removed: `getsockopt`, `recvmmsg`, `semop`
and message queues of System V, `ioprio_get` of groups and users. (Chanet et al. 2007, section 6.2.3: 0.03 % of the
code, without such guards, and nothing on i386.) The operations of `ioctl` and `prctl` are kept: not all commands of
`ioctl` are known, and `prctl` is not followed. With its plan for `arm-virt`, 9 handlers are guarded, and 3 kB are
removed, most of that from `prctl`, which is followed there. Sockets, semaphores and message queues have system calls
of their own on ARM, which [`syscalls`](crate::syscalls) removes.
*/

mod convention;
mod guard;
mod selectors;

use kcfg::flow::GraphProgram;
use kcfg::graph::{Graph, Target};
use kcfg::index::NodeId;
use kelf::Machine;
use kflow::{FunctionIndex, Guards, Program};
use kplan::{Abi, AbiCalls, implicit_calls};

use crate::exercise::can_begin_otherwise;
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use crate::syscalls::{Handlers, all_calls};
use convention::Convention;
use guard::{Check, Comparisons, Guarded, PASS, is_guard};

/// Whether the handlers of a machine's kernels get a pointer to the saved registers of the program.
pub fn handlers_get_registers(machine: Machine) -> bool {
    Convention::of(machine).is_some_and(Convention::passes_registers)
}

/// Maximum number of values in a guard: analyses of constants follow no more.
const MAX_VALUES: usize = 16;

/// Pass `sysargs`: puts guards before handlers.
pub struct SysArgs;

impl Pass for SysArgs {
    fn facts(&self) -> Facts {
        Facts {
            name: PASS,
            summary: "refuses unused operations of system calls, so that `fold` removes their code",
            phase: Phase::Removes,
            runs: Runs::WithPlan(|plan| plan.syscalls.is_some()),
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let (plan, options) = (context.plan, context.options);
        let mut report = PassReport::new(self.name());
        let all = "every operation of system calls";
        let Some(convention) = Convention::of(graph.machine()) else {
            report.keep(all, "the handlers of this machine are not supported");
            return report;
        };
        let abi = graph.machine().target().programs.abi;
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
        // On some machines, COND_SYSCALL makes the names of missing handlers aliases of this one.
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
}

/// Returns the name of a handler and its selecting arguments. `None` if it has none, or is already guarded.
fn selected(graph: &Graph, convention: &Convention, entry: NodeId) -> Option<(String, Vec<u8>)> {
    if is_guard(graph, entry) {
        return None;
    }
    graph.names_in(entry).find_map(|name| {
        let arguments: Vec<u8> = selectors::of(name, convention.prefix).collect();
        (!arguments.is_empty()).then(|| (name.to_owned(), arguments))
    })
}

/// Returns the possible values of an argument of these calls. `Err`: the reason why they are not known.
fn check(calls: &AbiCalls, abi: Abi, numbers: &[u32], argument: u8) -> Result<Check, String> {
    let mut all = Vec::new();
    for &nr in numbers {
        let is_implicit = implicit_calls(abi).iter().any(|call| call.nr == nr);
        let listed = calls.call(nr).filter(|_| !is_implicit);
        let values = listed
            .and_then(|call| call.args.get(argument.into()))
            .ok_or_else(|| format!("the plan does not limit argument {argument} of call {nr}"))?;
        for value in values {
            let value = u32::try_from(value.value).map_err(|_| {
                format!("{:#x} does not fit an argument of call {nr} on this machine", value.value)
            })?;
            all.push(value);
        }
    }
    all.sort_unstable();
    all.dedup();
    match all.len() {
        0 => Err(format!("the plan lists no value for argument {argument}")),
        1..=MAX_VALUES => Ok(Check { argument, values: all }),
        many => Err(format!("the plan lists {many} values for argument {argument}, more than {MAX_VALUES}")),
    }
}

/// Returns the instructions of a check before a handler. `Err`: the reason why there are none.
fn instructions(
    graph: &Graph,
    convention: &Convention,
    entry: NodeId,
    check: &Check,
) -> Result<Comparisons, String> {
    guard::comparisons(graph.isa(), convention, graph.encoding(entry), check).ok_or_else(|| {
        format!("the comparison of argument {} with its values cannot be encoded", check.argument)
    })
}

/// Whether a guard can be put before a handler; `Err`: the reason why not.
fn may_be_guarded(graph: &Graph, handlers: &Handlers, entry: NodeId) -> Result<(), &'static str> {
    let function = graph.function_of(entry).ok_or("its handler is opaque")?;
    if graph.function(function).entry() != entry || !can_begin_otherwise(graph, function) {
        return Err("the entry of its handler is patched, or glued to other code");
    }
    if !handlers.is_only_dispatched(entry) {
        return Err("its handler is reached, or its address taken, outside of the dispatch");
    }
    // A conditional branch cannot switch the encoding.
    let ni = graph.resolve_node(Target::Symbol(handlers.ni));
    if ni.is_none_or(|ni| graph.encoding(ni) != graph.encoding(entry)) {
        return Err("sys_ni_syscall is in another encoding than its handler");
    }
    Ok(())
}

/// The guarded handlers of a program, and the places that their guards check.
pub(crate) fn guards(graph: &Graph, program: &GraphProgram<'_>) -> Guards {
    let guard = Convention::of(graph.machine()).and_then(|convention| convention.guard(graph.isa()));
    let Some(guard) = guard else { return Guards::default() };
    let functions = (0..program.functions()).map(FunctionIndex::from);
    let is_guarded = |&function: &FunctionIndex| {
        let first = program.blocks_of(function).first();
        first.is_some_and(|&first| is_guard(graph, program.node(first)))
    };
    functions.filter(is_guarded).map(|function| (function, guard)).collect()
}
