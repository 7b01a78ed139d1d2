//! Programs that programs start (`--with-children`), in small root file systems.

mod common;

use std::collections::BTreeSet;

use common::root::{EXIT, Root, START};
use common::{Machine, own_calls};
use serde_json::Value;

/// A function that starts a program, and one that passes its path on.
const STARTS: &str = "
static NOINLINE long start(const char *path)
{
	long result;
#ifdef __i386__
	__asm__ volatile(\"int $0x80\" : \"=a\"(result) : \"0\"(11), \"b\"(path) : \"memory\");
#else
	__asm__ volatile(\"syscall\" : \"=a\"(result) : \"0\"(59), \"D\"(path) : \"rcx\", \"r11\", \"memory\");
#endif
	return result;
}
static NOINLINE long start_later(long a, const char *path) { return a + start(path); }
";

/// Adds a program that makes one call and runs these statements.
fn add(root: &Root, path: &str, call: u32, statements: &str) {
    let source = format!("{STARTS} char buffer[8]; void run(long n) {{ call({call}); {statements} }}");
    root.program(path, &source, "-fPIE -pie");
}

/// Scans a program with its children, and checks whether the result is complete. Returns the calls without those of
/// every program, and the messages.
fn scan(root: &Root, options: &[&str], is_complete: bool) -> (BTreeSet<u64>, String) {
    let output = root.scan(options);
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{messages}");
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = &plan["syscalls"][root.machine.abi()];
    assert_eq!(found["complete"], is_complete, "{found}");
    let mut calls = own_calls(found);
    let execve = if root.machine == Machine::I386 { 11 } else { 59 };
    for call in [START, EXIT, execve] {
        calls.remove(&call);
    }
    (calls, messages)
}

#[test]
fn children_and_their_children_count() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        add(&root, "bin/parent", 5100, "start(n ? \"/bin/child\" : \"/bin/script\");");
        // The child starts its parent again.
        add(&root, "bin/child", 5200, "start_later(n, \"/bin/grandchild\"); start(\"/bin/parent\");");
        add(&root, "bin/grandchild", 5300, "");
        add(&root, "bin/shell", 5400, "");
        root.write("bin/script", "#!/bin/shell\necho\n");
        assert_eq!(scan(&root, &["/bin/parent"], true).0, BTreeSet::from([5100]));
        let (calls, messages) = scan(&root, &["--with-children", "/bin/parent"], true);
        assert_eq!(calls, BTreeSet::from([5100, 5200, 5300, 5400]));
        assert!(!messages.contains("warning"), "{messages}");
    }
}

#[test]
fn unknown_and_missing_children_are_named() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        add(
            &root,
            "bin/parent",
            5100,
            "start((const char *)n); start(\"/bin/child\"); start(\"bin/near\"); start(buffer);",
        );
        add(&root, "bin/child", 5200, "start(\"/bin/none\");");
        let (calls, messages) = scan(&root, &["--with-children", "/bin/parent"], false);
        assert_eq!(calls, BTreeSet::from([5100, 5200]));
        for expected in [
            "warning: /bin/child: starts /bin/none, which does not exist",
            "/bin/parent:0x0: it starts bin/near, whose directory is unknown",
            "/bin/parent:0x0: it starts programs whose paths are unknown; name them too (/bin/parent:",
        ] {
            assert!(messages.contains(expected), "no {expected} in\n{messages}");
        }
        assert_eq!(messages.lines().count(), 4, "{messages}");
    }
}

#[test]
fn children_that_cannot_be_scanned_make_the_result_incomplete() {
    for machine in Machine::ALL {
        let root = Root::of(machine);
        add(&root, "bin/parent", 5100, "start(\"/bin/damaged\"); start(\"/bin/child\");");
        add(&root, "bin/child", 5200, "");
        root.write("bin/damaged", "\u{7f}ELF");
        let (calls, messages) = scan(&root, &["--with-children", "/bin/parent"], false);
        assert_eq!(calls, BTreeSet::from([5100, 5200]));
        let expected = "/bin/damaged:0x0: /bin/parent starts it, but it cannot be scanned: ";
        assert!(messages.contains(expected), "no {expected} in\n{messages}");
        // A path that does not exist starts nothing.
        add(&root, "bin/parent", 5100, "start(\"/bin/none\");");
        assert_eq!(scan(&root, &["--with-children", "/bin/parent"], true).0, BTreeSet::from([5100]));
    }
}

#[test]
fn a_filter_for_all_children_has_no_warning() {
    let root = Root::new();
    add(&root, "bin/parent", 5100, "start(\"/bin/child\");");
    add(&root, "bin/child", 39, "");
    let filter = |options: &[&str]| {
        let output = root.scan(&[&["--format", "systemd"], options, &["/bin/parent"]].concat());
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (lines, messages) = filter(&["--with-children"]);
    assert!(lines.contains("getpid") && !messages.contains("may start others"), "{lines}\n{messages}");
    let (lines, messages) = filter(&[]);
    assert!(!lines.contains("getpid") && messages.contains("may start others"), "{lines}\n{messages}");
}
