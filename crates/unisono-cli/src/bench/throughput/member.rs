//! A member process of a group under load: all members receive, some send as fast as their window allows.

use crate::bench::Protocol;
use crate::bench::reset::{self, WasReset};
use crate::connection;
use crate::location::Location;
use crate::passes::Passes;
use crate::processes::{self, Instructions, monotonic_ns, processor_ns};
use crate::settings::Settings;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use unisono::{Batch, Bytes, Event, Group, GroupConfig, Quality, Uid};

/// Message with which a sender ends its block.
const OVER: &[u8] = b"unisono bench: over";
/// A sender fills its window when at least a quarter of it is free: submitted singly, each message would cost a
/// datagram.
const REFILL_PART: u32 = 4;
/// Minimum size of a piece of a large message, in bytes. A piece counts as a message in a group's window.
const PIECE_BYTES_MIN: usize = 1200;
/// Maximum window of a group.
const GROUP_WINDOW_MAX: usize = 65_536;

/// The member that a process is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) group: String,
    /// True for the member that founds the group; the others join it.
    pub(crate) founder: bool,
    /// True for a member that sends.
    pub(crate) sender: bool,
    /// Number of members that send.
    pub(crate) senders: usize,
    pub(crate) protocol: Protocol,
    /// Maximum number of messages of a sender under way.
    pub(crate) window: u32,
    /// Size of a message.
    pub(crate) bytes: usize,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// An instruction to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Load the group until `to_ns`, and count from `from_ns` on, both on the machine's monotonic clock.
    Load { from_ns: u64, to_ns: u64 },
    /// Report whether this member sends to all by multicast.
    Transport,
}

/// An answer of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It has entered the group.
    Entered,
    /// What it counted in a block.
    Tally(Tally),
    /// Whether it sends to all by multicast.
    ByMulticast(bool),
    /// Its group was reset.
    WasReset,
    /// It failed with this error.
    Trouble(String),
}

/// What a member counted in the measured part of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Messages delivered.
    pub(crate) delivered: u64,
    /// Processor time in nanoseconds.
    pub(crate) processor_ns: u64,
    /// Datagrams sent; a multicast counts once, otherwise each copy counts.
    pub(crate) datagrams: u64,
    /// Passes of the token.
    pub(crate) passes: Passes,
    /// Nanoseconds from submission to delivery of its own messages, each with its number of occurrences.
    pub(crate) took: Vec<(u64, u64)>,
    /// Number of messages delivered in all blocks so far, and a hash of them: of their seqnos and contents in order, or of their
    /// contents in any order if they may be delivered before their seqnos.
    pub(crate) entries: u64,
    pub(crate) hash: u64,
    /// Hand-overs of the sequencer's role so far.
    pub(crate) hand_overs: u64,
}

/// Runs a loaded member.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let group = enter(&assignment)?;
    processes::answer(&Answer::Entered)?;
    let mut member = Member::new(group, &assignment)?;
    while let Some(instruction) = instructions.next()? {
        processes::answer(&match instruction {
            Instruction::Load { from_ns, to_ns } => match member.load(from_ns, to_ns) {
                Ok(tally) => Answer::Tally(tally),
                Err(_) if reset::happened_to(&member.group) => Answer::WasReset,
                Err(error) => Answer::Trouble(format!("{error:#}")),
            },
            Instruction::Transport => Answer::ByMulticast(member.group.info().by_multicast),
        })?;
    }
    Ok(())
}

impl Assignment {
    /// Returns the number of messages of this member that may be under way, and the window of the group, which has room
    /// for all their pieces. A member that waited for room in the window would not receive meanwhile, and would block
    /// the others.
    fn windows(&self) -> (u32, u32) {
        let pieces = self.bytes / PIECE_BYTES_MIN + 1;
        let messages = (self.window as usize).min((GROUP_WINDOW_MAX - 1) / pieces).max(1);
        let room = (messages * pieces + 1).min(GROUP_WINDOW_MAX);
        (u32::try_from(messages).unwrap_or(u32::MAX), u32::try_from(room).unwrap_or(u32::MAX))
    }
}

