//! The lowered object, split into a part for the kernel's link and a frozen part.

use std::borrow::Cow;

use goblin::elf::section_header::{SHF_ALLOC, SHF_WRITE, SHT_NOBITS, SHT_PROGBITS};
use goblin::elf::sym::{STT_FUNC, STT_NOTYPE, STT_SECTION};
use kcli::Failure;
use kelf::reloc::Half;
use kelf::{
    Machine, OWN_SYMBOL, Object, Place, Reloc, RelocClass, Section, SectionIndex, SymbolIndex, put_field,
    reloc,
};
use ksize::FROZEN_SYMBOLS;
use rustc_hash::FxHashMap;

use super::layout::{Layout, PAGE};
use super::system_map::Named;
use super::unwind;
use super::uses::check_uses;
use crate::edits::define;
use crate::linked::{self, Purpose};
use crate::orc::Tables;

/// The section with the packed bytes, which the linker script places in read-only data.
const ROOM: &str = ".rodata.kshrink";

/// The section with the page tables of the frozen addresses (`BSS_SECTION` of include/asm-generic/vmlinux.lds.h).
const PAGE_TABLES: &str = ".bss..page_aligned";

/// The section of the pages that are used at boot, which the kernel frees after boot.
const BOOT: &str = ".init.data";

/// The symbol of these pages.
pub const BOOT_PAGES: &str = "kshrink_boot_pages";

/// A field of a frozen section.
pub struct Field {
    /// Its offset in bytes in the section.
    pub offset: u32,
    /// Its size in bytes.
    pub width: u8,
    /// Its value.
    pub value: Value,
    machine: Machine,
    r_type: u32,
    class: RelocClass,
}

impl Field {
    /// Whether its own address is subtracted.
    pub fn is_relative(&self) -> bool {
        matches!(self.class, RelocClass::Relative | RelocClass::Branch)
    }

    /// Returns the target of a branch with this value. The relocation is relative to the same place as the processor's
    /// offset.
    pub fn target(&self, value: u32) -> u32 {
        if !self.is_relative() {
            return value;
        }
        let ahead = reloc::branch_bias(self.machine, self.r_type).unwrap_or(4);
        self.first_byte(value).wrapping_add(ahead.into())
    }

    /// Writes a value into the field, given its own address, as a linker would.
    ///
    /// # Errors
    /// The reason why it does not fit.
    pub fn put(&self, field: &mut [u8], value: u32, own: u32) -> Result<(), String> {
        let number = match (self.class, reloc::half(self.machine, self.r_type)) {
            (RelocClass::Branch, _) => i64::from(self.first_byte(value).wrapping_sub(own) as i32),
            (RelocClass::Instruction, Some(Half::Upper)) => i64::from((value >> 16) as i16),
            (RelocClass::Instruction, _) => i64::from(value as i16),
            _ if self.is_relative() => i64::from(value.wrapping_sub(own) as i32),
            _ => self.machine.kernel_address(value) as i64,
        };
        put_field(self.machine, self.r_type, field, number)
    }

    fn first_byte(&self, address: u32) -> u32 {
        self.machine.first_byte(address.into()) as u32
    }
}

/// An address.
#[derive(Clone, Copy)]
pub enum Value {
    /// A known address.
    Known(u32),
    /// An address that the link decides: the word with this number.
    Linked(usize),
}

/// A frozen section.
pub struct FrozenSection<'g> {
    /// Its address.
    pub address: u32,
    /// Its bytes before relocation.
    pub bytes: Cow<'g, [u8]>,
    /// The relocated fields.
    pub fields: Vec<Field>,
}

impl FrozenSection<'_> {
    /// Whether a field is a distance to a place in the same section.
    pub fn is_own(&self, field: &Field) -> bool {
        match field.value {
            Value::Known(value) => {
                let inside = field.target(value).wrapping_sub(self.address);
                field.is_relative() && (inside as usize) < self.bytes.len()
            }
            Value::Linked(_) => false,
        }
    }

    /// The offsets in bytes of the branches that lead out of it, in order.
    pub fn leaving(&self) -> impl Iterator<Item = u32> {
        let branches = self.fields.iter().filter(|field| field.class == RelocClass::Branch);
        branches.filter(|field| !self.is_own(field)).map(|field| field.offset)
    }
}

