//! Plans how each section is split into nodes.

use std::ops::Range;

use goblin::elf::section_header::{
    SHF_MERGE, SHF_STRINGS, SHT_GROUP, SHT_NOBITS, SHT_NULL, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB,
    SHT_SYMTAB_SHNDX,
};
use goblin::elf::sym::{STT_FUNC, STT_SECTION};
use kelf::{
    Definition, Input, Machine, Object, ObjectIndex, Place, Program, Reloc, RelocClass, Resolved, Section,
    SectionIndex,
};

use super::decode::{CodeSection, LABELS, is_assembler_label};
use super::names::SectionNames;
use super::options::Options;
use super::sites::{self, FixedRegion, Glue, Sites};
use crate::carried::{self, Carried, HAND_WRITTEN};
use crate::error::Error;
use crate::graph::Life;
use crate::special::{RootReason, Rule, World};
use kisa::{BranchKind, Rewritable};

/// The plan for one section.
pub(super) enum SectionPlan {
    /// Not part of the program.
    Skip,
    /// Chunks that begin at these offsets; the first is 0. `opaque` is the reason why code is not split into blocks, or
    /// why data is never split at its variables, whatever refers to it.
    Chunks {
        starts: Vec<u32>,
        code: bool,
        life: Life,
        root: Option<RootReason>,
        opaque: Option<&'static str>,
    },
    /// Blocks.
    Code {
        code: Box<CodeSection>,
        regions: Vec<FixedRegion>,
        /// Offsets of traps after which control never resumes.
        fatal_traps: Vec<u32>,
        /// Offsets of blocks that are glued to the previous block.
        glued: Vec<u32>,
    },
}

/// The plans for all sections of all objects, and the jump tables whose jumps an earlier rewrite removed.
#[derive(Default)]
pub(super) struct Plans {
    pub sections: Vec<Vec<SectionPlan>>,
    pub tables: Vec<(ObjectIndex, SectionIndex, Range<u32>)>,
}

/// Plans every section of every object.
pub(super) fn plan(isa: &dyn Rewritable, program: &Program<'_>, options: &Options) -> Result<Plans, Error> {
    let mut plans = Vec::with_capacity(program.objects.len());
    let mut tables = Vec::new();
    let mut sites = Vec::with_capacity(program.objects.len());
    for input in &program.objects {
        let object = &input.object;
        let object_sites =
            sites::read(object, &options.world).map_err(|(section, problem)| Error::Table {
                object: object.name.clone(),
                section: object.section(section).name.to_owned(),
                problem,
            })?;
        let names = SectionNames::of(object);
        let carried = carried::read(object)
            .map_err(|problem| Error::Carried { object: object.name.clone(), problem })?;
        let lists = carried.is_some();
        let (of_tables, carried): (Vec<Carried>, Vec<Carried>) =
            carried.into_iter().flatten().partition(|carried| carried.reason == carried::TABLE);
        let index = ObjectIndex::from(plans.len());
        tables.extend(of_tables.into_iter().map(|table| (index, table.section, table.range)));
        let whole = Whole::of(input, lists.then_some(carried), &options.world);
        let sections = (0..object.sections.len())
            .map(SectionIndex::from)
            .map(|index| {
                if input.is_discarded(index) {
                    return SectionPlan::Skip;
                }
                plan_section(isa, object, &names, index, &whole, &object_sites, options)
            })
            .collect();
        plans.push(sections);
        sites.push(object_sites);
    }
    collect_references(program, &options.world, &mut plans);
    for (plan, sites) in plans.iter_mut().zip(&sites) {
        settle(plan, sites, program.machine);
    }
    Ok(Plans { sections: plans, tables })
}

