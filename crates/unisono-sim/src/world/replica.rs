//! The processes of a replicated service: clients with an endpoint, and servers with a group, an endpoint at the same
//! address and a copy of the state. This module drives the three parts of a server as the library does, and records what
//! callers get and what copies apply.

use super::disk::{Disk, DiskInUse};
use super::{BirthContext, CallService, Happening, Notice, Side, Trigger, World};
use crate::draw::Draw;
use crate::network::Path;
use crate::queue::Queue;
use crate::record::{self, Life, Mode, OpId, OpOutcome, Place, ReplicaRecord, Service, Stop, Trail, What};
use crate::recorder::Recorder;
use crate::replica::{Copy, Op, Reply, Stepped, Watch};
use crate::seal::{CheapProof, Seal};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::replica::disk::DiskDurability;
use unisono_core::replica::{
    Answer, CommandFailure, CommandNumber, Digest, DiskStart, Donor, Durability, FetchNumber, Kind, Output,
    ReadNumber, Replica, ReplicaSettings, StateMachine, StopReason, instance_of,
};
use unisono_core::rpc::{
    CALLS_TAG, CallDestination, CallFailure, CallNumber, CallSettings, Endpoint, ForwardError, Request,
    RequestId, ServeOptions,
};
use unisono_core::wire::Header;
use unisono_core::{
    ConfigError, ConfirmError, Destination, EntryMode, EpochTag, Event, Group, Instance, Member, Phase,
    Planted, Port, Random, SendError, Settings, Time, Uid,
};

/// Maximum bytes of remembered replies and of waiting events, and maximum number of clients, as the core promises.
const BYTES_MAX: usize = 64 << 20;
const CLIENTS_MAX: usize = 1 << 18;
/// Outputs that a copy may have for its driver; all are taken after each input.
const OUTPUTS_MAX: usize = 0;

/// Data that all processes share.
pub(crate) struct ReplicaCommon {
    pub(crate) group: Port,
    /// The port that callers call, and the one at which members ask for the state.
    pub(crate) service: CallService,
    pub(crate) transfer: CallService,
    /// True if services are located by multicast, false if by one copy for each process.
    pub(crate) multicast: bool,
    /// Time that a question about the state may take.
    pub(crate) fetch_limit: Duration,
    /// Fraction of pieces of a state that a donor spoils, and of questions for a piece that it cannot answer any more.
    pub(crate) spoils: f64,
    pub(crate) stumbles: f64,
    /// Fraction of jobs of disks that take long.
    pub(crate) stalls: f64,
    /// Instances of groups that had a copy, in the order in which the run names them.
    pub(crate) instances: Vec<Instance>,
    pub(crate) ops_begun: u32,
    /// Operations that ended and did not happen.
    pub(crate) not_happened: BTreeSet<u32>,
}

impl ReplicaCommon {
    fn service_of(&mut self, instance: Instance) -> Service {
        let known = self.instances.iter().position(|known| *known == instance);
        Service(known.unwrap_or_else(|| {
            self.instances.push(instance);
            self.instances.len() - 1
        }) as u16)
    }
}

/// Parameters of a new life.
pub(crate) struct ReplicaBirth {
    pub(crate) calls: CallSettings,
    /// Present for a server.
    pub(crate) server: Option<ServerBirth>,
}

/// Parameters of a server's life.
pub(crate) struct ServerBirth {
    pub(crate) entry: EntryMode,
    pub(crate) settings: Settings,
    pub(crate) durability: Durability,
    pub(crate) message_bytes_max: usize,
    /// Present for a server with a disk, which has no former life or begins anew from it.
    pub(crate) disk: Option<DiskBirth>,
    /// What is left of the last life, if the member was excluded or could not join.
    pub(crate) former: Option<Former>,
}

/// The disk of a server.
pub(crate) struct DiskBirth {
    pub(crate) disk: Disk,
    pub(crate) server: u8,
    pub(crate) servers: u8,
}

/// What a server takes into its next life.
pub(crate) struct Former {
    replica: Replica<Copy>,
    watch: Rc<Watch>,
    client: Uid,
    own: Own,
    disk: Option<DiskInUse>,
}

/// Operations of a server's own process that have not ended.
#[derive(Default)]
struct Own {
    commands: BTreeMap<CommandNumber, OpId>,
    barriers: BTreeMap<ReadNumber, (OpId, Op)>,
}

