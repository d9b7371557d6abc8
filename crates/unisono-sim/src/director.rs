//! Runs one plan: lets members begin, applications work and faults strike, then ends all faults and demands that the
//! group comes together again.
//!
//! A run has five parts: the group forms; faults strike (safety must hold throughout); faults end and who is down
//! comes back; the group is *healed* and must converge; applications fall silent, so that in the end everything sent
//! has to be settled. What applications do lies in `workload`, what faults do in `faults`.

use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::faults::TARGETS;
use crate::havoc::Havoc;
use crate::network::{Network, cut};
use crate::plan::{Beginning, Part, Plan, Profile, name};
use crate::process::Resident;
use crate::properties::{self, Checkers, Terms, Violation};
use crate::record::{Life, What};
use crate::recorder::{Recorder, Totals};
use crate::world::{Birth, GroupBirth, GroupCommon, GroupSide, Side, Trigger, World};
use std::io::Write;
use unisono_core::{EntryMode, Formation, Info, Phase, Planted, Quorum, Random, Settings, Transport, Uid};

/// What a run found.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) violation: Option<Violation>,
    pub(crate) totals: Totals,
    /// How often each property found its promise kept.
    pub(crate) checked: Vec<(&'static str, u64)>,
    /// The rare states met.
    pub(crate) probes: u128,
    /// Two runs of a seed have the same.
    pub(crate) fingerprint: u64,
    /// Nanoseconds of the world's time.
    pub(crate) simulated: u64,
}

impl Finding {
    /// What there is to find when the checkers have spoken.
    pub(crate) fn of<S: Side>(world: &World<S>) -> Finding {
        Finding {
            violation: world.recorder.violation().cloned(),
            totals: world.recorder.totals,
            checked: world.recorder.checked(),
            probes: world.probes,
            fingerprint: world.recorder.fingerprint(),
            simulated: world.now,
        }
    }
}

/// A run of one plan.
pub(crate) struct Director {
    pub(super) world: World<GroupSide>,
    pub(super) plan: Plan,
    /// What applications draw from; faults draw apart.
    pub(super) whims: Random,
    pub(super) havoc: Havoc,
    /// Messages that whoever makes a speech at a place still has to send.
    pub(super) speeches: Vec<u64>,
    /// Applications send.
    pub(super) is_busy: bool,
    /// New lives may begin.
    pub(super) is_open: bool,
    planted: Option<Planted>,
    /// The places that are healed in the end.
    core: Vec<usize>,
}

