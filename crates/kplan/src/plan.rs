//! The document: its version, its sections, reading and writing.

use std::fmt;
use std::io::{self, Read, Write};

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::config::ConfigAdvice;
use crate::coverage::Coverage;
use crate::document::{Document, Error, SCHEMA_FIELD};
use crate::exports::Exports;
use crate::frozen::Frozen;
use crate::order::Order;
use crate::params::Params;
use crate::paths::Paths;
use crate::syscalls::Syscalls;

/// The version that this crate reads and writes. It changes when an older reader would misunderstand a newer document.
/// New sections and fields that an older reader may ignore do not change it.
pub const SCHEMA: &str = "kshrink/1";

const SYSCALLS_FIELD: &str = "syscalls";
const COVERAGE_FIELD: &str = "coverage";
const ORDER_FIELD: &str = "order";
const FROZEN_FIELD: &str = "frozen";
const EXPORTS_FIELD: &str = "exports";
const PARAMS_FIELD: &str = "params";
const CONFIG_FIELD: &str = "config";
const PATHS_FIELD: &str = "paths";

const DOCUMENT: Document = Document { what: "a plan", schema: SCHEMA };

/// A plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The system calls of the programs, if a scanner added them.
    pub syscalls: Option<Syscalls>,
    /// The code of the kernel that ran, if it was traced.
    pub coverage: Option<Coverage>,
    /// The order of hot code in memory, if it was decided.
    pub order: Option<Order>,
    /// The parts that are kept compressed until they are used, if they were decided.
    pub frozen: Option<Frozen>,
    /// The loadable modules that ship with the kernel, if they were given.
    pub exports: Option<Exports>,
    /// The boot parameters that the command line names, if they were decided.
    pub params: Option<Params>,
    /// The options of the configuration that can be turned off, if they were chosen.
    pub config: Option<ConfigAdvice>,
    /// The paths to copy for known inputs, if they were given.
    pub paths: Option<Paths>,
    /// The other sections, unchanged and in their order.
    pub other: Map<String, Value>,
}

impl Plan {
    /// Reads a plan to the end of `reader`. Messages call it `name`: a path, or `standard input`.
    ///
    /// # Errors
    /// One of [`Error`], each with the name and, where one exists, line and column.
    pub fn read(reader: impl Read, name: &str) -> Result<Plan, Error> {
        DOCUMENT.read(reader, name)
    }

    /// Reads the standard input of a tool that adds to a plan: a plan, or an empty pipe, which makes an empty plan.
    /// Services and test runners leave an empty pipe.
    ///
    /// # Errors
    /// As for [`Plan::read`].
    pub fn read_piped(reader: impl Read, name: &str) -> Result<Plan, Error> {
        match Plan::read(reader, name) {
            Err(Error::Empty { .. }) => Ok(Plan::default()),
            plan => plan,
        }
    }

    /// Parses a plan.
    ///
    /// # Errors
    /// As for [`Plan::read`].
    pub fn parse(text: &str, name: &str) -> Result<Plan, Error> {
        DOCUMENT.parse(text, name)
    }

    /// Writes the plan as indented JSON with a newline at the end.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        DOCUMENT.write(self, out)
    }
}

