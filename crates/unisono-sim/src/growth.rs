//! Measures what a group costs as it grows: datagrams, bytes and history entries, per message and per idle second.
//!
//! Members join one after another. Then the group is idle for a while. Then four members send at a steady rate. There
//! are no faults, and the checkers run as in every other run. docs/scale.md compares these measurements with the
//! arithmetic.

use crate::draw::{MILLISECOND, SECOND};
use crate::network::{Conditions, Network, Traffic};
use crate::plan::name;
use crate::properties::{self, Checkers, GroupTerms, Violation};
use crate::recorder::Recorder;
use crate::world::{Birth, GroupBirth, GroupCommon, GroupSide, Notice, Trigger, World};
use serde::Serialize;
use thiserror::Error;
use unisono_core::{ConfigError, EntryMode, GroupConfig, Quality, Random, Settings, Transport};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthOptions {
    /// Number of members.
    pub members: u16,
    /// True to send one copy to each member instead of multicasts.
    pub copies: bool,
}

/// The costs of a group of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Always `growth`.
    pub command: &'static str,
    /// Number of members.
    pub members: u16,
    /// True if datagrams for all members were sent as one copy for each.
    pub copies: bool,
    /// Number of members that sent.
    pub senders: usize,
    /// Cost of one join, from the joiner's first datagram until its application received `Entered`: the average of the
    /// last four.
    pub join: Cost,
    /// Cost of one second in which no member sent.
    pub idle_second: Cost,
    /// Cost of one message, including all other traffic at that time.
    pub message: Cost,
    /// Most history entries that any member kept while messages were sent.
    pub history_entries: usize,
    /// Simulated seconds.
    pub simulated_s: f64,
}

/// Network cost of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Datagrams sent; a multicast counts once.
    pub datagrams: f64,
    /// Bytes in these datagrams.
    pub bytes: f64,
    /// Datagrams received, by all members together.
    pub received: f64,
}

/// Why a group could not be measured.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GrowthError {
    /// The group's configuration is invalid.
    #[error("{0}")]
    Config(ConfigError),
    /// A member had not joined after one simulated minute.
    #[error("member {0} did not join within a simulated minute")]
    NotEntered(u16),
    /// A member refused to send a message.
    #[error("a message was refused: {0}")]
    Refused(String),
    /// A checker reported a violation.
    #[error("{0}")]
    Broken(Violation),
}

/// Permitted sizes: the measurement needs at least three members, and a group has at most 4096.
pub const MEMBERS: std::ops::RangeInclusive<u16> = 3..=4096;

const SENDERS: usize = 4;
const MESSAGE_BYTES: usize = 100;
/// Nanoseconds between two messages of one sender.
const EVERY: u64 = 10 * MILLISECOND;
/// Messages of each sender before the measurement starts.
const WARM_UP: u64 = 100;
/// Messages of each sender during the measurement.
const COUNTED: u64 = 640;
/// Nanoseconds until heartbeats have reached their longest interval.
const CALMING: u64 = 20 * SECOND;
/// Length of the measurement in an idle group, in seconds: several heartbeats, whatever the size of the group.
const IDLE_S: u64 = 20;
/// Maximum duration of one join, in nanoseconds.
const JOIN_MAX: u64 = 60 * SECOND;
/// Number of joins at the end whose costs are averaged.
const JOINS: u16 = 4;

/// Returns the number of progress steps for a group of this size: one for each join, and as many for the rest.
pub fn steps(members: u16) -> u64 {
    2 * u64::from(members)
}

/// Measures a group and returns its costs. `progress` receives the number of further [`steps`] that are done.
///
/// # Errors
/// See [`GrowthError`].
pub fn growth(options: GrowthOptions, progress: &mut dyn FnMut(u64)) -> Result<Growth, GrowthError> {
    let mut stage = Stage::new(options, progress);
    let join = stage.gather()?;
    stage.wait(CALMING)?;
    let before = stage.traffic();
    stage.wait(IDLE_S * SECOND)?;
    let idle_second = Cost::between(before, stage.traffic(), IDLE_S);
    stage.send(WARM_UP)?;
    let before = stage.traffic();
    let history_entries = stage.send(COUNTED)?;
    let message = Cost::between(before, stage.traffic(), COUNTED * SENDERS as u64);
    stage.wait(CALMING)?;
    let simulated_s = stage.world.now as f64 / SECOND as f64;
    stage.close()?;
    Ok(Growth {
        command: "growth",
        members: options.members,
        copies: options.copies,
        senders: SENDERS,
        join,
        idle_second,
        message,
        history_entries,
        simulated_s,
    })
}

impl Cost {
    /// Returns the average cost of each of `count` operations.
    fn between(before: Traffic, after: Traffic, count: u64) -> Cost {
        let each = |before: u64, after: u64| (after - before) as f64 / count as f64;
        Cost {
            datagrams: each(before.datagrams, after.datagrams),
            bytes: each(before.bytes, after.bytes),
            received: each(before.copies, after.copies),
        }
    }
}

struct Stage<'a> {
    world: World<GroupSide>,
    config: GroupConfig,
    settings: Settings,
    members: u16,
    progress: &'a mut dyn FnMut(u64),
}

