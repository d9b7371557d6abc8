//! Members that answer all probes and do not get on. The others wait for them only for the group's time.

use crate::network::*;
use std::cell::Cell;
use std::time::Duration;
use unisono_core::*;

/// Datagrams with more bytes than this do not pass a hole.
const HOLE_BYTES: usize = 500;
/// A message that does not pass it.
const LARGE: [u8; 1000] = [7; 1000];

/// Three members. All must hold a message before it is accepted, and a slow member is excluded after 500 ms.
fn three() -> Net {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    group_with(3, GroupConfig { resilience: 2, slow_member, ..GroupConfig::default() }, unicast())
}

// Small datagrams pass, so the member answers probes and heartbeats. No window is shut.
#[test]
fn a_member_that_answers_and_receives_no_entries_is_excluded() {
    let mut net = three();
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.send(1, b"small").unwrap();
    net.run(480 * MS);
    assert_eq!((net.size(0), net.delivered(1)), (3, 0), "its time is not over");
    net.run(500 * MS);
    net.show("a second later");
    assert_eq!((net.size(0), net.delivered(0), net.delivered(1)), (2, 2, 2));
}

// Nothing is accepted, so no application gets more and the history is full at all. Only the member that lacks entries
// is to blame for that.
#[test]
fn a_full_history_is_the_fault_of_the_member_that_receives_no_entries() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let config = GroupConfig { history_messages: 16, resilience: 2, slow_member, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    (0..40).for_each(|_| _ = net.send(1, &LARGE).unwrap());
    net.run(450 * MS);
    assert_eq!((net.size(0), net.delivered(1)), (3, 0), "its time is not over");
    net.run(1_500 * MS);
    net.show("two seconds later");
    assert_eq!((net.size(0), net.delivered(0), net.delivered(1)), (2, 16, 16));
}

// The others are no quorum without it. The sequencer's application takes all that it can, so another one would not help.
#[test]
fn a_sequencer_is_not_in_the_way_because_nothing_is_accepted() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let quorum = Quorum::All;
    let config =
        GroupConfig { history_messages: 16, quorum, resilience: 2, slow_member, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    (0..40).for_each(|_| _ = net.send(1, &LARGE).unwrap());
    net.run(3_000 * MS);
    assert_eq!((net.size(0), net.delivered(0)), (3, 0));
    net.calm();
    net.run(500 * MS);
    assert_eq!((net.delivered(0), net.delivered(2), net.epoch(0)), (40, 40, 0));
    assert_eq!(net.group(1).info().sequencer, uid(0));
}

// Each time that it gets an entry its time begins anew, although the others wait for it nearly all the time.
#[test]
fn a_member_that_gets_on_slowly_is_waited_for() {
    let mut net = three();
    let next = Cell::new(0);
    net.filter(move |seen| {
        if !seen.concerns(2) || seen.bytes <= HOLE_BYTES {
            return PROMPT;
        }
        let passes = seen.now >= next.get();
        if passes {
            next.set(seen.now + 150 * MS);
        }
        if passes { PROMPT } else { LOST }
    });
    (0..40).for_each(|_| _ = net.send(1, &LARGE).unwrap());
    net.run(2_000 * MS);
    assert!((3..40).contains(&net.delivered(1)), "{} of 40 are delivered", net.delivered(1));
    assert_eq!((net.size(0), net.epoch(0)), (3, 0));
    net.calm();
    net.run(500 * MS);
    net.show("all datagrams pass");
    assert_eq!((net.size(0), net.epoch(0), net.delivered(2)), (3, 0, 40));
}

// Without it the others would be no quorum, so a reset would exclude none, and there is none.
#[test]
fn a_member_that_the_others_need_is_waited_for() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let config = GroupConfig { quorum: Quorum::All, resilience: 2, slow_member, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.run(3_000 * MS);
    assert_eq!((net.size(0), net.epoch(0)), (3, 0));
    net.calm();
    net.run(500 * MS);
    assert_eq!((net.delivered(0), net.epoch(0)), (1, 0));
}

// All processes stand still for two seconds while one entry waits for a member, and then the network is good. What the
// member says lies unread when the sequencer looks at it first.
#[test]
fn a_member_is_not_slow_because_the_sequencer_was_stopped() {
    let mut net = three();
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.run(100 * MS);
    let stop = (net.now, net.now + 2_000 * MS);
    net.stops.iter_mut().for_each(|stops| stops.push(stop));
    net.calm();
    net.run(2_500 * MS);
    net.show("half a second after the stop");
    assert_eq!((net.size(0), net.epoch(0), net.delivered(1), net.delivered(2)), (3, 0, 1, 1));
}

