//! Linking takes the same members of libraries, and resolves symbols to the same definitions, as `ld`.

mod common;

use std::path::PathBuf;

use common::{Dir, MACHINES};
use kelf::{Definition, Error, InputFiles, Machine, ObjectIndex, Program, Resolved};

/// Compiles `link/<name>.c` for each name.
fn compile(dir: &Dir, machine: Machine, names: &[&str]) -> Vec<PathBuf> {
    let compile = |name: &&str| dir.compile(machine, &format!("link/{name}.c"), &format!("{name}.o"));
    names.iter().map(compile).collect()
}

/// Returns the file names of the objects of a program.
fn names(program: &Program<'_>) -> Vec<String> {
    let base = |name: &str| {
        let name = name.rsplit_once('/').map_or(name, |(_, base)| base);
        name.rsplit_once('(').map_or(name, |(_, member)| member.trim_end_matches(')')).to_string()
    };
    program.objects.iter().map(|input| base(&input.object.name)).collect()
}

/// Returns the name of the object that defines a global symbol.
fn definer(program: &Program<'_>, symbol: &str) -> String {
    let global = program.find(symbol).unwrap();
    assert_eq!(program.global_name(global), symbol);
    match program.global(global).definition {
        Definition::In(object, index) => {
            assert_eq!(program.symbol(object, index).name, symbol);
            assert_eq!(program.definition(Resolved::Global(global)), Some((object, index)));
            names(program)[object.get()].clone()
        }
        other => format!("{other:?}"),
    }
}

/// Returns the members that `ld -M` lists as taken from archives, in its order.
fn taken_by_ld(dir: &Dir, machine: Machine, arguments: &[&str]) -> Vec<String> {
    let all = [arguments, &["-M", "-r", "-o", "linked"]].concat();
    let map = dir.ld(machine, &all);
    let Some((_, list)) = map.split_once("Archive member included") else {
        return Vec::new();
    };
    let list = list.split("\n\n").nth(1).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with(' '));
    let member = |line: &str| {
        let name = line.split_whitespace().next().unwrap();
        let name = name.rsplit_once('(').map_or(name, |(_, member)| member);
        name.trim_end_matches(')').to_string()
    };
    lines.map(member).collect()
}

const LIBRARIES: [(&str, &[&str]); 2] = [
    // Only a member of the second library needs `back`.
    ("one.a", &["back.o", "unneeded.o", "needed.o"]),
    ("two.a", &["optional.o", "further.o", "defines_common.o"]),
];

#[test]
fn library_members_are_those_that_ld_takes() {
    for machine in MACHINES {
        for options in ["cDPrsT", "cDrs", "cDrS"] {
            let dir = Dir::new();
            let all = ["main", "strong", "back", "unneeded", "needed", "optional", "further"];
            let mut files = compile(&dir, machine, &all);
            compile(&dir, machine, &["defines_common"]);
            files.truncate(2);
            for (library, members) in LIBRARIES {
                dir.ar(&[&[options, library], members].concat());
                files.push(dir.path(library));
            }
            let inputs = InputFiles::of_objects(&files).unwrap();
            let program = Program::link(&inputs).unwrap();
            let names = names(&program);
            assert_eq!(names[..2], ["main.o", "strong.o"]);
            assert!(program.objects[2..].iter().all(|input| input.from_library));
            let expected = ["needed.o", "further.o", "defines_common.o", "back.o"];
            assert_eq!(names[2..], expected, "{machine} {options}");
            assert_eq!(definer(&program, "common_word"), "defines_common.o");
            assert!(program.global(program.find("optional").unwrap()).weak);
            // `ld` requires the symbol map, which the last form lacks.
            if options != "cDrS" {
                let group = ["--start-group", "one.a", "two.a", "--end-group"];
                let arguments = [&["main.o", "strong.o"][..], &group].concat();
                assert_eq!(names[2..], taken_by_ld(&dir, machine, &arguments), "{machine}");
            }
        }
    }
}

