//! Room in a ring: bytes and history, and members whose applications take nothing.

use super::*;

// What a member has sent to all it numbers by numbers alone. Otherwise all data of the member with the token would
// travel twice (hazard H96).
#[test]
fn what_went_to_all_is_numbered_without_its_data() {
    let mut net = ring(4, 1);
    let bytes = Rc::new(Cell::new(0));
    let counted = bytes.clone();
    net.filter(move |seen| {
        if seen.multicast && seen.to == (seen.from + 1) % 4 {
            counted.set(counted.get() + seen.bytes);
        }
        PROMPT
    });
    let mut random = Random::from_u64(3);
    for _ in 0..2_000 {
        net.send(random.below(4) as usize, &[7; 1000]).unwrap();
        net.run(LATENCY / 2);
    }
    net.run(MS);
    assert_eq!(net.delivered(3), 2_000);
    let share = bytes.get() / 2_000;
    assert!(share <= 1_200, "{share} bytes for each message of 1,000");
}

/// Sends large messages from all four members, as many as there is room for, for 200 ms. Returns how many m3 delivered, and
/// how many reports went to one member alone.
fn pour(net: &mut Net) -> (usize, u32) {
    let reports = Rc::new(Cell::new(0));
    let reported = reports.clone();
    net.filter(move |seen| {
        let says_marks = seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        reported.set(reported.get() + u32::from(!seen.multicast && says_marks));
        PROMPT
    });
    let (begin, before) = (net.now, net.delivered(3));
    while net.now < begin + 200 * MS {
        for sender in 0..4 {
            while net.group(sender).info().under_way < 8 && net.send(sender, &[7; 1000]).is_ok() {}
        }
        net.run(LATENCY / 2);
    }
    (net.delivered(3) - before, reports.get())
}

// Each pass says what its giver holds. If members reported the bytes that they receive besides, there would be some 2,000
// reports here (hazard H96).
#[test]
fn in_a_moving_ring_only_passes_report() {
    let mut net = ring(4, 1);
    let (delivered, reports) = pour(&mut net);
    assert!(delivered > 20_000 && reports < 300, "{reports} reports for {delivered} messages");
}

// After a leave the token rests until the leaver is forgotten. The others have to report the bytes that they receive, as to a
// sequencer. Without that the holder learns of room only by heartbeats, and orders a quarter as much.
#[test]
fn a_token_at_rest_gets_reports_for_bytes() {
    let mut net = ring(5, 0);
    net.leave(4);
    net.run(5 * MS);
    let passes = passes_of(&net);
    let (delivered, _) = pour(&mut net);
    assert!(passes_of(&net) <= passes + 1, "the token does not rest");
    assert!(delivered > 6_000, "{delivered} messages");
}

fn passes_of(net: &Net) -> u64 {
    (0..4).map(|index| net.group(index).counters().passes).sum()
}

/// Sends as much as there is room for, for 200 ms.
fn saturate(net: &mut Net) {
    let begin = net.now;
    while net.now < begin + 200 * MS {
        for sender in 0..4 {
            while net.group(sender).info().under_way < 64 && net.send(sender, b"x").is_ok() {}
        }
        net.run(LATENCY / 2);
    }
}

// Messages wait for room all the time. If that made the token rest, one member would number nearly everything, and if no
// passes showed who holds the last message, each history would wait for a heartbeat (hazard H93).
#[test]
fn a_saturated_ring_moves_and_is_fast() {
    let mut net = ring_with(4, GroupConfig { history_messages: 64, ..GroupConfig::default() });
    let (traffic, begin) = (watch(&mut net), net.now);
    saturate(&mut net);
    let (passes, numbered) = (traffic.borrow().passes.len(), traffic.borrow().numbered.len());
    assert!(passes * 64 >= numbered, "{passes} passes for {numbered} messages");
    // A history in no more than three rotations.
    assert!(numbered as u64 >= 64 * 200 * MS / (12 * LATENCY), "{numbered} messages in 200 ms");
    let mut last = begin;
    let longest =
        traffic.borrow().passes.values().map(|pass| pass.1 - core::mem::replace(&mut last, pass.1)).max();
    assert!(longest < Some(5 * MS), "a term of {longest:?} ns");
}

// No member suspects itself. If the token stayed with a member whose application takes nothing, no other one would
// judge it (hazard H65).
#[test]
fn a_member_whose_application_takes_nothing_is_excluded_though_it_has_the_token() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    for slow in 0..4 {
        let config = GroupConfig { history_messages: 32, slow_member, ..GroupConfig::default() };
        let mut net = ring_with(4, config);
        // The token comes to rest at the slow one.
        rest_at(&mut net, slow);
        net.asleep[slow] = true;
        let sender = (slow + 1) % 4;
        (0..100).for_each(|_| _ = net.send(sender, b"x"));
        net.run(100 * MS);
        assert_ne!(holder(&net), Some(slow), "it keeps the token");
        net.run(300 * MS);
        assert_eq!(net.size(sender), 4, "its time is not over");
        net.run(600 * MS);
        net.show("a second later");
        assert_eq!((net.size(sender), net.phase(slow)), (3, Phase::Gone), "m{slow} takes nothing");
        let before = net.delivered(sender);
        net.send(sender, b"y").unwrap();
        net.run(50 * MS);
        assert_eq!(net.delivered(sender), before + 1);
    }
}

// The group waits for m1, which is slow. The token comes to rest at another member, which names m1.
#[test]
fn a_member_whose_application_takes_nothing_gives_the_token_on_and_gets_it_again() {
    let mut net = ring_with(3, GroupConfig { history_messages: 32, ..GroupConfig::default() });
    net.asleep[1] = true;
    let sent = (0..40).filter(|_| net.send(2, b"x").is_ok()).count();
    net.run(1_000 * MS);
    let at = holder(&net).unwrap();
    assert_ne!(at, 1);
    let held_up = net.group(at).held_up_by(Time::from_nanos(net.now)).map(|held_up| held_up.member);
    // Passes take room too.
    assert!(held_up == Some(uid(1)) && (28..=32).contains(&net.delivered(0)), "{held_up:?}");
    let traffic = watch(&mut net);
    net.run(1_000 * MS);
    assert!(traffic.borrow().passes.len() <= 3, "{} passes while all wait", traffic.borrow().passes.len());
    net.asleep[1] = false;
    net.drain(1);
    net.run(20 * MS);
    assert_eq!((net.delivered(0), net.delivered(1)), (sent, sent));
    let traffic = watch(&mut net);
    talk(&mut net, 600, &[0, 1, 2]);
    assert!(traffic.borrow().numbered_by(1) > 100, "the token comes to it again");
}
