//! Invented histories for the properties' own tests: a perfect group, told step by step. Each test takes a good
//! fixture, which its property must accept, and breaks it, which its property must see.

use super::{Checkers, Property, Terms, Violation};
use crate::record::{End, Epoch, Life, Preparation, Record, Reset, Standing, View, What};
use std::time::Duration;
use unisono_core::{Ballot, EpochTag, GroupConfig, Marks, MessageNumber, Name, Outcome, Phase, Quorum};
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
    /// Last message number.
    number: MessageNumber,
    /// Messages not resolved: number, pieces, hash.
    under_way: Vec<(MessageNumber, u32, u64)>,
    member: bool,
    entered: bool,
    over: bool,
    crashed: bool,
}

/// A group that makes no mistakes, and the records of what it does. The log is the present line's.
#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) records: Vec<Record>,
    pub(super) terms: Terms,
    at: Time,
    log: Vec<Ordered>,
    epoch: Epoch,
    start: Seqno,
    term: Seqno,
    sequencer: Life,
    /// Members at the end of the log.
    pub(super) view: Vec<Life>,
    /// Places of the log with which views begin, with the view and the reset there.
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
            terms: Terms { config },
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
        fixture.tell(founder, What::Entered { seqno: 0, view });
        fixture
    }

    /// A group of `members`, joined one after the other, where everybody knows everything.
    pub(super) fn of(members: usize, resilience: u8) -> Fixture {
        let mut fixture = Fixture::found(resilience, Quorum::MajorityOfView);
        for _ in 1..members {
            fixture.join();
        }
        fixture
    }

    pub(super) fn tell(&mut self, life: Life, what: What) {
        self.at = self.at + Duration::from_micros(1);
        self.records.push(Record { at: self.at, process: life.0, life, what });
    }

    /// Nothing happens for so long.
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
        self.tell(life, What::Started { name });
        life
    }

    fn actor(&mut self, life: Life) -> &mut Actor {
        &mut self.actors[life.index()]
    }

    /// Tells the epoch and both marks of a life.
    fn mark(&mut self, life: Life) {
        let Actor { epoch, stored, accepted, .. } = *self.actor(life);
        self.tell(life, What::EpochBegun { epoch });
        self.tell(life, What::Stored { epoch, through: stored });
        self.tell(life, What::Accepted { epoch, through: accepted });
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

    /// A member sends a message of so many pieces.
    pub(super) fn send_pieces(&mut self, life: Life, pieces: u32) -> MessageNumber {
        let actor = self.actor(life);
        actor.number += u64::from(pieces);
        let number = actor.number;
        let hash = number * 1_000 + u64::from(life.0) + 1;
        actor.under_way.push((number, pieces, hash));
        self.tell(life, What::Sent { number, resilience: 0, hash, bytes: 8 });
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
        self.tell(sequencer, What::Stored { epoch, through: end });
        self.tell(sequencer, What::Numbered { epoch, term, from: end, to: end });
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

    /// The sequencer numbers all pieces of a message; tells the place of the last.
    pub(super) fn order(&mut self, sender: Life, number: MessageNumber) -> Seqno {
        for piece in self.numbers(sender, number) {
            self.order_piece(sender, number, piece);
        }
        self.end()
    }

    /// The numbers of the pieces of a message under way.
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

    /// The sequencer's application gives the role to somebody.
    pub(super) fn hand_over(&mut self, to: Life) {
        self.tell(self.sequencer, What::HandOverAsked { successor: to });
        self.migrate(to);
    }

    /// The sequencer gives it to somebody by itself.
    pub(super) fn migrate(&mut self, to: Life) {
        self.append(Ordered::Role(to));
        self.everyone();
    }

    /// A life stores through a place.
    pub(super) fn store(&mut self, life: Life, through: Seqno) {
        let actor = self.actor(life);
        if !actor.crashed && through > actor.stored {
            actor.stored = through;
            let epoch = actor.epoch;
            self.tell(life, What::Stored { epoch, through });
        }
    }

    /// A life learns that everything through a place is accepted, and delivers it.
    pub(super) fn accept(&mut self, life: Life, through: Seqno) {
        let actor = self.actor(life);
        let through = through.min(actor.stored);
        if actor.crashed || actor.over || through <= actor.accepted {
            return;
        }
        actor.accepted = through;
        let epoch = actor.epoch;
        self.tell(life, What::Accepted { epoch, through });
        self.accepted = self.accepted.max(through);
        self.resolve(life, through);
        self.deliver(life, through);
    }

    /// Tells a sender which of its messages are in.
    fn resolve(&mut self, life: Life, through: Seqno) {
        for seqno in 1..=through {
            if let Ordered::Message { sender, number, last: true, .. } = self.log[seqno as usize - 1]
                && sender == life
                && self.actor(life).under_way.iter().any(|(known, ..)| *known == number)
            {
                self.actor(life).under_way.retain(|(known, ..)| *known != number);
                self.tell(life, What::SendResult { number, outcome: Outcome::Ok { seqno } });
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
                    self.tell(life, What::Entered { seqno, view });
                }
                _ if !entered => {}
                Ordered::Message { last: false, .. } => {}
                Ordered::Message { sender, number, hash, .. } => {
                    self.tell(life, What::Delivered { seqno, sender, number, hash });
                }
                Ordered::Join(member) => {
                    let members = self.view_at(seqno).len() as u32;
                    self.tell(life, What::Joined { seqno, member, members });
                }
                Ordered::Leave(member) => {
                    let members = self.view_at(seqno).len() as u32;
                    let ordered = self.view_of(seqno - 1).sequencer == member;
                    let successor = (ordered && members > 0).then(|| self.view_of(seqno).sequencer);
                    self.tell(life, What::Left { seqno, member, members, successor });
                    if member == life {
                        self.actor(life).over = true;
                        self.actor(life).member = false;
                    }
                }
                Ordered::Role(sequencer) => self.tell(life, What::HandedOver { seqno, sequencer }),
                Ordered::Reset => {
                    let reset = self.resets.iter().find(|reset| reset.seqno == seqno).cloned();
                    if let Some(reset) = reset {
                        self.tell(life, What::Reset(Box::new(reset)));
                    }
                }
            }
        }
    }

    /// The view right after a place of the present line.
    fn view_of(&self, seqno: Seqno) -> View {
        let members = self.view_at(seqno);
        let reset = self.resets.iter().rev().find(|reset| reset.seqno <= seqno);
        let (epoch, first) = reset.map_or((Epoch(0), 0), |reset| (reset.view.epoch, reset.seqno));
        let mut sequencer = reset.map_or(Life(0), |reset| reset.view.sequencer);
        for (entry, place) in self.log[first as usize..seqno as usize].iter().zip(first + 1..) {
            match entry {
                Ordered::Role(life) => sequencer = *life,
                Ordered::Leave(life) if *life == sequencer => {
                    sequencer = next_in_rank(&self.view_at(place - 1), sequencer);
                }
                _ => {}
            }
        }
        let resilience = self.terms.config.resilience.min(members.len() as u8 - 1);
        let coordinator = reset.map_or(Life(0), |reset| reset.view.coordinator);
        View { epoch, counter: u64::from(epoch.0), coordinator, members, sequencer, resilience }
    }

    /// The members right after a place of the present line.
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

    /// Everything through here may be accepted: enough members of the view have stored it. (Joins and leaves are
    /// stored by everybody at once, so all that is not accepted was numbered in this view.)
    pub(super) fn acceptable(&self) -> Seqno {
        let mut stored: Vec<_> = self.view.iter().map(|life| self.actors[life.index()].stored).collect();
        stored.sort_unstable_by(|a, b| b.cmp(a));
        let needed = (usize::from(self.terms.config.resilience) + 1).min(stored.len());
        self.accepted.max(stored[needed - 1])
    }

    /// The sequencer is there to number.
    pub(super) fn is_ordered(&self) -> bool {
        !self.actors[self.sequencer.index()].crashed
    }

    pub(super) fn alive(&self) -> Vec<Life> {
        self.view.iter().copied().filter(|life| !self.actors[life.index()].crashed).collect()
    }

    /// Everybody alive stores, accepts and delivers everything.
    pub(super) fn everyone(&mut self) {
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

    /// Everything that everybody holds leaves the histories of the living.
    pub(super) fn purge(&mut self) {
        let stable = self.view.iter().map(|life| self.actors[life.index()].stored).min().unwrap_or(0);
        for life in self.alive() {
            let actor = self.actor(life);
            if actor.purged < stable {
                actor.purged = stable;
                let epoch = actor.epoch;
                self.tell(life, What::Purged { epoch, through: stable });
            }
        }
    }

    // --- large steps ---

    /// A member sends, and everybody delivers.
    pub(super) fn message(&mut self, life: Life) -> Seqno {
        let number = self.send(life);
        let seqno = self.order(life, number);
        self.everyone();
        seqno
    }

    pub(super) fn join(&mut self) -> Life {
        let joiner = self.begin();
        self.mark(joiner);
        self.append(Ordered::Join(joiner));
        self.actor(joiner).member = true;
        self.everyone();
        joiner
    }

    pub(super) fn leave(&mut self, life: Life) {
        self.tell(life, What::LeaveAsked);
        self.append(Ordered::Leave(life));
        self.everyone();
        for what in [What::LeaveKnown, What::Parted, What::Gone] {
            self.tell(life, what);
        }
    }

    pub(super) fn crash(&mut self, life: Life) {
        self.actor(life).crashed = true;
        self.tell(life, What::Crashed);
    }

    /// A reset brings the next view about: its members must be in this one, and one of them must hold the longest
    /// log of them. Who is left out and alive learns it.
    pub(super) fn reset(&mut self, members: &[Life]) {
        let before = self.view.clone();
        let kept = members.iter().map(|life| self.actors[life.index()].stored).max().unwrap_or(0);
        let old = self.epoch;
        let ballot = Ballot { round: old.0 + 1, coordinator: Uid(u64::from(members[0].0)) };
        members.iter().for_each(|life| self.tell(*life, What::Promised { epoch: old, ballot }));
        for life in members {
            self.store(*life, kept);
            let preparation = Preparation { ballot, next: Epoch(old.0 + 1), start: kept + 1 };
            self.tell(*life, What::Prepared { epoch: old, preparation: Box::new(preparation) });
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

    fn enter_epoch(&mut self, life: Life, epoch: Epoch, start: Seqno) {
        if self.actors[life.index()].crashed {
            return;
        }
        let actor = self.actor(life);
        (actor.epoch, actor.stored, actor.accepted) = (epoch, start, start);
        self.mark(life);
        self.resolve(life, start);
        for (number, ..) in std::mem::take(&mut self.actor(life).under_way) {
            self.tell(life, What::SendResult { number, outcome: Outcome::Failed });
        }
        self.deliver(life, start);
    }

    fn exclude(&mut self, life: Life, epoch: Epoch) {
        for (number, ..) in std::mem::take(&mut self.actor(life).under_way) {
            self.tell(life, What::SendResult { number, outcome: Outcome::Unknown });
        }
        self.actor(life).over = true;
        self.actor(life).member = false;
        self.tell(life, What::Excluded { epoch: Some(epoch) });
    }

    /// Nothing disturbs the living members any more.
    pub(super) fn heal(&mut self) {
        let core = self.alive().into_boxed_slice();
        self.tell(Life::NOBODY, What::Healed { core });
    }

    // --- judging ---

    /// What the world knows at the end.
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
        End { at: self.at, standings: standings.collect() }
    }

    /// The last record that `pick` picks.
    pub(super) fn last(&mut self, pick: impl Fn(&Record) -> bool) -> &mut Record {
        self.records.iter_mut().rfind(|record| pick(record)).expect("the fixture has such a record")
    }

    /// Where the last record is that `pick` picks.
    pub(super) fn position(&self, pick: impl Fn(&Record) -> bool) -> usize {
        self.records.iter().rposition(pick).expect("the fixture has such a record")
    }

    /// Three members, of whom two speak.
    pub(super) fn of_two_messages() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.message(Life(2));
        fixture
    }

    /// The sequencer of a group with r = 0 delivers what nobody else has, and is cut off: its place is given out again.
    pub(super) fn of_a_place_given_out_twice() -> Fixture {
        let mut fixture = Fixture::of(3, 0);
        fixture.message(Life(1));
        let number = fixture.send(Life(0));
        let place = fixture.order(Life(0), number);
        fixture.accept(Life(0), place);
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(1));
        fixture
    }

    /// The last message is sent only when all else has happened.
    pub(super) fn send_late(&mut self) {
        let sent = self.position(|record| matches!(record.what, What::Sent { .. }));
        let sent = self.records.remove(sent);
        self.records.push(sent);
    }

    /// What a property says of this fixture.
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

    /// What all properties say of it.
    pub(super) fn check_all(&self) -> Result<(), Violation> {
        self.check_all_with_end(&self.ending())
    }

    pub(super) fn check_all_with_end(&self, end: &End) -> Result<(), Violation> {
        check_records(&mut Checkers::new(super::all(&self.terms)), &self.records, end)
    }

    /// Asserts that a property accepts this fixture, having had something to check.
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

/// Who orders after `leaver`, who did so: the next in rank, and after the last the first.
fn next_in_rank(view: &[Life], leaver: Life) -> Life {
    let rank = view.iter().position(|member| *member == leaver).map_or(0, |rank| rank + 1);
    view.get(rank).or(view.first()).copied().unwrap_or(leaver)
}

fn check_records(checkers: &mut Checkers, records: &[Record], end: &End) -> Result<(), Violation> {
    records.iter().try_for_each(|record| checkers.observe(record.clone()))?;
    checkers.finish(end)
}

/// Whether a record is a delivery to this life.
pub(super) fn delivery(to: Life) -> impl Fn(&Record) -> bool {
    move |record| record.life == to && matches!(record.what, What::Delivered { .. })
}

/// Whether a record is a reset event of this life.
pub(super) fn reset_of(life: Life) -> impl Fn(&Record) -> bool {
    move |record| record.life == life && matches!(record.what, What::Reset(_))
}

/// Changes the reset event of a record.
pub(super) fn change_reset(record: &mut Record, change: impl FnOnce(&mut Reset)) {
    match &mut record.what {
        What::Reset(reset) => change(reset),
        other => panic!("not a reset: {other:?}"),
    }
}
