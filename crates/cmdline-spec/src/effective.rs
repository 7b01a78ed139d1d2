//! The command line that a kernel ends up with: what the boot loader passes, what is built in, and a boot configuration.

use kcli::Failure;
use kelf::{KernelBuild, Machine};

use crate::bootconfig;
use crate::line::{self, Word};

/// `COMMAND_LINE_SIZE` (arch/x86/include/asm/setup.h), in bytes, with the 0 byte at the end.
const COMMAND_LINE_SIZE: usize = 2048;

/// The command line that a kernel takes apart.
#[derive(Debug)]
pub struct CommandLine {
    /// As text, without what a boot configuration adds.
    pub text: String,
    /// Its words, those of a boot configuration first.
    pub words: Vec<Word>,
}

/// Puts together what the kernel of a build takes apart. `bootconfig` is the name and the content of a boot configuration.
/// Remarks for the user are added to `notes`.
///
/// # Errors
/// Bad input, if the kernel would ignore or cut off what it is given.
pub fn command_line(
    build: &KernelBuild,
    passed: &str,
    bootconfig: Option<(&str, &str)>,
    notes: &mut Vec<String>,
) -> Result<CommandLine, Failure> {
    let text = with_builtin(build, passed, notes)?;
    if text.len() >= COMMAND_LINE_SIZE {
        return Err(Failure::bad_input(format!(
            "the command line has {} bytes, of which the kernel takes the first {}; shorten it",
            text.len(),
            COMMAND_LINE_SIZE - 1
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
                || "the one behind the initramfs".to_owned(),
                |file| format!("{file}, or the one behind the initramfs"),
            );
            return Err(Failure::bad_input(format!(
                "this kernel adds a boot configuration to its command line ({which}); name it with --bootconfig FILE, an \
                 empty one if there is none"
            )));
        }
        (Some((name, _)), false) => {
            return Err(Failure::bad_input(format!(
                "{name}: this kernel reads no boot configuration; that takes CONFIG_BOOT_CONFIG, and `bootconfig` on the \
                 command line or CONFIG_BOOT_CONFIG_FORCE"
            )));
        }
        (None, false) => Vec::new(),
    };
    all.extend(words);
    Ok(CommandLine { text, words: all })
}

/// With `CONFIG_CMDLINE` (`setup_arch` in arch/x86/kernel/setup.c).
fn with_builtin(build: &KernelBuild, passed: &str, notes: &mut Vec<String>) -> Result<String, Failure> {
    if !matches!(build.machine, Machine::I386 | Machine::X86_64) {
        return Err(Failure::bad_input(format!(
            "how a kernel for {} puts its command line together is not known, only for x86",
            build.machine
        )));
    }
    let builtin = build.config("CONFIG_CMDLINE").filter(|_| build.is_enabled("CONFIG_CMDLINE_BOOL"));
    let builtin = builtin.unwrap_or_default();
    if build.is_enabled("CONFIG_CMDLINE_OVERRIDE") {
        if !passed.trim().is_empty() && passed.trim() != builtin.trim() {
            notes.push(format!(
                "this kernel ignores the command line that it is passed (CONFIG_CMDLINE_OVERRIDE); its own is \"{builtin}\""
            ));
        }
        return Ok(builtin.to_owned());
    }
    Ok(if builtin.is_empty() { passed.to_owned() } else { format!("{builtin} {passed}") })
}
