//! Resets whose decision only a few members know.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

// Of the members that are alive, only the excluded ones know the decision. If they went at once, or did not send it on,
// the others would wait for it for ever (hazard H9).
#[test]
fn the_excluded_tell_the_decision_when_they_alone_know_it() {
    let mut net = group_of(5, 1);
    // m0 receives nothing from m4 but `Prepared`, so it suspects m4 and begins a reset. m3's vote is lost. m0, m3 and
    // m4 prepare. `Decided` reaches only m3 and m4, which are not in the new view {m0, m1, m2}.
    net.filter(|seen| {
        let prepared = seen.has(|frame| matches!(frame, Frame::Prepared { .. }));
        let vote = seen.has(|frame| matches!(frame, Frame::Vote(_)));
        let decided = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        let lost = seen.from == 4 && seen.to == 0 && !prepared
            || seen.from == 3 && vote
            || matches!(seen.from, 1 | 2) && prepared
            || matches!(seen.to, 1 | 2) && decided;
        if lost { LOST } else { PROMPT }
    });
    let excluded = |net: &Net| (3..5).all(|index| net.phase(index) == Phase::Excluded);
    assert!(net.run_until(MS / 20, 10_000 * MS, excluded), "the case was not reached");
    assert_eq!(net.phase(1), Phase::Resetting, "the case was not reached");
    // One crash in a group of five.
    net.crash(0);
    net.drop_flights_from(0);
    net.calm();
    net.run(20_000 * MS);
    net.show("after m0's crash and twenty calm seconds");
    assert_eq!(net.phase(1), Phase::Member, "m1 and m2 are stuck");
}

// m1 is heard again when none of the members that it knew is in the group. A member that it never knew must send it the
// exclusion, or m1 goes on asking members that are gone (hazard H6).
#[test]
fn a_member_is_told_of_its_exclusion_by_one_it_never_knew() {
    let mut net = group_of(2, 1);
    // m2 joins, a reset excludes m1, and m0 leaves.
    net.cut_off(1);
    net.add(EntryMode::Join, unicast());
    net.run(3_000 * MS);
    net.show("m1 is excluded");
    net.leave(0);
    net.run(1_000 * MS);
    net.calm();
    net.run(30_000 * MS);
    net.show("m1 is back");
    assert!(matches!(net.phase(1), Phase::Gone | Phase::Excluded), "m1 does not learn of its exclusion");
}

// m2 has crashed. At its address there is now a member of another group of the same name, in a later epoch. Asked what
// became of m0's epoch, it can only answer that m0 is not in its own epoch.
#[test]
fn a_member_of_another_group_at_the_address_of_a_dead_one_excludes_no_member() {
    let mut net = group_of(3, 0);
    let elsewhere = |index| index >= 3;
    net.filter(move |seen| if elsewhere(seen.from) == elsewhere(seen.to) { PROMPT } else { LOST });
    let other = net.add(EntryMode::Found(GroupConfig::default()), unicast());
    for member in [4, 5] {
        net.add(EntryMode::Join, unicast());
        assert!(net.run_until(MS, 500 * MS, |net| net.phase(member) == Phase::Member));
    }
    net.crash(5);
    assert!(net.run_until(MS, 1_000 * MS, |net| net.epoch(other) == 1), "the case was not reached");
    net.crash(2);
    net.filter(|seen| if (seen.from < 2) == (seen.to < 2) { PROMPT } else { LOST });
    net.add_at(2, EntryMode::Join, unicast());
    assert!(net.run_until(MS, 100 * MS, |net| net.phase(2) == Phase::Member), "the case was not reached");
    assert_eq!((net.phase(0), net.size(0)), (Phase::Member, 3), "the case was not reached");
    net.filter(|seen| if seen.from.min(seen.to) < 2 && seen.from.max(seen.to) > 2 { LOST } else { PROMPT });
    net.run(3_000 * MS);
    net.show("three seconds later");
    for index in 0..2 {
        assert_eq!((net.phase(index), net.size(index)), (Phase::Member, 2), "m{index}");
    }
}

