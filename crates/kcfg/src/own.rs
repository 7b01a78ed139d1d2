//! The names of symbols that lowering adds. The lifter knows them when it reads an emitted object.

/// The name of symbols that lowering adds.
pub(crate) use kelf::OWN_SYMBOL as OWN;

/// The symbol name of an outlined function. It identifies the function when the object is read again, because such a
/// function follows no calling convention.
pub(crate) const OUTLINED: &str = ".Lkshrink.outlined";
