//! Replicas in a made-up group: every message gets its seqno at once, and every call of a transfer is answered at once.

mod handlers;
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
            Answer::GoOn => "go on".into(),
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
fn a_newcomer_gets_state_memory_and_what_was_ordered_meanwhile() {
    let mut made = Made::of(&[1]);
    made.request(1, 1, 77, 1, "a");
    made.join(2);
    assert_eq!(made.words(2), ["(1)", "a", "(2)"]);
    assert!(made.seen[&2].contains(&Output::Informed));
    assert_eq!(made.replicas[&1].copies(), [Uid(1), Uid(2)]);
    // It recognises a call that was executed before it came.
    made.request(2, 2, 77, 1, "a");
    assert_eq!(made.answer(2).unwrap(), "2");
    made.assert_all_agree();
}

#[test]
fn a_donor_that_does_not_go_on_is_replaced_by_another() {
    let mut made = Made::of(&[1, 2, 3]);
    made.silent = vec![1, 2];
    made.request(1, 1, 77, 1, "a");
    made.join(4);
    assert_eq!(made.words(4), made.words(1));
    made.assert_all_agree();
}

#[test]
fn a_spoiled_piece_is_not_taken() {
    Made::is_left(SPOILS_PIECES);
}

#[test]
fn a_donor_whose_list_is_not_that_of_a_state_is_left() {
    Made::is_left(LISTS_OTHER_LENGTHS);
    Made::is_left(NEVER_ENDS);
}

#[test]
fn a_donor_that_lists_a_piece_above_the_bound_is_left() {
    let mut made = Made::of(&[2, GIVES_LARGE_PIECES]);
    made.silent = vec![2];
    made.join(4);
    let piece: Bytes = vec![b'x'; snapshot::STATE_PIECE_BYTES_MAX + 1].into();
    for (length, is_left) in [(piece.len(), true), (piece.len() - 1, false)] {
        let mut fetch = Fetch::new();
        let (view, mut watched) = (made.present_view(), Watched::default());
        fetch.advance(NOW, Uid(4), &view);
        let (call, to, _) = fetch.poll_call().unwrap();
        assert_eq!(u64::from(to.port()), GIVES_LARGE_PIECES);
        let pieces = vec![snapshot::Piece { digest: [1; 32], bytes: length as u32, ends_part: true }];
        let of = snapshot::Extent { pieces: 1, bytes: length as u64 };
        let list = snapshot::Reply::List(snapshot::List { at: 9, of, from: 0, pieces });
        fetch.handle(NOW, call, Ok(Hashed::new(list.write(), digest)), &mut watched);
        fetch.advance(NOW, Uid(4), &view);
        let (_, to, _) = fetch.poll_call().unwrap();
        assert_eq!(u64::from(to.port()) != GIVES_LARGE_PIECES, is_left, "{length}");
    }
}

/// Begins a transfer of pieces of this length. Returns the first pieces that are asked for, too.
fn transfer_of(bytes: usize, view: &View, prepare: impl FnOnce(&mut Fetch)) -> (Fetch, Vec<Asked>) {
    let pieces = (0..20).map(|number| snapshot::Piece {
        digest: digest(&piece_of(bytes, number)),
        bytes: bytes as u32,
        ends_part: true,
    });
    let of = snapshot::Extent { pieces: 20, bytes: 20 * bytes as u64 };
    let list = snapshot::Reply::List(snapshot::List { at: 9, of, from: 0, pieces: pieces.collect() });
    let mut fetch = Fetch::new();
    fetch.advance(NOW, Uid(4), view);
    let (call, ..) = fetch.poll_call().unwrap();
    fetch.handle(NOW, call, Ok(Hashed::new(list.write(), digest)), &mut Watched::default());
    prepare(&mut fetch);
    fetch.advance(NOW, Uid(4), view);
    let asked = all_asked(&mut fetch);
    (fetch, asked)
}

type Asked = crate::replica::FetchNumber;

fn all_asked(fetch: &mut Fetch) -> Vec<Asked> {
    core::iter::from_fn(|| fetch.poll_call()).map(|(call, ..)| call).collect()
}

