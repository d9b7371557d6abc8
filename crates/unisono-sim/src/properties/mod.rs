//! The promises of groups and calls, as checkers of recorded runs: one file per promise. docs/guarantees.md says what
//! each promise is and when it holds.
//!
//! A [`Property`] receives the records of the kinds that it asked for, in the order in which they were made, and
//! reports when its promise is broken. Checkers know nothing of the protocol. They know the events that applications
//! received, the watermarks of the members, and which faults occurred.
//!
//! Runs are long and there are many, so checking must be cheap. [`Checkers`] collects records in a batch and passes
//! the whole batch to one property after the other. Facts of a run that many properties need are followed once, in
//! [`Facts`]. Properties keep everything else in vectors indexed by life, epoch, seqno or message number.

mod acknowledged_durable;
mod calls;
mod causal_order;
mod change_quorum;
mod confirmed;
mod conflicts_end;
mod consensus;
mod datagrams;
mod directory;
mod early_kept;
mod ended_is_silent;
mod entries;
mod facts;
mod fewer_gives_way;
#[cfg(test)]
mod fixture;
mod floor_kept;
mod from_outside;
mod gap_free;
mod halted_is_told;
mod healing;
mod heard;
mod holders;
mod integrity;
mod keeping;
mod leaver_serves;
mod membership_precision;
mod minimum_kept;
#[cfg(test)]
mod mutations;
mod no_creation_after_failure;
mod no_duplication;
mod no_lone_founder;
mod old_epoch_silence;
mod ordered_changes;
mod quality_order;
mod quorum;
mod replica;
mod reset_atomicity;
mod resources;
mod ring;
mod same_prefix;
mod scope;
mod sender_order;
mod sending_view;
mod sends_resolved;
mod separate_lineages;
mod single_lineage;
mod single_sequencer;
mod stability;
mod steady_role;
mod streams;
mod switch_at_seqno;
mod tables;
mod termination;
mod token_moves;
mod total_order;
mod uniformity;
mod unreliable;
mod views;
mod virtual_synchrony;
mod watermarks;

use crate::record::{End, Kind, Record};
use facts::is_usual;
use std::fmt;
use std::mem::ManuallyDrop;
use unisono_core::{GroupConfig, Time};

pub(crate) use calls::ENOUGH;
pub use calls::all as calls;
pub use directory::all as directories;
pub use facts::Facts;
pub use replica::all as replicas;

/// A promise, and the checker that reports when it is broken.
pub trait Property {
    /// Returns its name: short, in snake case, never changed.
    fn name(&self) -> &'static str;

    /// Returns the kinds of records that it needs, as [`Kind::bit`]s.
    fn interests(&self) -> u64;

    /// Checks a record of one of these kinds. `facts` include everything up to the record, except as [`Facts`] says.
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation>;

    /// Checks the records of these kinds among the first `end` of a batch. Returns the index of the first record that
    /// shows the promise broken, with the violation.
    fn observe_batch(&mut self, batch: &Batch, end: usize, facts: &Facts) -> Result<(), (usize, Violation)> {
        let records = &batch.records[..end.min(batch.records.len())];
        let wanted = batch.of_kinds(self.interests());
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

    /// Checks what is known at the end of the run.
    fn finish(&mut self, _end: &End, _facts: &Facts) -> Result<(), Violation> {
        Ok(())
    }

    /// Returns the number of times that the promise was tested. A property that was never tested proves nothing.
    fn checked(&self) -> u64;
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the property.
    pub property: &'static str,
    /// Time of the record that shows it, or of the end of the run.
    pub at: Time,
    /// What happened, in one sentence.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ns: {}", self.property, self.at.as_nanos(), self.what)
    }
}

/// What the properties must know of a group in advance.
#[derive(Clone, Debug)]
pub struct GroupTerms {
    /// Configuration that all its members share.
    pub config: GroupConfig,
    /// Minimum number of members of a founding that no application created alone; 1 if processes found a group when they
    /// find none.
    pub founders_min: usize,
    /// True if the token goes round in the group, now and then at least.
    pub may_be_ring: bool,
    /// True if nothing is lost, no process fails, and every message fits a datagram.
    pub is_quiet: bool,
}

