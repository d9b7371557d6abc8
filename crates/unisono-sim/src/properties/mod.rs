//! What the group promises, as judges of recorded runs: one file per promise.
//!
//! A [`Property`] is shown the records it asked for, in the order in which things happened, and says when a promise
//! is broken. None of them looks into the protocol: they know the events that applications saw, the marks that
//! members showed, and what the world did. docs/guarantees.md says what each promise is and when it holds.
//!
//! Runs are long and there are many, so judging must be cheap: a [`Judge`] hands each record only to those who ask
//! for its kind, and properties keep what they know in vectors indexed by life, epoch, place or number.

mod acknowledged_durable;
mod causal_order;
mod change_quorum;
mod consensus;
mod gap_free;
mod ground;
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
mod single_orderer;
mod stability;
#[cfg(test)]
mod story;
mod streams;
mod tables;
mod termination;
mod total_order;
mod uniformity;
mod views;
mod virtual_synchrony;
mod watermarks;

use crate::record::{End, Kind, Record};
use std::fmt;
use unisono_core::{GroupConfig, Time};

/// A promise, and the means to see it broken.
pub trait Property {
    /// Its name: short, in snake case, the same for ever.
    fn name(&self) -> &'static str;

    /// The kinds of records it wants to see: [`Kind::bit`]s.
    fn interests(&self) -> u32;

    /// A record of one of these kinds.
    fn observe(&mut self, record: &Record) -> Result<(), Violation>;

    /// The run is over.
    fn finish(&mut self, _end: &End) -> Result<(), Violation> {
        Ok(())
    }

    /// How often it found its promise kept: a property that never judged anything proves nothing.
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

/// Every property there is.
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
        Box::<virtual_synchrony::VirtualSynchrony>::default(),
        Box::<sending_view::SendingView>::default(),
        Box::<old_epoch_silence::OldEpochSilence>::default(),
        Box::<ordered_changes::OrderedChanges>::default(),
        Box::new(leaver_serves::LeaverServes::new(terms)),
        Box::new(reset_atomicity::ResetAtomicity::new(terms)),
        Box::<single_orderer::SingleOrderer>::default(),
        Box::new(stability::Stability::new(terms)),
        Box::<watermarks::Watermarks>::default(),
        Box::new(change_quorum::ChangeQuorum::new(terms)),
        Box::new(membership_precision::MembershipPrecision::new(terms)),
        Box::<termination::Termination>::default(),
        Box::<sends_resolved::SendsResolved>::default(),
        Box::<resources::Resources>::default(),
    ]
}

/// The promise of `property` is broken, as `record` shows. The words are made only then.
fn broken(property: &impl Property, record: &Record, what: impl FnOnce() -> String) -> Result<(), Violation> {
    let what = format!("{:?} {:?}: {}", record.life, record.what, what());
    Err(Violation { property: property.name(), at: record.at, what })
}

/// Shows records to properties.
pub struct Judge {
    properties: Vec<Box<dyn Property>>,
    /// For each kind of record, the properties that ask for it.
    interested: Vec<Vec<usize>>,
}

impl Judge {
    /// With these properties.
    pub fn new(properties: Vec<Box<dyn Property>>) -> Judge {
        let interested = Kind::ALL
            .iter()
            .map(|kind| {
                (0..properties.len()).filter(|i| properties[*i].interests() & kind.bit() != 0).collect()
            })
            .collect();
        Judge { properties, interested }
    }

    /// Whether anybody asks for records of this kind; others need not be made.
    pub fn wants(&self, kind: Kind) -> bool {
        !self.interested[kind as usize].is_empty()
    }

    /// The next record.
    pub fn observe(&mut self, record: &Record) -> Result<(), Violation> {
        for i in &self.interested[record.what.kind() as usize] {
            self.properties[*i].observe(record)?;
        }
        Ok(())
    }

    /// The run is over.
    pub fn finish(&mut self, end: &End) -> Result<(), Violation> {
        self.properties.iter_mut().try_for_each(|property| property.finish(end))
    }

    /// Each property's name, and how often it found its promise kept.
    pub fn checked(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.properties.iter().map(|property| (property.name(), property.checked()))
    }
}
