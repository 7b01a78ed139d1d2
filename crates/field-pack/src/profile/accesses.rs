//! The output of the plugin `accesses.c`: loads and stores of each word of memory.
//!
//! They estimate the cost of a slower access, and nothing else depends on them. An object has also the accesses of earlier
//! objects at its place, and members that share a word have the accesses of the whole word. A fill or a copy of whole objects
//! accesses every word of an object. The accesses of the least used word are therefore subtracted from all words.

use std::path::Path;

use crate::error::{Error, Result};
use kcli::{Failure, read_input};

/// The first line of a log.
const HEAD: &str = "accesses 1";

/// The size of a word in bytes.
const WORD: u64 = 4;

/// Words with the same loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    /// The physical address of the first word.
    start: u64,
    /// The physical address after the last word.
    end: u64,
    loads: u64,
    stores: u64,
}

/// The loads and stores of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// The name of the file.
    pub name: String,
    /// By ascending address.
    words: Vec<Words>,
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
        let mut accesses = Accesses { name: name.into(), words: Vec::new() };
        let (mut last, mut is_over) = (0, false);
        for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            last = number + 1;
            let wrong = |problem: &str| accesses_error(name, number + 1, problem);
            let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
            let line = line.ok_or_else(|| wrong("no text, or the line is truncated"))?;
            let is_right = match line.split_once(' ') {
                _ if is_over => false,
                _ if number == 0 => line == HEAD,
                Some(("words", rest)) => accesses.add(rest).is_some(),
                Some(("end", count)) => {
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

    /// Adds a line; `None` if it is wrong.
    fn add(&mut self, rest: &str) -> Option<()> {
        let mut parts = rest.split(' ');
        let start = u64::from(u32::from_str_radix(parts.next()?.strip_prefix("0x")?, 16).ok()?);
        let mut number = || parts.next()?.parse::<u32>().ok().map(u64::from);
        let (count, loads, stores) = (number()?, number()?, number()?);
        let words = Words { start, end: start + count * WORD, loads, stores };
        let is_later = self.words.last().is_none_or(|last| last.end <= start);
        self.words.push(words);
        (is_later && count > 0 && start % WORD == 0 && parts.next().is_none()).then_some(())
    }

    /// Returns the least loads and the least stores of the words in a range of physical addresses.
    pub fn least(&self, start: u64, bytes: u64) -> [u64; 2] {
        let (start, end) = (start - start % WORD, start.saturating_add(bytes).next_multiple_of(WORD));
        let first = self.words.partition_point(|words| words.end <= start);
        let (mut at, mut least) = (start, [u64::MAX; 2]);
        for words in self.words[first..].iter().take_while(|words| words.start < end) {
            if words.start > at {
                return [0, 0];
            }
            least = [least[0].min(words.loads), least[1].min(words.stores)];
            at = words.end;
        }
        if at < end { [0, 0] } else { least }
    }

    /// Returns the loads and the stores of all words that a range of physical addresses overlaps, less `base` for each word.
    pub fn beyond(&self, start: u64, bytes: u64, base: [u64; 2]) -> [u64; 2] {
        let [loads, stores] = self.of(start, bytes);
        let words = (start.saturating_add(bytes).next_multiple_of(WORD) - (start - start % WORD)) / WORD;
        [loads.saturating_sub(words * base[0]), stores.saturating_sub(words * base[1])]
    }

    /// Returns the loads and the stores of all words that a range of physical addresses overlaps.
    pub fn of(&self, start: u64, bytes: u64) -> [u64; 2] {
        let (start, end) = (start - start % WORD, start.saturating_add(bytes).next_multiple_of(WORD));
        let first = self.words.partition_point(|words| words.end <= start);
        let overlapping = self.words[first..].iter().take_while(|words| words.start < end);
        overlapping.fold([0, 0], |sum: [u64; 2], words| {
            let count = (words.end.min(end) - words.start.max(start)) / WORD;
            [sum[0] + count * words.loads, sum[1] + count * words.stores]
        })
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

    const WHOLE: &str = "accesses 1\nwords 0x00001000 1 3 1\nwords 0x00001004 2 0 2\nend 2\n";

    fn parse(text: &str) -> Result<Accesses> {
        Accesses::parse("log", text.as_bytes())
    }

    #[test]
    fn words_that_a_range_overlaps_count() {
        let accesses = parse(WHOLE).unwrap();
        assert_eq!(accesses.of(0x1000, 4), [3, 1]);
        assert_eq!(accesses.of(0x1002, 4), [3, 3]);
        assert_eq!(accesses.of(0x1004, 8), [0, 4]);
        assert_eq!(accesses.of(0x1006, 1), [0, 2]);
        assert_eq!(accesses.of(0x100c, 4), [0, 0]);
        assert_eq!(accesses.of(0x1000, 0x1000), [3, 5]);
    }

    #[test]
    fn accesses_of_all_words_do_not_count() {
        let accesses = parse("accesses 1\nwords 0x00001000 1 3 1\nwords 0x00001004 2 2 5\nend 2\n").unwrap();
        let least = |start, bytes| accesses.least(start, bytes);
        assert_eq!((least(0x1000, 8), least(0x1004, 8)), ([2, 1], [2, 5]));
        assert_eq!((least(0x1000, 13), least(0xffc, 8), least(0x2000, 4)), ([0, 0], [0, 0], [0, 0]));
        assert_eq!(accesses.beyond(0x1000, 4, [2, 1]), [1, 0]);
        assert_eq!(accesses.beyond(0x1002, 4, [2, 1]), [1, 4]);
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
        refuse("1 3 1", "1 3 4294967296", "line 2: ");
        refuse("1 3 1", "2 3 1", "line 3: ");
        refuse("1 3 1", "0 3 1", "line 2: ");
        refuse("end 2", "end 3", "line 4: `end 3`");
        refuse("end 2\n", "", "line 3: the last line `end` is missing");
        refuse("end 2\n", "end 2", "line 4: no text, or the line is truncated");
        refuse("end 2\n", "end 2\nend 2\n", "line 5: ");
    }
}
