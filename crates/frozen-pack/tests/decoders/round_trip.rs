//! Both decoders, in Rust and in C, restore all packed data, and refuse damaged files.

use flate2::Crc;
use frozen_pack::codec::code::InstructionSet;
use frozen_pack::codec::format::{Layout, Packed};
use frozen_pack::codec::pack::{Piece, pack};
use frozen_pack::input::sections;

use crate::both::{Decoded, Random, decode_in_c, decode_in_rust, decoder, decoder_for_arm, piece};
use crate::common::{arm_program, program, program_of_x86_64};

const SETS: [InstructionSet; 4] =
    [InstructionSet::I386, InstructionSet::X86_64, InstructionSet::Thumb, InstructionSet::Arm];

/// Packs pieces, compares the output of the decoders with them, and returns the packed file.
fn round_trip(program: &std::path::Path, pieces: &[Piece], page_size: u32) -> Packed {
    let packed = pack(pieces, page_size).unwrap();
    let file = packed.write().unwrap();
    assert_eq!(Packed::read(&file).unwrap(), packed);
    assert_eq!(file.len(), packed.sizes().total());
    let expected: Vec<Option<Vec<u8>>> = pieces
        .iter()
        .flat_map(|piece| piece.bytes.chunks(page_size as usize).map(|page| Some(page.to_vec())))
        .collect();
    assert_eq!(decode_in_rust(&file), Some(expected.clone()));
    assert_eq!(decode_in_c(program, &[file]), [Some(expected)]);
    packed
}

#[test]
fn all_kinds_of_bytes_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let mut random = Random(1);
    for code in [None].into_iter().chain(SETS.map(Some)) {
        for size in [1, 2, 15, 255, 256, 257, 4096, 5000] {
            let noise = random.bytes(size);
            let few: Vec<u8> = (0..size).map(|_| [0, 0x0F, 0x66, 0xE8][random.below(4)]).collect();
            for bytes in [noise, few, vec![0; size], vec![0x90; size], vec![0xFF; size]] {
                round_trip(&decoder, &[piece(0xFFFF_F000, &bytes, code)], 256);
            }
        }
    }
}

#[test]
fn every_opcode_and_mod_rm_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let prefixes = [&[][..], &[0x66], &[0x0F], &[0x66, 0x0F], &[0xF0, 0x0F], &[0x64], &[0xF3], &[0x67]];
    round_trip(&decoder, &[piece(0xC100_0000, &opcodes(&prefixes), Some(InstructionSet::I386))], 4096);
    let prefixes =
        [&[][..], &[0x48], &[0x66, 0x41], &[0x65, 0x4C, 0x0F], &[0xF0, 0x0F], &[0x0F, 0x38], &[0x0F, 0x3A]];
    round_trip(&decoder, &[piece(0x8100_0000, &opcodes(&prefixes), Some(InstructionSet::X86_64))], 4096);
}

/// Returns instructions with every byte after these prefixes or beginnings of opcodes.
fn opcodes(prefixes: &[&[u8]]) -> Vec<u8> {
    let mut code = Vec::new();
    for (prefix, opcode) in prefixes.iter().flat_map(|prefix| (0..=255).map(move |opcode| (prefix, opcode))) {
        for mod_rm in [0x00, 0x05, 0x04, 0x44, 0x84, 0xC8, 0x80] {
            code.extend(*prefix);
            code.extend([opcode, mod_rm, 0x25, 1, 2, 3, 4, 5]);
        }
    }
    code
}

/// Returns distances from themselves to increasing addresses, some of them far apart.
fn distances(random: &mut Random, count: usize) -> Vec<u8> {
    let mut distance = 0xFF70_0000u32;
    let distances = (0..count).flat_map(|_| {
        let most = *[1 << 17, 400].get(random.below(16)).unwrap_or(&8);
        distance = distance.wrapping_add(random.below(most) as u32).wrapping_sub(4);
        distance.to_le_bytes()
    });
    distances.collect()
}

#[test]
fn distances_come_back_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = distances(&mut Random(5), 5001);
    let code = piece(0x8100_0000, &[0x90; 300], Some(InstructionSet::X86_64));
    let data = [piece(0x8200_0000, &bytes, None), piece(0x8300_0000, &bytes[..4003], None)];
    let packed = round_trip(&decoder(dir.path()), &[&[code][..], &data].concat(), 4096);
    let layouts: Vec<Layout> = packed.index.iter().map(|page| page.layout).collect();
    let expected = [Layout::Code].into_iter().chain([Layout::Distances; 5]).chain([Layout::Data]);
    assert_eq!(layouts, Vec::from_iter(expected));
}

