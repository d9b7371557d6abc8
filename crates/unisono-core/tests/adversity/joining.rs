//! Joins during crashes and hand-overs, with late answers, and in groups that have died.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use unisono_core::wire::*;
use unisono_core::*;

// The members need the vote of a joiner that has not received its JOIN. Without it the reset would never find a quorum
// (hazard H22).
#[test]
fn members_go_on_when_the_sequencer_crashes_before_the_joiner_has_its_join() {
    let mut net = group_of(3, 1);
    net.add(EntryMode::Join, unicast());
    let ordered = Rc::new(Cell::new(false));
    let seen_join = ordered.clone();
    // Once there is a JOIN, the joiner receives nothing more from the sequencer.
    net.filter(move |seen| {
        if seen.has_join() {
            seen_join.set(true);
            if seen.to == 3 {
                return LOST;
            }
        }
        if seen_join.get() && seen.from == 0 && seen.to == 3 { LOST } else { PROMPT }
    });
    let reached =
        net.run_until(MS / 20, 1000 * MS, |net| ordered.get() && net.size(1) == 4 && net.size(2) == 4);
    assert!(reached, "the case was not reached");
    net.crash(0);
    net.calm();
    net.run(20_000 * MS);
    net.show("one crash of three during a join, twenty calm seconds later");
    assert_eq!(net.phase(1), Phase::Member, "m1 and m2 are stuck");
}

// The same, and the joiner is cut off for longer than joins take. It may be in the view, so it must not give up (hazard
// H22).
#[test]
fn a_joiner_out_of_reach_does_not_go_while_its_vote_may_be_needed() {
    let mut net = group_of(3, 0);
    let joiner = net.add(EntryMode::Join, unicast());
    let ordered = Rc::new(Cell::new(false));
    let seen_join = ordered.clone();
    net.filter(move |seen| {
        seen_join.set(seen_join.get() || seen.has_join());
        if seen_join.get() && seen.concerns(joiner) { LOST } else { PROMPT }
    });
    let reached =
        net.run_until(MS / 20, 1000 * MS, |net| ordered.get() && net.size(1) == 4 && net.size(2) == 4);
    assert!(reached, "the case was not reached");
    net.crash(0);
    net.run(30_000 * MS);
    assert_eq!(
        (net.phase(1), net.phase(2)),
        (Phase::Resetting, Phase::Resetting),
        "the case was not reached"
    );
    net.calm();
    assert!(net.run_until(MS, 3000 * MS, |net| net.phase(1) == Phase::Member), "m1 and m2 are stuck");
    assert_eq!((net.phase(joiner), net.size(joiner)), (Phase::Member, 3));
}

// The sequencer has left, and one member has not reported that it holds that leave. So a newcomer's log begins below
// the leave, under the old sequencer, which was heard at that time. The newcomer must not conclude that the role has
// moved on from the sequencer that welcomed it.
#[test]
fn a_joiner_whose_log_begins_under_an_earlier_sequencer_gets_in() {
    let mut net = group_of(3, 0);
    net.filter(|seen| {
        let says_how_far = seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        if seen.from == 2 && says_how_far { LOST } else { PROMPT }
    });
    net.leave(0);
    assert!(net.run_until(MS, 1000 * MS, |net| net.phase(0) == Phase::Gone && net.size(1) == 2));
    assert!(net.group(1).marks().purged < net.group(1).marks().received, "the case was not reached");
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 500 * MS, |net| net.phase(joiner) != Phase::Locating
        && net.phase(joiner) != Phase::Joining));
    assert_eq!(net.phase(joiner), Phase::Member);
}

// Two joiners are numbered one after the other, and the sequencer crashes. The first joiner has both JOINs, the old
// member only the first one, the second joiner none. The first joiner is a stranger to the second, and the second to
// the old member. All three votes are needed.
#[test]
fn a_joiner_is_invited_by_one_that_joined_after_its_welcome() {
    let mut net = group_of(2, 0);
    let (first, second) = (net.add(EntryMode::Join, unicast()), net.add(EntryMode::Join, unicast()));
    let joins = |seen: &Seen, index: usize| {
        seen.has(|frame| match frame {
            Frame::Change { change: Change::Join { member, .. }, .. } => member.uid == uid(index),
            _ => false,
        })
    };
    let (mut both_listen, mut first_is_in) = (false, false);
    net.filter(move |seen| {
        both_listen |= seen.to == second && seen.has(|frame| matches!(frame, Frame::Welcome(_)));
        first_is_in |= joins(seen, first);
        let keeps_up = seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        let too_early = (seen.from == first && !both_listen) || (seen.from == second && !first_is_in);
        let lost = (keeps_up && too_early)
            || (seen.to == second && seen.has_join())
            || (seen.to == 1 && joins(seen, second));
        if lost { LOST } else { PROMPT }
    });
    let reached = net.run_until(MS / 20, 1000 * MS, |net| {
        net.size(first) == 4 && net.size(1) == 3 && net.size(second) == 2
    });
    assert!(reached, "the case was not reached");
    net.crash(0);
    // If the old member invited, it would learn of the second JOIN from the first joiner's vote.
    net.filter(|seen| {
        let invites = seen.has(|frame| matches!(frame, Frame::Invite { .. }));
        if seen.from == 1 && invites { LOST } else { PROMPT }
    });
    assert!(
        net.run_until(MS, 3000 * MS, |net| net.phase(1) == Phase::Member && net.epoch(1) > 0),
        "they are stuck"
    );
    assert!(net.run_until(MS, 1000 * MS, |net| [1, first, second].iter().all(|&index| net.size(index) == 3)));
    assert_eq!(net.phase(second), Phase::Member);
}