// m2 is in the next view and lacks entries below it. An old Pull of m2 is replayed, and no replay window refuses it any
// more. A member that answered every copy would send a thousand times what m2 needs. When m2 itself asks, it is served.
#[test]
fn replayed_pulls_of_the_epoch_before_are_not_worth_sending() {
    const REPLAYS: usize = 1_000;
    const ALLOWANCE_BYTES: usize = 70_000;
    let settings = Settings { silence: Duration::from_secs(20), ..unicast() };
    let mut net = group_with(4, GroupConfig::default(), settings);
    net.run(50 * MS);
    let is_entries = |seen: &Seen| seen.to == 2 && seen.has(|frame| matches!(frame, Frame::Ordered(_)));
    net.filter(move |seen| if is_entries(seen) { LOST } else { PROMPT });
    let (tag, epoch) = (net.group(2).tag(), net.group(2).marks().epoch);
    let lacking = net.group(2).marks().received + 1;
    for _ in 0..60 {
        net.send(1, &[7; 1_000]).unwrap();
        net.run(MS);
    }
    net.crash(3);
    assert!(net.run_until(MS, 40_000 * MS, |net| net.epoch(0) == 1), "the case was not reached");
    assert_eq!(
        (net.size(0), net.epoch(2), net.phase(2)),
        (3, 0, Phase::Resetting),
        "the case was not reached"
    );

    let answered = Rc::new(Cell::new(0));
    let count = answered.clone();
    net.filter(move |seen| {
        if seen.from == 0 && seen.has(|frame| matches!(frame, Frame::Level { .. } | Frame::Decided { .. })) {
            count.set(count.get() + seen.bytes);
        }
        if seen.concerns(2) { LOST } else { PROMPT }
    });
    let ballot = Ballot { round: 1, coordinator: uid(0) };
    let pull = Frame::Pull { ballot, from: lacking, to: lacking + 59 };
    let pull = forge(tag, epoch, uid(2), 1_000_000, &[pull]);
    for _ in 0..REPLAYS {
        net.inject(0, address(9), &pull);
        net.drain(0);
        net.run(5 * MS);
    }
    let (sent, answered) = (REPLAYS * pull.len(), answered.get());
    println!("{sent} bytes of copies were answered with {answered}");
    assert!(answered > 16_000, "the case was not reached");
    assert!(answered <= sent + ALLOWANCE_BYTES, "{sent} bytes of copies were answered with {answered}");

    // m0's allowance for m2 is spent. From here on only what m2 itself sends refills it.
    net.crash(1);
    net.calm();
    net.run(5_000 * MS);
    net.show("m2 is back");
    assert_eq!((net.phase(2), net.epoch(2), net.delivered(2)), (Phase::Member, 1, 60));
}

// m2 knows the decision, and lacks entries below it. When it is heard again, the group is two epochs further, and no
// member can serve those entries. m2 must inquire what became of the epoch, or it goes on asking for the entries.
#[test]
fn a_member_that_pulls_from_an_epoch_long_over_is_told_so() {
    let mut net = group_of(6, 1);
    let told = Rc::new(Cell::new(false));
    let coordinates = told.clone();
    net.filter(move |seen| {
        let invites = seen.from == 2 && seen.has(|frame| matches!(frame, Frame::Invite { .. }));
        coordinates.set(coordinates.get() || invites);
        let entries = seen.has(|frame| matches!(frame, Frame::Ordered(_)));
        let decided = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        let lost = seen.to == 2 && (entries || decided && !coordinates.get());
        if lost { LOST } else { PROMPT }
    });
    for _ in 0..5 {
        net.send(1, b"what m2 lacks").unwrap();
        net.run(MS);
    }
    net.crash(5);
    assert!(
        net.run_until(MS, 4_000 * MS, |net| net.epoch(0) == 1 && net.size(0) == 5),
        "the case was not reached"
    );
    net.run_until(MS, 4_000 * MS, |_| told.get());
    net.run(50 * MS);
    assert_eq!((net.epoch(2), net.phase(2)), (0, Phase::Resetting), "the case was not reached");
    net.cut_off(2);
    assert!(net.run_until(MS, 4_000 * MS, |net| net.epoch(0) == 2), "the case was not reached");
    net.crash(4);
    assert!(net.run_until(MS, 4_000 * MS, |net| net.epoch(0) == 3), "the case was not reached");
    net.calm();
    net.run(5_000 * MS);
    net.show("five calm seconds");
    assert!(matches!(net.phase(2), Phase::Gone | Phase::Excluded), "m2 does not learn of its exclusion");
}

