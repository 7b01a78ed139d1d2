//! The command on a real kernel.

use std::fs;
use std::path::{Path, PathBuf};

use kshrink_tests::{Run, recipe};
use serde_json::{Value, json};

fn vmlinux() -> PathBuf {
    recipe("kernels/build.sh", &["web-i386"]).join("vmlinux")
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the section `params` for a command line, and the messages on standard error.
fn params(vmlinux: &Path, line: &str, options: &[&str]) -> (Value, String) {
    let run = Run::kshrink("cmdline-spec").arg(vmlinux).args(["--cmdline", line]).args(options);
    let outcome = run.succeed();
    (parse(&outcome.text())["params"].clone(), outcome.stderr)
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|entry| entry["name"].as_str().expect("a name")).collect()
}

/// The reason why a parameter is kept.
fn why<'v>(params: &'v Value, name: &str) -> &'v str {
    let kept = params["kept"].as_array().expect("a list").iter().find(|kept| kept["name"] == name);
    kept.unwrap_or_else(|| panic!("{name} is not kept"))["why"].as_str().expect("a reason")
}

/// A copy of the build with more lines in its configuration.
fn configured(directory: &Path, lines: &str) -> PathBuf {
    let build = recipe("kernels/build.sh", &["web-i386"]);
    let copy = directory.join("build");
    // Links to the files; the changed one is removed before it is written.
    Run::new("cp").arg("-as").arg(build).arg(&copy).succeed();
    let config = copy.join("include/config/auto.conf");
    let text = fs::read_to_string(&config).expect("a configuration") + lines;
    fs::remove_file(&config).expect("a link");
    fs::write(&config, text).expect("a file");
    // A link would lead to the original build.
    let vmlinux = copy.join("vmlinux");
    let bytes = fs::read(&vmlinux).expect("a kernel");
    fs::remove_file(&vmlinux).expect("a link");
    fs::write(&vmlinux, bytes).expect("a file");
    vmlinux
}

#[test]
fn the_table_says_what_parameters_are() {
    let run = |sort: &str| {
        Run::kshrink("cmdline-spec").arg(vmlinux()).args(["--json", "--sort", sort]).succeed().text()
    };
    let table = parse(&run("keeps"));
    let rows = table["parameters"].as_array().expect("rows");
    assert!(rows.len() > 150, "{} parameters", rows.len());
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let panic = row("panic");
    assert_eq!(
        (&panic["table"], &panic["type"], &panic["value"]),
        (&json!("core"), &json!("int"), &json!("0"))
    );
    assert_eq!((&panic["variables"], &panic["mode"]), (&json!(["panic_timeout"]), &json!("0644")));
    let changes = panic["changes"].as_array().expect("changes");
    assert!(
        changes.contains(&json!({"sysfs": "0644"})) && changes.contains(&json!({"sysctl": "panic"})),
        "{panic}"
    );
    let quiet = row("quiet");
    assert_eq!((&quiet["table"], &quiet["handler"]), (&json!("early"), &json!("quiet_kernel")));
    assert_eq!(row("printk.console_suspend")["value"], "Y");
    assert_eq!(row("console=")["table"], "setup");
    let keeps = |row: &Value| row["keeps"]["bytes"].as_u64().expect("a number");
    assert!(rows.is_sorted_by(|a, b| keeps(a) >= keeps(b)));
    assert!(keeps(row("pci")) > 2000 && keeps(quiet) < 100, "{quiet}");
    let by_name = parse(&run("name"));
    assert!(names(&by_name["parameters"]).is_sorted());
}

#[test]
fn a_command_line_names_parameters() {
    let (params, said) = params(&vmlinux(), "console=ttyS0 panic=-1 rw quietly unknown=1 -- debug", &[]);
    assert_eq!(names(&params["named"]), ["console", "panic", "rw", "quietly"]);
    // The word `console` calls the handler of `earlycon`, and `quietly` begins with `quiet`.
    assert_eq!(names(&params["named"][0]["parameters"]), ["console=", "earlycon"]);
    assert_eq!(names(&params["named"][3]["parameters"]), ["quiet"]);
    let unnamed = names(&params["unnamed"]);
    for gone in ["loglevel", "debug", "ro", "rdinit=", "virtio_net.csum"] {
        let is_visible = gone == "virtio_net.csum";
        assert_eq!(unnamed.contains(&gone), !is_visible, "{gone}");
    }
    for named in ["console=", "earlycon", "panic", "quiet", "rw"] {
        assert!(!unnamed.contains(&named), "{named}");
    }
    assert!(why(&params, "virtio_net.csum").contains("mode 0444"));
    assert!(why(&params, "panic_on_warn").contains("can be written to (mode 0644)"));
    assert!(said.contains("not fixed: panic: its file in sysfs can be written to (mode 0644)"), "{said}");
}

