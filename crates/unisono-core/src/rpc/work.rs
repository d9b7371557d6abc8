//! A limit on work for clients of which nothing is known yet: the signatures that are made, or checked, per second, and the
//! beginnings of large requests that the application looks at. Each such piece of work is a *task* here.
//!
//! A question for a port is outside of any epoch, where nothing detects recordings. A process that sends one again and again,
//! or invents new ones, must not occupy the thread that also serves the groups of this process. Work beyond the budget
//! is not done; the processes that wait for it ask again. One source address cannot spend all of it: the other ones have a
//! reserve of the same size, of which each has a share. Many addresses together can. So those that got nothing for a second
//! have a budget of their own, and those that got less than three tasks in ten seconds another: addresses that ask without end
//! spend little of these, and a newcomer has its first tasks. Those that have shown a right have one for
//! themselves.

use super::lately::Lately;
use crate::shares::{Bound, Source};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};
use core::time::Duration;

/// Interval in which the budget of all grows by one task: 1,000 per second. A signature takes 30 to 100 µs of a processor.
const BUDGET_EVERY: Duration = Duration::from_millis(1);
/// The same of each of the other budgets: 500 per second.
const EVERY_OF_IDLE: Duration = Duration::from_millis(2);
/// Number of tasks that may come at once: half of them from one source address, which has then to be content with what grows.
const TASKS_AT_ONCE: u32 = 128;
const AT_ONCE: Bound = Bound { most: TASKS_AT_ONCE as usize, part: 4 };

/// The other budgets are for sources that spent fewer tasks than this in this time, or in up to twice this time.
const IDLE: [(usize, Duration); 2] = [(1, Duration::from_secs(1)), (3, Duration::from_secs(10))];

/// A budget of tasks.
#[derive(Clone, Debug)]
pub(super) struct WorkBudget {
    of_others: Budget,
    of_entitled: Budget,
    of_idle: [OfIdle; 2],
}

impl WorkBudget {
    pub(super) fn new(now: Time) -> WorkBudget {
        let of_idle = IDLE.map(|(tasks, within)| OfIdle {
            budget: Budget::new(now, EVERY_OF_IDLE),
            spenders: vec![Lately::new(now, within); tasks],
        });
        let of_entitled = Budget::new(now, BUDGET_EVERY);
        WorkBudget { of_others: Budget::new(now, BUDGET_EVERY), of_entitled, of_idle }
    }

    /// Spends one task for a source and returns true; returns false if none is left, or if the source has its share.
    pub(super) fn spend(&mut self, now: Time, source: Source, is_entitled: bool) -> bool {
        let own = if is_entitled { &mut self.of_entitled } else { &mut self.of_others };
        let is_admitted =
            own.spend(now, source) || self.of_idle.iter_mut().any(|of_idle| of_idle.spend(now, source));
        if is_admitted {
            self.of_idle.iter_mut().for_each(|of_idle| of_idle.note(now, source));
        }
        is_admitted
    }
}

/// The budget of sources that have spent little for a while.
#[derive(Clone, Debug)]
struct OfIdle {
    budget: Budget,
    /// Those that have lately spent one task, two, and so on.
    spenders: Vec<Lately>,
}

impl OfIdle {
    fn spend(&mut self, now: Time, source: Source) -> bool {
        self.spenders.iter_mut().any(|spenders| !spenders.has(now, source)) && self.budget.spend(now, source)
    }

    fn note(&mut self, now: Time, source: Source) {
        for spenders in &mut self.spenders {
            if !spenders.has(now, source) {
                spenders.add(now, source);
                return;
            }
        }
    }
}

/// One of the budgets.
#[derive(Clone, Debug)]
struct Budget {
    /// Interval in which it grows by one task.
    every: Duration,
    left: u32,
    /// When the last task was added.
    grown_at: Time,
    /// What was spent for each source and has not grown again, up to `TASKS_AT_ONCE` for all.
    of_sources: BTreeMap<Source, u32>,
    /// The source that got the last one that grew.
    turn: Option<Source>,
}

impl Budget {
    fn new(now: Time, every: Duration) -> Budget {
        Budget { every, left: TASKS_AT_ONCE, grown_at: now, of_sources: BTreeMap::new(), turn: None }
    }

    fn spend(&mut self, now: Time, source: Source) -> bool {
        let grown = now.since(self.grown_at).as_nanos() / self.every.as_nanos();
        let missing = TASKS_AT_ONCE - self.left;
        match u32::try_from(grown).ok().filter(|grown| *grown < missing) {
            Some(grown) => {
                self.left += grown;
                self.grown_at = self.grown_at + self.every * grown;
                self.give_back(grown);
            }
            None => {
                (self.left, self.grown_at) = (TASKS_AT_ONCE, now);
                self.of_sources.clear();
            }
        }
        let own = self.of_sources.get(&source).copied().unwrap_or(0);
        let spent = TASKS_AT_ONCE - self.left;
        let is_admitted = AT_ONCE.admits(spent as usize, own as usize, 1);
        if is_admitted {
            self.left -= 1;
            self.of_sources.insert(source, own + 1);
        }
        is_admitted
    }

