//! `coverage qemu`, `merge` and `summary`, with a trace of a kernel in miniature.

mod common;

use std::fs;
use std::process::Stdio;

use common::{Traced, functions, plan, refused, text};
use kelf::Machine;
use kisa::isa;

const RAN: [&str; 7] = [
    "start_physical 0+51",
    "start_kernel 0+55",
    "half 0+4 10+1",
    "kernel.c:hand_written 0+1",
    "kernel.c:generated 0+13",
    "helper_of_other 0+2",
    "other.c:helper 0+1",
];

#[test]
fn what_ran_is_named_in_its_order() {
    let traced = Traced::new();
    let output = traced.coverage(&["qemu", "vmlinux", "trace"]);
    let plan = plan(&output);
    // The first function ran at its physical address.
    assert_eq!(functions(&plan), RAN);
    let coverage = plan.coverage.unwrap();
    let firsts: Vec<u64> = coverage.functions.iter().map(|function| function.first).collect();
    assert_eq!(firsts, [0, 1, 2, 4, 5, 6, 7]);
    let sections: Vec<&str> = coverage.functions.iter().map(|function| &function.section[..]).collect();
    assert_eq!(sections[..2], [".head.text", ".text"]);
    // The instruction that the kernel generated.
    let run = &coverage.runs[0];
    assert_eq!(
        (&run.source[..], &run.trace[..], &run.kernel[..], run.unknown),
        ("qemu", "trace", "vmlinux", 1)
    );
    let warning =
        "coverage: warning: trace: 1 of 38 instructions in the kernel's address space belong to no function";
    assert!(text(&output.stderr).starts_with(warning), "{}", text(&output.stderr));
}

#[test]
fn lengths_are_those_of_the_instructions() {
    let traced = Traced::new();
    let log = fs::read_to_string(traced.path("trace")).unwrap();
    let isa = isa(Machine::I386);
    let mut decoded = 0;
    for block in
        log.split("----------------\n").filter(|block| block.contains("0xc0100") || block.contains("0x00100"))
    {
        let lines = block.lines().filter(|line| line.starts_with("0x"));
        let mut bytes = Vec::new();
        for line in lines {
            let (_, rest) = line.split_once(":  ").unwrap();
            let digits = rest.split("  ").next().unwrap().split(' ');
            bytes.extend(digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()));
        }
        let inst = isa.decode(&bytes, kisa::Encoding::Main.at(0));
        assert_eq!(inst.map(|inst| inst.bytes.len()), Some(bytes.len()), "{block}");
        decoded += 1;
    }
    assert!(decoded >= 37, "{decoded}");
}

#[test]
fn a_trace_of_one_link_is_of_use_in_another() {
    let traced = Traced::new();
    let plan_file = traced.write("plan.json", traced.coverage(&["qemu", "vmlinux", "trace"]).stdout);
    let summary = |kernel: &str| {
        let output = traced.coverage(&["summary", plan_file.to_str().unwrap(), "--kernel", kernel]);
        assert!(output.status.success() && output.stderr.is_empty());
        text(&output.stdout).to_owned()
    };
    let own = summary("vmlinux");
    let figures: Vec<&str> =
        own.lines().find(|line| line.starts_with(".text   ")).unwrap().split_whitespace().collect();
    assert_eq!(figures[..5], [".text", "6", "85", "77", "90.6"]);
    assert!(!own.contains("functions are not in"));
    let shares = |summary: &str| {
        let shares = summary.split("\n\n").nth(2).unwrap();
        shares.lines().find(|line| line.starts_with(".text ")).unwrap().to_owned()
    };
    assert_eq!(shares(&own), shares(&summary("relinked")));
}

#[test]
fn a_truncated_trace_is_used_and_said() {
    let traced = Traced::new();
    let log = fs::read(traced.path("trace")).unwrap();
    let half = text(&log).find("0xc010009e:").unwrap();
    traced.write("half", &log[..half + 15]);
    let output = traced.coverage(&["qemu", "vmlinux", "half"]);
    assert_eq!(
        functions(&plan(&output))[..5],
        ["start_physical 0+51", "start_kernel 0+46", RAN[2], RAN[3], RAN[4]]
    );
    assert_eq!(functions(&plan(&output)).len(), 5);
    assert!(text(&output.stderr).contains("half: the last line is truncated"), "{}", text(&output.stderr));
}

