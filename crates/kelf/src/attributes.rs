//! The attributes of ARM objects: the processor and the ABI of the code, from the section `.ARM.attributes` (IHI 0045,
//! Addenda to the ABI: build attributes).
//!
//! `ld` merges the attributes of all inputs. The result decides which instructions it may use: whether `bl` can become
//! `blx`, and the reach of a branch of Thumb code. An object that replaces many needs their merged attributes.

use std::collections::BTreeMap;

use crate::object::Object;

/// The name of the section.
pub const ATTRIBUTES: &str = ".ARM.attributes";

/// The version of the format, which is the section's first byte.
const FORMAT: u8 = b'A';
/// The public attributes' vendor.
const VENDOR: &[u8] = b"aeabi\0";
/// The tag of the attributes of a whole file.
const TAG_FILE: u64 = 1;

/// `Tag_CPU_arch`; a missing tag means 0.
const ARCHITECTURE: u64 = 6;
/// Tags below 32 with a value that is a string: `Tag_CPU_raw_name`, `Tag_CPU_name`.
const NAMES: [u64; 2] = [4, 5];
/// `Tag_compatibility`: a number and a string.
const COMPATIBILITY: u64 = 32;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attribute {
    Number(u64),
    Text(Vec<u8>),
    Both(u64, Vec<u8>),
}

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
        architecture = architecture.min(match own.get(&ARCHITECTURE) {
            Some(&Attribute::Number(value)) => value,
            _ => 0,
        });
        let Some(merged) = &mut merged else {
            merged = Some(own);
            continue;
        };
        for (tag, value) in own {
            let known = merged.entry(tag).or_insert_with(|| value.clone());
            match (&*known, &value) {
                (Attribute::Number(one), Attribute::Number(other)) => {
                    *known = Attribute::Number(*one.max(other));
                }
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
    let rest = data.strip_prefix(&[FORMAT]).ok_or("its .ARM.attributes are of another format")?;
    let size = rest.first_chunk().map(|size| u32::from_le_bytes(*size)).ok_or(DAMAGED)?;
    if size as usize != rest.len() {
        return Err(OTHER);
    }
    let list = rest[4..].strip_prefix(VENDOR).ok_or(OTHER)?;
    let mut at = 0;
    let tag = number(list, &mut at).ok_or(DAMAGED)?;
    let size = list.get(at..at + 4).and_then(<[u8]>::first_chunk).map(|size| u32::from_le_bytes(*size));
    if tag != TAG_FILE || size.ok_or(DAMAGED)? as usize != list.len() {
        return Err(OTHER);
    }
    at += 4;
    let mut attributes = BTreeMap::new();
    while at < list.len() {
        let tag = number(list, &mut at).ok_or(DAMAGED)?;
        let value = match tag {
            COMPATIBILITY => {
                Attribute::Both(number(list, &mut at).ok_or(DAMAGED)?, text(list, &mut at).ok_or(DAMAGED)?)
            }
            // From 32 on, odd tags have strings.
            _ if NAMES.contains(&tag) || tag > COMPATIBILITY && tag % 2 == 1 => {
                Attribute::Text(text(list, &mut at).ok_or(DAMAGED)?)
            }
            _ => Attribute::Number(number(list, &mut at).ok_or(DAMAGED)?),
        };
        attributes.insert(tag, value);
    }
    Ok(attributes)
}

fn write(attributes: &BTreeMap<u64, Attribute>) -> Vec<u8> {
    let mut list = Vec::new();
    for (&tag, value) in attributes {
        put_number(tag, &mut list);
        match value {
            Attribute::Number(value) => put_number(*value, &mut list),
            Attribute::Text(text) => list.extend(text),
            Attribute::Both(value, text) => {
                put_number(*value, &mut list);
                list.extend(text);
            }
        }
    }
    let file = 5 + list.len() as u32;
    let mut data = vec![FORMAT];
    data.extend((4 + VENDOR.len() as u32 + file).to_le_bytes());
    data.extend(VENDOR);
    data.push(TAG_FILE as u8);
    data.extend(file.to_le_bytes());
    data.extend(list);
    data
}

/// Reads a number in ULEB128.
fn number(data: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *data.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_number(mut value: u64, data: &mut Vec<u8>) {
    while value >= 0x80 {
        data.push(value as u8 | 0x80);
        value >>= 7;
    }
    data.push(value as u8);
}

/// Reads a string with its terminating zero.
fn text(data: &[u8], at: &mut usize) -> Option<Vec<u8>> {
    let rest = data.get(*at..)?;
    let len = rest.iter().position(|&byte| byte == 0)? + 1;
    *at += len;
    Some(rest[..len].to_vec())
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
