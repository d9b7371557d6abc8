//! A server: a member of the group with a copy of the state, and perhaps a disk.

use super::birth::Own;
use super::context::{Context, digest};
use super::watching::Desk;
use super::{DiskBirth, EffectKind, ReplicaCommon, ServerBirth};
use crate::bugs::Planted;
use crate::directory::Directory;
use crate::record::{
    ClaimSeen, DirectoryRecord, LockLine, LockStep, Place, ReplicaRecord, Stop, Trail, What,
};
use crate::replica::{Copy, Objects, State, Stepped, Watch};
use crate::seal::Seal;
use crate::world::BirthContext;
use crate::world::disk::DiskInUse;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::locks::LockClaim;
use unisono_core::replica::{Donor, FetchNumber, Kind, Replica, ReplicaSettings};
use unisono_core::rpc::{CallNumber, Endpoint, RequestId};
use unisono_core::{ConfigError, EntryMode, EpochTag, Group, Instance, Member, Quality, Time, Uid};

/// Maximum bytes of remembered replies, of waiting commands and of waiting events, and maximum number of clients, as the core promises.
const BYTES_MAX: usize = 64 << 20;
const CLIENTS_MAX: usize = 1 << 18;
/// Maximum number of executed commands that are remembered.
const COMMANDS_MAX: usize = 1 << 20;
/// Outputs that a copy may have for its driver; all are taken after each input.
const OUTPUTS_MAX: usize = 0;

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
    pub(super) watch: Rc<Watch>,
    /// Uid under which the commands of this process are remembered.
    pub(super) client: Uid,
    pub(super) donor: Donor,
    pub(super) own: Own,
    pub(crate) disk: Option<DiskInUse>,
    /// Messages that the group has not taken yet.
    pub(super) to_send: VecDeque<(Bytes, Quality)>,
    /// Questions about the state that have no outcome yet.
    pub(super) fetches: BTreeMap<CallNumber, FetchNumber>,
    /// Requests that the copy has: client, number, and how they are treated.
    pub(super) requests: BTreeMap<RequestId, Waiting>,
    pub(super) desk: Desk,
    pub(super) address: SocketAddr,
    pub(super) wants_confirmation: bool,
    pub(crate) over: Option<Over>,
    /// How this life entered.
    pub(crate) entry: EntryMode,
    /// True while callers are served.
    pub(super) serves: bool,
    pub(super) epoch: EpochTag,
    pub(super) epoch_counter: u64,
    pub(super) instance: Instance,
    /// Why the copy has stopped by itself.
    pub(crate) stop: Option<Stop>,
    /// True if it sent a datagram of the group after its life had ended, and that was not recorded.
    pub(super) sent_after_end: bool,
    /// The highest amounts recorded.
    pub(super) held: [usize; 7],
    /// Fence of the last lock that this member got.
    pub(super) last_fence: u64,
    /// Seqno of the last event.
    pub(super) last_seqno: u64,
    /// Until when it works on the request that it took last.
    works_until: Time,
    /// The holders of handlers, and the members, as they were last recorded.
    handlers: (Vec<(u8, Uid)>, Vec<Uid>),
}

/// Returns what a new copy has.
fn state(common: &ReplicaCommon, server: Uid) -> State {
    match common.directory {
        Some(limits) => State::Directory(Box::new(Directory::new(limits, common.planted, server.0))),
        None => {
            let mut objects = Objects::with_ballast(common.ballast);
            objects.locks_mut().plant(common.planted.and_then(Planted::of_core));
            State::Objects(Box::new(objects))
        }
    }
}

/// Returns the name of a handler.
pub(super) fn handler_word(handler: u8) -> String {
    format!("handler-{}", char::from(b'a' + handler))
}

/// Returns the number of a handler.
pub(super) fn handler_number(word: &str) -> u8 {
    word.bytes().last().unwrap_or_default() - b'a'
}

/// A request that the copy has.
pub(super) struct Waiting {
    pub(super) client: Uid,
    pub(super) call: CallNumber,
    pub(super) kind: Kind,
    pub(super) payload: Bytes,
    /// The handler that it names.
    pub(super) handler: Option<u8>,
    /// When it arrived, by the process's clock, and at which moment of all servers.
    pub(super) arrived: Time,
    pub(super) moment: u64,
}

