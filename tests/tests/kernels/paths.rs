//! Paths that are copied for known inputs: linked into a kernel (`--specialize`), and loaded while it runs (`--gate`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run, Scenario, command, fixture};

/// The datagrams whose instructions are counted.
const COUNT: &str = "datagrams.count=1000 datagrams.way=send:64";
/// Minimum number of executions of the instructions on the path.
const LEAST: &str = "900";
/// The function where the path begins.
const ENTRY: &str = "inet_sendmsg";

/// Sends of datagrams take a path for the facts that a running kernel had, and everything that makes a fact false leads to the
/// original code.
#[test]
fn datagrams_take_their_path_or_the_original_one() {
    KernelTest::check("datagrams_take_their_path_or_the_original_one", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.datagrams();
        observe(test, &scenario, &kernel);
        linked(test, &scenario, &kernel);
        loaded(test, &scenario, &kernel);
    });
}

/// The path is linked into the kernel.
fn linked(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) {
    let (before, hot) = trace(test, scenario, kernel);
    let options = ["--passes", "specialize", "--specialize", "paths.json"];
    let copied = test.rewritten(kernel, "copied", &hot, &options);
    let after = instructions(test, scenario, &copied.kernel, &[]);
    assert!(after * 10 <= before * 9, "a send takes {after} instructions, {before} before");
    test.passes(scenario, &copied.kernel, &[]);
    for name in ["stable-facts-are-stable", "loads-on-paths-have-no-effect"] {
        assert!(copied.assumptions().contains(&name), "no {name} in {:?}", copied.assumptions());
    }
}

/// A device gets the path for its sockets from a server. Without a server, with a faulty one, or with one for other devices,
/// it sends as ever.
fn loaded(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) {
    for (name, byte) in [("key", 7), ("other-key", 8)] {
        test.write(name, vec![byte; 32]);
    }
    let options = ["--passes", "none", "--gate", ENTRY, "--key", "key"];
    let gated = test.rewritten(kernel, "gated", "", &options);
    let (before, hot) = trace(test, scenario, &gated.kernel);
    test.write("hot.json", hot);
    let server = Server::start(test, kernel, &gated, "key");
    let after = instructions(test, scenario, &gated.kernel, &server.options(COUNT));
    assert!(after * 10 <= before * 9, "a send takes {after} instructions, {before} before");
    test.passes(scenario, &gated.kernel, &server.options(""));
    assert!(statistic(test, &gated.kernel, "hits") > 1000);
    drop(server);
    let other = Server::start(test, kernel, &gated, "other-key");
    test.passes(scenario, &gated.kernel, &other.options(FAULTY));
    assert!(statistic(test, &gated.kernel, "refused") > 0);
    assert_eq!(statistic(test, &gated.kernel, "hits"), 0);
    drop(other);
    for fault in [Fault::Ends, Fault::Garbage, Fault::Waits, Fault::Endless] {
        let options = faulty_server(fault);
        test.passes(scenario, &gated.kernel, &options.each_ref().map(String::as_str));
        assert_eq!(statistic(test, &gated.kernel, "hits"), 0, "{fault:?}");
    }
}

/// Parameters for a boot whose server fails.
const FAULTY: &str = "datagrams.count=100 datagrams.way=send:64 datagrams.faulty=yes";

/// Observes the objects of the path in two boots, and writes `paths.json`.
fn observe(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) {
    let declaration = fixture("scenarios/datagrams/declaration.json");
    let customize = |task: &str| Run::kshrink("customize").arg(task).arg(&kernel.vmlinux).arg(&declaration);
    let script = customize("script").args(["--calls", "50", "--skip", "100", "--output", "calls.gdb"]);
    test.chain.succeed(script);
    for log in ["first.log", "second.log"] {
        test.passes(scenario, kernel, &["--append", COUNT, "--gdb", "calls.gdb"]);
        let calls = test.read(&format!("{}.log.gdb", kernel.name));
        test.write(log, calls);
    }
    test.chain.succeed(customize("observe").args(["first.log", "second.log", "--output", "paths.json"]));
}

