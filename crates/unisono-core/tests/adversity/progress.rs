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
