//! One member's side of one group. This module connects the modules that contain the algorithms.
//!
//! [`Group`] is the state of all modules together. `ordering` assigns seqnos, `log` keeps messages,
//! `peers` knows which members hold which entries, `stability` what follows from that, `repair` requests lost entries,
//! `flow` sends own messages, and `membership` handles views, suspicion, joins, leaves and resets.
//!
//! The files of this directory connect them. `input` decodes datagrams and gives their frames to the modules, `storing`
//! files entries that have a seqno, `output` packs frames into datagrams, and `audience` has how a datagram reaches
//! all members computed anew. `commands` has the application's operations, `delivery` its events, `account` the reports
//! about the group, and `watch` the state that checkers read.

mod account;
mod audience;
mod commands;
mod delivery;
mod input;
mod output;
mod storing;
mod types;
mod watch;

pub use types::*;
pub use watch::*;

use crate::config::{GroupConfig, Settings};
use crate::episode::Episodes;
use crate::error::ConfigError;
use crate::event::{Event, Outcome, resilience_among};
use crate::flow::Outbox;
use crate::identity::{EpochId, EpochTag, GroupTag, Instance, Member, MessageNumber, Port, Seqno, Uid};
use crate::log::Log;
use crate::look::{Counters, LastReset};
use crate::membership::{
    Admission, Confirming, Departures, Ending, Force, Formed, Forming, Halt, Joining, Leaving, Otherwise,
    PreviousEpoch, Recovery, Scope, Seek,
};
use crate::notes::Notes;
use crate::ordering::{Acknowledging, Early, Order};
use crate::peers::{Addressing, Detector, Peers};
use crate::planted::Planted;
use crate::random::Random;
use crate::repair::Repair;
use crate::time::Time;
use crate::unreliable::Unreliable;
use crate::versions::OtherVersions;
use crate::wire::Protection;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use bytes::Bytes;
use core::net::SocketAddr;
use output::Mail;
pub(crate) use output::Serve;

/// One member's protocol state for one group: a pure state machine.
///
/// The methods are of four kinds:
///
/// - `handle_…` takes input: a datagram, or a timeout.
/// - Commands come from the application: [`send`](Group::send), [`leave`](Group::leave), [`reset`](Group::reset),
///   [`hand_over`](Group::hand_over), [`confirm`](Group::confirm), [`end`](Group::end).
/// - `poll_…` returns output. After every input and command, and after taking events, call
///   [`poll_transmit`](Group::poll_transmit), [`poll_sent`](Group::poll_sent) and
///   [`poll_confirmed`](Group::poll_confirmed) until they return nothing. Call
///   [`poll_event`](Group::poll_event) as long as the application takes events; events that it does not take slow down
///   the senders. Then wait for input, or until [`poll_timeout`](Group::poll_timeout).
/// - The other methods read, and change nothing.
///
/// `now`, the time that a method takes, must never be earlier than in the call before.
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
    /// Seqno with which the epoch began.
    pub(crate) epoch_start: Seqno,
    /// Time when this member entered the epoch.
    pub(crate) epoch_entered_at: Time,
    pub(crate) last_reset: Option<LastReset>,
    /// Source of the last datagram of a group of this name that cannot be opened with this member's key.
    pub(crate) foreign: Option<SocketAddr>,
    pub(crate) other_versions: OtherVersions,
    /// Epochs, each with the seqno at which it began, oldest first. The first one is the epoch of the next entry to
    /// deliver.
    pub(crate) epochs: VecDeque<(Seqno, EpochId)>,

    pub(crate) log: Log,
    pub(crate) outbox: Outbox,
    pub(crate) unreliable: Unreliable,
    pub(crate) notes: Notes,
    pub(crate) early: Early,
    pub(crate) peers: Peers,
    pub(crate) scope: Scope,

    pub(crate) order: Order,
    pub(crate) repair: Repair,
    pub(crate) acknowledging: Acknowledging,
    pub(crate) detector: Detector,
    // Large parts that exist only for a while are boxed, because each step checks whether they exist.
    pub(crate) joining: Option<Box<Joining>>,
    pub(crate) forming: Option<Box<Forming>>,
    /// The formation by which this member entered.
    pub(crate) formed: Option<Box<Formed>>,
    pub(crate) admission: Admission,
    pub(crate) seek: Option<Seek>,
    /// Seqno of this member's own JOIN; 0 for a founder, which has none.
    pub(crate) entered_at: Seqno,
    /// Seqno of the JOIN with which this member came that has fetched the state since then.
    pub(crate) state_for: Option<Seqno>,
    pub(crate) leaving: Option<Leaving>,
    pub(crate) departures: Departures,
    pub(crate) recovery: Recovery,
    pub(crate) halt: Halt,
    pub(crate) force: Force,
    pub(crate) confirming: Confirming,
    pub(crate) ending: Ending,
    pub(crate) previous: Option<Box<PreviousEpoch>>,

    /// Frames that wait to be sent.
    pub(crate) mail: VecDeque<Mail>,
    /// Entries of the log that wait to be sent to one address each, as answers to requests.
    pub(crate) serves: VecDeque<Serve>,
    /// Events that come from no log entry (`Early`, `Suspected`, `Conflict`, `ResetAhead`, the `Entered` of a founder); they are
    /// delivered before all others.
    pub(crate) notices: VecDeque<Event>,
    /// Episodes that the driver has not taken yet.
    pub(crate) episodes: Episodes,
    /// True if this member's own leave is accepted.
    pub(crate) left: bool,
    /// The last event of this member; returned once every accepted entry is delivered.
    pub(crate) closing: Option<Event>,
    /// Outcomes of own messages that `poll_sent` has not returned yet.
    pub(crate) sent: VecDeque<(MessageNumber, Outcome)>,
    pub(crate) packet_number: u64,
    parcel_id: u32,
    /// Parcels of an unfinished frame from outside of any epoch, and their sender.
    outside_parcels: (Uid, crate::wire::Assembler),
    addressing: Addressing,
    /// True if the application took events since the last input.
    took_events: bool,
    /// When `handle_timeout` is to be called next, and why.
    wake: Option<(Time, Reason)>,
    /// True if [`Group::marks`] may have changed since checkers read them.
    pub(crate) moved: bool,

    pub(crate) counters: Counters,
    /// Rule that the simulator breaks on purpose; no rule is broken in a real member.
    planted: Option<Planted>,
    /// Rare states that this member has been in, one bit each; recorded only in the simulator.
    probes: u128,
}