// Under *at least one*, m0 and m1 go on without each other. If m0 alone held a join and delivered it, m1 would never
// have it, although m1 lacks only one member and reports no loss.
#[test]
fn where_quorums_need_not_meet_a_join_is_held_by_more_than_may_be_missing() {
    let config = GroupConfig { quorum: Quorum::AtLeast(1), resilience: 1, ..GroupConfig::default() };
    let mut net = group_with(2, config, unicast());
    net.cut_off(1);
    net.add(EntryMode::Join, unicast());
    let joined = |net: &Net| {
        let is_join = |event: &Event| matches!(event, Event::Joined { member, .. } if member.uid == uid(2));
        net.events[0].iter().any(is_join)
    };
    assert!(net.run_until(MS, 3_000 * MS, joined), "m2 is not admitted");
    assert_eq!(net.epoch(0), 1, "delivered when only m0 held it");
    net.run(1_000 * MS);
    let loses_nothing = |event: &Event| matches!(event, Event::Reset { degraded: false, .. });
    assert!(net.events[1].iter().any(loses_nothing), "the case was not reached");
}

// m3 prepared its own proposal, a reset without m0, and was cut off before any member received it. The members in that
// proposal decided otherwise, without m3. No member is left to prepare m3's proposal, so m3 must not wait for it.
#[test]
fn with_at_least_n_a_member_whose_own_proposal_came_to_nothing_is_excluded() {
    let config = GroupConfig { quorum: Quorum::AtLeast(3), ..GroupConfig::default() };
    let mut net = group_with(4, config, unicast());
    let proposed = Rc::new(Cell::new(false));
    let is_cut_off = proposed.clone();
    net.filter(move |seen| {
        let prepares = seen.from == 3 && seen.has(|frame| matches!(frame, Frame::Prepare(_)));
        is_cut_off.set(is_cut_off.get() || prepares);
        let lost = seen.from == 0 && seen.to == 3 || is_cut_off.get() && (seen.from == 3 || seen.to == 3);
        if lost { LOST } else { PROMPT }
    });
    let gone_on = |net: &Net| (0..3).all(|member| net.epoch(member) == 1 && net.size(member) == 3);
    assert!(net.run_until(MS, 4_000 * MS, gone_on), "the case was not reached");
    assert!(proposed.get() && net.phase(3) == Phase::Resetting, "the case was not reached");
    net.calm();
    net.run(2_000 * MS);
    net.show("two calm seconds");
    assert_eq!((net.phase(3), net.epoch(0)), (Phase::Gone, 1), "m3 waits for ever");
    assert!(matches!(net.events[3].last(), Some(Event::Excluded { epoch: Some(_) })));
}

