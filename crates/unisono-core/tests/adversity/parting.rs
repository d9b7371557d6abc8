//! How leavers get away when datagrams are lost or the leaver is cut off. A leaver must get its farewell and the right
//! last event, and must stay as long as the remaining members may need it.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

// A leaver is cut off, and misses its farewell or its own LEAVE. The group forgets it, and must still dismiss it when
// it asks again.
#[test]
fn a_leaver_cut_off_for_seconds_gets_away() {
    for holds in [true, false] {
        let mut net = group_of(3, 1);
        net.filter(move |seen| {
            let asks = seen.has(|frame| matches!(frame, Frame::LeaveRequest { .. }));
            let deaf = seen.to == 2 && !(holds && seen.has_change());
            let mute = seen.from == 2 && !asks && !holds;
            if deaf || mute { LOST } else { PROMPT }
        });
        net.leave(2);
        net.run(20 * MS);
        net.cut_off(2);
        net.run(5_000 * MS);
        net.calm();
        net.run(60_000 * MS);
        net.show("cut off for five seconds, and a calm minute later");
        assert_eq!(net.phase(2), Phase::Gone, "it holds its LEAVE: {holds}");
    }
}

// While the leaver is cut off, the role goes to a member that joined after its leave. The leaver asks the members that
// it knows. If only the sequencer could send a farewell, it would get none.
#[test]
fn a_leaver_gets_away_although_the_new_sequencer_never_knew_it() {
    // A leaver that is cut off for long is forgotten by the members. Otherwise a member that it asks again and again
    // remembers it.
    for (members, cut_ms) in [(2, 0), (3, 0), (3, 2_000)] {
        let leaver = members - 1;
        let mut net = group_of(members, 0);
        net.run(50 * MS);
        net.leave(leaver);
        net.run_until(MS / 10, 100 * MS, |net| net.size(0) == leaver);
        net.cut_off(leaver);
        let newcomer = net.add(EntryMode::Join, unicast());
        net.run_until(MS, 2_000 * MS, |net| net.size(0) == members && net.phase(newcomer) == Phase::Member);
        net.hand_over(0, newcomer);
        net.run((50 + cut_ms) * MS);
        assert_eq!(net.group(0).info().sequencer, uid(newcomer));
        assert_eq!(net.phase(leaver), Phase::Leaving);
        net.calm();
        net.run(2_000 * MS);
        net.show("cut off while the role moved, and two calm seconds later");
        assert_eq!(net.phase(leaver), Phase::Gone, "of {members}, cut off for {cut_ms} ms");
    }
}

// A leaver that is cut off before its leave has a seqno must go on asking.
#[test]
fn a_leaver_cut_off_for_less_than_a_second_gets_away() {
    let mut net = group_of(3, 1);
    net.leave(2);
    net.cut_off(2);
    net.run(700 * MS);
    net.calm();
    net.run(60_000 * MS);
    net.show("cut off for 0.7 s, and a calm minute later");
    assert_eq!(net.phase(2), Phase::Gone);
}

// A farewell implies that everything below the leave is accepted. Without that conclusion the leaver's application
// would not learn the outcome of its last messages (hazard S8).
#[test]
fn a_farewell_resolves_the_leavers_last_messages() {
    let mut net = group_of(3, 2);
    // The leaver receives seqnos and the farewell, but no heartbeat that says what is accepted.
    net.filter(|seen| {
        let accepts = seen.has(|frame| matches!(frame, Frame::Heartbeat(_)));
        let orders = |frame: &Frame| {
            matches!(frame, Frame::Ordered(_) | Frame::Change { .. } | Frame::Farewell { .. })
        };
        if seen.to == 2 && accepts && !seen.has(orders) { LOST } else { PROMPT }
    });
    let number = net.send(2, b"my last words").unwrap();
    net.leave(2);
    net.run(1000 * MS);
    assert_eq!(net.phase(2), Phase::Gone);
    let is_told =
        |(sent, outcome): &(MessageNumber, Outcome)| *sent == number && matches!(outcome, Outcome::Ok { .. });
    assert!(net.outcomes[2].iter().any(is_told), "the outcomes are {:?}", net.outcomes[2]);
}

