//! What follows from events alone: where a life's stream stands and which view it has there ([`Stream`]), how epochs
//! follow one another ([`Lineage`]), and which views an epoch has gone through ([`Views`]).

use super::tables::{Lives, Places, Table};
use crate::record::{Epoch, Kind, Life, Record, What, mix};
use unisono_core::Seqno;

/// Kinds that change a life's epoch or view.
pub(super) const VIEW_CHANGES: u64 =
    Kind::Entered.bit() | Kind::Joined.bit() | Kind::Left.bit() | Kind::Reset.bit();

/// Kinds that have a place in the order.
pub(super) const PLACED: u64 = VIEW_CHANGES | Kind::Delivered.bit() | Kind::HandedOver.bit();

/// Where the event stream of one life stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// The epoch of its last event; nothing before its first.
    pub(super) epoch: Option<Epoch>,
    /// The place at which it entered; 0 for a founder.
    pub(super) entered: Seqno,
    /// The place of its last event.
    pub(super) last: Seqno,
    /// The members there, in rank order.
    pub(super) view: Vec<Life>,
    /// The same as a set.
    pub(super) members: Lives,
    /// Who orders there.
    pub(super) sequencer: Life,
}

impl Stream {
    /// Takes note of an event that is no message.
    pub(super) fn change(&mut self, event: &What) {
        match event {
            What::HandedOver { seqno, sequencer } => (self.last, self.sequencer) = (*seqno, *sequencer),
            What::Entered { seqno, view } => {
                *self = Stream {
                    epoch: Some(view.epoch),
                    entered: *seqno,
                    last: *seqno,
                    view: view.members.clone(),
                    members: view.members.iter().copied().collect(),
                    sequencer: view.sequencer,
                }
            }
            What::Reset(reset) => {
                self.epoch = Some(reset.view.epoch);
                self.last = reset.seqno;
                self.view = reset.view.members.clone();
                self.members = self.view.iter().copied().collect();
                self.sequencer = reset.view.sequencer;
            }
            What::Joined { seqno, member, .. } => {
                self.last = *seqno;
                self.view.push(*member);
                self.members.insert(*member);
            }
            What::Left { seqno, member, successor, .. } => {
                self.last = *seqno;
                self.members.remove(*member);
                self.sequencer = successor.unwrap_or(self.sequencer);
                self.view.retain(|other| other != member);
            }
            _ => {}
        }
    }
}

/// The place of an event; nothing for records that have none.
pub(super) fn placed_at(event: &What) -> Option<Seqno> {
    match event {
        What::Delivered { seqno, .. }
        | What::Entered { seqno, .. }
        | What::Joined { seqno, .. }
        | What::Left { seqno, .. }
        | What::HandedOver { seqno, .. } => Some(*seqno),
        What::Reset(reset) => Some(reset.seqno),
        _ => None,
    }
}

/// An event's epoch, its place there, and a hash of what it says, the same for all who receive it. Entering is the
/// joiner's side of its own join. Nothing for records that have no place: a founder's entering among them.
#[inline(always)]
pub(super) fn placed(record: &Record, stream: &Stream) -> Option<(Epoch, Seqno, u64)> {
    match &record.what {
        What::Delivered { seqno, sender, number, hash } => {
            Some((stream.epoch?, *seqno, mix(mix(u64::from(sender.0), *number), *hash) | 1))
        }
        _ => placed_change(record, stream),
    }
}

/// The same for an event that is no message.
#[cold]
fn placed_change(record: &Record, stream: &Stream) -> Option<(Epoch, Seqno, u64)> {
    let value = |kind: Kind, words: [u64; 3]| words.into_iter().fold(kind as u64, mix) | 1;
    match &record.what {
        What::Joined { seqno, member, .. } => {
            Some((stream.epoch?, *seqno, value(Kind::Joined, [u64::from(member.0), 0, 0])))
        }
        What::Entered { seqno, view } if *seqno > 0 => {
            Some((view.epoch, *seqno, value(Kind::Joined, [u64::from(record.life.0), 0, 0])))
        }
        What::Left { seqno, member, successor, .. } => {
            let successor = successor.map_or(u64::MAX, |life| u64::from(life.0));
            Some((stream.epoch?, *seqno, value(Kind::Left, [u64::from(member.0), successor, 0])))
        }
        What::HandedOver { seqno, sequencer } => {
            Some((stream.epoch?, *seqno, value(Kind::HandedOver, [u64::from(sequencer.0), 0, 0])))
        }
        What::Reset(reset) => {
            let members = reset.view.members.iter().fold(0, |hash, member| mix(hash, u64::from(member.0)));
            let words = [members, u64::from(reset.view.sequencer.0), u64::from(reset.degraded)];
            Some((reset.view.epoch, reset.seqno, value(Kind::Reset, words)))
        }
        _ => None,
    }
}

