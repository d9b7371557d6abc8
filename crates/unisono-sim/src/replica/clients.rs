//! The callers: clients call the service, and the servers' own processes give commands and look at their state. What
//! certainly did not happen is tried again, as a new operation.

use super::director::Director;
use super::states::{Op, REGISTERS};
use crate::directory;
use crate::draw::{Draw, MILLISECOND};
use crate::network::exponential;
use crate::record::{Life, Mode};
use crate::world::{Question, Trigger};
use bytes::Bytes;
use std::time::Duration;
use unisono_core::replica::Durability;

/// Deadline of an operation without faults.
const CALM_LIMIT: Duration = Duration::from_secs(6);
/// How often an operation that did not happen is tried.
const TRIES_MAX: u8 = 4;
/// Pause before it is tried again, in nanoseconds.
const TRIES_AGAIN_AFTER: u64 = 50 * MILLISECOND;

/// An operation of a client, as the director knows it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    process: usize,
    what: What,
    tries: u8,
}

/// What it asks for.
#[derive(Clone, Debug)]
enum What {
    Object(Op, Mode),
    Directory(Bytes),
}

impl Director {
    pub(super) fn schedule_act(&mut self, process: usize, life: Life) {
        if self.is_hostile(process) {
            return self.schedule_hostile_act(process, life);
        }
        let load = &self.plan.load;
        let every = if process < self.plan.servers { load.own_every } else { load.every };
        let pause = exponential(&mut self.app_random, every);
        self.world.trigger(pause, Trigger::Act { process: process as u16, life });
    }

    /// Performs the next action of an application and schedules the one after it.
    pub(super) fn act(&mut self, process: usize, life: Life) {
        if !self.is_current(process, life) || !self.is_busy {
            return;
        }
        if self.is_hostile(process) {
            return self.act_hostile(process, life);
        }
        if self.plan.directory && process >= self.plan.servers {
            self.watch_sometimes(process, life);
        }
        self.change_handlers(process);
        for _ in 0..self.app_random.between(1, self.plan.load.burst_max) {
            if self.under_way[process] < self.plan.load.under_way_max {
                self.ask(process);
            }
        }
        self.schedule_act(process, life);
    }

    fn ask(&mut self, process: usize) {
        let what = match self.plan.directory {
            true => self.draw_request(process),
            false => self.draw_object(process),
        };
        self.begin(Asked { process, what, tries: 1 });
    }

    fn draw_request(&mut self, process: usize) -> What {
        let load = &self.plan.load;
        // A server's own process gives commands only.
        let reads = if process < self.plan.servers { 0.0 } else { load.reads };
        What::Directory(directory::draw(&mut self.app_random, &self.book, reads, load.local))
    }

    fn draw_object(&mut self, process: usize) -> What {
        if let Some(op) = self.draw_lock(process) {
            return What::Object(op, Mode::Command);
        }
        let load = self.plan.load.clone();
        let reads = self.app_random.chance(load.reads);
        let local = self.app_random.chance(load.local);
        // Some reads go as commands, which is always right.
        let as_command = self.app_random.chance(0.1) || load.local == 1.0 && process < self.plan.servers;
        let op = self.draw_op(reads);
        let mode = match (reads, as_command, local) {
            (false, ..) | (_, true, _) => Mode::Command,
            (true, false, true) => Mode::LocalRead,
            (true, false, false) => Mode::Read,
        };
        What::Object(op, mode)
    }

    fn begin(&mut self, asked: Asked) {
        let (process, limit) = (asked.process, self.limit());
        let question = match &asked.what {
            What::Object(op, mode) => Question::of_object(*op, *mode, self.padding(*mode)),
            What::Directory(request) => Question::of_directory(request),
        };
        let id = if process >= self.plan.servers {
            let (handler, quality) = (self.draw_handler(), self.draw_quality());
            self.world.call_service(process, &question.for_handler(handler).at_quality(quality), limit)
        } else if question.mode() == Mode::Command {
            self.world.command(process, &question, limit)
        } else if self.plan.durability != Durability::Ordered
            && let What::Object(op, _) = asked.what
        {
            self.world.barrier(process, op)
        } else {
            None
        };
        if let Some(id) = id {
            self.under_way[process] += 1;
            self.asked.insert(id.0, asked);
        }
    }

    /// Draws how many bytes a command has besides.
    fn padding(&mut self, mode: Mode) -> usize {
        let load = &self.plan.load;
        match mode == Mode::Command && self.app_random.chance(load.large) {
            true => self.app_random.between(1_000, load.large_bytes_max) as usize,
            false => 0,
        }
    }

    fn limit(&mut self) -> Duration {
        if self.is_calm {
            return CALM_LIMIT;
        }
        let left = Duration::from_nanos(self.plan.parts.healed.saturating_sub(self.world.now));
        let hasty = self.app_random.chance(self.plan.load.hasty);
        let limit =
            if hasty { self.app_random.duration(1, 200) } else { self.app_random.duration(500, 6_000) };
        limit.min(left.max(Duration::from_millis(1)))
    }

    fn draw_op(&mut self, reads: bool) -> Op {
        let random = &mut self.app_random;
        // Few values, so that they recur.
        let (key, value) = (random.below(REGISTERS as u64) as u8, random.below(6));
        match (self.plan.load.words, reads) {
            (true, true) => Op::GetAll,
            (true, false) => Op::Append(random.next_u64()),
            (false, true) => Op::Get(key),
            (false, false) => match random.below(3) {
                0 => Op::Put(key, value),
                1 => Op::Cas(key, value, random.below(6)),
                _ => Op::Add(key, random.below(3)),
            },
        }
    }

    /// Notes that an operation has ended. One that did not happen is tried again.
    pub(super) fn end(&mut self, process: usize, life: Life, id: u32) {
        if self.is_hostile(process) {
            return self.end_hostile(id);
        }
        let Some(asked) = self.asked.remove(&id) else { return };
        self.under_way[process] = self.under_way[process].saturating_sub(1);
        if let (Some(reply), What::Directory(request)) = (self.world.common.replies.remove(&id), &asked.what)
        {
            self.book.learn(request, &reply);
        }
        let tries_again = self.is_current(process, life)
            && self.is_busy
            && process >= self.plan.servers
            && asked.tries < TRIES_MAX
            && self.world.did_not_happen(id);
        if tries_again {
            let again = self.again.len() as u32;
            self.again.push(Asked { tries: asked.tries + 1, ..asked });
            let trigger = Trigger::Cancel { process: process as u16, life, index: again };
            self.world.trigger(TRIES_AGAIN_AFTER, trigger);
        }
    }

    /// Tries an operation again.
    pub(super) fn try_again(&mut self, process: usize, life: Life, index: usize) {
        if self.is_current(process, life) && self.is_busy {
            let asked = self.again[index].clone();
            self.begin(asked);
        }
    }
}
