//! Calling conventions and other attributes of functions.

use super::kinds::Kind;
use super::{Dialect, Writer};

/// On i386.
const I386: &[&str] = &[
    "regparm(1)",
    "regparm(2)",
    "regparm(3)",
    "stdcall",
    "fastcall",
    "thiscall",
    "cdecl",
    "regparm(3), stdcall",
    "regparm(0)",
];

/// Returns a convention for a function, as an attribute; empty for the default of the options.
pub fn convention(writer: &mut Writer, variadic: bool) -> &'static str {
    let Dialect { arm, clang, hard_float, .. } = writer.dialect;
    if variadic || writer.random.once_in(2) {
        return "";
    }
    match (arm, hard_float) {
        // clang does not accept regparm together with stdcall.
        (false, _) => match *writer.random.pick(I386) {
            "regparm(3), stdcall" if clang => "regparm(3)",
            attribute => attribute,
        },
        (true, true) => writer.random.pick::<&str>(&["", "pcs(\"aapcs\")", "pcs(\"aapcs-vfp\")"]),
        (true, false) => "",
    }
}

/// Whether values of a kind are passed in the same way under any convention: gcc gives up on vectors that need
/// registers that a convention lacks.
pub fn passes(kind: Kind, convention: &str, dialect: Dialect) -> bool {
    !(dialect.arm && kind.is_vector() && !convention.is_empty())
}

/// Returns the attributes before the result type of a function.
pub fn attributes(writer: &mut Writer, convention: &str) -> String {
    let Dialect { arm, clang, mixed, .. } = writer.dialect;
    let mut attributes = vec!["noinline"];
    if !convention.is_empty() {
        attributes.push(convention);
    }
    if !clang {
        attributes.extend(writer.random.pick(&[None, Some("noclone"), Some("noipa")]).iter());
        attributes.extend(
            writer
                .random
                .pick(&[None, None, None, Some("optimize(\"Os\")"), Some("optimize(\"O3\")")])
                .iter(),
        );
        if arm && mixed {
            attributes.extend(
                writer.random.pick(&[None, Some("target(\"arm\")"), Some("target(\"thumb\")")]).iter(),
            );
        }
    }
    attributes.extend(
        writer.random.pick(&[None, None, None, None, Some("cold"), Some("hot"), Some("aligned(32)")]).iter(),
    );
    let linkage = if writer.random.once_in(4) { "" } else { "static " };
    // An inlined function occasionally has one of the compiler's own attributes.
    if writer.random.once_in(8) {
        attributes.retain(|attribute| *attribute != "noinline");
    }
    if attributes.is_empty() {
        return linkage.to_owned();
    }
    format!("{linkage}__attribute__(({})) ", attributes.join(", "))
}
