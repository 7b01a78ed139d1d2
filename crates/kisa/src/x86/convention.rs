//! The conventions of the System V ABI's supplements for i386 (1.1, section 2.2) and x86-64 (1.0, section 3.2).

use super::registers::{EAX, EBP, EBX, ECX, EDI, EDX, ESI, ESP, R8, R9, R10, R11};
use crate::convention::{Convention, SystemCall, set};

pub(super) static I386: Convention = Convention {
    stack_pointer: ESP,
    link_register: None,
    call_clobbered: set(&[EAX, ECX, EDX]),
    arguments: &[EAX, EDX, ECX],
    other_inputs: &[],
    passes_on_stack: true,
    results: [EAX, EDX],
    returned: set(&[EAX, EDX]),
    system_call: SystemCall { number: EAX, arguments: [EBX, ECX, EDX, ESI, EDI, EBP] },
};

pub(super) static X86_64: Convention = Convention {
    call_clobbered: set(&[EAX, ECX, EDX, ESI, EDI, R8, R9, R10, R11]),
    arguments: &[EDI, ESI, EDX, ECX, R8, R9],
    passes_on_stack: false,
    system_call: SystemCall { number: EAX, arguments: [EDI, ESI, EDX, R10, R8, R9] },
    ..I386
};
