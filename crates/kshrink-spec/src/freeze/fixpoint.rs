//! Links, packs and links again until the packed bytes fit their room (Chanet et al. 2007, section 4.7).
//!
//! The packed bytes hold addresses of the kernel, and these depend on the room for the packed bytes.

use std::fmt;

use frozen_pack::codec::format::Packed;
use frozen_pack::codec::pack::{Piece, pack, pack_regions};
use kcli::{Failure, human};
use kelf::Object;
use kplan::Mechanism;
use serde::Serialize;

use super::Freezing;
use super::image::{self, Addresses, section_at};
use super::kallsyms;
use super::layout::{Layout, PAGE};
use super::split::{Split, split};
use super::system_map;
use crate::orc;
use crate::phases::Phases;
use crate::relink::{Goal, Staged};

/// From this number of links on, any sufficient room is accepted.
const PATIENT_LINKS: usize = 4;
/// Maximum number of links.
const MOST_LINKS: usize = 8;

/// Bytes of room that may stay empty, at least, and as a part of the packed bytes: changed addresses change the packed
/// size by less.
const SLACK: usize = 256;
const SLACK_PART: usize = 2048;

/// The result of freezing.
pub struct Frozen {
    /// The addresses of the object's sections, as far as they are known.
    pub bases: Vec<Option<u64>>,
    /// The sizes of frozen code and data.
    pub counts: Counts,
    /// The sizes of packed tables for unwinding, if any.
    pub unwinding: Option<orc::Sizes>,
}

/// Sizes of frozen code and data, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// Code.
    pub code: u32,
    /// Read-only data.
    pub data: u32,
    /// The packed form, with tables and index.
    pub packed: usize,
    /// The tables and index in it.
    pub tables: usize,
    /// With mechanism `page`, pages of memory once everything is thawed.
    pub pages: u32,
    /// Number of these pages that every boot uses, and that the init data contains as well.
    pub boot_pages: u32,
    /// With mechanism `stub`, number of regions, each with its stub.
    pub regions: u32,
    /// The first frozen address.
    pub address: u32,
    /// Number of links of the kernel.
    pub links: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = u64::from(self.code) + u64::from(self.data);
        let (parts, what) = if self.regions > 0 { (self.regions, "regions") } else { (self.pages, "pages") };
        write!(
            f,
            "frozen: {} bytes of code and {} of data in {} {what}, packed into {} bytes ({:.4}; {} are tables), {} links",
            human(self.code.into()),
            human(self.data.into()),
            human(parts.into()),
            human(self.packed as u64),
            self.packed as f64 / size as f64,
            human(self.tables as u64),
            self.links
        )
    }
}

