//! The measured effects of options, one at a time, and how they compare with estimates and with the paper's ranking.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use kcli::{Table, human};
use kplan::KeptBytes;
use serde::{Deserialize, Serialize};

use crate::costs;
use crate::figures::Figures;
use crate::survey::Row;

/// Number of options in the paper's top lists.
const TOP: usize = 10;

/// An estimate counts as right within this share of the measured bytes, in percent.
const RIGHT_PERCENT: u64 = 5;

/// An estimate also counts as right within this number of bytes.
const RIGHT_BYTES: u64 = 512;

/// The measured options of a kernel.
#[derive(Debug, Serialize)]
pub struct Ranking {
    /// The release of the kernel.
    pub kernel: String,
    /// Its figures.
    pub original: Whole,
    /// The figures of the smaller kernel, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Whole>,
    /// The options, those that save most first.
    pub options: Vec<Ranked>,
    /// The options that were not measured, with the number of objects that a build compiles again.
    pub not_measured: BTreeMap<String, usize>,
}

/// The figures of a kernel, and the contents of its objects in bytes.
#[derive(Debug, Serialize)]
pub struct Whole {
    /// The contents of the linked objects.
    pub contents: u64,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// An option, and what a kernel without it saves.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ranked {
    /// Its name.
    pub name: String,
    /// The value that it was set to.
    pub value: String,
    /// The options that Kconfig turns off with it.
    pub with: Vec<String>,
    /// Number of objects that a build compiles again.
    pub rebuilds: usize,
    /// The time to build and measure, in seconds.
    pub seconds: u64,
    /// The estimate without a build; `None` if the option is not turned off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// The measured savings; `None` if there is no kernel without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// A kernel or a memory figure that could not be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The contents that a build without an option should lack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// The objects that go.
    pub objects: Vec<String>,
    /// Their contents, and the parts of other objects.
    pub contents: KeptBytes,
    /// The reason why there may be more parts, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclear: Option<String>,
}

/// Measured savings; negative if the kernel grows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    /// The contents of linked objects, by kind.
    pub contents: Difference,
    /// Objects that went though they were not expected to.
    pub not_expected: Vec<String>,
    /// Objects that stayed though they were expected to go.
    pub still_there: Vec<String>,
    /// The file vmlinux, in bytes.
    pub vmlinux: i64,
    /// The footprint, in bytes. It has the alignment of sections.
    pub footprint: i64,
    /// The boot image, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image: Option<i64>,
    /// Free memory in the guest, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<i64>,
}

/// Bytes that a kernel lacks, by kind of memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Difference {
    /// Code.
    pub text: i64,
    /// Data in the image.
    pub data: i64,
    /// Zero-initialised data.
    pub bss: i64,
    /// Code and data that the kernel frees after it has started.
    pub init: i64,
}

impl Estimate {
    /// Returns the estimate of a row.
    pub fn of(row: &Row) -> Estimate {
        let unclear = row.part.as_ref().and_then(|part| part.unclear.clone());
        let objects = row.objects_and_members().map(str::to_owned).collect();
        Estimate { objects, contents: costs::plus(row.contents, row.parts), unclear }
    }

    /// Whether it is right.
    fn is_right(&self, saved: &Saved) -> bool {
        let measured = saved.contents.total();
        let error = measured.abs_diff(self.contents.total() as i64);
        error <= RIGHT_BYTES || error * 100 <= measured.unsigned_abs() * RIGHT_PERCENT
    }
}

impl Difference {
    /// Returns the bytes that `new` lacks of `old`.
    pub fn between(old: KeptBytes, new: KeptBytes) -> Difference {
        let less = |old: u64, new: u64| old as i64 - new as i64;
        Difference {
            text: less(old.text, new.text),
            data: less(old.data, new.data),
            bss: less(old.bss, new.bss),
            init: less(old.init, new.init),
        }
    }

    /// Returns all bytes.
    pub fn total(self) -> i64 {
        self.text + self.data + self.bss + self.init
    }
}

impl fmt::Display for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: ", self.name, self.value)?;
        match (&self.saved, &self.problem) {
            (Some(saved), _) => write!(f, "saves {} bytes", signed(saved.contents.total()))?,
            (None, Some(problem)) => f.write_str(problem.lines().next().unwrap_or_default())?,
            (None, None) => f.write_str("not built")?,
        }
        write!(f, " ({} s)", self.seconds)
    }
}

