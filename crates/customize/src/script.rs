//! The commands by which gdb prints the objects of a declaration at each call of its function.

use std::fmt::Write;

use kplan::{Declaration, PointerPlace};

use crate::error::{Error, Result};
use crate::layout::Object;
use crate::symbols::Symbols;

/// The line before the objects of a call.
pub const CALL: &str = "call";
/// The line after them.
pub const END: &str = "end of call";
/// The start of the line before the words of an object, which its name follows.
pub const OBJECT: &str = "object ";

/// The registers of arguments, for a kernel compiled with `-mregparm=3` (arch/x86/Makefile).
pub const ARGUMENTS: [&str; 3] = ["eax", "edx", "ecx"];

/// Returns a script for gdb, connected to a machine that has not started. It prints the objects at each call, after `skip`
/// calls, and lets the machine go after `calls` of them. Messages call the declaration `name`.
///
/// # Errors
/// The name of a function or variable that the kernel does not have.
pub fn script(
    declaration: &Declaration,
    name: &str,
    objects: &[Object],
    symbols: &Symbols,
    skip: u32,
    calls: u32,
) -> Result<String> {
    let address = |symbol: &str| {
        let missing = || Error::Unknown {
            name: name.into(),
            problem: format!("the kernel has no function or variable {symbol}, or several"),
            advice: "give the vmlinux that runs, and a name of one place".into(),
        };
        symbols.address(symbol).ok_or_else(missing)
    };
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("writing to a string");
    line("set pagination off".into());
    line("set confirm off".into());
    line(format!("hbreak *{:#x}", address(&declaration.entry)?));
    if skip > 0 {
        line(format!("ignore $bpnum {skip}"));
    }
    line(format!("set $left = {calls}"));
    line("while $left > 0".into());
    line("continue".into());
    line(format!("echo {CALL}\\n"));
    for (number, object) in objects.iter().enumerate() {
        let place = match &object.from {
            PointerPlace::Argument(argument) => ARGUMENTS
                .get(usize::from(*argument))
                .map(|register| format!("${register}"))
                .ok_or_else(|| Error::Unknown {
                    name: name.into(),
                    problem: format!("object {}: argument {argument} is not in a register", object.name),
                    advice: "expected 0 to 2".into(),
                })?,
            PointerPlace::Variable(variable) => format!("{:#x}", address(variable)?),
            PointerPlace::Member { object: outer, offset } => {
                let outer = objects.iter().position(|object| object.name == *outer).unwrap_or(0);
                // An object that does not exist has no members.
                line(format!("set $object{number} = 0"));
                line(format!("if $object{outer} != 0"));
                line(format!("set $object{number} = *(unsigned int *)($object{outer} + {offset})"));
                line("end".into());
                String::new()
            }
        };
        if !place.is_empty() {
            line(format!("set $object{number} = (unsigned int){place}"));
        }
        line(format!("if $object{number} != 0"));
        line(format!("echo {OBJECT}{}\\n", object.name));
        line(format!("x/{}wx $object{number}", object.words));
        line("end".into());
    }
    line(format!("echo {END}\\n"));
    line("set $left = $left - 1".into());
    line("end".into());
    line("delete".into());
    line("detach".into());
    Ok(text)
}
