//! What faults do when they strike. Which of them there are, and how often, the [plan](crate::plan) says.
//!
//! Victims are chosen by what they do more often than by chance: the orderer above all, for there most of the
//! protocol's rules meet. As long as a plan is not reckless, crashes leave a quorum alive, so that the group has
//! something to recover with.

use crate::director::Director;
use crate::draw::Draw;
use crate::network::{Reach, Weather, cut, exponential};
use crate::plan::FaultKind;
use crate::process::Doom;
use crate::record::{Life, What};
use crate::trap::{Deed, Trap};
use crate::world::Cue;
use unisono_core::wire::FrameKind;
use unisono_core::{Entry, Quorum};

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
}

/// From here on the codes of cues name faults under way; below, faults of the plan.
const ONGOING: u32 = 1 << 16;

/// The steps at which a crash or a pause is worth trying, and how many of these frames may pass before.
const STEPS: &[(u32, (FrameKind, u64))] = &[
    (3, (FrameKind::Ordered, 60)),
    (2, (FrameKind::Numbers, 20)),
    (4, (FrameKind::Change, 8)),
    (2, (FrameKind::Heartbeat, 60)),
    (2, (FrameKind::Watermarks, 60)),
    (2, (FrameKind::Data, 60)),
    (1, (FrameKind::Nack, 6)),
    (1, (FrameKind::Welcome, 2)),
    (1, (FrameKind::JoinRequest, 2)),
    (1, (FrameKind::LeaveRequest, 1)),
    (1, (FrameKind::Farewell, 1)),
    (4, (FrameKind::Invite, 8)),
    (4, (FrameKind::Vote, 6)),
    (2, (FrameKind::Pull, 2)),
    (2, (FrameKind::Level, 2)),
    (4, (FrameKind::Prepare, 6)),
    (4, (FrameKind::Prepared, 6)),
    (4, (FrameKind::Decided, 6)),
];

/// What resets are made of.
const RESET_FRAMES: &[FrameKind] = &[
    FrameKind::Invite,
    FrameKind::Vote,
    FrameKind::Vote,
    FrameKind::Outbid,
    FrameKind::Pull,
    FrameKind::Level,
    FrameKind::Prepare,
    FrameKind::Prepare,
    FrameKind::Prepared,
    FrameKind::Prepared,
    FrameKind::Decided,
    FrameKind::Decided,
];

impl Director {
    pub(super) fn let_chaos_begin(&mut self) {
        self.is_chaos = true;
        self.world.network.weather = self.plan.weather.clone();
        if !(0..self.plan.places).any(|place| self.is_member(place)) {
            // A formation that came to nothing.
            self.give_life(0, Entry::Found(self.plan.config.clone()));
        }
        for i in 0..self.plan.faults.len() {
            self.await_fault(i);
        }
    }

    fn await_fault(&mut self, index: usize) {
        let delay = exponential(&mut self.fates, self.plan.faults[index].every);
        self.world.cue(delay, Cue::Fault(index as u32));
    }

    /// A fault strikes, or one that is under way goes on.
    pub(super) fn fault(&mut self, code: u32) {
        if !self.is_chaos {
            return;
        }
        match code.checked_sub(ONGOING) {
            Some(index) => self.go_on(index as usize),
            None => {
                self.strike(self.plan.faults[code as usize].kind);
                self.await_fault(code as usize);
            }
        }
    }

