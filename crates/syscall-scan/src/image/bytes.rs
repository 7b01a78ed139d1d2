//! Numbers and names in the bytes of a file.

/// Returns the number in at most 8 bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let size = bytes.len().min(8);
    word[..size].copy_from_slice(&bytes[..size]);
    u64::from_le_bytes(word)
}

/// Returns the number in the 4 bytes at an offset.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset.checked_add(4)?).map(|bytes| number(bytes) as u32)
}

/// Returns the number in the 2 bytes at an offset.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..offset.checked_add(2)?).map(|bytes| number(bytes) as u16)
}

/// Returns the name at an offset of a string table.
pub(super) fn name(strings: &[u8], offset: usize) -> Option<&[u8]> {
    let string = strings.get(offset..)?;
    Some(&string[..string.iter().position(|&byte| byte == 0)?])
}
