//! Instructions that check the contents of four bytes in memory.

use super::registers::{EBP, ESP};
use crate::Reg;

/// The low three bits of a register's number, which instructions hold apart from the highest.
const LOW: u8 = 7;

/// Appends the prefix for registers from `%r8` on in the two fields of an instruction, if it needs one.
fn prefix(reg: Reg, rm: Reg, out: &mut Vec<u8>) {
    let (reg, rm) = (reg.0 >> 3 & 1, rm.0 >> 3 & 1);
    if reg | rm != 0 {
        out.push(0x40 | reg << 2 | rm);
    }
}

/// See [`crate::Rewritable::encode_load_word`]: `mov displacement(%base),%dst`.
pub(super) fn load_word(dst: Reg, base: Reg, displacement: u8, out: &mut Vec<u8>) -> bool {
    // A displacement of one byte is signed; %esp and %r12 take one byte more.
    if base.0 & LOW == ESP.0 || displacement > i8::MAX as u8 {
        return false;
    }
    prefix(dst, base, out);
    let registers = (dst.0 & LOW) << 3 | base.0 & LOW;
    match displacement {
        0 if base.0 & LOW != EBP.0 => out.extend([0x8b, registers]),
        _ => out.extend([0x8b, 0x40 | registers, displacement]),
    }
    true
}

/// See [`crate::Rewritable::encode_compare`]: `cmp $number,%reg`, in its shortest form.
pub(super) fn compare(reg: Reg, number: u32, out: &mut Vec<u8>) -> bool {
    let low = reg.0 & LOW;
    match i8::try_from(number as i32) {
        // test %reg,%reg
        Ok(0) => {
            prefix(reg, reg, out);
            out.extend([0x85, 0xc0 | low << 3 | low]);
        }
        Ok(short) => {
            prefix(Reg(0), reg, out);
            out.extend([0x83, 0xf8 | low, short as u8]);
        }
        Err(_) => {
            prefix(Reg(0), reg, out);
            out.extend([0x81, 0xf8 | low]);
            out.extend(number.to_le_bytes());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::registers::{EAX, EDI, EDX, R11, R12, R13};
    use super::super::{I386, X86, X86_64};
    use super::*;
    use crate::{Encoding, Isa, Rewritable};

    fn text(isa: &X86, bytes: &[u8]) -> String {
        assert_eq!(isa.decode(bytes, Encoding::Main.at(0)).map(|inst| inst.bytes.len()), Some(bytes.len()));
        isa.format(bytes, Encoding::Main.at(0))
    }

    #[test]
    fn words_are_loaded() {
        let load = |isa: &X86, dst, base, displacement| {
            let mut bytes = Vec::new();
            isa.encode_load_word(Encoding::Main, dst, base, displacement, &mut bytes)
                .then(|| text(isa, &bytes))
        };
        assert_eq!(load(&I386, EDX, EAX, 0).as_deref(), Some("mov (%eax),%edx"));
        assert_eq!(load(&I386, EDX, EAX, 20).as_deref(), Some("mov 0x14(%eax),%edx"));
        assert_eq!(load(&I386, EAX, EBP, 0).as_deref(), Some("mov (%ebp),%eax"));
        assert_eq!((load(&I386, EDX, ESP, 4), load(&I386, EDX, EAX, 128)), (None, None));
        assert_eq!(load(&X86_64, R11, EDI, 0x70).as_deref(), Some("mov 0x70(%rdi),%r11d"));
        assert_eq!(load(&X86_64, EDX, R13, 0).as_deref(), Some("mov (%r13),%edx"));
        assert_eq!(load(&X86_64, EDX, R12, 0), None);
    }

    #[test]
    fn comparisons_are_short() {
        let compare = |isa: &X86, reg, number| {
            let mut bytes = Vec::new();
            assert!(isa.encode_compare(Encoding::Main, reg, number, None, &mut bytes));
            (text(isa, &bytes), bytes.len())
        };
        assert_eq!(compare(&I386, EDX, 0), ("test %edx,%edx".to_owned(), 2));
        assert_eq!(compare(&I386, EDX, 8), ("cmp $8,%edx".to_owned(), 3));
        assert_eq!(compare(&I386, EDX, u32::MAX).1, 3);
        assert_eq!(compare(&I386, EDX, 0x80), ("cmp $0x80,%edx".to_owned(), 6));
        assert_eq!(compare(&X86_64, R11, 0), ("test %r11d,%r11d".to_owned(), 3));
        assert_eq!(compare(&X86_64, R11, 0x80), ("cmp $0x80,%r11d".to_owned(), 7));
        assert_eq!(compare(&X86_64, R11, 7), ("cmp $7,%r11d".to_owned(), 4));
    }
}