    fn strike(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash => self.crash_somebody(),
            FaultKind::CrashAtStep => {
                if self.can_lose_anybody() {
                    let deed = if self.fates.chance(0.5) { Deed::CrashBefore } else { Deed::CrashAfter };
                    self.set_step_trap(deed);
                }
            }
            FaultKind::FastRestart => {
                if let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) {
                    self.world.crash(victim);
                    self.give_life(victim, Entry::Join);
                }
            }
            FaultKind::Pause => {
                if let Some(victim) = self.victim() {
                    let duration = self.pause_length();
                    self.world.pause(victim, duration);
                }
            }
            FaultKind::PauseAtStep => {
                let duration = self.pause_length();
                self.set_step_trap(Deed::Pause(duration));
            }
            FaultKind::Doze => {
                if let Some(victim) = self.victim() {
                    let duration = self.fates.millis(10, 5_000);
                    self.world.doze(victim, duration);
                }
            }
            FaultKind::DropFrames => self.drop_frames(),
            FaultKind::Partition => self.begin_partition(),
            FaultKind::Flapping => self.begin_flapping(),
            FaultKind::Clog => self.clog_links(),
            FaultKind::HalfDead => self.half_kill(),
            FaultKind::Replay => {
                for _ in 0..self.fates.between(1, 4) {
                    self.world.network.replay(&mut self.world.queue, self.world.now);
                }
            }
            FaultKind::Storm => self.begin_storm(),
            FaultKind::Duel => self.begin_duel(),
            FaultKind::NeedlessReset => {
                if let Some(process) = self.victim() {
                    self.world.reset(process, 1);
                }
            }
        }
    }

    /// Several ask for a reset at once, while votes, proposals and decisions get lost.
    fn begin_duel(&mut self) {
        for _ in 0..self.fates.below(4) {
            let frame = self.fates.pick(RESET_FRAMES);
            let (skip, times) = (self.fates.below(6) as u32, self.fates.spread(1, 12) as u32);
            let from = self.fates.chance(0.3).then(|| self.fates.below(self.plan.places as u64) as usize);
            let to = self.fates.chance(0.3).then(|| self.fates.below(self.plan.places as u64) as usize);
            self.world.traps.set(Trap { frame, from, to, skip, times, deed: Deed::Drop });
        }
        let places: Vec<usize> = (0..self.plan.places).filter(|place| self.is_member(*place)).collect();
        if places.is_empty() {
            return;
        }
        let duellists: Vec<usize> = (0..self.fates.between(1, 3)).map(|_| self.fates.pick(&places)).collect();
        if self.fates.chance(0.5) && duellists.len() > 1 && duellists[0] != duellists[1] {
            // The first two do not hear each other, and everybody else hears both.
            let (one, other) = (duellists[0], duellists[1]);
            self.cut(&[(one, other), (other, one)], true);
            self.note_fault("partition", true);
            let duration = self.fates.millis(20, 500);
            self.keep(Ongoing::Partition, duration);
        }
        duellists.into_iter().for_each(|process| self.world.reset(process, 1));
    }

    // --- processes ---

    /// Somebody alive: the orderer, or anybody.
    fn victim(&mut self) -> Option<usize> {
        let by_role = self.fates.chance(0.4);
        let orderer = self.latest_view().and_then(|info| self.place_of(info.orderer));
        let anybody = self.fates.below(self.plan.places as u64) as usize;
        let victim = orderer.filter(|_| by_role).unwrap_or(anybody);
        self.world.resident(victim).is_some_and(|resident| !resident.is_over).then_some(victim)
    }

    /// The group can lose this one and go on.
    fn can_lose(&self, victim: usize) -> bool {
        self.plan.is_reckless || self.is_enough_without(Some(victim))
    }

    /// The group can lose anybody and go on.
    fn can_lose_anybody(&self) -> bool {
        self.plan.is_reckless
            || (self.world.traps.is_empty()
                && (0..self.plan.places).all(|victim| self.is_enough_without(Some(victim))))
    }

    fn is_enough_without(&self, victim: Option<usize>) -> bool {
        let Some(info) = self.latest_view() else { return false };
        let lives = |place: usize| Some(place) != victim && self.is_in(place, &info);
        let living = (0..self.plan.places).filter(|place| lives(*place)).count();
        match &self.plan.config.quorum {
            Quorum::MajorityOf(names) => 2 * living > names.len(),
            _ => 2 * living > info.members.len(),
        }
    }

    fn crash_somebody(&mut self) {
        let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) else { return };
        if self.fates.chance(0.5) {
            self.world.crash(victim);
            self.start_later(victim);
        } else {
            // In the middle of what one of its next inputs sets off.
            let doom = Doom { inputs: self.fates.below(20) as u32, copies: self.fates.below(6) as u32 };
            self.world.doom(victim, Some(doom));
        }
    }

    /// Whoever comes to some step next is struck there.
    fn set_step_trap(&mut self, deed: Deed) {
        let (frame, passing) = self.fates.weigh(STEPS);
        let skip = self.fates.below(passing + 1) as u32;
        self.world.traps.set(Trap { frame, from: None, to: None, skip, times: 1, deed });
    }

    fn pause_length(&mut self) -> u64 {
        self.fates.millis(1, 4_000)
    }

    // --- the network ---

    fn drop_frames(&mut self) {
        let kinds: Vec<FrameKind> = FrameKind::ALL
            .iter()
            .copied()
            .filter(|kind| !matches!(kind, FrameKind::Ask | FrameKind::Tell))
            .collect();
        let frame = self.fates.pick(&kinds);
        let places = self.plan.places as u64;
        let from = self.fates.chance(0.4).then(|| self.fates.below(places) as usize);
        let to = self.fates.chance(0.4).then(|| self.fates.below(places) as usize);
        let (skip, times) = (self.fates.below(4) as u32, self.fates.spread(1, 20) as u32);
        self.world.traps.set(Trap { frame, from, to, skip, times, deed: Deed::Drop });
    }

    fn begin_partition(&mut self) {
        let cuts = self.draw_cuts();
        self.cut(&cuts, true);
        self.world.recorder.totals.partitions += 1;
        self.note_fault("partition", true);
        let duration = self.fates.millis(50, 6_000);
        self.keep(Ongoing::Partition, duration);
    }

    fn begin_flapping(&mut self) {
        let cuts = self.draw_cuts();
        self.cut(&cuts, true);
        self.world.recorder.totals.partitions += 1;
        self.note_fault("flapping", true);
        let patience = (self.plan.settings.silence + self.plan.settings.patience).as_nanos() as u64;
        let period = patience * self.fates.between(1, 4) / 2;
        let turns = self.fates.between(2, 10) as u32;
        self.keep(Ongoing::Flapping { cuts, period, turns, is_cut: true }, period);
    }

    /// Which links a partition cuts.
    fn draw_cuts(&mut self) -> Vec<(usize, usize)> {
        let places = self.plan.places;
        let all =
            move || (0..places).flat_map(move |a| (0..places).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let one = self.victim().unwrap_or(0);
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

    fn cut(&mut self, cuts: &[(usize, usize)], is_cut: bool) {
        if is_cut && self.world.recorder.is_traced() {
            self.world.recorder.tell(self.world.now, "world", format_args!("cut {cuts:?}"));
        }
        for (from, to) in cuts {
            self.world.network.set_cut(*from, *to, cut::PARTITION, is_cut);
        }
    }

    fn clog_links(&mut self) {
        let until = self.world.now + self.fates.millis(10, 5_000);
        let places = self.plan.places as u64;
        for _ in 0..self.fates.between(1, places) {
            let (from, to) = (self.fates.below(places) as usize, self.fates.below(places) as usize);
            self.world.network.clog(from, to, until);
        }
    }

    fn half_kill(&mut self) {
        let process = self.fates.below(self.plan.places as u64) as usize;
        let reach = match self.fates.below(6) {
            0 => Reach { multicast_in: false, ..Reach::FULL },
            1 => Reach { multicast_out: false, ..Reach::FULL },
            2 => Reach { multicast_in: false, multicast_out: false, ..Reach::FULL },
            3 => Reach { unicast_in: false, ..Reach::FULL },
            4 => Reach { unicast_out: false, ..Reach::FULL },
            _ => Reach { unicast_in: false, unicast_out: false, ..Reach::FULL },
        };
        *self.world.network.reach_mut(process) = reach;
        self.note_fault("half dead", true);
        let duration = self.fates.millis(100, 10_000);
        self.keep(Ongoing::HalfDead { process }, duration);
    }

    fn begin_storm(&mut self) {
        if self.ongoing.iter().flatten().any(|ongoing| matches!(ongoing, Ongoing::Storm { .. })) {
            return;
        }
        let before = self.world.network.weather.clone();
        self.world.network.weather.loss = 0.2 + self.fates.part(0.7);
        self.note_fault("storm", true);
        let duration = self.fates.millis(50, 3_000);
        self.keep(Ongoing::Storm { before }, duration);
    }

    // --- faults under way ---

    fn keep(&mut self, ongoing: Ongoing, duration: u64) {
        self.ongoing.push(Some(ongoing));
        self.world.cue(duration, Cue::Fault(ONGOING + self.ongoing.len() as u32 - 1));
    }

    fn go_on(&mut self, index: usize) {
        match self.ongoing[index].take() {
            Some(Ongoing::Partition) => {
                self.world.network.clear_cuts(cut::PARTITION);
                self.note_fault("partition", false);
            }
            Some(Ongoing::Flapping { cuts, period, turns, is_cut }) => {
                self.cut(&cuts, !is_cut);
                if turns > 0 || !is_cut {
                    let (turns, is_cut) = (turns.saturating_sub(1), !is_cut);
                    self.ongoing[index] = Some(Ongoing::Flapping { cuts, period, turns, is_cut });
                    self.world.cue(period, Cue::Fault(ONGOING + index as u32));
                } else {
                    self.note_fault("flapping", false);
                }
            }
            Some(Ongoing::HalfDead { process }) => {
                *self.world.network.reach_mut(process) = Reach::FULL;
                self.note_fault("half dead", false);
            }
            Some(Ongoing::Storm { before }) => {
                self.world.network.weather = before;
                self.note_fault("storm", false);
            }
            None => {}
        }
    }

    pub(super) fn end_faults(&mut self) {
        for index in 0..self.ongoing.len() {
            if let Some(ongoing) = self.ongoing[index].take() {
                let fault = match ongoing {
                    Ongoing::Partition => "partition",
                    Ongoing::Flapping { .. } => "flapping",
                    Ongoing::HalfDead { .. } => "half dead",
                    Ongoing::Storm { .. } => "storm",
                };
                self.note_fault(fault, false);
            }
        }
        self.clear_the_air();
    }

    fn note_fault(&mut self, fault: &'static str, begins: bool) {
        let what = if begins { What::FaultBegin { fault } } else { What::FaultEnd { fault } };
        self.world.recorder.note(self.world.now, 0, Life::NOBODY, what);
    }
}