fn enter(assignment: &Assignment) -> anyhow::Result<Group> {
    let options = connection::options(&assignment.settings, None).map_err(|problem| problem.into_error())?;
    let config = GroupConfig { window: assignment.windows().1, ..assignment.protocol.config() };
    Ok(if assignment.founder {
        Group::create(&assignment.group, config, &options)?
    } else {
        connection::patiently(|| Group::join(&assignment.group, "", &options))?
    })
}

struct Member {
    group: Group,
    me: Uid,
    message: Bytes,
    quality: Quality,
    sender: bool,
    senders: usize,
    window: u32,
    entries: u64,
    hash: u64,
    hand_overs: u64,
}

impl Member {
    fn new(group: Group, assignment: &Assignment) -> anyhow::Result<Member> {
        let me = group.info().me;
        let message = Bytes::from(vec![b'x'; assignment.bytes]);
        let (sender, senders, (window, _)) = (assignment.sender, assignment.senders, assignment.windows());
        let quality = assignment.protocol.quality;
        Ok(Member {
            group,
            me,
            message,
            quality,
            sender,
            senders,
            window,
            entries: 0,
            hash: 0,
            hand_overs: 0,
        })
    }

    /// Runs one block: sends if this member is a sender, and receives until every sender has ended the block.
    fn load(&mut self, from_ns: u64, to_ns: u64) -> anyhow::Result<Tally> {
        let mut gauge = Gauge::new(from_ns, to_ns)?;
        let mut flight = Flight::default();
        let mut events = Vec::new();
        let (mut over, mut said) = (0, !self.sender);
        while over < self.senders {
            let now = monotonic_ns();
            gauge.look(now, &self.group);
            if !said && now >= to_ns {
                said = true;
                drop(self.group.submit(Bytes::from_static(OVER))?);
            } else if !said {
                let (room, quarter) = (self.window - flight.under_way(), self.window.div_ceil(REFILL_PART));
                if room >= quarter {
                    // An early batch makes room as a whole: several are under way at a time.
                    let count = if self.quality.may_be_early() { quarter } else { room };
                    let messages = (0..count).map(|_| self.message.clone());
                    let batch =
                        self.group.submit_all_with(messages, self.quality).map_err(|(_, error)| error)?;
                    flight.launch(now, count, self.quality.may_be_early().then_some(batch));
                } else if self.quality.may_be_early() {
                    events.extend(self.group.try_receive()?);
                    if events.is_empty() {
                        flight.await_numbers();
                        continue;
                    }
                }
            }
            if events.is_empty() {
                self.group.receive_many(&mut events)?;
            }
            let now = monotonic_ns();
            gauge.look(now, &self.group);
            for event in events.drain(..) {
                self.note(&event);
                match event {
                    Event::Message { payload, .. } if payload == OVER => over += 1,
                    Event::Message { sender, .. } | Event::Early { sender, .. } => {
                        if sender == self.me {
                            let began = flight.land();
                            gauge.delivered(now, Some(now.saturating_sub(began)));
                        } else {
                            gauge.delivered(now, None);
                        }
                    }
                    Event::HandedOver { .. } => self.hand_overs += 1,
                    Event::Reset { .. } => anyhow::bail!(WasReset),
                    _ => {}
                }
            }
        }
        Ok(Tally { hand_overs: self.hand_overs, ..gauge.tally(self.entries, self.hash) })
    }

    /// Adds a message to the hash of all messages so far.
    fn note(&mut self, event: &Event) {
        let mixed = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let content = |payload: &Bytes| u64::from(crc32c::crc32c(payload));
        self.hash = match event {
            Event::Message { sender, payload, .. } | Event::Early { sender, payload, .. }
                if self.quality.may_be_early() =>
            {
                self.hash.wrapping_add(mixed(mixed(0, sender.0), content(payload)))
            }
            Event::Message { seqno, sender, number, payload, .. } => {
                [*seqno, sender.0, *number, content(payload)].into_iter().fold(self.hash, mixed)
            }
            _ => return,
        };
        self.entries += 1;
    }
}

/// This member's messages under way, in batches that were submitted together.
#[derive(Default)]
struct Flight {
    undelivered: u32,
    /// For each batch the time of its submission, and the number of its messages that are not delivered yet.
    batches: VecDeque<(u64, u32)>,
    /// Batches of early messages that have no seqnos yet, with their numbers of messages. Their sender has them
    /// delivered at once: without this count it would wait for room in the window, and not receive meanwhile.
    unnumbered: VecDeque<(u32, Batch)>,
}