#[test]
fn symbols_resolve_as_in_ld() {
    let dir = Dir::new();
    let files = compile(&dir, Machine::X86_64, &["main", "strong", "common", "back", "needed"]);
    let inputs = InputFiles::of_objects(&files).unwrap();
    assert_eq!(inputs.len(), 5);
    let program = Program::link(&inputs).unwrap();
    assert_eq!(program.machine, Machine::X86_64);
    assert_eq!(definer(&program, "overridden"), "strong.o");
    assert!(!program.global(program.find("overridden").unwrap()).weak);
    let common = program.global(program.find("common_word").unwrap());
    assert_eq!(common.definition, Definition::Common { size: 64, align: 64 });
    let undefined = program.global(program.find("script_symbol").unwrap());
    assert_eq!((undefined.definition, undefined.weak), (Definition::Undefined, false));
    let weak = program.global(program.find("optional").unwrap());
    assert_eq!((weak.definition, weak.weak), (Definition::Undefined, true));
    // Every symbol resolves; local symbols resolve to themselves.
    for (number, input) in program.objects.iter().enumerate() {
        let object = ObjectIndex::from(number);
        for (index, symbol) in input.object.symbols.iter().enumerate() {
            match program.resolve(object, index.into()) {
                Resolved::Local(o, s) => {
                    assert_eq!((o, s.get()), (object, index));
                    assert!(symbol.is_local());
                }
                Resolved::Global(global) => assert_eq!(program.global_name(global), symbol.name),
            }
        }
    }
    assert_eq!(program.globals().count(), program.globals().len());
}

#[test]
fn first_weak_definition_wins() {
    let dir = Dir::new();
    let files = compile(&dir, Machine::I386, &["main", "needed", "back", "further"]);
    let twice = [files[0].clone(), files[1].clone()];
    let inputs = InputFiles::of_objects(&twice).unwrap();
    let program = Program::link(&inputs).unwrap();
    let global = program.global(program.find("overridden").unwrap());
    assert!(global.weak);
    assert_eq!(definer(&program, "overridden"), "main.o");
}

#[test]
fn later_comdat_groups_are_dropped() {
    for machine in MACHINES {
        let dir = Dir::new();
        let one = dir.compile_with(machine, "link/comdat.S", "one.o", &["-DNAME=one"]);
        let two = dir.compile_with(machine, "link/comdat.S", "two.o", &["-DNAME=two"]);
        let inputs = InputFiles::of_objects(&[one, two]).unwrap();
        let program = Program::link(&inputs).unwrap();
        assert_eq!(definer(&program, "shared"), "one.o");
        let [first, second] = &program.objects[..] else { panic!("two objects") };
        assert!(first.discarded().is_empty());
        let [dropped] = second.discarded() else { panic!("{:?}", second.discarded()) };
        assert_eq!(second.object.section(*dropped).name, ".text.shared");
        assert!(second.is_discarded(*dropped) && !first.is_discarded(*dropped));
        assert_eq!(definer(&program, "two"), "two.o");
        // Assembly has no symbol for its source.
        assert!(first.hand_written && first.source.is_none());
    }
}

#[test]
fn duplicate_definitions_name_both_objects() {
    let dir = Dir::new();
    let files = compile(&dir, Machine::I386, &["strong", "duplicate"]);
    let inputs = InputFiles::of_objects(&files).unwrap();
    let error = Program::link(&inputs).unwrap_err();
    assert!(matches!(error, Error::DuplicateSymbol { .. }) && error.is_bad_input());
    let message = error.to_string();
    assert!(message.contains("symbol strong is defined in "), "{message}");
    let (first, second) = message.split_once("and again in ").unwrap();
    assert!(first.contains("strong.o") && second.contains("duplicate.o"), "{message}");
}

#[test]
fn machines_do_not_mix() {
    let dir = Dir::new();
    let files = [
        dir.compile(Machine::I386, "link/main.c", "main.o"),
        dir.compile(Machine::X86_64, "link/strong.c", "strong.o"),
    ];
    let inputs = InputFiles::of_objects(&files).unwrap();
    let message = Program::link(&inputs).unwrap_err().to_string();
    assert!(message.contains("strong.o is for x86_64"), "{message}");
    assert!(message.contains("main.o on, are for i386"), "{message}");
}

#[test]
fn nothing_to_link() {
    let dir = Dir::new();
    let inputs = InputFiles::of_objects(&[]).unwrap();
    assert!(inputs.is_empty());
    assert!(matches!(Program::link(&inputs), Err(Error::NoInputs)));
    compile(&dir, Machine::I386, &["back"]);
    dir.ar(&["cDrs", "lib.a", "back.o"]);
    let inputs = InputFiles::of_objects(&[dir.path("lib.a")]).unwrap();
    assert!(matches!(Program::link(&inputs), Err(Error::NoInputs)));
    let missing = InputFiles::of_objects(&[dir.path("missing.o")]).unwrap_err();
    assert!(!missing.is_bad_input());
    assert!(missing.to_string().contains("missing.o"));
}

