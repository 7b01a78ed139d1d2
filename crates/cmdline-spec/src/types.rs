//! Simple types of parameters, whose operations only parse a value and store it.

use std::fmt;

/// A simple type, by its operations (`param_ops_int`, kernel/params.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimpleType {
    /// An integer.
    Integer {
        /// Its name.
        name: &'static str,
        /// Size in bytes; 0 for a word.
        size: u8,
        /// Whether it can be negative.
        signed: bool,
    },
    /// `bool`.
    Bool,
    /// A `bool` that is inverted.
    InvertedBool,
}

const INTEGERS: &[SimpleType] = &[
    SimpleType::Integer { name: "byte", size: 1, signed: false },
    SimpleType::Integer { name: "short", size: 2, signed: true },
    SimpleType::Integer { name: "ushort", size: 2, signed: false },
    SimpleType::Integer { name: "int", size: 4, signed: true },
    SimpleType::Integer { name: "uint", size: 4, signed: false },
    SimpleType::Integer { name: "hexint", size: 4, signed: false },
    SimpleType::Integer { name: "long", size: 0, signed: true },
    SimpleType::Integer { name: "ulong", size: 0, signed: false },
    SimpleType::Integer { name: "ullong", size: 8, signed: false },
];

impl SimpleType {
    /// Returns the type with these operations; `None` if it is not simple.
    pub fn of_operations(operations: &str) -> Option<SimpleType> {
        match operations.strip_prefix("param_ops_")? {
            "bool" => Some(SimpleType::Bool),
            "invbool" => Some(SimpleType::InvertedBool),
            other => INTEGERS.iter().copied().find(|integer| integer.to_string() == other),
        }
    }

    /// Returns the signed integer type of a size in bytes; `None` if there is none.
    pub fn of_size(size: u64) -> Option<SimpleType> {
        let size = u8::try_from(size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
        Some(SimpleType::Integer { name: "integer", size, signed: true })
    }

    /// Its size in bytes on a machine with words of this size.
    pub fn size(self, word: u8) -> u8 {
        match self {
            SimpleType::Integer { size: 0, .. } => word,
            SimpleType::Integer { size, .. } => size,
            SimpleType::Bool | SimpleType::InvertedBool => 1,
        }
    }

    /// Returns the value that the kernel stores for a value on the command line (`None`: the parameter stands alone).
    ///
    /// # Errors
    /// The reason why the kernel does not accept it.
    pub fn parse(self, value: Option<&str>, word: u8) -> Result<i64, String> {
        let problem = |value: &str| format!("`{value}` is not a valid {self}");
        match (self, value) {
            (SimpleType::Bool, None) => Ok(1),
            (_, None) => Err(format!("it requires a value of type {self}")),
            (SimpleType::Bool, Some(value)) => truth(value).map(i64::from).ok_or_else(|| problem(value)),
            (SimpleType::InvertedBool, Some(value)) => {
                truth(value).map(|truth| i64::from(!truth)).ok_or_else(|| problem(value))
            }
            (SimpleType::Integer { signed, .. }, Some(value)) => {
                let number = number(value).ok_or_else(|| problem(value))?;
                let bits = 8 * u32::from(self.size(word));
                let (least, greatest) = match signed {
                    true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                    false => (0, (1i128 << bits) - 1),
                };
                let fits = (least..=greatest).contains(&number).then_some(number);
                fits.and_then(|number| i64::try_from(number).ok())
                    .ok_or_else(|| format!("`{value}` is out of the range of {self}"))
            }
        }
    }

    /// Returns the value of a variable in human-readable form.
    pub fn present(self, bytes: &[u8]) -> String {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let number = u64::from_le_bytes(wide);
        match self {
            SimpleType::Bool => if number == 0 { "N" } else { "Y" }.to_owned(),
            SimpleType::InvertedBool => if number == 0 { "Y" } else { "N" }.to_owned(),
            SimpleType::Integer { name: "hexint", .. } => format!("{number:#x}"),
            SimpleType::Integer { signed: true, .. } => {
                let shift = 64 - 8 * bytes.len().clamp(1, 8) as u32;
                (((number << shift) as i64) >> shift).to_string()
            }
            SimpleType::Integer { .. } => number.to_string(),
        }
    }
}

impl fmt::Display for SimpleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SimpleType::Integer { name, .. } => name,
            SimpleType::Bool => "bool",
            SimpleType::InvertedBool => "invbool",
        })
    }
}

