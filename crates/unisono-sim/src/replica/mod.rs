//! Runs of a replicated service: servers with copies of a state, clients that call them, and any faults.

mod clients;
mod director;
mod plan;
mod states;

pub(crate) use director::Director;
#[cfg(test)]
pub(crate) use states::Model;
pub(crate) use states::{Copy, Object, Stepped, Value, Watch};
pub use states::{Op, Reply};
