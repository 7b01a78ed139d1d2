//! The layouts of the kernel's structures, from debugging information: the kernel's own, or that of a small file
//! (`layout.c`) which the compiler of the kernel's build compiles.

use std::fs;
use std::path::{Path, PathBuf};

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Reader, Unit, UnitOffset,
    constants,
};
use kbuild::KernelCompiler;
use kcli::Failure;
use kelf::{KernelBuild, KernelVersion};
use object::Object;
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::error::{Error, Result};

/// The structures, unions and type names whose layouts are read.
const TYPES: [&str; 26] = [
    "mem_section",
    "per_cpu_nodestat",
    "page",
    "folio",
    "slab",
    "kmem_cache",
    "kmem_cache_node",
    "kmem_cache_cpu",
    "zone",
    "per_cpu_pages",
    "pglist_data",
    "memblock",
    "memblock_type",
    "memblock_region",
    "task_struct",
    "signal_struct",
    "mm_struct",
    "address_space",
    "inode",
    "super_block",
    "file_system_type",
    "phys_addr_t",
    "kmem_cache_per_node_ptrs",
    "node_barn",
    "slab_sheaf",
    "slub_percpu_sheaves",
];

/// The prefixes of the enumerators that are read.
const CONSTANTS: [&str; 7] =
    ["PG_", "PGTY_", "NR_FREE_PAGES", "NR_SLAB_", "MIGRATE_PCPTYPES", "SECTION_", "_SLAB_"];

/// The first version whose only slab allocator is SLUB.
const ALWAYS_SLUB: KernelVersion = KernelVersion::new(6, 8);

/// Maximum depth of types within types; a greater one is a cycle.
const MAX_DEPTH: usize = 32;

/// Maximum number of entries of debugging information that one structure takes. A structure without a name counts
/// wherever it is used: damaged information may use it again and again.
const MAX_ENTRIES: usize = 1 << 14;

/// The members of one structure.
#[derive(Clone, Debug, Default)]
pub struct Structure {
    /// Its size in bytes.
    pub size: u64,
    /// The members by name, including those of unnamed structures and unions.
    pub fields: FxHashMap<String, Field>,
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its offset in bytes.
    pub offset: u64,
    /// Its size in bytes; for bits, of the word that contains them.
    pub size: u64,
    /// Number of elements, if it is an array; else 1.
    pub count: u64,
    /// For bits of a word: the lowest one, and their number.
    pub bits: Option<(u64, u64)>,
}

/// The layouts of a kernel's structures.
#[derive(Clone, Debug, Default)]
pub struct Layouts {
    /// The file they come from, for messages.
    pub origin: String,
    /// The structures by name.
    pub types: FxHashMap<String, Structure>,
    /// The values of enumerators by name.
    pub constants: FxHashMap<String, u64>,
}

