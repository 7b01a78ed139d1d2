//! Finds places in a console log, in the forms in which kernels print addresses of code (`lib/vsprintf.c`, and the
//! `dump_stack` and oops code of each architecture).

use std::fmt::Write;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::kernel::Kernel;

/// A place in a function as the running kernel prints it.
#[derive(Debug, PartialEq, Eq)]
pub struct Place<'t> {
    /// Its name.
    pub name: &'t str,
    /// The offset in bytes from the function.
    pub offset: u64,
    /// The distance in bytes to the next symbol, if printed.
    pub size: Option<u64>,
}

/// `name+0x1a/0x90`, where the name may have a compiler suffix (`.isra.0`), and an address in hexadecimal digits, by
/// itself (`0xc0123456`) or in brackets (`[<c0123456>]`).
static PLACES: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?-u)(?P<name>[A-Za-z_][\w.$]*)\+0x(?P<offset>[0-9a-f]+)(?:/0x(?P<size>[0-9a-f]+))?(?P<module> \[\w+\])?|(?:\[<|\b0x)(?P<address>[0-9a-f]{8,16})(?:>\])?";
    Regex::new(pattern).expect("a valid expression")
});

/// The words that precede the address of the current instruction; all other addresses are return addresses.
const EXACT: [&str; 5] = ["EIP:", "RIP:", "PC is at", "pc :", "IP is at"];

/// Parses a place: `name+0x1a/0x90` or `name+0x1a`.
pub fn parse_place(text: &str) -> Option<Place<'_>> {
    match PLACES.captures(text).filter(|captures| captures.get(0).is_some_and(|all| all.len() == text.len()))
    {
        Some(captures) => place(&captures),
        None => parse_name(text),
    }
}

fn parse_name(text: &str) -> Option<Place<'_>> {
    let is_name = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.$".contains(letter));
    is_name.then_some(Place { name: text, offset: 0, size: None })
}

/// Parses an address in hexadecimal digits, with or without `0x`.
pub fn parse_address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn place<'t>(captures: &Captures<'t>) -> Option<Place<'t>> {
    let number = |group: &str| u64::from_str_radix(captures.name(group)?.as_str(), 16).ok();
    Some(Place { name: captures.name("name")?.as_str(), offset: number("offset")?, size: number("size") })
}

/// Replaces the places of the rewritten kernel in a line by places of the original. Keeps code of modules and addresses
/// without code as they are.
pub fn symbolize(kernel: &Kernel, line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut done = 0;
    let mut replaced: Vec<(Range<usize>, Vec<String>)> = Vec::new();
    for captures in PLACES.captures_iter(line) {
        let Some(whole) = captures.get(0) else { continue };
        let is_return = !EXACT.iter().any(|word| line[..whole.start()].contains(word));
        let addresses = match place(&captures) {
            Some(_) if captures.name("module").is_some() => continue,
            Some(place) => kernel.addresses(place.name, place.offset, place.size),
            None => captures
                .name("address")
                .and_then(|address| parse_address(address.as_str()))
                .into_iter()
                .collect(),
        };
        let code = addresses.into_iter().filter(|&address| kernel.is_code(address));
        let places: Vec<String> = code.flat_map(|address| kernel.places(address, is_return)).collect();
        // An address directly before its own name (ARM) is not described twice.
        let is_named = captures.name("address").is_some() && line[whole.end()..].starts_with(" (");
        if !places.is_empty() && !is_named {
            replaced.push((whole.range(), places));
        }
    }
    for (range, places) in replaced {
        out.push_str(&line[done..range.start]);
        out.push_str(&places[0]);
        for place in &places[1..] {
            let _ = write!(out, " or {place}");
        }
        done = range.end;
    }
    out.push_str(&line[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed_as_kernels_print_them() {
        let place = |name, offset, size| Some(Place { name, offset, size });
        assert_eq!(parse_place("schedule+0x1a/0x90"), place("schedule", 0x1a, Some(0x90)));
        assert_eq!(parse_place("f.isra.0+0x2"), place("f.isra.0", 2, None));
        assert_eq!(parse_place("schedule"), place("schedule", 0, None));
        assert_eq!(parse_place("schedule+"), None);
        assert_eq!(parse_address("0xc0123456"), Some(0xc012_3456));
        assert_eq!(parse_address("c0123456"), Some(0xc012_3456));
        assert_eq!(parse_address("schedule"), None);
    }
}
