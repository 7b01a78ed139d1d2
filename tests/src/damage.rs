//! Damage to files, determined by a seed, so that a failure can be repeated.

use goblin::elf::Elf;
use goblin::elf::section_header::{SHT_GROUP, SHT_REL, SHT_RELA, SHT_SYMTAB};

use crate::Random;

/// Values that programs are likely to handle wrongly in a field: nothing, everything, the ends of the signed and
/// unsigned ranges, more than the file.
const ABSURD: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_fff0,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

/// Content that is unlikely in a text, or unlikely as often.
const ODD: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"=",
    b"\n",
    b"\0",
    b"\xff",
    b" ",
    b"-",
    b"0",
    b"[[",
    b"{\"a\":",
    b"a {",
    b"null",
    b"\\",
    b"\xc3\xa4",
    b"#",
    b".",
    b"0x",
];

/// The fields of an entry of a table (System V ABI, chapter 4): their offsets and sizes in bytes.
type Fields = &'static [(usize, usize)];

const SECTION_32: Fields =
    &[(0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 4), (24, 4), (28, 4), (32, 4), (36, 4)];
const SECTION_64: Fields =
    &[(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8)];
const SYMBOL_32: Fields = &[(0, 4), (4, 4), (8, 4), (12, 1), (13, 1), (14, 2)];
const SYMBOL_64: Fields = &[(0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8)];
/// The type of a relocation is the lowest byte of its second word, or the whole word, and the symbol the rest.
const REL: Fields = &[(0, 4), (4, 1), (5, 3)];
const RELA: Fields = &[(0, 8), (8, 4), (12, 4), (16, 8)];
const GROUP: Fields = &[(0, 4)];
/// With `SHT_REL`, addends are in the relocated fields.
const ADDEND: Fields = &[(0, 4)];

/// One kind of damage to one file.
pub struct Damage(Random);

impl Damage {
    /// Creates the damage of a seed.
    pub fn new(seed: u64) -> Damage {
        Damage(Random::new(seed))
    }

    /// Damages a program. Its header and the table of segments after it are hit more often than the rest.
    pub fn to_program(mut self, bytes: Vec<u8>) -> Vec<u8> {
        match self.below(6) {
            1 => self.flip_in_front(bytes, 0x1c0),
            3 => {
                let at = 0x10 + 4 * self.below(0x70);
                self.overwrite_word(bytes, at)
            }
            kind => self.anywhere(kind, bytes),
        }
    }

    /// Damages a relocatable object. Its header and its tables (sections, symbols, relocations, groups) are hit more
    /// often than the rest.
    pub fn to_object(mut self, bytes: Vec<u8>) -> Vec<u8> {
        match self.below(12) {
            kind @ (0 | 2 | 4 | 5) => self.anywhere(kind, bytes),
            1 => self.flip_in_front(bytes, 0x30),
            _ => self.tables(bytes),
        }
    }

    /// Damages a text: its words, the nesting of its parts, or its bytes.
    pub fn to_text(mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(3) {
            match self.below(8) {
                kind @ (0 | 2 | 5) => bytes = self.anywhere(kind, bytes),
                1 => self.number(&mut bytes),
                3 => {
                    // Replaces a word by another one of the text.
                    let (from, to) = (self.word(&bytes), self.word(&bytes));
                    let word = bytes[from].to_vec();
                    bytes.splice(to, word);
                }
                4 => {
                    let (range, at) = (self.piece(&bytes), self.below(bytes.len() + 1));
                    let piece = bytes[range].to_vec();
                    bytes.splice(at..at, piece);
                }
                6 => drop(bytes.drain(self.piece(&bytes))),
                _ => {
                    let odd = *self.0.pick(ODD);
                    let count = [1, 1, 1, 200, 100_000][self.below(5)];
                    let at = self.below(bytes.len() + 1);
                    bytes.splice(at..at, odd.repeat(count));
                }
            }
        }
        bytes
    }

    /// Replaces a number by another one.
    fn number(&mut self, bytes: &mut Vec<u8>) {
        let digits: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
        if digits.is_empty() {
            return;
        }
        let mut at = digits[self.below(digits.len())];
        while at > 0 && bytes[at - 1].is_ascii_digit() {
            at -= 1;
        }
        let end = (at..bytes.len()).find(|&end| !bytes[end].is_ascii_digit()).unwrap_or(bytes.len());
        let value = ABSURD[self.below(ABSURD.len())];
        let number = match self.below(5) {
            0 => format!("-{value}"),
            1 => format!("{value}.5"),
            2 => format!("{value}000000000000"),
            3 => self.below(5000).to_string(),
            _ => value.to_string(),
        };
        bytes.splice(at..end, number.into_bytes());
    }

