//! Messages from outside: processes that use a group without joining it.
//!
//! A member that is *open* takes messages of clients by calls, and sends them to the group as its own, each with a mark
//! that names the client and the client's number of the message. Such a member is the client's [`Relay`]; the client's side
//! is the [`Sender`]. Both are state machines above [`Group`](crate::Group) and calls, and need no frames of their own:
//! `mark` says how a message carries its mark, and `words` what calls and members say.
//!
//! A client has one relay at a time, and one request with up to [`BATCH_MAX`] messages under way. When the relay dies, the
//! client asks another open member to take it over. That member sends a *claim* in the group's order, and answers when the
//! order shows that nothing of the client can come from the former relay any more: the former relay has released the client
//! by a message of its own, which comes after all that it sent for the client, or it has left the view. So the answer says
//! of each message under way whether it has its place, and what the client sends next comes after all of them.
//!
//! Each open member folds the marks of the messages that it delivers into its [`Memory`] of clients, from which it answers.
//! The memory is bounded, and forgets the client whose last message is furthest back in the member's stream.

mod mark;
mod memory;
mod recent;
mod relay;
mod sender;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use mark::{escape, mark, unmark};
pub use memory::Memory;
pub use relay::{Given, Relay, Ticket};
pub use sender::{Call, Fate, Position, Sender, SenderError};
pub use words::{Answer, Ask, NotAWord};

/// Maximum number of messages in one request, so under way for one client.
pub const BATCH_MAX: usize = 64;
/// Maximum bytes of messages in one request, a single larger message excepted.
pub const BATCH_BYTES_MAX: usize = 48 << 10;
/// Number of clients that a member remembers.
pub const CLIENTS_MAX: usize = 16_384;
/// Number of clients that one member serves at a time; it tells the one that has sent nothing for the longest to begin
/// anew.
pub const SERVED_MAX: usize = 4_096;
