//! Images of memory, as QEMU dumps it.

/// The offset in bytes of the memory in a [`core()`].
pub const CORE_MEMORY: usize = 52 + 32;

/// Returns an ELF core for i386 with this memory, in one segment from the physical address 0 on.
pub fn core(memory: &[u8]) -> Vec<u8> {
    let mut core = b"\x7fELF\x01\x01\x01".to_vec();
    core.resize(16, 0);
    for half in [4u16, 3] {
        core.extend(half.to_le_bytes()); // a core, i386
    }
    for word in [1u32, 0, 52, 0, 0] {
        core.extend(word.to_le_bytes());
    }
    for half in [52u16, 32, 1, 0, 0, 0] {
        core.extend(half.to_le_bytes());
    }
    let size = memory.len() as u32;
    for word in [1, CORE_MEMORY as u32, 0, 0, size, size, 0, 0] {
        core.extend(word.to_le_bytes());
    }
    assert_eq!(core.len(), CORE_MEMORY);
    core.extend(memory);
    core
}
