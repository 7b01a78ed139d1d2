//! Small programs with exactly known calls, compiled with common options.
//!
//! The first lines of each fixture list its calls on each machine, and the function whose number cannot be known, if
//! any.

mod common;

use std::collections::BTreeSet;

use common::{Machine, compile, expectation, expected_calls, own_calls, section};

/// A program without a C library.
const BARE: &str = "-nostdlib -ffreestanding";

const OPTIONS: [&str; 9] = [
    "-static -O0",
    "-static -O1",
    "-static -O2",
    "-static -Os",
    "-O2 -fPIE -static-pie",
    "-static -O2 -fno-pie -no-pie",
    "-static -O2 -fno-asynchronous-unwind-tables -fomit-frame-pointer -fcf-protection=none",
    "-static -O0 -fno-asynchronous-unwind-tables",
    "-static -O2 -s",
];

/// Options for position-independent programs, in which GCC emits different code.
const POSITION_INDEPENDENT: [&str; 3] =
    ["-O2 -fPIE -static-pie", "-Os -fPIE -static-pie", "-O2 -fPIE -static-pie -s"];

fn check(fixture: &str) {
    check_on(&Machine::every().collect::<Vec<_>>(), fixture);
}

fn check_on(machines: &[Machine], fixture: &str) {
    check_with(machines, fixture, &OPTIONS);
}

fn check_with(machines: &[Machine], fixture: &str, all_options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for &machine in machines {
        for options in all_options {
            compile(machine, fixture, &format!("{BARE} {options}"), &program);
            let section = section(&program, machine.abi());
            let what = format!("{fixture} for {} with {options}: {section:#}", machine.abi());
            assert_eq!(own_calls(&section), expected_calls(fixture, machine.abi()), "{what}");
            let unresolved = section["unresolved"].as_array().unwrap();
            let expected = expectation(fixture, "unresolved");
            assert_eq!(section["complete"], unresolved.is_empty(), "{what}");
            assert_eq!(unresolved.is_empty(), expected.is_none(), "{what}");
            if !options.ends_with(" -s") {
                let function = |site: &serde_json::Value| site["function"].as_str().map(str::to_owned);
                assert!(unresolved.iter().all(|site| function(site) == expected), "{what}");
            }
        }
    }
}

/// Returns the options that leave symbols in the program.
fn with_symbols() -> Vec<&'static str> {
    OPTIONS.into_iter().filter(|options| !options.ends_with(" -s")).collect()
}

#[test]
fn wrappers() {
    check("wrappers.c");
}

#[test]
fn numbers_in_the_callers_frame() {
    // On AArch64, unoptimised code keeps too many values in frames that other code may write to.
    check_on(&Machine::ALL, "stack.c");
}

#[test]
fn numbers_that_others_overwrite() {
    check("overwritten.c");
    check("local.c");
    check("hidden.c");
}

/// Symbols show the parts of variables.
#[test]
fn numbers_in_parts_of_variables() {
    check_with(&Machine::ALL, "fields.c", &with_symbols());
    check_on(&Machine::ALL, "bytes.c");
}

#[test]
fn numbers_that_are_chosen() {
    check("choices.c");
}

/// The scan does not track stack arguments on i386, nor frame contents across a system call, where the kernel may
/// continue with another stack.
#[test]
fn what_functions_are_called_with() {
    let optimized: Vec<&str> = OPTIONS.into_iter().filter(|options| !options.contains("-O0")).collect();
    check_with(&[Machine::X86_64], "entered.c", &optimized);
    check_with(
        &[Machine::I386],
        "entered.c",
        &["-static -O2 -fno-pie -no-pie", "-static -Os -fno-pie -no-pie"],
    );
    check_on(&[Machine::I386, Machine::X86_64], "anyhow.c");
}

#[test]
fn jump_tables() {
    check("cases.c");
}

/// With less optimisation, every function has a frame, and jumps in it are expected to stay in the function.
#[test]
fn jumps_in_functions_without_frames() {
    let optimized: Vec<&str> = OPTIONS.into_iter().filter(|options| options.contains("-O2")).collect();
    check_with(&Machine::ALL, "labels.c", &optimized);
    let options = "-O2 -fPIE -static-pie -fno-asynchronous-unwind-tables";
    check_with(&Machine::ALL, "bounds.c", &[&format!("{options} -s")]);
    // A symbol has the size of the function.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for machine in Machine::ALL {
        compile(machine, "bounds.c", &format!("{BARE} {options}"), &program);
        let found = section(&program, machine.abi());
        assert_eq!(found["complete"], true, "{found:#}");
        let calls: Vec<&str> =
            found["calls"].as_array().unwrap().iter().filter_map(|call| call["name"].as_str()).collect();
        let chosen = ["alarm", "fchdir", "getpid", "getppid", "gettid", "pause", "sync"];
        assert!(chosen.iter().all(|name| calls.contains(name)), "{found:#}");
    }
}

