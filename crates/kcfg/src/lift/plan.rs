//! Planning: how each section is cut, before there are nodes.

use goblin::elf::section_header::{
    SHF_MERGE, SHF_STRINGS, SHT_GROUP, SHT_NULL, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX,
};
use kelf::{
    Definition, Object, ObjectIndex, Place, Program, Reloc, RelocClass, Resolved, Section, SectionIndex,
};

use super::decode::CodeSection;
use super::sites::{self, FixedRegion, Sites};
use super::{Error, Options};
use crate::graph::Life;
use crate::isa::Rewritable;
use crate::special::{RootReason, Rule, World};

/// How one section is cut.
pub(super) enum SectionPlan {
    /// Not part of the program.
    Skip,
    /// Chunks that begin at these offsets; the first is 0.
    Chunks {
        starts: Vec<u32>,
        code: bool,
        life: Life,
        root: Option<RootReason>,
        opaque: Option<&'static str>,
    },
    /// Blocks.
    Code {
        code: CodeSection,
        regions: Vec<FixedRegion>,
        /// Where there are traps behind which the kernel resumes.
        resumes: Vec<u32>,
        /// Where blocks begin that stay beside the block before them.
        tied: Vec<u32>,
    },
}

/// Plans every section of every object.
pub(super) fn plan(
    isa: &dyn Rewritable,
    program: &Program<'_>,
    options: &Options,
) -> Result<Vec<Vec<SectionPlan>>, Error> {
    let mut plans = Vec::with_capacity(program.objects.len());
    let mut sites = Vec::with_capacity(program.objects.len());
    for input in &program.objects {
        let object = &input.object;
        let object_sites =
            sites::read(object, &options.world).map_err(|(section, problem)| Error::Table {
                object: object.name.clone(),
                section: object.section(section).name.to_owned(),
                problem,
            })?;
        let sections = (0..object.sections.len())
            .map(SectionIndex::from)
            .map(|index| {
                if input.is_discarded(index) {
                    return SectionPlan::Skip;
                }
                plan_section(isa, object, index, input.hand_written, &object_sites, options)
            })
            .collect();
        plans.push(sections);
        sites.push(object_sites);
    }
    collect_references(program, &options.world, &mut plans);
    for (plan, sites) in plans.iter_mut().zip(&sites) {
        settle(plan, sites);
    }
    Ok(plans)
}

fn plan_section(
    isa: &dyn Rewritable,
    object: &Object<'_>,
    index: SectionIndex,
    hand_written: bool,
    sites: &Sites,
    options: &Options,
) -> SectionPlan {
    let section = object.section(index);
    let empty = section.size == 0;
    if is_structure(section) || empty && !is_named(object, index) {
        return SectionPlan::Skip;
    }
    if options.world.discards(section.name) && section.name != ".export_symbol" {
        return SectionPlan::Skip;
    }
    let chunks = |starts, code, life, root, opaque| SectionPlan::Chunks { starts, code, life, root, opaque };
    let whole = |code, root, opaque| chunks(vec![0], code, Life::Referenced, root, opaque);
    match options.world.rule(section.name, section.kind, section.flags) {
        Rule::Dropped => SectionPlan::Skip,
        _ if empty => whole(is_code(section), None, None),
        Rule::Exports if !options.keep_exports => SectionPlan::Skip,
        Rule::Exports => whole(false, Some(RootReason::Exported), None),
        Rule::Root(reason) => {
            let code = is_code(section);
            let opaque = code.then_some("code in a section that kshrink does not know");
            chunks(data_starts(section), code, Life::Referenced, Some(reason), opaque)
        }
        Rule::Weak(kind) => {
            let entry = sites::layout(object, index, kind).expect("the sites were read").size;
            let starts = (0..section.size as u32).step_by(entry as usize).collect();
            chunks(starts, false, Life::Site(kind), None, None)
        }
        Rule::Replacement => chunks(sites.replacement_starts(index), true, Life::Referenced, None, None),
        Rule::Data => chunks(data_starts(section), false, Life::Referenced, None, None),
        Rule::Code if hand_written => whole(true, None, Some("hand-written")),
        Rule::Code => SectionPlan::Code {
            code: CodeSection::decode(isa, object, index),
            regions: Vec::new(),
            resumes: Vec::new(),
            tied: Vec::new(),
        },
    }
}

/// Where a data section may be cut: between strings and constants that the linker itself would move
/// about (`SHF_MERGE`), and nowhere else, because a compiler may reach one variable from the address of
/// its neighbour (Chanet et al. 2007, section 2.4).
fn data_starts(section: &Section<'_>) -> Vec<u32> {
    let entsize = section.entsize.max(1) as usize;
    let data = &section.data;
    if section.flags & u64::from(SHF_MERGE) == 0 || data.len() % entsize != 0 {
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
        start = (start + (end + 1) * entsize).next_multiple_of(section.align as usize);
    }
    starts
}

