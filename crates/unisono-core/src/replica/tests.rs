//! Replicas in a made-up group: every message gets its seqno at once, and every call of a transfer is answered at once.

mod bounds;
mod handlers;
mod minimum;
mod refusals;
mod transfer;
mod turns;

use super::*;
use crate::identity::Member;
use crate::identity::{EpochId, Name, Port};
use crate::quality::Quality;
use crate::rpc::{RequestId, Source, Wishes};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;

/// The words of all commands, and the members as they were shown in between.
#[derive(Clone, Debug, Default, PartialEq)]
struct Words(Vec<String>);

impl StateMachine for Words {
    fn kind(request: &[u8]) -> Kind {
        match request {
            b"read" | b"search" | b"pry" => Kind::Read,
            b"look" | b"look around" | b"peep" => Kind::LocalRead,
            _ => Kind::Command,
        }
    }

    fn cost(request: &[u8]) -> u32 {
        if matches!(request, b"search" | b"look around") { 100 } else { 1 }
    }

    fn admit(&self, request: &Bytes) -> Option<Outcome> {
        if request == "break in" {
            return Some(Outcome::Reply("no entry".into()));
        }
        let has_key = self.0.iter().any(|word| word == "key");
        (request == "open" && !has_key).then(|| Outcome::Refuse("no key".into()))
    }

    fn admit_beginning(&self, beginning: &Bytes, bytes: usize) -> Option<Outcome> {
        assert_eq!(bytes, 1000);
        self.admit(beginning)
    }

    fn shows_right(&self, request: &Bytes) -> bool {
        !matches!(&request[..], b"break in" | b"pry" | b"peep")
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        if let Some(refusal) = self.admit(command.payload) {
            return refusal;
        }
        if command.payload == "close" {
            self.0.retain(|word| word != "key");
        }
        let word = String::from_utf8_lossy(command.payload).into_owned();
        if word == "pass" {
            return Outcome::Pass("passed".into());
        }
        if word == "to the desk" {
            return Outcome::Handler("desk".into(), "for the desk".into());
        }
        if word == "to no desk" {
            return Outcome::Handler("no\ndesk".into(), "for no desk".into());
        }
        self.0.push(word);
        Outcome::Reply(format!("{}", self.0.len()).into())
    }

    fn read(&self, _query: &Bytes) -> Outcome {
        Outcome::Reply(self.0.join(" ").into())
    }

    fn members(&mut self, members: &[Server]) {
        self.0.push(format!("({})", members.len()));
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.0.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let words: Option<Vec<String>> =
            parts.iter().map(|part| String::from_utf8(part.to_vec()).ok()).collect();
        self.0 = words.ok_or(NotRestored("a word is not UTF-8"))?;
        Ok(())
    }

    fn take_over(&self, word: &Bytes, me: &Server) -> Bytes {
        format!("{} by {}", String::from_utf8_lossy(word), me.uid.0).into()
    }
}

/// A digest that tells the contents of these tests apart.
fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::default();
    let mut hash = bytes.len() as u64;
    for byte in bytes {
        hash = crate::identity::mix(hash ^ u64::from(*byte));
    }
    digest[..8].copy_from_slice(&hash.to_be_bytes());
    digest
}

fn member(uid: u64) -> Member {
    Member {
        uid: Uid(uid),
        name: Name::default(),
        address: ([127, 0, 0, 1], uid as u16).into(),
        floor: Default::default(),
        hops: 1,
    }
}

const NOW: Time = Time::from_nanos(1_000_000_000);

/// Members that are faulty donors.
const SPOILS_PIECES: u64 = 66;
const LISTS_OTHER_LENGTHS: u64 = 67;
const NEVER_ENDS: u64 = 68;
const GIVES_LARGE_PIECES: u64 = 69;
const GIVES_ANOTHER_STATE: [u64; 2] = [70, 71];

/// Changes the state that faulty donors give.
fn spoil_state(donor: u64, present: Present) -> Present {
    match present {
        Present::State(mut snapshot) if GIVES_ANOTHER_STATE.contains(&donor) => {
            snapshot.parts.push(Bytes::from_static(&[0xff]));
            Present::State(snapshot)
        }
        present => present,
    }
}

