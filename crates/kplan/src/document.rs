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
    /// What it is called in messages, with its article.
    pub what: &'static str,
    /// The version that this crate reads and writes.
    pub schema: &'static str,
}

/// Why a text is not the document that is wanted. Every message begins with the name of the source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {name}: {error}")]
    Read {
        /// Where the document was to come from.
        name: String,
        /// What went wrong.
        #[source]
        error: io::Error,
    },
    /// It is empty, which is what a tool that failed leaves in a pipe.
    #[error("{name}: empty, expected {what} (a JSON object with \"schema\": \"{schema}\")")]
    Empty {
        /// Where the document came from.
        name: String,
        /// The kind of document that is wanted.
        what: &'static str,
        /// The version that is wanted.
        schema: &'static str,
    },
    /// It is no JSON. The message ends with line and column.
    #[error("{name}: not JSON: {error}")]
    NotJson {
        /// Where the document came from.
        name: String,
        /// What was wrong and where.
        #[source]
        error: serde_json::Error,
    },
    /// It is JSON, but no object, or one without a version.
    #[error("{name}: not {what}: no \"schema\": \"{schema}\" in it")]
    NoSchema {
        /// Where the document came from.
        name: String,
        /// The kind of document that is wanted.
        what: &'static str,
        /// The version that is wanted.
        schema: &'static str,
    },
    /// It is of another version, or another document altogether.
    #[error("{name}: expected schema {schema}, found {found}")]
    OtherSchema {
        /// Where the document came from.
        name: String,
        /// The version that is wanted.
        schema: &'static str,
        /// The version that it has.
        found: String,
    },
    /// A field is missing, of a wrong type, or contradicts another. The message ends with line and column.
    #[error("{name}: not a valid {}: {error}", noun(what))]
    Field {
        /// Where the document came from.
        name: String,
        /// The kind of document that is wanted.
        what: &'static str,
        /// Which field and where.
        #[source]
        error: serde_json::Error,
    },
}

impl Error {
    /// Whether the document is at fault, so that reading the same one again cannot succeed. Otherwise it could not be
    /// read.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Error::Read { error, .. } => error.kind() == io::ErrorKind::InvalidData,
            _ => true,
        }
    }
}

/// `what` without its article.
fn noun(what: &str) -> &str {
    what.split_once(' ').map_or(what, |(_, noun)| noun)
}

impl Document {
    /// Reads a document to the end of `reader`. `name` is what messages call it: a path, or
    /// `standard input`.
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
        // The version goes first: a document of another one may be of another shape altogether, and
        // the complaint should be about the version.
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

/// A document's content behind its version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    content: &'a T,
}
