//! Two builds of one source: in one, variables share sections; in the other, each has its own (`-fdata-sections`).

use std::ops::Range;

use goblin::elf::section_header::SHF_MERGE;
use goblin::elf::sym::{STT_FUNC, STT_NOTYPE, STT_OBJECT};
use kelf::{Object, ObjectIndex, Place, Program, Reloc, Section, SectionIndex, Symbol};
use rustc_hash::{FxHashMap, FxHashSet};

/// The sections that variables share without `-fdata-sections`. With it, these names are prefixes.
const SHARED: [&str; 3] = [".data", ".bss", ".rodata"];

/// An input section.
pub type Input = (ObjectIndex, SectionIndex);

/// A variable that has a section of its own in the other build.
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The section that it shares.
    pub section: Input,
    /// Its bytes there.
    pub range: Range<u64>,
}

/// The correspondence of two builds.
pub struct Twins<'p> {
    apart: &'p Program<'p>,
    /// The variables, by their own sections.
    variables: FxHashMap<Input, Variable>,
    /// The relocations of the other build, by the places of their counterparts in this one.
    relocs: FxHashMap<(Input, u64), &'p Reloc>,
    /// The size of the correspondence.
    pub counts: Counts,
}

/// The size of the correspondence of two builds.
#[derive(Debug, Default)]
pub struct Counts {
    /// Objects.
    pub objects: usize,
    /// Functions in sections with equal instructions.
    pub same_functions: usize,
    /// Functions in other sections.
    pub other_functions: usize,
    /// Variables with a section of their own in the other build, and with equal contents in both.
    pub variables: usize,
    /// Variables with a section of their own that have no counterpart.
    pub lone_variables: usize,
}

impl<'p> Twins<'p> {
    /// Finds the correspondence.
    pub fn of(shared: &'p Program<'p>, apart: &'p Program<'p>) -> Twins<'p> {
        let mut twins = Twins {
            apart,
            variables: FxHashMap::default(),
            relocs: FxHashMap::default(),
            counts: Counts::default(),
        };
        let names = |program: &Program<'p>| -> Vec<String> {
            program.objects.iter().map(|input| input.object.name.clone()).collect()
        };
        assert_eq!(names(shared), names(apart), "the builds link other objects");
        for (i, (one, other)) in shared.objects.iter().zip(&apart.objects).enumerate() {
            twins.object(ObjectIndex::from(i), &one.object, &other.object);
        }
        twins.counts.objects = shared.objects.len();
        twins
    }

    /// The relocation of the other build that corresponds to the one at `offset` of a section.
    pub fn reloc(&self, section: Input, offset: u64) -> Option<&'p Reloc> {
        self.relocs.get(&(section, offset)).copied()
    }

    /// The place that a relocation of the other build means; `None` if no section of its objects has it.
    pub fn place(&self, object: ObjectIndex, reloc: &Reloc) -> Option<(Input, i64)> {
        let (object, symbol) = self.apart.definition(self.apart.resolve(object, reloc.symbol))?;
        let symbol = self.apart.symbol(object, symbol);
        let Place::Section(section) = symbol.place else { return None };
        Some(((object, section), symbol.value as i64 + reloc.addend))
    }

    /// The variable that is alone in a section of the other build.
    pub fn variable(&self, own: Input) -> Option<&Variable> {
        self.variables.get(&own)
    }

    /// The variables with sections of their own.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.values()
    }

    fn object(&mut self, index: ObjectIndex, shared: &'p Object<'p>, apart: &'p Object<'p>) {
        let (places, by_name) = (symbols(shared), sections(shared));
        for (i, section) in apart.sections.iter().enumerate() {
            let own = (index, SectionIndex::from(i));
            if let Some(of) = own_prefix(section) {
                let twin = variable(apart, own.1)
                    .and_then(|name| Some((name, *places.get(name)?)))
                    .filter(|(_, (at, _))| shared.section(*at).name == of);
                if let Some((name, (at, start))) = twin
                    && self.pair((index, at), shared.section(at), start, section)
                {
                    let range = start..start + section.size;
                    let variable = Variable { name: name.to_owned(), section: (index, at), range };
                    self.variables.insert(own, variable);
                    self.counts.variables += 1;
                } else {
                    self.counts.lone_variables += 1;
                }
            } else {
                let same = by_name.get(section.name).is_some_and(|&at| {
                    let other = shared.section(at);
                    other.size == section.size && self.pair((index, at), other, 0, section)
                });
                let functions = apart
                    .symbols
                    .iter()
                    .filter(|symbol| symbol.kind == STT_FUNC && symbol.place == Place::Section(own.1));
                match same {
                    true => self.counts.same_functions += functions.count(),
                    false => self.counts.other_functions += functions.count(),
                }
            }
        }
    }

    /// Records the corresponding relocations if a section equals the bytes from `start` of another one, except in the
    /// names of its relocations. Returns whether it does.
    fn pair(&mut self, at: Input, shared: &'p Section<'p>, start: u64, apart: &'p Section<'p>) -> bool {
        let end = start + apart.size;
        let from = shared.relocs.partition_point(|reloc| reloc.offset < start);
        let to = shared.relocs.partition_point(|reloc| reloc.offset < end);
        let relocs = &shared.relocs[from..to];
        let alike =
            |(one, other): (&Reloc, &Reloc)| one.offset - start == other.offset && one.r_type == other.r_type;
        let same = end <= shared.size
            && shared.kind == apart.kind
            && relocs.len() == apart.relocs.len()
            && relocs.iter().zip(&apart.relocs).all(alike)
            && masked(shared, start..end) == masked(apart, 0..apart.size);
        if same {
            self.relocs
                .extend(relocs.iter().zip(&apart.relocs).map(|(one, other)| ((at, one.offset), other)));
        }
        same
    }
}

