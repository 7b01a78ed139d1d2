//! The lowered object, split into what the kernel's link takes and what is frozen.

use std::borrow::Cow;

use goblin::elf::section_header::{SHF_ALLOC, SHF_WRITE, SHT_NOBITS, SHT_PROGBITS};
use goblin::elf::sym::{STT_NOTYPE, STT_SECTION};
use kcli::Failure;
use kelf::{FROZEN_SYMBOLS, Object, Place, Reloc, RelocClass, Section, SectionIndex, SymbolIndex, reloc};
use rustc_hash::FxHashMap;

use super::layout::{Layout, PAGE};
use super::stubs::check_uses;
use super::system_map::Named;

/// The section with the packed bytes, which the linker script lays among read-only data.
const ROOM: &str = ".rodata.kshrink";

/// The section with the page tables of the frozen addresses (`BSS_SECTION` of include/asm-generic/vmlinux.lds.h).
const PAGE_TABLES: &str = ".bss..page_aligned";

/// The section of the pages that are used at boot, which the kernel frees when it has booted.
const BOOT: &str = ".init.data";

/// The symbol of these pages.
pub const BOOT_PAGES: &str = "kshrink_boot_pages";

/// A section of the linked file alone: every linker script of the kernel keeps it (`STABS_DEBUG` of
/// include/asm-generic/vmlinux.lds.h), and no boot image has it. No compiler uses it any more.
pub const ADDRESSES: &str = ".stab.index";

/// What stands in the place of a section that was taken out; the linker script drops it.
const GONE: &str = ".discard.kshrink";

/// Symbols of frozen sections.
const FROZEN_SECTION: &str = ".Lkshrink";

/// A field of a frozen section.
pub struct Field {
    /// Its offset in bytes in the section.
    pub offset: u32,
    /// Whether its own address is subtracted.
    pub relative: bool,
    /// What it holds otherwise.
    pub value: Value,
}

/// An address.
#[derive(Clone, Copy)]
pub enum Value {
    /// That is known.
    Known(u32),
    /// That the link decides: this entry of [`ADDRESSES`].
    Linked(usize),
}

/// A frozen section.
pub struct FrozenSection<'g> {
    /// Its address.
    pub address: u32,
    /// Its bytes before relocation.
    pub bytes: Cow<'g, [u8]>,
    /// The fields that are relocated.
    pub fields: Vec<Field>,
}

/// A split object.
pub struct Split<'g> {
    /// What the kernel's link takes.
    hot: Object<'g>,
    room: SectionIndex,
    packed: SymbolIndex,
    /// By page, the section of [`BOOT`].
    boot: Option<SectionIndex>,
    /// What is frozen.
    pub frozen: Vec<FrozenSection<'g>>,
    /// How many entries of [`ADDRESSES`] there are.
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
        let gone = Section { name: GONE, kind: SHT_PROGBITS, ..Section::null() };
        let Section { data, .. } = std::mem::replace(&mut object.sections[index.get()], gone);
        frozen.push(FrozenSection { address, bytes: data, fields });
    }
    if layout.stubs.is_some() {
        check_uses(&object, layout.code.start, layout.end)?;
        frozen.iter().try_for_each(|section| check_fields(section, layout))?;
    }
    let linked = addresses.relocs.len();
    let size = 4 * linked as u64;
    let data = vec![0; 4 * linked].into();
    let relocs = addresses.relocs;
    object.sections.push(Section {
        name: ADDRESSES,
        kind: SHT_PROGBITS,
        align: 4,
        size,
        data,
        relocs,
        ..Section::null()
    });
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
    if layout.stubs.is_none() {
        let [code, data] = &layout.at_boot;
        let tables = add_pages(&mut object, PAGE_TABLES, SHT_NOBITS, layout.page_tables() * PAGE);
        define(&mut object, "kshrink_page_tables", Place::Section(tables), 0)?;
        let pages = add_pages(&mut object, BOOT, SHT_PROGBITS, (code.len() + data.len()) as u32);
        define(&mut object, BOOT_PAGES, Place::Section(pages), 0)?;
        define(&mut object, "kshrink_boot_text_end", Place::Absolute, code.end)?;
        define(&mut object, "kshrink_boot_data_end", Place::Absolute, data.end)?;
        boot = Some(pages);
    }
    Ok(Split { hot: object, room, packed, boot, frozen, linked })
}