// Of two members the sequencer leaves. If it went as soon as the other one holds its leave, and before that one knows
// it accepted, the other one would be left without a quorum (hazard H19).
#[test]
fn the_last_of_two_goes_on_although_the_leaver_was_cut_off() {
    let mut net = group_of(2, 1);
    let told = Rc::new(Cell::new(false));
    net.filter(move |seen| {
        if seen.from == 0 && told.get() {
            return LOST;
        }
        if seen.from == 0 && seen.has_change() {
            told.set(true);
        }
        PROMPT
    });
    net.leave(0);
    net.run(5_000 * MS);
    net.calm();
    net.run(20_000 * MS);
    net.show("m0 left");
    assert_eq!(net.phase(1), Phase::Member);
}

/// Of two members m0 leaves, and decides the reset that keeps its leave. Each of its decisions is lost, so m1 does not
/// know it.
fn leaver_that_alone_knows_the_decision() -> Net {
    let mut net = group_of(2, 1);
    // m1 does not receive the leave, and m0 suspects it.
    net.filter(|seen| if seen.from == 1 || seen.has_change() { LOST } else { PROMPT });
    net.leave(0);
    assert!(net.run_until(MS, 2_000 * MS, |net| net.group(0).marks().promised.is_some()), "no ballot began");
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Decided { .. })) { LOST } else { PROMPT });
    assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(0) == Phase::Excluded), "it decided nothing");
    net
}

// m1 cannot go on without m0, and asks all the time.
#[test]
fn a_leaver_stays_while_the_others_ask_what_it_decided() {
    let mut net = leaver_that_alone_knows_the_decision();
    net.run(10_000 * MS);
    assert_eq!((net.phase(0), net.phase(1)), (Phase::Excluded, Phase::Resetting));
    net.calm();
    net.run(1_000 * MS);
    assert_eq!((net.phase(0), net.phase(1), net.size(1)), (Phase::Gone, Phase::Member, 1));
}

// Once no member asks any more, the leaver goes. It goes in any case after a minute.
#[test]
fn a_leaver_goes_when_the_others_have_been_silent_for_seconds() {
    let mut net = leaver_that_alone_knows_the_decision();
    net.run(59_000 * MS);
    assert_eq!(net.phase(0), Phase::Excluded);
    net.run(1_500 * MS);
    assert_eq!(net.phase(0), Phase::Gone);
    let mut net = leaver_that_alone_knows_the_decision();
    net.run(2_000 * MS);
    net.crash(1);
    net.run(3_900 * MS);
    assert_eq!(net.phase(0), Phase::Excluded);
    net.run(200 * MS);
    assert_eq!(net.phase(0), Phase::Gone);
}

// A leaver must stay until a quorum of the remaining members knows its leave accepted. If it went earlier and the
// member that knows crashed next, the others would lack the leaver's vote (hazard H19).
#[test]
fn a_leaver_goes_only_when_the_rest_can_do_without_its_vote() {
    let mut net = group_of(4, 1);
    // m0 is the sequencer, and the first member, so it breaks ties. Its LEAVE reaches m1, the next sequencer, and m2,
    // but not m3. Only m1 learns that the LEAVE is accepted. Then m0 is cut off from m1 and m2 for 0.6 s.
    let begin = net.now;
    net.filter(move |seen| {
        let accepts = seen.has(|frame| matches!(frame, Frame::Heartbeat(heartbeat) if heartbeat.end >= 4));
        if seen.to == 3 && (accepts || seen.has_change()) || seen.from == 1 && seen.to == 2 && accepts {
            return LOST;
        }
        let cut = seen.now > begin + MS / 2 && seen.now < begin + 600 * MS;
        if cut && (seen.from == 0 && seen.to != 3 || seen.to == 0 && seen.from != 3) { LOST } else { PROMPT }
    });
    net.leave(0);
    net.run_until(MS / 20, 4_000 * MS, |net| net.phase(0) == Phase::Gone);
    net.show("m0 has its farewell, or 4 s have passed");
    net.crash(1);
    net.calm();
    net.run(20_000 * MS);
    net.show("m1 crashed, twenty calm seconds ago");
    assert_eq!(net.epoch(2), 1, "m2 and m3 are no quorum of all four, and stuck");
}

