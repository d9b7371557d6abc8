//! Runs of a replicated service: servers with copies of a state, clients that call them, and any faults.

mod abstraction;
mod clients;
mod director;
mod disks;
mod handlers;
mod history;
mod holders;
mod hostile;
mod locks;
mod machine;
#[cfg(test)]
mod pace;
mod plan;
mod script;
mod states;
mod story;
mod users;

pub(crate) use director::Director;
pub use history::History;
pub(crate) use history::{Event, SERVERS, Step};
pub(crate) use locks::REFUSED;
pub(crate) use machine::{Copy, State, Stepped, Watch};
pub(crate) use script::{Seen, play};
pub(crate) use states::{Model, Object, Objects, Value};
pub use states::{Op, Reply};
