//! The weak tables of one object: the sites of their entries, and the patch sites among these.

use goblin::elf::section_header::SHT_NOBITS;
use kelf::{Machine, Object, Place, SectionIndex};

use super::decode::CodeSection;
use crate::special::{About, BUGFLAG_WARNING, Detail, EX_TYPE_ZEROPAD, EntryLayout, Rule, TableKind, World};

/// The site of one entry.
pub(super) struct Site {
    pub about: About,
    /// The section of the code.
    pub section: SectionIndex,
    pub offset: u32,
    /// Length in bytes of the patched code, or 0 if unknown; it is then one instruction.
    pub len: u32,
    /// Whether it is a trap after which control never resumes (`BUG()`).
    pub fatal: bool,
    /// What stays together here.
    pub glue: Glue,
}

/// The neighbours that stay together at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glue {
    /// None.
    None,
    /// The instruction and the code behind it: the exception handler computes the instruction's length from the distance
    /// to its fixup ([`EX_TYPE_ZEROPAD`]).
    Behind,
    /// The instruction before the site and the code at the site: the entry names one and is about the other
    /// ([`Detail::InstructionBefore`]).
    Itself,
}

/// A replacement: part of `.altinstr_replacement`.
pub(super) struct Replacement {
    pub section: SectionIndex,
    pub start: u32,
    pub end: u32,
}

/// The contents of an object's weak tables.
#[derive(Default)]
pub(super) struct Sites {
    /// In the order of their sections.
    pub sites: Vec<Site>,
    /// In the order of their places.
    pub replacements: Vec<Replacement>,
}

impl Sites {
    /// Returns the sites in a section.
    pub fn of_section(&self, section: SectionIndex) -> &[Site] {
        let first = self.sites.partition_point(|site| site.section < section);
        let behind = self.sites.partition_point(|site| site.section <= section);
        &self.sites[first..behind]
    }

    /// Returns the offsets of the sites in a section, in order.
    pub fn offsets(&self, section: SectionIndex) -> Vec<u32> {
        let mut offsets: Vec<u32> = self.of_section(section).iter().map(|site| site.offset).collect();
        offsets.sort_unstable();
        offsets
    }

    /// Returns the offsets at which a section of replacements is split: 0, and the start of each group of overlapping
    /// replacements.
    pub fn replacement_starts(&self, section: SectionIndex) -> Vec<u32> {
        let (mut starts, mut end) = (vec![0], 0);
        // In the order of their starts.
        for replacement in self.replacements.iter().filter(|r| r.section == section && r.end > r.start) {
            if replacement.start >= end && replacement.start > 0 {
                starts.push(replacement.start);
            }
            end = end.max(replacement.end);
        }
        starts
    }
}

/// Returns the layout of the entries of a weak table.
///
/// # Errors
/// A description of the problem, if no known layout fits.
pub(super) fn layout(
    object: &Object<'_>,
    index: SectionIndex,
    kind: TableKind,
    world: &World,
) -> Result<&'static EntryLayout, String> {
    kind.layout(object.machine, world.version(), object.section(index))
}

