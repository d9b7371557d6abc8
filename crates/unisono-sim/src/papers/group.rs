//! Trials of a group on the testbed: members send as fast as they can, and their delays and packets are measured.
//!
//! The same trial can be made of the papers' protocol and of our own core, with the same costs.

use super::costs::{Costs, MachineName};
use super::ledger::Ledger;
use super::product::Product;
use super::protocol::{Groups, Task};
use super::testbed::{Occupant, Testbed};
use std::ops::Range;

/// Who multicasts a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// The sequencer, to which the sender sends it.
    Pb,
    /// The sender; the sequencer multicasts its number.
    Bb,
}

/// A group, what it does, and on which testbed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trial {
    /// The machine of all members.
    pub machine: MachineName,
    /// Number of members, at least 2.
    pub members: usize,
    /// Bytes of a message.
    pub bytes: u64,
    /// Resilience degree: fewer than members.
    pub resilience: usize,
    /// Who multicasts a message.
    pub method: Method,
    /// Number of members that send, each one message after the other.
    pub senders: usize,
    /// True if the sequencer's node is one of them.
    pub sender_on_sequencer: bool,
    /// Number of groups, each on nodes of its own, on one Ethernet.
    pub groups: usize,
    /// Messages that the history holds.
    pub history: u64,
    /// True if members that send report as silent ones do. The papers' do not, ours do.
    pub senders_report: bool,
    /// True for processors that need no time.
    pub free: bool,
    /// The seed, which collisions depend on.
    pub seed: u64,
}

/// What a trial measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Mean time from a send until the sender has the message back, in microseconds.
    pub delay_us: f64,
    /// The same for each node that sent, with its number.
    pub delays_us: Vec<(usize, f64)>,
    /// Messages a second, of all groups together.
    pub per_s: f64,
    /// Packets a message.
    pub packets: f64,
    /// Packets a message that arrived at any node.
    pub interrupts: f64,
    /// Packets a message that arrived at the last member.
    pub last_interrupts: f64,
    /// Interrupt work of the first sequencer a message, in microseconds.
    pub sequencer_us: f64,
    /// Share of the time in which frames were on the wire.
    pub use_share: f64,
    /// Packets lost because a receive ring was full.
    pub lost: u64,
}

/// Least number of messages over which a trial is measured.
const MESSAGES_MIN: u64 = 512;
/// Rounds of the history before a measurement of one sender, and of several: at a sequencer that is kept busy, messages
/// for an application fill the history before anything slows the senders down.
const ROUNDS_BEFORE: u64 = 1;
const LOADED_ROUNDS_BEFORE: u64 = 10;
/// Simulated time before a measurement of several senders, at least and at most.
const SETTLING_NANOS_MIN: u64 = 3_000_000_000;
const SETTLING_NANOS_MAX: u64 = 25_000_000_000;
/// Simulated time after which a run is given up: nothing here needs as much.
const NANOS_MAX: u64 = 3_600_000_000_000;

impl Trial {
    /// Returns the trial of two members without resilience, of which the second sends null messages.
    pub fn new(machine: MachineName) -> Trial {
        Trial {
            machine,
            members: 2,
            bytes: 0,
            resilience: 0,
            method: Method::Pb,
            senders: 1,
            sender_on_sequencer: false,
            groups: 1,
            history: if machine == MachineName::Mc68020 { 20 } else { 128 },
            senders_report: false,
            free: false,
            seed: 1,
        }
    }

    /// Returns the ranks of the members that send.
    pub(super) fn senders(&self) -> Range<usize> {
        let first = usize::from(!self.sender_on_sequencer);
        first..first + self.senders
    }

    /// Number of messages of one round of the history, at the end of which silent members report.
    fn round(&self) -> u64 {
        self.history * self.groups as u64
    }

    /// Runs the papers' protocol.
    pub fn simulate(&self, costs: &Costs) -> Measured {
        self.measure(costs, 1, Groups::new, |groups| &mut groups.ledger, || Task::Begin)
    }

