//! Forming a group: the outcome is one group or none, whatever the network and the participants do meanwhile.

mod common;

use bytes::{Bytes, BytesMut};
use common::{FAIR, Fuse, MS, Net, Weather, address, name, uid};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

fn formation(participants: usize, at_least: usize, within: u64) -> Formation {
    Formation {
        participants: (0..participants).map(name).collect(),
        at_least: at_least as u16,
        within: Duration::from_nanos(within),
    }
}

fn form(participants: usize, at_least: usize, within: u64) -> EntryMode {
    EntryMode::Form(formation(participants, at_least, within), GroupConfig::default())
}

/// Returns the view with which a life entered.
fn entered(net: &Net, life: usize) -> Option<&View> {
    match net.events[life].first() {
        Some(Event::Entered { seqno: 0, view }) => Some(view),
        Some(Event::Entered { .. }) => panic!("{life} joined"),
        _ => None,
    }
}

/// Returns the time at which a life learnt that the group was not formed here.
fn told_not_formed(net: &Net, life: usize) -> Option<u64> {
    let not_formed = Event::JoinFailed { reason: JoinFailure::NotFormed };
    (net.events[life] == [not_formed]).then(|| net.times[life][0])
}

#[test]
fn all_participants_enter_with_one_view_and_work() {
    for (participants, at_least) in [(1, 1), (2, 2), (3, 2), (5, 3), (9, 9)] {
        let mut net = Net::new();
        for _ in 0..participants {
            net.add(form(participants, at_least, 1000 * MS));
        }
        net.run(100 * MS);
        let view = entered(&net, 0).expect("the first has entered").clone();
        assert_eq!(view.members.iter().map(|m| m.name.clone()).collect::<Vec<_>>(), {
            (0..participants).map(name).collect::<Vec<_>>()
        });
        assert_eq!((view.sequencer, view.epoch.counter), (view.members[0].uid, 0));
        let tag = net.group(0).marks().epoch;
        for life in 0..participants {
            assert_eq!(entered(&net, life), Some(&view));
            assert_eq!(net.group(life).marks().epoch, tag);
            net.send(life, &life.to_string());
        }
        net.run(200 * MS);
        for life in 0..participants {
            assert_eq!(net.texts(life).len(), participants);
            assert_eq!(net.texts(life), net.texts(0));
        }
        // The group is like any other: a process may join, and the first member may crash.
        let joiner = net.add(EntryMode::Join);
        net.run(500 * MS);
        assert!(matches!(net.events[joiner].first(), Some(Event::Entered { seqno: 1.., .. })));
        net.members[0] = None;
        net.run(3000 * MS);
        if participants > 2 {
            net.send(joiner, "after");
            net.run(500 * MS);
            assert_eq!(net.texts(1).last().map(String::as_str), Some("after"));
        }
    }
}

#[test]
fn participants_that_ask_for_different_orders_get_that_of_the_one_that_proposes() {
    let orders = [Order::Token, Order::Sequencer(Migration::Never), Order::Token];
    for turn in 0..3 {
        let order = |life: usize| orders[(life + turn) % 3];
        let mut net = Net::new();
        for life in 0..3 {
            let config = GroupConfig { order: order(life), ..GroupConfig::default() };
            net.add(EntryMode::Form(formation(3, 3, 1000 * MS), config));
        }
        net.run(100 * MS);
        let proposer = entered(&net, 0).expect("the first has entered").epoch.coordinator;
        let asked = order((0..3).find(|life| uid(*life) == proposer).expect("a participant proposes"));
        let now = Time::from_nanos(net.now);
        for life in 0..3 {
            assert_eq!(net.group(life).report(now).order, asked, "{life}, turn {turn}");
        }
        for life in 0..3 {
            net.send(life, &life.to_string());
        }
        net.run(200 * MS);
        (0..3).for_each(|life| assert_eq!(net.texts(life).len(), 3));
    }
}

#[test]
fn enough_of_the_participants_form_without_the_rest() {
    let mut net = Net::new();
    for place in [1, 2, 4] {
        net.start(place, form(5, 3, 2000 * MS));
    }
    net.run(1000 * MS);
    let view = entered(&net, 0).unwrap().clone();
    assert_eq!(view.members.iter().map(|m| m.name.clone()).collect::<Vec<_>>(), [1, 2, 4].map(name));
    assert!((1..3).all(|life| entered(&net, life) == Some(&view)));
    // A participant that starts later learns at once that it is too late, and joins.
    let late = net.start(0, form(5, 3, 2000 * MS));
    net.run(100 * MS);
    assert!(told_not_formed(&net, late).is_some());
    let late = net.start(0, EntryMode::Join);
    net.run(500 * MS);
    assert!(matches!(net.events[late].first(), Some(Event::Entered { seqno: 1.., .. })));
}

#[test]
fn too_few_participants_are_told_when_the_time_is_over() {
    let mut net = Net::new();
    let lives: Vec<usize> = (0..2).map(|_| net.add(form(4, 3, 700 * MS))).collect();
    let end = net.now + 700 * MS;
    net.run(5000 * MS);
    for life in lives {
        assert_eq!(told_not_formed(&net, life), Some(end));
        assert_eq!(net.group(life).phase(), Phase::Gone);
    }
}

#[test]
fn participants_with_other_lists_or_another_least_number_do_not_mix() {
    let mut net = Net::new();
    net.add(form(3, 2, 500 * MS));
    net.add(form(3, 3, 500 * MS));
    net.add(form(4, 3, 500 * MS));
    net.run(1000 * MS);
    assert!((0..3).all(|life| told_not_formed(&net, life).is_some()));
    // The order of the names does not matter.
    let mut net = Net::new();
    let mut turned = formation(3, 3, 500 * MS);
    turned.participants.rotate_left(1);
    net.add(form(3, 3, 500 * MS));
    net.add(form(3, 3, 500 * MS));
    net.add(EntryMode::Form(turned, GroupConfig::default()));
    net.run(500 * MS);
    assert!((0..3).all(|life| entered(&net, life).is_some()));
}

