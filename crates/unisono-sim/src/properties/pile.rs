//! Piles of records that wait to be judged, and the gist of each: what the frequent records say of each life, where
//! nothing but the usual happened to it.

use super::tables::Table;
use crate::record::{Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// Records that wait to be judged, in the order in which things happened, and where in it those of each kind are.
pub struct Pile {
    records: Vec<Record>,
    places: Box<[Places; KINDS]>,
    /// The kinds of which there are some.
    kinds: u64,
    gists: Table<Gist>,
    /// Who has records.
    present: Vec<Life>,
    numberings: Vec<Numbering>,
}

/// A bit for each record of a pile.
type Places = [u64; PILE / 64];

const KINDS: usize = Kind::ALL.len();

/// Most records of a pile.
pub(super) const PILE: usize = 512;

/// What a pile says of one life, in short.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gist {
    pub(super) life: Life,
    /// The kinds of its records.
    pub(super) kinds: u64,
    /// The numbers of the messages that it sent.
    pub(super) sent: Run,
    /// The highest resilience that it asked for.
    pub(super) asked: u8,
    /// The places of what was delivered to it.
    pub(super) delivered: Run,
    /// What it stored, and what it knew to be accepted.
    pub(super) stored: Moves,
    pub(super) accepted: Moves,
    /// The highest place that it acknowledged or purged, and that the pile did not say before that it stored.
    pub(super) ahead_of_stored: Seqno,
    /// The highest place that was delivered to it, and that the pile did not say before to be accepted.
    pub(super) ahead_of_accepted: Seqno,
}

/// Numbers of the order were given out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    pub(super) by: Life,
    pub(super) epoch: Epoch,
    /// The last of them.
    pub(super) to: Seqno,
    /// What who gave them out knew to be accepted, if the pile says so.
    pub(super) accepted: Option<Seqno>,
}

/// Numbers that came one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Some did not follow directly on the one before.
    is_torn: bool,
}

/// How a mark moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moves {
    pub(super) epoch: Epoch,
    pub(super) first: Seqno,
    pub(super) last: Seqno,
    /// It fell, or its epoch changed.
    fell: bool,
}

impl Run {
    /// They went up one by one.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_torn
    }

    /// They went up one by one, from the one after `last`.
    pub(super) fn follows(&self, last: u64) -> bool {
        self.is_whole() && self.first == last + 1
    }

    #[inline(always)]
    fn add(&mut self, number: u64, is_first: bool) {
        if is_first {
            self.first = number;
        } else {
            self.is_torn |= number != self.last.wrapping_add(1);
        }
        self.last = number;
    }
}

impl Moves {
    /// The mark has only grown, from `last` in this epoch.
    pub(super) fn grows_from(&self, epoch: Option<Epoch>, last: Seqno) -> bool {
        !self.fell && epoch == Some(self.epoch) && self.first >= last
    }

    #[inline(always)]
    fn add(&mut self, epoch: Epoch, through: Seqno, is_first: bool) {
        if is_first {
            (self.epoch, self.first) = (epoch, through);
        } else {
            self.fell |= epoch != self.epoch || through < self.last;
        }
        self.last = through;
    }
}

impl Gist {
    /// It has records of one of these kinds.
    pub(super) fn has(&self, kinds: u64) -> bool {
        self.kinds & kinds != 0
    }

    #[inline(always)]
    fn add(&mut self, what: &What) {
        let kind = what.kind();
        let is_first = !self.has(kind.bit());
        self.kinds |= kind.bit();
        match *what {
            What::Sent { number, resilience, .. } => {
                self.sent.add(number, is_first);
                self.asked = self.asked.max(resilience);
            }
            What::Delivered { seqno, .. } => {
                self.delivered.add(seqno, is_first);
                if seqno > self.accepted.last {
                    self.ahead_of_accepted = self.ahead_of_accepted.max(seqno);
                }
            }
            What::Stored { epoch, through } => self.stored.add(epoch, through, is_first),
            What::Accepted { epoch, through } => self.accepted.add(epoch, through, is_first),
            What::Purged { through, .. } | What::Acknowledged { through, .. }
                if through > self.stored.last =>
            {
                self.ahead_of_stored = self.ahead_of_stored.max(through);
            }
            _ => {}
        }
    }
}

