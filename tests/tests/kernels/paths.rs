//! Paths that are copied for known inputs: linked into a kernel (`--specialize`), and loaded while it runs (`--gate`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run, Scenario, command, fixture};
use serde_json::Value;

/// The datagrams whose instructions are counted, and segments of TCP.
const DATAGRAMS: &str = "datagrams.count=1000 datagrams.way=send:64";
const SEGMENTS: &str = "datagrams.count=1000 datagrams.way=stream:64";
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
        observe(test, &scenario, &kernel, "send", "datagram");
        observe(test, &scenario, &kernel, "stream", "stream");
        linked(test, &scenario, &kernel);
        loaded(test, &scenario, &kernel);
    });
}

/// The paths of datagrams and of segments are linked into the kernel.
fn linked(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) {
    let paths = |test: &mut KernelTest<'_>, name: &str| -> Value {
        serde_json::from_str(&test.read(name)).expect("a list of paths")
    };
    let mut both = paths(test, "datagram.json");
    let more = paths(test, "stream.json")["paths"].take();
    both["paths"].as_array_mut().expect("paths").extend(more.as_array().expect("paths").iter().cloned());
    test.write("both.json", both.to_string());
    test.write("stable.json", all_stable(both).to_string());
    let datagrams = trace(test, scenario, kernel, DATAGRAMS, "datagrams");
    let segments = trace(test, scenario, kernel, SEGMENTS, "segments");
    let hot = hot(test, kernel, &["datagrams", "segments"]);
    let options = ["--passes", "specialize", "--specialize", "both.json"];
    let copied = test.rewritten(kernel, "copied", &hot, &options);
    for (traffic, before, least) in [(DATAGRAMS, datagrams, 10), (SEGMENTS, segments, 6)] {
        let after = instructions(test, scenario, &copied.kernel, traffic, &[]);
        let cut = 100 - after * 100 / before;
        assert!(cut >= least, "a send takes {after} instructions, {before} before");
    }
    for way in ["send", "stream"] {
        stable_facts_last(test, scenario, &copied, way);
    }
    test.passes(scenario, &copied.kernel, &[]);
    for name in ["stable-facts-are-stable", "loads-on-paths-have-no-effect"] {
        assert!(copied.assumptions().contains(&name), "no {name} in {:?}", copied.assumptions());
    }
}

/// Returns the paths with all facts called stable.
fn all_stable(mut paths: Value) -> Value {
    for path in paths["paths"].as_array_mut().expect("paths") {
        for fact in path["facts"].as_array_mut().expect("facts") {
            fact["stable"] = "as a test".into();
        }
    }
    paths
}

