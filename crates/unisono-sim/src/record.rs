//! What a simulated run leaves behind: one record for each thing that happened, in the order in which it happened.
//!
//! The runner writes, [`crate::properties`] judge. Three kinds of things are recorded: what applications did and
//! were told (black box), how far each member's marks moved after each input (white box), and what the world did to
//! them (crashes, pauses, faults). The order of records is the simulator's global order, which no member knows.
//!
//! Lives and epochs are counted from 0 in the order in which the run first names them ([`Names`]), so that a
//! property can keep what it knows of them in a `Vec`. The frequent records are small and own nothing.

use unisono_core::{
    Ballot, EpochId, EpochTag, Event, JoinFailure, Marks, MessageNumber, Name, Outcome, Phase,
};
use unisono_core::{Seqno, Suspicion, Time, Uid};

/// One life of one member, counted in the order in which the run names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u32);

impl Life {
    /// Nobody: the life of records that concern the world.
    pub const NOBODY: Life = Life(u32::MAX);

    /// Its place in a table of lives.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An epoch, counted in the order in which the run names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Its place in a table of epochs.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who is which [`Life`], and what is which [`Epoch`]. One for a run, kept by the runner.
#[derive(Clone, Debug, Default)]
pub struct Names {
    lives: Vec<Uid>,
    /// The same in the order of uids.
    sorted: Vec<(Uid, Life)>,
    /// Those asked for last, by their lowest bits.
    recent: [Option<(Uid, Life)>; RECENT],
    epochs: Vec<EpochId>,
    tags: Vec<(EpochTag, Epoch)>,
}

const RECENT: usize = 16;

impl Names {
    /// The life of this uid.
    #[inline]
    pub fn life(&mut self, uid: Uid) -> Life {
        let recent = uid.0 as usize % RECENT;
        match self.recent[recent] {
            Some((known, life)) if known == uid => life,
            _ => {
                let life = self.find_life(uid);
                self.recent[recent] = Some((uid, life));
                life
            }
        }
    }

    fn find_life(&mut self, uid: Uid) -> Life {
        match self.sorted.binary_search_by_key(&uid, |(known, _)| *known) {
            Ok(place) => self.sorted[place].1,
            Err(place) => {
                let life = Life(self.lives.len() as u32);
                self.lives.push(uid);
                self.sorted.insert(place, (uid, life));
                life
            }
        }
    }

    /// The epoch of this id.
    pub fn epoch(&mut self, id: EpochId) -> Epoch {
        let index = self.epochs.iter().rposition(|known| *known == id).unwrap_or_else(|| {
            self.epochs.push(id);
            self.epochs.len() - 1
        });
        Epoch(index as u32)
    }

    /// The epoch of this tag; `id` is asked (of the member whose marks bear the tag) the first time it is met.
    pub fn epoch_of_tag(&mut self, tag: EpochTag, id: impl FnOnce() -> EpochId) -> Epoch {
        match self.tags.iter().rev().find(|(known, _)| *known == tag) {
            Some((_, epoch)) => *epoch,
            None => {
                let epoch = self.epoch(id());
                self.tags.push((tag, epoch));
                epoch
            }
        }
    }

    /// How many lives were named so far.
    pub fn lives(&self) -> usize {
        self.lives.len()
    }

    /// The uid of a life; nothing for [`Life::NOBODY`].
    pub fn uid(&self, life: Life) -> Option<Uid> {
        self.lives.get(life.index()).copied()
    }

    /// A view of the core's, in these terms.
    pub fn view(&mut self, view: &unisono_core::View) -> View {
        View {
            epoch: self.epoch(view.epoch),
            counter: view.epoch.counter,
            coordinator: self.life(view.epoch.coordinator),
            members: view.members.iter().map(|member| self.life(member.uid)).collect(),
            orderer: self.life(view.orderer),
            resilience: view.resilience,
        }
    }

    /// A message that was delivered, as a record says it.
    #[inline]
    pub fn delivered(&mut self, seqno: Seqno, sender: Uid, number: MessageNumber, payload: &[u8]) -> What {
        What::Delivered { seqno, sender: self.life(sender), number, hash: hash(payload) }
    }

