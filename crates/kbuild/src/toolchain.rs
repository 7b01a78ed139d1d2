//! The variables of make that select the compiler and the tools of a build.

use std::fs;
use std::path::Path;

use kelf::KernelBuild;

use crate::compiler::KernelCompiler;

/// The operations and modifiers with which Kbuild calls its archiver (`cmd_ar` of scripts/Makefile.build); `T` follows
/// in some versions.
const ARCHIVES: &str = "cDPrS";

/// Returns the variables that select the tools of a build: `CROSS_COMPILE` or `LLVM` according to the archiver, `CC` for
/// a compiler that they do not select, and `LLVM_IAS` for clang. Empty if the build has not recorded its tools.
pub(crate) fn recorded(build: &KernelBuild) -> Vec<(&'static str, String)> {
    let compiler = KernelCompiler::of(build).ok();
    let (Some(compiler), Some(archiver)) = (compiler, archiver(&build.dir, &build.archive)) else {
        return Vec::new();
    };
    let mut variables = variables(compiler.program(), &archiver);
    variables.extend(assembler(|option| build.is_enabled(option)));
    variables
}

/// Returns the variables for a compiler and an archiver, by the rules of the kernel's Makefile
/// (Documentation/kbuild/llvm.rst).
fn variables(compiler: &str, archiver: &str) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    let selected = match archiver.split_once("llvm-ar") {
        Some((dir, suffix)) => {
            let llvm = if (dir, suffix) == ("", "") { "1".to_owned() } else { format!("{dir}{suffix}") };
            variables.push(("LLVM", llvm));
            format!("{dir}clang{suffix}")
        }
        None => {
            // AR may be another program, such as gcc-ar.
            let prefix = archiver.strip_suffix("ar").unwrap_or_default();
            let is_prefix = prefix.ends_with(['-', '/']) && !prefix.ends_with("gcc-");
            let prefix = if is_prefix { prefix } else { "" };
            if !prefix.is_empty() {
                variables.push(("CROSS_COMPILE", prefix.to_owned()));
            }
            format!("{prefix}gcc")
        }
    };
    if compiler != selected && is_compiler(compiler) {
        variables.push(("CC", compiler.to_owned()));
    }
    variables
}

/// Returns the variable that selects the assembler of clang's output: GNU's, or its own.
fn assembler(is_enabled: impl Fn(&str) -> bool) -> Option<(&'static str, String)> {
    let is_gnu = is_enabled("CONFIG_AS_IS_GNU");
    is_enabled("CONFIG_CC_IS_CLANG").then(|| ("LLVM_IAS", if is_gnu { "0" } else { "1" }.to_owned()))
}

/// Whether a program is gcc or clang by its name: `gcc`, `arm-linux-gnueabihf-gcc-14`, `/opt/bin/clang-19`. The variable
/// CC may name another program before the compiler, such as ccache.
fn is_compiler(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    ["gcc", "clang"].iter().any(|compiler| {
        let name = name.strip_suffix('-').unwrap_or(name);
        name.strip_suffix(compiler).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
    })
}

/// Returns the program that made the archive that is linked whole, according to its record. From Linux 7 on, that
/// archive may be a copy of `built-in.a`, which has a record of its own.
fn archiver(dir: &Path, archive: &Path) -> Option<String> {
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    [name, "built-in.a"].iter().find_map(|name| {
        let record = fs::read_to_string(dir.join(format!(".{name}.cmd"))).ok()?;
        let words: Vec<&str> = record.split_whitespace().collect();
        let call = words.windows(2).find(|pair| pair[1].starts_with(ARCHIVES))?;
        Some(call[0].to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archiver_is_in_the_record_of_the_archive_or_of_its_origin() {
        let dir = tempfile::tempdir().unwrap();
        let archiver = || archiver(dir.path(), Path::new("vmlinux.a"));
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(archiver(), None);
        write(".vmlinux.a.cmd", "savedcmd_vmlinux.a := cat built-in-fixup.a > vmlinux.a\n");
        assert_eq!(archiver(), None);
        write(
            ".built-in.a.cmd",
            "savedcmd_built-in.a := rm -f built-in.a;  arm-linux-ar cDPrST built-in.a x.a\n",
        );
        assert_eq!(archiver().as_deref(), Some("arm-linux-ar"));
    }

    #[test]
    fn assembler_is_that_of_clang() {
        let found = |options: &[&str]| assembler(|option| options.contains(&option)).map(|(_, value)| value);
        assert_eq!(found(&["CONFIG_CC_IS_GCC", "CONFIG_AS_IS_GNU"]), None);
        assert_eq!(found(&["CONFIG_CC_IS_CLANG", "CONFIG_AS_IS_GNU"]).as_deref(), Some("0"));
        assert_eq!(found(&["CONFIG_CC_IS_CLANG", "CONFIG_AS_IS_LLVM"]).as_deref(), Some("1"));
    }

    #[test]
    fn variables_select_the_recorded_tools() {
        for (compiler, archiver, expected) in [
            ("gcc", "ar", ""),
            ("arm-linux-gnueabihf-gcc", "arm-linux-gnueabihf-ar", "CROSS_COMPILE=arm-linux-gnueabihf-"),
            ("/opt/bin/arm-linux-gcc", "/opt/bin/arm-linux-ar", "CROSS_COMPILE=/opt/bin/arm-linux-"),
            ("arm-linux-gcc", "ar", "CC=arm-linux-gcc"),
            ("gcc-14", "ar", "CC=gcc-14"),
            ("gcc", "gcc-ar", ""),
            ("arm-linux-gcc", "arm-linux-gcc-ar", "CC=arm-linux-gcc"),
            (
                "/opt/bin/arm-linux-gcc-16",
                "arm-linux-ar",
                "CROSS_COMPILE=arm-linux- CC=/opt/bin/arm-linux-gcc-16",
            ),
            ("clang", "llvm-ar", "LLVM=1"),
            ("clang-19", "llvm-ar-19", "LLVM=-19"),
            ("/opt/llvm/bin/clang", "/opt/llvm/bin/llvm-ar", "LLVM=/opt/llvm/bin/"),
            ("clang-19", "arm-linux-ar", "CROSS_COMPILE=arm-linux- CC=clang-19"),
            ("clang-18.1", "llvm-ar", "LLVM=1 CC=clang-18.1"),
            ("ccache", "arm-linux-ar", "CROSS_COMPILE=arm-linux-"),
        ] {
            let found: Vec<String> =
                variables(compiler, archiver).iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(found.join(" "), expected, "{compiler} and {archiver}");
        }
    }
}
