//! What a seed decides before anything happens: the group, its applications, and which faults there will be, how
//! often and how bad.
//!
//! Each seed draws *which* faults are on and leaves most of them off. A world in which everything always happens a
//! little is one world; a world with a few things in excess is another each time, and finds more.

use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::{Reach, Weather};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use unisono_core::{GroupConfig, Migration, Name, Quorum, Random, Settings, SlowMember, Transport};

/// What kind of worlds a run draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Any faults, in any combination.
    Swarm,
    /// A network that loses, delays, repeats and damages; members that live.
    Lossy,
    /// A network that falls apart, again and again.
    Partition,
    /// Members that crash, at every step of the protocol.
    Crash,
    /// Resets without need, several at a time, whose votes and proposals get lost or late; groups of two to five.
    Reset,
    /// No faults: five members, 500 messages a second.
    Perf,
    /// Calls instead of a group: clients and servers, any faults, in any combination.
    Calls,
    /// Any faults, and places from which no multicast can ever be sent, or where none can be heard.
    Reach,
    /// Any faults, and groups of 12 to 40.
    Crowd,
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
    ];

    /// Its name on the command line.
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
            format!("no profile is called {text}; there are {}", names.join(", "))
        })
    }
}

/// Set the streams from which the role's migration, whether processes are starved, whether members begin out of each
/// other's hearing, and what sockets hold are drawn apart from the others.
const MIGRATION: u64 = 0x6d69_6772_6174_6521;
const APART: u64 = 0x6170_6172_7421_2121;
const STARVATION: u64 = 0x7374_6172_7665_6421;
const BUFFERS: u64 = 0x6275_6666_6572_7321;

/// So many participants fit the smallest datagram drawn.
const FORMATION_MAX: usize = 12;

/// How the group comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// The first member founds it, and the others join.
    Founder,
    /// All start at once, and found the group if they find none.
    Together,
    /// The same, but until this part the network is in two: each half that has somebody founds a group of its own.
    Apart { until: Part },
    /// All form it together: so many of them at least, in so much time.
    Formation { at_least: u16, within: Duration },
}

/// A kind of fault that strikes again and again while faults last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A member crashes, now or in the middle of one of its next steps.
    Crash,
    /// Whoever next sends a frame of some kind crashes before or after doing so.
    CrashAtStep,
    /// A process ends and a new one starts at its address before anybody can notice.
    FastRestart,
    /// A process stands still for a while.
    Pause,
    /// Whoever next sends a frame of some kind stands still for a while.
    PauseAtStep,
    /// A process stands still again and again, and goes on for a moment only in between.
    Starve,
    /// An application takes no events for a while.
    Doze,
    /// The next few frames of some kind are lost.
    DropFrames,
    /// The network falls apart for a while.
    Partition,
    /// It falls apart and comes together several times, with a period near the group's timeouts.
    Flapping,
    /// Some links hold back everything for a while.
    Clog,
    /// A process hears no multicast, or cannot send any, for a while; or the same with unicast.
    HalfDead,
    /// Datagrams recorded earlier arrive again.
    Replay,
    /// For a while much more is lost than usual.
    Storm,
    /// An application asks for a reset although nothing is wrong.
    NeedlessReset,
    /// Several do at once, and some of the frames with which resets are made get lost.
    Duel,
}

impl FaultKind {
    /// Strikes one process.
    pub(crate) fn has_victim(self) -> bool {
        matches!(
            self,
            FaultKind::Pause
                | FaultKind::Starve
                | FaultKind::Doze
                | FaultKind::Partition
                | FaultKind::Flapping
        )
    }
}

/// A fault and how often it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recurring {
    pub(crate) kind: FaultKind,
    /// Nanoseconds between two strikes, on average.
    pub(crate) every: u64,
}

