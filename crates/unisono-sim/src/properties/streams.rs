//! What follows from events alone: the position and view of each life's event stream ([`Stream`]), which epoch
//! follows which ([`Lineage`]), and the views of each epoch ([`Views`]). Also the watermarks of all lives
//! ([`MarkTable`]), and tables by message ([`Messages`]).

use super::Facts;
use super::tables::{Lives, NumberTable, Table};
use crate::record::{Epoch, Kind, Life, Record, What, mix};
use unisono_core::Seqno;

/// Kinds that change a life's epoch or view.
pub(super) const VIEW_CHANGES: u64 =
    Kind::Entered.bit() | Kind::Joined.bit() | Kind::Left.bit() | Kind::Reset.bit();

/// Kinds of events that have a seqno.
pub(super) const SEQUENCED: u64 =
    VIEW_CHANGES | Kind::Delivered.bit() | Kind::HandedOver.bit() | Kind::OrderChanged.bit();

/// Position of one life's event stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// Epoch of its last event; `None` before the first.
    pub(super) epoch: Option<Epoch>,
    /// Seqno at which it entered; 0 for a founder.
    pub(super) entered: Seqno,
    /// Seqno of its last event.
    pub(super) last: Seqno,
    /// Members just after that seqno, in rank order.
    pub(super) view: Vec<Life>,
    /// The same members as a set.
    pub(super) members: Lives,
    /// Sequencer just after that seqno, by the events of the application.
    pub(super) sequencer: Life,
    /// Seqno of the event that told it.
    pub(super) named_at: Seqno,
}

impl Stream {
    /// Takes note of an event other than a message.
    pub(super) fn change(&mut self, event: &What) {
        match event {
            What::HandedOver { seqno, sequencer } | What::OrderChanged { seqno, sequencer, .. } => {
                (self.last, self.sequencer, self.named_at) = (*seqno, *sequencer, *seqno);
            }
            What::Entered { seqno, view } => {
                *self = Stream {
                    epoch: Some(view.epoch),
                    entered: *seqno,
                    last: *seqno,
                    view: view.members.clone(),
                    members: view.members.iter().copied().collect(),
                    sequencer: view.sequencer,
                    named_at: *seqno,
                }
            }
            What::Reset(reset) => {
                self.epoch = Some(reset.view.epoch);
                self.last = reset.seqno;
                self.view = reset.view.members.clone();
                self.members = self.view.iter().copied().collect();
                (self.sequencer, self.named_at) = (reset.view.sequencer, reset.seqno);
            }
            What::Joined { seqno, member, .. } => {
                self.last = *seqno;
                self.view.push(*member);
                self.members.insert(*member);
            }
            What::Left { seqno, member, successor, .. } => {
                self.last = *seqno;
                self.members.remove(*member);
                if let Some(successor) = successor {
                    (self.sequencer, self.named_at) = (*successor, *seqno);
                }
                self.view.retain(|other| other != member);
            }
            _ => {}
        }
    }
}

/// Returns the seqno of an event; `None` for records without a seqno.
pub(super) fn seqno_of(event: &What) -> Option<Seqno> {
    match event {
        What::Delivered { seqno, .. }
        | What::Entered { seqno, .. }
        | What::Joined { seqno, .. }
        | What::Left { seqno, .. }
        | What::HandedOver { seqno, .. }
        | What::OrderChanged { seqno, .. } => Some(*seqno),
        What::Reset(reset) => Some(reset.seqno),
        _ => None,
    }
}

/// Returns an event's epoch, its seqno, and a hash of its contents that is the same for all members that receive it.
/// Entering is the joiner's side of its own join. `None` for records without a seqno, a founder's entering included.
#[inline(always)]
pub(super) fn sequenced(record: &Record, facts: &Facts) -> Option<(Epoch, Seqno, u64)> {
    match &record.what {
        What::Delivered { seqno, sender, number, hash } => {
            let epoch = facts.place(record.life, *seqno)?;
            Some((epoch, *seqno, mix(mix(u64::from(sender.0), *number), *hash) | 1))
        }
        _ => sequenced_change(record, facts.stream(record.life)),
    }
}

