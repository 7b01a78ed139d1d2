//! The output of the plugin: for each word of 4 bytes of memory, the call of an allocator, and the last access.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use kcli::{Failure, read_input};
use rustc_hash::FxHashMap;

use super::allocators::Allocator;
use crate::error::{Error, Result};

/// The first line of a recording.
const HEAD: &str = "allocations 1";

/// The size of a word in bytes, on all machines.
const WORD: u64 = 4;

/// A call of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The kind of allocator.
    pub kind: Allocator,
    /// Whether it allocates several slab objects.
    pub is_bulk: bool,
    /// Its chain of callers, as an index into [`Recording::chains`]; `None` if the call is unknown.
    pub chain: Option<usize>,
    /// The time of its end.
    pub end: u64,
    /// A number that no other call has.
    pub number: u64,
}

/// Words of memory with the same last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touched {
    /// The physical address of the first word.
    start: u64,
    /// The physical address after the last word.
    end: u64,
    /// The time of the last access.
    time: u64,
    /// The time of the last read; 0 if there was none.
    read: u64,
}

/// Numbers of bytes without an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Bytes that were neither read nor written.
    pub untouched: u64,
    /// Bytes that were not read.
    pub unread: u64,
}

/// The recording of a run.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The name of the file.
    pub name: String,
    /// The list of allocators that the plugin read.
    places: String,
    /// The return addresses of each chain of callers, the innermost first.
    pub chains: Vec<Vec<u64>>,
    /// The last call for words of memory, by physical address.
    calls: FxHashMap<u64, Call>,
    /// The last accesses, by ascending address.
    touched: Vec<Touched>,
}

impl Recording {
    /// Reads a recording from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, is not complete, or contradicts itself.
    pub fn read(path: &Path) -> Result<Recording, Failure> {
        let bytes = read_input(path)?;
        Recording::parse(&kcli::input_name(path), &bytes).map_err(Failure::of)
    }

    /// Parses a recording with this name for messages.
    ///
    /// # Errors
    /// If it is not complete, or contradicts itself.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Recording> {
        let mut recording = Recording { name: name.into(), ..Recording::default() };
        let (mut lines, mut end) = (0, None);
        for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let wrong = |problem: &str| Error::NotARecording {
                name: name.into(),
                line: number + 1,
                problem: problem.into(),
                expected: "a recording by QEMU's plugin allocations.c (see `census trace --help`)",
            };
            let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
            let line = line.ok_or_else(|| wrong("no text, or the line is truncated"))?;
            if end.is_some() {
                return Err(wrong("a line after the last one"));
            }
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let is_read = match word {
                _ if number == 0 => line == HEAD,
                "kernel" | "stacks" | "enter" | "code" => writeln!(recording.places, "{line}").is_ok(),
                "end" => {
                    end = decimal(rest).filter(|&expected| expected == lines);
                    end.is_some()
                }
                _ => {
                    lines += 1;
                    recording.add(word, rest).is_some()
                }
            };
            if !is_read {
                return Err(wrong(&format!("`{}` contradicts the lines before, or is unknown", shown(line))));
            }
        }
        match end {
            Some(_) => Ok(recording),
            None => Err(Error::NotARecording {
                name: name.into(),
                line: bytes.split(|&byte| byte == b'\n').count(),
                problem: "the last line `end` is missing".into(),
                expected: "the whole recording, which QEMU writes when it ends",
            }),
        }
    }

    /// Adds a line; `None` if it is wrong.
    fn add(&mut self, word: &str, rest: &str) -> Option<()> {
        let mut words = rest.split(' ');
        match word {
            "chain" => {
                let number = decimal(words.next()?)?;
                let chain: Vec<u64> = words.map(address).collect::<Option<_>>()?;
                self.chains.push(chain);
                (number == self.chains.len() as u64 && !self.chains.last()?.is_empty()).then_some(())
            }
            "call" => {
                let at = address(words.next()?)?;
                let kind = words.next()?;
                let (chain, end, number) =
                    (decimal(words.next()?)?, decimal(words.next()?)?, decimal(words.next()?)?);
                let call = Call {
                    kind: match kind {
                        "slab" | "bulk" => Allocator::Slab,
                        "pages" => Allocator::Pages,
                        "memblock" => Allocator::Memblock,
                        _ => return None,
                    },
                    is_bulk: kind == "bulk",
                    chain: usize::try_from(chain).ok()?.checked_sub(1),
                    end,
                    number,
                };
                let is_known = call.chain.is_none_or(|chain| chain < self.chains.len());
                let is_new = self.calls.insert(at, call).is_none();
                (is_known && is_new && at % WORD == 0 && words.next().is_none()).then_some(())
            }
            "touched" => {
                let start = address(words.next()?)?;
                let (count, time, read) =
                    (decimal(words.next()?)?, decimal(words.next()?)?, decimal(words.next()?)?);
                let end = start.checked_add(count.checked_mul(WORD)?)?;
                let is_later = self.touched.last().is_none_or(|last| last.end <= start);
                self.touched.push(Touched { start, end, time, read });
                (is_later && read <= time && count > 0 && start % WORD == 0 && words.next().is_none())
                    .then_some(())
            }
            _ => None,
        }
    }

    /// Checks that the plugin watched the allocators of the kernel in the file `kernel`, and that it saw calls.
    ///
    /// # Errors
    /// If it watched other ones, or saw no call.
    pub fn check_kernel(&self, places: &str, kernel: &str) -> Result<()> {
        let problem = match places == self.places {
            true if self.chains.is_empty() => {
                "no call of an allocator ran (boot the kernel with nokaslr)".into()
            }
            true => return Ok(()),
            false => {
                let own = places.lines().find(|line| !self.places.lines().any(|other| other == *line));
                format!("its list of allocators lacks `{}`", own.unwrap_or("nothing, but has more"))
            }
        };
        Err(Error::OtherKernel { name: self.name.clone(), kernel: kernel.into(), problem })
    }

    /// Returns the last call for the word at a physical address, if it is of this kind.
    pub fn call(&self, physical: u64, kind: Allocator) -> Option<Call> {
        self.calls.get(&physical).copied().filter(|call| call.kind == kind)
    }

    /// Counts the bytes of a range of physical addresses that were not accessed after a time. An access to a part of a
    /// word of 4 bytes counts for the word.
    pub fn idle(&self, range: Range<u64>, time: u64) -> Idle {
        let first = self.touched.partition_point(|touched| touched.end <= range.start);
        let size = range.end - range.start;
        let mut idle = Idle { untouched: size, unread: size };
        for touched in self.touched[first..].iter().take_while(|touched| touched.start < range.end) {
            let bytes = touched.end.min(range.end).saturating_sub(touched.start.max(range.start));
            idle.untouched -= if touched.time > time { bytes } else { 0 };
            idle.unread -= if touched.read > time { bytes } else { 0 };
        }
        idle
    }
}

