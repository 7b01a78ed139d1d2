//! `customize script` and `customize observe` on a program in miniature that is linked like a kernel.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kplan::Paths;
use kshrink_tests::process::{fails, run};
use tempfile::TempDir;

const SOURCE: &str = "
struct part { unsigned short kind; struct part *next; };
struct sock { int state; const void *ops; struct part *sk; };
const int ops = 1;
struct sock variable;
int send(struct sock *sock) { return sock->sk->kind; }
__asm__ (\".globl walk; .type walk, @function; walk:\"
    \"testl %eax, %eax; je 1f; call send; testl %eax, %eax; js send; je send; ret; 1: jmp original; .size walk, .-walk;\"
    \".globl original; .type original, @function; original: ret; .size original, .-original\");
";

const DECLARATION: &str = r#"{"schema": "kshrink-declaration/1", "entry": "send", "types": "net/send.o", "objects": [
    {"name": "sock", "type": "sock", "from": {"argument": 0}, "exists": "given"},
    {"name": "sk", "type": "part", "from": {"member": "sock.sk"}},
    {"name": "other", "type": "sock", "from": {"variable": "variable"}, "members": []}
]}"#;

struct Miniature {
    dir: TempDir,
}

impl Miniature {
    fn new() -> Miniature {
        let dir = tempfile::tempdir().unwrap();
        let miniature = Miniature { dir };
        fs::create_dir(miniature.dir.path().join("net")).unwrap();
        miniature.write("send.c", SOURCE);
        let compile = "gcc -m32 -ffreestanding -fno-pic -c -o net/send.o send.c";
        miniature.write(
            "net/.send.o.cmd",
            &format!("savedcmd_net/send.o := {compile}\n\nsource_net/send.o := send.c\n"),
        );
        run(Command::new("sh").args(["-c", compile]).current_dir(miniature.dir.path()));
        let mut ld = Command::new("ld");
        ld.args(["-m", "elf_i386", "-e", "send", "-Ttext", "0xc1000000", "net/send.o", "-o", "vmlinux"]);
        run(ld.current_dir(miniature.dir.path()));
        miniature.write("declaration.json", DECLARATION);
        miniature
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path().join(name), content).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_customize"));
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(status.success(), "{}", text(stderr));
        (text(stdout), text(stderr))
    }

    fn address(&self, name: &str) -> String {
        let symbols = run(Command::new("nm").arg(self.path().join("vmlinux")));
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        format!("0x{}", &line[..8])
    }

    /// Writes what gdb prints for some calls.
    fn log(&self, name: &str, kind: &str, calls: usize) {
        let ops = self.address("ops");
        let call = |call: usize| {
            format!(
                "call\nobject sock\n0xc2000000:\t{call:#x}\t{ops}\t0xc3000000\n\
                 object sk\n0xc3000000:\t{kind}\t0x00000000\nobject other\n0xc4:\t0x0\t0x0\t0x0\nend of call\n"
            )
        };
        self.write(name, &(0..calls).map(call).collect::<String>());
    }
}

const OBSERVE: [&str; 3] = ["observe", "vmlinux", "declaration.json"];

#[test]
fn script_prints_each_object() {
    let miniature = Miniature::new();
    let script = ["script", "vmlinux", "declaration.json", "--calls", "7", "--skip", "2"];
    let (text, _) = miniature.succeed(&script);
    for line in [
        format!("hbreak *{:#x}", u32::from_str_radix(&miniature.address("send")[2..], 16).unwrap()),
        "ignore $bpnum 2".into(),
        "set $left = 7".into(),
        "set $object0 = (unsigned int)$eax".into(),
        "x/3wx $object0".into(),
        "set $object1 = *(unsigned int *)($object0 + 8)".into(),
        "x/2wx $object1".into(),
        "detach".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line:?} in {text}");
    }
}

#[test]
fn members_of_one_value_in_all_boots_are_facts() {
    let miniature = Miniature::new();
    miniature.log("first.log", "0xaaaa0005", 30);
    miniature.log("second.log", "0xbbbb0005", 30);
    let (text, summary) = miniature.succeed(&[&OBSERVE[..], &["first.log", "second.log"]].concat());
    let paths = Paths::parse(&text, "out").unwrap();
    let facts: Vec<_> = paths.paths[0]
        .facts
        .iter()
        .map(|fact| {
            (fact.member.as_deref().unwrap(), fact.offset, fact.width, fact.value, fact.symbol.as_deref())
        })
        .collect();
    assert_eq!(facts, [("ops", 4, 4, 0, Some("ops")), ("kind", 0, 2, 5, None), ("next", 4, 4, 0, None)]);
    // `sk` is a pointer that never changed, but to nothing with a name.
    let line = summary.lines().find(|line| line.starts_with("sock")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["sock", "60", "3", "2", "1"]);
}

