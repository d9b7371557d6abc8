//! Leaves: when a leave gets its seqno, which member gets the role with it, and when leavers reset first. How a leaver
//! then gets its farewell is in `parting`.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use unisono_core::wire::*;
use unisono_core::*;

// A leaver that waits for its farewell still receives messages. Its application must not receive what comes after its
// own leave.
#[test]
fn a_leaver_delivers_nothing_after_its_own_leave() {
    let mut net = group_of(3, 1);
    net.filter(
        |seen| if seen.from == 0 && seen.to == 2 && seen.has_change() { Some(3 * MS) } else { PROMPT },
    );
    net.leave(2);
    net.run(MS / 4);
    net.send(1, b"after the leave").unwrap();
    net.run(500 * MS);
    let own = |event: &Event| matches!(event, Event::Left { member, .. } if member.uid == uid(2));
    let left = net.events[2].iter().position(own).unwrap();
    let after = &net.events[2][left + 1..];
    assert!(after.iter().all(|event| *event == Event::Gone), "{after:?}");
}

// A member that voted in a reset is in the view, and dies before it receives the outcome. The coordinator wants to
// leave. If its leave were numbered and gave the dead member the role, no member could go on, or reset.
#[test]
fn a_leaver_does_not_leave_its_role_to_one_that_died_in_the_reset() {
    let mut net = group_with(3, GroupConfig { automatic: false, ..GroupConfig::default() }, unicast());
    net.run(50 * MS);
    net.crash(0);
    net.run(1_000 * MS);
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Decided { .. })) { LOST } else { PROMPT });
    let now = Time::from_nanos(net.now);
    net.group_mut(1).reset(now, 1).unwrap();
    net.leave(1);
    assert!(net.run_until(MS / 50, 1_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    let hopes = |event: &Event| matches!(event, Event::Reset { view, .. } if view.members.len() == 2);
    assert!(net.events[1].iter().any(hopes), "the case was not reached");
    net.crash(2);
    net.calm();
    net.run(5_000 * MS);
    net.show("five calm seconds");
    assert_eq!(net.phase(1), Phase::Gone);
    assert!(net.events[1].iter().any(|event| matches!(event, Event::Left { .. })), "m1 has its own leave");
}

// The leaver does not know of the join that ends the wait for members, and the sequencer has lost its message. The leave
// must not overtake it.
#[test]
fn a_leaver_that_missed_a_join_does_not_lose_its_message() {
    let mut net = group_with(2, GroupConfig { members_min: 3, ..GroupConfig::default() }, unicast());
    net.filter(|seen| {
        let data = seen.from == 1 && seen.has(|frame| matches!(frame, Frame::Data(_)));
        let join = seen.to == 1 && seen.has_join();
        if data || join { LOST } else { PROMPT }
    });
    net.send(1, b"my last words").unwrap();
    net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 1_000 * MS, |net| net.size(0) == 3), "the case was not reached");
    net.leave(1);
    net.run(500 * MS);
    net.calm();
    net.run(3_000 * MS);
    assert!(matches!(net.outcomes[1][..], [(1, Outcome::Ok { .. })]), "{:?}", net.outcomes[1]);
    assert_eq!((net.phase(1), net.size(0)), (Phase::Gone, 2));
}

/// Returns a group under the manual policy. One member has crashed. The sequencer suspects it, or m0 if the sequencer
/// crashed, and no application has acted on that.
fn group_that_misses(members: usize, dead: usize, sequencer: usize) -> Net {
    let mut net = group_with(members, GroupConfig { automatic: false, ..GroupConfig::default() }, unicast());
    if sequencer != 0 {
        net.hand_over(0, sequencer);
    }
    net.run(50 * MS);
    net.crash(dead);
    let misses = |event: &Event| matches!(event, Event::Suspected { member, .. } if *member == uid(dead));
    let witness = if sequencer == dead { 0 } else { sequencer };
    let is_told = |net: &Net| net.events[witness].iter().any(misses);
    assert!(net.run_until(MS, 1_000 * MS, is_told), "the case was not reached");
    net
}

// The next member in rank order is dead, as the sequencer knows when it leaves. If it got the role, the group would
// halt until an application resets.
#[test]
fn a_leaver_leaves_its_role_to_one_that_is_there() {
    let mut net = group_that_misses(4, 1, 0);
    net.leave(0);
    net.run(500 * MS);
    net.show("half a second");
    assert_eq!(net.phase(0), Phase::Gone);
    assert!(net.group(2).marks().acting);
    for index in [2, 3] {
        let left =
            |event: &Event| matches!(event, Event::Left { successor, .. } if *successor == Some(uid(2)));
        assert!(net.events[index].iter().any(left), "m{index} has another successor");
        assert_eq!((net.epoch(index), net.size(index)), (0, 3), "no application asked m{index} for a reset");
    }
}

