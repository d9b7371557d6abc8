//! The plan of a run of a group: everything that a seed determines before the run starts, namely the group, the
//! behaviour of its applications, and the kinds, rates and strengths of faults.
//!
//! Each seed draws *which* faults are on and leaves most of them off. If every fault occurred a little in every world,
//! all worlds would be alike. A few faults in excess make each world different, and find more bugs.

use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::{Conditions, Reach};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use unisono_core::{
    Floor, GroupConfig, Migration, Name, Order, Quorum, Random, Settings, SlowMember, Transport,
};

/// The kind of worlds that seeds draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Any faults, in any combination.
    Swarm,
    /// A network that loses, delays, repeats and damages datagrams; members do not crash.
    Lossy,
    /// A network that is partitioned repeatedly.
    Partition,
    /// Members that crash, at every step of the protocol.
    Crash,
    /// Needless resets, several at a time, whose votes and proposals are lost or delayed; groups of two to five
    /// members.
    Reset,
    /// No faults: five members, 500 messages per second.
    Perf,
    /// Calls instead of a group: clients and servers, and any faults, in any combination.
    Calls,
    /// Any faults, and members that can never send multicast, or never receive it.
    Reach,
    /// Any faults, and groups of 12 to 40 members.
    Crowd,
    /// A replicated service: servers with copies of a state, clients that call them, and any faults.
    Replica,
    /// The directory service: the same with directories and files on disk, and clients with capabilities of all kinds.
    Directory,
    /// Any faults, and a token that goes round.
    Token,
}

impl Profile {
    /// All profiles.
    pub const ALL: &'static [Profile] = &[
        Profile::Swarm,
        Profile::Lossy,
        Profile::Partition,
        Profile::Crash,
        Profile::Reset,
        Profile::Perf,
        Profile::Calls,
        Profile::Reach,
        Profile::Crowd,
        Profile::Token,
        Profile::Replica,
        Profile::Directory,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Swarm => "swarm",
            Profile::Lossy => "lossy",
            Profile::Partition => "partition",
            Profile::Crash => "crash",
            Profile::Reset => "reset",
            Profile::Perf => "perf",
            Profile::Calls => "calls",
            Profile::Reach => "reach",
            Profile::Crowd => "crowd",
            Profile::Token => "token",
            Profile::Replica => "replica",
            Profile::Directory => "directory",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        Profile::ALL.iter().copied().find(|profile| profile.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Profile::ALL.iter().map(|profile| profile.name()).collect();
            format!("unknown profile {text}; the profiles are {}", names.join(", "))
        })
    }
}

/// Constants that separate the random streams of some choices from the main one: migration of the sequencer's role,
/// members that begin apart, starved processes, and the sizes of receive buffers.
const MIGRATION: u64 = 0x6d69_6772_6174_6521;
const APART: u64 = 0x6170_6172_7421_2121;
const STARVATION: u64 = 0x7374_6172_7665_6421;
const BUFFERS: u64 = 0x6275_6666_6572_7321;
/// Further choices with random streams of their own: the group's minimum, and processes that join or form.
const MINIMUM: u64 = 0x6d69_6e69_6d75_6d21;
const JOIN_OR_FORM: u64 = 0x6a6f_696e_666f_726d;
/// And processes that no entries reach.
pub(crate) const STUCK: u64 = 0x7374_7563_6b21_2121;

/// And runs in which the token goes round.
const ORDER: u64 = 0x6f72_6465_7221_2121;
/// And runs of rings in which all members send at once.
const RUSH: u64 = 0x7275_7368_2121_2121;
/// And runs in which the order changes.
const SWITCHES: u64 = 0x7377_6974_6368_2121;

/// Most participants of a formation: the smallest datagram drawn has room for 12, and for 11 if the quorum names them too.
const FORMATION_MAX: usize = 12;

/// How the group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// The first member founds it, and the others join.
    Founder,
    /// All members start at once, and each founds a group if it finds none.
    Together,
    /// Like `Together`, but the network is split in two until this part of the run: each half that has a member founds
    /// its own group.
    Apart { until: Part },
    /// All members form the group together: at least `at_least` of them, `within` this time. If `joins`, they look for
    /// the group too.
    Formation { at_least: u16, within: Duration, joins: bool },
}

