//! Places where a program makes memory executable: code may run there that is in no file, and no plan lists its calls.
//!
//! Run-time compilers (PCRE2, LuaJIT), self-unpacking programs and programs that map files themselves do this. Their
//! generated code is unknown. Most of it calls functions that the program has anyway. The place is therefore reported,
//! and the plan may still be complete. The dynamic linker and the C library map only libraries, and are excluded, as is
//! code that makes a stack executable. A static program contains parts of both: its mappings count only if they are
//! known to be executable, and functions named `_dl_…` do not count.

use std::collections::BTreeSet;

use kplan::Abi;

use crate::abi;
use crate::by_name::{argument, calls_of};
use crate::calls::Calls;
use crate::code::{Code, References};
use crate::image::{Addr, Image};
use crate::resolve::{Resolved, Resolver};

/// The calls that set memory protection, and the index of the argument with the protection.
const PROTECTING: [&str; 4] = ["mmap", "mmap2", "mprotect", "pkey_mprotect"];
const PROTECTION: usize = 2;

/// Flags of that argument (`asm-generic/mman-common.h`): executable memory, and a stack.
const EXECUTABLE: u64 = 4;
const STACK: u64 = 0x0100_0000;

/// Returns the instructions that make memory executable: calls of functions that enter the kernel for it, and sites
/// that do it themselves.
pub fn places(code: &Code, references: &References, sites: &[(Addr, Abi, Calls)]) -> BTreeSet<Addr> {
    let mut resolver = Resolver::new(code, references);
    let mut places = BTreeSet::new();
    for (site, site_abi, calls) in sites {
        let names = calls.known.keys().filter_map(|&number| abi::name(*site_abi, number));
        if !names.into_iter().any(|name| PROTECTING.contains(&name)) {
            continue;
        }
        let register = abi::registers(*site_abi).arguments[PROTECTION];
        for function in code.functions_of(*site) {
            let own = resolver.before(function, *site).map(|state| state.register(register).clone());
            if own.is_some_and(|own| own.is_numbers()) {
                let numbers = resolver.numbers(*site, |state| state.register(register).clone());
                places.extend(makes(code.image, *site, &numbers).then_some(*site));
                continue;
            }
            for call in calls_of(code, function) {
                let numbers = match argument(code, call, PROTECTION) {
                    Ok(operand) => resolver.operand(call, operand),
                    Err(_) => continue,
                };
                places.extend(makes(code.image, call, &numbers).then_some(call));
            }
        }
    }
    places
}

/// Returns whether an instruction makes memory executable, given its protection argument.
fn makes(image: &Image, at: Addr, numbers: &Resolved) -> bool {
    let Some(loaded) = image.object_at(at) else { return false };
    let interpreter = image.interpreter().is_some_and(|interpreter| interpreter.base == loaded.base);
    let is_linker = |function: &str| function.starts_with("_dl_");
    if loaded.is_c_library || interpreter || image.function_at(at).is_some_and(is_linker) {
        return false;
    }
    match numbers {
        Ok(numbers) => numbers.iter().any(|number| number & EXECUTABLE != 0 && number & STACK == 0),
        Err(_) => image.interpreter().is_some(),
    }
}