#[test]
fn variables_are_fixed_that_cannot_change() {
    let kernel = vmlinux();
    let (found, _) = params(&kernel, "virtio_pci.force_legacy=y", &["--remove-read-only"]);
    let word = json!({"name": "virtio_pci.force_legacy", "value": "y"});
    let fixed = &found["fixed"][0];
    let value = (&fixed["variable"], &fixed["size"], &fixed["value"], &fixed["parameter"]);
    assert_eq!(value, (&json!("force_legacy"), &json!(1), &json!(1), &word));
    assert!(names(&found["unnamed"]).contains(&"virtio_net.csum"));

    let (found, _) = params(&kernel, "virtio_pci.force_legacy=y", &[]);
    assert_eq!(found["fixed"], json!([]));
    assert!(why(&found, "virtio_pci.force_legacy").contains("--remove-read-only"));
    for (line, reason) in [
        ("virtio_pci.force_legacy=y virtio_pci.force_legacy=n", "several times"),
        ("virtio_pci.force_legacy=maybe", "`maybe` is not a valid bool"),
    ] {
        let (found, said) = params(&kernel, line, &["--remove-read-only"]);
        assert_eq!(found["fixed"], json!([]));
        assert!(why(&found, "virtio_pci.force_legacy").contains(reason) && said.contains(reason), "{found}");
    }
    // A variable that /proc/sys can change is fixed by force only.
    let (found, said) = params(&kernel, "", &["--fix", "io_delay_type=1"]);
    assert_eq!(found["fixed"], json!([]));
    assert!(
        said.contains("sysctl io_delay_type")
            && why(&found, "io_delay_type").contains("sysctl io_delay_type"),
        "{said}"
    );
    let (found, said) = params(&kernel, "", &["--fix", "io_delay_type=1", "--force", "io_delay_type"]);
    assert_eq!((&found["fixed"][0]["value"], &found["fixed"][0]["forced"]), (&json!(1), &json!(true)));
    assert_eq!(said, "");
}

#[test]
fn what_is_built_in_is_part_of_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = "CONFIG_CMDLINE_BOOL=y\nCONFIG_CMDLINE=\"quiet dyndbg=\\\"x y\\\"\"\n";
    let (found, _) = params(&configured(directory.path(), lines), "debug", &[]);
    assert_eq!(found["command_line"], "quiet dyndbg=\"x y\" debug");
    assert_eq!(names(&found["named"]), ["quiet", "debug"]);

    let directory = tempfile::tempdir().expect("a directory");
    let kernel = configured(directory.path(), &format!("{lines}CONFIG_CMDLINE_OVERRIDE=y\n"));
    let (found, said) = params(&kernel, "debug", &[]);
    assert_eq!(names(&found["named"]), ["quiet"]);
    assert!(said.contains("ignores the passed command line (CONFIG_CMDLINE_OVERRIDE)"), "{said}");

    let directory = tempfile::tempdir().expect("a directory");
    let kernel = configured(directory.path(), "CONFIG_BOOT_CONFIG=y\n");
    let bootconfig = directory.path().join("x.bconf");
    fs::write(&bootconfig, "kernel {\n loglevel = 3\n}\n").expect("a file");
    let bootconfig = bootconfig.to_str().expect("UTF-8");
    let (found, _) = params(&kernel, "bootconfig quiet", &["--bootconfig", bootconfig]);
    assert_eq!(names(&found["named"]), ["loglevel", "bootconfig", "quiet"]);
}

#[test]
fn parameters_of_proposed_options_are_recommended() {
    let run = |plan: &str| Run::kshrink("cmdline-spec").arg(vmlinux()).arg("--recommend").stdin(plan);
    // A count, a switch that is on, a switch that is off, a parameter of another kind, and one that is not there.
    let parameters = json!(["pty.legacy_count", "printk.console_suspend", "printk.time", "ip=", "gone"]);
    let plan = json!({"schema": "kshrink/1", "config": {"kernel": "6.12", "options": [{
        "name": "A\nB", "set": "n", "class": "init-only", "with": [], "objects": [], "ran": [], "rebuilds": 0,
        "keeps": {"text": 0, "data": 0, "bss": 0, "init": 0}, "evidence": "trace", "parameters": parameters}]}});
    let text = run(&plan.to_string()).succeed().text();
    let words: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(words, ["pty.legacy_count=0", "printk.console_suspend=N"], "{text}");
    assert!(
        text.starts_with("pty.legacy_count=0  # is 256; only the code of AB has it, which is init-only\n"),
        "{text}"
    );
    let outcome = run(r#"{"schema": "kshrink/1"}"#).outcome();
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("no section `config`") && outcome.stdout.is_empty(), "{outcome}");
}

#[test]
fn a_plan_keeps_its_other_sections() {
    let plan = r#"{"schema": "kshrink/1", "limits": {"a": 1}}"#;
    let run = Run::kshrink("cmdline-spec").arg(vmlinux()).args(["--cmdline", "quiet"]).stdin(plan);
    let plan = parse(&run.succeed().text());
    assert_eq!((&plan["limits"], &plan["params"]["command_line"]), (&json!({"a": 1}), &json!("quiet")));
}
