//! Invented histories for the properties' own tests: a correct group, described step by step. A test takes a correct
//! fixture, which its property must accept, and breaks it, so that the property must reject it.

use super::{Checkers, GroupTerms, Property, Violation};
use crate::record::{
    Beside, End, Entry, Epoch, Life, Members, Preparation, Record, Reset, Standing, View, What,
};
use std::time::Duration;
use unisono_core::{
    Ballot, EpochTag, Floor, GroupConfig, Marks, MessageNumber, Name, Outcome, Phase, Quality, Quorum,
};
use unisono_core::{Seqno, Time, Uid};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ordered {
    Message { sender: Life, number: MessageNumber, hash: u64, last: bool },
    Join(Life),
    Leave(Life),
    Role(Life),
    Reset,
}

#[derive(Clone, Debug)]
struct Actor {
    epoch: Epoch,
    stored: Seqno,
    accepted: Seqno,
    delivered: Seqno,
    purged: Seqno,
    /// Number of its last message.
    number: MessageNumber,
    /// Messages without an outcome: number, pieces, hash.
    under_way: Vec<(MessageNumber, u32, u64)>,
    member: bool,
    entered: bool,
    over: bool,
    crashed: bool,
}

/// A group that makes no mistakes, and the records of what it does. `log` is the log of the present epoch, with what
/// that epoch kept of earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) records: Vec<Record>,
    pub(super) terms: GroupTerms,
    at: Time,
    log: Vec<Ordered>,
    pub(super) epoch: Epoch,
    start: Seqno,
    term: Seqno,
    sequencer: Life,
    /// Members at the end of the log.
    pub(super) view: Vec<Life>,
    /// All resets so far, each with its seqno and the view that begins there.
    resets: Vec<Reset>,
    accepted: Seqno,
    actors: Vec<Actor>,
}

impl Fixture {
    /// Life 0 founds a group.
    pub(super) fn found(resilience: u8, quorum: Quorum) -> Fixture {
        let config = GroupConfig { resilience, quorum, history_messages: 64, ..GroupConfig::default() };
        let mut fixture = Fixture {
            records: Vec::new(),
            terms: GroupTerms { config, founders_min: 1, may_be_ring: true, is_quiet: false },
            at: Time::ZERO,
            log: Vec::new(),
            epoch: Epoch(0),
            start: 0,
            term: 0,
            sequencer: Life(0),
            view: vec![Life(0)],
            resets: Vec::new(),
            accepted: 0,
            actors: Vec::new(),
        };
        let founder = fixture.begin();
        fixture.actors[0].member = true;
        fixture.mark(founder);
        fixture.actors[0].entered = true;
        let view = Box::new(fixture.view_now());
        fixture.record(founder, What::Entered { seqno: 0, view });
        fixture
    }

    /// A group of `members` that joined one after the other. Each holds and has delivered everything.
    pub(super) fn of(members: usize, resilience: u8) -> Fixture {
        let mut fixture = Fixture::found(resilience, Quorum::MajorityOfView);
        for _ in 1..members {
            fixture.join();
        }
        fixture
    }

    pub(super) fn record(&mut self, life: Life, what: What) {
        self.at = self.at + Duration::from_micros(1);
        self.records.push(Record { at: self.at, process: life.0, life, what });
    }

    /// A life asks for a floor.
    pub(super) fn ask_for_floor(&mut self, life: Life, floor: Floor) {
        self.record(life, What::Beside(Beside::FloorAsked { floor }.into()));
    }

    /// Lets time pass without records.
    pub(super) fn wait(&mut self, duration: Duration) {
        self.at = self.at + duration;
    }

    fn begin(&mut self) -> Life {
        let life = Life(self.actors.len() as u32);
        self.actors.push(Actor {
            epoch: self.epoch,
            stored: self.accepted,
            accepted: self.accepted,
            delivered: self.accepted,
            purged: self.accepted,
            number: 0,
            under_way: Vec::new(),
            member: false,
            entered: false,
            over: false,
            crashed: false,
        });
        let name = Name::new(&format!("m{}", life.0)).unwrap_or_default();
        self.record(life, What::Started { name });
        life
    }

    fn actor(&mut self, life: Life) -> &mut Actor {
        &mut self.actors[life.index()]
    }

