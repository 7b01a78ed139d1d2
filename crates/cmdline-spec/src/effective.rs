//! The effective command line of a kernel, from the boot loader, the built-in one, and a boot configuration.

use kcli::Failure;
use kelf::KernelBuild;
use kelf::target::BootLine;

use crate::bootconfig;
use crate::line::{self, Word};

/// The effective command line of a kernel.
#[derive(Debug)]
pub struct CommandLine {
    /// The text, without a boot configuration.
    pub text: String,
    /// Its words, starting with those of a boot configuration.
    pub words: Vec<Word>,
}

/// Assembles the command line that the kernel of a build parses. `bootconfig` is the name and the content of a boot
/// configuration. Remarks for the user are added to `notes`.
///
/// # Errors
/// Bad input if the kernel would ignore or truncate the input.
pub fn command_line(
    build: &KernelBuild,
    passed: &str,
    bootconfig: Option<(&str, &str)>,
    notes: &mut Vec<String>,
) -> Result<CommandLine, Failure> {
    let text = with_builtin(build, passed, notes)?;
    let size = build.machine.target().kernel.command_line_size;
    if text.len() >= size {
        return Err(Failure::bad_input(format!(
            "the command line has {} bytes, of which the kernel uses the first {}; shorten it",
            text.len(),
            size - 1
        )));
    }
    let words = line::words(&text);
    let is_wanted =
        build.is_enabled("CONFIG_BOOT_CONFIG_FORCE") || words.iter().any(|word| word.name == "bootconfig");
    let is_read = build.is_enabled("CONFIG_BOOT_CONFIG") && is_wanted;
    let mut all = match (bootconfig, is_read) {
        (Some((name, text)), true) => {
            bootconfig::words(text).map_err(|problem| Failure::bad_input(format!("{name}: {problem}")))?
        }
        (None, true) => {
            let embedded = build.config("CONFIG_BOOT_CONFIG_EMBED_FILE").filter(|file| !file.is_empty());
            let which = embedded.map_or_else(
                || "the one after the initramfs".to_owned(),
                |file| format!("{file}, or the one after the initramfs"),
            );
            return Err(Failure::bad_input(format!(
                "this kernel adds a boot configuration to its command line ({which}); name it with --bootconfig FILE, an \
                 empty one if there is none"
            )));
        }
        (Some((name, _)), false) => {
            return Err(Failure::bad_input(format!(
                "{name}: this kernel reads no boot configuration; that requires CONFIG_BOOT_CONFIG, and `bootconfig` on \
                 the command line or CONFIG_BOOT_CONFIG_FORCE"
            )));
        }
        (None, false) => Vec::new(),
    };
    all.extend(words);
    Ok(CommandLine { text, words: all })
}

/// Combines the command line with `CONFIG_CMDLINE` as the kernel does.
fn with_builtin(build: &KernelBuild, passed: &str, notes: &mut Vec<String>) -> Result<String, Failure> {
    let builtin = build.config("CONFIG_CMDLINE").unwrap_or_default();
    let overrides = |option: &'static str| build.is_enabled(option).then_some(option);
    let (builtin, overrides, order) = match build.machine.target().kernel.command_line {
        // `setup_arch` in arch/x86/kernel/setup.c.
        Some(BootLine::Setup) if build.is_enabled("CONFIG_CMDLINE_BOOL") => {
            (builtin, overrides("CONFIG_CMDLINE_OVERRIDE"), Order::BuiltinFirst)
        }
        Some(BootLine::Setup) => ("", None, Order::BuiltinFirst),
        // `early_init_dt_scan_chosen` in drivers/of/fdt.c. The decompressor writes what a boot loader passes in ATAGs
        // into the device tree, instead of the line there or behind it (`atags_to_fdt` in arch/arm/boot/compressed/).
        Some(BootLine::DeviceTree) if build.is_enabled("CONFIG_OF") => {
            let extends = "CONFIG_ARM_ATAG_DTB_COMPAT_CMDLINE_EXTEND";
            if build.is_enabled(extends) && !build.is_enabled("CONFIG_CMDLINE_FORCE") {
                notes.push(format!(
                    "this kernel may add the boot loader's command line to the one in its device tree ({extends}); \
                     pass both, as /proc/cmdline shows them"
                ));
            }
            let order = match build.is_enabled("CONFIG_CMDLINE_EXTEND") {
                true => Order::PassedFirst,
                false => Order::Default,
            };
            (builtin, overrides("CONFIG_CMDLINE_FORCE"), order)
        }
        _ => {
            let machine = build.machine;
            return Err(Failure::bad_input(format!(
                "the command line of this kernel for {machine} is not supported, only for x86, and for 32-bit \
                 ARM with a device tree (CONFIG_OF)"
            )));
        }
    };
    if let Some(option) = overrides {
        if !passed.trim().is_empty() && passed.trim() != builtin.trim() {
            notes.push(format!(
                "this kernel ignores the passed command line ({option}); its built-in one is \"{builtin}\""
            ));
        }
        return Ok(builtin.to_owned());
    }
    Ok(match order {
        _ if builtin.is_empty() => passed.to_owned(),
        Order::BuiltinFirst => format!("{builtin} {passed}"),
        Order::PassedFirst => format!("{passed} {builtin}"),
        Order::Default if passed.is_empty() => builtin.to_owned(),
        Order::Default => passed.to_owned(),
    })
}

/// The position of the built-in command line.
enum Order {
    BuiltinFirst,
    PassedFirst,
    /// Used only if none is passed.
    Default,
}