/// Returns all properties of groups that such a run checks.
pub fn all(terms: &GroupTerms) -> Vec<Box<dyn Property>> {
    let mut all: Vec<Box<dyn Property>> = vec![
        Box::<integrity::Integrity>::default(),
        Box::<no_duplication::NoDuplication>::default(),
        Box::<no_creation_after_failure::NoCreationAfterFailure>::default(),
        Box::new(sender_order::SenderOrder::new(terms)),
        Box::<total_order::TotalOrder>::default(),
        Box::<gap_free::GapFree>::default(),
        Box::<same_prefix::SamePrefix>::default(),
        Box::<causal_order::CausalOrder>::default(),
        Box::new(uniformity::Uniformity::new(terms)),
        Box::new(acknowledged_durable::AcknowledgedDurable::new(terms)),
        Box::new(holders::Holders::new(terms)),
        Box::<unreliable::Unreliable>::default(),
        Box::<early_kept::EarlyKept>::default(),
        Box::<quality_order::QualityOrder>::default(),
        Box::new(views::Views::new(terms)),
        Box::new(single_lineage::SingleLineage::new(terms)),
        Box::new(consensus::Consensus::new(terms)),
        Box::<separate_lineages::SeparateLineages>::default(),
        Box::<conflicts_end::ConflictsEnd>::default(),
        Box::<fewer_gives_way::FewerGivesWay>::default(),
        Box::new(no_lone_founder::NoLoneFounder::new(terms)),
        Box::new(minimum_kept::MinimumKept::new(terms)),
        Box::<virtual_synchrony::VirtualSynchrony>::default(),
        Box::<sending_view::SendingView>::default(),
        Box::<old_epoch_silence::OldEpochSilence>::default(),
        Box::new(ordered_changes::OrderedChanges::new(terms)),
        Box::new(leaver_serves::LeaverServes::new(terms)),
        Box::new(reset_atomicity::ResetAtomicity::new(terms)),
        Box::<floor_kept::FloorKept>::default(),
        Box::<scope::Scope>::default(),
        Box::<from_outside::FromOutside>::default(),
        Box::<single_sequencer::SingleSequencer>::default(),
        Box::<heard::Heard>::default(),
        Box::new(steady_role::SteadyRole::new(terms)),
        Box::new(stability::Stability::new(terms)),
        Box::<watermarks::Watermarks>::default(),
        Box::new(change_quorum::ChangeQuorum::new(terms)),
        Box::new(membership_precision::MembershipPrecision::new(terms)),
        Box::new(termination::Termination::new(terms)),
        Box::new(sends_resolved::SendsResolved::new(terms)),
        Box::<halted_is_told::HaltedIsTold>::default(),
        Box::new(confirmed::Confirmed::new(terms)),
        Box::<ended_is_silent::EndedIsSilent>::default(),
        Box::new(resources::Resources::new(terms)),
    ];
    if terms.may_be_ring {
        all.push(Box::new(ring::Ring::new(terms)));
        all.push(Box::new(token_moves::TokenMoves::new(terms)));
        all.push(Box::new(switch_at_seqno::SwitchAtSeqno::new(terms)));
    }
    // Faults cost datagrams too.
    if terms.is_quiet {
        all.push(Box::new(datagrams::Datagrams::new(terms)));
    }
    all
}

/// Reports that `record` breaks the promise of `property`. The text is made only then.
fn broken(property: &impl Property, record: &Record, what: impl FnOnce() -> String) -> Result<(), Violation> {
    let what = format!("{:?} {:?}: {}", record.life, record.what, what());
    Err(Violation { property: property.name(), at: record.at, what })
}

/// Reports `fault`, if there is one, as a violation at `record`.
fn result(property: &impl Property, record: &Record, fault: Option<String>) -> Result<(), Violation> {
    fault.map_or(Ok(()), |fault| broken(property, record, || fault))
}

/// Reports `fault`, if there is one, as a violation at the end of the run.
fn final_result(property: &impl Property, end: &End, fault: Option<String>) -> Result<(), Violation> {
    fault.map_or(Ok(()), |what| Err(Violation { property: property.name(), at: end.at, what }))
}

/// Records of usual kinds that wait to be checked, in order, and the positions of the records of each kind.
pub struct Batch {
    /// Usual records own nothing that must be dropped. `ManuallyDrop` lets the compiler build them in place.
    records: Vec<ManuallyDrop<Record>>,
    positions: Box<[Positions; KINDS]>,
    /// Kinds of which the batch has records.
    kinds: u64,
}

/// One bit for each record of a batch.
type Positions = [u64; BATCH / 64];

const KINDS: usize = Kind::ALL.len();

/// Maximum number of records in a batch.
const BATCH: usize = 512;

impl Batch {
    fn new() -> Batch {
        Batch {
            records: Vec::with_capacity(BATCH),
            positions: Box::new([Positions::default(); KINDS]),
            kinds: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, record: Record) {
        let (kind, index) = (record.what.kind(), self.records.len());
        self.kinds |= kind.bit();
        self.positions[kind as usize][index / 64 % (BATCH / 64)] |= 1 << (index % 64);
        self.records.push(ManuallyDrop::new(record));
    }

    fn clear(&mut self) {
        self.records.clear();
        for kind in bits(self.kinds) {
            self.positions[kind] = Positions::default();
        }
        self.kinds = 0;
    }

    /// Iterates over the records of one kind.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Record> {
        let chunks = self.records.chunks(64).zip(self.positions[kind as usize]);
        chunks.flat_map(|(records, word)| {
            bits(word).filter_map(|index| records.get(index).map(|record| &**record))
        })
    }

