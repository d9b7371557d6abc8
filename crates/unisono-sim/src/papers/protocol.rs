//! The papers' group protocol as an occupant of the testbed [KT93 §3, KT96 §3]: without crashes, joins or leaves.
//!
//! A sender asks the sequencer, the member of rank 0, for a place in the order: with the message, which the sequencer then
//! multicasts with its number (PB), or by a multicast of the message, to which the sequencer multicasts a number (BB). With
//! resilience r > 0 the numbered message is tentative: ranks 1 to r acknowledge it, and when all have, the sequencer
//! multicasts an accept. Each application sends one message after the other and works on everything it receives.
//!
//! Members that neither send nor acknowledge are silent: each reports after every H messages that its application has
//! taken, where H is the size of the history. All do so at the same message. That is what makes a member cost 4 µs a message
//! in KT93 Fig 21; reports at different messages would cost nothing.
//!
//! What the papers do not say is kept simple. The sequencer numbers no message while H of them wait for its own
//! application. A message that its sender does not have back after twice the time of its last message, 100 ms at least, is
//! sent again, and a member that lacks a message asks the sequencer for it: receive rings lose packets when large messages
//! arrive together.

use super::flip::Audience;
use super::group::{Method, Trial};
use super::ledger::Ledger;
use super::testbed::{Desk, Occupant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Least time after which something lost is asked for again.
const AGAIN_NANOS: u64 = 100_000_000;

/// All groups of a testbed: group g has the nodes from g × members on, by rank.
pub(super) struct Groups {
    trial: Trial,
    members: Vec<Member>,
    sequencers: Vec<Sequencer>,
    pub(super) ledger: Ledger,
}

/// Names a message of its group: the sender's rank, and a number that the sender counts.
type Name = (usize, u64);

#[derive(Clone, Debug)]
pub(super) enum Said {
    /// To the sequencer: the message (PB). To all: the message (BB).
    Request(Name),
    /// A message with its seqno; whether it is accepted.
    Numbered(u64, Name, bool),
    /// The seqno of a message that was multicast by its sender; whether it is accepted.
    Order(u64, Name, bool),
    /// This rank has this tentative message.
    Acknowledge(u64, usize),
    /// The message of this seqno is accepted.
    Accept(u64),
    /// A member's report.
    Report,
    /// This rank lacks the message of this seqno.
    Ask(u64, usize),
}

#[derive(Debug)]
pub(super) enum Task {
    /// The application begins to send.
    Begin,
    /// The message of the application is on its way to the sequencer.
    Submit,
    /// A message has been understood.
    Handle(Said),
    /// The sequencer numbers a message.
    Number(Name),
    /// The application has worked on this message.
    Delivered(Name),
    /// Time to send a message again, if its sender does not have it back.
    Again(u64),
    /// Time to ask for a message again, if it is still lacking.
    AskAgain(u64),
}

#[derive(Default)]
struct Member {
    /// Next message for the application.
    expected: u64,
    /// Number of messages that the application has worked on.
    taken: u64,
    /// Messages from there on.
    known: BTreeMap<u64, Known>,
    /// Messages without a seqno (BB).
    unordered: BTreeSet<Name>,
    /// Number of its own messages.
    sent: u64,
    /// True while it waits for one.
    waits: bool,
    /// Seqno that it asked for last.
    asked: Option<u64>,
}

struct Known {
    name: Name,
    has_data: bool,
    accepted: bool,
}

#[derive(Default)]
struct Sequencer {
    /// All messages by seqno, with the ranks that have acknowledged them.
    log: Vec<(Name, BTreeSet<usize>, bool)>,
    /// Seqno of each sender's last message.
    last: BTreeMap<usize, (u64, u64)>,
    /// Requests that wait for room in the history.
    waiting: VecDeque<Name>,
}

impl Groups {
    /// Returns groups in which no member has sent.
    pub(super) fn new(trial: &Trial, goal: u64) -> Groups {
        let nodes = trial.groups * trial.members;
        Groups {
            trial: trial.clone(),
            members: (0..nodes).map(|_| Member::default()).collect(),
            sequencers: (0..trial.groups).map(|_| Sequencer::default()).collect(),
            ledger: Ledger::new(nodes, goal),
        }
    }

    fn rank(&self, node: usize) -> usize {
        node % self.trial.members
    }

    /// Returns the node of this node's sequencer.
    fn head(&self, node: usize) -> usize {
        node - self.rank(node)
    }

    fn everyone(&self, node: usize) -> Audience {
        Audience::All(self.head(node)..self.head(node) + self.trial.members)
    }

    fn sequencer(&mut self, node: usize) -> &mut Sequencer {
        &mut self.sequencers[node / self.trial.members]
    }

    /// True for a silent member, and where senders report too.
    fn has_to_report(&self, node: usize) -> bool {
        let rank = self.rank(node);
        rank > self.trial.resilience && (self.trial.senders_report || !self.trial.senders().contains(&rank))
    }

    // --- sending ---

    fn begin(&mut self, desk: &mut Desk<Groups>) {
        self.ledger.begin(desk.node, desk.now);
        desk.work(desk.machine.u1 + desk.machine.g1, Task::Submit);
    }

    fn submit(&mut self, desk: &mut Desk<Groups>) {
        let rank = self.rank(desk.node);
        let member = &mut self.members[desk.node];
        member.sent += 1;
        member.waits = true;
        let number = member.sent;
        if rank == 0 {
            // The kernel's work: a thread that numbers a message must not be overtaken by a request.
            desk.interrupt(desk.machine.g2, Task::Number((0, number)));
            desk.after(self.again_nanos(desk.node), Task::Again(number));
        } else {
            self.request((rank, number), desk);
        }
    }

    fn request(&mut self, name: Name, desk: &mut Desk<Groups>) {
        let to = match self.trial.method {
            Method::Pb => Audience::One(self.head(desk.node)),
            Method::Bb => self.everyone(desk.node),
        };
        desk.send(to, desk.machine.message_bytes(self.trial.bytes), Said::Request(name));
        desk.after(self.again_nanos(desk.node), Task::Again(name.1));
    }

    fn again_nanos(&self, node: usize) -> u64 {
        AGAIN_NANOS.max(2 * self.ledger.last_nanos(node))
    }

    fn again(&mut self, number: u64, desk: &mut Desk<Groups>) {
        let (rank, member) = (self.rank(desk.node), &self.members[desk.node]);
        if !member.waits || member.sent != number {
            return;
        }
        if rank == 0 {
            self.number((rank, number), desk);
            desk.after(self.again_nanos(desk.node), Task::Again(number));
        } else {
            self.request((rank, number), desk);
        }
    }

    // --- the sequencer ---

    fn number(&mut self, name: Name, desk: &mut Desk<Groups>) {
        let (history, taken) = (self.trial.history, self.members[desk.node].taken);
        let sequencer = self.sequencer(desk.node);
        match sequencer.last.get(&name.0) {
            Some((number, seqno)) if *number >= name.1 => {
                let seqno = *seqno;
                return self.repeat(seqno, name.0, desk);
            }
            _ => {}
        }
        if sequencer.log.len() as u64 - taken >= history {
            if !sequencer.waiting.contains(&name) {
                sequencer.waiting.push_back(name);
            }
            return;
        }
        let seqno = sequencer.log.len() as u64;
        let accepted = self.trial.resilience == 0;
        let sequencer = self.sequencer(desk.node);
        sequencer.last.insert(name.0, (name.1, seqno));
        sequencer.log.push((name, BTreeSet::new(), accepted));
        let everyone = self.everyone(desk.node);
        // The sequencer's own message has not travelled yet.
        if self.trial.method == Method::Bb && name.0 != 0 {
            desk.send(everyone, desk.machine.control_bytes(), Said::Order(seqno, name, accepted));
        } else {
            let bytes = desk.machine.message_bytes(self.trial.bytes);
            desk.send(everyone, bytes, Said::Numbered(seqno, name, accepted));
        }
        self.members[desk.node].known.insert(seqno, Known { name, has_data: true, accepted });
        self.deliver(desk);
    }

    /// Sends a numbered message again: to its sender, or while it is tentative to all, so that they acknowledge it again.
    fn repeat(&mut self, seqno: u64, rank: usize, desk: &mut Desk<Groups>) {
        let (name, accepted) = match self.sequencer(desk.node).log.get(seqno as usize) {
            Some((name, _, accepted)) => (*name, *accepted),
            None => return,
        };
        if accepted && rank == 0 {
            return;
        }
        let to = if accepted { Audience::One(desk.node + rank) } else { self.everyone(desk.node) };
        let bytes = desk.machine.message_bytes(self.trial.bytes);
        desk.send(to, bytes, Said::Numbered(seqno, name, accepted));
    }

    fn acknowledged(&mut self, seqno: u64, rank: usize, desk: &mut Desk<Groups>) {
        let resilience = self.trial.resilience;
        let Some((_, ranks, accepted)) = self.sequencer(desk.node).log.get_mut(seqno as usize) else {
            return;
        };
        ranks.insert(rank);
        if *accepted || ranks.len() < resilience {
            return;
        }
        *accepted = true;
        desk.send(self.everyone(desk.node), desk.machine.control_bytes(), Said::Accept(seqno));
        self.accept(seqno, desk);
    }

    /// Numbers what waits, now that its application has taken a message.
    fn go_on(&mut self, desk: &mut Desk<Groups>) {
        let sequencer = self.sequencer(desk.node);
        if let Some(name) = sequencer.waiting.pop_front() {
            desk.interrupt(0.0, Task::Number(name));
        }
    }

    // --- members ---

    fn learn(&mut self, seqno: u64, name: Name, has_data: bool, accepted: bool, desk: &mut Desk<Groups>) {
        let rank = self.rank(desk.node);
        let member = &mut self.members[desk.node];
        let has_data = member.unordered.remove(&name) || has_data || name.0 == rank;
        if seqno >= member.expected {
            let known = member.known.entry(seqno).or_insert(Known { name, has_data: false, accepted: false });
            known.has_data |= has_data;
            known.accepted |= accepted;
        }
        if !accepted && (1..=self.trial.resilience).contains(&rank) {
            let to = Audience::One(self.head(desk.node));
            desk.send(to, desk.machine.control_bytes(), Said::Acknowledge(seqno, rank));
        }
        self.deliver(desk);
    }

    fn accept(&mut self, seqno: u64, desk: &mut Desk<Groups>) {
        let member = &mut self.members[desk.node];
        match member.known.get_mut(&seqno) {
            Some(known) => known.accepted = true,
            None if seqno >= member.expected => self.ask(seqno, desk),
            None => {}
        }
        self.deliver(desk);
    }

    /// Gives the application what is next in the order. Asks for a message that is lacking.
    fn deliver(&mut self, desk: &mut Desk<Groups>) {
        let (rank, copy) = (self.rank(desk.node), desk.machine.copy * self.trial.bytes as f64);
        loop {
            let member = &mut self.members[desk.node];
            let ready = member.known.first_entry().filter(|entry| {
                *entry.key() == member.expected && entry.get().accepted && entry.get().has_data
            });
            let Some(name) = ready.map(|entry| entry.remove().name) else { break };
            member.expected += 1;
            let own = if name.0 == rank { desk.machine.us } else { 0.0 };
            let local = if rank == 0 { desk.machine.gl } else { 0.0 };
            desk.thread(desk.machine.us + own + local + copy, Task::Delivered(name));
        }
        let member = &self.members[desk.node];
        let lacks =
            |(seqno, known): (&u64, &Known)| known.accepted && (*seqno > member.expected || !known.has_data);
        if member.known.iter().any(lacks) {
            self.ask(member.expected, desk);
        }
    }

    fn ask(&mut self, seqno: u64, desk: &mut Desk<Groups>) {
        let rank = self.rank(desk.node);
        let member = &mut self.members[desk.node];
        if member.asked == Some(seqno) || rank == 0 {
            return;
        }
        member.asked = Some(seqno);
        let to = Audience::One(self.head(desk.node));
        desk.send(to, desk.machine.control_bytes(), Said::Ask(seqno, rank));
        desk.after(AGAIN_NANOS, Task::AskAgain(seqno));
    }

    fn ask_again(&mut self, seqno: u64, desk: &mut Desk<Groups>) {
        let member = &mut self.members[desk.node];
        if member.asked == Some(seqno) && member.expected <= seqno {
            member.asked = None;
            self.ask(seqno, desk);
        }
    }

    fn delivered(&mut self, name: Name, desk: &mut Desk<Groups>) {
        let (rank, has_to_report) = (self.rank(desk.node), self.has_to_report(desk.node));
        let member = &mut self.members[desk.node];
        member.taken += 1;
        if has_to_report && member.taken.is_multiple_of(self.trial.history) {
            desk.send(Audience::One(self.head(desk.node)), desk.machine.control_bytes(), Said::Report);
        }
        if rank == 0 {
            self.go_on(desk);
        }
        if name.0 == rank {
            self.members[desk.node].waits = false;
            self.ledger.end(desk.node, desk.now);
            self.begin(desk);
        }
    }

    fn handle(&mut self, said: Said, desk: &mut Desk<Groups>) {
        match said {
            Said::Request(name) if self.rank(desk.node) == 0 => self.number(name, desk),
            Said::Request(name) => self.keep_unordered(name, desk),
            Said::Numbered(seqno, name, accepted) => self.learn(seqno, name, true, accepted, desk),
            Said::Order(seqno, name, accepted) => self.learn(seqno, name, false, accepted, desk),
            Said::Acknowledge(seqno, rank) => self.acknowledged(seqno, rank, desk),
            Said::Accept(seqno) => self.accept(seqno, desk),
            Said::Report => {}
            Said::Ask(seqno, rank) => self.repeat(seqno, rank, desk),
        }
    }

    /// Keeps a message until its number comes. It may have come already, if the message was sent again.
    fn keep_unordered(&mut self, name: Name, desk: &mut Desk<Groups>) {
        let member = &mut self.members[desk.node];
        match member.known.values_mut().find(|known| known.name == name) {
            Some(known) => known.has_data = true,
            None => {
                member.unordered.insert(name);
            }
        }
        self.deliver(desk);
    }
}

impl Occupant for Groups {
    type Message = Said;
    type Task = Task;

    fn arrived(&mut self, said: Said, desk: &mut Desk<Groups>) {
        let machine = desk.machine;
        let us = match &said {
            Said::Request(_) if self.rank(desk.node) == 0 => machine.g2,
            Said::Numbered(_, _, true) | Said::Order(_, _, true) | Said::Accept(_) => machine.g3,
            _ => machine.ga,
        };
        desk.work(us, Task::Handle(said));
    }

    fn perform(&mut self, task: Task, desk: &mut Desk<Groups>) {
        match task {
            Task::Begin => self.begin(desk),
            Task::Submit => self.submit(desk),
            Task::Handle(said) => self.handle(said, desk),
            Task::Number(name) => self.number(name, desk),
            Task::Delivered(name) => self.delivered(name, desk),
            Task::Again(number) => self.again(number, desk),
            Task::AskAgain(seqno) => self.ask_again(seqno, desk),
        }
    }

    fn is_over(&self) -> bool {
        self.ledger.is_over()
    }
}
