/*!
For any damage to a kernel's build, a linked kernel, a trace, a plan or another document, every command that reads it
ends soon, in bounded memory, and without a panic: with its output, or with the status for bad input and one line that
names the file.

`fixtures/damaged/small.sh` makes the undamaged files. A fixed seed determines the damage, so that a failure can be
repeated. The file that caused it is kept. `KSHRINK_MINUTES=N` damages each of them for N minutes, or until a failure.
*/

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kshrink_tests::{Damage, Outcome, Run, command, minutes, parallel, recipe};

/// Number of damaged copies for each reader.
const VARIANTS: usize = 100;
/// An undamaged file takes some milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The address space of a command, in KiB. A size from a header, if trusted, would need more.
const MEMORY_LIMIT_KIB: u32 = 1 << 20;
/// The status for bad input.
const BAD: i32 = 2;

/// The damage that suits a file.
#[derive(Clone, Copy)]
enum Format {
    /// A linked kernel, or memory in the same format.
    Program,
    /// A relocatable object.
    Object,
    /// An archive, whose headers are text.
    Archive,
    /// JSON, or another text.
    Text,
}

/// A command that reads a file.
struct Reader {
    /// The file, in the directory that the fixture makes.
    file: &'static str,
    format: Format,
    /// The command, which runs in that directory; `@` is the damaged file.
    line: &'static str,
    /// Whether the damaged file has to replace the original, because the command finds it by itself.
    in_place: bool,
}

const fn reader(file: &'static str, format: Format, line: &'static str) -> Reader {
    Reader { file, format, line, in_place: false }
}

const fn found(file: &'static str, format: Format, line: &'static str) -> Reader {
    Reader { file, format, line, in_place: true }
}

