//! The decoders restore packed data and refuse damaged data, and the decoder in C has its documented size.

mod both;
#[path = "../common/mod.rs"]
mod common;
mod kernel;
mod regions;
mod round_trip;
mod runtime;
mod unwind;