/// Returns the number of instructions of the cheapest send, and a plan with the code that ran in most sends.
fn trace(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) -> (u64, String) {
    let vmlinux = kernel.vmlinux.display().to_string();
    let count =
        instructions(test, scenario, kernel, &["--append", COUNT, "--trace", "trace", "--data", &vmlinux]);
    let run = Run::kshrink("coverage").args(["qemu", "--after-boot", "--least", LEAST, &vmlinux, "trace"]);
    (count, test.chain.succeed(run).text())
}

/// Returns the number of instructions of the cheapest send.
fn instructions(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel, options: &[&str]) -> u64 {
    let count = if options.is_empty() { &["--append", COUNT][..] } else { &[] };
    test.passes(scenario, kernel, &[&["--icount", "yes"], count, options].concat());
    statistic(test, kernel, "send 64")
}

/// Returns a number that the scenario printed.
fn statistic(test: &mut KernelTest<'_>, kernel: &Kernel, name: &str) -> u64 {
    let console = test.console(kernel);
    let line = console.lines().find_map(|line| line.strip_prefix(&format!("datagrams: {name} ")));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name} in {console}"))
}

/// `customize serve`, which ends with this.
struct Server {
    process: Child,
    port: String,
}

impl Server {
    fn start(test: &mut KernelTest<'_>, kernel: &Kernel, device: &RewrittenKernel, key: &str) -> Server {
        let dir: PathBuf = test.chain.dir().to_path_buf();
        let log = File::create(dir.join("serve.log")).expect("a file");
        let mut serve = Command::new(command("customize"));
        serve.current_dir(&dir).arg("serve").arg(&kernel.vmlinux).arg(&device.dir);
        serve.args(["--plan", "hot.json", "--paths", "paths.json", "--key", key, "--listen", "127.0.0.1:0"]);
        let mut process = serve.stderr(log).stdin(Stdio::null()).spawn().expect("a server");
        for _ in 0..600 {
            let messages = fs::read_to_string(dir.join("serve.log")).expect("a log");
            if let Some((_, rest)) = messages.split_once("listening at 127.0.0.1:") {
                let port = rest.split(' ').next().unwrap_or_default().to_owned();
                return Server { process, port };
            }
            let ended = process.try_wait().expect("a process");
            assert!(ended.is_none(), "the server ended: {messages}");
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the server does not listen");
    }

    /// Options of a boot whose device uses the server.
    fn options(&self, parameters: &str) -> [&'static str; 4] {
        [
            "--host",
            "yes",
            "--append",
            String::leak(format!("{parameters} datagrams.server=10.0.2.2:{}", self.port)),
        ]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A way in which a server fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It ends in the middle of a request.
    Ends,
    /// It answers with what is none.
    Garbage,
    /// It never answers.
    Waits,
    /// It reads memory for ever.
    Endless,
}

/// Starts a server that fails. Returns the options of a boot.
fn faulty_server(fault: Fault) -> [String; 4] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || fail(fault, stream));
        }
    });
    let append = format!("{FAULTY} datagrams.server=10.0.2.2:{port}");
    ["--host".into(), "yes".into(), "--append".into(), append]
}

/// Fails after a build and a request: 40 and 12 bytes.
fn fail(fault: Fault, mut stream: TcpStream) {
    let mut request = [0; 52];
    if stream.read_exact(&mut request).is_err() {
        return;
    }
    match fault {
        Fault::Ends => {}
        Fault::Garbage => {
            let _ = stream.write_all(&[0xff; 4096]);
        }
        Fault::Waits => std::thread::sleep(Duration::from_secs(60)),
        Fault::Endless => {
            let read = [1u32, 8, 0xc100_0000, 64].map(u32::to_le_bytes).concat();
            while stream.write_all(&read).is_ok() && stream.read_exact(&mut [0; 72]).is_ok() {}
        }
    }
}