/// What the applications do.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Nanoseconds between two things that one application does, on average.
    pub(crate) every: u64,
    /// The part of sends that are bursts, and the most messages in one.
    pub(crate) bursts: f64,
    pub(crate) burst_max: u64,
    /// Most bytes of ordinary messages.
    pub(crate) bytes_max: u64,
    /// The part of messages that need several pieces, and the most bytes of those.
    pub(crate) large: f64,
    pub(crate) large_bytes_max: u64,
    /// The part of messages that ask for more resilience than the group's.
    pub(crate) more_resilient: f64,
    /// Speeches, if there are any.
    pub(crate) speech: Option<Speech>,
    /// The part of actions that are leaves, and hand-overs of the role.
    pub(crate) leaves: f64,
    pub(crate) hand_overs: f64,
    /// Most nanoseconds before a process whose life ended starts another.
    pub(crate) restart_max: u64,
}

/// A member that sends one message after the other for a while, so that nearly all are its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speech {
    /// The part of actions that begin one.
    pub(crate) part: f64,
    /// The most messages in one.
    pub(crate) messages_max: u64,
    /// Nanoseconds between two of them, on average.
    pub(crate) every: u64,
}

/// A part of a run after its first, in which all begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Faults strike.
    Chaos,
    /// Faults have ended; who is down comes back.
    Settling,
    /// What is promised where nothing disturbs has to come true.
    Healed,
    /// Applications begin nothing new.
    Quiet,
}

/// When the parts of a run begin, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Faults begin.
    pub(crate) chaos: u64,
    /// Faults end; who is down comes back.
    pub(crate) settling: u64,
    /// From here on the group has to converge.
    pub(crate) healed: u64,
    /// Applications send no more.
    pub(crate) quiet: u64,
    pub(crate) end: u64,
}

impl Parts {
    /// Each part, and when it begins.
    pub(crate) fn beginnings(&self) -> [(Part, u64); 4] {
        [
            (Part::Chaos, self.chaos),
            (Part::Settling, self.settling),
            (Part::Healed, self.healed),
            (Part::Quiet, self.quiet),
        ]
    }
}

/// All that a seed decides beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Processes; the first `members` of them form the group, others join later.
    pub(crate) places: usize,
    pub(crate) members: usize,
    pub(crate) beginning: Beginning,
    /// Names are as long as they may be, so that lists of members need several datagrams.
    pub(crate) long_names: bool,
    pub(crate) config: GroupConfig,
    pub(crate) settings: Settings,
    /// Each life chooses its transport for itself.
    pub(crate) mixed_transports: bool,
    /// Clocks run up to one percent too fast or too slow.
    pub(crate) drift: bool,
    pub(crate) workload: Workload,
    pub(crate) weather: Weather,
    /// Places that never have more reach than this.
    pub(crate) limits: Vec<(usize, Reach)>,
    pub(crate) faults: Vec<Recurring>,
    /// Crashes may leave less than a quorum.
    pub(crate) is_reckless: bool,
    /// Only a majority is healed in the end; what ails the others never ends.
    pub(crate) heals_core_only: bool,
    pub(crate) parts: Parts,
}

/// The name of the member at a place.
pub(crate) fn name(process: usize, is_long: bool) -> Name {
    let width = if is_long { Name::BYTES_MAX } else { 0 };
    Name::new(&format!("{:_<width$}", format!("m{process}"))).unwrap_or_default()
}

