//! The text of the patch.

use std::fmt::Write;

use similar::TextDiff;

use super::Patch;
use crate::document::Fields;

/// Number of lines around a change.
const CONTEXT: usize = 3;

/// Returns the patch for `patch -p1`, with a description.
pub fn print(patch: &Patch, fields: &Fields) -> String {
    let mut text = description(patch, fields);
    text += "---\n";
    for (name, (before, after)) in &patch.files {
        let diff = TextDiff::from_lines(before.as_str(), after.as_str());
        let old = if before.is_empty() { "/dev/null".to_owned() } else { format!("a/{name}") };
        let mut unified = diff.unified_diff();
        let unified = unified.context_radius(CONTEXT).header(&old, &format!("b/{name}"));
        let _ = write!(text, "{unified}");
    }
    text
}

/// Returns the description.
fn description(patch: &Patch, fields: &Fields) -> String {
    let mut text = format!(
        "\
Subject: [PATCH] mm, fs: store members of allocated objects as short codes

Most members of these structures have few different or small values. This
patch stores such members as codes of one or two bytes, which accessors beside
each structure translate. A value without a code goes into a table beside the
objects (mm/kshrink_fields.c); /proc/kshrink-fields counts these values.

Members that a code replaces have a new name, so that all code that uses them
has to use the accessors.

Structures ({}), bytes before and after, by the plan:

",
        fields.kernel
    );
    for of in &fields.types {
        let count = patch.members.iter().filter(|(name, _)| *name == of.name).count();
        let _ = writeln!(
            text,
            "  struct {:<20} {:>4} -> {:>4}  {count} members{}",
            of.name,
            of.size[0],
            of.size[1],
            if patch.ordered.contains(&of.name) { ", in a new order" } else { "" }
        );
    }
    if !fields.caches.is_empty() {
        text += "\nSlab caches, KiB before and after, by the plan:\n\n";
        for cache in &fields.caches {
            let _ = writeln!(text, "  {:<27} {:>5} -> {:>5}", cache.name, cache.kib[0], cache.kib[1]);
        }
    }
    if !patch.excluded.is_empty() {
        text += "\nMembers that stay as they are:\n\n";
        for ((of, member), reason) in &patch.excluded {
            let name = if member.is_empty() { "the order".to_owned() } else { member.clone() };
            let _ = writeln!(text, "  {of}.{name}: {reason}");
        }
    }
    text
}

/// Returns the members that stay as they are, for people.
pub fn summary(patch: &Patch) -> String {
    let mut text = String::new();
    for ((of, member), reason) in &patch.excluded {
        let name = if member.is_empty() { format!("the order of {of}") } else { format!("{of}.{member}") };
        let _ = writeln!(text, "{name} stays: {reason}");
    }
    let _ = writeln!(
        text,
        "{} members are stored as codes, {} files change",
        patch.members.len(),
        patch.files.len()
    );
    text
}
