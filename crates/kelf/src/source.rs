//! The source tree from which a kernel was built.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::build_dir::KernelBuild;
use crate::error::{Error, Result};

/// The file in which Kconfig records its environment, relative to the build directory.
const ENVIRONMENT: &str = "include/config/auto.conf.cmd";

/// The source tree of a build.
#[derive(Clone, Debug)]
pub struct SourceTree {
    /// Its absolute path.
    pub dir: PathBuf,
    /// The variables of the environment that Kconfig files refer to.
    pub environment: BTreeMap<String, String>,
}

impl SourceTree {
    /// Finds the source tree of a build: the link `source` of a build in another directory, or the recorded path.
    ///
    /// # Errors
    /// [`Error::Build`] if it is not there.
    pub fn of(build: &KernelBuild) -> Result<SourceTree> {
        let environment = match fs::read(build.dir.join(ENVIRONMENT)) {
            Ok(bytes) => recorded_environment(&String::from_utf8_lossy(&bytes)),
            Err(_) => BTreeMap::new(),
        };
        let dir = find(&build.dir, environment.get("srctree").map(String::as_str))?;
        Ok(SourceTree { dir, environment })
    }
}

fn find(build: &Path, recorded: Option<&str>) -> Result<PathBuf> {
    let candidates =
        [Some(build.join("source")), recorded.map(|path| build.join(path)), Some(build.to_path_buf())];
    let is_tree = |path: &PathBuf| path.join("Kconfig").is_file() && path.join("Makefile").is_file();
    let found = candidates.into_iter().flatten().find(is_tree).and_then(|path| fs::canonicalize(path).ok());
    found.ok_or_else(|| Error::Build {
        path: recorded.map_or(build.join("source"), |path| build.join(path)),
        problem: format!(
            "not the source tree of a kernel; expected Kconfig and Makefile there, because the kernel in {} was built \
             from it",
            build.display()
        ),
        advice: "put the tree back, or build the kernel again".to_owned(),
    })
}

/// Returns the variables that Kconfig recorded: `ifneq "$(ARCH)" "i386"`.
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