#[test]
fn blocks_of_several_instructions_are_warned_of() {
    let traced = Traced::new();
    let log = fs::read_to_string(traced.path("trace")).unwrap().replace("\n\n----------------\nIN: \n", "\n");
    traced.write("long", log);
    let output = traced.coverage(&["qemu", "vmlinux", "long"]);
    assert_eq!(functions(&plan(&output)), RAN);
    assert!(text(&output.stderr).contains("blocks of more than one instruction"), "{}", text(&output.stderr));
}

#[test]
fn a_kernel_can_be_loaded_elsewhere() {
    let traced = Traced::new();
    // The same kernel, as linked by a linker without physical addresses.
    let mut objcopy = std::process::Command::new("objcopy");
    objcopy.args(["--change-section-lma", "*+0xc0000000", "vmlinux", "virtual"]).current_dir(traced.path(""));
    kshrink_tests::process::run(&mut objcopy);
    assert_eq!(functions(&plan(&traced.coverage(&["qemu", "virtual", "trace"]))), RAN[1..]);
    let output = traced.coverage(&["qemu", "virtual", "trace", "--load-address", "0x100000"]);
    assert_eq!(functions(&plan(&output)), RAN);
}

#[test]
fn counts_are_read() {
    let traced = Traced::new();
    let counted = "0xc010009e:  eb fd  ran 4\n0xc010009d:  c3  ran 4\n0xc0100043:  bc 00 24 10 c0  ran 1\n\
                   0xc010006c:  e8 2d 00 00 00  ran 4\n";
    traced.write("counted", counted);
    let plan = plan(&traced.coverage(&["qemu", "vmlinux", "counted"]));
    let counts: Vec<_> =
        plan.coverage.unwrap().functions.into_iter().map(|function| function.count).collect();
    assert_eq!(counts, [Some(4), Some(4), Some(1)]);
}

#[test]
fn data_that_was_read_is_taken_down() {
    let traced = Traced::new();
    traced.read_data();
    let with = plan(&traced.coverage(&["qemu", "--data", "reads", "reads.trace"]));
    let reads = with.coverage.as_ref().unwrap().runs[0].reads.as_ref().unwrap();
    assert_eq!(reads.size, 100);
    let ranges: Vec<(u64, u64)> = reads.ranges.iter().map(|range| (range.offset, range.size)).collect();
    // Before paging, a byte, the source of a copy, and the last two bytes; neither written data nor the data after it.
    assert_eq!(ranges, [(0, 8), (16, 8), (32, 16), (96, 4)]);
    let without = plan(&traced.coverage(&["qemu", "reads", "reads.trace"]));
    assert_eq!(without.coverage.as_ref().unwrap().runs[0].reads, None);
    assert_eq!(functions(&with), functions(&without));

    let refuse = |arguments: &[&str], message| refused(&traced.coverage(arguments), 2, message);
    refuse(
        &["qemu", "--data", "vmlinux", "trace"],
        "trace: it does not record what data was read; expected a trace of",
    );
    let log = fs::read_to_string(traced.path("reads.trace")).unwrap();
    let [here, elsewhere] =
        [reads.address, reads.address - 8].map(|address| format!("data {address:#010x}-"));
    assert!(log.contains(&here), "{log}");
    traced.write("moved", log.replace(&here, &elsewhere));
    let message =
        format!("moved: of another kernel than reads: it watched the data at {:#x}", reads.address - 8);
    refuse(&["qemu", "--data", "reads", "moved"], &message);
}

#[test]
fn code_and_data_of_a_64_bit_kernel_are_named() {
    let traced = Traced::new();
    traced.boot_64();
    let reads = |plan: &kplan::Plan| -> Vec<(u64, u64)> {
        let reads = plan.coverage.as_ref().unwrap().runs[0].reads.as_ref().unwrap();
        reads.ranges.iter().map(|range| (range.offset, range.size)).collect()
    };
    // 32-bit and 64-bit code at the physical address, then code in the uppermost 2 GB.
    let all = plan(&traced.coverage(&["qemu", "--data", "vmlinux64", "trace64"]));
    let first =
        ["start_physical 0+110", "kernel64.c:start_long 0+9", "start_kernel 0+29", "free_initmem 0+1"];
    assert_eq!(functions(&all), [&first[..], &["half 0+11"]].concat());
    assert_eq!(reads(&all), [(0, 8), (16, 8), (40, 8)]);
    let later = plan(&traced.coverage(&["qemu", "--data", "--after-boot", "vmlinux64", "trace64"]));
    assert_eq!(functions(&later), ["free_initmem 0+1", "start_kernel 18+11", "half 0+11"]);
    assert_eq!(reads(&later), [(40, 8)]);
}

