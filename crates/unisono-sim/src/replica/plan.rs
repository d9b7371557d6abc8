//! The plan of a run of a replicated service: the servers, the clients, what they do, and the kinds, rates and strengths
//! of faults.

use super::handlers::{HandlerPlan, draw_qualities};
use super::holders::LockPlan;
use super::hostile::HostilePlan;
use super::story::Story;
use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::Conditions;
use crate::plan::{
    FaultKind, Parts, Profile, Recurring, STUCK, add, degrade, draws_a_ring, draws_switches, name,
};
use crate::world::JobFaults;
use std::ops::Range;
use std::time::Duration;
use unisono_core::replica::disk::DiskDurability;
use unisono_core::replica::{DISK_FORMS_WITHIN, Durability};
use unisono_core::rpc::CallSettings;
use unisono_core::{
    EntryMode, Formation, GroupConfig, Name, Order, Quorum, Random, Settings, SlowMember, Transport,
};

/// Everything that a seed determines before the run starts.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Number of server processes, which come first, and of client processes.
    pub(crate) servers: usize,
    /// One server process more than there are names: the last has the name of the first.
    pub(crate) has_double: bool,
    pub(crate) clients: usize,
    pub(crate) durability: Durability,
    /// True if the service keeps directories and files, false if it keeps small objects.
    pub(crate) directory: bool,
    /// Present if the servers have disks.
    pub(crate) disks: Option<DiskPlan>,
    pub(crate) config: GroupConfig,
    pub(crate) settings: Settings,
    pub(crate) calls: CallSettings,
    /// Time in which a server tries to form the group: each life draws one in this range.
    pub(crate) within: Range<Duration>,
    /// True if services are located by multicast.
    pub(crate) multicast: bool,
    /// True if clocks run up to one percent too fast or too slow.
    pub(crate) drift: bool,
    pub(crate) load: Load,
    /// Present if servers' own processes use locks.
    pub(super) locks: Option<LockPlan>,
    /// Present if servers claim handlers.
    pub(super) handlers: Option<HandlerPlan>,
    /// Present if a hostile client takes what it can get.
    pub(super) hostile: Option<HostilePlan>,
    /// Present if calls ask for qualities.
    pub(super) qualities: Option<Random>,
    /// Maximum delay before a server starts the next life, in nanoseconds.
    pub(crate) restart_max: u64,
    /// Mean interval between two ends of a copy that its program wants, in nanoseconds.
    pub(crate) ends_every: Option<u64>,
    /// Mean interval between two backups, in nanoseconds.
    pub(crate) backups_every: Option<u64>,
    /// Mean interval between two changes of the order, in nanoseconds.
    pub(crate) switches_every: Option<u64>,
    /// Fraction of pieces that a donor spoils, and of questions for pieces that it cannot answer.
    pub(crate) spoils: f64,
    pub(crate) stumbles: f64,
    pub(crate) fetch_limit: Duration,
    /// Time when the memory of one copy goes bad. Nothing else fails in such a run.
    pub(crate) corrupts_at: Option<u64>,
    /// True if no entries reach one server from the end of the faults until callers stop.
    pub(crate) is_one_stuck: bool,
    /// True if crashes may leave less than a majority of the servers.
    pub(crate) is_reckless: bool,
    pub(crate) conditions: Conditions,
    pub(crate) faults: Vec<Recurring>,
    pub(crate) parts: Parts,
}

/// What the disks of servers are, and what befalls them.
#[derive(Clone, Debug)]
pub(crate) struct DiskPlan {
    pub(crate) durability: DiskDurability,
    pub(crate) faults: JobFaults,
    /// Number of parts that never change, in snapshots of objects.
    pub(crate) ballast: u64,
    /// Present if crashes follow a story; otherwise they strike at random.
    pub(crate) story: Option<Story>,
}