impl Layouts {
    /// Finds the layouts with the compiler command that the kernel's build recorded. A kernel that kshrink-spec rewrote has
    /// those of the original.
    ///
    /// # Errors
    /// If the kernel is in neither the directory of its build nor an output directory of kshrink-spec, the compiler fails, or a file cannot be read.
    pub fn compile(vmlinux: &Path) -> Result<Layouts, Failure> {
        let name = vmlinux.display().to_string();
        let build = build_of(vmlinux).map_err(|error| {
            Failure::bad_input(format!(
                "{name}: its debugging information does not describe the kernel's structures, and they cannot be compiled: \
                 {error}"
            ))
        })?;
        if !build.is_enabled("CONFIG_SLUB") && build.version.is_some_and(|version| version < ALWAYS_SLUB) {
            return Err(Failure::of(Error::Unsupported {
                kernel: name,
                problem: "a kernel with CONFIG_SLOB or CONFIG_SLAB".into(),
                advice: "census supports CONFIG_SLUB",
            }));
        }
        let compiler = KernelCompiler::of(&build)?;
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join("census.c"), include_str!("layout.c"))?;
        let object = compiler.compile(dir.path(), "census.c", kbuild::WITH_TYPES)?;
        let origin = format!("layouts of {name}");
        let missing = || Error::Layout { origin: origin.clone(), what: "structure".into() };
        Layouts::read(&origin, &object).and_then(|layouts| layouts.ok_or_else(missing)).map_err(Failure::of)
    }

    /// Reads the debugging information of an ELF file; `None` if it has none.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read(origin: &str, bytes: &[u8]) -> Result<Option<Layouts>> {
        let failed = |problem: String| Error::Dwarf { origin: origin.into(), problem };
        let file = object::File::parse(bytes).map_err(|error| failed(error.to_string()))?;
        if file.section_by_name(".debug_info").is_none() {
            return Ok(None);
        }
        let sections = ktypes::sections(&file).map_err(|error| failed(error.to_string()))?;
        let dwarf = sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        let mut layouts = Layouts { origin: origin.into(), ..Layouts::default() };
        layouts.read_units(&dwarf).map_err(|error| failed(error.to_string()))?;
        Ok(Some(layouts))
    }

    fn read_units<R: Reader>(&mut self, dwarf: &Dwarf<R>) -> gimli::Result<()> {
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            let types = TypeReader { dwarf, unit: &unit };
            let mut wanted = Vec::new();
            let mut entries = unit.entries();
            while let Some(entry) = entries.next_dfs()? {
                match entry.tag() {
                    constants::DW_TAG_structure_type
                    | constants::DW_TAG_union_type
                    | constants::DW_TAG_typedef => {
                        if entry.attr_value(constants::DW_AT_declaration).is_some() {
                            continue;
                        }
                        let name = types.name(entry)?;
                        let is_new =
                            !self.types.contains_key(&name) && wanted.iter().all(|(other, _)| *other != name);
                        if TYPES.contains(&&name[..]) && is_new {
                            wanted.push((name, entry.offset()));
                        }
                    }
                    constants::DW_TAG_enumerator => {
                        let name = types.name(entry)?;
                        let value = entry.attr(constants::DW_AT_const_value);
                        let value = value
                            .and_then(|value| value.udata_value().or(value.sdata_value().map(|v| v as u64)));
                        if let (true, Some(value)) =
                            (CONSTANTS.iter().any(|one| name.starts_with(one)), value)
                        {
                            self.constants.entry(name).or_insert(value);
                        }
                    }
                    _ => {}
                }
            }
            for (name, offset) in wanted {
                let mut structure = Structure { size: types.size(offset, 0)?.0, ..Structure::default() };
                let mut entries = MAX_ENTRIES;
                types.members(offset, 0, 0, &mut entries, &mut structure.fields)?;
                if entries == 0 {
                    structure.fields.clear();
                }
                self.types.entry(name).or_insert(structure);
            }
        }
        Ok(())
    }

    /// Returns a structure.
    ///
    /// # Errors
    /// If the debugging information lacks it.
    pub fn structure(&self, name: &str) -> Result<&Structure> {
        self.types.get(name).ok_or_else(|| self.missing(format!("struct {name}")))
    }

    /// Returns the size of a structure in bytes, at least 1.
    ///
    /// # Errors
    /// If the debugging information lacks it.
    pub fn size(&self, name: &str) -> Result<u64> {
        let size = self.structure(name)?.size;
        if size == 0 { Err(self.missing(format!("size of struct {name}"))) } else { Ok(size) }
    }

    /// Whether a structure has a member.
    pub fn has(&self, name: &str, member: &str) -> bool {
        self.types.get(name).is_some_and(|structure| structure.fields.contains_key(member))
    }

    fn any(&self, name: &str, member: &str) -> Result<Field> {
        let field = self.structure(name)?.fields.get(member).copied();
        field.ok_or_else(|| self.missing(format!("member {member} of struct {name}")))
    }

    /// Returns the offset of a member in its structure, in bytes.
    ///
    /// # Errors
    /// If the debugging information lacks it.
    pub fn offset(&self, name: &str, member: &str) -> Result<u64> {
        Ok(self.any(name, member)?.offset)
    }

    /// Returns a member that is a number or a pointer, of 1 to 8 bytes.
    ///
    /// # Errors
    /// If the debugging information lacks it or its size.
    pub fn field(&self, name: &str, member: &str) -> Result<Field> {
        let field = self.any(name, member)?;
        match field.size {
            1..=8 => Ok(field),
            size => Err(self.missing(format!("number in member {member} of struct {name} ({size} bytes)"))),
        }
    }

    /// Returns a member that is an array.
    ///
    /// # Errors
    /// If the debugging information lacks it or its size.
    pub fn array(&self, name: &str, member: &str) -> Result<Field> {
        let field = self.any(name, member)?;
        if field.size == 0 || field.count == 0 {
            return Err(self.missing(format!("size of member {member} of struct {name}")));
        }
        Ok(field)
    }

    /// Returns a member that is a number or a pointer, of 1 to 8 bytes, if this kernel has it.
    ///
    /// # Errors
    /// If the debugging information lacks the size of the member.
    pub fn optional_field(&self, name: &str, member: &str) -> Result<Option<Field>> {
        self.has(name, member).then(|| self.field(name, member)).transpose()
    }

    /// Returns the value of an enumerator.
    ///
    /// # Errors
    /// If the debugging information lacks it.
    pub fn constant(&self, name: &str) -> Result<u64> {
        self.constants.get(name).copied().ok_or_else(|| self.missing(format!("constant {name}")))
    }

    fn missing(&self, what: String) -> Error {
        Error::Layout { origin: self.origin.clone(), what }
    }
}

