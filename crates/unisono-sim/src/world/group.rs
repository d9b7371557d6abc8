//! The members of a simulated group: the state of each life, the commands of its application, and the records of its
//! marks and events.

use super::{BirthContext, Happening, Notice, Side, Trigger, World};
use crate::bugs::Planted;
use crate::network::{Network, Path};
use crate::outside::Step;
use crate::plan;
use crate::process::Resident;
use crate::record::{self, Beside, End, Epoch, Kind, Life, Listener, Standing, What, mark_changes};
use crate::recorder::Recorder;
use crate::seal::Seal;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use unisono_core::Planted as CoreBug;
use unisono_core::outside::{Given, Relay};
use unisono_core::{
    ConfigError, Destination, EntryMode, EpochTag, Event, Group, Hearing, Instance, LeaveError, Logged,
    Marks, Member, MessageNumber, Order, Outcome, Passed, Phase, Port, Quality, ResetError, SendError, Seqno,
    Settings, Time, Uid,
};

/// Data that all members of a group share.
pub(crate) struct GroupCommon {
    port: Port,
    /// Entries of the history that messages may use. A fall below this number is not noted, so that the same growth is
    /// not recorded again: no bound depends on it.
    history_messages: usize,
    /// True if the director wants to know when a member enters another epoch.
    pub(crate) tells_epochs: bool,
    /// True if multicasts are recorded.
    pub(crate) tells_multicasts: bool,
    /// True if members take messages from outside.
    pub(crate) is_open: bool,
    /// What members answered to clients outside, by the numbers of the calls.
    answers: BTreeMap<u64, (Life, Bytes)>,
}

impl GroupCommon {
    /// Returns the data of a group in which messages may use this many entries of the history.
    pub(crate) fn new(history_messages: u32) -> GroupCommon {
        GroupCommon {
            port: Port::from_name("simulated"),
            history_messages: history_messages as usize,
            tells_epochs: false,
            tells_multicasts: false,
            is_open: false,
            answers: BTreeMap::new(),
        }
    }
}

/// Parameters of a new member.
pub(crate) struct GroupBirth {
    pub(crate) entry: EntryMode,
    pub(crate) settings: Settings,
}

/// One member's side of a group.
pub(crate) struct GroupSide {
    pub(crate) group: Group,
    /// Its marks as last recorded, and the epoch to which they belong.
    pub(crate) marks: Marks,
    pub(crate) epoch: Epoch,
    /// What it knew by stamps of heartbeats, as last recorded.
    hearing: Hearing,
    /// Counter of that epoch, and the group to which it belongs.
    pub(crate) counter: u64,
    pub(crate) instance: Instance,
    /// The steps of its leave that were recorded.
    leave_progress: LeaveProgress,
    /// The view that its application knows.
    pub(crate) view: Vec<Uid>,
    /// Sends for clients outside, once the member has entered a group, if it is open.
    relay: Option<Box<Relay>>,
    /// The relay gave messages to the group since the application was last asked to take events.
    has_sent: bool,
    planted: Option<CoreBug>,
}

impl GroupSide {
    /// True if it takes messages from outside.
    pub(crate) fn is_open(&self) -> bool {
        self.relay.is_some()
    }
}

/// The two steps of a leave: the member knows that its leave is accepted, and it serves no other member any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeaveProgress {
    leave_known: bool,
    parted: bool,
}

impl LeaveProgress {
    #[inline]
    fn of(group: &Group) -> LeaveProgress {
        LeaveProgress { leave_known: group.has_left(), parted: group.phase() == Phase::Gone }
    }
}

impl Side for GroupSide {
    type Common = GroupCommon;
    type Birth = GroupBirth;

    fn begin(
        common: &GroupCommon,
        context: BirthContext,
        birth: GroupBirth,
    ) -> Result<GroupSide, ConfigError> {
        let me = Member {
            uid: context.uid,
            name: context.name,
            address: context.address,
            floor: Default::default(),
            hops: 1,
        };
        let protection = Box::new(Seal);
        let GroupBirth { entry, settings } = birth;
        let group = Group::new(
            context.now,
            me,
            common.port,
            entry,
            Bytes::new(),
            settings,
            protection,
            context.random,
        )?;
        Ok(GroupSide {
            group,
            marks: Marks::default(),
            epoch: Epoch::default(),
            hearing: Hearing::default(),
            counter: 0,
            instance: Instance(0),
            leave_progress: LeaveProgress::default(),
            view: Vec::new(),
            relay: None,
            has_sent: false,
            planted: None,
        })
    }

