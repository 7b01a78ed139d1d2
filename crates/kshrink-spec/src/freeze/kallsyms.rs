//! Frozen code in the kernel's own symbol table (`CONFIG_KALLSYMS`). The kernel's build makes the table from the output
//! of `nm`, without absolute symbols.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kcli::Failure;
use kelf::Machine;

use super::system_map::{Named, digits};

/// The tool that makes the table, in a build directory.
const TOOL: &str = "scripts/kallsyms";

/// The script that replaces the tool.
const SCRIPT: &str = include_str!("kallsyms.sh");

/// Makes links in a copy of a build directory add the symbols of frozen code. Does nothing if the kernel has no table.
///
/// # Errors
/// If a file cannot be written.
pub fn add(dir: &Path, machine: Machine, named: &[Named<'_>]) -> Result<(), Failure> {
    let tool = dir.join(TOOL);
    if !tool.is_file() {
        return Ok(());
    }
    let mut code: Vec<_> = named.iter().filter(|(_, kind, _)| kind.eq_ignore_ascii_case(&'t')).collect();
    code.sort_unstable();
    let lines =
        code.iter().map(|(address, kind, name)| format!("{} {kind} {name}\n", digits(machine, *address)));
    fs::write(dir.join(format!("{TOOL}.frozen")), lines.collect::<String>())?;
    fs::rename(&tool, dir.join(format!("{TOOL}.kernel")))?;
    fs::write(&tool, SCRIPT)?;
    Ok(fs::set_permissions(&tool, fs::Permissions::from_mode(0o755))?)
}
