//! Configuration: what the founder chooses once for a group, and what each member chooses for itself.

use crate::error::{ConfigError, FloorError};
use crate::identity::{Member, Name};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// What the founder chooses for the whole group; every joiner receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct GroupConfig {
    /// Resilience degree *r*: the number of members that may crash at once without the loss of a message that any
    /// member knows to be accepted. At most members − 1 applies. 0 is fastest, but a message that only a crashed
    /// sequencer had delivered may be lost. 1 by default.
    pub resilience: u8,
    /// Minimum number of members with which messages are ordered: while the view has fewer, messages wait, and a lone
    /// founder or survivor acknowledges nothing. Joins, leaves and resets are ordered all the same, so the group can
    /// grow. With [`Quorum::MajorityOfNamed`] only members with these names count, and in a replicated service only those
    /// that have the state. 1 to `members_max`; 1 by default.
    pub members_min: u16,
    /// Maximum number of members. 1 to 4,096; 256 by default.
    pub members_max: u16,
    /// True if the members keep a state in memory that a joiner has to fetch, as replicas do. A joiner then lacks the
    /// state until its driver says otherwise ([`Group::note_state`](crate::Group::note_state)), and no reset goes on
    /// without a member that has it. False by default.
    pub keeps_state: bool,
    /// Number of messages that the history keeps for repair. 16 to 1,048,576; 8,192 by default.
    pub history_messages: u32,
    /// Bytes of payload that the history keeps. At least 65,536; 32 MiB by default.
    pub history_bytes: u64,
    /// Maximum size of a message in bytes. At most 16 MiB, which is the default.
    pub message_bytes_max: u32,
    /// Maximum number of messages of one sender under way. 1 to 65,536; 1,024 by default.
    pub window: u32,
    /// Messages with more bytes than this go by the BB method (the sender multicasts, the sequencer sends a short frame
    /// with the seqnos), the others by PB (the sequencer multicasts). 1,300 by default.
    pub broadcast_above_bytes: u32,
    /// Which members a reset must bring together. A majority of the view by default.
    pub quorum: Quorum,
    /// True if members start a reset themselves when one is suspected. If false, the application receives an event and
    /// calls `reset`. True by default.
    pub automatic: bool,
    /// What happens to a member that answers and does not get on. By default the others wait for it.
    pub slow_member: SlowMember,
    /// Which member assigns seqnos. A sequencer whose role moves on request by default.
    pub order: Order,
}

impl GroupConfig {
    /// True if any two quorums of a view have a member in common, whichever view the group comes to have. Otherwise it may
    /// split into two halves that both go on, and refuses messages of [`Quality::MAJORITY`](crate::Quality::MAJORITY) and
    /// [`Quality::TOTAL`](crate::Quality::TOTAL).
    pub fn quorums_intersect(&self) -> bool {
        match self.quorum {
            Quorum::AtLeast(least) => u32::from(least) * 2 > u32::from(self.members_max),
            _ => true,
        }
    }
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            resilience: 1,
            members_min: 1,
            members_max: 256,
            keeps_state: false,
            history_messages: 8192,
            history_bytes: 32 << 20,
            message_bytes_max: 16 << 20,
            window: 1024,
            broadcast_above_bytes: 1300,
            quorum: Quorum::MajorityOfView,
            automatic: true,
            slow_member: SlowMember::Wait,
            order: Order::default(),
        }
    }
}

/// Which sets of members may continue after a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Quorum {
    /// More than half of the view, or half of it with its first member. So there is one line of views. A group of two
    /// cannot continue without its first member.
    MajorityOfView,
    /// More than half of these names, whatever the view is. The names must all differ.
    MajorityOf(Vec<Name>),
    /// More than half of the view's members with these names, or half of them with the first. Each name has one vote: a
    /// second process of a name is admitted only when the first is out of the view. Members with other names are admitted,
    /// vote for nothing and do not count towards [`GroupConfig::members_min`]. For services whose servers are known by
    /// name and whose group may shrink. The names must all differ.
    MajorityOfNamed(Vec<Name>),
    /// All members of the view: a reset then excludes none.
    All,
    /// At least this number of members of the view. Below a majority, two halves may both continue, as groups that
    /// never merge: the user's choice.
    AtLeast(u16),
}

