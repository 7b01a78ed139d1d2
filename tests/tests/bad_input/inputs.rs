//! Defective files, and the valid files that they are made from.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use kshrink_tests::{Run, recipe};

/// Offsets in the header of a 32-bit ELF file (System V ABI, chapter 4).
const EI_DATA: usize = 5;
const E_MACHINE: usize = 18;
const E_TYPE: usize = 16;
const HALF_FIELDS: [usize; 8] = [E_TYPE, E_MACHINE, 40, 42, 44, 46, 48, 50];
const WORD_FIELDS: [usize; 5] = [20, 24, 28, 32, 36];
/// SPARC, which is big-endian, and MIPS, which can be either.
const EM_SPARC: u8 = 2;
const EM_MIPS: u8 = 8;
const ET_CORE: u8 = 4;

/// Copies of a build, for different defects; `victim` is valid.
const COPIES: &[&str] = &[
    "victim",
    "no-archive",
    "truncated-archive",
    "lost-object",
    "truncated-object",
    "foreign-object",
    "no-script",
    "no-record",
    "boot-config",
    "modular",
];

const PLANS: &[(&str, &str)] = &[
    ("not-json.json", "{\"schema\": \"kshrink/1\","),
    ("empty.json", ""),
    ("no-schema.json", "{}"),
    ("other-schema.json", r#"{"schema": "kshrink/999"}"#),
    (
        "other-machine.json",
        r#"{"schema": "kshrink/1", "syscalls": {"x86_64": {"complete": true, "programs": [], "calls": [],
           "unresolved": []}}}"#,
    ),
    (
        "misspelt.json",
        r#"{"schema": "kshrink/1",
            "syscalls": {"i386": {"compleat": true, "programs": [], "calls": [], "unresolved": []}}}"#,
    ),
    (
        "params.json",
        r#"{"schema": "kshrink/1", "params": {"command_line": "", "on_mismatch": "warn", "named": [],
            "unnamed": [], "fixed": [], "kept": []}}"#,
    ),
    (
        "params-misspelt.json",
        r#"{"schema": "kshrink/1", "params": {"command_line": "", "on_mismatch": "warn",
            "named": [], "unamed": [], "fixed": [], "kept": []}}"#,
    ),
    ("bad.bconf", "kernel {\n = 1\n}\n"),
];

/// Creates a kernel in miniature with its memory (`fixtures/census`), and two censuses with many owners.
pub fn census(dir: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/census/kernel");
    let dir = &dir.join("census");
    fs::create_dir(dir).expect("a directory");
    let flags = ["-m32", "-g", "-ffreestanding", "-fno-pic", "-fno-eliminate-unused-debug-types", "-c"];
    let compile = Run::new("i686-linux-gnu-gcc").dir(dir).args(flags);
    compile.arg(source.with_extension("c")).args(["-o", "kernel.o"]).succeed();
    let flags = ["-m", "elf_i386", "--no-warn-rwx-segments", "--build-id", "kernel.o", "-o", "vmlinux", "-T"];
    Run::new("i686-linux-gnu-ld").dir(dir).args(flags).arg(source.with_extension("lds")).succeed();
    let mut core = read(dir, "vmlinux");
    core[E_TYPE] = ET_CORE;
    write(dir, "core", &core);
    for (name, bytes) in [("before.json", 4096), ("after.json", 8192)] {
        let owner = |number| format!("{{\"kind\": \"files\", \"name\": \"{number}\", \"bytes\": {bytes}}}");
        let owners: Vec<String> = (0..10_000).map(owner).collect();
        let memory = "{\"total\": 0, \"free\": 0, \"slab\": 0, \"explained\": 0}";
        let text = format!(
            "{{\"schema\": \"kshrink-census/1\", \"kernel\": \"\", \"core\": \"\", \"page_size\": 4096,
            \"memory\": {memory}, \"owners\": [{}]}}",
            owners.join(", ")
        );
        write(dir, name, text.as_bytes());
    }
}

