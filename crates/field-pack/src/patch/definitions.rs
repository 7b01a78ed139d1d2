//! The descriptions of members for the side table.

use std::fmt::Write;

use super::accessors::Compressed;
use crate::document::Scheme;

impl Compressed {
    /// Returns the definition of its `struct kf_member` and table.
    pub fn definition(&self) -> String {
        if matches!(self.scheme, Scheme::Absent { .. }) || !self.is_first() {
            return String::new();
        }
        let (known, room) = self.values();
        let mut text = String::new();
        let table = self.table();
        if room > 0 {
            let constant = if self.is_constant() { "const " } else { "" };
            let values: String =
                known.iter().take(room as usize - 1).map(|value| format!(", {value:#x}UL")).collect();
            let values = if known.is_empty() { String::new() } else { format!(" = {{ 0{values} }}") };
            let _ = writeln!(text, "{constant}unsigned long {table}[{room}]{values};");
        }
        let (scheme, bits, shift, base) = match &self.scheme {
            Scheme::Narrow { signed: true, .. } => ("KF_NARROW_SIGNED", 0, 0, 0),
            Scheme::Prefix { base, shift, .. } => ("KF_PREFIX", 0, *shift, *base),
            Scheme::Table { .. } => ("KF_TABLE", 0, 0, 0),
            Scheme::PageTable { bits, shift, .. } => ("KF_PAGES", *bits, *shift, 0),
            _ => ("KF_NARROW", 0, 0, 0),
        };
        let _ = write!(
            text,
            "struct kf_member {} = {{\n\t.name = \"{}.{}\",\n\t.scheme = {scheme},\n\t.width = {},\n",
            self.member(),
            self.of,
            self.name,
            self.scheme.width()
        );
        for (field, value) in [("bits", u64::from(bits)), ("shift", shift.into())] {
            if value != 0 {
                let _ = writeln!(text, "\t.{field} = {value},");
            }
        }
        let ones = format!("U{}_MAX", 8 * self.scheme.width());
        let _ = writeln!(text, "\t.codes = {},", self.codes(&ones));
        if base != 0 {
            let _ = writeln!(text, "\t.base = {base:#x}ULL,");
        }
        if room > 0 {
            let cast = if self.is_constant() { "(unsigned long *)" } else { "" };
            let _ = write!(
                text,
                "\t.known = {},\n\t.size = {room},\n\t.table = {cast}{table},\n",
                (known.len() as u64 + 1).min(room)
            );
        }
        text + "};\n\n"
    }

    /// Returns its line in the list of all members.
    pub fn reference(&self) -> String {
        match matches!(self.scheme, Scheme::Absent { .. }) || !self.is_first() {
            true => String::new(),
            false => format!("\t&{},\n", self.member()),
        }
    }

    /// Returns the declaration of its `struct kf_member` and table, for the file that defines them.
    pub fn declaration(&self) -> String {
        let mut text = String::new();
        if matches!(self.scheme, Scheme::Absent { .. }) || !self.is_first() {
            return text;
        }
        let _ = writeln!(text, "extern struct kf_member {};", self.member());
        if self.values().1 > 0 {
            let constant = if self.is_constant() { "const " } else { "" };
            let _ = writeln!(text, "extern {constant}unsigned long {}[];", self.table());
        }
        text
    }
}
