//! Runs one plan: the members form a group, applications work and faults strike. Then all faults end, and the director
//! demands that the group converges.
//!
//! A run has five parts:
//! 1. The group forms.
//! 2. Faults strike; safety must hold throughout.
//! 3. Faults end, and crashed processes restart.
//! 4. The group is *healed* and must converge.
//! 5. Applications fall silent, so that at the end every send must have its outcome.
//!
//! The actions of applications are in `workload`, those of faults in `faults`.

use crate::bugs::Planted;
use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::faults::TARGETS;
use crate::floors::Floors;
use crate::injector::FaultInjector;
use crate::network::{Network, cut};
use crate::outside::Outsiders;
use crate::plan::{Beginning, Part, Plan, Profile, name};
use crate::process::Resident;
use crate::properties::{self, Checkers, GroupTerms, Violation};
use crate::readers::Readers;
use crate::record::{Beside, Life, What};
use crate::recorder::{Recorder, Totals};
use crate::scope::Scope;
use crate::weak::WeakQualities;
use crate::world::{Birth, GroupBirth, GroupCommon, GroupSide, Side, Trigger, World};
use std::io::Write;
use unisono_core::{
    EntryMode, Floor, Formation, Info, Order, Phase, Quorum, Random, Settings, Transport, Uid,
};

/// The sequencer forgets a joiner that has been silent for 2 s. Clocks may run slowly.
const OBSERVER_LEASE: u64 = 2_100 * MILLISECOND;

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) violation: Option<Violation>,
    pub(crate) totals: Totals,
    /// How often each checker found its promise kept.
    pub(crate) checked: Vec<(&'static str, u64)>,
    /// The probes (rare states) that were hit, as bits.
    pub(crate) probes: u128,
    /// Fingerprint of the run; the same for every run of the seed.
    pub(crate) fingerprint: u64,
    /// Length of the run in simulated nanoseconds.
    pub(crate) simulated: u64,
}

impl Finding {
    /// Returns the results of a world whose run is over.
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
    /// Random numbers of applications; faults have their own generator.
    pub(super) app_random: Random,
    pub(super) injector: FaultInjector,
    /// Confirmations and ended lives.
    pub(super) readers: Readers,
    /// Messages of weak qualities.
    pub(super) weak: WeakQualities,
    /// Members that ask for a floor.
    pub(super) floors: Floors,
    /// Members that ask how far multicasts go.
    scope: Scope,
    /// Clients outside of the group.
    pub(super) outsiders: Outsiders,
    /// Messages left in the streak of each process; 0 if there is none.
    pub(super) streak_left: Vec<u64>,
    /// True while applications act.
    pub(super) is_busy: bool,
    /// True while new lives may begin.
    pub(super) is_open: bool,
    planted: Option<Planted>,
    /// The processes that are healed when faults end; all of them, unless the plan heals only a core.
    core: Vec<usize>,
}