/// Returns the build of a kernel, or of the original of a rewritten kernel.
fn build_of(vmlinux: &Path) -> kelf::Result<KernelBuild> {
    KernelBuild::find(vmlinux)
        .or_else(|error| original(vmlinux).map_or(Err(error), |path| KernelBuild::find(&path)))
}

/// Returns the original of a rewritten kernel, from the report that kshrink-spec wrote beside it.
fn original(vmlinux: &Path) -> Option<PathBuf> {
    let report = fs::read(fs::canonicalize(vmlinux).ok()?.with_file_name("report.json")).ok()?;
    let report: Value = serde_json::from_slice(&report).ok()?;
    (report["schema"] == "kshrink-report/1").then(|| report["input"].as_str().map(PathBuf::from))?
}

/// Reads the types of one unit.
struct TypeReader<'a, R: Reader> {
    dwarf: &'a Dwarf<R>,
    unit: &'a Unit<R>,
}

impl<R: Reader> TypeReader<'_, R> {
    fn name(&self, entry: &DebuggingInformationEntry<R>) -> gimli::Result<String> {
        match entry.attr_value(constants::DW_AT_name) {
            Some(value) => Ok(self.dwarf.attr_string(self.unit, value)?.to_string_lossy()?.into_owned()),
            None => Ok(String::new()),
        }
    }

    /// Returns the type of an entry, if it is in the same unit.
    fn type_of(entry: &DebuggingInformationEntry<R>) -> Option<UnitOffset<R::Offset>> {
        match entry.attr_value(constants::DW_AT_type)? {
            AttributeValue::UnitRef(offset) => Some(offset),
            _ => None,
        }
    }

    fn number(entry: &DebuggingInformationEntry<R>, attribute: gimli::DwAt) -> Option<u64> {
        entry.attr(attribute)?.udata_value()
    }

    /// Returns the size of a type in bytes and, for an array, the number of its elements. Both are 0 if unknown.
    fn size(&self, offset: UnitOffset<R::Offset>, depth: usize) -> gimli::Result<(u64, u64)> {
        let mut tree = self.unit.entries_tree(Some(offset))?;
        let root = tree.root()?;
        let entry = root.entry();
        if let Some(size) = Self::number(entry, constants::DW_AT_byte_size) {
            return Ok((size, 1));
        }
        let Some(inner) = Self::type_of(entry).filter(|_| depth < MAX_DEPTH) else { return Ok((0, 0)) };
        if entry.tag() != constants::DW_TAG_array_type {
            return self.size(inner, depth + 1);
        }
        let mut count = 1u64;
        let mut dimensions = root.children();
        for _ in 0..MAX_DEPTH {
            let Some(dimension) = dimensions.next()? else { break };
            let upper = Self::number(dimension.entry(), constants::DW_AT_upper_bound);
            let own = Self::number(dimension.entry(), constants::DW_AT_count)
                .or(upper.and_then(|upper| upper.checked_add(1)));
            count = count.saturating_mul(own.unwrap_or(0));
        }
        Ok((self.size(inner, depth + 1)?.0.saturating_mul(count), count))
    }

    /// Adds the members of a structure that begins at `start` of the outermost one. Stops when `entries`, the number of
    /// entries that may still be read, is 0.
    fn members(
        &self,
        offset: UnitOffset<R::Offset>,
        start: u64,
        depth: usize,
        entries: &mut usize,
        fields: &mut FxHashMap<String, Field>,
    ) -> gimli::Result<()> {
        let mut tree = self.unit.entries_tree(Some(offset))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            *entries = entries.saturating_sub(1);
            if *entries == 0 {
                return Ok(());
            }
            let entry = child.entry();
            let (true, Some(inner)) = (entry.tag() == constants::DW_TAG_member, Self::type_of(entry)) else {
                continue;
            };
            let at =
                Self::number(entry, constants::DW_AT_data_member_location).unwrap_or(0).saturating_add(start);
            let name = self.name(entry)?;
            if name.is_empty() {
                if depth < MAX_DEPTH {
                    self.members(inner, at, depth + 1, entries, fields)?;
                }
                continue;
            }
            let (size, count) = self.size(inner, 0)?;
            let mut field = Field { offset: at, size, count, bits: None };
            if let Some(width) = Self::number(entry, constants::DW_AT_bit_size) {
                // DWARF 4 and later count from the start of the structure, earlier versions from the highest bit of
                // the word.
                let word = size.saturating_mul(8);
                if let Some(first) = Self::number(entry, constants::DW_AT_data_bit_offset) {
                    let words = first.checked_div(word).unwrap_or(0);
                    field.offset = at.saturating_add(words.saturating_mul(size));
                    field.bits = Some((first.checked_rem(word).unwrap_or(0), width));
                } else if let Some(high) = Self::number(entry, constants::DW_AT_bit_offset) {
                    field.bits = word.checked_sub(high.saturating_add(width)).map(|low| (low, width));
                }
            }
            fields.entry(name).or_insert(field);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
