//! Runs of a [`History`]: three servers with disks create a service, a client gives it three commands one after the other,
//! and the steps of the history happen at the effects that they name. When they are over, some servers come back, then
//! all, and each time callers ask for what the service has.
//!
//! Nothing is drawn that matters: datagrams take about as long as each other, and each job of a disk takes its time.

use super::abstraction::{DiskMoment, Mask, MemoryMoment, Moment, ServerMoment};
use super::director::{Director, Run};
use super::history::{Event, History, Point, SERVERS, Step};
use super::plan::{DiskPlan, Plan, fixed};
use super::states::Op;
use crate::bugs::Planted;
use crate::director::Finding;
use crate::directory;
use crate::draw::{MILLISECOND, SECOND};
use crate::network::{Conditions, cut};
use crate::plan::Parts;
use crate::record::{Mode, ReplicaRecord};
use crate::world::{AIMED, DiskInUse, Effect, EffectKind, JobKind, Question, Trigger};
use std::io::Write;
use std::time::Duration;
use unisono_core::replica::disk::{Created, DiskDurability};
use unisono_core::rpc::CallSettings;
use unisono_core::{Name, Phase, Random, Settings};

/// The process of the client.
const CLIENT: usize = SERVERS;
/// Time that a job of a disk takes, and one of a slow disk.
const JOB_TAKES: Duration = Duration::from_millis(1);
const SLOW_JOB_TAKES: Duration = Duration::from_millis(1_500);
/// Time without an effect after which nothing happens any more: longer than a crash needs to be noticed and mended.
const QUIET_AFTER: u64 = 500 * MILLISECOND;
/// Pause before a command is given again that did not happen.
const AGAIN_AFTER: u64 = 100 * MILLISECOND;
/// Marks a disk that has a part in a service.
const CREATED: u8 = 2;
/// Time that callers give the service.
const CALLER_WAITS: Duration = Duration::from_millis(2_500);
/// Time in which the servers that may go on serve.
const SERVES_WITHIN: u64 = 5 * SECOND;
/// Time after which servers that wait for others are taken to wait for ever.
const WAITS_FOR: u64 = 2 * SECOND;
/// Time in which servers apply what they hold once no marks are withheld any more.
const APPLIES_WITHIN: u64 = SECOND;
/// Time in which every history ends.
const ENDS_WITHIN: u64 = 90 * SECOND;
/// Lines: a command is due, and nothing happens any more. The number of the latest effect is added to the second.
const COMMAND: u32 = 4;
const QUIET: u32 = 1 << 20;

/// A point of a run after its last step.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Point,
    /// The server that did something, if it was one.
    pub(crate) server: Option<u8>,
    /// True if that server is about to say a mark.
    pub(crate) says_mark: bool,
    pub(crate) moment: Moment,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Steps happen.
    Steps,
    /// No marks are withheld any more, since this time, and no server comes or goes: all must apply what they hold.
    Marks(u64),
    /// The servers that come back first are present, since this time.
    Few(u64),
    /// All servers are present.
    All(u64),
    Over,
}

/// A run of a history. See the module.
pub(super) struct Script {
    history: History,
    part: Part,
    /// The next step, and the effects since the one before.
    next: usize,
    effects: u32,
    /// Effects of the whole run.
    counted: u32,
    up: Vec<usize>,
    disks: [DiskMoment; SERVERS],
    /// Servers whose disks do not have what they had.
    spoiled: Vec<usize>,
    /// The servers whose marks do not reach each one.
    lacks_marks: [Mask; SERVERS],
    /// True once the service served, and commands are given.
    has_begun: bool,
    /// Commands of the script that were given, and the operations under way.
    commands: u64,
    under_way: Vec<u32>,
    /// True once the callers of this part have asked.
    has_asked: bool,
    seen: Vec<Seen>,
}

impl Script {
    pub(super) fn may_run(&self, process: usize) -> bool {
        self.up.contains(&process)
    }

    pub(super) fn is_over(&self) -> bool {
        self.part == Part::Over
    }
}