/// A split object.
pub struct Split<'g> {
    /// The object for the kernel's link.
    hot: Object<'g>,
    room: SectionIndex,
    packed: SymbolIndex,
    /// With mechanism `page`, the section of [`BOOT`].
    boot: Option<SectionIndex>,
    /// The frozen sections.
    pub frozen: Vec<FrozenSection<'g>>,
    /// Number of addresses that the link decides.
    pub linked: usize,
}

/// Splits an object.
///
/// # Errors
/// If a frozen section has a relocation that cannot be computed here, or the runtime is not part of the object.
pub fn split<'g>(mut object: Object<'g>, layout: &Layout) -> Result<Split<'g>, Failure> {
    make_absolute(&mut object, layout);
    if let Some(stubs) = &layout.stubs {
        stubs.call_runtime(&mut object)?;
    }
    let mut addresses = Addresses::default();
    let mut frozen = Vec::new();
    for &(index, address) in &layout.sections {
        let section = &object.sections[index.get()];
        let fields = section.relocs.iter().map(|reloc| addresses.field(&object, section, reloc));
        let fields = fields.collect::<Result<_, _>>()?;
        let Section { data, .. } = object.take_section(index);
        frozen.push(FrozenSection { address, bytes: data, fields });
    }
    unwind::move_index(&mut object, layout)?;
    if layout.stubs.is_some() {
        check_uses(&object, layout.code.start, layout.end)?;
        frozen.iter().try_for_each(|section| check_fields(section, layout))?;
    }
    let linked = addresses.relocs.len();
    linked::add(&mut object, Purpose::Frozen, addresses.relocs);
    let room = SectionIndex::from(object.sections.len());
    let flags = u64::from(SHF_ALLOC);
    object.sections.push(Section { name: ROOM, kind: SHT_PROGBITS, flags, align: 4, ..Section::null() });
    let [code, data, packed, end] = FROZEN_SYMBOLS;
    let index = define(&mut object, code, Place::Absolute, layout.code.start)?;
    object.symbols[index.get()].size = match &layout.stubs {
        Some(_) => frozen.iter().map(|section: &FrozenSection<'_>| section.bytes.len() as u64).sum(),
        None => layout.code.len() as u64,
    };
    let index = define(&mut object, data, Place::Absolute, layout.data.start)?;
    object.symbols[index.get()].size = layout.data.len() as u64;
    define(&mut object, end, Place::Absolute, layout.end)?;
    let packed = define(&mut object, packed, Place::Section(room), 0)?;
    let mut boot = None;
    define(&mut object, "kshrink_mapped", Place::Absolute, layout.mapped.start)?;
    let tables = match layout.page_tables {
        0 => Place::Absolute,
        pages => Place::Section(add_pages(&mut object, PAGE_TABLES, SHT_NOBITS, pages * PAGE)),
    };
    define(&mut object, "kshrink_page_tables", tables, 0)?;
    if layout.stubs.is_none() {
        let [code, data] = &layout.at_boot;
        let pages = add_pages(&mut object, BOOT, SHT_PROGBITS, (code.len() + data.len()) as u32);
        define(&mut object, BOOT_PAGES, Place::Section(pages), 0)?;
        define(&mut object, "kshrink_boot_text_end", Place::Absolute, code.end)?;
        define(&mut object, "kshrink_boot_data_end", Place::Absolute, data.end)?;
        boot = Some(pages);
    }
    Ok(Split { hot: object, room, packed, boot, frozen, linked })
}

/// Adds a section of whole pages, filled with zeros.
fn add_pages(object: &mut Object<'_>, name: &'static str, kind: u32, size: u32) -> SectionIndex {
    let index = SectionIndex::from(object.sections.len());
    object.sections.push(Section {
        name,
        kind,
        flags: u64::from(SHF_ALLOC | SHF_WRITE),
        align: u64::from(PAGE),
        size: u64::from(size),
        data: if kind == SHT_NOBITS { Cow::default() } else { vec![0; size as usize].into() },
        ..Section::null()
    });
    index
}

