//! The difference of two censuses, by owner.

use std::collections::BTreeMap;

use kcli::{Table, human};

use crate::document::{Document, Kind, Owner};

/// The change of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of the owner.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its bytes in the first census.
    pub before: u64,
    /// Its bytes in the second census.
    pub after: u64,
    /// The change of its allocated objects, if both censuses have them.
    pub objects: Option<i64>,
}

impl Change {
    /// Returns the change in bytes.
    pub fn bytes(&self) -> i64 {
        self.after as i64 - self.before as i64
    }
}

/// Returns the changes, the largest first, without owners that did not change.
pub fn changes(before: &Document, after: &Document) -> Vec<Change> {
    let mut owners: BTreeMap<(Kind, &str), [Option<&Owner>; 2]> = BTreeMap::new();
    for (side, document) in [before, after].into_iter().enumerate() {
        for owner in &document.owners {
            owners.entry((owner.kind, &owner.name)).or_default()[side] = Some(owner);
        }
    }
    let change = |((kind, name), sides): ((Kind, &str), [Option<&Owner>; 2])| {
        let bytes = sides.map(|owner| owner.map_or(0, |owner| owner.bytes));
        let used = sides.map(|owner| owner.map_or(Some(0), |owner| owner.used));
        let objects = used[0].zip(used[1]).map(|(before, after)| after as i64 - before as i64);
        // Without a cache on either side, there are no objects.
        let objects = objects.filter(|_| sides.iter().flatten().any(|owner| owner.used.is_some()));
        Change { kind, name: name.into(), before: bytes[0], after: bytes[1], objects }
    };
    let mut changes: Vec<Change> = owners.into_iter().map(change).collect();
    changes.retain(|change| change.bytes() != 0 || change.objects.is_some_and(|objects| objects != 0));
    changes.sort_by_key(|change| std::cmp::Reverse(change.bytes().unsigned_abs()));
    changes
}

/// Returns the table of the changes, and the change of the memory in use.
pub fn print(before: &Document, after: &Document) -> String {
    let mut table = Table::new(["kind", "owner", "before", "after", "bytes", "objects"]);
    for change in changes(before, after) {
        table.row([
            change.kind.name().to_owned(),
            change.name.clone(),
            human(change.before),
            human(change.after),
            signed(change.bytes()),
            change.objects.map_or(String::new(), signed),
        ]);
    }
    let (used, now) = (before.memory.used(), after.memory.used());
    table.row([
        "in use".to_owned(),
        String::new(),
        human(used),
        human(now),
        signed(now as i64 - used as i64),
    ]);
    table.to_string()
}

/// Formats a change with its sign.
fn signed(change: i64) -> String {
    let sign = if change < 0 { "-" } else { "+" };
    format!("{sign}{}", human(change.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{SCHEMA, Sums};

    fn document(owners: &[(Kind, &str, u64, Option<u64>)]) -> Document {
        let owner = |&(kind, name, bytes, used): &(Kind, &str, u64, Option<u64>)| Owner {
            objects: used,
            used,
            ..Owner::new(kind, name, bytes)
        };
        Document {
            schema: SCHEMA.into(),
            kernel: String::new(),
            build_id: None,
            core: String::new(),
            page_size: 4096,
            memory: Sums { total: 1 << 20, free: 1 << 19, slab: 0, explained: 0 },
            owners: owners.iter().map(owner).collect(),
        }
    }

    #[test]
    fn largest_change_is_first_and_equal_owners_are_left_out() {
        let before = document(&[
            (Kind::Slab, "dentry", 4096, Some(10)),
            (Kind::Files, "tmpfs", 8192, None),
            (Kind::Slab, "gone", 8192, Some(1)),
            (Kind::Slab, "same pages", 4096, Some(3)),
        ]);
        let after = document(&[
            (Kind::Slab, "dentry", 40960, Some(100)),
            (Kind::Files, "tmpfs", 8192, None),
            (Kind::Slab, "same pages", 4096, Some(1)),
            (Kind::Stacks, "stacks", 4096, None),
        ]);
        let changes = changes(&before, &after);
        let rows: Vec<_> =
            changes.iter().map(|change| (&change.name[..], change.bytes(), change.objects)).collect();
        assert_eq!(
            rows,
            [
                ("dentry", 36864, Some(90)),
                ("gone", -8192, Some(-1)),
                ("stacks", 4096, None),
                ("same pages", 0, Some(-2))
            ]
        );
        let text = print(&before, &after);
        assert!(text.lines().nth(1).unwrap().ends_with("+36,864      +90"), "{text}");
    }
}
