//! Commands built on `kcli`, run as processes: messages, exit codes, pipes.
//!
//! This program plays both roles: started with `KCLI_TEST_CHILD` it is the command, otherwise it runs itself that way
//! and checks the results.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Output as Finished, Stdio};
use std::thread;
use std::time::Duration;

use kcli::scratch::run_shell;
use kcli::{Failure, OrBadInput, Output, Progress, is_piped_stdin, read_input};

const CHILD: &str = "KCLI_TEST_CHILD";

fn main() -> ExitCode {
    match std::env::var(CHILD) {
        Ok(job) => kcli::main("child", || child(&job)),
        Err(_) => {
            errors();
            events();
            closed_pipe();
            standard_input();
            output_files();
            interrupted_output();
            println!("kcli: all commands behaved");
            ExitCode::SUCCESS
        }
    }
}

fn child(job: &str) -> Result<(), Failure> {
    let mut output = Output::stdout();
    match job {
        "nothing" => {}
        "job" => Err(io::Error::other("no room"))?,
        "bad" => Err(io::Error::other("no sense")).or_bad_input()?,
        "stdin" => write!(output, "{}", is_piped_stdin())?,
        "copy" => output.write_all(&read_input(Path::new("-"))?)?,
        "flood" => (0..100_000).try_for_each(|line| writeln!(output, "line {line}"))?,
        "shell" => drop(run_shell("exit 0", "child", Path::new("."))?),
        "progress" => {
            let progress = Progress::spinner("working");
            progress.message("still working");
            progress.note("a note");
            Progress::bar(10, "objects").advance(5);
        }
        path => {
            let mut file = Output::create(Path::new(path))?;
            file.write_all(b"content")?;
            // A parent with a pipe ends it by a signal meanwhile.
            read_input(Path::new("-"))?;
            file.commit()?;
        }
    }
    Ok(output.commit()?)
}

fn command(job: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, job).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let Finished { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn errors() {
    assert_eq!(finish(&mut command("nothing")), (Some(0), "".into(), "".into()));
    let job = (Some(1), "".into(), "child: error: no room\n".into());
    assert_eq!(finish(&mut command("job")), job);
    let bad = (Some(2), "".into(), "child: error: no sense\n".into());
    assert_eq!(finish(&mut command("bad")), bad);
    // Standard error is a pipe here, so no progress appears.
    assert_eq!(finish(&mut command("progress")), (Some(0), "".into(), "".into()));
}

fn events() {
    let logged = |filter: &str| finish(command("shell").env("KSHRINK_LOG", filter));
    assert_eq!(logged(""), (Some(0), "".into(), "".into()));
    assert_eq!(logged("kopt=debug"), (Some(0), "".into(), "".into()));
    let (status, stdout, stderr) = logged("info");
    assert_eq!((status, stdout), (Some(0), String::new()));
    assert!(stderr.contains(r#" INFO command{line="sh" "-c" "exit 0" "child" "."}: "#), "{stderr}");
    for wrong in ["kopt=loud", "verbose", "info,kopt"] {
        let (status, stdout, stderr) = logged(wrong);
        assert_eq!((status, stdout.as_str(), stderr.lines().count()), (Some(2), "", 1));
        assert!(stderr.starts_with(&format!("child: error: KSHRINK_LOG={wrong} ")), "{stderr}");
    }
}

fn closed_pipe() {
    let mut running = command("flood").spawn().unwrap();
    let mut first = [0; 6];
    running.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"line 0");
    // The pipe is closed now.
    let finished = running.wait_with_output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    assert!(finished.stderr.is_empty(), "{finished:?}");
}

fn standard_input() {
    let stdin = |input: Stdio| finish(command("stdin").stdin(input)).1;
    assert_eq!(stdin(Stdio::null()), "false");
    assert_eq!(stdin(File::open(std::env::current_exe().unwrap()).unwrap().into()), "true");
    let mut running = command("copy").stdin(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"plan").unwrap();
    assert_eq!(running.wait_with_output().unwrap().stdout, b"plan");
    let mut running = command("stdin").stdin(Stdio::piped()).spawn().unwrap();
    drop(running.stdin.take());
    assert_eq!(running.wait_with_output().unwrap().stdout, b"true");
}

fn output_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    assert_eq!(finish(&mut command(path.to_str().unwrap())).0, Some(0));
    assert_eq!(fs::read(&path).unwrap(), b"content");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let (code, _, message) = finish(&mut command("/nonexistent/out"));
    assert_eq!(code, Some(1));
    assert!(message.starts_with("child: error: cannot write /nonexistent/out: "), "{message}");
    let (code, output, _) = finish(&mut command("-"));
    assert_eq!((code, &output[..]), (Some(0), "content"));
}

fn interrupted_output() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let directory = tempfile::tempdir().unwrap();
        // A shell ignores SIGINT in background commands.
        let mut running = Command::new("env");
        running.arg("--default-signal=INT,TERM,HUP").arg(std::env::current_exe().unwrap());
        let mut running =
            running.env(CHILD, directory.path().join("out")).stdin(Stdio::piped()).spawn().unwrap();
        // It waits for the end of its input, which wait() would close.
        let _input = running.stdin.take();
        while fs::read_dir(directory.path()).unwrap().count() == 0 {
            assert_eq!(running.try_wait().unwrap(), None);
            thread::sleep(Duration::from_millis(5));
        }
        let signal = Command::new("sh").args(["-c", &format!("kill -{name} {}", running.id())]).status();
        assert!(signal.unwrap().success());
        assert_eq!(running.wait().unwrap().signal(), Some(number), "SIG{name}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "SIG{name}");
    }
}