#[test]
fn seeds_do_where_there_is_no_multicast() {
    // All participants know the address of the first only, and the first knows no address.
    let mut net = Net::with_weather(1, Weather { loss: 0.1, ..FAIR });
    net.seeds = Some(vec![vec![], vec![0], vec![0], vec![0]]);
    for _ in 0..4 {
        net.add(form(4, 4, 3000 * MS));
    }
    net.run(3000 * MS);
    assert!((0..4).all(|life| entered(&net, life).is_some_and(|view| view.members.len() == 4)));
}

#[test]
fn a_participant_that_is_deaf_does_not_keep_the_others_from_forming() {
    for seed in 0..20 {
        let mut net = Net::with_weather(seed, Weather { delay: (50_000, 3 * MS), ..FAIR });
        let deaf = (seed % 5) as usize;
        net.cuts = (0..5).map(|from| (from, deaf)).collect();
        for _ in 0..5 {
            net.add(form(5, 3, 8000 * MS));
        }
        net.run(8000 * MS);
        let others: Vec<usize> = (0..5).filter(|&life| life != deaf).collect();
        let view = entered(&net, others[0]).unwrap_or_else(|| panic!("seed {seed}: no participant entered"));
        assert!(others.iter().all(|&life| entered(&net, life) == Some(view)), "seed {seed}");
        assert!(told_not_formed(&net, deaf).is_some());
    }
}

/// The participant "m0" alone, out of five of which three are needed. The test plays the others.
struct Stage {
    now: u64,
    group: Group,
    packets: u64,
}

impl Stage {
    fn new() -> Stage {
        Stage::within(5000)
    }

    /// The participant has this time, in milliseconds.
    fn within(millis: u64) -> Stage {
        Stage::of(form(5, 3, millis * MS))
    }

    fn of(entry: EntryMode) -> Stage {
        let me =
            Member { uid: Uid(100), name: name(0), address: address(0), floor: Default::default(), hops: 1 };
        let (port, settings, random) = (Port::from_name("test"), Settings::default(), Random::from_u64(1));
        let now = Time::from_nanos(1);
        let group =
            Group::new(now, me, port, entry, Bytes::new(), settings, Box::new(Checksum), random).unwrap();
        Stage { now: 1, group, packets: 0 }
    }

    /// Returns the frames that it sends. Each comes with its destination (`None` for all participants) and the size of
    /// its datagram in bytes.
    fn said(&mut self) -> Vec<(Option<SocketAddr>, Frame, usize)> {
        let (mut said, mut bytes) = (Vec::new(), Vec::new());
        while let Some(destination) = self.group.poll_transmit(Time::from_nanos(self.now), &mut bytes) {
            let to = match destination {
                Destination::Address(address) => Some(address),
                _ => None,
            };
            let frames = Decoder::new(Bytes::copy_from_slice(&bytes[HEADER_BYTES..]));
            said.extend(frames.map(|frame| (to, frame.unwrap(), bytes.len())));
        }
        said
    }

    /// Lets time pass, and returns the frames sent meanwhile.
    fn wait(&mut self, nanos: u64) -> Vec<(Option<SocketAddr>, Frame, usize)> {
        let (end, mut said) = (self.now + nanos, self.said());
        while let Some((at, _)) = self.group.poll_timeout().filter(|(at, _)| at.as_nanos() <= end) {
            self.now = self.now.max(at.as_nanos());
            self.group.handle_timeout(at);
            said.extend(self.said());
        }
        self.now = end;
        said
    }

    /// Lets time pass while these lives repeat their promises, as living participants do when they are asked again.
    fn wait_with(
        &mut self,
        nanos: u64,
        promises: &[(usize, Uid, Frame)],
    ) -> Vec<(Option<SocketAddr>, Frame, usize)> {
        let (end, mut said) = (self.now + nanos, Vec::new());
        while self.now < end {
            for (place, uid, promise) in promises {
                said.extend(self.hear(*place, *uid, promise));
            }
            said.extend(self.wait((50 * MS).min(end - self.now)));
        }
        said
    }

