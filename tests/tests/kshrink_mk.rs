//! `share/kshrink.mk`, as installed by `make install`, included by a Makefile outside of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kshrink_tests::{Chain, KernelTest, Run, command, fixture, recipe};

/// A relink takes half a minute on a quiet machine, and `frozen` makes two.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Prepares a user's directory: an installation, an initramfs, and a Makefile with some settings.
fn prepare(chain: &mut Chain, settings: &str) {
    let repository = fixture("").parent().expect("fixtures/ is in the workspace").to_path_buf();
    let target = command("kelf").ancestors().nth(2).expect("target/release/kelf").to_path_buf();
    let destination = format!("DESTDIR={}", chain.dir().join("installed").display());
    let install = Run::new("make").arg("-C").arg(repository).args(["install", "PREFIX=", &destination]);
    chain.succeed(install.env("CARGO_TARGET_DIR", target));
    chain.succeed(Run::new("mkdir").args(["-p", "root/bin"]));
    let busybox = recipe("package.sh", &["busybox-static", "i386"]).join("bin/busybox");
    chain.succeed(Run::new("cp").arg(busybox).arg("root/bin/busybox"));
    let initramfs = Run::new(fixture("scenarios/make-initramfs.sh")).args(["boot", "initramfs.gz"]);
    chain.succeed(initramfs.limit(LIMIT));
    let makefile = format!("{settings}\ninclude installed/share/kshrink/kshrink.mk\n");
    chain.write("Makefile", makefile);
}

/// Returns the settings for a kernel.
fn settings(build: &Path) -> String {
    let build = build.display();
    format!(
        "KSHRINK_BUILD = {build}\nKSHRINK_ROOT = root\nKSHRINK_CMDLINE = console=ttyS0 panic=-1\n\
         KSHRINK_QEMU = qemu-system-i386 -m 64 -initrd initramfs.gz\nKSHRINK_BOOT_FILES = initramfs.gz\n"
    )
}

fn make(arguments: &[&str]) -> Run {
    Run::new("make").args(arguments).limit(LIMIT)
}

/// Returns the targets that make would rebuild. Settings and lists are always checked.
fn remade(chain: &mut Chain, arguments: &[&str]) -> Vec<String> {
    let text = chain.succeed(make(arguments)).text();
    let names = text.lines().filter_map(|line| line.strip_prefix("  KSHRINK kshrink/"));
    names.map(str::to_owned).collect()
}

/// Boots an image with the initramfs.
fn boots(chain: &mut Chain, image: &str) {
    let run = Run::new(fixture("qemu/boot.sh")).args(["--initramfs", "initramfs.gz", "--log", "boot.log"]);
    let verdict = chain.succeed(run.args(["--kernel", image, "--timeout", "300"]).limit(LIMIT)).text();
    assert!(verdict.contains("SCENARIO boot: PASS"), "{image}: {verdict}");
}

/// Returns the incomplete files below a directory.
fn partial(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let files = entries
        .flat_map(|path| if path.is_dir() && !path.is_symlink() { partial(&path) } else { vec![path] });
    files.filter(|path| path.to_string_lossy().ends_with("partial")).collect()
}