// A leaver has a message without a seqno and is cut off, and the others reset twice. The leaver asks to leave only when
// its message has a seqno, and the sequencer of its epoch may be dead. So it must ask any member what became of the
// epoch.
#[test]
fn a_leaver_two_epochs_behind_is_told_that_it_is_out() {
    for dead in [0, 2] {
        let mut net = group_with(4, GroupConfig { automatic: false, ..GroupConfig::default() }, unicast());
        net.run(50 * MS);
        net.cut_off(3);
        net.send(3, b"without a seqno").unwrap();
        net.leave(3);
        let reset_to = |net: &mut Net, epoch: u64| {
            net.run(1_000 * MS);
            let now = Time::from_nanos(net.now);
            for index in 0..3 {
                if let Some(group) = &mut net.members[index] {
                    group.reset(now, 1).unwrap();
                    net.drain(index);
                }
            }
            assert!(net.run_until(MS, 1_000 * MS, |net| net.epoch(1) == epoch), "the case was not reached");
        };
        reset_to(&mut net, 1);
        net.crash(dead);
        reset_to(&mut net, 2);
        // `Locate` is lost as well.
        net.filter(
            |seen| if seen.has(|frame| matches!(frame, Frame::Locate { .. })) { LOST } else { PROMPT },
        );
        net.run(5_000 * MS);
        net.show("five seconds");
        assert_eq!(net.phase(3), Phase::Gone, "m{dead} is dead, and m3 does not learn that it is out");
    }
}

// A leaver that hears no member for a minute goes.
#[test]
fn a_leaver_that_hears_no_member_goes_after_a_minute() {
    let mut net = group_of(2, 1);
    net.crash(0);
    net.leave(1);
    net.run(50_000 * MS);
    assert_ne!(net.phase(1), Phase::Gone, "other members may only be away");
    net.run(15_000 * MS);
    net.show("a minute alone");
    assert_eq!(net.phase(1), Phase::Gone);
    assert_eq!(net.events[1].last(), Some(&Event::Excluded { epoch: None }));
}

// The old sequencer knows a leave accepted, its announcement is lost, and it gives its role away. The leaver stores
// nothing past its leave, so it goes on acknowledging to the old sequencer, and the new one never counts it. So
// watermarks also carry what their sender knows to be accepted.
#[test]
fn a_leave_that_the_old_sequencer_knows_accepted_does_not_hold_up_the_new_one() {
    let config = GroupConfig { quorum: Quorum::All, ..GroupConfig::default() };
    let mut net = group_with(4, config, unicast());
    net.run(50 * MS);
    net.leave(3);
    net.run(LATENCY);
    net.filter(|seen| {
        let beats = seen.has(|frame| matches!(frame, Frame::Heartbeat(_)));
        if seen.from == 0 && beats && !seen.has_change() { LOST } else { PROMPT }
    });
    let place = net.group(1).marks().received + 1;
    let accepted = |net: &Net| net.group(0).marks().accepted == place;
    assert!(net.run_until(MS / 50, 1_000 * MS, accepted), "the case was not reached");
    net.hand_over(0, 1);
    net.run(2_000 * MS);
    net.show("two seconds after the leave and the hand-over");
    assert!(net.group(1).marks().acting, "the case was not reached");
    assert_eq!(net.phase(3), Phase::Gone, "m3 gets no farewell");
}

