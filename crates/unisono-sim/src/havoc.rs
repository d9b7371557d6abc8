//! Faults that strike whoever lives in a world: those of the network, and those of a process's time.
//!
//! Which of them there are, and how often, a plan says; whom they strike, whoever directs the run.

use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::{Reach, Weather, cut, exponential};
use crate::plan::{FaultKind, Recurring};
use crate::record::{Life, What};
use crate::trap::{FaultAction, Trap};
use crate::world::{Side, Trigger, World};
use unisono_core::Random;
use unisono_core::wire::FrameKind;

/// A fault with an end.
#[derive(Clone, Debug)]
pub(crate) enum Ongoing {
    Partition,
    /// The cuts come and go.
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
        before: Weather,
    },
    /// It will stand still so many times more.
    Starving {
        process: usize,
        stops: u32,
    },
}

/// From here on the codes of triggers name faults under way; below, faults of the plan.
const ONGOING: u32 = 1 << 16;

/// Where it is worth striking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    /// The steps at which a crash or a pause is worth trying, and how many of these frames may pass before.
    pub(crate) steps: &'static [(u32, (FrameKind, u64))],
    /// Whether frames of a kind may get lost.
    pub(crate) may_drop: fn(FrameKind) -> bool,
}

/// The faults of one run.
pub(crate) struct Havoc {
    /// What faults draw from.
    pub(crate) fates: Random,
    /// Faults strike.
    pub(crate) is_on: bool,
    places: usize,
    weather: Weather,
    faults: Vec<Recurring>,
    /// Nanoseconds of silence after which those who live here do something about each other.
    patience: u64,
    targets: Targets,
    /// Faults under way that have an end.
    ongoing: Vec<Option<Ongoing>>,
}

impl Havoc {
    pub(crate) fn new(
        fates: Random,
        places: usize,
        weather: Weather,
        faults: Vec<Recurring>,
        patience: u64,
        targets: Targets,
    ) -> Havoc {
        Havoc { fates, is_on: false, places, weather, faults, patience, targets, ongoing: Vec::new() }
    }

    /// Faults strike from now on.
    pub(crate) fn begin<S: Side>(&mut self, world: &mut World<S>) {
        self.is_on = true;
        world.network.weather = self.weather.clone();
    }

    /// Lets each kind of fault come in its time.
    pub(crate) fn await_faults<S: Side>(&mut self, world: &mut World<S>) {
        (0..self.faults.len() as u32).for_each(|code| self.await_fault(world, code));
    }

    pub(crate) fn await_fault<S: Side>(&mut self, world: &mut World<S>, code: u32) {
        let delay = exponential(&mut self.fates, self.faults[code as usize].every);
        world.trigger(delay, Trigger::Fault(code));
    }

    /// The kind of fault that is to strike; nothing if it was one that is under way and has gone on.
    pub(crate) fn due<S: Side>(&mut self, world: &mut World<S>, code: u32) -> Option<FaultKind> {
        if !self.is_on {
            return None;
        }
        match code.checked_sub(ONGOING) {
            Some(index) => {
                self.go_on(world, index as usize);
                None
            }
            None => Some(self.faults[code as usize].kind),
        }
    }

