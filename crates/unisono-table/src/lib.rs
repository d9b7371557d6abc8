//! The state of the directory service as a pure state machine: directories, capabilities and files.
//!
//! A **directory** is a table of rows. A row has a name, a **capability** for an object of any service, and a mask of
//! rights for each of the directory's one to four **columns** (owner, group and other by default). The rights in a
//! directory's capability say which columns it opens; a lookup returns a row's capability under the OR of their masks. So
//! the same directory gives its owner everything and others what their column says. A **file** is up to 16 MiB of bytes
//! that never change, named by a capability. The operations are those of Kaashoek, Tanenbaum and Verstoep, "Using Group
//! Communication to Implement a Fault-Tolerant Directory Service" (1993), Figure 2, and of Amoeba's Bullet server.
//!
//! A [`Table`] applies [`Command`]s and answers [`Query`]s. It has no clock, no random numbers, no hash order and no
//! input but these, so that servers that apply the same commands have the same state: secrets come in commands, and the
//! numbers of objects from the state. A server puts a replicated log in front of it (the crate `unisono-dir` does).
//! [`Watches`] are the questions for changes that a server holds, and a [`Follower`] is the client's side of one; the time
//! is an argument.
//!
//! ```
//! use unisono_table::{Answer, Check, Command, Place, Port, Query, Rights, Table};
//!
//! let mut table = Table::default();
//! let secret = Check::from_bits(0x5ec2e7); // in a real program 128 random bits
//! table.execute(Command::Found { port: Port(7), secret, service: Default::default() });
//! let root = table.root().unwrap();
//!
//! let place = Place { capability: root, path: "notes".parse()? };
//! let content = "buy milk".into();
//! let created = table.execute(Command::CreateFile { place, masks: None, secret: Check::from_bits(0xf11e), content });
//! assert_eq!(created.number, 2);
//!
//! // The column `other` of the root shows the file with the right to read, and no more.
//! let other = root.restrict(Rights(0x04)).unwrap();
//! let place = Place { capability: other, path: "notes".parse()? };
//! let Ok(Answer::Looked(looked)) = table.ask(&Query::Lookup { places: vec![place] }).result else { panic!() };
//! assert_eq!(looked[0].unwrap().capability.rights, Rights::READ);
//! # Ok::<(), unisono_table::NotAName>(())
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `capability`, `name` | capabilities and rights; names and paths |
//! | `request`, `reply`, `refusal` | what goes in and out, and its bytes |
//! | `table` | the state, and what a capability opens of it |
//! | `commands`, `queries` | the operations |
//! | `history` | changes, for watches |
//! | `watches`, `following` | watches as a server holds them, and as a client follows them |
//! | `reach` | objects that no path leads to |
//! | `snapshot` | the state in parts |
//! | `bounds`, `codec`, `object` | bounds; fields as bytes; directories and files |
//! | `planted` | bugs that the simulator can switch on |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bounds;
mod capability;
mod codec;
mod commands;
mod following;
mod history;
mod name;
mod object;
mod parts;
mod planted;
mod queries;
mod reach;
mod refusal;
mod reply;
mod request;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
mod touched;
mod watches;

pub use bounds::*;
pub use capability::{
    CAPABILITY_BYTES, Capability, Check, NotACapability, NotRights, ObjectNumber, Port, Rights,
};
pub use following::{Followed, Follower, Lost, NotAPosition, Position};
pub use name::{NAME_BYTES_MAX, Name, NotAName, PATH_BYTES_MAX, PATH_NAMES_MAX, Path};
pub use planted::Planted;
pub use refusal::{Bound, Reason, Refusal};
pub use reply::{Answer, Change, Event, Info, Listed, Looked, Reply, Row};
pub use request::{Command, Masks, Place, Query, Replacement, Request, RequestKind, VERSION};
pub use snapshot::NotASnapshot;
pub use table::{ROOT, Table};
pub use watches::{CLIENT_WATCHES_MAX, WATCH_HELD_MAX, WATCHES_MAX, Watches};