/// The sections of an object by name, without names that occur several times.
fn sections<'o>(object: &Object<'o>) -> FxHashMap<&'o str, SectionIndex> {
    let named = object.sections.iter().enumerate().filter(|(_, section)| !section.is_table());
    single(named.map(|(i, section)| (section.name, SectionIndex::from(i))))
}

/// The places of an object's data symbols, without names that it has twice.
fn symbols<'o>(object: &Object<'o>) -> FxHashMap<&'o str, (SectionIndex, u64)> {
    single(object.symbols.iter().filter_map(|symbol| match symbol.place {
        Place::Section(section) if is_data(symbol) => Some((symbol.name, (section, symbol.value))),
        _ => None,
    }))
}

fn single<'o, T>(pairs: impl Iterator<Item = (&'o str, T)>) -> FxHashMap<&'o str, T> {
    let (mut found, mut twice) = (FxHashMap::default(), FxHashSet::default());
    for (name, value) in pairs {
        if found.insert(name, value).is_some() {
            twice.insert(name);
        }
    }
    found.retain(|name, _| !twice.contains(name));
    found
}

fn is_data(symbol: &Symbol<'_>) -> bool {
    matches!(symbol.kind, STT_OBJECT | STT_NOTYPE) && !symbol.name.is_empty()
}

/// The shared section for which `-fdata-sections` made this one.
fn own_prefix(section: &Section<'_>) -> Option<&'static str> {
    let is_own = |shared: &&str| {
        section
            .name
            .strip_prefix(*shared)
            .is_some_and(|rest| rest.starts_with('.') && !rest.starts_with(".."))
    };
    let merged = section.flags & u64::from(SHF_MERGE) != 0;
    SHARED.into_iter().find(is_own).filter(|_| !merged)
}

/// The name of the variable that fills a section.
fn variable<'o>(object: &Object<'o>, section: SectionIndex) -> Option<&'o str> {
    let size = object.section(section).size;
    let is_all = |symbol: &&Symbol<'o>| {
        symbol.place == Place::Section(section) && is_data(symbol) && symbol.value == 0 && symbol.size == size
    };
    object.symbols.iter().find(is_all).map(|symbol| symbol.name)
}

/// The contents of a part of a section, with zeros in place of relocations.
fn masked(section: &Section<'_>, part: Range<u64>) -> Vec<u8> {
    let Some(bytes) = section.data.get(part.start as usize..part.end as usize) else { return Vec::new() };
    let mut bytes = bytes.to_vec();
    for reloc in section.relocs.iter().filter(|reloc| part.contains(&reloc.offset)) {
        let field = (reloc.offset - part.start) as usize;
        let end = bytes.len().min(field + usize::from(reloc.width));
        bytes[field..end].fill(0);
    }
    bytes
}
