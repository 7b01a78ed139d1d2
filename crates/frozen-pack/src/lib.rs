//! Packs code and read-only data of a kernel page by page, so that any page can be decoded on its own.
//!
//! From the outside in:
//!
//! - [`plan`]: what of a kernel is packed, and stays packed until it is used;
//! - [`input`]: what of a file is to be packed;
//! - [`pack`](mod@pack): models and tables that fit all pages, then every page; [`page`] is the way back;
//! - [`format`](mod@format): the packed file;
//! - [`show`]: what is in the packed file of a kernel;
//! - [`code`] and [`data`]: which symbols a page consists of, and what each of them depends on;
//! - [`symbols`]: the seam between that and
//! - [`entropy`]: how symbols become bits.
//!
//! `kdecomp-rt/` is the decoder in C. What both have to agree on is in `docs/frozen-format.md`.

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