/// A group of members by their uids.
struct Made {
    seqno: Seqno,
    view: Vec<u64>,
    replicas: BTreeMap<u64, Replica<Words>>,
    donors: BTreeMap<u64, Donor>,
    /// Outputs of each member that no part of this world acts on.
    seen: BTreeMap<u64, Vec<Output>>,
    /// Messages that the next event of a reset drops.
    holds: bool,
    held: Vec<(u64, Bytes)>,
    /// Members whose donors do not answer.
    silent: Vec<u64>,
    durability: Durability,
    members_min: u16,
}

impl Made {
    fn of(founders: &[u64]) -> Made {
        Made::with_minimum(1, founders)
    }

    fn with_minimum(members_min: u16, founders: &[u64]) -> Made {
        let mut made = Made {
            seqno: 0,
            view: founders.to_vec(),
            replicas: BTreeMap::new(),
            donors: BTreeMap::new(),
            seen: BTreeMap::new(),
            holds: false,
            held: Vec::new(),
            silent: Vec::new(),
            durability: Durability::HeldByAll,
            members_min,
        };
        for uid in founders {
            made.add(*uid);
            let entered = Event::Entered { seqno: 0, view: made.present_view() };
            made.replica(*uid).handle_event(NOW, entered);
        }
        made.settle();
        made
    }

    fn add(&mut self, uid: u64) {
        let settings = ReplicaSettings {
            client: Uid(100 + uid),
            durability: self.durability,
            message_bytes_max: 1 << 20,
            members_min: self.members_min,
            names: Vec::new(),
            window: 1024,
            quorums_intersect: true,
            digest,
        };
        self.replicas.insert(uid, Replica::new(Uid(uid), Words::default(), settings));
        self.donors.insert(uid, Donor::new(digest));
    }

    fn replica(&mut self, uid: u64) -> &mut Replica<Words> {
        self.replicas.get_mut(&uid).unwrap()
    }

    fn words(&self, uid: u64) -> Vec<String> {
        self.replicas[&uid].machine().map(|words| words.0.clone()).unwrap_or_default()
    }

    fn present_view(&self) -> View {
        let members: Vec<Member> = self.view.iter().map(|uid| member(*uid)).collect();
        View::new(EpochId::default(), members, Uid(self.view[0]), 1)
    }

    /// Gives all members the next event of the order, and carries out what follows from it.
    fn order(&mut self, event: impl Fn(Seqno) -> Event) {
        self.seqno += 1;
        let event = event(self.seqno);
        for uid in self.view.clone() {
            if let Some(replica) = self.replicas.get_mut(&uid) {
                replica.handle_event(NOW, event.clone());
            }
        }
    }

    fn join(&mut self, uid: u64) {
        self.view.push(uid);
        self.add(uid);
        let members = self.view.len();
        self.seqno += 1;
        let (seqno, view) = (self.seqno, self.present_view());
        for other in self.view.clone() {
            let event = match other == uid {
                true => Event::Entered { seqno, view: view.clone() },
                false => Event::Joined { seqno, member: member(uid), hello: Bytes::new(), members },
            };
            self.replica(other).handle_event(NOW, event);
        }
        self.settle();
    }

    fn reset_without(&mut self, gone: &[u64]) {
        self.view.retain(|uid| !gone.contains(uid));
        self.held.clear();
        self.holds = false;
        let (view, excluded) = (self.present_view(), gone.iter().map(|uid| member(*uid)).collect::<Vec<_>>());
        self.order(|seqno| Event::Reset {
            seqno,
            view: view.clone(),
            excluded: excluded.clone(),
            degraded: false,
            forced: false,
        });
        self.settle();
    }