/// One process's side.
pub(crate) struct ReplicaSide {
    pub(crate) endpoint: Endpoint,
    /// Calls of the application that have not ended.
    calls: BTreeMap<CallNumber, OpId>,
    pub(crate) server: Option<Box<Server>>,
    multicast: bool,
}

/// Why a server's life in the group is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Excluded,
    JoinFailed,
    /// It ended this life at once, to enter a group anew.
    Reenters,
    /// It left or ended as its application wanted.
    Gone,
    /// The copy stopped by itself.
    Stopped,
}

/// A server: a member of the group with a copy of the state.
pub(crate) struct Server {
    pub(crate) group: Group,
    pub(crate) replica: Replica<Copy>,
    watch: Rc<Watch>,
    /// Uid under which the commands of this process are remembered.
    client: Uid,
    donor: Donor,
    own: Own,
    disk: Option<DiskInUse>,
    /// Messages that the group has not taken yet.
    to_send: VecDeque<(Bytes, Option<u8>)>,
    /// Questions about the state that have no outcome yet.
    fetches: BTreeMap<CallNumber, FetchNumber>,
    /// Requests that the copy has: client, number, and how they are treated.
    requests: BTreeMap<RequestId, (Uid, CallNumber, Kind)>,
    wants_confirmation: bool,
    pub(crate) over: Option<Over>,
    /// How this life entered.
    pub(crate) entry: EntryMode,
    /// True while callers are served.
    serves: bool,
    epoch: EpochTag,
    epoch_counter: u64,
    instance: Instance,
    /// True if it sent a datagram of the group after its life had ended, and that was not recorded.
    sent_after_end: bool,
    /// The highest amounts recorded.
    held: [usize; 4],
}

/// What a side needs to act and to record.
struct Context<'a> {
    now: u64,
    local: Time,
    process: usize,
    life: Life,
    takes_events: bool,
    recorder: &'a mut Recorder,
    queue: &'a mut Queue<Happening>,
    common: &'a mut ReplicaCommon,
    random: &'a mut Random,
}

impl Context<'_> {
    fn note(&mut self, record: ReplicaRecord) {
        self.recorder.note(self.now, self.process, self.life, What::Replica(Box::new(record)));
    }

    fn trigger(&mut self, trigger: Trigger) {
        self.queue.push(self.now, Happening::Trigger(trigger));
    }

    fn end_op(&mut self, id: OpId, outcome: OpOutcome) {
        if let OpOutcome::Replied(_) = outcome {
            self.recorder.totals.calls += 1;
        }
        if outcome == OpOutcome::NotHappened {
            self.common.not_happened.insert(id.0);
        }
        self.note(ReplicaRecord::Ended { id, outcome });
        self.trigger(Trigger::Work { process: self.process as u16, life: self.life, job: id.0 });
    }
}

/// Returns a number for a barrier that no command of the process has.
fn barrier_number(number: ReadNumber) -> u64 {
    1 << 63 | number
}

/// A digest that is cheap to compute.
fn digest(bytes: &[u8]) -> Digest {
    let first = record::hash(bytes);
    let mut digest = Digest::default();
    let mut word = first;
    for part in digest.as_chunks_mut::<8>().0 {
        *part = word.to_be_bytes();
        word = record::mix(word, first);
    }
    digest
}

/// Returns what a refusal means: the state machine's replies come as such; the other refusals are sentences.
fn refusal(reason: &[u8]) -> OpOutcome {
    let says = |end: &[u8]| reason.ends_with(end);
    match Reply::read(reason) {
        Some(reply) => OpOutcome::Replied(reply),
        None if says(b"did not happen") || says(b"nothing happened") => OpOutcome::NotHappened,
        None => OpOutcome::Unknown,
    }
}

fn outcome_of_call(result: &Result<Bytes, CallFailure>) -> OpOutcome {
    match result {
        Ok(reply) => Reply::read(reply).map_or(OpOutcome::Unknown, OpOutcome::Replied),
        Err(CallFailure::Refused(reason)) => refusal(reason),
        Err(CallFailure::Unknown) => OpOutcome::Unknown,
        Err(_) => OpOutcome::NotHappened,
    }
}

