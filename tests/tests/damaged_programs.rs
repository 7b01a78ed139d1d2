/*!
Whatever is damaged in a program, the scanner ends soon, in bounded memory, and without a panic: with a plan, or
with the status for bad input and one line that names the file.

The programs that are damaged are small ones for all machines (`fixtures/programs/scan/small.sh`). What is done
to them follows from a fixed seed, so that a failure can be repeated; the file that led to it is kept.
*/

use std::fs;
use std::path::Path;
use std::time::Duration;

use kshrink_tests::{Outcome, Run, command, parallel, recipe};

/// Of every program, as many damaged ones are made.
const VARIANTS: usize = 45;
/// A whole program of this size takes some milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The address space that the scanner may use, in KiB. A size from a header that it believed would need more.
const MEMORY_LIMIT_KIB: u32 = 1 << 20;
/// The status for bad input.
const BAD: i32 = 2;

/// Values for a field that are likely to be mistaken: nothing, everything, the ends of the signed and unsigned
/// ranges, more than the file.
const ABSURD: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_fff0,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

#[test]
fn damaged_programs_are_scanned_or_refused() {
    recipe("install.sh", &["scan"]);
    let dir = tempfile::Builder::new().prefix("kshrink-damaged-").tempdir().expect("a temporary directory");
    // A root file system, so that the libraries of dynamic programs are found.
    let whole = dir.path().join("lib");
    Run::new(kshrink_tests::fixture("programs/scan/small.sh")).arg(&whole).succeed();
    let mut programs: Vec<_> =
        fs::read_dir(&whole).expect("the programs").map(|entry| entry.expect("a program").path()).collect();
    programs.sort();
    assert!(programs.len() >= 20, "only {} programs to damage", programs.len());
    let outcomes = parallel(programs.len() * VARIANTS, |job| {
        let program = &programs[job / VARIANTS];
        let bytes = fs::read(program).expect("a program");
        let name = program.file_name().expect("a name").to_string_lossy();
        let damaged = format!("{name}.{job}");
        let path = dir.path().join(&damaged);
        fs::write(&path, Damage(job as u64).apply(bytes)).expect("a damaged program");
        let outcome = scan(dir.path(), &damaged);
        let result = check(&damaged, &outcome);
        if result.is_ok() {
            fs::remove_file(&path).expect("the damaged program");
        }
        result.map(|()| outcome.status == Some(0))
    });
    let failures: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    if !failures.is_empty() {
        let kept = dir.keep();
        let listed: Vec<&str> = failures.iter().take(10).map(|failure| failure.as_str()).collect();
        panic!("{} failures, kept in {}:\n{}", failures.len(), kept.display(), listed.join("\n"));
    }
    // If all were refused, what comes behind the header would never be looked at; and the other way round.
    let scanned = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    assert!(scanned * 10 > outcomes.len(), "only {scanned} of {} were scanned", outcomes.len());
    assert!(scanned * 10 < outcomes.len() * 9, "as many as {scanned} of {} were scanned", outcomes.len());
}

fn scan(root: &Path, name: &str) -> Outcome {
    let limited = format!("ulimit -c 0; ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
    let run = Run::new("sh").args(["-c", &limited]).arg(command("syscall-scan"));
    let run = run.arg("--root").arg(root).arg(format!("/{name}"));
    run.limit(TIME_LIMIT).outcome()
}

fn check(name: &str, outcome: &Outcome) -> Result<(), String> {
    let refused = format!("syscall-scan: error: /{name}: ");
    let fine = match outcome.status {
        Some(0) => !outcome.stdout.is_empty(),
        Some(BAD) => {
            let message = outcome.stderr.trim_end();
            outcome.stdout.is_empty() && message.starts_with(&refused) && message.lines().count() == 1
        }
        _ => false,
    };
    if fine { Ok(()) } else { Err(outcome.to_string()) }
}

/// A stream of numbers, different for every seed: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Damage(u64);

impl Damage {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// The file with one kind of damage.
    fn apply(mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self.below(6) {
            0 => {
                let length = self.below(bytes.len());
                bytes.truncate(length);
            }
            1 => {
                for _ in 0..=self.below(4) {
                    // Behind the magic number, in the header and the table of segments that follows it.
                    let at = 4 + self.below(0x1c0);
                    self.flip(&mut bytes, at);
                }
            }
            2 => {
                for _ in 0..=self.below(64) {
                    let at = self.below(bytes.len());
                    self.flip(&mut bytes, at);
                }
            }
            3 => {
                let at = 0x10 + 4 * self.below(0x70);
                self.overwrite(&mut bytes, at);
            }
            4 => {
                for _ in 0..=self.below(8) {
                    let at = 4 * self.below(bytes.len() / 4);
                    self.overwrite(&mut bytes, at);
                }
            }
            // A piece of the file in the place of another, as a table that points to itself.
            _ => {
                let length = self.below(64).min(bytes.len());
                let (from, to) = (self.below(bytes.len() - length), self.below(bytes.len() - length));
                bytes.copy_within(from..from + length, to);
            }
        }
        bytes
    }

    fn flip(&mut self, bytes: &mut [u8], at: usize) {
        let bit = self.below(8);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    /// Puts an absurd value into a field of 2, 4 or 8 bytes.
    fn overwrite(&mut self, bytes: &mut [u8], at: usize) {
        let value = ABSURD[self.below(ABSURD.len())].to_le_bytes();
        let size = [2, 4, 8][self.below(3)];
        if let Some(field) = bytes.get_mut(at..at + size) {
            field.copy_from_slice(&value[..size]);
        }
    }
}