/// A kind of fault that strikes repeatedly while faults are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A member crashes, now or while it processes one of its next inputs.
    Crash,
    /// The process that next sends a frame of some kind crashes before or after sending it.
    CrashAtStep,
    /// A process crashes and restarts at the same address at once, before other processes can detect the crash.
    FastRestart,
    /// A process is paused for a while.
    Pause,
    /// The process that next sends a frame of some kind is paused for a while.
    PauseAtStep,
    /// A process is paused repeatedly, and runs only for short moments in between.
    Starve,
    /// An application takes no events for a while.
    Doze,
    /// The next few frames of some kind are lost.
    DropFrames,
    /// The network is partitioned for a while.
    Partition,
    /// The network is partitioned and restored several times, with a period near the group's timeouts.
    Flapping,
    /// Some links hold back all datagrams for a while.
    Clog,
    /// No entries of the log reach a process for a while, and everything else does: it answers and does not get on.
    Stuck,
    /// A process cannot receive multicasts, cannot send them, or both, for a while; or the same for unicast.
    HalfDead,
    /// Datagrams recorded earlier arrive again.
    Replay,
    /// The loss is much higher than usual for a while.
    Storm,
    /// A question for a port, or the answer to one, is sent again and again.
    Flood,
    /// An application requests a reset although no member has failed.
    NeedlessReset,
    /// Several applications request a reset at once, and some of the frames of resets are lost.
    Duel,
}

impl FaultKind {
    /// True if the fault strikes one process.
    pub(crate) fn has_victim(self) -> bool {
        matches!(
            self,
            FaultKind::Pause
                | FaultKind::Starve
                | FaultKind::Doze
                | FaultKind::Stuck
                | FaultKind::Partition
                | FaultKind::Flapping
        )
    }
}

/// A fault and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recurring {
    pub(crate) kind: FaultKind,
    /// Mean interval between two strikes, in nanoseconds.
    pub(crate) every: u64,
}

/// The behaviour of applications.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Mean interval between two actions of one application, in nanoseconds.
    pub(crate) every: u64,
    /// Fraction of sends that are bursts, and the most messages in one burst.
    pub(crate) bursts: f64,
    pub(crate) burst_max: u64,
    /// Most bytes in an ordinary message.
    pub(crate) bytes_max: u64,
    /// Fraction of messages that need several pieces, and the most bytes in one of them.
    pub(crate) large: f64,
    pub(crate) large_bytes_max: u64,
    /// Fraction of messages that ask for a quality of their own: resilient, majority or total.
    pub(crate) better: f64,
    /// Streaks, if applications make any.
    pub(crate) streak: Option<Streak>,
    /// Fractions of actions that are leaves, and hand-overs of the role.
    pub(crate) leaves: f64,
    pub(crate) hand_overs: f64,
    /// Fraction of actions in which the application asks for the other order: a token or a sequencer.
    pub(crate) switches: f64,
    /// Maximum delay before a process starts the next life, in nanoseconds.
    pub(crate) restart_max: u64,
    /// The time in which all members send as fast as they may, if there is one.
    pub(crate) rush: Option<Rush>,
}

/// A rush: all members send at once, more than the group can order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rush {
    /// When it begins and ends, in nanoseconds.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// Mean interval between two messages of one member, in nanoseconds.
    pub(crate) every: u64,
}

/// Streaks: a member sends many messages in a row, so that nearly all of the group's messages are its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streak {
    /// Fraction of actions that begin a streak.
    pub(crate) part: f64,
    /// Most messages in a streak.
    pub(crate) messages_max: u64,
    /// Mean interval between two messages of a streak, in nanoseconds.
    pub(crate) every: u64,
}

/// A part of a run after the first one, in which the group forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Faults strike.
    Chaos,
    /// Faults have ended; crashed processes restart.
    Settling,
    /// What is promised in the absence of faults must come true.
    Healed,
    /// Applications begin nothing new.
    Quiet,
}

/// The times at which the parts of a run begin, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Faults begin.
    pub(crate) chaos: u64,
    /// Faults end; crashed processes restart.
    pub(crate) settling: u64,
    /// The group must converge from here on.
    pub(crate) healed: u64,
    /// Applications stop sending.
    pub(crate) quiet: u64,
    pub(crate) end: u64,
}

impl Parts {
    /// Returns each part and the time at which it begins.
    pub(crate) fn beginnings(&self) -> [(Part, u64); 4] {
        [
            (Part::Chaos, self.chaos),
            (Part::Settling, self.settling),
            (Part::Healed, self.healed),
            (Part::Quiet, self.quiet),
        ]
    }
}

