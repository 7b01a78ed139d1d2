//! The addresses that a link gives the sections of an object.

mod common;

use std::fs;

use common::{Dir, MACHINES};
use kelf::{Object, SectionIndex, section_bases};

#[test]
fn merged_strings_have_no_base() {
    for machine in MACHINES {
        let dir = Dir::new();
        let path = dir.compile(machine, "merged.S", "merged.o");
        dir.ld(machine, &["-Ttext=0x10000", "-Tdata=0x40000", "merged.o", "-o", "linked"]);
        let bytes = fs::read(path).unwrap();
        let object = Object::read("merged.o", &bytes).unwrap();
        let bases = section_bases(&object, &dir.path("linked")).unwrap();
        let base = |name: &str| {
            let index = object.sections.iter().position(|section| section.name == name).unwrap();
            bases[SectionIndex::from(index).get()]
        };
        let found = [".text", ".data", ".strings"].map(base);
        assert_eq!(found, [Some(0x10000), Some(0x40000), None], "{machine}");
    }
}
