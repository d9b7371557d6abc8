//! Clients, relays and a group that is a list: what members deliver, however relays die and calls are lost.

use super::*;
use crate::event::{Event, Outcome, Outside, View};
use crate::identity::{EpochId, Member, Name, Uid};
use crate::quality::Quality;
use crate::random::Random;
use crate::rpc::CallFailure;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use alloc::{format, vec};
use bytes::Bytes;
use core::net::SocketAddr;

const CLIENT: Uid = Uid(99);

/// A message that a member has given to the group: its number, and what it is.
type Queued = (u64, Outside, Bytes);

struct Node {
    relay: Relay,
    queue: VecDeque<Queued>,
    last_number: u64,
    /// Events of the order that it has delivered.
    delivered: usize,
    /// Outcomes, each with the number of events after whose delivery the member learns it.
    outcomes: VecDeque<(usize, u64, Outcome)>,
}

/// A group whose order is a list. Members deliver it at their own pace.
struct World {
    random: Random,
    order: Vec<Event>,
    nodes: BTreeMap<Uid, Node>,
    /// Dead members that the view still has.
    dead: Vec<Uid>,
    next_uid: u64,
    client: Sender,
    call: Option<(Uid, Ticket)>,
    last_ticket: Ticket,
    fates: Vec<Fate>,
}

fn member(uid: Uid) -> Member {
    Member { uid, name: Name::default(), address: address(uid), floor: Default::default(), hops: 1 }
}

fn address(uid: Uid) -> SocketAddr {
    ([127, 0, 0, 1], uid.0 as u16).into()
}

impl World {
    fn new(seed: u64, members: u64) -> World {
        let uids: Vec<Uid> = (1..=members).map(Uid).collect();
        let view: Vec<Member> = uids.iter().copied().map(member).collect();
        let node = |uid: Uid| Node {
            relay: Relay::new(uid, address(uid), &view),
            queue: VecDeque::new(),
            last_number: 0,
            delivered: 0,
            outcomes: VecDeque::new(),
        };
        World {
            random: Random::from_u64(seed),
            order: Vec::new(),
            nodes: uids.iter().map(|uid| (*uid, node(*uid))).collect(),
            dead: Vec::new(),
            next_uid: members + 1,
            client: Sender::new(false, Position::default()),
            call: None,
            last_ticket: 0,
            fates: Vec::new(),
        }
    }

    fn view(&self) -> Vec<Member> {
        self.nodes.keys().chain(&self.dead).copied().map(member).collect()
    }

    fn any_node(&mut self) -> Uid {
        let index = self.random.below(self.nodes.len() as u64) as usize;
        *self.nodes.keys().nth(index).unwrap()
    }

    /// One member gives the group what its relay has, as far as its window of eight messages has room.
    fn give(&mut self, uid: Uid) {
        let node = self.nodes.get_mut(&uid).unwrap();
        while node.queue.len() < 8
            && let Some((outside, payload, _)) = node.relay.front()
        {
            node.last_number += 1;
            node.queue.push_back((node.last_number, outside, payload));
            node.relay.given(Ok(node.last_number));
        }
    }

    /// The first message of one member gets its place.
    fn number(&mut self, uid: Uid) {
        let node = self.nodes.get_mut(&uid).unwrap();
        let Some((number, outside, payload)) = node.queue.pop_front() else { return };
        let seqno = self.order.len() as u64 + 1;
        let outside = Some(outside);
        self.order.push(Event::Message { seqno, sender: uid, number, outside, payload });
        node.outcomes.push_back((self.order.len(), number, Outcome::Ok { seqno }));
    }

    fn deliver(&mut self, uid: Uid) {
        let node = self.nodes.get_mut(&uid).unwrap();
        if let Some(event) = self.order.get(node.delivered) {
            node.delivered += 1;
            node.relay.note(event);
        }
        while node.outcomes.front().is_some_and(|(at, ..)| *at <= node.delivered) {
            let (_, number, outcome) = node.outcomes.pop_front().unwrap();
            assert!(node.relay.outcome(number, outcome), "{number} of {uid}");
        }
    }

