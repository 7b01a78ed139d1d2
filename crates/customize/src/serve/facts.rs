//! The facts of a path for one socket of a device.

use std::collections::HashMap;

use kplan::{Path, PathFact, PointerPlace};

use crate::symbols::Symbols;

/// Maximum number of bytes of an object that are read at once.
const MAX_BYTES: u32 = 4096;

/// Returns the path with the values that its facts have for the socket at an address. `read` returns memory of the device,
/// or `None` if it cannot be read. Objects that exist only during a call keep the values of the path.
///
/// # Errors
/// The outer error is one of `read`. The inner one is the reason why the socket has no such path.
pub fn observe(
    path: &Path,
    symbols: &Symbols,
    socket: u32,
    mut read: impl FnMut(u32, u32) -> Result<Option<Vec<u8>>, String>,
) -> Result<Result<Path, String>, String> {
    let mut memory: HashMap<&str, (u32, Vec<u8>)> = HashMap::new();
    for object in &path.objects {
        let address = match &object.from {
            PointerPlace::Argument(0) => socket,
            PointerPlace::Argument(_) => continue,
            PointerPlace::Variable(name) => match symbols.address(name) {
                Some(address) => address as u32,
                None => return Ok(Err(format!("the kernel has no variable {name}"))),
            },
            PointerPlace::Member { object: outer, offset } => {
                let Some(outer) = memory.get(outer.as_str()) else { continue };
                word(outer, *offset, 4)
            }
        };
        if address == 0 {
            return Ok(Err(format!("the pointer to {} is null", object.name)));
        }
        let Some((start, end)) = extent(path, &object.name) else { continue };
        if end - start > MAX_BYTES {
            return Ok(Err(format!("the facts about {} are {} bytes apart", object.name, end - start)));
        }
        let Some(bytes) = read(address.wrapping_add(start), end - start)? else {
            return Ok(Err(format!("the memory of {} cannot be read", object.name)));
        };
        memory.insert(&object.name, (start, bytes));
    }
    let mut made = path.clone();
    made.facts.clear();
    for fact in &path.facts {
        match memory.get(fact.object.as_str()) {
            None => made.facts.push(fact.clone()),
            Some(bytes) => made.facts.extend(with_value(fact, bytes, symbols)),
        }
    }
    Ok(Ok(made))
}

/// Returns the first and the end of the bytes of an object that facts or pointers are about.
fn extent(path: &Path, object: &str) -> Option<(u32, u32)> {
    let facts = path.facts.iter().filter(|fact| fact.object == object);
    let facts = facts.map(|fact| (fact.offset, fact.offset + u32::from(fact.width)));
    let pointers = path.objects.iter().filter_map(|inner| match &inner.from {
        PointerPlace::Member { object: outer, offset } if outer == object => Some((*offset, offset + 4)),
        _ => None,
    });
    facts.chain(pointers).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// Returns a number of `width` bytes at an offset of an object.
fn word((start, bytes): &(u32, Vec<u8>), offset: u32, width: u8) -> u32 {
    let at = (offset - start) as usize;
    let mut number = [0; 4];
    number[..usize::from(width)].copy_from_slice(&bytes[at..at + usize::from(width)]);
    u32::from_le_bytes(number)
}

/// Returns a fact with the value in memory; `None` if it points to something without a name.
fn with_value(fact: &PathFact, memory: &(u32, Vec<u8>), symbols: &Symbols) -> Option<PathFact> {
    let value = word(memory, fact.offset, fact.width);
    let Some(_) = &fact.symbol else {
        return Some(PathFact { value: value & fact.known(), ..fact.clone() });
    };
    let symbol = symbols.at(value.into())?;
    Some(PathFact { symbol: Some(symbol.to_owned()), ..fact.clone() })
}

#[cfg(test)]
mod tests;