impl Server {
    fn begin(
        common: &ReplicaCommon,
        context: &BirthContext,
        birth: ServerBirth,
    ) -> Result<Server, ConfigError> {
        let ServerBirth { entry, settings, durability, message_bytes_max, disk, former } = birth;
        let me = Member { uid: context.uid, name: context.name.clone(), address: context.address };
        let (now, mut random) = (context.now, context.random.clone());
        // Not the uid of the endpoint, whose calls have numbers of their own.
        let client = Uid(random.next_u64());
        let group =
            Group::new(now, me, common.group, entry.clone(), Bytes::new(), settings, Box::new(Seal), random)?;
        let (replica, watch, client, own, disk) = match (former, disk) {
            (Some(former), _) => {
                let replica = former.replica.into_next(context.uid);
                (replica, former.watch, former.client, former.own, former.disk)
            }
            (None, Some(birth)) => {
                let watch = Rc::new(Watch::default());
                let settings = ReplicaSettings { client, durability, message_bytes_max, digest };
                let mut draws = context.random.clone();
                let opened = birth.disk.open(digest, &mut draws);
                let (disk, loaded) = opened.unwrap_or_else(|error| panic!("a disk is spoiled: {error}"));
                let start = DiskStart {
                    name: "replicated".into(),
                    server: birth.server,
                    servers: birth.servers,
                    durability: DiskDurability::Majority,
                    loaded,
                    disk: draws.next_u64(),
                    nonce: u128::from(draws.next_u64()),
                    replaces: false,
                    begins_anew: None,
                };
                let copy = Copy::new(Rc::clone(&watch));
                let replica = Replica::with_disk(context.uid, copy, settings, &start);
                let replica = replica.unwrap_or_else(|reason| panic!("a disk cannot be restored: {reason}"));
                (replica, watch, client, Own::default(), Some(disk))
            }
            (None, None) => {
                let watch = Rc::new(Watch::default());
                let settings = ReplicaSettings { client, durability, message_bytes_max, digest };
                let replica = Replica::new(context.uid, Copy::new(Rc::clone(&watch)), settings);
                (replica, watch, client, Own::default(), None)
            }
        };
        Ok(Server {
            group,
            replica,
            watch,
            client,
            donor: Donor::new(digest),
            own,
            disk,
            to_send: VecDeque::new(),
            fetches: BTreeMap::new(),
            requests: BTreeMap::new(),
            wants_confirmation: false,
            over: None,
            entry,
            serves: false,
            epoch: EpochTag::OUTSIDE,
            epoch_counter: 0,
            instance: Instance(0),
            sent_after_end: false,
            held: [0; 4],
        })
    }

    /// True if this process is a member that has the state.
    pub(crate) fn is_copy(&self) -> bool {
        self.serves && self.over.is_none()
    }

    /// Returns the instance of the service: that of the disk, or of the group.
    fn service(&self) -> Instance {
        match self.replica.service() {
            0 => self.group.instance(),
            service => Instance(service),
        }
    }

    /// Returns where the copy is.
    fn place(&self, cx: &mut Context<'_>) -> Option<Place> {
        let machine = self.replica.machine()?;
        Some(self.place_at(cx, self.replica.position(), machine.trail()))
    }

    fn place_at(&self, cx: &mut Context<'_>, position: u64, trail: Trail) -> Place {
        let epoch = self.replica.view().map_or_else(Default::default, |view| view.epoch);
        let epoch = cx.recorder.names.epoch(epoch);
        Place { service: cx.common.service_of(self.service()), epoch, position, trail }
    }

    fn note_steps(&mut self, cx: &mut Context<'_>) {
        let steps = std::mem::take(&mut *self.watch.steps.borrow_mut());
        for step in steps {
            let at = self.place_at(cx, step.position, step.trail);
            let record = match step.what {
                Stepped::Applied { client, call, op, reply } => {
                    let name = (cx.recorder.names.life(client), call);
                    ReplicaRecord::Applied { at, name, op, reply }
                }
                Stepped::Members => ReplicaRecord::Members(at),
                Stepped::Restored => ReplicaRecord::Restored(at),
            };
            cx.note(record);
        }
    }

