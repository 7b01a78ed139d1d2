//! Tables for a person.

use kcli::{Table, human};

use crate::document::{Document, Kind, Owner};

/// Returns the tables of a census: all owners, and then each slab cache.
pub fn print(document: &Document) -> String {
    let memory = &document.memory;
    let kib = |bytes: u64| human(bytes / 1024);
    let share = match memory.used() {
        0 => String::new(),
        used => format!(" ({:.1} %)", memory.explained as f64 / used as f64 * 100.0),
    };
    let mut text = format!("{}\n\n", document.kernel);
    let mut table = Table::new(["kind", "owner", "KiB"]);
    let (caches, others): (Vec<&Owner>, Vec<&Owner>) =
        document.owners.iter().partition(|owner| is_cache(owner));
    let bytes: u64 = caches.iter().map(|owner| owner.bytes).sum();
    table.row([Kind::Slab.to_string(), format!("{} caches", caches.len()), kib(bytes)]);
    for owner in others {
        table.row([owner.kind.to_string(), owner.name.clone(), kib(owner.bytes)]);
    }
    text += &table.to_string();
    let mut table = Table::new(["slab cache", "size", "objects", "used", "pages", "KiB", "merged"]);
    for owner in caches {
        let figure = |figure: Option<u64>| human(figure.unwrap_or(0));
        let merged = match owner.merged {
            None | Some(0) => String::new(),
            Some(merged) => format!("+{merged} {}", owner.variables.join(",")).trim_end().to_owned(),
        };
        table.row([
            owner.name.clone(),
            figure(owner.object_size),
            figure(owner.objects),
            figure(owner.used),
            human(owner.bytes / document.page_size.max(1)),
            kib(owner.bytes),
            merged,
        ]);
    }
    text += &format!("\n{table}\n");
    text += &format!(
        "MemTotal {} KiB, MemFree {} KiB, Slab {} KiB; explained {} of {} KiB in use{share}\n",
        kib(memory.total),
        kib(memory.free),
        kib(memory.slab),
        kib(memory.explained),
        kib(memory.used())
    );
    text
}

/// Whether an owner is a slab cache.
fn is_cache(owner: &Owner) -> bool {
    owner.objects.is_some()
}
