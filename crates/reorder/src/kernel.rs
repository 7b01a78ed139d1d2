//! A linked kernel, as far as an order needs to know it.

use std::path::Path;

use kcli::Failure;
use kelf::{Functions, Machine};
use kplan::{Coverage, FunctionName};

use crate::hot::HotCode;
use crate::pages::Function;
use crate::text::{Text, TextSection};

/// A linked kernel.
pub struct Kernel {
    functions: Functions,
    text: Text,
}

impl Kernel {
    /// Reads the kernel at `path`.
    ///
    /// # Errors
    /// Bad input if it is no linked ELF file with symbols; a failed job if it cannot be read.
    pub fn read(path: &Path) -> Result<Kernel, Failure> {
        let functions = Functions::read(path).map_err(|error| {
            if error.is_bad_input() { Failure::bad_input(error) } else { Failure::job(error) }
        })?;
        // A program has no init text.
        let init = match (functions.address_of("__init_begin"), functions.address_of("__init_end")) {
            (Some(begin), Some(end)) => begin..end,
            _ => 0..0,
        };
        let sections = functions.sections.iter().map(|section| TextSection {
            name: section.name.clone(),
            addresses: section.addresses(),
            init: init.contains(&section.address),
        });
        let text = Text::new(sections.collect(), functions.globals());
        Ok(Kernel { functions, text })
    }

    /// Its machine.
    pub fn machine(&self) -> Machine {
        self.functions.machine
    }

    /// What of a coverage is in it.
    pub fn hot_code(&self, coverage: &Coverage) -> HotCode {
        HotCode::new(self.text.clone(), coverage, |wanted| self.find(wanted))
    }

    /// Address and size of a function, under any of its names.
    fn find(&self, wanted: &FunctionName) -> Option<(u64, u64)> {
        let (index, offset) = self.functions.find(&wanted.name, wanted.file.as_deref(), wanted.nth)?;
        let function = self.functions.function(index);
        (offset == 0).then_some((function.address, function.size))
    }

    /// All its functions, by address.
    pub fn all_functions(&self) -> Vec<Function> {
        let functions = self.functions.functions.iter().map(|function| Function {
            name: function.name.clone(),
            addresses: function.address..function.address + function.size,
            hand_written: function.is_label,
        });
        functions.collect()
    }

    /// `size` bytes of code at an address, if the file has them.
    pub fn code(&self, address: u64, size: u64) -> Option<&[u8]> {
        let section = self.functions.section_at(address)?;
        let start = usize::try_from(address - section.address).ok()?;
        section.bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
    }
}