impl Plan {
    /// What `seed` decides.
    pub(crate) fn draw(seed: u64, profile: Profile) -> Plan {
        // Profiles draw apart, so that seed 7 of one has nothing to do with seed 7 of another.
        let random = &mut Random::from_u64(seed ^ (profile as u64 + 1) << 56);
        let mut plan = Plan::quiet(random);
        match profile {
            Profile::Perf => plan.perf(),
            Profile::Lossy => plan.lossy(random),
            Profile::Partition => plan.partition(random),
            Profile::Crash => plan.crash(random),
            Profile::Reset => plan.reset(random),
            Profile::Swarm => plan.swarm(random),
            Profile::Reach => plan.reach(random),
            Profile::Crowd => plan.crowd(random),
            // No group at all.
            Profile::Calls => {}
        }
        if profile != Profile::Perf {
            match random.weigh(&[(70, 0), (15, 1), (15, 2)]) {
                0 => {}
                1 => plan.start_together(),
                _ => plan.form(random),
            }
            // Drawn apart: none of these changes anything else of a seed.
            let apart = |stream: u64| Random::from_u64(stream ^ seed ^ (profile as u64 + 1) << 56);
            plan.draw_migration(&mut apart(MIGRATION));
            plan.draw_buffers(&mut apart(BUFFERS));
            plan.start_apart(&mut apart(APART));
            if matches!(profile, Profile::Swarm | Profile::Crash | Profile::Reach | Profile::Crowd) {
                add(&mut plan.faults, &mut apart(STARVATION), 0.15, FaultKind::Starve, 1_500, 8_000);
            }
        }
        plan
    }