const READERS: &[Reader] = &[
    reader("bootconfig", Format::Text, "cmdline-spec build/vmlinux --cmdline bootconfig --bootconfig @"),
    reader("plan.json", Format::Text, "cmdline-spec build/vmlinux --cmdline quiet -p @"),
    found("build/vmlinux", Format::Program, "cmdline-spec build/vmlinux --cmdline level=3"),
    found("build/init/main.o", Format::Object, "cmdline-spec build/vmlinux"),
    found(
        "build/init/main.o",
        Format::Object,
        "cmdline-spec build/vmlinux --cmdline quiet --fix panic_timeout=3",
    ),
    found("build/vmlinux.a", Format::Archive, "cmdline-spec build/vmlinux --json"),
    found("build/arch/x86/kernel/vmlinux.lds", Format::Text, "cmdline-spec build/vmlinux"),
    found("build/include/config/auto.conf", Format::Text, "cmdline-spec build/vmlinux --cmdline quiet"),
    found("build/.vmlinux.o.cmd", Format::Text, "cmdline-spec build/vmlinux --cmdline quiet"),
    found("config/build/.config", Format::Text, "config-spec config/build/vmlinux --quick --json"),
    found(
        "config/build/include/config/auto.conf.cmd",
        Format::Text,
        "config-spec config/build/vmlinux --quick --json",
    ),
    found("config/build/fs/.aio.o.cmd", Format::Text, "config-spec config/build/vmlinux --quick"),
    found("config/source/fs/Makefile", Format::Text, "config-spec config/build/vmlinux --quick --json"),
    found("config/source/drivers/Makefile", Format::Text, "config-spec config/build/vmlinux --quick"),
    found("config/source/Kconfig", Format::Text, "config-spec config/build/vmlinux --quick --explain BUS"),
    found(
        "config/build/modules.builtin.modinfo",
        Format::Text,
        "config-spec config/build/vmlinux --quick --hardware config/devices",
    ),
    found("config/source/drivers/tty.c", Format::Text, "config-spec config/build/vmlinux --json"),
    found("config/build/drivers/tty.o", Format::Object, "config-spec config/build/vmlinux --explain LEGACY"),
    reader("config/census.json", Format::Text, "config-spec config/build/vmlinux --advise --census @"),
    reader(
        "config/census.json",
        Format::Text,
        "config-spec config/build/vmlinux --quick --html /dev/null --census @",
    ),
    reader("config/devices", Format::Text, "config-spec config/build/vmlinux --quick --hardware @"),
    reader("config/plan.json", Format::Text, "config-spec config/build/vmlinux --quick -p @"),
    reader("vmlinux", Format::Program, "coverage summary plan.json --kernel @"),
    reader("vmlinux", Format::Program, "coverage html plan.json @"),
    reader("plan.json", Format::Text, "coverage summary @ --kernel vmlinux"),
    reader("plan.json", Format::Text, "coverage html @ vmlinux"),
    reader("plan.json", Format::Text, "coverage merge plan.json @"),
    reader("blocks.json", Format::Text, "coverage summary plan.json --kernel vmlinux --blocks @"),
    reader("qemu.log", Format::Text, "coverage qemu vmlinux @"),
    reader("trace.txt", Format::Text, "coverage ftrace vmlinux @"),
    reader(
        "core",
        Format::Program,
        "coverage kcore vmlinux --blocks blocks.json --load-address 0xc0100000 @",
    ),
    reader("blocks.json", Format::Text, "coverage kcore vmlinux --blocks @ --load-address 0xc0100000 core"),
    reader("census/core", Format::Program, "census core census/vmlinux @"),
    reader("census/vmlinux", Format::Program, "census core @ census/core"),
    reader("census/allocations", Format::Text, "census trace census/vmlinux census/core @ --json"),
    reader("census/vmlinux", Format::Program, "census places @"),
    reader("census.json", Format::Text, "census diff @ census.json"),
    reader("census.json", Format::Text, "census html @"),
    reader("plan.json", Format::Text, "reorder --vmlinux vmlinux --algorithm packed --granularity block @"),
    reader("plan.json", Format::Text, "reorder --vmlinux vmlinux --algorithm balanced @ plan.json"),
    reader("plan.json", Format::Text, "reorder --vmlinux vmlinux --algorithm call-chain --format lds @"),
    reader("plan.json", Format::Text, "reorder pages vmlinux @"),
    reader("vmlinux", Format::Program, "reorder --vmlinux @ plan.json"),
    reader("vmlinux", Format::Program, "reorder pages @ plan.json"),
    reader("link.map", Format::Text, "reorder --vmlinux vmlinux --map @ --format gold plan.json"),
    reader("vmlinux", Format::Program, "frozen-pack pack @ -o /dev/null"),
    reader("vmlinux", Format::Program, "kelf size @"),
    reader("plan.json", Format::Text, "syscall-scan diff @ plan.json"),
    found("out/contents.json", Format::Text, "kshrink-spec --from out --html /dev/null"),
    reader(
        "plan.json",
        Format::Text,
        "kshrink-spec --objects main.o --entry start_kernel --passes reach,merge,freeze,layout --emit-object /dev/null --plan @",
    ),
];

/// The results for the damaged files of one reader.
#[derive(Default)]
struct Counts {
    read: usize,
    refused: usize,
    failures: Vec<String>,
}

#[test]
fn damaged_documents_are_read_or_refused() {
    recipe("install.sh", &["programs"]);
    let dir = tempfile::Builder::new().prefix("kshrink-damaged-").tempdir().expect("a temporary directory");
    let whole = dir.path().join("whole");
    Run::new(kshrink_tests::fixture("damaged/small.sh")).arg(&whole).succeed();
    let limit = minutes();
    let counts = parallel(READERS.len(), |number| (number, damage(dir.path(), &whole, number, limit)));
    let mut failures = Vec::new();
    let (mut all_read, mut all) = (0, 0);
    for (number, counts) in counts {
        let Counts { read, refused, failures: failed } = counts;
        let line = READERS[number].line;
        if limit.is_some() {
            let _ = writeln!(
                std::io::stderr(),
                "{read} read, {refused} refused, {} failed: {line}",
                failed.len()
            );
        }
        all_read += read;
        all += read + refused;
        failures.extend(failed);
    }
    if !failures.is_empty() {
        let kept = dir.keep();
        panic!("{} failures, kept in {}:\n{}", failures.len(), kept.display(), failures.join("\n"));
    }
    // If all damage were refused, only the start of each reader would be tested; if none were, no refusal would be
    // tested.
    assert!(all_read * 10 > all && all_read * 10 < all * 9, "{all_read} of {all} were read");
}