// Under *at least two* of four, the halves {m0, m1} and {m2, m3} go on without each other. m3 has prepared to go on
// with m2, and first receives the other half's decision, which does not contain m3. That decision does not exclude it.
#[test]
fn with_at_least_n_the_other_half_excludes_no_member_that_prepared_to_go_on() {
    let config = GroupConfig { quorum: Quorum::AtLeast(2), ..GroupConfig::default() };
    let mut net = group_with(4, config, unicast());
    let (prepared, told) = (Cell::new(false), Rc::new(Cell::new(false)));
    let is_told = told.clone();
    net.filter(move |seen| {
        prepared.set(
            prepared.get() || seen.from == 3 && seen.has(|frame| matches!(frame, Frame::Prepared { .. })),
        );
        let is_across = (seen.from < 2) != (seen.to < 2);
        let tells_m3 = seen.to == 3 && seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        let is_other_halfs = tells_m3 && seen.from < 2 && prepared.get();
        is_told.set(is_told.get() || is_other_halfs);
        let waits = tells_m3 && seen.from == 2 && !is_told.get();
        if waits || is_across && !is_other_halfs { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS, 4_000 * MS, |_| told.get()), "the case was not reached");
    net.run(1_000 * MS);
    net.show("a second after m3 received the decision");
    assert_eq!((net.phase(3), net.size(3)), (Phase::Member, 2), "m3 was excluded by the other half");
}

// Under *at least two* of five, m3 and m4 go on without the others. Of those, m0 and m1 do not hear m2 and go on
// without it. m0 has sent the decision to m2, but not yet to m1, when m2 learns that the other half has gone on. m2
// must linger: if m0 died, only m2 could send m1 the decision.
#[test]
fn with_at_least_n_an_excluded_member_lingers_though_the_other_half_has_gone_on() {
    let config = GroupConfig { quorum: Quorum::AtLeast(2), ..GroupConfig::default() };
    let mut net = group_with(5, config, unicast());
    let (out, told) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (is_out, is_told) = (out.clone(), told.clone());
    net.filter(move |seen| {
        let decides = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        is_out.set(is_out.get() || (seen.from, seen.to) == (0, 2) && decides);
        let has_gone_on = seen.has(|frame| matches!(frame, Frame::Decided { entered: true, .. }));
        let tells = has_gone_on && seen.from > 2 && seen.to == 2 && is_out.get();
        is_told.set(is_told.get() || tells);
        let is_across = (seen.from > 2) != (seen.to > 2);
        let is_kept_from_m1 = seen.to == 1 && decides;
        if seen.from == 2 || is_across && !tells || is_kept_from_m1 { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS, 4_000 * MS, |_| told.get()), "the case was not reached");
    net.run(20 * MS);
    net.show("20 ms after m2 learnt that the other half has gone on");
    assert!(out.get() && net.phase(1) == Phase::Resetting, "the case was not reached");
    assert_eq!(net.phase(2), Phase::Excluded, "m2 went because of the other half's decision");
}

// m2 missed a leave and a join, and the sequencer crashed. The member that knows of both is a stranger to m2, and needs
// m2's vote (hazard H17).
#[test]
fn a_member_votes_for_a_coordinator_that_it_never_heard_of() {
    let mut net = group_of(3, 0);
    net.cut_off(2);
    let joiner = net.add(EntryMode::Join, unicast());
    let joined = net.run_until(MS / 4, 200 * MS, |net| net.phase(joiner) == Phase::Member);
    net.leave(1);
    let left = net.run_until(MS / 4, 200 * MS, |net| net.phase(1) == Phase::Gone);
    assert!(joined && left && net.epoch(0) == 0, "the case was not reached");
    net.crash(0);
    net.calm();
    net.run(3000 * MS);
    net.show("three seconds after the sequencer crashed");
    assert_eq!((net.phase(2), net.phase(joiner)), (Phase::Member, Phase::Member));
    assert_eq!((net.size(2), net.epoch(2)), (2, 1));
}

// When m2 is heard again, all members that it knew have left, and the present members never knew it. Neither side can
// name the other. m2 must ask where the group is, or it begins resets for ever.
#[test]
fn a_member_that_everybody_left_behind_asks_where_its_group_is() {
    for wants_to_leave in [false, true] {
        let mut net = group_of(3, 1);
        net.cut_off(2);
        net.run(3_000 * MS);
        for _ in 0..2 {
            net.add(EntryMode::Join, unicast());
            net.run(500 * MS);
        }
        if wants_to_leave {
            net.leave(2);
        }
        for leaver in [0, 1] {
            net.leave(leaver);
            net.run(1_000 * MS);
            assert_eq!(net.phase(leaver), Phase::Gone, "the case was not reached");
        }
        net.calm();
        net.run(5_000 * MS);
        net.show("five calm seconds");
        assert_eq!(net.phase(2), Phase::Gone, "m2 does not learn of its exclusion");
        assert!(matches!(net.events[2].last(), Some(Event::Excluded { epoch: Some(_) })));
    }
}

// The other members are a quorum and could go on without a late vote. But a coordinator must wait for a vote as long as
// any member waits for the answer to a probe.
#[test]
fn a_member_that_votes_within_the_patience_of_the_coordinator_goes_on() {
    for (patience, late, goes_on) in [(100, 95, true), (400, 390, true), (100, 150, false)] {
        let settings = Settings { patience: Duration::from_millis(patience), ..unicast() };
        let mut net = group_with(5, GroupConfig::default(), settings);
        net.run(50 * MS);
        net.crash(0);
        net.filter(move |seen| {
            let votes = seen.from == 4 && seen.has(|frame| matches!(frame, Frame::Vote(_)));
            if votes { Some(late * MS) } else { PROMPT }
        });
        assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
        assert_eq!(net.size(1) == 4, goes_on, "patience {patience} ms, a vote {late} ms late");
    }
}

// Under the manual policy applications may ask for a reset at any rate. A member that has promised a ballot lets it end
// before it begins another.
#[test]
fn asking_for_a_reset_again_and_again_does_not_keep_it_from_ending() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let settings = Settings { patience: Duration::from_millis(300), ..unicast() };
    let mut net = group_with(5, config, settings);
    net.run(50 * MS);
    net.crash(0);
    net.run(500 * MS);
    // No member knows yet that m4 is lost too.
    net.cut_off(4);
    for _ in 0..40 {
        for member in 1..4 {
            let now = Time::from_nanos(net.now);
            let _ = net.group_mut(member).reset(now, 1);
            net.drain(member);
        }
        net.run(50 * MS);
    }
    net.show("two seconds after the first request");
    assert_eq!((net.epoch(1), net.size(1)), (1, 3));
}

// The application asks for at least four of five members. m4 receives nothing of this but the proposal, which it cannot
// prepare because it lacks an entry. Of the others, which promised all, two are left. The three are a quorum, but fewer
// than four, whichever of them coordinates.
#[test]
fn a_minimum_binds_a_member_that_promises_by_a_proposal_alone() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let mut net = group_with(5, config, unicast());
    net.run(50 * MS);
    net.cut_off(4);
    net.send(0, b"what m4 lacks").unwrap();
    net.run(2_000 * MS);
    net.filter(|seen| {
        let prepares = seen.has(|frame| matches!(frame, Frame::Prepare(_)));
        if seen.from != 4 && prepares == (seen.to == 4) { PROMPT } else { LOST }
    });
    let now = Time::from_nanos(net.now);
    net.group_mut(0).reset(now, 4).unwrap();
    net.drain(0);
    let promised = |net: &Net| net.phase(4) == Phase::Resetting;
    assert!(net.run_until(MS, 1_000 * MS, promised), "the case was not reached");
    assert!(net.group(4).marks().prepared.is_none(), "the case was not reached");
    net.crash(0);
    net.crash(1);
    // Nothing arrives before m4 invites. After that only m4's invitations arrive.
    let invites = Rc::new(Cell::new(false));
    let has_invited = invites.clone();
    net.filter(move |seen| {
        let is_invitation = seen.has(|frame| matches!(frame, Frame::Invite { .. }));
        invites.set(invites.get() || is_invitation && seen.from == 4);
        if invites.get() && (seen.from == 4 || !is_invitation) { PROMPT } else { LOST }
    });
    net.run(10_000 * MS);
    net.show("ten seconds later");
    assert!(has_invited.get(), "the case was not reached");
    for index in 2..5 {
        assert_eq!((net.epoch(index), net.phase(index)), (0, Phase::Resetting), "m{index} went on");
    }
}

