use std::path::Path;

use super::*;

const ALLOC: u64 = SHF_ALLOC as u64;
const CODE: u64 = ALLOC | SHF_EXECINSTR as u64;

fn kernel() -> World {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cfg/kernel.lds");
    World::kernel(LinkerScript::read(&path).unwrap(), Machine::I386, None)
}

#[test]
fn rules_of_a_kernel() {
    let rule = |name: &str| kernel().rule(name, 1, ALLOC);
    assert_eq!(rule("__ex_table"), Rule::Weak(TableKind::ExceptionTable));
    assert_eq!(rule("runtime_ptr_x"), Rule::Weak(TableKind::RuntimeConst));
    assert_eq!(rule(".export_symbol"), Rule::Exports);
    for name in
        ["___ksymtab+printk", "___ksymtab_gpl+f", "___kcrctab+x", "___kcrctab_gpl+f", "__ksymtab_strings"]
    {
        assert_eq!(rule(name), Rule::Root(RootReason::Exported), "{name}");
    }
    for name in [".initcall6.init", "__param", ".init_array", ".init.setup"] {
        assert_eq!(rule(name), Rule::Root(RootReason::LinkerTable), "{name}");
    }
    for name in [".data", ".data.once", ".data..once", ".init.data", ".data.rel.ro.local"] {
        assert_eq!(rule(name), Rule::Data, "{name}");
    }
    assert_eq!(rule("unheard_of"), Rule::Root(RootReason::UnknownSection));
    assert_eq!(kernel().rule(".init.text", 1, CODE), Rule::Code);
    assert_eq!(kernel().rule(".unheard", 1, CODE), Rule::Root(RootReason::UnknownSection));
    assert_eq!(kernel().rule(".debug_info", 1, 0), Rule::Dropped);
    assert!(kernel().discards(".exitcall.exit"));
}

#[test]
fn rules_of_a_user_program() {
    let rule = |name: &str| World::Program.rule(name, 1, ALLOC);
    for name in
        ["__ex_table", "__jump_table", "_ftrace_events", "members", ".init_array.100", ".init", ".ctors"]
    {
        assert_eq!(rule(name), Rule::Root(RootReason::LinkerTable), "{name}");
    }
    for name in
        [".altinstructions", ".export_symbol", ".discard.x", ".initcall1.init", "___ksymtab+x", ".init.data"]
    {
        assert_eq!(rule(name), Rule::Root(RootReason::UnknownSection), "{name}");
    }
    for name in [".data", ".data.once", ".bss.x", ".rodata.str1.1", ".data.rel.ro.local", ".tdata"] {
        assert_eq!(rule(name), Rule::Data, "{name}");
    }
    assert_eq!(World::Program.rule(".text.f", 1, CODE), Rule::Code);
    for name in [".init.text", ".altinstr_replacement", "plugins"] {
        assert!(matches!(World::Program.rule(name, 1, CODE), Rule::Root(_)), "{name}");
    }
    assert_eq!(rule(".eh_frame"), Rule::Dropped);
    assert!(!World::Program.discards(".exitcall.exit"));
}

#[test]
fn names_for_the_linker() {
    let kernel = kernel();
    for (name, output) in [
        (".data.counter", ".data"),
        (".data.once", ".data.once"),
        (".data.rel.ro.local", ".data.rel.ro.local"),
        (".data..percpu", ".data..percpu"),
        (".text.f", ".text"),
        (".text.fixup", ".text.fixup"),
        (".text.unlikely.f", ".text.unlikely.f"),
        (".init.text.f", ".init.text.f"),
        (".rodata.str1.1", ".rodata.str1.1"),
    ] {
        assert_eq!(kernel.output_name(name), output);
        assert_eq!(World::Program.output_name(name), name);
    }
}

#[test]
fn classes_of_sections() {
    let kernel = kernel();
    for (name, class, in_program) in [
        (".text.f", ".text", ".text"),
        (".text.unlikely.f", ".text.unlikely", ".text.unlikely"),
        (".init.text.f", ".init.text", ".init.text.f"),
        (".data.counter", ".data", ".data"),
        (".data.once", ".data.once", ".data"),
        (".data.rel.ro.local", ".data.rel.ro*", ".data.rel.ro"),
        (".data..percpu", ".data..percpu", ".data"),
    ] {
        assert_eq!(kernel.class(name), class);
        assert_eq!(World::Program.class(name), in_program);
    }
}
