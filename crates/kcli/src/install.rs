//! Generates the installed documentation of a command, its man pages and completions, from the same description of the
//! command line as `--help`.
//!
//! `COMMAND --generate DIR` writes them below DIR, the `share` directory of a prefix; `make install` calls it. The help
//! does not list this option: [`with_arguments`] handles it before it parses the arguments.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, Parser};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::Output;

/// The option; its only argument is a directory.
const OPTION: &str = "--generate";

/// The completion directory of each shell, below `share`, and the prefix and suffix of the file name.
const COMPLETIONS: [(Shell, &str, [&str; 2]); 3] = [
    (Shell::Bash, "bash-completion/completions", ["", ""]),
    (Shell::Zsh, "zsh/site-functions", ["_", ""]),
    (Shell::Fish, "fish/vendor_completions.d", ["", ".fish"]),
];

/// Parses the arguments of the process and runs `command` with them. On wrong arguments or a request for help, ends the
/// process with clap's message.
pub fn with_arguments<P: Parser>(command: impl FnOnce(P) -> ExitCode) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [option, share] if option == OPTION => {
            let description = P::command();
            let name = description.get_name().to_owned();
            crate::main(&name, || install(description, Path::new(share)))
        }
        _ => command(P::parse()),
    }
}

/// Writes all files of a command below `share` and creates directories as needed.
fn install(mut command: Command, share: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    // Completions include the subcommand `help`, but it needs no man page.
    let mut documented = command.clone().disable_help_subcommand(true);
    documented.build();
    manual(&documented, &share.join("man/man1"))?;
    COMPLETIONS.into_iter().try_for_each(|(shell, directory, [before, after])| {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, &name, &mut text);
        write(&share.join(directory), format!("{before}{name}{after}").as_ref(), &text)
    })
}

/// Writes the man pages of a command and of its subcommands.
fn manual(command: &Command, directory: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    write(directory, page.get_filename().as_ref(), &text)?;
    command.get_subcommands().try_for_each(|command| manual(command, directory))
}

fn write(directory: &Path, name: &OsStr, text: &[u8]) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot create {}: {error}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(named)?;
    let mut output = Output::create(&directory.join(name))?;
    output.write_all(text)?;
    output.commit()
}
