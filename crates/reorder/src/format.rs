//! An order as a file for a linker.
//!
//! `lld` sorts by symbols, and accepts any function. The others sort by the names of input sections. They can therefore
//! move only functions with a section of their own from `-ffunction-sections`: functions of ordinary code, but not of
//! `.init.text`, `.sched.text` and similar sections, which the source names.

use std::fmt::Write as _;

use kplan::{FunctionName, Order};
use rustc_hash::FxHashSet;

use crate::map::InputSection;

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// The plan, with the section `order`
    Plan,
    /// A file for --section-ordering-file of GNU ld (2.43 and later)
    GnuLd,
    /// A file for --symbol-ordering-file of ld.lld
    Lld,
    /// A file for --section-ordering-file of gold
    Gold,
    /// Input section descriptions for a linker script
    Lds,
}

/// An order as text, and the number of its functions that the format cannot name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatted {
    /// The text.
    pub text: String,
    /// Number of functions that are not moved because they have no section of their own.
    pub left_out: usize,
}

/// For `ld.lld --symbol-ordering-file`: a symbol on each line. Local functions of one name cannot be distinguished
/// there; the name is listed once.
pub fn lld(order: &Order) -> Formatted {
    let mut listed = FxHashSet::default();
    let mut text = String::new();
    for hot in &order.functions {
        if listed.insert(&hot.function.name) {
            let _ = writeln!(text, "{}", hot.function.name);
        }
    }
    Formatted { text, left_out: 0 }
}

/// For `ld.gold --section-ordering-file`: a section name on each line. `input` returns the input section of a function
/// that may be moved.
pub fn gold(order: &Order, input: impl Fn(&FunctionName) -> Option<InputSection>) -> Formatted {
    lines(order, input, |section| format!("{}\n", section.name))
}

/// Input section descriptions for a linker script, such as `*open.o(.text.build_open_flags)`.
pub fn lds(order: &Order, input: impl Fn(&FunctionName) -> Option<InputSection>) -> Formatted {
    descriptions(order, input, "")
}

/// For `ld --section-ordering-file` of GNU binutils: the descriptions, by output section. The linker puts them before
/// its script's own content of the output section.
pub fn gnu_ld(order: &Order, input: impl Fn(&FunctionName) -> Option<InputSection>) -> Formatted {
    let mut formatted = descriptions(order, input, "  ");
    formatted.text = format!(".text : {{\n{}}}\n", formatted.text);
    formatted
}

fn descriptions(
    order: &Order,
    input: impl Fn(&FunctionName) -> Option<InputSection>,
    indent: &str,
) -> Formatted {
    lines(order, input, |InputSection { object, name }| format!("{indent}{object}({name})\n"))
}

/// Returns a line for each input section, at the place of its first function in the order.
fn lines(
    order: &Order,
    input: impl Fn(&FunctionName) -> Option<InputSection>,
    line: impl Fn(&InputSection) -> String,
) -> Formatted {
    let mut listed = FxHashSet::default();
    let mut formatted = Formatted { text: String::new(), left_out: 0 };
    for hot in &order.functions {
        match input(&hot.function).map(|section| line(&section)) {
            Some(line) if listed.insert(line.clone()) => formatted.text.push_str(&line),
            Some(_) => {}
            None => formatted.left_out += 1,
        }
    }
    formatted
}

/// Returns the input section of a function with `-ffunction-sections`, by its name. For a local function, the object is
/// matched by the name of its source file.
pub fn named_section(function: &FunctionName) -> InputSection {
    let object = function.file.as_deref().map(object_pattern).unwrap_or_default();
    InputSection { object: format!("*{object}"), name: section_name(&function.name) }
}

/// Returns the section that GCC and Clang give a function with `-ffunction-sections`. A part that the compiler split
/// off as unlikely is named after its function.
fn section_name(function: &str) -> String {
    match function.strip_suffix(".cold") {
        Some(whole) => format!(".text.unlikely.{whole}"),
        None => format!(".text.{function}"),
    }
}

/// Returns the end of the name of a source file's object: `open.o` for `open.c`.
fn object_pattern(file: &str) -> String {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    format!("{stem}.o")
}

#[cfg(test)]
mod tests {
    use kplan::{Granularity, HotFunction};

    use super::*;

    fn order() -> Order {
        let local =
            |name: &str, file: &str, nth| FunctionName { name: name.into(), file: Some(file.into()), nth };
        let functions = [
            FunctionName::global("start_kernel"),
            FunctionName::global("vfs_read"),
            local("init", "core.c", 0),
            local("init", "core.c", 1),
            local("init", "open.c", 0),
            local("fail.cold", "open.c", 0),
        ];
        let functions = functions.map(|function| HotFunction { function, ranges: Vec::new() });
        Order {
            granularity: Granularity::Function,
            algorithm: "first-use".into(),
            functions: functions.into(),
        }
    }

    fn input(function: &FunctionName) -> Option<InputSection> {
        (function.name != "start_kernel").then(|| named_section(function))
    }

    #[test]
    fn lld_takes_symbols_once() {
        let formatted = lld(&order());
        assert_eq!(formatted.text, "start_kernel\nvfs_read\ninit\nfail.cold\n");
        assert_eq!(formatted.left_out, 0);
    }

    #[test]
    fn gold_takes_sections() {
        let formatted = gold(&order(), input);
        assert_eq!(formatted.text, ".text.vfs_read\n.text.init\n.text.unlikely.fail\n");
        assert_eq!(formatted.left_out, 1);
    }

    #[test]
    fn scripts_tell_files_apart() {
        let lines = [
            "*(.text.vfs_read)",
            "*core.o(.text.init)",
            "*open.o(.text.init)",
            "*open.o(.text.unlikely.fail)",
        ];
        assert_eq!(lds(&order(), input).text.lines().collect::<Vec<_>>(), lines);
        let expected = format!(".text : {{\n  {}\n}}\n", lines.join("\n  "));
        assert_eq!(gnu_ld(&order(), input).text, expected);
    }
}