// For example, a leaver that cannot win may outbid a coordinator again and again. A member that did not vote in one
// ballot is not waited for in the next, or no ballot would last long enough.
#[test]
fn a_coordinator_waits_once_for_a_member_that_does_not_vote() {
    let settings = Settings { patience: Duration::from_millis(400), ..unicast() };
    let mut net = group_with(5, GroupConfig::default(), settings);
    net.run(50 * MS);
    net.crash(0);
    net.crash(4);
    // Only m1's invitations arrive, and no vote for its first ballot.
    let last = Rc::new(Cell::new((0, 0)));
    let ballot_of_m1 = last.clone();
    net.filter(move |seen| {
        let is_lost = |frame: &Frame| match frame {
            Frame::Vote(vote) => vote.ballot.round == 1,
            Frame::Invite { ballot, .. } => {
                if seen.from == 1 && ballot.round > ballot_of_m1.get().0 {
                    ballot_of_m1.set((ballot.round, seen.now));
                }
                seen.from != 1
            }
            _ => false,
        };
        if seen.has(is_lost) { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    assert_eq!(net.size(1), 3);
    let (round, began) = last.get();
    assert!(round > 1, "the case was not reached");
    let took = (net.now - began) / MS;
    assert!(took < 100, "{took} ms");
}

// No vote for the first ballot arrives. When the voters are heard again, the first of them are a quorum. That is no
// reason to leave the others behind.
#[test]
fn a_member_that_did_not_vote_in_one_ballot_is_not_left_behind_in_the_next() {
    let mut net = group_with(6, GroupConfig::default(), unicast());
    net.run(50 * MS);
    net.crash(0);
    // Only m1's invitations arrive, and no vote for its first ballot. m5 is a little slower than the others.
    net.filter(move |seen| {
        let is_lost = |frame: &Frame| match frame {
            Frame::Vote(vote) => vote.ballot.round == 1,
            Frame::Invite { .. } => seen.from != 1,
            _ => false,
        };
        match seen.from {
            _ if seen.has(is_lost) => LOST,
            5 => Some(10 * LATENCY),
            _ => PROMPT,
        }
    });
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    assert_eq!(net.size(1), 5, "a live member was left behind");
}

// Three of seven, the sequencer among them, hear nothing any more. They are heard, and invite by turns without end. If
// the other four, a quorum, gave way to each of these invitations, they would never begin a reset themselves.
#[test]
fn deaf_members_do_not_keep_the_others_from_a_reset() {
    let patience = Duration::from_millis(1000);
    let mut net = group_with(7, GroupConfig::default(), Settings { patience, ..unicast() });
    net.filter(|seen| if seen.to < 3 { LOST } else { PROMPT });
    let goes_on = |net: &Net| (3..7).all(|index| net.epoch(index) == 1 && net.size(index) == 4);
    let went_on = net.run_until(10 * MS, 5_000 * MS, goes_on);
    net.show("in the end");
    assert!(went_on, "deaf members keep a quorum from going on");
}

// The straggler voted, missed the decision, and knew neither newcomer; then all members that it knew died. The
// newcomers are in an epoch that the straggler does not know. They need its vote there, and are strangers to it.
#[test]
fn a_straggler_gets_the_decision_from_newcomers() {
    let mut net = group_of(3, 0);
    net.filter(|seen| {
        let decided = seen.has(|frame| matches!(frame, Frame::Decided { .. } | Frame::Level { .. }));
        if seen.to == 2 && (seen.has_join() || decided) { LOST } else { PROMPT }
    });
    let newcomers = [net.add(EntryMode::Join, unicast()), net.add(EntryMode::Join, unicast())];
    assert!(net.run_until(MS, 3000 * MS, |net| newcomers.iter().all(|&index| net.size(index) == 5)));
    net.crash(0);
    let reset = |net: &Net| [1, 3, 4].iter().all(|&index| net.epoch(index) == 1 && net.size(index) == 4);
    assert!(net.run_until(MS, 3000 * MS, reset), "the case was not reached");
    assert_eq!(net.epoch(2), 0, "the case was not reached");
    net.crash(1);
    net.calm();
    let over = |net: &Net| [2, 3, 4].iter().all(|&index| net.epoch(index) == 2 && net.size(index) == 3);
    assert!(net.run_until(MS, 5000 * MS, over), "they wait for each other");
}

// The same, and the straggler is a joiner that has voted: it holds its JOIN and does not know it accepted. `Locate` is
// lost, so only the newcomers can begin.
#[test]
fn a_joiner_that_voted_and_missed_the_decision_is_told_by_newcomers() {
    let mut net = group_of(3, 0);
    let (straggler, own_join) = (3, 3);
    net.filter(move |seen| {
        let tells = |frame: &Frame| match frame {
            Frame::Heartbeat(beat) => beat.accepted >= own_join,
            Frame::Change { seqno, .. } => *seqno > own_join,
            Frame::Prepare(_) | Frame::Decided { .. } | Frame::Level { .. } => true,
            _ => false,
        };
        // m1 or m2 is to coordinate.
        let invites = seen.has(|frame| matches!(frame, Frame::Invite { .. }));
        if seen.to == straggler && seen.has(tells) || seen.from >= straggler && invites {
            LOST
        } else {
            PROMPT
        }
    });
    for _ in 0..3 {
        net.add(EntryMode::Join, unicast());
        net.run(30 * MS);
    }
    let reached = (net.size(0), net.phase(straggler), net.size(straggler));
    assert_eq!(reached, (6, Phase::Joining, 4), "the case was not reached");
    net.crash(0);
    let reset = |net: &Net| [1, 2, 4, 5].iter().all(|&index| net.epoch(index) == 1 && net.size(index) == 5);
    assert!(net.run_until(MS, 3000 * MS, reset), "the case was not reached");
    assert_eq!((net.phase(straggler), net.epoch(straggler)), (Phase::Joining, 0), "the case was not reached");
    net.crash(1);
    net.crash(2);
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Locate { .. })) { LOST } else { PROMPT });
    let over = |net: &Net| [3, 4, 5].iter().all(|&index| net.epoch(index) == 2 && net.size(index) == 3);
    assert!(net.run_until(MS, 5000 * MS, over), "they wait for each other");
}

