//! Finding a group and founding one: many processes that begin together, groups out of reach, and two groups of one
//! name.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use unisono_core::wire::*;
use unisono_core::*;

// The name is taken, although the group cannot admit the newcomer. If the newcomer founded a group, there would be two
// (hazard H6).
#[test]
fn no_joiner_founds_beside_a_group_without_a_quorum() {
    for automatic in [true, false] {
        let config = GroupConfig { automatic, ..GroupConfig::default() };
        let mut net = group_with(3, config, unicast());
        net.run(100 * MS);
        net.crash(0);
        net.crash(1);
        net.run(1000 * MS);
        let joiner = net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
        net.run(10_000 * MS);
        let expected = Event::JoinFailed { reason: JoinFailure::Halted };
        assert_eq!(net.events[joiner], [expected], "automatic: {automatic}");
    }
}

// A joiner that gives up just when the first answer arrives must not report a failure: the group is there.
#[test]
fn join_or_found_takes_an_answer_of_the_last_moment() {
    let enter = || EntryMode::JoinOrFound(GroupConfig::default());
    // The time until a lone process founds the group; its seed determines it.
    let patience = {
        let mut alone = Net::new();
        alone.add_empty_host();
        let joiner = alone.add(enter(), unicast());
        assert!(alone.run_until(MS / 10, 60_000 * MS, |net| net.phase(joiner) != Phase::Locating));
        alone.now
    };
    let mut net = group_of(1, 1);
    net.run(24_950 * MS);
    let at = net.now + patience - 5 * MS;
    let joiner = net.add(enter(), unicast());
    net.drop_flights();
    net.filter(move |seen| {
        if seen.from == 0 && seen.to == joiner && seen.now < at { Some(at - seen.now) } else { PROMPT }
    });
    net.run(20_000 * MS);
    let last = net.events[joiner].last();
    assert!(!matches!(last, Some(Event::JoinFailed { .. })), "{last:?}");
}

// A joiner that knows of the group and cannot reach its sequencer must not found a second one.
#[test]
fn a_group_whose_sequencer_is_out_of_reach_is_not_founded_again() {
    let mut net = Net::new();
    net.add_empty_host();
    let asked = Rc::new(Cell::new(None));
    let question = asked.clone();
    net.filter(move |seen| {
        seen.has(|frame| {
            if let Frame::Locate { nonce } = frame {
                question.set(Some(*nonce));
            }
            false
        });
        PROMPT
    });
    let joiner = net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
    assert!(net.run_until(MS, 100 * MS, |_| asked.get().is_some()));
    let here = HereIs {
        nonce: asked.get().unwrap(),
        cookie: 0,
        instance: Instance(1),
        epoch_counter: 3,
        sequencer: address(7),
        members: 4,
        condition: Condition::Open,
        ordered: 9,
    };
    let answer = forge(net.group(joiner).tag(), EpochTag::OUTSIDE, uid(5), 1, &[Frame::HereIs(here)]);
    net.inject(joiner, address(5), &answer);
    net.run(10_000 * MS);
    let reason = JoinFailure::Unreachable { sequencer: address(7) };
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason }]);
}

// Many processes start, and each finds no group. One of them founds the group. Two must not, with others joining each
// of them.
#[test]
fn of_many_that_start_together_one_founds_the_group() {
    for delay in 0..10 {
        let mut net = Net::new();
        net.run(delay * 1_234_567);
        for _ in 0..PLACES {
            net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
            net.run(delay * MS);
        }
        assert!(
            net.run_until(MS, 5000 * MS, |net| (0..PLACES).all(|index| net.size(index) == PLACES)),
            "{delay}"
        );
        let founded = |index: &usize| matches!(net.events[*index][0], Event::Entered { seqno: 0, .. });
        assert_eq!((0..PLACES).filter(founded).count(), 1, "{delay}");
    }
}

// The smallest uid may belong to a process that only wants to join. A process that would found the group waits for it,
// but not for ever.
#[test]
fn one_that_only_asks_does_not_keep_others_from_founding() {
    let mut net = Net::new();
    let (asks, founds) = (
        net.add(EntryMode::Join, unicast()),
        net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast()),
    );
    assert!(uid(asks) < uid(founds));
    assert!(net.run_until(MS, 1000 * MS, |net| net.phase(founds) == Phase::Member));
    assert!(net.run_until(MS, 1000 * MS, |net| net.phase(asks) == Phase::Member));
}