/// What callers do.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// True if operations are on the list of words, false if on the registers.
    pub(crate) words: bool,
    /// Mean interval between two actions of one client, and of one server's own process, in nanoseconds.
    pub(crate) every: u64,
    pub(crate) own_every: u64,
    /// Most operations of one action, and most that one process has under way.
    pub(crate) burst_max: u64,
    pub(crate) under_way_max: usize,
    /// Fractions of operations that read, and of reads that are local.
    pub(crate) reads: f64,
    pub(crate) local: f64,
    /// Fraction of operations with a short deadline: 1 to 200 ms.
    pub(crate) hasty: f64,
    /// Fraction of large commands, and the most bytes that they have besides.
    pub(crate) large: f64,
    pub(crate) large_bytes_max: u64,
}

/// Random stream of the plans of this profile.
const REPLICA: u64 = 0x7265_706c_6963_6121;
/// The same of the profile of the directory.
const DIRECTORY: u64 = 0x6469_7265_6374_6f72;
/// Random stream of what the disks of a run do.
const DISKS: u64 = 0x6469_736b_7321_2121;
/// Random stream of how many members hold what is answered.
const HOLDERS: u64 = 0x686f_6c64_6572_7321;
/// Random stream of the names of servers.
const NAMES: u64 = 0x6e61_6d65_7321_2121;
/// Random stream of which runs have states of many parts.
const PARTS: u64 = 0x7061_7274_7321_2121;
/// Random stream of how transfers of the state fail.
const TRANSFERS: u64 = 0x7472_616e_7366_6572;

impl Plan {
    /// Returns the plan of `seed`.
    pub(crate) fn draw(seed: u64, profile: Profile) -> Plan {
        let mut plan = match profile {
            Profile::Directory => Plan::of_directory(seed),
            _ => Plan::of_objects(seed),
        };
        if draws_a_ring(seed, profile) {
            plan.config.order = Order::Token;
        }
        plan.switches_every = draws_switches(seed, profile).map(|mut random| random.millis(300, 4_000));
        if matches!(profile, Profile::Replica | Profile::Directory) {
            plan.draw_hostile(seed);
        }
        plan
    }

    /// All servers have disks, and their clients use the directory.
    fn of_directory(seed: u64) -> Plan {
        let random = &mut Random::from_u64(seed ^ DIRECTORY);
        let mut plan = Plan::quiet(random);
        plan.durability = Durability::HeldByAll;
        plan.config.resilience = plan.durability.resilience();
        plan.directory = true;
        plan.servers = random.weigh(&[(6, 3), (1, 5)]);
        plan.draw_faults(random);
        plan.give_disks(random);
        plan.clients = random.between(3, 5) as usize;
        plan.backups_every = Some(random.millis(700, 4_000));
        plan.load = Load {
            every: random.millis(80, 400),
            own_every: random.millis(400, 2_000),
            burst_max: random.pick(&[1, 1, 3]),
            under_way_max: random.pick(&[1, 4, 8]),
            reads: random.pick(&[0.3, 0.5, 0.6]),
            local: random.pick(&[0.0, 0.1, 0.3]),
            ..plan.load
        };
        plan
    }

    fn of_objects(seed: u64) -> Plan {
        let random = &mut Random::from_u64(seed ^ REPLICA);
        let mut plan = Plan::quiet(random);
        if random.chance(0.08) {
            plan.corrupt(random);
        } else {
            plan.draw_faults(random);
        }
        plan.draw_disks(&mut Random::from_u64(seed ^ DISKS));
        plan.draw_parts(&mut Random::from_u64(seed ^ PARTS));
        plan.draw_transfers(&mut Random::from_u64(seed ^ TRANSFERS));
        if !plan.on_disk() {
            plan.name_servers(&mut Random::from_u64(seed ^ NAMES));
        }
        plan.draw_stuck(&mut Random::from_u64(seed ^ STUCK ^ REPLICA));
        plan.draw_holders(&mut Random::from_u64(seed ^ HOLDERS));
        plan.locks = LockPlan::draw(seed).filter(|_| plan.corrupts_at.is_none());
        plan.qualities = draw_qualities(seed);
        plan.handlers = HandlerPlan::draw(seed, plan.servers).filter(|_| plan.corrupts_at.is_none());
        plan
    }