    fn plant(&mut self, bug: Planted) {
        self.planted = bug.of_core();
        self.planted.into_iter().for_each(|bug| self.group.plant(bug));
    }

    fn probes(&self) -> u128 {
        self.group.probes()
    }

    fn passes(&self) -> u64 {
        self.group.counters().passes
    }

    #[inline(always)]
    fn handle(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, path: Path) {
        match path {
            Path::Unicast => self.group.handle_datagram(now, from, datagram),
            Path::Multicast => self.group.handle_multicast(now, from, datagram),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.group.handle_timeout(now);
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<(Time, impl fmt::Debug)> {
        self.group.poll_timeout()
    }

    #[inline(always)]
    fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Destination> {
        self.group.poll_transmit(now, datagram)
    }

    fn audience(&self) -> (bool, &[SocketAddr]) {
        let audience = self.group.audience();
        (audience.multicast, &audience.addresses)
    }

    /// Other members may need data that only an excluded member holds; if it ends too early, they lose it.
    fn is_needed(&self) -> bool {
        self.group.phase() != Phase::Gone
    }

    /// Records what an input or sending changed before any other member can see the results.
    #[inline(always)]
    fn note(world: &mut World<GroupSide>, process: usize) {
        let resident = world.processes[process].resident.as_ref();
        if resident.is_some_and(|resident| resident.side.group.has_news()) {
            world.note_marks(process);
            world.take_results(process);
            if world.common.tells_epochs {
                world.take_confirmed(process);
            }
        }
    }

    /// Taking events may have freed buffer space for more entries; in that case the marks move only here.
    #[inline]
    fn note_datagram(world: &mut World<GroupSide>, process: usize) {
        world.note_marks(process);
        if let Some(resident) = &world.processes[process].resident
            && resident.side.group.has_ended()
        {
            world.recorder.note(world.now, process, resident.life, What::SpokeAfterEnd);
        }
    }

    fn note_multicast(world: &mut World<GroupSide>, process: usize) {
        if world.common.tells_multicasts {
            world.note_scope(process);
        }
    }

    fn hand_out(world: &mut World<GroupSide>, process: usize) {
        world.take_events(process);
        if world.common.is_open {
            world.work_relay(process);
        }
    }

    fn may_have_more_output(&self) -> bool {
        self.has_sent || self.group.events_matter()
    }
}

/// Writes the records of one life.
struct LifeRecorder<'a> {
    recorder: &'a mut Recorder,
    group: &'a Group,
    now: u64,
    process: usize,
    life: Life,
}

/// Kinds of records that are rare.
const RARE: u64 =
    Kind::EpochBegun.bit() | Kind::Promised.bit() | Kind::Prepared.bit() | Kind::HistoryUsed.bit();

impl Listener for LifeRecorder<'_> {
    #[inline(always)]
    fn note(&mut self, what: What) {
        if what.kind().bit() & RARE == 0 {
            self.recorder.note(self.now, self.process, self.life, what);
        } else {
            self.note_rare(what);
        }
    }

    #[inline(always)]
    fn note_stored(&mut self, epoch: Epoch, seqnos: RangeInclusive<Seqno>, enters: bool) {
        let (mut first, last) = seqnos.into_inner();
        if enters {
            // Entries before the reset event are of earlier epochs.
            let is_reset = |seqno: &Seqno| matches!(self.group.logged(*seqno), Some(Logged::Reset(_)));
            first = (first..=last).rev().find(is_reset).unwrap_or(first);
            let kept = self.group.kept_by_reset(first).unwrap_or(first);
            for seqno in kept + 1..first {
                if let Some(Logged::Message { sender, number }) = self.group.logged(seqno) {
                    let sender = self.recorder.names.life(sender);
                    self.recorder.totals.tails += 1;
                    self.note_rare(What::Tail { epoch, seqno, sender, number });
                }
            }
        }
        for through in first..=last {
            let Some(logged) = self.group.logged(through) else {
                unreachable!("a member holds everything through its mark");
            };
            let what = What::Stored { epoch, through, entry: self.recorder.names.entry(logged) };
            if through < last {
                self.recorder.note_with_next(self.now, self.process, self.life, what);
            } else {
                self.recorder.note(self.now, self.process, self.life, what);
            }
        }
    }
}

