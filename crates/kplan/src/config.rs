//! The section `config`: the options of a kernel's configuration that a device can turn off, or set to a smaller value,
//! each with the evidence.
//!
//! The section proposes; nothing is removed because of it. A configuration without these options has to be built and
//! tested.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigAdvice {
    /// The release of the kernel, such as `6.12.117`.
    pub kernel: String,
    /// The build ID of its vmlinux in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The proposed options: first the options to turn off, those that keep most bytes first, then the smaller values.
    pub options: Vec<OptionAdvice>,
    /// The effect of all proposed options together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<JointAdvice>,
    /// Options that could be proposed alone, but stay because of what they turn off together with others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptOption>,
}

/// The effect of all proposed options together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JointAdvice {
    /// The options that Kconfig turns off only if several of the proposed ones are off, by name.
    pub with: Vec<String>,
    /// The objects that the kernel lacks only if several of the proposed options are off.
    pub objects: Vec<String>,
    /// The bytes that the kernel keeps only because of all objects of the proposed options.
    pub keeps: KeptBytes,
    /// The same after the passes of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<KeptBytes>,
    /// The number of other objects that a build compiles again.
    pub rebuilds: u64,
}

/// An option that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOption {
    /// Its name.
    pub name: String,
    /// The reason, for people.
    pub reason: String,
}

/// A proposed change of one option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionAdvice {
    /// Its name, without `CONFIG_`.
    pub name: String,
    /// The proposed value.
    pub set: OptionValue,
    /// The use of its code in the traces.
    pub class: UseClass,
    /// The other options that Kconfig turns off with it, by name.
    pub with: Vec<String>,
    /// The objects that the kernel then lacks, by path in the build directory.
    pub objects: Vec<String>,
    /// The bytes that the kernel keeps only because of these objects.
    pub keeps: KeptBytes,
    /// The same after the passes of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<KeptBytes>,
    /// The functions of these objects that ran, by name; the first ones if there are many.
    pub ran: Vec<String>,
    /// The boot parameters that only its code has, by name; one of them may do the same without a build.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// The number of other objects that a build compiles again.
    pub rebuilds: u64,
    /// The bytes that a variable holds whose size the option sets; 0 for an option to turn off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub memory: u64,
    /// The facts about a value; `None` for an option to turn off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueFacts>,
    /// The facts that the class rests on.
    pub evidence: Evidence,
    /// The result of a test of the kernel without it, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The facts about an option whose value sets the size of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueFacts {
    /// The name of the variable.
    pub variable: String,
    /// The value in the kernel as built.
    pub built: String,
    /// The reason why the proposed value is not smaller.
    pub limit: ValueLimit,
}

/// The limit of a proposed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueLimit {
    /// The `range` of the option: Kconfig allows no smaller value.
    Range,
    /// A page of memory: the variable then needs one page, and a smaller value saves no further page.
    Page,
}

/// The result of the test of a kernel without an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tried {
    /// The test passes.
    Passes,
    /// The test fails, so the option has to stay.
    Fails,
}

/// A proposed value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OptionValue {
    /// Not set.
    No,
    /// A number as in `.config`, decimal or hexadecimal with `0x`.
    Number(String),
}

impl TryFrom<String> for OptionValue {
    type Error = String;

    fn try_from(text: String) -> Result<OptionValue, String> {
        let is_number = match text.strip_prefix("0x") {
            Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            None => text.parse::<i64>().is_ok(),
        };
        match text.as_str() {
            "n" => Ok(OptionValue::No),
            _ if is_number => Ok(OptionValue::Number(text)),
            _ => Err(format!("unknown value {text:?} of an option, expected \"n\" or a number")),
        }
    }
}

impl OptionValue {
    /// Returns the value as plans have it: `n`, or the number.
    pub fn as_str(&self) -> &str {
        match self {
            OptionValue::No => "n",
            OptionValue::Number(number) => number,
        }
    }
}

