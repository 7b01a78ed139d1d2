//! Both decoders, in Rust and in C, restore regions for any address of their copies.

use frozen_pack::codec::code::InstructionSet;
use frozen_pack::codec::format::Packed;
use frozen_pack::codec::pack::{Piece, pack_regions};

use crate::both::{decode_in_c, decode_in_c_at, decode_in_rust, decoder, piece};
use crate::round_trip::damage_file;

const PAGE: u32 = 4096;
const FIRST: u32 = 0xFE00_0000;
const KERNEL: u32 = 0xC100_0000;

/// Returns a region in its form at an address. It calls functions of the kernel, whose addresses are computed from its
/// number, jumps within itself, and ends with a branch out.
fn region(number: u32, runs_at: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for call in 0..number % 7 {
        bytes.extend([0x50, 0xE8]);
        let target = KERNEL + 0x1234 * call + 0x10 * (number % 3);
        let end = runs_at + bytes.len() as u32 + 4;
        bytes.extend(target.wrapping_sub(end).to_le_bytes());
        // mov $number, %eax; je behind it
        bytes.extend([0xB8]);
        bytes.extend(number.to_le_bytes());
        bytes.extend([0x74, 0x00]);
    }
    // jmp to the beginning, in its long form
    bytes.extend([0xE9]);
    bytes.extend((-(bytes.len() as i32 + 4)).to_le_bytes());
    // jne out
    bytes.extend([0x0F, 0x85]);
    let end = runs_at + bytes.len() as u32 + 4;
    bytes.extend((KERNEL + 0xABCDE).wrapping_sub(end).to_le_bytes());
    bytes
}

/// The same with variables, which x86-64 code refers to by their distance: one of the kernel, and one of the region.
fn region_of_x86_64(number: u32, runs_at: u32) -> Vec<u8> {
    let mut bytes = region(number, runs_at);
    // movl $number, variable(%rip)
    bytes.extend([0xC7, 0x05]);
    let end = runs_at + bytes.len() as u32 + 8;
    bytes.extend((KERNEL + 0x80_0000 + 8 * number).wrapping_sub(end).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    // lea the beginning(%rip), %rax
    bytes.extend([0x48, 0x8D, 0x05]);
    bytes.extend((-(bytes.len() as i32 + 4)).to_le_bytes());
    bytes
}

fn regions() -> Vec<Piece> {
    (0..200).map(|number| piece(FIRST, &region(number, FIRST), Some(InstructionSet::I386))).collect()
}

fn regions_of_x86_64() -> Vec<Piece> {
    let set = Some(InstructionSet::X86_64);
    (0..200).map(|number| piece(FIRST, &region_of_x86_64(number, FIRST), set)).collect()
}

#[test]
fn copies_lead_where_regions_do() {
    copies(&regions(), region);
}

#[test]
fn copies_of_x86_64_code_lead_where_regions_do() {
    copies(&regions_of_x86_64(), region_of_x86_64);
}

fn copies(regions: &[Piece], region: fn(u32, u32) -> Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let packed = pack_regions(regions, PAGE, KERNEL).unwrap();
    let file = packed.write().unwrap();
    assert_eq!(Packed::read(&file).unwrap(), packed);
    assert_eq!(file.len(), packed.sizes().total());
    let sizes = (0..200).map(|number| region(number, FIRST).len() as u32);
    let behind: u32 = sizes.map(|size| size.next_multiple_of(4)).sum();
    let last = region(199, FIRST).len();
    assert_eq!(packed.place(199), Some((FIRST + behind - (last as u32).next_multiple_of(4), last)));
    for runs_at in [FIRST, 0xC000_0000, 0xC400_0123, 0x1000] {
        let expected = (0..200).map(|number| Some(region(number, runs_at + number * PAGE))).collect();
        assert_eq!(decode_in_c_at(&decoder, &file, runs_at), Some(expected), "{runs_at:#x}");
        for number in 0..200 {
            let copy = packed.page_at(number, runs_at + number * PAGE).unwrap();
            assert_eq!(copy, region(number, runs_at + number * PAGE));
        }
    }
}

#[test]
fn damage_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let file = pack_regions(&regions(), PAGE, KERNEL).unwrap().write().unwrap();
    // After the header and one segment.
    let entry = 40 + 12 + 4 * 3;
    let with_size = |size: u8| {
        let mut file = file.clone();
        file[entry] = size;
        file[entry + 1] &= 0xF0;
        let sum = {
            let mut crc = flate2::Crc::new();
            crc.update(&file[40..]);
            crc.sum()
        };
        file[36..40].copy_from_slice(&sum.to_le_bytes());
        file
    };
    assert!(decode_in_rust(&with_size(0)).is_none());
    assert_eq!(decode_in_c(&decoder, &[with_size(0)]), [None]);
    // A size that is possible but wrong is detected when the region is decoded.
    for decoded in [decode_in_rust(&with_size(200)), decode_in_c(&decoder, &[with_size(200)]).remove(0)] {
        let decoded = decoded.unwrap();
        assert!(decoded[3].is_none() && decoded[2].is_some());
    }
}

