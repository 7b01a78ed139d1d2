//! JSON documents with a key `schema`.

use std::path::Path;

use serde_json::Value;

use crate::{Failure, input_name, read_input_if};

/// Reads a JSON document with one of these schemas from a file, or from standard input for `-`. `expected` is for messages:
/// what the document should be, and what writes it.
///
/// # Errors
/// If it cannot be read. Bad input if it is another document.
pub fn read_document(path: &Path, schemas: &[&str], expected: &str) -> Result<Value, Failure> {
    let wrong = |problem: String| other_document(path, &problem, expected);
    let is_object = |head: &[u8]| head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let bytes = read_input_if(path, is_object)?;
    if !is_object(&bytes) {
        return Err(wrong("not a JSON object".into()));
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    let wanted = schemas.join("\" or \"");
    match value.get("schema").and_then(Value::as_str) {
        Some(found) if schemas.contains(&found) => Ok(value),
        Some(other) => Err(wrong(format!("a document of the format {other:?}, not \"{wanted}\""))),
        None => Err(wrong(format!("no key \"schema\" with the value \"{wanted}\""))),
    }
}

/// Returns the error for a document that is not the expected one.
pub fn other_document(path: &Path, problem: &str, expected: &str) -> Failure {
    Failure::bad_input(format!("{}: {problem}; expected {expected}", input_name(path)))
}