/// Links a kernel with frozen parts, up to the boot image. `packs_unwind` is whether its tables for unwinding are packed.
///
/// # Errors
/// If it cannot be linked or packed, or the packed bytes never fit.
pub fn link(
    staged: &mut Staged<'_>,
    mut object: Object<'_>,
    freezing: Freezing,
    packs_unwind: bool,
    phases: &mut Phases,
) -> Result<Frozen, Failure> {
    let layout = Layout::of(&object, &freezing.place)?;
    let tables = packs_unwind.then(|| orc::take(staged, &mut object)).transpose()?;
    let mut unwinding = Vec::new();
    let mut split = split(object, &layout)?;
    // With mechanism `stub`, the stub already has the name of its function.
    if layout.stubs.is_none() {
        kallsyms::add(staged.dir(), split.object().machine, &split.names(&layout))?;
    }
    let size: usize = split.frozen.iter().map(|section| section.bytes.len()).sum();
    let mut room = size / 2;
    for links in 1..=MOST_LINKS {
        staged.link(&split.write(&[], room)?, Goal::Vmlinux)?;
        phases.next("pack");
        let mut is_complete = true;
        if let Some(tables) = &tables {
            let packed = tables.pack(&staged.vmlinux(), layout.code.clone())?;
            is_complete = packed == unwinding;
            split.put_unwinding(tables, &packed);
            unwinding = packed;
        }
        let addresses = Addresses::read(&staged.vmlinux(), &split)?;
        let pieces = image::pieces(&split, &layout, &addresses)?;
        let packed = match freezing.mechanism {
            Mechanism::Page => pack(&pieces, PAGE),
            Mechanism::Stub => pack_regions(&pieces, PAGE, addresses.most_frequent_near()),
        };
        let packed = packed.map_err(Failure::job)?;
        let bytes = packed.write().map_err(Failure::job)?;
        phases.next("relink");
        let empty = room.checked_sub(bytes.len());
        let slack = SLACK.max(bytes.len() / SLACK_PART);
        if !is_complete || empty.is_none_or(|empty| empty > slack && links < PATIENT_LINKS) {
            room = (bytes.len() + slack / 2).next_multiple_of(4);
            continue;
        }
        let boot_pages = image::boot_pages(&pieces, &layout);
        split.set_boot_pages(boot_pages.clone());
        staged.link(&split.write(&bytes, room)?, Goal::BootImage)?;
        if Addresses::read(&staged.vmlinux(), &split)? != addresses {
            return Err(Failure::job(
                "two links of the same object gave different addresses; nothing was frozen",
            ));
        }
        if let Some(tables) = &tables {
            tables.check(&staged.vmlinux(), layout.code.clone(), &unwinding)?;
        }
        match freezing.mechanism {
            Mechanism::Page => {
                check(&bytes, &pieces)?;
                image::check_boot_pages(&staged.vmlinux(), &boot_pages)?;
            }
            Mechanism::Stub => check_copies(&bytes, &split, &layout, &addresses)?,
        }
        system_map::complete(&staged.system_map(), split.object().machine, split.names(&layout))?;
        let sizes = packed.sizes();
        let counts = Counts {
            code: (size - layout.data.len()) as u32,
            data: layout.data.len() as u32,
            packed: bytes.len(),
            tables: sizes.total() - sizes.streams,
            pages: if layout.stubs.is_some() { 0 } else { layout.pages() },
            boot_pages: layout.at_boot.iter().map(|range| range.len() as u32 / PAGE).sum(),
            regions: layout.stubs.as_ref().map_or(0, |stubs| stubs.regions.len() as u32),
            address: layout.code.start,
            links: links + 1,
        };
        let unwinding = tables.map(|tables| tables.sizes(&unwinding));
        return Ok(Frozen { bases: bases(&split, &layout, staged)?, counts, unwinding });
    }
    Err(Failure::job(format!(
        "after {MOST_LINKS} links, the packed bytes still do not fit their room of {room} bytes"
    )))
}

/// Checks that the packed bytes in the kernel decode to the original pieces.
fn check(bytes: &[u8], pieces: &[Piece]) -> Result<(), Failure> {
    let packed = Packed::read(bytes).map_err(Failure::job)?;
    for (segment, piece) in packed.segments.iter().zip(pieces.iter().filter(|piece| !piece.bytes.is_empty()))
    {
        let unpacked = packed.unpack(segment);
        if segment.address != piece.address || unpacked.as_ref() != Ok(&piece.bytes) {
            return Err(Failure::job(format!("{} does not decode to its original bytes", piece.name)));
        }
    }
    Ok(())
}

/// Addresses at which copies of regions are compared with the expected code: two in the linear mapping, or the ends of
/// the window for copies.
fn copies(layout: &Layout) -> [u32; 2] {
    match layout.mapped.is_empty() {
        true => [0xc000_0008, 0xdfff_fedc],
        false => [layout.mapped.start, layout.mapped.end - PAGE],
    }
}

/// Checks that the packed bytes in the kernel decode to correct copies at different addresses.
fn check_copies(
    bytes: &[u8],
    split: &Split<'_>,
    layout: &Layout,
    addresses: &Addresses,
) -> Result<(), Failure> {
    let packed = Packed::read(bytes).map_err(Failure::job)?;
    for (number, section) in (0u32..).zip(&split.frozen) {
        let is_there = packed.place(number) == Some((section.address, section.bytes.len()));
        let mut is_right = is_there;
        for &runs_at in [section.address].iter().chain(&copies(layout)) {
            is_right &= packed.page_at(number, runs_at) == Ok(section_at(section, addresses, runs_at)?);
        }
        if !is_right {
            return Err(Failure::job(format!("region {number} does not decode to its original bytes")));
        }
    }
    Ok(())
}

/// The addresses of the object's sections.
fn bases(split: &Split<'_>, layout: &Layout, staged: &Staged<'_>) -> Result<Vec<Option<u64>>, Failure> {
    let mut bases = kelf::section_bases(split.object(), &staged.vmlinux()).map_err(Failure::of)?;
    for &(section, address) in &layout.sections {
        bases[section.get()] = Some(split.object().machine.kernel_address(address));
    }
    Ok(bases)
}
