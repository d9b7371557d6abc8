//! Runs one plan of calls: servers serve and clients call while faults strike. Then all faults end, and the director
//! demands that calls succeed.

use super::plan::Plan;
use crate::bugs::Planted;
use crate::director::Finding;
use crate::draw::{Draw, MILLISECOND};
use crate::injector::{FaultInjector, Targets};
use crate::network::{Network, exponential};
use crate::plan::{FaultKind, Part, Profile, name};
use crate::process::ScheduledCrash;
use crate::properties::{self, Checkers};
use crate::record::{Life, What};
use crate::recorder::Recorder;
use crate::world::{Birth, CallBirth, CallCommon, CallService, CallSide, Job, Trigger, World};
use std::io::Write;
use unisono_core::Random;
use unisono_core::rpc::{CallNumber, PrivatePort};
use unisono_core::wire::FrameKind;

/// The frames at which faults of calls are aimed.
const TARGETS: Targets = Targets {
    steps: &[
        (4, (FrameKind::Request, 30)),
        (4, (FrameKind::Reply, 30)),
        (2, (FrameKind::PortHere, 6)),
        (1, (FrameKind::LocatePort, 6)),
        (3, (FrameKind::Reject, 6)),
        (3, (FrameKind::Forward, 6)),
        (2, (FrameKind::Working, 10)),
        (2, (FrameKind::Part, 30)),
        (2, (FrameKind::Got, 10)),
        (1, (FrameKind::Done, 10)),
        (1, (FrameKind::Cancel, 3)),
    ],
    may_drop: FrameKind::is_of_calls,
};

/// Duration in nanoseconds for which applications take no requests at the beginning of the healed part: short compared
/// with the deadlines of clients.
const DOZE: u64 = 500 * MILLISECOND;
const QUEUE_FOR_DOZE: u16 = 64;

/// A run of one plan.
pub(crate) struct Director {
    pub(super) world: World<CallSide>,
    pub(super) plan: Plan,
    /// Random numbers of applications; faults have their own generator.
    pub(super) app_random: Random,
    pub(super) injector: FaultInjector,
    /// Requests that applications received and have not answered.
    pub(super) unanswered: Vec<(usize, Life, Job)>,
    /// Calls that are to be cancelled.
    pub(super) to_cancel: Vec<CallNumber>,
    /// True while clients make calls.
    pub(super) is_busy: bool,
    /// True once applications do nothing any more that keeps calls from being answered.
    pub(super) is_calm: bool,
    planted: Option<Planted>,
}