// Seed 99322028 of `reset`: the coordinator died with its decision, and without the joiner the others had no quorum.
#[test]
fn a_joiner_that_has_prepared_votes_though_it_lacks_its_join() {
    let mut net = group_of(3, 2);
    let joiner = net.add(EntryMode::Join, unicast());
    net.filter(move |seen| if seen.to != 1 && seen.has_join() { LOST } else { PROMPT });
    let is_numbered = |net: &Net| net.size(1) == 4 && net.phase(joiner) == Phase::Joining;
    assert!(net.run_until(MS, 3000 * MS, is_numbered), "the case was not reached");
    let marks = net.group(joiner).marks();
    let proposal = Proposal {
        epoch: EpochId { counter: 1, coordinator: uid(0), nonce: 7 },
        start: marks.received + 1,
        members: vec![uid(1), uid(2)],
        degraded: false,
        forced: false,
        tail: Vec::new(),
    };
    let ballot = Ballot { round: 4, coordinator: uid(0) };
    let (before, after) = ([0, 1, 2].map(uid).to_vec(), [0, 1, 2, joiner].map(uid).to_vec());
    let prepare = Prepare { ballot, members_min: 0, proposal, before, after };
    let said = forge(net.group(0).tag(), marks.epoch, uid(0), 1_000_000, &[Frame::Prepare(prepare.into())]);
    net.crash(0);
    net.inject(joiner, address(0), &said);
    net.drain(joiner);
    assert!(net.run_until(MS, 3000 * MS, |net| net.epoch(1) > 0), "the joiner does not vote");
}

/// Adds a joiner that observes the group. All that it sends in the epoch is lost.
fn unheard_joiner(net: &mut Net) -> usize {
    let joiner = net.add(EntryMode::Join, unicast());
    net.filter(move |seen| if seen.from == joiner && !seen.outside { LOST } else { PROMPT });
    assert!(net.run_until(MS / 20, 10_000 * MS, |net| net.phase(joiner) == Phase::Joining));
    joiner
}

// Histories keep what an observer lacks. Those entries are stable all the same, because every member holds them.
#[test]
fn what_an_observer_lacks_is_stable_all_the_same() {
    let mut net = group_of(2, 1);
    unheard_joiner(&mut net);
    for _ in 0..5 {
        net.send(1, b"x").unwrap();
        net.run(20 * MS);
    }
    net.run(200 * MS);
    let (report, marks) = (net.group(0).report(Time::from_nanos(net.now)), net.group(0).marks());
    assert_eq!((report.stable, report.members.len()), (marks.received, 2));
    assert!(marks.purged < marks.received, "the case was not reached");
}

// An observer that may never be admitted takes up the last free place. That does not make the group full.
#[test]
fn an_observer_does_not_make_a_group_full() {
    let mut net = group_with(2, GroupConfig { members_max: 3, ..GroupConfig::default() }, unicast());
    let listener = unheard_joiner(&mut net);
    let next = net.add(EntryMode::Join, unicast());
    net.run(500 * MS);
    assert_eq!(net.phase(next), Phase::Locating, "members and observers reach the maximum");
    assert!(net.run_until(MS, 5000 * MS, |net| !matches!(net.phase(next), Phase::Locating | Phase::Joining)));
    assert_eq!((net.phase(next), net.size(next)), (Phase::Member, 3));
    assert_ne!(net.phase(listener), Phase::Member);
    let late = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 5000 * MS, |net| net.phase(late) == Phase::Gone));
    assert!(matches!(net.events[late][..], [Event::JoinFailed { reason: JoinFailure::Full { .. } }]));
}

