use kplan::Paths;

use super::*;

/// A socket, the message of a call, and the protocol's part of the socket.
const PATHS: &str = r#"{"schema": "kshrink-paths/1", "paths": [{"entry": "f", "objects": [
    {"name": "sock", "from": {"argument": 0}},
    {"name": "msg", "from": {"argument": 1}},
    {"name": "sk", "from": {"member": {"object": "sock", "offset": 16}}},
    {"name": "iov", "from": {"member": {"object": "msg", "offset": 8}}}
], "facts": [
    {"object": "sock", "offset": 20, "symbol": "ops"},
    {"object": "msg", "offset": 0, "value": 5},
    {"object": "sk", "offset": 2, "width": 2, "value": 1},
    {"object": "sk", "offset": 8, "width": 1, "value": 2, "mask": 6}
]}]}"#;

/// Reads from memory with a socket at 0x1000, whose part is at 0x2000.
fn memory(address: u32, size: u32) -> Option<Vec<u8>> {
    let word = |at: u32| -> Option<u32> {
        match at {
            0x1010 => Some(0x2000),
            0x1014 => Some(0xc100_0010),
            0x2000 => Some(0xbeef_0000),
            0x2004 => Some(0),
            0x2008 => Some(0xfd),
            _ => None,
        }
    };
    (address..address + size).map(|at| Some((word(at & !3)? >> (8 * (at % 4))) as u8)).collect()
}

fn observed(socket: u32, symbols: &Symbols) -> Result<Path, String> {
    let paths = Paths::parse(PATHS, "paths.json").unwrap();
    observe(&paths.paths[0], symbols, socket, |address, size| Ok(memory(address, size))).unwrap()
}

#[test]
fn facts_have_the_values_of_the_socket() {
    let symbols = Symbols::for_test(&[("other_ops", 0xc100_0010)]);
    let path = observed(0x1000, &symbols).unwrap();
    let facts: Vec<_> = path
        .facts
        .iter()
        .map(|fact| (&fact.object[..], fact.offset, fact.value, fact.symbol.as_deref()))
        .collect();
    let expected = [
        ("sock", 20, 0, Some("other_ops")),
        ("msg", 0, 5, None),
        ("sk", 2, 0xbeef, None),
        ("sk", 8, 4, None),
    ];
    assert_eq!(facts, expected);
}

#[test]
fn pointer_to_something_without_a_name_is_no_fact() {
    let path = observed(0x1000, &Symbols::default()).unwrap();
    assert!(path.facts.iter().all(|fact| fact.object != "sock"));
}

#[test]
fn socket_without_its_objects_has_no_path() {
    let symbols = Symbols::default();
    assert_eq!(observed(0, &symbols).unwrap_err(), "the pointer to sock is null");
    assert_eq!(observed(0x3000, &symbols).unwrap_err(), "the memory of sock cannot be read");
    // The part of the socket is null.
    assert_eq!(observed(0x2004 - 0x10, &symbols).unwrap_err(), "the pointer to sk is null");
}

#[test]
fn broken_connection_ends_the_observation() {
    let paths = Paths::parse(PATHS, "paths.json").unwrap();
    let failed = observe(&paths.paths[0], &Symbols::default(), 0x1000, |_, _| Err("gone".into()));
    assert_eq!(failed, Err("gone".into()));
}