    /// Receives a frame from a life at a host, and returns the answers.
    fn hear(&mut self, place: usize, uid: Uid, frame: &Frame) -> Vec<(Option<SocketAddr>, Frame, usize)> {
        self.packets += 1;
        let header = Header {
            protection: ProtectionKind::Checksum,
            group: self.group.tag(),
            epoch: EpochTag::OUTSIDE,
            sender: uid,
            number: self.packets,
            salt: 0,
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert!(Writer::new(&mut bytes, 9000).frame(frame));
        let context = KeyContext { instance: Instance(0), sender: uid, salt: header.salt };
        assert!(seal(&mut bytes, &header, &context, &mut Checksum));
        self.group.handle_datagram(Time::from_nanos(self.now), address(place), BytesMut::from(&bytes[..]));
        self.said()
    }

    /// Receives a coordinator's question for a promise, and then its echo. Returns the nonce of the participant's life, and
    /// the answers.
    fn ask(&mut self, place: usize, form: &Frame) -> (u64, Vec<(Option<SocketAddr>, Frame, usize)>) {
        let &Frame::Form { formation, ballot, heard, .. } = form else { panic!("{form}") };
        let refused = self.hear(place, ballot.coordinator, form);
        let Some((_, Frame::FormRefused { nonce, .. }, _)) = refused.first() else { panic!("{refused:?}") };
        let (nonce, uid) = (*nonce, ballot.coordinator);
        (nonce, self.hear(place, uid, &Frame::FormEcho { formation, ballot, heard, nonce }))
    }

    /// Returns the formation and the ballot of the participant's own first question.
    fn question(&mut self) -> (u64, Ballot) {
        let said = self.wait(10 * MS);
        let Some((None, Frame::Form { formation, ballot, .. }, _)) = said.first() else { panic!("{said:?}") };
        (*formation, *ballot)
    }
}

/// Returns a founding of the participants at these hosts, each in the life with its host's number.
fn founding(places: &[usize], nonce: u64) -> Founding {
    let member = |&place: &usize| Member {
        uid: Uid(100 + place as u64),
        name: name(place),
        address: address(place),
        floor: Default::default(),
        hops: 1,
    };
    Founding {
        instance: Instance(nonce.into()),
        epoch: EpochId { counter: 0, coordinator: Uid(101), nonce },
        config: GroupConfig::default(),
        members: places.iter().map(member).collect(),
    }
}

fn ballot(round: u32, place: usize) -> Ballot {
    Ballot { round, coordinator: Uid(100 + place as u64) }
}

const ROOM: u32 = 1300;

#[test]
fn a_promise_is_kept() {
    let mut stage = Stage::new();
    let (formation, _) = stage.question();
    let form = |ballot| Frame::Form { formation, ballot, heard: 5, room: ROOM };
    let (nonce, said) = stage.ask(1, &form(ballot(5, 1)));
    let prepare = |ballot, founding: Founding| Frame::FormPrepare {
        formation,
        ballot,
        nonce,
        founding: founding.into(),
    };
    let promise = |ballot, prepared| {
        let (name, address) = (name(0), address(0));
        Frame::FormPromise(
            FormPromise { formation, ballot, name, address, floor: Floor::None, hops: 1, nonce, prepared }
                .into(),
        )
    };
    assert_eq!(said[0].1, promise(ballot(5, 1), None));
    // Below the promise the participant promises and prepares nothing.
    let outbid = Frame::FormRefused { formation, ballot: ballot(4, 2), promised: ballot(5, 1), nonce };
    assert_eq!(stage.hear(2, Uid(102), &form(ballot(4, 2)))[0].1, outbid);
    let former = founding(&[0, 2, 3], 2);
    assert_eq!(stage.hear(2, Uid(102), &prepare(ballot(4, 2), former.clone()))[0].1, outbid);
    // Ignored: a ballot from another sender than its coordinator, and a frame of another formation.
    assert_eq!(stage.hear(3, Uid(103), &prepare(ballot(6, 2), former.clone())), []);
    let other = Frame::FormPrepare {
        formation: formation ^ 1,
        ballot: ballot(6, 2),
        nonce,
        founding: former.clone().into(),
    };
    assert_eq!(stage.hear(2, Uid(102), &other), []);

    let first = founding(&[0, 1, 2], 1);
    let said = stage.hear(1, Uid(101), &prepare(ballot(5, 1), first.clone()));
    assert_eq!(said[0].1, Frame::FormPrepared { formation, ballot: ballot(5, 1) });
    // The participant reports what it has prepared to the next coordinator. That stands until it prepares something
    // under a higher ballot.
    let before = Some((ballot(5, 1), first));
    assert_eq!(stage.hear(2, Uid(102), &prepare(ballot(4, 2), former))[0].1, outbid);
    let (_, said) = stage.ask(2, &form(ballot(7, 2)));
    assert_eq!(said[0].1, promise(ballot(7, 2), before));
}

// A founding that names a participant which has just given up lacks it from the beginning, and may have no quorum.
#[test]
fn a_participant_whose_time_ends_in_a_ballot_completes_that_one_and_no_other() {
    for heard in [2, 3] {
        let mut stage = Stage::new();
        let (formation, _) = stage.question();
        stage.wait(4_995 * MS - stage.now);
        let form = Frame::Form { formation, ballot: ballot(500, 1), heard, room: ROOM };
        let (nonce, _) = stage.ask(1, &form);
        stage.wait(10 * MS);
        let gives_up = stage.group.poll_event() == Some(Event::JoinFailed { reason: JoinFailure::NotFormed });
        assert_eq!(gives_up, heard == 2, "the coordinator hears {heard} of 3");
        if gives_up {
            continue;
        }
        let other = Frame::Form { formation, ballot: ballot(600, 2), heard: 5, room: ROOM };
        assert_eq!(stage.ask(2, &other).1, []);
        let founding = founding(&[0, 1, 2], 1).into();
        let prepare = Frame::FormPrepare { formation, ballot: ballot(500, 1), nonce, founding };
        let said = stage.hear(1, Uid(101), &prepare);
        assert_eq!(said[0].1, Frame::FormPrepared { formation, ballot: ballot(500, 1) });
        stage.wait(600 * MS);
        let failed = Some(Event::JoinFailed { reason: JoinFailure::NotFormed });
        assert_eq!(stage.group.poll_event(), failed, "it waits for ever");
    }
}

#[test]
fn foundings_that_no_coordinator_can_propose_are_not_prepared() {
    let mut stage = Stage::new();
    let (formation, _) = stage.question();
    let form = Frame::Form { formation, ballot: ballot(5, 1), heard: 5, room: ROOM };
    let (nonce, _) = stage.ask(1, &form);
    let good = founding(&[0, 1, 2], 1);
    let changed = |change: fn(&mut Founding)| {
        let mut founding = good.clone();
        change(&mut founding);
        Frame::FormPrepare { formation, ballot: ballot(5, 1), nonce, founding: founding.into() }
    };
    let bad: [fn(&mut Founding); 6] = [
        |founding| founding.members.truncate(2),
        |founding| founding.members[1].name = name(0),
        |founding| founding.members[1].uid = Uid(100),
        |founding| founding.members[1].name = name(7),
        |founding| founding.epoch.counter = 1,
        |founding| founding.config.history_bytes = 1 << 60,
    ];
    for change in bad {
        assert_eq!(stage.hear(1, Uid(101), &changed(change)), []);
    }
    assert_eq!(stage.hear(1, Uid(101), &changed(|_| ())).len(), 1);
}

#[test]
fn the_proposal_of_the_highest_ballot_is_taken_over() {
    for turn in [false, true] {
        let mut stage = Stage::new();
        let (formation, own) = stage.question();
        let mut reports = [(ballot(1, 1), founding(&[1, 2, 3], 1)), (ballot(2, 2), founding(&[2, 3, 4], 2))];
        if turn {
            reports.reverse();
        }
        let promises = (1..).zip(reports).map(|(place, report)| {
            let (name, address, prepared) = (name(place), address(place), Some(report));
            let promise = FormPromise {
                formation,
                ballot: own,
                name,
                address,
                floor: Floor::None,
                hops: 1,
                nonce: place as u64,
                prepared,
            };
            (place, Uid(100 + place as u64), Frame::FormPromise(promise.into()))
        });
        let said = stage.wait_with(400 * MS, &promises.collect::<Vec<_>>());
        let proposed: Vec<_> = said
            .iter()
            .filter_map(|(to, frame, _)| match frame {
                Frame::FormPrepare { ballot, nonce, founding, .. } if *ballot == own => {
                    Some((*to, *nonce, founding.instance))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            proposed[..2],
            [1, 2].map(|place| (Some(address(place)), place as u64, Instance(2))),
            "{said:?}"
        );
    }
}

/// Returns the promise of a participant that has prepared nothing.
fn promise(formation: u64, ballot: Ballot, place: usize) -> Frame {
    let (name, address) = (name(place), address(place));
    Frame::FormPromise(
        FormPromise {
            formation,
            ballot,
            name,
            address,
            floor: Floor::None,
            hops: 1,
            nonce: 5,
            prepared: None,
        }
        .into(),
    )
}

// Otherwise a process that forwards a promise would be taken for the participant that made it, and members would send
// to the wrong address.
#[test]
fn a_promise_that_comes_from_elsewhere_counts_for_nothing() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    stage.hear(4, Uid(101), &promise(formation, own, 1));
    let promises = [1, 2].map(|place| (place, Uid(100 + place as u64), promise(formation, own, place)));
    let said = stage.wait_with(400 * MS, &promises);
    let proposed = said.iter().find_map(|(_, frame, _)| match frame {
        Frame::FormPrepare { founding, .. } => Some(founding.members.iter().map(|member| member.address)),
        _ => None,
    });
    assert_eq!(proposed.unwrap().collect::<Vec<_>>(), [0, 1, 2].map(address));
}

/// Returns the lives that the first proposal among these frames names.
fn proposed(said: &[(Option<SocketAddr>, Frame, usize)]) -> Option<Vec<u64>> {
    said.iter().find_map(|(_, frame, _)| match frame {
        Frame::FormPrepare { founding, .. } => {
            Some(founding.members.iter().map(|member| member.uid.0).collect())
        }
        _ => None,
    })
}

/// A life that promised and then gave up would be lacking in the group from its beginning, and the group would stand still.
#[test]
fn a_promise_that_is_not_repeated_is_not_proposed() {
    // With 400 ms in all the coordinator waits for the rest for less than a promise lasts; with 5 s for longer.
    for within in [400, 5000] {
        let mut stage = Stage::within(within);
        let (formation, own) = stage.question();
        let promised = |place: usize| (place, Uid(100 + place as u64), promise(formation, own, place));
        stage.hear(1, Uid(101), &promise(formation, own, 1));
        stage.wait(10 * MS);
        assert_eq!(proposed(&stage.wait_with(140 * MS, &[promised(2)])), None, "{within} ms");
        // Enough have promised without the silent one.
        let said = stage.wait_with(310 * MS, &[promised(2), promised(3)]);
        assert_eq!(proposed(&said), Some(vec![100, 102, 103]), "{within} ms");
    }
}

/// Also the promise that makes them enough has to be repeated, and the coordinator asks for that at once.
#[test]
fn the_last_promise_that_is_needed_is_asked_for_again() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let promised = |place: usize| (place, Uid(100 + place as u64), promise(formation, own, place));
    stage.hear(1, Uid(101), &promise(formation, own, 1));
    stage.wait(10 * MS);
    let said = stage.hear(3, Uid(103), &promise(formation, own, 3));
    assert!(
        said.iter().any(|(to, frame, _)| to.is_none() && matches!(frame, Frame::Form { .. })),
        "{said:?}"
    );
    let said = stage.wait_with(310 * MS, &[promised(1), promised(2)]);
    assert_eq!(proposed(&said), Some(vec![100, 101, 102]));
}

/// Of three of five that promised, one has been silent for longer than a promise lasts.
#[test]
fn an_old_promise_does_not_count() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let promised = |place: usize| (place, Uid(100 + place as u64), promise(formation, own, place));
    stage.hear(1, Uid(101), &promise(formation, own, 1));
    stage.wait(160 * MS);
    let said = stage.wait_with(1000 * MS, &[promised(2)]);
    assert_eq!(proposed(&said), None);
    // So the ballot ends, and another one begins.
    assert!(said.iter().any(|(_, frame, _)| matches!(frame, Frame::Form { ballot, .. } if *ballot != own)));
}