impl Director {
    pub(crate) fn new(
        seed: u64,
        profile: Profile,
        planted: Option<Planted>,
        trace: Option<Box<dyn Write>>,
    ) -> Director {
        let plan = Plan::draw(seed, profile);
        let random = &mut Random::from_u64(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut fork = || Random::from_u64(random.next_u64());
        let mut network = Network::new(plan.places, plan.weather.clone(), fork());
        plan.limits.iter().for_each(|(place, limit)| network.limit_reach(*place, *limit));
        let patience = (plan.settings.silence + plan.settings.patience).as_nanos() as u64;
        let common = GroupCommon::new(plan.config.history_messages);
        let checkers = Checkers::new(properties::all(&Terms { config: plan.config.clone() }));
        let mut recorder = Recorder::new(checkers, trace);
        recorder.tell(0, "world", format_args!("seed {seed}, profile {profile}: {plan:#?}"));
        Director {
            world: World::new(plan.places, common, network, recorder, fork()),
            whims: fork(),
            havoc: Havoc::new(
                fork(),
                plan.places,
                plan.weather.clone(),
                plan.faults.clone(),
                patience,
                TARGETS,
            ),
            speeches: vec![0; plan.places],
            is_busy: true,
            is_open: true,
            planted,
            core: (0..plan.places).collect(),
            plan,
        }
    }

    /// Runs to the end, or to where a promise is broken.
    pub(crate) fn run(mut self) -> Finding {
        self.begin();
        while let Some(trigger) = self.world.advance(self.plan.parts.end) {
            self.answer(trigger);
        }
        let end = self.world.end();
        self.world.recorder.finish(&end);
        Finding::of(&self.world)
    }

    fn begin(&mut self) {
        for (part, at) in self.plan.parts.beginnings() {
            self.world.trigger(at, Trigger::Part(part));
        }
        let founders = if self.plan.beginning == Beginning::Founder { 1 } else { self.plan.members };
        if matches!(self.plan.beginning, Beginning::Together | Beginning::Apart { .. }) {
            // The network is quiet until chaos begins.
            self.havoc.clear_the_air(&mut self.world);
        }
        if matches!(self.plan.beginning, Beginning::Apart { .. }) {
            self.havoc.part_places(&mut self.world);
        }
        for process in 0..founders {
            let config = self.plan.config.clone();
            let entry = match self.plan.beginning {
                Beginning::Founder => EntryMode::Found(config),
                Beginning::Together | Beginning::Apart { .. } => EntryMode::JoinOrFound(config),
                Beginning::Formation { at_least, within } => {
                    let participants = (0..founders).map(|place| name(place, self.plan.long_names)).collect();
                    EntryMode::Form(Formation { participants, at_least, within }, config)
                }
            };
            self.give_life(process, entry);
        }
        for process in founders..self.plan.places {
            let latest =
                if process < self.plan.members { 100 * MILLISECOND } else { self.plan.parts.settling };
            let delay = self.whims.below(latest);
            self.world.trigger(delay, Trigger::Start { process: process as u16 });
        }
    }

    fn answer(&mut self, trigger: Trigger) {
        match trigger {
            Trigger::Act { process, life } => self.act(process as usize, life),
            Trigger::Start { process } => self.start(process as usize),
            Trigger::Told { process, life, notice } => self.told(process as usize, life, notice),
            Trigger::ResetAgain { process, life } => self.reset_again(process as usize, life),
            Trigger::Fault(code) => self.fault(code),
            Trigger::Part(part) => self.enter_part(part),
            Trigger::Work { .. } | Trigger::Cancel { .. } | Trigger::Withdraw { .. } | Trigger::Line(_) => {}
        }
    }

    // --- lives ---

    fn start(&mut self, process: usize) {
        if !self.is_open || !self.core.contains(&process) {
            return;
        }
        // Who was excluded goes on serving for a while.
        let is_serving = |phase| !matches!(phase, Phase::Gone | Phase::Locating);
        if self.world.resident(process).is_some_and(|resident| !resident.is_over) {
            return;
        }
        if self.world.resident(process).is_some_and(|resident| is_serving(resident.side.group.phase()))
            && self.whims.chance(0.9)
        {
            self.world.trigger(200 * MILLISECOND, Trigger::Start { process: process as u16 });
            return;
        }
        self.give_life(process, EntryMode::Join);
    }

    pub(super) fn give_life(&mut self, process: usize, entry: EntryMode) {
        let transport = if self.plan.mixed_transports {
            self.whims.pick(&[Transport::Auto, Transport::Multicast, Transport::Unicast])
        } else {
            self.plan.settings.transport
        };
        let birth = Birth {
            name: name(process, self.plan.long_names),
            side: GroupBirth { entry, settings: Settings { transport, ..self.plan.settings.clone() } },
            gain: if self.plan.drift { self.whims.between(0, 20_972) as i64 - 10_486 } else { 0 },
            events_first: self.whims.chance(0.5),
            planted: self.planted,
        };
        if let Err(error) = self.world.start(process, birth) {
            self.world.accuse("plans_are_valid", error.to_string());
        }
    }

    /// Lets a new life begin at a place after a while.
    pub(super) fn start_later(&mut self, process: usize) {
        if self.is_open {
            let delay = self.whims.spread(MILLISECOND, self.plan.workload.restart_max);
            self.world.trigger(delay, Trigger::Start { process: process as u16 });
        }
    }

    // --- the parts of a run ---

    fn enter_part(&mut self, part: Part) {
        if self.plan.beginning == (Beginning::Apart { until: part }) {
            self.world.network.clear_cuts(cut::APART);
        }
        match part {
            Part::Chaos => self.let_chaos_begin(),
            Part::Settling => self.end_chaos(),
            Part::Healed => self.demand_convergence(),
            Part::Quiet => self.is_busy = false,
        }
    }

    /// Ends all faults. Who is down comes back; or only a majority is healed, and what ails the others never ends.
    fn end_chaos(&mut self) {
        self.havoc.end(&mut self.world);
        if self.plan.heals_core_only {
            self.choose_core();
        }
        for process in 0..self.plan.places {
            if self.core.contains(&process) {
                self.world.resume(process);
                self.world.rouse(process);
                if self.world.resident(process).is_none() {
                    let delay = self.whims.below(500 * MILLISECOND);
                    self.world.trigger(delay, Trigger::Start { process: process as u16 });
                }
            } else {
                self.ail_for_good(process);
            }
        }
    }

    /// A random majority of the living members is the core; the others stay what they are, or worse.
    fn choose_core(&mut self) {
        let Some(info) = self.latest_view() else { return };
        let mut members: Vec<usize> =
            (0..self.plan.places).filter(|place| self.is_in(*place, &info)).collect();
        // While somebody comes or goes, the core must be enough for the view before and the one after.
        let is_passing = |place: usize| {
            self.world.resident(place).is_some_and(|resident| {
                let is_settled = resident.side.marks.accepted == resident.side.marks.received;
                resident.side.group.phase() != Phase::Gone && !(self.is_member(place) && is_settled)
            })
        };
        let passing = (0..self.plan.places).filter(|place| is_passing(*place)).count();
        let needed = info.members.len() / 2 + 1 + passing.min(2);
        if members.len() <= needed || !matches!(self.plan.config.quorum, Quorum::MajorityOfView) {
            return;
        }
        while members.len() > needed {
            let place = self.havoc.fates.below(members.len() as u64) as usize;
            members.remove(place);
        }
        self.core = members;
    }

    /// Nobody begins a life any more, and whoever lives must come to one view.
    fn demand_convergence(&mut self) {
        self.is_open = false;
        if !self.can_go_on() {
            return;
        }
        let core: Box<[Life]> = self
            .core
            .iter()
            .filter_map(|place| self.world.resident(*place))
            .filter(|resident| !resident.is_over && !self.is_left_alone(resident))
            .map(|resident| resident.life)
            .collect();
        let now = self.world.now;
        self.world.recorder.note(now, 0, Life::NOBODY, What::Healed { core });
    }

    /// Whether the members that did not crash are a quorum of every view that somebody holds, with an open change at
    /// its end or without, or has prepared in a reset, which may be decided to come; and of the latest that anybody ever
    /// held. A leaver that has gone, or somebody excluded, is no excuse: they went by the protocol's own rules.
    fn can_go_on(&self) -> bool {
        let is_part = |phase| matches!(phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        let parts = (0..self.plan.places)
            .filter_map(|place| self.world.resident(place))
            .filter(|resident| is_part(resident.side.group.phase()) && !self.is_left_alone(resident));
        if matches!(self.plan.config.quorum, Quorum::AtLeast(least) if usize::from(least) * 2 <= self.plan.members)
        {
            // Halves may have parted in the middle of a reset, each waiting for somebody who is in the other.
            return false;
        }
        let mut views: Vec<Vec<Uid>> = self.world.recorder.latest_views.iter().map(<[Uid]>::to_vec).collect();
        if let Quorum::MajorityOf(names) = &self.plan.config.quorum {
            let leavers = |view: &[Uid]| view.iter().filter(|uid| self.is_leaving(**uid)).count();
            let too_few = |view: &[Uid]| leavers(view) > 0 && 2 * (view.len() - leavers(view)) <= names.len();
            if views.iter().any(|view| too_few(view)) {
                // The last of those who leave would leave too few behind, and so waits for others to come.
                return false;
            }
        }
        if views.is_empty() {
            // The last member has left: there is no group any more, and nobody to tell those who lag behind.
            return false;
        }
        for resident in parts {
            views.push(resident.side.group.info().members.iter().map(|member| member.uid).collect());
            views.push(resident.side.group.prepared_view().to_vec());
            views.push(resident.side.view.clone());
        }
        views.iter().filter(|view| !view.is_empty()).all(|view| self.has_quorum(view))
            && (0..self.plan.places).any(|place| self.is_member(place))
    }

    /// Its group went on without it, and then its last member left: nobody is there to tell it, whatever becomes of
    /// another group.
    fn is_left_alone(&self, resident: &Resident<GroupSide>) -> bool {
        self.world.recorder.latest_views.has_ended(resident.side.instance)
    }

    /// Whether those of the view that did not crash are a quorum of it.
    fn has_quorum(&self, view: &[Uid]) -> bool {
        // What ails those outside of the core never ends: they are as good as dead.
        let ails = |uid: &Uid| {
            (0..self.plan.places)
                .filter(|place| !self.core.contains(place))
                .any(|place| self.world.resident(place).is_some_and(|resident| resident.uid == *uid))
        };
        let lives = |uid: &Uid| !self.world.recorder.crashed.contains(uid) && !ails(uid);
        let living = view.iter().filter(|uid| lives(uid)).count();
        match &self.plan.config.quorum {
            Quorum::MajorityOfView => {
                2 * living > view.len() || (2 * living == view.len() && view.first().is_some_and(lives))
            }
            Quorum::MajorityOf(names) => 2 * living > names.len(),
            Quorum::All => living == view.len(),
            // Decided only when all of the next view have prepared: whoever dies in between holds up the others.
            Quorum::AtLeast(_) => living == view.len(),
            other => unreachable!("the director does not know {other:?}"),
        }
    }

    // --- looking ---

    /// The place has a living member.
    pub(super) fn is_member(&self, process: usize) -> bool {
        let phase = self.world.resident(process).map(|resident| resident.side.group.phase());
        matches!(phase, Some(Phase::Member | Phase::Resetting))
    }

    fn is_leaving(&self, uid: Uid) -> bool {
        (0..self.plan.places)
            .filter_map(|place| self.world.resident(place))
            .any(|resident| resident.uid == uid && resident.side.group.phase() == Phase::Leaving)
    }

    /// The latest view that a living member holds.
    pub(super) fn latest_view(&self) -> Option<Info> {
        (0..self.plan.places)
            .filter(|place| self.is_member(*place))
            .filter_map(|place| self.world.resident(place))
            .map(|resident| resident.side.group.info())
            .max_by_key(|info| (info.epoch, info.expected))
    }

    /// The life at this place is a member of this view.
    pub(super) fn is_in(&self, process: usize, info: &Info) -> bool {
        self.world
            .resident(process)
            .is_some_and(|resident| info.members.iter().any(|member| member.uid == resident.uid))
    }

    /// Nothing disturbs a place that ails for good: it is cut off, or half of it is.
    fn ail_for_good(&mut self, process: usize) {
        let ailment = self.havoc.fates.below(5);
        if self.world.resident(process).is_none() {
            return;
        }
        self.world.recorder.tell(
            self.world.now,
            "world",
            format_args!("m{process} ails for good: {ailment}"),
        );
        match ailment {
            0 => self.world.pause(process, 3_600 * SECOND),
            1 => self.world.crash(process),
            // It speaks and does not hear, or hears and does not speak, or neither.
            ailment => {
                let (speaks, hears) = (ailment == 2, ailment == 3);
                for other in (0..self.plan.places).filter(|other| *other != process) {
                    self.world.network.set_cut(process, other, cut::FOR_GOOD, !speaks);
                    self.world.network.set_cut(other, process, cut::FOR_GOOD, !hears);
                }
            }
        }
    }
}