    /// Carries out outputs until there are none.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            self.carry_all_out();
            let goes_on = |replica: &&mut Replica<Words>| replica.serves_at.is_some();
            let Some(replica) = self.replicas.values_mut().find(goes_on) else { return };
            replica.handle_timeout(NOW);
        }
        panic!("timeouts without end");
    }

    fn carry_all_out(&mut self) {
        for _ in 0..10_000 {
            let next =
                self.replicas.iter_mut().find_map(|(uid, replica)| Some((*uid, replica.poll_output()?)));
            let Some((uid, output)) = next else { return };
            self.carry_out(uid, output);
        }
        panic!("outputs without end");
    }

    fn carry_out(&mut self, uid: u64, output: Output) {
        match output {
            Output::Submit(payload, _) if self.holds => self.held.push((uid, payload)),
            Output::Submit(payload, _) => self.order(|seqno| Event::Message {
                seqno,
                sender: Uid(uid),
                number: seqno,
                outside: None,
                payload: payload.clone(),
            }),
            Output::Confirm => {
                let end = self.seqno;
                self.replica(uid).handle_confirmed(end);
            }
            Output::Fetch { call, to, request } => {
                let donor = u64::from(to.port());
                let reply = match self.silent.contains(&donor) {
                    true => Err(CallFailure::Unknown),
                    false => {
                        let replica = &self.replicas[&donor];
                        let present = |newcomer| spoil_state(donor, replica.present_for(newcomer));
                        Ok(self.donors.get_mut(&donor).unwrap().answer(NOW, &request, present))
                    }
                };
                let reply = reply.map(|reply| self.spoil(donor, reply));
                self.replica(uid).handle_fetched(NOW, call, reply);
            }
            output => self.seen.entry(uid).or_default().push(output),
        }
    }

    /// Changes what faulty donors reply.
    fn spoil(&self, donor: u64, reply: Bytes) -> Bytes {
        let mut changed = snapshot::Reply::read(reply.clone()).unwrap();
        match (&mut changed, donor) {
            (snapshot::Reply::Piece(bytes), SPOILS_PIECES) => {
                let mut spoiled = bytes.to_vec();
                *spoiled.last_mut().unwrap() ^= 1;
                *bytes = spoiled.into();
            }
            (snapshot::Reply::List(list), LISTS_OTHER_LENGTHS) => {
                list.pieces.iter_mut().for_each(|piece| piece.bytes += 1);
            }
            (snapshot::Reply::List(list), NEVER_ENDS) => list.pieces.last_mut().unwrap().ends_part = false,
            _ => return reply,
        }
        changed.write()
    }

    /// Lets a newcomer join two founders, of which it asks this faulty one first. It is to get the state from the other.
    fn is_left(donor: u64) {
        let mut made = Made::of(&[2, donor]);
        made.request(2, 1, 77, 1, "a");
        made.join(4);
        assert!(made.donors[&donor].forgets_at().is_some(), "it was asked");
        assert_eq!(made.words(4), ["(2)", "a", "(3)"]);
        assert_eq!(made.stopped(4), None);
        made.assert_all_agree();
    }

    fn request(&mut self, uid: u64, index: u32, client: u64, call: CallNumber, payload: &'static str) {
        let request = Request {
            id: RequestId::numbered(index),
            port: Port(1),
            client: Uid(client),
            source: Source::of_host(1),
            is_stranger: false,
            call,
            finished_below: 1,
            hops: 0,
            again: false,
            deadline: NOW + Duration::from_secs(5),
            wishes: None,
            whole_bytes: None,
            payload: payload.into(),
        };
        self.replica(uid).handle_request(NOW, request);
        self.settle();
    }

    /// Returns what a request was answered with, by any member.
    fn answer(&self, index: u32) -> Option<String> {
        let id = RequestId::numbered(index);
        let mut answers = self.seen.values().flatten().filter_map(|output| match output {
            Output::Answer(of, answer) if *of == id => Some(answer),
            _ => None,
        });
        let answer = answers.next()?;
        assert!(answers.next().is_none(), "two answers to one request");
        Some(match answer {
            Answer::Reply(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Answer::Deny(bytes) => format!("denied: {}", String::from_utf8_lossy(bytes)),
            Answer::Refuse(bytes) => format!("refused: {}", String::from_utf8_lossy(bytes)),
            Answer::NoCopy => "no copy".into(),
            Answer::GoOn { shows_right: true } => "go on".into(),
            Answer::GoOn { shows_right: false } => "go on, without a right".into(),
            Answer::Forward(address) => format!("to {}", address.port()),
        })
    }

    fn stopped(&self, uid: u64) -> Option<StopReason> {
        self.seen.get(&uid)?.iter().find_map(|output| match output {
            Output::Stop(reason) => Some(reason.clone()),
            _ => None,
        })
    }

    fn notices(&self, uid: u64) -> Vec<Notice> {
        let outputs = self.seen.get(&uid).into_iter().flatten();
        let notices = outputs.filter_map(|output| match output {
            Output::Notice(notice) => Some(notice.clone()),
            _ => None,
        });
        notices.collect()
    }

    fn leave(&mut self, uid: u64) {
        self.view.retain(|member| *member != uid);
        let members = self.view.len();
        self.order(|seqno| Event::Left {
            seqno,
            member: member(uid),
            goodbye: Bytes::new(),
            members,
            successor: None,
        });
        self.settle();
    }

    fn done(&self, uid: u64) -> Vec<(CommandNumber, Result<Done, CommandFailure>)> {
        let outputs = self.seen.get(&uid).into_iter().flatten();
        let done = outputs.filter_map(|output| match output {
            Output::Done(number, done) => Some((*number, done.clone())),
            _ => None,
        });
        done.collect()
    }

    fn assert_all_agree(&self) {
        let first = &self.replicas[&self.view[0]];
        for uid in &self.view {
            let other = &self.replicas[uid];
            assert_eq!(first.machine(), other.machine(), "state of {uid}");
            assert_eq!(
                (first.position(), first.chain()),
                (other.position(), other.chain()),
                "chain of {uid}"
            );
            assert_eq!(first.copies(), other.copies(), "copies of {uid}");
            assert_eq!(first.account().reply_bytes, other.account().reply_bytes, "memory of {uid}");
        }
    }
}

