//! Checks of user programs: features of their link or run-time library that a rewritten object cannot have.

use kcli::Failure;
use kelf::{Definition, Object, Place, Program};

use crate::arguments::Arguments;

/// The sections by which the unwinder finds handlers and cleanups.
const HANDLERS: &str = ".gcc_except_table";
/// The section of 32-bit ARM for the same, which also describes functions without handlers (IHI 0038, section 6).
const ARM_TABLE: &str = ".ARM.extab";
/// The names of routines that unwind functions without handlers (IHI 0038, section 9).
const PLAIN_ROUTINE: &str = "__aeabi_unwind_cpp_pr";

/// Checks a user program. Returns the objects whose handlers are left out.
///
/// # Errors
/// The program has handlers, or its link wraps a symbol, and no option permits it.
pub fn check(program: &Program<'_>, arguments: &Arguments) -> Result<Vec<String>, Failure> {
    check_wraps(program, &arguments.wrap)?;
    let objects = program.objects.iter().map(|input| &input.object);
    let left_out: Vec<String> =
        objects.filter(|object| has_handlers(object)).map(|object| object.name.clone()).collect();
    match left_out.first().filter(|_| !arguments.drop_handlers) {
        None => Ok(left_out),
        Some(object) => Err(Failure::bad_input(format!(
            "{object}: it has exception handlers or cleanups ({HANDLERS}), which do not work in a rewritten program; leave the \
             object out of --objects, compile it with -fno-exceptions, or add --drop-handlers if none has to run"
        ))),
    }
}

/// Whether an object has tables of handlers.
fn has_handlers(object: &Object<'_>) -> bool {
    let is_plain = |symbol: &str| symbol.is_empty() || symbol.starts_with(PLAIN_ROUTINE);
    object.sections.iter().any(|section| {
        let routine = || section.relocs.iter().any(|reloc| !is_plain(object.symbol(reloc.symbol).name));
        let on_arm = section.name.starts_with(ARM_TABLE);
        section.size > 0 && (section.name.starts_with(HANDLERS) || on_arm && routine())
    })
}

/// Checks that the link wraps no symbol that the objects define, except symbols given by an option: references within
/// the rewritten object are already resolved.
fn check_wraps(program: &Program<'_>, wrapped: &[String]) -> Result<(), Failure> {
    let is_defined = |name: &str| {
        let global = program.find(name).map(|global| program.global(global).definition);
        matches!(global, Some(Definition::In(..) | Definition::Common { .. }))
    };
    for object in program.objects.iter().map(|input| &input.object) {
        for symbol in object.symbols.iter().filter(|symbol| !symbol.is_local()) {
            let real = symbol.name.strip_prefix("__real_").filter(|_| symbol.place == Place::Undefined);
            let Some(name) = real else { continue };
            if is_defined(name)
                && !is_defined(&format!("__real_{name}"))
                && !wrapped.iter().any(|w| w == name)
            {
                return Err(Failure::bad_input(format!(
                    "{}: refers to {}, so the link wraps {name}, which the objects define; add --wrap {name}",
                    object.name, symbol.name
                )));
            }
        }
    }
    Ok(())
}
