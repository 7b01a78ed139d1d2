//! The attributes of ARM objects: the processor and the ABI of the code, from the section `.ARM.attributes` (IHI 0045,
//! Addenda to the ABI: build attributes).
//!
//! `ld` merges the attributes of all inputs. The result decides which instructions it may use: whether `bl` can become
//! `blx`, and the reach of a branch of Thumb code. An object that replaces many needs their merged attributes.

use std::collections::BTreeMap;

use object::elf::{FileHeader32, Tag_File};
use object::read::elf::AttributesSection;
use object::write::elf::AttributesWriter;
use object::{Endianness, LittleEndian};

use crate::object::Object;

/// The name of the section.
pub const ATTRIBUTES: &str = ".ARM.attributes";

/// The public attributes' vendor.
const VENDOR: &[u8] = b"aeabi";

/// `Tag_CPU_arch`; a missing tag means 0.
const ARCHITECTURE: u64 = 6;
/// Tags below 32 with a value that is a string: `Tag_CPU_raw_name`, `Tag_CPU_name`.
const NAMES: [u64; 2] = [4, 5];
/// `Tag_compatibility`: a number and a string.
const COMPATIBILITY: u64 = 32;

/// The value of an attribute: a number, a string, or both.
type Attribute = (Option<u64>, Option<Vec<u8>>);

/// The merged attributes of several objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The content of the section for an object made of all inputs. Each attribute has the largest value, which permits
    /// everything that one of the inputs needs. The name of a processor is kept if all agree on it.
    pub merged: Vec<u8>,
    /// The smallest `Tag_CPU_arch` of the inputs: all processors of the inputs have its instructions.
    pub architecture: u64,
}

/// Merges the attributes of `objects`. Returns `None` if none has any.
///
/// # Errors
/// The object whose attributes are damaged or of another format, and a description of the problem.
pub fn merge(objects: &[&Object<'_>]) -> Result<Option<Attributes>, (String, &'static str)> {
    let mut merged: Option<BTreeMap<u64, Attribute>> = None;
    let mut architecture = u64::MAX;
    let mut disputed = Vec::new();
    for object in objects {
        let Some(section) = object.sections.iter().find(|section| section.name == ATTRIBUTES) else {
            continue;
        };
        let own = read(&section.data).map_err(|problem| (object.name.clone(), problem))?;
        architecture = architecture.min(own.get(&ARCHITECTURE).and_then(|value| value.0).unwrap_or(0));
        let Some(merged) = &mut merged else {
            merged = Some(own);
            continue;
        };
        for (tag, value) in own {
            let known = merged.entry(tag).or_insert_with(|| value.clone());
            match (&*known, &value) {
                ((one, None), (other, None)) => *known = ((*one).max(*other), None),
                _ if *known != value => disputed.push(tag),
                _ => {}
            }
        }
    }
    let Some(mut merged) = merged else { return Ok(None) };
    merged.retain(|tag, _| !disputed.contains(tag));
    Ok(Some(Attributes { merged: write(&merged), architecture }))
}

/// Reads the attributes of a file.
fn read(data: &[u8]) -> Result<BTreeMap<u64, Attribute>, &'static str> {
    const DAMAGED: &str = "its .ARM.attributes end within an attribute";
    const OTHER: &str = "its .ARM.attributes are not one list of attributes of the whole file";
    let damaged = |_| DAMAGED;
    let section =
        AttributesSection::<FileHeader32<LittleEndian>>::new(LittleEndian, data).map_err(damaged)?;
    let vendors = section.subsections().map_err(|_| "its .ARM.attributes are of another format")?;
    let [vendor] = &vendors.collect::<Result<Vec<_>, _>>().map_err(damaged)?[..] else { return Err(OTHER) };
    let lists = vendor.subsubsections().collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    let [list] = &lists[..] else { return Err(OTHER) };
    if vendor.vendor() != VENDOR || list.tag() != Tag_File {
        return Err(OTHER);
    }
    let mut reader = list.attributes();
    let mut attributes = BTreeMap::new();
    while let Some(tag) = reader.read_tag().map_err(damaged)? {
        let has_both = tag == COMPATIBILITY;
        // From 32 on, odd tags have strings.
        let has_text = has_both || NAMES.contains(&tag) || tag > COMPATIBILITY && tag % 2 == 1;
        let number = (has_both || !has_text).then(|| reader.read_integer()).transpose();
        let number = number.map_err(damaged)?;
        let text = has_text.then(|| reader.read_string().map(<[u8]>::to_vec)).transpose();
        attributes.insert(tag, (number, text.map_err(damaged)?));
    }
    Ok(attributes)
}

fn write(attributes: &BTreeMap<u64, Attribute>) -> Vec<u8> {
    let mut writer = AttributesWriter::new(Endianness::Little);
    writer.start_subsection(VENDOR);
    writer.start_subsubsection(Tag_File);
    for (&tag, (number, text)) in attributes {
        writer.write_attribute_tag(tag);
        number.iter().for_each(|&number| writer.write_attribute_integer(number));
        text.iter().for_each(|text| writer.write_attribute_string(text));
    }
    writer.end_subsubsection();
    writer.end_subsection();
    writer.data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::object::{Section, Symbol};

    fn object(list: &[u8]) -> Object<'static> {
        let mut data = vec![b'A'];
        data.extend((4 + 6 + 5 + list.len() as u32).to_le_bytes());
        data.extend(b"aeabi\0\x01");
        data.extend((5 + list.len() as u32).to_le_bytes());
        data.extend(list);
        let section = Section { name: ATTRIBUTES, data: data.into(), ..Section::null() };
        Object {
            name: "a.o".into(),
            machine: Machine::Arm,
            flags: 0,
            sections: vec![Section::null(), section],
            symbols: vec![Symbol::null()],
            groups: Vec::new(),
        }
    }

    #[test]
    fn the_largest_value_of_each_attribute_is_kept() {
        // Tag_CPU_name, Tag_CPU_arch, Tag_THUMB_ISA_use; another name, and a tag that the first lacks.
        let one = object(b"\x05V7\0\x06\x0a\x09\x01");
        let other = object(b"\x05V6\0\x06\x06\x09\x02\x44\x80\x01");
        let both = merge(&[&one, &other]).unwrap().unwrap();
        let expected = object(b"\x06\x0a\x09\x02\x44\x80\x01");
        assert_eq!((&both.merged[..], both.architecture), (&expected.sections[1].data[..], 6));
        let alone = merge(&[&one]).unwrap().unwrap();
        assert_eq!((&alone.merged[..], alone.architecture), (&one.sections[1].data[..], 10));
        let unnamed = object(b"\x09\x02");
        assert_eq!(merge(&[&one, &unnamed]).unwrap().unwrap().architecture, 0);
        assert_eq!(merge(&[]), Ok(None));
    }

    #[test]
    fn damaged_attributes_are_refused() {
        let whole = object(b"\x05V7\0\x06\x0a");
        let data = whole.sections[1].data.to_vec();
        for end in 0..data.len() {
            let mut cut = object(b"");
            cut.sections[1].data = data[..end].to_vec().into();
            assert!(merge(&[&cut]).is_err(), "{end}");
        }
        assert!(merge(&[&object(b"\x05V7")]).is_err());
        assert!(merge(&[&object(b"\x06\x80")]).is_err());
    }
}