impl Ranking {
    /// Puts the options that save most first.
    pub fn sort(&mut self) {
        self.options.sort_by_key(|ranked| Reverse(ranked.saved.as_ref().map(|saved| saved.contents.total())));
    }

    /// Returns the table for people: bytes, and KiB of free memory.
    pub fn table(&self) -> Table {
        let has_memory = self.original.figures.memory.is_some();
        let mut heading = vec!["option", "value", "estimate", "contents"];
        heading.extend(self.against.is_some().then_some("share"));
        heading.extend(["vmlinux", "boot image"]);
        heading.extend(has_memory.then_some("free KiB"));
        heading.extend(["with", "rebuilds", "seconds"]);
        let mut table = Table::new(heading);
        for ranked in &self.options {
            let estimate =
                ranked.estimate.as_ref().map_or("-".to_owned(), |found| human(found.contents.total()));
            let mut cells = vec![ranked.name.clone(), ranked.value.clone(), estimate];
            let saved = ranked.saved.as_ref();
            let figure = |of: fn(&Saved) -> Option<i64>| saved.and_then(of).map_or("-".to_owned(), signed);
            cells.push(figure(|saved| Some(saved.contents.total())));
            if let Some(against) = &self.against {
                let all = self.original.contents as i64 - against.contents as i64;
                let share = saved.map(|saved| share(saved.contents.total(), all));
                cells.push(share.unwrap_or_else(|| "-".to_owned()));
            }
            cells.push(figure(|saved| Some(saved.vmlinux)));
            cells.push(figure(|saved| saved.boot_image));
            cells.extend(has_memory.then(|| figure(|saved| saved.free)));
            cells.extend([ranked.with.len(), ranked.rebuilds].map(|count| count.to_string()));
            cells.push(ranked.seconds.to_string());
            table.row(cells);
        }
        table
    }

    /// Returns what the table does not have, a line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let compared: Vec<bool> = self
            .options
            .iter()
            .filter_map(|ranked| Some(ranked.estimate.as_ref()?.is_right(ranked.saved.as_ref()?)))
            .collect();
        if !compared.is_empty() {
            notes.push(format!(
                "the estimate is within {RIGHT_PERCENT} % or {RIGHT_BYTES} bytes of the measured contents for {} of {} \
                 options",
                compared.iter().filter(|is_right| **is_right).count(),
                compared.len()
            ));
        }
        notes.extend(self.against.as_ref().map(|against| self.top(against)));
        if !self.not_measured.is_empty() {
            let mut slow: Vec<_> = self.not_measured.iter().collect();
            slow.sort_by_key(|(_, rebuilds)| **rebuilds);
            let slow: Vec<String> =
                slow.iter().map(|(name, rebuilds)| format!("{name} ({rebuilds})")).collect();
            notes.push(format!(
                "note: not measured, because a build compiles many objects again: {}; see --max-rebuilds",
                slow.join(", ")
            ));
        }
        for ranked in &self.options {
            notes.extend(
                ranked.problem.as_ref().map(|problem| format!("note: {}: {}", ranked.name, ends(problem))),
            );
        }
        notes
    }

    /// Returns the shares of the options that save most in the difference to the smaller kernel, as in the paper's
    /// sections 5.3 and 5.4.
    fn top(&self, against: &Whole) -> String {
        let top = |of: &dyn Fn(&Saved) -> Option<i64>, all: Option<i64>| {
            let mut saved: Vec<(i64, &Ranked)> = self
                .options
                .iter()
                .filter_map(|ranked| Some((of(ranked.saved.as_ref()?)?, ranked)))
                .collect();
            saved.sort_by_key(|(saved, _)| Reverse(*saved));
            let mut chosen: Vec<(i64, &Ranked)> = Vec::new();
            for (saved, ranked) in saved {
                // Bytes that go with another one are counted there.
                let is_counted = chosen.iter().any(|(_, other)| other.with.contains(&ranked.name));
                if chosen.len() < TOP && !is_counted {
                    chosen.push((saved, ranked));
                }
            }
            all.map_or("-".to_owned(), |all| share(chosen.iter().map(|(saved, _)| saved).sum(), all))
        };
        let free = |whole: &Whole| whole.figures.memory.map(|memory| memory.free as i64);
        let image = |whole: &Whole| whole.figures.boot_image.map(|image| image as i64);
        let less = |figure: &dyn Fn(&Whole) -> Option<i64>| Some(figure(&self.original)? - figure(against)?);
        format!(
            "the {TOP} options that save most, without those that go with one of them, make up {} of the difference in \
             contents, {} of the boot image, {} of free memory",
            top(&|saved| Some(saved.contents.total()), less(&|whole| Some(whole.contents as i64))),
            top(&|saved| saved.boot_image, less(&image)),
            top(&|saved| saved.free, less(&free).map(|less| -less)),
        )
    }
}

