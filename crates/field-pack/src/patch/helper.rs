//! The accessors besides those that read and write.

use super::accessors::Compressed;
use crate::document::Scheme;

/// An accessor besides those that read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Helper {
    /// Changes the value by an operator of C.
    Operator(&'static str),
    /// Reads the value at this place, and once: `READ_ONCE`.
    Once,
    /// Reads the value before later accesses.
    Acquire,
    /// Writes the value after earlier accesses.
    Release,
    /// Replaces the value if it is the expected one, atomically.
    Exchange,
    /// Replaces some bits of the value atomically.
    MaskBits,
    /// Reads the value of an object that may not be mapped.
    NoFault,
}

/// The operators that change a member, with the words for them in the names of accessors.
const OPERATORS: [(&str, &str); 6] =
    [("|", "or"), ("&", "and"), ("^", "xor"), ("+", "add"), ("-", "sub"), ("<<", "shift")];

impl Helper {
    /// Returns the word for it in the name of an accessor.
    pub fn word(self) -> &'static str {
        match self {
            Helper::Operator(operator) => {
                OPERATORS.iter().find(|(found, _)| *found == operator).map_or("", |(_, word)| *word)
            }
            Helper::Once => "once",
            Helper::Acquire => "acquire",
            Helper::Release => "release",
            Helper::Exchange => "exchange",
            Helper::MaskBits => "set_mask_bits",
            Helper::NoFault => "nofault",
        }
    }

    /// Returns the name of the accessor.
    pub fn accessor(self, of: &str, member: &str) -> String {
        format!("kf_{}_{of}_{member}", self.word())
    }

    /// Returns the accessor for an operator. Operators whose result depends on more than the low bits have none.
    pub fn of_operator(operator: &str) -> Result<Helper, &'static str> {
        let found = OPERATORS.iter().find(|(found, _)| *found == operator);
        found
            .map(|(operator, _)| Helper::Operator(operator))
            .ok_or("an operator without an accessor changes it")
    }
}

/// Returns the name of the function that reads a member.
pub fn getter(of: &str, member: &str) -> String {
    format!("kf_{of}_{member}")
}

/// Returns the name of the function that writes a member.
pub fn setter(of: &str, member: &str) -> String {
    format!("kf_set_{of}_{member}")
}

impl Compressed {
    /// Returns an accessor besides those that read and write.
    pub(super) fn helper(&self, helper: Helper) -> String {
        let (of, name, of_value) = (&self.of, &self.name, &self.type_text());
        let space = if of_value.ends_with('*') { "" } else { " " };
        let (getter, setter, accessor) = (getter(of, name), setter(of, name), helper.accessor(of, name));
        let field = &self.field;
        match helper {
            Helper::NoFault if matches!(self.scheme, Scheme::Absent { .. }) => {
                return format!(
                    "\n#define {accessor}(value, object) ({{ (value) = {getter}(object); 0L; }})\n"
                );
            }
            Helper::NoFault => {
                return format!(
                    "
#define {accessor}(value, object)				\\
({{								\\
	typeof((object)->kf_{field}) kf_code;			\\
	long kf_error = get_kernel_nofault(kf_code, &(object)->kf_{field}); \\
								\\
	if (!kf_error)						\\
		(value) = {getter}(object);			\\
	kf_error;						\\
}})
"
                );
            }
            Helper::Exchange => {
                let number = self.to_number();
                let exchange = format!(
                    "kf_exchange(&{of}->kf_{field}, &{}, {}, {number})",
                    self.member(),
                    number.replace("value", "old")
                );
                let found = self.of_number(&exchange);
                return format!(
                    "\nstatic inline {of_value}{space}{accessor}(struct {of} *{of}, {of_value}{space}old, \
                     {of_value}{space}value)\n{{\n\treturn {found};\n}}\n"
                );
            }
            Helper::MaskBits => {
                let number = |name: &str| self.to_number().replace("value", name);
                return format!(
                    "
static inline {of_value}{space}{accessor}(struct {of} *{of}, {of_value}{space}mask, {of_value}{space}bits)
{{
	{of_value}{space}old, value;

	do {{
		old = {getter}({of});
		value = (old & ~mask) | bits;
	}} while (kf_exchange(&{of}->kf_{field}, &{}, {}, {}) != {});
	return old;
}}
",
                    self.member(),
                    number("old"),
                    number("value"),
                    number("old")
                );
            }
            _ => {}
        }
        let (object, body) = match helper {
            Helper::Once => ("const ", format!("\tbarrier();\n\treturn {getter}({of});\n")),
            Helper::Acquire => (
                "const ",
                format!("\t{of_value}{space}value = {getter}({of});\n\n\tsmp_mb();\n\treturn value;\n"),
            ),
            Helper::Operator(operator) => {
                ("", format!("\treturn {setter}({of}, {getter}({of}) {operator} value);\n"))
            }
            _ => ("", format!("\tsmp_mb();\n\treturn {setter}({of}, value);\n")),
        };
        let value = match helper {
            Helper::Once | Helper::Acquire => String::new(),
            _ => format!(", {of_value}{space}value"),
        };
        format!(
            "\nstatic inline {of_value}{space}{accessor}({object}struct {of} *{of}{value})\n{{\n{body}}}\n"
        )
    }
}