    /// One member dies. What it gave to the group may have got places before.
    fn kill(&mut self, uid: Uid) {
        for _ in 0..self.random.below(4) {
            self.number(uid);
        }
        self.nodes.remove(&uid);
        self.dead.push(uid);
    }

    /// A reset: the dead leave the view, and of each member that goes on it drops the last messages.
    fn reset(&mut self) {
        let uids: Vec<Uid> = self.nodes.keys().copied().collect();
        for uid in uids {
            let keep = self.random.below(9) as usize;
            let node = self.nodes.get_mut(&uid).unwrap();
            let dropped = node.queue.split_off(keep.min(node.queue.len()));
            while !self.nodes[&uid].queue.is_empty() {
                self.number(uid);
            }
            // The member learns all outcomes before it sends again.
            let node = self.nodes.get_mut(&uid).unwrap();
            for (_, number, outcome) in node.outcomes.drain(..) {
                assert!(node.relay.outcome(number, outcome), "{number} of {uid}");
            }
            for (number, ..) in dropped {
                assert!(node.relay.outcome(number, Outcome::Failed), "{number} of {uid}");
            }
        }
        self.dead.clear();
        let view = View::new(EpochId::default(), self.view(), Uid(1), 0);
        let seqno = self.order.len() as u64 + 1;
        self.order.push(Event::Reset { seqno, view, excluded: vec![], degraded: false, forced: false });
    }

    /// A member joins, and knows nothing of what came before.
    fn join(&mut self) {
        let uid = Uid(self.next_uid);
        self.next_uid += 1;
        let mut view = self.view();
        view.push(member(uid));
        let (seqno, hello) = (self.order.len() as u64 + 1, Bytes::new());
        self.order.push(Event::Joined { seqno, member: member(uid), hello, members: view.len() });
        let relay = Relay::new(uid, address(uid), &view);
        let delivered = self.order.len();
        let node =
            Node { relay, queue: VecDeque::new(), last_number: 0, delivered, outcomes: VecDeque::new() };
        self.nodes.insert(uid, node);
    }

    /// The client makes its next call, or learns the outcome of the one under way. `lost`: it gives that up.
    fn call(&mut self, lost: bool) {
        if let Some((server, ticket)) = self.call {
            let node = self.nodes.get_mut(&server);
            let outcome = match node {
                None => Some(Err(CallFailure::Unknown)),
                Some(_) if lost => Some(Err(CallFailure::Unknown)),
                Some(node) => core::iter::from_fn(|| node.relay.poll_answer())
                    .find(|(answered, _)| *answered == ticket)
                    .map(|(_, answer)| Ok(answer.write())),
            };
            if let Some(outcome) = outcome {
                self.call = None;
                self.client.answered(outcome);
            }
        } else if let Some(call) = self.client.poll_call() {
            let server = match call.to {
                None => self.any_node(),
                Some(to) => Uid(to.port().into()),
            };
            self.last_ticket += 1;
            if let Some(node) = self.nodes.get_mut(&server) {
                node.relay.request(self.last_ticket, CLIENT, call.request);
            }
            self.call = Some((server, self.last_ticket));
        }
        self.fates.extend(core::iter::from_fn(|| self.client.poll_fate()).map(|(_, fate)| fate));
    }

    fn step(&mut self, quiet: bool) {
        let uid = self.any_node();
        match self.random.below(100) {
            0 if !quiet && self.nodes.len() > 1 => self.kill(uid),
            1 | 2 if !self.dead.is_empty() || !quiet => self.reset(),
            3 if self.nodes.len() < 4 => self.join(),
            // A call ends by its deadline.
            4 if !quiet && self.random.chance(0.2) => self.call(true),
            5..20 => self.give(uid),
            20..45 => self.number(uid),
            45..75 => self.deliver(uid),
            _ => self.call(false),
        }
    }