    // --- the group ---

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        self.follow_views(cx);
        if let Some((number, done)) = self.disk.as_mut().and_then(|disk| disk.finish(cx.local)) {
            moved = true;
            self.replica.handle_stored(cx.local, number, done);
            self.note_steps(cx);
        }
        while cx.takes_events
            && let Some(event) = self.group.poll_event()
        {
            moved = true;
            self.take_event(cx, event);
        }
        while let Some((_, seqno)) = self.group.poll_confirmed() {
            moved = true;
            self.replica.handle_confirmed(seqno);
        }
        while self.group.poll_sent().is_some() {
            cx.recorder.totals.messages += 1;
        }
        moved
    }

    fn take_event(&mut self, cx: &mut Context<'_>, event: Event) {
        cx.recorder.latest_views.change(self.instance, self.epoch_counter, &event);
        let over = match &event {
            Event::Excluded { .. } => Some(Over::Excluded),
            Event::JoinFailed { .. } => Some(Over::JoinFailed),
            Event::Gone => Some(Over::Gone),
            _ => None,
        };
        match &event {
            // The copy submits everything anew that has not been in the order.
            Event::Reset { .. } => self.to_send.clear(),
            Event::Message { .. } => {}
            event => cx.recorder.trace(
                cx.now,
                &format!("m{}/{}", cx.process, cx.life.0),
                format_args!("event {event:?}"),
            ),
        }
        self.replica.handle_event(cx.local, event);
        self.note_steps(cx);
        if let Some(over) = over {
            if over == Over::JoinFailed {
                // Its join, or its part in a formation, may be in the order.
                cx.recorder.crashed.push(self.group.info().me);
            }
            self.end_part(cx, over);
        }
    }

    /// Notes that this life has no part in the group any more.
    fn end_part(&mut self, cx: &mut Context<'_>, over: Over) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(over);
        cx.note(ReplicaRecord::Out);
        let (process, life) = (cx.process as u16, cx.life);
        cx.trigger(Trigger::Notice { process, life, notice: Notice::Over });
    }

    fn follow_views(&mut self, cx: &mut Context<'_>) {
        let epoch = self.group.marks().epoch;
        if epoch == self.epoch || epoch == EpochTag::OUTSIDE {
            return;
        }
        let info = self.group.info();
        if self.instance != info.instance {
            cx.recorder.latest_views.give_up(self.instance);
        }
        (self.epoch, self.epoch_counter, self.instance) = (epoch, info.epoch.counter, info.instance);
        cx.recorder.latest_views.enter(&info);
        if info.epoch.counter > 0 {
            cx.recorder.count_epoch(info.epoch);
        }
    }

    fn send_waiting(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.to_send.len();
        while let Some((message, degree)) = self.to_send.front() {
            let sent = match degree {
                None => self.group.send(cx.local, message.clone()),
                Some(degree) => self.group.send_resilient(cx.local, message.clone(), *degree),
            };
            match sent {
                Ok(_) | Err(SendError::Left | SendError::TooLarge { .. }) => _ = self.to_send.pop_front(),
                Err(_) => break,
            }
        }
        if self.wants_confirmation {
            let confirming = self.group.confirm(cx.local);
            self.wants_confirmation = matches!(confirming, Err(ConfirmError::NotMember));
        }
        self.to_send.len() < before
    }

    // --- the copy ---

    fn take_outputs(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) -> bool {
        let mut moved = false;
        while let Some(output) = self.replica.poll_output() {
            moved = true;
            match output {
                Output::Submit(message) => self.to_send.push_back((message, None)),
                Output::Announce(message) => self.to_send.push_back((message, Some(0))),
                Output::Store(number, job) => {
                    if let Some(disk) = &mut self.disk {
                        disk.begin(cx.local, (number, *job), cx.common.stalls, cx.random);
                    }
                }
                Output::Reenter => {
                    self.leave_service(cx, endpoint);
                    self.end_part(cx, Over::Reenters);
                }
                Output::Answer(id, answer) => self.answer(cx, endpoint, id, answer),
                Output::Confirm => self.wants_confirmation = true,
                Output::Fetch { call, to, request } => {
                    let (port, limit) = (cx.common.transfer.port, cx.common.fetch_limit);
                    match endpoint.call_at(cx.local, port, to, request, limit) {
                        Ok(number) => _ = self.fetches.insert(number, call),
                        Err(_) => self.replica.handle_fetched(cx.local, call, Err(CallFailure::Failed)),
                    }
                }
                Output::Done(number, result) => {
                    let outcome = match result {
                        Ok(done) => Reply::read(&done.reply).map_or(OpOutcome::Unknown, OpOutcome::Replied),
                        Err(CommandFailure::Refused(reason)) => refusal(&reason),
                        Err(CommandFailure::Unknown) => OpOutcome::Unknown,
                        Err(_) => OpOutcome::NotHappened,
                    };
                    if let Some(id) = self.own.commands.remove(&number) {
                        cx.end_op(id, outcome);
                    }
                }
                Output::Ready(number) => {
                    let machine = self.replica.machine();
                    if let Some((id, op)) = self.own.barriers.remove(&number)
                        && let Some(machine) = machine
                    {
                        let reply = machine.look(op);
                        let service = cx.common.service_of(self.service());
                        let name = (cx.recorder.names.life(self.client), barrier_number(number));
                        cx.note(ReplicaRecord::Looked { service, name });
                        cx.end_op(id, OpOutcome::Replied(reply));
                    }
                }
                Output::Informed => self.serve(cx, endpoint),
                Output::Stop(reason) => self.stop(cx, endpoint, &reason),
                Output::Notice(notice) => {
                    let who = format!("m{}/{}", cx.process, cx.life.0);
                    cx.recorder.trace(cx.now, &who, format_args!("notice {notice:?}"));
                }
                _ => {}
            }
        }
        moved
    }

    fn serve(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) {
        self.note_steps(cx);
        let instance = instance_of(self.service());
        let CallService { private, options, .. } = cx.common.service;
        // A founder that gave way to another group begins to serve anew.
        endpoint.withdraw(cx.common.service.port);
        _ = endpoint.serve(private, ServeOptions { instance, ..options });
        self.serves = true;
        if let Some(at) = self.place(cx) {
            cx.note(ReplicaRecord::Informed(at));
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, reason: &StopReason) {
        let stop = match reason {
            StopReason::Differs { since, through } => Stop::Differs(*since, *through),
            StopReason::GivesWay { .. } => Stop::GivesWay,
            StopReason::StateLost => Stop::StateLost,
            StopReason::Panicked { .. } => Stop::Other("panicked"),
            StopReason::DiskHangs => Stop::DiskHangs,
            StopReason::DiskFailed(_) => Stop::Other("the disk failed"),
            StopReason::NotRestored(reason) => Stop::Other(reason.0),
            _ => Stop::Other("for a reason that the simulator does not know"),
        };
        let at = self.place(cx);
        cx.note(ReplicaRecord::Stopped { at, reason: stop });
        self.leave_service(cx, endpoint);
        self.end_part(cx, Over::Stopped);
    }

    /// Ends the member's life in the group at once, and its service.
    fn leave_service(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) {
        if self.group.phase() != Phase::Gone {
            // The others know nothing of the end, so they treat it as a crash.
            cx.recorder.crashed.push(endpoint.uid());
        }
        self.group.end(cx.local);
        cx.note(ReplicaRecord::EndedAtOnce);
        endpoint.withdraw(cx.common.service.port);
        endpoint.withdraw(cx.common.transfer.port);
        endpoint.end_calls(cx.local);
        self.fetches.clear();
    }

    fn answer(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, id: RequestId, answer: Answer) {
        let request = self.requests.remove(&id);
        let given = match answer {
            Answer::Reply(reply) => endpoint.reply(cx.local, id, reply).is_ok(),
            Answer::Refuse(reason) => {
                let is_reply = Reply::read(&reason).is_some();
                endpoint.refuse(cx.local, id, reason).is_ok() && is_reply
            }
            Answer::Forward(to) => {
                if let Err(ForwardError::TooFar { .. }) = endpoint.forward(id, to) {
                    _ = endpoint.refuse(cx.local, id, Bytes::from_static(b"passed on too often"));
                }
                false
            }
        };
        if given && let Some((client, call, kind)) = request {
            let name = (cx.recorder.names.life(client), call);
            let service = cx.common.service_of(self.service());
            cx.note(ReplicaRecord::Answered { service, name, confirmed: kind != Kind::LocalRead });
        }
    }

    // --- callers and newcomers ---

    fn take_request(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, request: Request) {
        if request.port == cx.common.transfer.port {
            let reply = self.answer_newcomer(cx, &request.payload);
            _ = endpoint.reply(cx.local, request.id, reply);
        } else {
            let kind = Copy::kind(&request.payload);
            self.requests.insert(request.id, (request.client, request.call, kind));
            self.replica.handle_request(cx.local, request);
        }
    }

    fn answer_newcomer(&mut self, cx: &mut Context<'_>, question: &Bytes) -> Bytes {
        if let Some(status) = self.replica.answer_status(question) {
            return status;
        }
        if question.first() == Some(&ASKS_FOR_PIECE) && cx.random.chance(cx.common.stumbles) {
            self.donor.forget();
        }
        let replica = &self.replica;
        let reply = self.donor.answer(question, || replica.snapshot());
        if reply.first() == Some(&IS_PIECE) && reply.len() > 1 && cx.random.chance(cx.common.spoils) {
            let mut spoiled = reply.to_vec();
            let place = cx.random.between(1, spoiled.len() as u64 - 1) as usize;
            spoiled[place] ^= 1 << cx.random.below(8);
            return spoiled.into();
        }
        reply
    }

    fn note_amounts(&mut self, cx: &mut Context<'_>) {
        let held = self.replica.account();
        let amounts = [
            ("clients", held.clients, CLIENTS_MAX),
            ("reply bytes", held.reply_bytes, BYTES_MAX),
            ("backlog bytes", held.backlog_bytes, BYTES_MAX),
            ("outputs", held.outputs, OUTPUTS_MAX),
        ];
        for (known, (what, used, max)) in self.held.iter_mut().zip(amounts) {
            // Records of small growth would be as frequent as messages.
            if used > 2 * *known || used > max {
                *known = used;
                let record = ReplicaRecord::Amount { what, used, max };
                cx.recorder.note(cx.now, cx.process, cx.life, What::Replica(Box::new(record)));
            }
        }
    }
}

