//! Runs of a replicated service: servers with copies of a state, clients that call them, and any faults.

mod abstraction;
mod clients;
mod director;
mod disks;
mod history;
mod plan;
mod script;
mod states;
mod story;

pub(crate) use director::Director;
pub use history::History;
pub(crate) use history::{Event, SERVERS, Step};
pub(crate) use script::{Seen, play};
pub(crate) use states::{Copy, Model, Object, Stepped, Value, Watch};
pub use states::{Op, Reply};
