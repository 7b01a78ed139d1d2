//! Reading of types from the entries of debugging information.

mod members;

use std::cell::{Cell, RefCell};

use gimli::constants;
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Reader, Unit, UnitOffset,
};
use object::Object;
use rustc_hash::FxHashMap;

use crate::{Error, Kind, Result, Structures};

/// Maximum depth of types within types; a greater one is a cycle.
const MAX_DEPTH: usize = 32;

/// Maximum number of members of one structure, with unnamed ones. Damaged information may use an unnamed structure again and
/// again.
const MAX_MEMBERS: usize = 1 << 12;

/// The structures that are passed around as the number in them: it is their only member.
const WRAPPERS: [&str; 3] = ["kuid_t", "kgid_t", "kprojid_t"];

/// Reads the structures in the debugging information of an ELF file. `origin` is its name for messages.
///
/// # Errors
/// If it is damaged, or there is none.
pub fn read(origin: &str, bytes: &[u8]) -> Result<Structures> {
    let failed = |problem: String| Error { origin: origin.into(), problem };
    let file = object::File::parse(bytes).map_err(|error| failed(error.to_string()))?;
    if file.section_by_name(".debug_info").is_none() {
        return Err(failed("there is none".into()));
    }
    let sections = crate::sections(&file).map_err(|error| failed(error.to_string()))?;
    let dwarf = sections.borrow(|data| EndianSlice::new(data, LittleEndian));
    // In structures of i386 only, integers of 8 bytes are aligned to 4 (System V ABI for i386, figure 2-1).
    let widest = if file.architecture() == object::Architecture::I386 { 4 } else { 8 };
    read_units(&dwarf, widest).map_err(|error| failed(error.to_string()))
}

fn read_units<R: Reader>(dwarf: &Dwarf<R>, widest: u64) -> gimli::Result<Structures> {
    let mut structures = Structures::default();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let types =
            TypeReader { dwarf, unit: &unit, widest, shapes: RefCell::default(), entries: Cell::new(0) };
        let mut named = Vec::new();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let is_structure = matches!(
                entry.tag(),
                constants::DW_TAG_structure_type | constants::DW_TAG_union_type | constants::DW_TAG_typedef
            );
            if is_structure && entry.attr_value(constants::DW_AT_declaration).is_none() {
                named.push((types.name(entry)?, entry.tag() == constants::DW_TAG_typedef, entry.offset()));
            }
        }
        // A structure wins over a type name.
        named.sort_by_key(|&(_, is_alias, _)| is_alias);
        for (name, is_alias, offset) in named {
            if name.is_empty() || structures.contains_key(&name) {
                continue;
            }
            let target =
                if is_alias { types.resolve(offset)?.filter(|&(tag, _)| is_compound(tag)) } else { None };
            let offset = match target {
                Some((_, target)) => target,
                None if is_alias => continue,
                None => offset,
            };
            structures.insert(name, types.structure(offset)?);
        }
    }
    Ok(structures)
}

fn is_compound(tag: gimli::DwTag) -> bool {
    matches!(tag, constants::DW_TAG_structure_type | constants::DW_TAG_union_type)
}

/// Reads the types of one unit.
struct TypeReader<'a, R: Reader> {
    dwarf: &'a Dwarf<R>,
    unit: &'a Unit<R>,
    /// The greatest alignment of a number in a structure.
    widest: u64,
    /// The types that were read, by place.
    shapes: RefCell<FxHashMap<UnitOffset<R::Offset>, Shape>>,
    /// Number of members that were read of the current structure.
    entries: Cell<usize>,
}

/// A type without its names and qualifiers.
#[derive(Clone, Debug)]
struct Shape {
    kind: Kind,
    bytes: u64,
    align: u64,
    /// As in C.
    text: String,
    /// The structure, if it is one.
    structure: Option<String>,
    /// Whether it is an unnamed structure or union.
    is_unnamed: bool,
}