// A leaver that does not know its leave accepted coordinates a reset, and all remaining members must vote. One of them
// has not heard the leaver for a while, and has forgotten it.
#[test]
fn a_leaver_that_coordinates_is_heard_by_members_that_have_forgotten_it() {
    let names = (0..5).map(|n| name(&format!("m{n}"))).collect();
    let config = GroupConfig { quorum: Quorum::MajorityOf(names), ..GroupConfig::default() };
    // Long enough for a leaver to be forgotten before other members are suspected.
    let second = Duration::from_secs(1);
    let mut net = group_with(4, config, Settings { silence: second, patience: second, ..unicast() });
    // The others hear m3, and m3 hears nothing.
    net.filter(|seen| if seen.to == 3 { LOST } else { PROMPT });
    net.leave(3);
    assert!(
        net.run_until(MS, 5000 * MS, |net| net.group(3).marks().promised.is_some()),
        "the case was not reached"
    );
    assert!((0..3).all(|stays| net.size(stays) == 3), "the case was not reached");
    // m3 is heard by m0 and m1, and its farewell is lost. m2 is cut off.
    net.filter(|seen| {
        let farewell = seen.has(|frame| matches!(frame, Frame::Farewell { .. }));
        if seen.concerns(2) || seen.concerns(3) && farewell { LOST } else { PROMPT }
    });
    let promised = |net: &Net| (0..2).all(|votes| net.group(votes).marks().promised.is_some());
    assert!(net.run_until(MS, 5000 * MS, promised), "the case was not reached");
    net.run(700 * MS);
    // Only m3 reaches m2. m2 probes whether m3 hears it before it votes.
    let asked = Rc::new(Cell::new(false));
    let asks = asked.clone();
    net.filter(move |seen| {
        let probes = seen.has(|frame| matches!(frame, Frame::Probe { .. }));
        asks.set(asks.get() || (seen.from == 2 && seen.to == 3 && probes));
        if seen.to == 2 && seen.from == 3 { PROMPT } else { LOST }
    });
    assert!(net.run_until(MS, 200 * MS, |_| asked.get()), "m2 does not probe m3");
    net.calm();
    let over =
        |net: &Net| net.phase(3) == Phase::Gone && (0..3).all(|stays| net.phase(stays) == Phase::Member);
    assert!(net.run_until(MS, 10_000 * MS, over), "they wait for each other");
    assert!((0..3).all(|stays| net.size(stays) == 3 && net.epoch(stays) == 1));
}

// The sequencer numbers its own leave. The other member has not heard it for long and resets; the reset keeps the
// leave. The leaver serves its log like an excluded member, but it has left.
#[test]
fn a_member_whose_leave_a_reset_keeps_has_left() {
    let mut net = group_of(2, 1);
    net.filter(|seen| if seen.from == 0 { LOST } else { PROMPT });
    net.leave(0);
    let promised = |net: &Net| net.group(0).marks().promised.is_some();
    assert!(net.run_until(MS, 2_000 * MS, promised), "the case was not reached");
    assert!(!net.group(0).has_left(), "the leave counts before the reset keeps it");
    net.filter(|seen| {
        let dismisses = seen.has(|frame| matches!(frame, Frame::Decided { entered: true, .. }));
        if dismisses { LOST } else { PROMPT }
    });
    let out = |net: &Net| net.phase(0) == Phase::Excluded;
    assert!(net.run_until(MS, 2_000 * MS, out), "the case was not reached");
    assert!(net.group(0).has_left());
    net.calm();
    assert!(net.run_until(MS, 1_000 * MS, |net| net.phase(0) == Phase::Gone));
    assert!(left_last(&net, 0), "{:?}", net.events[0]);
}

