//! Chooses how each member is stored.
//!
//! 1. [`scheme`] finds the cheapest scheme of each member that [`hot`] does not keep as it is;
//! 2. [`layout`] computes the structures that follow;
//! 3. [`steps`] computes the memory of the slab caches, and drops the changes that save none.

mod beside;
mod document;
pub mod hot;
pub mod layout;
pub mod scheme;
pub mod steps;

use kcli::Failure;
use ktypes::Kind;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::document::{
    CacheProfile, Excluded, Fields, MemberPlan, MemberProfile, Profile, Scheme, TypeProfile,
};
use crate::error::Error;

pub use beside::Beside;
use layout::{Changes, Layout, Layouts};
use scheme::{Allowed, Context};
use steps::{Change, Memory};

/// The share of all slabs, in thousandths, from which on a cache is worth a plan.
const MIN_SHARE: u64 = 5;

/// Least number of members with a number or a pointer for a structure that is only embedded in others. Smaller ones are locks,
/// lists and counters, which all of the kernel uses.
const MIN_SCALARS: usize = 6;

/// Number of rounds in which the sizes of objects and the alignment of pointers to them may change each other.
const ROUNDS: usize = 8;

/// What to plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// The paper's threshold `r`.
    pub threshold: f64,
    /// The structures; empty for all that are worth it.
    pub types: Vec<String>,
    /// The changes.
    pub allowed: Allowed,
    /// Whether to make each scheme too narrow for some of the profiled values.
    pub starve: bool,
    /// A plan whose members that the code excluded are excluded here.
    pub after: Option<Fields>,
    /// The values without a code that a kernel with an earlier plan counted.
    pub beside: Beside,
}

/// Plans how the members of a profile are stored.
///
/// # Errors
/// If the profile does not have what the options name, or contradicts itself.
pub fn plan(profile: &Profile, name: &str, options: &Options) -> Result<Fields, Failure> {
    let unknown = |problem: String, advice: &str| {
        Failure::of(Error::Unknown { name: name.into(), problem, advice: advice.into() })
    };
    if options.threshold > 0.0 && !profile.accesses {
        return Err(unknown(
            "it has no loads and stores, by which --threshold selects members".into(),
            "give --accesses to `field-pack profile`",
        ));
    }
    let Some(allocator) = profile.allocator else {
        return Err(unknown("it has no slab caches".into(), "make the profile again"));
    };
    if allocator.word == 0 || allocator.page == 0 || allocator.orders[1] > 20 {
        return Err(unknown(
            "the rules of its slab allocator are impossible".into(),
            "make the profile again",
        ));
    }
    if let Some(missing) = options.types.iter().find(|of| profile.types.iter().all(|one| one.name != **of)) {
        return Err(unknown(
            format!("it has no structure {missing}"),
            "give one that `field-pack show` prints",
        ));
    }
    let layouts = Layouts::new(&profile.types);
    let memory = Memory { allocator, caches: plannable(profile, &layouts) };
    let types = selected(profile, &memory, &options.types);
    let planner = Planner { profile, options, layouts: &layouts, memory: &memory, types };
    Ok(planner.plan())
}

/// Returns the caches whose slabs are as computed, and whose objects are of a known structure.
fn plannable<'a>(profile: &'a Profile, layouts: &Layouts<'_>) -> Vec<&'a CacheProfile> {
    let Some(allocator) = profile.allocator else { return Vec::new() };
    let is_known = |cache: &&CacheProfile| {
        let Some(of) = cache.of.as_ref().and_then(|of| profile.types.iter().find(|one| one.name == *of))
        else {
            return false;
        };
        let slab = allocator.slab(cache, cache.object_size);
        let is_computed =
            [slab.size, slab.objects, slab.bytes] == [cache.size, cache.per_slab, cache.slab_bytes];
        is_computed && of.size == cache.object_size && layouts.is_natural(&of.name)
    };
    profile.caches.iter().filter(is_known).collect()
}