// Of the members that are alive, only one that is excluded knows the decision, and it never heard of the members that
// joined last. They are no quorum without it, and it does not vote any more. It sends the decision to any member that
// invites it.
#[test]
fn an_excluded_member_sends_the_decision_to_members_that_it_never_knew() {
    let mut net = group_of(2, 0);
    let decided = |seen: &Seen| seen.has(|frame| matches!(frame, Frame::Decided { .. }));
    net.filter(|seen| if seen.to == 1 && seen.has_join() { LOST } else { PROMPT });
    for _ in 0..2 {
        net.add(EntryMode::Join, unicast());
        net.run(100 * MS);
    }
    assert_eq!((net.size(0), net.size(1), net.size(3)), (4, 2, 4), "the case was not reached");
    net.filter(move |seen| if seen.from == 1 || seen.to > 1 && decided(seen) { LOST } else { PROMPT });
    let excluded = |net: &Net| net.phase(1) == Phase::Excluded;
    assert!(net.run_until(MS / 20, 3000 * MS, excluded), "the case was not reached");
    net.crash(0);
    net.drop_flights_from(0);
    assert_eq!(
        (net.phase(2), net.phase(3)),
        (Phase::Resetting, Phase::Resetting),
        "the case was not reached"
    );
    net.calm();
    let over =
        |net: &Net| [2, 3].iter().all(|&index| net.phase(index) == Phase::Member && net.size(index) == 2);
    assert!(net.run_until(MS, 5000 * MS, over), "they are stuck");
}