/// `kstrtobool` (lib/kstrtox.c).
fn truth(value: &str) -> Option<bool> {
    let mut chars = value.bytes().map(|byte| byte.to_ascii_lowercase());
    match (chars.next()?, chars.next()) {
        (b'y' | b't' | b'1', _) | (b'o', Some(b'n')) => Some(true),
        (b'n' | b'f' | b'0', _) | (b'o', Some(b'f')) => Some(false),
        _ => None,
    }
}

/// `kstrtoll` and `kstrtoull` with base 0 (lib/kstrtox.c): hexadecimal with `0x`, octal with `0`, else decimal.
fn number(value: &str) -> Option<i128> {
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, value.strip_prefix('+').unwrap_or(value)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, base) =
        match hexadecimal.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit())) {
            Some(digits) => (digits, 16),
            None if digits.starts_with('0') => (digits, 8),
            None => (digits, 10),
        };
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, base).ok().filter(|_| plain)?;
    Some(sign * i128::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(operations: &str, value: &str) -> Result<i64, String> {
        SimpleType::of_operations(operations).expect("a simple type").parse(Some(value), 4)
    }

    #[test]
    fn numbers_are_as_the_kernel_has_them() {
        for (value, number) in [("10", 10), ("-1", -1), ("+7", 7), ("0x1F", 31), ("010", 8), ("0", 0)] {
            assert_eq!(parse("param_ops_int", value), Ok(number), "{value}");
        }
        for value in ["", "-", "--1", "+-1", "1k", " 1", "0x", "09", "1_0"] {
            assert!(parse("param_ops_int", value).is_err(), "{value}");
        }
    }

    #[test]
    fn ranges_are_those_of_the_type() {
        assert_eq!(parse("param_ops_int", "2147483647"), Ok(i64::from(i32::MAX)));
        assert!(parse("param_ops_int", "2147483648").unwrap_err().contains("out of the range of int"));
        assert_eq!(parse("param_ops_uint", "4294967295"), Ok(i64::from(u32::MAX)));
        assert_eq!(parse("param_ops_ulong", "0xffffffff"), Ok(i64::from(u32::MAX)));
        assert!(parse("param_ops_byte", "-1").is_err() && parse("param_ops_short", "32768").is_err());
    }

    #[test]
    fn truths() {
        let bool = SimpleType::Bool;
        for (value, truth) in [("Y", 1), ("on", 1), ("1", 1), ("true", 1), ("off", 0), ("n", 0), ("0x1", 0)] {
            assert_eq!(bool.parse(Some(value), 4), Ok(truth), "{value}");
        }
        assert_eq!(bool.parse(None, 4), Ok(1));
        assert!(bool.parse(Some("2"), 4).is_err() && bool.parse(Some(""), 4).is_err());
        assert_eq!(SimpleType::InvertedBool.parse(Some("n"), 4), Ok(1));
        assert!(SimpleType::InvertedBool.parse(None, 4).unwrap_err().contains("requires a value"));
    }

    #[test]
    fn values_for_people() {
        let present =
            |operations, bytes: &[u8]| SimpleType::of_operations(operations).unwrap().present(bytes);
        assert_eq!(present("param_ops_int", &[0xff, 0xff, 0xff, 0xff]), "-1");
        assert_eq!(present("param_ops_uint", &[0xff, 0xff, 0xff, 0xff]), "4294967295");
        assert_eq!(present("param_ops_hexint", &[0x10, 0, 0, 0]), "0x10");
        assert_eq!(
            (present("param_ops_bool", &[1]), present("param_ops_invbool", &[1])),
            ("Y".into(), "N".into())
        );
        assert_eq!(SimpleType::of_operations("param_ops_charp"), None);
        assert_eq!(SimpleType::of_operations("param_array_ops"), None);
    }
}
