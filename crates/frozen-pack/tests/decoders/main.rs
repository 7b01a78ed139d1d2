//! The decoders: what is packed comes back, what is damaged is refused, and the one in C is as small as it says.

mod both;
#[path = "../common/mod.rs"]
mod common;
mod kernel;
mod regions;
mod round_trip;
mod runtime;
