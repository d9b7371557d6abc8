//! The papers' measurements again, on a simulated testbed of their time.
//!
//! This module has nothing to do with the world of the checkers. It asks how fast things were, not whether they are right:
//! computers of about 1990 on one Ethernet, with what work cost them, and protocols that run on them.
//!
//! | module | what it is |
//! |---|---|
//! | `ethernet`, `node`, `flip` | the cable; a computer with its processor and rings; packets |
//! | `testbed` | these together, in simulated time, and what a protocol has to be to run on it |
//! | `costs` | every cost of a machine, with its origin |
//! | `protocol`, `product` | the papers' group protocol; our own core |
//! | `calls`, `directory` | calls; the directory services |
//! | `rmp`, `ring` | RMP; our own core in its place, as a ring |
//! | `gathering` | how groups of our core come together before a trial |
//! | `group`, `ledger`, `laboratory` | trials of groups, their measurements, and many of them at once |
//! | `points`, `quantities`, `rows` | the papers' numbers; how each is measured; both side by side |

mod calls;
mod costs;
mod directory;
mod ethernet;
mod flip;
mod gathering;
mod group;
mod laboratory;
mod ledger;
mod node;
mod points;
mod product;
mod protocol;
mod quantities;
mod ring;
mod rmp;
mod rows;
mod testbed;

pub use costs::{Change, CostError, Costs, MachineName, Origin, Parameter};
pub use directory::{Operation, Service};
pub use group::{Measured, Method, Trial};
pub use laboratory::{Laboratory, Side};
pub use points::{Point, Quantity, Use, points};
pub use rows::{InLab, OWN_TIMERS, Row, SEQUENCER, ratios, run, select};
