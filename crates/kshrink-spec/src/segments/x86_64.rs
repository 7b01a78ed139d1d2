//! Packed segments of x86-64 kernels: the text of system call and interrupt entries, and the data that is shared with a
//! hypervisor.
//!
//! The linker script aligns the begin and the end of both to 2 MiB (arch/x86/kernel/vmlinux.lds.S), up to four times
//! that size in all. The alignment before and after read-only data stays: the kernel frees these gaps
//! (`mark_rodata_ro`), and maps text by large pages. Where mitigations need the alignment of entry text, other text fills
//! the 2 MiB ([`entries`]).

mod entries;

pub(super) use entries::fill;

use kelf::KernelBuild;

use super::Packing;
use entries::with_fillers;

/// The alignment in the script.
const LARGE_PAGE: &str = ". = ALIGN((1 << 21));";

/// The alignment here.
const PAGE: &str = ". = ALIGN((1 << 12));";

/// A part that the script aligns to large pages.
struct Part {
    /// Its name, for messages.
    name: &'static str,
    /// The symbols at its begin and its end in the script.
    symbols: [&'static str; 2],
    /// Whether scripts may lack it.
    is_optional: bool,
    /// The options that need the alignment, with the reason. Some have other names before Linux 6.9.
    needed: &'static [(&'static str, &'static str)],
}

/// The reason of page-table isolation: `pti_clone_entry_text` in arch/x86/mm/pti.c.
const CLONED: &str = "which maps it into the page tables of programs by large pages";
/// The reason of the mitigation of speculative return stack overflow: assertions of the linker script.
const APART: &str = "which needs two functions at a distance of 1 MiB there";
/// The reason of encrypted memory: `__startup_64` in arch/x86/kernel/head64.c.
const DECRYPTED: &str = "which maps it unencrypted by large pages";

const PARTS: [Part; 2] = [
    Part {
        name: "the text of entries",
        symbols: ["__entry_text_start", "__entry_text_end"],
        is_optional: false,
        needed: &[
            ("CONFIG_MITIGATION_PAGE_TABLE_ISOLATION", CLONED),
            ("CONFIG_PAGE_TABLE_ISOLATION", CLONED),
            ("CONFIG_MITIGATION_SRSO", APART),
            ("CONFIG_CPU_SRSO", APART),
        ],
    },
    Part {
        name: "unencrypted data",
        symbols: ["__start_bss_decrypted", "__end_bss_decrypted"],
        // Linux 7.2 has it only with CONFIG_AMD_MEM_ENCRYPT.
        is_optional: true,
        needed: &[("CONFIG_AMD_MEM_ENCRYPT", DECRYPTED)],
    },
];

impl Part {
    /// Whether it is the text of entries.
    fn is_entries(&self) -> bool {
        self.symbols == PARTS[0].symbols
    }

    /// Returns the option of a build that needs the alignment, and the reason.
    fn obstacle(&self, build: &KernelBuild) -> Option<(&'static str, &'static str)> {
        self.needed.iter().find(|(option, _)| build.is_enabled(option)).copied()
    }

