//! The compiler's options for clang, from the command that Kbuild recorded for gcc.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Options that clang has to get: they change the meaning of the source. Other options select code or warnings.
const MEANINGFUL: [&str; 10] = [
    "-nostdinc",
    "-m32",
    "-m64",
    "-ffreestanding",
    "-fshort-wchar",
    "-funsigned-char",
    "-fno-common",
    "-fshort-enums",
    "-fno-builtin",
    "-mthumb",
];

/// Prefixes of such options.
const MEANINGFUL_PREFIXES: [&str; 9] =
    ["-I", "-D", "-U", "-std=", "-march=", "-mcpu=", "-mabi=", "-mregparm=", "-mfpu="];

/// Options with a value in the next word.
const WITH_VALUE: [&str; 4] = ["-include", "-isystem", "-iquote", "-imacros"];

/// A command for clang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClangCommand {
    /// The source file, as the command names it.
    pub file: PathBuf,
    /// The options.
    pub options: Vec<String>,
}

impl ClangCommand {
    /// Translates a command: the compiler, its options and one source file. `None` if it compiles no C file.
    pub fn of(words: &[String]) -> Option<ClangCommand> {
        let (compiler, words) = words.split_first()?;
        let mut options = vec!["-Wno-everything".to_owned(), "-ferror-limit=0".to_owned()];
        if let Some(target) = target(compiler, words) {
            options.push(format!("--target={target}"));
        }
        let mut file = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if WITH_VALUE.contains(&word.as_str()) {
                options.push(word.clone());
                options.extend(words.next().cloned());
            } else if word == "-o" || word == "-MF" {
                words.next();
            } else if MEANINGFUL.contains(&word.as_str())
                || MEANINGFUL_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
            {
                options.push(word.clone());
            } else if word.ends_with(".c") && !word.starts_with('-') {
                file = Some(PathBuf::from(word));
            }
        }
        Some(ClangCommand { file: file?, options })
    }
}

/// Returns the machine for clang: the prefix of the compiler's name; on x86, the options decide.
fn target(compiler: &str, words: &[String]) -> Option<String> {
    let name = Path::new(compiler).file_name()?.to_str()?;
    match name.split_once("-gcc") {
        Some((prefix, _)) if !prefix.starts_with("x86_64") => Some(prefix.to_owned()),
        _ if words.iter().any(|word| word == "-m32") => Some("i386-linux-gnu".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_without_options_of_gcc() {
        let words = "gcc -nostdinc -I. -include a.h -Wall -Os -m32 -fconserve-stack -DX='1' -mregparm=3 -o a.o ../a.c";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let command = ClangCommand::of(&words).unwrap();
        assert_eq!(command.file, Path::new("../a.c"));
        assert_eq!(
            command.options[2..].join(" "),
            "--target=i386-linux-gnu -nostdinc -I. -include a.h -m32 -DX='1' -mregparm=3"
        );
    }

    #[test]
    fn target_is_the_prefix_of_the_compiler() {
        let words: Vec<String> = ["arm-linux-gnueabihf-gcc-12", "a.c"].map(str::to_owned).to_vec();
        assert!(
            ClangCommand::of(&words).unwrap().options.contains(&"--target=arm-linux-gnueabihf".to_owned())
        );
    }
}