    /// Records the epoch and the watermarks of a life whose log begins.
    fn mark(&mut self, life: Life) {
        let base = Entry::Base(self.members_at(self.actors[life.index()].stored));
        self.mark_with(life, base);
    }

    fn mark_with(&mut self, life: Life, entry: Entry) {
        let Actor { epoch, stored, accepted, .. } = *self.actor(life);
        self.record(life, What::EpochBegun { epoch });
        self.record(life, What::Stored { epoch, through: stored, entry });
        self.record(life, What::Accepted { epoch, through: accepted });
    }

    fn members_at(&self, seqno: Seqno) -> Box<Members> {
        Box::new(Members(self.view_at(seqno)))
    }

    /// Returns what a member stores at a seqno of the log.
    pub(super) fn entry_at(&self, seqno: Seqno) -> Entry {
        match self.log[seqno as usize - 1] {
            Ordered::Message { sender, number, .. } => Entry::Message { sender, number },
            Ordered::Join(life) => Entry::Join(life),
            Ordered::Leave(life) => Entry::Leave(life),
            Ordered::Role(life) => Entry::Role(life),
            Ordered::Reset => Entry::Reset(self.members_at(seqno)),
        }
    }

    pub(super) fn end(&self) -> Seqno {
        self.log.len() as Seqno
    }

    fn view_now(&self) -> View {
        View {
            epoch: self.epoch,
            counter: u64::from(self.epoch.0),
            coordinator: self.view[0],
            members: self.view.clone(),
            sequencer: self.sequencer,
            resilience: self.terms.config.resilience.min(self.view.len() as u8 - 1),
        }
    }

    // --- small steps ---

    /// A member sends a message of `pieces` pieces.
    pub(super) fn send_pieces(&mut self, life: Life, pieces: u32) -> MessageNumber {
        let actor = self.actor(life);
        actor.number += u64::from(pieces);
        let number = actor.number;
        let hash = number * 1_000 + u64::from(life.0) + 1;
        actor.under_way.push((number, pieces, hash));
        self.record(life, What::Sent { number, quality: Quality::ORDERED, hash, bytes: 8 });
        number
    }

    /// A member sends a message that asks for a resilience of its own.
    pub(super) fn send_resilient(&mut self, life: Life, asked: u8) -> MessageNumber {
        self.send_with(life, Quality::resilient(asked))
    }

    pub(super) fn send_with(&mut self, life: Life, asked: Quality) -> MessageNumber {
        let number = self.send(life);
        if let Some(What::Sent { quality, .. }) = self.records.last_mut().map(|record| &mut record.what) {
            *quality = asked;
        }
        number
    }

    pub(super) fn send(&mut self, life: Life) -> MessageNumber {
        self.send_pieces(life, 1)
    }

    fn append(&mut self, entry: Ordered) {
        let sequencer = self.sequencer;
        self.log.push(entry);
        let (epoch, end, term) = (self.epoch, self.end(), self.term);
        self.actor(sequencer).stored = end;
        self.record(sequencer, What::Stored { epoch, through: end, entry: self.entry_at(end) });
        self.record(sequencer, What::Numbered { epoch, term, from: end, to: end });
        match entry {
            Ordered::Join(life) => self.view.push(life),
            Ordered::Leave(life) => {
                if life == self.sequencer {
                    (self.sequencer, self.term) = (next_in_rank(&self.view, life), end);
                }
                self.view.retain(|other| *other != life);
            }
            Ordered::Role(life) => (self.sequencer, self.term) = (life, end),
            Ordered::Message { .. } | Ordered::Reset => {}
        }
    }

    /// The sequencer numbers all pieces of a message. Returns the seqno of the last.
    pub(super) fn order(&mut self, sender: Life, number: MessageNumber) -> Seqno {
        for piece in self.numbers(sender, number) {
            self.order_piece(sender, number, piece);
        }
        self.end()
    }

    /// Returns the message numbers of the pieces of a message under way.
    pub(super) fn numbers(&mut self, sender: Life, number: MessageNumber) -> Vec<MessageNumber> {
        let under_way = &self.actor(sender).under_way;
        let pieces =
            under_way.iter().find(|(known, ..)| *known == number).map_or(0, |(_, pieces, _)| *pieces);
        (number + 1 - u64::from(pieces)..=number).collect()
    }

