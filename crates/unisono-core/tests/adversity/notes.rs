//! Notes: the latest few bytes of each member reach all others, in no order (docs/protocol/replica.md, *Marks*).

use crate::network::*;
use bytes::Bytes;
use unisono_core::wire::Frame;
use unisono_core::*;

fn set_note(net: &mut Net, index: usize, text: &str, at_once: bool) {
    let now = Time::from_nanos(net.now);
    net.group_mut(index).set_note(now, Bytes::copy_from_slice(text.as_bytes()), at_once);
    net.drain(index);
}

/// Returns the notes that a member's application has received.
fn notes(net: &Net, index: usize) -> Vec<(Uid, String)> {
    let of_event = |event: &Event| match event {
        Event::Note { member, note } => Some((*member, String::from_utf8_lossy(note).into_owned())),
        _ => None,
    };
    net.events[index].iter().filter_map(of_event).collect()
}

fn last(net: &Net, index: usize, of: usize) -> Option<String> {
    notes(net, index).into_iter().rfind(|(member, _)| *member == uid(of)).map(|(_, note)| note)
}

fn is_note(frame: &Frame) -> bool {
    matches!(frame, Frame::Note { .. })
}

fn note(member: usize, number: u64) -> Frame {
    Frame::Note { member: uid(member), number, note: "x".into() }
}

#[test]
fn a_note_takes_no_seqno_and_goes_once_and_then_with_reports_and_heartbeats_only() {
    for order in [Order::default(), Order::Token] {
        let mut net = group_with(3, GroupConfig { order, ..GroupConfig::default() }, unicast());
        net.run(300 * MS);
        let end = net.group(0).marks().received;
        let alone = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen_alone = alone.clone();
        net.filter(move |seen| {
            let is_beside = seen.has(|frame| matches!(frame, Frame::Heartbeat(_)));
            seen_alone.set(seen_alone.get() + u32::from(seen.has(is_note) && !is_beside && seen.from != 0));
            PROMPT
        });
        set_note(&mut net, 2, "a", true);
        net.run(LATENCY);
        assert_eq!(
            [0, 1].map(|index| last(&net, index, 2)),
            [Some("a".into()), Some("a".into())],
            "{order:?}"
        );
        assert_eq!(notes(&net, 2), [], "its own");
        assert_eq!(alone.get(), 2, "a copy for each");
        net.run(500 * MS);
        assert_eq!([0, 1].map(|index| notes(&net, index).len()), [1, 1], "repeated ones are no news");
        if order == Order::default() {
            assert_eq!(net.group(0).marks().received, end);
        }
    }
}

#[test]
fn a_note_that_may_wait_goes_within_a_millisecond_and_the_latest_alone() {
    let mut net = group_of(3, 1);
    net.run(300 * MS);
    for text in ["a", "b", "c"] {
        set_note(&mut net, 1, text, false);
    }
    net.run(MS / 2);
    assert_eq!(notes(&net, 0), []);
    net.run(MS);
    assert_eq!(notes(&net, 0), [(uid(1), "c".into())]);
    assert_eq!(notes(&net, 2), [(uid(1), "c".into())]);
}

// What a member that confirms has to wait for may depend on the note.
#[test]
fn a_note_that_may_wait_goes_at_once_to_a_member_that_confirms() {
    let mut net = group_of(3, 1);
    net.run(300 * MS);
    set_note(&mut net, 1, "a", false);
    let now = Time::from_nanos(net.now);
    net.group_mut(2).confirm(now).unwrap();
    net.drain(2);
    net.run(2 * LATENCY);
    assert_eq!((notes(&net, 2), notes(&net, 0)), (vec![(uid(1), "a".into())], vec![]));
    net.run(MS);
    assert_eq!([0, 2].map(|index| notes(&net, index).len()), [1, 1], "and once to the others");
}

