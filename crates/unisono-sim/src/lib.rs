//! A simulated world for unisono's protocols, and the checkers of what happens in it.
//!
//! One seed decides everything: the group, what its applications do, which faults strike and when. A run of a seed is
//! single-threaded and depends on nothing else, so a seed that fails today fails tomorrow, line by line.
//!
//! | | |
//! |---|---|
//! | [`mod@run`] | many seeds on all processors, and what came of them |
//! | [`mod@replay`] | one seed, told line by line |
//! | [`mod@scenario`] | scripts with an expected course |
//! | [`mod@mutants`] | are the checkers awake? Planted bugs, and how soon each is caught |
//! | [`mod@growth`] | what groups of growing size cost |
//! | [`properties`] | the checkers |
//! | [`record`] | what they are shown |
//!
//! Below: `world` moves processes and datagrams (`process`, `network`, `seal`,
//! `queue`, `clock`, `trap`); `plan` says what a
//! seed decides; `calls` has runs of calls; `director` runs a plan (`workload`, `faults`, `havoc`); `recorder` writes down what happens.
#![forbid(unsafe_code)]

mod calls;
mod clock;
mod director;
mod draw;
mod event_log;
mod faults;
pub mod growth;
mod havoc;
pub mod mutants;
mod network;
mod plan;
mod process;
pub mod properties;
mod queue;
pub mod record;
mod recorder;
pub mod replay;
pub mod run;
pub mod scenario;
mod seal;
mod trap;
mod words;
mod workload;
mod world;

pub use growth::growth;
pub use mutants::mutants;
pub use plan::Profile;
pub use replay::replay;
pub use run::{RunOptions, run};
pub use scenario::Scenario;
pub use unisono_core::Planted;
