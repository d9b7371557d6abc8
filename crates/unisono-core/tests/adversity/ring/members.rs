//! Members of a ring come, go, and die with the token.

use super::*;

// A member with the token keeps state for those that listen, and gives the token to none while it does.
#[test]
fn the_token_rests_while_a_process_joins() {
    let mut net = ring(4, 1);
    net.filter(|seen| if seen.from == 4 && !seen.outside { LOST } else { PROMPT });
    let settings = Settings { transport: Transport::Multicast, ..Settings::default() };
    let joiner = net.add(EntryMode::Join, settings);
    assert!(net.run_until(MS / 20, 10_000 * MS, |net| net.phase(joiner) == Phase::Joining));
    net.run(MS);
    let traffic = watch_and(&mut net, |seen| if seen.from == 4 && !seen.outside { LOST } else { PROMPT });
    let sent = talk(&mut net, 1_000, &[0, 1, 2, 3]);
    net.run(50 * MS);
    assert_eq!((traffic.borrow().passes.len(), net.delivered(3)), (0, sent), "a process listens");
    let rests = |net: &Net| {
        let waits = (0..4).flat_map(|index| net.group(index).report(Time::from_nanos(net.now)).waiting);
        let rests = waits.filter(|wait| wait.reason == look::WaitReason::Rest);
        rests.map(|wait| (wait.who == net.group(0).info().sequencer, wait.member)).collect::<Vec<_>>()
    };
    let joiner_uid = net.group(joiner).info().me;
    assert_eq!(rests(&net), [(true, Some(joiner_uid))], "the report says for which process it rests");
    // All acknowledgements of its join are lost.
    let is_joined = Rc::new(Cell::new(false));
    let joined = is_joined.clone();
    let traffic = watch_and(&mut net, move |seen| {
        joined.set(joined.get() || seen.has_join());
        let says_marks = seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        if joined.get() && says_marks { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS, 2_000 * MS, |_| is_joined.get()), "the join is numbered");
    let before = net.delivered(3);
    talk(&mut net, 100, &[0, 1, 2, 3]);
    assert_eq!((traffic.borrow().passes.len(), net.delivered(3)), (0, before), "the join is not accepted");
    let traffic = watch(&mut net);
    net.run(500 * MS);
    let sent = talk(&mut net, 1_000, &[0, 1, 2, 3, 4]);
    net.run(50 * MS);
    assert_eq!((net.size(1), net.delivered(3)), (5, before + 100 + sent));
    assert_eq!(rests(&net), []);
    assert!(
        (0..5).all(|index| traffic.borrow().numbered_by(index) > 100),
        "the newcomer has a place in the ring"
    );
}

// The network may keep a datagram for long, and its sender may have ended meanwhile.
#[test]
fn a_late_copy_of_a_request_to_join_does_not_keep_the_token() {
    let request = |net: &mut Net, asker, number| {
        let floor = Floor::None;
        let request =
            Frame::JoinRequest { cookie: 7, name: name("copy"), floor, hops: 1, hello: Bytes::new() };
        let copy = forge(net.group(1).tag(), EpochTag::OUTSIDE, asker, number, &[request]);
        net.inject(1, address(2), &copy);
    };
    let stranger = Uid(77);
    for (asker, number, rests) in [(stranger, 6, true), (stranger, 5, false), (uid(2), 6, false)] {
        let mut net = ring_at_m0();
        request(&mut net, stranger, 5);
        net.run(1_100 * MS);
        request(&mut net, asker, number);
        let traffic = watch(&mut net);
        talk(&mut net, 400, &[0, 1, 2, 3]);
        let passes = traffic.borrow().passes.len();
        assert_eq!(passes < 3, rests, "{asker:?}, {number}: {passes} passes");
    }
}

// Under steady load a member has the token for a moment. If the one that is asked passed it on, no joiner would ever
// find a member that may admit it.
#[test]
fn a_joiner_gets_in_while_all_send() {
    for transport in [Transport::Multicast, Transport::Unicast] {
        let settings = Settings { transport, ..Settings::default() };
        let mut net = ring_by(4, GroupConfig::default(), settings.clone());
        let mut random = Random::from_u64(5);
        net.filter(move |_| Some(LATENCY + random.below(4 * LATENCY)));
        let mut sent = talk(&mut net, 400, &[0, 1, 2, 3]);
        let joiner = net.add(EntryMode::Join, settings);
        let begin = net.now;
        while net.phase(joiner) != Phase::Member && net.now < begin + 4_000 * MS {
            sent += talk(&mut net, 400, &[0, 1, 2, 3]);
        }
        let took = (net.now - begin) / MS;
        assert!(net.phase(joiner) == Phase::Member && took <= 2_000, "{transport:?}: {took} ms");
        sent += talk(&mut net, 400, &[0, 1, 2, 3, 4]);
        net.run(100 * MS);
        assert_eq!((net.delivered(1), net.size(1), net.epoch(1)), (sent, 5, 0));
    }
}

#[test]
fn a_leaver_gets_out_while_all_send() {
    for (leaver, transport) in [(0, Transport::Multicast), (2, Transport::Multicast), (2, Transport::Unicast)]
    {
        let mut net = ring_by(4, GroupConfig::default(), Settings { transport, ..Settings::default() });
        let mut sent = talk(&mut net, 400, &[0, 1, 2, 3]);
        net.leave(leaver);
        let rest: Vec<usize> = (0..4).filter(|index| *index != leaver).collect();
        let begin = net.now;
        while net.phase(leaver) != Phase::Gone && net.now < begin + 4_000 * MS {
            sent += talk(&mut net, 100, &rest);
        }
        let took = (net.now - begin) / MS;
        assert!(net.phase(leaver) == Phase::Gone && took <= 500, "m{leaver}, {transport:?}: {took} ms");
        // The others know the leaver for a while.
        net.run(500 * MS);
        let traffic = watch(&mut net);
        sent += talk(&mut net, 1_000, &rest);
        net.run(100 * MS);
        assert_eq!((net.size(rest[1]), net.delivered(rest[1]), net.epoch(rest[1])), (3, sent, 0));
        assert!(rest.iter().all(|index| traffic.borrow().numbered_by(*index) > 200));
    }
}

// All leave at once, so members with the token leave, too, and each gives it to one that stays longer.
#[test]
fn all_leave_a_ring_at_once() {
    let mut net = ring(4, 1);
    talk(&mut net, 400, &[0, 1, 2, 3]);
    (0..4).for_each(|index| net.leave(index));
    assert!(net.run_until(MS, 5_000 * MS, |net| (0..4).all(|index| net.phase(index) == Phase::Gone)));
    assert!((0..4).all(|index| net.epoch(index) == 0 && messages(&net, index).len() == 400));
}

// By the group's rule applications decide on a reset, and none does. A token that was given to the dead member would be
// lost with all that others send.
#[test]
fn the_token_does_not_go_while_a_member_is_suspected() {
    let mut net = ring_with(4, GroupConfig { automatic: false, ..GroupConfig::default() });
    assert_eq!(holder(&net), Some(0));
    net.crash(2);
    net.run(1_000 * MS);
    let traffic = watch(&mut net);
    let sent = talk(&mut net, 400, &[0, 1, 3]);
    net.run(100 * MS);
    assert_eq!((traffic.borrow().passes.len(), net.delivered(1), net.delivered(3)), (0, sent, sent));
}

// What other members have accepted is in the log of the next epoch, whichever member had the token and wherever the token
// was on its way.
#[test]
fn the_ring_goes_on_without_a_member_that_died_with_the_token() {
    for round in 0..12 {
        let mut net = ring(4, 1);
        talk(&mut net, 200 + 3 * round, &[0, 1, 2, 3]);
        assert!(net.run_until(LATENCY / 10, MS, |net| holder(net).is_some()));
        let dead = holder(&net).unwrap();
        net.crash(dead);
        if round % 2 == 1 {
            net.drop_flights_from(dead);
        }
        let rest: Vec<usize> = (0..4).filter(|index| *index != dead).collect();
        talk(&mut net, 40, &rest);
        let accepted: Vec<_> = rest.iter().flat_map(|index| messages(&net, *index)).collect();
        net.run(2_000 * MS);
        let traffic = watch(&mut net);
        talk(&mut net, 1_000, &rest);
        net.run(100 * MS);
        net.show("the ring has gone on");
        let all = messages(&net, rest[0]);
        for &index in &rest {
            assert_eq!((net.size(index), net.epoch(index)), (3, 1), "round {round}");
            assert_eq!(messages(&net, index), all, "round {round}");
            assert!(traffic.borrow().numbered_by(index) > 200, "round {round}: m{index}");
        }
        assert!(accepted.iter().all(|message| all.contains(message)), "round {round}");
        let failed =
            |index: &usize| net.outcomes[*index].iter().filter(|(_, outcome)| !is_ok(outcome)).count();
        let sent: usize = rest.iter().map(|index| net.outcomes[*index].len() - failed(index)).sum();
        let of_the_rest = all.iter().filter(|(_, sender, _)| *sender != uid(dead)).count();
        assert_eq!(sent, of_the_rest, "round {round}: outcomes and events agree");
    }
}

fn is_ok(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Ok { .. })
}
