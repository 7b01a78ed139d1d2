use super::*;
use crate::document::{Allocator, Constructor, PROFILE_SCHEMA, Value, ValueCount};

fn member(name: &str, offset: u64, bytes: u64, values: &[i128], cost: u64) -> MemberProfile {
    let text = format!(
        r#"{{"name": "{name}", "offset": {offset}, "bytes": {bytes}, "align": {}, "kind": "unsigned", "type": "int",
        "distinct": {}, "prefix": 0, "pages": 0, "zeros": 0, "zero": 0, "loads": {cost}, "stores": 0}}"#,
        bytes.min(4),
        values.len()
    );
    let bound = |value: Option<&i128>| value.map(|&value| Value::Number(value));
    MemberProfile {
        min: bound(values.iter().min()),
        max: bound(values.iter().max()),
        values: values.iter().map(|&value| ValueCount { value: Value::Number(value), objects: 1 }).collect(),
        ..serde_json::from_str(&text).unwrap()
    }
}

/// Objects of 84 bytes, 46 of which fit into a slab: `wide` and `hot` have small values, `flag` is constant, and `rest` needs
/// all of its bytes.
fn profile() -> Profile {
    let mut members = vec![
        member("hash", 0, 4, &[0x1234_5678, 0x9abc_def0], 9),
        member("wide", 4, 8, &[1, 2], 3),
        member("hot", 12, 4, &[5, 6], 100),
        member("flag", 16, 4, &[0], 1),
        member("size", 20, 4, &[3, 4], 2),
        member("rest", 24, 60, &[], 0),
    ];
    members[0].values.clear();
    members[5].kind = Kind::Array;
    let of =
        TypeProfile { name: "node".into(), size: 84, align: 4, file: "a.c".into(), objects: 4242, members };
    let allocator = Allocator { word: 4, page: 4096, align: 8, cache_line: 64, orders: [0, 1], objects: 8 };
    let cache = CacheProfile {
        name: "node_cache".into(),
        of: Some("node".into()),
        untyped: None,
        object_size: 84,
        size: 88,
        align: 8,
        cache_lines: false,
        constructor: Constructor::Inside,
        per_slab: 46,
        slab_bytes: 4096,
        bytes: 95 * 4096,
        objects: 4370,
        used: 4242,
    };
    Profile {
        schema: PROFILE_SCHEMA.into(),
        kernel: "Linux version 6.12.117 (someone)".into(),
        build_id: None,
        cores: Vec::new(),
        accesses: true,
        allocator: Some(allocator),
        caches: vec![cache],
        types: vec![of],
    }
}

fn options(threshold: f64, only: &[&str]) -> Options {
    let names: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
    Options {
        threshold,
        types: Vec::new(),
        allowed: Allowed::named(&names).unwrap(),
        starve: false,
        after: None,
        beside: Beside::default(),
    }
}

fn planned(options: &Options) -> Fields {
    plan(&profile(), "profile.json", options).unwrap()
}

fn names(fields: &Fields) -> Vec<&str> {
    fields.types[0].members.iter().map(|member| &member.name[..]).collect()
}

fn why<'a>(fields: &'a Fields, name: &str) -> &'a str {
    &fields.types[0].excluded.iter().find(|one| one.name == name).unwrap().why
}

#[test]
fn changes_below_no_step_are_dropped() {
    // All of them make 84 bytes 68, which takes 72: 56 objects a slab. Without `hot`, 71 bytes take the same.
    let fields = planned(&options(0.0, &[]));
    assert_eq!(names(&fields), ["wide", "flag", "size"]);
    let of = &fields.types[0];
    assert_eq!((of.size, &of.order[..2]), ([84, 72], &["hash".to_owned(), "hot".to_owned()][..]));
    assert_eq!(why(&fields, "hot"), "a slab would not hold more objects");
    assert_eq!(why(&fields, "rest"), "it is an array");
    let cache = &fields.caches[0];
    assert_eq!((cache.size, cache.per_slab, cache.kib), ([88, 72], [46, 56], [380, 316]));
    assert_eq!(fields.slab, [380, 316]);
    let costs: f64 = cache.members.iter().map(|cost| cost.kib).sum();
    assert!((costs - 64.0).abs() < 0.5, "{:?}", cache.members);
    assert_eq!(cache.members[0].name, "node.wide");
}

#[test]
fn the_most_used_members_stay() {
    let fields = planned(&options(0.9, &[]));
    assert_eq!(why(&fields, "hot"), "it is among the most used: 100 loads, 0 stores");
    assert!(planned(&options(1.0, &[])).types[0].members.is_empty());
}

#[test]
fn members_with_many_values_beside_the_objects_stay() {
    let objects = profile().types[0].objects;
    let beside = |count: u64| {
        let beside = Beside::parse(&format!("node.wide {count}\n"), "beside").unwrap();
        planned(&Options { beside, ..options(0.0, &[]) })
    };
    assert!(names(&beside(objects / 4)).contains(&"wide"));
    let many = objects / 4 + 1;
    let reason = format!("{many} of its values had no code in an earlier plan, with {objects} objects");
    assert_eq!(why(&beside(many), "wide"), reason);
}