/// Writes the sections; `Document::write` puts the version first.
impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(syscalls) = &self.syscalls {
            map.serialize_entry(SYSCALLS_FIELD, syscalls)?;
        }
        if let Some(coverage) = &self.coverage {
            map.serialize_entry(COVERAGE_FIELD, coverage)?;
        }
        if let Some(order) = &self.order {
            map.serialize_entry(ORDER_FIELD, order)?;
        }
        if let Some(frozen) = &self.frozen {
            map.serialize_entry(FROZEN_FIELD, frozen)?;
        }
        if let Some(exports) = &self.exports {
            map.serialize_entry(EXPORTS_FIELD, exports)?;
        }
        if let Some(params) = &self.params {
            map.serialize_entry(PARAMS_FIELD, params)?;
        }
        if let Some(config) = &self.config {
            map.serialize_entry(CONFIG_FIELD, config)?;
        }
        if let Some(paths) = &self.paths {
            map.serialize_entry(PATHS_FIELD, paths)?;
        }
        for (key, value) in &self.other {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Reads the known sections by their types, straight from the text, so that an error has a line number.
/// `Document::parse` checks the version.
impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
        struct Sections;

        impl<'de> Visitor<'de> for Sections {
            type Value = Plan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a plan")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Plan, A::Error> {
                let mut plan = Plan::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        SCHEMA_FIELD => drop(map.next_value::<String>()?),
                        SYSCALLS_FIELD if plan.syscalls.is_some() => {
                            return Err(de::Error::duplicate_field(SYSCALLS_FIELD));
                        }
                        SYSCALLS_FIELD => plan.syscalls = Some(map.next_value()?),
                        COVERAGE_FIELD if plan.coverage.is_some() => {
                            return Err(de::Error::duplicate_field(COVERAGE_FIELD));
                        }
                        COVERAGE_FIELD => plan.coverage = Some(map.next_value()?),
                        ORDER_FIELD if plan.order.is_some() => {
                            return Err(de::Error::duplicate_field(ORDER_FIELD));
                        }
                        ORDER_FIELD => plan.order = Some(map.next_value()?),
                        FROZEN_FIELD if plan.frozen.is_some() => {
                            return Err(de::Error::duplicate_field(FROZEN_FIELD));
                        }
                        FROZEN_FIELD => plan.frozen = Some(map.next_value()?),
                        EXPORTS_FIELD if plan.exports.is_some() => {
                            return Err(de::Error::duplicate_field(EXPORTS_FIELD));
                        }
                        EXPORTS_FIELD => plan.exports = Some(map.next_value()?),
                        PARAMS_FIELD if plan.params.is_some() => {
                            return Err(de::Error::duplicate_field(PARAMS_FIELD));
                        }
                        PARAMS_FIELD => plan.params = Some(map.next_value()?),
                        CONFIG_FIELD if plan.config.is_some() => {
                            return Err(de::Error::duplicate_field(CONFIG_FIELD));
                        }
                        CONFIG_FIELD => plan.config = Some(map.next_value()?),
                        PATHS_FIELD if plan.paths.is_some() => {
                            return Err(de::Error::duplicate_field(PATHS_FIELD));
                        }
                        PATHS_FIELD => plan.paths = Some(map.next_value()?),
                        _ => drop(plan.other.insert(key, map.next_value()?)),
                    }
                }
                Ok(plan)
            }
        }

        deserializer.deserialize_map(Sections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Plan::parse(text, "p.json").unwrap_err().to_string()
    }

    #[test]
    fn errors_say_what_and_where() {
        let cases = [
            ("", "p.json: empty, expected a plan"),
            ("{\n  \"schema\": ,", "p.json: not JSON: expected value at line 2 column 13"),
            ("{\"schema\": \"kshrink/1\"", "p.json: not JSON: EOF while parsing an object"),
            ("[]", "p.json: not a plan: no \"schema\": \"kshrink/1\" in it"),
            ("{}", "p.json: not a plan: no \"schema\""),
            ("{\"schema\": \"kshrink/2\"}", "p.json: expected schema kshrink/1, found kshrink/2"),
            ("{\"schema\": 1}", "p.json: expected schema kshrink/1, found 1"),
        ];
        for (text, expected) in cases {
            let message = message(text);
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn missing_and_misspelt_fields_are_errors() {
        let text = r#"{"schema": "kshrink/1",
            "syscalls": {"i386": {"programs": [], "calls": [], "unresolved": []}}}"#;
        let expected = "p.json: not a valid plan: missing field `complete` at line 2";
        assert!(message(text).starts_with(expected), "{}", message(text));
        let text = r#"{"schema": "kshrink/1",
            "syscalls": {"i386": {"complete": true, "programs": [], "unresolved": [],
            "calls": [{"nr": "four"}]}}}"#;
        assert!(message(text).contains("expected u32 at line 3"), "{}", message(text));
        let text = r#"{"schema": "kshrink/1", "syscalls": {"vax": {}}}"#;
        assert!(message(text).contains("unknown variant `vax`"), "{}", message(text));
    }

    #[test]
    fn other_sections_survive_in_their_order() {
        let text = r#"{"knobs": [1, {"b": 2, "a": 1}], "schema": "kshrink/1", "future": null}"#;
        let mut plan = Plan::parse(text, "p.json").unwrap();
        plan.syscalls = Some(Syscalls::default());
        let mut out = Vec::new();
        plan.write(&mut out).unwrap();
        let printed: Value = serde_json::from_slice(&out).unwrap();
        let keys: Vec<&str> = printed.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["schema", "syscalls", "knobs", "future"]);
        assert_eq!(printed["knobs"].to_string(), r#"[1,{"b":2,"a":1}]"#);
        assert_eq!(Plan::read(out.as_slice(), "p.json").unwrap(), plan);
    }

    #[test]
    fn the_example_is_what_would_be_written() {
        let example = include_str!("../examples/plan.json");
        let mut out = Vec::new();
        Plan::parse(example, "plan.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), example);
    }
}
