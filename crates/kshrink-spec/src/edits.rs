//! Edits of the lowered object: symbols of runtimes that are defined.

use kcli::Failure;
use kelf::{Object, Place, SymbolIndex};

/// Defines a symbol that a runtime refers to, with an offset in a section or, if it is absolute, an address.
pub fn define(object: &mut Object<'_>, name: &str, place: Place, value: u32) -> Result<SymbolIndex, Failure> {
    let found = object.symbols.iter().position(|symbol| symbol.name == name && symbol.is_undefined());
    let index = found.ok_or_else(|| Failure::job(format!("the runtime does not refer to {name}")))?;
    object.symbols[index].place = place;
    object.symbols[index].value =
        if place == Place::Absolute { object.machine.kernel_address(value) } else { value.into() };
    Ok(SymbolIndex::from(index))
}
