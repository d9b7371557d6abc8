//! Runs of calls: clients and servers, each with an endpoint of its own, in the same world and under the same faults as
//! groups. `plan` draws what a seed determines, `director` runs it, and `clients` and `servers` are the applications.

mod clients;
mod director;
mod plan;
mod servers;

pub(crate) use director::Director;