// No member acknowledges a note. Without its repetitions a lost one would never arrive.
#[test]
fn a_lost_note_arrives_with_a_report_and_a_heartbeat() {
    let mut net = group_of(3, 1);
    net.run(300 * MS);
    for (from, lost_to) in [(1, [0, 2]), (2, [0, 1]), (0, [1, 2])] {
        let mut left = 2;
        net.filter(move |seen| {
            let strikes = left > 0 && seen.has(is_note) && seen.from == from && lost_to.contains(&seen.to);
            left -= i32::from(strikes);
            if strikes { LOST } else { PROMPT }
        });
        set_note(&mut net, from, "lost", true);
        net.run(LATENCY);
        assert_eq!(lost_to.map(|to| last(&net, to, from)), [None, None]);
        net.run(400 * MS);
        assert_eq!(lost_to.map(|to| last(&net, to, from)), [Some("lost".into()), Some("lost".into())]);
    }
}

/// Of five members two besides the sequencer have to hold a message. Of the two that acknowledge it at once one is silent.
#[test]
fn a_note_says_what_its_member_holds() {
    for with_note in [true, false] {
        let mut net = group_of(5, 2);
        net.run(300 * MS);
        net.filter(|seen| if seen.from == 1 { LOST } else { PROMPT });
        net.send(0, b"held").unwrap();
        net.run(3 * LATENCY);
        let is_accepted = |net: &Net| net.group(0).marks().accepted == net.group(0).marks().received;
        assert!(!is_accepted(&net), "one more has to say that it holds the message");
        if with_note {
            set_note(&mut net, 3, "a", true);
        }
        net.run(2 * LATENCY);
        assert_eq!(is_accepted(&net), with_note);
    }
}

#[test]
fn an_older_note_one_of_a_stranger_and_one_of_another_epoch_change_nothing() {
    let mut net = group_of(3, 1);
    let tags = |net: &Net| (net.group(0).tag(), net.group(0).marks().epoch);
    let (group, epoch) = tags(&net);
    let mut number = 900;
    let mut inject = |net: &mut Net, epoch, from: Uid, frame: Frame| {
        number += 1;
        net.inject(0, address(1), &forge(group, epoch, from, number, &[frame]));
        net.drain(0);
        notes(net, 0).len()
    };
    assert_eq!(inject(&mut net, epoch, uid(1), note(1, 5)), 1);
    assert_eq!(inject(&mut net, epoch, uid(1), note(1, 4)), 1, "it was overtaken");
    let stale = net.group(0).counters().stale;
    assert_eq!(inject(&mut net, epoch, uid(1), note(9, 1)), 1, "of a process that is no member");
    assert_eq!(inject(&mut net, epoch, Uid(77), note(1, 6)), 1, "from a process that is no member");
    assert_eq!(net.group(0).counters().stale, stale + 2);
    let malformed = net.group(0).counters().malformed;
    let long = Frame::Note { member: uid(1), number: 7, note: vec![0; 65].into() };
    assert_eq!(inject(&mut net, epoch, uid(1), long), 1);
    assert_eq!(net.group(0).counters().malformed, malformed + 1);
    net.crash(2);
    assert!(net.run_until(10 * MS, 5_000 * MS, |net| net.size(0) == 2 && net.size(1) == 2));
    assert_eq!(inject(&mut net, epoch, uid(1), note(1, 8)), 1, "of the epoch before");
}

// The application must know the epoch and the member before it gets a note of them.
#[test]
fn a_note_of_an_epoch_comes_after_its_reset_event_and_is_forgotten_with_it() {
    let mut net = group_of(3, 1);
    set_note(&mut net, 1, "before", true);
    net.run(MS);
    net.asleep[0] = true;
    net.crash(2);
    assert!(net.run_until(10 * MS, 5_000 * MS, |net| net.size(0) == 2 && net.size(1) == 2));
    net.run(300 * MS);
    set_note(&mut net, 1, "after", true);
    net.run(MS);
    net.asleep[0] = false;
    net.drain(0);
    let reset = net.events[0].iter().position(|event| matches!(event, Event::Reset { .. }));
    let after = net.events[0].iter().rposition(|event| matches!(event, Event::Note { .. }));
    assert!(reset.is_some() && reset < after, "{:?}", net.events[0]);
    assert_eq!(notes(&net, 0), [(uid(1), "before".into()), (uid(1), "after".into())]);
}
