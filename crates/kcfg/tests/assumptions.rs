//! What is taken for true of compilers and of the kernel's code without a proof: how far it goes, and no further.
//! (`kopt::assumptions` lists all of it; what has other tests is not here.)

mod common;

use common::{Dir, View, lift};
use kcfg::edges::EdgeKind;

/// Options with which variables and functions lie in the order of their source.
const IN_ORDER: &[&str] = &["-Os", "-fno-toplevel-reorder"];

#[test]
fn an_address_is_followed_into_a_cold_part() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("cold.c", IN_ORDER)]);
    let view = View::of(&graph);
    let node = |name| view.symbol(name).0;
    assert_eq!(node("in_front"), node("counted_from_one"));
    assert_ne!(node("first"), node("second"));
}

#[test]
fn ends_of_functions() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("function_ends.c", IN_ORDER)]);
    let view = View::of(&graph);
    let last = |function: &str| view.control(*view.blocks(function).last().unwrap());
    let outside = "outside_noreturn".to_owned();
    assert_eq!(last("calls_last"), [(EdgeKind::NoReturn, outside.clone())]);
    assert_eq!(last("calls_before_padding"), [(EdgeKind::NoReturn, outside.clone())]);
    let next = (EdgeKind::Return, "behind_call".to_owned());
    assert_eq!(last("calls_before_another"), [(EdgeKind::Call, outside), next]);
    assert_eq!(last("ends"), []);
    assert_eq!(last("runs_on"), [(EdgeKind::FallThrough, "behind_end".to_owned())]);
}