/// Everything that a seed determines before the run starts.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Number of processes; the first `members` of them form the group, and the others join later.
    pub(crate) places: usize,
    pub(crate) members: usize,
    pub(crate) beginning: Beginning,
    /// Time for which processes that start later try to form a group of all members; `None` if they only join.
    pub(crate) forms_again: Option<Duration>,
    /// True if names have the maximum length, so that member lists need several datagrams.
    pub(crate) long_names: bool,
    pub(crate) config: GroupConfig,
    pub(crate) settings: Settings,
    /// True if each life chooses its own transport.
    pub(crate) mixed_transports: bool,
    /// True if clocks run up to one percent too fast or too slow.
    pub(crate) drift: bool,
    pub(crate) workload: Workload,
    pub(crate) conditions: Conditions,
    /// Processes with a limited reach for the whole run.
    pub(crate) limits: Vec<(usize, Reach)>,
    pub(crate) faults: Vec<Recurring>,
    /// True if crashes may leave less than a quorum.
    pub(crate) is_reckless: bool,
    /// True if only a majority is healed when faults end, and the other processes stay disabled.
    pub(crate) heals_core_only: bool,
    pub(crate) parts: Parts,
}

/// Returns the name of the member that runs on a process.
pub(crate) fn name(process: usize, is_long: bool) -> Name {
    let width = if is_long { Name::BYTES_MAX } else { 0 };
    Name::new(&format!("{:_<width$}", format!("m{process}"))).unwrap_or_default()
}

/// True if the group of this seed is a ring, in any profile. It changes nothing else in a seed.
pub(crate) fn draws_a_ring(seed: u64, profile: Profile) -> bool {
    Random::from_u64(ORDER ^ seed ^ (profile as u64 + 1) << 56).chance(0.15)
}

/// In some worlds the order changes, in the profile of rings more often than elsewhere, but not where datagrams are counted:
/// returns what draws how often.
pub(crate) fn draws_switches(seed: u64, profile: Profile) -> Option<Random> {
    let mut random = Random::from_u64(SWITCHES ^ seed ^ (profile as u64 + 1) << 56);
    let part = if profile == Profile::Token { 0.6 } else { 0.15 };
    (profile != Profile::Perf && random.chance(part)).then_some(random)
}

impl Plan {
    /// Returns the plan of `seed`.
    pub(crate) fn draw(seed: u64, profile: Profile) -> Plan {
        // Each profile has its own random stream, so seed 7 of one is unrelated to seed 7 of another.
        let random = &mut Random::from_u64(seed ^ (profile as u64 + 1) << 56);
        let mut plan = Plan::quiet(random);
        match profile {
            Profile::Perf => plan.perf(),
            Profile::Lossy => plan.lossy(random),
            Profile::Partition => plan.partition(random),
            Profile::Crash => plan.crash(random),
            Profile::Reset => plan.reset(random),
            Profile::Swarm | Profile::Token => plan.swarm(random),
            Profile::Reach => plan.reach(random),
            Profile::Crowd => plan.crowd(random),
            // Runs of calls and of replicated services have other plans: see `calls::plan` and `replica::plan`.
            Profile::Calls | Profile::Replica | Profile::Directory => {}
        }
        if profile != Profile::Perf {
            match random.weigh(&[(70, 0), (15, 1), (15, 2)]) {
                0 => {}
                1 => plan.start_together(),
                _ => plan.form(random),
            }
            // These have their own random streams, so that they change nothing else in a seed.
            let apart = |stream: u64| Random::from_u64(stream ^ seed ^ (profile as u64 + 1) << 56);
            plan.draw_migration(&mut apart(MIGRATION));
            plan.draw_buffers(&mut apart(BUFFERS));
            plan.start_apart(&mut apart(APART));
            plan.draw_minimum(&mut apart(MINIMUM));
            plan.join_or_form(&mut apart(JOIN_OR_FORM));
            if matches!(profile, Profile::Swarm | Profile::Crash | Profile::Reach | Profile::Crowd) {
                add(&mut plan.faults, &mut apart(STARVATION), 0.15, FaultKind::Starve, 1_500, 8_000);
            }
            plan.draw_stuck(&mut apart(STUCK));
        }
        if profile == Profile::Token || draws_a_ring(seed, profile) {
            plan.config.order = Order::Token;
        }
        if profile == Profile::Token {
            plan.draw_rush(&mut Random::from_u64(RUSH ^ seed));
        }
        if let Some(random) = &mut draws_switches(seed, profile) {
            plan.workload.switches = random.pick(&[0.005, 0.02, 0.05]);
        }
        plan
    }