fn piece_of(bytes: usize, number: u8) -> Vec<u8> {
    vec![number; bytes]
}

#[test]
fn pieces_yield_to_commands_unless_that_takes_too_long() {
    const LARGE: usize = snapshot::STATE_PIECE_BYTES_MAX;
    let made = Made::of(&[1, 2]);
    let view = made.present_view();
    let commands_flow = |fetch: &mut Fetch| fetch.note_command(NOW);
    let late = |fetch: &mut Fetch| {
        fetch.note_command(NOW);
        fetch.hurry();
    };
    assert_eq!(transfer_of(LARGE, &view, |_| {}).1.len(), 8);
    assert_eq!(transfer_of(LARGE, &view, late).1.len(), 8);
    assert_eq!(transfer_of(LARGE / 8, &view, commands_flow).1.len(), 2);
    assert_eq!(transfer_of(LARGE / 1024, &view, commands_flow).1.len(), 8);

    // Large pieces go one by one, with rests between them.
    let (mut fetch, asked) = transfer_of(LARGE, &view, commands_flow);
    assert_eq!(asked.len(), 1);
    let after = |ms| NOW + Duration::from_millis(ms);
    let reply = snapshot::Reply::Piece(piece_of(LARGE, 0).into()).write();
    fetch.handle(after(3), asked[0], Ok(Hashed::new(reply, digest)), &mut Watched::default());
    fetch.advance(after(3), Uid(4), &view);
    assert_eq!((all_asked(&mut fetch).len(), fetch.wake_at()), (0, Some(after(6))));
    fetch.advance(after(6), Uid(4), &view);
    let asked = all_asked(&mut fetch);
    assert_eq!((asked.len(), fetch.wake_at()), (1, None));
    // The second one took too long: the commands have ended meanwhile.
    let reply = snapshot::Reply::Piece(piece_of(LARGE, 1).into()).write();
    fetch.handle(after(60), asked[0], Ok(Hashed::new(reply, digest)), &mut Watched::default());
    fetch.advance(after(60), Uid(4), &view);
    assert_eq!((all_asked(&mut fetch).len(), fetch.wake_at()), (8, None));
}

#[test]
fn a_donor_whose_state_cannot_be_restored_is_left_unless_all_are_like_that() {
    let [first, second] = GIVES_ANOTHER_STATE;
    Made::is_left(first);
    let mut made = Made::of(&[second, first]);
    made.request(first, 1, 77, 1, "a");
    made.join(4);
    assert_eq!(made.stopped(4), Some(StopReason::NotRestored(NotRestored("a word is not UTF-8"))));
    let gave = |donor| made.donors[&donor].forgets_at().is_some();
    assert!(gave(first) && gave(second));
}

#[test]
fn a_state_is_copied_for_members_only() {
    let mut made = Made::of(&[1]);
    assert!(matches!(made.replicas[&1].present_for(Uid(2)), Present::TooOld));
    assert!(matches!(made.replicas[&1].present_for(Uid(1)), Present::State(_)));
    made.add(2);
    assert!(matches!(made.replicas[&2].present_for(Uid(1)), Present::Nothing));
}

#[test]
fn members_whose_state_is_lost_enter_again_and_form_the_service_as_it_was_at_first() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "a");
    // Member 2 is excluded, and has the state of its last life when it comes back.
    made.reset_without(&[2]);
    let mut next = made.replicas.remove(&2).unwrap().into_next(Uid(4));
    made.silent = vec![1];
    made.join(3);
    made.reset_without(&[1]);
    let reenters = |made: &Made| made.seen[&3].iter().filter(|output| **output == Output::Reenter).count();
    assert_eq!((reenters(&made), made.stopped(3)), (1, None));
    let view = View::new(EpochId::default(), [4, 5].map(member).to_vec(), Uid(4), 1);
    next.handle_event(NOW, Event::Entered { seqno: 0, view });
    assert_eq!(next.machine().unwrap().0, ["(2)"]);
    assert_eq!(next.position(), 0);
}

