//! The paths of commands, fixtures, caches, and the outputs of recipes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::Run;

/// Returns cargo's build directory, `target/`.
pub fn target_dir() -> PathBuf {
    // Tests run as target/PROFILE/deps/NAME-HASH.
    let test = std::env::current_exe().expect("the path of this test");
    test.ancestors().nth(3).expect("tests are in target/PROFILE/deps").to_path_buf()
}

/// Returns the path of one of the workspace's commands, as built by `make build`. Panics if it is missing or older than
/// its sources.
pub fn command(name: &str) -> PathBuf {
    static CHECKED: Mutex<BTreeMap<String, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let path = target_dir().join("release").join(name);
    let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    let result = checked.entry(name.to_owned()).or_insert_with(|| check_built(&path)).clone();
    drop(checked);
    result.unwrap_or_else(|problem| panic!("{problem}; run make build"));
    path
}

/// Checks that a command is not older than its sources, which cargo lists in a file beside it.
fn check_built(command: &Path) -> Result<(), String> {
    let modified = |path: &Path| {
        let time = fs::metadata(path).and_then(|metadata| metadata.modified());
        time.map_err(|error| format!("{}: {error}", path.display()))
    };
    let built = modified(command)?;
    let list = command.with_extension("d");
    let rule = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    // A rule of make, `COMMAND: SOURCE…`, with a backslash before each space of a name.
    let sources = rule.split_once(": ").map_or("", |(_, sources)| sources).replace("\\ ", "\0");
    for source in sources.split_whitespace().map(|source| source.replace('\0', " ")) {
        if modified(Path::new(&source))? > built {
            return Err(format!("{} is older than {source}", command.display()));
        }
    }
    Ok(())
}

/// A file or directory of `fixtures/`.
pub fn fixture(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("fixtures").join(path);
    assert!(path.exists(), "{} is missing", path.display());
    path
}

/// Returns the directory where recipes keep downloads and builds.
pub fn cache_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("KSHRINK_CACHE")
        .or_else(|| Some(variable("HOME")?.join(".cache/kshrink")))
        .expect("a home directory, or KSHRINK_CACHE")
}

/// Runs a recipe of `fixtures/`, and returns the path that it prints last. A recipe whose output exists takes no time;
/// one that builds a kernel takes minutes.
pub fn recipe(path: &str, arguments: &[&str]) -> PathBuf {
    let run = Run::new(fixture(path)).args(arguments).limit(Duration::from_secs(1800));
    let outcome = run.succeed();
    PathBuf::from(outcome.text().lines().last().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn old_commands_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [command, source] = ["tool", "a source.rs"].map(|name| dir.path().join(name));
        let escaped = source.display().to_string().replace(' ', "\\ ");
        fs::write(dir.path().join("tool.d"), format!("{}: {escaped}\n", command.display())).unwrap();
        let now = SystemTime::now();
        for (path, age) in [(&command, 10), (&source, 20)] {
            File::create(path).unwrap().set_modified(now - Duration::from_secs(age)).unwrap();
        }
        assert_eq!(check_built(&command), Ok(()));
        File::options().write(true).open(&source).unwrap().set_modified(now).unwrap();
        let problem = format!("{} is older than {}", command.display(), source.display());
        assert_eq!(check_built(&command), Err(problem));
        fs::remove_file(&command).unwrap();
        assert!(check_built(&command).is_err_and(|problem| problem.contains("No such file")));
    }
}