/// Returns the structures to plan: the named ones, or those of the objects in caches that are worth it, and large ones
/// embedded in these.
fn selected<'a>(profile: &'a Profile, memory: &Memory<'_>, names: &[String]) -> Vec<&'a TypeProfile> {
    if !names.is_empty() {
        return profile.types.iter().filter(|of| names.contains(&of.name)).collect();
    }
    let slab: u64 = profile.caches.iter().map(|cache| cache.bytes).sum();
    let mut wanted: FxHashSet<&str> = FxHashSet::default();
    let worth = memory.caches.iter().filter(|cache| cache.bytes * 1000 >= slab * MIN_SHARE);
    let mut next: Vec<&str> = worth.filter_map(|cache| cache.of.as_deref()).collect();
    while let Some(name) = next.pop() {
        let Some(of) = profile.types.iter().find(|of| of.name == name).filter(|of| wanted.insert(&of.name))
        else {
            continue;
        };
        let parts = of.members.iter().filter(|member| member.kind == Kind::Structure && !member.union);
        next.extend(
            parts.filter_map(|member| member.structure.as_deref()).filter(|part| is_large(profile, part)),
        );
    }
    profile.types.iter().filter(|of| wanted.contains(&of.name[..])).collect()
}

fn is_large(profile: &Profile, name: &str) -> bool {
    let of = profile.types.iter().find(|of| of.name == name);
    of.is_some_and(|of| {
        of.members.iter().filter(|member| scheme::obstacle(of, member).is_none()).count() >= MIN_SCALARS
    })
}

struct Planner<'a> {
    profile: &'a Profile,
    options: &'a Options,
    layouts: &'a Layouts<'a>,
    memory: &'a Memory<'a>,
    types: Vec<&'a TypeProfile>,
}

/// The schemes of members, by structure and name.
type Schemes<'a> = FxHashMap<(&'a str, &'a str), (Scheme, Option<Scheme>)>;

/// Why members stay as they are, by structure and name.
type Reasons<'a> = FxHashMap<(&'a str, &'a str), String>;

impl<'a> Planner<'a> {
    fn plan(&self) -> Fields {
        let mut reasons = Reasons::default();
        let hot = self.limit();
        let mut shifts = FxHashMap::default();
        let (mut changes, mut schemes) = (Changes::default(), Schemes::default());
        for _ in 0..ROUNDS {
            reasons.clear();
            schemes = self.schemes(hot, &shifts, &mut reasons);
            changes = self.changes(&schemes);
            let mut candidates = self.candidates(&schemes);
            for dropped in steps::drop_useless(self.memory, self.layouts, &mut changes, &mut candidates) {
                schemes.remove(&(dropped.of, dropped.member));
                let why = "a slab would not hold more objects".to_owned();
                reasons.insert((dropped.of, dropped.member), why);
            }
            let next = self.shifts(&self.layouts.with(&changes));
            if next == shifts {
                break;
            }
            // Addresses are aligned no better than in any round, so that the rounds end.
            let least = |(of, shift): (String, u32)| {
                let before = shifts.get(&of).copied().unwrap_or(u32::MAX);
                (of, shift.min(before))
            };
            shifts = next.into_iter().map(least).collect();
        }
        self.document(&changes, &schemes, &reasons)
    }

    /// Returns the greatest number of loads and stores of a member that may change.
    fn limit(&self) -> u64 {
        let members = self.types.iter().flat_map(|of| of.members.iter().map(move |member| (of, member)));
        let compressible = members.filter(|(of, member)| scheme::obstacle(of, member).is_none());
        hot::limit(compressible.map(|(_, member)| cost(member)), self.options.threshold)
    }

    /// Returns the alignment of objects, as number of low bits that are 0 in their addresses, by structure.
    fn shifts(&self, layouts: &FxHashMap<&str, Layout>) -> FxHashMap<String, u32> {
        let mut shifts: FxHashMap<String, u32> = FxHashMap::default();
        for cache in &self.memory.caches {
            let Some(of) = &cache.of else { continue };
            let size = self.memory.slab(cache, layouts).size;
            let shift = shifts.entry(of.clone()).or_insert(u32::MAX);
            *shift = (*shift).min(size.trailing_zeros());
        }
        // Embedded structures begin anywhere in their container that their alignment allows.
        for of in &self.profile.types {
            for part in of.members.iter().filter_map(|member| member.structure.as_ref()) {
                let align = layouts.get(&part[..]).map(|layout| layout.align);
                let align = align
                    .or_else(|| self.profile.types.iter().find(|one| one.name == *part).map(|one| one.align));
                let shift = shifts.entry(part.clone()).or_insert(u32::MAX);
                *shift = (*shift).min(align.unwrap_or(1).trailing_zeros());
            }
        }
        shifts
    }