#[test]
fn a_state_that_cannot_be_restored_ends_the_newcomer_only() {
    let mut made = Made::of(&[1]);
    made.request(1, 1, 77, 1, "a");
    let Some(state) = &mut made.replica(1).replicated else { panic!() };
    let strange = Words(vec!["(1)".into()]);
    assert_eq!(state.machine(), &Words(vec!["(1)".into(), "a".into()]));
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
    let head = state.snapshot(Watched::default()).parts[0].clone();
    let parts = [head.clone(), Bytes::from_static(&[0xff])];
    let failed = Replicated::restored(strange.clone(), (3, &parts), None, &settings);
    assert!(matches!(failed, Err((kept, NotRestored(_))) if kept == strange), "the state machine comes back");
    let failed = Replicated::restored(strange, (3, &[head.slice(..9)]), None, &settings);
    assert!(matches!(failed, Err((_, NotRestored(_)))));
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
fn the_beginning_of_a_command_is_refused_once_a_majority_confirms_it_and_let_through_at_once() {
    let mut made = Made::of(&[1, 2]);
    let beginning =
        |index: u32, word| Request { whole_bytes: Some(1000), ..asked(index, 77, index.into(), false, word) };
    for (index, word) in [(1, "open"), (2, "shut")] {
        made.replica(1).handle_request(NOW, beginning(index, word));
    }
    assert_eq!(made.replica(1).poll_output(), Some(Output::Confirm));
    made.settle();
    assert_eq!((made.answer(1), made.answer(2)), (None, Some("go on".into())));
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    assert_eq!(made.answer(1).unwrap(), "refused: no key");
    let again = Request { again: true, ..beginning(3, "open") };
    made.replica(1).handle_request(NOW, again);
    made.settle();
    assert_eq!(made.answer(3).unwrap(), "go on", "an earlier attempt may have been executed");
    assert_eq!(made.replicas[&1].account().waiting_bytes, 0);
}

#[test]
fn a_request_that_shows_no_right_is_denied() {
    let mut made = Made::of(&[1, 2]);
    for (index, request) in (1..).zip(["break in", "pry", "peep", "read", "look"]) {
        made.replica(1).handle_request(NOW, asked(index, 77, index.into(), false, request));
        made.settle();
        let seqno = made.seqno;
        made.replica(1).handle_confirmed(seqno);
        made.settle();
    }
    let answers = [1, 2, 3, 4, 5].map(|index| made.answer(index).unwrap());
    assert_eq!(answers, ["denied: no entry", "denied: (2)", "denied: (2)", "(2)", "(2)"]);
}

#[test]
fn a_repeat_without_a_right_is_denied_too_and_so_are_copies_of_it() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).handle_request(NOW, asked(1, 77, 1, true, "break in"));
    made.replica(1).handle_request(NOW, asked(2, 77, 1, false, "break in"));
    made.settle();
    made.replica(1).handle_request(NOW, asked(3, 77, 1, false, "break in"));
    made.settle();
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    let answers = [1, 2, 3].map(|index| made.answer(index).unwrap());
    assert_eq!(answers, ["denied: no entry"; 3], "it was ordered, and its outcome is known");
}

#[test]
fn a_beginning_under_the_number_of_a_command_that_waits_is_looked_at_too() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).handle_request(NOW, asked(1, 77, 1, false, "shut"));
    let beginning = Request { whole_bytes: Some(1000), ..asked(2, 77, 1, false, "open") };
    made.replica(1).handle_request(NOW, beginning);
    let outputs: Vec<_> = core::iter::from_fn(|| made.replica(1).poll_output()).collect();
    assert!(matches!(outputs[..], [Output::Submit(..), Output::Confirm]), "{outputs:?}");
}

#[test]
fn a_command_that_the_state_refuses_takes_no_position_and_is_not_remembered() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "open");
    assert_eq!(made.answer(1).unwrap(), "refused: no key");
    assert_eq!((made.replica(1).position(), made.replica(1).account().commands), (0, 0));
    made.request(2, 2, 77, 2, "key");
    made.request(1, 3, 77, 3, "open");
    assert_eq!((made.answer(3).unwrap(), made.replica(1).position()), ("3".into(), 2));
    made.assert_all_agree();
}