#[test]
fn what_is_no_trace_of_the_kernel_is_refused() {
    let traced = Traced::new();
    traced.write("text", "hello\nthere\n");
    traced.write("empty", "");
    traced.write("elsewhere", "0x08048000:  90                       nop      \n");
    let refuse = |arguments: &[&str], status, message| refused(&traced.coverage(arguments), status, message);
    refuse(
        &["qemu", "vmlinux", "text"],
        2,
        "text: no instruction in 2 lines; expected a log of QEMU's -d in_asm",
    );
    refuse(&["qemu", "vmlinux", "empty"], 2, "empty: empty; expected a log");
    refuse(&["qemu", "vmlinux", "elsewhere"], 2, "elsewhere: of another kernel than vmlinux: none of its 1");
    refuse(&["qemu", "relinked", "trace"], 2, "trace: of another kernel than relinked: ");
    refuse(&["qemu", "vmlinux", "missing"], 1, "cannot read missing: No such file");
    refuse(&["qemu", "vmlinux", "."], 1, "cannot read .: ");
    refuse(&["qemu", "missing", "trace"], 1, "cannot read missing");
    refuse(
        &["qemu", "kernel.o", "trace"],
        2,
        "kernel.o: this is a relocatable object; expected a linked kernel",
    );
    refuse(&["qemu", "vmlinux", "trace", "--blocks", "text"], 2, "text: not JSON");
    refuse(&["summary", "text"], 2, "text: not JSON");
    traced.write("plan", "{\"schema\": \"kshrink/1\"}");
    refuse(&["summary", "plan"], 2, "plan: it has no coverage");
    refuse(&["qemu", "vmlinux", "trace", "-o", "missing/plan"], 1, "missing");
    assert_eq!(traced.coverage(&["qemu", "vmlinux"]).status.code(), Some(2));
}

/// A map as if the kernel had been rewritten: `half` has its first block at the old place and was 6 bytes longer in
/// between, `start_kernel` has a block that grew.
const BLOCKS: &str = r#"{"schema": "kshrink-blocks/1",
    "functions": [{"name": "half", "size": 17}, {"name": "start_kernel", "size": 81}],
    "blocks": [[3222274115, 29, 1, 0, 20], [3222274144, 28, 1, 53, 28], [3222274172, 4, 0, 0, 4], [3222274182, 1, 0, 16, 1]]}"#;

#[test]
fn a_rewritten_kernel_is_named_as_it_was_compiled() {
    let traced = Traced::new();
    traced.write("blocks.json", BLOCKS);
    let output = traced.coverage(&["qemu", "vmlinux", "trace", "--blocks", "blocks.json", "-o", "plan.json"]);
    assert!(output.status.success() && output.stdout.is_empty());
    let plan = fs::read_to_string(traced.path("plan.json")).unwrap();
    let plan = kplan::Plan::parse(&plan, "plan.json").unwrap();
    assert_eq!(functions(&plan), ["start_kernel 0+20 53+26", "half 0+4 16+1"]);
    // And back, to the addresses of the rewritten kernel.
    let output = traced.coverage(&["summary", "plan.json", "--kernel", "vmlinux", "--blocks", "blocks.json"]);
    let shares = text(&output.stdout).split("\n\n").nth(2).unwrap();
    let figures: Vec<&str> = shares.lines().nth(1).unwrap().split_whitespace().collect();
    // The 29 bytes of the block that grew, 26 of the next, and 5 of half.
    assert_eq!(figures[..3], [".text", "97", "60"]);
}