impl<R: Reader> TypeReader<'_, R> {
    fn name(&self, entry: &DebuggingInformationEntry<R>) -> gimli::Result<String> {
        match entry.attr_value(constants::DW_AT_name) {
            Some(value) => Ok(self.dwarf.attr_string(self.unit, value)?.to_string_lossy()?.into_owned()),
            None => Ok(String::new()),
        }
    }

    fn number(entry: &DebuggingInformationEntry<R>, attribute: gimli::DwAt) -> Option<u64> {
        entry.attr(attribute)?.udata_value()
    }

    /// Returns the type of an entry, if it is in the same unit.
    fn type_of(entry: &DebuggingInformationEntry<R>) -> Option<UnitOffset<R::Offset>> {
        match entry.attr_value(constants::DW_AT_type)? {
            AttributeValue::UnitRef(offset) => Some(offset),
            _ => None,
        }
    }

    /// Returns the type of a member; `None` for another entry.
    fn type_of_member(entry: &DebuggingInformationEntry<R>) -> Option<UnitOffset<R::Offset>> {
        (entry.tag() == constants::DW_TAG_member).then(|| Self::type_of(entry))?
    }

    /// Returns the tag and the place of a type without type names and qualifiers; `None` for `void`.
    fn resolve(
        &self,
        offset: UnitOffset<R::Offset>,
    ) -> gimli::Result<Option<(gimli::DwTag, UnitOffset<R::Offset>)>> {
        let mut at = offset;
        for _ in 0..MAX_DEPTH {
            let entry = self.unit.entry(at)?;
            match entry.tag() {
                constants::DW_TAG_typedef
                | constants::DW_TAG_const_type
                | constants::DW_TAG_volatile_type
                | constants::DW_TAG_restrict_type
                | constants::DW_TAG_atomic_type => match Self::type_of(&entry) {
                    Some(inner) => at = inner,
                    None => return Ok(None),
                },
                tag => return Ok(Some((tag, at))),
            }
        }
        Ok(None)
    }

    /// Returns the name of a type as in C.
    fn text(&self, offset: UnitOffset<R::Offset>, depth: usize) -> gimli::Result<String> {
        let entry = self.unit.entry(offset)?;
        let name = self.name(&entry)?;
        let inner = || match Self::type_of(&entry).filter(|_| depth < MAX_DEPTH) {
            Some(inner) => self.text(inner, depth + 1),
            None => Ok("void".to_owned()),
        };
        Ok(match entry.tag() {
            constants::DW_TAG_structure_type => format!("struct {name}").trim_end().to_owned(),
            constants::DW_TAG_union_type => format!("union {name}").trim_end().to_owned(),
            constants::DW_TAG_enumeration_type => format!("enum {name}").trim_end().to_owned(),
            constants::DW_TAG_pointer_type => format!("{} *", inner()?).replace("* *", "**"),
            constants::DW_TAG_array_type => format!("{}[]", inner()?),
            constants::DW_TAG_subroutine_type => "function".into(),
            constants::DW_TAG_const_type => format!("const {}", inner()?),
            constants::DW_TAG_volatile_type => format!("volatile {}", inner()?),
            _ if name.is_empty() => inner()?,
            _ => name,
        })
    }

    fn shape(&self, offset: UnitOffset<R::Offset>, depth: usize) -> gimli::Result<Shape> {
        if let Some(known) = self.shapes.borrow().get(&offset) {
            return Ok(known.clone());
        }
        // Damaged information may have a structure within itself: it then has no size there.
        let none = Shape {
            kind: Kind::Array,
            bytes: 0,
            align: 1,
            text: String::new(),
            structure: None,
            is_unnamed: false,
        };
        self.shapes.borrow_mut().insert(offset, none);
        let shape = self.read_shape(offset, depth)?;
        self.shapes.borrow_mut().insert(offset, shape.clone());
        Ok(shape)
    }

    fn read_shape(&self, offset: UnitOffset<R::Offset>, depth: usize) -> gimli::Result<Shape> {
        let text = self.text(offset, 0)?;
        let plain = |kind, bytes: u64, align| Shape {
            kind,
            bytes,
            align,
            text: text.clone(),
            structure: None,
            is_unnamed: false,
        };
        let Some((tag, at)) = self.resolve(offset)?.filter(|_| depth < MAX_DEPTH) else {
            return Ok(plain(Kind::Array, 0, 1));
        };
        let entry = self.unit.entry(at)?;
        let own = Self::number(&entry, constants::DW_AT_byte_size);
        let own_align = self.asked_alignment(offset)?;
        let shape = match tag {
            constants::DW_TAG_pointer_type => {
                let bytes = own.unwrap_or(u64::from(self.unit.encoding().address_size));
                let target = Self::type_of(&entry).map(|inner| self.resolve(inner)).transpose()?.flatten();
                let is_function = target.is_some_and(|(tag, _)| tag == constants::DW_TAG_subroutine_type);
                plain(if is_function { Kind::Function } else { Kind::Pointer }, bytes, bytes)
            }
            constants::DW_TAG_base_type | constants::DW_TAG_enumeration_type => {
                let bytes = own.unwrap_or(4);
                let signed = match entry.attr_value(constants::DW_AT_encoding) {
                    Some(AttributeValue::Encoding(encoding)) => {
                        matches!(encoding, constants::DW_ATE_signed | constants::DW_ATE_signed_char)
                    }
                    _ => false,
                };
                let kind = if signed { Kind::Signed } else { Kind::Unsigned };
                plain(kind, bytes, bytes.clamp(1, self.widest))
            }
            constants::DW_TAG_array_type => {
                let (bytes, align) = self.array(at, depth)?;
                plain(Kind::Array, bytes, align)
            }
            _ if is_compound(tag) => {
                let name = self.name(&entry)?;
                let align = self.alignment(at, depth)?;
                let structure = match (&name[..], self.alias(offset)?) {
                    ("", None) => None,
                    ("", Some(alias)) => Some(alias),
                    _ => Some(name),
                };
                let is_unnamed = structure.is_none();
                Shape { structure, is_unnamed, ..plain(Kind::Structure, own.unwrap_or(0), align) }
            }
            _ => plain(Kind::Array, own.unwrap_or(0), 1),
        };
        Ok(Shape { align: shape.align.max(own_align), ..shape })
    }

    /// Returns the last type name on the way to an unnamed structure: `spinlock_t`.
    fn alias(&self, offset: UnitOffset<R::Offset>) -> gimli::Result<Option<String>> {
        let (mut at, mut name) = (offset, None);
        for _ in 0..MAX_DEPTH {
            let entry = self.unit.entry(at)?;
            if entry.tag() == constants::DW_TAG_typedef {
                name = Some(self.name(&entry)?);
            }
            match Self::type_of(&entry).filter(|_| !is_compound(entry.tag())) {
                Some(inner) => at = inner,
                None => break,
            }
        }
        Ok(name.filter(|name| !name.is_empty()))
    }

    /// Returns the alignment that the source asks for on the way to a type; 1 if it asks for none.
    fn asked_alignment(&self, offset: UnitOffset<R::Offset>) -> gimli::Result<u64> {
        let (mut at, mut align) = (offset, 1);
        for _ in 0..MAX_DEPTH {
            let entry = self.unit.entry(at)?;
            align = align.max(Self::number(&entry, constants::DW_AT_alignment).unwrap_or(1));
            let is_name = matches!(
                entry.tag(),
                constants::DW_TAG_typedef | constants::DW_TAG_const_type | constants::DW_TAG_volatile_type
            );
            match Self::type_of(&entry).filter(|_| is_name) {
                Some(inner) => at = inner,
                None => break,
            }
        }
        Ok(align)
    }

    /// Returns the size and the alignment of an array in bytes.
    fn array(&self, at: UnitOffset<R::Offset>, depth: usize) -> gimli::Result<(u64, u64)> {
        let mut tree = self.unit.entries_tree(Some(at))?;
        let root = tree.root()?;
        let Some(inner) = Self::type_of(root.entry()) else { return Ok((0, 1)) };
        let element = self.shape(inner, depth + 1)?;
        let mut count = 1u64;
        let mut dimensions = root.children();
        while let Some(dimension) = dimensions.next()? {
            let upper = Self::number(dimension.entry(), constants::DW_AT_upper_bound);
            let own = Self::number(dimension.entry(), constants::DW_AT_count)
                .or(upper.and_then(|upper| upper.checked_add(1)));
            count = count.saturating_mul(own.unwrap_or(0));
        }
        Ok((element.bytes.saturating_mul(count), element.align))
    }

    /// Returns the alignment of a structure or union in bytes.
    fn alignment(&self, at: UnitOffset<R::Offset>, depth: usize) -> gimli::Result<u64> {
        let mut align = Self::number(&self.unit.entry(at)?, constants::DW_AT_alignment).unwrap_or(1);
        let mut tree = self.unit.entries_tree(Some(at))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            let Some(inner) = Self::type_of_member(entry) else { continue };
            let own = Self::number(entry, constants::DW_AT_alignment).unwrap_or(1);
            align = align.max(own).max(self.shape(inner, depth + 1)?.align);
        }
        Ok(align)
    }
}