#[test]
fn a_command_is_refused_only_by_a_confirmed_state() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).handle_request(NOW, asked(1, 77, 1, false, "open"));
    assert_eq!(made.replica(1).poll_output(), Some(Output::Confirm));
    assert_eq!(made.replica(1).poll_output(), None, "it waits");
    made.request(2, 2, 78, 1, "key");
    assert_eq!(made.answer(1), None);
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    assert_eq!(made.answer(1).unwrap(), "3", "another client has brought the key meanwhile");
    made.assert_all_agree();
}

#[test]
fn a_repeat_of_a_command_is_not_refused_before_it_is_ordered() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 2, "open");
    made.request(1, 3, 77, 3, "close");
    // The state would refuse it now, but it has its outcome; whether or not the client knows that it asks again.
    for (index, again) in [(4, true), (5, false)] {
        made.replica(2).handle_request(NOW, asked(index, 77, 2, again, "open"));
        made.settle();
        assert_eq!(made.answer(index), made.answer(2));
    }
    assert_eq!(made.replica(2).position(), 3);
    // An earlier attempt may still be executed, so this one gets a position to stay refused.
    made.replica(2).handle_request(NOW, asked(6, 77, 4, true, "open"));
    made.settle();
    assert_eq!((made.answer(6).unwrap(), made.replica(2).position()), ("refused: no key".into(), 4));
    made.assert_all_agree();
}