/// Objects, archives and programs.
pub fn objects(dir: &Path) {
    let compile = |name: &str, source: &str| {
        let flags = ["-m32", "-Os", "-fno-pie", "-xc", "-", "-c", "-o"];
        Run::new("i686-linux-gnu-gcc").dir(dir).args(flags).arg(name).stdin(source).succeed();
    };
    let archive = |flags: &str, name: &str, member: &str| {
        Run::new("i686-linux-gnu-ar").dir(dir).args([flags, name, member]).succeed();
    };
    compile("good.o", "int helper(int); int main(void) { return helper(3); }");
    compile("helper.o", "int table[64]; int helper(int i) { return table[i]; }");
    compile("again.o", "int main(void) { return 1; }");
    let link =
        ["-m32", "-nostdlib", "-static", "-no-pie", "-Wl,-e,main", "good.o", "helper.o", "-o", "program"];
    Run::new("i686-linux-gnu-gcc").dir(dir).args(link).succeed();
    let assemble = Run::new("i686-linux-gnu-as").dir(dir).args(["--64", "-o", "x86_64.o", "-"]);
    assemble.stdin(".globl start\nstart: ret\n").succeed();

    let good = read(dir, "good.o");
    write(dir, "truncated.o", &good[..good.len() / 2]);
    let mut mips = good.clone();
    mips[E_MACHINE] = EM_MIPS;
    write(dir, "mips.o", &mips);
    write(dir, "big-endian.o", &big_endian(&good));

    archive("rcs", "library.a", "helper.o");
    let library = read(dir, "library.a");
    write(dir, "truncated.a", &library[..library.len() / 2]);
    let mut damaged = library;
    let magic = damaged.windows(2).position(|bytes| bytes == b"`\n").expect("a member");
    damaged[magic] = b'?';
    write(dir, "damaged.a", &damaged);
    fs::copy(dir.join("helper.o"), dir.join("absent.o")).expect("a copy");
    archive("rcsT", "thin.a", "absent.o");
    fs::remove_file(dir.join("absent.o")).expect("the copy");

    let lto = ["-m32", "-Os", "-flto", "-fno-fat-lto-objects", "-xc", "-", "-c", "-o", "slim.o"];
    Run::new("i686-linux-gnu-gcc").dir(dir).args(lto).stdin("int main(void) { return 0; }").succeed();
    archive("rcs", "slim.a", "slim.o");
    write(dir, "bitcode.o", b"BC\xc0\xde5\x14\0\0");
    let mut latin_1 = good.clone();
    let name = latin_1.windows(6).position(|bytes| bytes == b"\0main\0").expect("the symbol");
    latin_1[name + 2] = 0xe4;
    write(dir, "latin-1.o", &latin_1);

    // Files with holes, which take no room: the image of a disk, and a core dump.
    sparse(dir, "disk.img", b"\xeb\x63\x90");
    let mut core = read(dir, "program");
    core[E_TYPE] = ET_CORE;
    sparse(dir, "core.img", &core);

    write(dir, "text", b"not an ELF file\n");
    write(dir, "empty", b"");
    fs::create_dir(dir.join("directory")).expect("a directory");
    for (name, text) in PLANS {
        write(dir, name, text.as_bytes());
    }
}

