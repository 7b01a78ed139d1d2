//! The section `params`: the boot parameters that the kernel's command line names, those that it does not, and the
//! variables with fixed values.
//!
//! Only the parameters in `unnamed` may be removed, and only the variables in `fixed` may be set. A parameter in no
//! list is left unchanged.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// The expected command line, as the kernel assembles it, including the built-in part.
    pub command_line: String,
    /// The reaction to a command line that names a removed parameter or gives a fixed one another value.
    pub on_mismatch: OnMismatch,
    /// The words of the command line that name kernel parameters, in order.
    pub named: Vec<NamedParameter>,
    /// Parameters that no word names and that may be removed.
    pub unnamed: Vec<ParameterName>,
    /// Variables with fixed values.
    pub fixed: Vec<FixedVariable>,
    /// Parameters and variables that were to be removed or fixed but are kept, with the reason; for people.
    pub kept: Vec<KeptParameter>,
}

/// The reaction of a rewritten kernel to a command line other than the planned one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMismatch {
    /// Prints a warning on the console, once for each parameter, and continues.
    #[default]
    Warn,
    /// Prints a message and stops (`panic`).
    Panic,
}

/// The kind of a parameter's table entry, by the macro that creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterTable {
    /// `early_param`
    Early,
    /// `__setup`
    Setup,
    /// `core_param`
    Core,
    /// `module_param`
    Module,
}

/// A word of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedParameter {
    /// The text before `=`, or the whole word.
    pub name: String,
    /// The text after `=`, without quotes; absent without `=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The parameters that the word names. A word may name several: `console=` also names those that begin with it.
    pub parameters: Vec<ParameterName>,
}

/// The name of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ParameterName {
    /// Its name in the table: `quiet`, `console=`, `printk.time`.
    pub name: String,
    /// The kind of its entry.
    pub table: ParameterTable,
}

/// A variable with a fixed value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedVariable {
    /// Its symbol.
    pub variable: String,
    /// For a local symbol, the source file (`STT_FILE`) under which the symbol table lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Its value.
    pub value: i64,
    /// The parameter that sets it; its table entry is removed as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<NamedWord>,
    /// Whether to set it even if the program may write to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forced: bool,
}

/// A parameter as given by a word of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedWord {
    /// Its name in the table.
    pub name: String,
    /// The value; absent if the word has no `=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A parameter or variable that is kept unchanged, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptParameter {
    /// Its name.
    pub name: String,
    /// The reason.
    pub why: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl ParameterTable {
    /// Returns its name in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            ParameterTable::Early => "early",
            ParameterTable::Setup => "setup",
            ParameterTable::Core => "core",
            ParameterTable::Module => "module",
        }
    }
}

impl fmt::Display for ParameterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NamedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_reads_as_written() {
        let text = r#"{"command_line":"console=ttyS0 foo.debug","on_mismatch":"warn",
            "named":[{"name":"console","value":"ttyS0","parameters":[{"name":"console=","table":"setup"}]}],
            "unnamed":[{"name":"quiet","table":"early"}],
            "fixed":[{"variable":"debug","file":"foo.c","size":4,"value":-1,"parameter":{"name":"foo.debug"}}],
            "kept":[{"name":"panic","why":"sysfs"}]}"#;
        let params: Params = serde_json::from_str(text).unwrap();
        assert_eq!(params.on_mismatch, OnMismatch::Warn);
        assert_eq!(params.fixed[0].parameter.as_ref().unwrap().to_string(), "foo.debug");
        assert!(!params.fixed[0].forced);
        let again = serde_json::to_string(&params).unwrap();
        assert_eq!(serde_json::from_str::<Params>(&again).unwrap(), params);
        assert_eq!(again, text.replace(['\n'], "").replace("            ", ""));
    }

    #[test]
    fn misspelt_fields_are_errors() {
        let read = |text| serde_json::from_str::<Params>(text).unwrap_err().to_string();
        let error = read(r#"{"command_line":"","on_mismatch":"stop"}"#);
        assert!(error.contains("unknown variant `stop`, expected `warn` or `panic`"), "{error}");
        let error =
            read(r#"{"command_line":"","on_mismatch":"warn","named":[],"unamed":[],"fixed":[],"kept":[]}"#);
        assert!(error.contains("missing field `unnamed`"), "{error}");
        let read = |text| serde_json::from_str::<ParameterName>(text).unwrap_err().to_string();
        assert!(read(r#"{"name":"quiet"}"#).contains("missing field `table`"));
        assert!(read(r#"{"name":"quiet","table":"late"}"#).contains("unknown variant `late`"));
    }
}
