//! The layouts of declared objects.

use kplan::{Declaration, DeclaredObject, DeclaredPlace, PointerPlace};
use ktypes::{Kind, Member, Structure, Structures};

use crate::error::{Error, Result};

/// Maximum depth of structures within structures.
const MAX_DEPTH: usize = 16;

/// An object whose structure is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name in the declaration.
    pub name: String,
    /// The place of the pointer to it.
    pub from: PointerPlace,
    /// The number of its words of 4 bytes.
    pub words: u64,
    /// The members that may become facts.
    pub candidates: Vec<Candidate>,
}

/// A member that may become a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name, with those of the structures around it: `sk.sk_mark`.
    pub member: String,
    /// Offset in bytes.
    pub offset: u32,
    /// Width in bytes: 1, 2 or 4.
    pub width: u8,
    /// The bits of a bit-field.
    pub mask: Option<u32>,
    /// Whether it is a pointer, also one to a function.
    pub is_pointer: bool,
    /// The reason why it stays the same while the path runs, if there is one.
    pub stable: Option<String>,
}

/// Finds the members of the objects of a declaration. Messages call the declaration `name`.
///
/// # Errors
/// The name of a structure or member that does not exist.
pub fn locate(declaration: &Declaration, name: &str, structures: &Structures) -> Result<Vec<Object>> {
    let layouts = Layouts { name, types: &declaration.types, structures };
    declaration.objects.iter().map(|object| layouts.object(declaration, object)).collect()
}

/// The structures, and the names for messages.
struct Layouts<'a> {
    name: &'a str,
    types: &'a str,
    structures: &'a Structures,
}

impl Layouts<'_> {
    fn object(&self, declaration: &Declaration, object: &DeclaredObject) -> Result<Object> {
        let structure = self.structure(&object.of)?;
        let from = match &object.from {
            DeclaredPlace::Argument(number) => PointerPlace::Argument(*number),
            DeclaredPlace::Variable(name) => PointerPlace::Variable(name.clone()),
            DeclaredPlace::Member(place) => self.pointer(declaration, place)?,
        };
        let mut candidates = Vec::new();
        match &object.members {
            None => self.members(structure, "", 0, 0, &mut candidates),
            Some(members) => {
                for path in members {
                    let (offset, member) = self.member(&object.of, path)?;
                    self.add(member, path, offset, 0, &mut candidates);
                }
            }
        }
        // Members of unions may be at one place.
        let place = |candidate: &Candidate| (candidate.offset, candidate.width, candidate.mask);
        candidates.sort_by_key(place);
        candidates.dedup_by_key(|candidate| place(candidate));
        for facts in &object.stable_facts {
            for path in &facts.members {
                let (offset, member) = self.member(&object.of, path)?;
                let mut stable = Vec::new();
                self.add(member, path, offset, 0, &mut stable);
                for candidate in
                    candidates.iter_mut().filter(|known| stable.iter().any(|s| place(s) == place(known)))
                {
                    candidate.stable = Some(facts.reason.clone());
                }
            }
        }
        Ok(Object { name: object.name.clone(), from, words: structure.size.div_ceil(4), candidates })
    }

    fn structure(&self, of: &str) -> Result<&Structure> {
        self.structures.get(of).ok_or_else(|| {
            let advice = "expected the name of a structure there, without `struct`";
            self.unknown(format!("the source of {} has no structure {of}", self.types), advice)
        })
    }

    fn unknown(&self, problem: String, advice: &str) -> Error {
        Error::Unknown { name: self.name.into(), problem, advice: advice.into() }
    }

    /// Returns the place of a pointer, given as `OBJECT.MEMBER`.
    fn pointer(&self, declaration: &Declaration, place: &str) -> Result<PointerPlace> {
        let (outer, path) = place.split_once('.').unwrap_or((place, ""));
        // The document has been checked.
        let object = declaration.objects.iter().find(|object| object.name == outer);
        let of = object.map_or("", |object| &object.of);
        let (offset, member) = self.member(of, path)?;
        match member.kind {
            Kind::Pointer => Ok(PointerPlace::Member { object: outer.into(), offset: offset as u32 }),
            _ => Err(self.unknown(format!("{place} is no pointer, but {}", member.of), "give a pointer")),
        }
    }

    /// Returns the offset and the description of a member, given the names of structures within the structure.
    fn member(&self, of: &str, path: &str) -> Result<(u64, &Member)> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let found = self.structure(of)?.members.iter().find(|member| member.name == first);
        let missing = |advice| self.unknown(format!("struct {of} has no member {first:?}"), advice);
        let member = found.ok_or_else(|| missing("expected one of its members"))?;
        match (rest, &member.structure) {
            (None, _) => Ok((member.offset, member)),
            (Some(rest), Some(inner)) => {
                let (offset, inner) = self.member(inner, rest)?;
                Ok((member.offset + offset, inner))
            }
            (Some(_), None) => Err(self
                .unknown(format!("the member {first} of {of} is no structure with a name"), "give it alone")),
        }
    }

    /// Adds the members of a structure at an offset of the object.
    fn members(
        &self,
        structure: &Structure,
        prefix: &str,
        start: u64,
        depth: usize,
        to: &mut Vec<Candidate>,
    ) {
        for member in &structure.members {
            let path = match prefix {
                "" => member.name.clone(),
                _ => format!("{prefix}.{}", member.name),
            };
            self.add(member, &path, start + member.offset, depth, to);
        }
    }

    /// Adds a member, or the members of the structure that it is. Arrays are left out.
    fn add(&self, member: &Member, path: &str, offset: u64, depth: usize, to: &mut Vec<Candidate>) {
        if let Kind::Structure = member.kind {
            let inner = member.structure.as_ref().and_then(|inner| self.structures.get(inner));
            if let Some(inner) = inner.filter(|_| depth < MAX_DEPTH) {
                self.members(inner, path, offset, depth + 1, to);
            }
            return;
        }
        let (bytes, words) = match member.bytes {
            bytes @ (1 | 2 | 4) => (bytes as u8, 1),
            8 if member.bits.is_none() => (4, 2),
            _ => return,
        };
        let mask = member.bits.map(|(first, bits)| {
            let all = u64::MAX >> (64 - u64::from(bytes) * 8);
            let mask = (1u64 << bits.min(32)).wrapping_sub(1) << first.min(32);
            (mask & all) as u32
        });
        if member.kind == Kind::Array || offset % u64::from(bytes) != 0 || mask == Some(0) {
            return;
        }
        for word in 0..words {
            to.push(Candidate {
                member: path.to_owned(),
                offset: (offset + word * 4) as u32,
                width: bytes,
                mask,
                is_pointer: matches!(member.kind, Kind::Pointer | Kind::Function),
                stable: None,
            });
        }
    }
}

#[cfg(test)]
mod tests;
