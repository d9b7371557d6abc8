//! The hostile client of some runs: one process whose lives take what they can get, beside clients that need little. It draws
//! from a random stream of its own, so that runs without it are what they were.

use super::director::Director;
use super::plan::Plan;
use super::states::{Op, REGISTERS};
use crate::directory::{self, Book};
use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::exponential;
use crate::record::{Life, Mode};
use crate::world::{Question, Trigger};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_core::Random;
use unisono_table::{Check, Rights};

/// Random stream of which runs have a hostile client, and of what it does.
const HOSTILE: u64 = 0x686f_7374_696c_6521;
/// Fraction of runs that have one: with objects, and with a directory, whose checkers need more time.
const SHARE: f64 = 0.06;
const SHARE_OF_DIRECTORIES: f64 = 0.02;
/// Maximum number of its lives at a time.
const LIVES_MAX: u64 = 32;
/// While faults strike or things settle, it acts less often by this factor: then nothing is promised to the others.
const SELDOM: u64 = 16;
/// Most bytes of one of its large commands besides.
const LARGE_BYTES_MAX: u64 = 30_000;
/// Fraction of its queries of a directory that are local ones.
const LOCAL: f64 = 0.3;

/// A hostile client.
#[derive(Clone, Debug)]
pub(crate) struct HostilePlan {
    random: Random,
    /// Number of its lives at a time.
    pub(super) lives: usize,
    /// Mean interval between two of its actions in nanoseconds, most calls of one action, and most calls that one life has
    /// under way.
    every: u64,
    burst_max: u64,
    under_way_max: usize,
    /// Fraction of actions with which a life gives way to a new one.
    renews: f64,
    /// Fractions of calls that name a handler, of calls that read, and of commands that are large.
    handlers: f64,
    reads: f64,
    large: f64,
    /// Present if the service keeps a directory.
    of_directory: Option<OfDirectory>,
    /// Maximum number of requests that wait at a server, and how long a server works on each.
    pub(super) queue_max: u16,
    pub(super) request_takes: Duration,
}

/// What a hostile client has and does at a directory.
#[derive(Clone, Debug)]
struct OfDirectory {
    /// Rights of the capability of the root that it was given. `None` if it was given none: then it guesses the check.
    given: Option<Rights>,
    /// Fractions of calls that watch a directory, and of the others that name the longest paths.
    watches: f64,
    long: f64,
}

impl OfDirectory {
    fn draw(random: &mut Random) -> OfDirectory {
        OfDirectory {
            given: random.pick(&[None, Some(Rights(0x04)), Some(Rights(0x08)), Some(Rights::COLUMNS)]),
            watches: random.pick(&[0.0, 0.1, 0.5]),
            long: random.pick(&[0.0, 0.02, 0.1]),
        }
    }
}

/// What a hostile client knows of a directory.
pub(super) struct Learned {
    book: Book,
    /// What it has asked for, by operation.
    asked: BTreeMap<u32, Bytes>,
}

impl HostilePlan {
    /// Draws the hostile client of a run, if it has one.
    pub(super) fn draw(seed: u64, directory: bool) -> Option<HostilePlan> {
        let mut random = Random::from_u64(seed ^ HOSTILE);
        if !random.chance(if directory { SHARE_OF_DIRECTORIES } else { SHARE }) {
            return None;
        }
        let lives = random.weigh(&[(1, 1), (2, 8), (5, LIVES_MAX)]);
        let every = random.millis(1, 4);
        Some(HostilePlan {
            lives: lives as usize,
            every,
            burst_max: random.pick(&[16, 32]),
            under_way_max: random.pick(&[8, 16]),
            renews: random.pick(&[0.0, 0.01, 0.2]),
            handlers: random.pick(&[0.0, 0.2, 0.8]),
            reads: random.pick(&[0.1, 0.5]),
            large: random.pick(&[0.0, 0.0, 0.02]),
            of_directory: directory.then(|| OfDirectory::draw(&mut random)),
            queue_max: 64,
            request_takes: Duration::from_micros(random.between(1_500, 3_000)),
            random,
        })
    }