// All members that a member knew may be gone, and a full group may consist of strangers, each of which may be the one
// that coordinates.
#[test]
fn as_many_strangers_are_heard_as_a_group_may_have_members() {
    let mut net = group_with(2, GroupConfig { members_max: 2, ..GroupConfig::default() }, unicast());
    let (group, epoch) = (net.group(1).tag(), net.group(1).marks().epoch);
    let asked = Rc::new(Cell::new(0));
    let asks = asked.clone();
    net.filter(move |seen| {
        let probes = seen.from == 1 && seen.has(|frame| matches!(frame, Frame::Probe { .. }));
        asks.set(asks.get().max(if probes { seen.to } else { 0 }));
        PROMPT
    });
    for place in [2, 3] {
        let stranger = Uid(900 + place as u64);
        let invite = Frame::Invite { ballot: Ballot { round: 1, coordinator: stranger }, members_min: 0 };
        net.inject(1, address(place), &forge(group, epoch, stranger, 1, &[invite]));
        net.drain(1);
        assert_eq!(asked.get(), place, "the stranger is not probed");
    }
}

// m3 receives the decision and lacks an entry below it. The member that sent the decision dies before it has served
// that entry. Other members hold it.
#[test]
fn what_a_member_lacks_of_a_decision_it_gets_from_anybody() {
    let mut net = group_of(5, 0);
    net.filter(|seen| {
        let orders = seen.has(|frame| matches!(frame, Frame::Ordered(_)));
        if seen.to == 3 && orders { LOST } else { PROMPT }
    });
    net.send(0, b"x").unwrap();
    net.run(MS);
    net.crash(0);
    net.filter(|seen| {
        let prepares = seen.has(|frame| matches!(frame, Frame::Prepare(_) | Frame::Level { .. }));
        let tells = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        let repairs = seen.has(|frame| matches!(frame, Frame::Ordered(_)));
        if seen.to == 3 && (prepares || repairs || seen.from != 1 && tells) { LOST } else { PROMPT }
    });
    let reset = |net: &Net| [1, 2, 4].iter().all(|&index| net.epoch(index) == 1);
    assert!(net.run_until(MS / 20, 2000 * MS, reset), "the case was not reached");
    net.run(MS);
    net.crash(1);
    assert_eq!((net.epoch(3), net.size(2)), (0, 4), "the case was not reached");
    net.calm();
    let over = |net: &Net| [2, 3, 4].iter().all(|&index| net.epoch(index) == 2 && net.size(index) == 3);
    assert!(net.run_until(MS, 5000 * MS, over), "they are stuck");
    assert_eq!(net.delivered(3), 1);
}

