//! The uses of the members of a plan.

use std::fs;
use std::path::{Path, PathBuf};

use kcli::{Failure, Output};
use serde::{Deserialize, Serialize};

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

/// The document that `--uses` names.
#[derive(Serialize, Deserialize)]
struct Kept {
    builds: Vec<PathBuf>,
    wanted: Vec<Wanted>,
    facts: Facts,
}

/// Returns the uses of all members of the plan's structures. The file `kept` may have them from an earlier call; if it
/// lacks a member or a build, it is made again.
///
/// # Errors
/// If the builds cannot be read or parsed, or the file is not such a document.
pub fn facts(
    fields: &Fields,
    source: &Path,
    builds: &[PathBuf],
    kept: Option<&Path>,
) -> Result<Facts, Failure> {
    let builds = builds.iter().map(fs::canonicalize).collect::<Result<Vec<_>, _>>()?;
    let mut wanted = wanted(fields);
    if let Some(path) = kept.filter(|path| path.exists()) {
        let kept: Kept = serde_json::from_slice(&fs::read(path)?).map_err(|error| {
            Failure::bad_input(format!("{}: {error}; expected a file that --uses wrote", path.display()))
        })?;
        if kept.builds == builds && wanted.iter().all(|wanted| kept.wanted.iter().any(|had| had.has(wanted)))
        {
            return Ok(kept.facts);
        }
        // The next plan may have the earlier members again.
        for had in kept.wanted {
            match wanted.iter_mut().find(|wanted| wanted.of == had.of) {
                Some(wanted) => wanted.add(had),
                None => wanted.push(had),
            }
        }
    }
    let mut files = Vec::new();
    for build in &builds {
        files.extend(select(units(build)?, &wanted));
    }
    let facts = scan(source, &wanted, files)?;
    if let Some(path) = kept {
        let document = Kept { builds, wanted, facts };
        let mut output = Output::create(path)?;
        serde_json::to_writer(&mut output, &document)?;
        output.commit()?;
        return Ok(document.facts);
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