// The sequencer knows of a message that it never gets. It gives its role away, and is then judged as any member.
#[test]
fn a_sequencer_that_does_not_get_a_message_gives_the_role_away() {
    let mut net = three();
    net.filter(|seen| if seen.concerns(0) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.send(1, b"small").unwrap();
    net.run(450 * MS);
    assert_eq!(net.group(1).info().sequencer, uid(0), "its time is not over");
    net.run(2_000 * MS);
    net.show("two seconds later");
    assert_eq!((net.size(1), net.delivered(1), net.delivered(2)), (2, 2, 2));
}

// m2 answers probes, and the event that names it does not get through. Until it acts no member is sequencer, so only the one
// that named it can judge it.
#[test]
fn a_member_that_is_named_and_does_not_take_the_role_is_excluded() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    for order in [Order::Sequencer(Migration::OnRequest), Order::Token] {
        let mut net = group_with(3, GroupConfig { order, slow_member, ..GroupConfig::default() }, unicast());
        net.filter(|seen| if seen.to == 2 && seen.has_change() { LOST } else { PROMPT });
        let giver = (0..3).find(|&index| net.group(index).marks().acting).unwrap();
        if giver != 2 {
            net.hand_over(giver, 2);
        }
        net.run(450 * MS);
        assert_eq!(net.size(0), 3, "its time is not over");
        net.run(500 * MS);
        net.show("a second later");
        net.send(0, b"x").unwrap();
        net.run(100 * MS);
        assert_eq!((net.size(0), net.delivered(1)), (2, 1), "{order:?}");
    }
}

