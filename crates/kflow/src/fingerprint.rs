//! Hashes that identify things.

use std::hash::{DefaultHasher, Hasher};

/// A hash of a thing: among a million different things, the probability that two have the same is at most 1 : 10^7.
pub type Fingerprint = u64;

/// Returns the fingerprint of everything that `f` adds to a hasher.
pub fn fingerprint(f: impl FnOnce(&mut DefaultHasher)) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    f(&mut hasher);
    hasher.finish()
}
