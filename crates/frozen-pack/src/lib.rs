//! Packs code and read-only data of a kernel page by page, so that each page can be decoded on its own.
//!
//! From the outside in:
//!
//! - [`plan`]: which parts of a kernel are packed until their first use;
//! - [`input`]: which parts of a file to pack;
//! - [`pack`](mod@pack): fits models and tables to all pages, then packs every page; [`page`] unpacks;
//! - [`format`](mod@format): the packed file;
//! - [`show`]: the contents of the packed file of a kernel;
//! - [`code`] and [`data`]: the symbols of a page, and their contexts;
//! - [`symbols`]: the interface between these and
//! - [`entropy`]: coding of symbols as bits.
//!
//! `kdecomp-rt/` is the decoder in C. `docs/frozen-format.md` defines the format that both share.

pub mod bench;
pub mod code;
pub mod data;
pub mod entropy;
pub mod error;
pub mod format;
pub mod input;
pub mod pack;
pub mod page;
pub mod plan;
pub mod show;
pub mod symbols;