// A leaver that has its own leave is cut off while the group goes on. A later `Excluded` for an epoch long after its
// own does not exclude it: it has left.
#[test]
fn a_member_that_has_left_is_not_excluded() {
    let mut net = group_of(3, 1);
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Farewell { .. })) { LOST } else { PROMPT });
    net.leave(2);
    let own = |event: &Event| matches!(event, Event::Left { member, .. } if member.uid == uid(2));
    assert!(net.run_until(MS, 100 * MS, |net| net.events[2].iter().any(own)), "the case was not reached");
    let (tag, epoch, info) = (net.group(2).tag(), net.group(2).marks().epoch, net.group(2).info());
    let later = EpochId { counter: info.epoch.counter + 2, ..info.epoch };
    let told = Frame::Excluded { uid: uid(2), instance: info.instance, epoch: later };
    net.inject(2, address(1), &forge(tag, epoch, uid(1), 1_000_000, &[told]));
    net.drain(2);
    assert_eq!(net.phase(2), Phase::Gone, "the case was not reached");
    assert!(left_last(&net, 2), "{:?}", net.events[2]);
}

/// True if the last event of this member's application before `Gone` is its own leave.
fn left_last(net: &Net, index: usize) -> bool {
    let last = net.events[index].last_chunk();
    matches!(last, Some([Event::Left { member, .. }, Event::Gone]) if member.uid == uid(index))
}

// m2's leave was ordered while it heard nothing. All members that it knew left after it, and the present members joined
// later and do not know it. They are in the same epoch. A member that answers its `Locate` names the sequencer, which
// can say that m2 may go.
#[test]
fn a_leaver_that_knew_only_former_members_gets_its_farewell() {
    [true, false].into_iter().for_each(finds_later_members);
}

fn finds_later_members(automatic: bool) {
    let mut net = group_with(3, GroupConfig { automatic, ..GroupConfig::default() }, unicast());
    net.filter(|seen| if seen.to == 2 { LOST } else { PROMPT });
    net.leave(2);
    assert!(
        net.run_until(MS, 1000 * MS, |net| net.size(0) == 2 && net.size(1) == 2),
        "the case was not reached"
    );
    let stays = [net.add(EntryMode::Join, unicast()), net.add(EntryMode::Join, unicast())];
    assert!(net.run_until(MS, 3000 * MS, |net| stays.iter().all(|&index| net.size(index) == 4)));
    for leaver in [0, 1] {
        net.leave(leaver);
        assert!(
            net.run_until(MS, 3000 * MS, |net| net.phase(leaver) == Phase::Gone),
            "the case was not reached"
        );
    }
    assert_eq!(net.phase(2), Phase::Leaving, "the case was not reached");
    net.calm();
    assert!(
        net.run_until(MS, 3000 * MS, |net| net.phase(2) == Phase::Gone),
        "it waits for members that have gone"
    );
    assert!(net.group(2).has_left(), "its leave was ordered, although it never received it");
    assert!(stays.iter().all(|&index| net.size(index) == 2 && net.epoch(index) == 0));
}

// The sequencer has numbered every JOIN of its epoch. So a stranger that invites it has left, whether the stranger
// knows that or not.
#[test]
fn a_sequencer_dismisses_a_stranger_that_invites_it() {
    let mut net = group_of(2, 0);
    let (stranger, place) = (Uid(999), 5);
    let told = Rc::new(Cell::new(false));
    let seen_told = told.clone();
    net.filter(move |seen| {
        let farewell = seen.has(|frame| matches!(frame, Frame::Farewell { uid, .. } if *uid == stranger));
        seen_told.set(seen_told.get() || (seen.from == 0 && seen.to == place && farewell));
        PROMPT
    });
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    let invite = Frame::Invite { ballot: Ballot { round: 7, coordinator: stranger }, members_min: 0 };
    net.inject(0, address(place), &forge(group, epoch, stranger, 1, &[invite, Frame::Inquiry]));
    net.run(100 * MS);
    assert!(told.get() && net.group(0).marks().promised.is_none());
}