// The joiner observes, and cannot be admitted. Only the sequencer knows that no JOIN will come, and must say so.
#[test]
fn a_joiner_that_nothing_lets_in_is_told_so() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.crash(2);
    net.run(1000 * MS);
    let now = Time::from_nanos(net.now);
    net.group_mut(0).reset(now, 1).unwrap();
    net.drain(0);
    // m1 never learns of the epoch whose view contains it.
    let decided = |seen: &Seen| seen.has(|frame| matches!(frame, Frame::Decided { .. }));
    net.filter(move |seen| if seen.to == 1 && decided(seen) { LOST } else { PROMPT });
    net.run(1000 * MS);
    assert_eq!((net.epoch(0), net.epoch(1)), (1, 0), "the case was not reached");
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 100 * MS, |net| net.phase(joiner) == Phase::Joining));
    assert!(net.run_until(MS, 6000 * MS, |net| net.phase(joiner) == Phase::Gone), "it waits for ever");
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::TimedOut }]);
    assert_eq!(net.size(0), 2);
}

// An observer was forgotten, after a time-out or because the role moved, and its process is gone. Late copies of
// everything that it sent must not get it a JOIN: the JOIN would wait for it, and it may have been told that none
// comes.
#[test]
fn late_copies_of_what_a_joiner_said_do_not_bring_it_back() {
    for role_moves in [false, true] {
        let mut net = group_of(2, 0);
        let joiner = net.members.len();
        let said = Rc::new(Cell::new(Vec::new()));
        let copies = said.clone();
        net.filter(move |seen| {
            if seen.from == joiner && seen.to == 0 {
                let mut all = copies.take();
                all.push((seen.outside, seen.number, seen.frames.clone()));
                copies.set(all);
            }
            if seen.from == joiner && !seen.outside { LOST } else { PROMPT }
        });
        net.add(EntryMode::Join, unicast());
        assert!(net.run_until(MS / 20, 1000 * MS, |net| net.phase(joiner) == Phase::Joining));
        net.run(20 * MS);
        net.crash(joiner);
        if role_moves {
            net.hand_over(0, 1);
            net.run(50 * MS);
            net.hand_over(1, 0);
            net.run(50 * MS);
        } else {
            net.run(2500 * MS);
        }
        assert!(net.group(0).marks().acting, "the case was not reached");
        let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
        for (outside, number, frames) in said.take() {
            let epoch = if outside { EpochTag::OUTSIDE } else { epoch };
            net.inject(0, address(joiner), &forge(group, epoch, uid(joiner), number, &frames));
            net.drain(0);
        }
        net.run(20 * MS);
        net.show("after copies of all it sent");
        assert_eq!(net.size(0), 2, "the role moves: {role_moves}");
    }
}

// All members that the joiner knew have left while it was not heard. The group goes on, and its present members must
// dismiss the joiner.
#[test]
fn a_joiner_that_knew_only_former_members_finds_the_group() {
    let mut net = group_of(1, 0);
    let joiner = unheard_joiner(&mut net);
    net.cut_off(joiner);
    for other in [2, 3] {
        net.add(EntryMode::Join, unicast());
        net.run(300 * MS);
        assert_eq!(net.phase(other), Phase::Member);
    }
    net.leave(0);
    net.run(3000 * MS);
    assert_eq!((net.phase(0), net.phase(joiner)), (Phase::Gone, Phase::Joining), "the case was not reached");
    net.calm();
    assert!(net.run_until(MS, 5000 * MS, |net| net.phase(joiner) == Phase::Gone), "it gets no farewell");
    assert_eq!(net.size(2), 2);
}

// The joiner was forgotten while it was not heard, and does not know the present sequencer. The members that answer its
// `Locate` cannot say whether its JOIN will come. It must ask the sequencer, which can.
#[test]
fn a_joiner_whose_sequencer_has_handed_over_asks_the_new_one() {
    let mut net = group_of(3, 0);
    let joiner = unheard_joiner(&mut net);
    net.cut_off(joiner);
    net.run(5000 * MS);
    let sequencer = net.add(EntryMode::Join, unicast());
    net.run(300 * MS);
    net.hand_over(0, sequencer);
    net.run(50 * MS);
    assert!(net.group(sequencer).marks().acting, "the case was not reached");
    assert_eq!(net.phase(joiner), Phase::Joining, "the case was not reached");
    let question = Rc::new(Cell::new(None));
    let asked = question.clone();
    net.filter(move |seen| {
        for frame in &seen.frames {
            if let Frame::Locate { nonce } = frame
                && seen.from == joiner
            {
                asked.set(Some(*nonce));
            }
        }
        if seen.outside { LOST } else { PROMPT }
    });
    // The joiner hears other members all the while.
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    for number in (1 << 40)..(1 << 40) + 50 {
        let word = forge(group, epoch, uid(1), number, &[Frame::Alive { nonce: 0 }]);
        net.inject(joiner, address(1), &word);
        net.drain(joiner);
        net.run(100 * MS);
    }
    assert!(question.get().is_some(), "it did not ask");
    let here = HereIs {
        nonce: question.get().unwrap(),
        cookie: 0,
        instance: net.group(0).info().instance,
        epoch_counter: 0,
        sequencer: address(sequencer),
        members: 4,
        condition: Condition::Open,
        ordered: 0,
    };
    let answer = forge(net.group(0).tag(), EpochTag::OUTSIDE, uid(1), 1 << 40, &[Frame::HereIs(here)]);
    net.inject(joiner, address(1), &answer);
    net.drain(joiner);
    assert!(net.run_until(MS, 5000 * MS, |net| net.phase(joiner) == Phase::Gone), "it gets no farewell");
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::TimedOut }]);
}