/// Blocks begin, or functions stay whole, where another section's relocation says so.
fn collect_references(program: &Program<'_>, world: &World, plans: &mut [Vec<SectionPlan>]) {
    for (i, input) in program.objects.iter().enumerate() {
        let object = &input.object;
        let mut places = Vec::new();
        for (j, section) in object.sections.iter().enumerate() {
            let bias = match &plans[i][j] {
                SectionPlan::Skip => continue,
                SectionPlan::Code { code, .. } => Some(code),
                SectionPlan::Chunks { .. } => None,
            };
            // Entries of weak tables are about code without making it a place to go to; what else they
            // name, fixups and targets, is.
            let entry = match &plans[i][j] {
                SectionPlan::Chunks { starts, life: Life::Site(_), .. } => Some(starts),
                _ => None,
            };
            for reloc in &section.relocs {
                let offset = reloc.offset as u32;
                if entry.is_some_and(|starts| starts.binary_search(&offset).is_ok()) {
                    continue;
                }
                let relative = matches!(reloc.class, RelocClass::Relative | RelocClass::Branch);
                let code = world.rule(section.name, section.kind, section.flags) == Rule::Replacement;
                let bias = match bias {
                    Some(code) if relative => code.bias(offset, reloc.width),
                    None if relative && (code || is_code(section)) => reloc.width,
                    _ => 0,
                };
                let addend = reloc.addend + i64::from(bias);
                match program.resolve(ObjectIndex::from(i), reloc.symbol) {
                    Resolved::Local(object_index, symbol) => {
                        let symbol = &program.objects[object_index.get()].object.symbols[symbol.get()];
                        if let Place::Section(section) = symbol.place {
                            places.push((object_index, section, symbol.value as i64 + addend));
                        }
                    }
                    // The symbol itself begins a block already.
                    Resolved::Global(_) if addend == 0 => {}
                    Resolved::Global(global) => {
                        if let Definition::In(object_index, symbol) = program.global(global).definition {
                            let symbol = &program.objects[object_index.get()].object.symbols[symbol.get()];
                            if let Place::Section(section) = symbol.place {
                                places.push((object_index, section, symbol.value as i64 + addend));
                            }
                        }
                    }
                }
            }
        }
        for (j, section) in object.sections.iter().enumerate() {
            let SectionPlan::Code { code, .. } = &mut plans[i][j] else { continue };
            let names = |reloc: &&Reloc| matches!(reloc.class, RelocClass::Absolute | RelocClass::Got);
            for reloc in section.relocs.iter().filter(names) {
                let symbol = &object.symbols[reloc.symbol.get()];
                let own = symbol.place == Place::Section(SectionIndex::from(j)) && symbol.is_local();
                let Some(from) = code.span_containing(reloc.offset as u32).filter(|_| own) else { continue };
                let to = (symbol.value as i64 + reloc.addend) as u32;
                if code.span_containing(to) == Some(from) && code.spans[from].start != to {
                    code.names_itself.push(from);
                }
            }
        }
        for (object, section, offset) in places {
            if let SectionPlan::Code { code, .. } = &mut plans[object.get()][section.get()]
                && let Ok(offset) = u32::try_from(offset)
            {
                code.add_reference(offset);
            }
        }
    }
}

/// Fixes patch sites and decides what stays whole.
fn settle(plan: &mut [SectionPlan], sites: &Sites) {
    for (i, section_plan) in plan.iter_mut().enumerate() {
        let SectionPlan::Code { code, regions, resumes, tied } = section_plan else { continue };
        let index = SectionIndex::from(i);
        *regions = sites::fix_regions(code, &sites.sites, index);
        *resumes = sites
            .sites
            .iter()
            .filter(|site| site.section == index && site.resumes)
            .map(|site| site.offset)
            .collect();
        resumes.sort_unstable();
        let pads = sites.sites.iter().filter(|site| site.section == index && site.pads);
        *tied = pads.filter_map(|site| Some(code.insn_containing(site.offset)?.end())).collect();
        code.settle();
        if let Some(reason) = code.opaque {
            *section_plan = SectionPlan::Chunks {
                starts: vec![0],
                code: true,
                life: Life::Referenced,
                root: None,
                opaque: Some(reason),
            };
        }
    }
}

fn is_code(section: &Section<'_>) -> bool {
    section.flags & u64::from(goblin::elf::section_header::SHF_EXECINSTR) != 0
}

/// Tables that make up the file rather than the program.
fn is_structure(section: &Section<'_>) -> bool {
    matches!(
        section.kind,
        SHT_NULL | SHT_SYMTAB | SHT_STRTAB | SHT_REL | SHT_RELA | SHT_GROUP | SHT_SYMTAB_SHNDX
    )
}

/// Whether something names the section, however empty it is.
fn is_named(object: &Object<'_>, index: SectionIndex) -> bool {
    let inside = |symbol: &kelf::Symbol<'_>| symbol.place == Place::Section(index);
    let mut relocs = object.sections.iter().flat_map(|section| &section.relocs);
    object.symbols.iter().any(|symbol| inside(symbol) && !symbol.name.is_empty())
        || relocs.any(|reloc| inside(&object.symbols[reloc.symbol.get()]))
}