/// The stable facts of the paths last to each end of them, in calls of one way. A fact that is only said to be stable does not.
fn stable_facts_last(test: &mut KernelTest<'_>, scenario: &Scenario, copied: &RewrittenKernel, way: &str) {
    let mut changed = |paths: &str| {
        let compare = Run::kshrink("customize").arg("compare").arg(&copied.dir).arg(paths);
        test.chain.succeed(compare.args(["--calls", "100", "--output", "compare.gdb"]));
        let traffic = format!("datagrams.count=200 datagrams.way={way}:64");
        test.passes(scenario, &copied.kernel, &["--append", &traffic, "--gdb", "compare.gdb"]);
        let log = test.read(&format!("{}.log.gdb", copied.kernel.name));
        let mut all_ends = 0;
        for path in log.lines().filter(|line| line.starts_with("path ")) {
            // `path ENTRY: 100 calls, 0 missed, 100 ends`. The last call may not have ended.
            let numbers = path.split(|letter: char| !letter.is_ascii_digit());
            let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
            let [calls, missed, ends] = numbers[..] else { panic!("{path}") };
            assert!((missed + ends..=missed + ends + 1).contains(&calls), "{path}");
            all_ends += ends;
        }
        assert!(all_ends >= 49, "{log}");
        log.lines().filter_map(|line| line.strip_prefix("changed ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(changed("both.json"), [""; 0]);
    let changed = changed("stable.json");
    assert!(changed.iter().any(|line| line.starts_with("msg.msg_iter.iov_offset: ")), "{changed:?}");
}

/// A device gets the path for its sockets from a server. Without a server, with a faulty one, or with one for other devices,
/// it sends as ever.
fn loaded(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) {
    for (name, byte) in [("key", 7), ("other-key", 8)] {
        test.write(name, vec![byte; 32]);
    }
    let options = ["--passes", "none", "--gate", ENTRY, "--key", "key"];
    let gated = test.rewritten(kernel, "gated", "", &options);
    let before = trace(test, scenario, &gated.kernel, DATAGRAMS, "datagrams");
    let hot = hot(test, &gated.kernel, &["datagrams"]);
    test.write("hot.json", hot);
    let server = Server::start(test, kernel, &gated, "key");
    let traffic = server.parameters(DATAGRAMS);
    let after = instructions(test, scenario, &gated.kernel, &traffic, HOST);
    assert!(after * 10 <= before * 9, "a send takes {after} instructions, {before} before");
    test.passes(scenario, &gated.kernel, &[HOST, &["--append", &server.parameters("")]].concat());
    assert!(statistic(test, &gated.kernel, "hits") > 1000);
    // The same over a serial line, without a network.
    let line = format!("{DATAGRAMS} datagrams.server=/dev/ttyS1");
    test.passes(scenario, &gated.kernel, &["--line", &server.port, "--append", &line]);
    assert!(statistic(test, &gated.kernel, "hits") >= 1000);
    // Over a line with faults. The answer to the first request comes when the device no longer waits for it, and
    // later, the server is another one.
    let line = format!("datagrams.server=/dev/ttyS1 datagrams.faulty=yes datagrams.change={SEVERAL}");
    test.passes(scenario, &gated.kernel, &["--line", &faulty_line(&server.port), "--append", &line]);
    assert!(statistic(test, &gated.kernel, "hits") > 0);
    // The second answer with the same code is the other server's.
    assert!(statistic(test, &gated.kernel, "shared") > 0);
    drop(server);
    let other = Server::start(test, kernel, &gated, "other-key");
    test.passes(scenario, &gated.kernel, &[HOST, &["--append", &other.parameters(FAULTY)]].concat());
    assert!(statistic(test, &gated.kernel, "refused") > 0);
    assert_eq!(statistic(test, &gated.kernel, "hits"), 0);
    drop(other);
    for fault in [Fault::Ends, Fault::Garbage, Fault::Waits, Fault::Endless] {
        let (server, requests) = faulty_server(fault);
        test.passes(scenario, &gated.kernel, &[HOST, &["--append", &server]].concat());
        assert!(requests.load(Ordering::Relaxed) > 0, "{fault:?}");
        assert_eq!(statistic(test, &gated.kernel, "hits"), 0, "{fault:?}");
    }
}

/// Options of a boot whose device uses a server on the host.
const HOST: &[&str] = &["--host", "yes"];

/// Changes, each of which waits for a second if there is no answer.
const SEVERAL: &str = "tos:ttl:priority:flags:peer:disconnect:name:corking:control:vectors:options:discovery:mtu:error:tos:ttl:tos";

/// Parameters for a boot whose server fails.
const FAULTY: &str = "datagrams.count=100 datagrams.way=send:64 datagrams.faulty=yes";

/// Observes the objects of a declaration in two boots that send in one way, and writes the list of paths.
fn observe(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel, way: &str, declaration: &str) {
    let file = fixture(&format!("scenarios/datagrams/{declaration}.json"));
    let customize = |task: &str| Run::kshrink("customize").arg(task).arg(&kernel.vmlinux).arg(&file);
    let script = customize("script").args(["--calls", "50", "--skip", "100", "--output", "calls.gdb"]);
    test.chain.succeed(script);
    for size in ["64", "1024"] {
        let traffic = format!("datagrams.count=200 datagrams.way={way}:{size}");
        test.passes(scenario, kernel, &["--append", &traffic, "--gdb", "calls.gdb"]);
        let calls = test.read(&format!("{}.log.gdb", kernel.name));
        test.write(&format!("{size}.log"), calls);
    }
    let output = format!("{declaration}.json");
    test.chain.succeed(customize("observe").args(["64.log", "1024.log", "--output", &output]));
}

/// Traces a boot. Returns the number of instructions of the cheapest send.
fn trace(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel, traffic: &str, trace: &str) -> u64 {
    let vmlinux = kernel.vmlinux.display().to_string();
    instructions(test, scenario, kernel, traffic, &["--trace", trace, "--data", &vmlinux])
}

/// Returns a plan with the code that ran in most sends.
fn hot(test: &mut KernelTest<'_>, kernel: &Kernel, traces: &[&str]) -> String {
    let run = Run::kshrink("coverage").args(["qemu", "--after-boot", "--least", LEAST]);
    test.chain.succeed(run.arg(&kernel.vmlinux).args(traces)).text()
}

/// Returns the number of instructions of the cheapest send.
fn instructions(
    test: &mut KernelTest<'_>,
    scenario: &Scenario,
    kernel: &Kernel,
    traffic: &str,
    options: &[&str],
) -> u64 {
    test.passes(scenario, kernel, &[&["--icount", "yes", "--append", traffic], options].concat());
    let way = if traffic.contains("stream") { "stream 64" } else { "send 64" };
    statistic(test, kernel, way)
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
        serve.args([
            "--plan",
            "hot.json",
            "--paths",
            "datagram.json",
            "--key",
            key,
            "--listen",
            "127.0.0.1:0",
        ]);
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

    /// Parameters of a boot whose device uses the server.
    fn parameters(&self, traffic: &str) -> String {
        format!("{traffic} datagrams.server=10.0.2.2:{}", self.port)
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

/// Returns a listener on this host, and its port.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Starts a server that fails. Returns the parameters of a boot, and the number of requests.
fn faulty_server(fault: Fault) -> (String, Arc<AtomicUsize>) {
    let (listener, port) = listener();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = count.clone();
            std::thread::spawn(move || fail(fault, stream, &count));
        }
    });
    (format!("{FAULTY} datagrams.server=10.0.2.2:{port}"), requests)
}

/// Starts a line to the server at a port, which delays the second message of the server, and after the sixth one leads to another
/// connection, as if the server was restarted. Returns its port.
fn faulty_line(server: &str) -> String {
    let (listener, port) = listener();
    let address = format!("127.0.0.1:{server}");
    std::thread::spawn(move || {
        let (mut device, _) = listener.accept().expect("a device");
        let connect = || TcpStream::connect(&address).expect("the server");
        let mut server = connect();
        let current = Arc::new(Mutex::new(server.try_clone().expect("a copy")));
        let (mut from, to) = (device.try_clone().expect("a copy"), current.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(size @ 1..) = from.read(&mut bytes) {
                let _ = to.lock().expect("no panic").write_all(&bytes[..size]);
            }
        });
        let mut bytes = [0; 1 << 16];
        for message in 1.. {
            let Ok(size @ 1..) = server.read(&mut bytes) else { return };
            if message == 2 {
                std::thread::sleep(Duration::from_millis(5500));
            }
            if device.write_all(&bytes[..size]).is_err() {
                return;
            }
            if message == 6 {
                server = connect();
                *current.lock().expect("no panic") = server.try_clone().expect("a copy");
            }
        }
    });
    port.to_string()
}

/// Fails after a greeting of 44 bytes, which is answered, and a request of 12.
fn fail(fault: Fault, mut stream: TcpStream, requests: &AtomicUsize) {
    let (mut greeting, mut request) = ([0; 44], [0; 12]);
    if stream.read_exact(&mut greeting).is_err() {
        return;
    }
    let ready = [&[4, 0, 0, 0, 4, 0, 0, 0], &greeting[40..]].concat();
    if stream.write_all(&ready).is_err() || stream.read_exact(&mut request).is_err() {
        return;
    }
    requests.fetch_add(1, Ordering::Relaxed);
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