#[test]
fn what_is_no_region_is_refused() {
    for (address, size) in [(FIRST + 1, 5), (FIRST, 5000)] {
        let second = piece(address, &vec![0x90; size], Some(InstructionSet::I386));
        assert!(pack_regions(&[regions().remove(0), second], PAGE, KERNEL).is_err());
    }
}

/// The same in Thumb code: calls of functions of the kernel, and a jump back, in its form at an address.
fn thumb_region(number: u32, runs_at: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let targets = (0..number % 7).map(|call| KERNEL + 0x1234 * call + 0x10 * (number % 3)).chain([runs_at]);
    for target in targets {
        bytes.extend([0x28, 0x46]);
        let distance = target.wrapping_sub(runs_at + bytes.len() as u32 + 4);
        let [sign, one, two] = [24, 23, 22].map(|at| distance >> at & 1);
        let first = 0xF000 | sign << 10 | distance >> 12 & 0x3FF;
        let second = 0xD000 | (one ^ sign ^ 1) << 13 | (two ^ sign ^ 1) << 11 | distance >> 1 & 0x7FF;
        bytes.extend([first, second].into_iter().flat_map(|halfword| (halfword as u16).to_le_bytes()));
    }
    bytes
}

#[test]
fn copies_of_thumb_code_lead_where_regions_do() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    // Near enough for calls.
    let first = KERNEL + 0x40_0000;
    let regions: Vec<Piece> = (0..200)
        .map(|number| piece(first, &thumb_region(number, first), Some(InstructionSet::Thumb)))
        .collect();
    let packed = pack_regions(&regions, PAGE, KERNEL).unwrap();
    let file = packed.write().unwrap();
    assert_eq!(Packed::read(&file).unwrap(), packed);
    for runs_at in [first, KERNEL - 0x40_0000] {
        let expected = (0..200).map(|number| Some(thumb_region(number, runs_at + number * PAGE))).collect();
        assert_eq!(decode_in_c_at(&decoder, &file, runs_at), Some(expected), "{runs_at:#x}");
        for number in 0..200 {
            let copy = packed.page_at(number, runs_at + number * PAGE).unwrap();
            assert_eq!(copy, thumb_region(number, runs_at + number * PAGE));
        }
    }
}

#[test]
fn both_decoders_say_the_same_of_damaged_regions() {
    for regions in [regions(), regions_of_x86_64()] {
        damage_file(&pack_regions(&regions, PAGE, KERNEL).unwrap().write().unwrap(), 100);
    }
    let thumb: Vec<Piece> = (0..200)
        .map(|number| piece(FIRST, &thumb_region(number, FIRST), Some(InstructionSet::Thumb)))
        .collect();
    damage_file(&pack_regions(&thumb, PAGE, KERNEL).unwrap().write().unwrap(), 100);
}

#[test]
fn data_that_looks_like_a_branch_stays_as_it_is() {
    comes_back_around([0x10, 0xF1, 0x02, 0xF8]);
}

#[test]
fn data_that_looks_like_a_load_takes_no_branch_apart() {
    // ldr r0, of a literal whose second half is the first half of the branch.
    comes_back_around([0x00, 0x48, 0x00, 0x00]);
}

/// Checks that copies of a region with data between branches out have the same branch targets.
fn comes_back_around(data: [u8; 4]) {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let first = KERNEL + 0x40_0000;
    let region = |runs_at| [&thumb_region(1, runs_at)[..], &data, &thumb_region(1, runs_at + 16)].concat();
    let own = thumb_region(1, 0).len() as u32;
    let leaving = Some(vec![2, own + 4 + 2]);
    assert_eq!(own, 12);
    let pieces: Vec<Piece> = (0..20)
        .map(|_| Piece {
            leaving: leaving.clone(),
            ..piece(first, &region(first), Some(InstructionSet::Thumb))
        })
        .collect();
    let file = pack_regions(&pieces, PAGE, KERNEL).unwrap().write().unwrap();
    let runs_at = KERNEL - 0x40_0000;
    let expected = (0..20).map(|number| Some(region(runs_at + number * PAGE))).collect();
    assert_eq!(decode_in_c_at(&decoder, &file, runs_at), Some(expected));
}
