//! The library members that a link takes only because of some objects.
//!
//! `ld` takes the members of an archive that define a symbol which the objects before need (`kelf::program`). The
//! libraries of a kernel are `lib/lib.a` and the one of its architecture, from the `lib-y` of Makefiles. No gate tells
//! that a member goes when nothing refers to it any more.

use std::collections::BTreeSet;
use std::ops::Range;

use goblin::elf::section_header::SHF_ALLOC;
use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kelf::{Definition, Program, Resolved};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::costs;

/// The linked members of a kernel's libraries.
pub struct Libraries<'p> {
    members: Vec<Member<'p>>,
}

/// A linked member.
struct Member<'p> {
    name: &'p str,
    users: Vec<User<'p>>,
}

/// An object that refers to a member.
struct User<'p> {
    object: &'p str,
    /// The section and offset of each reference; none if its symbol table alone has one of the symbols.
    places: Vec<(&'p str, u32)>,
}

impl<'p> Libraries<'p> {
    /// Finds the members of a program's libraries, and their users.
    pub fn of(program: &'p Program<'p>) -> Libraries<'p> {
        let mut numbers: FxHashMap<usize, usize> = FxHashMap::default();
        let mut members = Vec::new();
        let pinned: FxHashSet<usize> =
            program.globals().filter_map(|(_, _, global)| used_beside(global)).collect();
        for (number, input) in program.objects.iter().enumerate() {
            if input.from_library && !pinned.contains(&number) {
                numbers.insert(number, members.len());
                members.push(Member { name: &input.object.name, users: Vec::new() });
            }
        }
        for number in 0..program.objects.len() {
            for (member, user) in users(program, number, &numbers) {
                members[member].users.push(user);
            }
        }
        Libraries { members }
    }

    /// Returns the members that nothing refers to without some objects and parts of others, which are nodes of `graph`.
    pub fn unused_without(&self, objects: &[&str], graph: &Graph, parts: &[NodeId]) -> Vec<&'p str> {
        let mut gone: FxHashSet<&str> = objects.iter().copied().collect();
        let mut ranges: FxHashMap<(&str, &str), Vec<Range<u32>>> = FxHashMap::default();
        for &id in parts {
            if let (Some((object, section, start)), Some(origin)) =
                (costs::place(graph, id), graph.node(id).origin())
            {
                ranges.entry((object, section)).or_default().push(start..origin.end());
            }
        }
        let is_removed = |object: &str, &(section, offset): &(&str, u32)| {
            ranges
                .get(&(object, section))
                .is_some_and(|ranges| ranges.iter().any(|range| range.contains(&offset)))
        };
        let mut unused = Vec::new();
        loop {
            let is_unused = |member: &&Member<'p>| {
                let stays = |user: &User<'_>| {
                    !gone.contains(user.object)
                        && (user.places.is_empty()
                            || !user.places.iter().all(|place| is_removed(user.object, place)))
                };
                !gone.contains(member.name) && !member.users.is_empty() && !member.users.iter().any(stays)
            };
            let found: Vec<&str> = self.members.iter().filter(is_unused).map(|member| member.name).collect();
            if found.is_empty() {
                return unused;
            }
            gone.extend(&found);
            unused.extend(found);
        }
    }
}

/// Returns the number of the object with a symbol that the final link itself uses.
fn used_beside(global: &kelf::Global) -> Option<usize> {
    match global.definition {
        Definition::In(object, _) if global.used_beside => Some(object.get()),
        _ => None,
    }
}

/// Returns the members that an object refers to, by their place in `members`.
fn users<'p>(
    program: &'p Program<'p>,
    number: usize,
    members: &FxHashMap<usize, usize>,
) -> Vec<(usize, User<'p>)> {
    let object = &program.objects[number].object;
    let member_of = |symbol: usize| {
        let Resolved::Global(global) = program.resolve(number.into(), symbol.into()) else { return None };
        match program.global(global).definition {
            Definition::In(other, _) if other.get() != number => members.get(&other.get()).copied(),
            _ => None,
        }
    };
    let symbols: FxHashMap<usize, usize> =
        (1..object.symbols.len()).filter_map(|symbol| Some((symbol, member_of(symbol)?))).collect();
    let mut places: FxHashMap<usize, Vec<(&str, u32)>> = FxHashMap::default();
    let mut placed: FxHashSet<usize> = FxHashSet::default();
    for section in object.sections.iter().filter(|section| section.flags & u64::from(SHF_ALLOC) != 0) {
        for reloc in &section.relocs {
            let symbol = reloc.symbol.get();
            if let Some(member) = symbols.get(&symbol) {
                let offset = u32::try_from(reloc.offset).unwrap_or(u32::MAX);
                places.entry(*member).or_default().push((section.name, offset));
                placed.insert(symbol);
            }
        }
    }
    // The linker takes a member also for a symbol that only the symbol table has.
    for (_, member) in symbols.iter().filter(|(symbol, _)| !placed.contains(symbol)) {
        places.remove(member);
    }
    let used: BTreeSet<usize> = symbols.into_values().collect();
    let user =
        |member: &usize| User { object: &object.name, places: places.remove(member).unwrap_or_default() };
    let users: Vec<User<'p>> = used.iter().map(user).collect();
    used.into_iter().zip(users).collect()
}
