//! The files of a process, and the lookup scopes of their references.
//!
//! The order is that of the System V ABI: the executable, preloaded libraries, and then their dependencies, breadth
//! first. The references of a library loaded by name are looked up there first, and then in the library's own
//! dependencies.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexSet;

use super::dynsym::{DynamicSymbol, Version};
use super::object::Object;
use crate::address::Addr;

/// The number of a member of a process; 0 is the executable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberIndex(pub u32);

impl MemberIndex {
    /// The executable, or a library that is scanned by itself.
    pub const FIRST: MemberIndex = MemberIndex(0);

    /// Returns the index as a `usize`, to index a slice.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// A file of a process.
#[derive(Clone, Debug)]
pub struct Member {
    /// The parsed file.
    pub object: Arc<Object>,
    /// Its path in reports.
    pub file: Arc<str>,
    /// Whether it is present at program start, rather than loaded by name later.
    pub at_start: bool,
    /// Whether every exported function counts.
    pub whole: bool,
    /// Its dependencies, in order.
    pub needed: Vec<MemberIndex>,
}

/// A place that requests something by name, as given by the user: `0x1234`, `libpam.so.0`, or `libpam.so.0:0x1234`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The file that contains it, by its path or the end of the path; any file if `None`.
    pub file: Option<String>,
    /// Its address in the file; every place of the file if `None`.
    pub address: Option<u64>,
}

impl Asker {
    /// Parses a place. `None` if it is empty or its address is not a number.
    pub fn read(text: &str) -> Option<Asker> {
        let address = |digits: &str| u64::from_str_radix(digits.strip_prefix("0x")?, 16).ok();
        let (file, address) = match text.rsplit_once(':') {
            Some((file, digits)) => (Some(file), Some(address(digits)?)),
            None => match address(text) {
                Some(address) => (None, Some(address)),
                None => (Some(text), None),
            },
        };
        let is_empty = file.is_some_and(str::is_empty);
        (!is_empty).then(|| Asker { file: file.map(str::to_owned), address })
    }

    /// Returns whether an address of a file is this place.
    pub fn is(&self, file: &str, address: Addr) -> bool {
        let is_file = |own: &String| {
            let before = file.strip_suffix(own.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        self.file.as_ref().is_none_or(is_file) && self.address.is_none_or(|own| own == address.0)
    }
}

/// The files of a process.
#[derive(Debug, Default)]
pub struct Process {
    /// The files, the executable first.
    pub members: Vec<Member>,
    /// The interpreter, which may also be a dependency of another file.
    pub interpreter: Option<MemberIndex>,
    /// Libraries that are loaded before the executable's dependencies.
    pub preloaded: Vec<MemberIndex>,
    /// Libraries that may be requested by name at run time.
    pub named: Vec<Named>,
    /// Members that the dynamic linker may replace by another file for newer processors, with that file.
    pub variants: Vec<(MemberIndex, String)>,
    /// The places for which the user has given all names: they request no others.
    pub settled: Vec<Asker>,
    /// The names of the libraries that may be loaded according to the user, without their directories.
    pub given: Vec<String>,
}

/// A library that code requests by name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The strings that request it.
    pub strings: Vec<String>,
    /// The library that is then loaded, with its dependencies.
    pub member: Option<MemberIndex>,
    /// The functions of present libraries that are then called.
    pub imports: Vec<Box<[u8]>>,
}

impl Process {
    /// Creates a process of one file.
    pub fn single(object: Object, file: &str) -> Process {
        let whole = object.is_library();
        let object = Arc::new(object);
        let member = Member { object, file: file.into(), at_start: true, whole, needed: Vec::new() };
        Process { members: vec![member], ..Process::default() }
    }

    /// Returns these members and all their dependencies, breadth first, each once.
    pub fn closure(&self, first: &[MemberIndex]) -> Vec<MemberIndex> {
        let mut closure: IndexSet<MemberIndex> = first.iter().copied().collect();
        let mut next = 0;
        while let Some(&member) = closure.get_index(next) {
            closure.extend(&self.members[member.get()].needed);
            next += 1;
        }
        closure.into_iter().collect()
    }