#[test]
fn two_lives_under_one_name_do_not_count() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let prepares = |said: &[(Option<SocketAddr>, Frame, usize)]| {
        said.iter().any(|(_, frame, _)| matches!(frame, Frame::FormPrepare { .. }))
    };
    let promised = |place, uid| (place, Uid(uid), promise(formation, own, place));
    let mut promises = vec![promised(1, 101), promised(2, 102), promised(2, 202)];
    assert!(!prepares(&stage.wait_with(400 * MS, &promises)));
    promises.push(promised(3, 103));
    assert!(prepares(&stage.wait_with(310 * MS, &promises)));
    // Two lives do not count although they have prepared: the former one of a restarted participant, and one that has
    // promised nothing.
    for (place, uid) in [(2, 102), (2, 202), (4, 104), (1, 101)] {
        stage.hear(place, Uid(uid), &Frame::FormPrepared { formation, ballot: own });
        assert_eq!(stage.group.phase(), Phase::Locating);
    }
    stage.hear(3, Uid(103), &Frame::FormPrepared { formation, ballot: own });
    assert_eq!(stage.group.phase(), Phase::Member);
    let Some(Event::Entered { view, .. }) = stage.group.poll_event() else { panic!() };
    assert_eq!(view.members.iter().map(|member| member.uid.0).collect::<Vec<_>>(), [100, 101, 103]);
}

