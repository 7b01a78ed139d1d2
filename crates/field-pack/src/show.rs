//! Tables for a person: the paper's Tables 1 and 2 for this kernel, and what a plan brings.

use kcli::{Table, human};
use ktypes::Kind;

use crate::document::{CacheProfile, Fields, MemberProfile, Profile, TypeProfile, Value};

/// Number of caches of the second table.
const MAX_CACHES: usize = 30;

/// Returns the tables of a profile: the members of each structure (the paper's Table 1), then the slab caches (its Table 2).
/// Without names, only the structures in the largest caches.
pub fn profile(profile: &Profile, names: &[String]) -> String {
    let mut text = format!("{}\n", profile.kernel);
    for of in profile.types.iter().filter(|of| is_shown(profile, of, names)) {
        text += &format!("\nstruct {}, {} bytes, {} objects\n", of.name, of.size, human(of.objects));
        text += &members(of, profile.accesses);
    }
    let all: u64 = profile.caches.iter().map(|cache| cache.bytes).sum();
    let mut table = Table::new(["slab cache", "structure", "size", "objects", "used", "KB", "ratio"]);
    for cache in profile.caches.iter().take(MAX_CACHES) {
        let share = cache.bytes as f64 / all.max(1) as f64 * 100.0;
        table.row([
            cache.name.clone(),
            cache.of.clone().unwrap_or_default(),
            human(cache.size),
            human(cache.objects),
            human(cache.used),
            human(cache.bytes / 1024),
            format!("{share:.1} %"),
        ]);
    }
    text += &format!("\n{table}\nslab caches {} KiB", human(all / 1024));
    if let Some(allocator) = profile.allocator {
        let caches = || profile.caches.iter();
        let others: Vec<&str> =
            caches().filter(|cache| !allocator.explains(cache)).map(|cache| &cache.name[..]).collect();
        let explained = profile.caches.len() - others.len();
        text += &format!("; the slabs of {explained} of {} caches are as computed", profile.caches.len());
        if !others.is_empty() {
            text += &format!(", except {}", others.join(", "));
        }
    }
    text + "\n"
}

fn is_shown(profile: &Profile, of: &TypeProfile, names: &[String]) -> bool {
    let holds = |cache: &CacheProfile| cache.of.as_ref() == Some(&of.name);
    let largest = profile.caches.iter().filter(|cache| cache.of.is_some()).take(6);
    if names.is_empty() { largest.into_iter().any(holds) } else { names.contains(&of.name) }
}

/// Returns the table of a structure's numbers and pointers.
fn members(of: &TypeProfile, has_accesses: bool) -> String {
    let mut heading = vec!["member", "type", "bits", "min", "max", "values", "page prefixes", "zero"];
    if has_accesses {
        heading.extend(["loads", "stores"]);
    }
    let mut table = Table::new(heading);
    let numbers = of.members.iter().filter(|member| !matches!(member.kind, Kind::Structure | Kind::Array));
    for member in numbers {
        let mut row = vec![
            member.name.clone(),
            member.of.clone(),
            bits(member).to_string(),
            shown(member.min.as_ref()),
            shown(member.max.as_ref()),
            if member.distinct < 4096 { human(member.distinct) } else { "4,096 or more".into() },
            match member.kind {
                Kind::Pointer | Kind::Function => human(member.pages),
                _ => "-".into(),
            },
            format!("{:.0} %", member.zero as f64 / of.objects.max(1) as f64 * 100.0),
        ];
        if has_accesses {
            row.extend([human(member.loads), human(member.stores)]);
        }
        table.row(row);
    }
    table.to_string()
}

fn bits(member: &MemberProfile) -> u64 {
    member.bits.map_or(member.bytes * 8, |[_, width]| width)
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("-".into(), Value::to_string)
}

/// Returns the tables of a plan: caches, then members with their scheme, then those that stay as they are.
pub fn plan(fields: &Fields) -> String {
    let mut table = Table::new(["slab cache", "size", "", "objects a slab", "", "KiB", "", "change"]);
    let mut sums = [0, 0];
    for cache in &fields.caches {
        sums = [sums[0] + cache.kib[0], sums[1] + cache.kib[1]];
        let pair = |[before, after]: [u64; 2]| [human(before), human(after)];
        let row = [pair(cache.size), pair(cache.per_slab), pair(cache.kib)].concat();
        table.row([vec![cache.name.clone()], row, vec![kcli::percent(cache.kib[0], cache.kib[1])]].concat());
    }
    let row = ["these", "", "", "", ""].map(str::to_owned).to_vec();
    let sum = vec![human(sums[0]), human(sums[1]), kcli::percent(sums[0], sums[1])];
    table.row([row, sum].concat());
    let row = ["all slab caches", "", "", "", ""].map(str::to_owned).to_vec();
    let [before, after] = fields.slab;
    table.row([row, vec![human(before), human(after), kcli::percent(before, after)]].concat());
    let mut text = format!("Linux {}, threshold {}\n\n{table}", fields.kernel, fields.threshold);
    for of in &fields.types {
        let order = if of.order.is_empty() { "" } else { ", in another order" };
        text += &format!("\nstruct {}, {} bytes instead of {}{order}\n", of.name, of.size[1], of.size[0]);
        let mut table = Table::new(["member", "scheme", "bytes", "", "KiB", "loads", "stores"]);
        for member in &of.members {
            let name = format!("{}.{}", of.name, member.name);
            let costs =
                fields.caches.iter().flat_map(|cache| &cache.members).filter(|cost| cost.name == name);
            table.row([
                member.name.clone(),
                match &member.otherwise {
                    Some(otherwise) => format!("{} or {}", member.scheme.name(), otherwise.name()),
                    None => member.scheme.name().to_owned(),
                },
                member.bytes.to_string(),
                member.otherwise.as_deref().unwrap_or(&member.scheme).width().to_string(),
                format!("{:.1}", costs.map(|cost| cost.kib).sum::<f64>()),
                human(member.loads),
                human(member.stores),
            ]);
        }
        text += &table.to_string();
        let mut table = Table::new(["stays", "why"]);
        for excluded in &of.excluded {
            table.row([&excluded.name, &excluded.why]);
        }
        text += &format!("\n{table}");
    }
    text
}