/// Runs a history. Returns the finding, and the moments after its last step, in which another one may follow.
pub(crate) fn play(
    history: &History,
    planted: Option<Planted>,
    trace: Option<Box<dyn Write>>,
) -> (Finding, Vec<Seen>) {
    let script = Script {
        history: history.clone(),
        part: Part::Steps,
        next: 0,
        effects: 0,
        counted: 0,
        up: (0..SERVERS).collect(),
        disks: Default::default(),
        spoiled: Vec::new(),
        lacks_marks: Default::default(),
        has_begun: false,
        commands: 0,
        under_way: Vec::new(),
        has_asked: false,
        seen: Vec::new(),
    };
    let mut plan = plan(history.durability);
    plan.directory = history.foo;
    let run = Run { plan, seed: 1, what: format!("history {history}") };
    let mut director = Director::of(run, planted, trace);
    director.script = Some(script);
    // The script alone says who asks for what.
    director.is_busy = false;
    director.world.common.effects = Some(Default::default());
    director.run_through();
    let seen = director.script.take().map_or_else(Vec::new, |script| script.seen);
    (Finding::of(&director.world), seen)
}

/// Three servers, one client, and no faults.
pub(super) fn plan(durability: DiskDurability) -> Plan {
    let random = &mut Random::from_u64(1);
    let mut plan = Plan::quiet(random);
    plan.servers = SERVERS;
    plan.clients = 1;
    plan.keep_on_disk(DiskPlan { durability, faults: Default::default(), ballast: 0, story: None });
    plan.settings = Settings {
        silence: Duration::from_millis(60),
        patience: Duration::from_millis(60),
        locate: Duration::from_millis(100),
        ..Default::default()
    };
    plan.calls = CallSettings {
        silence: Duration::from_millis(300),
        locate: Duration::from_millis(300),
        ..Default::default()
    };
    plan.config.history_messages = 1024;
    plan.config.window = 64;
    plan.within = fixed(Duration::from_millis(500));
    (plan.multicast, plan.drift) = (true, false);
    plan.restart_max = 2 * MILLISECOND;
    plan.fetch_limit = Duration::from_millis(500);
    plan.conditions = Conditions::quiet();
    let never = 10 * ENDS_WITHIN;
    plan.parts = Parts { chaos: never, settling: never, healed: never, quiet: never, end: ENDS_WITHIN };
    plan
}

impl Director {
    /// Follows a line of the script.
    pub(super) fn follow_script(&mut self, line: u32) {
        match line {
            AIMED => {
                let effect = self.world.common.effects.as_mut().and_then(|effects| effects.pop_front());
                effect.into_iter().for_each(|effect| self.take_effect(effect));
            }
            COMMAND => self.give_command(),
            line if self.script.as_ref().is_some_and(|script| line == QUIET + script.counted) => {
                self.take_quiet();
            }
            _ => {}
        }
    }

    fn await_quiet(&mut self) {
        let Some(script) = &mut self.script else { return };
        script.counted += 1;
        let line = QUIET + script.counted;
        self.world.trigger(QUIET_AFTER, Trigger::Line(line));
    }

    fn take_effect(&mut self, effect: Effect) {
        self.look_at_disks();
        self.await_quiet();
        let Some(script) = &mut self.script else { return };
        if effect.what == EffectKind::Serves && !script.has_begun {
            script.has_begun = true;
            self.world.trigger(MILLISECOND, Trigger::Line(COMMAND));
            self.set_speeds();
        }
        let Some(script) = self.script.as_mut().filter(|script| script.part == Part::Steps) else { return };
        script.effects += 1;
        self.take_steps(Some(effect));
    }

