//! One member's side of one group: the parts, put together.
//!
//! No algorithm lives here. Who numbers is in `order`, what is kept in `history` and `hold`, who is known to hold
//! what in `stability`, repair in `repair`, the way of own messages in `flow`, and everything about members (views,
//! suspicion, joining, leaving, resets) in `membership`. `input` takes datagrams apart and hands frames to these
//! rooms, `storing` files what has its place, `output` packs what the rooms have to say, `audience` is who hears what
//! is meant for all. `commands` is what the application may ask for, `delivery` what it is given, `account` what is
//! told of the group, `watch` what judges look at.

mod account;
mod audience;
mod commands;
mod delivery;
mod input;
mod output;
mod storing;
mod types;
mod watch;

pub use audience::Audience;
pub use types::*;
pub use watch::*;

use crate::config::{GroupConfig, Settings};
use crate::error::ConfigError;
use crate::event::{Event, Outcome, resilience_among};
use crate::flow::Outbox;
use crate::fragment::Assembly;
use crate::history::History;
use crate::identity::{EpochId, EpochTag, GroupTag, Instance, Member, MessageNumber, Port, Seqno, Uid};
use crate::look::{Counters, LastReset};
use crate::membership::{
    Admission, Departures, Detector, Force, Formed, Forming, Halt, Joining, Leaving, PreviousEpoch, Recovery,
    Seek,
};
use crate::order::Order;
use crate::peers::Peers;
use crate::planted::Planted;
use crate::random::Random;
use crate::repair::Repair;
use crate::stability::Acknowledging;
use crate::time::Time;
use crate::unordered::UnorderedBuffer;
use crate::wire::{LogBase, Protection};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use output::Mail;
pub(crate) use output::Serve;

/// One member's protocol state for one group: a pure state machine.
///
/// Every method is of one of four kinds. `handle_…` takes what came from outside: a datagram, or the time that was
/// asked for. Commands are what the application wants: [`send`](Group::send), [`leave`](Group::leave),
/// [`reset`](Group::reset), [`hand_over`](Group::hand_over). `poll_…` gives what is to be done: after every input
/// and command, and after taking events, drain [`poll_transmit`](Group::poll_transmit) and
/// [`poll_sent`](Group::poll_sent), take from [`poll_event`](Group::poll_event) as much as the application wants
/// (what it leaves presses back on the senders), and come back by [`poll_timeout`](Group::poll_timeout). The rest
/// looks and changes nothing.
///
/// Time must never go back from one call to the next.
pub struct Group {
    pub(crate) me: Member,
    pub(crate) tag: GroupTag,
    pub(crate) settings: Settings,
    pub(crate) protection: Box<dyn Protection>,
    pub(crate) random: Random,

    pub(crate) phase: Phase,
    pub(crate) config: GroupConfig,
    pub(crate) instance: Instance,
    pub(crate) epoch: EpochId,
    pub(crate) epoch_tag: EpochTag,
    /// The place with which the epoch began.
    pub(crate) epoch_start: Seqno,
    /// When this member entered it.
    pub(crate) epoch_entered_at: Time,
    pub(crate) last_reset: Option<LastReset>,
    /// Who spoke last of a group of this name in a way that does not open.
    pub(crate) foreign: Option<SocketAddr>,
    /// Epochs and where they began, from that of the next entry to be delivered.
    pub(crate) epochs: VecDeque<(Seqno, EpochId)>,

    pub(crate) history: History,
    pub(crate) unordered: UnorderedBuffer,
    pub(crate) outbox: Outbox,
    pub(crate) peers: Peers,
    /// Everything through here is accepted.
    pub(crate) accepted: Seqno,
    /// Everything through here was given to the application.
    pub(crate) delivered: Seqno,
    assembly: Assembly,

