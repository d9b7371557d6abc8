//! How soon a loss is detected, and which members are given more time.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

/// Returns the milliseconds until the group enters another epoch, as seen by `witness`.
fn until_reset(net: &mut Net, witness: usize) -> u64 {
    let began = net.now;
    let reset = net.run_until(MS, 5000 * MS, |net| net.epoch(witness) == 1);
    assert!(reset, "no reset");
    (net.now - began) / MS
}

// A member that waits for a seqno detects the loss of the sequencer sooner than an idle group does.
#[test]
fn a_working_group_misses_its_sequencer_sooner_than_an_idle_one() {
    let mut idle = group_of(3, 1);
    idle.run(1000 * MS);
    idle.crash(0);
    let idle = until_reset(&mut idle, 1);
    assert!((150..=280).contains(&idle), "{idle} ms when idle");
    let mut working = group_of(3, 1);
    working.run(1000 * MS);
    working.crash(0);
    working.send(1, b"where are you?").unwrap();
    let working = until_reset(&mut working, 1);
    assert!((100..=140).contains(&working), "{working} ms when working");
}

// The sequencer detects the loss of a member that has to hold a message, and the others that of a sequencer which has
// numbered a message and does not announce that it is accepted.
#[test]
fn a_member_that_holds_up_a_message_is_missed_sooner() {
    for (dies, sends) in [(2, 1), (1, 0)] {
        let mut net = group_of(3, 2);
        net.run(1000 * MS);
        net.crash(dies);
        net.send(sends, b"hold this").unwrap();
        let took = until_reset(&mut net, 0);
        assert!((100..=140).contains(&took), "{took} ms without m{dies}");
    }
    let mut net = group_of(3, 2);
    net.run(1000 * MS);
    net.send(1, b"number this").unwrap();
    let before = net.delivered(1);
    let holds = |net: &Net| net.group(1).info().unstable > net.group(1).info().accepted + 1;
    assert!(net.run_until(LATENCY / 10, 1000 * MS, holds));
    net.crash(0);
    let took = until_reset(&mut net, 1);
    assert!((100..=140).contains(&took), "{took} ms without the sequencer");
    assert_eq!(net.delivered(1) - before, 1);
}

// Wakeups are most of the cost of an idle group.
#[test]
fn a_quiet_group_does_not_wake_its_members_to_check_the_others() {
    let mut net = group_of(5, 1);
    net.run(2_000 * MS);
    let mut woken = [0; 5];
    for _ in 0..9_000 {
        let next = Time::from_nanos(net.now + MS);
        for (index, count) in woken.iter_mut().enumerate() {
            let (at, reason) = net.group(index).poll_timeout().unwrap();
            *count += u32::from(reason == Reason::Detector && at <= next);
        }
        net.run(MS);
    }
    assert!(woken.iter().all(|count| *count <= 10), "{woken:?}");
}

/// Keeps a member silent until 80 ms after its first probe. After that it answers everything.
fn be_late(net: &mut Net, member: usize) {
    let mut asked = None;
    net.filter(move |seen| {
        if seen.to == member && seen.has(|frame| matches!(frame, Frame::Probe { .. })) {
            asked.get_or_insert(seen.now);
        }
        let answers = asked.is_some_and(|at| seen.now >= at + 80 * MS);
        if seen.from == member && !answers { LOST } else { PROMPT }
    });
    net.run(500 * MS);
    assert_eq!(net.epoch(0), 0, "late, and alive");
}

// On overloaded processors a member is late, and later still the next time. It must not be taken for dead by the
// measure of a calm machine.
#[test]
fn a_member_that_was_late_recently_is_given_more_time() {
    for (calm, expected) in [(0, 500..=1000), (10_000 * MS, 150..=280)] {
        let mut net = group_of(3, 1);
        net.run(1000 * MS);
        be_late(&mut net, 2);
        net.run(calm);
        net.crash(2);
        let took = until_reset(&mut net, 0);
        assert!(expected.contains(&took), "{took} ms, {calm} ns after it was late");
    }
}