#[test]
fn every_thumb_opcode_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let narrow = (0..0xE800u16).flat_map(u16::to_le_bytes);
    let wide = (0xE800..=0xFFFFu16).flat_map(|first| {
        let behind =
            [0x0000, 0x8000, 0x9FFF, 0xC7FF, 0xD000, 0xF2A5, 0x0C7B].map(move |second: u16| [first, second]);
        behind.into_iter().flatten().flat_map(u16::to_le_bytes)
    });
    let code: Vec<u8> = narrow.chain(wide).collect();
    let piece = piece(0xC010_0000, &code, Some(InstructionSet::Thumb));
    round_trip(&decoder(dir.path()), &[piece], 4096);
}

#[test]
fn every_arm_opcode_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let words =
        (0..=0xFFFu32).flat_map(|upper| [0, 0xF_FFFF, 0x1_2394, 0xF_0008].map(|lower| upper << 20 | lower));
    let code: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let piece = piece(0xC010_0000, &code, Some(InstructionSet::Arm));
    round_trip(&decoder(dir.path()), &[piece], 4096);
}

#[test]
fn code_of_two_instruction_sets_is_refused() {
    let pieces = [InstructionSet::I386, InstructionSet::Thumb].map(|set| piece(0, &[0; 100], Some(set)));
    assert!(pack(&pieces, 4096).unwrap_err().to_string().contains("several instruction sets"));
}

#[test]
fn nothing_is_packed_into_nothing() {
    let packed = pack(&[piece(0, &[], Some(InstructionSet::I386)), piece(0, &[], None)], 4096).unwrap();
    assert!(packed.segments.is_empty() && packed.code.is_none() && packed.data.is_none());
    let file = packed.write().unwrap();
    assert_eq!(decode_in_rust(&file), Some(vec![]));
    assert_eq!(packed.page(0).unwrap_err().to_string(), "there is no such page");
}

#[test]
fn a_page_that_does_not_become_smaller_is_kept_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let packed = round_trip(&decoder(dir.path()), &[piece(0, &Random(2).bytes(4096), None)], 4096);
    assert_eq!((packed.index[0].layout, packed.streams.len()), (Layout::Plain, 4096));
}

#[test]
fn a_program_becomes_smaller_and_comes_back_at_every_size_of_page() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    for program in [program(dir.path()), program_of_x86_64(dir.path())] {
        let file = std::fs::read(program).unwrap();
        let pieces = sections(&file, &[".text", ".rodata"]).unwrap();
        assert!(pieces[0].code.is_some() && pieces[1].code.is_none());
        becomes_smaller(&decoder, &pieces);
    }
}

fn becomes_smaller(decoder: &std::path::Path, pieces: &[Piece]) {
    for page_size in [256, 4096, 65536] {
        let packed = round_trip(decoder, pieces, page_size);
        let size: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        assert!(packed.sizes().total() * 100 < size * 75, "{:?} of {size}", packed.sizes());
        assert_eq!(packed.index.iter().filter(|page| page.layout == Layout::Code).count(), {
            let pages = pieces[0].bytes.len().div_ceil(page_size as usize);
            let plain = packed.index[..pages].iter().filter(|page| page.layout == Layout::Plain);
            pages - plain.count()
        });
    }
}

/// Returns a variant of a packed file, with a correct checksum, so that the decoders are reached.
fn damaged(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(3) {
        let at = 8 + random.below(bytes.len() - 8);
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = [0, 1, 0x7F, 0xFF][random.below(4)],
            _ => {
                let from = 8 + random.below(bytes.len() - 8);
                bytes[at] = bytes[from];
            }
        }
    }
    if random.below(20) == 0 {
        bytes.truncate(40 + random.below(bytes.len() - 40));
    }
    correct_sum(&mut bytes);
    bytes
}

fn correct_sum(file: &mut [u8]) {
    let mut crc = Crc::new();
    crc.update(&file[40..]);
    file[36..40].copy_from_slice(&crc.sum().to_le_bytes());
}

/// Checks that both decoders agree on this many hundreds of damaged files of a program.
fn damage(program: &std::path::Path, set: InstructionSet, hundreds: usize) {
    let file = std::fs::read(program).unwrap();
    let mut pieces = sections(&file, &[".text", ".rodata"]).unwrap();
    assert_eq!(pieces[0].code, Some(set));
    pieces[0].bytes.truncate(5000);
    pieces[1].bytes.truncate(2500);
    if set == InstructionSet::X86_64 {
        pieces[1].bytes.extend(distances(&mut Random(6), 400));
    }
    damage_file(&pack(&pieces, 512).unwrap().write().unwrap(), hundreds);
}