impl Director {
    pub(crate) fn new(
        seed: u64,
        profile: Profile,
        planted: Option<Planted>,
        trace: Option<Box<dyn Write>>,
    ) -> Director {
        let plan = Plan::draw(seed, profile as u64);
        let random = &mut Random::from_u64(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut fork = || Random::from_u64(random.next_u64());
        // No life ever begins at the last address: it is the stray one.
        let size = plan.places + 1;
        let mut network = Network::new(size, plan.conditions.clone(), fork());
        network.forge_from(plan.places);
        let mut recorder = Recorder::new(Checkers::new(properties::calls()), trace);
        recorder.trace(0, "world", format_args!("seed {seed}, profile {profile}: {plan:#?}"));
        let mut ports = fork();
        let mut service = |options| {
            let private = u128::from(ports.next_u64()) << 64 | u128::from(ports.next_u64());
            CallService::new(PrivatePort(private), options)
        };
        let common = CallCommon {
            services: plan.services.iter().map(|options| service(*options)).collect(),
            stray: Some(Network::address(plan.places)),
            multicast: plan.multicast,
            responses: Default::default(),
        };
        let (conditions, faults) = (plan.conditions.clone(), plan.faults.clone());
        Director {
            world: World::new(size, common, network, recorder, fork()),
            app_random: fork(),
            injector: FaultInjector::new(fork(), plan.places, conditions, faults, plan.patience(), TARGETS),
            unanswered: Vec::new(),
            to_cancel: Vec::new(),
            is_busy: true,
            is_calm: false,
            planted,
            plan,
        }
    }

    /// Runs to the end, or until a violation is reported.
    pub(crate) fn run(mut self) -> Finding {
        self.begin();
        while let Some(trigger) = self.world.advance(self.plan.parts.end) {
            self.handle(trigger);
        }
        self.world.finish_calls();
        Finding::of(&self.world)
    }

    fn begin(&mut self) {
        for (part, at) in self.plan.parts.beginnings() {
            self.world.trigger(at, Trigger::Part(part));
        }
        // No fault disturbs the beginning.
        self.injector.clear_faults(&mut self.world);
        (0..self.plan.places).for_each(|process| self.give_life(process));
    }

    fn handle(&mut self, trigger: Trigger) {
        match trigger {
            Trigger::Act { process, life } => self.act(process as usize, life),
            Trigger::Work { process, life, job } => self.work(process as usize, life, job),
            Trigger::Cancel { process, life, index } => self.cancel(process as usize, life, index as usize),
            Trigger::Withdraw { process, life } => self.withdraw(process as usize, life),
            Trigger::Start { process } => self.start(process as usize),
            Trigger::Fault(code) => self.fault(code),
            Trigger::Part(part) => match part {
                Part::Chaos => {
                    self.injector.begin(&mut self.world);
                    self.injector.schedule_faults(&mut self.world);
                }
                Part::Settling => self.settle(),
                Part::Healed => self.demand_success(),
                Part::Quiet => self.is_busy = false,
            },
            Trigger::Notice { .. }
            | Trigger::ResetAgain { .. }
            | Trigger::EpochBegun
            | Trigger::Outside(_)
            | Trigger::Line(_) => {}
        }
    }

    // --- lives ---

    fn start(&mut self, process: usize) {
        if self.world.resident(process).is_some() {
            return;
        }
        if self.app_random.chance(self.plan.server_behaviour.moves) && self.plan.impostor != Some(process) {
            self.move_roles(process);
        }
        self.give_life(process);
    }

    fn give_life(&mut self, process: usize) {
        let birth = Birth {
            name: name(process, false),
            side: CallBirth {
                settings: self.plan.settings.clone(),
                workers: self.plan.workers,
                forges: self.plan.impostor == Some(process),
            },
            gain: if self.plan.drift { self.app_random.between(0, 20_972) as i64 - 10_486 } else { 0 },
            clock: None,
            events_first: self.app_random.chance(0.5),
            planted: self.planted,
        };
        match self.world.start(process, birth) {
            Err(error) => self.world.report_violation("plans_are_valid", error.to_string()),
            Ok(life) => {
                for service in self.plan.roles[process].clone() {
                    self.serve(process, service);
                }
                self.schedule_act(process, life);
                self.schedule_withdrawal(process, life);
            }
        }
    }

    /// Lets a process serve a service. Of a service with two instances it may serve the other one now.
    fn serve(&mut self, process: usize, service: u16) {
        let instances = &mut self.plan.instances[usize::from(service)];
        let has_two = instances.iter().any(|instance| *instance != instances[0]);
        if has_two && self.plan.founds_anew > 0.0 && self.app_random.chance(self.plan.founds_anew) {
            instances[process] = 3 - instances[process];
        }
        let instance = instances[process];
        self.world.serve(process, service, instance);
    }

    /// Moves the services of one process to a random other one.
    fn move_roles(&mut self, from: usize) {
        let to = self.app_random.below(self.plan.places as u64) as usize;
        if to == from || self.plan.impostor == Some(to) {
            return;
        }
        for service in std::mem::take(&mut self.plan.roles[from]) {
            if !self.plan.roles[to].contains(&service) {
                self.plan.roles[to].push(service);
                self.serve(to, service);
            }
        }
    }

    fn start_later(&mut self, process: usize) {
        let delay = self.app_random.spread(MILLISECOND / 4, self.plan.server_behaviour.restart_max);
        self.world.trigger(delay, Trigger::Start { process: process as u16 });
    }

    pub(super) fn is_current(&self, process: usize, life: Life) -> bool {
        self.world.resident(process).is_some_and(|resident| resident.life == life)
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
                let Some(victim) = self.victim() else { return };
                if self.injector.random.chance(0.5) {
                    self.world.crash(victim);
                    self.start_later(victim);
                } else {
                    let scheduled_crash = ScheduledCrash::draw(&mut self.injector.random);
                    self.world.schedule_crash(victim, Some(scheduled_crash));
                }
            }
            FaultKind::FastRestart => {
                if let Some(victim) = self.victim() {
                    self.world.crash(victim);
                    self.give_life(victim);
                }
            }
            kind => {
                let victim = if kind.has_victim() { self.victim() } else { None };
                self.injector.strike(&mut self.world, kind, victim);
            }
        }
        // Restarts processes that crashed at a step or by a scheduled crash.
        for process in 0..self.plan.places {
            if self.world.resident(process).is_none() {
                self.start_later(process);
            }
        }
    }

    /// Returns a living process: a server with a probability of at least one half.
    fn victim(&mut self) -> Option<usize> {
        let servers: Vec<usize> =
            (0..self.plan.places).filter(|place| !self.plan.roles[*place].is_empty()).collect();
        let victim = if self.injector.random.chance(0.5) && !servers.is_empty() {
            self.injector.random.pick(&servers)
        } else {
            self.injector.random.below(self.plan.places as u64) as usize
        };
        self.world.resident(victim).is_some().then_some(victim)
    }

    // --- the parts of a run ---

    /// Ends all faults. Crashed processes restart, and all services are served again.
    fn settle(&mut self) {
        self.is_calm = true;
        self.injector.end(&mut self.world);
        for process in 0..self.plan.places {
            self.world.resume(process);
            self.world.end_doze(process);
            if self.world.resident(process).is_none() {
                self.give_life(process);
            }
            for service in self.plan.roles[process].clone() {
                self.serve(process, service);
            }
        }
    }

    fn demand_success(&mut self) {
        self.refuse_unanswered();
        let core = (0..self.plan.places)
            .filter(|place| self.plan.impostor != Some(*place))
            .filter_map(|place| self.world.resident(place))
            .map(|resident| resident.life)
            .collect();
        self.world.recorder.note(self.world.now, 0, Life::WORLD, What::Healed { core });
        // If all queues are large enough, some applications pause and their queues fill: so the checkers see what
        // happens to calls that are cancelled while they wait.
        let has_room = self.plan.services.iter().all(|options| options.queue_max >= QUEUE_FOR_DOZE);
        for process in 0..self.plan.places {
            if has_room && self.app_random.chance(0.7) {
                self.world.doze(process, DOZE);
            }
        }
    }

    // --- withdrawals ---

    fn schedule_withdrawal(&mut self, process: usize, life: Life) {
        if let Some(every) = self.plan.server_behaviour.withdraws_every {
            let pause = exponential(&mut self.app_random, every);
            self.world.trigger(pause, Trigger::Withdraw { process: process as u16, life });
        }
    }

    /// Withdraws or serves again each service of a process, at random.
    fn withdraw(&mut self, process: usize, life: Life) {
        if !self.is_current(process, life) || self.is_calm {
            return;
        }
        for service in self.plan.roles[process].clone() {
            if self.app_random.chance(0.5) {
                self.world.withdraw(process, service);
            } else {
                self.serve(process, service);
            }
        }
        self.schedule_withdrawal(process, life);
    }
}
