//! How symbols are coded: static distributions by context ([`tables`]), made from all pages ([`train`]), coded with

pub mod classes;
pub mod huffman;
pub mod rans;
pub mod tables;
pub mod train;
