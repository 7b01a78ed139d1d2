//! `make install` installs every command, with man pages that name all options and with completions, and
//! `make uninstall` removes all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kshrink_tests::{Run, command, fixture};

/// The directory of the workspace.
fn workspace() -> PathBuf {
    fixture("").parent().expect("fixtures/ is in the workspace").to_path_buf()
}

fn make(target: &str, destination: &Path) {
    let variable = format!("DESTDIR={}", destination.display());
    let built = command("kelf").ancestors().nth(2).expect("target/release/kelf").to_path_buf();
    let run = Run::new("make").dir(&workspace()).args([target, "PREFIX=/usr", &variable]);
    run.env("CARGO_TARGET_DIR", built).succeed();
}

/// Returns the commands: one for each package with a `main.rs`, named by its manifest or else like the package.
fn commands() -> BTreeSet<String> {
    let packages =
        fs::read_dir(workspace().join("crates")).expect("crates/").map(|entry| entry.expect("a crate"));
    let with_command = packages.filter(|entry| entry.path().join("src/main.rs").exists());
    let name = |entry: fs::DirEntry| {
        let manifest = read(&entry.path().join("Cargo.toml"));
        let named = manifest.split_once("[[bin]]\nname = \"").and_then(|(_, rest)| rest.split('"').next());
        named.map_or_else(|| entry.file_name().into_string().expect("UTF-8"), str::to_owned)
    };
    with_command.map(name).collect()
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the options and the subcommands that a help text lists. Their lines are indented by two to six spaces.
fn listed(help: &str) -> (BTreeSet<String>, Vec<String>) {
    let (mut options, mut subcommands, mut heading) = (BTreeSet::new(), Vec::new(), "");
    for line in help.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with(' ') {
            heading = line;
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let mut words = line.split_whitespace();
        match (heading, words.next()) {
            ("Options:", Some(word)) if indent <= 6 && word.starts_with('-') => {
                let names = line.split([' ', ',', '[', '=']).filter(|word| word.starts_with('-'));
                options.extend(names.take(2).map(|name| name.trim_end_matches('.').to_owned()));
            }
            ("Commands:", Some(word)) if indent == 2 && word != "help" => subcommands.push(word.to_owned()),
            _ => {}
        }
    }
    (options, subcommands)
}

/// Compares the man page of a command and its subcommands with their help. Returns the number of options.
fn check_pages(command: &Path, subcommands: &[&str], pages: &Path) -> usize {
    let help = Run::new(command).args(subcommands).arg("--help").succeed().text();
    let name = [&[command.file_name().expect("a name").to_str().expect("UTF-8")], subcommands].concat();
    let page = read(&pages.join(format!("{}.1", name.join("-")))).replace('\\', "");
    let (options, further) = listed(&help);
    assert!(options.contains("--help"), "{help}");
    for option in &options {
        assert!(page.contains(&format!("fB{option}fR")), "the man page of {name:?} does not name {option}");
    }
    let further =
        further.iter().map(|subcommand| check_pages(command, &[subcommands, &[subcommand]].concat(), pages));
    options.len() + further.sum::<usize>()
}

#[test]
fn everything_is_installed_and_taken_away() {
    let destination = tempfile::tempdir().expect("a temporary directory");
    make("install", destination.path());
    let prefix = destination.path().join("usr");
    let installed: BTreeSet<String> = files(&prefix.join("bin"))
        .iter()
        .map(|path| path.file_name().expect("a name").to_str().expect("UTF-8").to_owned())
        .collect();
    assert_eq!(installed, commands());
    for file in ["kshrink.mk", "kernel-places.sh", "trace.c", "allocations.c", "plugin.h"] {
        assert!(prefix.join("share/kshrink").join(file).is_file(), "share/kshrink/{file} is missing");
    }
    let mut options = 0;
    for name in &installed {
        let sections = Run::new("readelf").arg("-SW").arg(prefix.join("bin").join(name)).succeed().text();
        assert!(!sections.contains(".symtab"), "{name} has symbols");
        options += check_pages(&prefix.join("bin").join(name), &[], &prefix.join("share/man/man1"));
        let bash = prefix.join("share/bash-completion/completions").join(name);
        Run::new("bash").arg("-n").arg(&bash).succeed();
        assert!(read(&bash).contains(&format!(" {name}\n")), "{} completes no {name}", bash.display());
        let zsh = read(&prefix.join("share/zsh/site-functions").join(format!("_{name}")));
        assert!(zsh.starts_with(&format!("#compdef {name}\n")), "{zsh}");
        let fish = read(&prefix.join("share/fish/vendor_completions.d").join(format!("{name}.fish")));
        assert!(fish.contains(&format!("complete -c {name} ")), "{fish}");
    }
    assert!(options > 80, "only {options} options were looked for");
    make("uninstall", destination.path());
    assert_eq!(files(destination.path()), Vec::<PathBuf>::new());
}
