//! The sources of the runtimes that are linked into rewritten kernels.

/// A file of `kdecomp-rt/`.
macro_rules! source {
    ($name:literal, $path:literal) => {
        ($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kdecomp-rt/", $path)))
    };
}
pub(crate) use source;