    pub(crate) order: Order,
    pub(crate) repair: Repair,
    pub(crate) acknowledging: Acknowledging,
    pub(crate) detector: Detector,
    // What is large and there only for a while has a place of its own: each step asks whether it is there.
    pub(crate) joining: Option<Box<Joining>>,
    pub(crate) forming: Option<Box<Forming>>,
    /// The formation by which this member entered.
    pub(crate) formed: Option<Box<Formed>>,
    pub(crate) admission: Admission,
    pub(crate) seek: Option<Seek>,
    /// The place of this member's own join; 0 for a founder.
    pub(crate) entered_at: Seqno,
    pub(crate) leaving: Option<Leaving>,
    pub(crate) departures: Departures,
    pub(crate) recovery: Recovery,
    pub(crate) halt: Halt,
    pub(crate) force: Force,
    pub(crate) previous: Option<Box<PreviousEpoch>>,

    pub(crate) mail: VecDeque<Mail>,
    pub(crate) serves: VecDeque<Serve>,
    pub(crate) notices: VecDeque<Event>,
    /// This member's own leave is accepted.
    pub(crate) left: bool,
    /// The last event, once everything accepted is delivered.
    pub(crate) closing: Option<Event>,
    pub(crate) sent: VecDeque<(MessageNumber, Outcome)>,
    pub(crate) packet_number: u64,
    parcel_id: u32,
    /// Parcels from outside of any epoch, and whose they are.
    outside_parcels: (Uid, crate::wire::Assembler),
    audience: Audience,
    pub(crate) audience_is_stale: bool,
    /// The application took events since the last input.
    took_events: bool,
    wake: Option<(Time, Reason)>,
    /// Marks may have moved since somebody looked.
    pub(crate) moved: bool,

    pub(crate) counters: Counters,
    planted: Option<Planted>,
    probes: u128,
}