// A leaver hears nothing while it is heard, and coordinates. The other member has gone on without it and has purged the
// entries that the leaver would need. If the other member voted as soon as they hear each other, both would wait for
// entries that no member has.
#[test]
fn a_leaver_that_coordinates_and_is_not_needed_gets_its_farewell() {
    let mut net = group_of(2, 0);
    net.filter(|seen| if seen.to == 0 { LOST } else { PROMPT });
    net.leave(0);
    assert!(net.run_until(MS, 100 * MS, |net| net.size(1) == 1), "the case was not reached");
    (0..10).for_each(|_| {
        net.send(1, b"after the leave").unwrap();
        net.run(20 * MS);
    });
    let promised = |net: &Net| net.group(0).marks().promised.is_some();
    assert!(net.run_until(MS, 2_000 * MS, promised), "the case was not reached");
    // The leaver shows that it hears the other member before the other one's next farewell, which is sent from time to
    // time.
    net.filter(|seen| {
        let probes = seen.has(|frame| matches!(frame, Frame::Probe { .. }));
        if seen.to == 0 && !probes { LOST } else { PROMPT }
    });
    net.run(20 * MS);
    net.calm();
    let over = |net: &Net| net.phase(0) == Phase::Gone && net.phase(1) == Phase::Member;
    assert!(net.run_until(MS, 5_000 * MS, over), "they wait for each other");
    assert_eq!(net.epoch(1), 0, "a needless reset");
}

// A leaver knows its leave accepted, has promised a ballot, and hears no member for as long as other leavers wait. It
// must stay: the coordinator may be waiting for its vote all that time, because no other member that is alive knows the
// leave accepted.
#[test]
fn a_leaver_that_promised_stays_while_its_vote_may_be_needed() {
    let mut net = group_of(4, 1);
    let place = net.group(0).marks().received + 1;
    let begin = net.now;
    net.filter(move |seen| {
        let accepts = seen.has(|frame| matches!(frame, Frame::Heartbeat(beat) if beat.end >= place));
        let untold =
            seen.to == 3 && (accepts || seen.has_change()) || seen.from == 1 && seen.to == 2 && accepts;
        let cut = seen.now > begin + MS / 2 && (seen.from == 0 || seen.to == 0);
        if untold || cut { LOST } else { PROMPT }
    });
    net.leave(0);
    let accepted = |net: &Net| net.group(0).marks().accepted == place && net.now > begin + MS;
    assert!(net.run_until(MS / 20, 100 * MS, accepted), "the case was not reached");
    net.crash(1);
    // m0 receives an invitation, and its vote is lost.
    net.filter(|seen| {
        let shows = seen.has(|frame| matches!(frame, Frame::Probe { .. } | Frame::Alive { .. }));
        if seen.from == 0 && !shows || seen.to == 3 && seen.has_change() { LOST } else { PROMPT }
    });
    let promised = |net: &Net| net.group(0).marks().promised.is_some();
    assert!(net.run_until(MS / 20, 2_000 * MS, promised), "the case was not reached");
    net.cut_off(0);
    net.run(5_000 * MS);
    assert_eq!((net.phase(0), net.epoch(2)), (Phase::Leaving, 0));
    net.calm();
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(2) == 1 && net.epoch(3) == 1), "they are stuck");
}

// m3 knows its leave accepted and got no farewell; m4 does not know its leave accepted; all remaining members have
// died. The two leavers hear each other and cannot help each other. m3 is not needed, so it goes.
#[test]
fn a_leaver_that_hears_only_another_one_goes_soon() {
    let mut net = group_of(5, 0);
    let dismisses = |seen: &Seen| seen.has(|frame| matches!(frame, Frame::Farewell { .. }));
    net.filter(move |seen| if dismisses(seen) { LOST } else { PROMPT });
    net.leave(3);
    net.run(20 * MS);
    let next = net.group(0).marks().received + 1;
    assert!(net.group(3).has_left(), "the case was not reached");
    net.filter(move |seen| {
        let accepts = seen.has(|frame| matches!(frame, Frame::Heartbeat(beat) if beat.accepted >= next));
        if dismisses(seen) || seen.to == 4 && accepts { LOST } else { PROMPT }
    });
    net.leave(4);
    assert!(net.run_until(MS / 20, 100 * MS, |net| net.size(4) == 3), "the case was not reached");
    (0..3).for_each(|stays| net.crash(stays));
    net.run(4_000 * MS);
    assert_eq!((net.phase(3), net.phase(4)), (Phase::Gone, Phase::Leaving));
}

