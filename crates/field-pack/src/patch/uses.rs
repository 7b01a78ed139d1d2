//! The uses of the members of a plan.

use std::fs;
use std::path::{Path, PathBuf};

use kcli::Failure;

use crate::document::{Fields, TypePlan};
use crate::scan::{Facts, Unit, Wanted, scan, select, units};

/// Returns the path of the source tree, as the builds name it.
///
/// # Errors
/// Bad input if a build is of another tree.
pub fn source(source: &Path, builds: &[PathBuf]) -> Result<PathBuf, Failure> {
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))
    };
    let source = real(source)?;
    for build in builds {
        // A build in the source tree has no such link.
        let of = build.join("source");
        let of = if of.exists() { real(&of)? } else { real(build)? };
        if of != source {
            return Err(Failure::bad_input(format!(
                "{}: built from {}; expected a build of {}",
                build.display(),
                of.display(),
                source.display()
            )));
        }
    }
    Ok(source)
}

/// Returns the uses of all members of the plan's structures, from a file that an earlier call wrote, if it exists.
///
/// # Errors
/// If the builds cannot be read or parsed.
pub fn facts(
    fields: &Fields,
    source: &Path,
    builds: &[PathBuf],
    kept: Option<&Path>,
) -> Result<Facts, Failure> {
    if let Some(kept) = kept
        && kept.exists()
    {
        return Ok(serde_json::from_slice(&fs::read(kept)?)?);
    }
    let mut all = Vec::new();
    for build in builds {
        all.extend(selected(fields, build)?);
    }
    let facts = scan(source, &wanted(fields), all)?;
    if let Some(kept) = kept {
        fs::write(kept, serde_json::to_vec(&facts)?)?;
    }
    Ok(facts)
}

/// Returns the files of a build that can use a member of the plan.
///
/// # Errors
/// Bad input if the build recorded no commands.
pub fn selected(fields: &Fields, build: &Path) -> Result<Vec<Unit>, Failure> {
    Ok(select(units(&fs::canonicalize(build)?)?, &wanted(fields)))
}

/// Returns the structures and members of a plan.
fn wanted(fields: &Fields) -> Vec<Wanted> {
    let members = |of: &TypePlan| {
        of.members
            .iter()
            .flat_map(|member| std::iter::once(&member.name).chain(&member.aliases).cloned())
            .collect()
    };
    fields.types.iter().map(|of| Wanted { of: of.name.clone(), members: members(of) }).collect()
}
