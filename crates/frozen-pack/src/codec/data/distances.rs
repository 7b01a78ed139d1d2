//! The layout of pages of distances from themselves to increasing addresses, such as `.orc_unwind_ip`.
//!
//! A distance of 4 bytes is coded as the *step* from the previous address to this one, which is 0 before the first. A
//! step depends on the last two:
//!
//! | symbol | | the step |
//! | --- | --- | --- |
//! | 0 to 253 | | the symbol |
//! | 254 | 2 bytes | the bytes, highest first |
//! | 255 | 4 bytes | the same |

use super::field;
use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, Source};

/// The symbols for steps of two and of four bytes.
const HALF: u8 = 254;
const WORD: u8 = 255;

/// Size of a distance in bytes.
const SIZE: usize = 4;

/// The steps of a page.
fn steps(page: &[u8]) -> impl Iterator<Item = u32> {
    let mut last = 0;
    page.chunks_exact(SIZE).map(move |word| {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let step = word.wrapping_sub(last).wrapping_add(SIZE as u32);
        last = word;
        step
    })
}

/// Returns whether a page consists of such distances: most steps are small and few distances are equal.
pub fn fits(page: &[u8]) -> bool {
    let small = steps(page).filter(|&step| step < u32::from(HALF) && step != SIZE as u32).count();
    page.len() % SIZE == 0 && small * 4 > page.len() / SIZE * 3
}

/// Returns the symbols of a page, as input of [`crate::codec::symbols::Recorder`].
pub fn symbols(page: &[u8]) -> Vec<u32> {
    let mut out = Vec::new();
    for step in steps(page) {
        let (symbol, count) = match step {
            0..0xFE => (step, 0),
            0xFE..0x1_0000 => (u32::from(HALF), 2),
            _ => (u32::from(WORD), 4),
        };
        out.push(symbol);
        out.extend((0..count).rev().map(|byte| step >> (8 * byte) & 0xFF));
    }
    out
}

/// Decodes a page.
///
/// # Errors
/// If the page is damaged.
pub fn decode<S: Source>(source: &mut S, out: &mut [u8]) -> Result<(), Damaged> {
    if out.len() % SIZE != 0 {
        return Err(Damaged("a page of distances has a part of one"));
    }
    let (mut values, mut distance) = ([0; 2], 0u32);
    for word in out.chunks_exact_mut(SIZE) {
        let symbol = source.symbol(Context { field: field::STEP, values })?;
        values = [symbol, values[0]];
        let mut step = u32::from(symbol);
        let places = match symbol {
            HALF => 0..2,
            WORD => 2..6,
            _ => 0..0,
        };
        if symbol >= HALF {
            step = 0;
        }
        for place in places {
            step = step << 8 | u32::from(source.symbol(Context::one(field::STEP_BYTE, place))?);
        }
        distance = distance.wrapping_add(step).wrapping_sub(SIZE as u32);
        word.copy_from_slice(&distance.to_le_bytes());
    }
    Ok(())
}
