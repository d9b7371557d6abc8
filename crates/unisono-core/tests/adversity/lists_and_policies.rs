//! Fixed lists of names, and resets that the application asks for.

use crate::network::*;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::*;

fn list(names: &[&str]) -> GroupConfig {
    let names = names.iter().map(|text| name(text)).collect();
    GroupConfig { quorum: Quorum::MajorityOf(names), ..GroupConfig::default() }
}

// A founder alone is no majority of its list. If that kept it from accepting joins, no group with a list would grow.
#[test]
fn a_group_with_a_list_grows_from_one() {
    let mut net = Net::new();
    net.add(EntryMode::Found(list(&["m0", "m1", "m2"])), unicast());
    net.run(100 * MS);
    net.add(EntryMode::Join, unicast());
    net.run(20_000 * MS);
    net.show("a list of three, founded by one");
    assert_eq!(net.phase(1), Phase::Member);
}

#[test]
fn a_joiner_that_is_not_on_the_list_is_refused() {
    let mut net = Net::new();
    net.add(EntryMode::Found(list(&["m0", "b"])), unicast());
    net.run(10 * MS);
    let joiner = net.add_named(EntryMode::Join, unicast(), "c");
    net.run(1_000 * MS);
    let reason = JoinFailure::NameRefused { by: address(0) };
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason }]);
}

// Two lives with one listed name ask to join at once. If both came in, one name would count twice in the majority
// (hazard H20).
#[test]
fn of_two_with_one_listed_name_one_comes_in() {
    let mut net = Net::new();
    net.add(EntryMode::Found(list(&["m0", "b"])), unicast());
    net.run(10 * MS);
    for _ in 0..2 {
        net.add_named(EntryMode::Join, unicast(), "b");
    }
    net.run(20_000 * MS);
    net.show("m1 and m2 are both b");
    assert_eq!(net.size(0), 2);
    assert_eq!((1..3).filter(|&index| net.phase(index) == Phase::Member).count(), 1);
    let failed = |event: &Event| matches!(event, Event::JoinFailed { .. });
    assert_eq!((1..3).filter(|&index| net.events[index].iter().any(failed)).count(), 1);
}

// Under the manual policy a wrong suspicion must be cleared. Otherwise the crash that follows is no new suspicion, and
// the application does not learn of it.
#[test]
fn a_crash_is_told_to_the_application_after_a_wrong_suspicion() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.run(50 * MS);
    net.cut_off(2);
    net.run(1000 * MS);
    net.calm();
    net.run(5000 * MS);
    let suspicions =
        |net: &Net| net.events[0].iter().filter(|event| matches!(event, Event::Suspected { .. })).count();
    let before = suspicions(&net);
    net.crash(2);
    net.run(5000 * MS);
    assert!(suspicions(&net) > before, "{before} before, and none for the crash");
}

// Two of a list of three are left. Neither may leave before another member has joined: the last one would never be a
// quorum.
#[test]
fn a_leave_waits_until_the_rest_is_a_majority_of_the_list() {
    let mut net = group_with(3, list(&["m0", "m1", "m2"]), unicast());
    net.leave(2);
    assert!(net.run_until(MS, 1000 * MS, |net| net.phase(2) == Phase::Gone && net.size(0) == 2));
    net.leave(1);
    net.run(2000 * MS);
    assert_eq!((net.phase(1), net.size(0)), (Phase::Leaving, 2));
    let next = net.add_named(EntryMode::Join, unicast(), "m2");
    assert!(net.run_until(MS, 2000 * MS, |net| net.phase(1) == Phase::Gone));
    assert_eq!((net.phase(next), net.size(0)), (Phase::Member, 2));
}

// The application first asks for at least three members, later for two.
#[test]
fn a_reset_brings_together_as_many_as_the_application_asks_for() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.crash(2);
    net.run(1000 * MS);
    for (min, epoch, answer) in [(3, 0, Err(ResetError::Halted { missing: 1 })), (2, 1, Ok(()))] {
        let now = Time::from_nanos(net.now);
        assert_eq!(net.group_mut(0).reset(now, min), answer);
        net.drain(0);
        // A member that promised would begin a ballot of its own in the end, without knowing the application's minimum.
        net.filter(|seen| {
            let invites = seen.has(|frame| matches!(frame, unisono_core::wire::Frame::Invite { .. }));
            if seen.from == 1 && invites { LOST } else { PROMPT }
        });
        net.run(1500 * MS);
        assert_eq!(net.epoch(0), epoch, "at least {min}");
    }
    assert_eq!((net.epoch(1), net.size(1)), (1, 2));
}