impl<'g> Split<'g> {
    /// Returns the frozen symbols, without symbols from lowering.
    pub fn names(&self, layout: &Layout) -> Vec<Named<'_>> {
        let symbols = self.hot.symbols.iter().filter(|symbol| symbol.place == Place::Absolute);
        let named = symbols.filter_map(|symbol| {
            let address = symbol.value as u32;
            if symbol.value != self.hot.machine.kernel_address(address) {
                return None;
            }
            let letter = if layout.code.contains(&address) { 't' } else { 'r' };
            let is_frozen = layout.code.contains(&address) || layout.data.contains(&address);
            let is_named = !symbol.name.is_empty() && !symbol.name.starts_with(".L");
            let letter = if symbol.is_local() { letter } else { letter.to_ascii_uppercase() };
            (is_frozen && is_named).then_some((address, letter, symbol.name))
        });
        named.collect()
    }

    /// Returns the object for the kernel's link.
    pub fn object(&self) -> &Object<'g> {
        &self.hot
    }

    /// Sets the content of the pages that are used at boot, which is zero before.
    pub fn set_boot_pages(&mut self, pages: Vec<u8>) {
        if let Some(boot) = self.boot {
            assert_eq!(self.hot.section(boot).size, pages.len() as u64, "the size of the pages is known");
            self.hot.sections[boot.get()].data = pages.into();
        }
    }

    /// Puts packed tables for unwinding into the object.
    pub fn put_unwinding(&mut self, tables: &Tables, packed: &[u8]) {
        tables.put(&mut self.hot, packed);
    }

    /// Returns the object as a file, with room for the packed bytes, after their size in four bytes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, packed: &[u8], room: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = (packed.len() as u32).to_le_bytes().to_vec();
        bytes.extend(packed);
        bytes.resize(4 + room, 0);
        let section = &mut self.hot.sections[self.room.get()];
        section.size = bytes.len() as u64;
        section.data = bytes.into();
        self.hot.symbols[self.packed.get()].size = packed.len() as u64;
        self.hot.write().map_err(Failure::of)
    }
}

/// Checks that a region contains no address of frozen code except distances within itself, because its copies are
/// elsewhere.
fn check_fields(section: &FrozenSection<'_>, layout: &Layout) -> Result<(), Failure> {
    let is_bad = |field: &&Field| match field.value {
        Value::Known(value) => {
            (layout.code.start..layout.end).contains(&field.target(value)) && !section.is_own(field)
        }
        Value::Linked(_) => false,
    };
    match section.fields.iter().find(is_bad) {
        None => Ok(()),
        Some(field) => Err(Failure::job(format!(
            "the region at {:#x} has an address of frozen code at {:#x}, where only the address of a stub is allowed",
            section.address, field.offset
        ))),
    }
}

/// Makes the symbols of frozen sections absolute.
fn make_absolute(object: &mut Object<'_>, layout: &Layout) {
    let machine = object.machine;
    for symbol in &mut object.symbols {
        let Place::Section(section) = symbol.place else { continue };
        let Some(address) = layout.address(section) else { continue };
        symbol.value += machine.kernel_address(address);
        symbol.place = Place::Absolute;
        // Symbols of sections and, on ARM, mapping symbols.
        if symbol.kind == STT_SECTION || symbol.name.starts_with('$') {
            symbol.kind = STT_NOTYPE;
            symbol.name = OWN_SYMBOL;
        }
    }
}

/// The addresses that the link decides, each once, as relocated words.
#[derive(Default)]
struct Addresses {
    relocs: Vec<Reloc>,
    entries: FxHashMap<(SymbolIndex, i64), usize>,
}

