//! The names of the sections of frozen code and data, and of frozen parts of functions.

/// The section of frozen code.
pub const TEXT: &str = ".kshrink.frozen.text";
/// The section of frozen data.
pub const RODATA: &str = ".kshrink.frozen.rodata";
/// The section of frozen code that is used whenever the kernel boots.
pub const BOOT_TEXT: &str = ".kshrink.frozen.text.boot";
/// The section of frozen data that is used whenever the kernel boots.
pub const BOOT_RODATA: &str = ".kshrink.frozen.rodata.boot";

/// The suffix of the names of frozen parts of functions.
pub(super) const PART: &str = "frozen";
