//! Loaded code as a device accepts it (`kcustom-rt/user/kcustom.h`).

use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac256, Digest};
use kcli::Key;
use kopt::specialize::Loadable;

use super::kernel::Kernel;

/// The first word (`KCUSTOM_MAGIC`).
const MAGIC: u32 = u32::from_le_bytes(*b"KCP1");

/// Offset in bytes and size of the seal in the head.
const SEAL: std::ops::Range<usize> = 56..88;

/// Seals code for devices with one key.
pub struct Seal {
    key: Key,
}

/// Returns the build of a kernel, given its ELF notes.
pub fn build(notes: &[u8]) -> [u8; 32] {
    Blake2s256::digest(notes).into()
}

impl Seal {
    /// Creates the seal for a key.
    pub fn new(key: Key) -> Seal {
        Seal { key }
    }

    /// Returns the code with its head and tables.
    pub fn seal(&self, kernel: &Kernel<'_>, path: &Loadable) -> Vec<u8> {
        self.of(kernel.entry, &kernel.build, path)
    }

    fn of(&self, entry: u32, build: &[u8; 32], path: &Loadable) -> Vec<u8> {
        let count = |list: &[u32]| list.len() as u32;
        let (calls, nexts, counts) = (count(&path.calls), count(&path.nexts), count(&path.counts));
        let words = [MAGIC, entry, path.code.len() as u32, calls, nexts, counts];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(build);
        bytes.extend([0; SEAL.end - SEAL.start]);
        bytes.extend(&path.code);
        let places = [&path.calls, &path.nexts, &path.counts].into_iter().flatten();
        bytes.extend(places.flat_map(|place| place.to_le_bytes()));
        let mut mac = <Blake2sMac256 as KeyInit>::new_from_slice(&self.key).expect("a key of 32 bytes");
        mac.update(&bytes);
        bytes[SEAL].copy_from_slice(&mac.finalize_fixed());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_code_has_the_layout_of_the_header() {
        let path = Loadable { code: vec![0x90; 8], calls: vec![1], nexts: vec![2, 3], counts: vec![] };
        let sealed = Seal::new([7; 32]).of(0xc100_0000, &build(b"notes"), &path);
        assert_eq!(sealed.len(), 24 + 32 + 32 + 8 + 12);
        assert_eq!(&sealed[..4], b"KCP1");
        assert_eq!(&sealed[88..], [[0x90; 8].as_slice(), &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]].concat());
        let other = Seal::new([8; 32]).of(0xc100_0000, &build(b"notes"), &path);
        assert_ne!(sealed[SEAL], other[SEAL]);
        assert_eq!(sealed[..SEAL.start], other[..SEAL.start]);
    }
}