/// First bytes of a newcomer's question for a piece, and of the reply that has it.
const ASKS_FOR_PIECE: u8 = 2;
const IS_PIECE: u8 = 4;

impl ReplicaSide {
    /// Takes the outputs of all parts and passes them on, until there are none.
    fn pump(&mut self, cx: &mut Context<'_>) {
        loop {
            let mut moved = self.take_endpoint(cx);
            if let Some(server) = &mut self.server {
                moved |= server.take_events(cx);
                moved |= server.take_outputs(cx, &mut self.endpoint);
                moved |= server.send_waiting(cx);
            }
            if !moved {
                break;
            }
        }
        if let Some(server) = &mut self.server {
            if std::mem::take(&mut server.sent_after_end) {
                cx.note(ReplicaRecord::SentAfterEnd);
            }
            server.note_amounts(cx);
        }
    }

    fn take_endpoint(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some((call, result)) = self.endpoint.poll_outcome() {
            moved = true;
            if let Some(id) = self.calls.remove(&call) {
                if result == Err(CallFailure::OtherInstance) {
                    self.endpoint.forget_instance(cx.local, cx.common.service.port);
                }
                cx.end_op(id, outcome_of_call(&result));
            } else if let Some(server) = &mut self.server
                && let Some(fetch) = server.fetches.remove(&call)
            {
                server.replica.handle_fetched(cx.local, fetch, result);
                server.note_steps(cx);
            }
        }
        let Some(server) = &mut self.server else { return moved };
        while cx.takes_events
            && let Some(request) = self.endpoint.poll_request(cx.local)
        {
            moved = true;
            server.take_request(cx, &mut self.endpoint, request);
        }
        while let Some((client, below)) = self.endpoint.poll_finished(cx.common.service.port) {
            moved = true;
            server.replica.handle_finished(cx.local, client, below);
        }
        moved
    }
}