fn plan_section(
    isa: &dyn Rewritable,
    object: &Object<'_>,
    names: &SectionNames<'_>,
    index: SectionIndex,
    whole: &Whole,
    sites: &Sites,
    options: &Options,
) -> SectionPlan {
    let section = object.section(index);
    let empty = section.size == 0;
    if is_structure(section) || empty && !names.any(index) {
        return SectionPlan::Skip;
    }
    let chunks = |starts, code, life, root, opaque| SectionPlan::Chunks { starts, code, life, root, opaque };
    let one = |code, root, opaque| chunks(vec![0], code, Life::Referenced, root, opaque);
    let rule = options.world.rule(section.name, section.kind, section.flags);
    // Tools of the build read these in the objects.
    let is_for_tools = match rule {
        Rule::Exports => true,
        Rule::Weak(kind) => kind.is_for_objtool(),
        _ => false,
    };
    if options.world.discards(section.name) && !is_for_tools {
        return SectionPlan::Skip;
    }
    match rule {
        Rule::Dropped => SectionPlan::Skip,
        _ if empty => one(is_code(section), None, None),
        Rule::Exports if !options.keep_exports => SectionPlan::Skip,
        Rule::Exports => one(false, Some(RootReason::Exported), None),
        Rule::Root(reason) => {
            let code = is_code(section);
            let opaque = code.then_some("code in an unknown section");
            chunks(data_starts(section), code, Life::Referenced, Some(reason), opaque)
        }
        Rule::Weak(kind) => {
            let entry = sites::layout(object, index, kind, &options.world).expect("the sites were read").size;
            let starts = (0..section.size as u32).step_by(entry as usize).collect();
            chunks(starts, false, Life::Site(kind), None, None)
        }
        Rule::Replacement => chunks(sites.replacement_starts(index), true, Life::Referenced, None, None),
        Rule::Data => chunks(data_starts(section), false, Life::Referenced, None, whole.data(index)),
        Rule::Code if section.kind == SHT_NOBITS => one(true, None, Some("code without content")),
        Rule::Code if whole.code(object, index).is_some() => one(true, None, whole.code(object, index)),
        Rule::Code => SectionPlan::Code {
            code: Box::new(CodeSection::decode(
                isa,
                object,
                names,
                index,
                whole.lists.then(|| whole.carried(index)),
                &sites.offsets(index),
            )),
            regions: Vec::new(),
            fatal_traps: Vec::new(),
            glued: Vec::new(),
        },
    }
}

/// The code and data of an object that is opaque for reasons known before decoding.
struct Whole {
    /// The reason why all code is opaque, if it is.
    code: Option<&'static str>,
    /// Whether the object lists its opaque parts.
    lists: bool,
    /// The code and data that it lists as opaque.
    carried: Vec<Carried>,
    /// Its sections of data with a label of top-level `asm`. The assembler may have computed distances between labels,
    /// including those of functions, without leaving a relocation.
    labelled: Vec<SectionIndex>,
}

impl Whole {
    fn of(input: &Input<'_>, carried: Option<Vec<Carried>>, world: &World) -> Whole {
        let object = &input.object;
        let labels = object.symbols.iter().filter(|symbol| is_assembler_label(object.machine, symbol));
        let data = labels.filter_map(|symbol| match symbol.place {
            Place::Section(index) => {
                let section = object.section(index);
                (world.rule(section.name, section.kind, section.flags) == Rule::Data).then_some(index)
            }
            _ => None,
        });
        // For a label in opaque data, the object lists the code that is opaque because of it.
        let lists = |index: &SectionIndex| carried.iter().flatten().any(|carried| carried.section == *index);
        let labelled: Vec<SectionIndex> = data.filter(|index| !lists(index)).collect();
        let code = match input.hand_written && carried.is_none() {
            true => Some(HAND_WRITTEN),
            false => (!labelled.is_empty()).then_some(LABELS),
        };
        Whole { code, lists: carried.is_some(), carried: carried.unwrap_or_default(), labelled }
    }

    /// Returns the opaque parts of a section.
    fn carried(&self, section: SectionIndex) -> &[Carried] {
        let from = self.carried.partition_point(|carried| carried.section < section);
        let to = self.carried.partition_point(|carried| carried.section <= section);
        &self.carried[from..to]
    }

    /// Returns the reason why a whole section of code is opaque, if it is.
    fn code(&self, object: &Object<'_>, section: SectionIndex) -> Option<&'static str> {
        let all = 0..object.section(section).size as u32;
        let carried = self.carried(section).iter().find(|carried| carried.range == all);
        self.code.or(carried.map(|carried| carried.reason))
    }

    /// Returns the reason why a section of data is never split at its variables, if any.
    fn data(&self, section: SectionIndex) -> Option<&'static str> {
        let labelled = self.labelled.contains(&section).then_some(LABELS);
        let hand_written = self.code.filter(|&reason| reason == HAND_WRITTEN);
        hand_written.or(labelled).or(self.carried(section).first().map(|carried| carried.reason))
    }
}

