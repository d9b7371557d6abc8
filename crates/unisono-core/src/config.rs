//! What can be chosen: once for a group by its founder, and by each member for itself.

use crate::error::ConfigError;
use crate::identity::Name;
use alloc::vec::Vec;
use core::time::Duration;

/// What all members of a group have in common; the founder's word, told to everyone who joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// How many members may crash at once without a message lost that anybody was told is accepted (r). Held to at
    /// most members − 1. 0: fastest, and what a crashed sequencer alone had delivered may be lost. 1 by default.
    pub resilience: u8,
    /// Most members at a time. 1 to 4,096; 256 by default.
    pub members_max: u16,
    /// How many messages the history keeps for repair. 16 to 1,048,576; 8,192 by default.
    pub history_messages: u32,
    /// How many bytes of payload the history keeps. At least 65,536; 32 MiB by default.
    pub history_bytes: u64,
    /// The largest message, in bytes. At most 16 MiB, and so much by default.
    pub message_bytes_max: u32,
    /// How many messages of one sender may be under way. 1 to 65,536; 1,024 by default.
    pub window: u32,
    /// Messages of more bytes than this travel by the BB method (the sender multicasts, the sequencer sends a short
    /// accept), smaller ones by PB (the sequencer multicasts). 1,300 by default.
    pub broadcast_above_bytes: u32,
    /// Which members a reset must bring together. A majority of the view by default.
    pub quorum: Quorum,
    /// Whether members reset by themselves when one is suspected; otherwise the application is told and calls
    /// `reset`. By themselves by default.
    pub automatic: bool,
    /// What becomes of a member whose application does not keep up. By default it is waited for.
    pub slow_member: SlowMember,
    /// When the role of sequencer moves to a member though the one that has it stays. On request by default.
    pub migration: Migration,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            resilience: 1,
            members_max: 256,
            history_messages: 8192,
            history_bytes: 32 << 20,
            message_bytes_max: 16 << 20,
            window: 1024,
            broadcast_above_bytes: 1300,
            quorum: Quorum::MajorityOfView,
            automatic: true,
            slow_member: SlowMember::Wait,
            migration: Migration::OnRequest,
        }
    }
}

/// Which sets of members may go on after a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quorum {
    /// More than half of the view, or half of it with its first member. So there is one line of views; a group of
    /// two cannot outlive its first member.
    MajorityOfView,
    /// More than half of these names, which all differ, whatever the view is.
    MajorityOf(Vec<Name>),
    /// Every member of the view: a reset can only bring back those who were there.
    All,
    /// At least so many of the view. Below a majority two halves may both go on, as groups that never merge: the
    /// user's choice.
    AtLeast(u16),
}

/// What becomes of a member that answers but whose application does not receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowMember {
    /// Everybody waits for it (the papers' choice).
    Wait,
    /// It is excluded by a reset after holding everybody up for so long.
    ExcludeAfter(Duration),
}

/// When the role of sequencer moves to another member though the one that has it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Migration {
    /// Never: only leaves and resets move it.
    Never,
    /// When the sequencer's application asks for it ([`Group::hand_over`](crate::Group::hand_over)).
    #[default]
    OnRequest,
    /// Besides, to a member that has lately sent nearly everything: three quarters of at least 64 messages, in at
    /// least 20 ms and at most a second. Its messages then need one datagram less each, and at resilience 0 no way to
    /// somebody else and back; above, the way to a holder and back stays. Each move costs a few datagrams and, for as long as they travel, the group's numbers;
    /// so a sequencer keeps the role for a tenth of a second at least, and longer each time that it soon comes back.
    /// Worth it where one member sends much for a while; where several send at the same time nothing moves.
    ByLoad,
}

/// How datagrams for the whole group travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Multicast to those who are seen to hear it where that is the cheaper way, a datagram each to the rest.
    #[default]
    Auto,
    /// Multicast to those who are seen to hear it, however few they are.
    Multicast,
    /// A datagram for each member.
    Unicast,
}

/// What a member chooses for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The most bytes in a datagram, headers of ours included. 576 to 16,000; 1,472 by default, which fits an
    /// Ethernet.
    pub datagram_bytes_max: usize,
    /// What a member's socket holds until it is read, as the kernel counts: with its own bookkeeping, so that half of it
    /// counts as data. All members are taken to have as much. At least 4,096; by default 425,984, as Linux grants by
    /// default. The library sets it to what its socket was granted.
    pub receive_buffer_bytes: usize,
    /// How the group is reached.
    pub transport: Transport,
    /// How long a member may be silent before it is probed; a sixth of it if it is the sequencer, and owes this member
    /// a number. The first of the detector's two knobs; 150 ms by default.
    pub silence: Duration,
    /// How long probes may stay unanswered before a member is suspected, and the invitation to a reset before it is left
    /// behind. The second; 100 ms by default.
    pub patience: Duration,
    /// How long a joiner looks for the group before it founds it; who only joins gives up after ten times as
    /// long. 300 ms by default.
    pub locate: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            datagram_bytes_max: 1472,
            receive_buffer_bytes: 425_984,
            transport: Transport::Auto,
            silence: Duration::from_millis(150),
            patience: Duration::from_millis(100),
            locate: Duration::from_millis(300),
        }
    }
}

