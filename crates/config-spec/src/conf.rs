//! Kconfig of a build: the configuration that it makes of a `.config` with changes.
//!
//! The kernel's own `scripts/kconfig/conf --olddefconfig` decides, because only Kconfig knows what depends on what. It
//! runs on a copy of `.config` in a temporary directory with the environment that make gave it
//! (`include/config/auto.conf.cmd`), so that the build directory is only read. A call takes seconds, most of them for
//! the compiler checks in Kconfig files. The server ([`crate::server`]) makes these once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use kcli::Failure;
use kcli::scratch::ScratchDir;

use crate::config::{Change, Closure, Config, changed};
use crate::server::Server;
use crate::tree::Tree;

/// Variables of the caller's environment that programs need to start.
const INHERITED: [&str; 3] = ["PATH", "HOME", "TMPDIR"];

/// Kconfig of a build.
pub struct Conf<'a> {
    tree: &'a Tree,
    path: PathBuf,
    program: Vec<u8>,
    /// The server, after the first question; `None` inside if it cannot be made or has failed.
    server: Mutex<OnceCell<Option<Server>>>,
}

impl<'a> Conf<'a> {
    /// Finds the program `conf` of a build.
    ///
    /// # Errors
    /// Bad input if it is not there.
    pub fn new(tree: &'a Tree) -> Result<Conf<'a>, Failure> {
        let path = tree.build.join("scripts/kconfig/conf");
        let program = fs::read(&path).map_err(|error| {
            Failure::bad_input(format!(
                "{}: cannot read it: {error}; expected the program of Kconfig that the build made; run `make \
                 olddefconfig` in the build directory as for the build, or give --quick to list options without what \
                 goes with them",
                path.display()
            ))
        })?;
        Ok(Conf { tree, path, program, server: Mutex::default() })
    }

    /// The text of the build's `.config`.
    pub fn text(&self) -> &str {
        &self.tree.text
    }

    /// The program.
    pub fn program(&self) -> &[u8] {
        &self.program
    }

    /// The variables of the environment that Kconfig files refer to.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.tree.environment
    }

    /// Checks that Kconfig changes nothing if no option is changed.
    ///
    /// # Errors
    /// Bad input if it changes something.
    pub fn check(&self) -> Result<(), Failure> {
        let changes = self.tree.config.changes(&self.answer(&self.tree.text)?);
        if changes.is_empty() {
            return Ok(());
        }
        let mut some: Vec<String> = Vec::new();
        for (name, new) in changes.iter().take(3) {
            let old = self.tree.config.value(name);
            let value = |value: &str| if value.is_empty() { "not set".to_owned() } else { value.to_owned() };
            some.push(format!("CONFIG_{name} from {} to {}", value(old), value(new)));
        }
        Err(Failure::bad_input(format!(
            "{}: `conf --olddefconfig` changes {} options of the configuration as it is ({}), so the effect of one \
             option cannot be told; use the compiler and tools of the build, or run `make olddefconfig` and build again",
            self.tree.build.join(".config").display(),
            changes.len(),
            some.join(", ")
        )))
    }

    /// Returns the changes when an option is set to `n`; `None` if it stays.
    ///
    /// # Errors
    /// Bad input if Kconfig rejects its files.
    pub fn closure(&self, option: &str) -> Result<Option<Closure>, Failure> {
        let changes = self.changes(&[(option, "n")])?;
        Ok(changes.get(option).is_some_and(String::is_empty).then_some(changes))
    }

    /// Returns the changes when options get other values. Kconfig may keep some of them, or change them further.
    ///
    /// # Errors
    /// Bad input if Kconfig rejects its files.
    pub fn changes(&self, changes: &[Change<'_>]) -> Result<Closure, Failure> {
        Ok(self.tree.config.changes(&self.answer(&changed(&self.tree.text, changes))?))
    }

    /// Returns the configuration that Kconfig makes of a `.config`, from the server if there is one.
    fn answer(&self, text: &str) -> Result<Config, Failure> {
        let mut server =
            self.server.lock().map_err(|_| Failure::job("a thread that asked Kconfig failed"))?;
        server.get_or_init(|| Server::start(&self.tree.build, |command| self.prepare(command)));
        if let Some(Some(running)) = server.get_mut() {
            if let Some(config) = running.answer(text) {
                return Ok(config);
            }
            *server = OnceCell::from(None);
        }
        drop(server);
        self.run(text)
    }

    /// Returns the configuration that `conf --olddefconfig` makes of a `.config`.
    fn run(&self, text: &str) -> Result<Config, Failure> {
        let directory = ScratchDir::new_in(&std::env::temp_dir(), "config-spec-")?;
        let file = directory.path().join(".config");
        fs::write(&file, text)?;
        let mut command = Command::new(&self.path);
        command
            .args(["--olddefconfig", "Kconfig"])
            .current_dir(directory.path())
            .env("KCONFIG_CONFIG", &file);
        self.prepare(&mut command);
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            Failure::bad_input(format!(
                "{}: cannot run it: {error}; expected the program of Kconfig; run `make olddefconfig` in the build \
                 directory to build it again",
                self.path.display()
            ))
        })?;
        if !output.status.success() {
            return Err(self.rejected(&output));
        }
        Ok(Config::parse(&String::from_utf8_lossy(&fs::read(&file)?)))
    }

    /// Gives a program of Kconfig the environment of the build, except the name of its `.config`.
    fn prepare(&self, command: &mut Command) {
        let file = command.get_envs().find(|(name, _)| *name == "KCONFIG_CONFIG");
        let file = file.and_then(|(_, value)| value).map(ToOwned::to_owned);
        command.env_clear();
        command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&self.tree.environment).env("LC_ALL", "C");
        command.env("srctree", &self.tree.source).env("SRCARCH", &self.tree.arch);
        command.envs(file.map(|file| ("KCONFIG_CONFIG", file)));
    }

    fn rejected(&self, output: &Output) -> Failure {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(3).collect();
        Failure::bad_input(format!(
            "{}: conf does not accept the Kconfig files ({}): {}; expected the source tree that the kernel was built \
             from; put it back, or give --quick",
            self.tree.source.join("Kconfig").display(),
            output.status,
            said.join("; ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use kelf::KernelBuild;
    use kshrink_tests::recipe;

    use super::*;

    /// The options are idle, have others that go with them, are selected by others, or bring others.
    #[test]
    fn server_answers_as_conf_does() {
        let vmlinux = recipe("kernels/build.sh", &["web-i386"]).join("vmlinux");
        let tree = Tree::find(&KernelBuild::find(&vmlinux).expect("a build")).expect("a tree");
        let (with, without) = (Conf::new(&tree).expect("conf"), Conf::new(&tree).expect("conf"));
        without.server.lock().expect("a lock").set(None).unwrap_or_else(|_| panic!("a server"));
        with.check().expect("the same configuration");
        for option in ["NET", "TIMERFD", "CRC32", "PERF_EVENTS_INTEL_UNCORE", "BLOCK"] {
            assert_eq!(with.closure(option).expect("an answer"), without.closure(option).expect("an answer"));
        }
        // The server keeps nothing of the questions before.
        with.check().expect("the same configuration");
        assert!(with.server.lock().expect("a lock").get().is_some_and(Option::is_some), "no server");
    }
}