impl Stage<'_> {
    fn new(options: GrowthOptions, progress: &mut dyn FnMut(u64)) -> Stage<'_> {
        let members = options.members;
        let default = GroupConfig::default();
        let config = GroupConfig { members_max: default.members_max.max(members), ..default };
        let transport = if options.copies { Transport::Unicast } else { Transport::Multicast };
        let settings = Settings { transport, ..Settings::default() };
        let mut random = Random::from_u64(1);
        let mut fork = || Random::from_u64(random.next_u64());
        let recorder = Recorder::new(
            Checkers::new(properties::all(&GroupTerms {
                config: config.clone(),
                founders_min: 1,
                may_be_ring: false,
                is_quiet: false,
            })),
            None,
        );
        let network = Network::new(members.into(), Conditions::quiet(), fork());
        let common = GroupCommon::new(config.history_messages);
        let world = World::new(members.into(), common, network, recorder, fork());
        Stage { world, config, settings, members, progress }
    }

    fn traffic(&self) -> Traffic {
        self.world.network.traffic
    }

    /// Lets the first member found the group and the others join one after another. Returns the average cost of the
    /// last joins.
    fn gather(&mut self) -> Result<Cost, GrowthError> {
        let counted = JOINS.min(self.members - 1);
        let mut before = Traffic::default();
        for member in 0..self.members {
            if member == self.members - counted {
                before = self.traffic();
            }
            let entry = if member == 0 { EntryMode::Found(self.config.clone()) } else { EntryMode::Join };
            self.start(member, entry)?;
            (self.progress)(1);
        }
        Ok(Cost::between(before, self.traffic(), counted.into()))
    }

    fn start(&mut self, member: u16, entry: EntryMode) -> Result<(), GrowthError> {
        let birth = Birth {
            name: name(member.into(), false),
            side: GroupBirth { entry, settings: self.settings.clone() },
            gain: 0,
            clock: None,
            events_first: true,
            planted: None,
        };
        self.world.start(member.into(), birth).map_err(GrowthError::Config)?;
        let latest = self.world.now + JOIN_MAX;
        while let Some(trigger) = self.world.advance(latest) {
            if matches!(trigger, Trigger::Notice { process, notice: Notice::Entered, .. } if process == member)
            {
                return Ok(());
            }
        }
        Err(self.broken().unwrap_or(GrowthError::NotEntered(member)))
    }

    fn wait(&mut self, nanos: u64) -> Result<(), GrowthError> {
        let until = self.world.now + nanos;
        while self.world.advance(until).is_some() {}
        self.broken().map_or(Ok(()), Err)
    }

    /// Sends `messages` messages from each sender at a steady rate. Returns the largest number of history entries seen.
    fn send(&mut self, messages: u64) -> Result<usize, GrowthError> {
        let mut history_entries = 0;
        for message in 0..messages {
            for sender in 0..SENDERS {
                // Not the sequencer, which is the first member.
                let process = 1 + sender * (usize::from(self.members) - 1) / SENDERS;
                let payload = vec![b'.'; MESSAGE_BYTES].into();
                let sent = self.world.send_payload(process, payload, Quality::ORDERED);
                sent.map_err(|error| GrowthError::Refused(error.to_string()))?;
                self.wait(EVERY / SENDERS as u64)?;
                history_entries = history_entries.max(self.longest_history());
            }
            let steps = u64::from(self.members) * messages / (WARM_UP + COUNTED);
            (self.progress)(steps * (message + 1) / messages - steps * message / messages);
        }
        Ok(history_entries)
    }

    fn longest_history(&self) -> usize {
        let residents = (0..self.members).filter_map(|member| self.world.resident(member.into()));
        residents.map(|resident| resident.side.group.marks().history).max().unwrap_or(0)
    }

    fn broken(&self) -> Option<GrowthError> {
        self.world.recorder.violation().cloned().map(GrowthError::Broken)
    }

    /// Runs the checkers on the end of the run.
    fn close(&mut self) -> Result<(), GrowthError> {
        let end = self.world.end();
        self.world.recorder.finish(&end);
        self.broken().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(members: u16, copies: bool) -> Growth {
        let mut steps_done = 0;
        let options = GrowthOptions { members, copies };
        let growth = growth(options, &mut |steps| steps_done += steps).expect("nothing disturbs the group");
        assert!(steps_done <= steps(members) && steps_done + 2 >= steps(members), "{steps_done}");
        growth
    }

    /// The arithmetic of docs/scale.md.
    struct Expected {
        message_datagrams: f64,
        idle_datagrams: f64,
    }

    impl Expected {
        fn of(members: u16, copies: bool) -> Expected {
            let others = f64::from(members - 1);
            let stretch = f64::from(1 + (members - 1) / 32);
            let for_all = if copies { others } else { 1.0 };
            let heartbeats = 10.0 / stretch;
            let answered = heartbeats * (for_all + others);
            let messages = (SENDERS as u64 * SECOND / EVERY) as f64;
            // One by the sender, one or more by the sequencer, and the acknowledgement of one member.
            let message_datagrams = 1.0 + for_all + 1.0 + heartbeats * others / messages;
            let probes_and_answers = 2.0 * others / (6.0 * 0.15 * stretch);
            Expected { message_datagrams, idle_datagrams: answered + probes_and_answers }
        }
    }

    #[test]
    fn costs_grow_as_stated() {
        for (members, copies) in [(10, false), (10, true), (40, false), (40, true)] {
            let (growth, expected) = (grown(members, copies), Expected::of(members, copies));
            let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.15;
            let (message, idle) = (growth.message.datagrams, growth.idle_second.datagrams);
            assert!(near(message, expected.message_datagrams), "{members} {copies}: {message} a message");
            assert!(near(idle, expected.idle_datagrams), "{members} {copies}: {idle} an idle second");
        }
    }
}