impl LifeRecorder<'_> {
    #[inline(never)]
    fn note_rare(&mut self, what: What) {
        self.recorder.note(self.now, self.process, self.life, what);
    }
}

/// Records where a message has its place that was delivered early: as a delivery there, so that all checkers of the order see
/// one stream, with a mark before it.
#[inline(never)]
fn note_passed(recorder: &mut Recorder, now: u64, process: usize, life: Life, passed: &Passed) {
    let Passed { seqno, sender, number, payload } = passed;
    let what = recorder.names.delivered(*seqno, *sender, *number, payload);
    if let What::Delivered { sender, hash, .. } = what {
        recorder.note(now, process, life, What::Passed { sender, hash });
    }
    recorder.note(now, process, life, what);
}

/// Records an event other than a message. Returns the notice if the application may react to it.
#[inline(never)]
fn note_change(
    recorder: &mut Recorder,
    now: u64,
    process: usize,
    resident: &mut Resident<GroupSide>,
    event: &Event,
) -> Option<Notice> {
    recorder.latest_views.change(resident.side.instance, resident.side.counter, event);
    match event {
        Event::Entered { view, .. } | Event::Reset { view, .. } => {
            resident.side.view = view.members.iter().map(|member| member.uid).collect();
        }
        Event::Joined { member, .. } => resident.side.view.push(member.uid),
        Event::Left { member, .. } => resident.side.view.retain(|uid| *uid != member.uid),
        Event::JoinFailed { .. } => recorder.note_join_failed(now, resident.uid),
        _ => {}
    }
    match event {
        Event::Early { quality: Quality::UNRELIABLE, .. } => recorder.totals.unreliable += 1,
        Event::Early { .. } => recorder.totals.early += 1,
        _ => {}
    }
    if matches!(event, Event::OrderChanged { sequencer, .. } if *sequencer == resident.uid) {
        recorder.totals.switches += 1;
    }
    let mut what = recorder.names.event(event);
    if let What::Early { quality, number, .. } = &mut what
        && quality.may_be_early()
    {
        *number = resident.side.group.take_early_number().unwrap_or_default();
    }
    recorder.note(now, process, resident.life, what);
    match event {
        Event::Entered { .. } => Some(Notice::Entered),
        Event::Suspected { .. } => Some(Notice::Suspected),
        Event::Conflict { gives_way: true, .. } => Some(Notice::GivesWay),
        Event::Excluded { .. } | Event::Gone | Event::JoinFailed { .. } => {
            resident.is_over = true;
            Some(Notice::Over)
        }
        _ => None,
    }
}

/// Gives an event to the relay of a member, which begins with the first.
fn note_for_relay(process: usize, resident: &mut Resident<GroupSide>, event: &Event) {
    let side = &mut resident.side;
    if let (Event::Entered { view, .. }, None) = (event, &side.relay) {
        let mut relay = Relay::new(resident.uid, Network::address(process), &view.members);
        side.planted.into_iter().for_each(|bug| relay.plant(bug));
        side.relay = Some(Box::new(relay));
    } else if let Some(relay) = &mut side.relay {
        relay.note(event);
    }
}

impl World<GroupSide> {
    // --- commands of applications ---

    /// Lets the application send `bytes` bytes. Returns true if the member took the message.
    pub(crate) fn send(&mut self, process: usize, bytes: usize, quality: Quality) -> bool {
        let payload = self.arena.fill(bytes, self.random.next_u64()).freeze();
        self.send_payload(process, payload, quality).is_ok()
    }

    /// Lets the application send an unreliable message of this length, with contents drawn from `contents`.
    pub(crate) fn send_unreliable(&mut self, process: usize, bytes: usize, contents: u64) {
        let payload = self.arena.fill(bytes, contents).freeze();
        // It is refused while a reset is running, and if it does not fit a datagram.
        let _ = self.send_payload(process, payload, Quality::UNRELIABLE);
    }

    /// Lets the application send this payload.
    pub(crate) fn send_payload(
        &mut self,
        process: usize,
        payload: Bytes,
        quality: Quality,
    ) -> Result<(), SendError> {
        let now = self.now;
        let Some(resident) = self.active(process) else { return Err(SendError::Left) };
        let (life, local) = (resident.life, resident.clock.read(now));
        let (hash, bytes) = (record::hash(&payload), payload.len() as u32);
        let number = resident.side.group.send_with(local, payload, quality);
        if let Ok(number) = number {
            let what = match quality.has_seqno() {
                true => What::Sent { number, quality, hash, bytes },
                false => What::SentUnreliable { hash },
            };
            self.recorder.note(now, process, life, what);
        }
        self.drain(process);
        number.map(|_| ())
    }