// The joiner must not go on reporting to a member that is not the sequencer any more, until its patience is over
// (hazard H22).
#[test]
fn a_hand_over_during_a_join_costs_less_than_a_second() {
    let mut net = group_of(3, 1);
    // The observer's acknowledgements are late, so that the role moves before its JOIN.
    net.filter(|seen| if seen.from == 3 && !seen.outside { Some(5 * MS) } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS / 20, 10_000 * MS, |net| net.phase(joiner) == Phase::Joining));
    net.hand_over(0, 1);
    net.run(6 * MS);
    net.calm();
    let begin = net.now;
    net.run_until(10 * MS, 30_000 * MS, |net| net.phase(joiner) != Phase::Joining);
    net.show("the join has ended one way or the other");
    assert!(net.now < begin + 1000 * MS);
}

/// m0 crashes when only m1 and m3 have received m3's JOIN.
fn join_known_to_m1_and_the_joiner(net: &mut Net) {
    let joiner = net.add(EntryMode::Join, unicast());
    assert_eq!(joiner, 3);
    let ordered = Rc::new(Cell::new(false));
    let seen_join = ordered.clone();
    net.filter(move |seen| {
        if seen.has_join() {
            seen_join.set(true);
            if seen.to == 2 {
                return LOST;
            }
        }
        if seen_join.get() && seen.from == 0 && !seen.has_change() { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS / 20, 10_000 * MS, |_| ordered.get()), "the case was not reached");
    net.run(MS / 5);
    net.crash(0);
}

// m2 has never heard of the joiner. If only m2 can coordinate, it must still find the JOIN at the end of the longest
// log, and the joiner must be in the new view (hazard H17).
#[test]
fn a_join_that_the_coordinator_does_not_know_survives_the_reset() {
    let mut net = group_of(3, 1);
    join_known_to_m1_and_the_joiner(&mut net);
    // What m1 sends to m2 as a coordinator is lost.
    net.filter(|seen| {
        let coordinates = seen.has(|frame| matches!(frame, Frame::Invite { .. } | Frame::Prepare(_)));
        if seen.from == 1 && seen.to == 2 && coordinates { LOST } else { PROMPT }
    });
    net.run_until(10 * MS, 20_000 * MS, |net| {
        net.phase(2) == Phase::Member && net.group(2).marks().promised.is_none() && net.epoch(2) > 0
    });
    net.show("after the reset");
    assert_eq!(net.epoch(1), 1);
    assert_eq!(net.phase(3), Phase::Member);
}

// Members that disagree on whether a process has joined must not wait for each other's time-outs (hazard H22).
#[test]
fn a_join_known_to_one_member_does_not_slow_the_reset() {
    for begin in 0..20 {
        let mut net = group_of(3, 1);
        net.run(begin * 1_234_567);
        join_known_to_m1_and_the_joiner(&mut net);
        net.calm();
        let crashed = net.now;
        net.run_until(10 * MS, 20_000 * MS, |net| net.epoch(1) > 0);
        let took = (net.now - crashed) / MS;
        assert!(took < 1000, "{took} ms, {begin} steps later");
    }
}

// Under the manual policy only applications reset, and the joiner's application has not entered yet. A joiner that was
// cut off with its JOIN and left behind must learn that when it asks (hazard H22).
#[test]
fn a_joiner_left_behind_is_told_so_though_only_applications_reset() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    let ordered = Rc::new(Cell::new(false));
    let seen_join = ordered.clone();
    net.filter(move |seen| {
        let cut = seen_join.get() && seen.concerns(3);
        seen_join.set(seen_join.get() || seen.to == 3 && seen.has_join());
        if cut { LOST } else { PROMPT }
    });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS / 20, 10_000 * MS, |_| ordered.get()), "the case was not reached");
    net.run(2000 * MS);
    assert_eq!(net.phase(joiner), Phase::Joining);
    for size in [3, 2] {
        let now = Time::from_nanos(net.now);
        net.group_mut(0).reset(now, 1).unwrap();
        net.drain(0);
        net.run(2000 * MS);
        assert_eq!(net.size(0), size);
        net.crash(size - 1);
        net.run(2000 * MS);
    }
    assert_eq!(net.epoch(0), 2);
    net.calm();
    net.run(2000 * MS);
    net.show("two seconds after the joiner is heard again");
    assert_eq!(net.phase(joiner), Phase::Gone);
}