/// How epochs follow one another: a tree for each founded group.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineage(Table<Branch>);

#[derive(Clone, Debug, Default)]
struct Branch {
    parent: Option<Epoch>,
    start: Option<Seqno>,
    children: Vec<Epoch>,
}

impl Lineage {
    /// `child` follows `parent` (nothing: a group was founded) and begins at `start`.
    fn link(&mut self, parent: Option<Epoch>, child: Epoch, start: Seqno) {
        let branch = self.0.at(child);
        branch.start.get_or_insert(start);
        if let (None, Some(parent)) = (branch.parent, parent) {
            branch.parent = Some(parent);
            self.0.at(parent).children.push(child);
        }
    }

    /// Takes note of a founding, or of a reset told to a life in the epoch `parent`.
    pub(super) fn follow(&mut self, event: &What, parent: Option<Epoch>) {
        match event {
            What::Entered { seqno: 0, view } => self.link(None, view.epoch, 0),
            What::Reset(reset) => self.link(parent, reset.view.epoch, reset.seqno),
            _ => {}
        }
    }

    pub(super) fn parent(&self, epoch: Epoch) -> Option<Epoch> {
        self.0.get(epoch)?.parent
    }

    /// The place at which an epoch begins, if anybody was told.
    pub(super) fn start(&self, epoch: Epoch) -> Option<Seqno> {
        self.0.get(epoch)?.start
    }

    pub(super) fn children(&self, epoch: Epoch) -> &[Epoch] {
        self.0.get(epoch).map_or(&[], |branch| &branch.children)
    }

    /// `epoch` and those it follows from, latest first.
    pub(super) fn line(&self, epoch: Epoch) -> impl Iterator<Item = Epoch> + '_ {
        std::iter::successors(Some(epoch), |epoch| self.parent(*epoch))
    }

    /// Whether the log with which `later` goes on has the place `seqno` of `epoch`.
    pub(super) fn keeps(&self, later: Epoch, epoch: Epoch, seqno: Seqno) -> bool {
        let mut start = Seqno::MAX;
        for ancestor in self.line(later) {
            if ancestor == epoch {
                return seqno < start;
            }
            start = start.min(self.start(ancestor).unwrap_or(Seqno::MAX));
        }
        false
    }
}

/// The views that each epoch has gone through, as far as anybody was told: in the order of their places, of which
/// mostly the last is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Views(Table<Vec<(Seqno, Vec<Life>)>>);

impl Views {
    /// Takes note of where a stream has come to.
    pub(super) fn follow(&mut self, stream: &Stream) {
        if let Some(epoch) = stream.epoch {
            let views = self.0.at(epoch);
            if let Err(rank) = views.binary_search_by_key(&stream.last, |(place, _)| *place) {
                views.insert(rank, (stream.last, stream.view.clone()));
            }
        }
    }

    /// The view at a place of an epoch, what happens there included.
    pub(super) fn at(&self, epoch: Epoch, seqno: Seqno) -> Option<&[Life]> {
        self.sides(epoch, seqno).next()
    }

    /// The view at a place of an epoch, and the one before that.
    pub(super) fn sides(&self, epoch: Epoch, seqno: Seqno) -> impl Iterator<Item = &[Life]> {
        let views = self.0.get(epoch).into_iter().flatten().rev();
        views.skip_while(move |(place, _)| *place > seqno).take(2).map(|(_, view)| view.as_slice())
    }
}

