//! `make install` installs every command, with man pages that name all options and with completions, and
//! `make uninstall` removes all of it; and the scripts among the installed files that need no kernel.

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
    for file in [
        "kshrink.mk",
        "copy-build.sh",
        "kernel-places.sh",
        "slab-places.sh",
        "trace.c",
        "allocations.c",
        "accesses.c",
        "plugin.h",
        "kcustomd.c",
        "libkcustom-preload.c",
    ] {
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

/// make compares the recorded commands of the kernel's own tools with the ones that it would run in the copy.
#[test]
fn a_copied_build_names_the_copy_in_the_records_of_its_tools() {
    let directory = tempfile::tempdir().expect("a directory");
    let built = directory.path().join("built");
    let record = built.join("tools/objtool/.check.o.cmd");
    fs::create_dir_all(record.parent().expect("a directory")).expect("a directory");
    // The build was renamed since.
    let text = |dir: &str| {
        format!(
            "cmd_{dir}/tools/objtool/check.o := gcc -I{dir}/tools -I/usr/lib/a.b -o {dir}/tools/check.o\n"
        )
    };
    fs::write(&record, text("/a.b/c")).expect("a file");
    fs::write(built.join("tools/.other.cmd"), "savedcmd_tools/other := true\n").expect("a file");
    Run::new("touch").args(["-d", "2001-02-03"]).arg(&record).succeed();
    let script = workspace().join("share/copy-build.sh");
    Run::new(&script).dir(directory.path()).args(["built", "new/copy"]).succeed();
    let copy = directory.path().canonicalize().expect("a directory").join("new/copy");
    let copied = copy.join("tools/objtool/.check.o.cmd");
    assert_eq!(read(&copied), text(copy.to_str().expect("UTF-8")));
    let time = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).expect("a time");
    assert_eq!(time(&copied), time(&record));
    assert_eq!(read(&copy.join("tools/.other.cmd")), "savedcmd_tools/other := true\n");
    assert_eq!(read(&record), text("/a.b/c"));
}
