//! A simulator for unisono's protocols, with checkers that verify what happens in it.
//!
//! One seed determines a whole run: the group, the actions of its applications, and which faults strike when. A run is
//! single-threaded and depends on nothing else, so a seed that fails today fails tomorrow with the same trace.
//!
//! | module | what it does |
//! |---|---|
//! | [`mod@run`] | runs many seeds on all processors and summarises the results |
//! | [`mod@replay`] | runs one seed and writes a trace, line by line |
//! | [`mod@scenario`] | runs scripts that state the expected events |
//! | [`mod@enumerate`] | tries every order of few crashes of servers with disks |
//! | [`mod@mutants`] | plants bugs and measures how soon the checkers catch each |
//! | [`mod@growth`] | measures the costs of groups of growing size |
//! | [`mod@papers`] | takes the papers' measurements again, on a simulated testbed of their time |
//! | [`properties`] | the checkers |
//! | [`record`] | the records that the checkers read |
//!
//! The internal modules: `world` drives processes and datagrams (`process`, `network`, `seal`, `queue`, `clock`,
//! `frame_faults`). `plan` draws what a seed determines, and `director` runs a plan (`workload`, `faults`, `injector`).
//! `calls` contains runs of calls, and `replica` runs of a replicated service. `recorder` writes the records.
#![forbid(unsafe_code)]

mod bugs;
mod calls;
mod clock;
mod director;
mod directory;
mod draw;
pub mod enumerate;
mod event_log;
mod faults;
mod floors;
mod frame_faults;
pub mod growth;
mod injector;
pub mod mutants;
mod network;
mod outside;
pub mod papers;
mod plan;
mod process;
pub mod properties;
mod queue;
mod readers;
pub mod record;
mod recorder;
pub mod replay;
mod replica;
pub mod run;
pub mod scenario;
mod scenes;
mod scope;
mod seal;
mod weak;
mod words;
mod workload;
mod world;

pub use bugs::{Planted, ServiceBug};
pub use enumerate::{EnumerateOptions, enumerate};
pub use growth::growth;
pub use mutants::mutants;
pub use plan::Profile;
pub use replay::replay;
pub use replica::History;
pub use run::{RunOptions, run};
pub use scenario::Scenario;
pub use unisono_core::replica::disk::DiskDurability;