impl Server {
    pub(super) fn begin(
        common: &ReplicaCommon,
        context: &BirthContext,
        birth: ServerBirth,
    ) -> Result<Server, ConfigError> {
        let ServerBirth {
            entry,
            settings,
            durability,
            message_bytes_max,
            members_min,
            names,
            window,
            handlers,
            disk,
            former,
        } = birth;
        let me = Member {
            uid: context.uid,
            name: context.name.clone(),
            address: context.address,
            floor: Default::default(),
            hops: 1,
        };
        let (now, mut random) = (context.now, context.random.clone());
        // Not the uid of the endpoint, whose calls have numbers of their own.
        let client = Uid(random.next_u64());
        let of_replica = ReplicaSettings {
            client,
            durability,
            message_bytes_max,
            members_min,
            names,
            window,
            quorums_intersect: true,
            digest,
        };
        let group =
            Group::new(now, me, common.group, entry.clone(), Bytes::new(), settings, Box::new(Seal), random)?;
        let (mut replica, watch, client, own, disk) = match (former, disk) {
            (Some(former), _) => {
                let replica = former.replica.into_next(context.uid);
                (replica, former.watch, former.client, former.own, former.disk)
            }
            (None, Some(DiskBirth { disk, start })) => {
                let watch = Rc::new(Watch::default());
                let copy = Copy::new(state(common, context.uid), Rc::clone(&watch));
                let replica = Replica::with_disk(context.uid, copy, of_replica, &start);
                let replica = replica.unwrap_or_else(|reason| panic!("a disk cannot be restored: {reason}"));
                (replica, watch, client, Own::default(), Some(disk))
            }
            (None, None) => {
                let watch = Rc::new(Watch::default());
                let replica = Replica::new(
                    context.uid,
                    Copy::new(state(common, context.uid), Rc::clone(&watch)),
                    of_replica,
                );
                (replica, watch, client, Own::default(), None)
            }
        };
        handlers.iter().for_each(|handler| _ = replica.claim_handler(&handler_word(*handler)));
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
            desk: Desk::default(),
            address: context.address,
            wants_confirmation: false,
            over: None,
            entry,
            serves: false,
            epoch: EpochTag::OUTSIDE,
            epoch_counter: 0,
            instance: Instance(0),
            stop: None,
            sent_after_end: false,
            held: [0; 7],
            last_fence: 0,
            last_seqno: 0,
            works_until: Time::ZERO,
            handlers: (Vec::new(), Vec::new()),
        })
    }

    /// Notes who holds which handler, if that or the members have changed.
    fn note_handlers(&mut self, cx: &mut Context<'_>) {
        let holders = self.replica.handler_holders();
        if self.over.is_some() || holders.is_empty() && self.handlers.0.is_empty() {
            return;
        }
        let holders = holders.into_iter().map(|(word, holder)| (handler_number(word), holder)).collect();
        let view = self.replica.view();
        let members = view.iter().flat_map(|view| &view.members).map(|member| member.uid).collect();
        if self.handlers == (Vec::clone(&holders), Vec::clone(&members)) {
            return;
        }
        let epoch = view.map_or_else(Default::default, |view| view.epoch);
        let (service, epoch) = (cx.common.service_of(self.service()), cx.recorder.names.epoch(epoch));
        let names = &mut cx.recorder.names;
        let of_lives = holders.iter().map(|(handler, holder)| (*handler, names.life(*holder))).collect();
        let lives = members.iter().map(|member| names.life(*member)).collect();
        self.handlers = (holders, members);
        let (holders, members, seqno) = (of_lives, lives, self.last_seqno);
        cx.note(ReplicaRecord::Handlers { service, epoch, seqno, holders, members });
    }

    /// Returns when a watch gets an empty answer.
    pub(super) fn watches_due_at(&self) -> Option<Time> {
        let answers = self.is_copy() && self.replica.machine().is_some();
        answers.then(|| self.desk.due_at()).flatten()
    }

    /// True if it may take a request now.
    pub(super) fn may_work(&self, now: Time) -> bool {
        self.works_until <= now
    }

    /// Notes that it took a request, on which it works for a while.
    pub(super) fn note_work(&mut self, now: Time, takes: Duration) {
        if takes > Duration::ZERO {
            self.works_until = now + takes;
        }
    }

    pub(super) fn end_work(&mut self, now: Time) {
        if self.may_work(now) {
            self.works_until = Time::ZERO;
        }
    }

    /// Returns when it may take the next request, if it works now.
    pub(super) fn works_until(&self) -> Option<Time> {
        (self.works_until > Time::ZERO).then_some(self.works_until)
    }

    /// True if this process is a member that has the state.
    pub(crate) fn is_copy(&self) -> bool {
        self.serves && self.over.is_none()
    }

    /// Returns the instance of the service: that of the disk, or of the group.
    pub(super) fn service(&self) -> Instance {
        match self.replica.service() {
            0 => self.group.instance(),
            service => Instance(service),
        }
    }

    /// Returns where the copy is.
    pub(super) fn place(&self, cx: &mut Context<'_>) -> Option<Place> {
        let machine = self.replica.machine()?;
        Some(self.place_at(cx, self.replica.position(), machine.trail()))
    }

    pub(super) fn place_at(&self, cx: &mut Context<'_>, position: u64, trail: Trail) -> Place {
        let epoch = self.replica.view().map_or_else(Default::default, |view| view.epoch);
        let epoch = cx.recorder.names.epoch(epoch);
        let (service, generation) = (cx.common.service_of(self.service()), self.replica.generation());
        Place { service, generation, epoch, position, trail }
    }

    /// Notes what the copy has when it begins to serve.
    pub(super) fn note_replayed(&mut self, cx: &mut Context<'_>, at: Place) {
        let (Some(machine), Some(chain)) = (self.replica.machine(), self.replica.chain()) else { return };
        let outcomes = chain.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let (values, is_directory) = (machine.values(), machine.directory().is_some());
        cx.note(ReplicaRecord::Replayed { at, values, outcomes });
        if is_directory {
            cx.note_of_directory(DirectoryRecord::Serves { at, remembered: self.replica.account().commands });
        }
    }

    pub(super) fn note_steps(&mut self, cx: &mut Context<'_>) {
        self.note_handlers(cx);
        let steps = std::mem::take(&mut *self.watch.steps.borrow_mut());
        for step in steps {
            let at = self.place_at(cx, step.position, step.trail);
            let locks = step.locks.map(|(lines, members)| {
                let names = &mut cx.recorder.names;
                let members = members.into_iter().map(|member| names.life(member)).collect();
                let mut seen = |claim: LockClaim| {
                    let LockClaim { number, member, fence } = claim;
                    ClaimSeen { number, member: names.life(member), fence }
                };
                let lines = lines.into_iter().map(|(name, claims)| LockLine {
                    name,
                    claims: claims.into_iter().map(&mut seen).collect(),
                });
                let lines = lines.collect();
                let lock_step = match &step.what {
                    Stepped::Applied { op, reply, .. } => LockStep::Applied(*op, *reply),
                    Stepped::Members => LockStep::Members(members),
                    Stepped::Restored => LockStep::Restored,
                };
                ReplicaRecord::Locks { at, step: lock_step, lines }
            });
            let record = match step.what {
                Stepped::Applied { client, call, op, reply, content } => {
                    let name = (cx.recorder.names.life(client), call);
                    cx.note_effect(EffectKind::Applies);
                    if let Some((request, reply)) = content {
                        cx.note_of_directory(DirectoryRecord::Applied { at, name, request, reply });
                    }
                    ReplicaRecord::Applied { at, name, op, reply }
                }
                Stepped::Members => ReplicaRecord::Members(at),
                Stepped::Restored => ReplicaRecord::Restored(at),
            };
            cx.note(record);
            if let Some(locks) = locks {
                self.count_locks(cx, &locks);
                cx.note(locks);
            }
        }
    }

    /// Counts the locks that this member has got.
    fn count_locks(&mut self, cx: &mut Context<'_>, record: &ReplicaRecord) {
        let ReplicaRecord::Locks { lines, .. } = record else { return };
        let mine = |claim: &&ClaimSeen| claim.member == cx.life;
        let fences = lines.iter().flat_map(|line| &line.claims).filter(mine).filter_map(|claim| claim.fence);
        let last = self.last_fence;
        let new: Vec<u64> = fences.filter(|fence| *fence > last).collect();
        cx.recorder.totals.locks += new.len() as u64;
        self.last_fence = new.into_iter().fold(last, u64::max);
    }

    pub(super) fn note_amounts(&mut self, cx: &mut Context<'_>, endpoint: &Endpoint) {
        let held = self.replica.account();
        let half = usize::from(cx.common.service.options.queue_max);
        let amounts = [
            ("clients", held.clients, CLIENTS_MAX),
            ("reply bytes", held.reply_bytes, BYTES_MAX),
            ("commands", held.commands, COMMANDS_MAX),
            ("waiting bytes", held.waiting_bytes, BYTES_MAX),
            ("backlog bytes", held.backlog_bytes, BYTES_MAX),
            ("outputs", held.outputs, OUTPUTS_MAX),
            // It gets a quarter of what is left, which is another half at most.
            ("places of an address", endpoint.account().share_places, half / 4),
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
