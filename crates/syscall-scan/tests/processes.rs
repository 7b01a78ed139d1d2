//! Dynamic programs in small root file systems, with exactly known calls.
//!
//! These root file systems contain no C library: the interpreter makes one call, and each function makes a call with
//! its own number, which Linux does not have. A plan therefore shows the functions that count.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::root::{EXIT, Root};
use common::{Machine, command, own_calls};

fn set(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    numbers.into_iter().collect()
}

const LIBRARY: &str = "
NOINLINE long used(void) { return call(5001); }
NOINLINE long unused(void) { return call(5002); }
__attribute__((constructor)) static void initialise(void) { call(5003); }
static NOINLINE long in_table(void) { return call(5004); }
static NOINLINE long behind(void) { return call(5005); }
long (*table[])(void) = { in_table };
NOINLINE long indirect(long i) { return table[i]() + behind(); }
";

#[test]
fn functions_count_where_somebody_gets_to_them() {
    for machine in Machine::ALL {
        for options in ["-fPIE -pie", "-fno-pie -no-pie", "-fPIE -pie -fno-plt", "-fPIE -pie -Wl,-z,now -s"] {
            let root = Root::of(machine);
            root.library("lib/liba.so", LIBRARY, "");
            let source = "long used(void); void run(long n) { used(); }";
            root.program("bin/used", source, &format!("{options} -la"));
            // i386 code refers to variables by distances, which may look like other numbers.
            let in_table = set([5004].into_iter().filter(|_| machine == Machine::I386));
            let without = |calls: BTreeSet<u64>| calls.difference(&in_table).copied().collect();
            let calls: BTreeSet<u64> = without(root.calls(&["/bin/used"]));
            assert_eq!(calls, set([5001, 5003]), "{options}");
            let source = "long used(void); long unused(void); volatile long any;
                void run(long n) { long (*volatile f)(void) = any ? unused : used; f(); }";
            root.program("bin/pointers", source, &format!("{options} -la"));
            let calls: BTreeSet<u64> = without(root.calls(&["/bin/pointers"]));
            assert_eq!(calls, set([5001, 5002, 5003]), "{options}");
        }
    }
}

/// A library that may be run as a program behaves differently then.
#[test]
fn libraries_that_are_programs_too() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        let source = "NOINLINE long used(void) { return call(5001); } void itself(void) { call(5002); for (;;) call(60); }
            const char interpreter[] __attribute__((section(\".interp\"))) = \"/lib/ld.so\";";
        root.library("lib/liba.so", source, "-Wl,-e,itself");
        root.program("bin/one", "long used(void); void run(long n) { used(); }", "-fPIE -pie -la");
        assert_eq!(root.calls(&["/bin/one"]), set([5001]));
    }
}

#[test]
fn a_table_that_was_copied_to_the_program() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        root.library("lib/liba.so", LIBRARY, "");
        let source = "extern long (*table[1])(void); void run(long n) { table[0](); }";
        root.program("bin/copied", source, "-fno-pie -no-pie -la");
        assert_eq!(root.calls(&["/bin/copied"]), set([5003, 5004]));
    }
}

