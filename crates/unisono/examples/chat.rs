//! A chat in which no member sees an answer before its question.
//!
//! Run `cargo run -p unisono --example chat Ann` in several terminals, and type. All members see all lines, joins,
//! leaves and crashes in the same order. A member's own line appears when it has its seqno, not before.

use std::io::BufRead;
use std::thread;
use unisono::{Event, Group, GroupConfig, Member, Options, Uid};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let me = std::env::args().nth(1).unwrap_or_else(|| "guest".into());
    let options = Options { name: me.parse()?, ..Options::default() };
    let group = Group::join_or_create("chat", GroupConfig::default(), me, &options)?;

    // One thread prints events, this one sends what is typed; both use the same handle.
    let receiver = group.clone();
    let printer = thread::spawn(move || print(&receiver));
    for line in std::io::stdin().lock().lines() {
        // Returns when the line has its seqno. If a reset dropped the line, no member has it, and it is safe to send
        // it again.
        while let Err(unisono::SendFailure::Failed) =
            group.send(line.as_deref().unwrap_or_default().to_owned())
        {}
    }
    group.leave("")?;
    printer.join().map_err(|_| "the printing thread panicked".into())
}

fn print(group: &Group) {
    let mut members: Vec<Member> = Vec::new();
    while let Ok(event) = group.receive() {
        match event {
            Event::Entered { view, .. } => {
                members = view.members;
                println!("-- you are in, with {}", names(&members));
            }
            Event::Message { seqno, sender, payload, .. } => {
                println!("{seqno:4} {}: {}", name(&members, sender), String::from_utf8_lossy(&payload));
            }
            Event::Joined { seqno, member, .. } => {
                println!("{seqno:4} -- {} joined", member.name);
                members.push(member);
            }
            Event::Left { seqno, member, .. } => {
                println!("{seqno:4} -- {} left", member.name);
                members.retain(|present| present.uid != member.uid);
            }
            Event::Reset { seqno, view, excluded, .. } => {
                println!("{seqno:4} -- lost {}; going on with {}", names(&excluded), names(&view.members));
                members = view.members;
            }
            Event::Excluded { .. } => println!("-- the others excluded this member"),
            _ => {}
        }
    }
}

fn name(members: &[Member], uid: Uid) -> String {
    members
        .iter()
        .find(|member| member.uid == uid)
        .map_or_else(|| uid.to_string(), |member| member.name.to_string())
}

fn names(members: &[Member]) -> String {
    members.iter().map(|member| member.name.to_string()).collect::<Vec<_>>().join(", ")
}