/// Who forms a group together: see [`EntryMode::Form`](crate::EntryMode::Form).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formation {
    /// Who may take part, this member included. All participants give the same names, in any order; of those who
    /// form the group the first in the list of whoever proposes it orders.
    pub participants: Vec<Name>,
    /// How many of them the group needs at least: more than half of them. The more, the more of them may restart
    /// meanwhile without a second group: `2 × at_least − participants − 1`.
    pub at_least: u16,
    /// How long this member tries. 5 ms to an hour.
    pub within: Duration,
}

impl Formation {
    /// Refuses what nobody called `me` can form with this configuration.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self, me: &Name, config: &GroupConfig) -> Result<(), ConfigError> {
        let count = self.participants.len() as u64;
        let participants = |allowed| Err(ConfigError { parameter: "participants", value: count, allowed });
        check_between("participants", count, 1, 4096, "1 to 4,096 names")?;
        if !self.participants.contains(me) {
            return participants("names that include this member's own");
        }
        if !all_differ(&self.participants) {
            return participants("names that all differ");
        }
        let at_least = u64::from(self.at_least);
        let more_than_half = "more than half of the participants, and no more than all of them";
        check_between("at_least", at_least, count / 2 + 1, count, more_than_half)?;
        if let Quorum::MajorityOf(list) = &config.quorum {
            if !self.participants.iter().all(|name| list.contains(name)) {
                return participants("names that are all on the fixed list");
            }
            let listed = list.len() as u64;
            check_between("at_least", at_least, listed / 2 + 1, count, "more than half of the fixed list")?;
        }
        let members_max = u64::from(config.members_max);
        check_between("members_max", members_max, count, 4096, "at least the number of participants")?;
        let within = self.within.as_millis() as u64;
        check_between("within", within, 5, 3_600_000, "5 ms to an hour, in milliseconds")
    }
}

fn all_differ(names: &[Name]) -> bool {
    let mut names: Vec<&Name> = names.iter().collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
}

/// Refuses a value above `max`.
pub(crate) fn check(
    parameter: &'static str,
    value: u64,
    max: u64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    check_between(parameter, value, 0, max, allowed)
}

pub(crate) fn check_between(
    parameter: &'static str,
    value: u64,
    min: u64,
    max: u64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError { parameter, value, allowed }) }
}

impl GroupConfig {
    /// Refuses what no group can work with.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_between("members_max", self.members_max.into(), 1, 4096, "1 to 4,096")?;
        let messages = u64::from(self.history_messages);
        check_between("history_messages", messages, 16, 1 << 20, "16 to 1,048,576")?;
        let bytes = self.history_bytes;
        check_between("history_bytes", bytes, 1 << 16, 1 << 50, "65,536 to 2^50")?;
        let message = u64::from(self.message_bytes_max);
        check_between("message_bytes_max", message, 0, 16 << 20, "at most 16,777,216")?;
        check_between("window", self.window.into(), 1, 1 << 16, "1 to 65,536")?;
        match &self.quorum {
            Quorum::MajorityOf(names) => {
                let count = names.len() as u64;
                check_between("quorum names", count, 1, 4096, "1 to 4,096 names")?;
                // A name has one vote, so that twice the same would be a vote that nobody has.
                let differ = || ConfigError {
                    parameter: "quorum names",
                    value: count,
                    allowed: "names that all differ",
                };
                all_differ(names).then_some(()).ok_or_else(differ)
            }
            Quorum::AtLeast(least) => {
                check_between("quorum at least", (*least).into(), 1, 4096, "1 to 4,096")
            }
            Quorum::MajorityOfView | Quorum::All => Ok(()),
        }
    }
}

impl Settings {
    /// How much of what was numbered may be under way to the members: half of what their sockets hold. The rest is for
    /// what has no number yet.
    pub(crate) fn under_way_bytes_max(&self) -> u64 {
        self.receive_buffer_bytes as u64 / 4
    }

    /// How much of one sender may wait in queues for a number: two that send at once fill the rest.
    pub(crate) fn queued_bytes_max(&self) -> u64 {
        self.receive_buffer_bytes as u64 / 8
    }

    /// Refuses what no member can work with.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bytes = self.datagram_bytes_max as u64;
        check_between("datagram_bytes_max", bytes, 576, 16_000, "576 to 16,000")?;
        let buffer = self.receive_buffer_bytes as u64;
        check_between("receive_buffer_bytes", buffer, 1 << 12, 1 << 50, "4,096 to 2^50")?;
        let hour = Duration::from_secs(3600);
        for (parameter, value) in
            [("silence", self.silence), ("patience", self.patience), ("locate", self.locate)]
        {
            let allowed = "5 ms to an hour, in milliseconds";
            check_between(parameter, value.as_millis() as u64, 5, hour.as_millis() as u64, allowed)?;
        }
        Ok(())
    }
}
