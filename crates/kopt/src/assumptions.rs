/*!
The assumptions of the passes that remove.

Most of what decides whether something may be removed is proved from the objects. Some of it is assumed: rules of the
language, conventions of compilers, names in the kernel. This is the list of these assumptions. `kshrink-spec` puts those
that a run depended on into its report, so that a kernel that fails can be searched for the assumption that it breaks.
Each has tests that fail if it is applied otherwise (its *guards*).
*/

use goblin::elf::section_header::SHF_MERGE;
use kcfg::graph::{Graph, Life, Terminator};
use kcfg::special::{RootReason, World, is_retpoline};
use kelf::Machine;
use serde::Serialize;

use crate::{PassReport, exports};

/// Something that a removal depends on and that the objects do not prove.
#[derive(Debug, Serialize)]
pub struct Assumption {
    /// Its name.
    pub name: &'static str,
    /// What is assumed, in a sentence.
    pub says: &'static str,
    /// The source file of kshrink that applies it.
    pub applied_in: &'static str,
    /// Tests that guard it, each as `FILE: FUNCTION`.
    pub guards: &'static [&'static str],
    /// Whether removals in a graph depend on it.
    #[serde(skip)]
    applies: fn(&Graph, &[PassReport]) -> bool,
}

/// The assumptions that a run depended on: none if its passes removed and redirected nothing.
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
        says: "A pointer that code stores, returns or passes on points into its object or just behind the last byte \
               of it (C11 6.5.6p8). An integer made of an address and a number (`(uintptr_t)&a + 8`) is not just where \
               another variable begins, but for the one behind it.",
        applied_in: "crates/kcfg/src/lift/variables/mod.rs",
        guards: &[DATA_CUTS, "crates/kcfg/tests/sound.rs: ends_of_variables", FEATURES],
        applies: |graph, _| cuts_data(graph),
    },
    Assumption {
        name: "accesses-stay-in-their-objects",
        says: "An access at a fixed address, or by an index of which the bounds or the first value are known, touches \
               the variable that is meant.",
        applied_in: "crates/kcfg/src/lift/variables/claims.rs",
        guards: &[DATA_CUTS, FEATURES],
        applies: |graph, _| cuts_data(graph),
    },
    Assumption {
        name: "cold-parts-are-named",
        says: "A part of a function that the compiler has moved away, and that shares its frame, has a name with \
               `.cold` in it.",
        applied_in: "crates/kcfg/src/lift/variables/escape.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: an_address_is_followed_into_a_cold_part"],
        applies: |graph, _| {
            cuts_data(graph) && graph.functions.iter().any(|function| function.name.contains(".cold"))
        },
    },
    Assumption {
        name: "symbols-tell-variables",
        says: "A symbol with a size says where a variable begins and ends, and `asm` that computes with the places of \
               data gives them labels without a size.",
        applied_in: "crates/kcfg/src/lift/variables/mod.rs",
        guards: &["crates/kcfg/tests/sound.rs: labels_behind_data", FEATURES],
        applies: |graph, _| cuts_data(graph),
    },
    Assumption {
        name: "merged-entries-are-apart",
        says: "Nothing goes from one string or constant of a mergeable section to its neighbour, because the linker \
               may move each (SHF_MERGE).",
        applied_in: "crates/kcfg/src/lift/plan.rs",
        guards: &["crates/kcfg/tests/lift.rs: strings_are_apart", FEATURES],
        applies: |graph, _| {
            let cut = |section: &kcfg::graph::Section| {
                section.nodes.len() > 1 && section.flags & u64::from(SHF_MERGE) != 0
            };
            graph.sections.iter().any(cut)
        },
    },
    Assumption {
        name: "compilers-name-their-source",
        says: "An object of whose source the build tells nothing is made by a compiler if a symbol names a source \
               file (STT_FILE), and else written by hand.",
        applied_in: "crates/kelf/src/program.rs",
        guards: &[OPAQUE],
        applies: |_, _| true,
    },
    Assumption {
        name: "compilers-type-their-functions",
        says: "A compiler gives each function a symbol with type and size, so that a label without a type is from \
               `asm`.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &[OPAQUE],
        applies: |_, _| true,
    },
    Assumption {
        name: "inline-asm-shows-where-it-goes",
        says: "`asm` in a function goes where relocations, branches and table entries say, unless it has labels, calls \
               into the middle of a function, has branches that compilers do not make, or has the entry of the function \
               and a distance from there side by side in a section of its own.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &["crates/kcfg/tests/sound.rs: transactions", OPAQUE, FEATURES],
        applies: |_, _| true,
    },
    Assumption {
        name: "addresses-are-held",
        says: "An indirect branch goes only to code whose address something that is alive holds, as a relocation \
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
        says: "An integer made of the address of a local function and a number (`(uintptr_t)f + tag`) is not where another \
               function begins, or in one with a computed goto, unless that is at most 8 bytes behind f.",
        applied_in: "crates/kcfg/src/lift/tags.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: functions_as_short_as_a_tag", FEATURES],
        applies: |_, _| true,
    },
    Assumption {
        name: "retpolines-are-named",
        says: "A jump to `__x86_indirect_…` or `__llvm_retpoline_…` goes where a register says.",
        applied_in: "crates/kcfg/src/lift/decode.rs",
        guards: &["crates/kcfg/tests/sound.rs: differences_of_labels"],
        applies: |graph, _| graph.symbols.iter().any(|symbol| is_retpoline(&symbol.name)),
    },
    Assumption {
        name: "functions-return-to-their-callers",
        says: "Code behind a call runs only once the callee has returned; code that is written by hand or not known \
               may return.",
        applied_in: "crates/kcfg/src/returns.rs",
        guards: &[
            "crates/kcfg/tests/lift.rs: calls_that_do_not_come_back",
            "crates/kcfg/tests/lift.rs: calls_that_come_back",
        ],
        applies: |_, _| true,
    },
    Assumption {
        name: "last-calls-do-not-return",
        says: "A call or a trap that ends a compiled function, with nothing or padding behind it, does not come back.",
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
        says: "The end of a section's last function is not reached if it has no branch there \
               (`__builtin_unreachable()`).",
        applied_in: "crates/kcfg/src/lift/references.rs",
        guards: &["crates/kcfg/tests/assumptions.rs: ends_of_functions"],
        applies: |graph, _| ends(graph, |end| *end == Terminator::Unreachable),
    },
    Assumption {
        name: "bugs-are-fatal",
        says: "Nothing resumes behind a `ud2` whose entry in `__bug_table` lacks BUGFLAG_WARNING (lib/bug.c).",
        applied_in: "crates/kcfg/src/lift/sites.rs",
        guards: &["crates/kcfg/tests/lift.rs: warnings_resume_and_bugs_do_not"],
        applies: |graph, _| is_kernel(graph) && ends(graph, |end| *end == Terminator::Trap { next: None }),
    },
    Assumption {
        name: "entries-serve-their-sites",
        says: "An entry of a table about code (exceptions, alternatives, static keys, bugs…) is of use only as long as \
               its code is there.",
        applied_in: "crates/kcfg/src/special.rs",
        guards: &[
            "crates/kcfg/tests/lower.rs: dead_entries_of_weak_tables_go",
            "crates/kcfg/tests/lift.rs: alternatives_live_with_their_originals",
        ],
        applies: |graph, _| has_sites(graph),
    },
    Assumption {
        name: "patches-go-where-tables-say",
        says: "Code that the kernel writes over at run time goes behind itself, or where its own references and the \
               entries about it say.",
        applied_in: "crates/kcfg/src/edges.rs",
        guards: &[
            "crates/kcfg/tests/lift.rs: static_keys",
            "crates/kcfg/tests/lift.rs: static_cpu_has_goes_four_ways",
        ],
        applies: |graph, _| ends(graph, |end| matches!(end, Terminator::Patched { .. })),
    },
    Assumption {
        name: "names-of-sections-tell-their-use",
        says: "Sections of code and data with names of the compiler, or of the kernel's attributes, are used by \
               reference only; what is read from end to end has another name.",
        applied_in: "crates/kcfg/src/special.rs",
        guards: &[
            "crates/kcfg/src/special/tests.rs: rules_of_a_kernel",
            "crates/kcfg/src/special/tests.rs: rules_of_a_user_program",
        ],
        applies: |_, _| true,
    },
    Assumption {
        name: "nothing-unwinds",
        says: "Nothing walks the stack by `.eh_frame`, `.gcc_except_table` or `.orc_unwind`, which are left out. (A program \
               with exception handlers or cleanups is refused unless `--drop-handlers` says that none has to run.)",
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
        says: "The link of a user program wraps no symbol that the objects define (`ld --wrap`), unless `--wrap` says so: \
               references within the rewritten object are settled.",
        applied_in: "crates/kshrink-spec/src/user_program.rs",
        guards: &["tests/tests/user_links.rs: wrapped_symbols_are_refused_or_wrapped"],
        applies: |graph, _| !is_kernel(graph),
    },
    Assumption {
        name: "return-addresses-identify-nothing",
        says: "No function does one thing for one call and another thing for another call because of the address that it \
               returns to (`__builtin_return_address(0)`): identical code with calls becomes one, so that these return to one \
               address. In a kernel, it is printed, and recorded for traces.",
        applied_in: "crates/kopt/src/merge/mod.rs",
        guards: &["tests/tests/user_links.rs: calls_in_identical_code_return_to_one_place"],
        applies: |_, reports| {
            reports.iter().any(|report| matches!(report.pass, "merge" | "icf") && report.changed())
        },
    },
    Assumption {
        name: "exports-serve-modules",
        says: "In a kernel without loadable modules, nothing needs what is exported to them.",
        applied_in: "crates/kcfg/src/lift/plan.rs",
        guards: &[WEB_KERNEL],
        applies: |graph, _| {
            is_kernel(graph) && !graph.roots.iter().any(|root| root.reason == RootReason::Exported)
        },
    },
    Assumption {
        name: "names-that-are-looked-up-are-strings",
        says: "What the kernel or a module looks up by name among what is exported stands in its data as a string that ends \
               with a zero byte, or among the type ids for BPF programs.",
        applied_in: "crates/kopt/src/exports.rs",
        guards: &["crates/kopt/tests/filetests/main.rs: exports"],
        applies: |_, reports| {
            reports
                .iter()
                .any(|report| report.pass == "exports" && report.counts.contains_key(exports::REMOVED))
        },
    },
    Assumption {
        name: "compared-indices-stay",
        says: "An index that was compared in memory has the same value when it is loaded from there.",
        applied_in: "crates/kcfg/src/lift/bounds.rs",
        guards: &["tests/tests/random_programs/main.rs: random_programs_do_what_they_did_before"],
        applies: |graph, _| !graph.tables.is_empty(),
    },
    Assumption {
        name: "jump-tables-serve-their-jumps",
        says: "A jump table into which nothing else points is read by its jumps alone.",
        applied_in: "crates/kcfg/src/lift/switches.rs",
        guards: &["crates/kcfg/tests/lift.rs: resolved_tables_keep_nothing_alive_by_themselves"],
        applies: |graph, _| !graph.tables.is_empty(),
    },
    Assumption {
        name: "plan-is-complete",
        says: "Programs make no system call that the plan does not list; it says so itself, or --assume-complete does.",
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
        says: "Beside programs, only the kernel and its vDSO make system calls, and only those that kplan lists.",
        applied_in: "crates/kplan/src/implicit.rs",
        guards: &[WEB_KERNEL],
        applies: |_, reports| redirects_calls(reports),
    },
    Assumption {
        name: "dispatchers-are-named",
        says: "`ia32_sys_call()` takes the number of a system call as its second argument, `sys_call_table` and \
               `sys_oabi_call_table` are indexed by it, and `sys_ni_syscall()` answers -ENOSYS.",
        applied_in: "crates/kopt/src/syscalls/mod.rs",
        guards: &[WEB_KERNEL],
        applies: |_, reports| redirects_calls(reports),
    },
    Assumption {
        name: "operations-are-listed",
        says: "Programs ask for no operation of a system call that the plan does not list: such an operation is answered \
               with -ENOSYS.",
        applied_in: "crates/kopt/src/sysargs/mod.rs",
        guards: &[SYSARGS, REFUSED_OPERATIONS, REFUSED_ON_ARM],
        applies: |_, reports| refuses_operations(reports),
    },
    Assumption {
        name: "handlers-get-registers",
        says: "`__ia32_sys_…` gets one argument, in the first register, which points to the registers of the program: the \
               first words of `struct pt_regs` are the arguments of the call. Nothing changes them while it runs but what \
               it calls (a tracer changes those of a process that is stopped).",
        applied_in: "crates/kopt/src/sysargs/convention.rs",
        guards: &[SYSARGS, REFUSED_OPERATIONS],
        applies: |graph, reports| graph.machine == Machine::I386 && refuses_operations(reports),
    },
    Assumption {
        name: "roots-of-the-closure-are-listed",
        says: "What runs before a frozen page can come back, or while one does, is what is listed by name for Linux 6.1 \
               and 6.12, what that calls, and what the pointers lead to in the data that it means.",
        applied_in: "crates/kopt/src/freeze/marks/mod.rs",
        guards: &[FREEZE, FREEZE_ON_ARM],
        applies: |graph, reports| is_kernel(graph) && reports.iter().any(freezes),
    },
    Assumption {
        name: "panics-do-not-return-to-the-allocator",
        says: "Code that holds a lock of the page allocator, or runs before anything can thaw, goes on to reclaim, sleep, \
               wake or panic only where that lock is not held or the kernel stops.",
        applied_in: "crates/kopt/src/freeze/marks/mod.rs",
        guards: &[FREEZE],
        applies: |graph, reports| is_kernel(graph) && reports.iter().any(freezes),
    },
    Assumption {
        name: "physical-addresses-are-asked-for",
        says: "Constant data is used by its physical address only if it is aligned to a page, named with an offset that \
               leads out of it, or named by a function that calls one of those that take a buffer for a device, map pages \
               for user space, or pass them to a file or socket, or that computes a physical address itself on ARM \
               (`.pv_table`).",
        applied_in: "crates/kopt/src/freeze/closure.rs",
        guards: &[FREEZE, FREEZE_ON_ARM],
        applies: |graph, reports| is_kernel(graph) && reports.iter().any(freezes),
    },
    Assumption {
        name: "frozen-functions-need-no-alignment",
        says: "Nothing keeps a tag in the low bits of the address of a function that freezes behind a stub: that address is a \
               multiple of nothing.",
        applied_in: "crates/kopt/src/freeze/stubs.rs",
        guards: &[FREEZE],
        applies: |_, reports| {
            reports.iter().any(|report| report.counts.get("regions").is_some_and(|&number| number > 0))
        },
    },
    Assumption {
        name: "init-code-is-done-when-it-is-freed",
        says: "When the kernel frees the memory of its initialization, nothing uses what lies in `.init.text`, \
               `.init.data` and `.init.rodata` any more. Nobody but initialization reads `.initcall*`, `.init.setup` and \
               `.con_initcall.init`, and it only calls the functions there.",
        applied_in: "crates/kopt/src/initmotion/late.rs",
        guards: &[INITMOTION, WEB_KERNEL],
        applies: |_, reports| reports.iter().any(|report| moves(report, "functions moved")),
    },
    Assumption {
        name: "string-functions-keep-no-pointers",
        says: "`_printk()` and other functions that format text, and those that compare or copy strings (`strcmp()`, \
               `of_find_property()`), keep no pointer to what they are given. What is pushed in front of a \
               call of one that formats text, and not taken off the stack again, is an argument.",
        applied_in: "crates/kopt/src/initmotion/uses.rs",
        guards: &[INITMOTION, WEB_KERNEL],
        applies: |_, reports| reports.iter().any(|report| moves(report, "strings moved")),
    },
    Assumption {
        name: "command-line-is-as-planned",
        says: "The kernel is booted with the command line of the plan; if it is not, it says so at boot.",
        applied_in: "crates/kopt/src/params/mod.rs",
        guards: &[OTHER_COMMAND_LINE],
        applies: |_, reports| removes_parameters(reports),
    },
    Assumption {
        name: "parameters-are-tables-of-entries",
        says: "The entries of `.init.setup` and `__param` are read one by one between the symbols of the linker script \
               (init/main.c, kernel/params.c), and have the layout of `struct obs_kernel_param` and `struct kernel_param`.",
        applied_in: "crates/kcfg/src/parameters.rs",
        guards: &[OTHER_COMMAND_LINE],
        applies: |_, reports| removes_parameters(reports),
    },
    Assumption {
        name: "switches-have-addresses",
        says: "Whoever switches a static key, or changes the trampoline of a static call, has its address as a relocation.",
        applied_in: "crates/kopt/src/keys.rs",
        guards: &[KEYS],
        applies: |_, reports| reports.iter().any(|report| report.pass == "keys" && report.changed()),
    },
    Assumption {
        name: "callees-keep-the-convention",
        says: "What compiled code calls by its address gives back the stack pointer and the registers that the ABI has \
               callees save, and so does a compiled function that is not understood; neither writes to where its \
               callers have saved theirs, nor reads more of the stack than its caller passes it. (A program in which a \
               function pops its arguments is not taken to do so, nor are registers that a function changes without \
               saving them: global register variables.)",
        applied_in: "crates/kcfg/src/flow/mod.rs",
        guards: &["crates/kflow/src/tests/calls.rs: what_keeps_to_a_convention", FOLD, WEB_KERNEL],
        applies: |_, reports| folds(reports),
    },
    Assumption {
        name: "asm-leaves-the-stack-pointer",
        says: "Hand-written code that the compiled code of a kernel calls comes back with the stack pointer where it was, as \
               compilers take for granted of `asm`, and does not write to where its callers have saved their registers.",
        applied_in: "crates/kcfg/src/flow/groups.rs",
        guards: &["crates/kflow/src/tests/calls.rs: what_keeps_to_a_convention", FOLD, WEB_KERNEL],
        applies: |graph, reports| is_kernel(graph) && folds(reports),
    },
    Assumption {
        name: "functions-return-once",
        says: "A function returns once for each call, unless it stores its return address or passes it on, as `setjmp()` does.",
        applied_in: "crates/kflow/src/summary/uses.rs",
        guards: &[FOLD, FEATURES],
        applies: |_, reports| folds(reports),
    },
    Assumption {
        name: "variables-change-by-reference",
        says: "A variable to which nothing alive refers but instructions that load from it holds what it held in the \
               beginning: what changes it from outside, by its name, is listed. Read-only data is not \
               `const volatile` that no code of its own object loads, or that is larger than 8 bytes and loaded through \
               a register.",
        applied_in: "crates/kcfg/src/flow/memory.rs",
        guards: &[FOLD, WEB_KERNEL],
        applies: |_, reports| folds(reports),
    },
];

