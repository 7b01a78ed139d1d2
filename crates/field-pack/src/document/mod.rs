//! The documents that the commands pipe to one another.

mod fields;
mod profile;

use std::path::Path;

use kcli::{Failure, other_document, read_document};
use serde::de::DeserializeOwned;

pub use fields::{
    CachePlan, Excluded, FIELDS_SCHEMA, Fields, MemberCost, MemberPlan, Place, Scheme, TypePlan,
};
pub use profile::{
    Allocator, CacheProfile, Constructor, CoreTotals, MemberProfile, Own, PROFILE_SCHEMA, Profile,
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
        let value = read_document(path, &[PROFILE_SCHEMA, FIELDS_SCHEMA], EXPECTED)?;
        if value["schema"] == FIELDS_SCHEMA {
            return Ok(Document::Fields(of_value(path, value, EXPECTED)?));
        }
        Ok(Document::Profile(checked(path, of_value(path, value, EXPECTED)?, EXPECTED)?))
    }
}

fn checked(path: &Path, profile: Profile, expected: &str) -> Result<Profile, Failure> {
    match profile.check() {
        Ok(()) => Ok(profile),
        Err(problem) => Err(other_document(path, &problem, expected)),
    }
}

fn of_value<T: DeserializeOwned>(
    path: &Path,
    value: serde_json::Value,
    expected: &str,
) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| other_document(path, &error.to_string(), expected))
}

impl Profile {
    /// Reads a profile from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a profile.
    pub fn read(path: &Path) -> Result<Profile, Failure> {
        const EXPECTED: &str = "a profile, as `field-pack profile` writes it";
        checked(path, of_value(path, read_document(path, &[PROFILE_SCHEMA], EXPECTED)?, EXPECTED)?, EXPECTED)
    }
}

impl Fields {
    /// Reads a plan from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a plan.
    pub fn read(path: &Path) -> Result<Fields, Failure> {
        const EXPECTED: &str = "a plan, as `field-pack plan` writes it";
        of_value(path, read_document(path, &[FIELDS_SCHEMA], EXPECTED)?, EXPECTED)
    }
}