impl Addresses {
    fn field(&mut self, object: &Object<'_>, section: &Section<'_>, reloc: &Reloc) -> Result<Field, Failure> {
        let symbol = object.symbol(reloc.symbol);
        let is_known = match reloc.class {
            RelocClass::Absolute | RelocClass::Relative => matches!(reloc.width, 4 | 8),
            // A jump cannot switch the instruction set.
            RelocClass::Branch => {
                let is_in_thumb_code = reloc::is_in_thumb_code(object.machine, reloc.r_type);
                reloc.width == 4 && (symbol.kind != STT_FUNC || symbol.thumb == is_in_thumb_code)
            }
            RelocClass::Instruction => reloc::half(object.machine, reloc.r_type).is_some(),
            _ => false,
        };
        if !is_known {
            return Err(Failure::job(format!(
                "section {} has {} at {:#x}, which cannot be applied to frozen code",
                section.name,
                reloc::name(object.machine, reloc.r_type),
                reloc.offset
            )));
        }
        let value = match symbol.place {
            Place::Absolute => {
                let whole = symbol.value.wrapping_add_signed(reloc.addend);
                let value = whole as u32;
                if object.machine.is_64() && whole != object.machine.kernel_address(value) {
                    return Err(Failure::job(format!(
                        "section {} refers to {whole:#x} at {:#x}, which is no address of the kernel's image",
                        section.name, reloc.offset
                    )));
                }
                Value::Known(value | u32::from(symbol.thumb))
            }
            _ => Value::Linked(self.entry(object, reloc)),
        };
        let &Reloc { offset, r_type, class, width, .. } = reloc;
        Ok(Field { offset: offset as u32, width, value, machine: object.machine, r_type, class })
    }

    fn entry(&mut self, object: &Object<'_>, reloc: &Reloc) -> usize {
        let next = self.relocs.len();
        let entry = *self.entries.entry((reloc.symbol, reloc.addend)).or_insert(next);
        if entry == next {
            self.relocs.push(linked::word(object.machine, next, reloc.symbol, reloc.addend));
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use goblin::elf::reloc::*;

    use super::*;

    /// Returns the field at 0xbff00000 of an ARM relocation with a value.
    fn put(r_type: u32, field: u32, value: u32) -> Result<u32, String> {
        let (class, width) = reloc::describe(Machine::Arm, r_type).expect("a relocation");
        let machine = Machine::Arm;
        let known = Field { offset: 0, width, value: Value::Known(value), machine, r_type, class };
        let mut bytes = field.to_le_bytes();
        known.put(&mut bytes, value, 0xbff0_0000)?;
        Ok(u32::from_le_bytes(bytes))
    }

    #[test]
    fn fields_of_arm_are_as_the_linker_fills_them() {
        // As ld 2.40 encodes `bl`, `b.w` and `beq.w` to a function in Thumb code, whose addresses are odd, less 4.
        assert_eq!(put(R_ARM_THM_PC22, 0xfffe_f7ff, 0xc010_0ffd), Ok(0xfffe_f200));
        assert_eq!(put(R_ARM_THM_JUMP24, 0xbffe_f7ff, 0xbff0_1ff9), Ok(0xbffc_f001));
        assert_eq!(put(R_ARM_THM_JUMP19, 0xaffe_f43f, 0xbff0_0ff5), Ok(0x87fa_f000));
        assert!(put(R_ARM_THM_JUMP19, 0xaffe_f43f, 0xc010_0ffd).is_err());
        // `movw r0`, `movt r0`, a word, and an entry of an unwind table.
        assert_eq!(put(R_ARM_THM_MOVW_ABS_NC, 0x0000_f240, 0xc012_8f01), Ok(0x7001_f648));
        assert_eq!(put(R_ARM_THM_MOVT_ABS, 0x0000_f2c0, 0xc012_8f01), Ok(0x0012_f2cc));
        assert_eq!(put(R_ARM_MOVW_ABS_NC, 0xe300_1000, 0xc012_8f01), Ok(0xe308_1f01));
        assert_eq!(put(R_ARM_ABS32, 0, 0xc012_8f01), Ok(0xc012_8f01));
        assert_eq!(put(R_ARM_PREL31, 0, 0xbfe0_0000), Ok(0x7ff0_0000));
    }
}
