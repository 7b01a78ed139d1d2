//! `census` on the memory of a kernel in miniature (`fixtures/census`), whole and damaged.

mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use census::document::{Document, Kind, Owner};
use kshrink_tests::elf::build_id;
use kshrink_tests::process::run;
use kshrink_tests::{CORE_MEMORY as MEMORY, core};
use tempfile::TempDir;

/// Time limit of a run on a damaged core, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A directory with `vmlinux`, and its memory as `core`.
struct Miniature {
    dir: TempDir,
}

impl Miniature {
    fn new() -> Miniature {
        let miniature = Miniature { dir: tempfile::tempdir().unwrap() };
        miniature.build("vmlinux", &[]);
        miniature.write("core", core(&miniature.memory("vmlinux")));
        miniature
    }

    /// Compiles and links the kernel, with further flags.
    fn build(&self, name: &str, flags: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/census/kernel");
        let mut gcc = Command::new("gcc");
        gcc.args(["-m32", "-g", "-ffreestanding", "-fno-pic", "-fno-eliminate-unused-debug-types", "-c"]);
        run(gcc
            .args(flags)
            .arg(source.with_extension("c"))
            .args(["-o", "kernel.o"])
            .current_dir(self.dir.path()));
        let mut ld = Command::new("ld");
        ld.args(["-m", "elf_i386", "--no-warn-rwx-segments", "--build-id", "-T"])
            .arg(source.with_extension("lds"));
        run(ld.args(["kernel.o", "-o", name]).current_dir(self.dir.path()));
        // A variable that contains the memory would count as the owner of all that its pages point to.
        run(Command::new("objcopy").args(["--strip-symbol=pages", name]).current_dir(self.dir.path()));
    }

    /// Returns the bytes that the linked kernel puts into memory.
    fn memory(&self, kernel: &str) -> Vec<u8> {
        run(Command::new("objcopy").args(["-O", "binary", kernel, "memory"]).current_dir(self.dir.path()));
        fs::read(self.path("memory")).unwrap()
    }

    /// Returns the offset in the core of a variable.
    fn offset(&self, variable: &str) -> usize {
        if variable == "pages" {
            return MEMORY + 0x4000;
        }
        let symbols = run(Command::new("nm").arg(self.path("vmlinux")));
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {variable}"))).unwrap();
        MEMORY + usize::from_str_radix(&line[..8], 16).unwrap() - 0xc000_0000
    }

