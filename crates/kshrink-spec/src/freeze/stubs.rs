//! The stubs of frozen regions: jumps that the pass `freeze` has made, which become calls of the runtime.
//!
//! The runtime finds the region by the place of its stub, so that a stub is an instruction and nothing else.

use goblin::elf::reloc::R_ARM_THM_JUMP24;
use goblin::elf::section_header::SHF_EXCLUDE;
use kcli::Failure;
use kelf::{Object, Place, Section, SectionIndex, SymbolIndex, reloc};
use kisa::{AddressField, Encoding};
use kopt::freeze::stubs::STUBS;

use super::unwind;

/// The function of the runtime that stubs call.
const ENTER: &str = "kshrink_enter";
/// The symbol of the first stub.
const FIRST: &str = "kshrink_stubs";

/// The section of the stubs, and the regions that they lead to, in their order.
pub struct Stubs {
    /// The section.
    pub section: SectionIndex,
    /// The regions' sections.
    pub regions: Vec<SectionIndex>,
    encoding: Encoding,
}

impl Stubs {
    /// Finds them in an object; `None` if it has no stubs.
    ///
    /// # Errors
    /// If the section holds anything else.
    pub fn find(object: &Object<'_>) -> Result<Option<Stubs>, Failure> {
        let Some(at) = object.sections.iter().position(|section| section.name == STUBS) else {
            return Ok(None);
        };
        let Section { size, relocs, .. } = &object.sections[at];
        let is_thumb = relocs.first().is_some_and(|reloc| reloc.r_type == R_ARM_THM_JUMP24);
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

    /// Makes them calls of the runtime.
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

/// The instructions that a stub becomes, and where the runtime's address is in them.
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
    Failure::job(format!("section {STUBS}: {what} is not as pass freeze makes stubs; nothing was frozen"))
}

/// Checks that nothing but tables about instructions knows the addresses of frozen code, from `first` up to `end`, by the
/// sections that stay.
///
/// # Errors
/// The section and place that does.
pub fn check_uses(object: &Object<'_>, first: u32, end: u32) -> Result<(), Failure> {
    let is_frozen = |reloc: &kelf::Reloc| {
        let symbol = object.symbol(reloc.symbol);
        let range = u64::from(first)..u64::from(end);
        symbol.place == Place::Absolute && range.contains(&symbol.value)
    };
    let is_linked = |section: &&Section<'_>| section.flags & u64::from(SHF_EXCLUDE) == 0;
    let sections = object.sections.iter().filter(is_linked);
    for section in sections.filter(|section| !TRANSLATED.contains(&section.name)) {
        if let Some(reloc) = section.relocs.iter().find(|reloc| is_frozen(reloc)) {
            return Err(Failure::job(format!(
                "section {} uses a place in frozen code at {:#x} ({}), which only its stub may lead to",
                section.name,
                reloc.offset,
                reloc::name(object.machine, reloc.r_type)
            )));
        }
    }
    Ok(())
}

/// Tables in which the runtime looks up the addresses of thawed instructions (kdecomp-rt/kernel/stub.c).
const TRANSLATED: [&str; 3] = ["__bug_table", "__ex_table", unwind::TABLE];

#[cfg(test)]
mod tests {
    use goblin::elf::section_header::{SHF_EXECINSTR, SHF_WRITE};
    use kelf::{Object, Place, Reloc, SectionIndex, SymbolIndex};
    use kopt::freeze::stubs::STUBS;

    use super::super::handmade::{
        self, LIMIT, RANGE, address, branch, global, of_section, place, section, split_up,
    };
    use super::super::image::{Addresses, section_at};

    /// Code that jumps to the second of two stubs; regions, of which the first jumps to that stub and calls a function of
    /// its own by its name, and the second has an entry in the table of traps.
    fn object() -> Object<'static> {
        let to_stub = || Reloc { addend: 1, ..branch(1, 5) };
        let stubs = [0xe9, 0, 0, 0, 0].repeat(2);
        let first = vec![0xe9, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
        let second = vec![0x0f, 0x0b, 0xc3];
        handmade::object(
            vec![
                section(".text", SHF_EXECINSTR, 1, vec![0x90; 16], vec![to_stub()]),
                // Not in the order of the regions.
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

    #[test]
    fn what_is_not_as_it_has_to_be_is_an_error() {
        let refuses = |change: &dyn Fn(&mut Object<'static>), expected: &str| {
            handmade::refuses(object(), &RANGE, change, expected);
        };
        refuses(&|object| object.sections[4].relocs[1].addend = 0, "the stub at 0x6");
        refuses(&|object| object.sections[4].relocs[1].offset = 7, "the stub at 0x7");
        refuses(&|object| object.sections[4].size = 15, "its size");
        refuses(&|object| object.sections[2].size = 4089, "at most 16384 regions of 4088 bytes");
        refuses(&|object| object.symbols.truncate(11), "kshrink_stubs");
        refuses(
            &|object| object.sections[1].relocs[0].symbol = SymbolIndex(2),
            "section .text uses a place in frozen code at 0x1",
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