/// Returns the places where a data section may be split: only between strings and constants that the linker may reorder
/// (`SHF_MERGE`), because a compiler may reach one variable from the address of its neighbour (Chanet et al. 2007,
/// section 2.4).
fn data_starts(section: &Section<'_>) -> Vec<u32> {
    let entsize = section.entsize.max(1) as usize;
    let data = &section.data;
    if section.flags & u64::from(SHF_MERGE) == 0 || data.is_empty() || data.len() % entsize != 0 {
        return vec![0];
    }
    if section.flags & u64::from(SHF_STRINGS) == 0 {
        let step = entsize.next_multiple_of(section.align as usize);
        return (0..data.len() as u32).step_by(step).collect();
    }
    let mut starts = Vec::new();
    let mut start = 0;
    while start < data.len() {
        starts.push(start as u32);
        let mut units = data[start..].chunks_exact(entsize);
        let Some(end) = units.position(|unit| unit.iter().all(|&byte| byte == 0)) else { break };
        start += (end + 1) * entsize;
        // To the linker, zeros up to the next aligned place are padding, and anything else is a string.
        let aligned = start.next_multiple_of(section.align as usize);
        let padding = data[start..aligned.min(data.len())].iter().all(|&byte| byte == 0);
        start = if padding { aligned } else { start };
    }
    starts
}

/// A place in the program that a relocation refers to, and the kind of reference.
struct Reference {
    object: ObjectIndex,
    section: SectionIndex,
    /// Offset in bytes in the section, or outside of it.
    offset: i64,
    /// Whether the relocation is against a global symbol, whatever the addend, or against a symbol of the place itself:
    /// the function that it refers to is then certain.
    by_name: bool,
    /// The user of the place.
    user: User,
    /// The numbers next to the address, if data that is not compiler-made contains it.
    numbers: Vec<u32>,
}

/// The user of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// A call. The offset is that of the instruction, if it is in the called section.
    Call(Option<u32>),
    /// Another branch, which can only be to the place itself.
    Branch,
    /// Code that computes the address.
    Code,
    /// Data that contains the address.
    Data,
}

/// Reason for an opaque section: a reference by the symbol of the section and an offset, whose function is uncertain.
const INTO_INSTRUCTION: &str = "an address in the middle of an instruction";

/// Makes blocks begin at the places that relocations refer to, or makes the functions there opaque.
fn collect_references(program: &Program<'_>, world: &World, plans: &mut [Vec<SectionPlan>]) {
    for (i, input) in program.objects.iter().enumerate() {
        let object = &input.object;
        let mut places = Vec::new();
        for (j, section) in object.sections.iter().enumerate() {
            for reloc in &section.relocs {
                let Some(mut place) =
                    reference(program, world, &plans[i][j], section, ObjectIndex::from(i), reloc)
                else {
                    continue;
                };
                let own = (place.object, place.section) == (ObjectIndex::from(i), SectionIndex::from(j));
                if !own && matches!(place.user, User::Call(_)) {
                    place.user = User::Call(None);
                }
                places.push(place);
            }
        }
        for (j, section) in object.sections.iter().enumerate() {
            let SectionPlan::Code { code, .. } = &mut plans[i][j] else { continue };
            let is_address = |reloc: &&Reloc| matches!(reloc.class, RelocClass::Absolute | RelocClass::Got);
            for reloc in section.relocs.iter().filter(is_address) {
                let symbol = &object.symbols[reloc.symbol.get()];
                let own = symbol.place == Place::Section(SectionIndex::from(j)) && symbol.is_local();
                let from = reloc.offset as u32;
                let Some(span) = code.span_containing(from).filter(|_| own) else { continue };
                let to = (symbol.value as i64 + reloc.addend) as u32;
                // Even if it is the first byte: distances may be relative to a label there.
                if code.span_containing(to) == Some(span) {
                    code.refers_to_itself.push(from);
                }
            }
        }
        for place in places {
            let SectionPlan::Code { code, .. } = &mut plans[place.object.get()][place.section.get()] else {
                continue;
            };
            let size = program.objects[place.object.get()].object.section(place.section).size;
            let offset = u32::try_from(place.offset).ok().filter(|&offset| u64::from(offset) <= size);
            match (offset, place.user) {
                (Some(offset), User::Call(caller)) => code.add_call(caller, offset),
                (Some(offset), User::Branch) => code.add_reference(offset),
                // For the `jmp` of a trampoline (nested functions), GCC loads `f + 10`, which is in another function if
                // `f` is short.
                (Some(offset), User::Code) if code.is_inside_instruction(offset) => {
                    code.opaque = Some(INTO_INSTRUCTION);
                }
                // An integer derived from the address of an unknown function.
                (Some(offset), User::Data) if !place.by_name && code.is_inside_instruction(offset) => {
                    code.opaque = Some(INTO_INSTRUCTION);
                }
                (Some(offset), User::Code | User::Data) => {
                    code.add_reference(offset);
                    code.add_numbers(offset, &place.numbers);
                    if !place.by_name && !program.machine.target().has_encoding_bit {
                        code.referred_by_offset.push(offset);
                    }
                }
                // An integer derived from the address of an unknown function (`__pa()`).
                (None, _) if !place.by_name => {
                    code.opaque = Some("an address that lies outside of the section")
                }
                (None, _) => {}
            }
        }
    }
}

