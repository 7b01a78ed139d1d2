//! Blocks without a counter in an instrumented kernel (early boot code, hand-written code, patch sites), and whether
//! they count as run.
//!
//! Such a block counts as run if it is a direct successor (by fall-through, branch or call) of the kernel's entry
//! point, of a block that ran, or of another block that counts as run (Chanet et al. 2007, section 4.2). Both
//! successors of a branch count, even one that was never taken. Code that is reached only through a pointer is
//! excluded.

use kisa::{BranchKind, Encoding, Flow, Inst, Isa, isa};
use kplan::{Block, BlockMap};
use ktext::KernelText;

/// Sets the flag in `ran` for blocks without a counter that count as run. Returns their number.
pub fn add(kernel: &KernelText, map: &BlockMap, is_counted: &[bool], ran: &mut [bool]) -> u64 {
    let isa = isa(kernel.linked.machine);
    let mut pending: Vec<usize> = (0..ran.len()).filter(|&block| ran[block]).collect();
    let mut added = 0;
    let mut reach = |address: u64, pending: &mut Vec<usize>, ran: &mut [bool]| {
        let Some(block) = map.index_at(address) else { return };
        if !is_counted[block] && !ran[block] {
            ran[block] = true;
            added += 1;
            pending.push(block);
        }
    };
    reach(kernel.linked.machine.first_byte(kernel.entry_address()), &mut pending, ran);
    while let Some(block) = pending.pop() {
        for address in successors(kernel, isa, &map.blocks[block]) {
            reach(address, &mut pending, ran);
        }
    }
    added
}

/// Returns the successors of a block, including calls, as far as its instructions contain them.
fn successors(kernel: &KernelText, isa: &dyn Isa, block: &Block) -> Vec<u64> {
    let mut successors = Vec::new();
    let end = block.address + block.size;
    let mut address = block.address;
    while address < end {
        let left = usize::try_from(end - address).unwrap_or(0);
        // After data among hand-written code, nothing is known.
        let encoding = if kernel.linked.is_thumb(address) { Encoding::Thumb } else { Encoding::Main };
        let bytes = kernel.linked.bytes_at(address, left);
        let Some(Inst { insn, .. }) = bytes.and_then(|bytes| isa.decode(bytes, encoding.at(address))) else {
            return successors;
        };
        address += u64::from(insn.len);
        match insn.flow {
            Flow::Direct { branch, target, .. } => {
                successors.push(kernel.linked.machine.first_byte(target));
                if branch.kind == BranchKind::Jump && address >= end {
                    return successors;
                }
            }
            Flow::IndirectJump | Flow::Return | Flow::Trap if address >= end => return successors,
            _ => {}
        }
    }
    successors.push(end);
    successors
}
