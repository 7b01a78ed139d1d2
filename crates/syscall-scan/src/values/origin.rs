//! Origins of unknown values.

use indexmap::IndexMap;
use kisa::Reg;
use rustc_hash::FxBuildHasher;

use super::Atom;
use crate::image::Addr;

/// Maximum depth of references between origins: `p->q->r` has 3 levels. Anything deeper is unknown, which ends walks
/// along lists.
const MAX_DEPTH: u8 = 6;

/// The number of an [`Origin`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OriginId(u32);

impl OriginId {
    /// The absence of an unknown part: the atom is a number.
    pub const NUMBER: OriginId = OriginId(0);
    /// See [`Origin::Unknown`].
    pub const UNKNOWN: OriginId = OriginId(1);
}

/// The source of an unknown value, relative to one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// The placeholder for [`OriginId::NUMBER`].
    Number,
    /// An unknown source; no two values of this origin need be equal. A value that may be anything is
    /// [`super::ValueSet::Any`]; this origin represents the alternative in a value that may be a watched pointer.
    Unknown,
    /// The content of a register at the function's entry.
    Register(Reg),
    /// The content of memory.
    Memory {
        /// The address.
        at: Atom,
        /// The size in bytes; the value is zero-extended.
        width: u8,
        /// The time of the read.
        when: When,
    },
    /// The result of an instruction that the analysis does not model.
    Made {
        /// The instruction.
        at: Addr,
        /// The index of the result.
        slot: u8,
    },
    /// The low bytes of another value, zero-extended.
    Low {
        /// The value.
        of: Atom,
        /// The number of bytes.
        width: u8,
    },
    /// Another value of `width` bytes, sign-extended to the machine's word.
    Signed {
        /// The value.
        of: Atom,
        /// The number of bytes.
        width: u8,
    },
    /// The stack pointer after this instruction aligned it, or moved it by an unknown distance.
    Frame {
        /// The instruction.
        at: Addr,
    },
    /// An entry of a table in constant memory, with an unknown index.
    Element {
        /// The first entry.
        table: Addr,
        /// The distance of entries in bytes.
        stride: u8,
        /// Size of an entry in bytes.
        width: u8,
        /// Whether the entry was sign-extended.
        signed: bool,
        /// The instruction that read it.
        at: Addr,
    },
}

/// The time at which memory was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum When {
    /// At the function's entry, or before anything wrote to the memory since.
    Entry,
    /// At this instruction; other code may have written to the memory before.
    Later(Addr),
}

#[derive(Clone, Copy)]
struct Info {
    /// The innermost origin that this one is made from.
    root: OriginId,
    depth: u8,
}

/// All origins, each stored once, by number.
pub struct Origins(IndexMap<Origin, Info, FxBuildHasher>);

impl Default for Origins {
    /// Returns the placeholders only.
    fn default() -> Origins {
        let fixed = [(Origin::Number, OriginId::NUMBER), (Origin::Unknown, OriginId::UNKNOWN)];
        Origins(fixed.map(|(origin, root)| (origin, Info { root, depth: 0 })).into_iter().collect())
    }
}

impl Origins {
    /// Returns the origin with this number.
    pub fn get(&self, id: OriginId) -> Origin {
        self.entry(id).0
    }

    /// Returns the number of an origin, and whether it is new. `None` if it refers to too many others.
    pub fn add(&mut self, origin: Origin) -> Option<(OriginId, bool)> {
        if let Some(known) = self.0.get_index_of(&origin) {
            return Some((OriginId(known as u32), false));
        }
        let id = OriginId(u32::try_from(self.0.len()).ok()?);
        let info = match origin {
            Origin::Memory { at, when, .. } => {
                let of = self.info(at.origin);
                let own = at.origin == OriginId::NUMBER || when != When::Entry;
                Info { root: if own { id } else { of.root }, depth: of.depth + 1 }
            }
            Origin::Low { of, .. } | Origin::Signed { of, .. } => {
                let of = self.info(of.origin);
                Info { root: of.root, depth: of.depth + 1 }
            }
            _ => Info { root: id, depth: 0 },
        };
        if info.depth > MAX_DEPTH {
            return None;
        }
        self.0.insert(origin, info);
        Some((id, true))
    }

    /// Returns the innermost origin that this one is made from: for the low byte of an argument, the register that
    /// holds the argument. All copies of a root in one state are equal.
    pub fn root(&self, id: OriginId) -> OriginId {
        self.info(id).root
    }

    fn info(&self, id: OriginId) -> Info {
        self.entry(id).1
    }

    fn entry(&self, id: OriginId) -> (Origin, Info) {
        let (origin, info) = self.0.get_index(id.0 as usize).expect("numbers are those of origins");
        (*origin, *info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_kept_once() {
        let mut origins = Origins::default();
        let (register, new) = origins.add(Origin::Register(Reg(4))).unwrap();
        assert!(new);
        assert_eq!(origins.add(Origin::Register(Reg(4))), Some((register, false)));
        assert_ne!(register, OriginId::NUMBER);
        let argument = Origin::Memory { at: Atom::of(register), width: 4, when: When::Entry };
        let (argument, _) = origins.add(argument).unwrap();
        assert_eq!(origins.root(argument), register);
    }

    #[test]
    fn chains_end() {
        let mut origins = Origins::default();
        let mut at = Atom::of(origins.add(Origin::Register(Reg(0))).unwrap().0);
        let mut length = 0;
        while let Some((id, _)) = origins.add(Origin::Memory { at, width: 4, when: When::Later(Addr(0)) }) {
            assert_eq!(origins.root(id), id);
            at = Atom::of(id);
            length += 1;
        }
        assert_eq!(length, MAX_DEPTH);
    }
}