/// How far each life knew its epochs to be accepted before it promised a ballot there. What it takes for accepted later
/// it learned from a decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Unaided {
    /// In which epoch each life promised last.
    promised: Table<Option<Epoch>>,
    accepted: Table<Vec<(Epoch, Seqno)>>,
}

impl Unaided {
    /// The kinds to be followed.
    pub(super) const KINDS: u64 = Kind::Accepted.bit() | Kind::Promised.bit();

    pub(super) fn accepted(&self, life: Life, epoch: Epoch, seqno: Seqno) -> bool {
        let known = self.accepted.get(life).map_or(&[][..], Vec::as_slice);
        known.iter().any(|(when, through)| *when == epoch && *through >= seqno)
    }

    /// Takes note of a promise or an acceptance; of other records, nothing.
    pub(super) fn follow(&mut self, record: &Record) {
        match record.what {
            What::Promised { epoch, .. } => *self.promised.at(record.life) = Some(epoch),
            What::Accepted { epoch, through } if *self.promised.at(record.life) != Some(epoch) => {
                let known = self.accepted.at(record.life);
                match known.last_mut() {
                    Some((when, most)) if *when == epoch => *most = through,
                    _ => known.push((epoch, through)),
                }
            }
            _ => {}
        }
    }
}

/// How far the marks of a life are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) epoch: Option<Epoch>,
    pub(super) stored: Seqno,
    pub(super) accepted: Seqno,
}

/// The marks of all lives.
#[derive(Clone, Debug, Default)]
pub(super) struct MarkTable {
    now: Table<Mark>,
    /// For each life, what it held in epochs that it has left, and what it gave up in its last.
    past: Table<Vec<(Epoch, Seqno)>>,
}

impl MarkTable {
    pub(super) fn of(&self, life: Life) -> Mark {
        self.now.get(life).copied().unwrap_or_default()
    }

    /// All of them as they are now, by life.
    pub(super) fn all(&self) -> Table<Mark> {
        self.now.clone()
    }

    /// Takes note of a mark that moved; of other records, nothing.
    #[inline(always)]
    pub(super) fn follow(&mut self, record: &Record) {
        match record.what {
            What::Stored { epoch, through } => {
                let mark = self.now.at(record.life);
                let stored = std::mem::replace(&mut mark.stored, through);
                if mark.epoch != Some(epoch) || through < stored {
                    let before = mark.epoch.replace(epoch).map(|last| (last, stored));
                    self.put_by(record.life, before);
                }
            }
            What::Accepted { through, .. } => self.now.at(record.life).accepted = through,
            _ => {}
        }
    }

    #[cold]
    fn put_by(&mut self, life: Life, before: Option<(Epoch, Seqno)>) {
        self.past.at(life).extend(before);
    }

    /// Whether this life, dead or alive, ever held everything through `seqno` of `epoch`.
    #[inline]
    pub(super) fn held(&self, life: Life, epoch: Epoch, seqno: Seqno, lineage: &Lineage) -> bool {
        let Some(mark) = self.now.get(life) else { return false };
        if mark.epoch == Some(epoch) && mark.stored >= seqno {
            return true;
        }
        let past = self.past.get(life).into_iter().flatten().copied();
        past.chain(mark.epoch.map(|now| (now, mark.stored))).any(|(when, most)| {
            most >= seqno
                && (when == epoch || lineage.keeps(when, epoch, seqno) || lineage.keeps(epoch, when, seqno))
        })
    }
}

/// Something about each message: by sender, then number.
#[derive(Clone, Debug)]
pub(super) struct Messages<T>(Table<Places<T>>);

impl<T> Default for Messages<T> {
    fn default() -> Messages<T> {
        Messages(Table::default())
    }
}

impl<T: Clone + Default> Messages<T> {
    /// The entry, made if there is none yet; nothing if the number is beyond all reason.
    #[inline(always)]
    pub(super) fn at(&mut self, sender: Life, number: u64) -> Option<&mut T> {
        self.0.at(sender).at(number)
    }

    #[inline]
    pub(super) fn get(&self, sender: Life, number: u64) -> Option<&T> {
        self.0.get(sender)?.get(number)
    }
}