    /// Gives what has grown to those that spent, in turn: one that spends less than an equal part has its share again.
    fn give_back(&mut self, grown: u32) {
        for _ in 0..grown {
            let after = self.turn.map_or(Unbounded, Excluded);
            let next = self.of_sources.range((after, Unbounded)).next().or(self.of_sources.first_key_value());
            let Some(source) = next.map(|(source, _)| *source) else { return };
            self.turn = Some(source);
            if let Some(spent) = self.of_sources.get_mut(&source) {
                *spent -= 1;
                if *spent == 0 {
                    self.of_sources.remove(&source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1000)
    }

    #[test]
    fn a_burst_is_followed_by_one_task_each_millisecond() {
        let (mut budget, source) = (WorkBudget::new(at(0)), Source::of_host(1));
        assert_eq!((0..1000).filter(|_| budget.spend(at(0), source, false)).count(), 64);
        // However often it is asked, also between two milliseconds.
        let asks = (0..1_000_000).step_by(10);
        assert_eq!(asks.filter(|micros| budget.spend(at(*micros), source, false)).count(), 999);
        assert_eq!(
            (0..1000).filter(|_| budget.spend(at(30_999_999), source, false)).count(),
            64,
            "it does not grow further"
        );
    }

    #[test]
    fn one_that_asks_for_all_leaves_a_share_to_each_other() {
        let (mut budget, greedy) = (WorkBudget::new(at(0)), Source::of_host(9));
        let (mut done, mut missed) = (0, 0);
        for micros in (0..1_000_000).step_by(10) {
            done += u32::from(budget.spend(at(micros), greedy, false));
            // Twenty others, each every 100 ms.
            if micros % 5000 == 0 {
                missed += u32::from(!budget.spend(
                    at(micros),
                    Source::of_host((micros / 5000 % 20) as u8 + 10),
                    false,
                ));
            }
        }
        assert_eq!(missed, 0);
        assert!((800..=1064).contains(&done), "{done}");
        // However many there are, the bounds hold for all.
        let mut budget = WorkBudget::new(at(0));
        let all = (0..10_000).filter(|index| budget.spend(at(0), numbered(*index), false));
        assert_eq!(all.count(), 3 * 128);
    }

    #[test]
    fn a_newcomer_has_three_tasks_beside_many_that_ask_for_all() {
        let mut budget = WorkBudget::new(at(0));
        for index in 0..4_000 {
            budget.spend(at(u64::from(index) * 125), numbered(index % 300), false);
        }
        let now = at(500_000);
        assert_eq!((0..10).filter(|_| budget.spend(now, numbered(1000), false)).count(), 3);
    }

    #[test]
    fn one_that_has_shown_a_right_has_tasks_beside_many_that_ask_for_all() {
        let mut budget = WorkBudget::new(at(0));
        let mut missed = 0;
        for index in 0..8_000 {
            budget.spend(at(u64::from(index) * 125), numbered(index % 300), false);
            if index % 40 == 0 {
                missed += u32::from(!budget.spend(at(u64::from(index) * 125), numbered(1000), true));
            }
        }
        assert_eq!(missed, 0);
    }

    fn numbered(index: u32) -> Source {
        core::net::IpAddr::from((0x0a00_0000 + index).to_be_bytes()).into()
    }

    #[test]
    fn many_that_ask_for_all_leave_budgets_to_those_that_got_nothing_lately() {
        let mut budget = WorkBudget::new(at(0));
        let (mut done, mut missed, mut again, mut later) = (0, 0, 0, 0);
        // Three hundred sources ask 8,000 times a second, for 9 s.
        for index in 0..72_000 {
            let now = at(u64::from(index) * 125);
            done += u32::from(budget.spend(now, numbered(index % 300), false));
            if index % 80 == 40 {
                // A new one each 10 ms, one that has just had its task, and one that had its task 2 s ago.
                missed += u32::from(!budget.spend(now, numbered(1000 + index), false));
                again += u32::from(budget.spend(now, numbered(1000 + index), false));
                let earlier = index.checked_sub(2 * 8_000);
                later += earlier
                    .map_or(0, |earlier| u32::from(!budget.spend(now, numbered(1000 + earlier), false)));
            }
        }
        assert_eq!((missed, later), (0, 0));
        assert!((7_000..11_700).contains(&done), "{done}");
        assert!(again > 850, "a newcomer has a second task: {again}");
        // One of them that asks no longer is new again after a while.
        let later = at(29_000_000);
        (0..128).for_each(|index| _ = budget.spend(later, numbered(2000 + index), false));
        assert!(budget.spend(later, numbered(0), false));
    }
}