    /// Chooses a scheme for each member, or gives the reason why it has none.
    fn schemes(&self, hot: u64, shifts: &FxHashMap<String, u32>, reasons: &mut Reasons<'a>) -> Schemes<'a> {
        let mut schemes = Schemes::default();
        for of in &self.types {
            for member in &of.members {
                let excluded = self.excluded(&of.name, &member.name);
                let result = if let Some(obstacle) = scheme::obstacle(of, member) {
                    Err(obstacle)
                } else if let Some(whole) = excluded.iter().find(|one| one.scheme.is_none()) {
                    Err(whole.why.clone())
                } else if cost(member) > hot {
                    Err(format!(
                        "it is among the most used: {} loads, {} stores",
                        member.loads, member.stores
                    ))
                } else if let Some(count) = self.options.beside.are_many(of, member) {
                    Err(format!(
                        "{count} of its values had no code in an earlier plan, with {} objects",
                        of.objects
                    ))
                } else if !self.layouts.is_natural(&of.name) {
                    Err(format!("the layout of struct {} is not the natural one of C", of.name))
                } else {
                    let excluded: Vec<String> =
                        excluded.into_iter().filter_map(|one| one.scheme.clone()).collect();
                    let context = Context {
                        allowed: self.options.allowed,
                        of,
                        types: &self.profile.types,
                        shifts,
                        excluded: &excluded,
                        is_proven: self.is_proven(&of.name, &member.name),
                    };
                    scheme::choose(member, &context)
                };
                let key = (&of.name[..], &member.name[..]);
                match result {
                    Ok(found) => drop(schemes.insert(key, found)),
                    Err(reason) => drop(reasons.insert(key, reason)),
                }
            }
        }
        schemes
    }

    /// Returns what the code excludes of a member, as an earlier plan says.
    fn excluded(&self, of: &str, member: &str) -> Vec<&'a Excluded> {
        let types = self.options.after.iter().flat_map(|after| &after.types).filter(|one| one.name == of);
        types.flat_map(|one| &one.excluded).filter(|one| one.name == member && !one.planned).collect()
    }

    /// Whether an earlier plan says that no code stores another value in an absent member.
    fn is_proven(&self, of: &str, member: &str) -> bool {
        let types = self.options.after.iter().flat_map(|after| &after.types).filter(|one| one.name == of);
        let absent =
            |one: &&MemberPlan| one.name == member && one.scheme.width() == 0 && one.otherwise.is_none();
        types.flat_map(|one| &one.members).any(|one| absent(&one))
    }

    fn changes(&self, schemes: &Schemes<'a>) -> Changes<'a> {
        let mut changes = Changes::default();
        changes.widths.extend(schemes.iter().map(|(&key, schemes)| (key, width(schemes))));
        if self.options.allowed.order {
            let natural = self.types.iter().filter(|of| self.layouts.is_natural(&of.name));
            let is_free = |of: &&&'a TypeProfile| self.excluded(&of.name, "").is_empty();
            changes.ordered.extend(natural.filter(is_free).map(|of| &of.name[..]));
        }
        changes
    }

    fn candidates(&self, schemes: &Schemes<'a>) -> Vec<Change<'a>> {
        let members = self.types.iter().flat_map(|of| of.members.iter().map(move |member| (of, member)));
        let with_scheme =
            members.filter(|(of, member)| schemes.contains_key(&(&of.name[..], &member.name[..])));
        with_scheme
            .map(|(of, member)| Change { of: &of.name, member: &member.name, cost: cost(member) })
            .collect()
    }
}

/// Returns the size in bytes that a plan counts with: an absent member is stored if code may store another value, which only
/// the source shows.
fn width((scheme, otherwise): &(Scheme, Option<Scheme>)) -> u64 {
    otherwise.as_ref().unwrap_or(scheme).width()
}

/// Returns the number of loads and stores of a member.
fn cost(member: &MemberProfile) -> u64 {
    member.loads.saturating_add(member.stores)
}

#[cfg(test)]
mod tests;