#[test]
fn a_recorded_decision_of_other_lives_is_no_answer() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let decided = |ballot| Frame::Formed { formation, ballot, founding: founding(&[1, 2, 3], 1).into() };
    stage.hear(1, Uid(101), &decided(ballot(9, 1)));
    assert_eq!(stage.group.phase(), Phase::Locating);
    // The same frame is believed as the answer to a question of this life.
    stage.hear(1, Uid(101), &decided(own));
    assert_eq!(stage.group.poll_event(), Some(Event::JoinFailed { reason: JoinFailure::NotFormed }));
}

// Otherwise a process that has recorded one proposal could make every later formation of these names fail.
#[test]
fn what_was_recorded_of_an_earlier_start_is_not_prepared_and_delays_nothing() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let begun = stage.now;
    // The questions of all coordinators of before, under ever higher ballots, and what followed.
    for round in 2..40 {
        let old = ballot(round, 1 + round as usize % 4);
        let question = Frame::Form { formation, ballot: old, heard: 5, room: ROOM };
        let answers = stage.hear(1, old.coordinator, &question);
        assert!(matches!(answers[..], [(_, Frame::FormRefused { .. }, _)]), "{answers:?}");
        let echo = Frame::FormEcho { formation, ballot: old, heard: 5, nonce: 9 };
        assert_eq!(stage.hear(1, old.coordinator, &echo), []);
        let founding = founding(&[1, 2, 3], 1).into();
        let prepare = Frame::FormPrepare { formation, ballot: old, nonce: 9, founding };
        assert_eq!(stage.hear(1, old.coordinator, &prepare), []);
        let promised = ballot(round + 1, 2);
        let refused = Frame::FormRefused { formation, ballot: old, promised, nonce: 9 };
        assert_eq!(stage.hear(2, Uid(102), &refused), []);
        stage.wait(MS);
    }
    // The first ballot of this life goes on as if nothing had been heard.
    let promises = [1, 2].map(|place| (place, Uid(200 + place as u64), promise(formation, own, place)));
    let said = stage.wait_with(310 * MS, &promises);
    let proposed = said.iter().find_map(|(_, frame, _)| match frame {
        Frame::FormPrepare { ballot, founding, .. } if *ballot == own => Some(founding),
        _ => None,
    });
    let uids = proposed.expect("no proposal").members.iter().map(|member| member.uid.0);
    assert_eq!(uids.collect::<Vec<_>>(), [100, 201, 202]);
    for place in [1, 2] {
        stage.hear(place, Uid(200 + place as u64), &Frame::FormPrepared { formation, ballot: own });
    }
    assert_eq!(stage.group.phase(), Phase::Member);
    assert!(stage.now - begun < 400 * MS);
}

#[test]
fn a_coordinator_shows_a_participant_its_nonce_unless_it_was_outbid() {
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let refused = |promised| Frame::FormRefused { formation, ballot: own, promised, nonce: 9 };
    let said = stage.hear(1, Uid(101), &refused(Ballot::default()));
    let echo = Frame::FormEcho { formation, ballot: own, heard: 2, nonce: 9 };
    assert!(matches!(&said[..], [(to, frame, _)] if *to == Some(address(1)) && *frame == echo), "{said:?}");
    assert_eq!(stage.hear(1, Uid(101), &refused(ballot(7, 1))), []);
    let next = stage.wait(500 * MS);
    let is_next = |frame: &Frame| matches!(frame, Frame::Form { ballot: Ballot { round: 8, .. }, .. });
    assert!(next.iter().any(|(_, frame, _)| is_next(frame)), "{next:?}");
}

/// A process that forges its address gains nothing: no more bytes go to that address than came from it.
#[test]
fn no_address_is_sent_more_than_came_from_it() {
    let victim = 9;
    let mut stage = Stage::new();
    let (formation, own) = stage.question();
    let least = PADDED_BYTES_MIN as u32;
    let form = |ballot, room| Frame::Form { formation, ballot, heard: 1, room };
    let stranger = ballot(1, victim);
    let (ours, there) = (ballot(3, victim), address(victim));
    let (name, prepared) = (name(1), None);
    let promise = FormPromise {
        formation,
        ballot: ours,
        name,
        address: there,
        floor: Floor::None,
        hops: 1,
        nonce: 5,
        prepared,
    };
    // The victim cannot know it, but an observer of the network can.
    let (nonce, _) = stage.ask(victim, &form(stranger, least));
    let founded = || founding(&[0, 1, 2], 1).into();
    let prepare = |ballot| Frame::FormPrepare { formation, ballot, nonce, founding: founded() };
    let formed = Frame::Formed { formation, ballot: ballot(6, victim), founding: founded() };
    for (frame, came) in [
        (form(stranger, least), 512),
        (form(ballot(2, victim), least), 512),
        (form(ballot(3, victim), 1400), 1400),
        (Frame::FormPromise(promise.into()), 44),
        (Frame::FormRefused { formation, ballot: own, promised: Ballot::default(), nonce: 5 }, 43),
        (Frame::FormRefused { formation, ballot: own, promised: ballot(3, victim), nonce: 5 }, 43),
        (prepare(ballot(4, victim)), 300),
        (prepare(ballot(1, victim)), 300),
        (Frame::FormPrepared { formation, ballot: own }, 23),
        // The participant has prepared a founding by now, so its promise is long.
        (form(ballot(5, victim), least), 512),
        (form(ballot(6, victim), 1400), 1400),
        (formed, 300),
        (form(ballot(7, victim), least), 512),
        (form(ballot(8, victim), 1400), 1400),
    ] {
        let mut said = stage.hear(victim, Uid(100 + victim as u64), &frame);
        said.extend(stage.wait(200 * MS));
        let sent: usize =
            said.iter().filter(|(to, ..)| *to == Some(address(victim))).map(|(.., bytes)| bytes).sum();
        assert!(sent <= HEADER_BYTES + came, "{frame}: {sent} bytes: {said:?}");
    }
    assert!(matches!(stage.group.poll_event(), Some(Event::Entered { .. })));
}