    pub(super) fn order_piece(&mut self, sender: Life, number: MessageNumber, piece: MessageNumber) {
        let hash = number * 1_000 + u64::from(sender.0) + 1;
        self.append(Ordered::Message { sender, number: piece, hash, last: piece == number });
    }

    /// The sequencer's application hands the role to `to`.
    pub(super) fn hand_over(&mut self, to: Life) {
        self.record(self.sequencer, What::HandOverAsked { successor: to });
        self.migrate(to);
    }

    /// The sequencer hands the role to `to` without a request of its application.
    pub(super) fn migrate(&mut self, to: Life) {
        self.append(Ordered::Role(to));
        self.deliver_all();
    }

    /// A life stores everything through a seqno.
    pub(super) fn store(&mut self, life: Life, through: Seqno) {
        let actor = self.actor(life);
        if !actor.crashed && through > actor.stored {
            let first = std::mem::replace(&mut actor.stored, through) + 1;
            let epoch = actor.epoch;
            for through in first..=through {
                self.record(life, What::Stored { epoch, through, entry: self.entry_at(through) });
            }
        }
    }

    /// A life learns that everything through a seqno is accepted, and delivers it.
    pub(super) fn accept(&mut self, life: Life, through: Seqno) {
        let actor = self.actor(life);
        let through = through.min(actor.stored);
        if actor.crashed || actor.over || through <= actor.accepted {
            return;
        }
        actor.accepted = through;
        let epoch = actor.epoch;
        self.record(life, What::Accepted { epoch, through });
        self.accepted = self.accepted.max(through);
        self.resolve(life, through);
        self.deliver(life, through);
    }

    /// Reports *ok* for a sender's messages that are accepted.
    fn resolve(&mut self, life: Life, through: Seqno) {
        for seqno in 1..=through {
            if let Ordered::Message { sender, number, last: true, .. } = self.log[seqno as usize - 1]
                && sender == life
                && self.actor(life).under_way.iter().any(|(known, ..)| *known == number)
            {
                self.actor(life).under_way.retain(|(known, ..)| *known != number);
                self.record(life, What::SendResult { number, outcome: Outcome::Ok { seqno } });
            }
        }
    }

    fn deliver(&mut self, life: Life, through: Seqno) {
        while self.actor(life).delivered < through && !self.actor(life).over {
            let seqno = self.actor(life).delivered + 1;
            self.actor(life).delivered = seqno;
            let entry = self.log[seqno as usize - 1];
            let entered = self.actor(life).entered;
            match entry {
                Ordered::Join(joiner) if joiner == life => {
                    self.actor(life).entered = true;
                    let view = Box::new(self.view_of(seqno));
                    self.record(life, What::Entered { seqno, view });
                }
                _ if !entered => {}
                Ordered::Message { last: false, .. } => {}
                Ordered::Message { sender, number, hash, .. } => {
                    self.record(life, What::Delivered { seqno, sender, number, hash });
                }
                Ordered::Join(member) => {
                    let members = self.view_at(seqno).len() as u32;
                    self.record(life, What::Joined { seqno, member, members });
                }
                Ordered::Leave(member) => {
                    let members = self.view_at(seqno).len() as u32;
                    let ordered = self.view_of(seqno - 1).sequencer == member;
                    let successor = (ordered && members > 0).then(|| self.view_of(seqno).sequencer);
                    self.record(life, What::Left { seqno, member, members, successor });
                    if member == life {
                        self.actor(life).over = true;
                        self.actor(life).member = false;
                    }
                }
                Ordered::Role(sequencer) => self.record(life, What::HandedOver { seqno, sequencer }),
                Ordered::Reset => {
                    let reset = self.resets.iter().find(|reset| reset.seqno == seqno).cloned();
                    if let Some(reset) = reset {
                        self.record(life, What::Reset(Box::new(reset)));
                    }
                }
            }
        }
    }

