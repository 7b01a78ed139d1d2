//! The output of the plugin `accesses.c`: loads and stores of each word of memory.
//!
//! They estimate the cost of a slower access, and nothing else depends on them: an object has the accesses of all objects
//! that were at its place, and members that share a word have the accesses of all of it.

use std::path::Path;

use kcli::{Failure, read_input};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};

/// The first line of a log.
const HEAD: &str = "accesses 1";

/// The size of a word in bytes.
const WORD: u64 = 4;

/// The loads and stores of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// The name of the file.
    pub name: String,
    /// Loads and stores by physical address.
    words: FxHashMap<u64, [u64; 2]>,
}

impl Accesses {
    /// Reads a log from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, is not complete, or contradicts itself.
    pub fn read(path: &Path) -> Result<Accesses, Failure> {
        let bytes = read_input(path)?;
        Accesses::parse(&kcli::input_name(path), &bytes).map_err(Failure::of)
    }

    /// Parses a log with this name for messages.
    ///
    /// # Errors
    /// If it is not complete, or contradicts itself.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Accesses> {
        let mut accesses = Accesses { name: name.into(), words: FxHashMap::default() };
        let mut is_over = false;
        let mut last = 0;
        for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            last = number + 1;
            let wrong = |problem: &str| accesses_error(name, number + 1, problem);
            let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
            let line = line.ok_or_else(|| wrong("no text, or the line is truncated"))?;
            let is_right = match line.split(' ').collect::<Vec<_>>()[..] {
                _ if is_over => false,
                _ if number == 0 => line == HEAD,
                ["word", at, loads, stores] => {
                    let at = at.strip_prefix("0x").and_then(|at| u64::from_str_radix(at, 16).ok());
                    match (at, loads.parse::<u32>(), stores.parse::<u32>()) {
                        (Some(at), Ok(loads), Ok(stores)) if at % WORD == 0 => {
                            accesses.words.insert(at, [loads, stores].map(u64::from)).is_none()
                        }
                        _ => false,
                    }
                }
                ["end", count] => {
                    is_over = true;
                    count.parse() == Ok(accesses.words.len())
                }
                _ => false,
            };
            if !is_right {
                let shown: String = line.chars().filter(|c| !c.is_control()).take(60).collect();
                return Err(wrong(&format!("`{shown}` contradicts the lines before, or is unknown")));
            }
        }
        if is_over { Ok(accesses) } else { Err(accesses_error(name, last, "the last line `end` is missing")) }
    }

    /// Returns the loads and the stores of a range of physical addresses: those of each word that it overlaps.
    pub fn of(&self, start: u64, bytes: u64) -> [u64; 2] {
        let mut sum = [0, 0];
        let mut at = start - start % WORD;
        while at < start.saturating_add(bytes) {
            if let Some([loads, stores]) = self.words.get(&at) {
                sum = [sum[0] + loads, sum[1] + stores];
            }
            at += WORD;
        }
        sum
    }
}

fn accesses_error(name: &str, line: usize, problem: &str) -> Error {
    Error::NotALog {
        name: name.into(),
        line,
        problem: problem.into(),
        expected: "a log by QEMU's plugin accesses.c (see `field-pack profile --help`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "accesses 1\nword 0x00001000 3 1\nword 0x00001004 0 2\nend 2\n";

    fn parse(text: &str) -> Result<Accesses> {
        Accesses::parse("log", text.as_bytes())
    }

    #[test]
    fn words_that_a_range_overlaps_count() {
        let accesses = parse(WHOLE).unwrap();
        assert_eq!(accesses.of(0x1000, 4), [3, 1]);
        assert_eq!(accesses.of(0x1002, 4), [3, 3]);
        assert_eq!(accesses.of(0x1004, 8), [0, 2]);
        assert_eq!(accesses.of(0x1008, 4), [0, 0]);
    }

    #[test]
    fn damaged_logs_are_refused() {
        let refuse = |from: &str, to: &str, words: &str| {
            let error = parse(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with("log: line ") && error.contains(words), "{error}");
        };
        refuse("accesses 1", "accesses 2", "line 1: `accesses 2`");
        refuse("0x00001004", "0x00001000", "line 3: ");
        refuse("0x00001004", "0x00001005", "line 3: ");
        refuse("3 1", "3 4294967296", "line 2: ");
        refuse("end 2", "end 3", "line 4: `end 3`");
        refuse("end 2\n", "", "line 3: the last line `end` is missing");
        refuse("end 2\n", "end 2", "line 4: no text, or the line is truncated");
        refuse("end 2\n", "end 2\nend 2\n", "line 5: ");
    }
}
