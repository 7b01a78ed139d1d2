use kplan::Declaration;

use super::*;

fn member(name: &str, offset: u64, bytes: u64, kind: Kind) -> Member {
    Member {
        name: name.into(),
        offset,
        bytes,
        align: 1,
        kind,
        of: "a type".into(),
        group: None,
        group_align: 1,
        union: false,
        structure: None,
        bits: None,
        wrapped: None,
    }
}

fn structures() -> Structures {
    let inner = Structure { size: 8, align: 4, members: vec![member("mark", 4, 4, Kind::Unsigned)] };
    let outer = Structure {
        size: 42,
        align: 4,
        members: vec![
            Member { structure: Some("inner".into()), ..member("sk", 0, 8, Kind::Structure) },
            member("next", 8, 4, Kind::Pointer),
            member("call", 12, 4, Kind::Function),
            member("name", 16, 4, Kind::Array),
            member("time", 20, 8, Kind::Signed),
            Member { bits: Some((3, 2)), ..member("flags", 28, 1, Kind::Bits) },
            Member { union: true, ..member("one", 32, 4, Kind::Signed) },
            Member { union: true, ..member("two", 32, 4, Kind::Unsigned) },
            Member { structure: None, ..member("unnamed", 36, 4, Kind::Structure) },
            member("odd", 41, 1, Kind::Unsigned),
            Member { bits: Some((4, 8)), ..member("wide", 24, 8, Kind::Bits) },
        ],
    };
    [("inner".to_owned(), inner), ("outer".to_owned(), outer)].into_iter().collect()
}

fn located(objects: &str) -> Result<Vec<Object>> {
    let text = format!(
        r#"{{"schema": "kshrink-declaration/1", "entry": "f", "types": "a.o", "objects": [{objects}]}}"#
    );
    locate(&Declaration::parse(&text, "d.json").unwrap(), "d.json", &structures())
}

const OUTER: &str = r#"{"name": "o", "type": "outer", "from": {"argument": 0}}"#;

#[test]
fn scalars_are_candidates() {
    let objects = located(OUTER).unwrap();
    let rows: Vec<_> = objects[0]
        .candidates
        .iter()
        .map(|found| (&found.member[..], found.offset, found.width, found.mask, found.is_pointer))
        .collect();
    let expected = [
        ("sk.mark", 4, 4, None, false),
        ("next", 8, 4, None, true),
        ("call", 12, 4, None, true),
        ("time", 20, 4, None, false),
        ("time", 24, 4, None, false),
        ("flags", 28, 1, Some(0x18), false),
        ("one", 32, 4, None, false),
        ("odd", 41, 1, None, false),
    ];
    assert_eq!(rows, expected);
    assert_eq!(objects[0].words, 11);
}

#[test]
fn declared_members_alone_are_candidates() {
    let inner = r#"{"name": "i", "type": "inner", "from": {"member": "o.next"}, "members": []}"#;
    let some = OUTER.replace("}}", r#"}, "members": ["sk", "sk.mark", "odd"]}"#);
    let objects = located(&format!("{some}, {inner}")).unwrap();
    let names: Vec<&str> = objects[0].candidates.iter().map(|found| &found.member[..]).collect();
    assert_eq!(names, ["sk.mark", "odd"]);
    assert_eq!(objects[1].from, PointerPlace::Member { object: "o".into(), offset: 8 });
    assert!(objects[1].candidates.is_empty());
}

#[test]
fn stable_members_have_the_reason() {
    let some = OUTER.replace("}}", r#"}, "stable_facts": [{"members": ["sk", "flags"], "reason": "ours"}]}"#);
    let objects = located(&some).unwrap();
    let stable = objects[0].candidates.iter().filter(|found| found.stable.as_deref() == Some("ours"));
    assert_eq!(stable.map(|found| &found.member[..]).collect::<Vec<_>>(), ["sk.mark", "flags"]);
}

#[test]
fn mistakes_are_named() {
    let cases = [
        (
            OUTER.replace("outer", "other"),
            "d.json: the source of a.o has no structure other; expected the name",
        ),
        (OUTER.replace("}}", r#"}, "members": ["sk.nark"]}"#), "struct inner has no member \"nark\""),
        (OUTER.replace("}}", r#"}, "members": ["unnamed.a"]}"#), "no structure with a name"),
        (
            format!(r#"{OUTER}, {{"name": "i", "type": "inner", "from": {{"member": "o.sk.mark"}}}}"#),
            "o.sk.mark is no pointer, but a type; give a pointer",
        ),
    ];
    for (objects, expected) in cases {
        let message = located(&objects).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