// While the sequencer lacks a message, a join is under way, so the role cannot move when the sequencer's time is over.
// Then the sequencer gets the message, and only after that is the join accepted: no message waits for it any more.
#[test]
fn a_sequencer_that_got_the_message_meanwhile_keeps_the_role() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let mut net =
        group_with(4, GroupConfig { resilience: 2, slow_member, ..GroupConfig::default() }, unicast());
    // Only m0 and m3 hold the join, and a third member must.
    let no_join = |seen: &Seen| seen.to != 0 && seen.to != 3 && seen.has_join();
    let hole = |seen: &Seen| seen.from == 1 && seen.to == 0 && seen.bytes > HOLE_BYTES;
    net.filter(move |seen| if hole(seen) || no_join(seen) { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.send(1, b"small").unwrap();
    net.run(450 * MS);
    net.add(EntryMode::Join, unicast());
    net.run(250 * MS);
    assert_eq!((net.delivered(2), net.group(0).marks().received, net.group(0).marks().accepted), (0, 4, 3));
    net.filter(move |seen| if no_join(seen) { LOST } else { PROMPT });
    net.send(1, b"more").unwrap();
    net.run(50 * MS);
    assert_eq!(net.group(0).marks().received, 7, "it gets the message");
    assert_eq!(net.group(0).marks().accepted, 3, "the join is not accepted");
    net.calm();
    net.run(400 * MS);
    net.show("all datagrams pass");
    assert_eq!((net.size(0), net.delivered(2), net.epoch(0)), (5, 3, 0));
    assert_eq!(net.group(1).info().sequencer, uid(0));
}

// The path of one sender to all others is bad. The role moves on in vain; no member is excluded for that.
#[test]
fn a_sender_whose_messages_no_member_gets_costs_no_member_its_place() {
    let mut net = three();
    net.filter(|seen| if seen.from == 2 && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(2, &LARGE).unwrap();
    net.send(2, b"small").unwrap();
    for n in 0..40_u32 {
        net.send(1, &n.to_be_bytes()).unwrap();
        net.run(100 * MS);
    }
    net.run(1_000 * MS);
    assert_eq!((net.size(0), net.epoch(0), net.delivered(1)), (3, 0, 40));
    net.calm();
    net.run(1_000 * MS);
    assert_eq!((net.delivered(0), net.delivered(2)), (42, 42));
}

// A member knows for how long it has heard of entries without getting them.
#[test]
fn a_member_says_for_how_long_it_has_been_behind() {
    let mut net = three();
    let behind = |net: &Net, index: usize| net.group(index).behind_for(Time::from_nanos(net.now));
    net.send(1, b"small").unwrap();
    net.run(200 * MS);
    assert!((0..3).all(|index| behind(&net, index) == Duration::ZERO));
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.run(400 * MS);
    let since = behind(&net, 2);
    assert!((250..=400).contains(&since.as_millis()), "{since:?}");
    net.calm();
    net.run(300 * MS);
    assert!((0..3).all(|index| behind(&net, index) == Duration::ZERO));
}

/// A group in which a sequencer and one more member accept a message, and a slow member is excluded after 500 ms.
fn group_of_one_more(members: usize, config: GroupConfig) -> Net {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    group_with(members, GroupConfig { resilience: 1, slow_member, ..config }, unicast())
}

// Other members accept what m3 lacks, and there is room. No member waits for m3, although it gets nothing at all.
#[test]
fn a_member_for_which_no_other_waits_keeps_its_place() {
    let mut net = group_of_one_more(4, GroupConfig::default());
    net.filter(|seen| {
        let lost = seen.concerns(3) && seen.bytes > HOLE_BYTES;
        // Something waits for its acceptance at all times.
        if lost { LOST } else { Some(20 * MS) }
    });
    for _ in 0..200 {
        net.send(1, &LARGE).ok();
        net.run(10 * MS);
    }
    assert!(net.delivered(1) > 100, "{} are delivered", net.delivered(1));
    assert_eq!((net.size(0), net.epoch(0), net.delivered(3)), (4, 0, 0));
}

// The history is full of what m3 lacks, and its entries are few and large, so no application is a window behind. m2 holds
// more and gets on as little; no member waits for m2 as long as m3 is there.
#[test]
fn for_room_the_member_that_holds_least_is_in_the_way() {
    let mut net = group_of_one_more(5, GroupConfig { history_bytes: 65_536, ..GroupConfig::default() });
    let lacks = |index| move |seen: &Seen| seen.concerns(index) && seen.bytes > HOLE_BYTES;
    net.filter(move |seen| if lacks(3)(seen) { LOST } else { PROMPT });
    (0..20).for_each(|_| _ = net.send(1, &LARGE).unwrap());
    net.run(100 * MS);
    net.filter(move |seen| if lacks(2)(seen) || lacks(3)(seen) { LOST } else { PROMPT });
    for _ in 0..100 {
        net.send(1, &LARGE).ok();
        net.run(5 * MS);
    }
    net.run(250 * MS);
    net.show("m3 has had its time");
    assert_eq!((net.size(0), net.phase(3)), (4, Phase::Gone));
}

// When the role moves, the time of each member begins anew.
#[test]
fn a_new_term_gives_a_slow_member_its_whole_time() {
    let mut net = three();
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.run(400 * MS);
    for (from, to) in [(0, 1), (1, 0)] {
        net.hand_over(from, to);
        net.run(20 * MS);
        assert_eq!(net.group(0).info().sequencer, uid(to));
    }
    net.run(400 * MS);
    assert_eq!((net.size(0), net.epoch(0)), (3, 0), "its time in the first term counts");
    net.run(600 * MS);
    assert_eq!(net.size(0), 2);
}

// Under the manual policy the application decides, and learns of a slow member also where the others are no quorum.
#[test]
fn an_application_is_told_of_a_slow_member_that_the_others_need() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let config = GroupConfig {
        automatic: false,
        quorum: Quorum::All,
        resilience: 2,
        slow_member,
        ..GroupConfig::default()
    };
    let mut net = group_with(3, config, unicast());
    net.filter(|seen| if seen.concerns(2) && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.run(3_000 * MS);
    let told = Event::Suspected { member: uid(2), reason: Suspicion::Slow };
    assert_eq!(net.events[0].iter().filter(|event| **event == told).count(), 1);
}

// m1 is the next in rank, and no member gets its messages. With the role it would stop all others.
#[test]
fn the_role_does_not_go_to_the_sender_of_what_the_sequencer_lacks() {
    let mut net = three();
    net.filter(|seen| if seen.from == 1 && seen.bytes > HOLE_BYTES { LOST } else { PROMPT });
    net.send(1, &LARGE).unwrap();
    net.send(1, b"small").unwrap();
    for n in 0..40_u32 {
        net.send(2, &n.to_be_bytes()).unwrap();
        net.run(100 * MS);
        assert_ne!(net.group(2).info().sequencer, uid(1));
    }
    assert_eq!((net.size(2), net.epoch(2), net.delivered(2)), (3, 0, 40));
}
