//! What users of a directory do besides operations: they watch directories, and make backups.

use super::director::{BACK_UP, Director, SWITCH};
use crate::bugs::{Planted, ServiceBug};
use crate::directory::{Next, Watcher};
use crate::draw::MILLISECOND;
use crate::record::Life;
use crate::world::{Seen, Trigger, WATCH};
use std::time::Duration;

/// Fraction of actions of a client that watches nothing with which it begins a watch.
const WATCHES: f64 = 0.1;
/// Fraction of watches that resume an earlier one from its position, if there is one.
const RESUMES: f64 = 0.5;
/// Time for which a client waits at one server: longer than servers hold a watch.
const WAITS_FOR: Duration = Duration::from_secs(8);
/// Pause after which a watch goes on that no server has answered.
const GOES_ON_AFTER: u64 = 50 * MILLISECOND;

impl Director {
    /// Lets a client that watches nothing begin a watch now and then.
    pub(super) fn watch_sometimes(&mut self, process: usize, life: Life) {
        let ends = self.watches.contains_key(&process) && self.app_random.chance(0.02);
        if ends {
            self.watches.remove(&process);
        }
        if self.watches.contains_key(&process) || self.book.number == 0 || !self.app_random.chance(WATCHES) {
            return;
        }
        let watch = self.resumed().unwrap_or_else(|| {
            self.watchers.push(Watcher::draw(&mut self.app_random, &self.book));
            self.watchers.len() as u32 - 1
        });
        self.watches.insert(process, watch);
        self.watch_on(process, life, watch);
    }

    /// Draws a watch that goes on from where an earlier one has ended, maybe in another process.
    fn resumed(&mut self) -> Option<u32> {
        let is_kept = |watch: &u32| {
            let is_under_way = self.watches.values().any(|under_way| under_way == watch);
            self.watchers[*watch as usize].has_position() && !is_under_way && !self.is_asking(*watch)
        };
        let kept: Vec<u32> = (0..self.watchers.len() as u32).filter(is_kept).collect();
        if kept.is_empty() || !self.app_random.chance(RESUMES) {
            return None;
        }
        Some(kept[self.app_random.below(kept.len() as u64) as usize])
    }

    /// True if an answer to a watch may still come, or has come and was not taken yet.
    fn is_asking(&self, watch: u32) -> bool {
        let asks = |(process, life): &(usize, Life)| self.is_current(*process, *life);
        self.asking.get(&watch).is_some_and(asks) || self.world.common.seen.contains_key(&watch)
    }

    /// Lets a watch ask for what follows.
    pub(super) fn watch_on(&mut self, process: usize, life: Life, watch: u32) {
        if !self.is_busy || self.watches.get(&process) != Some(&watch) || self.is_asking(watch) {
            return;
        }
        if !self.is_current(process, life) {
            self.watches.remove(&process);
            return;
        }
        let watcher = self.watchers[watch as usize].clone();
        match self.world.watch(process, watch, watcher, WAITS_FOR) {
            true => _ = self.asking.insert(watch, (process, life)),
            false => _ = self.watches.remove(&process),
        }
    }

    /// Takes what a watch got.
    pub(super) fn take_seen(&mut self, process: usize, life: Life, watch: u32) {
        let Some(seen) = self.world.common.seen.remove(&watch) else { return };
        self.asking.remove(&watch);
        let Some(watcher) = self.watchers.get_mut(watch as usize) else { return };
        let next = match seen {
            Seen::Took(taken, next) => {
                *watcher = *taken;
                next
            }
            Seen::Nothing => {
                if self.planted == Some(Planted::Service(ServiceBug::WatchRepeatsOnResume)) {
                    watcher.go_back();
                }
                Next::Waits
            }
            Seen::OtherService => Next::Ends,
        };
        match next {
            Next::Asks => self.watch_on(process, life, watch),
            Next::Waits => {
                let again = Trigger::Cancel { process: process as u16, life, index: WATCH | watch };
                self.world.trigger(GOES_ON_AFTER, again);
            }
            Next::Ends | Next::OtherInstance => {
                if self.watches.get(&process) == Some(&watch) {
                    self.watches.remove(&process);
                }
            }
        }
    }

    pub(super) fn schedule_backup(&mut self) {
        if let Some(every) = self.plan.backups_every {
            let delay = crate::network::exponential(&mut self.app_random, every);
            self.world.trigger(delay, Trigger::Line(BACK_UP));
        }
    }

    /// Lets one server make a backup.
    pub(super) fn back_up(&mut self) {
        if self.is_busy {
            let server = self.app_random.below(self.plan.servers as u64) as usize;
            self.world.back_up(server);
            self.schedule_backup();
        }
    }

    pub(super) fn schedule_switch(&mut self) {
        if let Some(every) = self.plan.switches_every {
            let delay = crate::network::exponential(&mut self.app_random, every);
            self.world.trigger(delay, Trigger::Line(SWITCH));
        }
    }

    /// Lets an operator ask one server for the other order.
    pub(super) fn switch(&mut self) {
        if self.is_busy {
            let server = self.app_random.below(self.plan.servers as u64) as usize;
            self.world.switch(server);
            self.schedule_switch();
        }
    }
}