    /// Writes the core with words of variables replaced, as `damaged`.
    fn damage(&self, words: &[(&str, usize, u32)]) {
        let mut core = fs::read(self.path("core")).unwrap();
        for &(variable, offset, word) in words {
            let at = self.offset(variable) + offset;
            core[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        self.write("damaged", core);
    }

    /// Checks that the core with words of variables replaced is refused with an error that has some words.
    fn refuses_damage(&self, damage: &[(&str, usize, u32)], words: &[&str]) {
        self.damage(damage);
        let all = [
            words,
            &[
                "damaged: ",
                "expected ",
                "dump the memory of the machine again, or give",
                "instead of vmlinux",
            ],
        ]
        .concat();
        self.refuses(&["core", "vmlinux", "damaged"], 2, &all);
    }

    /// Returns the address of a variable.
    fn address(&self, variable: &str) -> u32 {
        0xc000_0000 + (self.offset(variable) - MEMORY) as u32
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn census(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_census"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Checks that a command fails with one line that has these words, and prints nothing else.
    fn refuses(&self, arguments: &[&str], status: i32, words: &[&str]) {
        let output = self.census(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty() && errors.starts_with("census: error: "), "{arguments:?}: {errors}");
        assert!(words.iter().all(|word| errors.contains(word)), "{arguments:?}: {words:?} in {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn every_page_is_counted_once() {
    let miniature = Miniature::new();
    let output = miniature.census(&["core", "vmlinux", "core", "--json", "-o", "census.json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = Document::read(&miniature.path("census.json")).unwrap();
    let cache = |name: &str, bytes, size, objects, used, merged, variables: &[&str]| Owner {
        objects: Some(objects),
        used: Some(used),
        active: Some(used),
        object_size: Some(size),
        merged: Some(merged),
        variables: variables.iter().map(|&name| name.to_owned()).collect(),
        ..Owner::new(Kind::Slab, name, bytes)
    };
    let expected = [
        cache("large", 8192, 8192, 1, 1, 0, &[]),
        cache("small", 4096, 64, 64, 62, 2, &["small_cachep"]),
        Owner::new(Kind::PageTables, "page tables", 4096),
        Owner::new(Kind::Stacks, "stacks of tasks", 4096),
        Owner::new(Kind::Files, "ext2", 4096),
        Owner::new(Kind::ProcessorLists, "free pages of processors", 4096),
        Owner::new(Kind::Referenced, "hash_table", 8192),
        Owner::new(Kind::Referenced, "objects of large", 4096),
        Owner::new(Kind::Free, "free pages", 8192),
        Owner::new(Kind::Reserved, "the first megabyte", 3 * 4096),
        Owner::new(Kind::Reserved, "struct page", 4096),
    ];
    assert_eq!(document.owners, expected);
    assert_eq!(document.build_id, Some(build_id(&miniature.path("vmlinux"))));
    let memory = document.memory;
    assert_eq!((memory.total, memory.free, memory.slab), (12 * 4096, 2 * 4096, 3 * 4096));
    assert_eq!(memory.explained, memory.used());

    let table = miniature.census(&["core", "vmlinux", "core"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("explained 40 of 40 KiB in use (100.0 %)"), "{table}");
    assert!(table.contains("+2 small_cachep"), "{table}");
    let same = miniature.census(&["diff", "census.json", "census.json"]);
    assert_eq!(String::from_utf8(same.stdout).unwrap().lines().count(), 2);
}

#[test]
fn other_kernels_and_other_files_are_refused() {
    let miniature = Miniature::new();
    let whole = fs::read(miniature.path("core")).unwrap();
    miniature.write("headers", &whole[..60]);
    miniature.write("short", &whole[..whole.len() / 2]);
    miniature.write("text", "hello");
    miniature.write("empty", "");
    miniature.write("zero", core(&[0; 1 << 16]));
    let refuse = |core: &str, words: &[&str]| miniature.refuses(&["core", "vmlinux", core], 2, words);
    refuse("headers", &["headers: not an ELF file"]);
    refuse("short", &["short: it has 32810 bytes, but its headers describe 65620"]);
    refuse("text", &["text: not an ELF file; expected an ELF core"]);
    refuse("empty", &["empty: not an ELF file"]);
    refuse("vmlinux", &["vmlinux: an ELF file of type 2, not a core"]);
    refuse("zero", &["zero: of another kernel than vmlinux", "`Linux version 6.12.0", "give the vmlinux"]);
    miniature.refuses(&["core", "vmlinux", "absent"], 1, &["cannot read absent"]);
    miniature.refuses(&["core", "absent", "core"], 1, &["cannot read absent"]);
    miniature.refuses(&["core", "core", "core"], 2, &["core: this is a core dump", "expected vmlinux"]);
    miniature.refuses(&["core", "text", "core"], 2, &["text:", "not an ELF file"]);

    // The memory of a kernel of the same version, built again with another content, and of another version.
    miniature.build("rebuilt", &["-DMINIATURE=2"]);
    miniature.write("rebuilt.core", core(&miniature.memory("rebuilt")));
    refuse("rebuilt.core", &["rebuilt.core: of another kernel", "the build ID differs"]);
    let mut other = whole.clone();
    let at = whole.windows(20).position(|bytes| bytes == b"Linux version 6.12.0").unwrap();
    other[at..at + 20].copy_from_slice(b"Linux version 6.12.9");
    miniature.write("other", other);
    refuse(
        "other",
        &["its memory has `Linux version 6.12.9 (census) #1 in miniature` and not `Linux version 6.12.0"],
    );

    // The name of standard input.
    refuse("-", &["-: an image of memory cannot come from a pipe; expected a file"]);

    // Without debugging information, and not where it was built.
    run(Command::new("strip").args(["-g", "vmlinux", "-o", "plain"]).current_dir(miniature.dir.path()));
    miniature.refuses(&["core", "plain", "core"], 2, &["not a kernel build directory"]);
    // An output of kshrink-spec has the layouts of the original.
    miniature.write("report.json", r#"{"schema": "kshrink-report/1", "input": "/absent/vmlinux"}"#);
    miniature.refuses(&["core", "plain", "core"], 2, &["plain: ", "/absent/vmlinux"]);
    miniature.write("report.json", r#"{"schema": "kshrink-report/1"}"#);
    // With debugging information that lacks the structures.
    miniature.build("lines", &["-g1"]);
    miniature.write("lines.core", core(&miniature.memory("lines")));
    miniature.refuses(&["core", "lines", "lines.core"], 2, &["not a kernel build directory"]);
    run(Command::new("strip").args(["vmlinux", "-o", "stripped"]).current_dir(miniature.dir.path()));
    miniature.refuses(&["core", "stripped", "core"], 2, &["stripped:", "linux_banner"]);
}

/// A core that ends in the middle of a page still has the bytes before, and one without the build ID is no other kernel.
#[test]
fn part_of_a_page_is_read() {
    let miniature = Miniature::new();
    let memory = miniature.memory("vmlinux");
    let notes = run(Command::new("readelf").args(["-SW", "vmlinux"]).current_dir(miniature.dir.path()));
    let notes = notes.lines().find(|line| line.contains(".notes")).unwrap();
    let notes = notes.split_whitespace().find(|word| word.len() == 8 && word.starts_with('c')).unwrap();
    let notes = usize::from_str_radix(notes, 16).unwrap() - 0xc000_0000;
    miniature.write("without", core(&memory[..notes + 8]));
    let words = ["without: the build ID: ", "not the memory with its build ID", "the whole memory"];
    miniature.refuses(&["core", "vmlinux", "without"], 2, &words);
    // All variables are there, but not the pages after them.
    miniature.write("with", core(&memory[..notes + 0x40]));
    miniature.refuses(&["core", "vmlinux", "with"], 2, &["with: memory at 0xc0005000", "does not hold it"]);
}

#[test]
fn page_of_a_core_is_that_of_its_census() {
    let miniature = Miniature::new();
    let core = ["core", "vmlinux", "core"];
    let output =
        miniature.census(&[&core[..], &["--json", "-o", "census.json", "--html", "page.html"]].concat());
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let page = fs::read(miniature.path("page.html")).unwrap();
    assert_eq!(page, miniature.census(&["html", "census.json"]).stdout);
    // The page replaces the tables, unless they have a file.
    let output = miniature.census(&[&core[..], &["--html", "-"]].concat());
    assert_eq!(output.stdout, page);
    let output = miniature.census(&[&core[..], &["--html", "-", "-o", "tables"]].concat());
    assert_eq!(output.stdout, page);
    assert_eq!(fs::read(miniature.path("tables")).unwrap(), miniature.census(&core).stdout);
    miniature.refuses(&[&core[..], &["--json", "--html", "-"]].concat(), 2, &["standard output", "--output"]);
    miniature.refuses(&[&core[..], &["--html", "/dev/full"]].concat(), 1, &["/dev/full"]);
    // A failure leaves neither.
    let refused = ["core", "vmlinux", "vmlinux", "--json", "-o", "no.json", "--html", "no.html"];
    miniature.refuses(&refused, 2, &["vmlinux: "]);
    assert!(!miniature.path("no.json").exists() && !miniature.path("no.html").exists());
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let miniature = Miniature::new();
    let core = ["core", "vmlinux", "core", "--json", "-o"];
    assert!(miniature.census(&[&core[..], &["census.json"]].concat()).status.success());
    for line in [&core[..], &["diff", "census.json", "census.json", "-o"]] {
        miniature.refuses(&[line, &["/dev/full"]].concat(), 1, &["/dev/full"]);
    }
    // A census on standard input.
    let mut diff = Command::new(env!("CARGO_BIN_EXE_census"));
    diff.args(["diff", "-", "census.json"]).current_dir(miniature.dir.path());
    let output = diff.stdin(fs::File::open(miniature.path("census.json")).unwrap()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
}

/// A kernel that marks large `kmalloc` does not need to guess it from its counters.
#[test]
fn marked_large_kmalloc_is_not_guessed() {
    let miniature = Miniature::new();
    let mut counted = fs::read(miniature.path("core")).unwrap();
    let at = miniature.offset("vm_node_stat");
    counted[at..at + 4].copy_from_slice(&9u32.to_le_bytes());
    // Page 10 becomes a compound page.
    let at = miniature.offset("mem_map") + 10 * 32;
    counted[at..at + 4].copy_from_slice(&(1u32 << 6).to_le_bytes());
    counted[at + 32..at + 36].copy_from_slice(&1u32.to_le_bytes());
    miniature.write("counted", &counted);
    let table = |arguments: &[&str]| String::from_utf8(miniature.census(arguments).stdout).unwrap();
    assert!(table(&["core", "vmlinux", "counted"]).contains("large kmalloc"));
    miniature.build("marking", &["-DMARKING"]);
    let mut marking = miniature.memory("marking");
    let size = marking.len();
    assert_eq!(size + MEMORY, counted.len());
    marking[0x4000..].copy_from_slice(&counted[MEMORY + 0x4000..]);
    let copy = |marking: &mut Vec<u8>, name: &str, length: usize| {
        let at = miniature.offset(name);
        marking[at - MEMORY..at - MEMORY + length].copy_from_slice(&counted[at..at + length]);
    };
    copy(&mut marking, "vm_node_stat", 8);
    copy(&mut marking, "mem_map", 16 * 32);
    miniature.write("marking.core", core(&marking));
    let marked = table(&["core", "marking", "marking.core"]);
    assert!(marked.contains("hash_table") && !marked.contains("large kmalloc"), "{marked}");
}

/// A type of a page wins over a mapping of the page, as a driver may map pages of files.
#[test]
fn mapped_page_keeps_its_own_type() {
    let miniature = Miniature::new();
    // The upper table's last entry refers to a table in page 15, which maps page 13 (a file) and page 9 (no type).
    miniature.damage(&[
        ("pages", 4096 + 1023 * 4, 0xf063),
        ("pages", 11 * 4096, 0xd063),
        ("pages", 11 * 4096 + 4, 0x9063),
    ]);
    let output = miniature.census(&["core", "vmlinux", "damaged"]);
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["files", "ext2", "4"]), "{table}");
    assert!(rows.contains(&vec!["vmalloc", "mapped", "pages", "4"]), "{table}");
}

#[test]
fn damage_is_named_with_its_place() {
    let miniature = Miniature::new();
    let refuse = |damage: (&str, usize, u32), words: &[&str]| miniature.refuses_damage(&[damage], words);
    let slab = 4 * 32;
    refuse(("slab_caches", 0, 0x1234_5678), &["memory at 0x1234567c", "does not hold it"]);
    refuse(("slab_caches", 4, 0), &["the list slab_caches", "predecessor"]);
    refuse(("small", 4, 10), &["the slab cache at 0xc", "objects of 60 bytes take 10"]);
    refuse(("small", 20, 0xc000_4100), &["the slab cache at 0xc", "its name has the byte 0x00"]);
    refuse(("mem_map", slab + 20, 64 << 16 | 65), &["the cache small", "65 of 64 objects"]);
    refuse(
        ("mem_map", slab + 20, 65 << 16 | 65),
        &["the cache small", "65 of 65 objects of 64 bytes on 1 pages"],
    );
    refuse(("pages", 5 * 64, 0xc000_4000 + 5 * 64), &["the free objects of the cache small", "free twice"]);
    refuse(("mem_map", 14 * 32 + 20, 9), &["page frame 14", "2 to the power of 9", "at most 2"]);
    refuse(("contig_page_data", 12, u32::MAX), &["contig_page_data", "4294967295 page frames"]);
    refuse(("init_task", 4, 0), &["memory at"]);
    refuse(
        ("init_task", 0, 0xc000_d000),
        &["the stack of the task at", "begins at 0xc000d000 with 0x0", "0x57ac6e9d"],
    );
    refuse(("_totalram_pages", 0, 1), &["_totalram_pages: 1 pages, but 12 are not reserved"]);
    refuse(("vm_zone_stat", 0, 100_000), &["vm_zone_stat: 100000 free pages, but 2 are free"]);
    // An output file is written only for a whole core.
    miniature.refuses(&["core", "vmlinux", "damaged", "--json", "-o", "out.json"], 2, &["vm_zone_stat"]);
    assert!(!miniature.path("out.json").exists());
}

/// Two tasks with the same threads would count these twice, and many tasks with many threads would take all memory.
#[test]
fn threads_of_two_tasks_are_damage() {
    let miniature = Miniature::new();
    let (first, second) = (miniature.address("init_task") + 4, 0xc000_b004);
    let signals = miniature.address("signals");
    let task = 7 * 4096;
    miniature.refuses_damage(
        &[
            ("init_task", 4, second),
            ("init_task", 8, second),
            ("pages", task + 4, first),
            ("pages", task + 8, first),
            ("pages", task + 28, signals),
        ],
        &["the threads of the task at 0xc000b000", "are also those of another task"],
    );
    // Two caches with the same lists of slabs.
    let node = miniature.address("small_node");
    miniature.refuses_damage(&[("large", 32, node)], &["the memory nodes of the cache large", "used twice"]);
}

/// Damage in any word is found, or has no effect; it takes neither long nor much memory.
#[test]
fn any_damaged_word_is_survived() {
    let miniature = Miniature::new();
    // The headers of the core, and all variables, which are before the notes.
    let end = miniature.offset("contig_page_data").max(miniature.offset("mem_map") + 16 * 32);
    assert!(end > miniature.offset("slab_caches") && end > miniature.offset("signals"));
    for (number, at) in (0..end).step_by(4).enumerate() {
        let mut core = fs::read(miniature.path("core")).unwrap();
        let word = [0, u32::MAX, 0xc000_0000, 0xc000_4004][number % 4];
        core[at..at + 4].copy_from_slice(&word.to_le_bytes());
        miniature.write("damaged", core);
        let start = Instant::now();
        let mut command = Command::new("prlimit");
        command.args(["--as=536870912", env!("CARGO_BIN_EXE_census"), "core", "vmlinux", "damaged"]);
        let output = command.current_dir(miniature.dir.path()).stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "word {at:#x} = {word:#x}: {errors}");
        assert!(start.elapsed() < LIMIT, "word {at:#x} = {word:#x}");
    }
}

#[test]
fn documents_of_other_kinds_are_refused() {
    let miniature = Miniature::new();
    miniature.write("text", "hello");
    miniature.write("plan.json", r#"{"schema": "kshrink-plan/1"}"#);
    miniature.write("none.json", "{}");
    miniature.write("cut.json", r#"{"schema": "kshrink-census/1", "owners": ["#);
    miniature.write("keys.json", r#"{"schema": "kshrink-census/1"}"#);
    let refuse = |file: &str, words: &[&str]| {
        let all = [words, &[file, "expected a census"]].concat();
        miniature.refuses(&["diff", file, file], 2, &all);
    };
    refuse("text", &["not a JSON object"]);
    refuse("plan.json", &["\"kshrink-plan/1\", not \"kshrink-census/1\""]);
    refuse("none.json", &["no key \"schema\""]);
    refuse("cut.json", &["EOF"]);
    refuse("keys.json", &["missing field `kernel`"]);
    miniature.refuses(&["diff", "absent", "absent"], 1, &["absent"]);
}
