/*!
The system calls that programs make under observation are in the scanner's plans for these programs.

The scripts of `fixtures/scan/` run the programs of Debian packages under `strace -f`, in a root file system with
nothing else (`fixtures/scan/box.sh`). They start more than three hundred programs; [`PROGRAMS`], if a script starts
them, are scanned in that root. An observed call that is not in a complete plan is a failure. For at least
[`LEAST_WHOLE`] programs, the plan has to contain every observed call, even if it is incomplete. A table shows how
close the plans come; [`TABLE`] names a file to write it to.
*/

mod plan;
mod root;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kshrink_tests::{Run, fixture, parallel, parallel_on, recipe};

use plan::Plan;
use trace::Seen;

/// The longest scripts take half a minute on a quiet machine.
const SCRIPT_LIMIT: Duration = Duration::from_secs(240);
/// The scripts wait for servers and signals most of the time.
const SCRIPT_THREADS: usize = 6;
/// The environment variable with the path of a file for the table.
const TABLE: &str = "KSHRINK_SCAN_TABLE";
/// Minimum number of programs whose plan has all observed calls, even if it is incomplete.
const LEAST_WHOLE: usize = 40;

/// The compared programs, by their paths in the root without links, in addition to [`B_SIDE`].
const PROGRAMS: &[&str] = &[
    "/usr/bin/bash",
    "/usr/bin/bc",
    "/usr/bin/bzip2",
    "/usr/bin/cat",
    "/usr/bin/cp",
    "/usr/bin/cpio",
    "/usr/bin/curl",
    "/usr/bin/dash",
    "/usr/bin/dbclient",
    "/usr/bin/dd",
    "/usr/bin/diff",
    "/usr/bin/ed",
    "/usr/bin/file",
    "/usr/bin/find",
    "/usr/bin/gawk",
    "/usr/bin/getent",
    "/usr/bin/git",
    "/usr/bin/grep",
    "/usr/bin/gzip",
    "/usr/bin/ip",
    "/usr/bin/jq",
    "/usr/bin/less",
    "/usr/bin/ls",
    "/usr/bin/lua5.4",
    "/usr/bin/m4",
    "/usr/bin/make",
    "/usr/bin/mawk",
    "/usr/bin/mount",
    "/usr/bin/mv",
    "/usr/bin/nc.openbsd",
    "/usr/bin/openssl",
    "/usr/bin/patch",
    "/usr/bin/perl",
    "/usr/bin/ping",
    "/usr/bin/ps",
    "/usr/bin/python3.11",
    "/usr/bin/redis-cli",
    "/usr/bin/rm",
    "/usr/bin/rsync",
    "/usr/bin/script",
    "/usr/bin/sed",
    "/usr/bin/socat",
    "/usr/bin/sort",
    "/usr/bin/ssh",
    "/usr/bin/tail",
    "/usr/bin/tar",
    "/usr/bin/tclsh8.6",
    "/usr/bin/timeout",
    "/usr/bin/tmux",
    "/usr/bin/unzip",
    "/usr/bin/vim.tiny",
    "/usr/bin/wget",
    "/usr/bin/xargs",
    "/usr/bin/xz",
    "/usr/bin/zip",
    "/usr/bin/zstd",
    "/usr/sbin/dnsmasq",
    "/usr/sbin/dropbear",
    "/usr/sbin/mke2fs",
    "/usr/sbin/sshd",
];

/// The programs in the measurements of B-Side (Middleware 2024).
const B_SIDE: [&str; 6] = [
    "/usr/bin/redis-check-rdb", // redis-server and redis-sentinel are links to it
    "/usr/sbin/nginx",
    "/usr/sbin/haproxy",
    "/usr/bin/memcached",
    "/usr/sbin/lighttpd",
    "/usr/bin/sqlite3",
];