#[test]
fn a_service_whose_reads_are_local_orders_what_it_refuses() {
    let mut made = Made::of(&[1]);
    made.durability = Durability::Ordered;
    made.join(2);
    made.request(2, 1, 77, 1, "open");
    assert_eq!((made.answer(1).unwrap(), made.replica(2).position()), ("refused: no key".into(), 1));
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
fn a_command_larger_than_a_message_is_refused_and_changes_nothing() {
    let mut made = Made::of(&[1]);
    let (max, deadline) = ((1 << 20) - word::COMMAND_HEAD_BYTES, NOW + Duration::from_secs(9));
    let large = Bytes::from(vec![b'x'; max + 1]);
    let number = made.replica(1).command(NOW, large.clone(), deadline);
    made.settle();
    assert_eq!(made.done(1), [(number, Err(CommandFailure::TooLarge { bytes: max + 1, max }))]);
    assert_eq!(made.replicas[&1].position(), 0);
    made.replica(1).command(NOW, large.slice(1..), deadline);
    made.settle();
    assert_eq!(made.replicas[&1].position(), 1);
}

/// Returns the bytes that wait at a member, as they are counted and as they are.
fn waiting_bytes(made: &Made, uid: u64) -> (usize, usize) {
    let replica = &made.replicas[&uid];
    (replica.account().waiting_bytes, replica.waiting.bytes_counted_anew())
}

#[test]
fn commands_beyond_the_bytes_that_may_wait_are_refused_as_busy() {
    const LARGE: &[u8] = &[b'x'; 1 << 19];
    let large: &'static str = core::str::from_utf8(LARGE).unwrap();
    let mut made = Made::of(&[1, 2]);
    made.holds = true;
    let deadline = NOW + Duration::from_secs(9);
    // None of them has more than its share.
    let client = |call: u32| u64::from(1000 + call);
    for call in 1..=200 {
        let source = Source::of_host(call as u8);
        let request = Request { source, ..asked(call, client(call), call.into(), false, large) };
        made.replica(1).handle_request(NOW, request);
        made.settle();
        let number = made.replica(2).command(NOW, large.into(), deadline);
        made.settle();
        assert_eq!(u64::from(call), number);
        for uid in [1, 2] {
            let (counted, waits) = waiting_bytes(&made, uid);
            assert!(counted == waits && waits <= waiting::WAITING_BYTES_MAX, "{counted} {waits}");
        }
    }
    let taken = waiting::WAITING_BYTES_MAX / (LARGE.len() + word::COMMAND_HEAD_BYTES);
    // What is left in the end is less than twice as long: none has a share of more than half of it.
    let of_clients = (1..=200).filter(|call| made.answer(*call).is_none()).count();
    assert_eq!(of_clients, taken - 1);
    assert!(made.answer(taken as u32).unwrap().starts_with("refused: busy: too many bytes"));
    let busy: Vec<CommandNumber> = made.done(2).iter().map(|(number, _)| *number).collect();
    assert_eq!(busy, (taken as u64 + 1..=200).collect::<Vec<_>>());
    assert!(made.done(2).iter().all(|(_, done)| *done == Err(CommandFailure::Busy)));
    // A repeat of one that waits takes no room.
    made.request(1, 300, client(1), 1, large);
    assert_eq!(made.answer(300), None);
    made.holds = false;
    made.reset_without(&[]);
    assert_eq!(made.answer(300), made.answer(1));
    assert_eq!((waiting_bytes(&made, 1), waiting_bytes(&made, 2)), ((0, 0), (0, 0)));
    assert_eq!(made.replicas[&1].position(), (of_clients + taken) as u64);
    assert_eq!(made.replicas[&1].account().commands, of_clients + taken);
}

#[test]
fn bytes_that_wait_no_more_are_not_counted() {
    let mut made = Made::of(&[1, 2]);
    made.holds = true;
    made.request(1, 1, 77, 1, "a");
    let deadline = NOW + Duration::from_secs(9);
    made.replica(1).command(NOW, "bb".into(), deadline);
    made.settle();
    assert_eq!(waiting_bytes(&made, 1), (3 + 2 * word::COMMAND_HEAD_BYTES, 3 + 2 * word::COMMAND_HEAD_BYTES));
    made.replica(1).end();
    made.settle();
    assert_eq!(waiting_bytes(&made, 1).0, 2 + word::COMMAND_HEAD_BYTES);
    let mut next = made.replicas.remove(&1).unwrap().into_next(Uid(4));
    assert_eq!(next.account().waiting_bytes, 2 + word::COMMAND_HEAD_BYTES);
    next.tidy(deadline);
    assert_eq!(next.account().waiting_bytes, 0);
    next.command(NOW, "c".into(), deadline);
    next.give_up_commands();
    assert_eq!(next.account().waiting_bytes, 0);
}

#[test]
fn large_commands_of_one_client_follow_each_other() {
    let mut made = Made::of(&[1]);
    made.replica(1).settings.message_bytes_max = 32 << 20;
    made.holds = true;
    let large = |index: u32, client| {
        let payload = alloc::vec![b'x'; 9 << 20].into();
        Request { payload, ..asked(index, client, index.into(), false, "") }
    };
    for (index, client) in [(1, 77), (2, 77), (3, 78)] {
        made.replica(1).handle_request(NOW, large(index, client));
    }
    made.settle();
    assert_eq!(made.answer(1), None, "it waits");
    assert!(
        made.answer(2).unwrap().starts_with("refused: busy"),
        "with the first it has more than a quarter"
    );
    assert_eq!(made.answer(3), None, "another client has a share of its own");
    made.replica(1).handle_timeout(NOW + Duration::from_secs(6));
    assert_eq!(made.replica(1).account().waiting_bytes, 0);
    made.replica(1).handle_request(NOW, large(4, 77));
    made.settle();
    assert_eq!(made.answer(4), None);
}

#[test]
fn lives_of_one_source_take_half_of_the_waiting_bytes_and_others_have_a_share_still() {
    let mut made = Made::of(&[1]);
    made.replica(1).settings.message_bytes_max = 32 << 20;
    made.holds = true;
    for index in 1..=100 {
        let payload = alloc::vec![b'x'; 1 << 20].into();
        let request = Request { payload, ..asked(index, 1000 + u64::from(index), 1, false, "") };
        made.replica(1).handle_request(NOW, request);
    }
    assert!(made.replica(1).account().waiting_bytes <= waiting::WAITING_BYTES_MAX / 2);
    let payload = alloc::vec![b'x'; 15 << 20].into();
    let source = Source::of_host(2);
    made.replica(1).handle_request(NOW, Request { payload, source, ..asked(101, 77, 1, false, "") });
    made.settle();
    assert!(made.answer(100).unwrap().starts_with("refused: busy"));
    assert_eq!(made.answer(101), None, "it waits");
    made.replica(1).handle_timeout(NOW + Duration::from_secs(6));
    assert_eq!(made.replica(1).account().waiting_bytes, 0);
    made.replica(1).handle_request(NOW, asked(102, 78, 1, false, "x"));
    made.settle();
    assert_eq!(made.answer(102), None, "what waits no longer counts in no share");
}

#[test]
fn commands_count_in_the_share_of_the_source_from_which_they_came() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "a");
    made.request(1, 2, 78, 1, "b");
    let sources = |made: &Made, uid: u64| made.replicas[&uid].replicated.as_ref().unwrap().sources();
    assert_eq!((sources(&made, 1), sources(&made, 2)), (vec![(2, 2)], vec![]));
}

