//! A configuration: the content of a `.config`.

use std::collections::BTreeMap;

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

    /// Iterates over the options that are set, by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
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

    /// Returns the options that changes turn off, without `option`, by name.
    pub fn turned_off(&self, changes: &BTreeMap<String, String>, option: &str) -> Vec<String> {
        let is_off =
            |(name, new): &(&String, &String)| *name != option && new.is_empty() && self.is_enabled(name);
        changes.iter().filter(is_off).map(|(name, _)| name.clone()).collect()
    }

    /// Returns this configuration with changes.
    pub fn with(&self, changes: &BTreeMap<String, String>) -> Config {
        let mut config = self.clone();
        changes.iter().for_each(|(name, value)| config.set(name, value));
        config
    }
}

/// A change of an option: its name, and its new value as in a `.config`, or `n`.
pub type Change<'a> = (&'a str, &'a str);

/// The options that change, by name, each with its new value (empty if it is not set).
pub type Closure = BTreeMap<String, String>;

/// Returns the text of a `.config` with changes of options. `n` changes only an option that is `y` or `m`. Options that
/// become `y` are at the end, because Kconfig takes the last one of a `choice`.
pub fn changed(text: &str, changes: &[Change<'_>]) -> String {
    let mut new = String::with_capacity(text.len());
    let mut added: BTreeMap<&str, &str> =
        changes.iter().copied().filter(|(_, value)| *value != "n").collect();
    for line in text.lines() {
        let (name, old) = setting(line).unwrap_or_default();
        match changes.iter().find(|(option, _)| *option == name) {
            Some((_, "n")) if matches!(old, "y" | "m") => new += &format!("# CONFIG_{name} is not set\n"),
            Some((_, "y")) => {}
            Some((_, value)) if *value != "n" => {
                new += &format!("CONFIG_{name}={value}\n");
                added.remove(name);
            }
            _ => new += &format!("{line}\n"),
        }
    }
    added.iter().for_each(|(name, value)| new += &format!("CONFIG_{name}={value}\n"));
    new
}

/// Returns the name and value in a line of a `.config`; the value is empty if the line says that it is not set.
fn setting(line: &str) -> Option<(&str, &str)> {
    match line.strip_prefix("# CONFIG_") {
        Some(rest) => Some((rest.strip_suffix(" is not set")?, "")),
        None => line.strip_prefix("CONFIG_")?.split_once('='),
    }
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
            &changed(text, &[("A", "n"), ("N", "4"), ("OFF", "n")]).replace("CONFIG_S=\"a=b\"", "CONFIG_T=y"),
        );
        let changes = old.changes(&new);
        let expected = [("A", ""), ("N", "4"), ("S", ""), ("T", "y")];
        assert!(changes.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert_eq!(old.with(&changes), new);
        assert!(new.is_enabled("AB"));
        let on = Config::parse(&changed(text, &[("OFF", "y"), ("NEW", "7"), ("GONE", "n")]));
        assert_eq!((on.value("OFF"), on.value("NEW"), on.value("GONE")), ("y", "7", ""));
    }
}