/// Returns two groups of one name, of three members and of two, that have not heard each other for `apart` nanoseconds.
fn two_groups(apart: u64, settings: &Settings) -> Net {
    let mut net = Net::new();
    net.filter(|seen| if (seen.from < 3) == (seen.to < 3) { PROMPT } else { LOST });
    for first in [0, 3] {
        net.add(EntryMode::JoinOrFound(GroupConfig::default()), settings.clone());
        net.run(600 * MS);
        for member in first + 1..if first == 0 { 3 } else { 5 } {
            net.add(EntryMode::Join, settings.clone());
            net.run(300 * MS);
            assert_eq!(net.phase(member), Phase::Member);
        }
    }
    assert_eq!((net.size(0), net.size(3)), (3, 2));
    net.run(apart);
    net
}

/// Returns, for each conflict that this member reported, whether its own group is to give way.
fn conflicts(net: &Net, member: usize) -> Vec<bool> {
    let told = |event: &Event| match event {
        Event::Conflict { gives_way, .. } => Some(*gives_way),
        _ => None,
    };
    net.events[member].iter().filter_map(told).collect()
}

// If only lone founders looked for other groups, two groups that had members before they heard each other would never
// learn of each other (hazard H56).
#[test]
fn groups_founded_apart_learn_of_each_other_whatever_their_size_and_however_late() {
    for (apart, within) in [(0, 4_000), (3_600_000, 19_000)] {
        let mut net = two_groups(apart * MS, &unicast());
        // The member of rank 0 looks for other groups, whichever member is the sequencer.
        net.hand_over(3, 4);
        net.run(100 * MS);
        net.calm();
        let all_told = |net: &Net| (0..5).all(|member| !conflicts(net, member).is_empty());
        assert!(net.run_until(MS, within * MS, all_told), "not within {within} ms, {apart} ms apart");
        let joiner = net.add(EntryMode::Join, unicast());
        net.run(120_000 * MS);
        let gives_way = conflicts(&net, 0);
        assert_eq!(gives_way.len(), 1, "reported once");
        for (member, expected) in
            [(1, gives_way[0]), (2, gives_way[0]), (3, !gives_way[0]), (4, !gives_way[0])]
        {
            assert_eq!(conflicts(&net, member), [expected], "m{member}");
        }
        // A newcomer joins the group that does not give way.
        let stays = if gives_way[0] { 3 } else { 0 };
        assert_eq!(net.group(joiner).info().instance, net.group(stays).info().instance);
        assert_eq!(conflicts(&net, joiner), [false], "a newcomer reports it too");
    }
}

// The member that meets the other group reports it to its own group once. It cannot know whether the members hear its
// multicasts.
#[test]
fn members_learn_of_another_group_though_multicast_does_not_reach_them() {
    let mut net = two_groups(0, &Settings::default());
    assert!(net.group(0).audience().multicast, "the case was not reached");
    net.filter(|seen| {
        let passes_on = !seen.outside && seen.has(|frame| matches!(frame, Frame::Met(_)));
        if seen.multicast && passes_on { LOST } else { PROMPT }
    });
    let all_told = |net: &Net| (0..5).all(|member| !conflicts(net, member).is_empty());
    assert!(net.run_until(MS, 19_000 * MS, all_told), "a member did not report the conflict");
}

// No process has used the group of such a founder, so the founder may dissolve it.
#[test]
fn a_founder_that_has_ordered_nothing_gives_way_however_late() {
    let mut net = Net::new();
    net.filter(|_| LOST);
    for _ in 0..2 {
        net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
    }
    net.run(600_000 * MS);
    assert_eq!((net.size(0), net.size(1)), (1, 1), "the case was not reached");
    net.calm();
    assert!(net.run_until(MS, 20_000 * MS, |net| net.size(0) == 2 && net.size(1) == 2), "still two groups");
    assert!(conflicts(&net, 0).is_empty() && conflicts(&net, 1).is_empty());
}

// Seed 99311297 of `reset`: the group that it gave way to was halted, and its answers were lost.
#[test]
fn a_founder_that_gave_way_to_a_used_group_founds_no_second_one() {
    let mut net = group_of(2, 1);
    net.run(300 * MS);
    let answers = Rc::new(Cell::new(0));
    let count = answers.clone();
    net.filter(move |seen| {
        let answers = seen.to == 2 && seen.has(|frame| matches!(frame, Frame::HereIs(_)));
        count.set(count.get() + u32::from(answers));
        if answers && count.get() == 1 || seen.from == 2 { PROMPT } else { LOST }
    });
    let founder = net.add(EntryMode::Found(GroupConfig::default()), unicast());
    let gives_way = |net: &Net| net.group(founder).phase() == Phase::Locating;
    assert!(net.run_until(MS, 1_000 * MS, gives_way), "the case was not reached");
    let founds = |net: &Net| net.group(founder).phase() == Phase::Member;
    assert!(!net.run_until(MS, 10_000 * MS, founds));
}

