//! unisono's protocols as pure state machines.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod error;
mod event;
mod group;
mod identity;
pub mod look;
mod random;
mod time;
pub mod wire;

pub use config::*;
pub use error::*;
pub use event::*;
pub use group::*;
pub use identity::*;
pub use random::Random;
pub use time::Time;