    /// Returns what it knows at the beginning, if the others know this.
    pub(super) fn learned(&mut self, others: &Book) -> Option<Learned> {
        let OfDirectory { given, .. } = self.of_directory.as_ref()?;
        let mut root = others.root;
        match given.and_then(|rights| root.restrict(rights)) {
            Some(restricted) => root = restricted,
            None => root.check = Check::from_bits(u128::from(self.random.next_u64())),
        }
        Some(Learned { book: Book::of(root), asked: BTreeMap::new() })
    }

    /// Draws how long it waits for an outcome: for the longest that a service remembers one, and beyond.
    fn limit(&mut self) -> Duration {
        Duration::from_secs(self.random.pick(&[1, 30, 3_600, 4_000_000]))
    }
}

impl Plan {
    /// Gives some runs a hostile client. Their servers are well for longer, and half of them from the beginning.
    pub(super) fn draw_hostile(&mut self, seed: u64) {
        let Some(mut hostile) = HostilePlan::draw(seed, self.directory) else { return };
        if self.corrupts_at.is_some() || self.is_one_stuck || self.load.own_every < 60 * MILLISECOND {
            return;
        }
        if hostile.random.chance(0.5) {
            (self.faults, self.ends_every) = (Vec::new(), None);
            self.disks.iter_mut().for_each(|disks| disks.story = None);
            let parts = &mut self.parts;
            (parts.settling, parts.healed) = (parts.chaos + SECOND, parts.chaos + 4 * SECOND);
            (parts.quiet, parts.end) = (parts.healed + 5 * SECOND, parts.healed + 12 * SECOND);
        }
        if self.directory {
            // The checkers restore each backup, and the service remembers much.
            self.backups_every = self.backups_every.map(|every| every.max(3 * SECOND));
            self.parts.quiet = self.parts.healed + 3 * SECOND;
            hostile.under_way_max = 16;
        }
        // The others ask for little: what shuts them out is not what they ask for.
        let load = &mut self.load;
        (load.every, load.own_every) = (load.every.max(250 * MILLISECOND), load.own_every.max(SECOND));
        (load.burst_max, load.under_way_max) = (load.burst_max.min(2), load.under_way_max.min(4));
        self.hostile = Some(hostile);
    }
}

impl Director {
    /// True if this process is the hostile client.
    pub(super) fn is_hostile(&self, process: usize) -> bool {
        self.plan.hostile.is_some() && process == self.plan.servers + self.plan.clients
    }

    pub(super) fn schedule_hostile_act(&mut self, process: usize, life: Life) {
        let now = self.world.now;
        let is_calm = self.is_calm && now + SECOND > self.plan.parts.healed;
        let Some(hostile) = &mut self.plan.hostile else { return };
        let every = if is_calm { hostile.every } else { hostile.every * SELDOM };
        let pause = exponential(&mut hostile.random, every);
        self.world.trigger(pause, Trigger::Act { process: process as u16, life });
    }

    /// Lets one of its lives ask for much, or give way to a new one.
    pub(super) fn act_hostile(&mut self, process: usize, life: Life) {
        let Some(hostile) = &mut self.plan.hostile else { return };
        let random = &mut hostile.random;
        let index = random.below(hostile.lives as u64) as usize;
        if random.chance(hostile.renews) {
            self.world.renew_hostile(process, index);
        }
        let count = random.between(1, hostile.burst_max);
        for _ in 0..count {
            match self.plan.directory {
                true => self.ask_hostile_of_directory(process, index),
                false => self.ask_hostile(process, index),
            }
        }
        self.schedule_hostile_act(process, life);
    }

    fn ask_hostile(&mut self, process: usize, index: usize) {
        let under_way_max = self.plan.hostile.as_ref().map_or(0, |hostile| hostile.under_way_max);
        if self.world.hostile_calls(process, index).0 < under_way_max {
            let (question, limit) = self.draw_hostile_question();
            self.world.call_hostile(process, index, &question, limit);
        }
    }