#[test]
fn a_group_that_knows_of_no_other_asks_four_times_a_minute() {
    let mut net = group_of(5, 1);
    net.run(60_000 * MS);
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    net.filter(move |seen| {
        let asks = seen.to == 11 && seen.has(|frame| matches!(frame, Frame::Locate { .. }));
        count.set(count.get() + u32::from(asks));
        PROMPT
    });
    net.run(600_000 * MS);
    assert!((30..=55).contains(&asked.get()), "{} questions in ten minutes", asked.get());
}

/// Returns three groups of two members each, which hear each other from now on.
fn three_groups() -> Net {
    let mut net = Net::new();
    net.filter(|seen| if seen.from / 2 == seen.to / 2 { PROMPT } else { LOST });
    for _ in 0..3 {
        net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
        net.run(600 * MS);
        net.add(EntryMode::Join, unicast());
        net.run(300 * MS);
    }
    assert!((0..6).all(|member| net.size(member) == 2));
    net.calm();
    net
}

// Each of the other groups answers every question.
#[test]
fn of_three_groups_each_is_told_of_both_others_once() {
    let mut net = three_groups();
    net.run(600_000 * MS);
    for member in 0..6 {
        assert_eq!(conflicts(&net, member).len(), 2, "m{member}");
    }
}

// A process without the key can replay what it has recorded: an answer to an old question, or the same answer over and
// over.
#[test]
fn answers_that_are_replayed_are_not_passed_on() {
    let mut net = two_groups(0, &unicast());
    let answers = Rc::new(Cell::new(Vec::new()));
    let passed_on = Rc::new(Cell::new(0));
    let (recorded, count) = (answers.clone(), passed_on.clone());
    net.filter(move |seen| {
        for frame in &seen.frames {
            if matches!(frame, Frame::HereIs(_)) && seen.outside && seen.from >= 3 && seen.to == 0 {
                let mut all = recorded.take();
                all.push(frame.clone());
                recorded.set(all);
            } else if matches!(frame, Frame::Met(_)) && !seen.outside && seen.from == 0 {
                count.set(count.get() + 1);
            }
        }
        PROMPT
    });
    assert!(net.run_until(MS, 20_000 * MS, |net| passed_on.get() > 0 && conflicts(net, 0).len() == 1));
    let tag = net.group(0).tag();
    let replay = |net: &mut Net, times: u64| {
        let frames: Vec<Frame> = answers.take();
        answers.set(frames.clone());
        passed_on.set(0);
        for number in 0..times {
            let copy = forge(tag, EpochTag::OUTSIDE, uid(3), 1_000 + number, &frames);
            net.inject(0, address(9), &copy);
            net.drain(0);
        }
        passed_on.get()
    };
    assert_eq!(replay(&mut net, 100), 0, "the same answer");
    // The other group does not exist any more, and a newcomer must not hear of it.
    net.crash(3);
    net.crash(4);
    net.run(30_000 * MS);
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(300 * MS);
    assert_eq!(replay(&mut net, 1), 0, "an old answer");
    net.run(300 * MS);
    assert!(conflicts(&net, joiner).is_empty());
}

// The verdict does not depend on which group asks, nor on how the groups were founded (hazard H87).
#[test]
fn of_two_groups_the_one_with_fewer_ordered_events_gives_way() {
    for busy in [1, 4] {
        let mut net = two_groups(0, &unicast());
        for _ in 0..20 {
            net.send(busy, b"state").unwrap();
            net.run(MS);
        }
        net.run(200 * MS);
        net.calm();
        let all_told = |net: &Net| (0..5).all(|member| !conflicts(net, member).is_empty());
        assert!(net.run_until(MS, 19_000 * MS, all_told), "a member did not report the conflict");
        for member in 0..5 {
            let is_busy = (member < 3) == (busy < 3);
            assert_eq!(conflicts(&net, member), [!is_busy], "m{member}, m{busy} sends");
            let others = net.events[member].iter().find_map(|event| match event {
                Event::Conflict { other_ordered, .. } => Some(*other_ordered),
                _ => None,
            });
            assert_eq!(others.unwrap() >= 20, !is_busy, "m{member}: {others:?}");
        }
        let joiner = net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
        net.run(1_000 * MS);
        assert_eq!(net.group(joiner).info().instance, net.group(busy).info().instance, "the newcomer");
    }
}