impl Group {
    /// A member that is about to found or join the group of `port`. `me.uid` must be fresh: 64 random bits that
    /// never named anybody before. `hello` is delivered to the others with the join.
    ///
    /// # Errors
    /// A parameter out of its range; nothing was done.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        now: Time,
        me: Member,
        port: Port,
        entry: EntryMode,
        hello: Bytes,
        settings: Settings,
        protection: Box<dyn Protection>,
        random: Random,
    ) -> Result<Group, ConfigError> {
        settings.check()?;
        if let EntryMode::Found(config) | EntryMode::JoinOrFound(config) | EntryMode::Form(_, config) = &entry
        {
            config.check()?;
        }
        if let EntryMode::Form(formation, config) = &entry {
            formation.check(&me.name, config)?;
        }
        crate::config::check(
            "hello",
            hello.len() as u64,
            crate::wire::GREETING_BYTES_MAX as u64,
            "at most 512 bytes",
        )?;
        let nowhere = LogBase { seqno: 0, members: Vec::new(), term: (0, Uid(0)), last_numbers: Vec::new() };
        let mut group = Group {
            tag: port.tag(),
            phase: Phase::Locating,
            config: GroupConfig::default(),
            instance: Instance(0),
            epoch: EpochId::default(),
            epoch_tag: EpochTag::OUTSIDE,
            epoch_start: 0,
            epoch_entered_at: now,
            last_reset: None,
            foreign: None,
            epochs: VecDeque::new(),
            history: History::new(&nowhere),
            unordered: UnorderedBuffer::default(),
            outbox: Outbox::new(settings.queued_bytes_max()),
            peers: Peers::default(),
            accepted: 0,
            delivered: 0,
            assembly: Assembly::default(),
            order: Order::default(),
            repair: Repair::default(),
            acknowledging: Acknowledging::default(),
            detector: Detector::default(),
            joining: None,
            forming: None,
            formed: None,
            admission: Admission::default(),
            seek: None,
            entered_at: 0,
            leaving: None,
            departures: Departures::default(),
            recovery: Recovery::default(),
            halt: Halt::default(),
            force: Force::default(),
            previous: None,
            mail: VecDeque::new(),
            serves: VecDeque::new(),
            notices: VecDeque::new(),
            left: false,
            closing: None,
            sent: VecDeque::new(),
            packet_number: 0,
            parcel_id: 0,
            outside_parcels: (Uid(0), crate::wire::Assembler::new()),
            audience: Audience::default(),
            audience_is_stale: true,
            took_events: false,
            wake: None,
            moved: true,
            counters: Counters::default(),
            planted: None,
            probes: 0,
            me,
            settings,
            protection,
            random,
        };
        group.admission.seed(&mut group.random);
        match entry {
            EntryMode::Found(config) => group.found(now, config, Bytes::new()),
            EntryMode::Join => group.look_for_group(now, None, hello),
            EntryMode::JoinOrFound(config) => group.look_for_group(now, Some(config), hello),
            EntryMode::Form(formation, config) => {
                let me = group.me.clone();
                let forming = Forming::new(now, me, formation, config, &group.settings, &mut group.random)?;
                group.forming = Some(Box::new(forming));
            }
        }
        group.settle(now);
        Ok(group)
    }

    /// What every input ends with: whatever follows from it by itself.
    pub(crate) fn settle(&mut self, now: Time) {
        (self.took_events, self.moved) = (false, true);
        let careless = || {
            self.broken(Planted::AcceptAfterPromise)
                || self.broken(Planted::NumberAfterPromise)
                || self.broken(Planted::StoreAfterPromise)
        };
        if matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining)
            || (self.phase == Phase::Resetting && careless())
        {
            self.history.advance();
            self.note_received(now);
            self.follow_the_role();
            self.take_role(now);
            self.accept(now);
            self.purge_and_number(now);
            self.ask_for_gaps(now);
        }
        if self.phase == Phase::Resetting {
            self.purge();
        }
        if self.audience_is_stale {
            self.rebuild_audience();
        }
        self.wake = self.next_wake();
    }

    fn next_wake(&self) -> Option<(Time, Reason)> {
        if self.phase == Phase::Gone {
            return None;
        }
        let mut next = None;
        let mut consider = |at: Option<Time>, reason| {
            if let Some(at) = at
                && next.is_none_or(|(earliest, _)| at < earliest)
            {
                next = Some((at, reason));
            }
        };
        consider(self.joining.as_deref().map(Joining::wake_at), Reason::Join);
        consider(self.seek.as_ref().map(Seek::wake_at), Reason::Locate);
        consider(self.forming.as_deref().map(Forming::wake_at), Reason::Form);
        consider(self.formed.as_deref().and_then(Formed::wake_at), Reason::Form);
        consider(self.leaving.as_ref().and_then(Leaving::wake_at), Reason::Leave);
        consider(self.order.heartbeat_at(), Reason::Heartbeat);
        consider(self.repair.wake_at(), Reason::Nack);
        consider(self.outbox.resend_at(), Reason::Resend);
        consider(self.detector.wake_at(), Reason::Detector);
        consider(self.recovery.wake_at(), Reason::Reset);
        consider(self.previous.as_deref().and_then(PreviousEpoch::wake_at), Reason::Linger);
        next
    }

    // --- what the rooms ask each other ---

    /// This member is in the view at the end of its log.
    pub(crate) fn is_member(&self) -> bool {
        self.is_in_view(self.me.uid)
    }

    /// `uid` is.
    pub(crate) fn is_in_view(&self, uid: Uid) -> bool {
        self.history.view().iter().any(|member| member.uid == uid)
    }

    /// Some peer, whichever.
    pub(crate) fn anybody(&mut self) -> Option<Uid> {
        let index = self.random.below(self.peers.len().max(1) as u64) as usize;
        self.peers.iter().nth(index).map(|peer| peer.member.uid)
    }

    /// The group's resilience, held to members − 1 of a view of `members`.
    pub(crate) fn resilience_in(&self, members: usize) -> u8 {
        resilience_among(self.config.resilience, members)
    }
}