#[test]
fn commands_of_callers_take_effect_at_all_members_once() {
    let mut made = Made::of(&[1, 2, 3]);
    made.request(1, 1, 77, 1, "a");
    made.request(2, 2, 77, 2, "b");
    made.request(3, 3, 77, 1, "a");
    assert_eq!([1, 2, 3].map(|index| made.answer(index).unwrap()), ["2", "3", "2"]);
    assert_eq!(made.words(3), ["(3)", "a", "b"]);
    made.assert_all_agree();
}

#[test]
fn own_commands_return_the_reply_and_a_position_to_read_from() {
    let mut made = Made::of(&[1, 2]);
    let number = made.replica(2).command(NOW, "a".into(), NOW + Duration::from_secs(9));
    made.settle();
    let done = Done { reply: "2".into(), position: 1 };
    assert_eq!(made.done(2), [(number, Ok(done))]);
    let (early, late) = (made.replica(1).wait_for(1), made.replica(1).wait_for(2));
    made.settle();
    assert!(made.seen[&1].contains(&Output::Ready(early)) && !made.seen[&1].contains(&Output::Ready(late)));
    made.request(2, 1, 77, 1, "b");
    assert!(made.seen[&1].contains(&Output::Ready(late)));
}

#[test]
fn what_a_reset_dropped_is_submitted_again_and_takes_effect_once() {
    let mut made = Made::of(&[1, 2, 3]);
    made.holds = true;
    made.request(2, 1, 77, 1, "a");
    let own = made.replica(2).command(NOW, "b".into(), NOW + Duration::from_secs(9));
    made.settle();
    assert_eq!((made.held.len(), made.answer(1)), (2, None));
    made.reset_without(&[3]);
    assert_eq!(made.words(1), ["(3)", "(2)", "a", "b"]);
    assert_eq!((made.answer(1).unwrap(), made.done(2)[0].0), ("3".into(), own));
    made.assert_all_agree();
}

pub(super) fn asked(
    index: u32,
    client: u64,
    call: CallNumber,
    again: bool,
    payload: &'static str,
) -> Request {
    Request {
        id: RequestId::numbered(index),
        port: Port(1),
        client: Uid(client),
        source: Source::of_host(1),
        is_stranger: false,
        call,
        finished_below: 1,
        hops: 0,
        again,
        deadline: NOW + Duration::from_secs(5),
        wishes: None,
        whole_bytes: None,
        payload: payload.into(),
    }
}

