//! The stubs of frozen regions: jumps made by pass `freeze`, which become calls of the runtime.
//!
//! The runtime identifies the region by the address of its stub, so a stub needs only the call.

use kcli::Failure;
use kelf::{Object, Place, Section, SectionIndex, SymbolIndex, reloc};
use kisa::{AddressField, Encoding};
use kopt::freeze::stubs::STUBS;

/// The function of the runtime that stubs call.
const ENTER: &str = "kshrink_enter";
/// The symbol of the first stub.
const FIRST: &str = "kshrink_stubs";

/// The section of the stubs, and their regions, in order.
pub struct Stubs {
    /// The section.
    pub section: SectionIndex,
    /// The regions' sections.
    pub regions: Vec<SectionIndex>,
    encoding: Encoding,
}

impl Stubs {
    /// Finds the stubs of an object; `None` if it has none.
    ///
    /// # Errors
    /// If the section holds anything else.
    pub fn find(object: &Object<'_>) -> Result<Option<Stubs>, Failure> {
        let Some(at) = object.sections.iter().position(|section| section.name == STUBS) else {
            return Ok(None);
        };
        let Section { size, relocs, .. } = &object.sections[at];
        let is_thumb =
            relocs.first().is_some_and(|first| reloc::is_in_thumb_code(object.machine, first.r_type));
        let encoding = if is_thumb { Encoding::Thumb } else { Encoding::Main };
        let (code, field) = stub(object, encoding)?;
        let mut regions = Vec::new();
        for (number, reloc) in relocs.iter().enumerate() {
            let symbol = object.symbol(reloc.symbol);
            let is_first_byte = symbol.value.wrapping_add_signed(reloc.addend + i64::from(field.bias)) == 0;
            let offset = (number * code.len()) as u64 + u64::from(field.offset);
            match symbol.place {
                Place::Section(region) if is_first_byte && reloc.offset == offset => regions.push(region),
                _ => return Err(defect(&format!("the stub at {:#x}", reloc.offset))),
            }
        }
        if *size != (regions.len() * code.len()) as u64 {
            return Err(defect("its size"));
        }
        Ok(Some(Stubs { section: SectionIndex::from(at), regions, encoding }))
    }

    /// Turns the stubs into calls of the runtime.
    ///
    /// # Errors
    /// If the runtime is not part of the object.
    pub fn call_runtime(&self, object: &mut Object<'_>) -> Result<(), Failure> {
        let is_it = |name: &str| object.symbols.iter().position(|symbol| symbol.name == name);
        let (Some(enter), Some(first)) = (is_it(ENTER), is_it(FIRST)) else {
            return Err(Failure::job(format!("the runtime does not have {ENTER} and {FIRST}")));
        };
        let (code, field) = stub(object, self.encoding)?;
        object.symbols[first].place = Place::Section(self.section);
        let section = &mut object.sections[self.section.get()];
        section.data = code.repeat(self.regions.len()).into();
        for reloc in &mut section.relocs {
            reloc.symbol = SymbolIndex::from(enter);
            (reloc.r_type, reloc.class) = (field.r_type, field.class);
            reloc.addend = -i64::from(field.bias);
        }
        Ok(())
    }
}

/// Returns the instructions of a stub, and the field for the runtime's address in them.
fn stub(object: &Object<'_>, encoding: Encoding) -> Result<(Vec<u8>, AddressField), Failure> {
    let mut code = Vec::new();
    let isa =
        kisa::rewritable(object.machine).ok_or_else(|| Failure::job("no call can be made for stubs"))?;
    isa.encode_push_link(encoding, &mut code);
    let behind = code.len() as u8;
    let field = isa.encode_call(encoding, &mut code);
    Ok((code, AddressField { offset: behind + field.offset, ..field }))
}

fn defect(what: &str) -> Failure {
    Failure::job(format!(
        "section {STUBS}: {what} does not match the stubs of pass freeze; nothing was frozen"
    ))
}

