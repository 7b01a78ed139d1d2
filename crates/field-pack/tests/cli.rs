//! `field-pack` on the memory of a kernel in miniature (`fixtures/census`), whole and damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use field_pack::document::{Constructor, Fields, Profile, Value};
use kshrink_tests::process::run;
use kshrink_tests::{CORE_MEMORY as MEMORY, core};
use tempfile::TempDir;

/// The offset in the core of the slab with objects of 60 bytes, each in a place of 64.
const SLAB: usize = MEMORY + 0x4000;

/// A source file that creates the cache.
const SOURCE: &str = "
struct list { struct list *next, *prev; };
struct node {
    unsigned long free;
    unsigned short mode;
    struct list links;
    const void *operations;
    struct node *self;
    long long size;
    int count;
    char name[24];
};
void *kmem_cache_create(const char *, unsigned long, unsigned, unsigned, void *);
void init(void) { kmem_cache_create(\"small\", sizeof(struct node), 0, 0, 0); }
";

/// A directory with `vmlinux`, its memory as `core`, and the record of how `fs/node.c` was compiled.
struct Miniature {
    dir: TempDir,
    core: Vec<u8>,
}

impl Miniature {
    fn new() -> Miniature {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/census/kernel");
        let mut gcc = Command::new("gcc");
        gcc.args(["-m32", "-g", "-ffreestanding", "-fno-pic", "-fno-eliminate-unused-debug-types", "-c"]);
        run(gcc.arg(source.with_extension("c")).args(["-o", "kernel.o"]).current_dir(dir.path()));
        let mut ld = Command::new("ld");
        ld.args(["-m", "elf_i386", "--no-warn-rwx-segments", "--build-id", "-T"])
            .arg(source.with_extension("lds"));
        run(ld.args(["kernel.o", "-o", "vmlinux"]).current_dir(dir.path()));
        run(Command::new("objcopy").args(["-O", "binary", "vmlinux", "memory"]).current_dir(dir.path()));
        let core = core(&fs::read(dir.path().join("memory")).unwrap());
        let mut miniature = Miniature { dir, core };
        // `small` has one name and one structure.
        miniature.set_word(miniature.variable("small") + 16, 1);
        for number in (0..64).filter(|number| ![5, 9].contains(number)) {
            let at = SLAB + 64 * number;
            let address = 0xc000_4000 + 64 * number as u32;
            let words =
                [0x8124, 0, 0, miniature.address("ext2"), address + 8, 4096 * (number as u32 % 3), 0, 7];
            for (word, value) in (1..).zip(words) {
                miniature.set_word(at + 4 * word, value);
            }
        }
        fs::create_dir(miniature.path("fs")).unwrap();
        fs::write(miniature.path("node.c"), SOURCE).unwrap();
        miniature.record("fs/.node.o.cmd", "fs/node.o", "node.c");
        miniature.write("core", &miniature.core);
        miniature
    }

    /// Records how an object was compiled.
    fn record(&self, record: &str, object: &str, source: &str) {
        let source = self.path(source).display().to_string();
        let command =
            format!("savedcmd_{object} := gcc -m32 -c -o {object} {source}\n\nsource_{object} := {source}\n");
        fs::write(self.path(record), command).unwrap();
    }

    fn set_word(&mut self, at: usize, word: u32) {
        self.core[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Returns the address of a variable.
    fn address(&self, variable: &str) -> u32 {
        let symbols = run(Command::new("nm").arg(self.path("vmlinux")));
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {variable}"))).unwrap();
        u32::from_str_radix(&line[..8], 16).unwrap()
    }

    /// Returns the offset in the core of a variable.
    fn variable(&self, variable: &str) -> usize {
        MEMORY + (self.address(variable) - 0xc000_0000) as usize
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn field_pack(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_field-pack"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null()).output().unwrap()
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.field_pack(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn profile(&self, arguments: &[&str]) -> Profile {
        self.succeed(&[&["profile", "vmlinux", "core", "-o", "profile.json"], arguments].concat());
        Profile::read(&self.path("profile.json")).unwrap()
    }

    /// Checks that a command fails with one line that has these words, and prints nothing else.
    fn refuses(&self, arguments: &[&str], words: &[&str]) {
        let output = self.field_pack(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(
            output.stdout.is_empty() && errors.starts_with("field-pack: error: "),
            "{arguments:?}: {errors}"
        );
        assert!(words.iter().all(|word| errors.contains(word)), "{arguments:?}: {words:?} in {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn members_of_live_objects_are_profiled() {
    let miniature = Miniature::new();
    let profile = miniature.profile(&[]);
    let cache = profile.caches.iter().find(|cache| cache.name == "small").unwrap();
    assert_eq!((cache.of.as_deref(), cache.objects, cache.used), (Some("node"), 64, 62));
    assert_eq!((cache.per_slab, cache.slab_bytes, cache.constructor), (64, 4096, Constructor::Inside));
    let of = profile.types.iter().find(|of| of.name == "node").unwrap();
    assert_eq!((of.size, of.objects, &of.file[..]), (60, 62, "fs/node.c"));
    let member = |name: &str| of.members.iter().find(|member| member.name == name).unwrap();
    // The two free objects, of which one has a link, do not count.
    assert_eq!((member("free").distinct, member("free").zero), (1, 62));
    assert_eq!((member("mode").min.clone(), member("mode").distinct), (Some(Value::Number(0x8124)), 1));
    assert_eq!(member("operations").values[0].value, Value::Symbol("ext2".into()));
    assert_eq!((member("size").max.clone(), member("size").distinct), (Some(Value::Number(8192)), 3));
    assert_eq!(member("self").own.map(|own| (own.distance, own.objects)), Some((8, 62)));
    assert_eq!(member("count").values[0].value, Value::Number(7));
    assert!(profile.types.iter().any(|of| of.name == "list" && of.objects == 62));
    // Without a name in the source, nothing is known of the other cache.
    let large = profile.caches.iter().find(|cache| cache.name == "large").unwrap();
    assert!(large.untyped.as_ref().unwrap().contains("no source file creates it"), "{large:?}");

    let tables = miniature.succeed(&["show", "profile.json"]);
    assert!(tables.contains("struct node, 60 bytes, 62 objects"), "{tables}");
    assert!(tables.contains("the slabs of 1 of 2 caches are as computed, except large"), "{tables}");
}

#[test]
fn plan_is_made_from_the_profile() {
    let miniature = Miniature::new();
    let mut profile = miniature.profile(&[]);
    // One slab would stay one slab.
    let cache = profile.caches.iter_mut().find(|cache| cache.name == "small").unwrap();
    (cache.objects, cache.bytes) = (6400, 100 * 4096);
    miniature.write("profile.json", serde_json::to_string(&profile).unwrap());
    miniature.succeed(&["plan", "profile.json", "--types", "node", "-o", "fields.json"]);
    let fields = Fields::read(&miniature.path("fields.json")).unwrap();
    let names: Vec<_> =
        fields.types[0].members.iter().map(|member| (&member.name[..], member.scheme.name())).collect();
    let all = [
        ("free", "absent"),
        ("operations", "absent"),
        ("self", "own"),
        ("size", "narrow"),
        ("count", "absent"),
    ];
    assert!(names.iter().all(|name| all.contains(name)) && !names.is_empty(), "{names:?}");
    let cache = &fields.caches[0];
    assert!(cache.size[1] < 64 && cache.per_slab[1] > 64, "{cache:?}");
    let table = miniature.succeed(&["show", "fields.json"]);
    assert!(table.contains("struct node") && table.contains("all slab caches"), "{table}");
    let starved = miniature.succeed(&["plan", "profile.json", "--starve"]);
    assert!(starved.contains("\"starve\": true") && starved.contains("\"limit\""), "{starved}");
}

#[test]
fn logs_count_loads_and_stores_of_members() {
    let miniature = Miniature::new();
    // All words of the slabs have one store, and `count` of the object 3 has more.
    let lines = [
        "accesses 1",
        "words 0x00004000 55 0 1",
        "words 0x000040dc 1 40 3",
        "words 0x000040e0 968 0 1",
        "words 0x00006000 2048 0 1",
        "end 4",
    ];
    miniature.write("log", lines.join("\n") + "\n");
    let profile = miniature.profile(&["--accesses", "log"]);
    let of = profile.types.iter().find(|of| of.name == "node").unwrap();
    let counts: Vec<_> =
        of.members.iter().map(|member| (&member.name[..], member.loads, member.stores)).collect();
    let at = |name: &str| {
        counts.iter().find(|(other, ..)| *other == name).map(|&(_, loads, stores)| (loads, stores))
    };
    assert_eq!(
        (at("count"), at("free"), at("size")),
        (Some((0, 0)), Some((0, 0)), Some((40, 2))),
        "{counts:?}"
    );
    miniature.write("other", "accesses 1\nwords 0x00004000 8 0 1\nend 1\n");
    miniature.refuses(
        &["profile", "vmlinux", "core", "--accesses", "other"],
        &["other: of another run than core", "stores"],
    );
    miniature.refuses(&["profile", "vmlinux", "core", "--accesses", "core"], &["core: line 1: "]);
}

#[test]
fn structures_of_caches_can_be_given() {
    let miniature = Miniature::new();
    let profile = miniature.profile(&["--types", "large=node@fs/node.o"]);
    let of = profile.types.iter().find(|of| of.name == "node").unwrap();
    assert_eq!(of.objects, 63);
    let profile = miniature.profile(&["--types", "list"]);
    assert_eq!(profile.types.iter().map(|of| &of.name[..]).collect::<Vec<_>>(), ["list"]);
    let refuse = |types: &str, words: &[&str]| {
        miniature.refuses(&["profile", "vmlinux", "core", "--types", types], words);
    };
    refuse("inode", &["no live object in the cores has a structure inode", "slab_nomerge"]);
    refuse("medium=node@fs/node.o", &["no core has a slab cache medium"]);
    refuse("large=node", &["no source file creates this cache", "large=node@OBJECT"]);
    refuse("large=node@fs/other.o", &["other.o.cmd", "does not record"]);
}

#[test]
fn merged_caches_have_no_structure() {
    let mut miniature = Miniature::new();
    let at = miniature.variable("small") + 16;
    miniature.set_word(at, 3);
    miniature.write("core", &miniature.core);
    let profile = miniature.profile(&[]);
    let cache = profile.caches.iter().find(|cache| cache.name == "small").unwrap();
    assert!(cache.of.is_none() && cache.untyped.as_ref().unwrap().contains("slab_nomerge"), "{cache:?}");
}

#[test]
fn other_files_are_refused() {
    let miniature = Miniature::new();
    miniature.write("text", "hello");
    miniature.write("other.json", r#"{"schema": "kshrink-census/1"}"#);
    miniature.refuses(&["profile", "vmlinux", "text"], &["text: not an ELF file"]);
    miniature.refuses(&["profile", "text", "core"], &["text:"]);
    miniature.refuses(&["show", "text"], &["text: not a JSON object; expected a profile or a plan"]);
    miniature.refuses(
        &["plan", "other.json"],
        &["of the format \"kshrink-census/1\", not \"kshrink-field-profile/1\""],
    );
    miniature.profile(&[]);
    miniature.refuses(&["plan", "profile.json", "--threshold", "0.5"], &["it has no loads and stores"]);
    miniature.refuses(&["plan", "profile.json", "--types", "inode"], &["it has no structure inode"]);
    miniature
        .refuses(&["plan", "profile.json", "--only", "sort"], &["--only sort: no such change", "page-table"]);
    fs::remove_file(miniature.path("fs/.node.o.cmd")).unwrap();
    miniature.refuses(&["profile", "vmlinux", "core"], &["no records of how the kernel was compiled"]);
}
