//! Names of kernel functions: a name denotes the same function in every build of the same source, wherever the linker
//! put it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a function, without its address, so that it survives a relink.
///
/// Two files may each have a local function of one name, and so may two units with the same file name in different
/// directories. `nth` distinguishes the latter: it counts in the order of the symbol table, which is the link order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionName {
    /// The symbol's name.
    pub name: String,
    /// For a local symbol, the source file (`STT_FILE`) under which the symbol table lists it, such as `open.c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of functions with the same name and file before it in the symbol table.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nth: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl FunctionName {
    /// Creates the name of a global function.
    pub fn global(name: impl Into<String>) -> FunctionName {
        FunctionName { name: name.into(), ..FunctionName::default() }
    }
}

/// `vfs_read`, `open.c:build_open_flags`, or `core.c:init#2` for the third function of that name.
impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        f.write_str(&self.name)?;
        if self.nth != 0 {
            write!(f, "#{}", self.nth)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_not_written() {
        let global = FunctionName::global("vfs_read");
        assert_eq!(serde_json::to_string(&global).unwrap(), r#"{"name":"vfs_read"}"#);
        let local = FunctionName { name: "init".into(), file: Some("core.c".into()), nth: 2 };
        let text = serde_json::to_string(&local).unwrap();
        assert_eq!(text, r#"{"name":"init","file":"core.c","nth":2}"#);
        assert_eq!(serde_json::from_str::<FunctionName>(&text).unwrap(), local);
        assert_eq!((global.to_string(), local.to_string()), ("vfs_read".into(), "core.c:init#2".into()));
    }
}