#[test]
fn reads_wait_for_a_confirmation_and_what_it_names() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "look");
    assert_eq!(made.answer(1).unwrap(), "(2)");
    made.request(1, 2, 77, 2, "read");
    assert_eq!(made.answer(2).unwrap(), "(2)");
    // Reads share a confirmation until it begins, and none is answered before what is named is applied.
    for index in 3..6 {
        if index == 5 {
            assert_eq!(made.replica(1).poll_output(), Some(Output::Confirm));
        }
        let request = Request {
            id: RequestId::numbered(index),
            port: Port(1),
            client: Uid(77),
            source: Source::of_host(1),
            is_stranger: false,
            call: u64::from(index),
            finished_below: 1,
            hops: 0,
            again: false,
            deadline: NOW + Duration::from_secs(5),
            wishes: None,
            whole_bytes: None,
            payload: "read".into(),
        };
        made.replica(1).handle_request(NOW, request);
    }
    assert_eq!(made.replica(1).poll_output(), None);
    made.replica(1).handle_confirmed(1);
    assert_eq!(made.replica(1).poll_output(), Some(Output::Confirm));
    made.replica(1).handle_confirmed(1);
    assert_eq!((made.answer(3), made.answer(4)), (None, None));
    made.request(2, 9, 78, 1, "b");
    for index in 3..6 {
        assert_eq!(made.answer(index).unwrap(), "(2) b");
    }
}

#[test]
fn only_a_forced_reset_may_lose_what_a_majority_held() {
    for (durability, forced, tells) in [
        (Durability::HeldByAll, false, true),
        (Durability::HeldByMajority, false, false),
        (Durability::HeldByMajority, true, true),
    ] {
        let mut made = Made::of(&[1]);
        made.durability = durability;
        made.join(2);
        let view = made.present_view();
        made.order(|seqno| Event::Reset {
            seqno,
            view: view.clone(),
            excluded: Vec::new(),
            degraded: true,
            forced,
        });
        made.settle();
        let degraded = Notice::Degraded { excluded: Vec::new() };
        assert_eq!(made.notices(2).contains(&degraded), tells, "{durability:?}, forced: {forced}");
    }
}

#[test]
fn a_service_without_linearizable_reads_says_so() {
    let mut made = Made::of(&[1]);
    made.durability = Durability::Ordered;
    made.join(2);
    assert!(made.replica(2).barrier().is_err());
    made.request(2, 1, 77, 1, "read");
    assert!(made.answer(1).unwrap().starts_with("refused: this service was founded"));
}

#[test]
fn a_command_has_the_quality_that_its_caller_asks_for_or_the_services_if_that_is_more() {
    const TWO: Quality = Quality::resilient(2);
    let cases = [
        (Durability::HeldByAll, Quality::TOTAL, Quality::ORDERED),
        (Durability::HeldByMajority, Quality::ORDERED, Quality::MAJORITY),
        (Durability::HeldByMajority, Quality::resilient(1), Quality::MAJORITY),
        (Durability::HeldByMajority, TWO, Quality::TOTAL),
        (Durability::HeldByMajority, Quality::TOTAL, Quality::TOTAL),
        (Durability::Ordered, Quality::ORDERED, Quality::ORDERED),
        (Durability::Ordered, TWO, TWO),
        (Durability::Ordered, Quality::MAJORITY, Quality::MAJORITY),
    ];
    for (durability, wished, expected) in cases {
        let mut made = Made::of(&[1]);
        made.replica(1).settings.durability = durability;
        let asks = |index, quality| {
            let wishes = Some(Wishes { quality, ..Wishes::default() }.into());
            Request { wishes, ..asked(index, 77, index.into(), false, "a") }
        };
        made.replica(1).handle_request(NOW, asks(1, wished));
        // A reset may have dropped it: it is repeated with the same quality.
        made.replica(1).repeat_all(NOW);
        for _ in 0..2 {
            let submitted = made.replica(1).poll_output();
            assert!(
                matches!(&submitted, Some(Output::Submit(_, quality)) if *quality == expected),
                "{durability:?}, {wished}: {submitted:?}"
            );
        }
        // What the caller asks for is never fewer than it says, in a view of any size.
        let resilience = durability.resilience();
        for members in 1..=7 {
            let holders = |quality: Quality| quality.holders(resilience, members);
            assert!(holders(expected) >= holders(wished).max(holders(durability.quality())));
        }
        made.replica(1).settings.quorums_intersect = false;
        made.replica(1).handle_request(NOW, asks(2, wished));
        made.settle();
        let is_refused = durability == Durability::Ordered && wished == Quality::MAJORITY;
        assert_eq!(made.answer(2).unwrap().starts_with("refused: quality majority and total"), is_refused);
    }
}