// A reset may take longer than a joiner searches for the group.
#[test]
fn a_joiner_that_comes_during_a_long_reset_is_admitted_after_it() {
    let mut net = group_of(5, 1);
    net.run(100 * MS);
    net.crash(0);
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Vote(_))) { LOST } else { PROMPT });
    net.run(500 * MS);
    let joiner = net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
    net.run(2000 * MS);
    assert_eq!((net.phase(joiner), net.epoch(1)), (Phase::Locating, 0), "the case was not reached");
    net.calm();
    assert!(net.run_until(10 * MS, 3000 * MS, |net| net.phase(joiner) == Phase::Member), "not admitted");
    assert_eq!(net.epoch(joiner), net.epoch(1));
    assert!(net.epoch(1) > 0);
}

// No member is left to end the join. The joiner's application must not wait for ever (hazard H22).
#[test]
fn a_joiner_of_a_group_that_died_is_gone_in_the_end() {
    let mut net = group_of(2, 1);
    net.filter(|seen| if seen.from == 2 && !seen.outside { Some(5 * MS) } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS / 20, 10_000 * MS, |net| net.phase(joiner) == Phase::Joining));
    net.crash(0);
    net.crash(1);
    net.run(120_000 * MS);
    net.show("two minutes after all members crashed");
    assert_eq!(net.phase(joiner), Phase::Gone);
}

/// Returns three members, and a joiner that holds its JOIN and does not know it accepted.
fn joiner_with_a_number() -> (Net, usize) {
    let mut net = group_of(3, 0);
    let joiner = net.members.len();
    net.filter(move |seen| {
        let accepts = seen.has(|frame| matches!(frame, Frame::Heartbeat(beat) if beat.accepted >= 3));
        if seen.to == joiner && accepts { LOST } else { PROMPT }
    });
    net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS / 20, 1000 * MS, |net| net.size(joiner) == 4), "the case was not reached");
    assert_eq!(net.phase(joiner), Phase::Joining, "the case was not reached");
    (net, joiner)
}

// The same, with a joiner that holds its JOIN and does not know it accepted.
#[test]
fn a_joiner_with_a_number_in_a_group_that_died_is_gone_in_the_end() {
    let (mut net, joiner) = joiner_with_a_number();
    (0..3).for_each(|member| net.crash(member));
    net.run(50_000 * MS);
    assert_ne!(net.phase(joiner), Phase::Gone, "the members may only be away");
    net.run(15_000 * MS);
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::TimedOut }]);
}

// The joiner chose the group, and the group dies before it admits the joiner. The failure must not say that no group
// was found.
#[test]
fn a_joiner_that_heard_a_group_die_is_not_told_that_there_was_none() {
    let mut net = group_of(1, 1);
    net.run(100 * MS);
    let answered = Rc::new(Cell::new(false));
    let seen_answer = answered.clone();
    net.filter(move |seen| {
        seen_answer.set(seen_answer.get() || seen.has(|frame| matches!(frame, Frame::HereIs(_))));
        PROMPT
    });
    let joiner = net.add(EntryMode::Join, unicast());
    let from = net.now;
    assert!(net.run_until(MS / 20, 100 * MS, |_| answered.get()), "the case was not reached");
    net.crash(0);
    assert!(net.run_until(MS, 60_000 * MS, |net| net.phase(joiner) == Phase::Gone), "it waits for ever");
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::Lost }]);
    let after_ms = (net.now - from) / MS;
    // Twelve requests, and then the 3 s of any search.
    assert!((3600..3700).contains(&after_ms), "{after_ms} ms");

    // A joiner that never heard a group searches for ten times the setting `locate`.
    let stranger = net.add(EntryMode::Join, unicast());
    let from = net.now;
    assert!(net.run_until(MS, 60_000 * MS, |net| net.phase(stranger) == Phase::Gone));
    assert_eq!(net.events[stranger], [Event::JoinFailed { reason: JoinFailure::NotFound }]);
    assert_eq!((net.now - from) / MS, 3000);
}

