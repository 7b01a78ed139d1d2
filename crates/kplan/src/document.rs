//! Common parts of the documents: the version, reading with errors that name the place, and the layout of the text.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use crate::formatter::EntryPerLine;

/// The field that holds the version.
pub(crate) const SCHEMA_FIELD: &str = "schema";

/// A kind of document.
#[derive(Clone, Copy)]
pub(crate) struct Document {
    /// Name in messages, with its article.
    pub what: &'static str,
    /// The version that this crate reads and writes.
    pub schema: &'static str,
}

/// Failure to read a document. Every message begins with the name of the source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Input that cannot be read.
    #[error("cannot read {name}: {error}")]
    Read {
        /// The source of the document.
        name: String,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// Empty input, such as a failed tool leaves in a pipe.
    #[error("{name}: empty, expected {what} (a JSON object with \"schema\": \"{schema}\")")]
    Empty {
        /// The source of the document.
        name: String,
        /// The expected kind of document.
        what: &'static str,
        /// The expected version.
        schema: &'static str,
    },
    /// Text that is not JSON. The message ends with line and column.
    #[error("{name}: not JSON: {error}")]
    NotJson {
        /// The source of the document.
        name: String,
        /// The mistake and its position.
        #[source]
        error: serde_json::Error,
    },
    /// JSON that is not an object, or an object without a version.
    #[error("{name}: not {what}: no \"schema\": \"{schema}\" in it")]
    NoSchema {
        /// The source of the document.
        name: String,
        /// The expected kind of document.
        what: &'static str,
        /// The expected version.
        schema: &'static str,
    },
    /// A document of another version or another kind.
    #[error("{name}: expected schema {schema}, found {found}")]
    OtherSchema {
        /// The source of the document.
        name: String,
        /// The expected version.
        schema: &'static str,
        /// The version found.
        found: String,
    },
    /// A field that is missing, has a wrong type, or contradicts another. The message ends with line and column.
    #[error("{name}: not a valid {}: {error}", noun(what))]
    Field {
        /// The source of the document.
        name: String,
        /// The expected kind of document.
        what: &'static str,
        /// The field and its position.
        #[source]
        error: serde_json::Error,
    },
}

impl Error {
    /// Returns whether the document itself is wrong, so that reading it again cannot succeed. Otherwise reading it
    /// failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Error::Read { error, .. } => error.kind() == io::ErrorKind::InvalidData,
            _ => true,
        }
    }
}

/// Returns `what` without its article.
fn noun(what: &str) -> &str {
    what.split_once(' ').map_or(what, |(_, noun)| noun)
}

impl Document {
    /// Reads a document to the end of `reader`. Messages call it `name`: a path, or `standard input`.
    pub fn read<T: DeserializeOwned>(self, mut reader: impl Read, name: &str) -> Result<T, Error> {
        let mut text = String::new();
        reader.read_to_string(&mut text).map_err(|error| Error::Read { name: name.to_owned(), error })?;
        self.parse(&text, name)
    }

    /// Parses a document.
    pub fn parse<T: DeserializeOwned>(self, text: &str, name: &str) -> Result<T, Error> {
        let Document { what, schema } = self;
        if text.trim().is_empty() {
            return Err(Error::Empty { name: name.to_owned(), what, schema });
        }
        let failed = |error: serde_json::Error| {
            let name = name.to_owned();
            match error.classify() {
                Category::Data => Error::Field { name, what, error },
                _ => Error::NotJson { name, error },
            }
        };
        // Check the version first: a document of another version may have other fields, and the error should be about
        // the version.
        let found = match serde_json::from_str::<Value>(text).map_err(failed)?.get(SCHEMA_FIELD) {
            None => return Err(Error::NoSchema { name: name.to_owned(), what, schema }),
            Some(Value::String(found)) => found.clone(),
            Some(other) => other.to_string(),
        };
        if found != schema {
            return Err(Error::OtherSchema { name: name.to_owned(), schema, found });
        }
        serde_json::from_str(text).map_err(failed)
    }

    /// Writes the version and then the fields of `content` as indented JSON with a newline at the end.
    pub fn write<T: Serialize>(self, content: &T, mut out: impl Write) -> io::Result<()> {
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, EntryPerLine::default());
        Versioned { schema: self.schema, content }.serialize(&mut serializer)?;
        out.write_all(b"\n")
    }
}

/// The version, followed by the document's content.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    content: &'a T,
}