// Both groups go on ordering while they meet: one verdict counts for all members of both.
#[test]
fn two_busy_groups_get_one_verdict() {
    let mut net = two_groups(0, &unicast());
    net.calm();
    for _ in 0..400 {
        for member in [0, 1, 3, 4] {
            net.send(member, b"more").ok();
        }
        net.run(10 * MS);
    }
    net.run(20_000 * MS);
    let gives_way = conflicts(&net, 0);
    assert_eq!(gives_way.len(), 1);
    for member in 1..5 {
        assert_eq!(conflicts(&net, member), [gives_way[0] == (member < 3)], "m{member}");
    }
}

fn is_of(first: usize, member: usize) -> bool {
    (member < 3) == (first < 3)
}

/// Only the group whose first member is `first` can ask the other one. If `untold`, its verdict does not arrive there.
fn only_asks(net: &mut Net, first: usize, untold: bool) {
    net.filter(move |seen| {
        let asks = seen.has(|frame| matches!(frame, Frame::Locate { .. }));
        let tells = seen.has(|frame| matches!(frame, Frame::Met(_)));
        let passes = is_of(first, seen.from) == is_of(first, seen.to)
            || (!asks || is_of(first, seen.from)) && !(tells && untold);
        if passes { PROMPT } else { LOST }
    });
}

/// Returns two groups each of which takes the other for the one to give way: the group of `first` decided so while it had
/// ordered more, the other group after it had overtaken that one, and neither word arrived.
fn two_verdicts(first: usize) -> Net {
    let mut net = two_groups(0, &unicast());
    for (busy, messages) in [(first, 5), (3 - first, 20)] {
        net.filter(|seen| if is_of(0, seen.from) == is_of(0, seen.to) { PROMPT } else { LOST });
        for _ in 0..messages {
            net.send(busy, b"more").unwrap();
            net.run(MS);
        }
        net.run(200 * MS);
        only_asks(&mut net, busy, true);
        let all_told = |net: &Net| {
            (0..5).filter(|member| is_of(busy, *member)).all(|member| !conflicts(net, member).is_empty())
        };
        assert!(net.run_until(MS, 20_000 * MS, all_told), "the case was not reached");
    }
    assert!((0..5).all(|member| conflicts(&net, member) == [false]), "the case was not reached");
    net
}

// A verdict was lost, so that each group decided that the other is to give way. One of the groups changes its mind,
// whichever can ask; otherwise both would stay for ever.
#[test]
fn two_groups_that_both_mean_to_stay_agree() {
    for (first, asks) in [(0, 0), (0, 3), (3, 0), (3, 3)] {
        let mut net = two_verdicts(first);
        only_asks(&mut net, asks, false);
        net.run(60_000 * MS);
        let instance = |member: usize| net.group(member).info().instance;
        let larger = if instance(0) > instance(3) { 0 } else { 3 };
        for member in 0..5 {
            let expected: &[bool] = if is_of(larger, member) { &[false, true] } else { &[false] };
            assert_eq!(conflicts(&net, member), expected, "m{member}, m{first} first, m{asks} asks");
        }
    }
}

// The other group never learnt the verdict, and decides that this one is to stay, which has ordered more since. But members
// that were told to give way may be gone already.
#[test]
fn a_group_that_was_told_to_give_way_is_not_told_to_stay() {
    let mut net = two_groups(0, &unicast());
    let instance = |member: usize| net.group(member).info().instance;
    let told = if instance(0) > instance(3) { 0 } else { 3 };
    for (busy, messages, asks) in [(3 - told, 5, told), (told, 20, 3 - told)] {
        net.filter(|seen| if is_of(0, seen.from) == is_of(0, seen.to) { PROMPT } else { LOST });
        for _ in 0..messages {
            net.send(busy, b"more").unwrap();
            net.run(MS);
        }
        net.run(200 * MS);
        only_asks(&mut net, asks, asks == told);
        let all_told = |net: &Net| {
            (0..5).filter(|member| is_of(asks, *member)).all(|member| !conflicts(net, member).is_empty())
        };
        assert!(net.run_until(MS, 20_000 * MS, all_told), "the case was not reached");
    }
    net.run(60_000 * MS);
    assert!((0..5).all(|member| conflicts(&net, member) == [true]));
}

