/*!
The assumptions of the passes that remove.

Most removals are proved from the objects. Some of them also rest on assumptions: rules of the language, conventions of
compilers, names in the kernel. This is the list of these assumptions. `kshrink-spec` reports the ones that a run
depended on, so that a failing kernel can be traced to the assumption that it breaks. Each assumption has tests that
fail if kshrink applies it differently (its *guards*).
*/

use goblin::elf::section_header::SHF_MERGE;
use kcfg::graph::{Graph, Life, Terminator};
use kcfg::special::{RootReason, World, is_retpoline};
use serde::Serialize;

use crate::{PassReport, exports};

/// An assumption that a removal depends on and that the objects do not prove.
#[derive(Debug, Serialize)]
pub struct Assumption {
    /// Its name.
    pub name: &'static str,
    /// The assumption, in a sentence or two.
    pub says: &'static str,
    /// The source file of kshrink that applies it.
    pub applied_in: &'static str,
    /// Tests that guard it, each as `FILE: FUNCTION`.
    pub guards: &'static [&'static str],
    /// Whether removals in a graph depend on it.
    #[serde(skip)]
    applies: fn(&Graph, &[PassReport]) -> bool,
}

/// Returns the assumptions that a run depended on: none if its passes removed and redirected nothing.
pub fn of(graph: &Graph, reports: &[PassReport]) -> Vec<&'static Assumption> {
    let removes =
        |report: &PassReport| report.changed() || freezes(report) || moves(report, "functions moved");
    if !reports.iter().any(removes) {
        return Vec::new();
    }
    ALL.iter().filter(|assumption| (assumption.applies)(graph, reports)).collect()
}

