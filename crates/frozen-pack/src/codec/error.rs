//! Damage in a packed page or file.

use thiserror::Error;

/// A packed page, its tables or a packed file that cannot be decoded, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);