    /// A fault strikes, those kinds that have a victim this one.
    pub(crate) fn strike<S: Side>(&mut self, world: &mut World<S>, kind: FaultKind, victim: Option<usize>) {
        match kind {
            FaultKind::CrashAtStep => {
                let action =
                    if self.fates.chance(0.5) { FaultAction::CrashBefore } else { FaultAction::CrashAfter };
                self.set_step_trap(world, action);
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
                    let stops = self.fates.between(3, 40) as u32;
                    self.keep(world, Ongoing::Starving { process: victim, stops }, 0);
                }
            }
            FaultKind::PauseAtStep => {
                let duration = self.pause_length();
                self.set_step_trap(world, FaultAction::Pause(duration));
            }
            FaultKind::Doze => {
                if let Some(victim) = victim {
                    let duration = self.fates.millis(10, 5_000);
                    world.doze(victim, duration);
                }
            }
            FaultKind::DropFrames => self.drop_frames(world),
            FaultKind::Partition => self.begin_partition(world, victim),
            FaultKind::Flapping => self.begin_flapping(world, victim),
            FaultKind::Clog => self.clog_links(world),
            FaultKind::HalfDead => self.half_kill(world),
            FaultKind::Replay => {
                for _ in 0..self.fates.between(1, 4) {
                    world.network.replay(&mut world.queue, world.now);
                }
            }
            FaultKind::Storm => self.begin_storm(world),
            // Whose faults these are depends on who lives here.
            FaultKind::Crash | FaultKind::FastRestart | FaultKind::NeedlessReset | FaultKind::Duel => {}
        }
    }

    /// Two halves do not hear each other, until [`cut::APART`] is cleared.
    pub(crate) fn part_places<S: Side>(&mut self, world: &mut World<S>) {
        let side: Vec<bool> = (0..self.places).map(|_| self.fates.chance(0.5)).collect();
        for from in 0..self.places {
            for to in (0..self.places).filter(|to| side[*to] != side[from]) {
                world.network.set_cut(from, to, cut::APART, true);
            }
        }
    }

    /// Cuts these links for a while, at most so many milliseconds.
    pub(crate) fn part<S: Side>(&mut self, world: &mut World<S>, cuts: &[(usize, usize)], most_ms: u64) {
        self.cut(world, cuts, true);
        self.note_fault(world, "partition", true);
        let duration = self.fates.millis(20, most_ms);
        self.keep(world, Ongoing::Partition, duration);
    }

    /// Whoever comes to some step next is struck there.
    fn set_step_trap<S: Side>(&mut self, world: &mut World<S>, action: FaultAction) {
        let (frame, passing) = self.fates.weigh(self.targets.steps);
        let skip = self.fates.below(passing + 1) as u32;
        world.traps.set(Trap { frame, from: None, to: None, skip, times: 1, action });
    }

    fn pause_length(&mut self) -> u64 {
        self.fates.millis(1, 4_000)
    }

    // --- the network ---

    fn drop_frames<S: Side>(&mut self, world: &mut World<S>) {
        let kinds: Vec<FrameKind> =
            FrameKind::ALL.iter().copied().filter(|kind| (self.targets.may_drop)(*kind)).collect();
        let frame = self.fates.pick(&kinds);
        let places = self.places as u64;
        let from = self.fates.chance(0.4).then(|| self.fates.below(places) as usize);
        let to = self.fates.chance(0.4).then(|| self.fates.below(places) as usize);
        let (skip, times) = (self.fates.below(4) as u32, self.fates.spread(1, 20) as u32);
        world.traps.set(Trap { frame, from, to, skip, times, action: FaultAction::Drop });
    }

    fn begin_partition<S: Side>(&mut self, world: &mut World<S>, victim: Option<usize>) {
        let cuts = self.draw_cuts(victim);
        self.cut(world, &cuts, true);
        world.recorder.totals.partitions += 1;
        self.note_fault(world, "partition", true);
        let duration = self.fates.millis(50, 6_000);
        self.keep(world, Ongoing::Partition, duration);
    }

    fn begin_flapping<S: Side>(&mut self, world: &mut World<S>, victim: Option<usize>) {
        let cuts = self.draw_cuts(victim);
        self.cut(world, &cuts, true);
        world.recorder.totals.partitions += 1;
        self.note_fault(world, "flapping", true);
        let period = self.patience * self.fates.between(1, 4) / 2;
        let turns = self.fates.between(2, 10) as u32;
        self.keep(world, Ongoing::Flapping { cuts, period, turns, is_cut: true }, period);
    }

    /// Which links a partition cuts.
    fn draw_cuts(&mut self, victim: Option<usize>) -> Vec<(usize, usize)> {
        let places = self.places;
        let all =
            move || (0..places).flat_map(move |a| (0..places).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let one = victim.unwrap_or(0);
        let side: Vec<bool> = (0..places).map(|_| self.fates.chance(0.5)).collect();
        match self.fates.below(8) {
            // Two halves that do not hear each other; or one of them does.
            0 | 1 => all().filter(|(a, b)| side[*a] != side[*b]).collect(),
            2 => all().filter(|(a, b)| side[*a] && !side[*b]).collect(),
            // One is alone; or deaf; or mute.
            3 | 4 => all().filter(|(a, b)| *a == one || *b == one).collect(),
            5 => {
                let is_deaf = self.fates.chance(0.5);
                all().filter(|(a, b)| if is_deaf { *b == one } else { *a == one }).collect()
            }
            // Two halves, and one that hears both.
            6 => all().filter(|(a, b)| *a != one && *b != one && side[*a] != side[*b]).collect(),
            // Everybody hears a majority, and each another one.
            _ => {
                let reach = places / 4 + 1;
                let distance = move |a: usize, b: usize| (a + places - b).min(b + places - a) % places;
                all().filter(|(a, b)| distance(*a, *b) > reach).collect()
            }
        }
    }

    fn cut<S: Side>(&mut self, world: &mut World<S>, cuts: &[(usize, usize)], is_cut: bool) {
        if is_cut && world.recorder.is_traced() {
            world.recorder.tell(world.now, "world", format_args!("cut {cuts:?}"));
        }
        for (from, to) in cuts {
            world.network.set_cut(*from, *to, cut::PARTITION, is_cut);
        }
    }

    fn clog_links<S: Side>(&mut self, world: &mut World<S>) {
        let until = world.now + self.fates.millis(10, 5_000);
        let places = self.places as u64;
        for _ in 0..self.fates.between(1, places) {
            let (from, to) = (self.fates.below(places) as usize, self.fates.below(places) as usize);
            world.network.clog(from, to, until);
        }
    }

    fn half_kill<S: Side>(&mut self, world: &mut World<S>) {
        let process = self.fates.below(self.places as u64) as usize;
        let reach = match self.fates.below(6) {
            0 => Reach { multicast_in: false, ..Reach::FULL },
            1 => Reach { multicast_out: false, ..Reach::FULL },
            2 => Reach { multicast_in: false, multicast_out: false, ..Reach::FULL },
            3 => Reach { unicast_in: false, ..Reach::FULL },
            4 => Reach { unicast_out: false, ..Reach::FULL },
            _ => Reach { unicast_in: false, unicast_out: false, ..Reach::FULL },
        };
        world.network.set_reach(process, reach);
        self.note_fault(world, "half dead", true);
        let duration = self.fates.millis(100, 10_000);
        self.keep(world, Ongoing::HalfDead { process }, duration);
    }

    fn begin_storm<S: Side>(&mut self, world: &mut World<S>) {
        if self.ongoing.iter().flatten().any(|ongoing| matches!(ongoing, Ongoing::Storm { .. })) {
            return;
        }
        let before = world.network.weather.clone();
        world.network.weather.loss = 0.2 + self.fates.part(0.7);
        self.note_fault(world, "storm", true);
        let duration = self.fates.millis(50, 3_000);
        self.keep(world, Ongoing::Storm { before }, duration);
    }

    // --- faults under way ---

    fn keep<S: Side>(&mut self, world: &mut World<S>, ongoing: Ongoing, duration: u64) {
        self.ongoing.push(Some(ongoing));
        world.trigger(duration, Trigger::Fault(ONGOING + self.ongoing.len() as u32 - 1));
    }

    fn go_on<S: Side>(&mut self, world: &mut World<S>, index: usize) {
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
                let (stop, awake) = (self.fates.spread(13 * MILLISECOND, SECOND), self.fates.millis(1, 10));
                world.pause(process, stop);
                self.ongoing[index] = Some(Ongoing::Starving { process, stops: stops - 1 });
                world.trigger(stop + awake, Trigger::Fault(ONGOING + index as u32));
            }
            Some(Ongoing::HalfDead { process }) => {
                world.network.set_reach(process, Reach::FULL);
                self.note_fault(world, "half dead", false);
            }
            Some(Ongoing::Storm { before }) => {
                world.network.weather = before;
                self.note_fault(world, "storm", false);
            }
            None => {}
        }
    }

    /// Ends all faults, and makes the network quiet.
    pub(crate) fn end<S: Side>(&mut self, world: &mut World<S>) {
        self.is_on = false;
        for index in 0..self.ongoing.len() {
            if let Some(ongoing) = self.ongoing[index].take() {
                let fault = match ongoing {
                    Ongoing::Partition => "partition",
                    Ongoing::Flapping { .. } => "flapping",
                    Ongoing::HalfDead { .. } => "half dead",
                    Ongoing::Storm { .. } => "storm",
                    Ongoing::Starving { .. } => "starvation",
                };
                self.note_fault(world, fault, false);
            }
        }
        self.clear_the_air(world);
    }

    fn note_fault<S: Side>(&mut self, world: &mut World<S>, fault: &'static str, begins: bool) {
        let what = if begins { What::FaultBegin { fault } } else { What::FaultEnd { fault } };
        world.recorder.note(world.now, 0, Life::NOBODY, what);
    }

    /// Full reach for everybody who can have it, a quiet network, nothing in wait.
    pub(crate) fn clear_the_air<S: Side>(&self, world: &mut World<S>) {
        world.traps.clear();
        world.network.clear_cuts(cut::PARTITION);
        for process in 0..self.places {
            world.network.set_reach(process, Reach::FULL);
            world.scheduled_crash(process, None);
            (0..self.places).for_each(|to| world.network.unclog(process, to));
        }
        let (delay_min, delay_mean) = (self.weather.delay_min, self.weather.delay_mean);
        world.network.weather = Weather {
            delay_min: delay_min.min(MILLISECOND / 2),
            delay_mean: delay_mean.min(MILLISECOND / 2),
            echo: self.weather.echo,
            ..Weather::calm()
        };
    }
}
