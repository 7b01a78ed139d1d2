//! Scanner.