/// The smallest view that a member lets a reset go on with, beside the group's quorum ([`Settings::floor`]).
///
/// ```
/// use unisono_core::Floor;
/// assert_eq!("3".parse(), Ok(Floor::AtLeast(3)));
/// assert_eq!([2, 5].map(|members| Floor::AtLeast(3).of(members)), [2, 3]);
/// assert_eq!([4, 5].map(|members| Floor::Majority.of(members)), [3, 3]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Floor {
    /// The quorum is enough.
    #[default]
    None,
    /// This number of members; all of them while the view has fewer, so that a group can grow up to it. 1 to
    /// [`GroupConfig::members_max`].
    AtLeast(u16),
    /// More than half of the view; half of it with its first member is not enough.
    Majority,
    /// All members of the view.
    All,
}

impl Floor {
    /// Returns how many members of a view of `members` have to go on.
    pub fn of(self, members: usize) -> usize {
        match self {
            Floor::None => 0,
            Floor::AtLeast(least) => usize::from(least).min(members),
            Floor::Majority => (members / 2 + 1).min(members),
            Floor::All => members,
        }
    }

    /// Refuses a number that a group of at most `members_max` members cannot have.
    pub(crate) fn check(self, members_max: u16, allowed: &'static str) -> Result<(), ConfigError> {
        let Floor::AtLeast(least) = self else { return Ok(()) };
        check_between("floor", least.into(), 1, members_max.into(), allowed)
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Floor::None => f.write_str("none"),
            Floor::AtLeast(least) => least.fmt(f),
            Floor::Majority => f.write_str("majority"),
            Floor::All => f.write_str("all"),
        }
    }
}

impl FromStr for Floor {
    type Err = FloorError;

    fn from_str(text: &str) -> Result<Floor, FloorError> {
        match (text, text.parse()) {
            ("none", _) => Ok(Floor::None),
            ("majority", _) => Ok(Floor::Majority),
            ("all", _) => Ok(Floor::All),
            (_, Ok(least @ 1..=4096)) => Ok(Floor::AtLeast(least)),
            _ => Err(FloorError),
        }
    }
}

/// What happens to a member that answers but does not get on: its application takes nothing, or entries do not reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SlowMember {
    /// The others wait for it (the papers' choice).
    Wait,
    /// A reset excludes it after it has kept the others waiting for this time without progress, if they are a quorum
    /// without it. A sequencer that is in the way gives its role away first, unless the role never moves.
    ExcludeAfter(Duration),
}

/// How the group is ordered: which member assigns seqnos. The promises are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Order {
    /// One member, the sequencer, whose role moves when the migration says so.
    Sequencer(Migration),
    /// Each member in turn: the role, the *token*, goes to the next member in rank order after almost every batch. No
    /// member carries the group's load alone. At rest the token stays, and its holder is a sequencer.
    Token,
}

impl Default for Order {
    fn default() -> Order {
        Order::Sequencer(Migration::default())
    }
}

/// When the role of sequencer moves to another member although the sequencer stays in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Migration {
    /// Never: only leaves and resets move it.
    Never,
    /// When the sequencer's application asks for it ([`Group::hand_over`](crate::Group::hand_over)).
    #[default]
    OnRequest,
    /// Also to a member that has lately sent nearly everything: three quarters of at least 64 messages, in 20 ms to 1
    /// s. Each of its messages then needs one datagram less. At resilience 0 they no longer wait for a round trip;
    /// above that they still wait for one to a holder. A move costs a few datagrams, and no seqnos are assigned while
    /// they travel. So a sequencer keeps the role for at least 100 ms, and longer each time that it soon gets it back.
    /// Useful where one member sends much for a while; where several send at the same time the role does not move.
    ByLoad,
}

/// How datagrams for the whole group travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Transport {
    /// Multicast to the members that are seen to hear it, where that is cheaper; a copy for each of the others.
    #[default]
    Auto,
    /// Multicast to the members that are seen to hear it, however few they are; a copy for each of the others.
    Multicast,
    /// A copy for each member.
    Unicast,
}

