//! Words and bytes of the packed file.

use crate::codec::error::Damaged;

pub(super) const SHORT: Damaged = Damaged("it ends too early");

pub(super) fn put(out: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    out.extend(words.into_iter().flat_map(u32::to_le_bytes));
}

/// The remaining input.
pub(super) struct Input<'b>(pub(super) &'b [u8]);

impl<'b> Input<'b> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'b [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn words(&mut self, count: usize) -> Result<Vec<u32>, Damaged> {
        let bytes = self.take(count.checked_mul(4).ok_or(SHORT)?)?;
        Ok(bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect())
    }

    pub(super) fn word(&mut self) -> Result<u32, Damaged> {
        Ok(self.words(1)?[0])
    }

    pub(super) fn counts<const N: usize>(&mut self) -> Result<[usize; N], Damaged> {
        let words = self.words(N)?;
        Ok(std::array::from_fn(|index| words[index] as usize))
    }
}
