//! Filters at work: a program does its job under its own profile, and a program that does something else is stopped. A
//! small program around libseccomp installs the profile, like a container runtime. `systemd-analyze verify` checks the
//! lines for systemd units.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{Machine, busybox, compile, fixture, package, scan};
use serde_json::Value;
use tempfile::TempDir;

/// The signal that ends a process for a forbidden call.
const SIGSYS: i32 = 31;

/// Jobs for BusyBox; together they use files, processes, pipes, sockets, signals, clocks and terminals.
const JOBS: [&str; 12] = [
    "echo hello; printf '%s\\n' a b c | sort -r | head -n 2",
    "ls -la / >list; wc -l <list; grep -c bin list",
    "for i in 1 2 3; do echo $i; done | while read n; do expr $n + 1; done",
    "mkdir d; cp list d; tar cf d.tar d; gzip d.tar; zcat d.tar.gz | tar tf -; rm -r d",
    "find /etc -maxdepth 1 -name 'host*' | sort; stat -c %s /etc/hosts",
    "sha256sum /etc/passwd; md5sum </etc/passwd; cat /proc/self/comm; id -u",
    "sleep 0; date +%Y >/dev/null; uptime >/dev/null; ps >/dev/null; df / >/dev/null; free >/dev/null",
    "awk 'BEGIN { print 6 * 7 }'; sed s/a/b/ </etc/hosts | wc -l; cut -d: -f1 /etc/passwd | head -n 1",
    "trap 'echo caught' USR1; kill -USR1 $$; (exit 3); echo $?",
    "ln -s x y; readlink y; touch x; chmod 600 x; mv x z; dd if=/dev/zero of=z bs=1k count=4 2>/dev/null; du z",
    "ifconfig lo >/dev/null 2>&1; ip addr show lo | grep -c LOOPBACK; hostname >/dev/null; nice -n 1 true",
    "timeout 5 true; echo $?; env -i A=b sh -c 'echo $A'; seq 3 | xargs echo; vi -c q /dev/null </dev/null >/dev/null 2>&1; true",
];

struct Confined {
    directory: TempDir,
    confine: PathBuf,
}

impl Confined {
    fn new() -> Confined {
        let directory = tempfile::tempdir().unwrap();
        let confine = directory.path().join("confine");
        let output = Command::new("gcc")
            .args(["-O2", "-o"])
            .args([&confine, &fixture("confine.c")])
            .arg("-lseccomp")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}; libseccomp is in Debian's package libseccomp-dev");
        Confined { directory, confine }
    }

    /// Writes the rules of a program's profile.
    fn rules(&self, program: &Path, options: &[&str]) -> PathBuf {
        let path = self.directory.path().join("rules");
        let output = scan(&[&["--format", "seccomp", program.to_str().unwrap()], options].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        fs::write(&path, rules(&serde_json::from_slice(&output.stdout).unwrap())).unwrap();
        path
    }

    fn run(&self, rules: &Path, program: &Path, arguments: &[&str]) -> Output {
        let work = tempfile::tempdir_in(self.directory.path()).unwrap();
        let mut command = Command::new(&self.confine);
        command.arg(rules).arg(program).args(arguments).current_dir(work.path());
        command.output().unwrap()
    }
}

/// Converts a profile to the syntax of `confine.c`.
fn rules(profile: &Value) -> String {
    let default = match profile["defaultAction"].as_str().unwrap() {
        "SCMP_ACT_ERRNO" => "errno",
        "SCMP_ACT_KILL_PROCESS" => "kill",
        other => panic!("{other}"),
    };
    let mut text = format!("default {default}\n");
    for architecture in profile["architectures"].as_array().unwrap() {
        let name = architecture.as_str().unwrap().strip_prefix("SCMP_ARCH_").unwrap().to_lowercase();
        let _ = writeln!(text, "arch {name}");
    }
    for rule in profile["syscalls"].as_array().unwrap() {
        assert_eq!(rule["action"], "SCMP_ACT_ALLOW");
        for name in rule["names"].as_array().unwrap() {
            let _ = write!(text, "allow {}", name.as_str().unwrap());
            for condition in rule["args"].as_array().into_iter().flatten() {
                let _ = match condition["op"].as_str().unwrap() {
                    "SCMP_CMP_EQ" => write!(text, " {} eq {}", condition["index"], condition["value"]),
                    "SCMP_CMP_MASKED_EQ" => {
                        let [index, mask, value] = ["index", "value", "valueTwo"].map(|key| &condition[key]);
                        write!(text, " {index} masked {mask} {value}")
                    }
                    other => panic!("{other}"),
                };
            }
            text.push('\n');
        }
    }
    text
}

fn stopped(output: &Output) -> bool {
    output.status.signal() == Some(SIGSYS)
}

