//! The fault injector: faults of the network, and pauses of processes, in a world of any kind.
//!
//! The plan determines which faults there are and how often they strike. The director of the run chooses their victims.

use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::frame_faults::{FaultAction, FrameFault};
use crate::network::{Conditions, Reach, cut, exponential};
use crate::plan::{FaultKind, Recurring};
use crate::record::{Life, What};
use crate::world::{Side, Trigger, World};
use unisono_core::Random;
use unisono_core::wire::FrameKind;

/// A fault that lasts for some time.
#[derive(Clone, Debug)]
pub(crate) enum Ongoing {
    Partition,
    /// The cuts alternate with full connectivity.
    Flapping {
        cuts: Vec<(usize, usize)>,
        period: u64,
        turns: u32,
        is_cut: bool,
    },
    HalfDead {
        process: usize,
    },
    Storm {
        before: Conditions,
    },
    Stuck {
        process: usize,
    },
    /// The process is paused `stops` more times, with short intervals between.
    Starving {
        process: usize,
        stops: u32,
    },
}

/// [`Trigger::Fault`] codes from here on are indices of ongoing faults; lower codes are indices of the plan's faults.
const ONGOING: u32 = 1 << 16;

/// The frames at which faults are aimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    /// Weighted frame kinds at which a crash or a pause is tried, each with the most such frames that pass before.
    pub(crate) steps: &'static [(u32, (FrameKind, u64))],
    /// True for frame kinds that may be dropped.
    pub(crate) may_drop: fn(FrameKind) -> bool,
}

/// The faults of one run.
pub(crate) struct FaultInjector {
    /// Random numbers of faults.
    pub(crate) random: Random,
    /// True while faults strike.
    pub(crate) is_on: bool,
    places: usize,
    conditions: Conditions,
    faults: Vec<Recurring>,
    /// Silence in nanoseconds after which processes suspect each other; sets the period of flapping.
    patience: u64,
    targets: Targets,
    /// Faults that last for some time, by index; `None` once ended.
    ongoing: Vec<Option<Ongoing>>,
}

impl FaultInjector {
    pub(crate) fn new(
        random: Random,
        places: usize,
        conditions: Conditions,
        faults: Vec<Recurring>,
        patience: u64,
        targets: Targets,
    ) -> FaultInjector {
        FaultInjector {
            random,
            is_on: false,
            places,
            conditions,
            faults,
            patience,
            targets,
            ongoing: Vec::new(),
        }
    }

    /// Lets faults strike from now on.
    pub(crate) fn begin<S: Side>(&mut self, world: &mut World<S>) {
        self.is_on = true;
        world.network.conditions = self.conditions.clone();
    }

    /// Schedules the first strike of each fault of the plan.
    pub(crate) fn schedule_faults<S: Side>(&mut self, world: &mut World<S>) {
        (0..self.faults.len() as u32).for_each(|code| self.schedule_fault(world, code));
    }

    pub(crate) fn schedule_fault<S: Side>(&mut self, world: &mut World<S>, code: u32) {
        let delay = exponential(&mut self.random, self.faults[code as usize].every);
        world.trigger(delay, Trigger::Fault(code));
    }

    /// Returns the kind of fault that is to strike now. Returns `None` if faults have ended, or if `code` names an
    /// ongoing fault, which this call continues or ends.
    pub(crate) fn due<S: Side>(&mut self, world: &mut World<S>, code: u32) -> Option<FaultKind> {
        if !self.is_on {
            return None;
        }
        match code.checked_sub(ONGOING) {
            Some(index) => {
                self.continue_ongoing(world, index as usize);
                None
            }
            None => Some(self.faults[code as usize].kind),
        }
    }

