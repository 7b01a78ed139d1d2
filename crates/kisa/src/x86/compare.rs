//! Instructions that check the contents of a word in memory.

use super::registers::{EBP, ESP};
use crate::Reg;

/// See [`crate::Rewritable::encode_load_word`]: `mov displacement(%base),%dst`. For 32-bit code only.
pub(super) fn load_word(bits: u32, dst: Reg, base: Reg, displacement: u8, out: &mut Vec<u8>) -> bool {
    // A displacement of one byte is signed; %esp takes one byte more.
    if bits != 32 || base == ESP || displacement > i8::MAX as u8 {
        return false;
    }
    let registers = dst.0 << 3 | base.0;
    match displacement {
        0 if base != EBP => out.extend([0x8b, registers]),
        _ => out.extend([0x8b, 0x40 | registers, displacement]),
    }
    true
}

/// See [`crate::Rewritable::encode_compare`]: `cmp $number,%reg`, in its shortest form. For 32-bit code only.
pub(super) fn compare(bits: u32, reg: Reg, number: u32, out: &mut Vec<u8>) -> bool {
    if bits != 32 {
        return false;
    }
    match i8::try_from(number as i32) {
        // test %reg,%reg
        Ok(0) => out.extend([0x85, 0xc0 | reg.0 << 3 | reg.0]),
        Ok(short) => out.extend([0x83, 0xf8 | reg.0, short as u8]),
        Err(_) => {
            out.extend([0x81, 0xf8 | reg.0]);
            out.extend(number.to_le_bytes());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::registers::{EAX, EDX};
    use super::super::{I386, X86_64};
    use super::*;
    use crate::{Encoding, Isa, Rewritable};

    fn text(bytes: &[u8]) -> String {
        assert_eq!(I386.decode(bytes, Encoding::Main.at(0)).map(|inst| inst.bytes.len()), Some(bytes.len()));
        I386.format(bytes, Encoding::Main.at(0))
    }

    #[test]
    fn words_are_loaded() {
        let load = |dst, base, displacement| {
            let mut bytes = Vec::new();
            I386.encode_load_word(Encoding::Main, dst, base, displacement, &mut bytes).then(|| text(&bytes))
        };
        assert_eq!(load(EDX, EAX, 0).as_deref(), Some("mov (%eax),%edx"));
        assert_eq!(load(EDX, EAX, 20).as_deref(), Some("mov 0x14(%eax),%edx"));
        assert_eq!(load(EAX, EBP, 0).as_deref(), Some("mov (%ebp),%eax"));
        assert_eq!((load(EDX, ESP, 4), load(EDX, EAX, 128)), (None, None));
        assert!(!X86_64.encode_load_word(Encoding::Main, EDX, EAX, 0, &mut Vec::new()));
    }

    #[test]
    fn comparisons_are_short() {
        let compare = |number| {
            let mut bytes = Vec::new();
            assert!(I386.encode_compare(Encoding::Main, EDX, number, None, &mut bytes));
            (text(&bytes), bytes.len())
        };
        assert_eq!(compare(0), ("test %edx,%edx".to_owned(), 2));
        assert_eq!(compare(8), ("cmp $8,%edx".to_owned(), 3));
        assert_eq!(compare(u32::MAX).1, 3);
        assert_eq!(compare(0x80), ("cmp $0x80,%edx".to_owned(), 6));
        assert!(!X86_64.encode_compare(Encoding::Main, EDX, 0, None, &mut Vec::new()));
    }
}