#[test]
fn references_are_wrapped_as_by_ld() {
    let dir = Dir::new();
    let machine = Machine::I386;
    let files = compile(&dir, machine, &["uses_back", "back", "wrapper"]);
    // The result of ld: the undefined symbols, and the targets of calls.
    dir.ld(machine, &["-r", "--wrap=back", "uses_back.o", "wrapper.o", "-o", "linked.o"]);
    let by_ld = InputFiles::of_objects(&[dir.path("linked.o")]).unwrap();
    let by_ld = Program::link(&by_ld).unwrap();
    let undefined = |program: &Program<'_>| {
        let open = program.globals().filter(|(_, _, global)| global.definition == Definition::Undefined);
        open.map(|(_, name, _)| name.to_owned()).filter(|name| !name.starts_with('_')).collect::<Vec<_>>()
    };
    assert_eq!(undefined(&by_ld), ["back"]);

    let wrapper = std::fs::read(&files[2]).unwrap();
    let open = InputFiles::of_objects(&files[..1]).unwrap();
    let open = open.with_objects([("wrapper.o".to_owned(), wrapper.clone())]).wrapping(&["back"]);
    assert_eq!(undefined(&Program::link(&open).unwrap()), ["back"]);

    let all = InputFiles::of_objects(&files[..2]).unwrap();
    let all = all.with_objects([("wrapper.o".to_owned(), wrapper)]).wrapping(&["back"]);
    let program = Program::link(&all).unwrap();
    assert_eq!(definer(&program, "__wrap_back"), "wrapper.o");
    assert_eq!(definer(&program, "back"), "back.o");
    assert!(program.find("__real_back").is_none());
    let names = |object: usize| {
        let symbols = &program.objects[object].object.symbols;
        symbols.iter().filter(|symbol| symbol.is_undefined()).map(|symbol| symbol.name).collect::<Vec<_>>()
    };
    assert!(names(0).contains(&"__wrap_back") && !names(0).contains(&"back"));
    assert!(names(2).contains(&"back") && names(2).contains(&"__wrap_back"));
}

#[test]
fn references_of_the_definer_are_wrapped_if_asked_for() {
    let dir = Dir::new();
    let files = compile(&dir, Machine::I386, &["names_own_back", "wrapper"]);
    let wrapper = std::fs::read(&files[1]).unwrap();
    for everywhere in [false, true] {
        let all = InputFiles::of_objects(&files[..1]).unwrap();
        let all = all.with_objects([("wrapper.o".to_owned(), wrapper.clone())]);
        let all = if everywhere { all.wrapping_everywhere(&["back"]) } else { all.wrapping(&["back"]) };
        let program = Program::link(&all).unwrap();
        let definers =
            if everywhere { ["wrapper.o", "names_own_back.o"] } else { ["names_own_back.o", "wrapper.o"] };
        assert_eq!(definer(&program, "back"), definers[0]);
        assert_eq!(definer(&program, if everywhere { "__real_back" } else { "__wrap_back" }), definers[1]);
        let object = &program.objects[0].object;
        let referred = object.sections.iter().flat_map(|section| &section.relocs);
        let symbols: Vec<_> = referred.map(|reloc| object.symbol(reloc.symbol)).collect();
        let reference = symbols.iter().find(|symbol| symbol.name == "back").expect("a reference");
        assert_eq!(reference.is_undefined(), everywhere);
    }
}

#[test]
fn a_later_definition_replaces_an_earlier_one() {
    let dir = Dir::new();
    let files = compile(&dir, Machine::I386, &["back", "uses_back", "names_own_back"]);
    let other = std::fs::read(&files[2]).unwrap();
    let all = || {
        let files = InputFiles::of_objects(&files[..2]).unwrap();
        files.with_objects([("other.o".to_owned(), other.clone())])
    };
    assert!(matches!(Program::link(&all()), Err(Error::DuplicateSymbol { .. })));
    let files = all().overriding(&["back"]);
    let program = Program::link(&files).unwrap();
    assert_eq!(definer(&program, "back"), "other.o");
    let replaced = program.objects[0].object.symbols.iter().find(|symbol| symbol.name == "back");
    assert!(replaced.is_some_and(|symbol| symbol.is_weak() && symbol.is_defined()));
}

#[test]
fn weak_definitions_that_are_replaced_are_wrapped() {
    let dir = Dir::new();
    let files = compile(&dir, Machine::I386, &["weak_back", "back", "wrapper"]);
    let wrapper = std::fs::read(&files[2]).unwrap();
    let all = InputFiles::of_objects(&files[..2]).unwrap();
    let all = all.with_objects([("wrapper.o".to_owned(), wrapper)]).wrapping(&["back"]);
    let program = Program::link(&all).unwrap();
    // A call of an object's own weak definition reaches the wrapper, which calls the strong one.
    assert_eq!(definer(&program, "__wrap_back"), "wrapper.o");
    assert_eq!(definer(&program, "back"), "back.o");
    let own = program.objects[0].object.symbols.iter().find(|symbol| symbol.name == "__wrap_back");
    assert!(own.is_some_and(|symbol| !symbol.is_undefined()));
}
