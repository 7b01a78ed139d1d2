//! Tables for a person.

use kcli::{Table, human};

use super::document::{Document, Site, Sum};
use crate::memory::PAGE;

/// Returns the tables: the sites with at least a page of memory, and the sums of each kind of allocator.
pub fn print(document: &Document) -> String {
    let mut table = Table::new([
        "site",
        "kind",
        "through",
        "objects",
        "bytes",
        "held",
        "unused",
        "untouched",
        "unread",
        "cache",
        "line",
    ]);
    let (large, small): (Vec<&Site>, Vec<&Site>) = document.sites.iter().partition(|site| site.held >= PAGE);
    for site in large {
        table.row([
            format!("{}+{:#x}", site.function, site.offset),
            site.kind.name().to_owned(),
            site.through.first().cloned().unwrap_or_default(),
            human(site.objects),
            human(site.bytes),
            human(site.held),
            human(site.unused_objects),
            human(site.untouched),
            human(site.unread),
            first_of(&site.caches),
            site.lines.last().cloned().unwrap_or_default(),
        ]);
    }
    let sum = |value: fn(&Site) -> u64| human(small.iter().map(|site| value(site)).sum());
    table.row([
        format!("{} smaller sites", small.len()),
        String::new(),
        String::new(),
        sum(|site| site.objects),
        sum(|site| site.bytes),
        sum(|site| site.held),
        sum(|site| site.unused_objects),
        sum(|site| site.untouched),
        sum(|site| site.unread),
    ]);
    let mut sums = Table::new(["kind", "objects", "with a site", "bytes", "with a site", "share"]);
    for Sum { kind, objects, bytes, known_objects, known_bytes } in &document.memory {
        let share = *known_bytes as f64 / (*bytes).max(1) as f64 * 100.0;
        sums.row([
            kind.name().to_owned(),
            human(*objects),
            human(*known_objects),
            human(*bytes),
            human(*known_bytes),
            format!("{share:.1} %"),
        ]);
    }
    format!("{}\n\n{table}\n{sums}", document.kernel)
}

/// Returns the first name of a list, with the number of the others.
fn first_of(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [name, others @ ..] => format!("{name} +{}", others.len()),
    }
}