    pub(super) fn quiet(random: &mut Random) -> Plan {
        let servers = random.weigh(&[(2, 2), (6, 3), (2, 4), (2, 5)]);
        let durability = if random.chance(0.85) { Durability::HeldByAll } else { Durability::Ordered };
        let majority = servers as u16 / 2 + 1;
        let local_only = durability == Durability::Ordered;
        Plan {
            servers,
            has_double: false,
            clients: random.between(1, 6) as usize,
            durability,
            directory: false,
            disks: None,
            config: GroupConfig {
                resilience: durability.resilience(),
                members_min: majority,
                keeps_state: true,
                history_messages: random.spread(64, 4096) as u32,
                history_bytes: 1 << 22,
                message_bytes_max: 1 << 16,
                window: random.spread(1, 256) as u32,
                slow_member: SlowMember::ExcludeAfter(Duration::from_secs(10)),
                ..GroupConfig::default()
            },
            settings: Settings {
                datagram_bytes_max: random.pick(&[1472, 1472, 1472, 900, 4000]),
                transport: random.pick(&[Transport::Auto, Transport::Multicast, Transport::Unicast]),
                silence: random.duration(60, 300),
                patience: random.duration(60, 300),
                locate: random.duration(100, 400),
                ..Settings::default()
            },
            calls: CallSettings {
                datagram_bytes_max: random.pick(&[1472, 1472, 1472, 900, 4000]),
                silence: random.duration(300, 2_000),
                locate: random.duration(300, 2_000),
                ..CallSettings::default()
            },
            within: fixed(random.duration(1_000, 5_000)),
            multicast: random.chance(0.5),
            drift: random.chance(0.5),
            load: Load {
                words: random.chance(0.5),
                every: random.millis(60, 400),
                own_every: random.millis(100, 1_000),
                burst_max: random.pick(&[1, 1, 3, 8]),
                under_way_max: random.pick(&[1, 4, 16]),
                reads: random.pick(&[0.2, 0.5, 0.7]),
                local: if local_only { 1.0 } else { random.pick(&[0.0, 0.1, 0.3]) },
                hasty: random.pick(&[0.0, 0.1, 0.3]),
                large: random.pick(&[0.0, 0.0, 0.03]),
                large_bytes_max: random.spread(1 << 11, 1 << 15),
            },
            locks: None,
            handlers: None,
            hostile: None,
            qualities: None,
            restart_max: random.millis(10, 3_000),
            ends_every: None,
            backups_every: None,
            switches_every: None,
            spoils: 0.0,
            stumbles: 0.0,
            fetch_limit: random.duration(300, 2_000),
            corrupts_at: None,
            is_one_stuck: false,
            is_reckless: false,
            conditions: Conditions {
                delay_min: random.spread(20_000, 500_000),
                delay_mean: random.spread(5_000, 500_000),
                echo: random.chance(0.3),
                ..Conditions::quiet()
            },
            faults: Vec::new(),
            parts: Parts {
                chaos: random.between(1_500, 3_000) * MILLISECOND,
                settling: 16 * SECOND,
                healed: 24 * SECOND,
                quiet: 27 * SECOND,
                end: 34 * SECOND,
            },
        }
    }

    fn draw_faults(&mut self, random: &mut Random) {
        self.is_reckless = random.chance(0.25);
        if random.chance(0.3) {
            self.ends_every = Some(random.millis(1_500, 6_000));
        }
        self.spoils = random.pick(&[0.0, 0.05, 0.3]);
        self.stumbles = random.pick(&[0.0, 0.1, 0.3]);
        if random.chance(0.15) {
            self.hurry(random);
        }
        let faults = &mut self.faults;
        if random.chance(0.7) {
            add(faults, random, 0.6, FaultKind::Crash, 700, 5_000);
            add(faults, random, 0.6, FaultKind::CrashAtStep, 700, 5_000);
            add(faults, random, 0.4, FaultKind::FastRestart, 1_000, 6_000);
        }
        add(faults, random, 0.4, FaultKind::Pause, 500, 5_000);
        add(faults, random, 0.3, FaultKind::PauseAtStep, 500, 5_000);
        add(faults, random, 0.1, FaultKind::Starve, 2_000, 8_000);
        add(faults, random, 0.2, FaultKind::Doze, 500, 5_000);
        add(faults, random, 0.3, FaultKind::DropFrames, 200, 3_000);
        add(faults, random, 0.6, FaultKind::Partition, 1_000, 6_000);
        add(faults, random, 0.15, FaultKind::Flapping, 3_000, 10_000);
        add(faults, random, 0.3, FaultKind::Clog, 700, 6_000);
        add(faults, random, 0.3, FaultKind::HalfDead, 1_500, 8_000);
        add(faults, random, 0.3, FaultKind::Replay, 20, 800);
        add(faults, random, 0.15, FaultKind::Storm, 2_000, 8_000);
        if random.chance(0.5) {
            degrade(&mut self.conditions, random, 0.15);
        }
    }