#[test]
fn code_that_goes_on_in_the_next_function() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(Machine::X86_64, "falls.S", &format!("{BARE} -static"), &program);
    assert_eq!(own_calls(&section(&program, "x86_64")), expected_calls("falls.S", "x86_64"));
}

#[test]
fn functions_that_go_on_in_called_ones() {
    check_with(&[Machine::X86_64], "into.S", &["-static", "-static -DCALLS"]);
}

/// Methods that Go types refer to are unknown and reported as such.
#[test]
fn methods_of_go() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(Machine::X86_64, "golang.c", &format!("{BARE} -static -O2"), &program);
    let section = section(&program, "x86_64");
    assert_eq!(own_calls(&section), expected_calls("golang.c", "x86_64"));
    let reasons: Vec<&str> = section["unresolved"]
        .as_array()
        .unwrap()
        .iter()
        .map(|site| site["reason"].as_str().unwrap())
        .collect();
    assert!(matches!(reasons[..], [reason] if reason.starts_with("compiled by Go")), "{section:#}");
}

/// Targets of the large code model are unknown and reported as such.
#[test]
fn the_large_code_model() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    let options = format!("{BARE} -static-pie -O2 -fPIE -mcmodel=large");
    compile(Machine::X86_64, "wrappers.c", &options, &program);
    let section = section(&program, "x86_64");
    let reasons =
        section["unresolved"].as_array().unwrap().iter().map(|site| site["reason"].as_str().unwrap());
    assert!(reasons.into_iter().any(|reason| reason.contains("large code model")), "{section:#}");
}

/// Switches whose tables are not known at the jump, and similar code.
#[test]
fn tables_that_wait_in_registers() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for options in ["-static", "-static-pie"] {
        compile(Machine::X86_64, "switches.S", &format!("-nostdlib {options}"), &program);
        let found = section(&program, "x86_64");
        assert_eq!(found["complete"], true, "{options}: {found:#}");
        assert_eq!(own_calls(&found), expected_calls("switches.S", "x86_64"), "{options}");
        compile(Machine::X86_64, "switches.S", &format!("-nostdlib {options} -DOUTSIDE"), &program);
        let found = section(&program, "x86_64");
        assert_eq!(found["unresolved"][0]["kind"], "jump", "{options}: {found:#}");
    }
}

/// A switch whose table address is changed by a function that does not preserve the register.
#[test]
fn tables_that_callees_change() {
    check_with(&[Machine::X86_64], "changed.S", &["-static", "-static-pie"]);
}

/// A switch in a function that has a symbol but no unwind table entry.
#[test]
fn tables_of_hand_written_code() {
    check_with(&[Machine::X86_64], "bare.S", &["-static"]);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for options in ["-DNAMELESS", "-s"] {
        compile(Machine::X86_64, "bare.S", &format!("{BARE} -static {options}"), &program);
        let found = section(&program, "x86_64");
        assert_eq!(found["unresolved"][0]["kind"], "jump", "{options}: {found:#}");
    }
}

#[test]
fn tables_of_labels() {
    check_with(&[Machine::X86_64], "interpreter.c", &POSITION_INDEPENDENT);
}

/// Many jumps with the same targets, and the facts before all of them.
#[test]
fn numbers_that_wait_in_interpreters() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for options in ["-Os -fPIE -static-pie", "-O2 -fPIE -static-pie -s"] {
        check_with(&[Machine::X86_64], "operations.c", &[options]);
        compile(Machine::X86_64, "operations.c", &format!("{BARE} {options} -DCHANGED"), &program);
        let found = section(&program, "x86_64");
        assert!(found["complete"] == false || own_calls(&found).contains(&95), "{options}: {found:#}");
    }
}

#[test]
fn wrappers_behind_pointers() {
    check("pointers.c");
}

/// Labels in records, which wait in registers.
#[test]
fn labels_in_records() {
    check_with(&[Machine::X86_64], "places.c", &POSITION_INDEPENDENT);
}