#[test]
fn formations_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Formation, &mut GroupConfig, &mut Settings)| {
        let (mut formation, mut config, mut settings) =
            (formation(5, 3, 1000 * MS), GroupConfig::default(), Settings::default());
        change(&mut formation, &mut config, &mut settings);
        let me =
            Member { uid: Uid(100), name: name(0), address: address(0), floor: Default::default(), hops: 1 };
        let (port, random) = (Port::from_name("test"), Random::from_u64(1));
        let entry = EntryMode::Form(formation, config);
        let checksum = Box::new(Checksum);
        Group::new(Time::ZERO, me, port, entry, Bytes::new(), settings, checksum, random).err().map(|error| {
            assert!(error.to_string().contains("must be"), "{error}");
            error.parameter
        })
    };
    let names = |count| (0..count).map(name).collect::<Vec<_>>();
    assert_eq!(refused(&|_, _, _| ()), None);
    assert_eq!(refused(&|formation, _, _| formation.at_least = 5), None);
    assert_eq!(refused(&|formation, _, _| formation.participants.clear()), Some("participants"));
    assert_eq!(refused(&|formation, _, _| formation.participants[0] = name(8)), Some("participants"));
    assert_eq!(refused(&|formation, _, _| formation.participants[1] = name(2)), Some("participants"));
    assert_eq!(refused(&|formation, _, _| formation.at_least = 2), Some("at_least"));
    assert_eq!(refused(&|formation, _, _| formation.at_least = 6), Some("at_least"));
    assert_eq!(refused(&|formation, _, _| formation.participants.truncate(2)), Some("at_least"));
    assert_eq!(refused(&|formation, _, _| formation.within = Duration::from_millis(4)), Some("within"));
    assert_eq!(refused(&|formation, _, _| formation.within = Duration::from_secs(3601)), Some("within"));
    assert_eq!(refused(&|_, config, _| config.members_max = 4), Some("members_max"));
    assert_eq!(refused(&|_, config, _| config.window = 0), Some("window"));
    assert_eq!(refused(&|_, config, _| config.quorum = Quorum::MajorityOf(names(5))), None);
    assert_eq!(refused(&|_, config, _| config.quorum = Quorum::MajorityOf(names(4))), Some("participants"));
    assert_eq!(refused(&|_, config, _| config.quorum = Quorum::MajorityOf(names(6))), Some("at_least"));
    let twice = [names(5), names(1)].concat();
    assert_eq!(
        refused(&|_, config, _| config.quorum = Quorum::MajorityOf(twice.clone())),
        Some("quorum names")
    );
    // A proposal must fit a datagram.
    let many = |formation: &mut Formation| {
        formation.participants = names(30);
        formation.at_least = 30;
    };
    assert_eq!(refused(&|formation, _, _| many(formation)), None);
    assert_eq!(refused(&|_, _, settings| settings.datagram_bytes_max = 576), None);
    let small = |formation: &mut Formation, settings: &mut Settings| {
        many(formation);
        settings.datagram_bytes_max = 576;
    };
    assert_eq!(refused(&|formation, _, settings| small(formation, settings)), Some("participants"));
}

/// Names the frames that the random runs must produce.
fn notable(frame: &Frame) -> Option<&'static str> {
    match frame {
        Frame::FormPromise(promise) if promise.prepared.is_some() => Some("promise after preparing"),
        Frame::FormRefused { ballot, promised, .. } if ballot < promised => Some("outbid"),
        Frame::FormPrepare { ballot, founding, .. } if founding.epoch.coordinator != ballot.coordinator => {
            Some("proposal taken over")
        }
        Frame::Formed { .. } => Some("told"),
        _ => None,
    }
}

/// From this time on the network has no faults.
const HEALED: u64 = 1500 * MS;
/// Time limit of each participant.
const WITHIN: u64 = 6000 * MS;

/// What happens at one host of a random run.
struct Plan {
    start_at: Option<u64>,
    crash_at: Option<u64>,
    restart_at: Option<u64>,
}

fn pick_kind(random: &mut Random) -> FrameKind {
    use FrameKind::*;
    [FormPromise, FormPrepare, FormPrepared, Formed][random.below(4) as usize]
}