#[test]
fn the_first_definition_counts() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        let library = "
            NOINLINE long shared(void) { return call(5011); }
            __attribute__((visibility(\"protected\"))) NOINLINE long own(void) { return call(5012); }
            NOINLINE long both(void) { return shared() + own(); }";
        root.library("lib/liba.so", library, "");
        let program = "
            NOINLINE long shared(void) { return call(5010); }
            NOINLINE long own(void) { return call(5013); }
            long both(void); void run(long n) { both(); }";
        root.program("bin/program", program, "-fPIE -pie -la -rdynamic");
        assert_eq!(root.calls(&["/bin/program"]), set([5010, 5012]));
        // The library that is needed first wins.
        root.library("lib/libb.so", "long shared(void) { return call(5014); }", "");
        let program = "long both(void); long shared(void); void run(long n) { both(); shared(); }";
        root.program("bin/second", program, "-fPIE -pie -lb -la");
        assert_eq!(root.calls(&["/bin/second"]), set([5012, 5014]));
    }
}

#[test]
fn versions_of_symbols() {
    let root = Root::new();
    root.write("versions", "V1 { global: f; local: *; }; V2 { } V1;");
    let script = format!("-Wl,--version-script={}", root.path("versions").display());
    let old = "NOINLINE long f(void) { return call(5020); }";
    root.library("lib/libv.so", old, &script);
    let program = "long f(void); void run(long n) { f(); }";
    root.program("bin/old", program, "-fPIE -pie -lv");
    let new = "
        NOINLINE long f1(void) { return call(5020); }
        NOINLINE long f2(void) { return call(5021); }
        __asm__(\".symver f1,f@V1\\n.symver f2,f@@V2\");";
    root.library("lib/libv.so", new, &script);
    root.program("bin/new", program, "-fPIE -pie -lv");
    assert_eq!(root.calls(&["/bin/old"]), set([5020]));
    assert_eq!(root.calls(&["/bin/new"]), set([5021]));
}

#[test]
fn functions_that_are_chosen_at_start() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        let library = "
            static NOINLINE long one(void) { return call(5030); }
            static NOINLINE long other(void) { return call(5031); }
            static long (*choose(void))(void) { call(5032); return __builtin_cpu_supports ? one : other; }
            long chosen(void) __attribute__((ifunc(\"choose\")));";
        let library = library.replace("__builtin_cpu_supports ?", "call(5033) ?");
        root.library("lib/libi.so", &library, "");
        root.program("bin/program", "long chosen(void); void run(long n) { chosen(); }", "-fPIE -pie -li");
        assert_eq!(root.calls(&["/bin/program"]), set([5030, 5031, 5032, 5033]));
    }
}

#[test]
fn libraries_are_looked_for_where_programs_say() {
    let root = Root::new();
    root.library("opt/lib/libo.so", "long o(void) { return call(5035); }", "");
    let program = "long o(void); void run(long n) { o(); }";
    let link = format!("-fPIE -pie -L{} -lo", root.path("opt/lib").display());
    root.program("opt/bin/program", program, &format!("{link} -Wl,-rpath,$ORIGIN/../lib"));
    assert_eq!(root.calls(&["/opt/bin/program"]), set([5035]));
    root.program("bin/lost", program, &link);
    let output = root.scan(&["/bin/lost"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("/bin/lost: needs libo.so (named by /bin/lost)"), "{errors}");
    root.write("etc/ld.so.conf", "include ld.so.conf.d/*.conf\n");
    root.write("etc/ld.so.conf.d/opt.conf", "/opt/lib\n");
    assert_eq!(root.calls(&["/bin/lost"]), set([5035]));
    // The library is found there, but for another machine.
    fs::write(root.path("opt/lib/libo.so"), b"\x7fELF").unwrap();
    assert_eq!(root.scan(&["/bin/lost"]).status.code(), Some(2));
}

const DL: &str = "
void *dlopen(const char *name, int flags) { call(5040); return 0; }
void *dlsym(void *handle, const char *name) { call(5044); return 0; }
";

const PLUGIN: &str = "
__attribute__((constructor)) static void initialise(void) { call(5041); }
long plugin_run(void) { return call(5042); }
long plugin_stop(void) { return call(5043); }
";

const DECLARATIONS: &str = "
void *dlopen(const char *, int); void *dlsym(void *, const char *);
static NOINLINE void *open(const char *name) { return dlopen(name, 2); }
";

#[test]
fn libraries_and_functions_with_constant_names() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        root.library("lib/libdl.so", DL, "");
        root.library("lib/plugin.so", PLUGIN, "");
        let program = "void run(long n) {
            long (*f)(void) = dlsym(open(\"plugin.so\"), \"plugin_run\"); f(); }";
        root.program("bin/program", &format!("{DECLARATIONS}{program}"), "-fPIE -pie -ldl");
        assert_eq!(root.calls(&["/bin/program"]), set([5040, 5041, 5042, 5044]));
        // No code opens it.
        let program =
            "const char *name(void) { return \"plugin.so\"; } void run(long n) { dlopen(name() + 40, 0); }";
        let program = program.replace("name() + 40", "(void *)0");
        root.program("bin/other", &format!("{DECLARATIONS}{program}"), "-fPIE -pie -ldl");
        assert_eq!(root.calls(&["/bin/other"]), set([5040]));
        // The library is missing and cannot be opened.
        fs::remove_file(root.path("lib/plugin.so")).unwrap();
        assert_eq!(root.calls(&["/bin/program"]), set([5040, 5044]));
    }
}

#[test]
fn libraries_with_other_names() {
    let root = Root::new();
    root.library("lib/libdl.so", DL, "");
    root.library("opt/lib/plugin.so", PLUGIN, "");
    let opens = |name: &str| format!("{DECLARATIONS} void run(long n) {{ dlopen(\"{name}\", 2); }}");
    // The name does not identify a library, or depends on the working directory.
    fs::copy(root.path("opt/lib/plugin.so"), root.path("opt/lib/plugin")).unwrap();
    for name in ["/opt/lib/plugin", "./plugin.so"] {
        root.program("bin/program", &opens(name), "-fPIE -pie -ldl");
        let section = root.section(&["/bin/program"]);
        assert_eq!(section["complete"], false, "{name}");
        let reason = section["unresolved"][0]["reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("{name} is loaded, ")), "{reason}");
    }
    // A missing library is reported.
    root.program("bin/program", &opens("plugin.so"), "-fPIE -pie -ldl");
    assert_eq!(root.calls(&["/bin/program"]), set([5040]));
    let errors = root.scan(&["/bin/program"]).stderr;
    let errors = String::from_utf8_lossy(&errors);
    assert!(errors.contains("warning: /bin/program: loads plugin.so, which does not exist"), "{errors}");
    // The caller of `dlopen` determines the search path, not the owner of the name.
    let opener = "void *dlopen(const char *, int); void *open(const char *name) { return dlopen(name, 2); }";
    let rpath = format!("-L{} -ldl -Wl,-rpath,/opt/lib", root.path("lib").display());
    root.library("lib/libopen.so", opener, &rpath);
    let program = "void *open(const char *); void run(long n) { open(\"plugin.so\"); }";
    root.program("bin/program", program, "-fPIE -pie -lopen");
    assert_eq!(root.calls(&["/bin/program"]), set([5040, 5041]));
}

#[test]
fn libraries_that_stand_for_others() {
    let root = Root::new();
    root.library("lib/liba.so", LIBRARY, "-Wl,-F,libreal.so");
    root.program("bin/program", "long used(void); void run(long n) { used(); }", "-fPIE -pie -la");
    let section = root.section(&["/bin/program"]);
    assert_eq!(section["unresolved"][0]["file"], "/lib/liba.so");
    let reason = section["unresolved"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("also loads libreal.so"), "{reason}");
}

#[test]
fn names_that_are_not_known() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        root.library("lib/libdl.so", DL, "");
        root.library("usr/lib/plugins/plugin.so", PLUGIN, "");
        let program = "extern char name[]; char name[100]; void run(long n) { name[n] = 'x'; open(name); }";
        root.program("bin/program", &format!("{DECLARATIONS}{program}"), "-fPIE -pie -ldl");
        let section = root.section(&["/bin/program"]);
        assert_eq!(section["complete"], false);
        let unresolved = &section["unresolved"][0];
        assert_eq!(unresolved["file"], "/bin/program");
        assert!(unresolved["address"].as_str().unwrap().starts_with("0x"));
        assert!(unresolved["reason"].as_str().unwrap().starts_with("a library is loaded by an unknown name"));
        let address = unresolved["address"].as_str().unwrap();
        for (option, name) in
            [("--dlopen", "/usr/lib/plugins/plugin.so"), ("--plugin-dir", "/usr/lib/plugins")]
        {
            for place in ["program", address, &format!("/bin/program:{address}")] {
                let calls = root.calls(&["/bin/program", option, &format!("{name}@{place}")]);
                assert_eq!(calls, set([5040, 5041, 5042, 5043]), "{option} {place}");
            }
            // A name is resolved only for its place; the library counts in any case.
            for elsewhere in [name.to_owned(), format!("{name}@other"), format!("{name}@0x1")] {
                let section = root.section(&["/bin/program", option, &elsewhere]);
                assert_eq!(section["complete"], false, "{elsewhere}");
                assert!(own_calls(&section).contains(&5043), "{elsewhere}");
            }
        }
        std::fs::create_dir(root.path("usr/lib/empty")).unwrap();
        for directory in ["/usr/lib/none", "/usr/lib/empty"] {
            let output = root.scan(&["/bin/program", "--plugin-dir", directory]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{errors}");
            assert!(errors.contains(&format!("--plugin-dir {directory}: expected a directory")), "{errors}");
        }
        let output = root.scan(&["/bin/program", "--dlopen", "none.so"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("needs none.so (named by --dlopen)"));
    }
}

#[test]
fn modules_of_the_name_service_switch() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        let library = "
            long __libc_start_main(void) { return 0; }
            static NOINLINE long module(const char *pattern) { return call(5050) + *pattern; }
            long look_up(void) { return module(\"libnss_%s.so%s\"); }
            long other(void) { return call(5051); }";
        root.library("lib/libc.so.6", library, "");
        root.library("lib/libnss_test.so.2", "long _nss_test_getpwnam_r(void) { return call(5052); }", "");
        root.library("lib/libnss_wrong.so.2", "long _nss_wrong_getpwnam_r(void) { return call(5053); }", "");
        root.write("etc/nsswitch.conf", "# wrong\npasswd: files [NOTFOUND=return] test\n");
        let link = format!("-fPIE -pie {}", root.path("lib/libc.so.6").display());
        root.program("bin/users", "long look_up(void); void run(long n) { look_up(); }", &link);
        root.program("bin/nobody", "long other(void); void run(long n) { other(); }", &link);
        assert_eq!(root.calls(&["/bin/users"]), set([5050, 5052]));
        assert_eq!(root.calls(&["/bin/nobody"]), set([5051]));
    }
}

#[test]
fn shared_objects_by_themselves() {
    let root = Root::new();
    root.library("lib/liba.so", LIBRARY, "");
    let section = root.section(&["/lib/liba.so"]);
    assert_eq!(own_calls(&section), set([5001, 5002, 5003, 5004, 5005]));
}

#[test]
fn a_whole_root() {
    let root = Root::new();
    root.library("lib/liba.so", LIBRARY, "");
    root.program("bin/one", "long used(void); void run(long n) { used(); }", "-fPIE -pie -la");
    root.program("bin/two", "void run(long n) { call(5060); }", "-fno-pie -no-pie");
    root.write("bin/three", "#!/bin/two -x\n");
    root.write("etc/passwd", "root\n");
    fs::set_permissions(root.path("bin/three"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("one", root.path("bin/link")).unwrap();
    fs::hard_link(root.path("bin/one"), root.path("bin/name")).unwrap();
    let calls = root.calls(&[]);
    assert_eq!(calls, set([5001, 5003, 5060]));
    let output = root.scan(&[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let summary = "2 programs scanned, 0 failed; 1 scripts, 2 libraries, 1 other files, 0 unreadable";
    assert!(errors.contains(summary), "{errors}");
    // A script is scanned as its interpreter.
    assert_eq!(own_calls(&root.section(&["/bin/three"])), set([EXIT, 5060]));
    // One bad program does not end the run, but the plan is incomplete.
    let bytes = fs::read(root.path("bin/two")).unwrap();
    fs::write(root.path("bin/two"), &bytes[..bytes.len() / 3]).unwrap();
    let section = root.section(&[]);
    assert_eq!(section["complete"], false);
    assert_eq!(section["unresolved"][0]["file"], "/bin/two");
    let output = root.scan(&["/bin/two"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn roots_that_are_none() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_str().unwrap();
    for (arguments, message) in [
        (vec!["--root", root], "no program in"),
        (vec!["--root", root, "/bin/none"], "/bin/none: no such file in"),
        (vec!["--root", "/nonexistent"], "/nonexistent"),
    ] {
        let output = command(&arguments).stdin(std::process::Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
}