    /// Returns the texts of the messages from outside that the order has.
    fn texts(&self) -> Vec<u64> {
        let text = |event: &Event| match event {
            Event::Message { outside: Some(outside), payload, .. } if outside.number > 0 => {
                Some(core::str::from_utf8(payload).unwrap().parse().unwrap())
            }
            _ => None,
        };
        self.order.iter().filter_map(text).collect()
    }
}

#[test]
fn each_message_comes_once_in_its_clients_order_whichever_relay_dies() {
    let mut unknown = 0;
    for seed in 0..400 {
        let mut world = World::new(seed, 3);
        let count = 300;
        for text in 0..count {
            world.client.push(format!("{text}").into(), Quality::ORDERED);
            (0..4).for_each(|_| world.step(false));
        }
        for _ in 0..200_000 {
            if world.client.open() == 0 {
                break;
            }
            world.step(true);
        }
        assert_eq!((world.client.error(), world.client.open()), (None, 0), "seed {seed}");
        // What was given up may still come.
        (0..2_000).for_each(|_| world.step(true));
        let texts = world.texts();
        assert!(texts.is_sorted_by(|a, b| a < b), "seed {seed}: twice or out of order: {texts:?}");
        let fates = |wanted| world.fates.iter().filter(|fate| **fate == wanted).count();
        assert_eq!((world.fates.len(), fates(Fate::NotSent)), (count, 0), "seed {seed}");
        assert!(fates(Fate::Accepted) <= texts.len(), "seed {seed}: what was accepted has its place");
        assert!(texts.len() <= fates(Fate::Accepted) + fates(Fate::Unknown), "seed {seed}");
        unknown += fates(Fate::Unknown);
    }
    assert!(unknown > 0, "newcomers do not know what became of the messages of a relay that died");
}

#[test]
fn a_member_that_remembers_the_client_leaves_nothing_unknown() {
    let mut world = World::new(1, 3);
    (0..70).for_each(|text| world.client.push(format!("{text}").into(), Quality::ORDERED));
    let run = |world: &mut World| {
        for _ in 0..200 {
            world.call(false);
            let uids: Vec<Uid> = world.nodes.keys().copied().collect();
            for uid in uids {
                world.give(uid);
                world.number(uid);
                world.deliver(uid);
            }
        }
    };
    while world.texts().len() < 70 {
        world.call(false);
        let relay = world.call.map(|(server, _)| server);
        let uids: Vec<Uid> = world.nodes.keys().copied().collect();
        for uid in uids {
            world.give(uid);
            world.number(uid);
            world.deliver(uid);
        }
        if world.texts().len() == 67 && world.nodes.len() == 3 {
            world.kill(relay.unwrap());
            world.reset();
        }
    }
    run(&mut world);
    assert_eq!(world.nodes.len(), 2);
    assert_eq!(world.fates, vec![Fate::Accepted; 70]);
}

/// What becomes of three messages of an unconfirmed client of which only the second has no place.
fn of_three(quality: Quality) -> (Vec<(u64, Fate)>, usize) {
    let mut client = Sender::new(true, Position::default());
    (0..3).for_each(|number| client.push(vec![number].into(), quality));
    let begun = |placed| Answer::Begun { relay: Uid(1), address: address(Uid(1)), known: true, placed };
    client.poll_call().unwrap();
    client.answered(Ok(begun(0).write()));
    client.poll_call().unwrap();
    // The relay is silent, and the next one has delivered the first and the third.
    client.answered(Err(CallFailure::Unknown));
    client.poll_call().unwrap();
    client.answered(Ok(begun(0b101).write()));
    (core::iter::from_fn(|| client.poll_fate()).collect(), client.open())
}

#[test]
fn a_message_that_others_overtook_is_not_sent_again() {
    let fates = [(0, Fate::Accepted), (1, Fate::NotSent), (2, Fate::Accepted)];
    assert_eq!(of_three(Quality::ORDERED), (fates.to_vec(), 0));
    assert_eq!(of_three(Quality::UNORDERED), (vec![fates[0], fates[2]], 1), "the second waits again");
}