// A member that is asked knows that the leave is in the order, but not that a quorum of the remaining members knows it
// accepted.
#[test]
fn only_a_member_that_knows_that_the_leave_is_known_sends_a_farewell() {
    let mut net = group_of(4, 0);
    net.filter(|seen| {
        let dismisses = seen.has(|frame| matches!(frame, Frame::Farewell { .. }));
        if seen.from == 0 && dismisses { LOST } else { PROMPT }
    });
    net.leave(3);
    net.run(1_000 * MS);
    assert_eq!((net.phase(3), net.group(3).has_left(), net.size(1)), (Phase::Leaving, true, 3));
    net.calm();
    assert!(net.run_until(MS, 1_000 * MS, |net| net.phase(3) == Phase::Gone));
}

// The sequencer numbers its own leave, no member receives it, and the others go on without the sequencer. No log that
// they keep contains that leave.
#[test]
fn a_leave_that_a_reset_does_not_keep_is_an_exclusion() {
    let mut net = group_of(3, 0);
    net.filter(|seen| if seen.from == 0 { LOST } else { PROMPT });
    net.leave(0);
    assert!(
        net.run_until(MS, 2_000 * MS, |net| net.epoch(1) == 1 && net.size(1) == 2),
        "the case was not reached"
    );
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(0) == Phase::Gone));
    assert!(!net.group(0).has_left());
    assert!(matches!(net.events[0].last(), Some(Event::Excluded { epoch: Some(_) })), "{:?}", net.events[0]);
}

// All members know a leave accepted and have forgotten the leaver. Then the group loses its quorum and halts in a
// reset. The leaver need not wait for that.
#[test]
fn a_forgotten_leaver_may_go_though_the_group_stands_still() {
    let mut net = group_with(4, GroupConfig { automatic: false, ..GroupConfig::default() }, unicast());
    net.filter(|seen| if seen.to == 3 { LOST } else { PROMPT });
    net.leave(3);
    net.run(50 * MS);
    net.cut_off(3);
    net.run(1_000 * MS);
    assert_eq!((net.phase(3), net.size(0)), (Phase::Leaving, 3), "the case was not reached");
    net.crash(1);
    net.crash(2);
    net.run(1_000 * MS);
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(0).reset(now, 1), Err(ResetError::Halted { missing: 2 }));
    net.drain(0);
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(3) == Phase::Gone), "it gets no farewell");
    assert!(net.group(0).marks().promised.is_some() && net.group(3).has_left());
}

