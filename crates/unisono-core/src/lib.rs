//! unisono's protocols as pure state machines.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allowance;
mod blocks;
mod config;
mod epoch;
mod error;
mod event;
mod flow;
mod fragment;
mod group;
mod history;
mod hold;
mod identity;
pub mod look;
mod membership;
mod order;
mod path;
mod peers;
mod planted;
mod random;
mod repair;
mod round_trip;
pub mod rpc;
mod stability;
mod table;
mod time;
pub mod wire;

pub use config::*;
pub use error::*;
pub use event::*;
pub use group::*;
pub use identity::*;
pub use planted::{Planted, Probe};
pub use random::Random;
pub use time::Time;
