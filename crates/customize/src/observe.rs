//! Facts, from the objects at many calls.

use kplan::{Declaration, Path, PathFact, PathObject, PointerPlace};

use crate::calls::Call;
use crate::layout::{Candidate, Object};
use crate::symbols::Symbols;

/// The observations of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Number of calls with it.
    pub calls: usize,
    /// Number of members that had one value in all calls.
    pub same: usize,
    /// Number of these that are no facts, because they are pointers to something that may be elsewhere next time.
    pub pointers: usize,
    /// Number of all members that were looked at.
    pub members: usize,
}

/// Returns the path of a declaration, whose facts are the members that had one value in all calls.
pub fn observe(
    declaration: &Declaration,
    objects: &[Object],
    calls: &[Call],
    symbols: &Symbols,
) -> (Path, Vec<Observed>) {
    let mut path = Path {
        entry: declaration.entry.clone(),
        calls: declaration.calls.clone(),
        targets: declaration.targets.clone(),
        objects: Vec::new(),
        facts: Vec::new(),
    };
    let mut all = Vec::new();
    for (number, (object, declared)) in objects.iter().zip(&declaration.objects).enumerate() {
        let seen: Vec<&[u32]> = calls.iter().filter_map(|call| Some(call.get(&number)?.as_slice())).collect();
        let mut observed = Observed {
            name: object.name.clone(),
            calls: seen.len(),
            same: 0,
            pointers: 0,
            members: object.candidates.len(),
        };
        // An object that is missing at times has no facts: the path compares the pointer to it with null.
        let is_always = seen.len() == calls.len() && !calls.is_empty();
        for candidate in object.candidates.iter().filter(|_| is_always) {
            let Some(value) = same(candidate, &seen) else { continue };
            observed.same += 1;
            let symbol = match candidate.is_pointer && value != 0 {
                true => match symbols.at(value.into()) {
                    Some(symbol) => Some(symbol.to_owned()),
                    None => {
                        observed.pointers += 1;
                        continue;
                    }
                },
                false => None,
            };
            path.facts.push(PathFact {
                object: object.name.clone(),
                offset: candidate.offset,
                width: candidate.width,
                value: if symbol.is_some() { 0 } else { value },
                mask: candidate.mask,
                symbol,
                member: Some(candidate.member.clone()),
                stable: candidate.stable.clone(),
            });
        }
        if is_always {
            path.objects.push(PathObject {
                name: object.name.clone(),
                from: object.from.clone(),
                stable: declared.stable.clone(),
                exists: declared.exists.clone(),
            });
        }
        all.push(observed);
    }
    keep_reachable(&mut path);
    (path, all)
}

/// Drops objects whose outer object is not in the path, and their facts.
fn keep_reachable(path: &mut Path) {
    let mut kept: Vec<PathObject> = Vec::new();
    for object in path.objects.drain(..) {
        let is_known = match &object.from {
            PointerPlace::Member { object: outer, .. } => kept.iter().any(|known| known.name == *outer),
            _ => true,
        };
        kept.extend(is_known.then_some(object));
    }
    path.facts.retain(|fact| kept.iter().any(|object| object.name == fact.object));
    path.objects = kept;
}

/// Returns the value of a member if it is the same in all calls.
fn same(candidate: &Candidate, calls: &[&[u32]]) -> Option<u32> {
    let value = |words: &[u32]| {
        let word = words.get(candidate.offset as usize / 4)?;
        let bits = u32::MAX >> (32 - 8 * u32::from(candidate.width));
        Some(word >> (8 * (candidate.offset % 4)) & bits & candidate.mask.unwrap_or(bits))
    };
    let first = value(calls.first()?)?;
    calls.iter().all(|words| value(words) == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests;