// Each hand-over changes which member watches the others. Probes that a member left unanswered in an earlier term of
// the same watcher do not count.
#[test]
fn what_was_left_unanswered_in_an_earlier_term_is_forgotten() {
    for wait in 0..10 {
        let mut net = group_of(4, 1);
        net.run(1000 * MS);
        // What the sequencer m0 sends to m1 is lost, until m1 has sent eight probes, nearly as many as it ever sends.
        let asked = Rc::new(Cell::new(0));
        let count = asked.clone();
        net.filter(move |seen| {
            let asks =
                (seen.from, seen.to) == (1, 0) && seen.has(|frame| matches!(frame, Frame::Probe { .. }));
            count.set(count.get() + u32::from(asks));
            if (seen.from, seen.to) == (0, 1) { LOST } else { PROMPT }
        });
        assert!(net.run_until(MS, 1000 * MS, |_| asked.get() >= 8));
        net.hand_over(0, 2);
        net.run(100 * MS);
        // From now on m0's datagrams to m1 are late by 30 ms, which is no reason to suspect it.
        net.filter(|seen| if (seen.from, seen.to) == (0, 1) { Some(30 * MS) } else { PROMPT });
        net.run(2000 * MS + wait * 20 * MS);
        net.hand_over(2, 1);
        net.run(1000 * MS);
        net.show("a second later");
        assert_eq!(net.epoch(2), 0, "after {wait}");
    }
}

/// Lets a process run for `awake` nanoseconds and stop for `stop()` nanoseconds, by turns, until `until`.
fn starve(net: &mut Net, index: usize, awake: u64, until: u64, mut stop: impl FnMut() -> u64) {
    let mut at = net.now;
    while at < until {
        let to = at + awake + stop();
        net.stops[index].push((at + awake, to));
        at = to;
    }
}

// A process that is stopped again and again must not excuse the silence of others for all that time. Otherwise it would
// never detect a dead member.
#[test]
fn a_starved_member_misses_the_dead() {
    for (awake, stop, limit) in [(8, 92, 2_000), (2, 500, 9_000), (1, 60, 1_500)] {
        for busy in [false, true] {
            let patient = Settings { silence: Duration::from_secs(30), ..unicast() };
            let mut net = Net::new();
            net.add(EntryMode::Found(GroupConfig::default()), unicast());
            for _ in 0..2 {
                net.add(EntryMode::Join, patient.clone());
                net.run(300 * MS);
            }
            let until = net.now + 40_000 * MS;
            starve(&mut net, 0, awake * MS, until, || stop * MS);
            net.run(2_000 * MS);
            net.crash(2);
            let crashed = net.now;
            while net.epoch(0) == 0 && net.now < crashed + limit * MS {
                if busy {
                    let _ = net.send(1, b"what m0 finds in its socket");
                }
                net.run(20 * MS);
            }
            assert_eq!(
                (net.epoch(0), net.size(0)),
                (1, 2),
                "awake for {awake} ms, then {stop} not; busy: {busy}"
            );
        }
    }
}

// The datagrams in the socket of a starved process show that the others are alive. It must read them before it suspects
// a member.
#[test]
fn a_starved_member_suspects_no_live_member() {
    for seed in 0..20 {
        let patient = Settings { silence: Duration::from_secs(30), ..unicast() };
        let mut net = Net::new();
        for (entry, settings) in [
            (EntryMode::Found(GroupConfig::default()), patient.clone()),
            (EntryMode::Join, unicast()),
            (EntryMode::Join, patient),
        ] {
            net.add(entry, settings);
            net.run(300 * MS);
        }
        let starved = seed as usize % 2;
        net.hand_over(0, 1 - starved);
        net.run(100 * MS);
        let (until, mut random) = (net.now + 60_000 * MS, Random::from_u64(seed));
        starve(&mut net, 1, (1 + seed % 5) * MS, until, || (13 + random.below(1_987)) * MS);
        net.run(60_000 * MS);
        net.show("m1 was starved");
        assert_eq!(net.group(1).counters().suspicions, 0, "seed {seed}");
        assert_eq!(net.size(1), 3, "seed {seed}");
    }
}

