//! What the group promises, as checkers of recorded runs: one file per promise.
//!
//! A [`Property`] is shown the records it asked for, in the order in which things happened, and says when a promise
//! is broken. None of them looks into the protocol: they know the events that applications saw, the marks that
//! members showed, and what the world did. docs/guarantees.md says what each promise is and when it holds.
//!
//! Runs are long and there are many, so judging must be cheap: a [`Checkers`] lets records pile up and shows each
//! property a pile at a time, of which it looks at the kinds that it asked for; what many need to know of a run is
//! followed once ([`Facts`]); and properties keep what else they know in vectors indexed by life, epoch, place or number.

mod acknowledged_durable;
mod calls;
mod causal_order;
mod change_quorum;
mod conflicts_end;
mod consensus;
mod facts;
#[cfg(test)]
mod fixture;
mod gap_free;
mod ground;
mod halted_is_told;
mod integrity;
mod keeping;
mod leaver_serves;
mod membership_precision;
#[cfg(test)]
mod mutations;
mod no_creation_after_failure;
mod no_duplication;
mod old_epoch_silence;
mod ordered_changes;
mod quorum;
mod reset_atomicity;
mod resources;
mod same_prefix;
mod sender_order;
mod sending_view;
mod sends_resolved;
mod separate_lineages;
mod single_lineage;
mod single_sequencer;
mod stability;
mod steady_role;
mod streams;
mod tables;
mod termination;
mod total_order;
mod uniformity;
mod views;
mod virtual_synchrony;
mod watermarks;

use crate::record::{End, Kind, Record};
use facts::USUAL;
use std::fmt;
use std::mem::ManuallyDrop;
use unisono_core::{GroupConfig, Time};

pub(crate) use calls::ENOUGH;
pub use calls::all as calls;
pub use facts::Facts;

/// A promise, and the means to see it broken.
pub trait Property {
    /// Its name: short, in snake case, the same for ever.
    fn name(&self) -> &'static str;

    /// The kinds of records it wants to see: [`Kind::bit`]s.
    fn interests(&self) -> u64;

    /// A record of one of these kinds, and what is known by then.
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation>;

    /// Looks at those of a pile of records that it wants to see. Tells the first that shows the promise broken, by
    /// its index.
    fn observe_pile(&mut self, pile: &Pile, end: usize, facts: &Facts) -> Result<(), (usize, Violation)> {
        let records = &pile.records[..end.min(pile.records.len())];
        let wanted = pile.of_kinds(self.interests());
        for ((first, records), word) in (0..).step_by(64).zip(records.chunks(64)).zip(wanted) {
            let mut left = word;
            while left != 0
                && let index = left.trailing_zeros() as usize
                && let Some(record) = records.get(index)
            {
                left &= left - 1;
                self.observe(record, facts).map_err(|violation| (first + index, violation))?;
            }
        }
        Ok(())
    }

    /// The run is over.
    fn finish(&mut self, _end: &End, _facts: &Facts) -> Result<(), Violation> {
        Ok(())
    }

    /// How often it found its promise kept: a property that never checked anything proves nothing.
    fn checked(&self) -> u64;
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the property.
    pub property: &'static str,
    /// When it showed.
    pub at: Time,
    /// What happened, in a sentence.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ns: {}", self.property, self.at.as_nanos(), self.what)
    }
}

/// What the properties must know of the group beforehand.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What its members have in common.
    pub config: GroupConfig,
}

/// Every property of groups there is.
pub fn all(terms: &Terms) -> Vec<Box<dyn Property>> {
    vec![
        Box::<integrity::Integrity>::default(),
        Box::<no_duplication::NoDuplication>::default(),
        Box::<no_creation_after_failure::NoCreationAfterFailure>::default(),
        Box::<sender_order::SenderOrder>::default(),
        Box::<total_order::TotalOrder>::default(),
        Box::<gap_free::GapFree>::default(),
        Box::<same_prefix::SamePrefix>::default(),
        Box::<causal_order::CausalOrder>::default(),
        Box::new(uniformity::Uniformity::new(terms)),
        Box::new(acknowledged_durable::AcknowledgedDurable::new(terms)),
        Box::new(views::Views::new(terms)),
        Box::new(single_lineage::SingleLineage::new(terms)),
        Box::new(consensus::Consensus::new(terms)),
        Box::<separate_lineages::SeparateLineages>::default(),
        Box::<conflicts_end::ConflictsEnd>::default(),
        Box::<virtual_synchrony::VirtualSynchrony>::default(),
        Box::<sending_view::SendingView>::default(),
        Box::<old_epoch_silence::OldEpochSilence>::default(),
        Box::new(ordered_changes::OrderedChanges::new(terms)),
        Box::new(leaver_serves::LeaverServes::new(terms)),
        Box::new(reset_atomicity::ResetAtomicity::new(terms)),
        Box::<single_sequencer::SingleSequencer>::default(),
        Box::new(steady_role::SteadyRole::new(terms)),
        Box::new(stability::Stability::new(terms)),
        Box::<watermarks::Watermarks>::default(),
        Box::new(change_quorum::ChangeQuorum::new(terms)),
        Box::new(membership_precision::MembershipPrecision::new(terms)),
        Box::<termination::Termination>::default(),
        Box::<sends_resolved::SendsResolved>::default(),
        Box::<halted_is_told::HaltedIsTold>::default(),
        Box::<resources::Resources>::default(),
    ]
}

