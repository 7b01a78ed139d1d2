//! QEMU's log of the instructions that it translates (`-d in_asm`).
//!
//! With one instruction per translation block, QEMU translates an instruction just before its first execution, so the
//! log lists first executions in order. A line is
//!
//! ```text
//! 0xc1000117:  81 c4 00 00 00 c0        addl     $0xc0000000, %esp
//! ```
//!
//! Only the address and the bytes are used. After two spaces follows the disassembly, or `ran N`, the number of
//! executions, in the lists of the plugin in `fixtures/qemu`. QEMU prints the bytes of the instruction in units of 1, 2
//! or 4 bytes. It continues a long instruction on a line with an address and bytes alone, which is read as further
//! bytes that ran.
//!
//! After them, that plugin lists the ranges of the kernel's read-only data that were read, if it was given the place of
//! the data:
//!
//! ```text
//! data 0xc11df000-0xc1242000
//! read 0xc11df010-0xc11df028
//! later 0xc11df010-0xc11df018
//! ```
//!
//! Lines with `later` are about the time after boot; [`Span`] selects whether to use them.
//!
//! Before paging is on, a kernel runs at its physical address. Such an instruction counts as the kernel's if its bytes
//! equal the linked kernel's at that place; any other is firmware, a boot loader, or a program.

mod line;
mod reads;

use kplan::{Reads, Run};
use ktext::KernelText;

use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::recorder::Recorder;
use line::{Instruction, instruction};

pub use line::Span;

/// The instructions of a log to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selection {
    /// The part of the log.
    pub span: Span,
    /// Minimum number of executions in this part.
    pub least: u64,
}

/// The figures of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Lines with an instruction.
    pub instructions: u64,
    /// Number of instructions that belong to a function of the kernel.
    pub matched: u64,
    /// Number of these that ran at their physical address.
    pub physical: u64,
    /// Number of these whose bytes differ from the linked kernel's.
    pub patched: u64,
    /// Instructions in the kernel's part of the address space without a function: modules, code that the kernel
    /// generated.
    pub unknown: u64,
    /// Instructions elsewhere: firmware, boot loader, programs.
    pub elsewhere: u64,
    /// Lines that do not belong to such a log.
    pub unreadable: u64,
    /// Translation blocks of several instructions, some of which may not have run.
    pub long_blocks: u64,
    /// Whether the last line was cut off.
    pub is_cut: bool,
}

/// The content of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The figures of its instructions.
    pub counts: LogCounts,
    /// The kernel's read-only data that was read, if the log records it.
    pub reads: Option<Reads>,
}

/// Reads a log, and records the selected instructions of the kernel.
///
/// # Errors
/// If the log cannot be read, is not such a log, is of another kernel, or lacks the requested information.
pub fn read(
    lines: &mut Lines,
    kernel: &KernelText,
    Selection { span, least }: Selection,
    recorder: &mut Recorder<'_>,
) -> Result<Log> {
    let mut log = LogCounts::default();
    let mut reads = None;
    let mut in_block = 0;
    let (mut tells_boot, mut tells_counts, mut left_out) = (false, false, 0);
    while let Some(line) = lines.read_line()? {
        let Some(mut instruction) = instruction(line) else {
            match line {
                b"" | b"----------------" => in_block = 0,
                _ if line.starts_with(b"IN:") => in_block = 0,
                _ if reads::note(line, span, &mut reads) => {}
                _ => log.unreadable += 1,
            }
            continue;
        };
        tells_boot |= instruction.later.is_some();
        tells_counts |= instruction.count.is_some();
        if span == Span::AfterBoot {
            instruction.count = instruction.later.filter(|&later| later > 0);
            if instruction.count.is_none() {
                left_out += 1;
                continue;
            }
        }
        if instruction.count.is_some_and(|count| count < least) {
            left_out += 1;
            continue;
        }
        in_block += u64::from(!instruction.is_bare);
        log.long_blocks += u64::from(in_block == 2 && instruction.count.is_none());
        log.note(&instruction, kernel, recorder);
    }
    log.is_cut = lines.is_cut();
    if span == Span::AfterBoot && !tells_boot {
        return Err(without(&lines.name, "what ran after boot", "the plugin with the option boot"));
    }
    if least > 1 && !tells_counts {
        return Err(without(&lines.name, "how often instructions ran", "the plugin"));
    }
    if log.instructions == 0 && left_out > 0 {
        return Err(Error::NotATrace {
            name: lines.name.clone(),
            problem: format!("none of its {left_out} instructions is selected"),
            expected: "instructions that ran after boot, or as often as --least says".into(),
        });
    }
    log.check(&lines.name, kernel)?;
    reads::check(reads.as_ref(), &lines.name, kernel)?;
    Ok(Log { counts: log, reads })
}