/// Every load in code without function extents may return every page address that such code spills.
#[test]
fn many_spilled_pages_take_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(Machine::Aarch64, "spilled.S", &format!("{BARE} -static"), &program);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -v 2097152; exec \"$0\" \"$1\"", env!("CARGO_BIN_EXE_syscall-scan")]);
    let output = limited.arg(&program).stdin(std::process::Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(own_calls(&section(&program, "aarch64")), expected_calls("spilled.S", "aarch64"));
}

/// A wrapper whose address is in a writable structure.
#[test]
fn wrappers_behind_fields() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for options in ["-static -O2", "-static-pie -O2 -fPIE -s", "-static -Os -s"] {
        compile(Machine::X86_64, "held.c", &format!("{BARE} {options}"), &program);
        let found = section(&program, "x86_64");
        assert_eq!(found["complete"], true, "{options}: {found:#}");
        assert_eq!(own_calls(&found), expected_calls("held.c", "x86_64"), "{options}");
        compile(Machine::X86_64, "held.c", &format!("{BARE} {options} -DREAD"), &program);
        let found = section(&program, "x86_64");
        assert_eq!(found["unresolved"][0]["kind"], "call", "{options}: {found:#}");
    }
}

#[test]
fn numbers_from_outside() {
    check("unknown.c");
    check("partial.c");
    check("filled.c");
}

#[test]
fn code_that_cannot_run() {
    check("dead.c");
}

#[test]
fn functions_behind_pointers() {
    check("callbacks.c");
    check("optional.c");
    // In stripped 32-bit ARM programs, unaligned words count only as addresses of Thumb code.
    let others: Vec<Machine> = Machine::every().filter(|&machine| machine != Machine::Arm).collect();
    check_on(&others, "packed.c");
    check_with(&[Machine::Arm], "packed.c", &with_symbols());
}

#[test]
fn landing_pads() {
    let options = ["-static -O0", "-static -O2", "-O2 -fPIE -static-pie", "-static -Os -s"]
        .map(|o| format!("-fexceptions {o}"));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    check_with(&Machine::every().collect::<Vec<_>>(), "pads.c", &options);
}

#[test]
fn jumps_by_return() {
    check_on(&Machine::ALL, "pushed.c");
}

/// Branches and returns replaced by calls, for processors with vulnerable branch prediction.
#[test]
fn retpolines() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for machine in Machine::ALL {
        for fixture in ["callbacks.c", "wrappers.c"] {
            for kind in ["thunk", "thunk-inline"] {
                let guarded =
                    format!("-mindirect-branch={kind} -mfunction-return={kind} -fcf-protection=none");
                for options in
                    ["-mindirect-branch-register -static -O2", "-O2 -fPIE -static-pie", "-static -O0 -s"]
                {
                    compile(machine, fixture, &format!("{BARE} {options} {guarded}"), &program);
                    let section = section(&program, machine.abi());
                    let what = format!("{fixture} for {} with {options} {guarded}", machine.abi());
                    assert_eq!(
                        own_calls(&section),
                        expected_calls(fixture, machine.abi()),
                        "{what}: {section:#}"
                    );
                    assert_eq!(section["complete"], true, "{what}: {section:#}");
                }
            }
        }
    }
}

/// The bounds of variables are known in programs with symbols. i386 code refers to variables by small distances, which
/// look like other numbers.
#[test]
fn tables_of_functions() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for options in OPTIONS {
        compile(Machine::X86_64, "tables.c", &format!("{BARE} {options}"), &program);
        let found = own_calls(&section(&program, "x86_64"));
        let expected = expected_calls("tables.c", "x86_64");
        assert!(found.is_superset(&expected), "{options}: {found:?}");
        if options.ends_with(" -s") {
            continue;
        }
        // Unoptimised code stores the compared address on the stack, where other code may find it.
        let compared = BTreeSet::from([34]);
        let exact = options.contains("-O2") || options.contains("-Os");
        let allowed: BTreeSet<u64> = if exact { expected } else { &expected | &compared };
        assert!(found.is_subset(&allowed), "{options}: {found:?}");
    }
    compile(Machine::I386, "tables.c", &format!("{BARE} -static -O2"), &program);
    assert!(own_calls(&section(&program, "i386")).is_superset(&expected_calls("tables.c", "i386")));
}

#[test]
fn walks_through_tables() {
    check("walks.c");
}