    /// Lets the steps happen whose point has come. `effect` is `None` if nothing happens any more.
    fn take_steps(&mut self, effect: Option<Effect>) {
        let mut is_same = false;
        while let Some(script) = &mut self.script
            && let Some(step) = script.history.steps.get(script.next).copied()
        {
            let is_reached = match step.at {
                Point::After(0) => is_same,
                Point::After(effects) => effect.is_some() && script.effects == effects,
                Point::Quiet => effect.is_none() && !is_same,
                Point::Next(awaited) => effect == Some(awaited) && !is_same,
            };
            if !is_reached {
                return;
            }
            (script.next, script.effects, is_same) = (script.next + 1, 0, true);
            self.perform(step);
        }
        let at = match (is_same, effect) {
            (true, _) => Point::After(0),
            (false, Some(_)) => Point::After(self.script.as_ref().map_or(0, |script| script.effects)),
            (false, None) => Point::Quiet,
        };
        let moment = self.moment();
        let server = effect.filter(|_| !is_same).map(|effect| effect.server);
        let says_mark = |effect: &Effect| {
            matches!(effect.what, EffectKind::Done(JobKind::Append | JobKind::Adopt))
                && self.plan.disks.as_ref().is_some_and(|disks| disks.durability == DiskDurability::Majority)
        };
        let says_mark = effect.as_ref().is_some_and(says_mark);
        self.script
            .iter_mut()
            .for_each(|script| script.seen.push(Seen { at, server, says_mark, moment: moment.clone() }));
    }

    fn perform(&mut self, Step { event, at }: Step) {
        self.world.note_trace(CLIENT, &format!("step {}", Step { event, at }));
        let process = |id: u8| usize::from(id) - 1;
        match event {
            Event::Wait => {}
            Event::Crash(id) => self.crash_server(process(id)),
            Event::Power => (0..SERVERS).for_each(|process| self.crash_server(process)),
            Event::Return(id) => self.let_come(process(id)),
            Event::Cut(id) => {
                for other in (0..SERVERS).filter(|other| *other != process(id)) {
                    self.world.network.set_cut(process(id), other, cut::PARTITION, true);
                    self.world.network.set_cut(other, process(id), cut::PARTITION, true);
                }
            }
            Event::Heal => self.world.network.clear_cuts(cut::PARTITION),
            Event::Image(id) => self.places[process(id)].keep_image(),
            Event::PutBack(id) => {
                self.places[process(id)].put_image_back();
                self.note_spoiled(process(id));
            }
            Event::Flip(id) => {
                self.places[process(id)].flip_log();
                self.note_spoiled(process(id));
            }
            Event::Withhold(from, to) => {
                self.world.frame_faults.withhold_notes(process(from), process(to));
                let script = self.script.iter_mut();
                script.for_each(|script| script.lacks_marks[process(to)] |= 1 << process(from));
            }
        }
    }

    fn note_spoiled(&mut self, process: usize) {
        self.world.note_lost(process as u8 + 1);
        self.script.iter_mut().for_each(|script| script.spoiled.push(process));
    }

    fn crash_server(&mut self, process: usize) {
        self.world.crash(process);
        self.script.iter_mut().for_each(|script| script.up.retain(|up| *up != process));
    }

    fn let_come(&mut self, process: usize) {
        let Some(script) = &mut self.script else { return };
        if !script.up.contains(&process) {
            script.up.push(process);
            let entry = self.entry();
            self.begin_server(process, entry, None);
        }
    }

    /// Sets how long jobs of disks take. Slow disks are slow while commands are given and steps happen.
    pub(super) fn set_speed(&mut self, process: usize) {
        let Some(script) = &self.script else { return };
        let is_slow = script.part == Part::Steps
            && script.has_begun
            && script.history.slow.contains(&(process as u8 + 1));
        self.world.set_steady(process, if is_slow { SLOW_JOB_TAKES } else { JOB_TAKES });
    }

    fn set_speeds(&mut self) {
        (0..SERVERS).for_each(|process| self.set_speed(process));
    }

    // --- callers ---

    fn give_command(&mut self) {
        let Some(script) = &self.script else { return };
        let is_due = script.part == Part::Steps
            && script.under_way.is_empty()
            && script.commands < script.history.commands;
        if is_due {
            let word = script.commands;
            self.ask_in_script(Op::Append(word), Mode::Command);
            self.script.iter_mut().for_each(|script| script.commands += 1);
        }
    }

    fn ask_in_script(&mut self, op: Op, mode: Mode) {
        let question = match self.plan.directory {
            true => Question::of_directory(&directory::foo(&self.book, op, mode)),
            false => Question::of_object(op, mode, 0),
        };
        let id = self.world.call_service(CLIENT, &question, CALLER_WAITS);
        self.script.iter_mut().for_each(|script| script.under_way.extend(id.map(|id| id.0)));
    }

