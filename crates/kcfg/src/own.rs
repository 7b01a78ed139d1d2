//! The names of symbols that lowering adds. The lifter knows them when it reads an emitted object.

/// The prefix of symbols that lowering adds. It begins like compilers' labels, which the kernel's symbol table omits
/// (scripts/mksysmap).
pub(crate) const OWN: &str = ".Lkshrink";

/// The symbol name of an outlined function. It identifies the function when the object is read again, because such a
/// function follows no calling convention.
pub(crate) const OUTLINED: &str = ".Lkshrink.outlined";