    /// Gives the request of a client outside to the member on a process, if it is open.
    pub(crate) fn ask_relay(&mut self, process: usize, call: u64, client: Uid, request: Bytes) {
        let resident = self.active(process);
        if let Some(relay) = resident.and_then(|resident| resident.side.relay.as_mut()) {
            relay.request(call, client, request);
            self.drain(process);
        }
    }

    /// Takes the answer to a call of a client outside, and which life gave it.
    pub(crate) fn take_answer(&mut self, call: u64) -> Option<(Life, Bytes)> {
        self.common.answers.remove(&call)
    }

    /// Lets the relay on a process send what it has, and takes its answers.
    fn work_relay(&mut self, process: usize) {
        let now = self.now;
        let Some(resident) = &mut self.processes[process].resident else { return };
        let life = resident.life;
        resident.side.has_sent = false;
        while let Some(resident) = &mut self.processes[process].resident
            && let Some(relay) = &mut resident.side.relay
            && let Some(given) = relay.give(resident.clock.read(now), &mut resident.side.group)
        {
            resident.side.has_sent = true;
            let Given { number, payload, quality, .. } = given;
            let (hash, bytes) = (record::hash(&payload), payload.len() as u32);
            self.recorder.note(now, process, life, What::Sent { number, quality, hash, bytes });
        }
        while let Some(resident) = &mut self.processes[process].resident
            && let Some(relay) = &mut resident.side.relay
            && let Some((call, answer)) = relay.poll_answer()
        {
            self.common.answers.insert(call, (life, answer.write()));
            self.queue.push(now, Happening::Trigger(Trigger::Outside(Step::Answer { call })));
        }
    }

    /// Records how far the multicast goes that a member sends now.
    fn note_scope(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let group = &mut resident.side.group;
        let is_member = !matches!(group.phase(), Phase::Locating | Phase::Joining);
        let what = What::Beside(Beside::Multicast { hops: group.hops(), is_member }.into());
        self.recorder.note(self.now, process, resident.life, what);
    }

    pub(crate) fn leave(&mut self, process: usize) -> Result<(), LeaveError> {
        let now = self.now;
        let Some(resident) = self.active(process) else { return Err(LeaveError::Left) };
        let life = resident.life;
        let result = resident.side.group.leave(resident.clock.read(now), Bytes::from_static(b"bye"));
        if result.is_ok() {
            self.recorder.note(now, process, life, What::LeaveAsked);
        }
        self.drain(process);
        result
    }

    /// Lets the application confirm; a member that cannot is not asked.
    pub(crate) fn confirm(&mut self, process: usize) {
        let now = self.now;
        let Some(resident) = self.active(process).filter(|resident| !resident.is_over) else { return };
        let life = resident.life;
        if let Ok(number) = resident.side.group.confirm(resident.clock.read(now)) {
            self.recorder.note(now, process, life, What::Confirming { number });
        }
        self.drain(process);
    }

    /// Ends the life on a process at once. Its application receives what was accepted, and abandons it without giving
    /// its host to another life: the life is still there, and must be silent.
    pub(crate) fn end_life(&mut self, process: usize) {
        let now = self.now;
        let Some(resident) = self.active(process).filter(|resident| !resident.is_over) else { return };
        let (life, uid) = (resident.life, resident.uid);
        resident.side.group.end(resident.clock.read(now));
        while let Some(resident) = &mut self.processes[process].resident {
            let event = resident.side.group.poll_event();
            for passed in resident.side.group.take_passed() {
                note_passed(&mut self.recorder, now, process, life, &passed);
            }
            let Some(event) = event else { break };
            if let Event::Message { seqno, sender, number, payload, .. } = event {
                let what = self.recorder.names.delivered(seqno, sender, number, &payload);
                self.recorder.note(now, process, life, what);
            } else if event != Event::Gone {
                note_change(&mut self.recorder, now, process, resident, &event);
            }
        }
        self.recorder.crashed.push(uid);
        self.recorder.note(now, process, life, What::Ended);
        self.recorder.note(now, process, life, What::Crashed);
        let Some(resident) = self.processes[process].resident.as_mut() else { return };
        resident.is_over = true;
        resident.side.group.take_moved();
        while resident.side.group.poll_sent().is_some() {}
        self.drain(process);
    }