// The group that gives way has ordered more since. The newcomer must not be told to stay because its group has fewer.
#[test]
fn an_old_verdict_is_repeated_with_its_counts() {
    for (stays, asks) in [(0, 0), (0, 3), (3, 0), (3, 3)] {
        let mut net = two_groups(0, &unicast());
        for _ in 0..5 {
            net.send(stays, b"more").unwrap();
            net.run(MS);
        }
        net.run(200 * MS);
        net.calm();
        let all_told = |net: &Net| (0..5).all(|member| !conflicts(net, member).is_empty());
        assert!(net.run_until(MS, 20_000 * MS, all_told), "the case was not reached");
        for _ in 0..20 {
            net.send(3 - stays, b"more").unwrap();
            net.run(MS);
        }
        let joiner = net.members.len();
        net.filter(move |seen| {
            let asks_back =
                !is_of(asks, seen.from) && seen.has(|frame| matches!(frame, Frame::Locate { .. }));
            let hears = |member: usize| member == joiner || is_of(stays, member);
            let is_joiners = seen.from == joiner || seen.to == joiner;
            let passes = if is_joiners { hears(seen.from) && hears(seen.to) } else { !asks_back };
            if passes { PROMPT } else { LOST }
        });
        net.add(EntryMode::Join, unicast());
        net.run(60_000 * MS);
        let told: Vec<_> = net.events[joiner]
            .iter()
            .filter_map(|event| match event {
                Event::Conflict { gives_way, other_ordered, .. } => Some((*gives_way, *other_ordered < 5)),
                _ => None,
            })
            .collect();
        assert_eq!(told, [(false, true)], "m{stays} stays, m{asks} asks");
    }
}

// A verdict counts only with the cookie of a recent answer to the member that sends it.
#[test]
fn a_verdict_without_the_cookie_of_an_answer_is_ignored() {
    let mut net = group_of(2, 1);
    net.run(100 * MS);
    let met = Met {
        cookie: 5,
        instance: Instance(1),
        ordered: 9,
        ordered_here: 8,
        gives_way: true,
        from_other: true,
        address: address(9),
    };
    let forged = forge(net.group(0).tag(), EpochTag::OUTSIDE, uid(9), 1, &[Frame::Met(met)]);
    net.inject(0, address(9), &forged);
    net.run(1_000 * MS);
    assert!(conflicts(&net, 0).is_empty() && conflicts(&net, 1).is_empty());
}

// The joiner hears every member but the sequencer (hazard H87).
#[test]
fn members_answer_for_a_sequencer_that_the_joiner_does_not_hear() {
    for settings in [unicast(), Settings { locate: core::time::Duration::from_millis(30), ..unicast() }] {
        let mut net = group_of(5, 1);
        net.run(100 * MS);
        let joiner = net.members.len();
        let asked = Rc::new(Cell::new(0));
        let answered = Rc::new(Cell::new(0));
        let (questions, answers) = (asked.clone(), answered.clone());
        net.filter(move |seen| {
            let (here, there) = ((seen.from, seen.to) == (0, joiner), (seen.from, seen.to) == (joiner, 0));
            let asks = seen.has(|frame| matches!(frame, Frame::Locate { .. }));
            questions.set(questions.get() + u32::from(asks && seen.from == joiner && seen.to == 1));
            let answers_it = seen.outside && seen.has(|frame| matches!(frame, Frame::HereIs(_)));
            answers.set(answers.get() + u32::from(answers_it && seen.to == joiner));
            if here || there { LOST } else { PROMPT }
        });
        net.add(EntryMode::JoinOrFound(GroupConfig::default()), settings);
        net.run(10_000 * MS);
        let reason = JoinFailure::Unreachable { sequencer: address(0) };
        assert_eq!(net.events[joiner], [Event::JoinFailed { reason }]);
        let (asked, answered) = (asked.get(), answered.get());
        assert!(answered <= 3 * asked, "{answered} answers to {asked} questions");
    }
}