    /// A group at work, without faults.
    fn quiet(random: &mut Random) -> Plan {
        let members = 5;
        let settings = Settings {
            datagram_bytes_max: random.pick(&[1472, 1472, 1472, 700, 900, 4000]),
            receive_buffer_bytes: Settings::default().receive_buffer_bytes,
            transport: random.pick(&[Transport::Auto, Transport::Multicast, Transport::Unicast]),
            silence: random.duration(60, 300),
            patience: random.duration(60, 300),
            locate: random.duration(100, 500),
            floor: Floor::None,
            hops: 1,
        };
        let config = GroupConfig {
            resilience: random.below(members as u64) as u8,
            history_messages: random.spread(16, 4096) as u32,
            history_bytes: random.spread(1 << 16, 1 << 22),
            message_bytes_max: 1 << 16,
            window: random.spread(1, 512) as u32,
            broadcast_above_bytes: random.pick(&[0, 100, 1300, 1300, 1 << 20]),
            quorum: Quorum::MajorityOfView,
            automatic: random.chance(0.8),
            slow_member: if random.chance(0.5) {
                SlowMember::Wait
            } else {
                SlowMember::ExcludeAfter(random.duration(300, 3000))
            },
            // In some worlds the last joiners find the group full.
            members_min: 1,
            members_max: if random.chance(0.05) { members as u16 } else { 256 },
            keeps_state: false,
            order: Order::Sequencer(Migration::OnRequest),
        };
        let workload = Workload {
            every: random.millis(80, 1_300),
            bursts: random.pick(&[0.0, 0.03, 0.15]),
            burst_max: random.spread(2, 30),
            bytes_max: random.spread(1, 1200),
            large: random.pick(&[0.0, 0.02, 0.1]),
            large_bytes_max: random.spread(1 << 11, 1 << 13),
            better: random.pick(&[0.0, 0.1, 0.3]),
            streak: None,
            leaves: random.pick(&[0.0, 0.002, 0.01]),
            hand_overs: random.pick(&[0.0, 0.005, 0.03]),
            switches: 0.0,
            restart_max: random.millis(5, 2000),
            rush: None,
        };
        Plan {
            places: members + random.below(3) as usize,
            members,
            beginning: Beginning::Founder,
            forms_again: None,
            long_names: random.chance(0.1),
            config,
            settings,
            mixed_transports: random.chance(0.3),
            drift: random.chance(0.5),
            workload,
            conditions: Conditions {
                delay_min: random.spread(20_000, 500_000),
                delay_mean: random.spread(5_000, 500_000),
                echo: random.chance(0.3),
                ..Conditions::quiet()
            },
            limits: Vec::new(),
            faults: Vec::new(),
            is_reckless: false,
            heals_core_only: false,
            parts: Parts {
                chaos: random.between(200, 1500) * MILLISECOND,
                settling: 21 * SECOND,
                healed: 23 * SECOND,
                quiet: 28 * SECOND,
                end: 30 * SECOND,
            },
        }
    }

    /// Keeps entries from a process for a while in some worlds.
    fn draw_stuck(&mut self, random: &mut Random) {
        add(&mut self.faults, random, 0.1, FaultKind::Stuck, 2_000, 9_000);
    }

    /// In some worlds all members send at once when the faults are over: with a small history more than fits, and no more
    /// than the smallest sockets carry before the run ends.
    fn draw_rush(&mut self, random: &mut Random) {
        const MESSAGES: u64 = 1_500;
        if random.chance(0.08) {
            let from = self.parts.healed + 3 * SECOND;
            let every = random.spread(200_000, 2 * MILLISECOND);
            let lasts = (every * MESSAGES / self.members as u64).min(SECOND / 2);
            self.workload.rush = Some(Rush { from, until: from + lasts, every });
            self.config.history_messages = random.spread(16, 64) as u32;
        }
    }

    /// All members start at once. Faults begin only after 2 s: a founder can give way only while it is alone and has
    /// numbered no message.
    fn start_together(&mut self) {
        self.beginning = Beginning::Together;
        self.parts.chaos = 2 * SECOND;
    }