#[test]
fn a_command_may_wait_for_an_hour_and_no_longer() {
    let mut made = Made::of(&[1]);
    made.holds = true;
    for (index, beyond) in [(1, 0), (2, 1)] {
        let request = Request {
            id: RequestId::numbered(index),
            port: Port(1),
            client: Uid(77),
            source: Source::of_host(1),
            is_stranger: false,
            call: index.into(),
            finished_below: 1,
            hops: 0,
            again: false,
            deadline: NOW + COMMAND_WAITS_BOUND + Duration::from_millis(beyond),
            wishes: None,
            whole_bytes: None,
            payload: "a".into(),
        };
        made.replica(1).handle_request(NOW, request);
    }
    let own = made.replica(1).command(NOW, "b".into(), Time::NEVER);
    made.settle();
    assert_eq!(made.answer(1), None);
    assert!(made.answer(2).unwrap().starts_with("refused: a command waits for 3600 s at most"));
    made.replica(1).handle_timeout(NOW + COMMAND_WAITS_BOUND);
    made.settle();
    assert_eq!(made.done(1), [(own, Err(CommandFailure::Unknown))]);
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

#[test]
fn a_newcomer_whose_backlog_is_full_asks_for_a_later_state() {
    let mut made = Made::of(&[1]);
    made.silent = vec![1];
    made.join(2);
    let large: Bytes = vec![b'x'; 1 << 20].into();
    for _ in 0..70 {
        let payload = large.clone();
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(1),
            number: seqno,
            outside: None,
            payload: payload.clone(),
        });
        made.settle();
        assert!(made.replicas[&2].account().backlog_bytes <= backlog::BACKLOG_BYTES_MAX);
    }
    made.silent.clear();
    made.request(1, 1, 77, 1, "a");
    made.replica(2).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert_eq!(made.words(2), made.words(1));
}

#[test]
fn a_state_with_commands_that_a_reset_dropped_is_not_taken() {
    let mut made = Made::of(&[1, 2]);
    made.join(3);
    // Member 1 applied a command that no other member has, and gave its state to member 4 after that.
    made.seqno += 1;
    let seqno = made.seqno;
    let members = 4;
    made.view.push(4);
    made.add(4);
    let joined = Event::Joined { seqno, member: member(4), hello: Bytes::new(), members };
    for uid in [1, 2, 3] {
        made.replica(uid).handle_event(NOW, joined.clone());
    }
    let lost = Word::Command(word::Ordered {
        client: Uid(77),
        call: 1,
        finished_below: 1,
        left_ms: 5000,
        stamp_ms: 1,
        quality: Quality::ORDERED,
        payload: "lost".into(),
    });
    let lost =
        Event::Message { seqno: seqno + 1, sender: Uid(1), number: 9, outside: None, payload: lost.write() };
    made.replica(1).handle_event(NOW, lost);
    made.silent = vec![2, 3];
    let entered = Event::Entered { seqno, view: made.present_view() };
    made.replica(4).handle_event(NOW, entered);
    made.settle();
    assert!(made.replicas[&4].fetching().is_some(), "it waits for the events that the state contains");
    made.silent.clear();
    made.reset_without(&[1]);
    made.replica(4).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert_eq!(made.words(4), made.words(2));
    assert!(!made.words(4).contains(&"lost".into()));
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

#[test]
fn a_group_below_its_minimum_says_so_until_it_goes_on() {
    let mut made = Made::with_minimum(2, &[1, 2, 3]);
    made.leave(3);
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![], false));
    made.leave(2);
    let below = Notice::BelowMinimum { members: 1, needed: 2 };
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![below.clone()], true));
    // The status, too.
    let status = made.replicas[&1].answer_status(&CopyStatus::question(), Duration::ZERO);
    let status = status.and_then(CopyStatus::read).unwrap();
    assert!(status.has_state && status.is_halted);
    made.join(4);
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![below, Notice::Resumed], false));
}