/// A path that is called `walk`.
const PATHS: &str = r#"{"schema": "kshrink-paths/1", "paths": [{"entry": "walk", "objects": [
    {"name": "sock", "from": {"argument": 0}, "exists": "given"},
    {"name": "sk", "from": {"member": {"object": "sock", "offset": 8}}, "stable": "held"}
], "facts": [
    {"object": "sk", "offset": 0, "width": 2, "value": 5, "member": "kind", "stable": "held"},
    {"object": "sock", "offset": 4, "symbol": "ops", "stable": "constant"},
    {"object": "sock", "offset": 0, "value": 1}
]}]}"#;

impl Miniature {
    fn number(&self, name: &str) -> u32 {
        u32::from_str_radix(&self.address(name)[2..], 16).unwrap()
    }

    /// Writes a map of blocks in which a pass made `walk`, and `original` has the original code.
    fn write_blocks(&self, pass: &str) {
        let (made, original) = (self.number("walk"), self.number("original"));
        let blocks = format!(
            r#"{{"schema": "kshrink-blocks/1", "functions": [{{"name": "walk", "size": 1}}],
            "blocks": [[{original}, 1, 0, 0, 1]], "made": [{{"address": {made}, "size": 4, "made_by": "{pass}"}}]}}"#
        );
        self.write("blocks.json", &blocks);
    }
}

#[test]
fn compare_watches_the_ways_out_of_a_path() {
    let miniature = Miniature::new();
    miniature.write("paths.json", PATHS);
    miniature.write_blocks("specialize");
    let (text, _) = miniature.succeed(&["compare", ".", "paths.json", "--calls", "7"]);
    assert!(text.contains("\nCALLS = 7\n"), "{text}");
    let paths = text.lines().find_map(|line| line.strip_prefix("PATHS = ")).unwrap();
    let paths: serde_json::Value = serde_json::from_str(paths).unwrap();
    let names: Vec<&str> =
        paths[0]["facts"].as_array().unwrap().iter().map(|fact| fact["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["the pointer to sk", "sk.kind", "sock+4"]);
    // `js send` and `je send`, `ret`, and `jmp original`. The call of `send` is no way out.
    let count = |kind: &str| paths[0][kind].as_array().unwrap().len();
    assert_eq!((count("branches"), count("ends"), count("misses")), (2, 1, 1), "{text}");
    miniature.write_blocks("icf");
    fails(&mut miniature.command(&["compare", ".", "paths.json"]), 2, "walk is no path");
    fs::remove_file(miniature.path().join("blocks.json")).unwrap();
    fails(&mut miniature.command(&["compare", ".", "paths.json"]), 1, "blocks.json");
}

#[test]
fn bad_input_is_refused() {
    let miniature = Miniature::new();
    miniature.log("few.log", "0x5", 3);
    miniature.write("other.log", "call\nobject dst\n");
    let observe = |log: &'static str| miniature.command(&[&OBSERVE[..], &[log]].concat());
    fails(&mut observe("few.log"), 2, "few.log: 3 calls of send; expected at least 20");
    fails(&mut observe("other.log"), 2, "other.log: line 2: the declaration has no object dst");
    fails(&mut observe("missing.log"), 1, "missing.log");
    miniature.write("declaration.json", &DECLARATION.replace("send\"", "sent\""));
    fails(
        &mut miniature.command(&["script", "vmlinux", "declaration.json"]),
        2,
        "no function or variable sent",
    );
    miniature.write("declaration.json", &DECLARATION.replace("net/send.o", "net/sent.o"));
    fails(&mut miniature.command(&["script", "vmlinux", "declaration.json"]), 2, "net/sent.o");
    miniature.write("declaration.json", "{}");
    fails(&mut miniature.command(&["script", "vmlinux", "declaration.json"]), 2, "kshrink-declaration/1");
}

#[test]
fn server_needs_a_key_of_32_bytes() {
    let miniature = Miniature::new();
    miniature.write("key", "short");
    let serve = ["serve", "vmlinux", "out", "--plan", "p.json", "--paths", "paths.json", "--key", "key"];
    let listen = ["--listen", "127.0.0.1:0"];
    fails(&mut miniature.command(&[&serve[..], &listen].concat()), 2, "key: expected a key of 32 bytes");
    fails(
        &mut miniature.command(&[&serve[..], &["--listen", "nowhere"]].concat()),
        1,
        "cannot listen at nowhere",
    );
}