    /// Lets two groups form in some worlds. Members of the two learn of each other once datagrams pass between them.
    /// The run is longer, because they rarely search: a member that becomes the first of its group may have searched
    /// just before, so two search intervals are added. All members of the group that gives way leave at once, and if
    /// the last one's farewell is lost, the others linger for seconds.
    fn start_apart(&mut self, random: &mut Random) {
        const SEARCH: u64 = 19 * SECOND;
        const LINGER: u64 = 10 * SECOND;
        if self.beginning != Beginning::Founder || !random.chance(0.1) {
            return;
        }
        self.beginning =
            Beginning::Apart { until: random.pick(&[Part::Chaos, Part::Settling, Part::Settling]) };
        self.heals_core_only = false;
        self.parts.chaos = 2 * SECOND;
        self.parts.quiet += 2 * SEARCH;
        self.parts.end += 2 * SEARCH + LINGER;
    }

    /// All members form the group together. The network has all its errors from the start, but no process crashes
    /// during the formation: a restarted one might found a second group.
    fn form(&mut self, random: &mut Random) {
        if !self.formation_fits() {
            return;
        }
        let members = self.members as u64;
        let within = random.duration(200, 3_000);
        let at_least = random.between(members / 2 + 1, members) as u16;
        self.beginning = Beginning::Formation { at_least, within, joins: false };
        self.parts.chaos = 4 * SECOND;
    }

    /// True if a formation of all members fits one datagram.
    fn formation_fits(&self) -> bool {
        let named = usize::from(matches!(self.config.quorum, Quorum::MajorityOf(_)));
        !self.long_names && self.members <= FORMATION_MAX - named
    }

    /// In some worlds messages wait while the group has few members.
    fn draw_minimum(&mut self, random: &mut Random) {
        if random.chance(0.15) {
            self.config.members_min = random.between(2, self.members.max(2) as u64) as u16;
        }
    }

    /// In some worlds the participants of the formation may join a group too. In some, processes that start later join
    /// or form. They form only if all of them meet, so in effect only where the group is lost.
    fn join_or_form(&mut self, random: &mut Random) {
        let joins_first = random.chance(0.5);
        if let Beginning::Formation { joins, .. } = &mut self.beginning {
            *joins = joins_first;
        }
        if self.formation_fits() && matches!(self.beginning, Beginning::Founder | Beginning::Formation { .. })
        {
            let within = random.duration(500, 3_000);
            self.forms_again = random.chance(0.3).then_some(within);
        }
    }

    /// Returns the names of the members with which the group begins.
    pub(crate) fn participants(&self) -> Vec<Name> {
        (0..self.members).map(|place| name(place, self.long_names)).collect()
    }

    /// Returns the minimum number of members of a founding that is not explicit.
    pub(crate) fn founders_min(&self) -> usize {
        match self.beginning {
            Beginning::Founder => self.members,
            Beginning::Formation { at_least, .. } => at_least.into(),
            Beginning::Together | Beginning::Apart { .. } => 1,
        }
    }

    /// In some worlds the role follows the load, and applications make streaks that it can follow.
    fn draw_migration(&mut self, random: &mut Random) {
        if random.chance(0.2) {
            self.config.order = Order::Sequencer(Migration::ByLoad);
            self.workload.streak = Some(Streak {
                part: random.pick(&[0.01, 0.03]),
                messages_max: random.spread(80, 200),
                every: random.spread(100_000, 5 * MILLISECOND),
            });
        } else if random.chance(0.05) {
            self.config.order = Order::Sequencer(Migration::Never);
        }
    }

    fn draw_buffers(&mut self, random: &mut Random) {
        if random.chance(0.5) {
            self.settings.receive_buffer_bytes = random.spread(1 << 12, 1 << 18) as usize;
        }
    }

    fn perf(&mut self) {
        self.places = self.members;
        self.long_names = false;
        let resilience = self.config.resilience;
        self.config = GroupConfig { automatic: true, resilience, ..GroupConfig::default() };
        self.settings = Settings::default();
        self.mixed_transports = false;
        self.conditions = Conditions::quiet();
        self.workload = Workload {
            every: 10 * MILLISECOND,
            bursts: 0.0,
            burst_max: 1,
            bytes_max: 64,
            large: 0.0,
            large_bytes_max: 0,
            better: 0.0,
            streak: None,
            leaves: 0.0,
            hand_overs: 0.0,
            switches: 0.0,
            restart_max: SECOND,
            rush: None,
        };
    }

