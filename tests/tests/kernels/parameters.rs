//! Kernels for one command line.

use std::path::Path;

use kshrink_tests::{KernelTest, Run};
use serde_json::Value;

use crate::busybox_plan;

/// The command line of the scenarios (`fixtures/qemu/boot.sh`), and a parameter with a read-only sysfs file.
const LINE: &str = "console=ttyS0 panic=-1 virtio_pci.force_legacy=1";
/// The part of it that is an option of the scenarios.
const APPEND: &[&str] = &["--append", "virtio_pci.force_legacy=1"];

/// Returns the plan for BusyBox and a command line.
fn plan(vmlinux: &Path, line: &str, options: &[&str]) -> String {
    let run = Run::kshrink("cmdline-spec").arg(vmlinux).args(["--cmdline", line]).args(options);
    run.stdin(busybox_plan()).succeed().text()
}

/// Returns the remarks of the command-line check on a console.
fn remarks(console: &str) -> Vec<String> {
    let lines = console.lines().filter_map(|line| line.split_once("kshrink: "));
    lines.map(|(_, remark)| remark.trim_end().to_owned()).collect()
}

#[test]
fn a_kernel_for_one_command_line_says_what_another_asks_for() {
    KernelTest::check("a_kernel_for_one_command_line_says_what_another_asks_for", |test| {
        let kernel = test.kernel("web-i386");
        let text = plan(&kernel.vmlinux, LINE, &["--remove-read-only"]);
        let decided: Value = serde_json::from_str(&text).expect("a plan");
        let fixed = &decided["params"]["fixed"];
        assert_eq!(fixed.as_array().map(Vec::len), Some(1), "{fixed}");
        assert_eq!(
            (&fixed[0]["variable"], &fixed[0]["value"]),
            (&"force_legacy".into(), &1.into()),
            "{fixed}"
        );

        // Without initmotion, which adds to the init text.
        let passes = ["--passes", "syscalls,params,keys,reach,fold,icf"];
        let small = test.rewritten(&kernel, "small", &text, &passes);
        assert!(small.cut("init_text") >= 9.0, "init text fell by only {:.2} %", small.cut("init_text"));
        for name in ["command-line-is-as-planned", "parameters-are-tables-of-entries"] {
            assert!(small.assumptions().contains(&name), "no {name} in {:?}", small.assumptions());
        }
        // With the planned command line, nothing is printed, and fixed variables cannot be written.
        let scenario = test.web();
        test.passes(&scenario, &small.kernel, APPEND);
        assert_eq!(remarks(&test.console(&small.kernel)), [""; 0]);
        let scenario = test.parameters();
        test.passes(&scenario, &small.kernel, APPEND);
        // With another one, each parameter is reported once, and the kernel continues.
        test.passes(&scenario, &small.kernel, &["--append", "loglevel=7 rootdelay=5 loglevel=6 quietly"]);
        let removed = |word: &str, name: &str| {
            format!(
                "\"{word}\" on the command line does nothing: this kernel was made without the parameter {name}"
            )
        };
        let expected = [
            removed("loglevel=7", "loglevel"),
            removed("rootdelay=5", "rootdelay="),
            "\"virtio_pci.force_legacy=1\" is not on the command line, but this kernel was made for it"
                .to_owned(),
        ];
        assert_eq!(remarks(&test.console(&small.kernel)), expected);
    });
}

#[test]
fn a_kernel_for_one_command_line_stops_if_it_shall() {
    KernelTest::check("a_kernel_for_one_command_line_stops_if_it_shall", |test| {
        let kernel = test.kernel("web-i386");
        let text = plan(&kernel.vmlinux, LINE, &["--remove-read-only", "--on-mismatch", "panic"]);
        let strict = test.rewritten(&kernel, "strict", &text, &[]);
        let scenario = test.parameters();
        test.passes(&scenario, &strict.kernel, APPEND);
        test.complains(&scenario, &strict.kernel, &["--append", "virtio_pci.force_legacy=0"]);
        let console = test.console(&strict.kernel);
        let otherwise = "\"virtio_pci.force_legacy=0\" on the command line does nothing: this kernel was made for \
                         \"virtio_pci.force_legacy=1\"";
        assert!(remarks(&console).iter().any(|remark| remark == otherwise), "{console}");
        assert!(
            console.contains("Kernel panic - not syncing: kshrink: the command line is not"),
            "{console}"
        );
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn a_kernel_that_patches_itself_for_one_command_line() {
    KernelTest::check("a_kernel_that_patches_itself_for_one_command_line", |test| {
        let kernel = test.kernel("websmp-i386");
        let text = plan(&kernel.vmlinux, "console=ttyS0 panic=-1 no_timer_check", &[]);
        let small = test.rewritten(&kernel, "small", &text, &[]);
        // Without handlers of parameters, nothing switches some of the static keys.
        assert!(small.assumptions().contains(&"switches-have-addresses"), "{:?}", small.assumptions());
        let scenario = test.smp(&kernel);
        test.passes(&scenario, &small.kernel, &[]);
        assert_eq!(remarks(&test.console(&small.kernel)), [""; 0]);
    });
}