    /// What the application was told, as a record says it.
    pub fn event(&mut self, event: &Event) -> What {
        match event {
            Event::Entered { seqno, view } => {
                What::Entered { seqno: *seqno, view: Box::new(self.view(view)) }
            }
            Event::Message { seqno, sender, number, payload } => {
                self.delivered(*seqno, *sender, *number, payload)
            }
            Event::Joined { seqno, member, members, .. } => {
                What::Joined { seqno: *seqno, member: self.life(member.uid), members: *members as u32 }
            }
            Event::Left { seqno, member, members, .. } => {
                What::Left { seqno: *seqno, member: self.life(member.uid), members: *members as u32 }
            }
            Event::HandedOver { seqno, orderer } => {
                What::HandedOver { seqno: *seqno, orderer: self.life(*orderer) }
            }
            Event::Reset { seqno, view, excluded, degraded } => What::Reset(Box::new(Reset {
                seqno: *seqno,
                view: self.view(view),
                excluded: excluded.iter().map(|member| self.life(member.uid)).collect(),
                degraded: *degraded,
            })),
            Event::Suspected { member, reason } => {
                What::Suspected { member: self.life(*member), reason: *reason }
            }
            Event::Excluded { epoch } => What::Excluded { epoch: epoch.map(|id| self.epoch(id)) },
            Event::Gone => What::Gone,
            Event::JoinFailed { reason } => What::JoinFailed { reason: Box::new(*reason) },
            Event::Conflict { .. } => What::Conflict,
        }
    }
}

/// Tells payloads apart: eight bytes at a time, no promise against malice.
pub fn hash(payload: &[u8]) -> u64 {
    let mut hash = payload.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = payload.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    if rest.is_empty() {
        return hash;
    }
    let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(hash, last)
}

/// One step of a rolling hash.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// At which process; a process may live several lives, one after the other.
    pub process: u32,
    /// In which life of it; [`Life::NOBODY`] for what the world did.
    pub life: Life,
    /// What.
    pub what: What,
}