// The reset finds the first pieces of m1's message in the log, and only m1 has the rest. The message is given up once,
// as a whole. What m1 sends next is no part of it, and no join waits for its end.
#[test]
fn a_message_that_a_reset_cuts_short_is_given_up_by_all() {
    let mut net = group_of(4, 1);
    net.filter(|seen| {
        let is_later_piece = |frame: &Frame| matches!(frame, Frame::Data(data) if data.first > 3);
        if seen.from == 1 && seen.has(is_later_piece) { LOST } else { PROMPT }
    });
    net.send(1, &[7; 50_000]).unwrap();
    net.run(20 * MS);
    let before = net.group(2).marks().received;
    assert!(before > 4 && net.delivered(2) == 0, "the case was not reached");
    net.crash(3);
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(0) == 1 && net.epoch(1) == 1));
    net.calm();
    net.run(500 * MS);
    assert_eq!(net.outcomes[1].len(), 1, "m1 gets an outcome for each piece");
    assert_eq!(net.outcomes[1][0].1, Outcome::Failed);
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(joiner) == Phase::Member), "no joiner is admitted");
    net.send(1, b"next").unwrap();
    net.run(100 * MS);
    for index in [0, 1, 2, joiner] {
        let is_next =
            |event: &&Event| matches!(event, Event::Message { payload, .. } if &payload[..] == b"next");
        assert_eq!((net.delivered(index), net.events[index].iter().filter(is_next).count()), (1, 1));
    }
}

// The reset may have accepted what comes before its event and was not delivered yet. A service is told so before it gets
// that: it answers no caller meanwhile.
#[test]
fn a_service_is_told_of_a_reset_before_it_gets_what_the_reset_accepted() {
    for keeps_state in [true, false] {
        let config = GroupConfig { keeps_state, resilience: 2, ..GroupConfig::default() };
        let mut net = group_with(3, config, unicast());
        (0..3).for_each(|index| net.group_mut(index).note_state());
        net.send(1, b"accepted before").unwrap();
        net.run(50 * MS);
        // All hold the next message, and no acknowledgement arrives.
        let acknowledges = |frame: &Frame| matches!(frame, Frame::Watermarks(_));
        net.filter(move |seen| if seen.to == 0 && seen.has(acknowledges) { LOST } else { PROMPT });
        net.send(1, b"accepted by the reset").unwrap();
        net.run(5 * MS);
        let before = net.events[1].len();
        net.crash(0);
        net.calm();
        net.run(3_000 * MS);
        let came = &net.events[1][before..];
        let Some(Event::Reset { seqno: reset, .. }) = came.last() else { panic!("{came:?}") };
        let ahead = Event::ResetAhead { seqno: *reset };
        assert!(came.iter().any(|event| matches!(event, Event::Message { .. })), "{came:?}");
        assert_eq!(came.first() == Some(&ahead), keeps_state, "{came:?}");
        // The next reset accepts nothing that is not delivered.
        let before = net.events[1].len();
        net.crash(2);
        net.run(3_000 * MS);
        assert!(!net.events[1][before..].iter().any(|event| matches!(event, Event::ResetAhead { .. })));
    }
}
