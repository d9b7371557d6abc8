//! One computer of the testbed: a processor that does one thing at a time, and the ring of its network interface.
//!
//! Work has two levels. Interrupt work, which is the protocol's, pre-empts thread work, which is the application's; work of
//! one level runs in order. What a piece of work brings about, such as the packets of an answer, comes before anything else
//! of its level. Packets that arrive wait in a ring of fixed size; when it is full, they are lost [KT93 §6.2].

use super::flip::Assembly;
use std::collections::VecDeque;

/// Urgency of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The protocol's work: pre-empts threads.
    Interrupt,
    /// The application's work.
    Thread,
}

/// A piece of work: how long it takes, and what it is.
#[derive(Debug)]
pub(super) struct Work<W> {
    pub(super) nanos: u64,
    pub(super) what: W,
}

/// A computer.
#[derive(Debug)]
pub(super) struct Node<W> {
    interrupts: VecDeque<Work<W>>,
    threads: VecDeque<Work<W>>,
    running: Option<Running<W>>,
    /// Changes with each start, so that the end of work that was pre-empted is known as such.
    pub(super) turn: u64,
    /// Level of the driver that waits for room in the transmit ring: nothing of this level or below is done.
    pub(super) stalled: Option<Level>,
    /// Number of packets in the receive ring.
    pub(super) ring: usize,
    pub(super) assembly: Assembly,
    /// Number of packets that arrived, which is the number of interrupts.
    pub(super) interrupts_taken: u64,
    /// Number of packets lost because the ring was full.
    pub(super) lost: u64,
    /// Nanoseconds of interrupt work.
    pub(super) interrupt_nanos: u64,
}

#[derive(Debug)]
struct Running<W> {
    level: Level,
    work: Work<W>,
    until: u64,
}

impl<W> Default for Node<W> {
    fn default() -> Node<W> {
        Node {
            interrupts: VecDeque::new(),
            threads: VecDeque::new(),
            running: None,
            turn: 0,
            stalled: None,
            ring: 0,
            assembly: Assembly::default(),
            interrupts_taken: 0,
            lost: 0,
            interrupt_nanos: 0,
        }
    }
}

impl<W> Node<W> {
    /// Adds work behind all other work of its level.
    pub(super) fn add(&mut self, level: Level, work: Work<W>) {
        self.queue(level).push_back(work);
    }

    /// Adds work, in this order, before all other work of its level.
    pub(super) fn add_first(&mut self, level: Level, works: Vec<Work<W>>) {
        for work in works.into_iter().rev() {
            self.queue(level).push_front(work);
        }
    }

    fn queue(&mut self, level: Level) -> &mut VecDeque<Work<W>> {
        match level {
            Level::Interrupt => &mut self.interrupts,
            Level::Thread => &mut self.threads,
        }
    }

    /// Starts the most urgent work, if the processor is free or does something less urgent. Returns the time of its end if
    /// something was started.
    pub(super) fn schedule(&mut self, now: u64) -> Option<u64> {
        match self.stalled {
            Some(Level::Interrupt) => return None,
            Some(Level::Thread) if self.interrupts.is_empty() => return None,
            _ => {}
        }
        match &self.running {
            Some(Running { level: Level::Interrupt, .. }) => return None,
            Some(Running { level: Level::Thread, .. }) if self.interrupts.is_empty() => return None,
            _ => {}
        }
        if let Some(Running { work, until, .. }) = self.running.take() {
            self.threads.push_front(Work { nanos: until - now, ..work });
        }
        let level = if self.interrupts.is_empty() { Level::Thread } else { Level::Interrupt };
        let work = self.queue(level).pop_front()?;
        if level == Level::Interrupt {
            self.interrupt_nanos += work.nanos;
        }
        let until = now + work.nanos;
        self.running = Some(Running { level, work, until });
        self.turn += 1;
        Some(until)
    }

    /// Ends the work that was started last, if this is still its turn. Returns it with its level.
    pub(super) fn finish(&mut self, turn: u64) -> Option<(Level, W)> {
        if turn != self.turn {
            return None;
        }
        self.running.take().map(|running| (running.level, running.work.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(what: &'static str, nanos: u64) -> Work<&'static str> {
        Work { nanos, what }
    }

    #[test]
    fn an_interrupt_pre_empts_a_thread_which_then_does_the_rest() {
        let mut node = Node::default();
        node.add(Level::Thread, work("thread", 100));
        assert_eq!(node.schedule(0), Some(100));
        let thread_turn = node.turn;
        node.add(Level::Interrupt, work("interrupt", 30));
        assert_eq!(node.schedule(40), Some(70));
        assert_eq!(node.finish(thread_turn), None, "it was pre-empted");
        node.add(Level::Interrupt, work("another", 10));
        assert_eq!(node.schedule(50), None, "an interrupt is not pre-empted");
        assert_eq!(node.finish(node.turn), Some((Level::Interrupt, "interrupt")));
        assert_eq!(node.schedule(70), Some(80));
        assert_eq!(node.finish(node.turn), Some((Level::Interrupt, "another")));
        assert_eq!(node.schedule(80), Some(140), "60 of the thread's 100 were left");
        assert_eq!(node.finish(node.turn), Some((Level::Thread, "thread")));
        assert_eq!(node.interrupt_nanos, 40);
    }

    #[test]
    fn work_of_a_level_runs_in_order_and_what_follows_comes_first() {
        let mut node = Node::default();
        node.add(Level::Thread, work("second", 1));
        node.add(Level::Thread, work("third", 1));
        node.add_first(Level::Thread, vec![work("answer", 1), work("first", 1)]);
        let mut order = Vec::new();
        while node.schedule(0).is_some() {
            order.extend(node.finish(node.turn).map(|(_, what)| what));
        }
        assert_eq!(order, ["answer", "first", "second", "third"]);
    }

    #[test]
    fn a_stalled_driver_keeps_the_processor_from_its_level_and_below() {
        let mut node = Node { stalled: Some(Level::Interrupt), ..Node::default() };
        node.add(Level::Interrupt, work("packet", 1));
        node.add(Level::Thread, work("thread", 1));
        assert_eq!(node.schedule(0), None);
        node.stalled = Some(Level::Thread);
        assert_eq!(node.schedule(5), Some(6));
        assert_eq!(node.finish(node.turn), Some((Level::Interrupt, "packet")));
        assert_eq!(node.schedule(6), None);
        node.stalled = None;
        assert_eq!(node.schedule(7), Some(8));
    }
}
