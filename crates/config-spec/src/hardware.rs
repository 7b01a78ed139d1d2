//! The drivers of the target's devices.
//!
//! The kernel names its devices in `modalias` files of sysfs, and user space loads the modules with a matching pattern.
//! Built-in code has its patterns in two places. `modules.builtin.modinfo` in the build directory lists the patterns of
//! `MODULE_ALIAS`, with the path of the module's object. The objects hold the tables of `MODULE_DEVICE_TABLE`
//! ([`crate::devices`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use glob::Pattern;
use kcli::{Failure, input_name, read_input};

/// The code that drives devices of the target, each with one such device.
#[derive(Clone, Debug, Default)]
pub struct Hardware {
    devices: Vec<String>,
    /// By the path of a module, without `.o`.
    modules: BTreeMap<String, String>,
    /// By the path of an object.
    objects: BTreeMap<String, String>,
}

impl Hardware {
    /// Finds the built-in drivers of the devices in the file at `path`, one modalias a line.
    ///
    /// # Errors
    /// Bad input if the file has a line that is no modalias, or no line, or if the build lists no built-in modules.
    pub fn read(path: &Path, build: &Path) -> Result<Hardware, Failure> {
        let name = input_name(path);
        let text = String::from_utf8(read_input(path)?).map_err(|_| {
            Failure::bad_input(format!(
                "{name}: no text; expected a modalias on each line, as `pci:v00008086d…`"
            ))
        })?;
        let devices: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if let Some((number, line)) = text.lines().enumerate().find(|(_, line)| !is_modalias(line.trim())) {
            return Err(Failure::bad_input(format!(
                "{name}:{}: expected a modalias such as `pci:v00008086d00001237…`, found `{line}`; make the file with \
                 `cat $(find /sys -name modalias)` on the target",
                number + 1
            )));
        }
        if devices.is_empty() {
            return Err(Failure::bad_input(format!(
                "{name}: empty; expected a modalias on each line; make the file with `cat $(find /sys -name \
                 modalias)` on the target"
            )));
        }
        let list = build.join("modules.builtin.modinfo");
        let modules = fs::read(&list).map_err(|error| {
            Failure::bad_input(format!(
                "{}: cannot read it: {error}; expected the list of built-in modules that `make vmlinux` makes; build \
                 the kernel there again, or leave out --hardware",
                list.display()
            ))
        })?;
        let modules = drivers(&String::from_utf8_lossy(&modules), &devices);
        let devices = devices.into_iter().map(str::to_owned).collect();
        Ok(Hardware { devices, modules, objects: BTreeMap::new() })
    }

    /// Adds the objects with a table of which a pattern matches a device.
    pub fn add_tables(&mut self, tables: Vec<(String, Vec<String>)>) {
        for (object, patterns) in tables {
            let device = patterns.iter().find_map(|pattern| matched(pattern, &self.devices));
            let device = device.map(str::to_owned);
            self.objects.extend(device.map(|device| (object, device)));
        }
    }

    /// Returns the device of the target that an object of a module drives.
    pub fn device_of(&self, object: &str, module: &str) -> Option<&str> {
        self.objects.get(object).or_else(|| self.modules.get(module)).map(String::as_str)
    }
}

/// Returns the first device that a pattern matches. A pattern that cannot be read may match any.
fn matched<'d, T: AsRef<str>>(pattern: &str, devices: &'d [T]) -> Option<&'d str> {
    let pattern = Pattern::new(pattern).ok();
    let mut devices = devices.iter().map(AsRef::as_ref);
    devices.find(|device| pattern.as_ref().is_none_or(|pattern| pattern.matches(device)))
}

/// Whether a line is a modalias, or empty.
fn is_modalias(line: &str) -> bool {
    let bus = line.split_once(':').map(|(bus, _)| bus);
    line.is_empty() || bus.is_some_and(|bus| !bus.is_empty() && !bus.contains(char::is_whitespace))
}

/// Returns the paths of the modules with a pattern that matches a device, each with the device.
fn drivers(modinfo: &str, devices: &[&str]) -> BTreeMap<String, String> {
    let mut files: BTreeMap<&str, &str> = BTreeMap::new();
    let mut driven: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in modinfo.split('\0') {
        let Some((key, value)) = entry.split_once('=') else { continue };
        match key.rsplit_once('.') {
            Some((module, "file")) => drop(files.insert(module, value)),
            Some((module, "alias")) => {
                if let Some(device) = matched(value, devices) {
                    driven.entry(module).or_insert(device);
                }
            }
            _ => {}
        }
    }
    let with_file = driven.into_iter().filter_map(|(module, device)| Some((*files.get(module)?, device)));
    with_file.map(|(file, device)| (file.to_owned(), device.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_those_whose_pattern_matches() {
        let modinfo = "a.file=drivers/a/a\0a.alias=virtio:d00000001v*\0b.alias=pci:v00001AF4d*sv*sd*bc*sc*i*\0\
                       b.file=drivers/b/b\0c.alias=fs-ext2\0c.file=fs/c\0d.alias=pci:[\0d.file=drivers/d\0e.alias=x\0junk";
        let found =
            drivers(modinfo, &["virtio:d00000001v00001AF4", "pci:v00001AF4d00001000sv0sd0bc02sc00i00"]);
        let files: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(files, ["drivers/a/a", "drivers/b/b", "drivers/d"]);
        assert_eq!(found["drivers/a/a"], "virtio:d00000001v00001AF4");
    }

    #[test]
    fn devices_are_checked() {
        let build = tempfile::tempdir().unwrap();
        fs::write(build.path().join("modules.builtin.modinfo"), "").unwrap();
        let file = build.path().join("devices");
        for (text, expected) in [("", "empty"), ("pci:v1\nno device\n", "devices:2: expected a modalias")] {
            fs::write(&file, text).unwrap();
            let failure = Hardware::read(&file, build.path()).unwrap_err();
            assert!(
                failure.exit_code() == 2 && failure.message().contains(expected),
                "{}",
                failure.message()
            );
        }
        fs::write(&file, "pci:v1\n\n").unwrap();
        let mut hardware = Hardware::read(&file, build.path()).unwrap();
        hardware
            .add_tables(vec![("a.o".into(), vec!["usb:*".into(), "pci:v*".into()]), ("b.o".into(), vec![])]);
        assert_eq!(hardware.device_of("a.o", "a"), Some("pci:v1"));
        assert_eq!(hardware.device_of("b.o", "b"), None);
        fs::remove_file(build.path().join("modules.builtin.modinfo")).unwrap();
        let failure = Hardware::read(&file, build.path()).unwrap_err();
        assert!(failure.exit_code() == 2 && failure.message().contains("modules.builtin.modinfo"));
    }
}