#[cfg(test)]
mod tests {
    use goblin::elf::reloc::{R_ARM_THM_JUMP24, R_ARM_THM_PC22};
    use goblin::elf::section_header::{SHF_EXECINSTR, SHF_WRITE};
    use goblin::elf::sym::STT_FUNC;
    use kelf::{Machine, Object, Place, Reloc, RelocClass, SectionIndex, Symbol, SymbolIndex};
    use kisa::{Encoding, Flow};
    use kopt::freeze::stubs::STUBS;

    use super::super::handmade::{
        self, LIMIT, RANGE, address, branch, global, of_section, place, section, split_up,
    };
    use super::super::image::{Addresses, section_at};

    /// Code that jumps to the second of two stubs, and two regions. The first region jumps to that stub and calls a
    /// function of its own by name. The second region has an entry in the table of traps.
    fn object() -> Object<'static> {
        let to_stub = || Reloc { addend: 1, ..branch(1, 5) };
        let stubs = [0xe9, 0, 0, 0, 0].repeat(2);
        let first = vec![0xe9, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
        let second = vec![0x0f, 0x0b, 0xc3];
        handmade::object(
            vec![
                section(".text", SHF_EXECINSTR, 1, vec![0x90; 16], vec![to_stub()]),
                // In another order than the regions.
                section(".kshrink.frozen.text.1", SHF_EXECINSTR, 1, second, Vec::new()),
                section(".kshrink.frozen.text.0", SHF_EXECINSTR, 1, first, vec![to_stub(), branch(6, 6)]),
                section(STUBS, SHF_EXECINSTR, 1, stubs, vec![branch(1, 3), branch(6, 2)]),
                section("__bug_table", SHF_WRITE, 1, vec![0; 12], vec![address(0, 2, 0)]),
            ],
            vec![
                of_section(1),
                of_section(2),
                of_section(3),
                global("kshrink_enter", 8, place(1)),
                of_section(4),
                global("part", 10, place(3)),
            ],
            &[
                "kshrink_frozen_text",
                "kshrink_frozen_data",
                "kshrink_frozen_end",
                "kshrink_packed",
                "kshrink_stubs",
                "kshrink_page_tables",
                "kshrink_mapped",
            ],
        )
    }

    #[test]
    fn stubs_call_the_runtime_and_regions_run_anywhere() {
        let (layout, split) = split_up(object());
        let start = LIMIT - 4096;
        assert_eq!(layout.sections, [(SectionIndex(3), start), (SectionIndex(2), start + 12)]);
        let stubs = &split.object().sections[4];
        assert_eq!(stubs.data[..], [0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0]);
        let symbols: Vec<&str> =
            stubs.relocs.iter().map(|reloc| split.object().symbol(reloc.symbol).name).collect();
        assert_eq!(symbols, ["kshrink_enter"; 2]);
        let first = split.object().symbols.iter().find(|symbol| symbol.name == "kshrink_stubs");
        assert_eq!(
            first.map(|symbol| (symbol.place, symbol.value)),
            Some((Place::Section(SectionIndex(4)), 0))
        );
        let size = split.object().symbols.iter().find(|symbol| symbol.name == "kshrink_frozen_text");
        assert_eq!(size.map(|symbol| symbol.size), Some(14));
        // The first region, with the second stub at 0xc1000005.
        let addresses = Addresses::of_words(vec![0xc100_0001]);
        for runs_at in [start, 0xc200_0000] {
            let bytes = section_at(&split.frozen[0], &addresses, runs_at).unwrap();
            let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"));
            assert_eq!(runs_at.wrapping_add(5).wrapping_add(word(1)), 0xc100_0005);
            assert_eq!(word(6), 0, "the call of the region's own function");
        }
    }

