//! The source tree of a build, and the environment that make gave to the programs of Kconfig.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kcli::Failure;
use kelf::KernelBuild;

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
        let environment = match fs::read(dir.join("include/config/auto.conf.cmd")) {
            Ok(bytes) => recorded_environment(&String::from_utf8_lossy(&bytes)),
            Err(_) => BTreeMap::new(),
        };
        let source = source(dir, environment.get("srctree").map(String::as_str))?;
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

/// Finds the source tree: the link `source` of a build in another directory, or the recorded path.
fn source(build: &Path, recorded: Option<&str>) -> Result<PathBuf, Failure> {
    let candidates =
        [Some(build.join("source")), recorded.map(|path| build.join(path)), Some(build.to_path_buf())];
    let is_tree = |path: &PathBuf| path.join("Kconfig").is_file() && path.join("Makefile").is_file();
    let found = candidates.into_iter().flatten().find(is_tree).and_then(|path| fs::canonicalize(path).ok());
    found.ok_or_else(|| {
        let source = recorded.map_or(build.join("source"), |path| build.join(path));
        Failure::bad_input(format!(
            "{}: not the source tree of a kernel; expected Kconfig and Makefile there, because the kernel in {} was \
             built from it; put the tree back, or build the kernel again",
            source.display(),
            build.display()
        ))
    })
}

/// Returns the variables of the environment that `include/config/auto.conf.cmd` records: `ifneq "$(ARCH)" "i386"`.
fn recorded_environment(text: &str) -> BTreeMap<String, String> {
    let recorded = |line: &str| {
        let (name, value) = line.strip_prefix("ifneq \"$(")?.split_once(")\" \"")?;
        Some((name.to_owned(), value.strip_suffix('"')?.to_owned()))
    };
    text.lines().filter_map(recorded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_what_kconfig_recorded() {
        let text = "deps_config := \\\n\tKconfig \\\n\nifneq \"$(CC)\" \"gcc -m32\"\n$(autoconfig): FORCE\nendif\n\
                    ifneq \"$(X)\" \"\"\nifneq \"$(Y\n";
        let found = recorded_environment(text);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("CC".into(), "gcc -m32".into()), ("X".into(), String::new())]
        );
    }
}