    /// Lets the servers of some runs keep their state on disk. Any of them may crash then, and all of them.
    fn draw_disks(&mut self, random: &mut Random) {
        if self.durability == Durability::Ordered || self.corrupts_at.is_some() || !random.chance(0.5) {
            return;
        }
        self.give_disks(random);
    }

    /// Gives a fifth of the runs on disk 100 to 300 parts more and slow writes: a snapshot of all parts then takes more than
    /// 10 s. Crashes would end most of these snapshots, so half of these runs have no other fault.
    fn draw_parts(&mut self, random: &mut Random) {
        let Some(disks) = self.disks.as_mut().filter(|_| random.chance(0.2)) else { return };
        disks.ballast = random.between(100, 300);
        disks.faults.write_takes = random.duration(10_500, 14_000) / disks.ballast as u32;
        if random.chance(0.5) {
            disks.story = None;
            self.faults.clear();
            (self.ends_every, self.load.every) = (None, random.millis(20, 80));
        }
    }

    /// In some runs in memory a majority holds what is answered.
    fn draw_holders(&mut self, random: &mut Random) {
        let may_be = self.durability == Durability::HeldByAll && !self.on_disk() && !self.is_one_stuck;
        if random.chance(0.4) && may_be {
            self.durability = Durability::HeldByMajority;
            self.config.resilience = self.durability.resilience();
        }
    }

    fn give_disks(&mut self, random: &mut Random) {
        let durability = random.weigh(&[(3, DiskDurability::Majority), (2, DiskDurability::One)]);
        let faults = JobFaults {
            stalls: random.pick(&[0.0, 0.0, 0.002, 0.01]),
            fails: random.pick(&[0.0, 0.0, 0.002]),
            write_takes: Duration::from_nanos(random.spread(1_000, 200_000)),
        };
        let story = random.chance(0.6).then(|| self.draw_story(random));
        self.keep_on_disk(DiskPlan { durability, faults, ballast: 0, story });
    }

    /// Lets the servers keep their state on disk.
    pub(super) fn keep_on_disk(&mut self, disks: DiskPlan) {
        self.durability = Durability::OnDisk;
        self.config.resilience = disks.durability.resilience(self.servers as u8);
        self.disks = Some(disks);
        self.is_reckless = true;
        self.within = DISK_FORMS_WITHIN;
        self.config.quorum = Quorum::MajorityOf((0..self.servers).map(|server| self.name(server)).collect());
        self.config.members_max = self.servers as u16;
        self.config.members_min = self.servers as u16 / 2 + 1;
        self.config.keeps_state = false;
    }

    /// In a story only servers with disks crash, in acts, while callers are busy.
    fn draw_story(&mut self, random: &mut Random) -> Story {
        self.servers = random.weigh(&[(6, 3), (1, 5)]);
        let spoils = random.pick(&[0.0, 0.1, 0.3]);
        let stays = [FaultKind::Pause, FaultKind::DropFrames, FaultKind::Partition, FaultKind::HalfDead];
        match spoils == 0.0 && random.chance(0.5) {
            true => self.faults.retain(|fault| stays.contains(&fault.kind)),
            false => self.faults.clear(),
        }
        self.ends_every = None;
        self.restart_max = random.millis(10, 500);
        self.load.every = random.millis(20, 120);
        self.clients = random.between(2, 4) as usize;
        Story { spoils, begins_anew: spoils > 0.0 && random.chance(0.15) }
    }