/// Checks that both decoders agree on this many hundreds of damaged variants of a packed file.
pub fn damage_file(file: &[u8], hundreds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let mut random = Random(3);
    let (mut refused, mut pages, mut broken) = (0, 0, 0);
    for _ in 0..hundreds {
        let variants: Vec<Vec<u8>> = (0..100).map(|_| damaged(file, &mut random)).collect();
        for (variant, in_c) in variants.iter().zip(decode_in_c(&decoder, &variants)) {
            let in_rust = decode_in_rust(variant);
            assert!(in_c == in_rust, "they differ: {:?}", first_difference(&in_c, &in_rust));
            match in_c {
                None => refused += 1,
                Some(decoded) => {
                    pages += decoded.len();
                    broken += decoded.iter().filter(|page| page.is_none()).count();
                }
            }
        }
    }
    // Damage is detected in the tables and in pages, and does not affect most pages.
    assert!(refused > 10 * hundreds && refused < 90 * hundreds, "{refused} refused");
    assert!(broken > 10 * hundreds && broken < pages / 2, "{broken} of {pages} pages");
}

#[test]
fn both_decoders_say_the_same_of_damaged_i386_files() {
    let dir = tempfile::tempdir().unwrap();
    damage(&program(dir.path()), InstructionSet::I386, 100);
}

#[test]
fn both_decoders_say_the_same_of_damaged_x86_64_files() {
    let dir = tempfile::tempdir().unwrap();
    damage(&program_of_x86_64(dir.path()), InstructionSet::X86_64, 100);
}

#[test]
fn both_decoders_say_the_same_of_damaged_thumb_files() {
    let dir = tempfile::tempdir().unwrap();
    damage(&arm_program(dir.path(), "-mthumb"), InstructionSet::Thumb, 100);
}

#[test]
fn both_decoders_say_the_same_of_damaged_arm_files() {
    let dir = tempfile::tempdir().unwrap();
    damage(&arm_program(dir.path(), "-marm"), InstructionSet::Arm, 100);
}

#[test]
fn the_position_of_a_branch_has_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let code = std::fs::read(arm_program(dir.path(), "-mthumb")).unwrap();
    let packed = pack(&sections(&code, &[".text"]).unwrap(), 512).unwrap();
    let mut file = packed.write().unwrap();
    let formats = 40 + 12 * packed.segments.len() + 4 * (packed.index.len() + 1) + 24;
    let count = u32::from_le_bytes(file[formats - 8..formats - 4].try_into().unwrap()) as usize;
    let parts = file[formats..formats + 16 * count].chunks_exact_mut(2);
    // Parts of field 5, after the head of each format.
    let branches = parts.enumerate().filter(|(index, part)| index % 8 != 0 && part[1] >> 2 == 5);
    assert!(branches.map(|(_, part)| part[0] ^= 1).count() > 0);
    correct_sum(&mut file);
    let expected = decode_in_rust(&packed.write().unwrap());
    assert_eq!(decode_in_rust(&file), expected);
    assert_eq!(decode_in_c(&decoder(dir.path()), &[file]), [expected]);
}

#[test]
fn the_decoder_compiled_for_arm_does_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder_for_arm(dir.path());
    for set in ["-mthumb", "-marm"] {
        let file = std::fs::read(arm_program(dir.path(), set)).unwrap();
        round_trip(&decoder, &sections(&file, &[".text", ".rodata"]).unwrap(), 1024);
    }
    // It has no decoder for other machines.
    for set in [InstructionSet::I386, InstructionSet::X86_64] {
        let file = pack(&[piece(0, &[0x90; 600], Some(set))], 256).unwrap().write().unwrap();
        assert_eq!(decode_in_c(&decoder, &[file]), [None]);
    }
}

fn first_difference(one: &Decoded, other: &Decoded) -> String {
    match (one, other) {
        (Some(one), Some(other)) => {
            let page = one.iter().zip(other).position(|(one, other)| one != other);
            format!("page {page:?}")
        }
        _ => format!("opened: {} in C, {} in Rust", one.is_some(), other.is_some()),
    }
}

#[test]
fn a_damaged_file_is_refused_by_its_checksum() {
    let file = pack(&[piece(0, b"what is packed", None)], 4096).unwrap().write().unwrap();
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        assert!(Packed::read(&damaged).is_err(), "byte {at}");
        assert!(Packed::read(&file[..at]).is_err(), "{at} bytes");
    }
}
