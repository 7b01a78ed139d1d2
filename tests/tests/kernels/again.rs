//! The rewritten object of a kernel is rewritten again, in place of the kernel's own objects and with the same linker
//! script: nothing is left to do. This takes seconds, because there is no link and no boot.

use std::fs;
use std::path::Path;

use kshrink_tests::{Chain, KernelTest, Rewritten, Run, same_bytes};

/// Passes for a kernel whose modules are listed.
const WITH_MODULES: &str = "exports,syscalls,reach";

#[test]
fn a_rewritten_kernel_rewrites_to_itself() {
    KernelTest::check("a_rewritten_kernel_rewrites_to_itself", |test| {
        rewrites_to_itself(test, "web-i386", &["none", "syscalls,reach", "syscalls,reach,icf"]);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn a_rewritten_kernel_with_modules_rewrites_to_itself() {
    KernelTest::check("a_rewritten_kernel_with_modules_rewrites_to_itself", |test| {
        let passes = ["none", "syscalls,reach", "syscalls,reach,icf", WITH_MODULES];
        rewrites_to_itself(test, "websmp-i386", &passes);
    });
}

fn rewrites_to_itself(test: &mut KernelTest<'_>, name: &str, passes: &[&str]) {
    test.chain.write("plan.json", super::busybox_plan());
    let kernel = test.kernel(name);
    for passes in passes {
        rewrite_twice(test.chain, &kernel.build, name, passes);
    }
}

#[test]
fn a_rewritten_kernel_for_arm_rewrites_to_itself() {
    KernelTest::check("a_rewritten_kernel_for_arm_rewrites_to_itself", |test| {
        let plan = super::arm::busybox_plan();
        test.chain.write("plan.json", plan);
        let kernel = test.kernel("arm-virt-smp");
        // With `reach`, three table entries name their places by another symbol.
        rewrite_twice(test.chain, &kernel.build, "arm-virt-smp", "none");
    });
}

fn rewrite_twice(chain: &mut Chain, build: &Path, name: &str, passes: &str) {
    let copy = format!("{name}-{passes}");
    let (first, second) = (format!("{copy}-1.o"), format!("{copy}-2.o"));
    let modules = build.join("drivers/net");
    let modules = (passes == WITH_MODULES).then_some(&*modules);
    let once = emit(chain, &build.join("vmlinux"), passes, modules, &first);
    copy_with(chain, build, &copy, &first);
    let vmlinux = chain.dir().join(&copy).join("vmlinux");
    let twice = emit(chain, &vmlinux, passes, modules, &second);
    // If no code of an object is split, the object is not changed, either.
    let carried = |rewritten: &Rewritten| rewritten.opaque.values().sum::<usize>();
    assert_eq!(carried(&once), carried(&twice), "{copy}: {once:?}, then {twice:?}");
    assert_eq!(once.opaque.get("hand-written"), twice.opaque.get("hand-written"), "{copy}");
    let read =
        |file: &str| fs::read(chain.dir().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let same = same_bytes((&first, &read(&first)), (&second, &read(&second)));
    same.unwrap_or_else(|difference| panic!("{difference}"));
}

fn emit(chain: &mut Chain, vmlinux: &Path, passes: &str, modules: Option<&Path>, object: &str) -> Rewritten {
    let run = Run::kshrink("kshrink-spec").arg(vmlinux).args(["--plan", "plan.json", "--passes", passes]);
    let run = if let Some(modules) = modules { run.arg("--modules").arg(modules) } else { run };
    Rewritten::parse(&chain.succeed(run.args(["--emit-object", object])).stderr)
}

/// Makes a build directory of links into another one, with an archive of the object alone, as the relink makes it.
fn copy_with(chain: &mut Chain, build: &Path, copy: &str, object: &str) {
    super::link_build(chain, build, copy);
    let archive = format!("{copy}/vmlinux.a");
    chain.succeed(Run::new("rm").arg(&archive));
    chain.succeed(Run::new("ar").arg("cDrS").arg(&archive).arg(object));
}
