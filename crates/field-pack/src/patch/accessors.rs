//! The functions that read and write a member by its code.

use std::fmt::Write;

use super::helper::{Helper, getter, setter};
use super::structure::Type;
use crate::document::{Place, Scheme, Value};
use crate::scan::MemberKind;

/// A member with its new form.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// The structure.
    pub of: String,
    /// The name.
    pub name: String,
    /// The name of the member that its code has: another one, if it shares the code with that member in a union.
    pub field: String,
    /// The type, as it is declared.
    pub of_value: Type,
    /// Size of a value in bytes.
    pub bytes: u64,
    /// Size of a pointer in bytes.
    pub word: u64,
    /// The kind of its values.
    pub kind: MemberKind,
    /// The new form.
    pub scheme: Scheme,
    /// The first code that is not used, if the code of all ones is not the first one.
    pub limit: Option<u64>,
    /// The accessors that it needs besides those that read and write it.
    pub helpers: Vec<Helper>,
}

impl Compressed {
    /// Returns the type of the code; `None` for a member that is not stored.
    ///
    /// # Errors
    /// The reason why the form is not possible.
    pub fn code(&self) -> Result<Option<&'static str>, String> {
        let width = self.scheme.width();
        if let Scheme::Absent { .. } = self.scheme {
            return Ok(None);
        }
        if width >= self.bytes {
            return Err(format!("a code of {width} bytes is not shorter than its {} bytes", self.bytes));
        }
        match (&self.scheme, self.bytes) {
            (Scheme::Table { .. } | Scheme::PageTable { .. }, bytes) if bytes > self.word => {
                return Err(format!("a table has no values of {bytes} bytes"));
            }
            (Scheme::PageTable { .. }, _) if self.kind != MemberKind::Pointer => {
                return Err("its values are no pointers".to_owned());
            }
            (Scheme::Own { .. }, _) if self.kind != MemberKind::Pointer => {
                return Err("its values are no pointers".to_owned());
            }
            (Scheme::Narrow { signed: true, .. }, _) if self.kind != MemberKind::Signed => {
                return Err("its values have no sign".to_owned());
            }
            _ => {}
        }
        match width {
            1 => Ok(Some("u8")),
            2 => Ok(Some("u16")),
            4 => Ok(Some("u32")),
            _ => Err(format!("a processor cannot access a code of {width} bytes at once")),
        }
    }

    /// Returns its type in C.
    pub(super) fn type_text(&self) -> String {
        match &self.of_value {
            Type::Name(name) => name.clone(),
            Type::Function(..) => format!("kf_{}_{}_t", self.of, self.name),
        }
    }

    /// Whether it has a code of its own.
    pub(super) fn is_first(&self) -> bool {
        self.name == self.field
    }

    /// Returns the name of its `struct kf_member`.
    pub(super) fn member(&self) -> String {
        format!("kf_member_{}_{}", self.of, self.field)
    }

    /// Returns the name of its table.
    pub(super) fn table(&self) -> String {
        format!("kf_table_{}_{}", self.of, self.field)
    }

    /// Returns the values of its table that are known, and the number of values that it has room for, with the value 0.
    pub(super) fn values(&self) -> (Vec<i128>, u64) {
        match &self.scheme {
            Scheme::Table { values, slots, .. } => {
                let numbers: Vec<i128> = values
                    .iter()
                    .filter_map(|value| match value {
                        Value::Number(number) if *number != 0 => Some(*number),
                        _ => None,
                    })
                    .collect();
                let room = 1 + values.len() as u64 + slots;
                (numbers, room.min(255).min(self.limit.unwrap_or(255)))
            }
            Scheme::PageTable { slots, width, bits, .. } => {
                let room = (1 + slots).min(1 << (8 * width - u64::from(*bits)));
                (Vec::new(), room.min(self.limit.unwrap_or(room)))
            }
            _ => (Vec::new(), 0),
        }
    }

    /// Returns the number of codes in C: the first code that is not used.
    pub(super) fn codes(&self, ones: &str) -> String {
        match (&self.scheme, self.limit) {
            (Scheme::Own { .. }, None) => "2".to_owned(),
            (Scheme::Narrow { .. } | Scheme::Prefix { .. } | Scheme::Own { .. }, Some(limit)) => {
                limit.to_string()
            }
            _ => ones.to_owned(),
        }
    }

    /// Whether its table never changes.
    pub(super) fn is_constant(&self) -> bool {
        let (known, room) = self.values();
        known.len() as u64 + 1 >= room
    }

    /// Returns the declarations and the accessors, to follow the declaration of the structure.
    pub fn accessors(&self, code: Option<&str>) -> String {
        let (of, field, of_value) = (&self.of, &self.field, &self.type_text());
        let (read, write) = self.heads();
        let Some(code) = code else { return self.absent() };
        let ones = format!("{}_MAX", code.to_uppercase());
        let member = self.member();
        let mut text = String::new();
        if let Type::Function(before, after) = &self.of_value {
            let _ = writeln!(text, "typedef {before}{of_value}{after};");
        }
        if self.is_first() {
            let _ = writeln!(text, "extern struct kf_member {member};");
        }
        if self.is_first() && matches!(self.scheme, Scheme::Table { .. } | Scheme::PageTable { .. }) {
            let constant = if self.is_constant() { "const " } else { "" };
            let _ = writeln!(text, "extern {constant}unsigned long {}[];", self.table());
        }
        if let Scheme::Own { place, .. } = &self.scheme {
            return match place {
                Place::Member(_) => text + &self.own(code, &ones),
                Place::Container { .. } => {
                    let (read, write) = self.heads();
                    text + &format!("\n{read};\n{write};\n")
                }
            };
        }
        let load = self.of_number(&format!("kf_load(&{of}->kf_{field}, &{member})"));
        let codes = self.codes(&ones);
        let _ = write!(
            text,
            "
{read}
{{
	{code} code = READ_ONCE({of}->kf_{field});

	if (unlikely(code == {ones}))
		return {load};
	return {};
}}

{write}
{{
",
            self.of_number(&self.decode(code))
        );
        let number = self.to_number();
        match self.scheme {
            Scheme::Narrow { signed: false, .. } => {
                let value = match self.kind {
                    MemberKind::Signed => format!("({}){number}", self.unsigned()),
                    _ => number.clone(),
                };
                let _ = write!(
                    text,
                    "	if (likely({value} < {codes} && READ_ONCE({of}->kf_{field}) != {ones}))
		WRITE_ONCE({of}->kf_{field}, ({code}){number});
	else
		kf_store(&{of}->kf_{field}, &{member}, {number});
"
                );
            }
            _ => {
                let _ = writeln!(text, "	kf_store(&{of}->kf_{field}, &{member}, {number});");
            }
        }
        text += "	return value;\n}\n";
        for helper in &self.helpers {
            text += &self.helper(*helper);
        }
        text
    }

    /// Returns the structure after whose declaration the accessors have to be, if it is another one, and the accessors.
    pub fn later(&self, code: Option<&str>) -> Option<(&str, String)> {
        let (Scheme::Own { place: Place::Container { container, .. }, .. }, Some(code)) =
            (&self.scheme, code)
        else {
            return None;
        };
        Some((container, self.own(code, &format!("{}_MAX", code.to_uppercase()))))
    }

    /// Returns the heads of the accessors that read and write.
    fn heads(&self) -> (String, String) {
        let (of, name, of_value) = (&self.of, &self.name, &self.type_text());
        let space = if of_value.ends_with('*') { "" } else { " " };
        (
            // The compiler leaves a read out if nothing depends on it, such as `inode->i_flags & 0`.
            format!("static inline __pure {of_value}{space}{}(const struct {of} *{of})", getter(of, name)),
            format!(
                "static inline {of_value}{space}{}(struct {of} *{of}, {of_value}{space}value)",
                setter(of, name)
            ),
        )
    }

    /// Returns the accessors of a pointer to a place near the object: the code 1 is that pointer.
    fn own(&self, code: &str, ones: &str) -> String {
        let (of, field, of_value, member) = (&self.of, &self.field, &self.type_text(), self.member());
        let (read, write) = self.heads();
        let place = match &self.scheme {
            Scheme::Own { place: Place::Container { container, member }, .. } => {
                format!("container_of({of}, struct {container}, {member})")
            }
            Scheme::Own { place: Place::Member(member), .. } => format!("&{of}->{member}"),
            _ => String::new(),
        };
        format!(
            "
{read}
{{
	unsigned long code = READ_ONCE({of}->kf_{field});

	if (unlikely(code == {ones}))
		code = kf_load(&{of}->kf_{field}, &{member});
	return code == 1 ? ({of_value}){place} : ({of_value})code;
}}

{write}
{{
	{code} code = value == ({of_value}){place};

	kf_store(&{of}->kf_{field}, &{member}, code ? code : (unsigned long)value);
	return value;
}}
"
        ) + &self.helpers.iter().map(|helper| self.helper(*helper)).collect::<String>()
    }

    /// Returns the accessors of a member that is not stored.
    fn absent(&self) -> String {
        let (of, name, of_value) = (&self.of, &self.name, &self.type_text());
        let space = if of_value.ends_with('*') { "" } else { " " };
        let Scheme::Absent { value } = &self.scheme else { return String::new() };
        let constant = self.of_number(&number(value));
        let (getter, setter) = (getter(of, name), setter(of, name));
        let compared = self.to_number();
        format!(
            "
static inline {of_value}{space}{getter}(const struct {of} *{of})
{{
	return {constant};
}}

static __always_inline {of_value}{space}{setter}(struct {of} *{of}, {of_value}{space}value)
{{
	BUILD_BUG_ON(!__builtin_constant_p({compared}) || {compared} != {});
	return value;
}}
",
            number(value)
        ) + &self.helpers.iter().map(|helper| self.helper(*helper)).collect::<String>()
    }

    /// Returns the expression for the value of the variable `code`.
    fn decode(&self, code: &str) -> String {
        match &self.scheme {
            Scheme::Narrow { signed: true, .. } => format!("(s{})code", &code[1..]),
            Scheme::Prefix { base, shift, .. } => {
                let (cast, suffix) = if self.bytes == 8 { ("(u64)", "ULL") } else { ("", "UL") };
                let shifted =
                    if *shift == 0 { format!("{cast}code") } else { format!("({cast}code << {shift})") };
                format!("code ? {base:#x}{suffix} + {shifted} : 0")
            }
            Scheme::Table { .. } if self.is_constant() => format!("{}[code]", self.table()),
            Scheme::Table { .. } => format!("READ_ONCE({}[code])", self.table()),
            Scheme::PageTable { bits, shift, .. } => {
                let mask = (1u64 << bits) - 1;
                format!("READ_ONCE({}[code >> {bits}]) + ((code & {mask:#x}) << {shift})", self.table())
            }
            _ => "code".to_owned(),
        }
    }

    /// Returns the expression of the member's type for a number.
    pub(super) fn of_number(&self, number: &str) -> String {
        let of_value = &self.type_text();
        let is_simple =
            number.chars().all(|part| part.is_ascii_alphanumeric() || "_[]()&->, ".contains(part))
                && !number.contains(['+', '?']);
        let bracketed = if is_simple { number.to_owned() } else { format!("({number})") };
        match &self.kind {
            MemberKind::Pointer if number == "0" => "NULL".to_owned(),
            MemberKind::Pointer => format!("({of_value})(unsigned long){bracketed}"),
            MemberKind::Wrapper(inner) => format!("({of_value}){{ .{inner} = {number} }}"),
            _ => number.to_owned(),
        }
    }

    /// Returns the expression for the number of the variable `value`, with its sign extended.
    pub(super) fn to_number(&self) -> String {
        match &self.kind {
            MemberKind::Pointer => "(unsigned long)value".to_owned(),
            MemberKind::Wrapper(inner) => format!("value.{inner}"),
            MemberKind::Signed if !matches!(self.scheme, Scheme::Absent { .. }) => "(s64)value".to_owned(),
            _ => "value".to_owned(),
        }
    }

    /// Returns the type of its size without a sign.
    fn unsigned(&self) -> &'static str {
        if self.bytes == 8 { "u64" } else { "u32" }
    }
}

/// Returns a value in C.
fn number(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Symbol(symbol) => format!("(unsigned long)&{symbol}"),
    }
}
