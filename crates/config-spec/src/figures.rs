//! The figures of a kernel: its sizes, and the memory that is free when it runs.

use std::path::Path;

use kcli::Failure;
use kcli::scratch::{self, last_lines};
use kelf::KernelBuild;
use ksize::SizeTable;
use serde::Serialize;

/// The figures of a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The file vmlinux, in bytes.
    pub vmlinux: u64,
    /// The boot image, in bytes.
    pub boot_image: Option<u64>,
    /// Code and data that stay after boot, in bytes (`kelf size`).
    pub footprint: u64,
    /// The pages that the kernel keeps, in bytes (`kelf size`).
    pub resident: Option<u64>,
    /// The memory in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// The memory of a running kernel, in KiB, as /proc/meminfo has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// `MemTotal`.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `Buffers`.
    pub buffers: u64,
    /// `Cached`.
    pub cached: u64,
}

impl Figures {
    /// Measures the kernel of a build directory, without its memory.
    ///
    /// # Errors
    /// Bad input if its vmlinux cannot be read.
    pub fn of(dir: &Path) -> Result<Figures, Failure> {
        let vmlinux = dir.join("vmlinux");
        let table = SizeTable::of(&vmlinux).map_err(Failure::of)?;
        Ok(Figures {
            vmlinux: std::fs::metadata(&vmlinux)?.len(),
            boot_image: table.boot_image,
            footprint: table.footprint,
            resident: table.memory.map(|memory| memory.resident),
            memory: None,
        })
    }

    /// Measures a kernel, with the memory that a command finds, if there is one.
    ///
    /// # Errors
    /// Bad input if its vmlinux cannot be read, or if the command fails.
    pub fn with_memory(build: &KernelBuild, command: Option<&str>) -> Result<Figures, Failure> {
        let mut figures = Figures::of(&build.dir)?;
        if let Some(command) = command {
            let memory = Memory::measure(command, &build.dir);
            let place = build.vmlinux.display();
            figures.memory =
                Some(memory.map_err(|problem| Failure::bad_input(format!("{place}: {problem}")))?);
        }
        Ok(figures)
    }
}

impl Memory {
    /// Runs a command that boots the kernel of a build directory, which is `$1`, and prints /proc/meminfo of the guest.
    ///
    /// # Errors
    /// The reason why there is none, for people.
    pub fn measure(command: &str, dir: &Path) -> Result<Memory, String> {
        let output = scratch::run_shell(command, "config-spec", dir)
            .map_err(|error| format!("cannot run sh: {error}"))?;
        if !output.status.success() {
            return Err(format!("--memory: the command failed ({}):{}", output.status, last_lines(&output)));
        }
        Memory::parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
            "--memory: the command did not print /proc/meminfo of the guest; expected lines with `MemTotal: N kB` and \
             `MemFree: N kB`"
                .to_owned()
        })
    }

    /// Finds the last value of each line of /proc/meminfo in a text, such as the console of the guest.
    fn parse(text: &str) -> Option<Memory> {
        let value = |name: &str| {
            let after = text.rsplit(name).next().filter(|after| after.len() < text.len())?;
            let (number, _) = after.trim_start().split_once(" kB")?;
            number.parse().ok()
        };
        Some(Memory {
            total: value("MemTotal:")?,
            free: value("MemFree:")?,
            buffers: value("Buffers:").unwrap_or_default(),
            cached: value("\nCached:").or_else(|| value(" Cached:")).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_in_the_text_of_a_console() {
        let memory = |text: &str| Memory::parse(text);
        let one = "MemTotal:   100 kB\nMemFree:  50 kB\nBuffers:  3 kB\nCached: 7 kB\nSwapCached: 9 kB\n";
        assert_eq!(memory(one), Some(Memory { total: 100, free: 50, buffers: 3, cached: 7 }));
        let two =
            "boot\r\nmeminfo: MemTotal: 1 kB\r\nmeminfo: MemFree: 9 kB\r\nmeminfo: MemFree:       8 kB\r\n";
        assert_eq!(memory(two), Some(Memory { total: 1, free: 8, buffers: 0, cached: 0 }));
        for none in ["", "MemTotal: 5 kB", "MemTotal: 5\nMemFree: 6", "MemTotal: x kB MemFree: 3 kB"] {
            assert_eq!(memory(none), None, "{none}");
        }
    }
}