/// What a member chooses for itself.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Settings {
    /// Maximum size of a datagram in bytes, our headers included. 576 to 16,000; 1,472 by default, which fits an
    /// Ethernet frame.
    pub datagram_bytes_max: usize,
    /// Bytes that a member's socket holds until they are read, as the kernel counts: its own bookkeeping included, so
    /// half of them count as data. All members are assumed to have the same. At least 4,096; by default 425,984, as
    /// Linux grants by default. The library sets it to what its socket was granted.
    pub receive_buffer_bytes: usize,
    /// How datagrams for the whole group travel.
    pub transport: Transport,
    /// Time that a peer may be silent before it is probed; a sixth of it for a peer for which a message waits.
    /// The first of the failure detector's two settings; 150 ms by default.
    pub silence: Duration,
    /// Time that a peer may leave probes unanswered before it is suspected, and the invitation to a reset before it is
    /// excluded. The second setting; 100 ms by default.
    pub patience: Duration,
    /// Time that a joiner looks for the group before it founds it. A joiner that may not found gives up after ten times
    /// this time. 300 ms by default.
    pub locate: Duration,
    /// The smallest view that this member lets a reset go on with. The largest floor of the members of a view holds for
    /// the next one, at each coordinator of a reset; [`Group::force`](crate::Group::force) alone overrides it. It is in force
    /// from this member's join to its leave or exclusion. [`Floor::None`] by default.
    pub floor: Floor,
    /// How far multicasts are to go: they pass fewer than this number of routers. The largest number that a member of the
    /// view asks for holds for the multicasts of all, from that member's join to its leave or exclusion. 1 to 255; 1 by
    /// default: they stay on the segment.
    pub hops: u8,
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
            floor: Floor::None,
            hops: Member::HOPS_DEFAULT,
        }
    }
}

/// Time that a formation tries if its program names none: enough for processes that an operator or a service manager
/// starts together.
const FORMATION_WITHIN: Duration = Duration::from_secs(30);

/// The participants that form a group together: see [`EntryMode::Form`](crate::EntryMode::Form).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Formation {
    /// Names of all that may take part, this member included. All participants give the same names, in any order. The
    /// first sequencer is the first of those that form the group in the list of the participant that proposes it.
    pub participants: Vec<Name>,
    /// Minimum number of participants in the group: more than half of them. Up to `2 × at_least − participants − 1` of
    /// them may restart meanwhile without a second group forming.
    pub at_least: u16,
    /// Time that this member tries. A ballot in which it takes part then may last 550 ms longer. 5 ms to an hour.
    pub within: Duration,
}

impl Formation {
    /// Returns the formation of a majority of these participants, which tries for 30 s.
    ///
    /// ```
    /// use unisono_core::{Formation, Name};
    /// let participants = ["ann", "bob", "cleo"].map(|name| Name::new(name).unwrap());
    /// assert_eq!(Formation::majority_of(participants.to_vec()).at_least, 2);
    /// ```
    pub fn majority_of(participants: Vec<Name>) -> Formation {
        let at_least = u16::try_from(participants.len() / 2 + 1).unwrap_or(u16::MAX);
        Formation { participants, at_least, within: FORMATION_WITHIN }
    }

    /// Refuses a formation that a participant named `me` cannot carry out with this configuration.
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
    /// Refuses a configuration with which no group can work.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_between("members_max", self.members_max.into(), 1, 4096, "1 to 4,096")?;
        let max = self.members_max.into();
        check_between("members_min", self.members_min.into(), 1, max, "1 to members_max")?;
        let messages = u64::from(self.history_messages);
        check_between("history_messages", messages, 16, 1 << 20, "16 to 1,048,576")?;
        let bytes = self.history_bytes;
        check_between("history_bytes", bytes, 1 << 16, 1 << 50, "65,536 to 2^50")?;
        let message = u64::from(self.message_bytes_max);
        check_between("message_bytes_max", message, 0, 16 << 20, "at most 16,777,216")?;
        check_between("window", self.window.into(), 1, 1 << 16, "1 to 65,536")?;
        match &self.quorum {
            Quorum::MajorityOf(names) | Quorum::MajorityOfNamed(names) => {
                let count = names.len() as u64;
                check_between("quorum names", count, 1, 4096, "1 to 4,096 names")?;
                // A name has one vote. The same name twice would be a vote that no member has.
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
    /// Maximum number of bytes that are numbered and under way to the members: half of what their sockets hold as data.
    /// The rest is for messages that have no seqno yet.
    pub(crate) fn under_way_bytes_max(&self) -> u64 {
        self.receive_buffer_bytes as u64 / 4
    }

    /// Maximum number of bytes of one sender that wait in queues for a seqno: two busy senders fill the rest.
    pub(crate) fn queued_bytes_max(&self) -> u64 {
        self.receive_buffer_bytes as u64 / 8
    }

    /// Refuses settings with which no member can work.
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
        check_between("hops", self.hops.into(), 1, 255, "1 to 255")?;
        self.floor.check(4096, "1 to 4,096 members")
    }
}