    /// Lets a fault strike. Kinds that have a victim strike `victim`.
    pub(crate) fn strike<S: Side>(&mut self, world: &mut World<S>, kind: FaultKind, victim: Option<usize>) {
        match kind {
            FaultKind::CrashAtStep => {
                let action =
                    if self.random.chance(0.5) { FaultAction::CrashBefore } else { FaultAction::CrashAfter };
                self.set_step_fault(world, action);
            }
            FaultKind::Pause => {
                if let Some(victim) = victim {
                    let duration = self.pause_length();
                    world.pause(victim, duration);
                }
            }
            FaultKind::Starve => {
                if let Some(victim) = victim {
                    self.note_fault(world, "starvation", true);
                    let stops = self.random.between(3, 40) as u32;
                    self.keep(world, Ongoing::Starving { process: victim, stops }, 0);
                }
            }
            FaultKind::PauseAtStep => {
                let duration = self.pause_length();
                self.set_step_fault(world, FaultAction::Pause(duration));
            }
            FaultKind::Doze => {
                if let Some(victim) = victim {
                    let duration = self.random.millis(10, 5_000);
                    world.doze(victim, duration);
                }
            }
            FaultKind::Stuck => {
                if let Some(victim) = victim {
                    world.frame_faults.set_stuck(victim, true);
                    self.note_fault(world, "stuck", true);
                    let duration = self.random.millis(100, 6_000);
                    self.keep(world, Ongoing::Stuck { process: victim }, duration);
                }
            }
            FaultKind::DropFrames => self.drop_frames(world),
            FaultKind::Partition => self.begin_partition(world, victim),
            FaultKind::Flapping => self.begin_flapping(world, victim),
            FaultKind::Clog => self.clog_links(world),
            FaultKind::HalfDead => self.begin_half_dead(world),
            FaultKind::Replay => {
                for _ in 0..self.random.between(1, 4) {
                    world.network.replay(&mut world.queue, world.now);
                }
            }
            FaultKind::Storm => self.begin_storm(world),
            FaultKind::Flood => {
                let is_varied = self.random.chance(0.5);
                world.network.flood(&mut world.queue, world.now, is_varied);
            }
            // The directors handle these: they depend on the kind of world.
            FaultKind::Crash | FaultKind::FastRestart | FaultKind::NeedlessReset | FaultKind::Duel => {}
        }
    }

    /// Splits the processes into two halves that do not receive each other's datagrams, until [`cut::APART`] is
    /// cleared.
    pub(crate) fn split_places<S: Side>(&mut self, world: &mut World<S>) {
        let side: Vec<bool> = (0..self.places).map(|_| self.random.chance(0.5)).collect();
        for from in 0..self.places {
            for to in (0..self.places).filter(|to| side[*to] != side[from]) {
                world.network.set_cut(from, to, cut::APART, true);
            }
        }
    }

    /// Cuts these links for a random time of 20 to `most_ms` milliseconds.
    pub(crate) fn cut_links<S: Side>(&mut self, world: &mut World<S>, cuts: &[(usize, usize)], most_ms: u64) {
        self.cut(world, cuts, true);
        self.note_fault(world, "partition", true);
        let duration = self.random.millis(20, most_ms);
        self.keep(world, Ongoing::Partition, duration);
    }

    /// Lets `action` strike the next process that sends a frame drawn from the targets.
    fn set_step_fault<S: Side>(&mut self, world: &mut World<S>, action: FaultAction) {
        let (frame, passing) = self.random.weigh(self.targets.steps);
        let skip = self.random.below(passing + 1) as u32;
        world.frame_faults.set(FrameFault { frame, from: None, to: None, skip, times: 1, action });
    }

    fn pause_length(&mut self) -> u64 {
        self.random.millis(1, 4_000)
    }

    // --- the network ---

    fn drop_frames<S: Side>(&mut self, world: &mut World<S>) {
        let kinds: Vec<FrameKind> =
            FrameKind::ALL.iter().copied().filter(|kind| (self.targets.may_drop)(*kind)).collect();
        let frame = self.random.pick(&kinds);
        let places = self.places as u64;
        let from = self.random.chance(0.4).then(|| self.random.below(places) as usize);
        let to = self.random.chance(0.4).then(|| self.random.below(places) as usize);
        let (skip, times) = (self.random.below(4) as u32, self.random.spread(1, 20) as u32);
        world.frame_faults.set(FrameFault { frame, from, to, skip, times, action: FaultAction::Drop });
    }