    /// Returns the lookup scopes of references.
    pub(super) fn scopes(&self) -> Scopes<'_> {
        let mut first = vec![MemberIndex::FIRST];
        first.extend(&self.preloaded);
        let global = self.closure(&first);
        let mut own: Vec<Vec<u32>> = vec![Vec::new(); self.members.len()];
        let mut local = Vec::new();
        let libraries = self.named.iter().filter_map(|named| named.member);
        for library in libraries.collect::<BTreeSet<MemberIndex>>() {
            let closure = self.closure(&[library]);
            for member in &closure {
                own[member.get()].push(local.len() as u32);
            }
            local.push(closure);
        }
        Scopes { process: self, global, local, own }
    }
}

/// The lookup scopes of each member, in order.
pub(super) struct Scopes<'p> {
    process: &'p Process,
    global: Vec<MemberIndex>,
    /// Each library that is loaded by name, with its dependencies.
    local: Vec<Vec<MemberIndex>>,
    /// The local scopes that contain each member.
    own: Vec<Vec<u32>>,
}

/// A definition: its member and symbol.
pub(super) type Definition<'p> = (MemberIndex, &'p DynamicSymbol);

/// The possible bindings of a reference.
pub(super) struct Bound<'p> {
    /// The definitions, unordered.
    pub(super) definitions: Vec<Definition<'p>>,
    /// Whether the reference certainly binds to `definitions`, which then has one element.
    pub(super) certain: bool,
}

/// The purpose of a reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// An address.
    Address,
    /// Calls only.
    Call,
    /// Copying the content to the executable, which has the symbol itself.
    Copy,
}

impl<'p> Scopes<'p> {
    /// Returns the definitions that a reference of a member may bind to. There is one, except for libraries that are
    /// loaded by name: their lookup may begin in their own scope, and other libraries may be loaded before them.
    pub(super) fn lookup(&self, member: MemberIndex, symbol: &'p DynamicSymbol, purpose: Use) -> Bound<'p> {
        let nothing = Bound { definitions: Vec::new(), certain: false };
        if symbol.local {
            let definitions = if symbol.defined { vec![(member, symbol)] } else { Vec::new() };
            return Bound { definitions, certain: symbol.defined };
        }
        let own = &self.process.members[member.get()];
        let Some(dynamic) = &own.object.dynamic else { return nothing };
        let name = &*symbol.name;
        let version = dynamic.symbols.version_of(symbol);
        let mut found = Vec::new();
        let mut add = |definition: Option<Definition<'p>>| {
            let same =
                |other: &Definition, one: &Definition| other.0 == one.0 && std::ptr::eq(other.1, one.1);
            if let Some(one) = definition.filter(|one| !found.iter().any(|other| same(other, one))) {
                found.push(one);
            }
        };
        if dynamic.symbolic && purpose != Use::Copy {
            add(self.find_in(&[member], name, version, purpose));
        } else {
            add(self.find_in(&self.global, name, version, purpose));
        }
        for &scope in &self.own[member.get()] {
            add(self.find_in(&self.local[scope as usize], name, version, purpose));
        }
        // The interpreter binds to itself until the libraries are loaded.
        if self.process.interpreter == Some(member) {
            add(self.find_in(&[member], name, version, purpose));
        }
        if found.is_empty() {
            // A library that was loaded by name earlier may define it.
            let all = (0..self.process.members.len() as u32).map(MemberIndex);
            let all = all.filter_map(|member| self.find_in(&[member], name, version, purpose));
            return Bound { definitions: all.collect(), certain: false };
        }
        Bound { certain: found.len() == 1, definitions: found }
    }

    fn find_in(
        &self,
        scope: &[MemberIndex],
        name: &[u8],
        version: Option<&Version>,
        purpose: Use,
    ) -> Option<Definition<'p>> {
        scope.iter().filter(|&&member| purpose != Use::Copy || member != MemberIndex::FIRST).find_map(
            |&member| {
                let dynamic = self.process.members[member.get()].object.dynamic.as_ref()?;
                Some((member, dynamic.symbols.find(name, version, purpose == Use::Call)?))
            },
        )
    }
}