impl Side for ReplicaSide {
    type Common = ReplicaCommon;
    type Birth = ReplicaBirth;

    fn begin(
        common: &ReplicaCommon,
        context: BirthContext,
        birth: ReplicaBirth,
    ) -> Result<ReplicaSide, ConfigError> {
        let mut context = context;
        let random = Random::from_u64(context.random.next_u64());
        let (protection, proof) = (Box::new(Seal), Box::new(CheapProof::HONEST));
        let mut endpoint = Endpoint::new(context.now, context.uid, birth.calls, protection, proof, random)?;
        let server = match birth.server {
            Some(birth) => {
                _ = endpoint.serve(common.transfer.private, common.transfer.options);
                Some(Box::new(Server::begin(common, &context, birth)?))
            }
            None => None,
        };
        Ok(ReplicaSide { endpoint, calls: BTreeMap::new(), server, multicast: common.multicast })
    }

    fn plant(&mut self, bug: Planted) {
        self.endpoint.plant(bug);
        if let Some(server) = &mut self.server {
            server.group.plant(bug);
            server.replica.plant(bug);
        }
    }

    fn probes(&self) -> u128 {
        let of_server = |server: &Server| server.group.probes() | server.replica.probes();
        self.endpoint.probes() | self.server.as_deref().map_or(0, of_server)
    }