impl From<OptionValue> for String {
    fn from(value: OptionValue) -> String {
        value.as_str().to_owned()
    }
}

/// The use that traces show of the code that an option brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UseClass {
    /// Nothing ran.
    Idle,
    /// Only functions ran that the kernel frees after it has started: the code registered itself, and was never called.
    InitOnly,
    /// Afterwards only functions ran that other code calls directly, or that notifier chains call.
    HooksOnly,
    /// Other functions ran as well.
    Used,
    /// The option is a number that sets the size of a variable. Traces show nothing about it.
    Value,
}

/// The facts that a class rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// The traces.
    #[serde(rename = "trace")]
    Trace,
    /// The traces; and no program makes a system call that enters this code.
    #[serde(rename = "trace+scan")]
    TraceAndScan,
    /// A census of the memory of the running kernel, and the source of the variable.
    #[serde(rename = "census")]
    Census,
}

/// Bytes of code and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBytes {
    /// Code that stays in memory.
    pub text: u64,
    /// Data that stays in memory and is in the image.
    pub data: u64,
    /// Zero-initialised data that stays in memory.
    pub bss: u64,
    /// Code and data that the kernel frees after it has started.
    pub init: u64,
}

impl KeptBytes {
    /// Returns the bytes that stay in memory.
    pub fn resident(&self) -> u64 {
        self.text + self.data + self.bss
    }

    /// Returns all bytes.
    pub fn total(&self) -> u64 {
        self.resident() + self.init
    }
}

impl UseClass {
    /// Returns its name in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            UseClass::Idle => "idle",
            UseClass::InitOnly => "init-only",
            UseClass::HooksOnly => "hooks-only",
            UseClass::Used => "used",
            UseClass::Value => "value",
        }
    }
}

impl fmt::Display for UseClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_reads_as_written() {
        let text = r#"{"kernel":"6.12.117","options":[{"name":"PPS","set":"n","class":"init-only","with":["PTP"],
            "objects":["drivers/pps/pps.o"],"keeps":{"text":900,"data":60,"bss":4,"init":80},"ran":["pps_init"],
            "rebuilds":0,"evidence":"trace+scan"}]}"#;
        let advice: ConfigAdvice = serde_json::from_str(text).unwrap();
        let keeps = advice.options[0].keeps;
        assert_eq!((keeps.resident(), keeps.total(), advice.options[0].after), (964, 1044, None));
        assert_eq!(advice.options[0].class.to_string(), "init-only");
        let again = serde_json::to_string(&advice).unwrap();
        assert_eq!(serde_json::from_str::<ConfigAdvice>(&again).unwrap(), advice);
        assert_eq!(again, text.replace(['\n', ' '], ""));
    }

    #[test]
    fn a_number_reads_as_written() {
        let text = r#"{"name":"LOG_BUF_SHIFT","set":"12","class":"value","with":[],"objects":[],
            "keeps":{"text":0,"data":0,"bss":0,"init":0},"ran":[],"rebuilds":1,"memory":131072,
            "value":{"variable":"__log_buf","built":"17","limit":"range"},"evidence":"census"}"#;
        let advice: OptionAdvice = serde_json::from_str(text).unwrap();
        assert_eq!((&advice.set, advice.memory), (&OptionValue::Number("12".into()), 131_072));
        assert_eq!(serde_json::to_string(&advice).unwrap(), text.replace(['\n', ' '], ""));
        assert!(OptionValue::try_from("0x2000".to_owned()).is_ok());
    }

    #[test]
    fn unknown_values_are_errors() {
        let error = serde_json::from_str::<UseClass>(r#""hooks""#).unwrap_err().to_string();
        assert!(error.contains("unknown variant `hooks`, expected one of `idle`"), "{error}");
        for text in ["y", "", "0x", "8\n", "8 9"] {
            assert!(OptionValue::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }
}
