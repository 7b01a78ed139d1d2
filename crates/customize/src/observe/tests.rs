use kplan::Declaration;

use super::*;
use crate::calls;

const DECLARATION: &str = r#"{"schema": "kshrink-declaration/1", "entry": "f", "types": "a.o", "objects": [
    {"name": "sock", "type": "t", "from": {"argument": 0}, "exists": "called through it"},
    {"name": "sk", "type": "t", "from": {"member": "sock.sk"}},
    {"name": "rt", "type": "t", "from": {"member": "sk.rt"}}
]}"#;

fn candidate(member: &str, offset: u32, width: u8, mask: Option<u32>, is_pointer: bool) -> Candidate {
    let stable = (member == "flags").then(|| "ours".to_owned());
    Candidate { member: member.into(), offset, width, mask, is_pointer, stable }
}

fn objects() -> Vec<Object> {
    let object = |name: &str, from, words, candidates| Object { name: name.into(), from, words, candidates };
    let member = |object: &str, offset| PointerPlace::Member { object: object.into(), offset };
    vec![
        object(
            "sock",
            PointerPlace::Argument(0),
            2,
            vec![
                candidate("flags", 1, 1, None, false),
                candidate("both", 2, 2, Some(0xf0), false),
                candidate("ops", 4, 4, None, true),
            ],
        ),
        object(
            "sk",
            member("sock", 4),
            2,
            vec![candidate("changes", 0, 4, None, false), candidate("other", 4, 4, None, true)],
        ),
        object("rt", member("sk", 4), 1, vec![candidate("mtu", 0, 4, None, false)]),
    ]
}

fn log(calls: &[(&str, &str)]) -> String {
    let call = |(first, sk): &(&str, &str)| {
        format!(
            "\nBreakpoint 1, 0xc1000000 in ?? ()\ncall\nobject sock\n0xc2000000:\t{first}\t0xc1000010\nobject sk\n0xc3:\t{sk}\t0xc4000000\nend of call\n"
        )
    };
    calls.iter().map(call).collect()
}

fn observed(text: &str) -> (Path, Vec<Observed>) {
    let declaration = Declaration::parse(DECLARATION, "d.json").unwrap();
    let objects = objects();
    let calls = calls::read(text, "log", &objects).unwrap();
    let symbols = Symbols::for_test(&[("ops", 0xc100_0010)]);
    observe(&declaration, &objects, &calls, &symbols)
}

#[test]
fn members_that_never_change_are_facts() {
    let (path, observed) = observed(&log(&[("0x12563478", "0x1"), ("0x93513400", "0x2")]));
    let facts: Vec<_> = path
        .facts
        .iter()
        .map(|fact| (fact.member.as_deref().unwrap(), fact.value, fact.mask, fact.symbol.as_deref()))
        .collect();
    assert_eq!(
        facts,
        [("flags", 0x34, None, None), ("both", 0x50, Some(0xf0), None), ("ops", 0, None, Some("ops"))]
    );
    assert_eq!(path.facts.iter().filter_map(|fact| fact.stable.as_deref()).collect::<Vec<_>>(), ["ours"]);
    let sk = &observed[1];
    assert_eq!((sk.calls, sk.members, sk.same, sk.pointers), (2, 2, 1, 1));
}

#[test]
fn object_that_does_not_always_exist_has_no_facts() {
    let with = log(&[("0x0", "0x1"), ("0x0", "0x1")]);
    let names = |path: &Path| path.objects.iter().map(|object| object.name.clone()).collect::<Vec<_>>();
    let (path, observed_objects) = observed(&with);
    assert_eq!(names(&path), ["sock", "sk"]);
    assert_eq!(observed_objects[2].calls, 0);
    let without = format!("{with}call\nobject sock\n0xc2:\t0x0\t0x0\nend of call\n");
    let (path, _) = observed(&without);
    assert_eq!(names(&path), ["sock"]);
}

#[test]
fn outputs_of_other_scripts_are_refused() {
    let refused = |text: &str| calls::read(text, "log", &objects()).unwrap_err().to_string();
    assert!(refused("call\nobject dst\n").starts_with("log: line 2: the declaration has no object dst;"));
    assert!(refused("object sk\n").contains("an object before the first call"));
    assert!(refused("call\nobject rt\n0x1:\t0x1\t0x2\n").contains("object rt has more than 1 words"));
    assert!(
        refused("call\nobject sk\n0x1:\t0x1\nend of call\n").contains("call 1 has an object of another size")
    );
}

#[test]
fn call_that_is_not_whole_is_left_out() {
    let whole = log(&[("0x0", "0x1")]);
    for rest in
        ["call\n", "call\nobject sock\n0xc2000000:\t0x1\t0x2\n", "call\nobject sock\n0xc2000000:\t0x1"]
    {
        let calls = calls::read(&format!("{whole}{rest}"), "log", &objects()).unwrap();
        assert_eq!(calls.len(), 1, "{rest}");
    }
}