// Without the leaver, the rest would be no quorum as long as the dead member counts. So no leave would be accepted, and
// no reset could exclude the dead member. The leaver's application does not decide any more. So a leaver that is the
// sequencer, or the last member, resets without being asked.
#[test]
fn a_leaver_resets_if_the_dead_keep_the_rest_from_a_quorum() {
    for (members, dead, sequencer) in [(3, 1, 0), (2, 1, 0), (4, 3, 0), (2, 1, 1)] {
        let mut net = group_that_misses(members, dead, sequencer);
        if members == 4 {
            // Two of four are dead. The sequencer, as the first member, makes half of the view a quorum.
            net.crash(2);
            net.run(1_000 * MS);
        }
        net.leave(0);
        net.run(2_000 * MS);
        net.show("two seconds");
        assert_eq!(net.phase(0), Phase::Gone, "of {members}, where m{sequencer} is the sequencer");
        let has_left = net.events[0].iter().any(|event| matches!(event, Event::Left { .. }));
        assert!(has_left, "of {members}, where m{sequencer} is the sequencer");
        if members > 2 {
            let next = if members == 3 { 2 } else { 1 };
            assert_eq!((net.epoch(next), net.size(next)), (1, 1), "of {members}");
        }
    }
}

// The first member is dead, and one of the other two leaves. If its leave were numbered, neither the leave nor a reset
// would ever complete, because the remaining member is no quorum of {m0, m1}.
#[test]
fn a_leave_waits_for_a_reset_if_the_dead_keep_the_rest_from_a_quorum() {
    let mut net = group_that_misses(3, 0, 1);
    net.leave(2);
    net.run(1_000 * MS);
    let now = Time::from_nanos(net.now);
    net.group_mut(1).reset(now, 1).unwrap();
    net.drain(1);
    net.run(2_000 * MS);
    net.show("two seconds after the reset");
    assert_eq!((net.epoch(1), net.size(1), net.phase(1)), (1, 1, Phase::Member));
    assert_eq!(net.phase(2), Phase::Gone);
}

// The sequencer has died, and all other members leave. None of them suspects the others, and none has an application
// that could decide.
#[test]
fn where_all_leave_and_the_sequencer_is_dead_they_reset_by_themselves() {
    for members in [3, 5] {
        let mut net = group_that_misses(members, 1, 1);
        let others = (0..members).filter(|&index| index != 1);
        others.clone().for_each(|index| net.leave(index));
        net.run(5_000 * MS);
        net.show("five seconds");
        for index in others {
            let left = net.events[index]
                .iter()
                .any(|event| matches!(event, Event::Left { member, .. } if member.uid == uid(index)));
            assert!(left && net.phase(index) == Phase::Gone, "m{index} of {members}");
        }
    }
}

/// Returns for each member the time until it was gone, in milliseconds after all began to leave. A crashed member
/// counts as gone.
fn all_leave(net: &mut Net, limit_ms: u64, crashes: impl Fn(&Net) -> Option<usize>) -> Vec<Option<u64>> {
    let members = net.members.len();
    let mut gone = vec![None; members];
    (0..members).for_each(|member| net.leave(member));
    for ms in 0..limit_ms {
        if let Some(member) = crashes(net) {
            net.crash(member);
        }
        for (member, at) in gone.iter_mut().enumerate() {
            if net.members[member].as_ref().is_none_or(|group| group.info().phase == Phase::Gone) {
                at.get_or_insert(ms);
            }
        }
        net.run(MS);
    }
    gone
}

// All members leave at once, and what the last one sends is lost for a while. It must stay meanwhile: only the last
// member can dismiss the leavers before it, which do not know their leaves accepted.
#[test]
fn the_last_member_stays_until_the_leavers_before_it_have_their_farewells() {
    for members in [2, 3, 5] {
        let mut net = group_of(members, 0);
        let (last, heard_at) = (members - 1, net.now + 80 * MS);
        net.filter(move |seen| if seen.from == last && seen.now < heard_at { LOST } else { PROMPT });
        let gone = all_leave(&mut net, 1_000, |_| None);
        assert!(gone.iter().all(|at| at.is_some_and(|ms| ms < 500)), "of {members}: {gone:?}");
        for member in 0..members {
            assert_eq!(net.events[member].last(), Some(&Event::Gone), "m{member} of {members}");
        }
    }
}

