//! Numbers lives and epochs for records, in the order in which a run first names them.

use super::{Entry, Epoch, Life, Members, Reset, View, What, hash};
use unisono_core::{EpochId, EpochTag, Event, Logged, Member, MessageNumber, Order, Seqno, Uid};

/// The [`Life`] of each uid and the [`Epoch`] of each epoch id. A run has one such table, kept by the recorder.
#[derive(Clone, Debug, Default)]
pub struct Names {
    lives: Vec<Uid>,
    /// The same, sorted by uid.
    sorted: Vec<(Uid, Life)>,
    /// Cache of recent lookups, by the lowest bits of the uid.
    recent: [Option<(Uid, Life)>; RECENT],
    epochs: Vec<EpochId>,
    tags: Vec<(EpochTag, Epoch)>,
}

const RECENT: usize = 16;

impl Names {
    /// Returns the life of this uid.
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

    /// Returns the epoch of this id.
    pub fn epoch(&mut self, id: EpochId) -> Epoch {
        let index = self.epochs.iter().rposition(|known| *known == id).unwrap_or_else(|| {
            self.epochs.push(id);
            self.epochs.len() - 1
        });
        Epoch(index as u32)
    }

    /// Returns the epoch of this tag. `id` is called when the tag is seen for the first time; it returns the id from
    /// the member whose marks contain the tag.
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

    /// Returns the number of lives named so far.
    pub fn lives(&self) -> usize {
        self.lives.len()
    }

    /// Returns the uid of a life; `None` for [`Life::WORLD`].
    pub fn uid(&self, life: Life) -> Option<Uid> {
        self.lives.get(life.index()).copied()
    }

    /// Converts a view of the core.
    pub fn view(&mut self, view: &unisono_core::View) -> View {
        View {
            epoch: self.epoch(view.epoch),
            counter: view.epoch.counter,
            coordinator: self.life(view.epoch.coordinator),
            members: view.members.iter().map(|member| self.life(member.uid)).collect(),
            sequencer: self.life(view.sequencer),
            resilience: view.resilience,
        }
    }

    /// Converts what stands in a member's log.
    #[inline]
    pub fn entry(&mut self, logged: Logged<'_>) -> Entry {
        match logged {
            Logged::Message { sender, number } => Entry::Message { sender: self.life(sender), number },
            Logged::Join(uid) => Entry::Join(self.life(uid)),
            Logged::Leave(uid) => Entry::Leave(self.life(uid)),
            Logged::Role(uid) => Entry::Role(self.life(uid)),
            Logged::Pass(uid) => Entry::Pass(self.life(uid)),
            Logged::Order(order, uid) => {
                Entry::Order { is_ring: order == Order::Token, sequencer: self.life(uid) }
            }
            Logged::Reset(view) => Entry::Reset(self.members(view)),
            Logged::Base(view) => Entry::Base(self.members(view)),
        }
    }

    fn members(&mut self, view: &[Member]) -> Box<Members> {
        Box::new(Members(view.iter().map(|member| self.life(member.uid)).collect()))
    }

    /// Returns the record of a delivered message.
    #[inline(always)]
    pub fn delivered(&mut self, seqno: Seqno, sender: Uid, number: MessageNumber, payload: &[u8]) -> What {
        What::Delivered { seqno, sender: self.life(sender), number, hash: hash(payload) }
    }

    /// Returns the record of an event that an application received.
    pub fn event(&mut self, event: &Event) -> What {
        match event {
            Event::Entered { seqno, view } => {
                What::Entered { seqno: *seqno, view: Box::new(self.view(view)) }
            }
            Event::Message { seqno, sender, number, payload, .. } => {
                self.delivered(*seqno, *sender, *number, payload)
            }
            Event::Early { sender, quality, payload, .. } => {
                let (sender, hash) = (self.life(*sender), hash(payload));
                What::Early { sender, number: 0, quality: *quality, hash }
            }
            Event::Joined { seqno, member, members, .. } => {
                What::Joined { seqno: *seqno, member: self.life(member.uid), members: *members as u32 }
            }
            Event::Left { seqno, member, members, successor, .. } => What::Left {
                seqno: *seqno,
                member: self.life(member.uid),
                members: *members as u32,
                successor: successor.map(|uid| self.life(uid)),
            },
            Event::HandedOver { seqno, sequencer } => {
                What::HandedOver { seqno: *seqno, sequencer: self.life(*sequencer) }
            }
            Event::OrderChanged { seqno, order, sequencer } => What::OrderChanged {
                seqno: *seqno,
                is_ring: *order == Order::Token,
                sequencer: self.life(*sequencer),
            },
            Event::Reset { seqno, view, excluded, degraded, .. } => What::Reset(Box::new(Reset {
                seqno: *seqno,
                view: self.view(view),
                excluded: excluded.iter().map(|member| self.life(member.uid)).collect(),
                degraded: *degraded,
            })),
            Event::Suspected { member, reason } => {
                What::Suspected { member: self.life(*member), reason: *reason }
            }
            Event::Halted { missing } => {
                What::Halted { missing: missing.iter().map(|member| self.life(member.uid)).collect() }
            }
            Event::Resumed => What::WentOn,
            Event::Excluded { epoch } => What::Excluded { epoch: epoch.map(|id| self.epoch(id)) },
            Event::Gone => What::Gone,
            Event::JoinFailed { reason } => What::JoinFailed { reason: Box::new(*reason) },
            Event::Conflict { gives_way, other_ordered, .. } => {
                What::Conflict { gives_way: *gives_way, other_ordered: *other_ordered }
            }
            other => unreachable!("no checker knows {other:?}"),
        }
    }
}
