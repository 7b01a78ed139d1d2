//! What iced-x86 knows of the registers and the memory that an instruction uses.

use std::cell::RefCell;

use iced_x86::{Instruction, InstructionInfo, InstructionInfoFactory};

thread_local! {
    /// One for all instructions: to make one takes longer than to use it.
    static FACTORY: RefCell<InstructionInfoFactory> = RefCell::new(InstructionInfoFactory::new());
}

/// Calls `f`, which must not do the same, with what an instruction uses.
pub(super) fn with_info<T>(instruction: &Instruction, f: impl FnOnce(&InstructionInfo) -> T) -> T {
    FACTORY.with_borrow_mut(|factory| f(factory.info(instruction)))
}