// m1's answers take long, and m0 is stopped meanwhile. They wait in m0's socket, and m0 must read them before it
// suspects m1.
#[test]
fn a_member_that_was_stopped_reads_its_socket_before_it_suspects() {
    for seed in 0..20 {
        let patient = Settings { silence: Duration::from_secs(30), ..unicast() };
        let mut net = Net::new();
        net.add(EntryMode::Found(GroupConfig::default()), unicast());
        net.add(EntryMode::Join, patient);
        net.run(300 * MS);
        // m0 receives nothing from m1 but `Alive`, 90 ms after it was sent.
        net.filter(|seen| match seen.from == 1 {
            true if seen.has(|frame| matches!(frame, Frame::Alive { .. })) => Some(90 * MS),
            true => LOST,
            false => PROMPT,
        });
        let (until, mut random) = (net.now + 60_000 * MS, Random::from_u64(seed));
        starve(&mut net, 0, (300 + 7 * seed) * MS, until, || (100 + random.below(1_900)) * MS);
        net.run(60_000 * MS);
        assert_eq!(net.group(0).counters().suspicions, 0, "seed {seed}");
    }
}

// Under the manual policy no reset follows a suspicion whose reason is gone. If the suspicion stayed, it would block
// leaves for ever.
#[test]
fn a_deaf_member_that_shows_that_it_hears_is_not_suspected_any_more() {
    // A member that hears nothing, suspected by the sequencer; and a sequencer that does not hear one member, suspected
    // by that member.
    for (deaf, unheard, witness) in [(2, None, 0), (0, Some(1), 1)] {
        let config = GroupConfig { automatic: false, quorum: Quorum::All, ..GroupConfig::default() };
        let mut net = group_with(3, config, unicast());
        net.filter(move |seen| {
            let lost = seen.to == deaf && unheard.is_none_or(|from| seen.from == from);
            if lost { LOST } else { PROMPT }
        });
        let missed = Event::Suspected { member: uid(deaf), reason: Suspicion::Deaf };
        // The deaf member sends, so it is not silent.
        let talks = (0..100).any(|_| {
            let _ = net.send(deaf, b"can you hear me?");
            net.run_until(MS, 20 * MS, |net| net.events[witness].contains(&missed))
        });
        assert!(talks, "the case was not reached");
        net.run(1_000 * MS);
        net.calm();
        net.run(1_000 * MS);
        let report = net.group(witness).report(Time::from_nanos(net.now));
        assert!(report.members.iter().all(|member| !member.suspected), "{:?}", report.members);
        net.leave(1);
        assert!(net.run_until(MS, 2_000 * MS, |net| net.phase(1) == Phase::Gone), "m1 gets no farewell");
    }
}

