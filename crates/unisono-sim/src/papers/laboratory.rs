//! Where the measurements of many rows are made: each once, by the thread that needs it first.

use super::calls::{self, Called, Rates};
use super::costs::{Costs, MachineName};
use super::directory::{Directory, Operation, Service};
use super::group::{Measured, Trial};
use super::ring::Manner;
use super::rmp::{Transfer, Transferred};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Messages of a transfer: 5 MB in packets of 8 KB, as in the paper [WMK94 §5].
const TRANSFER_MESSAGES: u64 = 640;

/// Whose protocol runs on the testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The papers'.
    Papers,
    /// Our own core.
    Ours,
}

/// Measurements by what was measured, each made when it is needed first.
struct Known<K, V>(Mutex<BTreeMap<K, Arc<OnceLock<V>>>>);

impl<K: Ord, V: Clone> Known<K, V> {
    fn get(&self, key: K, measure: impl FnOnce() -> V) -> V {
        let cell = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(key).or_default().clone()
        };
        cell.get_or_init(measure).clone()
    }
}

impl<K, V> Default for Known<K, V> {
    fn default() -> Known<K, V> {
        Known(Mutex::new(BTreeMap::new()))
    }
}

/// Costs, and what was measured with them.
pub struct Laboratory {
    pub(super) costs: Costs,
    pub(super) seed: u64,
    trials: Known<(Trial, Side), Measured>,
    transfers: Known<Transfer, Transferred>,
    ours: Known<(Transfer, Manner), Transferred>,
    draws: Known<(usize, usize), Rates>,
    rpcs: Known<MachineName, Called>,
    directory: OnceLock<Directory>,
}

impl Laboratory {
    /// Returns a laboratory in which nothing is measured yet.
    pub fn new(costs: Costs, seed: u64) -> Laboratory {
        Laboratory {
            costs,
            seed,
            trials: Known::default(),
            transfers: Known::default(),
            ours: Known::default(),
            draws: Known::default(),
            rpcs: Known::default(),
            directory: OnceLock::new(),
        }
    }

    /// Returns what a trial of a group measured. Its seed is the laboratory's.
    pub fn trial(&self, trial: &Trial, side: Side) -> Measured {
        let trial = Trial { seed: self.seed, ..trial.clone() };
        self.trials.get((trial.clone(), side), || match side {
            Side::Papers => trial.simulate(&self.costs),
            Side::Ours => trial.ours(&self.costs),
        })
    }

    /// Returns what a transfer by RMP measured.
    pub(super) fn transfer(&self, transfer: Transfer) -> Transferred {
        let transfer = Transfer { seed: self.seed + transfer.seed, ..transfer };
        self.transfers.get(transfer, || transfer.run(&self.costs, TRANSFER_MESSAGES))
    }

    /// Returns what a transfer by our own core measured.
    pub(super) fn ours(&self, transfer: Transfer, manner: Manner) -> Transferred {
        let transfer = Transfer { seed: self.seed + transfer.seed, ..transfer };
        self.ours.get((transfer, manner), || transfer.ours(&self.costs, manner, TRANSFER_MESSAGES))
    }

    /// Returns what a call without work at its server measured.
    pub(super) fn rpc(&self, machine: MachineName) -> Called {
        self.rpcs.get(machine, || calls::call_alone(&self.costs, machine, 0.0))
    }

    /// Returns the milliseconds of an operation of a directory service at its client.
    pub fn operation_ms(&self, operation: Operation, service: Service) -> f64 {
        self.directory().took(operation, service)
    }

    /// Returns the mean lookups a second of this number of clients, each of which draws one of this number of servers.
    pub fn lookups_per_s(&self, servers: usize, clients: usize) -> f64 {
        self.lookups(servers, clients).mean
    }

    /// Returns the directory service.
    pub(super) fn directory(&self) -> &Directory {
        self.directory.get_or_init(|| Directory::new(&self.costs))
    }

    /// Returns the lookups a second of this number of clients at this number of servers.
    pub(super) fn lookups(&self, servers: usize, clients: usize) -> Rates {
        self.draws.get((servers, clients), || self.directory().lookups(servers, clients, self.seed))
    }
}