/// Every assumption.
pub const ALL: &[Assumption] = &[
    Assumption {
        name: "pointers-stay-in-their-objects",
        says: "A pointer that code stores, returns or passes on points into its object or one byte past the end of it \
               (C11 6.5.6p8). An integer made of an address and a number (`(uintptr_t)&a + 8`) is not the exact start \
               of another variable, except of the one directly after it.",
        applied_in: "crates/kcfg/src/lift/variables/mod.rs",
        guards: &[DATA_CUTS, "crates/kcfg/tests/sound.rs: ends_of_variables", FEATURES],
        applies: |graph, _| cuts_data(graph),
    },
    Assumption {
        name: "accesses-stay-in-their-objects",
        says: "An access at a fixed address, or by an index with known bounds or a known first value, touches the \
               variable that its relocation means.",
        applied_in: "crates/kcfg/src/lift/variables/claims.rs",
        guards: &[DATA_CUTS, FEATURES],
        applies: |graph, _| cuts_data(graph),
    },
    Assumption {
        name: "cold-parts-are-named",
        says: "If the compiler moved a part of a function away and the part shares the function's frame, the part's \
               name contains `.cold`.",
        applied_in: "crates/kcfg/src/lift/variables/escape.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: an_address_is_followed_into_a_cold_part"],
        applies: |graph, _| {
            cuts_data(graph) && graph.functions().iter().any(|function| function.name.contains(".cold"))
        },
    },
    Assumption {
        name: "symbols-tell-variables",
        says: "A symbol with a size marks the start and end of a variable. `asm` that computes with addresses of data \
               gives the data labels without a size.",
        applied_in: "crates/kcfg/src/lift/variables/mod.rs",
        guards: &["crates/kcfg/tests/sound.rs: labels_behind_data", FEATURES],
        applies: |graph, _| cuts_data(graph),
    },
    Assumption {
        name: "merged-entries-are-apart",
        says: "No access crosses from one string or constant of a mergeable section to its neighbour, because the \
               linker may move each (SHF_MERGE).",
        applied_in: "crates/kcfg/src/lift/plan.rs",
        guards: &["crates/kcfg/tests/lift.rs: strings_are_apart", FEATURES],
        applies: |graph, _| {
            let cut = |section: &kcfg::graph::Section| {
                section.nodes.len() > 1 && section.flags & u64::from(SHF_MERGE) != 0
            };
            graph.sections().iter().any(cut)
        },
    },
    Assumption {
        name: "compilers-name-their-source",
        says: "If the build does not record the source of an object, a compiler made the object if a symbol names a \
               source file (STT_FILE); otherwise it is hand-written.",
        applied_in: "crates/kelf/src/program.rs",
        guards: &[OPAQUE],
        applies: |_, _| true,
    },
    Assumption {
        name: "compilers-type-their-functions",
        says: "A compiler gives each function a symbol with type and size. A label without a type comes from `asm`.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &[OPAQUE],
        applies: |_, _| true,
    },
    Assumption {
        name: "inline-asm-shows-where-it-goes",
        says: "`asm` in a function branches only as relocations, branches and table entries show. Exceptions are \
               recognized: `asm` with labels, with calls into the middle of a function, with branches that compilers \
               do not make, or with the function's entry and a distance from it side by side in a section of its own.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &["crates/kcfg/tests/sound.rs: transactions", OPAQUE, FEATURES],
        applies: |_, _| true,
    },
    Assumption {
        name: "addresses-are-held",
        says: "An indirect branch leads only to code whose address is held by a relocation in live code or data \
               (Chanet et al. 2007, section 2.4).",
        applied_in: "crates/kcfg/src/edges.rs",
        guards: &[
            "crates/kcfg/tests/sound.rs: a_symbol_and_a_distance",
            "crates/kcfg/tests/sound.rs: differences_of_labels",
        ],
        applies: |_, _| true,
    },
    Assumption {
        name: "numbers-in-function-addresses-are-small",
        says: "An integer made of the address of a local function and a number (`(uintptr_t)f + tag`) does not equal \
               the entry of another function, or an address in a function with a computed goto, unless that address \
               is at most 8 bytes after f.",
        applied_in: "crates/kcfg/src/lift/tags.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: functions_as_short_as_a_tag", FEATURES],
        applies: |_, _| true,
    },
    Assumption {
        name: "retpolines-are-named",
        says: "A jump to `__x86_indirect_…` or `__llvm_retpoline_…` continues at the address in a register.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &["crates/kcfg/tests/sound.rs: differences_of_labels"],
        applies: |graph, _| graph.symbols().iter().any(|symbol| is_retpoline(&symbol.name)),
    },
    Assumption {
        name: "functions-return-to-their-callers",
        says: "Code after a call runs only once the callee has returned. Hand-written or unknown code may return.",
        applied_in: "crates/kcfg/src/returns.rs",
        guards: &[
            "crates/kcfg/tests/lift.rs: calls_that_do_not_come_back",
            "crates/kcfg/tests/lift.rs: calls_that_come_back",
        ],
        applies: |_, _| true,
    },
    Assumption {
        name: "last-calls-do-not-return",
        says: "A call or a trap at the end of a compiled function, followed by nothing or by padding, does not return.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: ends_of_functions"],
        applies: |graph, _| {
            ends(graph, |end| {
                matches!(end, Terminator::Call { next: None } | Terminator::IndirectCall { next: None })
            })
        },
    },
    Assumption {
        name: "ends-without-a-branch-do-not-run",
        says: "If the last function of a section has no branch at its end, control does not reach that end \
               (`__builtin_unreachable()`).",
        applied_in: "crates/kcfg/src/lift/references.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: ends_of_functions"],
        applies: |graph, _| ends(graph, |end| *end == Terminator::Unreachable),
    },
    Assumption {
        name: "bugs-are-fatal",
        says: "Execution does not resume after a `ud2` whose entry in `__bug_table` lacks BUGFLAG_WARNING (lib/bug.c).",
        applied_in: "crates/kcfg/src/lift/sites.rs",
        guards: &["crates/kcfg/tests/lift.rs: warnings_resume_and_bugs_do_not"],
        applies: |graph, _| is_kernel(graph) && ends(graph, |end| *end == Terminator::Trap { next: None }),
    },
    Assumption {
        name: "entries-serve-their-sites",
        says: "An entry of a table about code (exceptions, alternatives, static keys, bugs…) is useful only as long \
               as that code exists.",
        applied_in: "crates/kcfg/src/special.rs",
        guards: &[
            "crates/kcfg/tests/lower.rs: dead_entries_of_weak_tables_go",
            "crates/kcfg/tests/lift.rs: alternatives_live_with_their_originals",
        ],
        applies: |graph, _| has_sites(graph),
    },
    Assumption {
        name: "patches-go-where-tables-say",
        says: "Code that the kernel patches at run time continues after itself, or at a target of its own references \
               or of the table entries about it.",
        applied_in: "crates/kcfg/src/edges.rs",
        guards: &[
            "crates/kcfg/tests/lift.rs: static_keys",
            "crates/kcfg/tests/lift.rs: static_cpu_has_goes_four_ways",
        ],
        applies: |graph, _| ends(graph, |end| matches!(end, Terminator::Patched { .. })),
    },
    Assumption {
        name: "names-of-sections-tell-their-use",
        says: "Sections of code and data with the compiler's names, or with names from the kernel's attributes, are \
               used by reference only. A section that is read from end to end has another name.",
        applied_in: "crates/kcfg/src/special.rs",
        guards: &[
            "crates/kcfg/src/special/tests.rs: rules_of_a_kernel",
            "crates/kcfg/src/special/tests.rs: rules_of_a_user_program",
        ],
        applies: |_, _| true,
    },
    Assumption {
        name: "nothing-unwinds",
        says: "Nothing walks the stack by `.eh_frame`, `.gcc_except_table` or `.orc_unwind`, which are left out. (A \
               program with exception handlers or cleanups is refused unless `--drop-handlers` states that none has \
               to run.)",
        applied_in: "crates/kcfg/src/special.rs",
        guards: &[
            "tests/tests/user_links.rs: handlers_are_refused_or_reported",
            "crates/kcfg/src/special/tests.rs: rules_of_a_kernel",
            "crates/kcfg/src/special/tests.rs: rules_of_a_user_program",
        ],
        applies: |_, _| true,
    },
    Assumption {
        name: "links-wrap-what-is-said",
        says: "The link of a user program wraps no symbol that the objects define (`ld --wrap`) unless `--wrap` names \
               the symbol, because references within the rewritten object are already resolved.",
        applied_in: "crates/kshrink-spec/src/user_program.rs",
        guards: &["tests/tests/user_links.rs: wrapped_symbols_are_refused_or_wrapped"],
        applies: |graph, _| !is_kernel(graph),
    },
    Assumption {
        name: "return-addresses-identify-nothing",
        says: "No function tells its callers apart by its return address (`__builtin_return_address(0)`): calls in \
               merged identical code all return to one address. A kernel only prints the return address and records \
               it for traces.",
        applied_in: "crates/kopt/src/merge/mod.rs",
        guards: &["tests/tests/user_links.rs: calls_in_identical_code_return_to_one_place"],
        applies: |_, reports| {
            reports.iter().any(|report| matches!(report.pass, "merge" | "icf") && report.changed())
        },
    },
    Assumption {
        name: "frames-end-below-their-return-addresses",
        says: "If an address that a function computes lies in its frame, below its return address, every access \
               through that address or by an index from it stays in the frame.",
        applied_in: "crates/kopt/src/inline/frame.rs",
        guards: &[INLINE, "tests/tests/random_programs/main.rs: random_programs_do_what_they_did_before"],
        applies: |_, reports| reports.iter().any(|report| report.pass == "inline" && report.changed()),
    },
    Assumption {
        name: "exports-serve-modules",
        says: "In a kernel without loadable modules, nothing needs the exports.",
        applied_in: "crates/kcfg/src/lift/plan.rs",
        guards: &[WEB_KERNEL],
        applies: |graph, _| {
            is_kernel(graph) && !graph.roots().iter().any(|root| root.reason == RootReason::Exported)
        },
    },
    Assumption {
        name: "names-that-are-looked-up-are-strings",
        says: "If the kernel or a module looks up an export by name, the name is in its data as a string that ends \
               with a zero byte, or among the type ids for BPF programs.",
        applied_in: "crates/kopt/src/exports.rs",
        guards: &["crates/kopt/tests/filetests: exports"],
        applies: |_, reports| {
            reports
                .iter()
                .any(|report| report.pass == "exports" && report.counts.contains_key(exports::REMOVED))
        },
    },
    Assumption {
        name: "compared-indices-stay",
        says: "An index that was compared in memory still has the same value when it is loaded from there.",
        applied_in: "crates/kcfg/src/lift/bounds.rs",
        guards: &["tests/tests/random_programs/main.rs: random_programs_do_what_they_did_before"],
        applies: |graph, _| !graph.tables().is_empty(),
    },
    Assumption {
        name: "jump-tables-serve-their-jumps",
        says: "If nothing else points into a jump table, only its jumps read the table.",
        applied_in: "crates/kcfg/src/lift/switches.rs",
        guards: &["crates/kcfg/tests/lift.rs: resolved_tables_keep_nothing_alive_by_themselves"],
        applies: |graph, _| !graph.tables().is_empty(),
    },
    Assumption {
        name: "plan-is-complete",
        says: "Programs make only the system calls that the plan lists. The plan states that it is complete, or \
               --assume-complete does.",
        applied_in: "crates/kopt/src/syscalls/mod.rs",
        guards: &[
            "crates/syscall-scan/tests/strace.rs: nothing_that_i386_applets_do_is_missing",
            "crates/syscall-scan/tests/emulated.rs: nothing_that_arm_applets_do_is_missing",
            WEB_KERNEL,
        ],
        applies: |_, reports| redirects_calls(reports),
    },
    Assumption {
        name: "calls-of-the-kernel-are-listed",
        says: "Apart from programs, only the kernel and its vDSO make system calls, and only those in kplan's list.",
        applied_in: "crates/kplan/src/implicit.rs",
        guards: &[WEB_KERNEL],
        applies: |_, reports| redirects_calls(reports),
    },
    Assumption {
        name: "dispatchers-are-named",
        says: "`ia32_sys_call()` takes the system call number as its second argument, `sys_call_table` and \
               `sys_oabi_call_table` are indexed by that number, and `sys_ni_syscall()` returns -ENOSYS.",
        applied_in: "crates/kopt/src/syscalls/mod.rs",
        guards: &[WEB_KERNEL],
        applies: |_, reports| redirects_calls(reports),
    },
    Assumption {
        name: "operations-are-listed",
        says: "Programs request only the operations of system calls that the plan lists. The kernel answers any other \
               operation with -ENOSYS.",
        applied_in: "crates/kopt/src/sysargs/mod.rs",
        guards: &[SYSARGS, REFUSED_OPERATIONS, REFUSED_ON_ARM],
        applies: |_, reports| refuses_operations(reports),
    },
    Assumption {
        name: "handlers-get-registers",
        says: "`__ia32_sys_…` gets one argument, in the first register: a pointer to the registers of the program. \
               The first words of `struct pt_regs` are the arguments of the system call. While the handler runs, only \
               its callees change them (a tracer changes the registers of a stopped process).",
        applied_in: "crates/kopt/src/sysargs/convention.rs",
        guards: &[SYSARGS, REFUSED_OPERATIONS],
        applies: |graph, reports| {
            crate::sysargs::handlers_get_registers(graph.machine()) && refuses_operations(reports)
        },
    },
    Assumption {
        name: "roots-of-the-closure-are-listed",
        says: "Code that runs before a frozen page can be thawed, or during a thaw, is listed by name for Linux 6.1 \
               to 7.2, or the listed code reaches it through calls and through pointers in the data that it uses. A \
               newer kernel whose source lacks a name is not frozen.",
        applied_in: "crates/kopt/src/freeze/marks/mod.rs",
        guards: &[FREEZE, FREEZE_ON_ARM, NAMES],
        applies: |graph, reports| is_kernel(graph) && reports.iter().any(freezes),
    },
    Assumption {
        name: "panics-do-not-return-to-the-allocator",
        says: "Code that holds a lock of the page allocator, or that runs before anything can be thawed, reclaims, \
               sleeps, wakes or panics only after it has released that lock or when the kernel stops.",
        applied_in: "crates/kopt/src/freeze/marks/mod.rs",
        guards: &[FREEZE],
        applies: |graph, reports| is_kernel(graph) && reports.iter().any(freezes),
    },
    Assumption {
        name: "physical-addresses-are-asked-for",
        says: "Constant data is used by its physical address only if it is aligned to a page, if it is named with an \
               offset outside of it, or if a function names it that computes a physical address itself on ARM \
               (`.pv_table`) or calls a function that takes a buffer for a device, maps pages for user space, or \
               passes them to a file or socket.",
        applied_in: "crates/kopt/src/freeze/closure.rs",
        guards: &[FREEZE, FREEZE_ON_ARM],
        applies: |graph, reports| is_kernel(graph) && reports.iter().any(freezes),
    },
    Assumption {
        name: "frozen-functions-need-no-alignment",
        says: "Nothing keeps a tag in the low bits of the address of a function that freezes behind a stub: stubs are \
               not aligned.",
        applied_in: "crates/kopt/src/freeze/stubs.rs",
        guards: &[FREEZE],
        applies: |_, reports| {
            reports.iter().any(|report| report.counts.get("regions").is_some_and(|&number| number > 0))
        },
    },
    Assumption {
        name: "init-code-is-done-when-it-is-freed",
        says: "Once the kernel frees its initialization memory, nothing uses `.init.text`, `.init.data` and \
               `.init.rodata` any more. Only initialization reads `.initcall*`, `.init.setup` and \
               `.con_initcall.init`, and it only calls the functions there.",
        applied_in: "crates/kopt/src/initmotion/late.rs",
        guards: &[INITMOTION, WEB_KERNEL],
        applies: |_, reports| reports.iter().any(|report| moves(report, "functions moved")),
    },
    Assumption {
        name: "string-functions-keep-no-pointers",
        says: "`_printk()` and other functions that format text, and functions that compare or copy strings \
               (`strcmp()`, `of_find_property()`), keep no pointer to their arguments. A value that is pushed before \
               a call of a function that formats text, and not popped again, is an argument of the call.",
        applied_in: "crates/kopt/src/initmotion/uses.rs",
        guards: &[INITMOTION, WEB_KERNEL],
        applies: |_, reports| reports.iter().any(|report| moves(report, "strings moved")),
    },
    Assumption {
        name: "command-line-is-as-planned",
        says: "The kernel is booted with the command line of the plan. If it is not, it prints a warning at boot.",
        applied_in: "crates/kopt/src/params/mod.rs",
        guards: &[OTHER_COMMAND_LINE],
        applies: |_, reports| removes_parameters(reports),
    },
    Assumption {
        name: "parameters-are-tables-of-entries",
        says: "The entries of `.init.setup` and `__param` are read one by one between the symbols of the linker \
               script (init/main.c, kernel/params.c), and have the layout of `struct obs_kernel_param` and `struct \
               kernel_param`.",
        applied_in: "crates/kcfg/src/parameters.rs",
        guards: &[OTHER_COMMAND_LINE],
        applies: |_, reports| removes_parameters(reports),
    },
    Assumption {
        name: "switches-have-addresses",
        says: "Code that switches a static key, or changes the trampoline of a static call, holds the address of the \
               key or trampoline as a relocation.",
        applied_in: "crates/kopt/src/keys.rs",
        guards: &[KEYS],
        applies: |_, reports| reports.iter().any(|report| report.pass == "keys" && report.changed()),
    },
    Assumption {
        name: "callees-keep-the-convention",
        says: "Any callee that compiled code calls by its address restores the stack pointer and the callee-saved \
               registers of the ABI, and so does an opaque compiled function. Neither writes to the saved registers \
               of its callers, nor reads more of the stack than its caller passes. (Two exceptions are recognized: \
               programs in which a function pops its arguments, and registers that a function changes without saving \
               them, as global register variables.)",
        applied_in: "crates/kcfg/src/flow/mod.rs",
        guards: &["crates/kflow/src/tests/calls.rs: what_keeps_to_a_convention", FOLD, WEB_KERNEL],
        applies: |_, reports| folds(reports),
    },
    Assumption {
        name: "asm-leaves-the-stack-pointer",
        says: "If compiled kernel code calls hand-written code, that code returns with the stack pointer unchanged, \
               as compilers assume of `asm`, and does not write to the saved registers of its callers.",
        applied_in: "crates/kcfg/src/flow/groups.rs",
        guards: &["crates/kflow/src/tests/calls.rs: what_keeps_to_a_convention", FOLD, WEB_KERNEL],
        applies: |graph, reports| is_kernel(graph) && folds(reports),
    },
    Assumption {
        name: "functions-return-once",
        says: "A function returns once for each call, unless it stores its return address or passes it on, as \
               `setjmp()` does.",
        applied_in: "crates/kflow/src/summary/uses.rs",
        guards: &[FOLD, FEATURES],
        applies: |_, reports| folds(reports),
    },
    Assumption {
        name: "variables-change-by-reference",
        says: "If every live reference to a variable is a load, the variable keeps its initial value: variables that \
               are changed from outside by name are listed. No read-only data is `const volatile` and either never \
               loaded by its own object, or larger than 8 bytes and loaded through a register.",
        applied_in: "crates/kcfg/src/flow/memory.rs",
        guards: &[FOLD, WEB_KERNEL],
        applies: |_, reports| folds(reports),
    },
    Assumption {
        name: "stable-facts-are-stable",
        says: "A fact of `--specialize` with a reason under `stable` stays true while a copied path runs, from the comparison at its entry until it returns, whatever stores and other code there are on the way, or it does not matter that the path still uses the old value. An object with a reason under `exists` is there.",
        applied_in: "crates/kopt/src/specialize/state.rs",
        guards: &[SPECIALIZE, PATHS],
        applies: |_, reports| specializes(reports),
    },
    Assumption {
        name: "loads-on-paths-have-no-effect",
        says: "A load on a path that `--specialize` copies has no effect besides its result, so that it need not be made if nothing uses the result: paths read no registers of devices.",
        applied_in: "crates/kopt/src/specialize/op.rs",
        guards: &[SPECIALIZE],
        applies: |_, reports| specializes(reports),
    },
    Assumption {
        name: "pushed-words-are-no-variables",
        says: "A pointer that code computes from a variable in a frame does not lead to words that were pushed: saved registers, and arguments of calls. A function that gets no arguments on the stack does not write to the frame of its caller through its stack pointer.",
        applied_in: "crates/kopt/src/specialize/explore.rs",
        guards: &[SPECIALIZE],
        applies: |_, reports| specializes(reports),
    },
];