/// Libraries that these programs load by names that are not written in them.
const PLUGINS: &[(&str, &[&str])] = &[
    ("/usr/sbin/lighttpd", &["--plugin-dir", "/usr/lib/lighttpd@lighttpd"]),
    ("/usr/bin/python3.11", &["--plugin-dir", "/usr/lib/python3.11/lib-dynload@python3.11"]),
];

#[test]
#[ignore = "downloads packages, minutes: make test-rest"]
fn x86_64_programs() {
    check("amd64", "x86_64", &scripts());
}

/// Returns all scripts, longest first.
fn scripts() -> Vec<String> {
    let mut scripts: Vec<(u64, String)> = fs::read_dir(fixture("scan"))
        .expect("the scripts")
        .map(|entry| entry.expect("a script"))
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.to_owned();
            let is_script = name.ends_with(".sh") && !["box.sh", "lib.sh"].contains(&name.as_str());
            is_script.then_some((entry.metadata().ok()?.len(), name))
        })
        .collect();
    scripts.sort_unstable_by(|a, b| b.cmp(a));
    scripts.into_iter().map(|(_, name)| name).collect()
}

/// Runs scripts in the root of a Debian architecture, scans the programs that ran, and compares.
fn check(architecture: &str, abi: &str, scripts: &[String]) {
    recipe("install.sh", &["scan"]);
    let root = recipe("package.sh", &["scan/programs.packages", architecture]);
    let mut seen = Seen::new();
    let mut failures = Vec::new();
    for result in parallel_on(SCRIPT_THREADS, scripts.len(), |i| run(&root, &scripts[i])) {
        match result {
            Ok(found) => merge(&mut seen, found),
            Err(failure) => failures.push(failure),
        }
    }
    let wanted: Vec<&str> = PROGRAMS.iter().chain(&B_SIDE).copied().collect();
    let idle = wanted.iter().filter(|path| !seen.contains_key(Path::new(path)));
    failures.extend(idle.map(|path| format!("{path}: no script has started it")));
    seen.retain(|program, _| wanted.iter().any(|path| Path::new(path) == program));
    let mut programs: Vec<(&PathBuf, &BTreeMap<u32, String>)> = seen.iter().collect();
    // Programs with plug-ins take longest.
    programs
        .sort_by_key(|(program, _)| !PLUGINS.iter().any(|(path, _)| program.as_path() == Path::new(path)));
    let mut rows = Vec::new();
    for result in parallel(programs.len(), |i| compare(&root, programs[i].0, programs[i].1, abi)) {
        match result {
            Ok(row) => rows.push(row),
            Err(failure) => failures.push(failure),
        }
    }
    rows.sort_by(|a, b| a.program.cmp(&b.program));
    let table = table(abi, &rows);
    // Printed directly, because the test harness shows a test's output only if it fails.
    let _ = std::io::stderr().write_all(table.as_bytes());
    if let Some(path) = std::env::var_os(TABLE) {
        fs::write(&path, table).unwrap_or_else(|error| panic!("{}: {error}", Path::new(&path).display()));
    }
    failures.extend(rows.iter().filter(|row| row.plan.unresolved == 0 && !row.missing.is_empty()).map(
        |row| {
            format!(
                "{}: seen, and not in its complete plan: {}",
                row.program.display(),
                row.missing.join(", ")
            )
        },
    ));
    failures.sort();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let whole = rows.iter().filter(|row| row.missing.is_empty()).count();
    assert!(whole >= LEAST_WHOLE, "of only {whole} programs everything that was seen is in the plan");
}