    /// Returns the view just after a seqno of the log.
    fn view_of(&self, seqno: Seqno) -> View {
        let members = self.view_at(seqno);
        let reset = self.resets.iter().rev().find(|reset| reset.seqno <= seqno);
        let (epoch, first) = reset.map_or((Epoch(0), 0), |reset| (reset.view.epoch, reset.seqno));
        let mut sequencer = reset.map_or(Life(0), |reset| reset.view.sequencer);
        for (entry, at) in self.log[first as usize..seqno as usize].iter().zip(first + 1..) {
            match entry {
                Ordered::Role(life) => sequencer = *life,
                Ordered::Leave(life) if *life == sequencer => {
                    sequencer = next_in_rank(&self.view_at(at - 1), sequencer);
                }
                _ => {}
            }
        }
        let resilience = self.terms.config.resilience.min(members.len() as u8 - 1);
        let coordinator = reset.map_or(Life(0), |reset| reset.view.coordinator);
        View { epoch, counter: u64::from(epoch.0), coordinator, members, sequencer, resilience }
    }

    /// Returns the members just after a seqno of the log.
    fn view_at(&self, seqno: Seqno) -> Vec<Life> {
        let reset = self.resets.iter().rev().find(|reset| reset.seqno <= seqno);
        let (first, mut view) = reset.map_or((0, vec![Life(0)]), |r| (r.seqno, r.view.members.clone()));
        for entry in &self.log[first as usize..seqno as usize] {
            match entry {
                Ordered::Join(life) => view.push(*life),
                Ordered::Leave(life) => view.retain(|other| other != life),
                _ => {}
            }
        }
        view
    }

    /// Returns the seqno through which everything may be accepted: r + 1 members of the view have stored it. (All
    /// members store joins and leaves at once, so everything not yet accepted was numbered in this view.)
    pub(super) fn acceptable(&self) -> Seqno {
        let mut stored: Vec<_> = self.view.iter().map(|life| self.actors[life.index()].stored).collect();
        stored.sort_unstable_by(|a, b| b.cmp(a));
        let needed = (usize::from(self.terms.config.resilience) + 1).min(stored.len());
        self.accepted.max(stored[needed - 1])
    }

    /// True if the sequencer has not crashed, so that it can number.
    pub(super) fn is_ordered(&self) -> bool {
        !self.actors[self.sequencer.index()].crashed
    }

    pub(super) fn alive(&self) -> Vec<Life> {
        self.view.iter().copied().filter(|life| !self.actors[life.index()].crashed).collect()
    }

    /// All living members of the present epoch store, accept and deliver everything.
    pub(super) fn deliver_all(&mut self) {
        let end = self.end();
        let lives: Vec<_> = (0..self.actors.len() as u32).map(Life).collect();
        let there: Vec<_> = lives
            .into_iter()
            .filter(|life| {
                let actor = &self.actors[life.index()];
                !actor.crashed && !actor.over && actor.epoch == self.epoch
            })
            .collect();
        there.iter().for_each(|life| self.store(*life, end));
        there.iter().for_each(|life| self.accept(*life, end));
    }

    /// All living members free the history entries that every member holds.
    pub(super) fn purge(&mut self) {
        let stable = self.view.iter().map(|life| self.actors[life.index()].stored).min().unwrap_or(0);
        for life in self.alive() {
            let actor = self.actor(life);
            if actor.purged < stable {
                actor.purged = stable;
                let epoch = actor.epoch;
                self.record(life, What::Purged { epoch, through: stable });
            }
        }
    }

    // --- large steps ---

    /// A member sends, and all members deliver.
    pub(super) fn message(&mut self, life: Life) -> Seqno {
        let number = self.send(life);
        let seqno = self.order(life, number);
        self.deliver_all();
        seqno
    }

    pub(super) fn join(&mut self) -> Life {
        let joiner = self.begin();
        self.mark(joiner);
        self.append(Ordered::Join(joiner));
        self.actor(joiner).member = true;
        self.deliver_all();
        joiner
    }

    pub(super) fn leave(&mut self, life: Life) {
        self.record(life, What::LeaveAsked);
        self.append(Ordered::Leave(life));
        self.deliver_all();
        for what in [What::LeaveKnown, What::Parted, What::Gone] {
            self.record(life, what);
        }
    }

    pub(super) fn crash(&mut self, life: Life) {
        self.actor(life).crashed = true;
        self.record(life, What::Crashed);
    }