    pub(crate) fn reset(&mut self, process: usize, members_min: usize) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        let request = resident.side.group.reset(resident.clock.read(now), members_min);
        if matches!(request, Ok(()) | Err(ResetError::Halted { .. })) {
            let members_min = members_min as u32;
            self.recorder.note(now, process, life, What::ResetAsked { members_min });
        }
        self.drain(process);
    }

    /// Lets an application force its group to go on without the members on these processes.
    pub(crate) fn force(&mut self, process: usize, without: &[usize]) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        let names: Vec<_> = without.iter().map(|process| plan::name(*process, false)).collect();
        let view = resident.side.group.info().members;
        let without: Vec<Uid> =
            view.iter().filter(|member| names.contains(&member.name)).map(|member| member.uid).collect();
        if resident.side.group.force(resident.clock.read(now), &without).is_ok() {
            let without = without.iter().map(|uid| self.recorder.names.life(*uid)).collect();
            self.recorder.note(now, process, life, What::ForceAsked { without });
        }
        self.drain(process);
    }

    pub(crate) fn hand_over(&mut self, process: usize, to: Uid) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        // The core refuses if another member is the sequencer by now; then nothing happens.
        if resident.side.group.hand_over(resident.clock.read(now), to).is_ok() {
            let successor = self.recorder.names.life(to);
            self.recorder.note(now, process, life, What::HandOverAsked { successor });
        }
        self.drain(process);
    }

    /// Lets the application ask for a token if the group has a sequencer, and for `by_sequencer` otherwise.
    pub(crate) fn switch(&mut self, process: usize, by_sequencer: Order) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let (life, group) = (resident.life, &mut resident.side.group);
        let is_ring = group.info().order != Order::Token;
        let order = if is_ring { Order::Token } else { by_sequencer };
        // The core refuses during a reset, or while another switch is under way; then nothing happens.
        if group.change_order(resident.clock.read(now), order).is_ok() {
            self.recorder.note(now, process, life, What::OrderAsked { is_ring });
        }
        self.drain(process);
    }

    // --- outputs of members ---

    #[inline]
    fn note_marks(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let (moved, heard) = (resident.side.group.take_moved(), resident.side.group.hearing());
        if moved {
            self.note_moved_marks(process);
        }
        self.note_hearing(process, heard);
    }

    /// Records what a member knows by stamps of heartbeats.
    #[inline]
    fn note_hearing(&mut self, process: usize, now: Hearing) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        if resident.side.hearing != now {
            self.note_new_hearing(process, now);
        }
    }

    #[cold]
    fn note_new_hearing(&mut self, process: usize, now: Hearing) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let known = std::mem::replace(&mut resident.side.hearing, now);
        let (life, names) = (resident.life, &mut self.recorder.names);
        let sequencer = now.heard.filter(|_| now.heard != known.heard).map(|uid| names.life(uid));
        let member = now.hears_us.filter(|_| now.hears_us != known.hears_us).map(|uid| names.life(uid));
        let heard = sequencer.map(|sequencer| Beside::Heard { sequencer });
        let taken = member.map(|member| Beside::TakenForHearing { member });
        for beside in heard.into_iter().chain(taken) {
            self.recorder.note_for_checkers(self.now, process, life, What::Beside(beside.into()));
        }
    }

    #[inline(never)]
    fn note_moved_marks(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let mut marks = resident.side.group.marks();
        marks.history = marks.history.max(resident.side.marks.history.min(self.common.history_messages));
        if marks.epoch == EpochTag::OUTSIDE {
            resident.side.marks = marks;
        } else {
            if marks.epoch != resident.side.marks.epoch {
                let info = resident.side.group.info();
                if resident.side.instance != info.instance {
                    self.recorder.latest_views.give_up(resident.side.instance);
                }
                resident.side.epoch = self.recorder.names.epoch_of_tag(marks.epoch, || info.epoch);
                (resident.side.counter, resident.side.instance) = (info.epoch.counter, info.instance);
                self.recorder.latest_views.enter(&info);
                if self.common.tells_epochs {
                    self.queue.push(self.now, Happening::Trigger(Trigger::EpochBegun));
                }
            }
            let (life, epoch, now) = (resident.life, resident.side.epoch, self.now);
            let next = marks.prepared.map(|prepared| self.recorder.names.epoch(prepared.epoch));
            let recorder = &mut self.recorder;
            let mut life_recorder =
                LifeRecorder { recorder, group: &resident.side.group, now, process, life };
            mark_changes(&mut resident.side.marks, &marks, epoch, next, &mut life_recorder);
        }
        if resident.side.leave_progress != LeaveProgress::of(&resident.side.group) {
            self.note_leave_progress(process);
        }
    }

    #[cold]
    fn note_leave_progress(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let now = LeaveProgress::of(&resident.side.group);
        if resident.side.group.has_ended() {
            return;
        }
        let known = std::mem::replace(&mut resident.side.leave_progress, now);
        let steps = [
            (now.leave_known && !known.leave_known, What::LeaveKnown),
            (now.parted && !known.parted, What::Parted),
        ];
        for (_, what) in steps.into_iter().filter(|(is_new, _)| *is_new) {
            self.recorder.note(self.now, process, resident.life, what);
        }
    }

    #[inline]
    fn take_results(&mut self, process: usize) {
        while let Some(resident) = &mut self.processes[process].resident
            && let Some((number, outcome)) = resident.side.group.poll_sent()
        {
            self.take_result(process, number, outcome);
        }
    }

    #[inline(never)]
    fn take_result(&mut self, process: usize, number: MessageNumber, outcome: Outcome) {
        let Some(resident) = &self.processes[process].resident else { return };
        if let Some(event_log) = &mut self.event_log {
            event_log.result(process, number, &outcome);
        }
        self.recorder.note(self.now, process, resident.life, What::SendResult { number, outcome });
        let resident = self.processes[process].resident.as_mut();
        if let Some(relay) = resident.and_then(|resident| resident.side.relay.as_mut()) {
            relay.outcome(number, outcome);
        }
    }

    /// Takes the results of confirmations.
    fn take_confirmed(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        while let Some((number, through)) = resident.side.group.poll_confirmed() {
            self.recorder.note(self.now, process, resident.life, What::Confirmed { number, through });
        }
    }

    fn take_events(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        if resident.takes_events_from > self.now || resident.side.group.has_ended() {
            return;
        }
        loop {
            let event = resident.side.group.poll_event();
            for passed in resident.side.group.take_passed() {
                note_passed(&mut self.recorder, self.now, process, resident.life, &passed);
            }
            let Some(event) = event else { return };
            if let Some(event_log) = &mut self.event_log {
                event_log.event(process, &event);
            }
            if self.common.is_open {
                note_for_relay(process, resident, &event);
            }
            if let Event::Message { seqno, sender, number, payload, .. } = event {
                let what = self.recorder.names.delivered(seqno, sender, number, &payload);
                self.recorder.note(self.now, process, resident.life, what);
            } else if let Some(notice) = note_change(&mut self.recorder, self.now, process, resident, &event)
            {
                let trigger = Trigger::Notice { process: process as u16, life: resident.life, notice };
                self.queue.push(self.now, Happening::Trigger(trigger));
            }
        }
    }

    // --- queries ---

    /// Returns the states of all lives at the end of the run.
    pub(crate) fn end(&mut self) -> End {
        let mut standings = Vec::new();
        for process in 0..self.processes.len() {
            let Some(resident) = &mut self.processes[process].resident else { continue };
            if resident.side.group.has_ended() {
                // It counts as crashed.
                self.probes |= resident.side.group.probes();
                self.recorder.totals.passes += resident.side.passes();
                continue;
            }
            let info = resident.side.group.info();
            self.probes |= resident.side.group.probes();
            self.recorder.totals.passes += resident.side.passes();
            let is_outside = resident.side.marks.epoch == EpochTag::OUTSIDE;
            standings.push(Standing {
                life: resident.life,
                phase: info.phase,
                epoch: (!is_outside).then_some(resident.side.epoch),
                marks: resident.side.group.marks(),
                members: info.members.iter().map(|member| self.recorder.names.life(member.uid)).collect(),
                under_way: info.under_way,
                events: std::iter::from_fn(|| resident.side.group.poll_event()).count(),
            });
        }
        End { at: Time::from_nanos(self.now), standings, datagrams: self.network.traffic.datagrams }
    }
}
