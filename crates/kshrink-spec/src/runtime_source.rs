//! The sources of the runtimes that are linked into rewritten kernels.

/// A file of `kdecomp-rt/`, or of another directory at the top.
macro_rules! source {
    ($name:literal, $path:literal) => {
        source!(in "kdecomp-rt", $name, $path)
    };
    (in $dir:literal, $name:literal, $path:literal) => {
        ($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $dir, "/", $path)))
    };
}
pub(crate) use source;