// The group answers `Locate`, and never a join request.
#[test]
fn a_group_that_admits_no_joiner_is_not_asked_for_ever() {
    let mut net = group_of(1, 1);
    net.run(100 * MS);
    net.filter(
        |seen| if seen.has(|frame| matches!(frame, Frame::JoinRequest { .. })) { LOST } else { PROMPT },
    );
    for entry in [EntryMode::Join, EntryMode::JoinOrFound(GroupConfig::default())] {
        let (joiner, from) = (net.add(entry, unicast()), net.now);
        assert!(net.run_until(MS, 60_000 * MS, |net| net.phase(joiner) == Phase::Gone), "it asks for ever");
        assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::TimedOut }]);
        let after_ms = (net.now - from) / MS;
        assert!((4000..5000).contains(&after_ms), "{after_ms} ms");
    }
}

// A straggler of a reset is in the view and lacks what the others hold. No member may purge that, whichever is the
// sequencer. No joiner may be admitted that takes the first seqno of the epoch for stable (hazard H15).
#[test]
fn nothing_that_a_straggler_of_a_reset_lacks_is_purged() {
    let mut net = group_of(5, 1);
    // m4 lacks the last two messages, and what it pulls is lost.
    net.filter(|seen| {
        let levels = seen.has(|frame| matches!(frame, Frame::Level { .. } | Frame::Ordered(_)));
        if seen.to == 4 && levels { LOST } else { PROMPT }
    });
    net.send(1, b"one").unwrap();
    net.send(2, b"two").unwrap();
    net.run(2 * MS);
    net.crash(0);
    net.run_until(MS / 4, 1000 * MS, |net| net.epoch(1) == 1);
    assert_eq!(net.size(1), 4, "the case was not reached: m4 must be in the view");
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(100 * MS);
    assert_eq!(net.phase(joiner), Phase::Joining, "admitted too early");
    net.hand_over(1, 2);
    net.run(50 * MS);
    assert!(net.group(2).marks().acting, "the case was not reached");
    net.show("m2 orders");
    let holds = net.group(4).marks().received;
    for index in 1..4 {
        let purged = net.group(index).marks().purged;
        assert!(
            purged <= holds,
            "m{index} purged through {purged}; m4, in the view, is contiguous through {holds}"
        );
    }
    // m4 may be excluded for its silence now. No member may hang or panic.
    net.calm();
    net.run(20_000 * MS);
}

// m1 prepared the decided proposal and missed the decision. A newcomer admitted meanwhile could not send it the
// decision. If m0 died then, m1 and the newcomer would be a quorum that cannot go on.
#[test]
fn no_joiner_is_admitted_before_all_members_have_entered() {
    let mut net = group_of(3, 0);
    net.crash(2);
    let decided = |seen: &Seen| seen.has(|frame| matches!(frame, Frame::Decided { .. }));
    net.filter(move |seen| if seen.to == 1 && decided(seen) { LOST } else { PROMPT });
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(0) == 1), "the case was not reached");
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(150 * MS);
    assert_eq!((net.epoch(0), net.epoch(1)), (1, 0), "the case was not reached");
    assert_eq!(net.phase(joiner), Phase::Joining, "admitted too early");
    net.calm();
    assert!(net.run_until(MS, 1_000 * MS, |net| net.phase(joiner) == Phase::Member), "not admitted");
    net.crash(0);
    net.run(5_000 * MS);
    net.show("m0 has crashed");
    assert_eq!((net.phase(1), net.size(1)), (Phase::Member, 2));
}

// A joiner gives up, and another life at its address asks to join. The answers to the first life arrive late, when the
// group has changed: there is room again, or another epoch. They must not affect the second life.
#[test]
fn a_joiner_is_not_answered_by_what_was_said_to_a_former_life() {
    for refused in [true, false] {
        let members_max = if refused { 3 } else { 9 };
        let mut net = group_with(3, GroupConfig { members_max, ..GroupConfig::default() }, unicast());
        let late = net.now + 600 * MS;
        net.filter(move |seen| {
            let answers = |frame: &Frame| matches!(frame, Frame::Welcome(_) | Frame::Refused { .. });
            if seen.to != 3 || !seen.has(answers) {
                PROMPT
            } else if seen.now < late - 500 * MS {
                Some(late - seen.now)
            } else {
                // The answers to the second life arrive later.
                Some(5 * MS)
            }
        });
        net.add(EntryMode::Join, unicast());
        net.run(90 * MS);
        net.crash(3);
        net.crash(2);
        assert!(net.run_until(MS, 500 * MS, |net| net.epoch(0) == 1 && net.size(0) == 2));
        net.run(late - net.now - 17 * MS);
        net.add_at(3, EntryMode::Join, unicast());
        assert!(net.run_until(MS, 500 * MS, |net| net.phase(3) == Phase::Member), "refused: {refused}");
        assert_eq!(net.size(0), 3);
    }
}