#[test]
fn missing_settings_are_named() {
    Chain::check("missing_settings_are_named", |chain| {
        prepare(chain, "");
        chain.succeed(Run::new("mkdir").args(["-p", "build"]));
        chain.write("build/vmlinux", "");
        let cases: [(&[&str], &str); 9] = [
            (&["shrunk"], "KSHRINK_BUILD is not set; set it to the directory in which the kernel was built"),
            (
                &["shrunk", "KSHRINK_BUILD=none"],
                "none/vmlinux is missing; build the kernel, or set KSHRINK_BUILD",
            ),
            (
                &["shrunk", "KSHRINK_BUILD=build"],
                "KSHRINK_ROOT is not set; set it to the directory with the root",
            ),
            (&["shrunk", "KSHRINK_BUILD=build", "KSHRINK_ROOT=none"], "KSHRINK_ROOT=none is not a directory"),
            (&["trimmed", "KSHRINK_BUILD=build"], "KSHRINK_TRIM is not set; set it to a fragment"),
            (&["trace", "KSHRINK_BUILD=build"], "no way to trace the kernel; set KSHRINK_QEMU to QEMU"),
            (
                &["trace", "KSHRINK_BUILD=build", "KSHRINK_QEMU=qemu-system-i386"],
                "build/arch/arm/boot/zImage is missing; build the kernel's boot image, or set KSHRINK_IMAGE",
            ),
            (
                &["trace", "KSHRINK_BUILD=build", "KSHRINK_IMAGE=build/vmlinux", "KSHRINK_BOOT=true"],
                "the traced run boot left no trace",
            ),
            (
                &["shrunk", "KSHRINK_BUILD=build", "KSHRINK_ROOT=root", "KSHRINK_BIN=/none"],
                "/none/syscall-scan is not found; install kshrink or set KSHRINK_BIN",
            ),
        ];
        for (arguments, message) in cases {
            let outcome = chain.attempt(make(arguments));
            assert_eq!(outcome.status, Some(2), "{outcome}");
            assert!(outcome.stderr.contains(message), "no '{message}' in\n{outcome}");
        }
        assert_eq!(partial(chain.dir()), Vec::<PathBuf>::new());
        // The targets of the file do not become the default of a Makefile that includes it.
        let outcome = chain.attempt(make(&[]));
        assert!(outcome.stderr.contains("No targets"), "{outcome}");
    });
}

#[test]
fn a_kernel_is_traced_and_shrunk() {
    KernelTest::check("a_kernel_is_traced_and_shrunk", |test| {
        let kernel = test.kernel("web-i386");
        let chain = &mut *test.chain;
        prepare(chain, &settings(&kernel.build));
        let steps = ["traces/trace.so", "traces/boot.trace", "trace.json", "scan.json", "static.json"];
        let first = remade(chain, &["trace", "shrunk"]);
        assert_eq!(first, [&steps[..], &["shrunk/report.json"]].concat());
        assert_eq!(remade(chain, &["trace", "shrunk"]), Vec::<String>::new());
        chain.succeed(make(&["-s", "report", "KSHRINK_KERNELS=shrunk"]));
        let table = fs::read_to_string(chain.dir().join("kshrink/report.txt")).expect("a report");
        assert!(table.contains("original/vmlinux") && table.contains("shrunk/vmlinux"), "{table}");
        assert_eq!(partial(chain.dir()), Vec::<PathBuf>::new());
        let trace = fs::read_to_string(chain.dir().join("kshrink/trace.json")).expect("a plan");
        assert!(trace.contains("start_kernel"), "the trace lacks the boot");
        // The plan depends on the command line, the scan does not.
        let again = remade(chain, &["kshrink/static.json", "KSHRINK_CMDLINE=console=ttyS0"]);
        assert_eq!(again, ["static.json"]);
        chain.succeed(Run::new("touch").arg("root/bin/new"));
        assert_eq!(remade(chain, &["kshrink/scan.json"]), ["scan.json"]);
        // The resulting kernel boots.
        boots(chain, "kshrink/shrunk/bzImage");
        let newer = Run::new("find").arg(&kernel.build).args(["-newer", "Makefile"]);
        assert_eq!(chain.succeed(newer).text(), "", "the build directory was written to");
    });
}

#[test]
#[ignore = "builds a kernel again and relinks three"]
fn a_kernel_is_trimmed_and_frozen() {
    KernelTest::check("a_kernel_is_trimmed_and_frozen", |test| {
        let kernel = test.kernel("web-i386");
        let chain = &mut *test.chain;
        chain.write("trim.config", "# CONFIG_LEGACY_PTYS is not set\n");
        prepare(chain, &format!("{}KSHRINK_TRIM = trim.config\n", settings(&kernel.build)));
        chain.succeed(make(&["report"]));
        assert_eq!(remade(chain, &["report"]), Vec::<String>::new());
        let table = fs::read_to_string(chain.dir().join("kshrink/report.txt")).expect("a report");
        let columns = ["original/vmlinux", "trimmed/vmlinux", "shrunk/vmlinux", "frozen/vmlinux"];
        assert!(columns.iter().all(|column| table.contains(column)), "{table}");
        let config =
            fs::read_to_string(chain.dir().join("kshrink/trimmed/.config")).expect("a configuration");
        assert!(!config.contains("CONFIG_LEGACY_PTYS=y"), "the option is still set");
        for name in ["kshrink/shrunk/bzImage", "kshrink/frozen/bzImage"] {
            boots(chain, name);
        }
    });
}