/// What happened. Records of one life come in the order of its application's calls and events; after each input the
/// runner writes the changes of its marks first, then results of sends, then the events it takes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    // --- what applications did ---
    /// A life began: it founds or seeks a group.
    Started {
        /// Under this name.
        name: Name,
    },
    /// A message was taken.
    Sent {
        /// Its number (of its last piece). The pieces before it have the numbers since the last message's.
        number: MessageNumber,
        /// How many crashes it asks to survive; the group's resilience holds if that is more.
        resilience: u8,
        /// Of the payload.
        hash: u64,
        /// Of the payload.
        bytes: u32,
    },
    /// The application asked to leave.
    LeaveAsked,
    /// The application asked for a reset.
    ResetAsked {
        /// Its floor on the size of the next view.
        members_min: u32,
    },
    /// The application asked that the role of orderer go to another member, and was not refused.
    HandOverAsked {
        /// To whom.
        successor: Life,
    },

    // --- what applications were told ---
    /// What became of a message.
    SendResult {
        /// Its number.
        number: MessageNumber,
        /// What.
        outcome: Outcome,
    },
    /// First event of a member.
    Entered {
        /// Place of its join; 0 for a founder.
        seqno: Seqno,
        /// What it finds.
        view: Box<View>,
    },
    /// A message was delivered.
    Delivered {
        /// Its place (of its last piece).
        seqno: Seqno,
        /// Its sender.
        sender: Life,
        /// Its number (of its last piece).
        number: MessageNumber,
        /// Of the payload.
        hash: u64,
    },
    /// A member joined.
    Joined {
        /// Place.
        seqno: Seqno,
        /// Who.
        member: Life,
        /// Members from here on.
        members: u32,
    },
    /// A member left.
    Left {
        /// Place.
        seqno: Seqno,
        /// Who.
        member: Life,
        /// Members from here on.
        members: u32,
    },
    /// The role of orderer was handed on.
    HandedOver {
        /// Place.
        seqno: Seqno,
        /// To whom.
        orderer: Life,
    },
    /// A new epoch.
    Reset(Box<Reset>),
    /// Manual policy: a member is suspected.
    Suspected {
        /// Who.
        member: Life,
        /// Why.
        reason: Suspicion,
    },
    /// The group went on without this life.
    Excluded {
        /// In this epoch, if it was told.
        epoch: Option<Epoch>,
    },
    /// It has left, and nobody needs it.
    Gone,
    /// Its join came to nothing.
    JoinFailed {
        /// Why.
        reason: Box<JoinFailure>,
    },
    /// It met another group of the same port.
    Conflict,

    // --- how marks moved (white box), in this order after an input ---
    /// It is in another epoch now, as a member or listening: its marks are of this one from here on.
    EpochBegun {
        /// Which.
        epoch: Epoch,
    },
    /// What it holds without a gap, data included, now ends here. It shrinks only where an epoch begins.
    Stored {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// It has told others that it holds everything through here.
    Acknowledged {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// What it knows to be accepted now ends here.
    Accepted {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// An acting member's end grew: it gave out these numbers.
    Numbered {
        /// In this epoch.
        epoch: Epoch,
        /// The place of the event that named it.
        term: Seqno,
        /// First of them.
        from: Seqno,
        /// Last of them.
        to: Seqno,
    },
    /// Everything through here has left its history. (Where the log of somebody who begins to listen begins is not
    /// told: it never held what lies before.)
    Purged {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// Its history now has more entries than ever in this life; or more than a moment ago, and than messages may
    /// take.
    HistoryUsed {
        /// How many.
        entries: u32,
    },
    /// It promised a ballot of this epoch's reset.
    Promised {
        /// The epoch that is to end.
        epoch: Epoch,
        /// Which.
        ballot: Ballot,
    },
    /// It prepared a proposal.
    Prepared {
        /// The epoch that is to end.
        epoch: Epoch,
        /// What it prepared.
        preparation: Box<Preparation>,
    },

    // --- calls: what applications did and were told ---
    /// The application called a service.
    Called {
        /// The call's number.
        call: u64,
        /// Which service, as the run counts them.
        port: u16,
        /// It waits for so many microseconds.
        limit_us: u32,
        /// Of the request.
        hash: u64,
    },
    /// What became of a call.
    CallEnded {
        /// Its number.
        call: u64,
        /// What.
        outcome: CallOutcome,
    },
    /// The application does not want to know any more what becomes of a call.
    CallCancelled {
        /// Its number.
        call: u64,
    },
    /// The application serves a port from here on.
    Serving {
        /// Which, as the run counts them.
        port: u16,
        /// It has the private port. Otherwise it only says so.
        owns: bool,
        /// The service recognises repeats.
        repeats: bool,
    },
    /// It serves the port no more.
    Withdrawn {
        /// Which.
        port: u16,
    },
    /// An application was handed a request.
    Handed {
        /// Whose.
        client: Life,
        /// Which call of it.
        call: u64,
        /// The port that it came to.
        port: u16,
        /// How often it was passed on.
        hops: u8,
        /// By what the server knows, the client does not wait for it any more.
        is_late: bool,
        /// Of the request.
        hash: u64,
    },
    /// The application that was handed a request did what it asks for. In a service that recognises repeats, it was
    /// the first to do so.
    Executed {
        /// Whose.
        client: Life,
        /// Which.
        call: u64,
    },
    /// It answered.
    Replied {
        /// Whose call.
        client: Life,
        /// Which.
        call: u64,
        /// Of the reply.
        hash: u64,
    },
    /// It said no, and has not done what was asked for.
    RefusedCall {
        /// Whose call.
        client: Life,
        /// Which.
        call: u64,
        /// Of the reason.
        hash: u64,
    },
    /// It passed the request on, and has not done what was asked for.
    PassedOn {
        /// Whose call.
        client: Life,
        /// Which.
        call: u64,
        /// How often it had been passed on before.
        hops: u8,
    },

    // --- calls: what endpoints hold and send (white box) ---
    /// An endpoint holds more of something than ever in this life.
    Held {
        /// Of what.
        what: &'static str,
        /// How much.
        used: u32,
        /// How much it may be.
        max: u32,
    },
    /// Datagrams came to a life from an address where nobody lives, or left for there: so many bytes in all so far.
    Strayed {
        /// That came.
        came: u64,
        /// That left.
        left: u64,
    },

    // --- what the world did ---
    /// This life ended without a word.
    Crashed,
    /// This life stands still, and knows nothing of it.
    Paused,
    /// It goes on.
    Resumed,
    /// A fault of the network begins.
    FaultBegin {
        /// Its name.
        fault: &'static str,
    },
    /// A fault of the network ends.
    FaultEnd {
        /// Its name.
        fault: &'static str,
    },
    /// From here on nothing disturbs these lives: each hears each, none crashes or pauses, applications take their
    /// events. Whatever else lives cannot take part for good (it hears nobody, or nobody hears it). They must come
    /// to one view, and whatever else they began must end. So the runner lets them begin nothing new for as long as
    /// ending takes before it ends the run.
    Healed {
        /// The lives.
        core: Box<[Life]>,
    },
}

/// Declares [`Kind`] and the mapping from [`What`], so that no kind is forgotten.
macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// The kind of a [`What`], as a bit for [`crate::properties::Property::interests`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Kind { $($kind),* }

        impl Kind {
            /// All of them, in the order of their bits.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// Its bit.
            pub const fn bit(self) -> u64 {
                1 << self as u32
            }
        }

        impl What {
            /// Its kind.
            #[inline(always)]
            pub fn kind(&self) -> Kind {
                match self { $(What::$kind { .. } => Kind::$kind),* }
            }
        }
    };
}

kinds! {
    Started, Sent, LeaveAsked, ResetAsked, HandOverAsked,
    SendResult, Entered, Delivered, Joined, Left, HandedOver, Reset, Suspected, Excluded, Gone, JoinFailed, Conflict,
    EpochBegun, Stored, Acknowledged, Accepted, Numbered, Purged, HistoryUsed, Promised, Prepared,
    Called, CallEnded, CallCancelled, Serving, Withdrawn, Handed, Executed, Replied, RefusedCall, PassedOn,
    Held, Strayed,
    Crashed, Paused, Resumed, FaultBegin, FaultEnd, Healed,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It was answered.
    Replied {
        /// Of the reply.
        hash: u64,
    },
    /// The application said no: not executed.
    Refused {
        /// Of the reason.
        hash: u64,
    },
    /// Nobody serves the port: not executed.
    NotFound,
    /// Nobody took it: not executed.
    Failed,
    /// It was pushed back: not executed.
    Busy,
    /// It may have been executed.
    Unknown,
}

/// The member list at a place in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its epoch.
    pub epoch: Epoch,
    /// Resets since the group was founded, as the epoch's name says.
    pub counter: u64,
    /// Who brought the epoch about, as its name says.
    pub coordinator: Life,
    /// In rank order.
    pub members: Vec<Life>,
    /// Who orders.
    pub orderer: Life,
    /// The group's resilience, held to members − 1.
    pub resilience: u8,
}