    /// Picks a word of letters and digits.
    fn word(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len());
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let rest = &bytes[start.min(bytes.len())..];
        let from = start + rest.iter().position(is_word).unwrap_or(0);
        let length = bytes[from.min(bytes.len())..].iter().take_while(|byte| is_word(byte)).count();
        from..from + length
    }

    /// Picks a piece of at most 64 bytes.
    fn piece(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        start..start + self.below(64).min(bytes.len() - start)
    }

    /// Damages any part of a file.
    fn anywhere(&mut self, kind: usize, mut bytes: Vec<u8>) -> Vec<u8> {
        match kind {
            0 => {
                let length = self.below(bytes.len());
                bytes.truncate(length);
            }
            2 => {
                for _ in 0..=self.below(64) {
                    let at = self.below(bytes.len());
                    self.flip(&mut bytes, at);
                }
            }
            4 => {
                for _ in 0..=self.below(8) {
                    let at = 4 * self.below(bytes.len() / 4);
                    bytes = self.overwrite_word(bytes, at);
                }
            }
            // Copies a piece of the file over another, so that a table may point to itself.
            _ => {
                let length = self.below(64).min(bytes.len());
                let (from, to) = (self.below(bytes.len() - length), self.below(bytes.len() - length));
                bytes.copy_within(from..from + length, to);
            }
        }
        bytes
    }

    /// Flips bits after the magic number, in the first `size` bytes.
    fn flip_in_front(&mut self, mut bytes: Vec<u8>, size: usize) -> Vec<u8> {
        for _ in 0..=self.below(4) {
            let at = 4 + self.below(size);
            self.flip(&mut bytes, at);
        }
        bytes
    }

    /// Changes some fields of one table.
    fn tables(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let tables = tables(&bytes);
        let (fields, entries) = &tables[self.below(tables.len())];
        for _ in 0..=self.below(3) {
            let entry = entries[self.below(entries.len())];
            let (offset, size) = fields[self.below(fields.len())];
            let at = entry + offset;
            match self.below(3) {
                0 => {
                    let at = at + self.below(size);
                    self.flip(&mut bytes, at);
                }
                1 => {
                    let small = self.below(0x200) as u64;
                    put(&mut bytes, at, size, small);
                }
                _ => {
                    let absurd = ABSURD[self.below(ABSURD.len())];
                    put(&mut bytes, at, size, absurd);
                }
            }
        }
        bytes
    }

    fn flip(&mut self, bytes: &mut [u8], at: usize) {
        let bit = self.below(8);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    /// Overwrites a field of 2, 4 or 8 bytes with one of [`ABSURD`].
    fn overwrite_word(&mut self, mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        let value = ABSURD[self.below(ABSURD.len())];
        let size = [2, 4, 8][self.below(3)];
        put(&mut bytes, at, size, value);
        bytes
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.next() as usize % limit.max(1)
    }
}

fn put(bytes: &mut [u8], at: usize, size: usize, value: u64) {
    if let Some(field) = bytes.get_mut(at..at + size) {
        field.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

/// The tables of an object, each with the offsets of its entries in the file.
fn tables(bytes: &[u8]) -> Vec<(Fields, Vec<usize>)> {
    let elf = Elf::parse(bytes).expect("an object that is whole");
    let pick = |fields_32: Fields, fields_64: Fields| if elf.is_64 { fields_64 } else { fields_32 };
    let entries = |offset: u64, size: u64, entry: usize| -> Vec<usize> {
        (offset as usize..(offset + size) as usize).step_by(entry).collect()
    };
    let header = usize::from(elf.header.e_shentsize);
    let size = header * elf.section_headers.len();
    let mut tables = vec![(pick(SECTION_32, SECTION_64), entries(elf.header.e_shoff, size as u64, header))];
    for section in &elf.section_headers {
        let fields = match section.sh_type {
            SHT_SYMTAB => pick(SYMBOL_32, SYMBOL_64),
            SHT_REL => REL,
            SHT_RELA => RELA,
            SHT_GROUP => GROUP,
            _ => continue,
        };
        if section.sh_size > 0 {
            tables.push((fields, entries(section.sh_offset, section.sh_size, section.sh_entsize as usize)));
        }
    }
    for (index, relocs) in &elf.shdr_relocs {
        let header = &elf.section_headers[*index];
        if header.sh_type == SHT_REL && !relocs.is_empty() {
            let content = elf.section_headers[header.sh_info as usize].sh_offset;
            tables.push((ADDEND, relocs.iter().map(|reloc| (content + reloc.r_offset) as usize).collect()));
        }
    }
    tables
}