/// Makes `build`, a copy of a kernel's build with further files next to `vmlinux`, and damaged copies of it. They are
/// real copies of the cache's files, so that nothing can change the cache.
pub fn kernels(dir: &Path) {
    let kernel = recipe("kernels/build.sh", &["web-i386"]);
    Run::new("cp").args(["-a", "--reflink=auto"]).arg(kernel).arg(dir.join("build")).succeed();
    let build = dir.join("build");
    Run::new("i686-linux-gnu-strip").dir(&build).args(["vmlinux", "-o", "stripped"]).succeed();
    let vmlinux = read(&build, "vmlinux");
    write(&build, "truncated", &vmlinux[..vmlinux.len() / 3]);
    write(&build, "big-endian", &big_endian(&vmlinux));
    let elf_x86_64 = ["-m", "elf_x86_64", "-e", "start", "x86_64.o", "-o", "build/x86_64"];
    Run::new("i686-linux-gnu-ld").dir(dir).args(elf_x86_64).succeed();
    symlink("build", dir.join("link")).expect("a link");

    for name in COPIES {
        // Hard links to the files of the first copy: a file is removed before its replacement is written.
        Run::new("cp").args(["-al", "build", *name]).dir(dir).succeed();
    }
    let replace = |name: &str, bytes: &[u8]| {
        fs::remove_file(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        write(dir, name, bytes);
    };
    let remove = |name: &str| {
        fs::remove_file(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    remove("no-archive/vmlinux.a");
    let archive = read(&build, "vmlinux.a");
    replace("truncated-archive/vmlinux.a", &archive[..archive.len() / 2]);
    remove("lost-object/kernel/fork.o");
    let object = read(&build, "kernel/fork.o");
    replace("truncated-object/kernel/fork.o", &object[..object.len() / 2]);
    replace("foreign-object/kernel/fork.o", &read(dir, "x86_64.o"));
    remove("no-script/arch/x86/kernel/vmlinux.lds");
    remove("no-record/init/.main.o.cmd");
    let config = read(&build, "include/config/auto.conf");
    for (name, option) in [("boot-config", "CONFIG_BOOT_CONFIG=y\n"), ("modular", "CONFIG_MODULES=y\n")] {
        let config = [&config, option.as_bytes()].concat();
        replace(&format!("{name}/include/config/auto.conf"), &config);
    }
    // The object of modules' exports; it exports nothing.
    fs::copy(dir.join("helper.o"), dir.join("modular/.vmlinux.export.o")).expect("an object");
    modules(dir);
}

/// Directories of modules, each with one file in it.
fn modules(dir: &Path) {
    let compile = |name: &str, machine: &str, source: &str| {
        fs::create_dir_all(dir.join(name).parent().expect("a directory")).expect("directories");
        let flags = ["-Os", "-fno-pie", "-xc", "-", "-c", "-o"];
        let compiler = if machine == "-m64" { "gcc" } else { "i686-linux-gnu-gcc" };
        Run::new(compiler).dir(dir).arg(machine).args(flags).arg(name).stdin(source).succeed();
    };
    let module = "__attribute__((section(\".gnu.linkonce.this_module\"))) char module[8];";
    compile("modules/good/kernel/a.ko", "-m32", module);
    compile("modules/x86_64/a.ko", "-m64", module);
    compile("modules/object/a.ko", "-m32", "int data;");
    compile(
        "modules/imports/kernel/a.ko",
        "-m32",
        &format!("{module} int absent(void); int f(void) {{ return absent(); }}"),
    );
    let good = read(dir, "modules/good/kernel/a.ko");
    let files: [(&str, &[u8]); 6] = [
        ("none/a.ko.bz2", &good),
        ("text/a.ko", b"not an ELF file\n"),
        ("truncated/a.ko", &good[..good.len() / 2]),
        ("gz/a.ko.gz", &good),
        ("xz/a.ko.xz", &good),
        ("zst/a.ko.zst", &good),
    ];
    for (name, bytes) in files {
        let path = dir.join("modules").join(name);
        fs::create_dir(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, bytes).expect("a module");
    }
}

/// Returns the file with the bytes of every header field reversed.
fn big_endian(file: &[u8]) -> Vec<u8> {
    let mut swapped = file.to_vec();
    swapped[EI_DATA] = 2;
    for field in HALF_FIELDS {
        swapped[field..field + 2].reverse();
    }
    for field in WORD_FIELDS {
        swapped[field..field + 4].reverse();
    }
    swapped[E_MACHINE + 1] = EM_SPARC;
    swapped
}

fn read(dir: &Path, name: &str) -> Vec<u8> {
    fs::read(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Writes a file of 1 TiB that begins with `head`.
fn sparse(dir: &Path, name: &str, head: &[u8]) {
    write(dir, name, head);
    let file = fs::File::options().write(true).open(dir.join(name)).expect("the file");
    file.set_len(1 << 40).expect("room for a hole");
}