    fn lossy(&mut self, random: &mut Random) {
        degrade(&mut self.conditions, random, 0.3);
        add(&mut self.faults, random, 0.5, FaultKind::Storm, 2_000, 10_000);
        add(&mut self.faults, random, 0.5, FaultKind::DropFrames, 200, 2_000);
        add(&mut self.faults, random, 0.5, FaultKind::Replay, 20, 500);
        add(&mut self.faults, random, 0.3, FaultKind::HalfDead, 2_000, 10_000);
        add(&mut self.faults, random, 0.3, FaultKind::Clog, 1_000, 5_000);
    }

    fn partition(&mut self, random: &mut Random) {
        self.draw_quorum(random, true);
        add(&mut self.faults, random, 1.0, FaultKind::Partition, 2_000, 6_000);
        add(&mut self.faults, random, 0.3, FaultKind::Flapping, 4_000, 15_000);
        add(&mut self.faults, random, 0.3, FaultKind::HalfDead, 3_000, 10_000);
        add(&mut self.faults, random, 0.2, FaultKind::Clog, 2_000, 8_000);
        add(&mut self.faults, random, 0.2, FaultKind::Pause, 1_000, 5_000);
        if random.chance(0.3) {
            degrade(&mut self.conditions, random, 0.1);
        }
        self.heals_core_only = random.chance(0.25);
    }

    fn crash(&mut self, random: &mut Random) {
        self.draw_quorum(random, false);
        add(&mut self.faults, random, 0.8, FaultKind::Crash, 1_500, 6_000);
        add(&mut self.faults, random, 0.8, FaultKind::CrashAtStep, 1_500, 6_000);
        add(&mut self.faults, random, 0.3, FaultKind::FastRestart, 2_000, 8_000);
        add(&mut self.faults, random, 0.2, FaultKind::Pause, 1_000, 5_000);
        if self.faults.is_empty() {
            add(&mut self.faults, random, 1.0, FaultKind::Crash, 1_500, 6_000);
        }
        if random.chance(0.3) {
            degrade(&mut self.conditions, random, 0.1);
        }
        self.is_reckless = random.chance(0.1);
        self.heals_core_only = random.chance(0.15);
    }

    fn reset(&mut self, random: &mut Random) {
        self.members = random.between(2, 5) as usize;
        self.places = self.members + random.below(2) as usize;
        self.draw_quorum(random, true);
        add(&mut self.faults, random, 1.0, FaultKind::Duel, 100, 1_500);
        add(&mut self.faults, random, 0.3, FaultKind::PauseAtStep, 300, 3_000);
        add(&mut self.faults, random, 0.3, FaultKind::CrashAtStep, 1_000, 6_000);
        add(&mut self.faults, random, 0.2, FaultKind::Partition, 2_000, 6_000);
        add(&mut self.faults, random, 0.3, FaultKind::DropFrames, 100, 1_000);
        self.workload.every = random.millis(10, 100);
        self.workload.hand_overs = random.pick(&[0.0, 0.03, 0.1]);
        self.workload.leaves = random.pick(&[0.0, 0.005, 0.02]);
        let conditions = &mut self.conditions;
        conditions.reorders = random.chance(0.7);
        conditions.delay_mean = random.spread(50_000, 30 * MILLISECOND);
        if random.chance(0.6) {
            conditions.loss = random.part(0.25);
        }
        conditions.recording = random.pick(&[0.0, 0.1]);
    }

