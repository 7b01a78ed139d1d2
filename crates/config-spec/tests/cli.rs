//! The command on a kernel in miniature, whose Makefiles have a condition of each kind (fixtures/config), and on a real
//! one.

use std::fs;
use std::path::{Path, PathBuf};

use kshrink_tests::{Outcome, Run, fixture, recipe};
use serde_json::Value;
use tempfile::TempDir;

/// The directory of a test, with the files of fixtures/config/build.sh.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Run::new(fixture("config/build.sh")).arg(dir.path()).succeed();
        Fixture { dir }
    }

    /// With another driver of terminals, whose function `tty_open` ran.
    fn with_driver(source: &str) -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("tty.c");
        fs::write(&path, source).expect("a source file");
        Run::new(fixture("config/build.sh")).arg(dir.path()).arg(&path).succeed();
        Fixture { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command in the directory, with arguments separated by spaces, and with a cache of its own.
    fn command(&self, line: &str) -> Run {
        let run = Run::new(env!("CARGO_BIN_EXE_config-spec")).dir(self.dir.path());
        run.env("KSHRINK_CACHE", self.path("cache")).args(line.split_whitespace())
    }

    fn json(&self, line: &str) -> Value {
        parse(&self.command(line).succeed().text())
    }

    /// Runs a command that has to refuse its input, and checks that its one error has these words.
    fn refuses(&self, line: &str, words: &[&str]) {
        let Outcome { status, stdout, stderr, .. } = self.command(line).outcome();
        let errors: Vec<&str> = stderr.lines().filter(|line| line.contains("error:")).collect();
        assert_eq!((status, stdout.len(), errors.len()), (Some(2), 0, 1), "{line}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{line}: expected `{word}`: {stderr}");
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).expect("a file");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("a file");
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn option<'v>(document: &'v Value, name: &str) -> &'v Value {
    let options = document["options"].as_array().expect("a list of options");
    options.iter().find(|option| option["name"] == name).unwrap_or_else(|| panic!("no {name}: {document}"))
}

/// Returns the names of the options in the section `config` of a plan.
fn proposed(plan: &Value) -> Vec<&str> {
    let options = plan["config"]["options"].as_array().expect("options");
    options.iter().map(|option| option["name"].as_str().expect("a name")).collect()
}

/// `KSHRINK_BLESS=1` writes the expected document again.
#[test]
fn json_of_fixture_is_as_expected() {
    let fixture = Fixture::new();
    let text = fixture.command("build/vmlinux -p plan.json --hardware devices --json").succeed().text();
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected.json");
    if std::env::var_os("KSHRINK_BLESS").is_some() {
        fs::write(&expected, &text).expect("the expected document");
    }
    assert_eq!(text, fs::read_to_string(&expected).expect("the expected document"));
}

#[test]
fn advice_becomes_a_fragment() {
    let fixture = Fixture::new();
    let config = fixture.read("build/.config");
    fixture.command("build/vmlinux -p plan.json --advise -o all.json").succeed();
    let plan = parse(&fixture.read("all.json"));
    assert_eq!(plan["coverage"], parse(&fixture.read("plan.json"))["coverage"]);
    assert_eq!(proposed(&plan), ["CARD", "NET", "CARD_LED", "LEGACY", "AIO", "WATCHDOG"]);
    assert_eq!(plan["config"]["options"][4]["evidence"], "trace+scan");
    // A card is there, and so is a device of the bus.
    let line = "build/vmlinux --plan plan.json --advise --hardware devices";
    assert_eq!(proposed(&fixture.json(line)), ["LEGACY", "AIO", "WATCHDOG"]);
    // A build without it compiles the driver of terminals again.
    let plan = fixture.json(&format!("{line} --max-rebuilds 0"));
    assert_eq!(proposed(&plan), ["AIO", "WATCHDOG"]);
    assert_eq!(plan["config"]["kept"][0]["name"], "LEGACY");
    let fragment = fixture.command("--fragment all.json").succeed().text();
    let lines: Vec<&str> = fragment.lines().collect();
    assert_eq!(lines.len(), 14, "{fragment}");
    let card = lines.iter().position(|line| *line == "# CONFIG_CARD is not set").expect("the option");
    assert!(lines[card - 1].starts_with("# init-only: card_init ran"), "{fragment}");
    assert!(lines[card - 1].ends_with("with CARD_LED"), "{fragment}");
    assert_eq!(fixture.read("build/.config"), config);
}

