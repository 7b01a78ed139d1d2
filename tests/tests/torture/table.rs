//! The results of all tests as a human-readable table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::TestResult;

/// Maximum number of tests to name for one reason of refusal.
const NAMED: usize = 8;

/// Counts by level, and names.
pub struct Table {
    levels: Vec<String>,
    tests: usize,
    /// For each row of the table, the counts of each level.
    rows: BTreeMap<(Row, String), Vec<usize>>,
    /// The refused tests, by reason.
    refused: BTreeMap<String, BTreeSet<String>>,
    /// Test and level, and the difference.
    different: BTreeSet<(String, String, String)>,
}

/// The rows in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Skipped,
    Repeated,
    Same,
    Refused,
    Different,
}

impl Table {
    /// Creates an empty table.
    pub fn new(levels: &[&[&str]]) -> Table {
        let levels = levels.iter().map(|level| level.join(" ")).collect();
        let (rows, refused, different) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Table { levels, tests: 0, rows, refused, different }
    }

    /// Adds the results of a test at every level.
    pub fn add(&mut self, name: &str, verdicts: Vec<TestResult>) {
        self.tests += 1;
        for (level, verdict) in verdicts.into_iter().enumerate() {
            self.add_verdict(level, name, verdict);
        }
    }

    fn add_verdict(&mut self, level: usize, name: &str, verdict: TestResult) {
        let (row, label) = match verdict {
            TestResult::Skipped(why) => (Row::Skipped, format!("skipped: {why}")),
            TestResult::Repeated => (Row::Repeated, "the objects of an earlier level".to_owned()),
            TestResult::Same => (Row::Same, "the same".to_owned()),
            TestResult::Refused(why) => {
                self.refused.entry(reason(&why)).or_default().insert(name.to_owned());
                (Row::Refused, "refused".to_owned())
            }
            TestResult::Different(why) => {
                self.different.insert((name.to_owned(), self.levels[level].clone(), why));
                (Row::Different, "different".to_owned())
            }
        };
        self.rows.entry((row, label)).or_insert_with(|| vec![0; self.levels.len()])[level] += 1;
    }

    /// Number of tests that were added.
    pub fn tests(&self) -> usize {
        self.tests
    }

    /// Number of programs with the same behaviour, at any level.
    pub fn same(&self) -> usize {
        self.count(Row::Same)
    }

    /// Number of programs with different behaviour, at any level.
    pub fn different(&self) -> usize {
        self.count(Row::Different)
    }

    fn count(&self, wanted: Row) -> usize {
        self.rows.iter().filter(|((row, _), _)| *row == wanted).flat_map(|(_, counts)| counts).sum()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, label: &str, cells: &[String]| {
            write!(f, "{label:42}")?;
            cells.iter().try_for_each(|cell| write!(f, "{cell:>12}"))?;
            writeln!(f)
        };
        line(f, "", &self.levels)?;
        line(f, "tests", &vec![self.tests.to_string(); self.levels.len()])?;
        for ((_, label), counts) in &self.rows {
            line(f, label, &counts.iter().map(usize::to_string).collect::<Vec<_>>())?;
        }
        for (reason, names) in &self.refused {
            writeln!(f, "\nrefused: {reason}\n  {} tests", names.len())?;
            for name in names.iter().take(NAMED) {
                writeln!(f, "    {name}")?;
            }
            if names.len() > NAMED {
                writeln!(f, "    and {} more", names.len() - NAMED)?;
            }
        }
        for (name, level, why) in &self.different {
            writeln!(f, "\ndifferent: {name} {level}\n  {why}")?;
        }
        writeln!(f)
    }
}

/// Returns an error without the details of a program: the object's name, sections, offsets.
fn reason(error: &str) -> String {
    let mut words: Vec<&str> = error.split_whitespace().skip_while(|word| word.ends_with(".o:")).collect();
    for at in 0..words.len() {
        let follows_section = at > 0 && words[at - 1] == "section" && words[at].starts_with('.');
        if words[at].starts_with("0x") || follows_section {
            words[at] = "…";
        }
    }
    words.join(" ")
}