    /// Notes that an operation has ended.
    pub(super) fn end_in_script(&mut self, id: u32) {
        let did_not_happen = self.world.did_not_happen(id);
        let Some(script) = &mut self.script else { return };
        script.under_way.retain(|under_way| *under_way != id);
        if script.part == Part::Steps {
            script.commands -= u64::from(did_not_happen);
            let pause = if did_not_happen { AGAIN_AFTER } else { 0 };
            self.world.trigger(pause, Trigger::Line(COMMAND));
        }
    }

    // --- the end ---

    /// Nothing has happened for a while.
    fn take_quiet(&mut self) {
        self.look_at_disks();
        self.await_quiet();
        let works = |process| self.disk_in_use(process).is_some_and(|disk| disk.due_at().is_some());
        if (0..SERVERS).any(works) {
            return;
        }
        let now = self.world.now;
        match self.script.as_ref().map(|script| script.part) {
            Some(Part::Steps) => {
                let next = |director: &Director| director.script.as_ref().map_or(0, |script| script.next);
                let before = next(self);
                self.take_steps(None);
                if next(self) == before {
                    self.end_steps();
                }
            }
            Some(Part::Marks(since)) => {
                let lags = (0..SERVERS).find(|process| {
                    self.memory(*process).is_some_and(|memory| memory.serves && memory.unapplied > 0)
                });
                match lags {
                    None => self.begin_end(),
                    Some(_) if now < since + APPLIES_WITHIN => {}
                    Some(process) => {
                        let what = format!("m{process} does not apply what it holds");
                        self.world.report_violation("goes_on", what);
                    }
                }
            }
            Some(Part::Few(since)) => {
                let must = self.must_go_on();
                let patience = if must { SERVES_WITHIN } else { WAITS_FOR };
                if self.demand_answers(since + patience, must) {
                    (0..SERVERS).for_each(|process| self.let_come(process));
                    self.begin_part(Part::All(now));
                }
            }
            Some(Part::All(since)) => {
                if self.demand_answers(since + SERVES_WITHIN, true) {
                    self.begin_part(Part::Over);
                }
            }
            Some(Part::Over) | None => {}
        }
    }

    /// True if the servers that are up have to go on without the others: they are a majority, with that durability, and
    /// the service has been created.
    fn must_go_on(&self) -> bool {
        let Some(script) = &self.script else { return false };
        let is_good = |process: &&usize| !script.spoiled.contains(process);
        let good = || script.up.iter().filter(is_good);
        let is_created = good().any(|process| script.disks[*process].created == CREATED);
        is_created && 2 * good().count() > SERVERS && script.history.durability == DiskDurability::Majority
    }

    fn begin_part(&mut self, part: Part) {
        self.script.iter_mut().for_each(|script| (script.part, script.has_asked) = (part, false));
    }

    fn end_steps(&mut self) {
        let Some(script) = &self.script else { return };
        if script.next < script.history.steps.len() {
            let step = script.history.steps[script.next];
            return self.world.report_violation("histories_are_valid", format!("{step} never comes"));
        }
        let last: Vec<usize> = script.history.last.iter().map(|id| usize::from(*id) - 1).collect();
        let stay = if last.is_empty() { (0..SERVERS).collect() } else { last };
        let is_same = stay.len() == script.up.len() && stay.iter().all(|process| script.up.contains(process));
        let is_withheld = script.lacks_marks != [0; SERVERS];
        self.world.network.clear_cuts(cut::PARTITION);
        self.world.frame_faults.end_withholding();
        match is_same && is_withheld {
            true => {
                self.begin_part(Part::Marks(self.world.now));
                self.set_speeds();
            }
            false => self.begin_end(),
        }
    }