#[test]
fn explanation_names_every_fact() {
    let fixture = Fixture::new();
    let expect = |option: &str, words: &[&str]| {
        let line = format!("build/vmlinux -p plan.json --hardware devices --explain {option}");
        let text = fixture.command(&line).succeed().text();
        words.iter().for_each(|word| assert!(text.contains(word), "{option}: expected `{word}`: {text}"));
    };
    expect(
        "CONFIG_BUS",
        &["used", "pci:v00008086", "drivers/bus.o: $(subst m,y,BUS)=y", "bus_init holds its address"],
    );
    expect("CARD", &["init-only", "drivers/net/led.o: NET && CARD=y && CARD_LED=y", "card_init: while the"]);
    expect(
        "LEGACY",
        &["init-only", "parts     text 0, data 4, bss 0, init", "legacy_init: while the kernel started"],
    );
    expect("TTY_LOG", &["used", "tty_open: line 23 ran, a part of a function that stays"]);
    expect("TTY_BREAK", &["none: drivers/tty.c:25 uses CONFIG_TTY_BREAK outside of #if", "keep it"]);
    expect("AIO", &["hooks-only", "no program makes its system calls", "by init/main.o", "turn it off"]);
    expect("LOCKS", &["comes instead (1):\n    NO_LOCKS", "called by fs/open.o", "    fs/open.o\n"]);
    expect("WATCHDOG", &["idle", "HZ: 100 to 50"]);
    expect("CRC", &["Kconfig turns it on again", "X86_32 if BUS"]);
    expect("X86_32", &["no prompt"]);
    expect("HZ_100", &["a choice"]);
}

#[test]
fn census_proposes_smaller_values() {
    let fixture = Fixture::new();
    // Without traces, no option is turned off.
    fixture.command("build/vmlinux --census census.json --advise -o values.json").succeed();
    let plan = parse(&fixture.read("values.json"));
    assert_eq!(proposed(&plan), ["TABLE_ORDER", "LOG_SHIFT"]);
    let table = &plan["config"]["options"][0];
    let facts = ["set", "class", "evidence", "memory", "rebuilds"].map(|key| table[key].to_string());
    assert_eq!(facts, ["\"8\"", "\"value\"", "\"census\"", "262144", "1"]);
    let fragment = fixture.command("--fragment values.json").succeed().text();
    let expected = "# Options of Linux 6.12.0-fixture that set the size of a variable.\n\
        # the variables of 2 smaller values hold 270,336 bytes; a build compiles 2 other objects again.\n\
        # value: name_table holds 262,144 bytes, set by CONFIG_TABLE_ORDER=16; the smallest value that Kconfig allows \
        is 8; less memory may cost speed or security, so decide\n\
        CONFIG_TABLE_ORDER=8\n";
    assert!(fragment.starts_with(expected) && fragment.ends_with("\nCONFIG_LOG_SHIFT=12\n"), "{fragment}");
    let piped = fixture.command("build/vmlinux --census - --advise").stdin(fixture.read("census.json"));
    assert_eq!(parse(&piped.succeed().text()), plan);
    // With traces, the log goes with AIO.
    let plan = fixture.json("build/vmlinux -p plan.json --census census.json --advise");
    assert_eq!(proposed(&plan), ["CARD", "NET", "CARD_LED", "LEGACY", "AIO", "WATCHDOG", "TABLE_ORDER"]);
    assert_eq!(plan["config"]["kept"][0]["name"], "LOG_SHIFT");
    let expect = |option: &str, words: &[&str]| {
        let line = format!("build/vmlinux --census census.json --explain {option}");
        let text = fixture.command(&line).succeed().text();
        words.iter().for_each(|word| assert!(text.contains(word), "{option}: expected `{word}`: {text}"));
    };
    expect(
        "TABLE_ORDER",
        &["value     16", "8 to 24", "name_table, 262,144", "fs/table.c", "whether 8 serves"],
    );
    expect("LOG_DEPTH", &["levels, 16,384 bytes, in the kernel image", "keep it: Kconfig makes 5 of 2"]);
    // Its file mentions other numbers, and the table is allocated.
    expect("LOG_SLOTS", &["no variable"]);
    let without = fixture.command("build/vmlinux --explain TABLE_ORDER").succeed().text();
    assert!(without.contains("give --census"), "{without}");
}