// Two lines of one group, under *at least one*. A joiner whose welcome to the first line was lost joins the second, and
// sends the first one `Excluded`. It was never in the first line's epoch, so it must not be numbered there.
#[test]
fn a_joiner_that_went_elsewhere_is_not_let_in() {
    let mut net = group_of(2, 1);
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Welcome(_))) { LOST } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(200 * MS);
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    let elsewhere = EpochId { nonce: 7, ..EpochId::default() };
    let told = Frame::Excluded { uid: uid(0), instance: Instance(1), epoch: elsewhere };
    net.inject(0, address(joiner), &forge(group, epoch, uid(joiner), 1000, &[told]));
    net.run(200 * MS);
    assert_eq!((net.size(0), net.epoch(0)), (2, 0), "the joiner was never an observer");
    net.calm();
    assert!(net.run_until(MS, 3_000 * MS, |net| net.phase(joiner) == Phase::Member), "not admitted");
}

// A sequencer that leaves or hands over forgets its observers, and must tell them. The next sequencer does not know
// them, and after the last member no process could tell them.
#[test]
fn an_observer_of_a_sequencer_that_goes_is_told_at_once() {
    for members in [1, 3] {
        for leaves in [true, false] {
            let mut net = group_of(members, 0);
            let joiner = unheard_joiner(&mut net);
            match leaves {
                true => net.leave(0),
                false if members > 1 => net.hand_over(0, 1),
                false => continue,
            }
            net.run(10 * MS);
            assert_eq!(net.phase(joiner), Phase::Gone, "of {members}, it leaves: {leaves}");
            assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::TimedOut }]);
        }
    }
}

// An answer to the question of another life at this address, or a replay of an old answer.
#[test]
fn a_joiner_believes_no_answer_to_what_it_did_not_ask() {
    let mut net = Net::new();
    let joiner = net.add(EntryMode::Join, unicast());
    let asked = Rc::new(Cell::new(false));
    let asks = asked.clone();
    net.filter(move |seen| {
        asks.set(asks.get() || seen.has(|frame| matches!(frame, Frame::JoinRequest { .. })));
        PROMPT
    });
    let here = HereIs {
        nonce: 7,
        cookie: 0,
        instance: Instance(1),
        epoch_counter: 0,
        sequencer: address(5),
        members: 1,
        condition: Condition::Open,
        ordered: 0,
    };
    let answer = forge(net.group(joiner).tag(), EpochTag::OUTSIDE, Uid(999), 1, &[Frame::HereIs(here)]);
    net.inject(joiner, address(5), &answer);
    net.drain(joiner);
    net.run(1000 * MS);
    assert!(!asked.get());
}

// The sequencer joined after the seqno where the joiner's log begins. So that log does not yet contain it as a member.
#[test]
fn a_joiner_hears_a_sequencer_that_its_log_does_not_name_yet() {
    let mut net = group_of(2, 0);
    // Histories keep what m1 may lack.
    net.filter(|seen| {
        let says_how_far = seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        if seen.from == 1 && says_how_far { LOST } else { PROMPT }
    });
    let sequencer = net.add(EntryMode::Join, unicast());
    net.run(20 * MS);
    net.hand_over(0, sequencer);
    // Until the new sequencer has heard all members.
    net.run(400 * MS);
    let marks = net.group(sequencer).marks();
    assert!(marks.acting && marks.purged < 2, "the case was not reached");
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 100 * MS, |net| net.phase(joiner) == Phase::Member), "it does not hear it");
}

// The joiner holds its JOIN and does not know it accepted, and the role moves on. A hand-over ends only joins that have
// no seqno.
#[test]
fn a_joiner_with_a_number_outlasts_a_hand_over() {
    let (mut net, joiner) = joiner_with_a_number();
    net.run(10 * MS);
    net.hand_over(0, 1);
    net.run(10 * MS);
    assert_eq!((net.phase(joiner), net.group(1).marks().acting), (Phase::Joining, true));
    net.calm();
    assert!(net.run_until(MS, 1000 * MS, |net| net.phase(joiner) == Phase::Member), "the join failed");
    assert_eq!((net.epoch(1), net.size(1)), (0, 4));
}

