//! The file with the debugging information.

use std::borrow::Cow;
use std::path::Path;

use gimli::read::{DebugFrame, Dwarf, EndianSlice};
use gimli::write::{ConvertError, EndianVec, Sections};
use gimli::{LittleEndian, SectionId};
use kelf::{Functions, read_linked};
use kplan::BlockMap;
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_PROGBITS;
use object::{Object, ObjectSection};

use crate::error::{Error, Result};
use crate::places::Places;
use crate::{frames, units};

/// Checks that a kernel has debugging information.
///
/// # Errors
/// [`Error::Elf`] if it is not a linked kernel, [`Error::NoDebugInfo`] if it has none.
pub fn check(original: &Path) -> Result<()> {
    let (name, bytes) = (original.display().to_string(), read_linked(original)?);
    let file = object::File::parse(&bytes[..]).map_err(|error| Error::Parse { file: name.clone(), error })?;
    match file.section_by_name(SectionId::DebugInfo.name()) {
        Some(_) => Ok(()),
        None => Err(Error::NoDebugInfo { file: name }),
    }
}

/// Returns a copy of the rewritten kernel with the debugging information of the original, converted by the block map.
///
/// # Errors
/// [`Error::Elf`] if one of the files is not a linked kernel, [`Error::NoDebugInfo`] if the original has no debugging
/// information, [`Error::Dwarf`] if that cannot be converted, [`Error::Copy`] if the rewritten kernel cannot be copied.
pub fn debug_file(original: &Path, rewritten: &Path, map: &BlockMap) -> Result<Vec<u8>> {
    let (name, copy) = (original.display().to_string(), rewritten.display().to_string());
    let copy_error = |error| Error::Copy { file: copy.clone(), error };
    let (original_bytes, rewritten_bytes) = (read_linked(original)?, read_linked(rewritten)?);
    let parse = |bytes, file: &str| {
        object::File::parse(bytes).map_err(|error| Error::Parse { file: file.to_owned(), error })
    };
    let (original_file, rewritten_file) =
        (parse(&original_bytes[..], &name)?, parse(&rewritten_bytes[..], &copy)?);
    let places = Places::new(&Functions::read(original)?, map, &original_file, &rewritten_file);
    let dwarf_error = |error| Error::Dwarf { file: name.clone(), error };
    let contents = Contents::load(&original_file).map_err(|error| dwarf_error(error.into()))?;
    if contents.get(SectionId::DebugInfo).is_empty() {
        return Err(Error::NoDebugInfo { file: name });
    }
    let sections = convert(&contents, &places, original_file.is_64()).map_err(dwarf_error)?;
    with_sections(&rewritten_bytes, sections).map_err(copy_error)
}

/// The sections with debugging information, uncompressed.
struct Contents<'a>(Vec<(SectionId, Cow<'a, [u8]>)>);

impl<'a> Contents<'a> {
    fn load(file: &object::File<'a>) -> std::result::Result<Contents<'a>, gimli::read::Error> {
        let mut all = Vec::new();
        for id in SECTIONS {
            if let Some(section) = file.section_by_name(id.name()) {
                let data = section.uncompressed_data().map_err(|_| gimli::read::Error::Io)?;
                all.push((id, data));
            }
        }
        Ok(Contents(all))
    }

    fn get(&self, id: SectionId) -> &[u8] {
        self.0.iter().find(|(own, _)| *own == id).map_or(&[], |(_, data)| &**data)
    }

    fn slice(&self, id: SectionId) -> EndianSlice<'_, LittleEndian> {
        EndianSlice::new(self.get(id), LittleEndian)
    }
}

/// The sections that are read.
const SECTIONS: [SectionId; 12] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugFrame,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Converts the debugging information. Returns the name and the content of each section.
fn convert(
    contents: &Contents<'_>,
    places: &Places,
    is_64: bool,
) -> std::result::Result<Vec<(&'static str, Vec<u8>)>, ConvertError> {
    let read = Dwarf::load(|id| Ok::<_, gimli::read::Error>(contents.slice(id)))?;
    let mut written = units::convert(&read, places)?;
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    written.write(&mut sections)?;
    let mut frames = DebugFrame::from(contents.slice(SectionId::DebugFrame));
    frames.set_address_size(if is_64 { 8 } else { 4 });
    frames::convert(&frames, places)?.write_debug_frame(&mut sections.debug_frame)?;
    let mut all = Vec::new();
    sections.for_each_mut(|id, section| {
        if !section.slice().is_empty() {
            all.push((id.name(), section.take()));
        }
        Ok::<_, ConvertError>(())
    })?;
    Ok(all)
}

/// Returns a copy of an ELF file with these sections instead of its own with debugging information.
fn with_sections(
    bytes: &[u8],
    sections: Vec<(&'static str, Vec<u8>)>,
) -> std::result::Result<Vec<u8>, object::build::Error> {
    let mut file = Builder::read(bytes)?;
    for section in &mut file.sections {
        section.delete |= section.name.as_slice().starts_with(b".debug_");
    }
    file.delete_orphans();
    for (name, content) in sections {
        let section = file.sections.add();
        section.name = name.as_bytes().into();
        section.sh_type = SHT_PROGBITS;
        section.sh_addralign = 1;
        section.data = SectionData::Data(content.into());
    }
    file.set_section_sizes();
    let mut out = Vec::new();
    file.write(&mut out)?;
    Ok(out)
}