/// The same for an event other than a message.
#[cold]
fn sequenced_change(record: &Record, stream: &Stream) -> Option<(Epoch, Seqno, u64)> {
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
        What::OrderChanged { seqno, is_ring, sequencer } => {
            let words = [u64::from(sequencer.0), u64::from(*is_ring), 0];
            Some((stream.epoch?, *seqno, value(Kind::OrderChanged, words)))
        }
        What::Reset(reset) => {
            let members = reset.view.members.iter().fold(0, |hash, member| mix(hash, u64::from(member.0)));
            let words = [members, u64::from(reset.view.sequencer.0), u64::from(reset.degraded)];
            Some((reset.view.epoch, reset.seqno, value(Kind::Reset, words)))
        }
        _ => None,
    }
}

/// Which epoch follows which: one tree for each group that was founded.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineage(Table<Branch>);

#[derive(Clone, Debug, Default)]
struct Branch {
    parent: Option<Epoch>,
    start: Option<Seqno>,
    /// The first seqno before `start` at which the reset put a message that was delivered early.
    first: Option<Seqno>,
    children: Vec<Epoch>,
}

impl Lineage {
    /// The reset that begins an epoch has put a message at this seqno, before its event.
    pub(super) fn note_tail(&mut self, epoch: Epoch, seqno: Seqno) {
        let first = &mut self.0.at(epoch).first;
        *first = Some(first.map_or(seqno, |first| first.min(seqno)));
    }

    /// Returns the first seqno whose entry a reset has put there, if the epoch is known: what is below is of earlier epochs.
    pub(super) fn first(&self, epoch: Epoch) -> Option<Seqno> {
        let branch = self.0.get(epoch)?;
        branch.first.or(branch.start)
    }

    /// `child` follows `parent` and begins at `start`. A founding epoch has no parent.
    pub(super) fn link(&mut self, parent: Option<Epoch>, child: Epoch, start: Seqno) {
        let branch = self.0.at(child);
        branch.start.get_or_insert(start);
        if let (None, Some(parent)) = (branch.parent, parent) {
            branch.parent = Some(parent);
            self.0.at(parent).children.push(child);
        }
    }

    /// Takes note of a founding, or of a reset event received in the epoch `parent`.
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

    /// Returns the seqno at which an epoch begins, if any application has received its first event.
    pub(super) fn start(&self, epoch: Epoch) -> Option<Seqno> {
        self.0.get(epoch)?.start
    }

    pub(super) fn children(&self, epoch: Epoch) -> &[Epoch] {
        self.0.get(epoch).map_or(&[], |branch| &branch.children)
    }

    /// Returns all epochs that come from `epoch`, on any line.
    pub(super) fn later(&self, epoch: Epoch) -> Vec<Epoch> {
        let mut found = self.children(epoch).to_vec();
        let mut next = 0;
        while let Some(later) = found.get(next).copied() {
            found.extend_from_slice(self.children(later));
            next += 1;
        }
        found
    }

    /// Iterates over `epoch` and its ancestors, latest first.
    pub(super) fn line(&self, epoch: Epoch) -> impl Iterator<Item = Epoch> + '_ {
        std::iter::successors(Some(epoch), |epoch| self.parent(*epoch))
    }

    /// True if the log with which `later` began keeps `seqno` of `epoch`.
    pub(super) fn keeps(&self, later: Epoch, epoch: Epoch, seqno: Seqno) -> bool {
        let mut start = Seqno::MAX;
        for ancestor in self.line(later) {
            if ancestor == epoch {
                return seqno < start;
            }
            start = start.min(self.first(ancestor).unwrap_or(Seqno::MAX));
        }
        false
    }
}

/// The views of each epoch, as far as applications have received them, by seqno. Most lookups are for the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Views(Table<Vec<(Seqno, Vec<Life>)>>);

impl Views {
    /// Takes note of the view of a stream.
    pub(super) fn follow(&mut self, stream: &Stream) {
        if let Some(epoch) = stream.epoch {
            self.insert(epoch, stream.last, &stream.view);
        }
    }

    /// Takes note of the view just after a seqno of an epoch.
    pub(super) fn insert(&mut self, epoch: Epoch, seqno: Seqno, view: &[Life]) {
        let views = self.0.at(epoch);
        if let Err(rank) = views.binary_search_by_key(&seqno, |(known, _)| *known) {
            views.insert(rank, (seqno, view.to_vec()));
        }
    }

    /// Returns the view just after a seqno of an epoch.
    pub(super) fn at(&self, epoch: Epoch, seqno: Seqno) -> Option<&[Life]> {
        self.sides(epoch, seqno).next()
    }