/// A random run. Participants start, crash and restart at random times. The network loses, duplicates and delays
/// datagrams and cuts links, until it heals.
struct Run {
    seed: u64,
    random: Random,
    net: Net,
    count: usize,
    at_least: usize,
    plans: Vec<Plan>,
    /// Mean interval between two changes of the cut links, if links are cut.
    gusts: Option<u64>,
    /// The conditions are so mild that no participant that is alive may be left out.
    calm: bool,
    deadlines: Vec<u64>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::from_u64(seed ^ 0x5eed);
        let pick =
            |random: &mut Random, choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        let count = 1 + random.below(7) as usize;
        let at_least = count / 2 + 1 + random.below((count - count / 2) as u64) as usize;
        let longest = pick(&mut random, &[MS, 40 * MS, 300 * MS]);
        let rough = Weather {
            loss: random.fraction() * 0.4,
            duplication: random.fraction() * 0.3,
            delay: (50_000, 50_000 + random.below(longest)),
        };
        let mut net = Net::with_weather(seed, rough);
        net.notable = notable;
        if random.chance(0.3) {
            // One datagram to each address, instead of multicast.
            let others = |me| (0..count).filter(|&place| place != me).collect();
            net.seeds = Some((0..count).map(others).collect());
        }
        let gusts = random.chance(0.6).then(|| 20 * MS + random.below(300 * MS));
        let spread = pick(&mut random, &[20 * MS, 300 * MS]);
        let absences = pick(&mut random, &[0, 3]) as f64 / 10.0;
        let crashes = pick(&mut random, &[0, 2, 5]) as f64 / 10.0;
        // At most 2m - n - 1 participants may restart (`docs/protocol/membership.md`, forming a group).
        let mut restarts = 2 * at_least - count - 1;
        let mut plans = Vec::new();
        for place in 0..count {
            let start_at = (!random.chance(absences)).then(|| random.below(spread));
            let crash_at = random.chance(crashes).then(|| random.below(1000 * MS));
            let (kind, times) = (pick_kind(&mut random), 1 + random.below(3) as u32);
            if random.chance(crashes) {
                net.fuses.push(Fuse { place, kind, times, leaves: random.fraction() });
            }
            let restarts_here = restarts > 0 && crashes > 0.0 && random.chance(0.6);
            restarts -= usize::from(restarts_here);
            let restart_at = restarts_here.then(|| 100 * MS + random.below(1200 * MS));
            plans.push(Plan { start_at, crash_at, restart_at });
        }
        // The coordinator crashes while it sends the decision, as long as enough participants are left.
        if crashes > 0.0 && random.chance(0.5) {
            let leaves = random.fraction() / 2.0;
            let fuse = |place| Fuse { place, kind: FrameKind::Formed, times: 1, leaves };
            net.fuses = (0..count - at_least).map(fuse).collect();
            plans.iter_mut().for_each(|plan: &mut Plan| plan.crash_at = None);
        }
        let calm =
            gusts.is_none() && crashes == 0.0 && spread == 20 * MS && rough.loss < 0.2 && longest <= 40 * MS;
        Run { seed, random, net, count, at_least, plans, gusts, calm, deadlines: Vec::new() }
    }

    /// Runs until all participants have entered or have learnt that the group was not formed here.
    fn go(&mut self) {
        const STEP: u64 = MS / 4;
        let mut gust_at = 0;
        for clock in (0..HEALED + WITHIN + 100 * MS).step_by(STEP as usize) {
            (0..self.count).for_each(|place| self.follow_plan(place, clock));
            if clock == HEALED {
                self.net.weather = FAIR;
                self.net.cuts.clear();
                self.net.fuses.clear();
            } else if let Some(gusts) = self.gusts.filter(|_| clock < HEALED && clock >= gust_at) {
                gust_at = clock + self.random.below(2 * gusts);
                self.cut_anew();
            }
            self.net.run(STEP);
            let settled = |life: usize| self.net.members[life].is_none() || !self.net.events[life].is_empty();
            if clock > HEALED && (0..self.net.members.len()).all(settled) {
                return;
            }
        }
    }

    fn follow_plan(&mut self, place: usize, clock: u64) {
        let due = |at: &mut Option<u64>| at.take_if(|at| *at <= clock).is_some();
        let plan = &mut self.plans[place];
        let crashes = due(&mut plan.crash_at);
        if due(&mut plan.start_at) || due(&mut plan.restart_at) {
            self.deadlines.push(self.net.now + WITHIN);
            self.net.start(place, form(self.count, self.at_least, WITHIN));
        } else if crashes && let Some(life) = self.net.resident(place) {
            self.net.members[life] = None;
        }
    }

    /// Cuts no link, or the links between two random halves, or random links, each in one direction.
    fn cut_anew(&mut self) {
        let half: Vec<bool> = (0..self.count).map(|_| self.random.chance(0.5)).collect();
        let share = self.random.fraction();
        let kind = self.random.below(3);
        let pairs = (0..self.count).flat_map(|from| (0..self.count).map(move |to| (from, to)));
        let random = &mut self.random;
        self.net.cuts = match kind {
            0 => Vec::new(),
            1 => pairs.filter(|&(from, to)| half[from] != half[to]).collect(),
            _ => pairs.filter(|_| random.chance(share)).collect(),
        };
    }

    /// Checks everything that must hold in the end, and returns the name of the outcome.
    fn judge(&self) -> &'static str {
        let Run { seed, net, at_least, .. } = self;
        // Lives that entered and crashed later count like the others.
        let first = (0..net.members.len()).find(|&life| net.entries[life].is_some());
        let view = first.and_then(|life| entered(net, life));
        for life in (0..net.members.len()).filter(|&life| net.entries[life].is_some()) {
            assert_eq!(entered(net, life), view, "seed {seed}: two views");
            assert_eq!(
                first.map(|first| net.entries[first]),
                Some(net.entries[life]),
                "seed {seed}: two instances"
            );
        }
        if let Some(view) = view {
            let mut names: Vec<&Name> = view.members.iter().map(|member| &member.name).collect();
            names.sort_unstable();
            names.dedup();
            assert!(names.len() == view.members.len() && names.len() >= *at_least, "seed {seed}: {view:?}");
            assert_eq!(view.sequencer, view.members[0].uid);
        }
        let is_named =
            |life: usize| view.is_some_and(|view| view.members.iter().any(|member| member.uid == uid(life)));
        let alive: Vec<usize> = (0..net.members.len()).filter(|&life| net.members[life].is_some()).collect();
        let any_is_in = alive.iter().any(|&life| entered(net, life).is_some());
        for &life in &alive {
            let (is_in, told) = (entered(net, life).is_some(), told_not_formed(net, life));
            assert!(is_in != told.is_some(), "seed {seed}: {life}: {:?}", net.events[life]);
            assert!(told.is_none_or(|at| at <= self.deadlines[life]), "seed {seed}: {life} learnt too late");
            // On a healed network the decision reaches all participants that it concerns.
            assert_eq!(is_in, is_named(life) && any_is_in, "seed {seed}: {life}");
        }
        // If enough participants are alive on a healed network there is a group. If too few ever started, there is
        // none.
        assert!(
            view.is_some() || alive.len() < *at_least,
            "seed {seed}: {} alive, and no group",
            alive.len()
        );
        let mut started = net.places.clone();
        started.sort_unstable();
        started.dedup();
        assert!(view.is_none() || started.len() >= *at_least, "seed {seed}: a group of too few");
        let all_are_in = view.is_some() && alive.iter().all(|&life| is_named(life));
        assert!(all_are_in || view.is_none() || !self.calm, "seed {seed}: a live participant was left out");
        match view {
            None => "not formed",
            Some(_) if all_are_in => "formed by all alive",
            Some(_) => "formed without a live participant",
        }
    }
}