impl LogCounts {
    fn note(&mut self, instruction: &Instruction, kernel: &KernelText, recorder: &mut Recorder<'_>) {
        self.instructions += 1;
        let bytes = instruction.bytes();
        let size = bytes.len() as u64;
        let is_physical = !kernel.is_kernel_address(instruction.address);
        let address = match is_physical {
            true => kernel.address_of_physical(instruction.address, bytes),
            false => Some(instruction.address),
        };
        let Some(address) = address else {
            self.elsewhere += 1;
            return;
        };
        let Some(place) = kernel.place(address, size) else {
            // The firmware of a PC runs below 4 GB, before the kernel does.
            let is_firmware = self.matched == 0;
            let other = if is_firmware { &mut self.elsewhere } else { &mut self.unknown };
            *other += 1;
            return;
        };
        self.matched += 1;
        self.physical += u64::from(is_physical);
        self.patched += u64::from(kernel.linked.bytes_at(address, bytes.len()) != Some(bytes));
        recorder.ran(&place, instruction.count);
    }

    fn check(&self, name: &str, kernel: &KernelText) -> Result<()> {
        let expected = "a log of QEMU's -d in_asm (see `coverage qemu --help`)";
        let name = name.to_owned();
        if self.instructions == 0 {
            let problem = match self.unreadable {
                0 => "empty".into(),
                count => format!("no instruction in {count} lines"),
            };
            return Err(Error::NotATrace { name, problem, expected: expected.into() });
        }
        let kernel = kernel.path.clone();
        if self.matched == 0 {
            let problem = format!(
                "none of its {} instructions is at an address of the kernel's code (a kernel that chooses its own \
                 address has to be traced with nokaslr)",
                self.instructions
            );
            return Err(Error::OtherKernel { name, kernel, problem });
        }
        // A kernel patches some of its code.
        if self.patched * 2 > self.matched {
            let same = self.matched - self.patched;
            let problem = format!("{same} of {} instructions are equal", self.matched);
            return Err(Error::OtherKernel { name, kernel, problem });
        }
        Ok(())
    }

    /// Describes unused or unreliable parts of the log, one remark per line.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.unknown > 0 {
            remarks.push(format!(
                "{} of {} instructions in the kernel's address space belong to no function (modules, generated \
                 code)",
                self.unknown,
                self.unknown + self.matched
            ));
        }
        if self.long_blocks > 0 {
            remarks.push(format!(
                "{} blocks of more than one instruction: translated instructions count as run even if they were not \
                 executed; record with one instruction per block (see --help)",
                self.long_blocks
            ));
        }
        if self.unreadable > 0 {
            remarks
                .push(format!("{} lines are not from a log of -d in_asm and were ignored", self.unreadable));
        }
        if self.is_cut {
            remarks.push("the last line is truncated and was ignored; the trace is not complete".into());
        }
        remarks
    }
}

/// Returns the error for a log without reads if data is requested.
pub fn without_reads(name: &str) -> Error {
    without(name, "what data was read", "the plugin with the option data")
}

/// Returns the error for a log that does not record something, which traces of `source` do.
fn without(name: &str, what: &str, source: &str) -> Error {
    Error::NotATrace {
        name: name.into(),
        problem: format!("it does not record {what}"),
        expected: format!("a trace of {source} (see `coverage qemu --help`)"),
    }
}

/// The log as an entry of [`kplan::Coverage::runs`].
pub fn run(log: Log, trace: &str, kernel: &KernelText) -> Run {
    Run {
        source: "qemu".into(),
        trace: trace.into(),
        kernel: kernel.path.clone(),
        build_id: kernel.linked.build_id.clone(),
        unknown: log.counts.unknown,
        unordered: false,
        reads: log.reads,
    }
}
