//! The paths of commands, fixtures, caches, and the outputs of recipes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Run;

/// Returns cargo's build directory, `target/`.
pub fn target_dir() -> PathBuf {
    // Tests run as target/PROFILE/deps/NAME-HASH.
    let test = std::env::current_exe().expect("the path of this test");
    test.ancestors().nth(3).expect("tests are in target/PROFILE/deps").to_path_buf()
}

/// Returns the path of one of the workspace's commands, as built by `cargo build --release`.
pub fn command(name: &str) -> PathBuf {
    let path = target_dir().join("release").join(name);
    assert!(path.is_file(), "{} is missing; run `cargo build --release` first", path.display());
    path
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