    /// A reset installs a view of `members`. They must be in the present view, and the one with the longest log of
    /// them determines the log that is kept. Excluded members that live receive their exclusion.
    pub(super) fn reset(&mut self, members: &[Life]) {
        let before = self.view.clone();
        let kept = members.iter().map(|life| self.actors[life.index()].stored).max().unwrap_or(0);
        let old = self.epoch;
        let ballot = Ballot { round: old.0 + 1, coordinator: Uid(u64::from(members[0].0)) };
        members.iter().for_each(|life| self.record(*life, What::Promised { epoch: old, ballot }));
        for life in members {
            self.store(*life, kept);
            let preparation = Preparation { ballot, next: Epoch(old.0 + 1), keep: kept, start: kept + 1 };
            self.record(*life, What::Prepared { epoch: old, preparation: Box::new(preparation) });
        }
        self.log.truncate(kept as usize);
        let view = self.view_at(kept);
        self.log.push(Ordered::Reset);
        let seqno = self.end();
        self.epoch = Epoch(self.epoch.0 + 1);
        self.view = view.iter().copied().filter(|life| members.contains(life)).collect();
        (self.start, self.term, self.sequencer) = (seqno, seqno, self.view[0]);
        let excluded: Vec<_> = view.iter().copied().filter(|life| !members.contains(life)).collect();
        let resilience = self.terms.config.resilience;
        let degraded = resilience > 0 && excluded.len() > usize::from(resilience);
        let reset = Reset { seqno, view: self.view_now(), excluded, degraded };
        self.resets.push(reset);
        self.accepted = seqno;
        let epoch = self.epoch;
        for life in self.view.clone() {
            self.enter_epoch(life, epoch, seqno);
        }
        for life in before {
            if !self.view.contains(&life) && !self.actors[life.index()].crashed {
                self.exclude(life, epoch);
            }
        }
    }

    /// The next reset does not begin the epoch that members that were split off have begun.
    pub(super) fn begins_another_line(&mut self) {
        self.epoch = Epoch(self.epoch.0 + 1);
    }

    /// These members go on alone. The others hear nothing of that, and go on in the old epoch.
    pub(super) fn split_off(&mut self, members: &[Life]) {
        let mut apart = self.clone();
        apart.reset(members);
        let theirs = apart.records.drain(self.records.len()..);
        self.records.extend(theirs.filter(|record| members.contains(&record.life)));
        self.at = apart.at;
        members.iter().for_each(|life| self.actor(*life).over = true);
    }

    fn enter_epoch(&mut self, life: Life, epoch: Epoch, start: Seqno) {
        if self.actors[life.index()].crashed {
            return;
        }
        let actor = self.actor(life);
        (actor.epoch, actor.stored, actor.accepted) = (epoch, start, start);
        self.mark_with(life, self.entry_at(start));
        self.resolve(life, start);
        for (number, ..) in std::mem::take(&mut self.actor(life).under_way) {
            self.record(life, What::SendResult { number, outcome: Outcome::Failed });
        }
        self.deliver(life, start);
    }

    fn exclude(&mut self, life: Life, epoch: Epoch) {
        for (number, ..) in std::mem::take(&mut self.actor(life).under_way) {
            self.record(life, What::SendResult { number, outcome: Outcome::Unknown });
        }
        self.actor(life).over = true;
        self.actor(life).member = false;
        self.record(life, What::Excluded { epoch: Some(epoch) });
    }

    /// The record *healed*: no fault affects the living members any more.
    pub(super) fn heal(&mut self) {
        let core = self.alive().into_boxed_slice();
        self.record(Life::WORLD, What::Healed { core });
    }

    // --- checking ---

    /// Returns what the world knows at the end.
    pub(super) fn ending(&self) -> End {
        let standings = self.actors.iter().enumerate().filter(|(_, actor)| !actor.crashed);
        let standings = standings.map(|(index, actor)| Standing {
            life: Life(index as u32),
            phase: if actor.member { Phase::Member } else { Phase::Gone },
            epoch: Some(actor.epoch),
            marks: Marks {
                epoch: EpochTag(u64::from(actor.epoch.0) + 1),
                received: actor.stored,
                accepted: actor.accepted,
                delivered: actor.delivered,
                purged: actor.purged,
                history: (actor.stored - actor.purged) as usize,
                ..Marks::default()
            },
            members: self.view.clone(),
            under_way: actor.under_way.len(),
            events: 0,
        });
        End { at: self.at, standings: standings.collect(), datagrams: 0 }
    }

