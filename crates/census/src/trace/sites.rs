//! Sums of allocated memory, by the code that called the allocator.

use std::collections::BTreeMap;

use kelf::Functions;

use super::allocators::{self, Allocator};
use super::document::{Site, Sum};
use super::objects::Object;
use super::recording::Recording;

/// Maximum number of callers of a site.
const MAX_CALLERS: usize = 4;

/// Returns the sums of each kind of allocator.
pub fn sums(objects: &[Object]) -> Vec<Sum> {
    let sum = |kind| {
        let mut sum = Sum { kind, objects: 0, bytes: 0, known_objects: 0, known_bytes: 0 };
        for object in objects.iter().filter(|object| object.kind == kind) {
            sum.objects += 1;
            sum.bytes += object.bytes;
            if object.chain.is_some() {
                sum.known_objects += 1;
                sum.known_bytes += object.bytes;
            }
        }
        sum
    };
    Allocator::ALL.map(sum).to_vec()
}

/// Returns the sites of all objects whose call is known, those with the most unread bytes first.
pub fn add_up(objects: &[Object], recording: &Recording, functions: &Functions) -> Vec<Site> {
    let callers: Vec<Callers> = recording.chains.iter().map(|chain| Callers::new(chain, functions)).collect();
    let mut sites: BTreeMap<(Allocator, u64), Site> = BTreeMap::new();
    for object in objects {
        let Some(chain) = object.chain else { continue };
        let callers = &callers[chain];
        let site = sites.entry((object.kind, callers.address)).or_insert_with(|| callers.site(object.kind));
        site.objects += 1;
        site.bytes += object.bytes;
        site.held += object.held;
        site.untouched += object.idle.untouched;
        site.unread += object.idle.unread;
        site.unused_objects += u64::from(object.idle.untouched == object.bytes);
        let common = site.callers.iter().zip(&callers.above).take_while(|(one, other)| one == other).count();
        site.callers.truncate(common);
        site.through.extend(
            callers.through.iter().filter(|name| !site.through.contains(name)).cloned().collect::<Vec<_>>(),
        );
        if let Some(cache) = object.cache.as_ref().filter(|cache| !site.caches.contains(cache)) {
            site.caches.push(cache.clone());
        }
    }
    let mut sites: Vec<Site> = sites.into_values().collect();
    sites.sort_by_key(|site| std::cmp::Reverse((site.unread, site.bytes)));
    sites
}

/// The functions of a chain of callers.
struct Callers {
    /// The return address of the call by the site.
    address: u64,
    function: String,
    offset: u64,
    through: Vec<String>,
    above: Vec<String>,
}

impl Callers {
    /// Finds the first function of a chain that does not allocate for its caller. If all of them do, it is the last one.
    fn new(chain: &[u64], functions: &Functions) -> Callers {
        // The return address may be the end of the function.
        let at = |&address: &u64| functions.at(address.wrapping_sub(1));
        let name = |address: &u64| match at(address) {
            Some((index, _)) => functions.function(index).name.clone(),
            None => format!("{address:#x}"),
        };
        let forwards = |address: &u64| {
            at(address).is_some_and(|(index, _)| allocators::is_forwarding(functions.function(index)))
        };
        let own =
            chain.iter().position(|address| !forwards(address)).unwrap_or(chain.len().saturating_sub(1));
        let address = chain.get(own).copied().unwrap_or_default();
        let mut through: Vec<String> = chain.iter().take(own).rev().map(name).collect();
        through.dedup();
        Callers {
            address,
            function: name(&address),
            offset: at(&address).map_or(0, |(_, offset)| offset + 1),
            through,
            above: chain.iter().skip(own + 1).take(MAX_CALLERS).map(name).collect(),
        }
    }

    /// Returns the site without objects.
    fn site(&self, kind: Allocator) -> Site {
        Site {
            kind,
            function: self.function.clone(),
            offset: self.offset,
            address: self.address,
            lines: Vec::new(),
            through: self.through.clone(),
            callers: self.above.clone(),
            caches: Vec::new(),
            objects: 0,
            bytes: 0,
            unused_objects: 0,
            held: 0,
            untouched: 0,
            unread: 0,
        }
    }
}
