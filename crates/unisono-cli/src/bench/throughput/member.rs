//! A member process whose group is loaded: all receive, some send as fast as their window allows.

use crate::bench::Protocol;
use crate::bench::reset::{self, WasReset};
use crate::connection;
use crate::location::Location;
use crate::processes::{self, Instructions, monotonic_ns, processor_ns};
use crate::settings::Settings;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use unisono::{Bytes, Event, Group, GroupConfig, Uid};

/// What a sender says when its block is over.
const OVER: &[u8] = b"unisono bench: over";
/// A sender fills its window when at least this part of it is free: submitting one by one would cost a packet each.
const REFILL_PART: u32 = 4;
/// A piece of a large message has at least so many bytes, and counts as a message in a group's window.
const PIECE_BYTES_MIN: usize = 1200;
/// The largest window of a group.
const GROUP_WINDOW_MAX: usize = 65_536;

/// Which member to be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) group: String,
    /// Founds the group; the others join it.
    pub(crate) founder: bool,
    /// One of those that send.
    pub(crate) sender: bool,
    /// How many send.
    pub(crate) senders: usize,
    pub(crate) protocol: Protocol,
    /// Messages of a sender that may be under way.
    pub(crate) window: u32,
    /// Size of a message.
    pub(crate) bytes: usize,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// An order to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Load the group until `to_ns`, and count from `from_ns` on: both on the machine's monotonic clock.
    Load { from_ns: u64, to_ns: u64 },
    /// Say whether what it sends to all goes by multicast.
    Transport,
}

/// What a member reports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is in.
    Entered,
    /// A block is over.
    Tally(Tally),
    /// What it sends to all goes by multicast, or not.
    ByMulticast(bool),
    /// Its group was reset.
    WasReset,
    /// Something is wrong with it.
    Trouble(String),
}

/// What a member counted while a block was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Messages delivered.
    pub(crate) delivered: u64,
    /// Processor time in nanoseconds.
    pub(crate) processor_ns: u64,
    /// Datagrams sent; a multicast counts once, and otherwise each copy.
    pub(crate) datagrams: u64,
    /// Nanoseconds from submission to delivery of its own messages, and how often each.
    pub(crate) took: Vec<(u64, u64)>,
    /// Over all places of all blocks so far: how many, and a hash of what was found at each.
    pub(crate) places: u64,
    pub(crate) hash: u64,
    /// Hand-overs of the sequencer's role so far.
    pub(crate) hand_overs: u64,
}

/// The life of a loaded member.
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
    /// Messages of this member that may be under way, and the group's window that has room for all their pieces:
    /// a member that waited for room would not receive meanwhile, and keep the others from going on.
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
    sender: bool,
    senders: usize,
    window: u32,
    places: u64,
    hash: u64,
    hand_overs: u64,
}

impl Member {
    fn new(group: Group, assignment: &Assignment) -> anyhow::Result<Member> {
        let me = group.info().me;
        let message = Bytes::from(vec![b'x'; assignment.bytes]);
        let (sender, senders, (window, _)) = (assignment.sender, assignment.senders, assignment.windows());
        Ok(Member { group, me, message, sender, senders, window, places: 0, hash: 0, hand_overs: 0 })
    }

    /// One block: sends if it is one of those who do, receives until every sender has said that it is over.
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
                let room = self.window - flight.under_way;
                if room >= self.window.div_ceil(REFILL_PART) {
                    flight.launch(now, room);
                    let messages = (0..room).map(|_| self.message.clone());
                    drop(self.group.submit_all(messages).map_err(|(_, error)| error)?);
                }
            }
            self.group.receive_many(&mut events)?;
            let now = monotonic_ns();
            gauge.look(now, &self.group);
            for event in events.drain(..) {
                match event {
                    Event::Message { seqno, sender, number, payload } => {
                        self.note(seqno, sender, number, &payload);
                        if payload == OVER {
                            over += 1;
                        } else if sender == self.me {
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
        Ok(Tally { hand_overs: self.hand_overs, ..gauge.tally(self.places, self.hash) })
    }

    /// Hashes what was found at a place into what was found before.
    fn note(&mut self, seqno: u64, sender: Uid, number: u64, payload: &[u8]) {
        let content = u64::from(crc32c::crc32c(payload));
        for word in [seqno, sender.0, number, content] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.places += 1;
    }
}

/// This member's messages under way, in batches that left together.
#[derive(Default)]
struct Flight {
    under_way: u32,
    /// When each batch left, and how many of it have not come back.
    batches: VecDeque<(u64, u32)>,
}

impl Flight {
    fn launch(&mut self, now: u64, count: u32) {
        self.under_way += count;
        self.batches.push_back((now, count));
    }

    /// The oldest message has come back: when it left.
    fn land(&mut self) -> u64 {
        self.under_way = self.under_way.saturating_sub(1);
        let Some((began, left)) = self.batches.front_mut() else { return 0 };
        let began = *began;
        *left -= 1;
        if *left == 0 {
            self.batches.pop_front();
        }
        began
    }
}

/// Counts between two moments.
struct Gauge {
    from_ns: u64,
    to_ns: u64,
    delivered: u64,
    took: Histogram<u64>,
    /// Processor time and datagrams at the two moments.
    begin: Option<(u64, u64)>,
    end: Option<(u64, u64)>,
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
        *moment = Some((processor_ns(), group.counters().datagrams_sent));
    }

    fn delivered(&mut self, now: u64, took: Option<u64>) {
        if (self.from_ns..self.to_ns).contains(&now) {
            self.delivered += 1;
            if let Some(took) = took {
                self.took.saturating_record(took);
            }
        }
    }

    fn tally(&self, places: u64, hash: u64) -> Tally {
        let (begin, end) = (self.begin.unwrap_or_default(), self.end.unwrap_or_default());
        Tally {
            delivered: self.delivered,
            processor_ns: end.0.saturating_sub(begin.0),
            datagrams: end.1.saturating_sub(begin.1),
            took: self
                .took
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
            places,
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
    fn messages_come_back_in_the_order_of_their_batches() {
        let mut flight = Flight::default();
        flight.launch(10, 2);
        flight.launch(20, 1);
        assert_eq!((flight.land(), flight.land(), flight.land(), flight.under_way), (10, 10, 20, 0));
        assert_eq!(flight.land(), 0);
    }

    #[test]
    fn only_what_is_delivered_while_measured_counts() {
        let mut gauge = Gauge::new(100, 200).unwrap();
        for now in [99, 100, 199, 200] {
            gauge.delivered(now, Some(5));
        }
        let tally = gauge.tally(4, 1);
        assert_eq!((tally.delivered, tally.took), (2, vec![(5, 2)]));
    }
}