/// Returns a client that has sent one message of this quality to its relay.
fn with_one_sent(quality: Quality) -> Sender {
    let mut client = Sender::new(false, Position::default());
    client.push(vec![1].into(), quality);
    client.poll_call().unwrap();
    let begun = Answer::Begun { relay: Uid(1), address: address(Uid(1)), known: true, placed: 0 };
    client.answered(Ok(begun.write()));
    client.poll_call().unwrap();
    client
}

/// The next relay cannot know where an unreliable message came to.
#[test]
fn a_message_that_a_dead_relay_may_have_sent_is_sent_again_only_if_it_would_have_a_seqno() {
    for (quality, fate) in [
        (Quality::UNRELIABLE, Some((0, Fate::Unknown))),
        (Quality::UNORDERED, None),
        (Quality::ORDERED, None),
        (Quality::TOTAL, None),
    ] {
        let mut client = with_one_sent(quality);
        client.answered(Err(CallFailure::Unknown));
        client.poll_call().unwrap();
        let begun = Answer::Begun { relay: Uid(2), address: address(Uid(2)), known: true, placed: 0 };
        client.answered(Ok(begun.write()));
        assert_eq!((client.poll_fate(), client.open()), (fate, usize::from(fate.is_none())), "{quality:?}");
    }
}

#[test]
fn a_relay_without_room_gets_the_same_numbers_again() {
    let mut client = with_one_sent(Quality::ORDERED);
    let before = client.position();
    client.answered(Ok(Answer::Busy.write()));
    let again = client.poll_call().unwrap();
    assert!(again.pause && again.to == Some(address(Uid(1))));
    assert_eq!(client.position(), before);
    client.answered(Ok(Answer::Sent { placed: 1, unknown: 0, last: 7 }.write()));
    assert_eq!((client.poll_fate(), client.error()), (Some((0, Fate::Accepted)), None));
}

#[test]
fn a_client_that_gives_up_knows_what_was_sent_and_what_was_not() {
    let mut client = Sender::new(false, Position::default());
    client.push(vec![1].into(), Quality::ORDERED);
    client.poll_call().unwrap();
    let begun = Answer::Begun { relay: Uid(1), address: address(Uid(1)), known: true, placed: 0 };
    client.answered(Ok(begun.write()));
    client.poll_call().unwrap();
    client.push(vec![2].into(), Quality::ORDERED);
    client.give_up();
    client.push(vec![3].into(), Quality::ORDERED);
    let fates: Vec<_> = core::iter::from_fn(|| client.poll_fate()).collect();
    assert_eq!(fates, [(0, Fate::Unknown), (1, Fate::NotSent), (2, Fate::NotSent)]);
    assert_eq!((client.open(), client.error()), (0, Some(&SenderError::GivenUp)));
    client.answered(Ok(Answer::Sent { placed: 1, unknown: 0, last: 7 }.write()));
    assert_eq!((client.poll_call().is_none(), client.poll_fate()), (true, None));
}

fn relay() -> Relay {
    Relay::new(Uid(1), address(Uid(1)), &[member(Uid(1))])
}

fn begin(previous: Uid, first: u64, count: u8) -> Bytes {
    Ask::Begin { previous, first, count }.write()
}

fn send(first: u64, count: usize) -> Bytes {
    let messages = vec![Bytes::from_static(b"text"); count];
    Ask::Send { relay: Uid(1), first, quality: Quality::ORDERED, unconfirmed: false, messages }.write()
}

/// Makes a request of a client and returns what is answered at once.
fn ask(relay: &mut Relay, client: Uid, request: Bytes) -> Option<Answer> {
    relay.request(7, client, request);
    relay.poll_answer().map(|(_, answer)| answer)
}