    /// A stub in Thumb code, and its region, which calls a function of the kernel, and itself.
    fn thumb_object() -> Object<'static> {
        let branch = |offset, r_type, symbol| Reloc {
            offset,
            r_type,
            class: RelocClass::Branch,
            width: 4,
            symbol: SymbolIndex(symbol),
            addend: -4,
        };
        let stub = vec![0x00, 0xb5, 0xff, 0xf7, 0xfe, 0xbf];
        let region: Vec<u8> = [0xff, 0xf7, 0xfe, 0xff].repeat(2);
        let calls = vec![branch(0, R_ARM_THM_PC22, 3), branch(4, R_ARM_THM_PC22, 4)];
        let function =
            |name, section| Symbol { kind: STT_FUNC, thumb: true, ..global(name, 0, place(section)) };
        let mut object = handmade::object(
            vec![
                section(".text", SHF_EXECINSTR, 4, vec![0; 8], Vec::new()),
                section(".kshrink.frozen.text.0", SHF_EXECINSTR, 4, region, calls),
                section(STUBS, SHF_EXECINSTR, 2, stub, vec![branch(2, R_ARM_THM_JUMP24, 2)]),
            ],
            vec![
                of_section(1),
                of_section(2),
                function("function", 1),
                function("part", 2),
                function("kshrink_enter", 1),
            ],
            &[
                "kshrink_frozen_text",
                "kshrink_frozen_data",
                "kshrink_frozen_end",
                "kshrink_packed",
                "kshrink_stubs",
                "kshrink_page_tables",
                "kshrink_mapped",
            ],
        );
        object.machine = Machine::Arm;
        object
    }

    #[test]
    fn stubs_of_arm_save_the_link_register_and_copies_lie_in_a_window() {
        let (layout, split) = split_up(thumb_object());
        let stubs = &split.object().sections[3];
        // push {lr}; bl
        assert_eq!(stubs.data[..2], [0x00, 0xb5]);
        let calls: Vec<(u64, u32, &str)> = stubs
            .relocs
            .iter()
            .map(|reloc| (reloc.offset, reloc.r_type, split.object().symbol(reloc.symbol).name))
            .collect();
        assert_eq!(calls, [(2, R_ARM_THM_PC22, "kshrink_enter")]);
        // Twice the size of the region, and 64 KiB; a page table maps 2 MiB.
        let window = 17 * 4096;
        assert_eq!(layout.mapped, LIMIT - window..LIMIT);
        assert_eq!((layout.page_tables, layout.code.start), (1, LIMIT - window - 4096));
        // `function` is at 0xff000000 as Thumb code, and the relocation subtracts 4.
        let addresses = Addresses::of_words(vec![0xff00_0001 - 4]);
        assert_eq!(split.frozen[0].leaving().collect::<Vec<_>>(), [0]);
        for runs_at in [layout.code.start, layout.mapped.start, layout.mapped.end - 8] {
            let bytes = section_at(&split.frozen[0], &addresses, runs_at).unwrap();
            let call = |at: usize| {
                let place = Encoding::Thumb.at(u64::from(runs_at) + at as u64);
                kisa::isa(Machine::Arm).decode(&bytes[at..], place).expect("a call")
            };
            let target = |at: usize| match call(at).insn.flow {
                Flow::Direct { target, .. } => target as u32,
                other => panic!("{other:?}"),
            };
            assert_eq!((target(0), target(4)), (0xff00_0001, runs_at + 1));
        }
    }

    #[test]
    fn what_is_not_as_it_has_to_be_is_an_error() {
        let refuses = |change: &dyn Fn(&mut Object<'static>), expected: &str| {
            handmade::refuses(object(), &RANGE, change, expected);
        };
        refuses(&|object| object.sections[4].relocs[1].addend = 0, "the stub at 0x6");
        refuses(&|object| object.sections[4].relocs[1].offset = 7, "the stub at 0x7");
        refuses(&|object| object.sections[4].size = 15, "its size");
        refuses(&|object| object.sections[2].size = 4089, "at most 16384 regions of 4088 bytes");
        refuses(&|object| object.sections[2].align = 8, "aligned to 4");
        refuses(&|object| object.symbols.truncate(11), "kshrink_stubs");
        refuses(
            &|object| object.sections[1].relocs[0].symbol = SymbolIndex(2),
            "section .text refers to frozen code at 0x1",
        );
        refuses(
            &|object| object.sections[2].relocs.push(address(0, 3, 0)),
            "has an address of frozen code at 0x0",
        );
        refuses(
            &|object| object.sections[2].relocs.push(branch(0, 3)),
            "has an address of frozen code at 0x0",
        );
    }
}