// A member that sends is not silent. But it shows that it hears the sequencer only by returning something recent: the
// stamp of a heartbeat, or the nonce of a probe. A report that was made before this sequencer's term returns the stamp of an
// earlier sequencer, whatever its number (hazard H67).
#[test]
fn a_member_that_returns_only_old_stamps_or_nonces_is_deaf() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Returned {
        Recent,
        Old,
        OfEarlierTerm,
    }
    use Returned::{OfEarlierTerm, Old, Recent};
    let cases = [(true, Recent), (true, Old), (true, OfEarlierTerm), (false, Recent), (false, Old)];
    for (by_stamp, kind) in cases {
        let config = GroupConfig { automatic: false, ..GroupConfig::default() };
        let mut net = group_with(3, config, unicast());
        let before = net.group(0).marks().received;
        net.hand_over(0, 1);
        assert!(net.run_until(MS, 100 * MS, |net| net.group(1).marks().received > before));
        let said = Rc::new(Cell::new((0, 0)));
        let heard = said.clone();
        // m2 is cut off; the test sends in its name.
        net.filter(move |seen| {
            for frame in seen.frames.iter().filter(|_| (seen.from, seen.to) == (1, 2)) {
                match frame {
                    Frame::Heartbeat(heartbeat) => heard.set((heartbeat.stamp, heard.get().1)),
                    Frame::Probe { nonce } => heard.set((heard.get().0, *nonce)),
                    _ => {}
                }
            }
            if seen.concerns(2) { LOST } else { PROMPT }
        });
        let reached = net.run_until(MS, 3_000 * MS, |_| {
            let (stamp, nonce) = said.get();
            stamp != 0 && nonce != 0
        });
        assert!(reached, "m2 was sent no stamp or no nonce");
        let (group, epoch, mut returned) = (net.group(1).tag(), net.group(1).marks().epoch, said.get());
        for number in 0..200 {
            if kind != Old {
                returned = said.get();
            }
            let (stamp, nonce) = returned;
            let (marks, late_ms) = (net.group(1).marks(), 0);
            let received = if kind == OfEarlierTerm { before } else { marks.received };
            let word = match by_stamp {
                true => Frame::Watermarks(Watermarks {
                    received,
                    accepted: marks.accepted,
                    delivered: marks.delivered,
                    stamp,
                    hears_multicast: false,
                    late_ms,
                }),
                false => Frame::Alive { nonce },
            };
            net.inject(1, address(2), &forge(group, epoch, uid(2), 1_000_000 + number, &[word]));
            net.run(20 * MS);
        }
        let missed = Event::Suspected { member: uid(2), reason: Suspicion::Deaf };
        assert_eq!(net.events[1].contains(&missed), kind != Recent, "stamps: {by_stamp}, {kind:?}");
    }
}

// Another process has joined at a member's address. The old member is suspected at once, before its silence shows
// (hazard H21).
#[test]
fn a_member_is_suspected_as_soon_as_another_life_has_joined_at_its_address() {
    for automatic in [true, false] {
        let mut net = group_with(3, GroupConfig { automatic, ..GroupConfig::default() }, unicast());
        net.send(2, b"I am here").unwrap();
        net.run(MS);
        net.crash(2);
        net.add_at(2, EntryMode::Join, unicast());
        let replaced = Event::Suspected { member: uid(2), reason: Suspicion::Replaced };
        let noticed = net.run_until(MS, 80 * MS, |net| match automatic {
            true => net.epoch(0) == 1 && net.epoch(2) == 1,
            false => net.events[0].contains(&replaced),
        });
        net.show("another life at the address of m2");
        assert!(noticed, "automatic: {automatic}");
        let members: Vec<Uid> = net.group(0).info().members.iter().map(|member| member.uid).collect();
        let stays = (!automatic).then_some(uid(2));
        let expected = [uid(0), uid(1)].into_iter().chain(stays).chain([later_uid(2)]);
        assert_eq!(members, Vec::from_iter(expected));
    }
}

// A process that is mostly stopped sends few probes, and their few answers may get lost. It suspects no member before
// it has sent eight probes, however long that takes.
#[test]
fn no_member_is_suspected_after_fewer_than_eight_probes() {
    // The probing begins anew up to three times in a row.
    for (unanswered, suspicions) in [(3 + 7, 0), (u32::MAX, 1)] {
        let patient = Settings { silence: Duration::from_secs(30), ..unicast() };
        let mut net = Net::new();
        net.add(EntryMode::Found(GroupConfig::default()), unicast());
        net.add(EntryMode::Join, patient);
        net.run(300 * MS);
        let mut asked = 0;
        net.filter(move |seen| {
            let asks = seen.from == 0 && seen.has(|frame| matches!(frame, Frame::Probe { .. }));
            asked += u32::from(asks);
            if seen.from == 1 && asked <= unanswered { LOST } else { PROMPT }
        });
        let until = net.now + 12_000 * MS;
        starve(&mut net, 0, 2 * MS, until, || 500 * MS);
        net.run(12_000 * MS);
        assert_eq!(net.group(0).counters().suspicions, suspicions, "{unanswered} probes were not answered");
    }
}