    /// Returns the positions of the records of some kinds.
    fn of_kinds(&self, kinds: u64) -> Positions {
        let mut wanted = Positions::default();
        for kind in bits(kinds & self.kinds) {
            wanted.iter_mut().zip(&self.positions[kind]).for_each(|(all, these)| *all |= these);
        }
        wanted
    }
}

/// Iterates over the set bits of a word, lowest first.
#[inline]
fn bits(word: u64) -> impl Iterator<Item = usize> {
    let mut left = word;
    std::iter::from_fn(move || {
        let lowest = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lowest)
    })
}

/// Passes records to properties in batches, so that the code and tables of one property stay in the cache for a whole
/// batch.
pub struct Checkers {
    properties: Vec<Box<dyn Property>>,
    batch: Batch,
    /// Record of an unusual kind that came after the batch, checked alone.
    unusual: Option<Record>,
    /// Number of records at which the batch is checked.
    batch_max: usize,
    facts: Facts,
}

impl Checkers {
    /// Checks with these properties.
    pub fn new(properties: Vec<Box<dyn Property>>) -> Checkers {
        Checkers { properties, batch: Batch::new(), unusual: None, batch_max: BATCH, facts: Facts::default() }
    }

    /// From now on, checks each record when it comes.
    pub(crate) fn check_at_once(&mut self) {
        self.batch_max = 1;
    }

    /// Takes the next record. Its violation may be returned a batch later; it names the time of the record.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn observe(&mut self, record: Record) -> Result<(), Violation> {
        if self.push(record) { self.catch_up() } else { Ok(()) }
    }

    /// Takes the next record. Returns true if the caller must call [`Checkers::catch_up`] now.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: Record) -> bool {
        if is_usual(&record.what) {
            self.batch.push(record);
            self.batch.records.len() >= self.batch_max
        } else {
            self.unusual = Some(record);
            true
        }
    }

    /// Returns the last record, if it is not checked yet.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.unusual.as_ref().or(self.batch.records.last().map(|record| &**record))
    }

    /// Checks all records so far.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn catch_up(&mut self) -> Result<(), Violation> {
        let checked = self.check_batch();
        for kind in Facts::FOLLOWED.into_iter().filter(|kind| kind.bit() & self.batch.kinds != 0) {
            self.batch.of_kind(kind).for_each(|record| self.facts.follow(record));
        }
        self.batch.clear();
        checked?;
        self.unusual.take().map_or(Ok(()), |record| self.check_unusual(&record))
    }

    fn check_batch(&mut self) -> Result<(), Violation> {
        let mut first: Option<(usize, Violation)> = None;
        for property in &mut self.properties {
            if property.interests() & self.batch.kinds != 0 {
                // Only the records before a violation can show an earlier one.
                let end = first.as_ref().map_or(BATCH, |(index, _)| *index);
                first = property.observe_batch(&self.batch, end, &self.facts).err().or(first);
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

    /// Checks the rest of the records, and what is known at the end of the run.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn finish(&mut self, end: &End) -> Result<(), Violation> {
        self.catch_up()?;
        self.properties.iter_mut().try_for_each(|property| property.finish(end, &self.facts))
    }

    /// Returns each property's name and the number of times that its promise was tested.
    pub fn checked(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.properties.iter().map(|property| (property.name(), property.checked()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Life, What};

    /// Reports a violation at each record of some kinds, from a moment on.
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
            assert!(record.what.kind().bit() & self.kinds != 0, "the property did not ask for this kind");
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

    /// The record at a nanosecond: two usual kinds in turn, and an unusual one every 101 ns.
    fn what(at: u64) -> What {
        match at {
            _ if at % 101 == 100 => What::Gone,
            _ if at.is_multiple_of(2) => What::HistoryUsed { entries: 0 },
            _ => What::Executed { client: Life(0), call: 0 },
        }
    }

    /// Checks this number of records, one per nanosecond.
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
        let records = 3 * BATCH as u64 + 11;
        let count = |kinds| (0..records).filter(|at| what(*at).kind().bit() & kinds != 0).count() as u64;
        assert_eq!(check(properties.into(), records), (None, wanted.map(count).to_vec()));
    }

    #[test]
    fn the_earliest_violation_is_reported_in_any_order_of_properties() {
        let (even, odd) = (Kind::HistoryUsed.bit(), Kind::Executed.bit());
        let properties =
            || vec![brittle("late", odd, 700), brittle("early", even, 650), brittle("same", even, 649)];
        for records in [651, 700, 1_000] {
            let violation = check(properties(), records).0.expect("a promise is broken");
            assert_eq!((violation.property, violation.at), ("early", Time::from_nanos(650)));
        }
        assert_eq!(check(properties(), 650).0, None);
    }
}