/// Runs a script and returns the observed calls.
fn run(root: &Path, script: &str) -> Result<Seen, String> {
    let out = tempfile::Builder::new().prefix("kshrink-scan-").tempdir().expect("a temporary directory");
    let run = Run::new(fixture("scan/box.sh")).arg(root).arg(out.path()).arg(script);
    run.limit(SCRIPT_LIMIT).result()?;
    let read = |name: &str| {
        let bytes = fs::read(out.path().join(name)).map_err(|error| format!("{script}: {name}: {error}"))?;
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    // A script that failed has not observed enough.
    let output = read("output")?;
    if let Some(failed) = output.lines().find(|line| line.starts_with("FAILED")) {
        return Err(format!("{script}: {failed}"));
    }
    Ok(trace::seen(&read("log")?, root))
}

fn merge(seen: &mut Seen, found: Seen) {
    for (program, calls) in found {
        seen.entry(program).or_default().extend(calls);
    }
}

/// The comparison of a program's plan with the observed calls.
struct ComparedProgram {
    program: PathBuf,
    /// Number of observed calls from its own code.
    observed: usize,
    plan: Plan,
    /// Names of observed calls that are not in the plan.
    missing: Vec<String>,
}

fn compare(
    root: &Path,
    program: &Path,
    seen: &BTreeMap<u32, String>,
    abi: &str,
) -> Result<ComparedProgram, String> {
    let options = PLUGINS.iter().find(|(path, _)| Path::new(path) == program).map_or(&[][..], |row| row.1);
    let plan = Plan::of(root, program, options, abi)?;
    let missing = seen.iter().filter(|(number, _)| !plan.all.contains(number)).map(|(_, name)| name.clone());
    let missing: Vec<String> = missing.collect();
    let others: BTreeSet<u32> = plan.all.difference(&plan.own).copied().collect();
    let observed = seen.keys().filter(|number| !others.contains(number)).count();
    Ok(ComparedProgram { program: program.to_owned(), observed, plan, missing })
}

impl ComparedProgram {
    fn identified(&self) -> usize {
        self.plan.own.len()
    }

    fn hits(&self) -> f64 {
        (self.observed - self.missing.len()) as f64
    }

    fn precision(&self) -> f64 {
        self.hits() / self.identified().max(1) as f64
    }

    fn recall(&self) -> f64 {
        self.hits() / self.observed.max(1) as f64
    }

    fn f1(&self) -> f64 {
        2.0 * self.hits() / (self.observed + self.identified()).max(1) as f64
    }
}

/// Returns the rows as a human-readable table, with the averages over all programs and over those of B-Side.
fn table(abi: &str, rows: &[ComparedProgram]) -> String {
    let mut text = format!("{abi:32} observed identified unresolved precision recall   F1   time\n");
    for row in rows {
        text += &format!(
            "{:32} {:8} {:10} {:10} {:9.2} {:6.2} {:4.2} {:4.1} s{}\n",
            row.program.display(),
            row.observed,
            row.identified(),
            row.plan.unresolved,
            row.precision(),
            row.recall(),
            row.f1(),
            row.plan.time.as_secs_f64(),
            if row.missing.is_empty() {
                String::new()
            } else {
                format!("  missing: {}", row.missing.join(" "))
            },
        );
    }
    let b_side: Vec<&ComparedProgram> =
        rows.iter().filter(|row| B_SIDE.iter().any(|path| row.program == Path::new(path))).collect();
    text + &average("average of B-Side's programs", &b_side)
        + &average(&format!("average of {} programs", rows.len()), &rows.iter().collect::<Vec<_>>())
}

fn average(name: &str, rows: &[&ComparedProgram]) -> String {
    let mean = |value: &dyn Fn(&ComparedProgram) -> f64| {
        rows.iter().map(|row| value(row)).sum::<f64>() / rows.len().max(1) as f64
    };
    format!(
        "{name:32} {:8.1} {:10.1} {:10.1} {:9.2} {:6.2} {:4.2} {:4.1} s\n",
        mean(&|row| row.observed as f64),
        mean(&|row| row.identified() as f64),
        mean(&|row| row.plan.unresolved as f64),
        mean(&ComparedProgram::precision),
        mean(&ComparedProgram::recall),
        mean(&ComparedProgram::f1),
        mean(&|row| row.plan.time.as_secs_f64()),
    )
}
