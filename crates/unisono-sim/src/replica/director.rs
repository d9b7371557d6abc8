//! Runs one plan of a replicated service: the servers form a group and keep a state, callers use it, and faults strike.
//! Then all faults end, and the director demands that the service answers and that all servers have the state.

use super::clients::Asked;
use super::disks::Place;
use super::hostile::Learned;
use super::plan::Plan;
use super::script::Script;
use super::story::{SLOW, Scene};
use crate::bugs::Planted;
use crate::director::Finding;
use crate::directory::{self, Book, Watcher};
use crate::draw::{Draw, MILLISECOND};
use crate::faults;
use crate::injector::{FaultInjector, Targets};
use crate::network::{Network, exponential};
use crate::plan::{FaultKind, Part, Profile};
use crate::process::ScheduledCrash;
use crate::properties::{self, Checkers};
use crate::record::{Life, ReplicaRecord};
use crate::recorder::Recorder;
use crate::world::{
    AIMED, Birth, CallService, Former, Heard, Notice, Over, ReplicaBirth, ReplicaCommon, ReplicaSide,
    ServerBirth, Trigger, WATCH, World,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use unisono_core::replica::{DISK_ENTERS_WITHIN, Durability, ReplicaSettings};
use unisono_core::rpc::{PrivatePort, ServeOptions};
use unisono_core::wire::FrameKind;
use unisono_core::{EntryMode, Phase, Port, Random, Settings, Uid};

/// The frames at which faults are aimed.
const TARGETS: Targets = Targets {
    steps: &[
        (3, (FrameKind::Ordered, 60)),
        (2, (FrameKind::Numbers, 20)),
        (4, (FrameKind::Change, 8)),
        (2, (FrameKind::Watermarks, 60)),
        (3, (FrameKind::Note, 60)),
        (2, (FrameKind::Data, 60)),
        (2, (FrameKind::Welcome, 2)),
        (1, (FrameKind::Farewell, 1)),
        (2, (FrameKind::Invite, 8)),
        (2, (FrameKind::Vote, 6)),
        (2, (FrameKind::Prepare, 6)),
        (2, (FrameKind::Prepared, 6)),
        (2, (FrameKind::Decided, 6)),
        (3, (FrameKind::Request, 30)),
        (4, (FrameKind::Reply, 30)),
        (2, (FrameKind::PortHere, 6)),
        (2, (FrameKind::Forward, 3)),
    ],
    may_drop: |kind| kind.is_of_calls() || (faults::TARGETS.may_drop)(kind),
};

/// Random stream of the root's capability.
const BOOK: u64 = 0x626f_6f6b_2121_2121;

/// Interval at which a server whose old life still serves other members looks whether it may begin the next one.
const NEXT_LIFE_AFTER: u64 = 200 * MILLISECOND;

/// Time after which a server that has not entered its group begins anew, as a program does that opens with a deadline.
const ENTERS_WITHIN: u64 = 6_000 * MILLISECOND;

/// A run of one plan.
pub(crate) struct Director {
    pub(super) world: World<ReplicaSide>,
    pub(super) plan: Plan,
    /// Random numbers of applications; faults have their own generator.
    pub(super) app_random: Random,
    injector: FaultInjector,
    /// Number of operations that each process has under way, and what they are.
    pub(super) under_way: Vec<usize>,
    pub(super) asked: BTreeMap<u32, Asked>,
    /// What clients of a directory know.
    pub(super) book: Book,
    /// What a hostile one knows.
    pub(super) learned: Option<Learned>,
    /// Their watches, and which of them are under way.
    pub(super) watchers: Vec<Watcher>,
    pub(super) watches: BTreeMap<usize, u32>,
    /// Who waits for an answer to a watch.
    pub(super) asking: BTreeMap<u32, (usize, Life)>,
    /// Operations that are to be tried again.
    pub(super) again: Vec<Asked>,
    /// True while callers begin operations.
    pub(super) is_busy: bool,
    /// True once no fault strikes any more.
    pub(super) is_calm: bool,
    /// The server process that does not run any more, because another one has its name.
    pub(super) retired: Option<usize>,
    pub(super) planted: Option<Planted>,
    /// The servers' disks; none if they keep their state in memory.
    pub(super) places: Vec<Place>,
    /// Where the story is, if the run follows one.
    pub(super) scene: Option<Scene>,
    /// Where the script is, if the run is one of a history.
    pub(super) script: Option<Script>,
}

/// What is run.
pub(super) struct Run {
    pub(super) plan: Plan,
    /// Seed of what is drawn in the course of the run.
    pub(super) seed: u64,
    /// What the trace says of it.
    pub(super) what: String,
}

impl Director {
    pub(crate) fn new(
        seed: u64,
        profile: Profile,
        planted: Option<Planted>,
        trace: Option<Box<dyn Write>>,
    ) -> Director {
        let what = format!("seed {seed}, profile {profile}");
        Director::of(Run { plan: Plan::draw(seed, profile), seed, what }, planted, trace)
    }

    pub(super) fn of(run: Run, planted: Option<Planted>, trace: Option<Box<dyn Write>>) -> Director {
        let Run { mut plan, seed, what } = run;
        let random = &mut Random::from_u64(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut fork = || Random::from_u64(random.next_u64());
        let places = plan.processes();
        let queue_max = plan.hostile.as_ref().map(|hostile| hostile.queue_max);
        let network = Network::new(places, plan.conditions.clone(), fork());
        let properties = match plan.directory {
            true => properties::directories(),
            false => properties::replicas(),
        };
        let mut recorder = Recorder::new(Checkers::new(properties), trace);
        recorder.trace(0, "world", format_args!("{what}: {plan:#?}"));
        let mut ports = fork();
        let mut private = || PrivatePort(u128::from(ports.next_u64()) << 64 | u128::from(ports.next_u64()));
        let options = ServeOptions { repeats: true, looks_at_beginnings: true, ..ServeOptions::default() };
        let options = ServeOptions { queue_max: queue_max.unwrap_or(options.queue_max), ..options };
        let common = ReplicaCommon {
            group: Port::from_name("replicated"),
            service: CallService::new(private(), options),
            transfer: CallService::new(private(), ServeOptions::default()),
            multicast: plan.multicast,
            fetch_limit: plan.fetch_limit,
            spoils: plan.spoils,
            stumbles: plan.stumbles,
            job_faults: plan.disks.as_ref().map_or_else(Default::default, |disks| disks.faults),
            ballast: plan.disks.as_ref().map_or(0, |disks| disks.ballast),
            aim: None,
            effects: None,
            good_disks: Default::default(),
            lost_disks: Default::default(),
            instances: Vec::new(),
            ops_begun: 0,
            not_happened: Default::default(),
            directory: plan.directory.then(directory::limits),
            replies: Default::default(),
            planted,
            request_takes: plan
                .hostile
                .as_ref()
                .map_or_else(Default::default, |hostile| hostile.request_takes),
            watches: plan.directory.then(|| {
                let options = ServeOptions::default();
                let queue_max = queue_max.unwrap_or(options.queue_max);
                CallService::new(private(), ServeOptions { queue_max, ..options })
            }),
            seen: Default::default(),
            heard: Heard::default(),
            backup: None,
        };
        let (conditions, faults) = (plan.conditions.clone(), plan.faults.clone());
        let book = Book::new(&mut Random::from_u64(seed ^ BOOK));
        let learned = plan.hostile.as_mut().and_then(|hostile| hostile.learned(&book));
        Director {
            world: World::new(places, common, network, recorder, fork()),
            app_random: fork(),
            injector: FaultInjector::new(fork(), places, conditions, faults, plan.patience(), TARGETS),
            under_way: vec![0; places],
            asked: BTreeMap::new(),
            book,
            learned,
            again: Vec::new(),
            watchers: Vec::new(),
            watches: BTreeMap::new(),
            asking: BTreeMap::new(),
            is_busy: true,
            is_calm: false,
            retired: None,
            planted,
            places: match plan.on_disk() {
                true => (0..plan.servers).map(|_| Place::default()).collect(),
                false => Vec::new(),
            },
            scene: plan.disks.as_ref().and_then(|disks| disks.story).map(|_| Scene::default()),
            script: None,
            plan,
        }
    }

    /// Runs to the end, or until a violation is reported.
    pub(crate) fn run(mut self) -> Finding {
        self.run_through();
        Finding::of(&self.world)
    }

    pub(super) fn run_through(&mut self) {
        self.begin_run();
        while !self.script.as_ref().is_some_and(Script::is_over)
            && let Some(trigger) = self.world.advance(self.plan.parts.end)
        {
            self.handle(trigger);
        }
        self.world.finish_replicas();
    }

    pub(super) fn begin_run(&mut self) {
        let held_by_all = self.plan.durability != Durability::Ordered;
        self.world.note_world(ReplicaRecord::Terms {
            held_by_all,
            by_majority: self.plan.durability == Durability::HeldByMajority,
            servers: self.plan.names(),
            disks: self.plan.disks.as_ref().map(|disks| disks.durability),
        });
        if self.plan.locks.as_ref().is_some_and(|locks| locks.behind_max > 0) {
            self.world.note_world(ReplicaRecord::ClocksDiffer);
        }
        for (part, at) in self.plan.parts.beginnings() {
            self.world.trigger(at, Trigger::Part(part));
        }
        if let Some(at) = self.plan.corrupts_at {
            self.world.trigger(at, Trigger::Line(CORRUPT));
        }
        self.schedule_end();
        self.schedule_backup();
        self.schedule_switch();
        // No fault disturbs the beginning.
        self.injector.clear_faults(&mut self.world);
        self.scene.iter_mut().for_each(|scene| scene.present = (0..self.plan.servers).collect());
        for server in 0..self.plan.servers {
            let entry = self.entry();
            self.begin_server(server, entry, None);
        }
        for client in self.plan.servers..self.process_count() {
            self.begin_client(client);
        }
    }

    pub(super) fn handle(&mut self, trigger: Trigger) {
        match trigger {
            Trigger::Act { process, life } => self.act(process.into(), life),
            Trigger::Work { job, .. } if self.script.is_some() => self.end_in_script(job),
            Trigger::Work { process, life, job } if job & WATCH != 0 => {
                self.take_seen(process.into(), life, job & !WATCH)
            }
            Trigger::Work { process, life, job } => self.end(process.into(), life, job),
            Trigger::Cancel { process, life, index } if index & WATCH != 0 => {
                self.watch_on(process.into(), life, index & !WATCH);
            }
            Trigger::Cancel { process, life, index } => self.try_again(process.into(), life, index as usize),
            Trigger::Start { process } => self.start(process.into()),
            Trigger::Notice { process, notice: Notice::Over, .. } => {
                // The path to a server is mended once the others have excluded it.
                self.world.frame_faults.set_stuck(process.into(), false);
                self.start_later(process.into());
            }
            Trigger::Fault(code) => self.fault(code),
            Trigger::Line(line) if self.script.is_some() => self.follow_script(line),
            Trigger::Line(CORRUPT) => self.corrupt(),
            Trigger::Line(END_ONE) => self.end_one(),
            Trigger::Line(BACK_UP) => self.back_up(),
            Trigger::Line(SWITCH) => self.switch(),
            Trigger::Line(SLOW) => self.slow_down(),
            Trigger::Line(line) => self.follow_story(line),
            Trigger::Part(part) => match part {
                Part::Chaos => {
                    self.injector.begin(&mut self.world);
                    self.injector.schedule_faults(&mut self.world);
                    self.begin_act();
                }
                Part::Settling => {
                    self.settle();
                    self.begin_stuck();
                }
                Part::Healed => {
                    self.mend_sequencer();
                    self.demand();
                }
                Part::Quiet => {
                    self.is_busy = false;
                    self.world.frame_faults.clear();
                    self.end_story();
                }
            },
            Trigger::ResetAgain { process, life } => {
                if self.is_current(process.into(), life) {
                    match self.world.is_paused(process.into()) {
                        // A paused program notices its deadline when it goes on.
                        true => self.world.trigger(NEXT_LIFE_AFTER, Trigger::ResetAgain { process, life }),
                        false => self.world.give_up_entering(process.into()),
                    }
                }
            }
            Trigger::Notice { .. } | Trigger::EpochBegun | Trigger::Withdraw { .. } | Trigger::Outside(_) => {
            }
        }
    }

    pub(super) fn process_count(&self) -> usize {
        self.plan.processes()
    }

    pub(super) fn is_current(&self, process: usize, life: Life) -> bool {
        self.world.resident(process).is_some_and(|resident| resident.life == life)
    }

    // --- lives ---

    pub(super) fn start_later(&mut self, process: usize) {
        let delay = self.app_random.spread(MILLISECOND, self.plan.restart_max);
        self.world.trigger(delay, Trigger::Start { process: process as u16 });
    }

    fn start(&mut self, process: usize) {
        if process >= self.plan.servers {
            if self.world.resident(process).is_none() {
                self.begin_client(process);
            }
            return;
        }
        if !self.may_run(process) {
            return;
        }
        let Some(resident) = self.world.resident(process) else {
            let entry = self.entry();
            return self.begin_server(process, entry, None);
        };
        let Some(server) = &resident.side.server else { return };
        let Some(over) = server.over else { return };
        // An excluded member goes on serving others for a while.
        let serves = !matches!(server.group.phase(), Phase::Gone | Phase::Locating);
        if self.world.is_paused(process) || serves && self.app_random.chance(0.9) {
            self.world.trigger(NEXT_LIFE_AFTER, Trigger::Start { process: process as u16 });
            return;
        }
        let entry = match over {
            _ if self.plan.on_disk() => self.plan.entry(&mut self.app_random),
            Over::Reenters => self.plan.entry(&mut self.app_random),
            Over::Excluded => server.replica.entry_after_exclusion(&self.plan.config),
            Over::JoinFailed => server.entry.clone(),
            Over::Gone | Over::Stopped => self.plan.entry(&mut self.app_random),
        };
        let stop = server.stop.clone();
        let former = self.world.take_former(process);
        stop.into_iter().for_each(|stop| self.heed_stop(process, stop));
        let goes_on = matches!(over, Over::Excluded | Over::JoinFailed | Over::Reenters);
        self.begin_server(process, entry, former.filter(|_| goes_on));
    }

    /// Returns how a server enters that begins anew.
    pub(super) fn entry(&mut self) -> EntryMode {
        self.plan.entry(&mut self.app_random)
    }

    pub(super) fn begin_server(&mut self, process: usize, entry: EntryMode, former: Option<Former>) {
        let disk = if former.is_none() { self.open_disk(process) } else { None };
        let server = ServerBirth {
            entry,
            settings: Settings { ..self.plan.settings.clone() },
            durability: self.plan.durability,
            message_bytes_max: self.plan.config.message_bytes_max as usize,
            members_min: self.plan.config.members_min,
            names: ReplicaSettings::names_of(&self.plan.config),
            window: self.plan.config.window,
            handlers: self.plan.handlers.as_ref().map_or_else(Vec::new, |plan| plan.claims(process)),
            disk,
            former,
        };
        self.give_life(process, Some(server));
    }

    pub(super) fn begin_client(&mut self, process: usize) {
        self.give_life(process, None);
    }

    fn give_life(&mut self, process: usize, server: Option<ServerBirth>) {
        if server.as_ref().is_none_or(|server| server.former.is_none()) {
            self.under_way[process] = 0;
        }
        let hostile = self.plan.hostile.as_ref().map(|hostile| hostile.lives);
        let hostile = hostile.filter(|_| self.is_hostile(process));
        let clock = server.as_ref().and_then(|server| server.former.as_ref()).map(Former::clock);
        let birth = Birth {
            name: self.plan.name(process),
            side: ReplicaBirth { calls: self.plan.calls.clone(), server, hostile },
            gain: if self.plan.drift { self.app_random.between(0, 20_972) as i64 - 10_486 } else { 0 },
            clock,
            events_first: self.app_random.chance(0.5),
            planted: self.planted,
        };
        match self.world.start(process, birth) {
            Err(error) => self.world.report_violation("plans_are_valid", error.to_string()),
            Ok(life) => {
                self.set_speed(process);
                self.schedule_act(process, life);
                if process < self.plan.servers {
                    let on_disk = DISK_ENTERS_WITHIN.as_nanos() as u64;
                    let within = if self.plan.on_disk() { on_disk } else { ENTERS_WITHIN };
                    self.world.trigger(within, Trigger::ResetAgain { process: process as u16, life });
                }
            }
        }
    }

    // --- faults ---

    fn fault(&mut self, code: u32) {
        if let Some(kind) = self.injector.due(&mut self.world, code) {
            self.strike(kind);
            self.injector.schedule_fault(&mut self.world, code);
        }
    }

    fn strike(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash => {
                if let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) {
                    if self.injector.random.chance(0.5) {
                        self.world.crash(victim);
                    } else {
                        let scheduled_crash = ScheduledCrash::draw(&mut self.injector.random);
                        self.world.schedule_crash(victim, Some(scheduled_crash));
                    }
                }
            }
            FaultKind::CrashAtStep if !self.can_lose_any() => {}
            FaultKind::FastRestart => {
                if let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) {
                    self.world.crash(victim);
                    match victim < self.plan.servers {
                        true => {
                            let entry = self.entry();
                            self.begin_server(victim, entry, None);
                        }
                        false => self.begin_client(victim),
                    }
                }
            }
            kind => {
                let victim = if kind.has_victim() { self.victim() } else { None };
                self.injector.strike(&mut self.world, kind, victim);
            }
        }
        // Restarts processes that crashed, at once or at a step.
        for process in 0..self.process_count() {
            if self.world.resident(process).is_none() {
                self.start_later(process);
            }
        }
    }

    /// Returns a living process: mostly a server, and the sequencer with a probability of at least a third.
    fn victim(&mut self) -> Option<usize> {
        let sequencer = self.sequencer().filter(|_| self.injector.random.chance(0.35));
        let range = if self.injector.random.chance(0.85) { self.plan.servers } else { self.process_count() };
        let any = self.injector.random.below(range as u64) as usize;
        let victim = sequencer.unwrap_or(any);
        self.world.resident(victim).is_some_and(|resident| !resident.is_over).then_some(victim)
    }

    fn sequencer(&self) -> Option<usize> {
        let infos = (0..self.plan.servers).filter_map(|place| {
            let server = self.world.resident(place)?.side.server.as_ref()?;
            matches!(server.group.phase(), Phase::Member | Phase::Resetting).then(|| server.group.info())
        });
        let sequencer = infos.max_by_key(|info| (info.epoch, info.expected))?.sequencer;
        (0..self.plan.servers)
            .find(|place| self.world.resident(*place).is_some_and(|resident| resident.uid == sequencer))
    }

    /// True if a majority of the servers keeps the state without this process, or if the plan is reckless.
    fn can_lose(&self, victim: usize) -> bool {
        self.plan.is_reckless
            || victim >= self.plan.servers
            || self.world.frame_faults.is_empty() && self.goes_on_without(victim)
    }

    /// True if a majority of the servers, and one of each view that matters, keeps the state without this one.
    fn goes_on_without(&self, victim: usize) -> bool {
        let keeps = |place: &usize| {
            *place != victim
                && self.world.resident(*place).is_some_and(|resident| {
                    resident.scheduled_crash.is_none()
                        && resident.side.server.as_ref().is_some_and(|server| server.is_copy())
                })
        };
        let copies: Vec<usize> = (0..self.plan.servers).filter(keeps).collect();
        let servers: BTreeSet<usize> = copies.iter().map(|place| self.plan.server_of(*place)).collect();
        let uids: Vec<Uid> =
            copies.iter().filter_map(|place| self.world.resident(*place)).map(|r| r.uid).collect();
        let has_quorum = |view: &[Uid]| 2 * view.iter().filter(|uid| uids.contains(uid)).count() > view.len();
        2 * servers.len() > self.plan.names() && self.views().iter().all(|view| has_quorum(view))
    }

    /// True if a majority of the servers is in the group without this one. A server that was excluded while it was paused does not
    /// know that yet, and cannot come back to a group that orders nothing.
    fn orders_without(&self, victim: usize) -> bool {
        let views = self.views();
        let is_in = |place: &usize| {
            let uid = self.world.resident(*place).map(|resident| resident.uid);
            *place != victim && uid.is_some_and(|uid| views.iter().all(|view| view.contains(&uid)))
        };
        let servers: BTreeSet<usize> =
            (0..self.plan.servers).filter(is_in).map(|place| self.plan.server_of(place)).collect();
        2 * servers.len() > self.plan.names()
    }

    fn can_lose_any(&self) -> bool {
        (0..self.plan.servers).all(|victim| self.can_lose(victim))
    }

    /// Returns all views that matter: the latest of each group, and those that living members hold or have prepared.
    fn views(&self) -> Vec<Vec<Uid>> {
        let mut views: Vec<Vec<Uid>> = self.world.recorder.latest_views.iter().map(<[Uid]>::to_vec).collect();
        for place in 0..self.plan.servers {
            let Some(server) = self.world.resident(place).and_then(|resident| resident.side.server.as_ref())
            else {
                continue;
            };
            if matches!(server.group.phase(), Phase::Member | Phase::Resetting | Phase::Leaving) {
                views.push(server.group.info().members.iter().map(|member| member.uid).collect());
                views.push(server.group.prepared_view().to_vec());
            }
        }
        // A group without a living member is no more.
        let lives = |uid: &Uid| !self.world.recorder.crashed.contains(uid);
        views.retain(|view| view.iter().any(lives));
        views
    }

    fn corrupt(&mut self) {
        let victim = self.app_random.below(self.plan.servers as u64) as usize;
        self.world.corrupt(victim);
    }

    // --- programs that end their copies ---

    fn schedule_end(&mut self) {
        if let Some(every) = self.plan.ends_every {
            let delay = exponential(&mut self.app_random, every);
            self.world.trigger(delay, Trigger::Line(END_ONE));
        }
    }

    fn end_one(&mut self) {
        if self.is_calm {
            return;
        }
        let victim = self.app_random.below(self.plan.servers as u64) as usize;
        // These runs lose their quorum often, and then a leave does not end.
        let leaves = self.app_random.chance(0.5) && !self.plan.on_disk();
        if self.can_lose(victim) {
            self.world.end_server(victim, leaves);
        }
        self.schedule_end();
    }

    // --- the parts of a run ---

    /// Ends all faults. Crashed processes restart.
    fn settle(&mut self) {
        self.is_calm = true;
        (0..self.plan.servers).for_each(|server| self.world.stop_leaving(server));
        (self.world.common.spoils, self.world.common.stumbles) = (0.0, 0.0);
        self.world.common.job_faults = Default::default();
        self.calm_story();
        self.injector.end(&mut self.world);
        self.retire_double();
        for process in 0..self.process_count() {
            self.world.schedule_crash(process, None);
            self.world.resume(process);
            self.world.end_doze(process);
            self.world.end_stall(process);
            if self.world.resident(process).is_none() {
                self.start_later(process);
            }
        }
    }

    /// Ends one of two processes of a name: one without the state, if there is one. Only one of them can be a member.
    fn retire_double(&mut self) {
        if !self.plan.has_double {
            return;
        }
        let is_copy = |process: &usize| {
            let resident = self.world.resident(*process);
            resident
                .and_then(|resident| resident.side.server.as_deref())
                .is_some_and(|server| server.is_copy())
        };
        let pair = [self.plan.servers - 1, 0];
        let retired = pair.into_iter().find(|process| !is_copy(process)).unwrap_or(pair[0]);
        self.retired = Some(retired);
        self.world.crash(retired);
    }

    /// Lets no entries reach a server without which the others can go on; not the sequencer, which would not know of
    /// messages that do not reach it.
    fn begin_stuck(&mut self) {
        let sequencer = self.sequencer();
        let may = |place: &usize| {
            Some(*place) != sequencer && self.goes_on_without(*place) && self.orders_without(*place)
        };
        let places: Vec<usize> = (0..self.plan.servers).filter(may).collect();
        if self.plan.is_one_stuck && !places.is_empty() {
            let victim = self.app_random.pick(&places);
            self.world.frame_faults.set_stuck(victim, true);
            self.world.recorder.trace(
                self.world.now,
                "world",
                format_args!("m{victim} gets no entries for a while"),
            );
        }
    }

    /// Mends the path to a victim that a reset under way made the sequencer after all.
    fn mend_sequencer(&mut self) {
        if let Some(sequencer) = self.sequencer() {
            self.world.frame_faults.set_stuck(sequencer, false);
        }
    }

    /// Returns the members that have the state.
    fn copies(&self) -> Vec<Uid> {
        let servers = (0..self.plan.servers).filter_map(|place| self.world.resident(place));
        let copies =
            servers.filter(|resident| resident.side.server.as_deref().is_some_and(|server| server.is_copy()));
        copies.map(|resident| resident.uid).collect()
    }

    fn demand(&mut self) {
        // A life that has ended votes for nothing, also if it did not crash.
        let servers = (0..self.plan.servers).filter_map(|place| self.world.resident(place));
        let members = servers
            .filter(|resident| resident.side.server.as_deref().is_some_and(|server| server.over.is_none()));
        let members: Vec<Uid> = members.map(|resident| resident.uid).collect();
        let lives = |uid: &Uid| members.contains(uid) && !self.world.recorder.crashed.contains(uid);
        let copies = self.copies();
        let views = self.views();
        let has_quorum = |view: &Vec<Uid>| {
            let living = view.iter().filter(|uid| lives(uid)).count();
            let is_majority =
                2 * living > view.len() || 2 * living == view.len() && view.first().is_some_and(lives);
            // A group whose copies have all crashed waits for an operator.
            is_majority && (living == view.len() || view.iter().any(|uid| copies.contains(uid)))
        };
        let serves = self.plan.on_disk() || !views.is_empty() && views.iter().all(has_quorum);
        self.world.note_world(ReplicaRecord::Calm { serves });
    }
}

/// Numbers of the lines that the director triggers: a copy's memory goes bad, or a program ends its copy. Those of stories
/// are others.
const CORRUPT: u32 = 0;
const END_ONE: u32 = 1;
pub(super) const BACK_UP: u32 = 5;
pub(super) const SWITCH: u32 = 20;
const _: () = assert!(AIMED > END_ONE && SLOW > AIMED);