#[test]
fn the_last_member_is_not_told_that_its_group_has_too_few_when_it_leaves() {
    let mut made = Made::with_minimum(1, &[1]);
    let seqno = made.seqno + 1;
    let left = Event::Left { seqno, member: member(1), goodbye: Bytes::new(), members: 0, successor: None };
    made.replica(1).handle_event(NOW, left);
    made.settle();
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![], false));
}

#[test]
fn a_group_that_a_forced_reset_leaves_below_its_minimum_goes_on_only_with_enough_members() {
    let mut made = Made::with_minimum(2, &[1, 2]);
    let missing = vec![member(2)];
    made.replica(1).handle_event(NOW, Event::Halted { missing: missing.clone() });
    made.reset_without(&[2]);
    made.replica(1).handle_event(NOW, Event::Resumed);
    made.settle();
    let mut notices = vec![Notice::Halted { missing }, Notice::BelowMinimum { members: 1, needed: 2 }];
    assert_eq!(made.notices(1), notices);
    made.join(3);
    notices.push(Notice::Resumed);
    assert_eq!(made.notices(1), notices);
}

#[test]
fn a_member_without_the_state_does_not_count_towards_the_minimum() {
    let mut made = Made::with_minimum(2, &[1, 2]);
    made.silent = vec![1, 2];
    made.join(3);
    // A command is under way when the second copy leaves, and another one comes after that.
    made.holds = true;
    made.request(1, 1, 77, 1, "early");
    made.leave(2);
    made.holds = false;
    for (sender, payload) in core::mem::take(&mut made.held) {
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: 1,
            outside: None,
            payload: payload.clone(),
        });
    }
    made.request(1, 2, 78, 1, "late");
    made.request(1, 3, 79, 1, "read");
    let below = Notice::BelowMinimum { members: 1, needed: 2 };
    assert_eq!(
        (made.notices(1), made.words(1)),
        (vec![below.clone()], vec!["(2)".into(), "(3)".into(), "(2)".into()])
    );
    assert!((1..4).all(|index| made.answer(index).is_none()));
    made.silent.clear();
    made.replica(3).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert!((1..4).all(|index| made.answer(index).is_some()));
    assert_eq!(made.notices(1), [below, Notice::Resumed]);
    assert_eq!(made.words(1)[3..], ["early", "late"]);
    made.assert_all_agree();
}

#[test]
fn a_command_that_a_reset_accepted_is_answered_once_enough_members_have_it() {
    let mut made = Made::with_minimum(2, &[1, 2]);
    made.silent = vec![1, 2];
    made.join(3);
    made.holds = true;
    made.request(1, 1, 77, 1, "kept");
    made.holds = false;
    let reset_at = made.seqno + 2;
    for (sender, payload) in core::mem::take(&mut made.held) {
        made.replica(1).handle_event(NOW, Event::ResetAhead { seqno: reset_at });
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: 1,
            outside: None,
            payload: payload.clone(),
        });
        made.settle();
    }
    assert_eq!((made.words(1).last().map(String::as_str), made.answer(1)), (Some("kept"), None));
    made.reset_without(&[2]);
    assert_eq!(made.answer(1), None);
    made.silent.clear();
    made.replica(3).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert_eq!(made.answer(1).as_deref(), Some("3"));
    made.assert_all_agree();
}