#[test]
fn numbers_that_jump_go_back_or_end_are_refused_each_by_its_own_answer() {
    let mut relay = relay();
    assert_eq!(ask(&mut relay, CLIENT, send(1, 1)), Some(Answer::NotYours), "it has not begun");
    assert!(matches!(ask(&mut relay, CLIENT, begin(Uid(0), 1, 0)), Some(Answer::Begun { known: true, .. })));
    for wrong in [0, 2, 1_000, u64::MAX] {
        let answer = ask(&mut relay, CLIENT, send(wrong, 1));
        assert_eq!(answer, Some(Answer::WrongNumber { expected: 1 }), "{wrong}");
    }
    assert_eq!(ask(&mut relay, CLIENT, send(1, 3)), None, "the group is to have them first");
    assert!(
        matches!(ask(&mut relay, CLIENT, send(4, 1)), Some(Answer::Refused { .. })),
        "one request at a time"
    );
    assert!(matches!(ask(&mut relay, CLIENT, begin(Uid(0), 0, 0)), Some(Answer::Refused { .. })));
    assert!(matches!(ask(&mut relay, CLIENT, begin(Uid(0), u64::MAX, 1)), Some(Answer::Refused { .. })));
    assert!(matches!(ask(&mut relay, CLIENT, Bytes::from_static(b"?")), Some(Answer::Refused { .. })));
    let last = ask(&mut relay, Uid(5), begin(Uid(0), u64::MAX - 1, 0));
    assert!(matches!(last, Some(Answer::Begun { .. })));
    assert!(matches!(ask(&mut relay, Uid(5), send(u64::MAX - 1, 2)), Some(Answer::Refused { .. })));
    assert_eq!(ask(&mut relay, Uid(5), send(u64::MAX - 1, 1)), None);
}

#[test]
fn a_client_whose_numbers_begin_anew_is_refused() {
    let mut relay = relay();
    let outside = Some(Outside { client: CLIENT, number: 12 });
    let (seqno, payload) = (1, Bytes::from_static(b"text"));
    relay.note(&Event::Message { seqno, sender: Uid(2), number: 1, outside, payload });
    assert_eq!(ask(&mut relay, CLIENT, begin(Uid(0), 1, 0)), Some(Answer::WrongNumber { expected: 13 }));
    assert!(matches!(ask(&mut relay, Uid(5), begin(Uid(0), 1, 0)), Some(Answer::Begun { .. })));
}

#[test]
fn a_hundred_thousand_clients_stay_within_the_bounds() {
    let mut relay = relay();
    for client in 1..=100_000 {
        relay.request(client, Uid(client), begin(Uid(0), 1, 0));
        relay.request(100_000 + client, Uid(client), send(1, 1));
        let outside = Some(Outside { client: Uid(client), number: 1 });
        let (seqno, payload) = (client, Bytes::from_static(b"text"));
        while relay.front().is_some() {
            relay.given(Ok(client));
        }
        relay.outcome(client, Outcome::Ok { seqno });
        relay.note(&Event::Message { seqno, sender: Uid(1), number: client, outside, payload });
        assert_eq!(core::iter::from_fn(|| relay.poll_answer()).count(), 2);
    }
    assert_eq!(relay.clients(), (CLIENTS_MAX, SERVED_MAX));
    let (claims, clients) = (1_100, 200_000_u64);
    for client in clients..clients + claims {
        relay.request(client, Uid(client), begin(Uid(3), 1, 0));
    }
    let busy = core::iter::from_fn(|| relay.poll_answer()).filter(|(_, answer)| *answer == Answer::Busy);
    assert_eq!(busy.count(), 1_100 - 1_024, "the oldest are told so");
}

#[test]
fn a_member_that_is_out_leaves_no_request_without_an_answer() {
    let mut relay = relay();
    relay.request(1, CLIENT, begin(Uid(0), 1, 0));
    relay.request(2, CLIENT, send(1, 3));
    relay.given(Ok(1));
    relay.request(3, Uid(5), begin(Uid(2), 1, 0));
    relay.note(&Event::Excluded { epoch: None });
    relay.request(4, CLIENT, send(4, 1));
    let answers: BTreeMap<Ticket, Answer> = core::iter::from_fn(|| relay.poll_answer()).collect();
    assert!(matches!(answers[&1], Answer::Begun { .. }));
    assert_eq!(answers[&2], Answer::Sent { placed: 0, unknown: 1, last: 0 }, "the first may have its place");
    assert_eq!((&answers[&3], &answers[&4]), (&Answer::NotYours, &Answer::NotYours));
}