    /// Runs our own core.
    pub fn ours(&self, costs: &Costs) -> Measured {
        let begin = || super::product::Task::Begin;
        let longer = super::product::HISTORY_FACTOR;
        self.measure(costs, longer, Product::new, |product| &mut product.ledger, begin)
    }

    /// `longer` says how many times longer than the papers' the occupant's history is.
    fn measure<O: Occupant>(
        &self,
        costs: &Costs,
        longer: u64,
        occupant: impl FnOnce(&Trial, u64) -> O,
        ledger: impl Fn(&mut O) -> &mut Ledger,
        begin: impl Fn() -> O::Task,
    ) -> Measured {
        let machine = costs.machine(self.machine);
        let machine = if self.free { machine.without_work() } else { machine };
        let is_loaded = self.senders > 1;
        let settling = if is_loaded { u64::MAX } else { ROUNDS_BEFORE * longer * self.round() };
        let occupant = occupant(self, settling);
        let mut bed = Testbed::new(self.groups * self.members, machine, self.seed, occupant);
        for group in 0..self.groups {
            for rank in self.senders() {
                // Not all at the same instant: nothing on a real network is.
                let at = 10.0 * (group * self.members + rank) as f64;
                bed.begin(group * self.members + rank, at, begin());
            }
        }
        if is_loaded {
            bed.run(SETTLING_NANOS_MIN);
            ledger(&mut bed.occupant).goal = LOADED_ROUNDS_BEFORE * longer * self.round();
            bed.run(SETTLING_NANOS_MAX);
        } else {
            bed.run(NANOS_MAX);
        }
        let before = Counts::of(&bed);
        let began_at = ledger(&mut bed.occupant).last_at;
        let done = ledger(&mut bed.occupant).done;
        // Whole rounds, so that reports count as often as they come.
        ledger(&mut bed.occupant).go_on(self.round() * MESSAGES_MIN.div_ceil(self.round()));
        bed.run(bed.now + NANOS_MAX);
        let counts = Counts::of(&bed);
        let ledger = ledger(&mut bed.occupant);
        let measured = (ledger.done - done) as f64;
        let took = (ledger.last_at - began_at) as f64;
        let each = |of: fn(&Counts) -> u64| (of(&counts) - of(&before)) as f64 / measured;
        Measured {
            delay_us: ledger.delay_us(),
            delays_us: ledger.delays_us(),
            per_s: measured * 1e9 / took,
            packets: each(|counts| counts.frames),
            interrupts: each(|counts| counts.interrupts),
            last_interrupts: each(|counts| counts.last_interrupts),
            sequencer_us: each(|counts| counts.sequencer_nanos) / 1000.0,
            use_share: (counts.used_nanos - before.used_nanos) as f64 / took,
            lost: counts.lost,
        }
    }
}

/// Counters of a testbed at one moment.
struct Counts {
    frames: u64,
    used_nanos: u64,
    interrupts: u64,
    last_interrupts: u64,
    sequencer_nanos: u64,
    lost: u64,
}

impl Counts {
    fn of<O: Occupant>(bed: &Testbed<O>) -> Counts {
        let nodes = bed.nodes();
        Counts {
            frames: bed.ethernet.frames,
            used_nanos: bed.ethernet.used_nanos,
            interrupts: nodes.iter().map(|node| node.interrupts_taken).sum(),
            last_interrupts: nodes.last().map_or(0, |node| node.interrupts_taken),
            sequencer_nanos: nodes.first().map_or(0, |node| node.interrupt_nanos),
            lost: nodes.iter().map(|node| node.lost).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NULL: Trial = Trial {
        machine: MachineName::Mc68030,
        members: 2,
        bytes: 0,
        resilience: 0,
        method: Method::Pb,
        senders: 1,
        sender_on_sequencer: false,
        groups: 1,
        history: 128,
        senders_report: false,
        free: false,
        seed: 1,
    };

    fn delay_ms(trial: &Trial, changes: &[&str]) -> f64 {
        let mut costs = Costs::default();
        for change in changes {
            costs.set(change).unwrap();
        }
        trial.simulate(&costs).delay_us / 1000.0
    }

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} instead of {expected}");
    }