#[test]
fn a_request_is_passed_on_to_a_member_that_has_the_state() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "pass");
    assert_eq!(made.answer(1).unwrap(), "to 2");
    let mut alone = Made::of(&[5]);
    alone.request(5, 1, 77, 1, "pass");
    assert_eq!(alone.answer(1).unwrap(), "passed by 5");
    made.holds = true;
    made.request(1, 2, 77, 2, "a");
    made.replica(1).end();
    made.settle();
    made.request(1, 3, 77, 3, "a");
    assert_eq!([2, 3].map(|index| made.answer(index).unwrap()), ["to 2", "to 2"]);
}

#[test]
fn a_copy_that_differs_from_the_majority_stops_and_names_the_commands() {
    let mut made = Made::of(&[1, 2, 3]);
    let state = made.replica(2).replicated.as_mut().unwrap();
    let spoiled = Words(vec!["spoiled".into(), "state".into()]);
    let view = View::new(EpochId::default(), [1, 2, 3].map(member).to_vec(), Uid(1), 1);
    let mut parts = state.snapshot(Watched::default()).parts;
    parts.truncate(2);
    let settings = ReplicaSettings {
        client: Uid(9),
        durability: Durability::HeldByAll,
        message_bytes_max: 1 << 20,
        members_min: 1,
        names: Vec::new(),
        window: 1024,
        quorums_intersect: true,
        digest,
    };
    let Ok(spoiled) = Replicated::restored(spoiled, (0, &parts), Some(view), &settings) else { panic!() };
    made.replica(2).replicated = Some(spoiled);
    for call in 1..=chain::COMPARED_EVERY {
        made.request(1, call as u32, 77, call, "a");
    }
    let differs = StopReason::Differs { since: 0, through: chain::COMPARED_EVERY };
    assert_eq!((made.stopped(2), made.stopped(1), made.stopped(3)), (Some(differs), None, None));
}

#[test]
fn the_next_life_of_a_member_keeps_its_own_commands_and_fetches_what_changed() {
    let mut made = Made::of(&[1, 2, 3]);
    made.request(1, 1, 77, 1, "a");
    made.holds = true;
    let number = made.replica(3).command(NOW, "b".into(), NOW + Duration::from_secs(9));
    let barrier = made.replica(3).barrier().unwrap();
    assert!(matches!(made.replica(3).poll_output(), Some(Output::Submit(..))));
    assert_eq!(made.replica(3).poll_output(), Some(Output::Confirm));
    made.reset_without(&[3]);
    let excluded = Event::Excluded { epoch: None };
    made.replica(3).handle_event(NOW, excluded);
    assert_eq!(made.replicas[&3].entry_after_exclusion(&GroupConfig::default()), EntryMode::Join);
    made.request(1, 2, 77, 2, "c");
    let next = made.replicas.remove(&3).unwrap().into_next(Uid(4));
    made.join(4);
    made.replicas.insert(4, next);
    let entered = Event::Entered { seqno: made.seqno, view: made.present_view() };
    made.replica(4).handle_event(NOW, entered);
    made.settle();
    assert_eq!(made.done(4).iter().map(|(done, _)| *done).collect::<Vec<_>>(), [number]);
    assert!(made.seen[&4].contains(&Output::Ready(barrier)));
    assert_eq!(made.words(1).last().unwrap(), "b");
    assert_eq!(made.words(4), made.words(1));
}