/// Damages the file of one reader again and again.
fn damage(dir: &Path, whole: &Path, number: usize, limit: Option<Duration>) -> Counts {
    let Reader { file, format, .. } = READERS[number];
    let bytes = fs::read(whole.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let work = dir.join(number.to_string());
    Run::new("cp").arg("-a").arg(whole).arg(&work).succeed();
    let intact = run(&work, &READERS[number], &bytes, "intact");
    assert_eq!(intact.status, Some(0), "an undamaged file is read: {intact}");
    let mut counts = Counts::default();
    let start = Instant::now();
    for variant in 0.. {
        let goes_on = limit.map_or(variant < VARIANTS, |limit| start.elapsed() < limit);
        if !goes_on || counts.failures.len() == 10 {
            break;
        }
        let damage = Damage::new((number * 1_000_000_000 + variant) as u64);
        let damaged = match format {
            Format::Program => damage.to_program(bytes.clone()),
            Format::Object => damage.to_object(bytes.clone()),
            Format::Archive | Format::Text => damage.to_text(bytes.clone()),
        };
        let name = format!("damaged-{variant}");
        let outcome = run(&work, &READERS[number], &damaged, &name);
        match check(&READERS[number], &name, &outcome) {
            Ok(true) => counts.read += 1,
            Ok(false) => counts.refused += 1,
            Err(problem) => {
                let kept = work.join(format!("failed-{variant}"));
                fs::write(&kept, &damaged).expect("the damaged file");
                counts.failures.push(format!("{}: {problem}: {outcome}", kept.display()));
            }
        }
    }
    fs::write(work.join(file), &bytes).expect("the whole file");
    counts
}

/// Runs a reader on a damaged file, and removes the file.
fn run(work: &Path, reader: &Reader, bytes: &[u8], name: &str) -> Outcome {
    let path = work.join(if reader.in_place { reader.file } else { name });
    // An archive is thin: it names its members, so the damaged copy must be in the same directory.
    fs::write(&path, bytes).expect("a damaged file");
    let mut words = reader.line.split(' ').map(|word| if word == "@" { name } else { word });
    let program: PathBuf = command(words.next().unwrap_or_default());
    let limited = format!("ulimit -c 0; ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
    let run = Run::new("sh").dir(work).args(["-c", &limited]).arg(program).args(words);
    let outcome = run.limit(TIME_LIMIT).outcome();
    if !reader.in_place {
        fs::remove_file(&path).expect("the damaged file");
    }
    outcome
}

/// Whether a damaged file was read.
///
/// # Errors
/// The problem of the outcome.
fn check(reader: &Reader, name: &str, outcome: &Outcome) -> Result<bool, &'static str> {
    let command = reader.line.split(' ').next().unwrap_or_default();
    match outcome.status {
        // Like diff, `syscall-scan diff` exits with 1 if plans differ.
        Some(0) => Ok(true),
        Some(1) if reader.line.starts_with("syscall-scan diff") && outcome.stderr.is_empty() => Ok(true),
        Some(BAD) | Some(1) if reader.in_place => {
            // A damaged build may name a missing file.
            let errors = outcome.stderr.lines().filter(|line| line.contains("error: ")).count();
            if errors == 1 && outcome.stdout.is_empty() { Ok(false) } else { Err("no clear error") }
        }
        Some(BAD) => {
            // A subcommand's errors contain its name, too.
            let mut errors = outcome.stderr.lines().filter_map(|line| {
                let (name, error) = line.split_once(": error: ")?;
                name.starts_with(command).then_some(error)
            });
            let (error, more) = (errors.next().unwrap_or_default(), errors.next());
            if error.contains(name) && more.is_none() && outcome.stdout.is_empty() {
                Ok(false)
            } else {
                Err("no clear error")
            }
        }
        _ => Err("neither success nor the status for bad input"),
    }
}