// If one member reports that its timers are late, others may be late as well. A silent member is given more time.
#[test]
fn members_that_are_late_make_the_others_patient() {
    for (stop, expected) in [(0, 150..=280), (100, 500..=1000)] {
        let mut net = group_of(3, 1);
        let crash_at = net.now + 1000 * MS;
        starve(&mut net, 1, 20 * MS, crash_at - 200 * MS, || stop * MS);
        let asked = Rc::new(Cell::new(false));
        let asks = asked.clone();
        net.filter(move |seen| {
            let by_m0 = seen.from == 0 && seen.has(|frame| matches!(frame, Frame::Probe { .. }));
            asks.set(asks.get() || by_m0);
            PROMPT
        });
        // No member is silent long enough to be probed, so no answer is late.
        while net.now < crash_at {
            net.send(0, b"m1 reports its watermarks").unwrap();
            net.send(2, b"and m2 is not silent").unwrap();
            net.run(20 * MS);
        }
        assert!(!asked.get(), "the case was not reached");
        net.crash(2);
        let took = until_reset(&mut net, 0);
        assert!(expected.contains(&took), "{took} ms, m1 stopping for {stop} ms at a time");
    }
}

// A reset waits for the votes of members that are not suspected. Those that have answered no probe for as long as the suspected
// one would keep it waiting as long again.
#[test]
fn members_that_die_together_cost_one_patience() {
    let patience = Duration::from_secs(8);
    for order in [Order::Sequencer(Migration::default()), Order::Token] {
        for dead in [[0, 1], [0, 2], [0, 4], [3, 4]] {
            let config = GroupConfig { order, ..GroupConfig::default() };
            let mut net = group_with(5, config, Settings { patience, ..unicast() });
            net.send(2, b"before").unwrap();
            net.run(100 * MS);
            let died_at = net.now;
            dead.iter().for_each(|index| net.crash(*index));
            let alive = (0..5).find(|index| !dead.contains(index)).unwrap();
            let is_over = net.run_until(MS, 20_000 * MS, |net| net.epoch(alive) == 1);
            let took = Duration::from_nanos(net.now - died_at);
            assert!(is_over && took < patience * 9 / 8, "{order:?}, {dead:?}: {took:?}");
            assert_eq!(net.group(alive).info().members.len(), 3);
        }
    }
}

/// Returns how long a busy group of five is without its dead.
fn busy_group_without(order: Order, dead: &[usize]) -> Duration {
    let mut net = group_with(5, GroupConfig { order, ..GroupConfig::default() }, unicast());
    for step in 0..200 {
        let _is_full = net.send(step % 5, b"busy");
        net.run(MS);
    }
    let died_at = net.now;
    dead.iter().for_each(|index| net.crash(*index));
    let alive = (0..5).find(|index| !dead.contains(index)).unwrap();
    assert!(net.run_until(MS, 20_000 * MS, |net| net.epoch(alive) == 1));
    Duration::from_nanos(net.now - died_at)
}

#[test]
fn members_that_die_together_while_all_send_cost_one_patience() {
    for order in [Order::Sequencer(Migration::default()), Order::Token] {
        for other in 1..5 {
            let (one, two) = (busy_group_without(order, &[0]), busy_group_without(order, &[0, other]));
            assert!(two < one * 3 / 2, "{order:?}, 0 and {other}: {two:?}, 0 alone: {one:?}");
        }
    }
}
