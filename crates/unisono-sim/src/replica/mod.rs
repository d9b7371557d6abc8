//! Runs of a replicated service: servers with copies of a state, clients that call them, and any faults.

mod clients;
mod director;
mod disks;
mod plan;
mod states;
mod story;

pub(crate) use director::Director;
pub(crate) use states::{Copy, Model, Object, Stepped, Value, Watch};
pub use states::{Op, Reply};