const FREEZE: &str = "crates/kopt/tests/filetests/main.rs: freeze";
const FREEZE_ON_ARM: &str = "crates/kopt/tests/filetests_arm/main.rs: freeze";

const DATA_CUTS: &str =
    "crates/kopt/tests/data_cuts/main.rs: references_mean_the_variables_that_the_compiler_meant";
const FEATURES: &str = "tests/tests/features.rs: features_survive";
const FOLD: &str = "crates/kopt/tests/filetests/main.rs: fold";
const OPAQUE: &str = "crates/kcfg/tests/lift.rs: what_does_not_fit_is_opaque_by_reason";
const INITMOTION: &str = "crates/kopt/tests/filetests/main.rs: initmotion";
const SYSARGS: &str = "crates/kopt/tests/filetests/main.rs: sysargs";
const REFUSED_OPERATIONS: &str =
    "tests/tests/kernels/operations.rs: a_kernel_refuses_what_no_program_asks_for";
const REFUSED_ON_ARM: &str = "tests/tests/kernels/arm.rs: a_thumb_kernel_refuses_what_no_program_asks_for";
const WEB_KERNEL: &str = "tests/tests/kernels/main.rs: the_web_kernel_shrinks_and_still_serves";
const KEYS: &str = "crates/kopt/tests/filetests/main.rs: keys";
const OTHER_COMMAND_LINE: &str =
    "tests/tests/kernels/parameters.rs: a_kernel_for_one_command_line_says_what_another_asks_for";

fn is_kernel(graph: &Graph) -> bool {
    matches!(graph.world, World::Kernel(_))
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

/// Whether a pass moved something to memory that is freed after boot, given what it counts.
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