const FREEZE: &str = "crates/kopt/tests/filetests: freeze";
const NAMES: &str = "tests/tests/kernels/frozen.rs: kernels_without_a_known_name_are_not_frozen";
const FREEZE_ON_ARM: &str = "crates/kopt/tests/filetests_arm: freeze";

const DATA_CUTS: &str =
    "crates/kopt/tests/data_cuts/main.rs: references_mean_the_variables_that_the_compiler_meant";
const FEATURES: &str = "tests/tests/features.rs: features_survive";
const FOLD: &str = "crates/kopt/tests/filetests: fold";
const OPAQUE: &str = "crates/kcfg/tests/lift.rs: what_does_not_fit_is_opaque_by_reason";
const INLINE: &str = "crates/kopt/tests/filetests: inline";
const SPECIALIZE: &str = "crates/kopt/tests/filetests: specialize";
const INITMOTION: &str = "crates/kopt/tests/filetests: initmotion";
const SYSARGS: &str = "crates/kopt/tests/filetests: sysargs";
const REFUSED_OPERATIONS: &str =
    "tests/tests/kernels/operations.rs: a_kernel_refuses_what_no_program_asks_for";
const REFUSED_ON_ARM: &str = "tests/tests/kernels/arm.rs: a_thumb_kernel_refuses_what_no_program_asks_for";
const PATHS: &str = "tests/tests/kernels/paths.rs: datagrams_take_their_path_or_the_original_one";
const WEB_KERNEL: &str = "tests/tests/kernels/main.rs: the_web_kernel_shrinks_and_still_serves";
const KEYS: &str = "crates/kopt/tests/filetests: keys";
const OTHER_COMMAND_LINE: &str =
    "tests/tests/kernels/parameters.rs: a_kernel_for_one_command_line_says_what_another_asks_for";