/// Reads the weak tables of an object. An error names a section and its problem.
pub(super) fn read(object: &Object<'_>, world: &World) -> Result<Sites, (SectionIndex, String)> {
    let mut out = Sites::default();
    for (i, section) in object.sections.iter().enumerate() {
        let Rule::Weak(kind) = world.rule(section.name, section.kind, section.flags) else { continue };
        let index = SectionIndex::from(i);
        if section.kind == SHT_NOBITS {
            return Err((index, "it has no content".to_owned()));
        }
        let layout = layout(object, index, kind, world).map_err(|problem| (index, problem))?;
        let about = kind.about();
        for start in (0..section.size as u32).step_by(layout.size as usize) {
            let field = |offset: u32| local_place(object, index, start + offset);
            let Some((site_section, offset)) = field(layout.relocated[0]) else {
                if about == About::Function {
                    continue;
                }
                return Err((index, format!("the site of the entry at {start:#x} is not in this object")));
            };
            let byte = |offset: u32| section.data.get((start + offset) as usize).copied().unwrap_or(0);
            let mut site =
                Site { about, section: site_section, offset, len: 0, fatal: false, glue: Glue::None };
            match layout.detail {
                Detail::None => {}
                Detail::InstructionBefore => site.glue = Glue::Itself,
                Detail::Handler(at) if byte(at) == EX_TYPE_ZEROPAD => site.glue = Glue::Behind,
                Detail::Handler(_) => {}
                Detail::Patched(len) => site.len = len,
                Detail::PatchedLength(at) => site.len = u32::from(byte(at)),
                Detail::PatchedAndReplacementLengths { lengths, replacement } => {
                    site.len = u32::from(byte(lengths));
                    let len = u32::from(byte(lengths + 1));
                    let replacement = field(replacement).filter(|&(section, at)| {
                        u64::from(at) + u64::from(len) <= object.section(section).size
                    });
                    match replacement {
                        Some((section, at)) => {
                            out.replacements.push(Replacement { section, start: at, end: at + len });
                        }
                        None if len == 0 => {}
                        None => {
                            let problem = format!(
                                "the replacement of the entry at {start:#x}, {len} bytes, is not in a section of \
                                 this object"
                            );
                            return Err((index, problem));
                        }
                    }
                }
                Detail::BugFlags(at) => {
                    site.fatal = u16::from_le_bytes([byte(at), byte(at + 1)]) & BUGFLAG_WARNING == 0;
                }
            }
            out.sites.push(site);
        }
    }
    out.sites.sort_by_key(|site| site.section);
    out.replacements.sort_unstable_by_key(|r| (r.section, r.start, r.end));
    Ok(out)
}

/// Returns the place in this object that the field at `offset` of a table refers to; `None` if it is not within a
/// section.
fn local_place(object: &Object<'_>, index: SectionIndex, offset: u32) -> Option<(SectionIndex, u32)> {
    let reloc = super::placed::reloc_at(&object.section(index).relocs, offset)?;
    let symbol = &object.symbols[reloc.symbol.get()];
    match symbol.place {
        Place::Section(section) => {
            let place = u32::try_from(symbol.value as i64 + reloc.addend).ok();
            Some((section, place.filter(|&place| u64::from(place) <= object.section(section).size)?))
        }
        _ => None,
    }
}

/// A patch site, whose code must not change: `start..end`, on instruction boundaries. The sites of a section are in
/// order and do not overlap.
pub(super) struct FixedRegion {
    pub start: u32,
    pub end: u32,
    /// A `jmp` of a static key, whose length lowering may choose, because the kernel reads it from the opcode.
    pub static_jump: bool,
}

/// Finds the fixed regions of one code section and makes blocks begin at its `sites`. Makes functions opaque whose
/// sites are not whole instructions or are branch targets inside.
pub(super) fn fix_regions(code: &mut CodeSection, sites: &[Site], machine: Machine) -> Vec<FixedRegion> {
    let mut regions: Vec<FixedRegion> = Vec::new();
    for site in sites {
        let Some(span) = code.span_containing(site.offset) else { continue };
        let Some(insn) = code.insn_containing(site.offset).copied() else {
            code.make_opaque(span, "a site in code that cannot be decoded");
            continue;
        };
        if insn.is_predicated() {
            code.make_opaque(span, "a site under the condition of another instruction");
            continue;
        }
        code.leaders.push(insn.offset);
        if !site.about.fixes_code() {
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
            site.about.lets_jumps_change(machine) && matches!(insn.insn.flow, kisa::Flow::Direct { .. });
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
    // No block begins inside a region: entries of tables refer to it by offset.
    let inside = |leader: &u32| {
        let after = regions.partition_point(|region| region.start < *leader);
        after > 0 && *leader < regions[after - 1].end
    };
    code.leaders.retain(|leader| !inside(leader));
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_that_overlap_stay_together() {
        let starts = |ranges: &[(u32, u32)]| {
            let section = SectionIndex::from(3);
            let mut sites = Sites::default();
            sites.replacements.extend(ranges.iter().map(|&(start, end)| Replacement { section, start, end }));
            sites.replacement_starts(section)
        };
        assert_eq!(starts(&[(0, 5), (5, 8), (8, 9)]), [0, 5, 8]);
        // The third overlaps the first, though not its neighbour.
        assert_eq!(starts(&[(0, 9), (2, 4), (6, 8), (9, 12)]), [0, 9]);
        // The same one twice, and an empty one within another.
        assert_eq!(starts(&[(0, 4), (4, 8), (4, 8), (6, 6)]), [0, 4]);
        assert_eq!(starts(&[(3, 6)]), [0, 3]);
        assert_eq!(starts(&[]), [0]);
    }
}
