//! A linked kernel whose code is ordered.

use std::path::Path;

use kcli::Failure;
use kplan::Coverage;
use ktext::KernelText;

use crate::hot::HotCode;
use crate::pages::PageReport;
use crate::regions::{self, Region};

/// A linked kernel.
pub struct Kernel {
    /// Its code.
    pub text: KernelText,
    /// The regions of its code, by rising address.
    regions: Vec<Region>,
}

impl Kernel {
    /// Reads the kernel at `path`.
    ///
    /// # Errors
    /// Bad input if it is not a linked ELF file with symbols; a failed job if it cannot be read.
    pub fn read(path: &Path) -> Result<Kernel, Failure> {
        let text = KernelText::read(path, None).map_err(Failure::of)?;
        let linked = &text.linked;
        let regions = regions::cut(&linked.sections, &linked.init_addresses(), linked.globals());
        Ok(Kernel { text, regions })
    }

    /// Returns the functions of a coverage in this kernel.
    pub fn hot_code(&self, coverage: &Coverage) -> HotCode {
        let whole = |name: &_| {
            let (index, offset) = self.text.find(name)?;
            (offset == 0).then(|| self.text.linked.function(index))
        };
        HotCode::new(self.regions.clone(), coverage, whole)
    }

    /// Reports the use of its pages of `page_size` bytes.
    pub fn page_report(&self, hot: &HotCode, page_size: u64) -> PageReport {
        let linked = &self.text.linked;
        let map = self.text.pages(&hot.addresses(), page_size);
        PageReport::new(&map, &linked.functions, &self.regions, &linked.init_addresses())
    }
}