    /// Returns the last record that `pick` accepts.
    pub(super) fn last(&mut self, pick: impl Fn(&Record) -> bool) -> &mut Record {
        self.records.iter_mut().rfind(|record| pick(record)).expect("the fixture has such a record")
    }

    /// Returns the index of the last record that `pick` accepts.
    pub(super) fn position(&self, pick: impl Fn(&Record) -> bool) -> usize {
        self.records.iter().rposition(pick).expect("the fixture has such a record")
    }

    /// Three members, two of which send a message each.
    pub(super) fn of_two_messages() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.message(Life(2));
        fixture
    }

    /// The sequencer of a group with r = 0 delivers a message that no other member has, and is cut off. The message's
    /// seqno is assigned again.
    pub(super) fn of_a_reassigned_seqno() -> Fixture {
        let mut fixture = Fixture::of(3, 0);
        fixture.message(Life(1));
        let number = fixture.send(Life(0));
        let seqno = fixture.order(Life(0), number);
        fixture.accept(Life(0), seqno);
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(1));
        fixture
    }

    /// Moves the record of the last send to the end.
    pub(super) fn send_late(&mut self) {
        let sent = self.position(|record| matches!(record.what, What::Sent { .. }));
        let sent = self.records.remove(sent);
        self.records.push(sent);
    }

    /// Returns the result of one property for this fixture.
    pub(super) fn check(&self, property: impl Property + 'static) -> Result<u64, Violation> {
        self.check_with_end(property, &self.ending())
    }

    pub(super) fn check_with_end(
        &self,
        property: impl Property + 'static,
        end: &End,
    ) -> Result<u64, Violation> {
        let mut checkers = Checkers::new(vec![Box::new(property)]);
        check_records(&mut checkers, &self.records, end)?;
        Ok(checkers.checked().map(|(_, count)| count).sum())
    }

    /// Returns the result of all properties for it.
    pub(super) fn check_all(&self) -> Result<(), Violation> {
        self.check_all_with_end(&self.ending())
    }

    pub(super) fn check_all_with_end(&self, end: &End) -> Result<(), Violation> {
        check_records(&mut Checkers::new(super::all(&self.terms)), &self.records, end)
    }

    /// Asserts that a property accepts this fixture and tested something.
    #[track_caller]
    pub(super) fn good(&self, property: impl Property + 'static) {
        match self.check(property) {
            Ok(checked) => assert!(checked > 0, "the property checked nothing"),
            Err(violation) => panic!("a good fixture was rejected: {violation}\n{}", self.text()),
        }
    }

    /// Asserts that a property rejects this fixture.
    #[track_caller]
    pub(super) fn bad(&self, property: impl Property + 'static) {
        assert!(self.check(property).is_err(), "a bad fixture was accepted\n{}", self.text());
    }

    pub(super) fn text(&self) -> String {
        self.records.iter().map(|record| format!("{:?} {:?}\n", record.life, record.what)).collect()
    }
}

/// Returns the next sequencer after `leaver`: the next in rank, and after the last rank the first.
fn next_in_rank(view: &[Life], leaver: Life) -> Life {
    let rank = view.iter().position(|member| *member == leaver).map_or(0, |rank| rank + 1);
    view.get(rank).or(view.first()).copied().unwrap_or(leaver)
}

fn check_records(checkers: &mut Checkers, records: &[Record], end: &End) -> Result<(), Violation> {
    records.iter().try_for_each(|record| checkers.observe(record.clone()))?;
    checkers.finish(end)
}

/// True for deliveries to this life.
pub(super) fn delivery(to: Life) -> impl Fn(&Record) -> bool {
    move |record| record.life == to && matches!(record.what, What::Delivered { .. })
}

/// True for reset events of this life.
pub(super) fn reset_of(life: Life) -> impl Fn(&Record) -> bool {
    move |record| record.life == life && matches!(record.what, What::Reset(_))
}

/// Changes the reset event in a record.
pub(super) fn change_reset(record: &mut Record, change: impl FnOnce(&mut Reset)) {
    match &mut record.what {
        What::Reset(reset) => change(reset),
        other => panic!("not a reset: {other:?}"),
    }
}
