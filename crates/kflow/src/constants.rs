//! Numbers that are the same throughout a program: values known across functions, and memory that nothing writes.

use std::ops::Range;

use kisa::{Symbol, low_bytes};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Maximum number of constants in a set that is propagated to other functions.
const MAX_CONSTANTS: usize = 24;

/// A number, or the address of a symbol plus a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Constant {
    /// The symbol.
    pub symbol: Option<Symbol>,
    /// The number, or the addend of the address.
    pub number: u64,
}

/// One of a few constants, or anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConstantSet(SmallVec<[Constant; 1]>);

impl ConstantSet {
    /// Returns the set of all values.
    pub fn any() -> ConstantSet {
        ConstantSet::default()
    }

    /// Returns the set of these constants, or of all values if there are none or too many.
    pub fn of(constants: impl IntoIterator<Item = Constant>) -> ConstantSet {
        let mut set: SmallVec<[Constant; 1]> = constants.into_iter().collect();
        set.sort_unstable();
        set.dedup();
        if set.len() > MAX_CONSTANTS { ConstantSet::any() } else { ConstantSet(set) }
    }

    /// Whether nothing is known of the value.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the constants, in order; none if the value may be anything.
    pub fn constants(&self) -> &[Constant] {
        &self.0
    }

    /// Adds the elements of `other`.
    pub fn join(&mut self, other: &ConstantSet) {
        if self != other {
            let both = self.is_any() || other.is_any();
            let all = self.0.iter().chain(&other.0).copied();
            *self = if both { ConstantSet::any() } else { ConstantSet::of(all) };
        }
    }
}

/// Memory that never changes its initial content, by the symbols that address it.
#[derive(Clone, Debug, Default)]
pub struct ConstantMemory {
    pieces: FxHashMap<Symbol, Piece>,
}

/// The content at a symbol.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// The number of bytes.
    pub size: u32,
    /// The first bytes; the others are 0.
    pub bytes: Vec<u8>,
    /// Fields that the linker fills in, with offset and width in bytes, in order. `None` stands for an unknown value.
    pub fields: Vec<(u32, u8, Option<Constant>)>,
}

impl Piece {
    /// Makes the bytes of a range unknown.
    pub fn hide(&mut self, range: Range<u32>) {
        self.fields.retain(|&(at, width, _)| at + u32::from(width) <= range.start || at >= range.end);
        let first = self.fields.partition_point(|&(at, ..)| at < range.start);
        self.fields.splice(first..first, range.map(|at| (at, 1, None)));
    }
}

/// Requests for constant memory, by symbol, offset from it and number of bytes, and their answers.
pub(crate) type Asked = FxHashMap<(Symbol, i64, u8), Option<Constant>>;

impl ConstantMemory {
    /// Adds the content at a symbol.
    pub fn add(&mut self, symbol: Symbol, piece: Piece) {
        self.pieces.insert(symbol, piece);
    }

    /// Returns the `width` bytes at an offset from a symbol.
    pub fn read(&self, symbol: Symbol, offset: i64, width: u8) -> Option<Constant> {
        let piece = self.pieces.get(&symbol)?;
        let start = u32::try_from(offset).ok()?;
        let end = start.checked_add(width.into()).filter(|&end| end <= piece.size && width <= 8)?;
        let first = piece.fields.partition_point(|&(at, field, _)| at + u32::from(field) <= start);
        if let Some(&(at, field, constant)) = piece.fields.get(first).filter(|&&(at, ..)| at < end) {
            return constant.filter(|_| (at, field) == (start, width));
        }
        let byte = |at: u32| piece.bytes.get(at as usize).copied().unwrap_or(0);
        let number = (start..end).rev().fold(0, |number, at| number << 8 | u64::from(byte(at)));
        Some(Constant { symbol: None, number: low_bytes(number, width) })
    }
}
