//! The registers and the memory that an instruction uses, according to iced-x86.

use std::cell::RefCell;

use iced_x86::{Instruction, InstructionInfo, InstructionInfoFactory};

thread_local! {
    /// One for all instructions: creating one takes longer than using it.
    static FACTORY: RefCell<InstructionInfoFactory> = RefCell::new(InstructionInfoFactory::new());
}

/// Calls `f` with the registers and memory that an instruction uses. `f` must not call this function.
pub(super) fn with_info<T>(instruction: &Instruction, f: impl FnOnce(&InstructionInfo) -> T) -> T {
    FACTORY.with_borrow_mut(|factory| f(factory.info(instruction)))
}