impl Director {
    pub(crate) fn new(
        seed: u64,
        profile: Profile,
        planted: Option<Planted>,
        trace: Option<Box<dyn Write>>,
    ) -> Director {
        let mut plan = Plan::draw(seed, profile);
        let floors = Floors::draw(seed, profile, plan.members, plan.config.members_max);
        plan.workload.leaves = plan.workload.leaves.max(floors.leaves_min());
        let random = &mut Random::from_u64(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut fork = || Random::from_u64(random.next_u64());
        let mut network = Network::new(plan.places, plan.conditions.clone(), fork());
        plan.limits.iter().for_each(|(place, limit)| network.limit_reach(*place, *limit));
        let patience = (plan.settings.silence + plan.settings.patience).as_nanos() as u64;
        let readers = Readers::draw(seed, profile);
        let mut common = GroupCommon::new(plan.config.history_messages);
        common.tells_epochs = readers.confirm();
        let (scope, outsiders) = (Scope::draw(seed, profile), Outsiders::draw(seed, profile, &plan, planted));
        (common.tells_multicasts, common.is_open) = (scope.takes_part(), outsiders.take_part());
        let checkers = Checkers::new(properties::all(&GroupTerms {
            config: plan.config.clone(),
            founders_min: plan.founders_min(),
            may_be_ring: plan.config.order == Order::Token || plan.workload.switches > 0.0,
            is_quiet: profile == Profile::Perf,
        }));
        let mut recorder = Recorder::new(checkers, trace);
        recorder.trace(0, "world", format_args!("seed {seed}, profile {profile}: {plan:#?}"));
        Director {
            world: World::new(plan.places, common, network, recorder, fork()),
            app_random: fork(),
            injector: FaultInjector::new(
                fork(),
                plan.places,
                plan.conditions.clone(),
                plan.faults.clone(),
                patience,
                TARGETS,
            ),
            readers,
            weak: WeakQualities::draw(seed, profile),
            floors,
            scope,
            outsiders,
            streak_left: vec![0; plan.places],
            is_busy: true,
            is_open: true,
            planted,
            core: (0..plan.places).collect(),
            plan,
        }
    }

    /// Runs to the end, or until a violation is reported.
    pub(crate) fn run(mut self) -> Finding {
        self.begin();
        while let Some(trigger) = self.world.advance(self.plan.parts.end) {
            self.handle(trigger);
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
            // The network is undisturbed until chaos begins.
            self.injector.clear_faults(&mut self.world);
        }
        if matches!(self.plan.beginning, Beginning::Apart { .. }) {
            self.injector.split_places(&mut self.world);
        }
        for process in 0..founders {
            let config = self.plan.config.clone();
            let entry = match self.plan.beginning {
                Beginning::Founder => EntryMode::Found(config),
                Beginning::Together | Beginning::Apart { .. } => EntryMode::JoinOrFound(config),
                Beginning::Formation { at_least, within, joins } => {
                    let formation = Formation { participants: self.plan.participants(), at_least, within };
                    match joins {
                        true => EntryMode::JoinOrForm(formation, config),
                        false => EntryMode::Form(formation, config),
                    }
                }
            };
            self.give_life(process, entry);
        }
        for process in founders..self.plan.places {
            let latest =
                if process < self.plan.members { 100 * MILLISECOND } else { self.plan.parts.settling };
            let delay = self.app_random.below(latest);
            self.world.trigger(delay, Trigger::Start { process: process as u16 });
        }
        self.begin_outside();
    }

    fn handle(&mut self, trigger: Trigger) {
        match trigger {
            Trigger::Act { process, life } => self.act(process as usize, life),
            Trigger::Start { process } => self.start(process as usize),
            Trigger::Notice { process, life, notice } => self.handle_notice(process as usize, life, notice),
            Trigger::EpochBegun => self.confirm_after_reset(),
            Trigger::ResetAgain { process, life } => self.reset_again(process as usize, life),
            Trigger::Outside(step) => self.step_outside(step),
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
        // An excluded member goes on serving others for a while.
        let is_serving = |phase| !matches!(phase, Phase::Gone | Phase::Locating);
        if self.world.resident(process).is_some_and(|resident| !resident.is_over) {
            return;
        }
        if self.world.resident(process).is_some_and(|resident| is_serving(resident.side.group.phase()))
            && self.app_random.chance(0.9)
        {
            self.world.trigger(200 * MILLISECOND, Trigger::Start { process: process as u16 });
            return;
        }
        let entry = self.entry_of_latecomer(process);
        self.give_life(process, entry);
    }

    /// Returns how a process enters that starts after the group has begun.
    fn entry_of_latecomer(&self, process: usize) -> EntryMode {
        match self.plan.forms_again.filter(|_| process < self.plan.members) {
            None => EntryMode::Join,
            Some(within) => {
                let participants = self.plan.participants();
                let at_least = participants.len() as u16;
                let formation = Formation { participants, at_least, within };
                EntryMode::JoinOrForm(formation, self.plan.config.clone())
            }
        }
    }

    pub(super) fn give_life(&mut self, process: usize, entry: EntryMode) {
        if matches!(entry, EntryMode::Found(_)) {
            self.world.recorder.note(self.world.now, process, Life::WORLD, What::Creating);
        }
        let transport = if self.plan.mixed_transports {
            self.app_random.pick(&[Transport::Auto, Transport::Multicast, Transport::Unicast])
        } else {
            self.plan.settings.transport
        };
        let (floor, hops) = (self.floors.next(), self.scope.next());
        let birth = Birth {
            name: name(process, self.plan.long_names),
            side: GroupBirth {
                entry,
                settings: Settings { transport, floor, hops, ..self.plan.settings.clone() },
            },
            gain: if self.plan.drift { self.app_random.between(0, 20_972) as i64 - 10_486 } else { 0 },
            clock: None,
            events_first: self.app_random.chance(0.5),
            planted: self.planted,
        };
        match self.world.start(process, birth) {
            Ok(life) => {
                self.note_floor(process, floor);
                self.note_hops(process, life, hops);
            }
            Err(error) => self.world.report_violation("plans_are_valid", error.to_string()),
        }
    }

    /// Notes and records the floor for which the life on a process asks.
    fn note_floor(&mut self, process: usize, floor: Floor) {
        let Some(resident) = self.world.resident(process).filter(|_| floor != Floor::None) else { return };
        let (uid, life) = (resident.uid, resident.life);
        self.floors.note(uid, floor);
        self.world.recorder.note(
            self.world.now,
            process,
            life,
            What::Beside(Beside::FloorAsked { floor }.into()),
        );
    }

    /// Records how far the life on a process asks multicasts to go.
    fn note_hops(&mut self, process: usize, life: Life, hops: u8) {
        if self.scope.takes_part() {
            let asked = What::Beside(Beside::HopsAsked { hops }.into());
            self.world.recorder.note(self.world.now, process, life, asked);
        }
    }

    /// Starts a new life on a process after a random delay.
    pub(super) fn start_later(&mut self, process: usize) {
        if self.is_open {
            let delay = self.app_random.spread(MILLISECOND, self.plan.workload.restart_max);
            self.world.trigger(delay, Trigger::Start { process: process as u16 });
        }
    }

    // --- the parts of a run ---

    fn enter_part(&mut self, part: Part) {
        if self.plan.beginning == (Beginning::Apart { until: part }) {
            self.world.network.clear_cuts(cut::APART);
        }
        match part {
            Part::Chaos => self.begin_chaos(),
            Part::Settling => self.end_chaos(),
            Part::Healed => self.demand_convergence(),
            Part::Quiet => self.is_busy = false,
        }
    }

    /// Ends all faults. Crashed processes restart. If the plan heals only a core, the other processes are disabled for
    /// the rest of the run.
    fn end_chaos(&mut self) {
        self.injector.end(&mut self.world);
        if self.plan.heals_core_only {
            self.choose_core();
        }
        for process in 0..self.plan.places {
            if self.core.contains(&process) {
                self.world.resume(process);
                self.world.end_doze(process);
                if self.world.resident(process).is_none() {
                    let delay = self.app_random.below(500 * MILLISECOND);
                    self.world.trigger(delay, Trigger::Start { process: process as u16 });
                }
            } else {
                self.disable_for_good(process);
            }
        }
    }

    /// Chooses a random majority of the living members as the core.
    fn choose_core(&mut self) {
        let Some(info) = self.latest_view() else { return };
        let mut members: Vec<usize> =
            (0..self.plan.places).filter(|place| self.is_in(*place, &info)).collect();
        // While a join or leave is pending, the core must be a quorum of the views before and after it.
        let is_changing = |place: usize| {
            self.world.resident(place).is_some_and(|resident| {
                let is_settled = resident.side.marks.accepted == resident.side.marks.received;
                resident.side.group.phase() != Phase::Gone && !(self.is_member(place) && is_settled)
            })
        };
        let changing = (0..self.plan.places).filter(|place| is_changing(*place)).count();
        let view: Vec<Uid> = info.members.iter().map(|member| member.uid).collect();
        let needed = (view.len() / 2 + 1).max(self.floors.of_view(&view)) + changing.min(2);
        if members.len() <= needed || !matches!(self.plan.config.quorum, Quorum::MajorityOfView) {
            return;
        }
        while members.len() > needed {
            let place = self.injector.random.below(members.len() as u64) as usize;
            members.remove(place);
        }
        self.core = members;
    }

    /// Stops new lives, and records that the living members of the core must converge to one view.
    fn demand_convergence(&mut self) {
        self.is_open = false;
        if !self.can_go_on() {
            return;
        }
        let core: Box<[Life]> = self
            .core
            .iter()
            .filter_map(|place| self.world.resident(*place))
            .filter(|resident| !resident.is_over && !self.group_has_ended(resident))
            .map(|resident| resident.life)
            .collect();
        let now = self.world.now;
        self.world.recorder.note(now, 0, Life::WORLD, What::Healed { core });
    }

    /// True if the members that did not crash are a quorum of every view that matters: each view that a member holds,
    /// with or without an open change at its end, and with joiners that gave up lately; each view that a member has prepared in a reset, because it may be
    /// decided; and the latest view of each group that any member ever held. Leavers and excluded members that have
    /// ended do not count as crashed: they ended by the rules of the protocol.
    fn can_go_on(&self) -> bool {
        let is_part = |phase| matches!(phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        let parts = (0..self.plan.places)
            .filter_map(|place| self.world.resident(place))
            .filter(|resident| is_part(resident.side.group.phase()) && !self.group_has_ended(resident));
        if matches!(self.plan.config.quorum, Quorum::AtLeast(least) if usize::from(least) * 2 <= self.plan.members)
        {
            // A reset may have split the group into halves, each waiting for a member of the other half.
            return false;
        }
        let mut views: Vec<Vec<Uid>> = self.world.recorder.latest_views.iter().map(<[Uid]>::to_vec).collect();
        if let Quorum::MajorityOf(names) = &self.plan.config.quorum {
            let leavers = |view: &[Uid]| view.iter().filter(|uid| self.is_leaving(**uid)).count();
            let too_few = |view: &[Uid]| leavers(view) > 0 && 2 * (view.len() - leavers(view)) <= names.len();
            if views.iter().any(|view| too_few(view)) {
                // The last leaver would leave fewer members than the list's majority, so it waits for new members.
                return false;
            }
        }
        if views.is_empty() {
            // The last member has left: no group exists any more, and members that lag behind receive nothing.
            return false;
        }
        let lost_since = self.world.now.saturating_sub(OBSERVER_LEASE);
        let lost: Vec<Uid> = self.world.recorder.joins_failed_since(lost_since).collect();
        for resident in parts {
            let members: Vec<Uid> =
                resident.side.group.info().members.iter().map(|member| member.uid).collect();
            views.push([&members[..], &lost[..]].concat());
            views.push(members);
            views.push(resident.side.group.prepared_view().to_vec());
            views.push(resident.side.view.clone());
        }
        views.iter().filter(|view| !view.is_empty()).all(|view| self.has_quorum(view))
            && (0..self.plan.places).any(|place| self.is_member(place))
    }

    /// True if the group of this member has ended: its last member has left. The member will receive nothing more,
    /// whatever happens to other groups.
    fn group_has_ended(&self, resident: &Resident<GroupSide>) -> bool {
        self.world.recorder.latest_views.has_ended(resident.side.instance)
    }

    /// True if the members of the view that did not crash are a quorum of it, and as many as each of its members asks for.
    fn has_quorum(&self, view: &[Uid]) -> bool {
        // Processes outside the core stay disabled, so they count as crashed.
        let is_disabled = |uid: &Uid| {
            (0..self.plan.places)
                .filter(|place| !self.core.contains(place))
                .any(|place| self.world.resident(place).is_some_and(|resident| resident.uid == *uid))
        };
        let lives = |uid: &Uid| !self.world.recorder.crashed.contains(uid) && !is_disabled(uid);
        let living = view.iter().filter(|uid| lives(uid)).count();
        if living < self.floors.of_view(view) {
            return false;
        }
        match &self.plan.config.quorum {
            Quorum::MajorityOfView => {
                2 * living > view.len() || (2 * living == view.len() && view.first().is_some_and(lives))
            }
            Quorum::MajorityOf(names) => 2 * living > names.len(),
            Quorum::All => living == view.len(),
            // A reset is decided only when all members of the next view have prepared. A member that crashes in between
            // blocks the others.
            Quorum::AtLeast(_) => living == view.len(),
            other => unreachable!("the director does not know {other:?}"),
        }
    }

    // --- queries ---

    /// True if a living member runs on the process.
    pub(super) fn is_member(&self, process: usize) -> bool {
        let phase = self.world.resident(process).map(|resident| resident.side.group.phase());
        matches!(phase, Some(Phase::Member | Phase::Resetting))
    }

    fn is_leaving(&self, uid: Uid) -> bool {
        (0..self.plan.places)
            .filter_map(|place| self.world.resident(place))
            .any(|resident| resident.uid == uid && resident.side.group.phase() == Phase::Leaving)
    }

    /// Returns the latest view that a living member holds.
    pub(super) fn latest_view(&self) -> Option<Info> {
        (0..self.plan.places)
            .filter(|place| self.is_member(*place))
            .filter_map(|place| self.world.resident(place))
            .map(|resident| resident.side.group.info())
            .max_by_key(|info| (info.epoch, info.expected))
    }

    /// True if the life on the process is a member of this view.
    pub(super) fn is_in(&self, process: usize, info: &Info) -> bool {
        self.world
            .resident(process)
            .is_some_and(|resident| info.members.iter().any(|member| member.uid == resident.uid))
    }

    /// Disables a process for the rest of the run: it is paused, crashes, or loses one or both directions of its links.
    fn disable_for_good(&mut self, process: usize) {
        let defect = self.injector.random.below(5);
        if self.world.resident(process).is_none() {
            return;
        }
        self.world.recorder.trace(
            self.world.now,
            "world",
            format_args!("m{process} is disabled for the rest of the run: {defect}"),
        );
        match defect {
            0 => self.world.pause(process, 3_600 * SECOND),
            1 => self.world.crash(process),
            // It only sends, it only receives, or neither.
            defect => {
                let (sends, receives) = (defect == 2, defect == 3);
                for other in (0..self.plan.places).filter(|other| *other != process) {
                    self.world.network.set_cut(process, other, cut::FOR_GOOD, !sends);
                    self.world.network.set_cut(other, process, cut::FOR_GOOD, !receives);
                }
            }
        }
    }
}