// All members send large messages without pause, in pieces that alternate. There is hardly a seqno at which no message
// is unfinished, and a joiner's log must begin somewhere. The joiner may also read slowly, and lose what does not fit
// its socket. The others must not overrun it.
#[test]
fn a_joiner_gets_into_a_group_that_sends_large_messages_without_pause() {
    for reads_bytes_per_ms in [1_000_000, 5_000] {
        let mut net = group_of(3, 0);
        let mut read_by = 0;
        net.filter(move |seen| {
            if seen.to != 3 {
                return PROMPT;
            }
            let begins = seen.now.max(read_by);
            let waiting = (begins - seen.now) * reads_bytes_per_ms / MS;
            if waiting > unicast().receive_buffer_bytes as u64 {
                return LOST;
            }
            read_by = begins + seen.bytes as u64 * MS / reads_bytes_per_ms;
            Some(read_by - seen.now)
        });
        let mut joiner = None;
        let is_in = (0..8_000).any(|step| {
            for sender in 0..3 {
                let now = Time::from_nanos(net.now);
                if net.group(sender).report(now).under_way < 500 {
                    net.send(sender, &[7; 300_000]).unwrap();
                }
            }
            net.run(MS / 20);
            if step == 200 {
                joiner = Some(net.add(EntryMode::Join, unicast()));
            }
            joiner.is_some_and(|index| net.phase(index) == Phase::Member)
        });
        assert!(is_in, "it is not admitted, reading {reads_bytes_per_ms} bytes/ms");
    }
}

// The sequencer holds seqnos back for the socket of an observer, but not for long if the observer sends nothing.
#[test]
fn a_joiner_that_falls_silent_delays_no_sender() {
    let mut net = group_of(3, 0);
    let welcomed = Rc::new(Cell::new(false));
    let listens = welcomed.clone();
    net.filter(move |seen| {
        let is_welcome = seen.to == 3 && seen.has(|frame| matches!(frame, Frame::Welcome(_)));
        listens.set(listens.get() || is_welcome);
        if seen.from == 3 && listens.get() { LOST } else { PROMPT }
    });
    net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 1_000 * MS, |_| welcomed.get()), "it is not an observer");
    let delivered = net.delivered(1);
    let is_done = (0..4_000).any(|_| {
        let now = Time::from_nanos(net.now);
        if net.group(0).report(now).under_way < 500 {
            net.send(0, &[7; 300_000]).unwrap();
        }
        net.run(MS / 20);
        net.delivered(1) >= delivered + 20
    });
    assert!(is_done, "{} messages in 200 ms", net.delivered(1) - delivered);
}

// A quorum holds the join, and the joiner does not. It would be in a view that it may never receive.
#[test]
fn no_process_has_joined_before_it_holds_its_own_join() {
    let mut net = group_of(3, 0);
    let numbered = Rc::new(Cell::new(false));
    let seen_join = numbered.clone();
    net.filter(move |seen| {
        seen_join.set(seen_join.get() || seen.has_join());
        if seen_join.get() && seen.to == 3 { LOST } else { PROMPT }
    });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 1_000 * MS, |_| numbered.get()), "the join is numbered");
    net.run(100 * MS);
    let has_joined = |event: &Event| matches!(event, Event::Joined { member, .. } if member.uid == uid(3));
    for index in 0..3 {
        assert!(!net.events[index].iter().any(has_joined), "m{index} reports the join");
    }
    net.calm();
    net.run(500 * MS);
    assert_eq!((net.phase(joiner), net.size(0)), (Phase::Member, 4));
}

// A founder gave way to another group, and is its sequencer now. A welcome that it sent for its own group arrives late,
// and carries the cookie that the joiner has just been given. The founder's own group does not exist any more.
#[test]
fn a_joiner_is_not_welcomed_to_another_group_than_it_asked_for() {
    let mut net = group_of(1, 0);
    let welcome = Rc::new(Cell::new(None));
    let caught = welcome.clone();
    net.filter(move |seen| {
        let is_welcome = |frame: &Frame| matches!(frame, Frame::Welcome(_));
        let Some(Frame::Welcome(found)) = seen.frames.iter().find(|frame| is_welcome(frame)) else {
            return PROMPT;
        };
        caught.set(Some(found.clone()));
        LOST
    });
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(100 * MS);
    let ours = welcome.take().expect("the case was not reached");
    let mut other = ours.clone();
    other.instance = Instance(ours.instance.0 ^ 1);
    for (number, welcome, phase) in [(1 << 40, other, Phase::Locating), ((1 << 40) + 1, ours, Phase::Joining)]
    {
        let frames = [Frame::Welcome(welcome)];
        let datagram = forge(net.group(0).tag(), EpochTag::OUTSIDE, uid(0), number, &frames);
        net.inject(joiner, address(0), &datagram);
        net.drain(joiner);
        assert_eq!(net.phase(joiner), phase);
    }
}