    /// Whether a script has it.
    fn is_in(&self, script: &str) -> bool {
        !self.is_optional || self.symbols.iter().any(|symbol| script.contains(&format!("{symbol} = .;")))
    }
}

/// Returns the effect of packing.
pub(super) fn packing(build: &KernelBuild) -> Packing {
    let kept = PARTS.iter().filter_map(|part| {
        let (option, why) = part.obstacle(build)?;
        let instead = if part.is_entries() { "; other text fills the rest" } else { "" };
        Some(format!("{} keeps its alignment to 2 MiB for {option}, {why}{instead}", part.name))
    });
    Packing { changes: true, has_runtime: false, kept: kept.collect() }
}

/// Whether other text fills the memory around the text of entries.
fn fills(build: &KernelBuild) -> bool {
    PARTS.iter().any(|part| part.is_entries() && part.obstacle(build).is_some())
}

/// Returns the script with parts that begin and end at pages, where the build allows it.
pub(super) fn packed(script: &str, build: &KernelBuild) -> Result<String, String> {
    let mut free = PARTS.iter().filter(|part| part.is_in(script) && part.obstacle(build).is_none());
    let script = free.try_fold(script.to_owned(), |script, part| with_pages(&script, part.symbols))?;
    if fills(build) { with_fillers(&script) } else { Ok(script) }
}

/// Returns the script with pages instead of large pages directly before the first symbol and directly behind the second
/// one, and between them.
fn with_pages(script: &str, [start, end]: [&str; 2]) -> Result<String, String> {
    let place = |symbol: &str| {
        script.find(&format!("{symbol} = .;")).ok_or_else(|| format!("does not define {symbol}"))
    };
    let (start_at, end_at) = (place(start)?, place(end)?);
    let (before, rest) = script.split_at(start_at);
    let inside_len = end_at.checked_sub(start_at).ok_or_else(|| format!("defines {end} before {start}"))?;
    let (inside, after) = rest.split_at(inside_len);
    let aligned =
        before.rfind(LARGE_PAGE).ok_or_else(|| format!("does not align {start} with `{LARGE_PAGE}`"))?;
    let (head, gap) = before.split_at(aligned);
    // Only other sections of the same part may be between the alignment and the symbol.
    if gap.contains(" = .;") || gap.lines().count() > 4 {
        return Err(format!("does not align {start} with `{LARGE_PAGE}`"));
    }
    let (mut inside, mut after) = (inside.to_owned(), after.to_owned());
    if inside.contains(LARGE_PAGE) {
        inside = inside.replace(LARGE_PAGE, PAGE);
    } else {
        after = after.replacen(LARGE_PAGE, PAGE, 1);
    }
    Ok([head, PAGE, &gap[LARGE_PAGE.len()..], &inside, &after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of the script of Linux 6.12.
    const SCRIPT: &str = "  *(.static_call.text) __static_call_text_end = .;\n  . = ALIGN((1 << 21));\n  \
        *(.text..__x86.rethunk_untrain)\n  . = ALIGN(16); __entry_text_start = .; *(.entry.text) __entry_text_end = .;\n  \
        . = ALIGN((1 << 21));\n  *(.gnu.warning)\n _etext = .;\n . = ALIGN((1 << 21));\n  . = ALIGN((1 << 21)); \
        __start_bss_decrypted = .; *(.bss..decrypted); . = ALIGN((1 << 12)); __start_bss_decrypted_unused = .; . = \
        ALIGN((1 << 21)); __end_bss_decrypted = .;\n";

    #[test]
    fn parts_begin_and_end_at_pages() {
        let [entries, data] = PARTS.map(|part| with_pages(SCRIPT, part.symbols).unwrap());
        let lines: Vec<bool> = entries.lines().map(|line| line.contains(LARGE_PAGE)).collect();
        assert_eq!(lines, [false, false, false, false, false, false, false, true, true]);
        assert_eq!(data.matches(LARGE_PAGE).count(), 3);
        assert!(!data.lines().last().unwrap().contains(LARGE_PAGE), "{data}");
    }

    #[test]
    fn newer_scripts_lack_unencrypted_data() {
        let (without, _) = SCRIPT.split_once(" _etext").unwrap();
        assert_eq!(PARTS.map(|part| part.is_in(without)), [true, false]);
        assert_eq!(PARTS.map(|part| part.is_in("")), [true, false]);
        assert_eq!(PARTS.map(|part| part.is_in(SCRIPT)), [true, true]);
    }

    #[test]
    fn other_scripts_are_refused() {
        let refused = |script: &str| with_pages(script, PARTS[0].symbols).unwrap_err();
        assert!(refused("").contains("does not define __entry_text_start"));
        let moved = SCRIPT.replacen(LARGE_PAGE, ". = ALIGN(64);", 1);
        assert!(refused(&moved).contains("does not align __entry_text_start"));
        let other = SCRIPT.replacen("*(.text..__x86.rethunk_untrain)", "__other = .;", 1);
        assert!(refused(&other).contains("does not align __entry_text_start"));
    }
}
