//! The documents that the commands pipe to one another.

mod fields;
mod profile;

use std::path::Path;

use kcli::{Failure, input_name, read_input_if};
use serde::de::DeserializeOwned;

use crate::error::Error;

pub use fields::{CachePlan, Excluded, FIELDS_SCHEMA, Fields, MemberCost, MemberPlan, Place, Scheme, TypePlan};
pub use profile::{
    Allocator, CacheProfile, Constructor, CoreTotals, Kind, MemberProfile, Own, PROFILE_SCHEMA, Profile,
    TypeProfile, Value, ValueCount,
};

/// Reads a document with a `schema` from a file, or from standard input for `-`.
fn read<T: DeserializeOwned>(path: &Path, schema: &str, expected: &'static str) -> Result<T, Failure> {
    let name = input_name(path);
    let wrong = |problem: String| Failure::of(Error::Document { name: name.clone(), problem, expected });
    let is_object = |head: &[u8]| head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let bytes = read_input_if(path, is_object)?;
    if !is_object(&bytes) {
        return Err(wrong("not a JSON object".into()));
    }
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(found) if found == schema => {}
        Some(other) => return Err(wrong(format!("a document of the format {other:?}, not {schema:?}"))),
        None => return Err(wrong(format!("no key \"schema\" with the value {schema:?}"))),
    }
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}

impl Profile {
    /// Reads a profile from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a profile.
    pub fn read(path: &Path) -> Result<Profile, Failure> {
        read(path, PROFILE_SCHEMA, "a profile, as `field-pack profile` writes it")
    }
}

impl Fields {
    /// Reads a plan from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a plan.
    pub fn read(path: &Path) -> Result<Fields, Failure> {
        read(path, FIELDS_SCHEMA, "a plan, as `field-pack plan` writes it")
    }
}
