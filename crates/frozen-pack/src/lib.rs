//! Plans which parts of a kernel are packed until their first use, and packs them.
//!
//! - [`plan`]: which parts of a kernel to freeze;
//! - [`codec`]: packing of bytes by page, and the packed file; it uses neither plans nor the graph;
//! - [`input`]: which parts of a file to pack;
//! - [`show`]: the contents of the packed file of a kernel;
//! - [`bench`](mod@bench): the codec, compared with others.

pub mod bench;
pub mod codec;
pub mod input;
pub mod plan;
pub mod show;