// Under *at least n* a join needs no more holders than a message of the group's resilience. A member that lacks the
// join may go on without two of three. So a message that must survive the loss of two waits until enough members hold
// the join.
#[test]
fn a_message_of_more_resilience_waits_until_the_joins_below_it_are_held_as_firmly() {
    let minute = Duration::from_secs(60);
    let config = GroupConfig { quorum: Quorum::AtLeast(1), ..GroupConfig::default() };
    let mut net = group_with(3, config, Settings { silence: minute, patience: minute, ..unicast() });
    net.cut_off(2);
    let joiner = net.add(EntryMode::Join, unicast());
    let is_in = |net: &Net| net.phase(joiner) == Phase::Member && net.size(0) == 4;
    assert!(net.run_until(MS, 2_000 * MS, is_in), "the case was not reached");
    let now = Time::from_nanos(net.now);
    let number =
        net.group_mut(0).send_with(now, Bytes::from_static(b"outlives two"), Quality::resilient(2)).unwrap();
    net.drain(0);
    net.run(500 * MS);
    let is_sent = |net: &Net| net.outcomes[0].iter().any(|(sent, _)| *sent == number);
    assert!(!is_sent(&net), "a member that may go on alone does not know of the join");
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, is_sent));
}

fn outcomes(net: &Net, member: usize) -> Vec<Outcome> {
    net.outcomes[member].iter().map(|(_, outcome)| *outcome).collect()
}

fn at_least(members_min: u16) -> GroupConfig {
    GroupConfig { members_min, ..GroupConfig::default() }
}

// A lone founder acknowledges nothing, and a group below its minimum can grow (hazard H87).
#[test]
fn messages_wait_until_the_group_has_its_minimum() {
    let mut net = group_with(1, at_least(3), unicast());
    net.send(0, b"alone").unwrap();
    net.run(1_000 * MS);
    assert_eq!(net.group(0).info().expected, 1, "a message was ordered");
    let report = net.group(0).report(Time::from_nanos(net.now));
    // One wait for each member that is missing.
    assert_eq!(
        report.waiting.iter().map(|wait| wait.reason).collect::<Vec<_>>(),
        [look::WaitReason::Minimum; 2]
    );
    assert!(report.waiting[0].since >= core::time::Duration::from_millis(900));
    let second = net.add(EntryMode::Join, unicast());
    net.run(1_000 * MS);
    net.send(second, b"two").unwrap();
    net.run(1_000 * MS);
    assert_eq!((net.size(0), net.delivered(0), net.delivered(second)), (2, 0, 0));
    let third = net.add(EntryMode::Join, unicast());
    net.run(1_000 * MS);
    assert_eq!(net.size(third), 3);
    for member in [0, second, third] {
        assert_eq!(net.delivered(member), 2, "m{member}");
    }
}

#[test]
fn a_survivor_below_the_minimum_orders_changes_and_no_message() {
    let mut net = group_with(3, at_least(2), unicast());
    net.run(100 * MS);
    net.crash(1);
    net.run(2_000 * MS);
    net.leave(2);
    net.run(2_000 * MS);
    assert_eq!((net.phase(2), net.size(0)), (Phase::Gone, 1));
    // It says that the group stands still, although no message waits.
    let says = |net: &Net| {
        let report = net.group(0).report(Time::from_nanos(net.now));
        let waits = report.waiting.iter().filter(|wait| wait.reason == look::WaitReason::Minimum).count();
        (net.group(0).standing(), report.primary, waits)
    };
    assert_eq!(says(&net), (Standing::Halted, false, 1));
    net.send(0, b"alone").unwrap();
    net.run(2_000 * MS);
    assert_eq!(net.delivered(0), 0);
    net.add(EntryMode::Join, unicast());
    net.run(1_000 * MS);
    assert_eq!(net.delivered(0), 1);
    assert_eq!(says(&net), (Standing::Primary, true, 0));
}

// A leaver does not wait for messages that may never be ordered; it learns that they are not.
#[test]
fn leavers_of_a_group_below_its_minimum_leave() {
    for leaver in [0, 1] {
        let mut net = group_with(2, at_least(3), unicast());
        net.send(leaver, b"never").unwrap();
        net.run(200 * MS);
        net.leave(leaver);
        net.run(3_000 * MS);
        assert_eq!((net.phase(leaver), net.size(1 - leaver)), (Phase::Gone, 1), "m{leaver}");
        assert_eq!(outcomes(&net, leaver), [Outcome::Failed], "m{leaver}");
    }
}

// No message is cut in two by a leave that takes the group below its minimum: the second half would never come, and no
// joiner could be let in.
#[test]
fn a_leave_that_takes_the_group_below_its_minimum_waits_for_the_last_piece() {
    let config = GroupConfig { window: 4, ..at_least(3) };
    let mut net = group_with(3, config, unicast());
    net.run(100 * MS);
    for _ in 0..2 {
        net.send(1, &[7; 100_000]).ok();
    }
    net.leave(2);
    net.run(5_000 * MS);
    assert_eq!((net.phase(2), net.size(0)), (Phase::Gone, 2));
    net.add(EntryMode::Join, unicast());
    net.run(2_000 * MS);
    assert_eq!(net.size(0), 3);
}