    /// True if the servers have disks.
    pub(crate) fn on_disk(&self) -> bool {
        self.disks.is_some()
    }

    /// Lets no newcomer of some runs get the state while faults strike, so that few members have it.
    fn draw_transfers(&mut self, random: &mut Random) {
        if !self.on_disk() && self.corrupts_at.is_none() && random.chance(0.15) {
            self.spoils = 1.0;
        }
    }

    /// Lets names vote in a service in memory, and starts a second process of a name in some runs.
    fn name_servers(&mut self, random: &mut Random) {
        self.config.quorum =
            Quorum::MajorityOfNamed((0..self.servers).map(|server| self.name(server)).collect());
        if self.corrupts_at.is_none() && random.chance(0.2) {
            self.has_double = true;
            self.servers += 1;
        }
    }

    /// Returns the number of all processes: the hostile client comes last.
    pub(super) fn processes(&self) -> usize {
        self.servers + self.clients + usize::from(self.hostile.is_some())
    }

    /// Returns the number of names of servers.
    pub(crate) fn names(&self) -> usize {
        self.servers - usize::from(self.has_double)
    }

    /// Returns the number of the server that a server process runs as.
    pub(crate) fn server_of(&self, process: usize) -> usize {
        process % self.names()
    }

    /// Lets no entries reach a server for a while, in some runs while faults strike, in others when they are over: then
    /// the rest must go on without it. Such a run is longer, and its commands wait for all members: where they wait for
    /// none, the others have no reason to exclude it.
    fn draw_stuck(&mut self, random: &mut Random) {
        if self.corrupts_at.is_some() {
            return;
        }
        add(&mut self.faults, random, 0.1, FaultKind::Stuck, 2_000, 9_000);
        let waits_for_all = match &self.disks {
            Some(disks) => disks.durability == DiskDurability::One,
            None => self.durability == Durability::HeldByAll,
        };
        if self.servers > 2 && random.chance(0.15) && waits_for_all {
            self.is_one_stuck = true;
            self.config.slow_member = SlowMember::ExcludeAfter(random.duration(500, 4_000));
            self.parts.quiet += 6 * SECOND;
            self.parts.end += 12 * SECOND;
        }
    }

    /// Returns the name of a process. A server with a disk is named after its id.
    pub(crate) fn name(&self, process: usize) -> Name {
        match process < self.servers {
            true if self.on_disk() => Name::new(&(process + 1).to_string()).unwrap_or_default(),
            true => name(self.server_of(process), false),
            false => name(process, false),
        }
    }

    /// Lets the servers' own processes give several thousand commands.
    fn hurry(&mut self, random: &mut Random) {
        self.load.own_every = random.millis(25, 60);
        self.load.burst_max = 4;
        self.load.under_way_max = 64;
        self.load.reads = 0.2;
        self.load.large = 0.0;
        self.config.window = 256;
    }

    /// The memory of one copy goes bad, and nothing else fails.
    fn corrupt(&mut self, random: &mut Random) {
        self.hurry(random);
        self.servers = self.servers.max(3);
        self.config.members_min = self.servers as u16 / 2 + 1;
        self.corrupts_at = Some(random.between(3_000, 8_000) * MILLISECOND);
    }

    /// Returns how a server enters that begins anew.
    pub(super) fn entry(&self, random: &mut Random) -> EntryMode {
        let participants = (0..self.names()).map(|server| self.name(server)).collect();
        let at_least = self.config.members_min;
        let within = match self.within.is_empty() {
            true => self.within.start,
            false => {
                let nanos = |at: Duration| at.as_nanos() as u64;
                Duration::from_nanos(random.between(nanos(self.within.start), nanos(self.within.end)))
            }
        };
        let formation = Formation { participants, at_least, within };
        EntryMode::JoinOrForm(formation, self.config.clone())
    }

    /// Returns the silence in nanoseconds after which servers suspect each other; sets the period of flapping.
    pub(crate) fn patience(&self) -> u64 {
        (self.settings.silence + self.settings.patience).as_nanos() as u64
    }
}

/// Returns the range with this time alone.
pub(super) fn fixed(time: Duration) -> Range<Duration> {
    time..time
}
