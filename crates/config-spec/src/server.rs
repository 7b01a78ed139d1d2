//! Kconfig as a server: it parses the Kconfig files once, and then answers many questions.
//!
//! The server is a small program (`server.c`) that is linked with the objects of the build's own `conf`, so that its
//! answers are those of `conf --olddefconfig`. The record of the link of `conf` has the compiler and the objects. Without
//! these, or if anything fails, there is no server, and `conf` runs for each question.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use kcli::scratch::ScratchDir;

use crate::config::Config;

/// The source of the server.
const SOURCE: &str = include_str!("server.c");

/// The record of the link of `conf`, and its object with `main`, in the build directory.
const RECORD: &str = "scripts/kconfig/.conf.cmd";
const MAIN: &str = "scripts/kconfig/conf.o";

/// A running server. Dropping it ends the process.
pub struct Server {
    directory: ScratchDir,
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Server {
    /// Makes and starts the server of a build directory. `prepare` sets the environment of Kconfig.
    pub fn start(build: &Path, prepare: impl Fn(&mut Command)) -> Option<Server> {
        let directory = ScratchDir::new_in(&std::env::temp_dir(), "config-spec-").ok()?;
        let program = directory.path().join("server");
        link(build, &program)?;
        let mut command = Command::new(&program);
        command.arg("Kconfig").current_dir(directory.path());
        command.env("KCONFIG_CONFIG", directory.path().join(".config"));
        prepare(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let (questions, answers) = (child.stdin.take(), BufReader::new(child.stdout.take()?));
        let mut server = Server { directory, child, questions, answers };
        server.succeeds().then_some(server)
    }

    /// Returns the configuration that Kconfig makes of a `.config`; `None` if the server fails.
    pub fn answer(&mut self, text: &str) -> Option<Config> {
        let file = self.directory.path().join(".config");
        fs::write(&file, text).ok()?;
        self.questions.as_mut()?.write_all(b"\n").ok()?;
        self.succeeds().then_some(())?;
        Some(Config::parse(&String::from_utf8_lossy(&fs::read(&file).ok()?)))
    }

    /// Waits for an answer, and returns whether it is success.
    fn succeeds(&mut self) -> bool {
        let mut line = String::new();
        self.answers.read_line(&mut line).is_ok() && line == "0\n"
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.questions = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Links the server; `None` if that is not possible.
fn link(build: &Path, program: &Path) -> Option<()> {
    let record = fs::read_to_string(build.join(RECORD)).ok()?;
    let arguments = arguments(&record)?;
    let (compiler, arguments) = arguments.split_first()?;
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(program).current_dir(build);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(SOURCE.as_bytes()));
    let status = child.wait().ok()?;
    written?.ok()?;
    status.success().then_some(())
}

/// Returns the command line that links the server, without the output, from the record of the link of `conf`.
/// Standard input, the source, takes the place of the object with `main`.
fn arguments(record: &str) -> Option<Vec<&str>> {
    let (_, command) = record.lines().next()?.split_once(":=")?;
    let mut words = command.split_whitespace();
    let mut arguments = Vec::new();
    let mut has_main = false;
    while let Some(word) = words.next() {
        match word {
            "-o" => drop(words.next()?),
            MAIN => {
                has_main = true;
                arguments.extend(["-x", "c", "-", "-x", "none"]);
            }
            word => arguments.push(word),
        }
    }
    has_main.then_some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_conf_becomes_that_of_the_server() {
        let record = "savedcmd_scripts/kconfig/conf := gcc -O2  -o scripts/kconfig/conf scripts/kconfig/conf.o a.o -lx \n";
        let expected = ["gcc", "-O2", "-x", "c", "-", "-x", "none", "a.o", "-lx"];
        assert_eq!(arguments(record).expect("a command"), expected);
        assert!(arguments("cmd_conf := gcc -o conf a.o\n").is_none() && arguments("").is_none());
    }
}