    /// A group at work, and no faults.
    fn quiet(random: &mut Random) -> Plan {
        let members = 5;
        let settings = Settings {
            datagram_bytes_max: random.pick(&[1472, 1472, 1472, 700, 900, 4000]),
            receive_buffer_bytes: Settings::default().receive_buffer_bytes,
            transport: random.pick(&[Transport::Auto, Transport::Multicast, Transport::Unicast]),
            silence: random.duration(60, 300),
            patience: random.duration(60, 300),
            locate: random.duration(100, 500),
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
            // Sometimes the last to come finds the group full.
            members_max: if random.chance(0.05) { members as u16 } else { 256 },
            migration: Migration::OnRequest,
        };
        let workload = Workload {
            every: random.millis(80, 1_300),
            bursts: random.pick(&[0.0, 0.03, 0.15]),
            burst_max: random.spread(2, 30),
            bytes_max: random.spread(1, 1200),
            large: random.pick(&[0.0, 0.02, 0.1]),
            large_bytes_max: random.spread(1 << 11, 1 << 13),
            more_resilient: random.pick(&[0.0, 0.0, 0.1]),
            speech: None,
            leaves: random.pick(&[0.0, 0.002, 0.01]),
            hand_overs: random.pick(&[0.0, 0.005, 0.03]),
            restart_max: random.millis(5, 2000),
        };
        Plan {
            places: members + random.below(3) as usize,
            members,
            beginning: Beginning::Founder,
            long_names: random.chance(0.1),
            config,
            settings,
            mixed_transports: random.chance(0.3),
            drift: random.chance(0.5),
            workload,
            weather: Weather {
                delay_min: random.spread(20_000, 500_000),
                delay_mean: random.spread(5_000, 500_000),
                echo: random.chance(0.3),
                ..Weather::calm()
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

    /// Nothing disturbs the meeting: a founder gives way only as long as it is alone and has ordered nothing.
    fn start_together(&mut self) {
        self.beginning = Beginning::Together;
        self.parts.chaos = 2 * SECOND;
    }

    /// In some worlds there are two groups. Those that hear each other learn of each other, but they do not ask often, and
    /// whoever else comes to be the first of its group may have asked just before. All who give way leave at once; if the
    /// last of them says farewell in vain, the others wait for seconds.
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

    /// The network is as bad as it will be, but nobody dies: who restarts may make a second group.
    fn form(&mut self, random: &mut Random) {
        if self.long_names || self.members > FORMATION_MAX {
            // A formation must fit a datagram.
            return;
        }
        let members = self.members as u64;
        let within = random.duration(200, 3_000);
        let at_least = random.between(members / 2 + 1, members) as u16;
        self.beginning = Beginning::Formation { at_least, within };
        self.parts.chaos = 4 * SECOND;
    }

    /// In some worlds the role follows the load, and there is a load to follow.
    fn draw_migration(&mut self, random: &mut Random) {
        if random.chance(0.2) {
            self.config.migration = Migration::ByLoad;
            self.workload.speech = Some(Speech {
                part: random.pick(&[0.01, 0.03]),
                messages_max: random.spread(80, 200),
                every: random.spread(100_000, 5 * MILLISECOND),
            });
        } else if random.chance(0.05) {
            self.config.migration = Migration::Never;
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
        self.config = GroupConfig { automatic: true, ..GroupConfig::default() };
        self.settings = Settings::default();
        self.mixed_transports = false;
        self.weather = Weather::calm();
        self.workload = Workload {
            every: 10 * MILLISECOND,
            bursts: 0.0,
            burst_max: 1,
            bytes_max: 64,
            large: 0.0,
            large_bytes_max: 0,
            more_resilient: 0.0,
            speech: None,
            leaves: 0.0,
            hand_overs: 0.0,
            restart_max: SECOND,
        };
    }

    fn lossy(&mut self, random: &mut Random) {
        spoil(&mut self.weather, random, 0.3);
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
            spoil(&mut self.weather, random, 0.1);
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
            spoil(&mut self.weather, random, 0.1);
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
        let weather = &mut self.weather;
        weather.reorders = random.chance(0.7);
        weather.delay_mean = random.spread(50_000, 30 * MILLISECOND);
        if random.chance(0.6) {
            weather.loss = random.part(0.25);
        }
        weather.recording = random.pick(&[0.0, 0.1]);
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
            spoil(&mut self.weather, random, 0.2);
        }
        self.heals_core_only = random.chance(0.2);
    }

    /// The end of all faults gives nobody what it never had: the group has to do without.
    fn reach(&mut self, random: &mut Random) {
        self.swarm(random);
        self.settings.transport = random.pick(&[Transport::Auto, Transport::Multicast]);
        for place in 0..self.places {
            let (multicast_out, multicast_in) = (random.chance(0.5), random.chance(0.5));
            self.limits.push((place, Reach { multicast_out, multicast_in, ..Reach::FULL }));
        }
    }

    /// So many may begin at once, and come back at once, that the group may take longer to come together.
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

    fn draw_quorum(&mut self, random: &mut Random, nobody_crashes: bool) {
        let names = (0..self.members).map(|place| name(place, self.long_names)).collect();
        let choice = random.weigh(&[(81, 0), (10, 1), (if nobody_crashes { 5 } else { 0 }, 2), (4, 3)]);
        self.config.quorum = match choice {
            0 => Quorum::MajorityOfView,
            1 => Quorum::MajorityOf(names),
            2 => Quorum::All,
            _ => Quorum::AtLeast(random.between(1, self.members as u64) as u16),
        };
        if choice == 1 {
            // A view never holds a name that the list lacks.
            self.places = self.members;
        }
    }
}

/// Switches a fault on with this probability, once in `low` to `high` milliseconds on average.
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

/// A network that may lose, delay, repeat, damage and put out of order; it loses this part at most.
pub(crate) fn spoil(weather: &mut Weather, random: &mut Random, loss_max: f64) {
    if random.chance(0.8) {
        weather.loss = random.part(loss_max);
    }
    if random.chance(0.3) {
        weather.loss_at_sender = random.part(loss_max / 2.0);
    }
    if random.chance(0.4) {
        weather.duplication = random.part(0.5);
    }
    if random.chance(0.4) {
        weather.corruption = random.part(0.05);
    }
    if random.chance(0.5) {
        weather.recording = random.part(0.2);
    }
    if random.chance(0.5) {
        weather.delay_min = random.spread(50_000, 30 * MILLISECOND);
        weather.delay_mean = random.spread(50_000, 50 * MILLISECOND);
    }
    weather.reorders = random.chance(0.7);
    if random.chance(0.2) {
        weather.in_flight_max = random.between(2, 20) as u16;
    }
}
