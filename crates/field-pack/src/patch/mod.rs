//! The source patch for a plan.
//!
//! 1. `rewrite`: every use of a member that clang found becomes a call of an accessor, or excludes the member.
//! 2. `structure`: members move, and codes replace them.
//! 3. `accessors`: the functions beside the structure, and the descriptions for the side table.
//! 4. `runtime`: the side table, and its calls in the slab allocator.
//! 5. `print`: the patch.
//!
//! A member has another name in its new form, so that code that still uses the old form does not compile.

mod accessors;
mod declare;
mod definitions;
mod edit;
mod exclude;
mod helper;
mod macros;
mod make;
mod print;
mod rewrite;
mod runtime;
#[cfg(test)]
mod runtime_test;
mod structure;
mod text;
pub(crate) mod tokens;
mod uses;

use std::collections::BTreeMap;
use std::path::Path;

use kcli::Failure;

use crate::document::{Excluded, Fields, Scheme};
use crate::scan::Facts;
use macros::Macros;
use make::Maker;
use text::Tree;

pub use print::{print, summary};
pub use rewrite::Name;
pub use uses::{facts, selected, source};

/// Changed and new files, by path in the source tree: the content before (empty for a new file) and after.
pub type Files = BTreeMap<String, (String, String)>;

/// The new content of files, and what became of the plan.
#[derive(Debug, Default)]
pub struct Patch {
    /// The changed and new files.
    pub files: Files,
    /// The members that the patch stores in another form.
    pub members: Vec<Name>,
    /// The members with accessors, and the member that has the code: another one in a union.
    pub accessors: Vec<(Name, Name)>,
    /// The structures whose order changes.
    pub ordered: Vec<String>,
    /// The members of the plan that stay as they are, with the reasons.
    pub excluded: BTreeMap<Name, String>,
}

/// A person's choices for a patch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Uses of whole structures, `file:line`, that exclude nothing, and addresses of members that only name an object.
    pub harmless: Vec<String>,
    /// Number of lines that the patch may have.
    pub lines: Option<usize>,
}

/// Makes the patch for a plan.
///
/// `excluded` are members that have to stay as they are, with the reasons. An absent member among them gets the other form
/// that the plan has for it, in `fields`.
///
/// # Errors
/// Bad input if the plan or the source does not fit the builds.
pub fn patch(
    fields: &mut Fields,
    source: &Path,
    facts: &Facts,
    options: &Options,
    excluded: &mut BTreeMap<Name, String>,
) -> Result<Patch, Failure> {
    let tree = Tree::new(source);
    let uses = Macros::new(&tree, &facts.uses).resolve(&facts.uses);
    loop {
        let before = excluded.len();
        let maker = Maker { fields, tree: &tree, facts, uses: &uses, harmless: &options.harmless };
        let files = maker.run(excluded)?;
        if store_absent(fields, excluded) {
            continue;
        }
        if excluded.len() > before {
            continue;
        }
        let maker = Maker { fields, tree: &tree, facts, uses: &uses, harmless: &options.harmless };
        let made = maker.patch(files, excluded);
        let lines = print(&made, fields).lines().count();
        if options.lines.is_none_or(|most| lines <= most) {
            return Ok(made);
        }
        let Some((name, count)) = maker.longest(&made) else { return Ok(made) };
        excluded.insert(name, format!("its {count} uses would make the patch too long"));
    }
}

/// Stores excluded absent members in the other form that the plan has for them. Returns whether there are some.
fn store_absent(fields: &mut Fields, excluded: &mut BTreeMap<Name, String>) -> bool {
    let before = excluded.len();
    for of in &mut fields.types {
        for member in &mut of.members {
            let name = (of.name.clone(), member.name.clone());
            if matches!(member.scheme, Scheme::Absent { .. })
                && excluded.contains_key(&name)
                && let Some(other) = member.otherwise.take()
            {
                member.scheme = *other;
                if let Some(why) = excluded.remove(&name) {
                    let scheme = Some("absent".to_owned());
                    of.excluded.push(Excluded { name: name.1, why, scheme, planned: false });
                }
            }
        }
    }
    excluded.len() < before
}

/// Records in a plan what became of it: for `field-pack plan --after`.
pub fn record(fields: &mut Fields, patch: &Patch) {
    for of in &mut fields.types {
        for ((_, name), why) in patch.excluded.iter().filter(|((other, _), _)| *other == of.name) {
            of.members.retain(|member| member.name != *name);
            of.excluded.retain(|one| one.name != *name);
            of.excluded.push(Excluded { name: name.clone(), why: why.clone(), scheme: None, planned: false });
        }
        // No code stores another value in the absent members that are left.
        of.members.iter_mut().for_each(|member| member.otherwise = None);
    }
}