impl Pile {
    pub(super) fn new() -> Pile {
        Pile {
            records: Vec::with_capacity(PILE),
            places: Box::new([Places::default(); KINDS]),
            kinds: 0,
            gists: Table::default(),
            present: Vec::new(),
            numberings: Vec::new(),
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, record: Record) {
        let (kind, index) = (record.what.kind(), self.records.len());
        self.kinds |= kind.bit();
        self.places[kind as usize][index / 64 % (PILE / 64)] |= 1 << (index % 64);
        self.records.push(record);
    }

    /// Makes the gists: the pile is complete.
    pub(super) fn sum_up(&mut self) {
        for record in &self.records {
            if record.life == Life::NOBODY {
                continue;
            }
            let gist = self.gists.at(record.life);
            if gist.kinds == 0 {
                gist.life = record.life;
                self.present.push(record.life);
            }
            gist.add(&record.what);
            if let What::Numbered { epoch, to, .. } = record.what {
                let accepted = gist.has(Kind::Accepted.bit()).then_some(gist.accepted.last);
                self.numberings.push(Numbering { by: record.life, epoch, to, accepted });
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        for kind in bits(self.kinds) {
            self.places[kind] = Places::default();
        }
        self.kinds = 0;
        self.numberings.clear();
        for life in self.present.drain(..) {
            *self.gists.at(life) = Gist::default();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The record that came last.
    pub(super) fn last(&self) -> Option<&Record> {
        self.records.last()
    }

    /// It has records of one of these kinds.
    pub(super) fn has(&self, kinds: u64) -> bool {
        self.kinds & kinds != 0
    }

    /// How many records of these kinds it has.
    pub(super) fn count(&self, kinds: u64) -> u64 {
        self.places_of(kinds).iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The gists of all lives that have records.
    pub(super) fn gists(&self) -> impl Iterator<Item = &Gist> {
        self.present.iter().filter_map(|life| self.gists.get(*life))
    }

    /// Who gave out which numbers.
    pub(super) fn numberings(&self) -> &[Numbering] {
        &self.numberings
    }

    /// The first `end` records, as parts of at most 64: where each part begins, its records, and a bit for each of them
    /// that is of these kinds.
    #[inline]
    pub(super) fn parts(&self, kinds: u64, end: usize) -> impl Iterator<Item = (usize, &[Record], u64)> {
        let records = &self.records[..end.min(self.records.len())];
        let parts = (0..).step_by(64).zip(records.chunks(64)).zip(self.places_of(kinds));
        parts.map(|((first, records), wanted)| (first, records, wanted))
    }

    /// Where the records of some kinds are.
    fn places_of(&self, kinds: u64) -> Places {
        let mut wanted = Places::default();
        for kind in bits(kinds & self.kinds) {
            wanted.iter_mut().zip(&self.places[kind]).for_each(|(all, these)| *all |= these);
        }
        wanted
    }
}

/// The bits that are set in a word, ascending.
#[inline]
fn bits(word: u64) -> impl Iterator<Item = usize> {
    let mut left = word;
    std::iter::from_fn(move || {
        let lowest = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::Time;

    fn gist(records: impl IntoIterator<Item = What>) -> Gist {
        let mut pile = Pile::new();
        for what in records {
            pile.push(Record { at: Time::ZERO, process: 0, life: Life(3), what });
        }
        pile.sum_up();
        let gists: Vec<Gist> = pile.gists().copied().collect();
        assert_eq!(gists.len(), 1);
        gists[0]
    }

    fn deliveries(places: &[Seqno]) -> Run {
        let what = |seqno| What::Delivered { seqno, sender: Life(0), number: seqno, hash: 0 };
        gist(places.iter().map(|seqno| what(*seqno))).delivered
    }

    #[test]
    fn places_one_by_one_are_a_whole_run() {
        assert!(deliveries(&[7, 8, 9]).follows(6));
        assert!(!deliveries(&[7, 8, 9]).follows(5));
        for torn in [&[7, 9][..], &[7, 7], &[8, 7], &[7, 8, 8, 10], &[0, 2]] {
            assert!(!deliveries(torn).is_whole(), "{torn:?}");
        }
    }

    #[test]
    fn marks_grow_within_an_epoch() {
        let moves = |marks: &[(u32, Seqno)]| {
            gist(
                marks.iter().map(|(epoch, through)| What::Stored { epoch: Epoch(*epoch), through: *through }),
            )
            .stored
        };
        assert!(moves(&[(1, 5), (1, 5), (1, 9)]).grows_from(Some(Epoch(1)), 5));
        assert!(!moves(&[(1, 5), (1, 9)]).grows_from(Some(Epoch(1)), 6));
        assert!(!moves(&[(1, 5), (1, 9)]).grows_from(None, 5));
        assert!(!moves(&[(1, 5), (1, 4), (1, 9)]).grows_from(Some(Epoch(1)), 5));
        assert!(!moves(&[(1, 5), (2, 9), (1, 10)]).grows_from(Some(Epoch(1)), 5));
    }

    #[test]
    fn what_comes_too_early_stays_seen() {
        let epoch = Epoch(0);
        let delivered = |seqno| What::Delivered { seqno, sender: Life(0), number: seqno, hash: 0 };
        let accepted = |through| What::Accepted { epoch, through };
        let stored = |through| What::Stored { epoch, through };
        let early = gist([delivered(4), accepted(5), delivered(5), accepted(6)]);
        assert_eq!((early.ahead_of_accepted, early.ahead_of_stored), (4, 0));
        let early = gist([
            stored(5),
            What::Acknowledged { epoch, through: 6 },
            stored(9),
            What::Purged { epoch, through: 9 },
        ]);
        assert_eq!((early.ahead_of_accepted, early.ahead_of_stored), (0, 6));
    }
}
