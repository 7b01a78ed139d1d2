//! Coding of code and read-only data page by page, so that each page can be decoded on its own.
//!
//! From the outside in:
//!
//! - [`pack`](mod@pack): fits models and tables to all pages, then packs every page; [`page`] unpacks;
//! - [`format`](mod@format): the packed file;
//! - [`code`] and [`data`]: the symbols of a page, and their contexts;
//! - [`symbols`]: the interface between these and
//! - [`entropy`]: coding of symbols as bits.
//!
//! [`unwind`] packs tables for unwinding in a format of its own.
//!
//! `kdecomp-rt/` is the decoder in C. `docs/frozen-format.md` defines the format that both share.

pub mod code;
pub mod data;
pub mod entropy;
pub mod error;
pub mod format;
pub mod pack;
pub mod page;
pub mod symbols;
pub mod unwind;
