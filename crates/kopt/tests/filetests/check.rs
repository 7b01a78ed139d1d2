//! Trials, one for each file: the output of a case is compared with the expected output.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use similar::TextDiff;

use crate::case::Case;
use crate::run;

/// The end of the name of a file with a case.
const EXTENSION: &str = ".test";

/// Returns a trial for each file in the directories of `cases`, a path in the package. Its name is `PASS/CASE`.
pub fn trials(cases: &str) -> Vec<Trial> {
    let target = Path::new(cases).file_name().unwrap_or_default().to_string_lossy();
    let mut trials = Vec::new();
    for pass in directories(cases) {
        let directory = root(cases).join(&pass);
        for name in names(&directory) {
            let case = format!("{pass}/{}", name.trim_end_matches(EXTENSION));
            let advice = format!("KSHRINK_BLESS=1 cargo test -p kopt --test {target} {case}");
            let (pass, path) = (pass.clone(), directory.join(name));
            trials.push(Trial::test(case, move || file(&path, &pass, &advice).map_err(Failed::from)));
        }
    }
    trials
}

/// The names of the directories of passes, sorted. Only the sources of the tests lie beside them.
pub fn directories(cases: &str) -> Vec<String> {
    names(&root(cases)).into_iter().filter(|name| !name.ends_with(".rs")).collect()
}

/// The directory of cases, given its path in the package.
pub fn root(cases: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(cases)
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().expect("a name in UTF-8")).collect();
    names.sort();
    names
}

/// Runs a file of a pass. With `KSHRINK_BLESS=1`, writes the new output into it.
fn file(path: &Path, pass: &str, advice: &str) -> Result<(), String> {
    if !path.to_string_lossy().ends_with(EXTENSION) {
        return Err(format!("expected a file CASE{EXTENSION}"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case = Case::parse(&text, kopt::pass(pass)?)?;
    let found = case.with(&run::run(&case)?);
    if found == text {
        return Ok(());
    }
    if std::env::var_os("KSHRINK_BLESS").is_some_and(|value| value == "1") {
        return fs::write(path, found).map_err(|error| error.to_string());
    }
    let diff = TextDiff::from_lines(&text, &found);
    let diff = diff.unified_diff().context_radius(5).header("expected", "found").to_string();
    Err(format!("not what is expected; if it is right, bless it with `{advice}`\n{diff}"))
}
