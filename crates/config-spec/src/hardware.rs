//! The drivers of the target's devices.
//!
//! `modules.builtin.modinfo` in the build directory lists the modules that are built in: for each the path of its
//! object, and the patterns of the devices that it drives (`MODULE_DEVICE_TABLE`). The kernel names its devices in
//! `modalias` files of sysfs; user space loads a module if a pattern matches (Documentation/driver-api/driver-model).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use glob::Pattern;
use kcli::{Failure, input_name, read_input};

/// The modules that drive devices of the target, by the path of their objects, each with one such device.
#[derive(Clone, Debug, Default)]
pub struct Hardware {
    drivers: BTreeMap<String, String>,
}

impl Hardware {
    /// Finds the built-in drivers of the devices in the file at `path`, one modalias a line.
    ///
    /// # Errors
    /// Bad input if the file has a line that is no modalias, or no line, or if the build lists no built-in modules.
    pub fn read(path: &Path, build: &Path) -> Result<Hardware, Failure> {
        let name = input_name(path);
        let text = String::from_utf8(read_input(path)?).map_err(|_| {
            Failure::bad_input(format!("{name}: no text; expected a modalias on each line, as `pci:v00008086d…`"))
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
        Ok(Hardware { drivers: drivers(&String::from_utf8_lossy(&modules), &devices) })
    }

    /// Returns the device of the target that a module drives.
    pub fn device_of(&self, module: &str) -> Option<&str> {
        self.drivers.get(module).map(String::as_str)
    }
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
                // A pattern that cannot be read may match anything.
                let pattern = Pattern::new(value).ok();
                let matches =
                    |device: &&&str| pattern.as_ref().is_none_or(|pattern| pattern.matches(device));
                if let Some(device) = devices.iter().find(matches) {
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
        let found = drivers(modinfo, &["virtio:d00000001v00001AF4", "pci:v00001AF4d00001000sv0sd0bc02sc00i00"]);
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
            assert!(failure.exit_code() == 2 && failure.message().contains(expected), "{}", failure.message());
        }
        fs::write(&file, "pci:v1\n\n").unwrap();
        assert!(Hardware::read(&file, build.path()).unwrap().device_of("a").is_none());
        fs::remove_file(build.path().join("modules.builtin.modinfo")).unwrap();
        let failure = Hardware::read(&file, build.path()).unwrap_err();
        assert!(failure.exit_code() == 2 && failure.message().contains("modules.builtin.modinfo"));
    }
}