#[test]
fn busybox_does_its_job() {
    let confined = Confined::new();
    for machine in Machine::ALL {
        let busybox = busybox(machine);
        for options in [&["--action", "kill"][..], &["--action", "kill", "--args"]] {
            let rules = confined.rules(&busybox, options);
            for job in JOBS {
                let job = format!("PATH=; {job}");
                let free = tempfile::tempdir().unwrap();
                let mut alone = Command::new(&busybox);
                let alone = alone.args(["sh", "-c", &job]).current_dir(free.path()).output().unwrap();
                let output = confined.run(&rules, &busybox, &["sh", "-c", &job]);
                let what = format!("{} {options:?}: {job}", machine.abi());
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(output.status, alone.status, "{what}: {}", text(&output.stderr));
                assert_eq!(text(&output.stdout), text(&alone.stdout), "{what}");
                assert_eq!(text(&output.stderr), text(&alone.stderr), "{what}");
            }
        }
    }
}

/// Programs of this machine, with their libraries.
#[test]
fn dynamic_programs_do_their_job() {
    let confined = Confined::new();
    let jobs: [(&str, &[&str]); 4] = [
        ("/bin/cat", &["/etc/passwd", "/etc/hosts"]),
        ("/bin/ls", &["-la", "/etc"]),
        ("/usr/bin/sort", &["-r", "/etc/passwd"]),
        ("/bin/date", &["-d", "@0", "+%c"]),
    ];
    for (program, arguments) in jobs {
        let program = Path::new(program);
        for options in [&["--action", "kill"][..], &["--action", "kill", "--args"]] {
            // Libraries loaded by name may leave places unresolved that no test reaches.
            let rules = confined.rules(program, &[options, &["--allow-incomplete"]].concat());
            let alone = Command::new(program).args(arguments).output().unwrap();
            let output = confined.run(&rules, program, arguments);
            assert_eq!(output.status, alone.status, "{}", program.display());
            assert_eq!(output.stdout, alone.stdout, "{}", program.display());
        }
    }
}

/// A Debian server that runs under its own profile, and is ended on drop.
struct Server(Child);