    /// Iterates over the views in force from one seqno of an epoch through another.
    pub(super) fn between(&self, epoch: Epoch, from: Seqno, through: Seqno) -> impl Iterator<Item = &[Life]> {
        let views = self.0.get(epoch).map_or(&[][..], Vec::as_slice);
        let first = views.partition_point(|(seqno, _)| *seqno <= from).saturating_sub(1);
        let views = views[first..].iter().take_while(move |(seqno, _)| *seqno <= through);
        views.map(|(_, view)| view.as_slice())
    }

    /// Returns the view just after a seqno of an epoch, then the view before that one.
    pub(super) fn sides(&self, epoch: Epoch, seqno: Seqno) -> impl Iterator<Item = &[Life]> {
        let views = self.0.get(epoch).into_iter().flatten().rev();
        views.skip_while(move |(first, _)| *first > seqno).take(2).map(|(_, view)| view.as_slice())
    }
}

/// How far each life knew each of its epochs to be accepted before it promised a ballot there. What it takes for
/// accepted after that, it has learned from a decision.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceptedBeforePromise {
    /// Epoch of each life's last promise.
    promised: Table<Option<Epoch>>,
    accepted: Table<Vec<(Epoch, Seqno)>>,
}

impl AcceptedBeforePromise {
    /// The kinds to follow.
    pub(super) const KINDS: u64 = Kind::Accepted.bit() | Kind::Promised.bit();

    pub(super) fn accepted(&self, life: Life, epoch: Epoch, seqno: Seqno) -> bool {
        let known = self.accepted.get(life).map_or(&[][..], Vec::as_slice);
        known.iter().any(|(when, through)| *when == epoch && *through >= seqno)
    }

    /// Takes note of a promise or an acceptance; ignores other records.
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

/// Watermarks of one life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) epoch: Option<Epoch>,
    pub(super) stored: Seqno,
    pub(super) accepted: Seqno,
}

/// Watermarks of all lives.
#[derive(Clone, Debug, Default)]
pub(super) struct MarkTable {
    now: Table<Mark>,
    /// By life, how far it held each epoch that it has left, and the entries that it dropped within its present
    /// epoch.
    earlier: Table<Vec<(Epoch, Seqno)>>,
}

impl MarkTable {
    pub(super) fn of(&self, life: Life) -> Mark {
        self.now.get(life).copied().unwrap_or_default()
    }

    /// Returns the present watermarks of all lives.
    pub(super) fn all(&self) -> Table<Mark> {
        self.now.clone()
    }

    /// Takes note of a watermark that moved; ignores other records.
    #[inline(always)]
    pub(super) fn follow(&mut self, record: &Record) {
        match record.what {
            What::Stored { epoch, through, .. } => {
                let mark = self.now.at(record.life);
                let stored = std::mem::replace(&mut mark.stored, through);
                if mark.epoch != Some(epoch) || through < stored {
                    let before = mark.epoch.replace(epoch).map(|last| (last, stored));
                    self.remember(record.life, before);
                }
            }
            What::Accepted { through, .. } => self.now.at(record.life).accepted = through,
            _ => {}
        }
    }

    #[cold]
    fn remember(&mut self, life: Life, before: Option<(Epoch, Seqno)>) {
        self.earlier.at(life).extend(before);
    }

    /// True if this life, crashed or not, ever held everything through `seqno` of `epoch`.
    #[inline]
    pub(super) fn held(&self, life: Life, epoch: Epoch, seqno: Seqno, lineage: &Lineage) -> bool {
        let Some(mark) = self.now.get(life) else { return false };
        if mark.epoch == Some(epoch) && mark.stored >= seqno {
            return true;
        }
        let earlier = self.earlier.get(life).into_iter().flatten().copied();
        earlier.chain(mark.epoch.map(|now| (now, mark.stored))).any(|(when, most)| {
            most >= seqno
                && (when == epoch || lineage.keeps(when, epoch, seqno) || lineage.keeps(epoch, when, seqno))
        })
    }
}

/// A value for each message: by sender, then number.
#[derive(Clone, Debug)]
pub(super) struct Messages<T>(Table<NumberTable<T>>);

impl<T> Default for Messages<T> {
    fn default() -> Messages<T> {
        Messages(Table::default())
    }
}

impl<T: Clone + Default> Messages<T> {
    /// Returns the value, and creates it first if needed; `None` if the number is out of range.
    #[inline(always)]
    pub(super) fn at(&mut self, sender: Life, number: u64) -> Option<&mut T> {
        self.0.at(sender).at(number)
    }

    #[inline]
    pub(super) fn get(&self, sender: Life, number: u64) -> Option<&T> {
        self.0.get(sender)?.get(number)
    }
}