#[test]
fn option_is_linked_by_the_source_of_the_object() {
    let fixture = Fixture::new();
    let advice = || fixture.json("build/vmlinux --census census.json --advise");
    let log = fixture.read("source/fs/log.c");
    fixture.write("source/fs/log.c", &log.replace("1 << CONFIG_LOG_SHIFT", "8192 /* CONFIG_LOG_SHIFT */"));
    assert_eq!(proposed(&advice()), ["TABLE_ORDER"]);
    let table = fixture.read("source/fs/table.c");
    fixture.write("source/fs/table.c", &format!("{table}int slots(void) {{ return CONFIG_LOG_SLOTS; }}\n"));
    assert!(proposed(&advice()).is_empty());
    fixture.write("source/fs/table.c", &table);
    // The memory is of a variable in another object.
    let census = fixture.read("census.json");
    fixture.write("census.json", &census.replace("\"name_table\"", "\"card_state\""));
    assert!(proposed(&advice()).is_empty());
    fs::remove_file(fixture.path("source/fs/table.c")).expect("a file");
    fixture.write("census.json", &census);
    assert!(proposed(&advice()).is_empty());
}

#[test]
fn closures_are_cached() {
    let fixture = Fixture::new();
    let run = || fixture.command("build/vmlinux --json").succeed().text();
    let first = run();
    let cache = fs::read_dir(fixture.path("cache/closures")).expect("a cache").next();
    let cache = cache.expect("a file").expect("a file").path();
    let cached = fs::read_to_string(&cache).expect("the cache");
    assert!(cached.contains(r#""CARD":{"CARD":"","CARD_LED":""}"#), "{cached}");
    fs::write(&cache, cached.replace(r#","CARD_LED":"""#, "")).expect("another cache");
    assert_ne!(run(), first);
    fs::write(&cache, "{").expect("a damaged cache");
    assert_eq!(run(), first);
    // Another configuration has another cache.
    fixture.write("build/.config", &format!("# A comment.\n{}", fixture.read("build/.config")));
    assert_eq!(run(), first);
    assert_eq!(fs::read_dir(fixture.path("cache/closures")).expect("a cache").count(), 2);
}

#[test]
fn lines_are_those_of_the_same_code() {
    let fixture = Fixture::new();
    let lines = || fs::read_dir(fixture.path("cache/lines")).map_or(0, Iterator::count);
    let explain = |words: &[&str]| {
        let text = fixture.command("build/vmlinux -p plan.json --explain LEGACY").succeed().text();
        words.iter().for_each(|word| assert!(text.contains(word), "expected `{word}`: {text}"));
    };
    explain(&["init-only"]);
    assert_eq!(lines(), 1);
    // Another source makes other code. A damaged file of the cache is made again.
    let cache = fs::read_dir(fixture.path("cache/lines"))
        .expect("a cache")
        .next()
        .expect("a file")
        .expect("a file")
        .path();
    let damaged =
        r#"{"files":[],"sections":[],"spans":[{"section":9,"bytes":{"start":0,"end":1},"places":[[7,1]]}]}"#;
    fs::write(&cache, format!(r#"{{"schema":"kshrink-config-spec/1","content":{damaged}}}"#))
        .expect("a file");
    explain(&["init-only"]);
    let record = fixture.read("build/drivers/.tty.o.cmd");
    let source = fixture.read("source/drivers/tty.c");
    fixture.write("source/drivers/tty.c", &source.replace("value += use(4)", "value += use(400)"));
    explain(&[
        "none: drivers/tty.o has a part of it, and is another one if compiled with -g, from section .text on",
    ]);
    fixture.write("build/drivers/.tty.o.cmd", &record.replace("i686-linux-gnu-gcc", "no-such-compiler"));
    explain(&["none: drivers/tty.o has a part of it, and cannot run no-such-compiler"]);
    fixture.remove("source/drivers/tty.c");
    explain(&["none: drivers/tty.c cannot be read", "keep it"]);
    assert_eq!(lines(), 1);
}

/// Each of these drivers has code of `TTY_LOG` that ran, or that may have, besides code that did not.
#[test]
fn no_part_that_ran_is_missed() {
    let idle =
        "#ifdef CONFIG_TTY_LOG\nINIT int tty_dbg(void) { return use(77); }\nINITCALL(tty_dbg);\n#endif";
    let within = |before: &str, body: &str| {
        format!(
            "#include \"../kernel.h\"\n{idle}\n{before}\nint tty_open(int value)\n{{\n\tvalue += use(4);\n{body}\n\treturn \
             value;\n}}\n"
        )
    };
    let gated = |text: &str| format!("#ifdef CONFIG_TTY_LOG\n{text}\n#endif");
    let choice = |text: &str, other: &str| format!("#ifdef CONFIG_TTY_LOG\n{text}\n#else\n{other}\n#endif");
    let inline = "static inline int inline_log(int v) { return v ^ use(5); }";
    let function = "int tty_log(int v) { return v ^ use(5); }";
    let drivers = [
        // A statement, a call of a function that is inlined, and a condition of a statement that stays.
        within("", &gated("\tvalue ^= use(5);")),
        within(inline, &gated("\tvalue = inline_log(value);")),
        within("", &format!("{}\n\tvalue = use(value);", gated("\tif (value > 7)"))),
        // A function that code outside calls, by its name or by a macro.
        within(&gated(function), "\tvalue = tty_log(value);"),
        within(&gated(&format!("{function}\n#define do_log(v) tty_log(v)")), "\tvalue = do_log(value);"),
        // A function that stays, and that a stub replaces.
        within(
            &format!("{function}\n{}", choice("extern int tty_log(int);", "#define tty_log(v) 0")),
            "\tvalue = tty_log(value);",
        ),
        // Macros and constants that code outside uses.
        within(&gated("#define LOG 1"), "#ifdef LOG\n\tvalue ^= use(5);\n#endif"),
        within("", "\tif (CONFIG_TTY_LOG)\n\t\tvalue ^= use(5);"),
        within("", "#if CONFIG_TTY_LOG > 0\n\tvalue ^= use(5);\n#endif"),
        within("", "#ifdef CONFIG_TTY_LOG )\n\tvalue ^= use(5);\n#endif"),
        within(
            &format!("{}\n#define WRAP(x) HOOK(x)", choice("#define HOOK(x) use(x)", "#define HOOK(x) 0")),
            "\tvalue ^= WRAP(value);",
        ),
        within(
            &format!("#define PLAIN 1\n{}", gated("#undef PLAIN")),
            "#ifndef PLAIN\n\tvalue ^= use(3);\n#endif",
        ),
        // Code that does not run without the option.
        within("", "#ifndef CONFIG_TTY_LOG\n\treturn 0;\n#endif\n\tvalue ^= use(3);"),
        // An entry of a table that stays, and a table of the option with a function that stays.
        within(
            &format!("{function}\nstatic int (*ops[2])(int) = {{\n{}\n}};", gated("\ttty_log,")),
            "\tif (ops[value & 1])\n\t\tvalue = ops[value & 1](value);",
        ),
        // A whole file.
        within(&gated("#include \"log.c\""), &gated("\tvalue = tty_log(value);")),
        // Code that the compiler merges with code that stays.
        within(
            "",
            &format!(
                "\tswitch (value) {{\n\tcase 1:\n\t\tuse(11);\n\t\tuse(22);\n\t\treturn 4;\n{}\n\t}}",
                gated(
                    "\tcase 2:\n\t\tuse(11);\n\t\tuse(22);\n\t\treturn 4;\n\tcase 50:\n\t\treturn use(value) + 9;"
                )
            ),
        ),
    ];
    for driver in drivers {
        let fixture = Fixture::with_driver(&driver);
        let document = fixture.json("build/vmlinux -p plan.json --json");
        let option = option(&document, "TTY_LOG");
        let is_judged = option["class"] == "used" || option["class"] == "hooks-only";
        let unclear = option["no_class"].as_str().is_some_and(|why| why.contains("drivers/tty.c"));
        assert!(is_judged || unclear, "{option}:\n{driver}");
    }
}

#[test]
fn parts_that_go_only_together_are_judged() {
    let driver = "#include \"../kernel.h\"
#ifdef CONFIG_TTY_LOG
INIT int tty_dbg(void) { return use(77); }
INITCALL(tty_dbg);
#endif
#ifdef CONFIG_TTY_BREAK
INIT int tty_brk(void) { return use(78); }
INITCALL(tty_brk);
#endif
int tty_open(int value)
{
#if defined(CONFIG_TTY_LOG) || defined(CONFIG_TTY_BREAK)
\tvalue += use(3);
#endif
\treturn value;
}
";
    let plan = Fixture::with_driver(driver).json("build/vmlinux -p plan.json --advise");
    let proposed = proposed(&plan);
    assert!(proposed.contains(&"TTY_LOG") != proposed.contains(&"TTY_BREAK"), "{proposed:?}");
    let kept = plan["config"]["kept"].as_array().expect("kept options");
    assert!(
        kept.iter().any(|option| option["reason"].as_str().expect("a reason").contains("tty_open ran")),
        "{kept:?}"
    );
}

#[test]
fn objects_without_a_whole_record_make_all_options_unclear() {
    let fixture = Fixture::new();
    let class = || {
        let document = fixture.json("build/vmlinux -p plan.json --json");
        option(&document, "LEGACY")["no_class"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(class(), "");
    let record = fixture.read("build/fs/.open.o.cmd");
    for damaged in
        ["", record.split("source_").next().expect("a part"), record.split("$(deps_").next().expect("a part")]
    {
        fixture.write("build/fs/.open.o.cmd", damaged);
        assert!(class().contains("fs/open.o"), "{damaged}");
    }
}

#[test]
fn options_with_flags_of_the_compiler_stay() {
    let fixture = Fixture::new();
    let advised = || proposed(&fixture.json("build/vmlinux -p plan.json --advise")).concat();
    assert!(advised().contains("WATCHDOG"));
    let makefile = fixture.read("source/Makefile");
    fixture.write("source/Makefile", &format!("{makefile}KBUILD_CFLAGS-$(CONFIG_WATCHDOG) += -pg\n"));
    assert!(!advised().contains("WATCHDOG"));
    let text = fixture.command("build/vmlinux -p plan.json --explain WATCHDOG").succeed().text();
    assert!(text.contains("WATCHDOG changes flags of the compiler"), "{text}");
    assert!(text.contains("fs/open.o"), "every object is compiled again: {text}");
}

#[test]
fn quick_table_has_no_closures() {
    let fixture = Fixture::new();
    fixture.remove("build/scripts/kconfig/conf");
    let table = fixture.command("build/vmlinux --quick").succeed().text();
    let card = table.lines().find(|line| line.starts_with("CARD ")).expect("a row");
    assert_eq!(card.split_whitespace().nth(4), Some("?"), "{table}");
    assert!(table.starts_with("option ") && !table.contains("class"), "{table}");
}

#[test]
fn kernels_are_compared_side_by_side() {
    let fixture = Fixture::new();
    fixture.write("meminfo", "MemTotal: 60000 kB\nMemFree: 50000 kB\nBuffers: 7 kB\nCached: 8 kB\n");
    let line = "compare build/vmlinux build/vmlinux --memory";
    let run = || fixture.command(line).arg("cat \"$1/../meminfo\"");
    let text = run().succeed().text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["build/vmlinux", "build/vmlinux"]);
    for row in [["used", "KiB", "10,000", "10,000"], ["free", "KiB", "50,000", "50,000"]] {
        assert!(rows.contains(&row.to_vec()), "{row:?} in {text}");
    }
    let kernels = parse(&run().arg("--json").succeed().text());
    let vmlinux = fs::metadata(fixture.path("build/vmlinux")).expect("the kernel").len();
    assert_eq!(
        [&kernels[1]["vmlinux"], &kernels[1]["memory"]["cached"]],
        [&Value::from(vmlinux), &Value::from(8)]
    );
    let names = kernels.as_array().expect("kernels").iter().map(|kernel| &kernel["kernel"]);
    assert!(names.eq(["build/vmlinux"; 2]));
    fixture.refuses("compare build/vmlinux --memory false", &["build/vmlinux: --memory:", "exit status: 1"]);
    fixture.refuses("compare build/vmlinux --memory true", &["/proc/meminfo", "`MemFree: N kB`"]);
}

#[test]
fn options_that_cannot_be_turned_off_are_not_ranked() {
    let fixture = Fixture::new();
    fixture.refuses(
        "rank build/vmlinux AIO WATCHDOGS",
        &["WATCHDOGS: cannot be turned off", "--explain WATCHDOGS"],
    );
    fixture.refuses("rank build/vmlinux CONFIG_X86_32", &["X86_32: cannot be turned off"]);
    fixture.refuses("rank build/vmlinux AIO --against build/vmlinux", &["--against"]);
    // Its tree has no make.
    let outcome = fixture.command("rank build/vmlinux AIO -o ranks.json").outcome();
    assert_eq!((outcome.status, outcome.stdout.len()), (Some(1), 0), "{outcome}");
    assert!(!fixture.path("ranks.json").exists() && outcome.stderr.contains("make"), "{outcome}");
}

#[test]
fn bad_plans_and_arguments_are_one_error() {
    let fixture = Fixture::new();
    let plan = fixture.read("plan.json");
    fixture.write("other.json", &plan.replace("0123456789abcdef", "ff").replace("do_open", "do_close"));
    fixture.write("arm.json", &plan.replace("\"i386\"", "\"arm\""));
    fixture.write("no-trace.json", "{\"schema\": \"kshrink/1\"}");
    fixture.write("no-devices", "a device\n");
    let other = ["other.json:", "another kernel", "build ID ff", "do_close", "trace the kernel"];
    fixture.refuses("build/vmlinux -p other.json", &other);
    fixture.refuses("build/vmlinux -p arm.json", &["arm.json:", "arm", "i386"]);
    fixture.refuses(
        "build/vmlinux -p no-trace.json --advise",
        &["no-trace.json:", "`coverage`", "coverage qemu"],
    );
    fixture.refuses("build/vmlinux --hardware no-devices", &["no-devices:1:", "modalias", "/sys"]);
    fixture.refuses("build/vmlinux --explain WATCHDOGS", &["WATCHDOGS", "did you mean WATCHDOG?"]);
    let census = fixture.read("census.json");
    fixture.write("other-census.json", &census.replace("0123456789abcdef", "ff"));
    let old = census.replace("  \"build_id\": \"0123456789abcdef\",\n", "");
    fixture.write("other-version.json", &old.replace("6.12.0", "6.12.1"));
    let other =
        ["other-census.json:", "another kernel: build ID ff", "expected build ID 0123", "take it again"];
    fixture.refuses("build/vmlinux --census other-census.json --advise", &other);
    let other =
        ["other-version.json:", "another kernel: Linux 6.12.1-fixture", "expected Linux 6.12.0-fixture"];
    fixture.refuses("build/vmlinux --census other-version.json --advise", &other);
    let other = ["plan.json:", "kshrink-census/1", "census core --json"];
    fixture.refuses("build/vmlinux --census plan.json --advise", &other);
    fixture.refuses("build/vmlinux --census census.json", &["--advise", "--explain"]);
    fixture.refuses("--fragment plan.json", &["plan.json:", "`config`", "--advise"]);
    fixture.refuses("build/vmlinux --advise --quick", &["--quick"]);
    fixture.refuses("--json", &["<VMLINUX>"]);
}

#[test]
fn bad_builds_are_one_error() {
    let fixture = Fixture::new();
    let kconfig = fixture.read("source/Kconfig");
    fixture.write("source/Kconfig", &format!("{kconfig}\nsyntax error\n"));
    fixture.refuses("build/vmlinux", &["source/Kconfig:", "does not accept", "syntax error", "--quick"]);
    fixture.write("source/Kconfig", &kconfig);

    let config = fixture.read("build/.config");
    fixture.write("build/.config", &config.replace("CONFIG_NET=y", "# CONFIG_NET is not set"));
    fixture
        .refuses("build/vmlinux", &["build/.config:", "CONFIG_CARD from y to not set", "make olddefconfig"]);
    fixture.remove("build/.config");
    fixture.refuses("build/vmlinux", &["build/.config:", "No such file", "build the kernel"]);
    fixture.write("build/.config", &config);

    fixture.remove("build/modules.builtin.modinfo");
    fixture.refuses("build/vmlinux --hardware devices", &["modules.builtin.modinfo:", "make vmlinux"]);
    fixture.remove("build/scripts/kconfig/conf");
    fixture.refuses("build/vmlinux", &["scripts/kconfig/conf:", "make olddefconfig", "--quick"]);
    fs::rename(fixture.path("source"), fixture.path("elsewhere")).expect("a tree");
    fixture.refuses("build/vmlinux --quick", &["source:", "source tree", "build the kernel again"]);
}

#[test]
fn objects_of_a_kernel_have_gates() {
    let vmlinux = recipe("kernels/build.sh", &["web-i386"]).join("vmlinux");
    let run = Run::new(env!("CARGO_BIN_EXE_config-spec")).arg(vmlinux).args(["--quick", "--json"]);
    let document = parse(&run.succeed().text());
    let objects = &document["objects"];
    assert!(objects["placed"].as_u64().expect("a number") > 800, "{objects}");
    assert_eq!(objects["unplaced"].as_array().map(Vec::len), Some(0), "{objects}");
    let uncore = option(&document, "PERF_EVENTS_INTEL_UNCORE");
    assert_eq!(uncore["objects"].as_array().map(Vec::len), Some(5), "{uncore}");
    let bytes = uncore["keeps"]["data"].as_u64().expect("a number");
    assert!((60_000..90_000).contains(&bytes), "{uncore}");
    let ext2 = option(&document, "EXT2_FS")["objects"].as_array().expect("objects");
    let is_of_ext2 =
        |object: &Value| object["object"].as_str().is_some_and(|name| name.starts_with("fs/ext2/"));
    assert!(ext2.len() == 10 && ext2.iter().all(is_of_ext2), "{ext2:?}");
}