/// Returns the first characters of a line.
fn shown(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// Parses an address, `0x…`.
fn address(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
}

/// Parses a number of 32 bits.
fn decimal(text: &str) -> Option<u64> {
    text.parse::<u32>().ok().filter(|_| !text.starts_with('+')).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "allocations 1\nkernel 2a\nenter slab 0xc1000000 kmalloc\nchain 1 0xc1000010\nchain 2 0xc1000020 0xc1000030\n\
        call 0x00001004 slab 2 7 9\ncall 0x00001008 slab 0 8 10\n\
        touched 0x00001000 2 7 3\ntouched 0x00001008 1 9 0\ntouched 0x00002000 4 8 8\nend 7\n";

    fn parse(text: &str) -> Result<Recording> {
        Recording::parse("recording", text.as_bytes())
    }

    #[test]
    fn whole_recording_is_read() {
        let recording = parse(WHOLE).unwrap();
        assert_eq!(recording.chains, [vec![0xc100_0010], vec![0xc100_0020, 0xc100_0030]]);
        let call = recording.call(0x1004, Allocator::Slab).unwrap();
        assert_eq!((call.chain, call.end, call.number), (Some(1), 7, 9));
        assert_eq!(recording.call(0x1008, Allocator::Slab).unwrap().chain, None);
        assert_eq!(recording.call(0x1004, Allocator::Pages), None);
        assert!(recording.check_kernel("kernel 2a\nenter slab 0xc1000000 kmalloc\n", "vmlinux").is_ok());
        let error = recording.check_kernel("kernel 2b\n", "vmlinux").unwrap_err().to_string();
        assert!(
            error.contains("of another kernel than vmlinux: its list of allocators lacks `kernel 2b`"),
            "{error}"
        );
    }

    #[test]
    fn untouched_bytes_lie_between_later_accesses() {
        let recording = parse(WHOLE).unwrap();
        let untouched = |start, end, time| recording.idle(start..end, time).untouched;
        assert_eq!(untouched(0x1000, 0x1010, 6), 4);
        assert_eq!(untouched(0x1000, 0x1010, 7), 12);
        assert_eq!(untouched(0x1000, 0x1010, 9), 16);
        assert_eq!(untouched(0x1006, 0x2002, 6), 0xffc - 2 - 4 - 2);
        assert_eq!(untouched(0x3000, 0x4000, 0), 0x1000);
        let idle = |start, end, time| recording.idle(start..end, time);
        assert_eq!(idle(0x1000, 0x1010, 2), Idle { untouched: 4, unread: 8 });
        assert_eq!(idle(0x2000, 0x2010, 7), Idle { untouched: 0, unread: 0 });
    }

    #[test]
    fn damaged_recordings_are_refused() {
        let refuse = |from: &str, to: &str, words: &str| {
            let error = parse(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with("recording: line ") && error.contains(words), "{error}");
        };
        refuse("allocations 1", "allocations 2", "line 1: `allocations 2`");
        refuse("chain 2", "chain 3", "line 5: `chain 3 ");
        refuse("slab 2 7 9", "slab 3 7 9", "line 6: ");
        refuse("0x00001008 slab", "0x00001004 slab", "line 7: ");
        refuse("0x00001004 slab", "0x00001005 slab", "line 6: ");
        refuse("0x00001008 1 9", "0x00001004 1 9", "line 9: ");
        refuse("0x00001008 1 9", "0x00001008 0 9", "line 9: ");
        refuse("0x00001008 1 9 0", "0x00001008 1 9 10", "line 9: ");
        refuse("end 7", "end 8", "line 11: `end 8`");
        refuse("end 7\n", "", "`end` is missing");
        refuse("end 7\n", "end 7", "line 11: no text, or the line is truncated");
        refuse("end 7\n", "end 7\nend 7\n", "line 12: a line after the last one");
        refuse("call 0x00001004", "call 0x+0001004", "line 6: ");
        assert!(parse("").unwrap_err().to_string().contains("is missing"));
    }
}