#[test]
fn plans_are_read_and_added_to() {
    let traced = Traced::new();
    let log = fs::read_to_string(traced.path("trace")).unwrap();
    let middle = log.find("\n0xc010008f").unwrap() + 1;
    traced.write("early", &log[..middle]);
    traced.write("late", &log[middle..]);
    traced.write("first.json", r#"{"limits": {"a": 1}, "schema": "kshrink/1"}"#);
    let first = traced.coverage_of("first.json", &["qemu", "vmlinux", "late"]);
    assert!(text(&first.stdout).contains("\"limits\""));
    traced.write("late.json", &first.stdout);
    let both = plan(&traced.coverage_of("late.json", &["qemu", "vmlinux", "early"]));
    // Functions that occur only in the later trace come last.
    let order = ["kernel.c:hand_written 0+1", RAN[1], RAN[4], RAN[5], RAN[6], RAN[0], RAN[2]];
    assert_eq!(functions(&both), order);
    assert_eq!(both.coverage.as_ref().unwrap().runs.len(), 2);

    // Merging the two, and reading both at once, has the same result.
    traced.write("early.json", traced.coverage(&["qemu", "vmlinux", "early"]).stdout);
    let merged = plan(&traced.coverage(&["merge", "late.json", "early.json"]));
    assert_eq!(merged, both);
    let at_once = plan(&traced.coverage(&["qemu", "vmlinux", "late", "early"]));
    assert_eq!(at_once.coverage, both.coverage);

    // A trace on standard input is not a plan.
    let piped = plan(&traced.coverage_of("trace", &["qemu", "vmlinux", "-"]));
    assert_eq!(functions(&piped), RAN);
    refused(&traced.coverage_of("trace", &["qemu", "vmlinux", "trace"]), 2, "standard input: not JSON");
}

#[test]
fn help_has_examples() {
    let traced = Traced::new();
    let help = traced.coverage(&["--help"]);
    assert!(text(&help.stdout).contains("Examples:\n  coverage qemu vmlinux trace.log"));
    for (command, expected) in [("qemu", "-d in_asm"), ("ftrace", "trace_buf_size="), ("kcore", "pmemsave")] {
        let help = traced.coverage(&[command, "--help"]);
        assert!(text(&help.stdout).contains(expected), "{command}");
    }
    assert!(text(&traced.coverage(&["--version"]).stdout).starts_with("coverage "));
}

#[test]
fn closed_pipe_is_success() {
    let traced = Traced::new();
    // More than a pipe holds, so that a write finds it closed.
    let many = vec!["trace"; 2000];
    let mut command = traced.command(&[&["qemu", "vmlinux"], &many[..]].concat());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!text(&output.stderr).contains("error"), "{}", text(&output.stderr));
    assert!(output.status.success());
}

#[test]
fn what_ran_after_boot_is_told_apart() {
    let traced = Traced::new();
    let symbols = kshrink_tests::process::run(std::process::Command::new("nm").arg(traced.path("vmlinux")));
    let symbol = symbols.lines().find(|line| line.ends_with(" half")).unwrap();
    let start = u64::from_str_radix(&symbol[..8], 16).unwrap();
    // In the format of the plugin, for a kernel that runs `half` twice more after boot.
    let log = fs::read_to_string(traced.path("trace")).unwrap();
    let counted = log.lines().filter(|line| line.starts_with("0x")).map(|line| {
        let (address, rest) = line.split_once(":  ").unwrap();
        let bytes = rest.split("  ").next().unwrap();
        let at = u64::from_str_radix(&address[2..], 16).unwrap();
        let later = if (start..start + 11).contains(&at) { 2 } else { 0 };
        format!("{address}:  {bytes}  ran 3 later {later}\n")
    });
    traced.write("counted", counted.collect::<String>());
    assert_eq!(functions(&plan(&traced.coverage(&["qemu", "vmlinux", "counted"]))), RAN);
    let later = plan(&traced.coverage(&["qemu", "--after-boot", "vmlinux", "counted"]));
    assert_eq!(functions(&later), [RAN[2]]);
    let coverage = later.coverage.unwrap();
    assert_eq!(coverage.functions[0].ran.as_ref().unwrap()[0].count, Some(2));
    let of_qemu = traced.coverage(&["qemu", "--after-boot", "vmlinux", "trace"]);
    refused(&of_qemu, 2, "trace: it does not record what ran after boot");

    let often = |arguments: &[&str]| traced.coverage(&[&["qemu", "--least"], arguments].concat());
    assert_eq!(functions(&plan(&often(&["3", "vmlinux", "counted"]))), RAN);
    assert_eq!(functions(&plan(&often(&["2", "--after-boot", "vmlinux", "counted"]))), [RAN[2]]);
    refused(&often(&["3", "--after-boot", "vmlinux", "counted"]), 2, "counted: none of its ");
    refused(&often(&["2", "vmlinux", "trace"]), 2, "trace: it does not record how often instructions ran");
}