fn named(names: &[&str], members_min: u16) -> GroupConfig {
    let names = names.iter().map(|text| name(text)).collect();
    GroupConfig { quorum: Quorum::MajorityOfNamed(names), members_min, ..GroupConfig::default() }
}

/// Returns a group of m0 and of members with these names, founded by m0.
fn group_of_named(config: GroupConfig, others: &[&str]) -> Net {
    let mut net = group_with(1, config, unicast());
    for text in others {
        net.add_named(EntryMode::Join, unicast(), text);
        net.run(300 * MS);
    }
    assert_eq!(net.size(0), others.len() + 1);
    net
}

/// The list, the names of the others than m0, the members that crash, and whether the rest goes on.
type Case = (&'static [&'static str], &'static [&'static str], &'static [usize], bool);

// Under *majority of the named* the other members count for nothing, however many they are.
#[test]
fn only_named_members_decide_who_goes_on() {
    let cases: [Case; 6] = [
        (&["m0", "m1", "m2"], &["m1", "m2", "x", "y"], &[2, 3, 4], true),
        (&["m0", "m1", "m2"], &["m1", "m2", "x", "y"], &[0, 1], false),
        // Two are a majority of a list of five, if only they are in the view.
        (&["m0", "m1", "m2", "m3", "m4"], &["m1", "m2"], &[0], true),
        // Half of them go on with the first.
        (&["m0", "m1"], &["m1", "x", "y"], &[1, 2, 3], true),
        (&["m0", "m1"], &["x", "m1", "y"], &[0], false),
        // The first of them need not be the first member.
        (&["a", "b"], &["a", "b"], &[0, 2], true),
    ];
    for (number, (names, others, dead, goes_on)) in cases.into_iter().enumerate() {
        let mut net = group_of_named(named(names, 1), others);
        dead.iter().for_each(|&index| net.crash(index));
        net.run(6_000 * MS);
        let rest = others.len() + 1 - dead.len();
        for index in (0..=others.len()).filter(|index| !dead.contains(index)) {
            let is_on = net.epoch(index) == 1 && net.size(index) == rest;
            assert_eq!(is_on, goes_on, "case {number}, m{index}");
        }
    }
}

#[test]
fn where_the_named_have_left_the_others_go_on_only_together() {
    let mut net = group_of_named(named(&["m0"], 1), &["x", "y", "z"]);
    net.leave(0);
    assert!(net.run_until(MS, 3_000 * MS, |net| net.phase(0) == Phase::Gone && net.size(1) == 3));
    net.crash(3);
    net.run(6_000 * MS);
    assert_eq!((net.epoch(1), net.epoch(2)), (0, 0));
}

// Two lives of a listed name would be two votes. Names that are not listed have none, and any number of members has them.
#[test]
fn a_name_that_votes_is_in_the_view_once_and_others_come_in_as_they_like() {
    let mut net = group_of_named(named(&["m0", "b"], 1), &["x", "x", "b"]);
    let second = net.add_named(EntryMode::Join, unicast(), "b");
    net.run(2_000 * MS);
    assert_eq!((net.size(0), net.phase(second)), (4, Phase::Joining), "it listens");
    net.leave(3);
    assert!(net.run_until(MS, 3_000 * MS, |net| net.phase(second) == Phase::Member));
    assert_eq!(net.size(0), 4);
}

// Its minimum is a number of named members, for messages and for confirmations.
#[test]
fn only_named_members_count_towards_the_minimum() {
    let mut net = group_of_named(named(&["m0", "m1"], 2), &["x", "y"]);
    net.send(0, b"waits").unwrap();
    net.run(1_000 * MS);
    let confirm = |net: &mut Net| {
        let now = Time::from_nanos(net.now);
        net.group_mut(0).confirm(now).unwrap();
        net.drain(0);
        net.run(100 * MS);
        net.group_mut(0).poll_confirmed().is_some()
    };
    assert_eq!((net.delivered(0), confirm(&mut net), net.group(0).standing()), (0, false, Standing::Halted));
    net.add_named(EntryMode::Join, unicast(), "m1");
    net.run(1_000 * MS);
    assert_eq!((net.delivered(0), net.group_mut(0).poll_confirmed().is_some()), (1, true));
    // m0 is a quorum, and y answers; m1 does not.
    net.cut_off(3);
    assert!(!confirm(&mut net));
}

// As in a group without names: the last piece comes before the leave that takes the group below its minimum.
#[test]
fn a_leave_of_a_named_member_waits_for_the_last_piece() {
    let config = GroupConfig { window: 4, ..named(&["m0", "m1", "m2"], 3) };
    let mut net = group_of_named(config, &["m1", "m2", "x"]);
    for _ in 0..2 {
        net.send(1, &[7; 100_000]).ok();
    }
    net.leave(2);
    net.run(5_000 * MS);
    assert_eq!((net.phase(2), net.size(0)), (Phase::Gone, 3));
    net.add_named(EntryMode::Join, unicast(), "m2");
    net.run(2_000 * MS);
    assert_eq!(net.size(0), 4);
}
