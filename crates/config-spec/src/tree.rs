//! The source tree of a build, and the environment that make gave to the programs of Kconfig.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kcli::Failure;
use kelf::{KernelBuild, SourceTree};

use crate::config::Config;

/// The parts of a build that configuration depends on.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The build directory.
    pub build: PathBuf,
    /// The source tree.
    pub source: PathBuf,
    /// The directory of the machine below `arch/`.
    pub arch: String,
    /// The text of `.config`.
    pub text: String,
    /// The options of `.config`.
    pub config: Config,
    /// The variables of the environment that Kconfig files refer to, from `include/config/auto.conf.cmd`.
    pub environment: BTreeMap<String, String>,
}

impl Tree {
    /// Finds the source tree of a build and reads its configuration.
    ///
    /// # Errors
    /// Bad input if the build has no `.config`, or if its source tree is not there.
    pub fn find(build: &KernelBuild) -> Result<Tree, Failure> {
        let dir = &build.dir;
        let text =
            read(&dir.join(".config"), "the configuration of the kernel", "build the kernel there again")?;
        let arch = build.linker_script.iter().rev().nth(2).map(|arch| arch.to_string_lossy().into_owned());
        let SourceTree { dir: source, environment } = SourceTree::of(build).map_err(Failure::of)?;
        let config = Config::parse(&text);
        Ok(Tree { build: dir.clone(), source, arch: arch.unwrap_or_default(), text, config, environment })
    }
}

/// Reads a file of the build directory.
fn read(path: &Path, what: &str, advice: &str) -> Result<String, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Err(Failure::bad_input(format!(
            "{}: cannot read it: {error}; expected {what}; {advice}",
            path.display()
        ))),
    }
}
