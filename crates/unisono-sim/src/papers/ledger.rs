//! What the applications of a testbed measure: each sender's delays, and when how many messages were done.

/// Measurements of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Number of messages at which the run stops for the time being.
    pub(super) goal: u64,
    /// Number of messages that their senders have back.
    pub(super) done: u64,
    /// When the last of them was.
    pub(super) last_at: u64,
    /// When it began to measure: a message that was begun before is in no delay.
    measures_since: u64,
    senders: Vec<Sender>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    began_at: u64,
    last_nanos: u64,
    nanos: u64,
    messages: u64,
}

impl Ledger {
    /// Returns an empty ledger for this number of nodes.
    pub(super) fn new(nodes: usize, goal: u64) -> Ledger {
        Ledger { goal, done: 0, last_at: 0, measures_since: 0, senders: vec![Sender::default(); nodes] }
    }

    /// Notes that a node begins to send a message.
    pub(super) fn begin(&mut self, node: usize, now: u64) {
        self.senders[node].began_at = now;
    }

    /// Notes that a node has its message back.
    pub(super) fn end(&mut self, node: usize, now: u64) {
        let sender = &mut self.senders[node];
        sender.last_nanos = now - sender.began_at;
        if sender.began_at >= self.measures_since {
            sender.nanos += sender.last_nanos;
            sender.messages += 1;
        }
        self.done += 1;
        self.last_at = now;
    }

    /// Returns the delay of a node's last message, in nanoseconds.
    pub(super) fn last_nanos(&self, node: usize) -> u64 {
        self.senders[node].last_nanos
    }

    /// True if the goal is reached.
    pub(super) fn is_over(&self) -> bool {
        self.done >= self.goal
    }

    /// Forgets the delays so far, and goes on for `messages` messages.
    pub(super) fn go_on(&mut self, messages: u64) {
        self.goal = self.done + messages;
        self.measures_since = self.last_at;
        for sender in &mut self.senders {
            (sender.nanos, sender.messages) = (0, 0);
        }
    }

    /// Returns the mean delay of each node that sent, in microseconds, with its number.
    pub(super) fn delays_us(&self) -> Vec<(usize, f64)> {
        let sent = self.senders.iter().enumerate().filter(|(_, sender)| sender.messages > 0);
        sent.map(|(node, sender)| (node, sender.nanos as f64 / sender.messages as f64 / 1000.0)).collect()
    }

    /// Returns the mean delay of all messages, in microseconds.
    pub(super) fn delay_us(&self) -> f64 {
        let sum = |of: fn(&Sender) -> u64| self.senders.iter().map(of).sum::<u64>() as f64;
        sum(|sender| sender.nanos) / sum(|sender| sender.messages) / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_begun_before_the_measurement_is_in_no_delay() {
        let mut ledger = Ledger::new(2, 1);
        ledger.begin(1, 0);
        ledger.begin(0, 0);
        ledger.end(0, 9000);
        ledger.go_on(2);
        ledger.end(1, 95_000);
        ledger.begin(0, 95_000);
        ledger.end(0, 97_000);
        assert!(ledger.is_over());
        assert_eq!(ledger.delays_us(), [(0, 2.0)]);
    }

    #[test]
    fn delays_are_counted_from_the_last_goal_on() {
        let mut ledger = Ledger::new(2, 1);
        ledger.begin(0, 0);
        ledger.end(0, 9000);
        assert!(ledger.is_over());
        ledger.go_on(2);
        for (node, took) in [(0, 1000), (1, 4000)] {
            ledger.begin(node, 10_000);
            ledger.end(node, 10_000 + took);
        }
        assert!(ledger.is_over());
        assert_eq!(ledger.delays_us(), [(0, 1.0), (1, 4.0)]);
        assert_eq!(ledger.delay_us(), 2.5);
    }
}
