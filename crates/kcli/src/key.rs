//! The keys of devices.

use std::path::Path;

use crate::{Failure, input_name, read_input};

/// Size in bytes of a key.
const SIZE: usize = 32;

/// The key of a device, with which code for it is sealed.
pub type Key = [u8; SIZE];

/// Reads a key from a file, or from standard input for `-`.
///
/// # Errors
/// If it cannot be read. Bad input if it has another size.
pub fn read_key(path: &Path) -> Result<Key, Failure> {
    let bytes = read_input(path)?;
    let size = bytes.len();
    bytes.try_into().map_err(|_| {
        let name = input_name(path);
        let advice = "make one with `head -c 32 /dev/urandom`";
        Failure::bad_input(format!("{name}: expected a key of {SIZE} bytes, found {size}; {advice}"))
    })
}