impl Server {
    /// Starts a program of a root with the root's own loader and libraries.
    fn start(confined: &Confined, rules: &Path, root: &Path, program: &str, arguments: &[&str]) -> Server {
        let mut command = Command::new(&confined.confine);
        command.arg(rules).arg(root.join("lib64/ld-linux-x86-64.so.2")).arg("--library-path");
        command.arg(root.join("usr/lib/x86_64-linux-gnu")).arg(root.join(program)).args(arguments);
        Server(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Asks until the server answers.
    fn ask<T>(&mut self, question: impl Fn() -> std::io::Result<T>) -> T {
        for _ in 0..600 {
            if let Ok(answer) = question() {
                return answer;
            }
            let ended = self.0.try_wait().unwrap();
            assert!(ended.is_none(), "the server has ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not answer");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request and reads the answer until it ends with `end`, or the stream ends.
fn talk(mut stream: impl Read + Write, request: &str, end: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer);
        if count == 0 || text.ends_with(end) {
            return Ok(text.into_owned());
        }
    }
}

#[test]
fn nginx_does_its_job() {
    let confined = Confined::new();
    let root = package("scan/programs.packages", Machine::X86_64);
    let options = ["--root", root.to_str().unwrap(), "--action", "kill", "--args", "--allow-incomplete"];
    let rules = confined.rules(Path::new("/usr/sbin/nginx"), &options);
    let here = confined.directory.path().to_str().unwrap().to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::write(format!("{here}/page.html"), "hello").unwrap();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {here}/{name};")).concat();
    // One process: to change its user, the server would read this machine's lists of users and load the libraries
    // configured for that here.
    let configuration = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/log; events {{}}
         http {{ access_log {here}/access; {temporary}
                 server {{ listen 127.0.0.1:{port}; root {here}; gzip on; gzip_types text/plain; }} }}"
    );
    fs::write(format!("{here}/conf"), configuration).unwrap();
    let arguments = ["-e", &format!("{here}/log"), "-c", &format!("{here}/conf")];
    let mut server = Server::start(&confined, &rules, &root, "usr/sbin/nginx", &arguments);
    for (path, more, expected) in [
        ("page.html", "", "200"),
        ("page.html", "Range: bytes=1-2\r\n", "206"),
        ("page.html", "Accept-Encoding: gzip\r\n", "200"),
        ("none", "", "404"),
    ] {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
        let answer = server.ask(|| talk(TcpStream::connect(("127.0.0.1", port))?, &request, ""));
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{request}: {answer}");
    }
    drop(server);
    // The same profile stops a program that does something else.
    let outside = confined.directory.path().join("outside");
    compile(Machine::X86_64, "outside.c", "-static -O2", &outside);
    assert!(stopped(&confined.run(&rules, &outside, &[])));
}

#[test]
fn redis_does_its_job() {
    let confined = Confined::new();
    let root = package("scan/programs.packages", Machine::X86_64);
    // Calls of a library with unknown numbers fail without harm.
    let options = ["--root", root.to_str().unwrap(), "--args", "--allow-incomplete"];
    let rules = confined.rules(Path::new("/usr/bin/redis-server"), &options);
    let here = confined.directory.path().to_str().unwrap().to_owned();
    let socket = format!("{here}/socket");
    let arguments = ["--port", "0", "--unixsocket", &socket, "--dir", &here, "--appendonly", "yes"];
    let mut server = Server::start(&confined, &rules, &root, "usr/bin/redis-server", &arguments);
    for (command, expected) in [
        ("SET key value", "+OK"),
        ("GET key", "$5\r\nvalue"),
        ("RPUSH list c a b", ":3"),
        ("LRANGE list 0 0", "*1\r\n$1\r\nc"),
        ("EVAL \"return redis.call('get','key')\" 0", "$5\r\nvalue"),
        ("SAVE", "+OK"),
        ("BGREWRITEAOF", "+Background append only file rewriting started"),
        ("DEL key list", ":2"),
    ] {
        let answer = server.ask(|| talk(UnixStream::connect(&socket)?, &format!("{command}\r\n"), "\r\n"));
        assert_eq!(answer.trim_end(), expected, "{command}");
    }
    assert!(fs::exists(format!("{here}/dump.rdb")).unwrap());
    // The server closes the connection and exits successfully.
    let _ = server.ask(|| talk(UnixStream::connect(&socket)?, "SHUTDOWN\r\n", ""));
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn what_is_outside_is_stopped() {
    let confined = Confined::new();
    let outside = confined.directory.path().join("outside");
    for machine in Machine::ALL {
        compile(machine, "outside.c", "-static -O2", &outside);
        let busybox = busybox(machine);
        let rules = confined.rules(&busybox, &["--action", "kill"]);
        assert!(stopped(&confined.run(&rules, &outside, &[])), "{machine:?}");
        let rules = confined.rules(&busybox, &[]);
        assert_eq!(confined.run(&rules, &outside, &[]).status.code(), Some(42), "{machine:?}");
        // Its own profile permits it.
        let rules = confined.rules(&outside, &["--action", "kill", "--args"]);
        assert_eq!(confined.run(&rules, &outside, &[]).status.code(), Some(0), "{machine:?}");
        // The same profile with the call in --also permits it.
        let rules = confined.rules(&busybox, &["--action", "kill", "--also", "lookup_dcookie,getpid"]);
        assert_eq!(confined.run(&rules, &outside, &[]).status.code(), Some(0), "{machine:?}");
    }
}

#[test]
fn other_arguments_are_stopped() {
    let confined = Confined::new();
    let [within, outside] = ["within", "outside"].map(|name| confined.directory.path().join(name));
    for machine in Machine::ALL {
        compile(machine, "outside.c", "-static -O2 -DWITHIN", &within);
        compile(machine, "outside.c", "-static -O2 -DOUTSIDE", &outside);
        let rules = confined.rules(&within, &["--args", "--action", "kill"]);
        assert_eq!(confined.run(&rules, &within, &[]).status.code(), Some(0), "{machine:?}");
        assert!(stopped(&confined.run(&rules, &outside, &[])), "{machine:?}");
        let rules = confined.rules(&within, &["--action", "kill"]);
        assert_eq!(confined.run(&rules, &outside, &[]).status.code(), Some(0), "{machine:?}");
    }
}

/// Returns the output of systemd for a unit with these lines in its service section.
fn verified(directory: &Path, lines: &str) -> String {
    let unit = directory.join("scanned.service");
    fs::write(&unit, format!("[Unit]\nDescription=Scanned\n[Service]\nExecStart=/bin/true\n{lines}"))
        .unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output();
    let output =
        output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; it is in Debian's package systemd"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // systemd-analyze also verifies the units of this machine that the unit depends on.
    let errors = String::from_utf8_lossy(&output.stderr);
    errors.lines().filter(|line| line.contains("scanned.service")).collect::<Vec<_>>().join("\n")
}

#[test]
fn systemd_understands_every_line() {
    let directory = tempfile::tempdir().unwrap();
    for machine in [Machine::I386, Machine::X86_64, Machine::Aarch64] {
        let busybox = busybox(machine);
        for action in ["errno", "kill"] {
            let arguments = ["--format", "systemd", "--action", action, busybox.to_str().unwrap()];
            let lines = String::from_utf8(scan(&arguments).stdout).unwrap();
            assert!(lines.starts_with("SystemCallFilter="), "{lines}");
            assert_eq!(verified(directory.path(), &lines), "", "{}: {lines}", machine.abi());
            // systemd-analyze reports an unknown call.
            let unknown = lines.replacen("=", "=no_such_call ", 1);
            assert!(verified(directory.path(), &unknown).contains("no_such_call"), "{}", machine.abi());
        }
    }
}
