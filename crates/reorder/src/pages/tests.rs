use kelf::functions::TextSection;
use kplan::{Coverage, CoveredFunction, FunctionName, RanRange};

use super::*;
use crate::hot::HotCode;
use crate::regions;

const PAGE: u64 = 100;

const INIT: Range<u64> = 1850..2050;

/// A kernel of 1,000 bytes at 1,050: `.text` up to 1,850 with `.sched.text` at 1,800, followed by init text.
fn sections() -> [TextSection; 2] {
    let section = |name: &str, address, size| TextSection {
        name: name.into(),
        address,
        size,
        load_address: address,
        bytes: Vec::new(),
    };
    [section(".text", 1050, 800), section(".init.text", 1850, 200)]
}

const FUNCTIONS: [(&str, u64, u64); 5] =
    [("a", 1050, 100), ("b", 1150, 130), ("c", 1300, 500), ("d", 1800, 50), ("e", 1850, 150)];

fn functions() -> Vec<Function> {
    let function = |&(name, address, size): &(&str, u64, u64)| Function {
        name: name.into(),
        file: None,
        nth: 0,
        section: usize::from(INIT.contains(&address)),
        address,
        size,
        is_label: name == "d",
    };
    FUNCTIONS.iter().map(function).collect()
}

/// The report of a kernel in which these ranges of its functions ran.
fn report(ran: &[(&str, &[(u64, u64)])]) -> PageReport {
    let covered = |(name, ranges): &(&str, &[(u64, u64)])| CoveredFunction {
        function: FunctionName::global(*name),
        section: ".text".into(),
        size: FUNCTIONS.iter().find(|function| function.0 == *name).unwrap().2,
        first: 0,
        count: None,
        ran: Some(
            ranges
                .iter()
                .map(|&(offset, end)| RanRange { offset, size: end - offset, first: 0, count: None })
                .collect(),
        ),
    };
    let coverage = Coverage { functions: ran.iter().map(covered).collect(), ..Coverage::default() };
    let (sections, functions) = (sections(), functions());
    let markers = [("__sched_text_start", 1800), ("__sched_text_end", 1850)];
    let regions = regions::cut(&sections, &INIT, markers.into_iter());
    let find = |wanted: &FunctionName| functions.iter().find(|function| function.name == wanted.name);
    let hot = HotCode::new(regions, &coverage, find);
    let map = PageMap::new(&sections, &functions, &hot.addresses(), PAGE);
    PageReport::new(&map, &functions, &hot.regions, &INIT)
}

#[test]
fn pages_and_minima_are_counted() {
    let pages = report(&[("a", &[(0, 10), (40, 60)]), ("c", &[(99, 101), (450, 451)]), ("e", &[(0, 150)])]);
    let text = &pages.text;
    // Pages 1000 to 1800; ran: 1050..1060, 1090..1110, 1399..1401, 1750.
    assert_eq!((text.pages, text.touched), (9, 5));
    assert_eq!((text.minimum_by_function, text.minimum_by_byte), (6, 1));
    assert_eq!((text.function_bytes, text.bytes_run, text.size), (600, 33, 800));
    let addresses: Vec<u64> = text.touched_pages.iter().map(|page| page.address).collect();
    assert_eq!(addresses, [1000, 1100, 1300, 1400, 1700]);
    assert_eq!((pages.init_text.pages, pages.init_text.touched), (3, 2));
    assert_eq!((pages.init_text.minimum_by_function, pages.init_text.minimum_by_byte), (2, 2));
}

#[test]
fn the_bytes_of_touched_pages_add_up() {
    let pages = report(&[("a", &[(0, 10), (40, 60)]), ("b", &[(129, 130)]), ("d", &[(0, 1)])]);
    let bytes =
        |address: u64| pages.text.touched_pages.iter().find(|page| page.address == address).unwrap().bytes;
    let expected = Bytes { ran: 20, cold_parts: 30, cold_functions: 0, padding: 0, outside: 50 };
    assert_eq!(bytes(1000), expected);
    let expected = Bytes { ran: 1, cold_parts: 79, cold_functions: 0, padding: 20, outside: 0 };
    assert_eq!(bytes(1200), expected);
    let expected = Bytes { ran: 1, cold_parts: 49, cold_functions: 0, padding: 0, outside: 50 };
    assert_eq!(bytes(1800), expected);
    let Bytes { ran, cold_parts, cold_functions, padding, outside } = pages.text.bytes;
    assert_eq!(ran + cold_parts + cold_functions + padding + outside, pages.text.touched * PAGE);
}

#[test]
fn the_emptiest_pages_say_why() {
    let pages = report(&[("a", &[(0, 60)]), ("d", &[(0, 1)])]);
    let emptiest = pages.text.emptiest(2);
    assert_eq!((emptiest[0].address, emptiest[1].address), (1800, 1100));
    assert_eq!(
        emptiest[0].why(),
        "50 outside of the section, 49 of functions that ran in part, border to .sched.text, hand-written \
         code; ran: d"
    );
    assert_eq!(
        emptiest[1].why(),
        "50 of functions that did not run, 40 of functions that ran in part; ran: a"
    );
    let text = pages.text(1);
    let line = text.lines().find(|line| line.starts_with("touched / minimum by function")).unwrap();
    assert!(line.split_whitespace().rev().take(2).eq(["-", "1.500"]), "{text}");
    assert!(text.contains("\n0x708      1  50 outside"), "{text}");
}

/// Compares with a map of every byte.
#[test]
fn random_kernels_against_a_map_of_bytes() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let ranges: Vec<Vec<(u64, u64)>> = FUNCTIONS
            .iter()
            .map(|&(_, _, size)| {
                let (mut ranges, mut at) = (Vec::new(), random(size));
                while at < size && random(3) > 0 {
                    let end = (at + 1 + random(60)).min(size);
                    ranges.push((at, end));
                    at = end + 1 + random(80);
                }
                ranges
            })
            .collect();
        let ran: Vec<(&str, &[(u64, u64)])> = FUNCTIONS
            .iter()
            .zip(&ranges)
            .filter(|(_, ranges)| !ranges.is_empty())
            .map(|(function, ranges)| (function.0, ranges.as_slice()))
            .collect();
        let pages = report(&ran);
        let mut map = std::collections::BTreeSet::new();
        for (function, ranges) in FUNCTIONS.iter().zip(&ranges) {
            map.extend(ranges.iter().flat_map(|&(start, end)| function.1 + start..function.1 + end));
        }
        let of = |area: Range<u64>| {
            let bytes: Vec<u64> = map.range(area).copied().collect();
            let pages: std::collections::BTreeSet<u64> = bytes.iter().map(|byte| byte / PAGE).collect();
            (pages.len() as u64, bytes.len() as u64)
        };
        assert_eq!((pages.text.touched, pages.text.bytes_run), of(1050..1850), "{ranges:?}");
        assert_eq!((pages.init_text.touched, pages.init_text.bytes_run), of(1850..2050), "{ranges:?}");
    }
}