#[test]
fn only_members_with_the_names_count_towards_the_minimum() {
    let mut settings = Made::of(&[1]).replicas[&1].settings.clone();
    (settings.members_min, settings.names) = (2, ["a", "b"].map(|name| Name::new(name).unwrap()).to_vec());
    for (name, enough) in [("b", true), ("c", false)] {
        let mut members = vec![member(1), member(2)];
        (members[0].name, members[1].name) = (Name::new("a").unwrap(), Name::new(name).unwrap());
        let mut replica = Replica::new(Uid(1), Words::default(), settings.clone());
        let view = View::new(EpochId::default(), members, Uid(1), 1);
        replica.handle_event(NOW, Event::Entered { seqno: 0, view });
        replica.command(NOW, "a".into(), NOW + Duration::from_secs(5));
        let submits = |output: &Output| matches!(output, Output::Submit(..));
        let submitted = core::iter::from_fn(|| replica.poll_output()).any(|output| submits(&output));
        assert_eq!((submitted, replica.is_halted()), (enough, !enough));
    }
}

#[test]
fn an_answer_waits_for_the_last_of_the_resets_that_lie_ahead() {
    let mut made = Made::of(&[1, 2]);
    made.holds = true;
    made.request(1, 1, 77, 1, "kept");
    made.holds = false;
    let held = core::mem::take(&mut made.held);
    for ahead in [3, 2] {
        let seqno = made.seqno + ahead;
        made.replica(1).handle_event(NOW, Event::ResetAhead { seqno });
    }
    for (sender, payload) in held {
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: 1,
            outside: None,
            payload: payload.clone(),
        });
    }
    made.reset_without(&[]);
    assert!(made.words(1).contains(&"kept".into()) && made.answer(1).is_none());
    made.reset_without(&[2]);
    assert!(made.answer(1).is_some());
}

#[test]
fn a_repeat_whose_outcome_is_remembered_is_not_ordered_again_and_takes_no_share() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 2, "open");
    made.request(1, 3, 77, 3, "close");
    let seqno = made.seqno;
    for index in 100..300 {
        made.replica(1).handle_request(NOW, asked(index, 77, 2, true, "open"));
    }
    made.settle();
    assert_eq!(made.seqno, seqno, "nothing was ordered");
    assert!((100..300).all(|index| made.answer(index) == made.answer(2)));
    made.replica(1).handle_request(NOW, asked(4, 77, 4, true, "open"));
    made.settle();
    assert_eq!(made.answer(4).unwrap(), "refused: no key");
    assert!(made.seqno > seqno, "the share is there for those that are not remembered");
}

#[test]
fn a_client_without_a_right_gets_few_commands_into_the_order_though_it_marks_each_as_a_repeat() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 2, "open");
    made.request(1, 3, 77, 3, "close");
    let from = |host: u8, request| Request { source: Source::of_host(host), ..request };
    for index in 100..300 {
        made.replica(1).handle_request(NOW, from(9, asked(index, 99, index.into(), true, "open")));
    }
    let ordered = made.replicas[&1].position() - 3;
    assert!(ordered <= 32, "{ordered} of 200");
    made.settle();
    // Of those that were executed, the outcome is the answer.
    made.replica(1).handle_request(NOW, from(9, asked(4, 77, 2, true, "open")));
    made.replica(1).handle_request(NOW, from(9, asked(5, 77, 2, false, "open")));
    // Another host has a share still.
    made.replica(1).handle_request(NOW, from(8, asked(6, 88, 1, true, "open")));
    made.settle();
    assert_eq!(made.answer(6).unwrap(), "refused: no key");
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    assert_eq!((made.answer(4), made.answer(5)), (made.answer(2), made.answer(2)));
    let refused = made.answer(299).unwrap();
    assert!(refused.starts_with("refused: busy: ") && refused.ends_with("; nothing happened"), "{refused}");
    assert_eq!(made.replicas[&1].position(), 3 + 32 + 1);
    // A second later there is room again.
    let later = NOW + Duration::from_secs(1);
    made.replica(1).handle_request(later, from(9, asked(8, 99, 8, true, "open")));
    made.settle();
    assert_eq!(made.answer(8).unwrap(), "refused: no key");
    made.assert_all_agree();
}
