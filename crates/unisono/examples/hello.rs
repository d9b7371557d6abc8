//! Two processes greet each other.
//!
//! Run this in two terminals (or more):
//!
//! ```sh
//! cargo run -p unisono --example hello Ann
//! cargo run -p unisono --example hello Bob
//! ```
//!
//! The first process founds the group, the other joins it, and both print the same lines with the same numbers. Each
//! ends when it has seen its own greeting and another's, in the same order as all members.

use std::collections::BTreeSet;
use unisono::{Event, Group, GroupConfig, Options, SendError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let me = std::env::args().nth(1).unwrap_or_else(|| "guest".into());
    let options = Options { name: me.parse()?, ..Options::default() };
    let group = Group::join_or_create("hello", GroupConfig::default(), "", &options)?;
    println!("entered the group; waiting for a member to greet");
    let mut greeted = BTreeSet::new();
    while !greeted.contains(&group.info().me) || greeted.len() < 2 {
        match group.receive()? {
            // The view that this member finds when it enters, and every member that joins later.
            Event::Entered { view, .. } if view.members.len() > 1 => greet(&group, &me, "everybody")?,
            Event::Joined { seqno, member, .. } => {
                println!("{seqno:3}  {} joined", member.name);
                greet(&group, &me, member.name.as_str())?;
            }
            Event::Message { seqno, sender, payload, .. } => {
                println!("{seqno:3}  {}", String::from_utf8_lossy(&payload));
                greeted.insert(sender);
            }
            _ => {}
        }
    }
    Ok(group.leave("bye")?)
}

/// Sends without waiting for the seqno, because this thread is the one that receives.
fn greet(group: &Group, me: &str, other: &str) -> Result<(), SendError> {
    group.submit(format!("{me} says hello to {other}")).map(drop)
}
