//! Passes on 32-bit ARM code, like `filetests` on i386 code. They are a separate target because they need an assembler
//! for ARM.

#[path = "../filetests/case.rs"]
mod case;
#[path = "../filetests/check.rs"]
mod check;
#[path = "../filetests/run.rs"]
mod run;

use kopt::Pass;

/// The directory of the cases.
const CASES: &str = "tests/filetests_arm";

#[test]
fn exercise() {
    check::directory(CASES, Pass::Exercise);
}

#[test]
fn fold() {
    check::directory(CASES, Pass::Fold);
}

#[test]
fn freeze() {
    check::directory(CASES, Pass::Freeze);
}

#[test]
fn icf() {
    check::directory(CASES, Pass::Icf);
}

#[test]
fn initmotion() {
    check::directory(CASES, Pass::InitMotion);
}

#[test]
fn instrument() {
    check::directory(CASES, Pass::Instrument);
}

#[test]
fn keys() {
    check::directory(CASES, Pass::Keys);
}

#[test]
fn layout() {
    check::directory(CASES, Pass::Layout);
}

#[test]
fn merge() {
    check::directory(CASES, Pass::Merge);
}

#[test]
fn reach() {
    check::directory(CASES, Pass::Reach);
}

#[test]
fn sysargs() {
    check::directory(CASES, Pass::SysArgs);
}

#[test]
fn syscalls() {
    check::directory(CASES, Pass::Syscalls);
}