/// The promise of `property` is broken, as `record` shows. The words are made only then.
fn broken(property: &impl Property, record: &Record, what: impl FnOnce() -> String) -> Result<(), Violation> {
    let what = format!("{:?} {:?}: {}", record.life, record.what, what());
    Err(Violation { property: property.name(), at: record.at, what })
}

/// What was found when a record was looked at.
fn found(property: &impl Property, record: &Record, fault: Option<String>) -> Result<(), Violation> {
    fault.map_or(Ok(()), |fault| broken(property, record, || fault))
}

/// What was found when the run was over.
fn found_in_the_end(property: &impl Property, end: &End, fault: Option<String>) -> Result<(), Violation> {
    fault.map_or(Ok(()), |what| Err(Violation { property: property.name(), at: end.at, what }))
}

/// Usual records that wait to be checked, in the order in which things happened, and where in it those of each kind are.
pub struct Pile {
    /// Usual records own nothing that would have to be dropped. Told so, the compiler makes them in place.
    records: Vec<ManuallyDrop<Record>>,
    places: Box<[Places; KINDS]>,
    /// The kinds of which there are some.
    kinds: u64,
}

/// A bit for each record of a pile.
type Places = [u64; PILE / 64];

const KINDS: usize = Kind::ALL.len();

/// So many records are checked in one go.
const PILE: usize = 512;

impl Pile {
    fn new() -> Pile {
        Pile { records: Vec::with_capacity(PILE), places: Box::new([Places::default(); KINDS]), kinds: 0 }
    }

    #[inline(always)]
    fn push(&mut self, record: Record) {
        let (kind, index) = (record.what.kind(), self.records.len());
        self.kinds |= kind.bit();
        self.places[kind as usize][index / 64 % (PILE / 64)] |= 1 << (index % 64);
        self.records.push(ManuallyDrop::new(record));
    }

    fn clear(&mut self) {
        self.records.clear();
        for kind in bits(self.kinds) {
            self.places[kind] = Places::default();
        }
        self.kinds = 0;
    }

