//! A member process of a group whose latency is measured: one member sends, all receive. A message is timed to its delivery at
//! its sender or, if it may be delivered before its seqno, at a receiver.

use crate::bench::Protocol;
use crate::bench::reset::{self, WasReset};
use crate::connection;
use crate::location::Location;
use crate::passes::Passes;
use crate::processes::{self, Instructions, monotonic_ns};
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::{Bytes, Event, Group, Order, Quality};

/// The member that a process is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) group: String,
    /// True for the member that founds the group; the others join it.
    pub(crate) founder: bool,
    /// True for the member that sends.
    pub(crate) sender: bool,
    pub(crate) protocol: Protocol,
    /// Size of a message.
    pub(crate) bytes: usize,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// An instruction to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Send `untimed` and then `timed` messages.
    Send { untimed: usize, timed: usize },
    /// Send `count` messages, each after the place of the one before is known.
    SendApart { count: usize },
    /// Note when each of the next `count` messages is delivered.
    Note { count: usize },
    /// Report what was used, and how the group is reached.
    Usage,
}

/// An answer of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It has entered the group.
    Entered,
    /// Time of each message to its own delivery, in nanoseconds.
    Took(Vec<u64>),
    /// When it began to send each message, on the machine's monotonic clock in nanoseconds.
    Began(Vec<u64>),
    /// It notes deliveries from now on.
    Noting,
    /// When each message was delivered, on the same clock.
    Noted(Vec<u64>),
    /// What it used so far.
    Usage(Usage),
    /// Its group was reset.
    WasReset,
    /// It failed with this error.
    Trouble(String),
}

/// What a member has used so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Processor time in nanoseconds.
    pub(crate) processor_ns: u64,
    /// Datagrams sent; a multicast counts once, otherwise each copy counts.
    pub(crate) datagrams: u64,
    /// Passes of the token.
    pub(crate) passes: Passes,
    /// True if it is the sequencer, or a member of a ring, and sends to all by multicast.
    pub(crate) by_multicast: bool,
    /// Hand-overs of the sequencer's role that it delivered, if it is the sender.
    pub(crate) hand_overs: u64,
}

/// Runs a measured member.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let group = enter(&assignment)?;
    processes::answer(&Answer::Entered)?;
    let noted = Arc::<Noted>::default();
    if !assignment.sender {
        let (receiving, noted) = (group.clone(), noted.clone());
        crate::threads::start("events", move || receive(&receiving, &noted))?;
    }
    let message = Bytes::from(vec![b'x'; assignment.bytes]);
    let mut hand_overs = 0;
    while let Some(instruction) = instructions.next()? {
        match instruction {
            Instruction::Send { untimed, timed } => {
                let what = (&message, assignment.protocol.quality);
                let mut exchange = |count| exchange(&group, what, count, &mut hand_overs);
                let took = exchange(untimed).and_then(|_| exchange(timed));
                processes::answer(&match took {
                    Ok(took) => Answer::Took(took),
                    Err(_) if reset::happened_to(&group) => Answer::WasReset,
                    Err(error) => Answer::Trouble(format!("{error:#}")),
                })?;
            }
            Instruction::SendApart { count } => {
                processes::answer(
                    &match send_apart(&group, (&message, assignment.protocol.quality), count) {
                        Ok(began) => Answer::Began(began),
                        Err(_) if reset::happened_to(&group) => Answer::WasReset,
                        Err(error) => Answer::Trouble(format!("{error:#}")),
                    },
                )?;
            }
            Instruction::Note { count } => {
                noted.begin();
                processes::answer(&Answer::Noting)?;
                processes::answer(&Answer::Noted(noted.end(count)))?;
            }
            Instruction::Usage => processes::answer(&Answer::Usage(Usage { hand_overs, ..usage(&group) }))?,
        }
    }
    Ok(())
}

fn enter(assignment: &Assignment) -> anyhow::Result<Group> {
    let options = connection::options(&assignment.settings, None).map_err(|problem| problem.into_error())?;
    Ok(if assignment.founder {
        Group::create(&assignment.group, assignment.protocol.config(), &options)?
    } else {
        connection::patiently(|| Group::join(&assignment.group, "", &options))?
    })
}

fn receive(group: &Group, noted: &Noted) {
    let mut events = Vec::new();
    while group.receive_many(&mut events).is_ok() {
        let is_message = |event: &Event| matches!(event, Event::Message { .. } | Event::Early { .. });
        noted.add(monotonic_ns(), events.drain(..).filter(is_message).count());
    }
}

/// When messages were delivered, while that is asked for.
#[derive(Debug, Default)]
struct Noted {
    at_ns: Mutex<Option<Vec<u64>>>,
    more: Condvar,
}

impl Noted {
    fn begin(&self) {
        *self.at_ns.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    fn add(&self, now: u64, count: usize) {
        if let Some(at_ns) = self.at_ns.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            at_ns.extend((0..count).map(|_| now));
            self.more.notify_one();
        }
    }

    /// Waits for this number of deliveries, and returns their times. The measuring process gives up if they do not come.
    fn end(&self, count: usize) -> Vec<u64> {
        let at_ns = self.at_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let lacks = |at_ns: &mut Option<Vec<u64>>| at_ns.as_ref().is_some_and(|at_ns| at_ns.len() < count);
        let mut at_ns = self.more.wait_while(at_ns, lacks).unwrap_or_else(PoisonError::into_inner);
        at_ns.take().unwrap_or_default()
    }
}

/// Sends `count` messages, each after the delivery of the one before. Returns the time of each, in nanoseconds.
fn exchange(
    group: &Group,
    (message, quality): (&Bytes, Quality),
    count: usize,
    hand_overs: &mut u64,
) -> anyhow::Result<Vec<u64>> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        let number = group.submit_with(message.clone(), quality)?.number();
        await_own(group, number, hand_overs)?;
        took.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(took)
}

/// Sends `count` messages, each after the place of the one before is known. Returns when each began, in nanoseconds of the
/// monotonic clock.
fn send_apart(
    group: &Group,
    (message, quality): (&Bytes, Quality),
    count: usize,
) -> anyhow::Result<Vec<u64>> {
    let mut began = Vec::with_capacity(count);
    for _ in 0..count {
        began.push(monotonic_ns());
        group.submit_with(message.clone(), quality)?.wait()?;
        while let Some(event) = group.receive_timeout(Duration::ZERO)? {
            anyhow::ensure!(!matches!(event, Event::Reset { .. }), WasReset);
        }
    }
    Ok(began)
}

/// Receives through this member's own message of this number. Only this member sends.
fn await_own(group: &Group, own: u64, hand_overs: &mut u64) -> anyhow::Result<()> {
    loop {
        match group.receive()? {
            Event::Message { number, .. } if number >= own => return Ok(()),
            Event::HandedOver { .. } => *hand_overs += 1,
            Event::Reset { .. } => anyhow::bail!(WasReset),
            _ => {}
        }
    }
}

fn usage(group: &Group) -> Usage {
    let info = group.info();
    Usage {
        processor_ns: processes::processor_ns(),
        datagrams: group.counters().datagrams_sent,
        passes: Passes::of(group),
        by_multicast: info.by_multicast && (info.me == info.sequencer || info.order == Order::Token),
        hand_overs: 0,
    }
}
