//! Which files make up a process, and where the references of each are looked up.
//!
//! The order is that of the System V ABI: the executable, libraries that are always loaded first, and then
//! what these need, breadth first. What is loaded by name later looks there first, and then in what it needs
//! itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexSet;

use super::{Addr, DynamicSymbol, Object, Version};

/// The number of a member of a process; 0 is the executable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberIndex(pub u32);

impl MemberIndex {
    /// The executable, or the library that is looked at by itself.
    pub const FIRST: MemberIndex = MemberIndex(0);

    /// The index as a `usize`, to index a slice.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// A file of a process.
#[derive(Clone, Debug)]
pub struct Member {
    /// What is in it.
    pub object: Arc<Object>,
    /// Its path, as reports name it.
    pub file: Arc<str>,
    /// Whether it is there when the program starts, and not loaded by name later.
    pub at_start: bool,
    /// Whether every function that it exports has to count.
    pub whole: bool,
    /// What it needs, in order.
    pub needed: Vec<MemberIndex>,
}

/// A place that asks for something by name, as the user says it: `0x1234`, `libpam.so.0`, or `libpam.so.0:0x1234`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The file that it is in, by its path or the last part of that; any if `None`.
    pub file: Option<String>,
    /// Its address in the file; every place of the file if `None`.
    pub address: Option<u64>,
}

impl Asker {
    /// A place in words. `None` if they are empty, or an address is no number.
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

    /// Whether an address of a file is this place.
    pub fn is(&self, file: &str, address: Addr) -> bool {
        let is_file = |own: &String| {
            let before = file.strip_suffix(own.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        self.file.as_ref().is_none_or(is_file) && self.address.is_none_or(|own| own == address.0)
    }
}

/// The files of a process.
#[derive(Debug)]
pub struct Process {
    /// The files, the executable first.
    pub members: Vec<Member>,
    /// The interpreter, which may or may not be among what others need.
    pub interpreter: Option<MemberIndex>,
    /// Libraries that are loaded ahead of what the executable needs.
    pub preloaded: Vec<MemberIndex>,
    /// What may be asked for by name while the program runs.
    pub named: Vec<Named>,
    /// Members of which the dynamic linker may take another file, one for newer processors, and that file.
    pub variants: Vec<(MemberIndex, String)>,
    /// The places whose names the user has settled: they ask for these names and for no other.
    pub settled: Vec<Asker>,
    /// The names of the libraries that the user says may be loaded, without their directories.
    pub given: Vec<String>,
}

/// Something that code asks for by name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The strings that code asks with.
    pub strings: Vec<String>,
    /// The library that is loaded then, with what it needs.
    pub member: Option<MemberIndex>,
    /// Functions of the libraries that are there, which are called then.
    pub imports: Vec<Box<[u8]>>,
}

impl Process {
    /// A process of one file.
    pub fn single(object: Object, file: &str) -> Process {
        let whole = object.is_library();
        let object = Arc::new(object);
        let member = Member { object, file: file.into(), at_start: true, whole, needed: Vec::new() };
        let members = vec![member];
        Process {
            members,
            interpreter: None,
            preloaded: Vec::new(),
            named: Vec::new(),
            variants: Vec::new(),
            settled: Vec::new(),
            given: Vec::new(),
        }
    }

    /// These members and all that they need, breadth first, each once.
    pub fn closure(&self, first: &[MemberIndex]) -> Vec<MemberIndex> {
        let mut closure: IndexSet<MemberIndex> = first.iter().copied().collect();
        let mut next = 0;
        while let Some(&member) = closure.get_index(next) {
            closure.extend(&self.members[member.get()].needed);
            next += 1;
        }
        closure.into_iter().collect()
    }

    /// Where references are looked up.
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

/// Where the references of each member are looked up, in order.
pub(super) struct Scopes<'p> {
    process: &'p Process,
    global: Vec<MemberIndex>,
    /// Of each library that is loaded by name: itself, and what it needs.
    local: Vec<Vec<MemberIndex>>,
    /// The local scopes that each member is in.
    own: Vec<Vec<u32>>,
}

/// A definition: the member that has it, and the symbol.
pub(super) type Definition<'p> = (MemberIndex, &'p DynamicSymbol);

/// What a reference may bind to.
pub(super) struct Bound<'p> {
    /// The definitions, in no order that matters.
    pub(super) definitions: Vec<Definition<'p>>,
    /// Whether it is certain that the reference binds to one of them, which then is the only one.
    pub(super) certain: bool,
}

/// What a reference is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// An address.
    Address,
    /// Calls alone.
    Call,
    /// To copy the content to the executable, which has the symbol itself.
    Copy,
}

impl<'p> Scopes<'p> {
    /// The definitions that a reference of a member may bind to. There is one, except for libraries that are loaded by
    /// name: their lookup may begin in their own scope, and other libraries may be loaded before them.
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
        // The interpreter binds to itself until the libraries are there.
        if self.process.interpreter == Some(member) {
            add(self.find_in(&[member], name, version, purpose));
        }
        if found.is_empty() {
            // Something that has been loaded by name before may have it.
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