    /// Lets the servers come back that come first.
    fn begin_end(&mut self) {
        let Some(script) = &self.script else { return };
        let last: Vec<usize> = script.history.last.iter().map(|id| usize::from(*id) - 1).collect();
        let now = self.world.now;
        match last.is_empty() {
            true => {
                (0..SERVERS).for_each(|process| self.let_come(process));
                self.begin_part(Part::All(now));
            }
            false => {
                (0..SERVERS)
                    .filter(|process| !last.contains(process))
                    .for_each(|process| self.crash_server(process));
                last.into_iter().for_each(|process| self.let_come(process));
                self.begin_part(Part::Few(now));
            }
        }
        self.set_speeds();
    }

    /// Lets callers ask for everything as soon as the servers that are present serve. They must get answers by this time if
    /// `must`. Returns true when it is over: they have their answers, or the servers wait for others.
    fn demand_answers(&mut self, by: u64, must: bool) -> bool {
        let Some(script) = &self.script else { return true };
        if script.has_asked {
            return script.under_way.is_empty();
        }
        let serves = |process: &usize| {
            self.world
                .resident(*process)
                .and_then(|resident| resident.side.server.as_deref())
                .is_some_and(|server| server.is_copy())
        };
        let serving = script.up.iter().filter(|process| serves(process)).count();
        let is_late = self.world.now >= by;
        if serving < script.up.len() && !is_late {
            return false;
        }
        if serving == 0 && !must {
            return true;
        }
        if must {
            self.world.note_world(ReplicaRecord::Calm { serves: true });
        }
        // A caller that has looked for the service for long looks rarely.
        self.script.iter_mut().for_each(|script| script.under_way.clear());
        self.begin_client(CLIENT);
        self.ask_in_script(Op::GetAll, Mode::Read);
        self.ask_in_script(Op::Append(100), Mode::Command);
        self.ask_in_script(Op::GetAll, Mode::Command);
        self.script.iter_mut().for_each(|script| script.has_asked = true);
        false
    }

    // --- moments ---

    fn disk_in_use(&self, process: usize) -> Option<&DiskInUse> {
        self.world.resident(process)?.side.server.as_deref()?.disk.as_ref()
    }

    /// Remembers what the disks have that are in use.
    fn look_at_disks(&mut self) {
        for process in 0..SERVERS {
            let Some(disk) = self.disk_in_use(process) else { continue };
            let (Some(block), end) = disk.content() else { continue };
            let created = match block.created {
                Created::Blank => 0,
                Created::Half(_) => 1,
                Created::Done(_) => CREATED,
            };
            let view = block.view.as_ref().map(|(number, ids)| (*number, mask(ids.iter().copied())));
            let (generation, promised) = (block.generation, block.promised);
            let found = DiskMoment { created, generation, promised, view, end };
            self.script.iter_mut().for_each(|script| script.disks[process] = found);
        }
    }

    fn moment(&self) -> Moment {
        let Some(script) = &self.script else { return Moment::default() };
        let mut moment =
            Moment { commands: (script.commands, !script.under_way.is_empty()), ..Moment::default() };
        for (process, server) in moment.servers.iter_mut().enumerate() {
            *server = ServerMoment {
                is_up: script.up.contains(&process),
                is_slow: script.history.slow.contains(&(process as u8 + 1)),
                disk: script.disks[process],
                untold: self.disk_in_use(process).and_then(DiskInUse::untold),
                memory: self.memory(process),
                lacks_marks: script.lacks_marks[process],
            };
        }
        moment
    }

    fn memory(&self, process: usize) -> Option<MemoryMoment> {
        let server = self.world.resident(process)?.side.server.as_deref()?;
        let info = server.group.info();
        let id = |name: &Name| name.as_str().parse::<u8>().ok();
        let is_member = matches!(info.phase, Phase::Member | Phase::Resetting);
        let view = mask(info.members.iter().filter(|_| is_member).filter_map(|member| id(&member.name)));
        Some(MemoryMoment {
            serves: server.is_copy(),
            is_member,
            is_sequencer: is_member && info.sequencer == info.me,
            view,
            generation: server.replica.generation(),
            held: server.replica.held(),
            unapplied: server.replica.unapplied(),
        })
    }
}

fn mask(ids: impl Iterator<Item = u8>) -> Mask {
    ids.filter(|id| (1..=SERVERS as u8).contains(id)).fold(0, |mask, id| mask | 1 << (id - 1))
}