    fn swarm(&mut self, random: &mut Random) {
        let crashes = random.chance(0.6);
        self.draw_quorum(random, !crashes);
        if crashes {
            add(&mut self.faults, random, 0.6, FaultKind::Crash, 1_500, 10_000);
            add(&mut self.faults, random, 0.6, FaultKind::CrashAtStep, 1_500, 10_000);
            add(&mut self.faults, random, 0.3, FaultKind::FastRestart, 2_000, 10_000);
            self.is_reckless = random.chance(0.05);
        }
        add(&mut self.faults, random, 0.4, FaultKind::Pause, 300, 5_000);
        add(&mut self.faults, random, 0.3, FaultKind::PauseAtStep, 500, 5_000);
        add(&mut self.faults, random, 0.3, FaultKind::Doze, 500, 5_000);
        add(&mut self.faults, random, 0.3, FaultKind::DropFrames, 200, 5_000);
        add(&mut self.faults, random, 0.4, FaultKind::Partition, 2_000, 10_000);
        add(&mut self.faults, random, 0.15, FaultKind::Flapping, 4_000, 15_000);
        add(&mut self.faults, random, 0.3, FaultKind::Clog, 1_000, 8_000);
        add(&mut self.faults, random, 0.3, FaultKind::HalfDead, 2_000, 10_000);
        add(&mut self.faults, random, 0.4, FaultKind::Replay, 20, 1_000);
        add(&mut self.faults, random, 0.2, FaultKind::Storm, 2_000, 10_000);
        add(&mut self.faults, random, 0.2, FaultKind::NeedlessReset, 1_000, 8_000);
        add(&mut self.faults, random, 0.2, FaultKind::Duel, 1_000, 8_000);
        if random.chance(0.5) {
            degrade(&mut self.conditions, random, 0.2);
        }
        self.heals_core_only = random.chance(0.2);
    }

    /// Like `swarm`, but some members can never send or receive multicasts, not even after the faults have ended. The
    /// group must do without.
    fn reach(&mut self, random: &mut Random) {
        self.swarm(random);
        self.settings.transport = random.pick(&[Transport::Auto, Transport::Multicast]);
        for place in 0..self.places {
            let (multicast_out, multicast_in) = (random.chance(0.5), random.chance(0.5));
            self.limits.push((place, Reach { multicast_out, multicast_in, ..Reach::FULL }));
        }
    }

    /// Large groups. Many members may start at once, or restart at once, so the group gets more time to converge.
    fn crowd(&mut self, random: &mut Random) {
        self.members = random.pick(&[12, 16, 24, 32, 40]);
        self.places = self.members + random.below(4) as usize;
        self.long_names &= self.members < 20;
        self.config.resilience = random.below(self.members as u64) as u8;
        self.config.members_max = 256;
        self.workload.every *= self.members as u64 / 5;
        self.swarm(random);
        self.parts.quiet += 10 * SECOND;
        self.parts.end += 20 * SECOND;
    }

    fn draw_quorum(&mut self, random: &mut Random, no_crashes: bool) {
        let names = (0..self.members).map(|place| name(place, self.long_names)).collect();
        let choice = random.weigh(&[(81, 0), (10, 1), (if no_crashes { 5 } else { 0 }, 2), (4, 3)]);
        self.config.quorum = match choice {
            0 => Quorum::MajorityOfView,
            1 => Quorum::MajorityOf(names),
            2 => Quorum::All,
            _ => Quorum::AtLeast(random.between(1, self.members as u64) as u16),
        };
        if choice == 1 {
            // The list must name every member of a view.
            self.places = self.members;
        }
    }
}

/// Adds a fault with this probability. Its mean interval is drawn from `low` to `high` milliseconds.
pub(crate) fn add(
    faults: &mut Vec<Recurring>,
    random: &mut Random,
    probability: f64,
    kind: FaultKind,
    low: u64,
    high: u64,
) {
    let every = random.millis(low, high);
    if random.chance(probability) {
        faults.push(Recurring { kind, every });
    }
}

/// Draws a network that may lose, delay, repeat, damage and reorder datagrams. `loss_max` is the largest fraction lost
/// on a link.
pub(crate) fn degrade(conditions: &mut Conditions, random: &mut Random, loss_max: f64) {
    if random.chance(0.8) {
        conditions.loss = random.part(loss_max);
    }
    if random.chance(0.3) {
        conditions.loss_at_sender = random.part(loss_max / 2.0);
    }
    if random.chance(0.4) {
        conditions.duplication = random.part(0.5);
    }
    if random.chance(0.4) {
        conditions.corruption = random.part(0.05);
    }
    if random.chance(0.5) {
        conditions.recording = random.part(0.2);
    }
    if random.chance(0.5) {
        conditions.delay_min = random.spread(50_000, 30 * MILLISECOND);
        conditions.delay_mean = random.spread(50_000, 50 * MILLISECOND);
    }
    conditions.reorders = random.chance(0.7);
    if random.chance(0.2) {
        conditions.in_flight_max = random.between(2, 20) as u16;
    }
}