    /// The records of one kind.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Record> {
        let chunks = self.records.chunks(64).zip(self.places[kind as usize]);
        chunks.flat_map(|(records, word)| {
            bits(word).filter_map(|index| records.get(index).map(|record| &**record))
        })
    }

    /// Where the records of some kinds are.
    fn of_kinds(&self, kinds: u64) -> Places {
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

/// Shows records to properties, many at a time: each property's code and tables stay at hand for all of them.
pub struct Checkers {
    properties: Vec<Box<dyn Property>>,
    pile: Pile,
    /// What came after the pile, to be checked by itself.
    unusual: Option<Record>,
    /// So many records are checked in one go.
    pile_max: usize,
    facts: Facts,
}

impl Checkers {
    /// With these properties.
    pub fn new(properties: Vec<Box<dyn Property>>) -> Checkers {
        Checkers { properties, pile: Pile::new(), unusual: None, pile_max: PILE, facts: Facts::default() }
    }

    /// From now on each record is checked when it comes.
    pub(crate) fn check_at_once(&mut self) {
        self.pile_max = 1;
    }

    /// The next record. What is wrong with it may show only some records later, but is told as if it had at once.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn observe(&mut self, record: Record) -> Result<(), Violation> {
        if self.pile_up(record) { self.catch_up() } else { Ok(()) }
    }

    /// Takes the next record, to be checked by [`Checkers::catch_up`]: at once, if this says so.
    #[inline(always)]
    pub(crate) fn pile_up(&mut self, record: Record) -> bool {
        if record.what.kind().bit() & USUAL != 0 {
            self.pile.push(record);
            self.pile.records.len() >= self.pile_max
        } else {
            self.unusual = Some(record);
            true
        }
    }

    /// The record that came last, if it is not checked yet.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.unusual.as_ref().or(self.pile.records.last().map(|record| &**record))
    }

    /// Judges whatever was recorded so far.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn catch_up(&mut self) -> Result<(), Violation> {
        let checked = self.check_pile();
        for kind in Facts::FOLLOWED.into_iter().filter(|kind| kind.bit() & self.pile.kinds != 0) {
            self.pile.of_kind(kind).for_each(|record| self.facts.follow(record));
        }
        self.pile.clear();
        checked?;
        self.unusual.take().map_or(Ok(()), |record| self.check_unusual(&record))
    }

    fn check_pile(&mut self) -> Result<(), Violation> {
        let mut first: Option<(usize, Violation)> = None;
        for property in &mut self.properties {
            if property.interests() & self.pile.kinds != 0 {
                // Only what comes before a violation can show an earlier one.
                let end = first.as_ref().map_or(PILE, |(index, _)| *index);
                first = property.observe_pile(&self.pile, end, &self.facts).err().or(first);
            }
        }
        first.map_or(Ok(()), |(_, violation)| Err(violation))
    }

    #[cold]
    fn check_unusual(&mut self, record: &Record) -> Result<(), Violation> {
        self.facts.follow(record);
        let kind = record.what.kind().bit();
        let mut interested = self.properties.iter_mut().filter(|property| property.interests() & kind != 0);
        interested.try_for_each(|property| property.observe(record, &self.facts))
    }

    /// The run is over.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn finish(&mut self, end: &End) -> Result<(), Violation> {
        self.catch_up()?;
        self.properties.iter_mut().try_for_each(|property| property.finish(end, &self.facts))
    }

    /// Each property's name, and how often it found its promise kept.
    pub fn checked(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.properties.iter().map(|property| (property.name(), property.checked()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Life, What};

    /// Breaks at records of one kind, from a moment on.
    struct Brittle {
        name: &'static str,
        kinds: u64,
        from: Time,
        checked: u64,
    }

    impl Property for Brittle {
        fn name(&self) -> &'static str {
            self.name
        }

        fn interests(&self) -> u64 {
            self.kinds
        }

        fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
            assert!(record.what.kind().bit() & self.kinds != 0, "not asked for");
            self.checked += 1;
            if record.at < self.from { Ok(()) } else { broken(self, record, String::new) }
        }

        fn checked(&self) -> u64 {
            self.checked
        }
    }

    fn brittle(name: &'static str, kinds: u64, from: u64) -> Box<dyn Property> {
        Box::new(Brittle { name, kinds, from: Time::from_nanos(from), checked: 0 })
    }

    /// What happens at a nanosecond: two usual things by turns, and now and then something unusual.
    fn what(at: u64) -> What {
        match at {
            _ if at % 101 == 100 => What::Gone,
            _ if at.is_multiple_of(2) => What::HistoryUsed { entries: 0 },
            _ => What::Executed { client: Life(0), call: 0 },
        }
    }

    /// What is wrong with so many records, one each nanosecond.
    fn check(properties: Vec<Box<dyn Property>>, records: u64) -> (Option<Violation>, Vec<u64>) {
        let mut checkers = Checkers::new(properties);
        let mut violation = None;
        for at in 0..records {
            let record = Record { at: Time::from_nanos(at), process: 0, life: Life(0), what: what(at) };
            violation = violation.or(checkers.observe(record).err());
        }
        violation = violation.or(checkers.catch_up().err());
        (violation, checkers.checked().map(|(_, times)| times).collect())
    }

    #[test]
    fn each_property_sees_what_it_asked_for_and_all_of_it() {
        let (even, odd, unusual) = (Kind::HistoryUsed.bit(), Kind::Executed.bit(), Kind::Gone.bit());
        let wanted = [even, even | odd, even | unusual, even | odd | unusual, Kind::Paused.bit()];
        let properties = wanted.map(|kinds| brittle("any", kinds, u64::MAX));
        let records = 3 * PILE as u64 + 11;
        let count = |kinds| (0..records).filter(|at| what(*at).kind().bit() & kinds != 0).count() as u64;
        assert_eq!(check(properties.into(), records), (None, wanted.map(count).to_vec()));
    }

    #[test]
    fn the_first_broken_promise_is_told_whoever_is_asked_first() {
        let (even, odd) = (Kind::HistoryUsed.bit(), Kind::Executed.bit());
        let properties =
            || vec![brittle("late", odd, 700), brittle("early", even, 650), brittle("same", even, 649)];
        for records in [651, 700, 1_000] {
            let violation = check(properties(), records).0.expect("promises are broken");
            assert_eq!((violation.property, violation.at), ("early", Time::from_nanos(650)));
        }
        assert_eq!(check(properties(), 650).0, None);
    }
}