    #[test]
    fn a_null_message_costs_the_sum_of_its_parts() {
        near(delay_ms(&NULL, &[]), 2.740, 0.0005);
        near(NULL.ours(&Costs::default()).delay_us / 1000.0, 2.740, 0.003);
    }

    #[test]
    fn a_faster_ethernet_saves_the_time_on_the_wire_alone() {
        let saved = delay_ms(&NULL, &[]) - delay_ms(&NULL, &["rate=100"]);
        near(saved, 2.0 * (0.1024 - 0.01024), 0.0005);
    }

    #[test]
    fn dearer_copies_are_felt_by_large_messages_alone() {
        let large = Trial { bytes: 8000, ..NULL };
        near(delay_ms(&NULL, &["copy=x2"]), delay_ms(&NULL, &[]), 1e-9);
        near(delay_ms(&large, &["copy=x2"]) - delay_ms(&large, &[]), 11.5, 2.0);
    }

    #[test]
    fn a_thread_switch_is_paid_twice() {
        near(delay_ms(&NULL, &["us=300"]) - delay_ms(&NULL, &["us=200"]), 0.2, 1e-6);
    }

    #[test]
    fn dearer_receiving_is_felt_by_every_acknowledgement() {
        let held_by_all = Trial { members: 16, resilience: 15, ..NULL };
        // 18 packets are received one after another.
        let er_ms = 0.852 * 0.3556;
        near(delay_ms(&held_by_all, &["er=x1.5"]) - delay_ms(&held_by_all, &[]), 18.0 * 0.5 * er_ms, 0.2);
    }

    #[test]
    fn packets_are_those_of_the_papers_for_both_protocols() {
        let packets = |members, resilience| {
            let trial = Trial { members, resilience, ..NULL };
            [trial.simulate(&Costs::default()).packets, trial.ours(&Costs::default()).packets]
        };
        for (members, resilience) in [(3, 2), (4, 2), (9, 5)] {
            for found in packets(members, resilience) {
                near(found, 3.0 + resilience as f64, 0.1);
            }
        }
        let [papers, ours] = packets(2, 1);
        near(papers, 4.0, 0.01);
        near(ours, 3.0, 0.05);
    }

    /// The reason of KTHB89-6-per-member and KT93-21-per-member states this.
    #[test]
    fn the_report_of_the_sender_is_most_of_what_a_member_costs_more_in_our_protocol() {
        let costs = Costs::default();
        for (machine, most) in [(MachineName::Mc68020, 10), (MachineName::Mc68030, 30)] {
            let added = |run: &dyn Fn(&Trial) -> Measured, senders_report| {
                let delay = |members| run(&Trial { members, senders_report, ..Trial::new(machine) }).delay_us;
                (delay(most) - delay(2)) / (most - 2) as f64
            };
            let [papers, with_report] =
                [false, true].map(|senders_report| added(&|trial| trial.simulate(&costs), senders_report));
            let ours = added(&|trial| trial.ours(&costs), false);
            assert!(
                ours > 1.1 * papers && (ours - with_report).abs() < 0.5 * (ours - papers),
                "{papers} {with_report} {ours}"
            );
        }
    }

    #[test]
    fn lost_messages_are_sent_again() {
        // 16 messages of three packets do not fit the sequencer's ring at once.
        let all = Trial { members: 16, senders: 16, sender_on_sequencer: true, bytes: 4096, ..NULL };
        let measured = all.simulate(&Costs::default());
        assert!(measured.lost > 0 && measured.per_s > 20.0, "{measured:?}");
    }

    #[test]
    fn two_runs_of_a_seed_are_one() {
        let all = Trial { members: 5, senders: 5, sender_on_sequencer: true, ..NULL };
        assert_eq!(all.simulate(&Costs::default()), all.simulate(&Costs::default()));
        let other = Trial { seed: 2, ..all.clone() };
        assert_ne!(all.simulate(&Costs::default()), other.simulate(&Costs::default()));
    }
}