// A member forgets a leaver that it has not heard for a while, and decides a reset. The leaver receives the decision
// before the other members do. It must stay: they may need its vote if the member that decided dies.
#[test]
fn a_leaver_that_was_forgotten_stays_until_a_quorum_has_entered_the_next_epoch() {
    // Long enough for the members that do not follow not to be suspected meanwhile.
    let second = Duration::from_secs(1);
    let config = GroupConfig { resilience: 1, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings { silence: second, patience: second, ..unicast() });
    net.filter(|seen| {
        let farewell = seen.has(|frame| matches!(frame, Frame::Farewell { .. }));
        if farewell || (seen.from == 4 && seen.to == 1) { LOST } else { PROMPT }
    });
    net.leave(4);
    let own = |event: &Event| matches!(event, Event::Left { member, .. } if member.uid == uid(4));
    assert!(net.run_until(MS, 100 * MS, |net| net.events[4].iter().any(own)), "the case was not reached");
    net.run(600 * MS);
    net.crash(0);
    net.filter(|seen| {
        let decides = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        let unheard = [2, 3].contains(&seen.to) && (decides || seen.from == 4);
        if unheard { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS, 10_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    net.run(500 * MS);
    assert_eq!((net.epoch(2), net.epoch(3)), (0, 0), "the case was not reached");
    assert_ne!(net.phase(4), Phase::Gone, "only one member has entered");
    net.calm();
    assert!(net.run_until(MS, 1_000 * MS, |net| net.phase(4) == Phase::Gone && net.epoch(2) == 1));
}

// The same, and the first member that has entered sends the leaver the decision. The leaver goes on serving.
#[test]
fn a_forgotten_leaver_serves_until_a_quorum_has_entered_the_next_epoch() {
    let mut net = group_of(5, 0);
    let dismisses = |seen: &Seen| seen.has(|frame| matches!(frame, Frame::Farewell { .. }));
    net.filter(move |seen| if dismisses(seen) { LOST } else { PROMPT });
    net.leave(4);
    net.run(20 * MS);
    assert!(net.group(4).has_left(), "the case was not reached");
    net.cut_off(4);
    net.run(500 * MS);
    net.crash(0);
    // Of the members of the new view only m1 receives the decision, and only m1 hears the leaver.
    net.filter(move |seen| {
        let tells = seen.has(|frame| matches!(frame, Frame::Decided { .. } | Frame::Level { .. }));
        let with_the_leaver = seen.concerns(4) && !seen.concerns(1);
        if dismisses(seen) || with_the_leaver || matches!(seen.to, 2 | 3) && tells { LOST } else { PROMPT }
    });
    let is_first = |net: &Net| net.epoch(1) == 1 && net.epoch(2) == 0 && net.epoch(3) == 0;
    assert!(net.run_until(MS / 20, 1_000 * MS, is_first), "the case was not reached");
    net.run(1_000 * MS);
    assert_eq!((net.phase(4), net.group(4).has_left(), is_first(&net)), (Phase::Excluded, true, true));
    net.calm();
    // m2 and m3 do not follow for that long, so a reset may exclude one of them.
    let over = |net: &Net| net.phase(4) == Phase::Gone && (2..4).any(|index| net.epoch(index) > 0);
    assert!(net.run_until(MS, 4_000 * MS, over));
    assert!(left_last(&net, 4), "{:?}", net.events[4]);
}

// Two members leave whose last messages have no seqnos. So they do not ask to leave yet, and each takes the other for a
// remaining member.
#[test]
fn leavers_that_hear_only_each_other_go_after_a_minute() {
    let mut net = group_with(3, GroupConfig { automatic: false, ..GroupConfig::default() }, unicast());
    net.crash(0);
    for leaver in [1, 2] {
        net.send(leaver, b"my last words").unwrap();
        net.leave(leaver);
    }
    net.run(58_000 * MS);
    assert!((1..3).all(|leaver| net.phase(leaver) == Phase::Leaving), "the case was not reached");
    net.run(4_000 * MS);
    assert!((1..3).all(|leaver| net.phase(leaver) == Phase::Gone), "they wait for each other");
}

// m2 asks for its leave and hears nothing from then on, but is heard, because it asks again and again. Entries from its
// leave on would be kept for it, and the histories would be full before it gives up.
#[test]
fn nothing_is_kept_for_a_leaver_that_hears_no_member() {
    let mut net = group_with(3, GroupConfig { automatic: false, ..GroupConfig::default() }, unicast());
    net.filter(move |seen| if seen.to == 2 { LOST } else { PROMPT });
    net.leave(2);
    assert!(net.run_until(MS, 1_000 * MS, |net| net.size(0) == 2), "the case was not reached");
    for _ in 0..20 {
        net.send(0, b"kept for the leaver").unwrap();
        net.run(MS);
    }
    assert!(net.group(0).info().buffered >= 20, "the case was not reached");
    net.run(6_000 * MS);
    assert_eq!(net.phase(2), Phase::Leaving, "the case was not reached");
    assert_eq!(net.group(0).info().buffered, 0);
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(2) == Phase::Gone), "it gets no farewell");
}