fn is_kernel(graph: &Graph) -> bool {
    matches!(graph.world(), World::Kernel(_))
}

fn specializes(reports: &[PassReport]) -> bool {
    reports.iter().any(|report| report.pass == "specialize" && report.changed())
}

fn cuts_data(graph: &Graph) -> bool {
    graph.node_ids().any(|node| graph.is_cut_variable(node))
}

fn has_sites(graph: &Graph) -> bool {
    graph.node_ids().any(|node| graph.chunk(node).is_some_and(|chunk| matches!(chunk.life, Life::Site(_))))
}

/// Whether the terminator of some block satisfies `so`.
fn ends(graph: &Graph, so: impl Fn(&Terminator) -> bool) -> bool {
    graph.node_ids().any(|node| graph.block(node).is_some_and(|block| so(&block.end)))
}

/// Whether a pass has frozen anything.
fn freezes(report: &PassReport) -> bool {
    let frozen = report.counts.iter().filter(|(what, _)| what.ends_with("bytes frozen"));
    report.pass == "freeze" && frozen.map(|(_, &bytes)| bytes).sum::<u64>() > 0
}

/// Whether the pass `initmotion` has a nonzero count of this name: it moved something to memory that is freed after
/// boot.
fn moves(report: &PassReport, what: &str) -> bool {
    report.pass == "initmotion" && report.counts.get(what).is_some_and(|&number| number > 0)
}

fn folds(reports: &[PassReport]) -> bool {
    reports.iter().any(|report| report.pass == "fold" && (report.changed() || report.counted()))
}

fn redirects_calls(reports: &[PassReport]) -> bool {
    reports.iter().any(|report| report.pass == "syscalls" && report.redirected > 0)
}

fn refuses_operations(reports: &[PassReport]) -> bool {
    reports.iter().any(|report| report.pass == "sysargs" && report.redirected > 0)
}

fn removes_parameters(reports: &[PassReport]) -> bool {
    reports.iter().any(|report| report.pass == "params" && report.changed())
}
