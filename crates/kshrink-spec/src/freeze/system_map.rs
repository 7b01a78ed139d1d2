//! The frozen symbols in `System.map`; the kernel's build leaves out local absolute symbols.

use std::fs;
use std::path::Path;

use kcli::Failure;
use kelf::Machine;

/// A frozen symbol: address, letter of `nm`, name.
pub type Named<'n> = (u32, char, &'n str);

/// Returns an address as `nm` prints it.
pub fn digits(machine: Machine, address: u32) -> String {
    format!("{:0width$x}", machine.kernel_address(address), width = 2 * machine.word_size() as usize)
}

/// Adds frozen symbols, in address order.
///
/// # Errors
/// If the file cannot be read or written.
pub fn complete(path: &Path, machine: Machine, mut named: Vec<Named<'_>>) -> Result<(), Failure> {
    named.sort_unstable();
    let text = fs::read_to_string(path)?;
    let is_added = |line: &&str| {
        let mut words = line.split(' ');
        let (address, kind, name) = (words.next(), words.next(), words.next());
        let address =
            address.and_then(|digits| u64::from_str_radix(digits, 16).ok().map(|address| address as u32));
        let start = named.partition_point(|entry| Some(entry.0) < address);
        kind == Some("A")
            && named[start..]
                .iter()
                .take_while(|entry| Some(entry.0) == address)
                .any(|entry| Some(entry.2) == name)
    };
    let mut lines: Vec<String> = text.lines().filter(|line| !is_added(line)).map(str::to_owned).collect();
    lines.extend(
        named.iter().map(|(address, kind, name)| format!("{} {kind} {name}", digits(machine, *address))),
    );
    lines.sort_by(|one, other| one.split(' ').next().cmp(&other.split(' ').next()));
    Ok(fs::write(path, lines.join("\n") + "\n")?)
}