impl Group {
    /// Returns a process that begins to found, join or form the group of `port`. `me.uid` must be fresh: 64 random bits
    /// that never named any member before; its floor and hops are those of `settings`. The join delivers `hello` to the other members.
    ///
    /// # Errors
    /// A parameter is out of its range; nothing was done.
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
        if let EntryMode::Found(config)
        | EntryMode::JoinOrFound(config)
        | EntryMode::Form(_, config)
        | EntryMode::JoinOrForm(_, config) = &entry
        {
            config.check()?;
            crate::membership::check_floor(settings.floor, &me.name, config)?;
        }
        if let EntryMode::Form(formation, config) | EntryMode::JoinOrForm(formation, config) = &entry {
            formation.check(&me.name, config)?;
        }
        crate::config::check(
            "hello",
            hello.len() as u64,
            crate::wire::GREETING_BYTES_MAX as u64,
            "at most 512 bytes",
        )?;
        let me = Member { floor: settings.floor, hops: settings.hops, ..me };
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
            other_versions: OtherVersions::default(),
            epochs: VecDeque::new(),
            log: Log::nowhere(),
            outbox: Outbox::new(settings.queued_bytes_max()),
            unreliable: Unreliable::default(),
            notes: Notes::default(),
            early: Early::default(),
            peers: Peers::default(),
            scope: Scope::default(),
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
            state_for: None,
            leaving: None,
            departures: Departures::default(),
            recovery: Recovery::default(),
            halt: Halt::default(),
            force: Force::default(),
            confirming: Confirming::new(me.uid),
            ending: Ending::default(),
            previous: None,
            mail: VecDeque::new(),
            serves: VecDeque::new(),
            notices: VecDeque::new(),
            episodes: Episodes::default(),
            left: false,
            closing: None,
            sent: VecDeque::new(),
            packet_number: 0,
            parcel_id: 0,
            outside_parcels: (Uid(0), crate::wire::Assembler::new()),
            addressing: Addressing::default(),
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
            EntryMode::Join => group.look_for_group(now, Otherwise::Fail, hello),
            EntryMode::JoinOrFound(config) => group.look_for_group(now, Otherwise::Found(config), hello),
            EntryMode::Form(formation, config) => {
                let me = group.me.clone();
                let forming = Forming::new(now, me, formation, config, &group.settings, &mut group.random)?;
                group.forming = Some(Box::new(forming));
            }
            EntryMode::JoinOrForm(formation, config) => {
                group.join_or_form(now, formation, config, hello)?;
            }
        }
        group.settle(now);
        Ok(group)
    }

    /// Called at the end of every input and command. Acknowledges, accepts, numbers, frees and requests entries as the
    /// new state allows, and computes the next timeout.
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
            self.log.advance();
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
        if self.confirming.is_asked() {
            self.go_on_confirming(now);
        }
        self.ask_to_switch(now);
        if self.audience_is_stale() {
            self.rebuild_audience(now);
        }
        self.wake = self.next_wake();
    }

    /// Computes the next timeout anew, since a part has another deadline.
    pub(crate) fn schedule(&mut self) {
        self.wake = self.next_wake();
    }

    /// Returns the earliest deadline of all parts, and the reason for it.
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
        consider(self.confirm_at(), Reason::Confirm);
        consider(self.switch_at(), Reason::Switch);
        consider(self.note_at(), Reason::Note);
        consider(self.previous.as_deref().and_then(PreviousEpoch::wake_at), Reason::Linger);
        next
    }

    // --- queries of the modules ---

    /// True if this member is in the view at the end of its log.
    pub(crate) fn is_member(&self) -> bool {
        self.is_in_view(self.me.uid)
    }

    /// True if `uid` is in the view at the end of this member's log.
    pub(crate) fn is_in_view(&self, uid: Uid) -> bool {
        self.log.history().view().iter().any(|member| member.uid == uid)
    }

    /// Returns a random peer.
    pub(crate) fn random_peer(&mut self) -> Option<Uid> {
        let index = self.random.below(self.peers.len().max(1) as u64) as usize;
        self.peers.iter().nth(index).map(|peer| peer.uid())
    }

    /// Returns the resilience in a view of `members`: that of the group, at most members − 1.
    pub(crate) fn resilience_in(&self, members: usize) -> u8 {
        resilience_among(self.config.resilience, members)
    }
}
