//! The lines of a log: instructions with their numbers of executions, and the part of the log to use.

/// The longest instruction of any machine, in bytes (x86).
const MAX_INSTRUCTION: usize = 15;

/// The part of a log to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// The whole log.
    All,
    /// The time after boot.
    AfterBoot,
}

/// An instruction of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub address: u64,
    bytes: [u8; MAX_INSTRUCTION],
    len: usize,
    pub count: Option<u64>,
    /// Number of executions after boot, if the log records it.
    pub later: Option<u64>,
    /// Whether nothing follows the bytes, as in the second line of a long instruction.
    pub is_bare: bool,
}

impl Instruction {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends the bytes of a unit, which is printed as a number of 1, 2 or 4 bytes, or as bytes in a row. Returns
    /// whether it is valid.
    fn push(&mut self, digits: &[u8], in_a_row: bool) -> bool {
        let size = digits.len() / 2;
        let is_unit = digits.len() % 2 == 0 && matches!(size, 1 | 2 | 4);
        if !(is_unit || in_a_row && size > 0) || self.len + size > MAX_INSTRUCTION {
            return false;
        }
        let start = self.len;
        for pair in digits.chunks_exact(2) {
            let Some(byte) = hexadecimal(pair) else { return false };
            // Two digits are one byte.
            self.bytes[self.len] = byte as u8;
            self.len += 1;
        }
        // All supported machines are little-endian.
        if !in_a_row {
            self.bytes[start..self.len].reverse();
        }
        true
    }
}

/// Parses one line, `0xADDRESS:  BYTES  TEXT`.
pub(super) fn instruction(line: &[u8]) -> Option<Instruction> {
    let line = line.strip_prefix(b"0x")?;
    let colon = line.iter().position(|&byte| byte == b':')?;
    let address = hexadecimal(&line[..colon])?;
    let mut rest = line[colon + 1..].trim_ascii_start();
    // For a machine without a disassembler, QEMU prints the bytes in a row.
    let row = rest.strip_prefix(b"OBJD-T: ");
    rest = row.unwrap_or(rest);
    let bytes = [0; MAX_INSTRUCTION];
    let mut instruction = Instruction { address, bytes, len: 0, count: None, later: None, is_bare: false };
    loop {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        if !instruction.push(digits, row.is_some()) {
            return None;
        }
        // One space separates units; more separate the last one from the text.
        match after {
            [] => {
                instruction.is_bare = true;
                return Some(instruction);
            }
            [b' ', b' ', text @ ..] => {
                let text = text.trim_ascii();
                instruction.is_bare = text.is_empty();
                (instruction.count, instruction.later) = counts(text);
                return Some(instruction);
            }
            [_, next @ ..] => rest = next,
        }
    }
}

/// Parses `ran COUNT` or `ran COUNT later COUNT`.
fn counts(text: &[u8]) -> (Option<u64>, Option<u64>) {
    let Some(counts) = text.strip_prefix(b"ran ") else { return (None, None) };
    let end = counts.iter().position(|&byte| byte == b' ').unwrap_or(counts.len());
    let (count, rest) = counts.split_at(end);
    (decimal(count), rest.strip_prefix(b" later ").and_then(decimal))
}

pub(super) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | u64::from((digit as char).to_digit(16)?)))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<(u64, Vec<u8>, Option<u64>)> {
        let instruction = instruction(line.as_bytes())?;
        Some((instruction.address, instruction.bytes().to_vec(), instruction.count))
    }

    #[test]
    fn lines_of_each_machine() {
        let x86 = "0xc1000117:  81 c4 00 00 00 c0        addl     $0xc0000000, %esp";
        assert_eq!(parsed(x86), Some((0xc100_0117, vec![0x81, 0xc4, 0, 0, 0, 0xc0], None)));
        let full = "0x000fe05b:  2e 66 83 3e c8 61 00 01  addl     %eax, %eax";
        assert_eq!(parsed(full).unwrap().1.len(), 8);
        assert_eq!(parsed("0x000ea3a6:  00 00"), Some((0xe_a3a6, vec![0, 0], None)));
        let arm64 = "0xffff800080000000:  d503201f  nop      ";
        assert_eq!(parsed(arm64), Some((0xffff_8000_8000_0000, vec![0x1f, 0x20, 0x03, 0xd5], None)));
        let thumb = "0xc0008000:  f7ff fffe  bl       #0xc0008000";
        assert_eq!(parsed(thumb).unwrap().1, [0xff, 0xf7, 0xfe, 0xff]);
        // A mnemonic of hexadecimal digits is not one of the bytes.
        assert_eq!(parsed("0xc0008000:  48  dec      %eax").unwrap().1, [0x48]);
        assert_eq!(parsed("0xc0008000:  OBJD-T: 4800").unwrap().1, [0x48, 0]);
        assert_eq!(parsed("0xc1000117:  90  ran 17"), Some((0xc100_0117, vec![0x90], Some(17))));
        assert_eq!(parsed("0xc1000117:  90  ran 17 later 5"), Some((0xc100_0117, vec![0x90], Some(17))));
        assert_eq!(counts(b"ran 17 later 5"), (Some(17), Some(5)));
        assert_eq!((counts(b"ran 17 late"), counts(b"nop")), ((Some(17), None), (None, None)));
    }

    #[test]
    fn other_lines_are_none() {
        for line in
            ["", "IN: ", "----------------", "0x12", "0x12:", "0x12:  nop", "0xg:  90", "Trace 0: 0x7f [0]"]
        {
            assert_eq!(parsed(line), None, "{line}");
        }
        assert_eq!(parsed("0x1:  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"), None);
        assert_eq!(parsed("0x11111111111111111:  90"), None);
    }
}
