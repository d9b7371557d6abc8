//! A game in which each message chooses what it pays for: positions may be lost, lines of the chat keep their sender's
//! order, scores come in one order everywhere, and no crash takes a result back.
//!
//! Run `cargo run -p unisono --example qualities Ann` in several terminals. Type `3 4` to move there, `score 10` or
//! `result Ann wins` to say so, and anything else to chat. Each line shows its seqno; a position has
//! none, nor has a line of the chat that comes before its seqno is known.

use std::io::BufRead;
use std::thread;
use unisono::{Event, Group, GroupConfig, Options, Quality, SendFailure};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let me = arguments.next().unwrap_or_else(|| "guest".into());
    let game = arguments.next().unwrap_or_else(|| "qualities".into());
    let options = Options { name: me.parse()?, ..Options::default() };
    let group = Group::join_or_create(&game, GroupConfig::default(), me, &options)?;

    // One thread prints events, this one sends what is typed; both use the same handle.
    let receiver = group.clone();
    let printer = thread::spawn(move || print(&receiver));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        // A reset may drop a message that has no seqno yet. No member has it then, and it is safe to send it again.
        while let Err(SendFailure::Failed) = group.send_with(line.clone(), quality_of(&line)) {}
    }
    group.leave("")?;
    printer.join().map_err(|_| "the printing thread panicked".into())
}

/// Returns what a line pays for.
fn quality_of(line: &str) -> Quality {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        // The next position replaces this one.
        [x, y] if x.parse::<i32>().is_ok() && y.parse::<i32>().is_ok() => Quality::UNRELIABLE,
        // All see the same score, and it survives as many crashes as the group's resilience.
        ["score", ..] => Quality::ORDERED,
        // No member announces a result that another could still lose.
        ["result", ..] => Quality::TOTAL,
        // A chat needs each speaker's lines in their order, and no more.
        _ => Quality::SOURCE_ORDERED,
    }
}

fn print(group: &Group) {
    while let Ok(event) = group.receive() {
        let name = |uid| {
            let members = group.info().members;
            members
                .into_iter()
                .find(|member| member.uid == uid)
                .map_or_else(String::new, |known| known.name.to_string())
        };
        match event {
            Event::Entered { view, .. } => println!("in, with {} members", view.members.len()),
            Event::Joined { member, members, .. } => println!("{} joined: {members} members", member.name),
            Event::Message { seqno, sender, payload, .. } => {
                println!("{seqno}: {}: {}", name(sender), String::from_utf8_lossy(&payload));
            }
            Event::Early { sender, quality, payload, .. } => {
                println!("{quality}: {}: {}", name(sender), String::from_utf8_lossy(&payload));
            }
            Event::Reset { excluded, .. } => println!("lost {} members", excluded.len()),
            _ => {}
        }
    }
}