impl Flight {
    fn launch(&mut self, now: u64, count: u32, early: Option<Batch>) {
        self.undelivered += count;
        self.batches.push_back((now, count));
        self.unnumbered.extend(early.map(|batch| (count, batch)));
    }

    /// Returns the number of messages that are not delivered here, or have no seqno.
    fn under_way(&mut self) -> u32 {
        while self.unnumbered.front_mut().is_some_and(|(_, batch)| batch.try_wait().is_some()) {
            self.unnumbered.pop_front();
        }
        self.undelivered.max(self.unnumbered.iter().map(|(count, _)| count).sum())
    }

    /// Waits for the seqnos of the oldest early batch, but not long: events may come meanwhile.
    fn await_numbers(&mut self) {
        if let Some((_, batch)) = self.unnumbered.front_mut() {
            batch.wait_timeout(Duration::from_millis(1));
        }
    }

    /// Removes the oldest message, which was delivered. Returns the time of its submission.
    fn land(&mut self) -> u64 {
        self.undelivered = self.undelivered.saturating_sub(1);
        let Some((began, left)) = self.batches.front_mut() else { return 0 };
        let began = *began;
        *left -= 1;
        if *left == 0 {
            self.batches.pop_front();
        }
        began
    }
}

/// Counters of the time between two moments.
struct Gauge {
    from_ns: u64,
    to_ns: u64,
    delivered: u64,
    took: Histogram<u64>,
    /// Processor time, datagrams and passes of the token at the two moments.
    begin: Option<(u64, u64, Passes)>,
    end: Option<(u64, u64, Passes)>,
}

impl Gauge {
    fn new(from_ns: u64, to_ns: u64) -> anyhow::Result<Gauge> {
        let took = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        Ok(Gauge { from_ns, to_ns, delivered: 0, took, begin: None, end: None })
    }

    fn look(&mut self, now: u64, group: &Group) {
        let moment = if self.begin.is_none() && now >= self.from_ns {
            &mut self.begin
        } else if self.end.is_none() && now >= self.to_ns {
            &mut self.end
        } else {
            return;
        };
        *moment = Some((processor_ns(), group.counters().datagrams_sent, Passes::of(group)));
    }

    fn delivered(&mut self, now: u64, took: Option<u64>) {
        if (self.from_ns..self.to_ns).contains(&now) {
            self.delivered += 1;
            if let Some(took) = took {
                self.took.saturating_record(took);
            }
        }
    }

    fn tally(&self, entries: u64, hash: u64) -> Tally {
        let (begin, end) = (self.begin.unwrap_or_default(), self.end.unwrap_or_default());
        Tally {
            delivered: self.delivered,
            processor_ns: end.0.saturating_sub(begin.0),
            datagrams: end.1.saturating_sub(begin.1),
            passes: end.2.since(begin.2),
            took: self
                .took
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
            entries,
            hash,
            hand_overs: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_room_for_the_pieces_of_all_that_is_under_way() {
        let assignment = |bytes, window| Assignment {
            group: String::new(),
            founder: true,
            sender: true,
            senders: 1,
            protocol: Protocol::default(),
            window,
            bytes,
            location: Location::here(None),
            settings: Settings::default(),
        };
        assert_eq!(assignment(64, 1024).windows(), (1024, 1025));
        assert_eq!(assignment(8000, 64).windows(), (64, 449));
        let (messages, room) = assignment(1 << 20, 65_536).windows();
        assert!((1..100).contains(&messages) && room <= 65_536, "{messages} {room}");
    }

    #[test]
    fn messages_are_delivered_in_the_order_of_their_batches() {
        let mut flight = Flight::default();
        flight.launch(10, 2, None);
        flight.launch(20, 1, None);
        assert_eq!((flight.land(), flight.land(), flight.land(), flight.under_way()), (10, 10, 20, 0));
        assert_eq!(flight.land(), 0);
    }

    #[test]
    fn only_messages_delivered_in_the_measured_part_count() {
        let mut gauge = Gauge::new(100, 200).unwrap();
        for now in [99, 100, 199, 200] {
            gauge.delivered(now, Some(5));
        }
        let tally = gauge.tally(4, 1);
        assert_eq!((tally.delivered, tally.took), (2, vec![(5, 2)]));
    }
}
