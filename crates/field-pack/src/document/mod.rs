//! The documents that the commands pipe to one another.

mod fields;
mod profile;

use std::path::Path;

use kcli::{Failure, input_name, read_input_if};
use serde::de::DeserializeOwned;

use crate::error::Error;

pub use fields::{
    CachePlan, Excluded, FIELDS_SCHEMA, Fields, MemberCost, MemberPlan, Place, Scheme, TypePlan,
};
pub use profile::{
    Allocator, CacheProfile, Constructor, CoreTotals, Kind, MemberProfile, Own, PROFILE_SCHEMA, Profile,
    TypeProfile, Value, ValueCount,
};

/// A document of any format.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A profile.
    Profile(Profile),
    /// A plan.
    Fields(Fields),
}

impl Document {
    /// Reads a profile or a plan from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is neither.
    pub fn read(path: &Path) -> Result<Document, Failure> {
        const EXPECTED: &str =
            "a profile or a plan, as `field-pack profile` and `field-pack plan` write them";
        let value = json(path, &[PROFILE_SCHEMA, FIELDS_SCHEMA], EXPECTED)?;
        if value["schema"] == FIELDS_SCHEMA {
            return Ok(Document::Fields(of_value(path, value, EXPECTED)?));
        }
        Ok(Document::Profile(checked(path, of_value(path, value, EXPECTED)?, EXPECTED)?))
    }
}

/// Reads a JSON document with one of some schemas from a file, or from standard input for `-`.
fn json(path: &Path, schemas: &[&str], expected: &'static str) -> Result<serde_json::Value, Failure> {
    let name = input_name(path);
    let wrong = |problem: String| Failure::of(Error::Document { name: name.clone(), problem, expected });
    let is_object = |head: &[u8]| head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let bytes = read_input_if(path, is_object)?;
    if !is_object(&bytes) {
        return Err(wrong("not a JSON object".into()));
    }
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    let wanted = schemas.join("\" or \"");
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(found) if schemas.contains(&found) => Ok(value),
        Some(other) => Err(wrong(format!("a document of the format {other:?}, not \"{wanted}\""))),
        None => Err(wrong(format!("no key \"schema\" with the value \"{wanted}\""))),
    }
}

fn checked(path: &Path, profile: Profile, expected: &'static str) -> Result<Profile, Failure> {
    match profile.check() {
        Ok(()) => Ok(profile),
        Err(problem) => Err(Failure::of(Error::Document { name: input_name(path), problem, expected })),
    }
}

fn of_value<T: DeserializeOwned>(
    path: &Path,
    value: serde_json::Value,
    expected: &'static str,
) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| {
        Failure::of(Error::Document { name: input_name(path), problem: error.to_string(), expected })
    })
}

impl Profile {
    /// Reads a profile from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a profile.
    pub fn read(path: &Path) -> Result<Profile, Failure> {
        const EXPECTED: &str = "a profile, as `field-pack profile` writes it";
        checked(path, of_value(path, json(path, &[PROFILE_SCHEMA], EXPECTED)?, EXPECTED)?, EXPECTED)
    }
}

impl Fields {
    /// Reads a plan from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a plan.
    pub fn read(path: &Path) -> Result<Fields, Failure> {
        const EXPECTED: &str = "a plan, as `field-pack plan` writes it";
        of_value(path, json(path, &[FIELDS_SCHEMA], EXPECTED)?, EXPECTED)
    }
}
