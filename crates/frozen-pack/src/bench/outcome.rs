//! What each coder makes of the pages.

/// The pages as packed by a coder.
pub(super) struct Outcome<'p> {
    pub(super) coder: &'static str,
    pub(super) streams: Vec<Vec<u8>>,
    pub(super) tables: usize,
    pub(super) decoder: Option<usize>,
    pub(super) unpack: Unpack<'p>,
}

/// Decodes a page, given its number and its packed bytes.
pub(super) type Unpack<'p> = Box<dyn Fn(usize, &[u8]) -> Result<Vec<u8>, String> + 'p>;
