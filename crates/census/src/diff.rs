//! The difference of two censuses, by owner.

use std::collections::BTreeMap;

use kcli::{Table, human};

use crate::document::{Document, Kind};

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
    pub objects: Option<i128>,
}

impl Change {
    /// Returns the change in bytes.
    pub fn bytes(&self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }
}

/// The owners of one kind and name in a census.
#[derive(Clone, Copy, Default)]
struct Side {
    bytes: u64,
    /// Number of allocated objects, if an owner has any.
    used: Option<u64>,
    is_there: bool,
}

/// Returns the changes, the largest first, without owners that did not change. Owners with the same kind and name, as
/// caches of modules may have, are added up.
pub fn changes(before: &Document, after: &Document) -> Vec<Change> {
    let mut owners: BTreeMap<(Kind, &str), [Side; 2]> = BTreeMap::new();
    for (number, document) in [before, after].into_iter().enumerate() {
        for owner in &document.owners {
            let side = &mut owners.entry((owner.kind, &owner.name)).or_default()[number];
            side.bytes = side.bytes.saturating_add(owner.bytes);
            side.used = owner.used.map(|used| used.saturating_add(side.used.unwrap_or(0))).or(side.used);
            side.is_there = true;
        }
    }
    let change = |((kind, name), sides): ((Kind, &str), [Side; 2])| {
        // An owner that one census lacks has no objects there.
        let used = sides.map(|side| if side.is_there { side.used } else { Some(0) });
        let objects = used[0].zip(used[1]).map(|(before, after)| i128::from(after) - i128::from(before));
        let objects = objects.filter(|_| sides.iter().any(|side| side.used.is_some()));
        Change { kind, name: name.into(), before: sides[0].bytes, after: sides[1].bytes, objects }
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
            change.kind.to_string(),
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
        signed(i128::from(now) - i128::from(used)),
    ]);
    table.to_string()
}

/// Formats a change with its sign.
fn signed(change: i128) -> String {
    let sign = if change < 0 { "-" } else { "+" };
    format!("{sign}{}", human(u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Owner, SCHEMA, Sums};

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

    #[test]
    fn large_figures_and_equal_names_are_not_lost() {
        let before = document(&[
            (Kind::Slab, "twice", 4096, Some(10)),
            (Kind::Slab, "twice", 8192, Some(20)),
            (Kind::Files, "ext2", 0, None),
        ]);
        let after = document(&[(Kind::Slab, "twice", 4096, Some(5)), (Kind::Files, "ext2", u64::MAX, None)]);
        let changes = changes(&before, &after);
        let rows: Vec<_> = changes.iter().map(|change| (change.bytes(), change.objects)).collect();
        assert_eq!(rows, [(i128::from(u64::MAX), None), (-8192, Some(-25))]);
        assert!(print(&before, &after).contains("+18,446,744,073,709,551,615"));
    }
}
