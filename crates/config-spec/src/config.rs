//! A configuration: the content of a `.config`.

use std::collections::BTreeMap;

use kplan::OptionValue;

/// The options of a configuration that are set, by name without `CONFIG_`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    values: BTreeMap<String, String>,
}

impl Config {
    /// Parses a `.config`. Lines that set no option are ignored.
    pub fn parse(text: &str) -> Config {
        let options = text.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
        Config { values: options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    /// Returns the value of an option as in the file: `y`, `m`, a number, or a quoted string; empty if it is not set.
    pub fn value(&self, option: &str) -> &str {
        self.values.get(option).map_or("", String::as_str)
    }

    /// Whether an option is `y`.
    pub fn is_enabled(&self, option: &str) -> bool {
        self.value(option) == "y"
    }

    /// Iterates over the options that are `y`, by name.
    pub fn enabled(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|(_, value)| *value == "y").map(|(name, _)| name.as_str())
    }

    /// Sets an option, or unsets it if the value is empty.
    pub fn set(&mut self, option: &str, value: &str) {
        match value {
            "" => drop(self.values.remove(option)),
            _ => drop(self.values.insert(option.to_owned(), value.to_owned())),
        }
    }

    /// Returns the options whose values differ in `other`, by name, each with its value there (empty if not set).
    pub fn changes(&self, other: &Config) -> BTreeMap<String, String> {
        let names = self.values.keys().chain(other.values.keys());
        let changed = names.filter(|name| self.value(name) != other.value(name));
        changed.map(|name| (name.clone(), other.value(name).to_owned())).collect()
    }

    /// Returns this configuration with changes.
    pub fn with(&self, changes: &BTreeMap<String, String>) -> Config {
        let mut config = self.clone();
        changes.iter().for_each(|(name, value)| config.set(name, value));
        config
    }
}

/// A change of an option: its name, and its new value.
pub type Change<'a> = (&'a str, &'a OptionValue);

/// Returns the text of a `.config` with changes of options that are set in it. Only an option that is `y` can be turned
/// off.
pub fn changed(text: &str, changes: &[Change<'_>]) -> String {
    let line = |line: &str| {
        let set = line.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('='));
        let new = set.and_then(|(name, old)| match changes.iter().find(|(option, _)| *option == name)?.1 {
            OptionValue::No if old == "y" => Some(format!("# CONFIG_{name} is not set\n")),
            OptionValue::No => None,
            OptionValue::Number(number) => Some(format!("CONFIG_{name}={number}\n")),
        });
        new.unwrap_or_else(|| format!("{line}\n"))
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_lead_from_one_configuration_to_the_other() {
        let text = "# CONFIG_OFF is not set\nCONFIG_A=y\nCONFIG_AB=y\nCONFIG_N=3\nCONFIG_S=\"a=b\"\n";
        let old = Config::parse(text);
        assert_eq!((old.value("S"), old.value("OFF")), ("\"a=b\"", ""));
        let new = Config::parse(
            &changed(text, &[("A", &OptionValue::No), ("N", &OptionValue::Number("4".into()))])
                .replace("CONFIG_S=\"a=b\"", "CONFIG_T=y"),
        );
        let changes = old.changes(&new);
        let expected = [("A", ""), ("N", "4"), ("S", ""), ("T", "y")];
        assert!(changes.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert_eq!(old.with(&changes), new);
        assert!(new.is_enabled("AB"));
    }
}