/// Returns the place that a relocation of a section refers to; `None` if no block must begin there.
fn reference(
    program: &Program<'_>,
    world: &World,
    plan: &SectionPlan,
    section: &Section<'_>,
    object: ObjectIndex,
    reloc: &Reloc,
) -> Option<Reference> {
    let from = reloc.offset as u32;
    let code = match plan {
        SectionPlan::Skip => return None,
        SectionPlan::Code { code, .. } => Some(&**code),
        // The reference of a weak table's entry to its site does not transfer control there. Its other references, to
        // fixups and targets, do.
        SectionPlan::Chunks { starts, life: Life::Site(_), .. } if starts.binary_search(&from).is_ok() => {
            return None;
        }
        SectionPlan::Chunks { .. } => None,
    };
    let relative = matches!(reloc.class, RelocClass::Relative | RelocClass::Branch);
    let replacement = world.rule(section.name, section.kind, section.flags) == Rule::Replacement;
    let in_code = replacement || is_code(section);
    let counts_from_end = relative || kelf::reloc::counts_from_end(program.machine, reloc.r_type);
    let bias = if counts_from_end { bias(program.machine, reloc, code, in_code) } else { 0 };
    let resolved = program.resolve(object, reloc.symbol);
    let target = match resolved {
        Resolved::Local(object, symbol) => Some((object, symbol)),
        Resolved::Global(global) => match program.global(global).definition {
            Definition::In(object, symbol) => Some((object, symbol)),
            _ => None,
        },
    };
    let of_function = target.is_some_and(|(object, symbol)| {
        program.objects[object.get()].object.symbols[symbol.get()].kind == STT_FUNC
    });
    let by_symbol = kelf::reloc::stays_by_symbol(program.machine, reloc.r_type, reloc.class)
        || of_function && is_code(section) && kelf::reloc::is_added_to_pc(program.machine, reloc.r_type);
    let addend = if by_symbol { 0 } else { reloc.addend + i64::from(bias) };
    // A global symbol itself already begins a block.
    let (object, symbol) = target.filter(|_| addend != 0 || matches!(resolved, Resolved::Local(..)))?;
    let symbol = &program.objects[object.get()].object.symbols[symbol.get()];
    let user = match code.and_then(|code| code.branch_at(from)) {
        Some((caller, BranchKind::Call)) => User::Call(Some(caller)),
        Some(_) => User::Branch,
        None if relative && replacement => User::Branch,
        // The kernel continues there.
        None if matches!(plan, SectionPlan::Chunks { life: Life::Site(_), .. }) => User::Branch,
        None if is_code(section) => User::Code,
        None => User::Data,
    };
    let (from_section, Place::Section(section)) = (section, symbol.place) else { return None };
    let by_name = matches!(resolved, Resolved::Global(_)) || symbol.kind != STT_SECTION && addend == 0;
    let own = matches!(plan, SectionPlan::Chunks { code: false, root: Some(_), .. });
    let numbers = if own && !by_name { numbers_beside(from_section, from, reloc.width) } else { Vec::new() };
    let offset = symbol.value as i64 + addend;
    let label = symbol.kind != STT_FUNC && reloc.class == RelocClass::Absolute;
    let target = &program.objects[object.get()].object.section(section);
    let offset =
        if label && is_code(target) { program.machine.first_byte(offset as u64) as i64 } else { offset };
    Some(Reference { object, section, offset, by_name, user, numbers })
}