// Nothing is lost, so all get their farewells and go at once. The last member does not wait for leavers that are gone.
#[test]
fn members_that_all_leave_at_once_are_gone_at_once() {
    for members in [2, 3, 5] {
        let mut net = group_of(members, 1);
        let gone = all_leave(&mut net, 1_000, |_| None);
        assert!(gone.iter().all(|at| at.is_some_and(|ms| ms < 200)), "of {members}: {gone:?}");
    }
}

// The last member dies before it has sent `Farewell`. The leavers before it hear only each other, and ask each other
// again and again. They know their leaves accepted, so they go.
#[test]
fn leavers_that_hear_only_each_other_go_soon() {
    for members in [2, 3, 5] {
        let mut net = group_of(members, 0);
        let last = members - 1;
        net.filter(move |seen| {
            let dismisses = seen.has(|frame| matches!(frame, Frame::Farewell { .. }));
            if seen.from == last && dismisses { LOST } else { PROMPT }
        });
        let gone = all_leave(&mut net, 4_000, |net| {
            let own = |event: &Event| matches!(event, Event::Left { member, .. } if member.uid == uid(last));
            net.events[last].iter().any(own).then_some(last)
        });
        assert!(gone.iter().all(Option::is_some), "of {members}: {gone:?}");
    }
}

// The sequencer is dead. One of the members that suspect it leaves; the others have applications that can decide.
#[test]
fn a_leaver_leaves_the_reset_to_the_remaining_members() {
    let mut net = group_that_misses(4, 1, 1);
    net.leave(3);
    net.run(2_000 * MS);
    assert!(
        [0, 2, 3].iter().all(|&index| net.epoch(index) == 0 && net.group(index).marks().promised.is_none())
    );
}

// The members that do not suspect each other are no quorum. A ballot would come to nothing, and would stop the
// numbering.
#[test]
fn a_leaver_does_not_reset_where_that_is_in_vain() {
    let mut net = group_that_misses(3, 1, 0);
    net.crash(2);
    net.run(1_000 * MS);
    net.leave(0);
    net.run(2_000 * MS);
    assert_eq!((net.phase(0), net.group(0).marks().promised.is_none()), (Phase::Leaving, true));
}

// The sequencer wants to leave, and there is no room for what it has sent while an application receives nothing. It
// must not reset for that, nor leave before its messages have seqnos.
#[test]
fn a_sequencers_leave_comes_after_what_it_sent_however_long_that_takes() {
    let config =
        GroupConfig { history_messages: 16, slow_member: SlowMember::Wait, ..GroupConfig::default() };
    let mut net = group_with(2, config, unicast());
    net.asleep[1] = true;
    let mut sent = 0;
    while net.send(0, b"x").is_ok() {
        sent += 1;
        net.run(MS);
    }
    net.leave(0);
    net.run(2_000 * MS);
    let waits = (net.phase(0), net.epoch(0), net.group(0).marks().promised.is_none());
    assert_eq!(waits, (Phase::Leaving, 0, true));
    net.asleep[1] = false;
    net.drain(1);
    assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(0) == Phase::Gone));
    assert_eq!((net.delivered(1), net.epoch(1)), (sent, 0));
}

// A message is resent because its seqno was lost. The copy arrives after its sender has left. By then no last message
// number is kept for the sender, by which the copy could be recognised.
#[test]
fn what_a_leaver_sent_again_gets_no_second_place_after_its_leave() {
    let mut net = group_of(3, 0);
    let again = Rc::new(Cell::new(0));
    let counted = again.clone();
    net.filter(move |seen| {
        let data = seen.from == 2 && seen.has(|frame| matches!(frame, Frame::Data(_)));
        counted.set(counted.get() + u32::from(data));
        match (data, seen.to) {
            (true, _) if counted.get() > 1 => Some(300 * MS),
            (false, 2) => LOST,
            _ => PROMPT,
        }
    });
    net.send(2, b"x").unwrap();
    assert!(net.run_until(MS, 200 * MS, |_| again.get() == 2), "the case was not reached");
    net.calm();
    net.run(20 * MS);
    net.leave(2);
    assert!(net.run_until(LATENCY / 5, 100 * MS, |net| net.size(0) == 2), "the case was not reached");
    // The farewell cannot reach m2, so the group still receives from it.
    net.filter(|seen| if seen.to == 2 { LOST } else { PROMPT });
    net.run(1_000 * MS);
    assert_eq!((net.delivered(0), net.delivered(1)), (1, 1), "numbered again after its leave");
}
