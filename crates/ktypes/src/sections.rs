//! The sections of debugging information of an ELF file.

use std::borrow::Cow;

use gimli::{DwarfSections, SectionId};
use object::{Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationTarget};

/// Reads the sections of debugging information of a linked file or of an object; those that are missing are empty.
///
/// # Errors
/// If a section is damaged.
pub fn sections<'a>(file: &object::File<'a>) -> Result<DwarfSections<Cow<'a, [u8]>>, object::Error> {
    DwarfSections::load(|id: SectionId| {
        file.section_by_name(id.name())
            .map_or(Ok(Cow::Borrowed(&[][..])), |section| relocated(file, &section))
    })
}

/// Returns the content of a section of debugging information. In an object, its references to other such sections are
/// relocations, whose addends are not in the section on x86-64.
fn relocated<'a>(
    file: &object::File<'a>,
    section: &object::Section<'a, '_>,
) -> Result<Cow<'a, [u8]>, object::Error> {
    let mut data = section.uncompressed_data()?;
    if file.kind() != ObjectKind::Relocatable {
        return Ok(data);
    }
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
        let size = usize::from(relocation.size() / 8);
        let place = usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(size)?));
        let Some(place) = place.filter(|place| size <= 8 && data.get(place.clone()).is_some()) else {
            continue;
        };
        let mut value = [0; 8];
        if relocation.has_implicit_addend() {
            value[..size].copy_from_slice(&data[place.clone()]);
        }
        let address = file.symbol_by_index(symbol)?.address();
        let value = u64::from_le_bytes(value).wrapping_add(address).wrapping_add_signed(relocation.addend());
        data.to_mut()[place].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    Ok(data)
}
