//! The unproved assumptions about compilers and the kernel's code, and their limits. (`kopt::assumptions` lists all of
//! them; those with other tests are not here.)

mod common;

use common::{Dir, View, lift};
use kcfg::edges::EdgeKind;

/// Options that keep variables and functions in the order of their source.
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

#[test]
fn functions_as_short_as_a_tag() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("tags.c", IN_ORDER)]);
    let view = View::of(&graph);
    let table = view.symbol("table").0;
    // `named_by_data` may be `one_byte + 1`.
    let (short, entry) = (view.symbol("one_byte").0, view.symbol("named_by_data").0);
    assert!(graph.block(short).is_none() && graph.block(entry).is_some());
    assert!(graph.node(entry).glued_to == Some(short));
    assert!(view.to(table, EdgeKind::Data).contains(&short));
    // A call refers to its exact target, and no tag is as long as the function before `behind_long`.
    assert!(graph.block(view.symbol("another_byte").0).is_some());
    for function in ["named_by_call", "behind_long"] {
        assert!(graph.node(view.symbol(function).0).glued_to.is_none(), "{function}");
    }
}