#[test]
fn an_own_command_is_not_submitted_to_another_service_if_it_may_have_happened() {
    let mut made = Made::of(&[1, 2, 3]);
    made.holds = true;
    let deadline = NOW + Duration::from_secs(9);
    let submitted = made.replica(3).command(NOW, "a".into(), deadline);
    made.replica(3).handle_event(NOW, Event::Excluded { epoch: None });
    let later = made.replica(3).command(NOW, "b".into(), deadline);
    let mut next = made.replicas.remove(&3).unwrap().into_next(Uid(4));
    while next.poll_output().is_some() {}
    let epoch = EpochId { nonce: 99, ..EpochId::default() };
    let view = View::new(epoch, vec![member(4), member(5)], Uid(4), 255);
    next.handle_event(NOW, Event::Entered { seqno: 0, view });
    let outputs: Vec<Output> = core::iter::from_fn(|| next.poll_output()).collect();
    let done = |output: &&Output| matches!(output, Output::Done(..));
    let done: Vec<&Output> = outputs.iter().filter(done).collect();
    assert_eq!(done, [&Output::Done(submitted, Err(CommandFailure::Unknown))]);
    let submits = outputs.iter().filter(|output| matches!(output, Output::Submit(..))).count();
    assert_eq!(submits, 1, "only {later} is submitted");
}

#[test]
fn an_own_command_without_an_outcome_is_given_up_at_its_deadline() {
    let mut made = Made::of(&[1]);
    made.holds = true;
    let number = made.replica(1).command(NOW, "a".into(), NOW + Duration::from_secs(9));
    made.settle();
    let at = made.replica(1).poll_timeout().unwrap();
    made.replica(1).handle_timeout(at);
    made.settle();
    assert!(made.done(1).is_empty());
    made.replica(1).handle_timeout(NOW + Duration::from_secs(10));
    made.settle();
    assert_eq!(made.done(1), [(number, Err(CommandFailure::Unknown))]);
    assert_eq!(made.replica(1).poll_timeout(), None);
}

#[test]
fn the_only_copy_waits_until_another_member_has_the_state_before_it_leaves() {
    let mut made = Made::of(&[1]);
    assert!(made.replicas[&1].may_leave());
    made.silent = vec![1];
    made.join(2);
    assert!(!made.replicas[&1].may_leave());
    made.silent.clear();
    made.replica(2).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert!(made.replicas[&1].may_leave());
}

#[test]
fn a_client_that_acknowledges_frees_its_replies_at_all_members() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "a");
    assert_eq!(made.replicas[&2].account().reply_bytes, 1);
    made.replica(1).handle_finished(NOW, Uid(77), 2);
    let at = made.replica(1).poll_timeout().unwrap();
    made.replica(1).handle_timeout(at);
    made.settle();
    assert_eq!(made.replicas[&2].account().reply_bytes, 0);
    // Nothing is said about what is free already.
    made.replica(1).handle_finished(at, Uid(77), 2);
    made.replica(1).handle_timeout(at + Duration::from_secs(5));
    assert_eq!(made.replica(1).poll_output(), None);
    made.assert_all_agree();
}

// Other copies may have received it at another moment, or not at all (hazard H98).
#[test]
fn a_copy_applies_no_message_without_a_place() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "a");
    let early = Word::Command(word::Ordered {
        client: Uid(78),
        call: 1,
        finished_below: 1,
        left_ms: 5000,
        stamp_ms: 1,
        quality: Quality::ORDERED,
        payload: "early".into(),
    });
    let early =
        Event::Early { sender: Uid(2), quality: Quality::UNRELIABLE, outside: None, payload: early.write() };
    made.replica(1).handle_event(NOW, early);
    made.settle();
    made.request(1, 2, 79, 1, "b");
    assert_eq!(made.words(1), made.words(2));
    assert!(!made.words(1).contains(&"early".into()));
    made.assert_all_agree();
}