#[test]
fn one_group_or_none() {
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..500 {
        let mut run = Run::new(seed);
        run.go();
        *met.entry(run.judge()).or_default() += 1;
        for (what, count) in run.net.counts {
            *met.entry(what).or_default() += count;
        }
    }
    for what in [
        "promise after preparing",
        "outbid",
        "proposal taken over",
        "told",
        "not formed",
        "formed by all alive",
        "formed without a live participant",
    ] {
        assert!(met.get(what).is_some_and(|&count| count > 5), "{what} does not occur: {met:?}");
    }
}

// --- join or form ---

/// Settings `locate` of these tests: 300 ms.
const LOCATE: u64 = 300 * MS;

fn join_or_form(participants: usize, at_least: usize, within: u64) -> EntryMode {
    EntryMode::JoinOrForm(formation(participants, at_least, within), GroupConfig::default())
}

#[test]
fn those_that_find_no_group_form_it_after_one_search() {
    for (participants, at_least) in [(1, 1), (3, 2), (5, 5)] {
        let mut net = Net::new();
        for _ in 0..participants {
            net.add(join_or_form(participants, at_least, 10_000 * MS));
        }
        net.run(LOCATE - MS);
        assert!((0..participants).all(|life| net.events[life].is_empty()), "they do not search");
        net.run(150 * MS);
        let view = entered(&net, 0).expect("the first has entered").clone();
        assert!((0..participants).all(|life| entered(&net, life) == Some(&view)));
        assert_eq!(view.members.len(), participants);
    }
}

#[test]
fn one_that_starts_later_takes_part_or_joins() {
    for late in [200 * MS, 2_000 * MS] {
        let mut net = Net::new();
        net.add(join_or_form(3, 2, 10_000 * MS));
        net.add(join_or_form(3, 2, 10_000 * MS));
        net.run(late);
        let third = net.add(join_or_form(3, 2, 10_000 * MS));
        net.run(2_000 * MS);
        let instance = net.group(0).info().instance;
        for life in [0, 1, third] {
            assert_eq!(net.group(life).info().instance, instance, "{life}, {late}");
            assert_eq!(net.group(life).info().members.len(), 3, "{life}, {late}");
        }
    }
}

#[test]
fn none_is_founded_by_one_that_is_alone() {
    let mut net = Net::new();
    let end = net.now + 2_000 * MS;
    let alone = net.add(join_or_form(3, 2, 2_000 * MS));
    net.run(10_000 * MS);
    assert_eq!(told_not_formed(&net, alone), Some(end));
}

// A member that restarts while the group is there joins it, although the other participants of the list are in it.
#[test]
fn one_that_restarts_joins_the_group_that_exists() {
    let mut net = Net::new();
    for _ in 0..3 {
        net.add(join_or_form(3, 2, 10_000 * MS));
    }
    net.run(1_000 * MS);
    net.members[2] = None;
    let again = net.start(2, join_or_form(3, 2, 10_000 * MS));
    net.run(3_000 * MS);
    assert!(
        matches!(net.events[again].first(), Some(Event::Entered { seqno: 1.., .. })),
        "{:?}",
        net.events[again]
    );
    assert_eq!(net.group(again).info().instance, net.group(0).info().instance);
}

// A member's answer keeps a participant out of the formation for a second and no longer, since the member may have gone
// meanwhile. What the participant promised before holds.
#[test]
fn a_participant_takes_part_again_a_second_after_the_last_answer() {
    let mut stage = Stage::of(join_or_form(5, 3, 5000 * MS));
    let said = stage.wait(LOCATE + 100 * MS);
    let nonce = said.iter().find_map(|(_, frame, _)| match frame {
        Frame::Locate { nonce, .. } => Some(*nonce),
        _ => None,
    });
    let own = |said: &[(Option<SocketAddr>, Frame, usize)]| {
        said.iter().find_map(|(_, frame, _)| match frame {
            Frame::Form { formation, ballot, .. } => Some((*formation, *ballot)),
            _ => None,
        })
    };
    let (formation, _) = own(&said).expect("it takes part");
    let form = |ballot| Frame::Form { formation, ballot, heard: 5, room: ROOM };
    let (_, said) = stage.ask(1, &form(ballot(5, 1)));
    assert!(matches!(said[0].1, Frame::FormPromise(_)), "{said:?}");
    let here = Frame::HereIs(HereIs {
        nonce: nonce.unwrap(),
        cookie: 0,
        instance: Instance(1),
        epoch_counter: 0,
        sequencer: address(9),
        members: 4,
        condition: Condition::Halted,
        ordered: 9,
    });
    for _ in 0..3 {
        stage.hear(9, Uid(900), &here);
        for at in [0, 900] {
            assert_eq!(own(&stage.wait(at * MS)), None, "it asks");
            assert_eq!(stage.hear(2, Uid(102), &form(ballot(7, 2))), [], "it answers");
        }
    }
    let (_, begun) = own(&stage.wait(200 * MS)).expect("it takes part again");
    assert!(begun > ballot(5, 1), "{begun:?} is below its promise");
}
