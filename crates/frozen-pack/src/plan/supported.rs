//! The kernels that can be frozen. This is checked before any work, when planning and again when the plan is applied.

use kcli::Failure;
use kelf::{KernelBuild, Machine, SourceTree};
use kopt::freeze::marks::names;
use kplan::Mechanism;

/// A kernel option that prevents freezing.
struct Obstacle {
    option: &'static str,
    /// The mechanism that it affects; `None` for every one.
    of: Option<Mechanism>,
    /// The machine that it affects; `None` for every one.
    on: Option<Machine>,
    why: &'static str,
}

const OBSTACLES: &[Obstacle] = &[
    Obstacle {
        option: "CONFIG_RANDOMIZE_BASE",
        of: None,
        on: None,
        why: "the kernel moves at boot, and the packed bytes hold its addresses",
    },
    Obstacle {
        option: "CONFIG_RELOCATABLE",
        of: None,
        // An x86-64 kernel has the same virtual addresses wherever it is loaded.
        on: Some(Machine::I386),
        why: "the kernel can be loaded elsewhere, and the packed bytes hold its addresses",
    },
    Obstacle {
        option: "CONFIG_CPU_V6",
        of: None,
        on: None,
        why: "page-table entries are made in the format of ARMv7",
    },
    Obstacle {
        option: "CONFIG_CPU_V6K",
        of: None,
        on: None,
        why: "page-table entries are made in the format of ARMv7",
    },
    Obstacle {
        option: "CONFIG_PREEMPT_RT",
        of: None,
        on: None,
        why: "its page allocator sleeps, and a thaw must not",
    },
    Obstacle { option: "CONFIG_KASAN", of: None, on: None, why: "frozen addresses have no shadow" },
    Obstacle {
        option: "CONFIG_XIP_KERNEL",
        of: None,
        on: None,
        why: "the kernel itself occupies the addresses of frozen code",
    },
    Obstacle {
        option: "CONFIG_CPU_BIG_ENDIAN",
        of: None,
        on: None,
        why: "the packed bytes are little endian",
    },
    Obstacle {
        option: "CONFIG_KVM_GUEST",
        of: Some(Mechanism::Page),
        on: None,
        why: "KVM signals other events to its guests by page faults whose addresses can look like frozen code",
    },
    Obstacle {
        option: "CONFIG_X86_FRED",
        of: Some(Mechanism::Page),
        on: None,
        why: "the address of a page fault is elsewhere, which was never tested",
    },
    Obstacle {
        option: "CONFIG_AMD_MEM_ENCRYPT",
        of: None,
        on: None,
        why: "thawing was never tested with encrypted memory",
    },
    Obstacle {
        option: "CONFIG_INTEL_TDX_GUEST",
        of: None,
        on: None,
        why: "thawing was never tested with encrypted memory",
    },
    Obstacle {
        option: "CONFIG_XEN_PV",
        of: None,
        on: None,
        why: "the hypervisor forbids the kernel to write page tables",
    },
];

/// The options that freezing requires on 32-bit ARM, and the mechanism that requires each, or `None` for both.
const NEEDED_ON_ARM: [(&str, Option<Mechanism>, &str); 3] = [
    ("CONFIG_MMU", None, "only the aborts, page tables and caches of ARMv7-A are supported"),
    ("CONFIG_CPU_V7", None, "only the aborts, page tables and caches of ARMv7-A are supported"),
    ("CONFIG_ARM_UNWIND", Some(Mechanism::Stub), "backtraces by frame pointers cannot follow copies"),
];

/// Refuses kernels that cannot be frozen, before any work is done.
///
/// Kprobes are no obstacle: `register_kprobe` refuses addresses that are not in `core_kernel_text`, such as frozen
/// ones.
///
/// # Errors
/// Bad input that names the option to change, or the functions that a newer kernel lacks.
pub fn check(build: &KernelBuild, mechanism: Mechanism) -> Result<(), Failure> {
    let file = build.vmlinux.display();
    let is_supported = match mechanism {
        Mechanism::Page => matches!(build.machine, Machine::I386 | Machine::X86_64 | Machine::Arm),
        Mechanism::Stub => matches!(build.machine, Machine::I386 | Machine::Arm),
    };
    if !is_supported {
        let (mechanism, known) = match mechanism {
            Mechanism::Page => ("page", "i386, x86_64 and arm; rewrite it without freezing"),
            Mechanism::Stub => ("stub", "i386 and arm; freeze it by page, or rewrite it without freezing"),
        };
        return Err(Failure::bad_input(format!(
            "{file}: cannot freeze a kernel for {} by {mechanism}, only for {known}",
            build.machine
        )));
    }
    let applies = |of: Option<Mechanism>| of.is_none_or(|of| of == mechanism);
    let mut needed = NEEDED_ON_ARM.iter().filter(|(_, of, _)| build.machine == Machine::Arm && applies(*of));
    if let Some((option, _, why)) = needed.find(|(option, ..)| !build.is_enabled(option)) {
        return Err(Failure::bad_input(format!(
            "{file}: cannot freeze a kernel for arm without {option}: {why}; build it with that option, or \
             do not freeze it"
        )));
    }
    let is_one = |obstacle: &&Obstacle| {
        let is_here = obstacle.on.is_none_or(|machine| machine == build.machine);
        is_here && applies(obstacle.of) && build.is_enabled(obstacle.option)
    };
    match OBSTACLES.iter().find(is_one) {
        None => check_names(build),
        Some(Obstacle { option, why, .. }) => Err(Failure::bad_input(format!(
            "{file}: cannot freeze a kernel with {option}: {why}; build it without that option"
        ))),
    }
}

/// Refuses a kernel that is newer than the known names of code that must not freeze, if its source lacks one of them.
fn check_names(build: &KernelBuild) -> Result<(), Failure> {
    let Some(version) = build.version.filter(|version| *version > names::KNOWN) else { return Ok(()) };
    let source = SourceTree::of(build).map_err(Failure::of)?.dir;
    let lacking = names::lacking(&source, build.machine)
        .map_err(|error| Failure::job(format!("{}: cannot read it: {error}", source.display())))?;
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{}: cannot freeze a kernel of Linux {version}: {} has no {}, which must not freeze, so it may have another \
         name; expected the names of Linux {}; do not freeze this kernel",
        build.vmlinux.display(),
        source.display(),
        lacking.join(", "),
        names::KNOWN
    )))
}
