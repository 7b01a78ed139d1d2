//! The commands that Kbuild records in `.TARGET.cmd` beside each target.

/// Words between the steps of a command.
const SEPARATORS: [&str; 4] = [";", "&&", "||", "|"];

/// Returns the words of each step of a recorded command, such as the compiler's and objtool's; `None` if the text is no
/// record.
pub(crate) fn steps(record: &str) -> Option<Vec<Vec<String>>> {
    let line = record.lines().find(|line| line.starts_with("savedcmd_") || line.starts_with("cmd_"))?;
    // The record is for `make`, which doubles dollar signs.
    let words = shlex::split(&line.split_once(":=")?.1.replace("$$", "$"))?;
    let steps = words.split(|word| SEPARATORS.contains(&word.as_str())).map(<[String]>::to_vec);
    Some(steps.filter(|words| !words.is_empty()).collect())
}