/// Returns the first and the last line of a message. Between them may be a console.
fn ends(problem: &str) -> String {
    let mut lines = problem.lines().map(str::trim);
    let (first, last) = (lines.next().unwrap_or_default(), lines.next_back());
    last.map_or(first.to_owned(), |last| format!("{first} {last}"))
}

fn share(part: i64, all: i64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / all as f64) }
}

fn signed(figure: i64) -> String {
    format!("{}{}", if figure < 0 { "-" } else { "" }, human(figure.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(text: i64, free: i64) -> Saved {
        Saved {
            contents: Difference { text, ..Difference::default() },
            not_expected: Vec::new(),
            still_there: Vec::new(),
            vmlinux: text,
            footprint: text,
            boot_image: Some(text / 2),
            free: Some(free),
        }
    }

    fn ranked(name: &str, estimate: u64, saved: Saved) -> Ranked {
        let contents = KeptBytes { text: estimate, ..KeptBytes::default() };
        Ranked {
            name: name.into(),
            value: "n".into(),
            with: Vec::new(),
            rebuilds: 3,
            seconds: 9,
            estimate: Some(Estimate { objects: Vec::new(), contents, unclear: None }),
            saved: Some(saved),
            problem: None,
        }
    }

    fn whole(contents: u64, free: u64) -> Whole {
        let memory = crate::figures::Memory { total: 100, free, buffers: 0, cached: 0 };
        let figures = Figures {
            vmlinux: contents,
            boot_image: Some(contents / 2),
            footprint: contents,
            resident: None,
            memory: Some(memory),
        };
        Whole { contents, figures }
    }

    #[test]
    fn estimate_is_right_within_a_share_or_some_bytes() {
        let is_right = |estimate, measured| {
            let Ranked { estimate, saved, .. } = ranked("A", estimate, saved(measured, 0));
            estimate.unwrap().is_right(&saved.unwrap())
        };
        assert!(is_right(0, 512) && !is_right(0, 513) && is_right(600, 88) && !is_right(600, 80));
        assert!(
            is_right(95_000, 100_000)
                && !is_right(94_999, 100_000)
                && is_right(0, -512)
                && !is_right(0, -513)
        );
    }

    #[test]
    fn message_with_a_console_is_short() {
        assert_eq!(ends("failed:\n  a\n  b\n  no verdict"), "failed: no verdict");
        assert_eq!((ends("one"), ends("")), ("one".to_owned(), String::new()));
    }

    #[test]
    fn shares_are_of_the_difference_to_the_smaller_kernel() {
        let mut large = ranked("LARGE", 0, saved(2_000, 24));
        large.with = vec!["INSIDE".to_owned()];
        let mut ranking = Ranking {
            kernel: "6.12".into(),
            original: whole(10_000, 50),
            against: Some(whole(6_000, 90)),
            options: vec![ranked("SMALL", 900, saved(1_000, -4)), large],
            not_measured: BTreeMap::from([("EXPERT".into(), 841), ("AIO".into(), 747)]),
        };
        ranking.sort();
        let table = ranking.table().to_string();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let large = ["LARGE", "n", "0", "2,000", "50.0", "%", "2,000", "1,000", "24", "1", "3", "9"];
        let small = ["SMALL", "n", "900", "1,000", "25.0", "%", "1,000", "500", "-4", "0", "3", "9"];
        assert_eq!(rows[1..], [large.to_vec(), small.to_vec()], "{table}");
        let notes = ranking.notes();
        assert!(notes[0].ends_with("for 1 of 2 options"), "{notes:?}");
        assert!(
            notes[1].contains("75.0 % of the difference in contents, 75.0 % of the boot image, 50.0 %"),
            "{notes:?}"
        );
        assert!(notes[2].contains("AIO (747), EXPERT (841)"), "{notes:?}");
        // It goes with the large one.
        ranking.options.push(ranked("INSIDE", 0, saved(1_900, 20)));
        assert!(ranking.notes()[1].contains("75.0 % of the difference in contents"), "{:?}", ranking.notes());
    }
}
