//! The promises of replicated state. The records are those of [`ReplicaRecord`]: what callers asked for and got, and what
//! each copy applied. One file per promise.

mod answered_kept;
mod calls_once;
mod copies_agree;
mod copies_meet_minimum;
mod created_once;
mod disks_agree;
mod ended_is_silent;
#[cfg(test)]
mod fixture;
mod goes_on;
mod hung_truly;
mod linearizable;
mod logs;
mod nobody_is_shut_out;
mod one_answer;
mod one_holder;
mod one_service;
mod only_synced_counts;
mod replay_equals;
mod replica_bounds;
mod state_goes_on;
mod waits_bounded;
pub(super) mod wing_gong;

use super::{Property, Violation, broken};
use crate::record::{Life, Record, ReplicaRecord, What};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::Name;

/// Returns all properties of replicated state.
pub fn all() -> Vec<Box<dyn Property>> {
    let mut all = with(replay_equals::ReplayEquals::default());
    all.push(Box::<linearizable::Linearizable>::default());
    all.push(Box::<one_holder::OneHolder>::default());
    all.push(Box::<one_answer::OneAnswer>::default());
    all
}

/// Returns those that hold whatever the state is.
pub(super) fn of_any_state() -> Vec<Box<dyn Property>> {
    with(replay_equals::ReplayEquals::of_copies())
}

fn with(replay_equals: replay_equals::ReplayEquals) -> Vec<Box<dyn Property>> {
    vec![
        Box::<created_once::CreatedOnce>::default(),
        Box::<only_synced_counts::OnlySyncedCounts>::default(),
        Box::<disks_agree::DisksAgree>::default(),
        Box::<answered_kept::AnsweredKept>::default(),
        Box::new(replay_equals),
        Box::<copies_agree::CopiesAgree>::default(),
        Box::<copies_meet_minimum::CopiesMeetMinimum>::default(),
        Box::<calls_once::CallsOnce>::default(),
        Box::<one_service::OneService>::default(),
        Box::<goes_on::GoesOn>::default(),
        Box::<nobody_is_shut_out::NobodyIsShutOut>::default(),
        Box::<waits_bounded::WaitsBounded>::default(),
        Box::<hung_truly::HungTruly>::default(),
        Box::<state_goes_on::StateGoesOn>::default(),
        Box::<ended_is_silent::EndedIsSilent>::default(),
        Box::<replica_bounds::ReplicaBounds>::default(),
    ]
}

/// Returns what a record says of replicated state.
fn content(record: &Record) -> Option<&ReplicaRecord> {
    match &record.what {
        What::Replica(content) => Some(content),
        _ => None,
    }
}

/// The names of lives: lives of one name are one server.
#[derive(Debug, Default)]
struct Namesakes(Map<Life, Name>);

impl Namesakes {
    fn note(&mut self, record: &Record) {
        if let What::Started { name } = &record.what {
            self.0.insert(record.life, name.clone());
        }
    }

    /// Returns the number of servers that these lives are of.
    fn count<'a>(&self, lives: impl Iterator<Item = &'a Life>) -> usize {
        let (named, other): (Vec<_>, Vec<_>) =
            lives.map(|life| (self.0.get(life), life)).partition(|(name, _)| name.is_some());
        let names: BTreeSet<_> = named.iter().map(|(name, _)| name).collect();
        let lives: BTreeSet<_> = other.iter().map(|(_, life)| life).collect();
        names.len() + lives.len()
    }

    /// True if a founder has the name of one of these copies and is another life: two processes of one name run, and both
    /// have its vote. If they are cut off from each other, each may found a service.
    fn are_doubled<'a>(&self, mut copies: impl Iterator<Item = &'a Life>, founders: &[Life]) -> bool {
        copies.any(|copy| {
            let name = self.0.get(copy);
            let is_other = |founder: &&Life| *founder != copy && self.0.get(founder) == name;
            name.is_some() && founders.iter().any(|founder| is_other(&founder))
        })
    }
}

/// A map with few lookups per record, in the order of its keys.
type Map<K, V> = BTreeMap<K, V>;