/// Returns the bytes from a relative field to the address from which the processor counts, if the field is in code;
/// `code` is the section if it is decoded.
pub(super) fn bias(machine: Machine, reloc: &Reloc, code: Option<&CodeSection>, in_code: bool) -> u8 {
    let encoded = machine.target().has_encoded_branches;
    match code {
        _ if encoded && reloc.class == RelocClass::Branch => {
            kelf::reloc::branch_bias(machine, reloc.r_type).unwrap_or(0)
        }
        // In code, these are literals.
        _ if encoded => 0,
        Some(code) => code.bias(reloc.offset as u32, reloc.width),
        None if in_code => reloc.width,
        None => 0,
    }
}

/// Returns the nonzero words without a relocation, among the two before an address and the two after it.
fn numbers_beside(section: &Section<'_>, address: u32, width: u8) -> Vec<u32> {
    let behind = address as usize + usize::from(width);
    let in_front = (1..=2).filter_map(|i| (address as usize).checked_sub(4 * i));
    let words = in_front.chain([behind, behind + 4]);
    let number = |at: usize| {
        let bytes: [u8; 4] = section.data.get(at..at + 4)?.try_into().ok()?;
        let first =
            section.relocs.partition_point(|reloc| reloc.offset + u64::from(reloc.width) <= at as u64);
        let relocated = section.relocs.get(first).is_some_and(|reloc| reloc.offset < at as u64 + 4);
        (!relocated).then(|| u32::from_le_bytes(bytes)).filter(|&number| number != 0)
    };
    words.filter_map(number).collect()
}

/// Finds the patch sites of all sections of code, and determines the opaque functions.
fn settle(plan: &mut [SectionPlan], sites: &Sites, machine: Machine) {
    for (i, section_plan) in plan.iter_mut().enumerate() {
        let SectionPlan::Code { code, regions, fatal_traps, glued } = section_plan else { continue };
        let index = SectionIndex::from(i);
        let sites = sites.of_section(index);
        *regions = sites::fix_regions(code, sites, machine);
        *fatal_traps = sites.iter().filter(|site| site.fatal).map(|site| site.offset).collect();
        fatal_traps.sort_unstable();
        let glue = |site: &sites::Site| match site.glue {
            Glue::None => None,
            Glue::Behind => Some(code.insn_containing(site.offset)?.end()),
            Glue::Itself => Some(site.offset),
        };
        *glued = sites.iter().filter_map(glue).collect();
        glued.extend(code.merge_short_functions());
        glued.sort_unstable();
        section_plan.settle();
    }
}

impl SectionPlan {
    /// Makes the functions that begin in a range of offsets opaque; a section of data becomes one chunk.
    /// [`SectionPlan::settle`] must follow.
    pub(super) fn carry_whole(&mut self, range: &Range<u32>, reason: &'static str) {
        match self {
            SectionPlan::Chunks { starts, life: Life::Referenced, .. } => starts.truncate(1),
            SectionPlan::Code { code, .. } => {
                let first = code.spans.partition_point(|span| span.start < range.start);
                let behind = code.spans.partition_point(|span| span.start < range.end);
                (first..behind).for_each(|span| code.make_opaque(span, reason));
            }
            SectionPlan::Chunks { .. } | SectionPlan::Skip => {}
        }
    }

    /// Makes all code of the section one opaque chunk. [`SectionPlan::settle`] must follow.
    pub(super) fn carry_section_whole(&mut self, reason: &'static str) {
        if let SectionPlan::Code { code, .. } = self {
            code.opaque = Some(reason);
        }
    }

    /// Determines the opaque functions of a section of code.
    pub(super) fn settle(&mut self) {
        let SectionPlan::Code { code, .. } = self else { return };
        code.settle();
        if let Some(reason) = code.opaque {
            let (starts, life) = (vec![0], Life::Referenced);
            *self = SectionPlan::Chunks { starts, code: true, life, root: None, opaque: Some(reason) };
        }
    }
}

fn is_code(section: &Section<'_>) -> bool {
    section.flags & u64::from(goblin::elf::section_header::SHF_EXECINSTR) != 0
}

/// Whether a section is metadata of the object file (symbols, relocations, strings) and not part of the program.
fn is_structure(section: &Section<'_>) -> bool {
    matches!(
        section.kind,
        SHT_NULL | SHT_SYMTAB | SHT_STRTAB | SHT_REL | SHT_RELA | SHT_GROUP | SHT_SYMTAB_SHNDX
    )
}
