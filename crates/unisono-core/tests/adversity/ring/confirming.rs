//! What `confirm` returns where logs end with passes.

use super::*;

// The log of an idle ring ends with passes, which no application receives. A reader that waited for the seqno of one
// would wait for the next message (hazard H92).
#[test]
fn what_is_confirmed_on_an_idle_ring_is_an_event() {
    for resilience in 0..3 {
        let mut net = ring(3, resilience);
        // The last event is the join of m2, before any pass.
        for round in 0..4 {
            for index in 0..3 {
                let now = Time::from_nanos(net.now);
                let number = net.group_mut(index).confirm(now).unwrap();
                net.drain(index);
                net.run(5 * MS);
                let last = net.events[index].iter().rev().find_map(Event::seqno).unwrap();
                assert_eq!(net.group_mut(index).poll_confirmed(), Some((number, last)), "m{index}, {round}");
                assert!(round == 0 || net.group(index).marks().received > last, "no pass at the end");
            }
            net.send(round % 3, b"x").unwrap();
            net.run(200 * MS);
        }
    }
}

// m2 lacks the message and the passes when it asks. The result is the message's seqno: it is no pass, and m2 will
// deliver it.
#[test]
fn what_a_member_lacks_is_confirmed_as_the_event_that_it_will_be() {
    let mut net = ring(3, 1);
    net.send(0, b"x").unwrap();
    net.run(200 * MS);
    rest_at(&mut net, 0);
    let before = net.delivered(2);
    let is_lost = Rc::new(Cell::new(true));
    let lost = is_lost.clone();
    net.filter(move |seen| {
        let tells = seen.has(|frame| !matches!(frame, Frame::Confirm { .. } | Frame::Confirmed { .. }));
        if seen.to == 2 && tells && lost.get() { LOST } else { PROMPT }
    });
    net.send(0, b"y").unwrap();
    net.run(2 * MS);
    let now = Time::from_nanos(net.now);
    let number = net.group_mut(2).confirm(now).unwrap();
    net.drain(2);
    net.run(2 * MS);
    assert_eq!(net.delivered(2), before, "m2 has got the message, so the case was not reached");
    is_lost.set(false);
    net.run(100 * MS);
    let last = messages(&net, 2).last().unwrap().0;
    assert_eq!((net.group_mut(2).poll_confirmed(), net.delivered(2)), (Some((number, last)), before + 1));
}
