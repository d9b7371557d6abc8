//! Lives that end at once: they are silent, and hand out what they held.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use unisono_core::*;

fn end(net: &mut Net, index: usize) {
    let now = Time::from_nanos(net.now);
    net.group_mut(index).end(now);
}

#[test]
fn nothing_is_sent_after_the_end_whatever_arrives() {
    let mut net = group_of(3, 2);
    net.send(1, b"under way").unwrap();
    net.run(100 * MS);
    let sent = Rc::new(Cell::new(0));
    let count = sent.clone();
    net.filter(move |seen| {
        count.set(count.get() + u32::from(seen.from == 1));
        PROMPT
    });
    end(&mut net, 1);
    let before = sent.get();
    assert_eq!((net.phase(1), net.group(1).poll_timeout()), (Phase::Gone, None));
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(1).send(now, "late".into()), Err(SendError::Left));
    assert_eq!(net.group_mut(1).confirm(now), Err(ConfirmError::Left));
    // The others exclude it as if it had crashed, and go on.
    assert!(net.run_until(MS, 3_000 * MS, |net| net.size(0) == 2 && net.size(2) == 2), "not excluded");
    net.send(0, b"on").unwrap();
    net.run(100 * MS);
    assert_eq!(sent.get(), before);
    assert_eq!(net.events[1].last(), Some(&Event::Gone));
}

// m1 holds a message that needs m2 as a holder too.
#[test]
fn it_hands_out_what_is_accepted_then_the_end_and_then_the_rest() {
    let mut net = group_of(3, 2);
    net.run(100 * MS);
    net.filter(|seen| if seen.concerns(2) { LOST } else { PROMPT });
    net.send(0, b"tentative").unwrap();
    net.run(10 * MS);
    let marks = net.group(1).marks();
    assert!(marks.received > marks.accepted);
    assert_eq!(net.group_mut(1).poll_undelivered(), None);
    end(&mut net, 1);
    assert_eq!(net.group_mut(1).poll_undelivered(), None, "the last event comes first");
    assert_eq!(net.group_mut(1).poll_event(), Some(Event::Gone));
    let rest = net.group_mut(1).poll_undelivered();
    assert!(matches!(rest, Some(Event::Message { payload, .. }) if &payload[..] == b"tentative"));
    assert_eq!(net.group_mut(1).poll_undelivered(), None);
}

#[test]
fn messages_under_way_are_unknown() {
    let mut net = group_of(3, 1);
    net.run(100 * MS);
    net.filter(|_| LOST);
    let number = net.send(1, b"under way").unwrap();
    end(&mut net, 1);
    assert_eq!(net.group_mut(1).poll_sent(), Some((number, Outcome::Unknown)));
    end(&mut net, 1);
    assert_eq!(net.group_mut(1).poll_sent(), None);
}

#[test]
fn a_joiner_that_ends_is_gone_too() {
    let mut net = Net::new();
    let joiner = net.add(EntryMode::Join, unicast());
    end(&mut net, joiner);
    assert_eq!(net.group_mut(joiner).poll_event(), Some(Event::Gone));
    assert_eq!(net.group_mut(joiner).poll_undelivered(), None);
    assert_eq!(net.phase(joiner), Phase::Gone);
}
