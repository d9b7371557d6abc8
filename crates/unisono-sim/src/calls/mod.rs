//! Runs of calls: clients and servers, each an endpoint of its own, in the same world and under the same faults as
//! groups. `plan` says what a seed decides, `director` runs it; `clients` and `servers` are the applications.

mod clients;
mod director;
mod plan;
mod servers;

pub(crate) use director::Director;