    fn handle(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, path: Path) {
        let is_of_calls = Header::parse(&datagram).is_ok_and(|header| header.group == CALLS_TAG);
        match (&mut self.server, path) {
            (_, Path::Unicast) if is_of_calls => self.endpoint.handle_datagram(now, from, datagram),
            (_, Path::Multicast) if is_of_calls => self.endpoint.handle_multicast(now, from, datagram),
            (Some(server), Path::Unicast) => server.group.handle_datagram(now, from, datagram),
            (Some(server), Path::Multicast) => server.group.handle_multicast(now, from, datagram),
            (None, _) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        let Some(server) = &mut self.server else { return };
        if server.group.poll_timeout().is_some_and(|(at, _)| at <= now) {
            server.group.handle_timeout(now);
        }
        server.replica.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<(Time, impl fmt::Debug)> {
        let calls = self.endpoint.poll_timeout().map(|(at, _)| (at, "endpoint"));
        let server = self.server.as_deref();
        let group = server.and_then(|server| server.group.poll_timeout()).map(|(at, _)| (at, "group"));
        let replica = server.and_then(|server| server.replica.poll_timeout()).map(|at| (at, "replica"));
        let disk = server.and_then(|server| server.disk.as_ref()?.done_at()).map(|at| (at, "disk"));
        [calls, group, replica, disk].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Destination> {
        if let Some(server) = &mut self.server
            && let Some(destination) = server.group.poll_transmit(now, datagram)
        {
            server.sent_after_end |= server.group.has_ended();
            return Some(destination);
        }
        Some(match self.endpoint.poll_transmit(now, datagram)? {
            CallDestination::Address(address) => Destination::Address(address),
            CallDestination::Rendezvous(_) if self.multicast => Destination::Multicast,
            CallDestination::Rendezvous(_) => Destination::Rendezvous,
        })
    }

    fn audience(&self) -> (bool, &[SocketAddr]) {
        let Some(server) = &self.server else { return (false, &[]) };
        let audience = server.group.audience();
        (audience.multicast, &audience.addresses)
    }

    fn is_needed(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.group.phase() != Phase::Gone)
    }

    fn note(world: &mut World<ReplicaSide>, process: usize) {
        world.pump(process);
    }

    fn hand_out(world: &mut World<ReplicaSide>, process: usize) {
        world.pump(process);
    }

    fn may_have_more_output(&self) -> bool {
        true
    }
}

impl World<ReplicaSide> {
    /// Lets a side act, if a life runs on the process.
    fn with<T>(
        &mut self,
        process: usize,
        act: impl FnOnce(&mut ReplicaSide, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let World { processes, recorder, queue, common, random, now, .. } = self;
        let resident = processes[process].resident.as_mut()?;
        let mut cx = Context {
            now: *now,
            local: resident.clock.read(*now),
            process,
            life: resident.life,
            takes_events: resident.takes_events_from <= *now,
            recorder,
            queue,
            common,
            random,
        };
        let result = act(&mut resident.side, &mut cx);
        if let Some(server) = &resident.side.server {
            resident.is_over = server.over.is_some();
        }
        Some(result)
    }

    fn pump(&mut self, process: usize) {
        self.with(process, |side, cx| side.pump(cx));
    }

    // --- commands of applications ---

    fn begin_op(cx: &mut Context<'_>, name: (Uid, u64), mode: Mode, op: Op) -> OpId {
        let id = OpId(cx.common.ops_begun);
        cx.common.ops_begun += 1;
        let name = (cx.recorder.names.life(name.0), name.1);
        cx.note(ReplicaRecord::Begun { id, name, mode, op });
        id
    }

    /// Lets a client call the service.
    pub(crate) fn call_service(
        &mut self,
        process: usize,
        op: Op,
        mode: Mode,
        padding: usize,
        limit: Duration,
    ) -> Option<OpId> {
        if self.is_paused(process) {
            return None;
        }
        let kind = match mode {
            Mode::Command => Kind::Command,
            Mode::Read => Kind::Read,
            Mode::LocalRead => Kind::LocalRead,
        };
        let id = self.with(process, |side, cx| {
            let port = cx.common.service.port;
            let call = side.endpoint.call(cx.local, port, op.write(kind, padding), limit).ok()?;
            let id = Self::begin_op(cx, (side.endpoint.uid(), call), mode, op);
            side.calls.insert(call, id);
            Some(id)
        });
        self.drain(process);
        id.flatten()
    }

    /// Lets a server's own process give a command.
    pub(crate) fn command(
        &mut self,
        process: usize,
        op: Op,
        padding: usize,
        limit: Duration,
    ) -> Option<OpId> {
        self.with_copy(process, |server, cx| {
            let payload = op.write(Kind::Command, padding);
            let number = server.replica.command(cx.local, payload, cx.local + limit);
            let id = Self::begin_op(cx, (server.client, number), Mode::Command, op);
            server.own.commands.insert(number, id);
            id
        })
    }

    /// Lets a server's own process look at its state after a barrier.
    pub(crate) fn barrier(&mut self, process: usize, op: Op) -> Option<OpId> {
        let begun = self.with_copy(process, |server, cx| {
            let number = server.replica.barrier().ok()?;
            let id = Self::begin_op(cx, (server.client, barrier_number(number)), Mode::Read, op);
            server.own.barriers.insert(number, (id, op));
            Some(id)
        });
        begun.flatten()
    }

    fn with_copy<T>(
        &mut self,
        process: usize,
        act: impl FnOnce(&mut Server, &mut Context<'_>) -> T,
    ) -> Option<T> {
        if self.is_paused(process) {
            return None;
        }
        let result = self.with(process, |side, cx| {
            let server = side.server.as_deref_mut().filter(|server| server.over.is_none())?;
            Some(act(server, cx))
        });
        self.drain(process);
        result.flatten()
    }

    /// Lets a server's program end its copy: at once, or by a leave if `leaves` and the state does not go with it.
    pub(crate) fn end_server(&mut self, process: usize, leaves: bool) {
        if self.is_paused(process) {
            return;
        }
        self.with(process, |side, cx| {
            let Some(server) = side.server.as_deref_mut().filter(|server| server.over.is_none()) else {
                return;
            };
            if !server.replica.may_leave() {
                return;
            }
            server.replica.end();
            cx.note(ReplicaRecord::Out);
            server.take_outputs(cx, &mut side.endpoint);
            let has_left = leaves && server.group.leave(cx.local, Bytes::new()).is_ok();
            if !has_left {
                server.leave_service(cx, &mut side.endpoint);
            }
        });
        self.drain(process);
    }

    /// Lets a server that has not entered its group give up.
    pub(crate) fn give_up_entering(&mut self, process: usize) {
        self.with_copy(process, |server, cx| {
            if matches!(server.group.phase(), Phase::Locating | Phase::Joining) {
                // Its join may be in the order.
                cx.recorder.crashed.push(server.group.info().me);
                server.group.end(cx.local);
                server.end_part(cx, Over::JoinFailed);
            }
        });
    }

    /// True if this operation did not happen.
    pub(crate) fn did_not_happen(&self, id: u32) -> bool {
        self.common.not_happened.contains(&id)
    }

    /// Lets the disk of a server do its job, if it stalls.
    pub(crate) fn end_stall(&mut self, process: usize) {
        self.with(process, |side, cx| {
            if let Some(disk) = side.server.as_mut().and_then(|server| server.disk.as_mut()) {
                disk.go_on(cx.local);
            }
        });
        self.drain(process);
    }

    /// Makes the memory of a copy bad.
    pub(crate) fn corrupt(&mut self, process: usize) {
        self.with(process, |side, cx| {
            if let Some(server) = &side.server {
                server.watch.is_bad.set(true);
                cx.note(ReplicaRecord::Corrupted);
            }
        });
    }

    /// Takes what the next life of a server needs, and removes the life. `None` if it was no server.
    pub(crate) fn take_former(&mut self, process: usize) -> Option<Former> {
        let resident = self.processes[process].resident.as_ref()?;
        resident.side.server.as_ref()?;
        self.probes |= resident.side.probes();
        if resident.side.is_needed() {
            self.recorder.crashed.push(resident.uid);
        }
        let side = self.processes[process].resident.take()?.side;
        // The rest of the place is left as after a crash.
        self.retire(process);
        let server = *side.server?;
        Some(Former {
            replica: server.replica,
            watch: server.watch,
            client: server.client,
            own: server.own,
            disk: server.disk,
        })
    }

    /// Records a fact of the whole run.
    pub(crate) fn note_world(&mut self, record: ReplicaRecord) {
        self.recorder.note(self.now, 0, Life::WORLD, What::Replica(Box::new(record)));
    }

    /// Records where all copies are at the end of the run, and collects the probes.
    pub(crate) fn finish_replicas(&mut self) {
        for process in 0..self.processes.len() {
            self.with(process, |side, cx| {
                if let Some(server) = &side.server {
                    let at = server.place(cx).filter(|_| server.is_copy());
                    cx.note(ReplicaRecord::Final { at });
                }
            });
            if let Some(resident) = &self.processes[process].resident {
                self.probes |= resident.side.probes();
            }
        }
        let end = record::End { at: Time::from_nanos(self.now), standings: Vec::new() };
        self.recorder.finish(&end);
    }
}