    fn begin_partition<S: Side>(&mut self, world: &mut World<S>, victim: Option<usize>) {
        let cuts = self.draw_cuts(victim);
        self.cut(world, &cuts, true);
        world.recorder.totals.partitions += 1;
        self.note_fault(world, "partition", true);
        let duration = self.random.millis(50, 6_000);
        self.keep(world, Ongoing::Partition, duration);
    }

    fn begin_flapping<S: Side>(&mut self, world: &mut World<S>, victim: Option<usize>) {
        let cuts = self.draw_cuts(victim);
        self.cut(world, &cuts, true);
        world.recorder.totals.partitions += 1;
        self.note_fault(world, "flapping", true);
        let period = self.patience * self.random.between(1, 4) / 2;
        let turns = self.random.between(2, 10) as u32;
        self.keep(world, Ongoing::Flapping { cuts, period, turns, is_cut: true }, period);
    }

    /// Draws the links that a partition cuts.
    fn draw_cuts(&mut self, victim: Option<usize>) -> Vec<(usize, usize)> {
        let places = self.places;
        let all =
            move || (0..places).flat_map(move |a| (0..places).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let one = victim.unwrap_or(0);
        let side: Vec<bool> = (0..places).map(|_| self.random.chance(0.5)).collect();
        match self.random.below(8) {
            // Two halves: cut in both directions, or in one.
            0 | 1 => all().filter(|(a, b)| side[*a] != side[*b]).collect(),
            2 => all().filter(|(a, b)| side[*a] && !side[*b]).collect(),
            // One process is cut off; or it receives nothing, or what it sends is lost.
            3 | 4 => all().filter(|(a, b)| *a == one || *b == one).collect(),
            5 => {
                let is_deaf = self.random.chance(0.5);
                all().filter(|(a, b)| if is_deaf { *b == one } else { *a == one }).collect()
            }
            // Two halves, and one process that is connected to both.
            6 => all().filter(|(a, b)| *a != one && *b != one && side[*a] != side[*b]).collect(),
            // Each process is connected to a majority, and each to a different one.
            _ => {
                let reach = places / 4 + 1;
                let distance = move |a: usize, b: usize| (a + places - b).min(b + places - a) % places;
                all().filter(|(a, b)| distance(*a, *b) > reach).collect()
            }
        }
    }

    fn cut<S: Side>(&mut self, world: &mut World<S>, cuts: &[(usize, usize)], is_cut: bool) {
        if is_cut && world.recorder.is_traced() {
            world.recorder.trace(world.now, "world", format_args!("cut {cuts:?}"));
        }
        for (from, to) in cuts {
            world.network.set_cut(*from, *to, cut::PARTITION, is_cut);
        }
    }

    fn clog_links<S: Side>(&mut self, world: &mut World<S>) {
        let until = world.now + self.random.millis(10, 5_000);
        let places = self.places as u64;
        for _ in 0..self.random.between(1, places) {
            let (from, to) = (self.random.below(places) as usize, self.random.below(places) as usize);
            world.network.clog(from, to, until);
        }
    }

    fn begin_half_dead<S: Side>(&mut self, world: &mut World<S>) {
        let process = self.random.below(self.places as u64) as usize;
        let reach = match self.random.below(6) {
            0 => Reach { multicast_in: false, ..Reach::FULL },
            1 => Reach { multicast_out: false, ..Reach::FULL },
            2 => Reach { multicast_in: false, multicast_out: false, ..Reach::FULL },
            3 => Reach { unicast_in: false, ..Reach::FULL },
            4 => Reach { unicast_out: false, ..Reach::FULL },
            _ => Reach { unicast_in: false, unicast_out: false, ..Reach::FULL },
        };
        world.network.set_reach(process, reach);
        self.note_fault(world, "half dead", true);
        let duration = self.random.millis(100, 10_000);
        self.keep(world, Ongoing::HalfDead { process }, duration);
    }

    fn begin_storm<S: Side>(&mut self, world: &mut World<S>) {
        if self.ongoing.iter().flatten().any(|ongoing| matches!(ongoing, Ongoing::Storm { .. })) {
            return;
        }
        let before = world.network.conditions.clone();
        world.network.conditions.loss = 0.2 + self.random.part(0.7);
        self.note_fault(world, "storm", true);
        let duration = self.random.millis(50, 3_000);
        self.keep(world, Ongoing::Storm { before }, duration);
    }

    // --- faults under way ---

    fn keep<S: Side>(&mut self, world: &mut World<S>, ongoing: Ongoing, duration: u64) {
        self.ongoing.push(Some(ongoing));
        world.trigger(duration, Trigger::Fault(ONGOING + self.ongoing.len() as u32 - 1));
    }

    fn continue_ongoing<S: Side>(&mut self, world: &mut World<S>, index: usize) {
        match self.ongoing[index].take() {
            Some(Ongoing::Partition) => {
                world.network.clear_cuts(cut::PARTITION);
                self.note_fault(world, "partition", false);
            }
            Some(Ongoing::Flapping { cuts, period, turns, is_cut }) => {
                self.cut(world, &cuts, !is_cut);
                if turns > 0 || !is_cut {
                    let (turns, is_cut) = (turns.saturating_sub(1), !is_cut);
                    self.ongoing[index] = Some(Ongoing::Flapping { cuts, period, turns, is_cut });
                    world.trigger(period, Trigger::Fault(ONGOING + index as u32));
                } else {
                    self.note_fault(world, "flapping", false);
                }
            }
            Some(Ongoing::Starving { process, stops: 0 }) => {
                world.resume(process);
                self.note_fault(world, "starvation", false);
            }
            Some(Ongoing::Starving { process, stops }) => {
                let (stop, awake) = (self.random.spread(13 * MILLISECOND, SECOND), self.random.millis(1, 10));
                world.pause(process, stop);
                self.ongoing[index] = Some(Ongoing::Starving { process, stops: stops - 1 });
                world.trigger(stop + awake, Trigger::Fault(ONGOING + index as u32));
            }
            Some(Ongoing::HalfDead { process }) => {
                world.network.set_reach(process, Reach::FULL);
                self.note_fault(world, "half dead", false);
            }
            Some(Ongoing::Stuck { process }) => {
                world.frame_faults.set_stuck(process, false);
                self.note_fault(world, "stuck", false);
            }
            Some(Ongoing::Storm { before }) => {
                world.network.conditions = before;
                self.note_fault(world, "storm", false);
            }
            None => {}
        }
    }

    /// Ends all faults and restores an undisturbed network.
    pub(crate) fn end<S: Side>(&mut self, world: &mut World<S>) {
        self.is_on = false;
        for index in 0..self.ongoing.len() {
            if let Some(ongoing) = self.ongoing[index].take() {
                let fault = match ongoing {
                    Ongoing::Partition => "partition",
                    Ongoing::Flapping { .. } => "flapping",
                    Ongoing::HalfDead { .. } => "half dead",
                    Ongoing::Storm { .. } => "storm",
                    Ongoing::Stuck { .. } => "stuck",
                    Ongoing::Starving { .. } => "starvation",
                };
                self.note_fault(world, fault, false);
            }
        }
        self.clear_faults(world);
    }

    fn note_fault<S: Side>(&mut self, world: &mut World<S>, fault: &'static str, begins: bool) {
        let what = if begins { What::FaultBegin { fault } } else { What::FaultEnd { fault } };
        world.recorder.note(world.now, 0, Life::WORLD, what);
    }

    /// Removes all cuts, clogs, frame faults and scheduled crashes, gives each process the full reach that its limit
    /// allows, and stops loss, duplication and damage in the network.
    pub(crate) fn clear_faults<S: Side>(&self, world: &mut World<S>) {
        world.frame_faults.clear();
        world.network.clear_cuts(cut::PARTITION);
        for process in 0..self.places {
            world.network.set_reach(process, Reach::FULL);
            world.schedule_crash(process, None);
            (0..self.places).for_each(|to| world.network.unclog(process, to));
        }
        let (delay_min, delay_mean) = (self.conditions.delay_min, self.conditions.delay_mean);
        world.network.conditions = Conditions {
            delay_min: delay_min.min(MILLISECOND / 2),
            delay_mean: delay_mean.min(MILLISECOND / 2),
            echo: self.conditions.echo,
            ..Conditions::quiet()
        };
    }
}