#[test]
fn absent_members_count_as_stored_until_the_source_is_known() {
    let fields = planned(&options(0.0, &["order", "absent"]));
    assert_eq!((names(&fields), fields.types[0].size), (vec!["flag"], [84, 80]));
    let all = planned(&options(0.0, &[]));
    let flag = all.types[0].members.iter().find(|member| member.name == "flag").unwrap();
    assert_eq!((flag.scheme.name(), flag.otherwise.as_deref().unwrap().width()), ("absent", 1));
    // The source excludes the absence, or proves it.
    let mut after = all.clone();
    after.types[0].excluded.push(Excluded {
        name: "flag".into(),
        why: "a.c:12 stores something else".into(),
        scheme: Some("absent".into()),
        planned: false,
    });
    let fields = planned(&Options { after: Some(after), ..options(0.0, &[]) });
    let flag = fields.types[0].members.iter().find(|member| member.name == "flag").unwrap();
    assert_eq!((flag.scheme.name(), &flag.otherwise), ("narrow", &None));
    assert_eq!(fields.types[0].excluded.iter().filter(|one| one.scheme.is_some()).count(), 1);
    let mut after = all;
    after.types[0].members.iter_mut().for_each(|member| member.otherwise = None);
    let fields = planned(&Options { after: Some(after), ..options(0.0, &[]) });
    let flag = fields.types[0].members.iter().find(|member| member.name == "flag").unwrap();
    assert_eq!((flag.scheme.name(), &flag.otherwise), ("absent", &None));
}

#[test]
fn members_that_the_code_excludes_stay() {
    let mut after = planned(&options(0.0, &[]));
    let exclude =
        |name: &str, why: &str| Excluded { name: name.into(), why: why.into(), scheme: None, planned: false };
    after.types[0].excluded =
        vec![exclude("wide", "a.c:3 takes its address"), exclude("", "a.c:4 needs the order")];
    let fields = planned(&Options { after: Some(after), ..options(0.0, &[]) });
    assert_eq!(why(&fields, "wide"), "a.c:3 takes its address");
    assert!(fields.types[0].order.is_empty() && !names(&fields).contains(&"wide"));
    let again = fields.types[0].excluded.iter().find(|one| one.name == "wide").unwrap();
    assert!(!again.planned && fields.types[0].excluded.iter().any(|one| one.name.is_empty()));
}

#[test]
fn starved_plans_have_limits() {
    let fields = planned(&Options { starve: true, ..options(0.0, &[]) });
    let limits: Vec<_> =
        fields.types[0].members.iter().map(|member| (&member.name[..], member.limit)).collect();
    assert_eq!(limits, [("wide", Some(2)), ("flag", None), ("size", Some(4))]);
    assert!(fields.starve);
}

#[test]
fn slabs_that_are_not_as_computed_are_not_planned() {
    let mut profile = profile();
    profile.caches[0].per_slab = 45;
    let fields = plan(&profile, "profile.json", &options(0.0, &[])).unwrap();
    assert!(fields.types.is_empty() && fields.caches.is_empty());
}

#[test]
fn plans_need_what_the_options_name() {
    let refuse = |profile: &Profile, options: &Options, words: &str| {
        let error = plan(profile, "profile.json", options).unwrap_err().message();
        assert!(error.starts_with("profile.json: ") && error.contains(words), "{error}");
    };
    let named = Options { types: vec!["inode".into()], ..options(0.0, &[]) };
    refuse(&profile(), &named, "it has no structure inode");
    let without = Profile { accesses: false, ..profile() };
    refuse(&without, &options(0.5, &[]), "it has no loads and stores");
    assert_eq!(Allowed::named(&["order".into(), "sort".into()]), Err("sort".into()));
}

#[test]
fn plans_survive_their_document() {
    let fields = planned(&Options { starve: true, ..options(0.2, &[]) });
    let text = serde_json::to_string(&fields).unwrap();
    assert_eq!(serde_json::from_str::<Fields>(&text).unwrap(), fields);
}

/// Replaces one number of a document.
fn damage(value: &mut serde_json::Value, place: &mut usize, number: u64) {
    match value {
        serde_json::Value::Number(_) => {
            if *place == 0 {
                *value = number.into();
            }
            *place = place.wrapping_sub(1);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(|value| damage(value, place, number)),
        serde_json::Value::Object(values) => {
            values.values_mut().for_each(|value| damage(value, place, number))
        }
        _ => {}
    }
}

#[test]
fn damaged_numbers_are_refused_or_planned() {
    let whole = serde_json::to_value(profile()).unwrap();
    let (mut read, mut refused) = (0, 0);
    for place in 0..120 {
        for number in [0, 1, 3, 255, 4096, 1 << 26, u64::from(u32::MAX), 1 << 40, i64::MAX as u64, u64::MAX] {
            let mut value = whole.clone();
            damage(&mut value, &mut { place }, number);
            let Ok(damaged) = serde_json::from_value::<Profile>(value) else { continue };
            if damaged.check().is_err() {
                refused += 1;
                continue;
            }
            read += 1;
            for starve in [false, true] {
                let options = Options { starve, ..options(0.3, &[]) };
                if let Ok(fields) = plan(&damaged, "profile.json", &options) {
                    crate::show::plan(&fields);
                }
            }
            crate::show::profile(&damaged, &[]);
        }
    }
    assert!(read > 300 && refused > 100, "{read} read, {refused} refused");
}