/// Adds a section of whole pages, all zero.
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
    /// The frozen symbols, but for those that lowering made.
    pub fn names(&self, layout: &Layout) -> Vec<Named<'_>> {
        let symbols = self.hot.symbols.iter().filter(|symbol| symbol.place == Place::Absolute);
        let named = symbols.filter_map(|symbol| {
            let address = u32::try_from(symbol.value).ok()?;
            let letter = if layout.code.contains(&address) { 't' } else { 'r' };
            let is_frozen = layout.code.contains(&address) || layout.data.contains(&address);
            let is_named = !symbol.name.is_empty() && !symbol.name.starts_with(".L");
            let letter = if symbol.is_local() { letter } else { letter.to_ascii_uppercase() };
            (is_frozen && is_named).then_some((address, letter, symbol.name))
        });
        named.collect()
    }

    /// What the kernel's link takes.
    pub fn object(&self) -> &Object<'g> {
        &self.hot
    }

    /// Says what the pages are that are used at boot; until then, they are zero.
    pub fn set_boot_pages(&mut self, pages: Vec<u8>) {
        if let Some(boot) = self.boot {
            assert_eq!(self.hot.section(boot).size, pages.len() as u64, "the size of the pages is known");
            self.hot.sections[boot.get()].data = pages.into();
        }
    }

    /// The same as a file, with room for so many packed bytes, behind their size in four bytes.
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

/// Checks of a region that of the addresses of frozen code it has none but distances within itself: copies of it lie
/// elsewhere.
fn check_fields(section: &FrozenSection<'_>, layout: &Layout) -> Result<(), Failure> {
    let own = section.address..section.address + section.bytes.len() as u32;
    let is_bad = |field: &&Field| match field.value {
        // The relocation counts from the end of the field.
        Value::Known(value) => {
            let target = if field.relative { value.wrapping_add(4) } else { value };
            (layout.code.start..layout.end).contains(&target) && !(field.relative && own.contains(&target))
        }
        Value::Linked(_) => false,
    };
    match section.fields.iter().find(is_bad) {
        None => Ok(()),
        Some(field) => Err(Failure::job(format!(
            "the region at {:#x} has an address of frozen code at {:#x}, where only that of a stub may be",
            section.address, field.offset
        ))),
    }
}

/// Makes the symbols of frozen sections absolute.
fn make_absolute(object: &mut Object<'_>, layout: &Layout) {
    for symbol in &mut object.symbols {
        let Place::Section(section) = symbol.place else { continue };
        let Some(address) = layout.address(section) else { continue };
        symbol.value += u64::from(address);
        symbol.place = Place::Absolute;
        if symbol.kind == STT_SECTION {
            symbol.kind = STT_NOTYPE;
            symbol.name = FROZEN_SECTION;
        }
    }
}

/// Defines a symbol that the runtime refers to.
fn define(object: &mut Object<'_>, name: &str, place: Place, value: u32) -> Result<SymbolIndex, Failure> {
    let found = object.symbols.iter().position(|symbol| symbol.name == name && symbol.is_undefined());
    let index = found.ok_or_else(|| Failure::job(format!("the runtime does not refer to {name}")))?;
    object.symbols[index].place = place;
    object.symbols[index].value = value.into();
    Ok(SymbolIndex::from(index))
}

/// The addresses that the link decides, each once: words that it relocates.
#[derive(Default)]
struct Addresses {
    relocs: Vec<Reloc>,
    entries: FxHashMap<(SymbolIndex, i64), usize>,
}

impl Addresses {
    fn field(&mut self, object: &Object<'_>, section: &Section<'_>, reloc: &Reloc) -> Result<Field, Failure> {
        let relative = match reloc.class {
            RelocClass::Absolute if reloc.width == 4 => false,
            RelocClass::Relative | RelocClass::Branch if reloc.width == 4 => true,
            _ => {
                return Err(Failure::job(format!(
                    "section {} has {} at {:#x}, which cannot be applied to frozen code",
                    section.name,
                    reloc::name(object.machine, reloc.r_type),
                    reloc.offset
                )));
            }
        };
        let symbol = object.symbol(reloc.symbol);
        let value = match symbol.place {
            Place::Absolute => Value::Known(symbol.value.wrapping_add_signed(reloc.addend) as u32),
            _ => Value::Linked(self.entry(object, reloc)),
        };
        Ok(Field { offset: reloc.offset as u32, relative, value })
    }

    fn entry(&mut self, object: &Object<'_>, reloc: &Reloc) -> usize {
        let next = self.relocs.len();
        let entry = *self.entries.entry((reloc.symbol, reloc.addend)).or_insert(next);
        if entry == next {
            self.relocs.push(Reloc {
                offset: 4 * next as u64,
                r_type: reloc::absolute_word(object.machine),
                class: RelocClass::Absolute,
                width: 4,
                symbol: reloc.symbol,
                addend: reloc.addend,
            });
        }
        entry
    }
}