/// See [`What::Reset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Its place.
    pub seqno: Seqno,
    /// Who goes on.
    pub view: View,
    /// Who does not.
    pub excluded: Vec<Life>,
    /// It says that messages may be lost.
    pub degraded: bool,
}

/// See [`What::Prepared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Under which attempt.
    pub ballot: Ballot,
    /// The epoch that is to begin.
    pub next: Epoch,
    /// The place of its reset event.
    pub start: Seqno,
}

/// What the world knows when the run is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// When.
    pub at: Time,
    /// Every life that has not crashed, paused ones included.
    pub standings: Vec<Standing>,
}

/// Where one life stands at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Who.
    pub life: Life,
    /// Where in its life.
    pub phase: Phase,
    /// Its epoch; nothing if it is in none.
    pub epoch: Option<Epoch>,
    /// Its marks.
    pub marks: Marks,
    /// The members as it knows them, in rank order.
    pub members: Vec<Life>,
    /// Messages of its own under way.
    pub under_way: usize,
    /// Events that its application has not taken.
    pub events: usize,
}

/// Takes records of one kind after the other.
pub(crate) trait Listener {
    /// Something happened.
    fn tell(&mut self, what: What);
}

/// Tells each change from `before` to `after`, the marks of one life before and after an input. `epoch` is of
/// `after`, `next` of what it has prepared. Kept beside the records because it says what they mean.
///
/// Inlined, as is what it tells: each place then knows what kind of record it makes.
#[inline(always)]
pub(crate) fn mark_changes(
    before: &Marks,
    after: &Marks,
    epoch: Epoch,
    next: Option<Epoch>,
    listener: &mut impl Listener,
) {
    let same_epoch = before.epoch == after.epoch;
    if !same_epoch {
        listener.tell(What::EpochBegun { epoch });
    }
    if !same_epoch || before.received != after.received {
        listener.tell(What::Stored { epoch, through: after.received });
    }
    let told = if same_epoch { before.acknowledged } else { 0 };
    if after.acknowledged > told {
        listener.tell(What::Acknowledged { epoch, through: after.acknowledged });
    }
    if !same_epoch || before.accepted != after.accepted {
        listener.tell(What::Accepted { epoch, through: after.accepted });
    }
    let (known, now) = (before.numbered, after.numbered);
    let from = if same_epoch && known.term == now.term { known.through.max(now.after) } else { now.after };
    if now.through > from {
        listener.tell(What::Numbered { epoch, term: now.term, from: from + 1, to: now.through });
    }
    if same_epoch && before.purged != after.purged {
        listener.tell(What::Purged { epoch, through: after.purged });
    }
    if let Some(ballot) = after.promised
        && !(same_epoch && before.promised == after.promised)
    {
        listener.tell(What::Promised { epoch, ballot });
    }
    if let (Some(prepared), Some(next)) = (after.prepared, next)
        && !(same_epoch && before.prepared == after.prepared)
    {
        let preparation = Preparation { ballot: prepared.ballot, next, start: prepared.start };
        listener.tell(What::Prepared { epoch, preparation: Box::new(preparation) });
    }
    if after.history > before.history {
        listener.tell(What::HistoryUsed { entries: after.history as u32 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Listener for Vec<What> {
        fn tell(&mut self, what: What) {
            self.push(what);
        }
    }

    fn changes(before: Marks, after: Marks) -> Vec<What> {
        let mut told = Vec::new();
        mark_changes(&before, &after, Epoch(0), None, &mut told);
        told
    }

    fn marks(received: Seqno, numbered: (Seqno, Seqno, Seqno)) -> Marks {
        let (term, after, through) = numbered;
        Marks {
            epoch: EpochTag(1),
            received,
            numbered: unisono_core::Numbered { term, after, through },
            ..Marks::default()
        }
    }

    #[test]
    fn records_stay_small() {
        assert!(size_of::<Record>() <= 48, "{}", size_of::<Record>());
    }

    #[test]
    fn kinds_fit_the_mask_and_differ() {
        assert!(Kind::ALL.len() <= 64);
        let all = Kind::ALL.iter().fold(0_u64, |bits, kind| bits | kind.bit());
        assert_eq!(all.count_ones() as usize, Kind::ALL.len());
        assert_eq!(What::Gone.kind(), Kind::Gone);
    }

    #[test]
    fn a_successor_owns_what_it_gave_out() {
        let told = changes(marks(10, (3, 3, 3)), marks(14, (12, 12, 14)));
        assert!(told.contains(&What::Numbered { epoch: Epoch(0), term: 12, from: 13, to: 14 }), "{told:?}");
    }

    #[test]
    fn a_predecessor_owns_the_event_that_names_the_next() {
        let told = changes(marks(10, (3, 3, 10)), marks(12, (3, 3, 12)));
        assert!(told.contains(&What::Numbered { epoch: Epoch(0), term: 3, from: 11, to: 12 }), "{told:?}");
    }

    #[test]
    fn who_only_receives_numbers_nothing() {
        let told = changes(marks(10, (3, 3, 3)), marks(12, (3, 3, 3)));
        assert_eq!(told, [What::Stored { epoch: Epoch(0), through: 12 }]);
    }

    #[test]
    fn hashes_tell_payloads_apart() {
        assert_ne!(hash(b""), hash(b"\0"));
        assert_ne!(hash(b"ab"), hash(b"ba"));
        assert_ne!(hash(b"12345678a"), hash(b"12345678b"));
    }
}
