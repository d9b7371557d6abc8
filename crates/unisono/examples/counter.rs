//! A counter that is the same in several processes, and survives `kill -9` of any one of them.
//!
//! Start it in three terminals, type numbers to add, and kill one of the processes:
//!
//! ```sh
//! cargo run -p unisono --example counter
//! ```
//!
//! The whole replication is in [`Counter::take`]: every member applies the same commands in the same order. There are
//! two kinds of messages: `add N`, and `state UID VALUE AT`. With the second, the first member sends a joiner the
//! value of the counter as of seqno AT. The joiner has kept all additions after that seqno, so none is lost or
//! counted twice, even if some are sent meanwhile.
//!
//! With resilience 1 two members hold an addition when `send` reports it as accepted, so no crash of one of them
//! loses it.

use std::io::BufRead;
use std::thread;
use unisono::{Event, Group, GroupConfig, Options, SendFailure, Seqno, Uid};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = GroupConfig { resilience: 1, ..GroupConfig::default() };
    let group = Group::join_or_create("counter", config, "", &Options::default())?;
    let replica = group.clone();
    let me = group.info().me;
    thread::spawn(move || {
        let mut counter = Counter::new(me);
        while let Ok(event) = replica.receive() {
            counter.take(&replica, event);
        }
    });
    for line in std::io::stdin().lock().lines() {
        match line?.trim().parse::<i64>() {
            Ok(number) => match group.send(format!("add {number}")) {
                Ok(seqno) => println!("added, at {seqno}"),
                Err(SendFailure::Failed) => println!("a reset dropped the addition; please type it again"),
                Err(error) => return Err(error.into()),
            },
            Err(_) => println!("type a number to add"),
        }
    }
    Ok(group.leave("")?)
}

struct Counter {
    me: Uid,
    /// Members in rank order.
    members: Vec<Uid>,
    /// `None` until this member has received the value.
    value: Option<i64>,
    /// Additions since this member joined, with their seqnos, while it does not know the value.
    additions: Vec<(Seqno, i64)>,
    /// Last seqno that was applied.
    at: Seqno,
}

impl Counter {
    fn new(me: Uid) -> Counter {
        Counter { me, members: Vec::new(), value: None, additions: Vec::new(), at: 0 }
    }

    fn take(&mut self, group: &Group, event: Event) {
        match event {
            Event::Entered { seqno, view } => {
                self.members = view.members.iter().map(|member| member.uid).collect();
                self.at = seqno;
                // A founder begins with 0; a joiner waits for the value.
                self.value = (self.members.len() == 1).then_some(0);
            }
            Event::Message { seqno, payload, .. } => {
                self.at = seqno;
                self.apply(seqno, &String::from_utf8_lossy(&payload));
            }
            Event::Joined { seqno, member, .. } => {
                self.at = seqno;
                self.members.push(member.uid);
                self.tell(group, member.uid);
            }
            Event::Left { seqno, member, .. } => {
                self.at = seqno;
                self.members.retain(|uid| *uid != member.uid);
            }
            Event::Reset { seqno, view, .. } => {
                self.at = seqno;
                self.members = view.members.iter().map(|member| member.uid).collect();
                // The member that was to send the value may have crashed: the first remaining member sends it to all
                // again.
                for member in self.members.clone() {
                    self.tell(group, member);
                }
            }
            _ => return,
        }
        match self.value {
            Some(value) => println!("at {}: {value}, {} members", self.at, self.members.len()),
            None => println!("at {}: value not received yet, {} members", self.at, self.members.len()),
        }
    }

    /// Sends a joiner the value, if this is the first member.
    fn tell(&self, group: &Group, newcomer: Uid) {
        if let Some(value) = self.value
            && self.members.first() == Some(&self.me)
            && newcomer != self.me
        {
            // Not `send`: this thread receives, so it must not wait for a seqno here.
            drop(group.submit(format!("state {newcomer} {value} {}", self.at)));
        }
    }

    fn apply(&mut self, seqno: Seqno, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["add", number] => {
                let number = number.parse().unwrap_or(0);
                match &mut self.value {
                    Some(value) => *value = value.wrapping_add(number),
                    None => self.additions.push((seqno, number)),
                }
            }
            ["state", uid, value, at] if uid == self.me.to_string() && self.value.is_none() => {
                let (Ok(value), Ok(at)) = (value.parse::<i64>(), at.parse::<Seqno>()) else { return };
                let later = self.additions.drain(..).filter(|(seqno, _)| *seqno > at);
                self.value = Some(later.fold(value, |sum, (_, number)| sum.wrapping_add(number)));
            }
            _ => {}
        }
    }
}