    /// Lets one of its lives ask for something in a directory, or watch one. Another client founds it.
    fn ask_hostile_of_directory(&mut self, process: usize, index: usize) {
        let (Some(hostile), Some(learned)) = (&mut self.plan.hostile, &mut self.learned) else { return };
        let Some(OfDirectory { watches, long, .. }) = hostile.of_directory else { return };
        if self.book.number == 0 {
            return;
        }
        let (calls, watching) = self.world.hostile_calls(process, index);
        let (limit, reads) = (hostile.limit(), hostile.reads);
        let (random, book) = (&mut hostile.random, &mut learned.book);
        book.number = book.number.max(self.book.number);
        if random.chance(watches) {
            if watching < hostile.under_way_max {
                let watch = directory::draw_watch(random, book);
                self.world.watch_hostile(process, index, &watch, limit);
            }
        } else if calls < hostile.under_way_max {
            let request = match random.chance(long) {
                true => directory::draw_long(random, book, reads),
                false => directory::draw(random, book, reads, LOCAL),
            };
            let id = self.world.call_hostile(process, index, &Question::of_directory(&request), limit);
            id.into_iter().for_each(|id| _ = learned.asked.insert(id.0, request.clone()));
        }
    }

    /// Lets it learn what an operation has shown.
    pub(super) fn end_hostile(&mut self, id: u32) {
        let Some(learned) = &mut self.learned else { return };
        let reply = self.world.common.replies.remove(&id);
        if let (Some(request), Some(reply)) = (learned.asked.remove(&id), reply) {
            learned.book.learn(&request, &reply);
        }
    }

    fn draw_hostile_question(&mut self) -> (Question, Duration) {
        let words = self.plan.load.words;
        let has_handlers = self.plan.handlers.is_some();
        let Some(hostile) = &mut self.plan.hostile else { unreachable!("only a hostile client asks") };
        let random = &mut hostile.random;
        let reads = random.chance(hostile.reads);
        let key = random.below(REGISTERS as u64) as u8;
        let op = match (words, reads) {
            (true, true) => Op::GetAll,
            (true, false) => Op::Append(random.next_u64()),
            (false, true) => Op::Get(key),
            (false, false) => match random.below(3) {
                0 => Op::Put(key, random.below(6)),
                1 => Op::Cas(key, random.below(6), random.below(6)),
                _ => Op::Add(key, random.below(3)),
            },
        };
        let mode = match reads {
            false => Mode::Command,
            true => random.pick(&[Mode::Command, Mode::Read, Mode::LocalRead]),
        };
        let is_large = mode == Mode::Command && random.chance(hostile.large);
        let padding = if is_large { random.spread(4_096, LARGE_BYTES_MAX) as usize } else { 0 };
        let handler = (has_handlers && random.chance(hostile.handlers)).then(|| random.below(3) as u8);
        let limit = hostile.limit();
        (Question::of_object(op, mode, padding).for_handler(handler), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Profile;
    use unisono_table::Capability;

    #[test]
    fn some_runs_have_a_hostile_client_and_the_others_are_as_without() {
        for (profile, share) in [(Profile::Replica, 10..40), (Profile::Directory, 3..20)] {
            let plans: Vec<Plan> = (1..=400).map(|seed| Plan::draw(seed, profile)).collect();
            let hostile: Vec<&HostilePlan> = plans.iter().filter_map(|plan| plan.hostile.as_ref()).collect();
            assert!(share.contains(&hostile.len()), "{}", hostile.len());
            assert!(hostile.iter().any(|hostile| hostile.lives as u64 == LIVES_MAX));
            assert!(hostile.iter().all(|hostile| hostile.queue_max >= 64), "smaller queues have no shares");
            let is_of_directory = |hostile: &HostilePlan| hostile.of_directory.is_some();
            assert!(
                hostile.iter().all(|hostile| is_of_directory(hostile) == (profile == Profile::Directory))
            );
        }
    }

    #[test]
    fn the_client_of_a_directory_is_given_no_right_to_change_it() {
        let mut plans = (1..=2_000).filter_map(|seed| Plan::draw(seed, Profile::Directory).hostile);
        let others = Book::new(&mut Random::from_u64(1));
        let mut root =
            || plans.next().and_then(|mut plan| plan.learned(&others)).map(|learned| learned.book.root);
        let given: Vec<Capability> = std::iter::from_fn(&mut root).collect();
        let is_good =
            |root: &&Capability| others.root.restrict(root.rights).is_some_and(|good| good == **root);
        let is_harmless =
            |root: &&Capability| root.rights.and(Rights::MODIFY.or(Rights::DELETE)) == Rights::NONE;
        assert!(given.iter().filter(is_good).all(|root| is_harmless(&root)));
        assert!(given.iter().any(|root| is_good(&root)) && given.iter().any(|root| !is_good(&root)));
    }
}
