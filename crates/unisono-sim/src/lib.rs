//! A simulated world for unisono's protocols, and the judges of what happens in it.
#![forbid(unsafe_code)]

pub mod properties;
pub mod record;