#[test]
fn both_abis_of_one_gate() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(Machine::X86_64, "x32.S", &format!("{BARE} -static"), &program);
    for abi in ["x86_64", "x32"] {
        assert_eq!(own_calls(&section(&program, abi)), expected_calls("x32.S", abi), "{abi}");
    }
    let section = section(&program, "x32");
    let close = section["calls"].as_array().unwrap().iter().find(|call| call["name"] == "close").unwrap();
    assert_eq!(close["args"]["0"][0]["value"], 7, "{close}");
}

#[test]
fn both_gates_of_a_64_bit_machine() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(Machine::X86_64, "compat.S", &format!("{BARE} -static"), &program);
    assert_eq!(own_calls(&section(&program, "x86_64")), expected_calls("compat.S", "x86_64"));
    assert_eq!(own_calls(&section(&program, "i386")), expected_calls("compat.S", "compat"));
}

#[test]
fn functions_that_return_twice() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for machine in Machine::ALL {
        for options in ["-static -O0", "-static -O2", "-static-pie -O2", "-static -Os -s"] {
            compile(machine, "twice.c", options, &program);
            let found = section(&program, machine.abi());
            assert_eq!(found["complete"], false, "{machine:?} {options}");
            if !options.ends_with(" -s") {
                let unresolved = found["unresolved"].as_array().unwrap();
                let names: Vec<_> = unresolved.iter().map(|site| site["function"].as_str()).collect();
                assert_eq!(names, [expectation("twice.c", "unresolved").as_deref()], "{machine:?} {options}");
            }
        }
    }
}

/// The C library, whose calls are not listed here: all are resolved, the calls of the program are among them, and
/// symbols make no difference.
#[test]
fn the_c_library() {
    let directory = tempfile::tempdir().unwrap();
    let (program, stripped) = (directory.path().join("program"), directory.path().join("stripped"));
    for machine in Machine::ALL {
        for options in ["-static -O2", "-static-pie -O2", "-static -Os -fno-pie"] {
            compile(machine, "threads.c", &format!("{options} -pthread"), &program);
            compile(machine, "threads.c", &format!("{options} -pthread -s"), &stripped);
            let found = section(&program, machine.abi());
            assert_eq!(found["complete"], true, "{machine:?} {options}: {:#}", found["unresolved"]);
            assert!(own_calls(&found).is_superset(&expected_calls("threads.c", machine.abi())));
            assert_eq!(own_calls(&found), own_calls(&section(&stripped, machine.abi())), "{options}");
        }
    }
}

#[test]
fn tables_of_distances() {
    check_on(&[Machine::X86_64, Machine::Aarch64], "distances.c");
}

#[test]
fn vsyscall_page() {
    check_on(&[Machine::X86_64], "vsyscall.c");
}

/// The code of `crt1.o` that leads to `main` is within the unwind table entry for `_start`.
#[test]
fn main_of_static_aarch64_programs() {
    let directory = tempfile::tempdir().unwrap();
    let (program, stripped) = (directory.path().join("program"), directory.path().join("stripped"));
    compile(Machine::Aarch64, "threads.c", "-static -O2 -pthread", &program);
    compile(Machine::Aarch64, "threads.c", "-static -O2 -pthread -s", &stripped);
    let calls = own_calls(&section(&program, "aarch64"));
    assert!(calls.is_superset(&expected_calls("threads.c", "aarch64")), "{calls:?}");
    assert_eq!(own_calls(&section(&stripped, "aarch64")), calls);
}

#[test]
fn memory_made_executable() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for options in ["-O2", "-static -O2"] {
        compile(Machine::X86_64, "made.c", options, &program);
        let found = section(&program, "x86_64");
        assert_eq!(found["complete"], true, "{:#}", found["unresolved"]);
        let places = found["executable"].as_array().unwrap();
        let functions: Vec<_> = places.iter().map(|place| place["function"].as_str().unwrap()).collect();
        assert_eq!(functions, ["main"], "{options}");
    }
    compile(Machine::X86_64, "threads.c", "-O2 -pthread", &program);
    assert!(section(&program, "x86_64")["executable"].is_null());
}

#[test]
fn musl_calls_by_address() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    let mut compiler = std::process::Command::new("musl-gcc");
    compiler
        .args(["-static", "-O2", "-w", "-mno-red-zone", "-o"])
        .arg(&program)
        .arg(common::fixture("musl.c"));
    kshrink_tests::process::run(&mut compiler);
    let found = section(&program, "x86_64");
    assert_eq!(found["complete"], true, "{:#}", found["unresolved"]);
    assert!(own_calls(&found).is_superset(&expected_calls("musl.c", "x86_64")));
}
