//! The section `exports`: the loadable modules that ship with a kernel, and the symbols that they need from it.
//!
//! A symbol need not be exported if no listed module imports it or may look it up by name. The list is complete by
//! definition: the kernel refuses an unlisted module that needs any other symbol.

use serde::{Deserialize, Serialize};

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exports {
    /// The modules, by rising name.
    pub modules: Vec<Module>,
}

/// A loadable module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its path in the module directory, such as `kernel/drivers/net/dummy.ko`.
    pub name: String,
    /// The undefined symbols, by rising name; the kernel or another module exports them.
    pub imports: Vec<String>,
    /// Global kernel symbols whose names occur in its data, by rising name: it may look them up (`symbol_get`, kprobes,
    /// `__versions`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_reads_as_written() {
        let text = r#"{"modules":[{"name":"dummy.ko","imports":["eth_mac_addr"]},
            {"name":"net/x.ko","imports":[],"strings":["vfs_read"]}]}"#;
        let exports: Exports = serde_json::from_str(text).unwrap();
        assert_eq!(exports.modules[1].strings, ["vfs_read"]);
        let again = serde_json::to_string(&exports).unwrap();
        assert_eq!(serde_json::from_str::<Exports>(&again).unwrap(), exports);
        assert_eq!(again, text.replace(['\n', ' '], ""));
    }

    #[test]
    fn a_module_without_its_imports_is_an_error() {
        let error = serde_json::from_str::<Exports>(r#"{"modules":[{"name":"dummy.ko"}]}"#).unwrap_err();
        assert!(error.to_string().contains("missing field `imports`"), "{error}");
    }
}