// The sequencer answered the joiner, then all members that it hears die one after the other.
#[test]
fn a_joiner_that_heard_a_group_that_was_used_never_founds() {
    let mut net = group_of(2, 1);
    net.send(0, b"state").unwrap();
    net.run(100 * MS);
    let answered = Rc::new(Cell::new(false));
    let seen_answer = answered.clone();
    net.filter(move |seen| {
        seen_answer.set(seen_answer.get() || seen.has(|frame| matches!(frame, Frame::HereIs(_))));
        if seen.has(|frame| matches!(frame, Frame::JoinRequest { .. })) { LOST } else { PROMPT }
    });
    let joiner = net.add(EntryMode::JoinOrFound(GroupConfig::default()), unicast());
    assert!(net.run_until(MS / 20, 100 * MS, |_| answered.get()), "the case was not reached");
    net.run(20 * MS);
    net.crash(0);
    net.crash(1);
    net.run(60_000 * MS);
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::Lost }]);
}

/// Returns three participants that look for the group, and form it if they find none.
fn participants() -> Net {
    let mut net = Net::new();
    join_the_formation(&mut net, 3);
    net
}

fn join_the_formation(net: &mut Net, count: usize) {
    let names: Vec<Name> = ["a", "b", "c"].map(name).into();
    for text in ["a", "b", "c"].iter().take(count) {
        let within = core::time::Duration::from_secs(10);
        let formation = Formation { participants: names.clone(), at_least: 2, within };
        net.add_named(EntryMode::JoinOrForm(formation, GroupConfig::default()), unicast(), text);
    }
}

// The decision names a participant that does not learn it, and that hears of the group meanwhile. The group counts on
// it, so it must not join as another member.
#[test]
fn a_participant_that_missed_the_decision_learns_it_when_it_asks_to_join() {
    let mut net = participants();
    let asked = Rc::new(Cell::new(false));
    let asks = asked.clone();
    net.filter(move |seen| {
        asks.set(
            asks.get() || seen.from == 2 && seen.has(|frame| matches!(frame, Frame::JoinRequest { .. })),
        );
        let decision = seen.has(|frame| matches!(frame, Frame::Formed { .. } | Frame::FormPrepare { .. }));
        if seen.to == 2 && decision && !asks.get() { LOST } else { PROMPT }
    });
    net.run(3_000 * MS);
    assert!(asked.get(), "the case was not reached");
    for member in 0..3 {
        assert_eq!(
            (net.phase(member), net.size(member), net.epoch(member)),
            (Phase::Member, 3, 0),
            "m{member}"
        );
    }
}

// The third participant hears one of the others, and not the coordinator, which forms the group without it.
#[test]
fn a_participant_that_is_left_out_joins() {
    let mut net = participants();
    net.filter(|seen| {
        let forms = seen.has(|frame| {
            matches!(frame, Frame::Form { .. } | Frame::FormPromise(_) | Frame::FormPrepare { .. })
        });
        if forms && seen.concerns(2) { LOST } else { PROMPT }
    });
    net.run(5_000 * MS);
    assert!(matches!(net.events[2].first(), Some(Event::Entered { seqno: 1.., .. })), "{:?}", net.events[2]);
    assert_eq!(net.size(0), 3);
}

// Both participants that start anew hear one member of the group, and a majority of the list could form another.
#[test]
fn participants_that_hear_a_member_form_no_second_group() {
    let mut net = participants();
    net.run(1_000 * MS);
    net.send(0, b"state").unwrap();
    net.run(100 * MS);
    net.crash(0);
    net.crash(1);
    net.run(1_000 * MS);
    join_the_formation(&mut net, 2);
    net.run(15_000 * MS);
    for late in [3, 4] {
        assert_eq!(net.events[late], [Event::JoinFailed { reason: JoinFailure::Halted }], "m{late}");
    }
}

// The last member leaves with the reset. A joiner that missed it only later would wait for a minute, since no member is heard.
#[test]
fn a_joiner_learns_at_once_that_its_epoch_ends() {
    // The first of two may go on alone.
    let quorum = Quorum::MajorityOfView;
    let config = GroupConfig { resilience: 1, quorum, automatic: false, ..GroupConfig::default() };
    let mut net = group_with(2, config, unicast());
    // It gets no seqno: it is not heard to keep up.
    net.filter(|seen| {
        let keeps_up = seen.from == 2 && seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        if keeps_up { LOST } else { PROMPT }
    });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 500 * MS, |net| net.phase(joiner) == Phase::Joining));
    net.crash(1);
    let missed = Event::Suspected { member: uid(1), reason: Suspicion::Silent };
    assert!(net.run_until(MS, 1_000 * MS, |net| net.events[0].contains(&missed)));
    net.leave(0);
    assert!(net.run_until(MS, 1_000 * MS, |net| net.phase(0) == Phase::Gone));
    net.run(10 * MS);
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason: JoinFailure::Reset }]);
}
