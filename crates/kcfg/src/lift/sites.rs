//! The weak tables of one object: which code their entries are about, and which of it must not change.

use goblin::elf::section_header::SHT_NOBITS;
use kelf::{Object, Place, SectionIndex};

use super::decode::CodeSection;
use crate::special::{BUGFLAG_WARNING, Rule, TableKind, alt_instr, rule};

/// One entry's site.
pub(super) struct Site {
    pub kind: TableKind,
    /// Where the code is.
    pub section: SectionIndex,
    pub offset: u32,
    /// Length in bytes of the code that is patched, where the entry says so, else 0.
    pub len: u32,
    /// Whether it is a trap behind which nothing resumes (`BUG()`).
    pub fatal: bool,
}

/// A replacement: part of `.altinstr_replacement`.
pub(super) struct Replacement {
    pub section: SectionIndex,
    pub start: u32,
    pub end: u32,
}

/// What the weak tables of an object say.
#[derive(Default)]
pub(super) struct Sites {
    /// In the order of their sections.
    pub sites: Vec<Site>,
    pub replacements: Vec<Replacement>,
}

impl Sites {
    /// The sites in a section.
    pub fn of_section(&self, section: SectionIndex) -> &[Site] {
        let first = self.sites.partition_point(|site| site.section < section);
        let behind = self.sites.partition_point(|site| site.section <= section);
        &self.sites[first..behind]
    }
}

/// The size of the entries of a weak table, given the section.
pub(super) fn entry_size(object: &Object<'_>, index: SectionIndex, kind: TableKind) -> u32 {
    let second = object.section(index).relocs.iter().any(|reloc| reloc.offset == 4);
    kind.entry_size(object.machine, second)
}

/// Reads the weak tables of an object. `Err` names a section and what is wrong with it.
pub(super) fn read(object: &Object<'_>) -> Result<Sites, (SectionIndex, String)> {
    let mut out = Sites::default();
    for (i, section) in object.sections.iter().enumerate() {
        let Rule::Weak(kind) = rule(section.name, section.kind, section.flags) else { continue };
        let index = SectionIndex::from(i);
        let entry = entry_size(object, index, kind);
        if section.kind == SHT_NOBITS {
            return Err((index, "it has no content".to_owned()));
        }
        if section.size % u64::from(entry) != 0 {
            let size = section.size;
            return Err((
                index,
                format!("its size, {size} bytes, is no multiple of an entry's, {entry} bytes"),
            ));
        }
        for start in (0..section.size as u32).step_by(entry as usize) {
            let field = |offset: u32| local_place(object, index, start + offset);
            let Some((site_section, offset)) = field(0) else {
                if matches!(kind, TableKind::FunctionList | TableKind::ErrorInjection) {
                    continue;
                }
                return Err((index, format!("the entry at {start:#x} names no code of this object")));
            };
            let byte = |offset: u32| section.data[(start + offset) as usize];
            let mut site = Site { kind, section: site_section, offset, len: 0, fatal: false };
            match kind {
                TableKind::Alternative => {
                    site.len = u32::from(byte(alt_instr::LENGTH));
                    let len = u32::from(byte(alt_instr::REPLACEMENT_LENGTH));
                    let replacement = field(alt_instr::REPLACEMENT).filter(|&(section, at)| {
                        u64::from(at) + u64::from(len) <= object.section(section).size
                    });
                    match replacement {
                        Some((section, at)) => {
                            out.replacements.push(Replacement { section, start: at, end: at + len });
                        }
                        None if len == 0 => {}
                        None => {
                            let problem = format!(
                                "the replacement of the entry at {start:#x}, {len} bytes, does not lie in a section of \
                                 this object"
                            );
                            return Err((index, problem));
                        }
                    }
                }
                TableKind::Paravirt => site.len = u32::from(byte(u32::from(object.machine.word_size()) + 1)),
                TableKind::Bug => {
                    let at = if entry == 12 { 10 } else { 4 };
                    site.fatal = u16::from_le_bytes([byte(at), byte(at + 1)]) & BUGFLAG_WARNING == 0;
                }
                _ => {}
            }
            out.sites.push(site);
        }
    }
    out.sites.sort_by_key(|site| site.section);
    out.replacements.sort_unstable_by_key(|r| (r.section, r.start, r.end));
    out.replacements.dedup_by_key(|r| (r.section, r.start, r.end));
    Ok(out)
}

/// The place in this object that the field at `offset` of a table names; `None` if it is in no section, or outside of
/// it.
fn local_place(object: &Object<'_>, index: SectionIndex, offset: u32) -> Option<(SectionIndex, u32)> {
    let reloc = super::decode::reloc_at(&object.section(index).relocs, offset)?;
    let symbol = &object.symbols[reloc.symbol.get()];
    match symbol.place {
        Place::Section(section) => {
            let place = u32::try_from(symbol.value as i64 + reloc.addend).ok();
            Some((section, place.filter(|&place| u64::from(place) <= object.section(section).size)?))
        }
        _ => None,
    }
}

/// Code that must not change: `start..end`, on instruction boundaries, in order and apart.
pub(super) struct FixedRegion {
    pub start: u32,
    pub end: u32,
    /// A `jmp` of a static key: the kernel reads its length from its opcode, so that lowering may
    /// choose it.
    pub static_jump: bool,
}

/// Finds the fixed regions of one code section, makes blocks begin at sites, and marks functions opaque
/// whose sites do not fit. `sites` are those in the section.
pub(super) fn fix_regions(code: &mut CodeSection, sites: &[Site]) -> Vec<FixedRegion> {
    let mut regions: Vec<FixedRegion> = Vec::new();
    for site in sites {
        let Some(span) = code.span_containing(site.offset) else { continue };
        let Some(insn) = code.insn_containing(site.offset).copied() else {
            code.make_opaque(span, "a table names code that could not be decoded");
            continue;
        };
        code.leaders.push(insn.offset);
        if !site.kind.fixes_code() {
            continue;
        }
        let mut end = insn.end();
        while end < site.offset + site.len {
            match code.insn_containing(end) {
                Some(next) => end = next.end(),
                None => break,
            }
        }
        if site.len > 0 && end != site.offset + site.len || end > code.spans[span].end {
            code.make_opaque(span, "a patch site that does not end with an instruction");
            continue;
        }
        code.leaders.push(end);
        let static_jump =
            site.kind == TableKind::StaticKey && matches!(insn.insn.flow, crate::isa::Flow::Direct { .. });
        regions.push(FixedRegion { start: insn.offset, end, static_jump });
    }
    regions.sort_unstable_by_key(|region| region.start);
    regions.dedup_by(|later, earlier| {
        let overlap = later.start < earlier.end;
        if overlap {
            earlier.end = earlier.end.max(later.end);
            earlier.static_jump = false;
        }
        overlap
    });
    for region in &regions {
        let after = code.branch_targets.partition_point(|&target| target <= region.start);
        let entered = code.branch_targets.get(after).is_some_and(|&target| target < region.end);
        let bound = !region.static_jump && code.has_short_exit(region.start, region.end);
        if let Some(span) = code.span_containing(region.start).filter(|_| entered || bound) {
            code.make_opaque(span, "a patch site with a branch into it, or a short one out of it");
        }
    }
    // What only a table names inside of a region is found by offset, not by a block.
    let inside = |leader: &u32| {
        let after = regions.partition_point(|region| region.start < *leader);
        after > 0 && *leader < regions[after - 1].end
    };
    code.leaders.retain(|leader| !inside(leader));
    regions
}
