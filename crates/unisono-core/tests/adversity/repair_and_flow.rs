//! Retransmission of what was lost, and flow control with slow members.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

// The message fits a datagram of its sender, but not one of the sequencer. The sequencer must neither answer it with
// endless datagrams nor leave it unordered.
#[test]
fn a_message_is_ordered_although_its_senders_datagrams_are_larger() {
    let config = GroupConfig { broadcast_above_bytes: 100_000, ..GroupConfig::default() };
    let mut net = Net::new();
    net.add(EntryMode::Found(config), unicast());
    net.add(EntryMode::Join, Settings { datagram_bytes_max: 9000, ..unicast() });
    net.run(300 * MS);
    net.send(1, &[7; 5000]).unwrap();
    net.run(500 * MS);
    net.show("half a second later");
    assert!(!net.storm, "endless datagrams from one input");
    assert!(!net.outcomes[1].is_empty(), "the message is never ordered");
}

/// Returns settings for a socket that holds about fifty messages of 1,000 bytes.
fn little_buffers() -> Settings {
    Settings { receive_buffer_bytes: 100_000, ..unicast() }
}

// A member whose process is stopped reads nothing. All that is sent to it must fit its socket, or is lost.
#[test]
fn no_more_is_sent_than_sockets_hold_while_a_member_stands_still() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(3, config, little_buffers());
    let heard = Rc::new(Cell::new(0));
    let counted = heard.clone();
    net.filter(move |seen| {
        if seen.to == 2 {
            counted.set(counted.get() + seen.bytes);
        }
        if seen.from == 2 { LOST } else { PROMPT }
    });
    for n in 0..300_u32 {
        net.send((n % 2) as usize, &[n as u8; 1000]).unwrap();
    }
    net.run(30 * MS);
    assert!((20_000..50_000).contains(&heard.get()), "{} bytes", heard.get());
    net.calm();
    net.run(1000 * MS);
    assert_eq!(net.delivered(2), 300);
}

// The sequencer waits until the members hold what is under way. It must learn that from their own reports, not from the
// answers to the next heartbeat.
#[test]
fn members_that_keep_up_delay_no_sender_however_little_their_sockets_hold() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(3, config, little_buffers());
    for n in 0..300_u32 {
        net.send(0, &[n as u8; 1000]).unwrap();
    }
    net.run(10 * MS);
    assert_eq!(net.delivered(2), 300);
}

// A member whose application receives nothing keeps the window of all members shut. By the group's rule it is excluded,
// whatever its rank (hazard H29).
#[test]
fn a_slow_member_is_excluded_whatever_its_rank() {
    for slow in 1..4 {
        let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
        let config = GroupConfig { history_messages: 32, slow_member, ..GroupConfig::default() };
        let mut net = group_with(4, config, unicast());
        net.asleep[slow] = true;
        for n in 0..100_u32 {
            net.send(0, &n.to_be_bytes()).ok();
            net.run(MS);
        }
        net.run(3_000 * MS);
        net.show("three seconds later");
        assert_eq!(net.size(0), 3, "m{slow} receives nothing");
    }
}

// Two members are slow, and one of them catches up. If the whole time for which the window was shut counted against the
// member that shut it first, the wrong member would be excluded (hazard H29).
#[test]
fn a_member_that_caught_up_is_not_excluded_for_another() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(1000));
    let config = GroupConfig { history_messages: 32, slow_member, ..GroupConfig::default() };
    let mut net = group_with(4, config, unicast());
    net.asleep[2] = true;
    net.asleep[3] = true;
    for n in 0..60_u32 {
        net.send(1, &n.to_be_bytes()).ok();
        net.run(MS);
    }
    net.run(100 * MS);
    net.asleep[2] = false;
    net.drain(2);
    net.run(60 * MS);
    let waiting = net.group(0).report(Time::from_nanos(net.now)).waiting;
    assert_eq!(waiting[0].member, Some(uid(3)), "m2 has caught up; m3 keeps the window shut");
    for _ in 0..300 {
        net.run(10 * MS);
        net.drain(2);
    }
    net.show("m2 is not slow, m3 is");
    assert_eq!(net.phase(2), Phase::Member, "excluded for the slowness of m3");
}

// The sequencer detects slow members, and does not exclude itself: it gives the role to another member, which does.
#[test]
fn a_sequencer_whose_own_application_sleeps_gives_the_role_away_and_is_excluded() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let config = GroupConfig { history_messages: 32, slow_member, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.asleep[0] = true;
    (0..40).for_each(|_| _ = net.send(1, b"x").unwrap());
    net.run(450 * MS);
    assert_eq!((net.group(1).info().sequencer, net.delivered(1)), (uid(0), 32));
    net.run(300 * MS);
    assert_eq!((net.group(1).info().sequencer, net.size(1)), (uid(1), 3), "the role has moved");
    net.run(1_000 * MS);
    net.show("a second later");
    assert_eq!((net.size(1), net.delivered(1)), (2, 32), "what waited for room has failed by the reset");
    net.send(1, b"y").unwrap();
    net.run(100 * MS);
    assert_eq!((net.delivered(1), net.delivered(2)), (33, 33));
}

// The role of this group never moves. Reports say since when members wait for the sequencer's application.
#[test]
fn a_sequencer_whose_own_application_sleeps_is_waited_for_if_the_role_never_moves() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
    let order = Order::Sequencer(Migration::Never);
    let config = GroupConfig { history_messages: 32, slow_member, order, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.asleep[0] = true;
    (0..40).for_each(|_| _ = net.send(1, b"x").unwrap());
    net.run(3_000 * MS);
    assert_eq!((net.epoch(0), net.size(1), net.delivered(1)), (0, 3, 32));
    let waiting = net.group(0).report(Time::from_nanos(net.now)).waiting;
    let wait = waiting.iter().find(|wait| wait.member == Some(uid(0))).expect("m0 is waited for");
    assert!(wait.since > Duration::from_millis(2_900), "since {:?}", wait.since);
    net.asleep[0] = false;
    net.drain(0);
    net.run(20 * MS);
    assert_eq!(net.delivered(1), 40);
}

// A sequencer gives the role away while a member keeps the window shut, and gets it back long after that member caught
// up. If it continued its earlier measurement, it would exclude a member for which no member waits (hazard H29).
#[test]
fn a_member_that_was_slow_in_an_earlier_term_of_the_sequencer_is_not_excluded_in_a_later_one() {
    let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(1000));
    let config = GroupConfig { history_messages: 32, slow_member, ..GroupConfig::default() };
    let mut net = group_with(4, config, unicast());
    net.asleep[3] = true;
    for n in 0..60_u32 {
        net.send(2, &n.to_be_bytes()).ok();
        net.run(MS);
    }
    let window_shut_by = |net: &Net| {
        let waiting = net.group(0).report(Time::from_nanos(net.now)).waiting;
        waiting.iter().find(|wait| wait.reason == look::WaitReason::Window).and_then(|wait| wait.member)
    };
    assert_eq!(window_shut_by(&net), Some(uid(3)));
    net.hand_over(0, 1);
    net.run(50 * MS);
    assert_eq!(net.group(0).info().sequencer, uid(1), "a shut window does not keep the role from moving");
    assert_eq!(window_shut_by(&net), None, "m1 is the sequencer now");
    net.asleep[3] = false;
    net.drain(3);
    net.run(2_000 * MS);
    net.drain(3);
    net.hand_over(1, 0);
    net.run(1_000 * MS);
    net.show("m0 has the role again");
    assert_eq!((net.size(0), net.phase(3)), (4, Phase::Member), "excluded for an old delay");
}

// An application takes one event at a time, too few for its member to report. While members wait, the sequencer asks
// for the watermark every 10 ms. With the heartbeats of an idle group each message would take 100 ms.
#[test]
fn the_room_that_an_application_makes_is_used_within_a_heartbeat() {
    let config = GroupConfig { history_messages: 16, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.asleep[2] = true;
    (0..20).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(1_000 * MS);
    assert_eq!(net.delivered(1), 16, "the window is shut");
    assert!(net.group_mut(2).poll_event().is_some());
    net.drain(2);
    net.run(11 * MS);
    assert_eq!(net.delivered(1), 17);
}

// Heartbeats ask members for their watermarks. m2 receives no heartbeats.
#[test]
fn a_member_that_hears_no_heartbeat_reports_its_watermarks() {
    let config = GroupConfig { resilience: 0, history_messages: 64, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.run(500 * MS);
    let heartbeat = |frame: &Frame| matches!(frame, Frame::Heartbeat(_));
    net.filter(move |seen| if seen.to == 2 && seen.has(heartbeat) { LOST } else { PROMPT });
    net.asleep[2] = true;
    (0..128).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(20 * MS);
    assert!(net.group(0).info().under_way > 0, "the case was not reached");
    let report = net.group(0).report(Time::from_nanos(net.now));
    assert!(report.members[2].received >= report.end - 64 / 8, "it does not report what it holds");
    net.asleep[2] = false;
    net.drain(2);
    net.run(5 * MS);
    assert_eq!(net.delivered(2), 128, "it does not report what its application has received");
}

// Room comes for one message at a time. If the same sender always came first, the other one would never have a turn.
#[test]
fn senders_take_turns_however_little_room_there_is() {
    let config = GroupConfig { history_messages: 16, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.asleep[2] = true;
    (0..16).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(100 * MS);
    for _ in 0..20 {
        net.send(0, b"of m0").unwrap();
        net.send(1, b"of m1").unwrap();
    }
    net.run(100 * MS);
    let numbered = |net: &Net, index: usize| net.outcomes[index].len();
    let before = (numbered(&net, 0), numbered(&net, 1));
    for _ in 0..12 {
        assert!(net.group_mut(2).poll_event().is_some());
        net.drain(2);
        net.run(20 * MS);
    }
    assert_eq!((numbered(&net, 0), numbered(&net, 1)), (before.0 + 6, before.1 + 6));
}

// In an endless stream the loss of the last message shows by the next one. But the sequencer must also report what is
// accepted and what is stable. If each seqno put the next heartbeat off, it never would.
#[test]
fn while_places_keep_coming_a_heartbeat_goes_along_at_the_longest_interval() {
    let mut net = group_of(3, 0);
    let beats = Rc::new(Cell::new(0));
    let counted = beats.clone();
    net.filter(move |seen| {
        let beat = seen.has(|frame| matches!(frame, Frame::Heartbeat(_)));
        counted.set(counted.get() + usize::from((seen.from, seen.to) == (0, 1) && beat));
        PROMPT
    });
    for _ in 0..200 {
        net.send(0, b"x").unwrap();
        net.run(5 * MS);
    }
    assert!((9..=11).contains(&beats.get()), "{} in a second", beats.get());
}

// When everything that a sender had under way was lost, its back-off is long and its window small. If they stayed so
// after the first message got through, the others would follow one by one, each after a full time-out (hazard H32).
#[test]
fn a_sender_that_lost_everything_is_soon_up_to_speed() {
    let mut net = group_of(3, 0);
    net.filter(|seen| {
        let data = seen.has(|frame| matches!(frame, Frame::Data(_)));
        if seen.from == 1 && data { LOST } else { PROMPT }
    });
    for n in 0..60_u32 {
        let mut payload = vec![0; 1200];
        payload[..4].copy_from_slice(&n.to_be_bytes());
        net.send(1, &payload).unwrap();
        net.run(MS);
    }
    net.run(3_000 * MS);
    net.calm();
    let begin = net.now;
    net.run_until(10 * MS, 60_000 * MS, |net| net.outcomes[1].len() >= 60);
    let took = (net.now - begin) / MS;
    assert!(took < 2_000, "{took} ms after the losses ended {} of 60 are ordered", net.outcomes[1].len());
}

// The seqnos reach m2 later than the sender, which sends on. The unordered buffer of a member must have room for more
// of one sender than the sequencer's window. Otherwise m2 would have to request everything that arrived too early.
#[test]
fn a_member_that_learns_the_numbers_late_keeps_what_the_sequencer_takes() {
    let window = 16;
    let config = GroupConfig { resilience: 0, broadcast_above_bytes: 0, window, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    let asked = net.group(2).counters().nacks_sent;
    net.filter(|seen| if (seen.from, seen.to) == (0, 2) { Some(5 * MS) } else { PROMPT });
    for _ in 0..2 {
        for n in 0..window {
            net.send(1, &n.to_be_bytes()).unwrap();
        }
        net.run(MS);
        assert_eq!(net.group(1).info().under_way, 0, "the sender has room again");
    }
    net.run(100 * MS);
    assert_eq!(net.delivered(2), 2 * window as usize);
    assert_eq!(net.group(2).counters().nacks_sent, asked, "m2 requests what it was sent");
}

// Everything goes through the sequencer. If it had to copy the data of busy members, they would wait for it.
#[test]
fn busy_members_of_a_multicast_group_spare_the_sequencer_their_bytes() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings::default());
    net.run(3000 * MS);
    assert!(net.group(1).audience().multicast);
    let copied = Rc::new(Cell::new(0));
    let counted = copied.clone();
    net.filter(move |seen| {
        let ordered = seen.has(|frame| matches!(frame, Frame::Ordered(_)));
        counted.set(counted.get() + usize::from((seen.from, seen.to) == (0, 1) && ordered));
        PROMPT
    });
    for _ in 0..3 {
        net.send(1, &[7; 600]).unwrap();
        net.run(10 * MS);
    }
    assert_eq!(copied.replace(0), 3, "single messages go through the sequencer, one copy each");
    for _ in 0..100 {
        net.send(1, &[7; 600]).unwrap();
    }
    net.run(100 * MS);
    assert_eq!(net.delivered(4), 103);
    assert!(copied.get() < 10, "the sequencer copies {} of 100 messages", copied.get());
}

// A member lacks nearly a whole history of seqnos, and keeps what arrives by BB meanwhile. When it has received the
// missing entries, no member needs to send it the data of the next ones again, and it has caught up.
#[test]
fn a_member_that_is_a_history_behind_keeps_what_it_needs_next() {
    let config = GroupConfig {
        resilience: 0,
        window: 16,
        history_messages: 128,
        broadcast_above_bytes: 0,
        ..GroupConfig::default()
    };
    let mut net = group_with(3, config, unicast());
    net.run(500 * MS);
    let again = Rc::new(Cell::new(0));
    let (counted, deaf) = (again.clone(), Rc::new(Cell::new(true)));
    let is_deaf = deaf.clone();
    net.filter(move |seen| {
        let orders = (seen.from, seen.to) == (0, 2);
        if orders && is_deaf.get() {
            return LOST;
        }
        let places = |frame: &Frame| match frame {
            Frame::Ordered(ordered) => ordered.pieces.len(),
            _ => 0,
        };
        if orders {
            counted.set(counted.get() + seen.frames.iter().map(places).sum::<usize>());
        }
        PROMPT
    });
    for _ in 0..6 {
        (0..16).for_each(|_| _ = net.send(1, b"by BB").unwrap());
        net.run(2 * MS);
    }
    assert_eq!((net.delivered(1), net.delivered(2)), (96, 0), "the case was not reached");
    deaf.set(false);
    (0..16).for_each(|_| _ = net.send(1, b"by BB").unwrap());
    net.run(500 * MS);
    assert_eq!(net.delivered(2), 112);
    assert!(again.get() <= 96, "{} messages were sent again with their data", again.get());
}

// m1's history is full when the epoch begins. The first sequencer of the epoch gives its role away before it has
// announced what is stable. The seqno of the role event shows that to m1: it was assigned because there was room.
#[test]
fn the_place_of_a_change_shows_what_a_full_history_may_let_go() {
    let config = GroupConfig { history_messages: 16, ..GroupConfig::default() };
    let mut net = group_with(6, config, unicast());
    net.run(500 * MS);
    net.asleep[1] = true;
    (0..16).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(200 * MS);
    for leaver in [5, 4, 3] {
        net.leave(leaver);
        net.run(300 * MS);
    }
    let heartbeat = |frame: &Frame| matches!(frame, Frame::Heartbeat(_));
    net.filter(move |seen| if seen.to == 1 && seen.has(heartbeat) { LOST } else { PROMPT });
    net.crash(2);
    let both = |net: &Net| net.epoch(0) == 1 && net.epoch(1) == 1;
    assert!(net.run_until(MS / 20, 5_000 * MS, both), "the case was not reached");
    net.asleep[1] = false;
    net.drain(1);
    assert_eq!(net.group(1).marks().history, 16 + 3 + 1, "the case was not reached");
    net.hand_over(0, 1);
    net.run(100 * MS);
    net.show("a moment after the hand-over");
    assert!(net.group(1).marks().acting, "m1 cannot take the role");
}

// Changes have slots of their own beside the history, and these are limited too: members file nothing beyond them. Two
// members hand the role back and forth while m1 frees nothing, because its application sleeps.
#[test]
fn changes_wait_too_when_their_slots_are_full() {
    let config = GroupConfig { history_messages: 16, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.asleep[1] = true;
    (0..16).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(200 * MS);
    for _ in 0..100 {
        let orders = if net.group(0).marks().acting { 0 } else { 2 };
        if net.group(orders).marks().acting {
            net.hand_over(orders, 2 - orders);
        }
        net.run(10 * MS);
        for index in 0..3 {
            let kept = net.group(index).marks().history;
            assert!(kept <= 16 + 3 + 2, "m{index} keeps {kept} entries");
        }
    }
    net.asleep[1] = false;
    net.drain(1);
    net.send(0, b"x").unwrap();
    net.run(500 * MS);
    assert_eq!(net.delivered(1), 17);
}

// Histories keep what an observer lacks, but no member waits for it: it may never be heard again.
#[test]
fn no_member_waits_for_a_silent_observer() {
    let few = GroupConfig { resilience: 0, history_messages: 64, ..GroupConfig::default() };
    let little = GroupConfig { resilience: 0, history_bytes: 65_536, ..GroupConfig::default() };
    for (config, bytes) in [(few, 1), (little, 1000)] {
        let mut net = group_with(3, config, unicast());
        net.filter(|seen| if seen.from == 3 && !seen.outside { LOST } else { PROMPT });
        let observer = net.add(EntryMode::Join, unicast());
        assert!(net.run_until(MS / 20, 10_000 * MS, |net| net.phase(observer) == Phase::Joining));
        for _ in 0..200 {
            net.send(1, &vec![7; bytes]).unwrap();
            net.run(MS);
        }
        assert_eq!(net.phase(observer), Phase::Joining, "the case was not reached");
        assert_eq!(net.delivered(0), 200, "messages of {bytes} bytes");
    }
}

// Large messages fill a history by their bytes, before it has many entries. A member that receives nothing must not
// make the others keep more.
#[test]
fn a_history_is_full_as_well_when_its_bytes_are() {
    let config = GroupConfig { resilience: 0, history_bytes: 65_536, ..GroupConfig::default() };
    let mut net = group_with(3, config, unicast());
    net.cut_off(2);
    (0..120).for_each(|_| _ = net.send(1, &[7; 1000]).unwrap());
    net.run(200 * MS);
    assert_eq!(net.delivered(1), 66, "messages of a thousand bytes fill 64 KiB");
    net.calm();
    net.run(1_000 * MS);
    assert_eq!((net.delivered(1), net.delivered(2)), (120, 120));
}

/// Nanoseconds that a byte takes on a wire of 10 Mbit/s.
const BYTE: u64 = 800;

// Without a limit a sender fills the queue before a slow wire until it overflows, and then resends much of it. If it
// asked for the seqno of every datagram, the answers would take a tenth of the wire.
#[test]
fn a_slow_wire_is_filled_and_not_flooded() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings::default());
    net.run(3000 * MS);
    let lost = Rc::new(Cell::new(0));
    let numbers = Rc::new(Cell::new(0));
    let (losing, numbering) = (lost.clone(), numbers.clone());
    let (mut free_at, mut last) = (0, PROMPT);
    net.filter(move |seen| {
        if (seen.from, seen.to) == (0, 1) && seen.has(|frame| matches!(frame, Frame::Numbers(_))) {
            numbering.set(numbering.get() + 1);
        }
        if seen.from != 1 {
            return PROMPT;
        }
        // The copies of a multicast pass the wire once.
        if seen.to == 0 {
            let waits = u64::saturating_sub(free_at, seen.now);
            last = LOST;
            if waits < 100 * MS {
                free_at = seen.now + waits + (seen.bytes as u64 + 66) * BYTE;
                last = Some(free_at - seen.now + LATENCY);
            } else {
                losing.set(losing.get() + 1);
            }
        }
        last
    });
    let begin = net.delivered(4);
    for _ in 0..3000 {
        while net.send(1, &[7; 1200]).is_ok() {}
        net.run(MS);
    }
    let delivered = net.delivered(4) - begin;
    let carried = 3000 * MS / ((1200 + 66 + 90) * BYTE);
    assert_eq!(lost.get(), 0, "the queue overflows");
    assert!(delivered as u64 >= carried * 95 / 100, "{delivered} of {carried} that the wire carries");
    assert!(numbers.get() < delivered / 6, "{} datagrams to number {delivered}", numbers.get());
}

// Messages a little larger than a datagram would leave every second datagram nearly empty, if the next message did not
// begin there.
#[test]
fn pieces_fill_their_datagrams() {
    let mut net = group_of(2, 0);
    let datagrams = Rc::new(Cell::new(0));
    let counted = datagrams.clone();
    net.filter(move |seen| {
        counted.set(counted.get() + usize::from(seen.has(|frame| matches!(frame, Frame::Data(_)))));
        PROMPT
    });
    let now = Time::from_nanos(net.now);
    for _ in 0..50 {
        net.group_mut(1).send(now, vec![7; 1400].into()).unwrap();
    }
    net.drain(1);
    net.run(100 * MS);
    assert_eq!(net.delivered(0), 50);
    assert!(datagrams.get() < 70, "{} datagrams for fifty messages", datagrams.get());
}

#[test]
fn a_request_that_no_member_answers_is_repeated_ever_more_rarely() {
    let mut net = group_of(3, 0);
    let is_data = |frame: &Frame| matches!(frame, Frame::Ordered(_));
    net.filter(move |seen| if seen.to == 2 && seen.has(is_data) { LOST } else { PROMPT });
    net.send(0, b"x").unwrap();
    let (mut asked, mut known) = (Vec::new(), net.group(2).counters().nacks_sent);
    for ms in 0..2_000_u64 {
        net.run(MS);
        let sent = net.group(2).counters().nacks_sent;
        if sent > known {
            asked.push(ms);
        }
        known = sent;
    }
    let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (nth, &pause) in pauses.iter().enumerate() {
        let least = (8 << nth.min(10)).min(200);
        // Up to a quarter longer at random, and 1 ms for the resolution of this test.
        assert!((least - 1..=least + least / 4 + 1).contains(&pause), "{pauses:?}");
    }
    assert!(pauses.len() > 8, "{pauses:?}");
}

/// Requests these seqnos from m0 in the name of m1. The packet number is so high that m0 drops everything else from m1.
fn ask_for(net: &mut Net, ranges: Vec<(Seqno, Seqno)>) {
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    let nack = forge(group, epoch, uid(1), 1_000_000, &[Frame::Nack { ranges }]);
    net.inject(0, address(1), &nack);
}

#[test]
fn one_request_is_answered_with_512_places() {
    let mut net = group_of(2, 0);
    net.asleep[0] = true;
    (0..1_000).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(100 * MS);
    let before = net.group(0).counters().repairs_sent;
    ask_for(&mut net, vec![(1, 400), (401, 1_000)]);
    net.drain(0);
    assert_eq!(net.group(0).counters().repairs_sent - before, 512);
}

#[test]
fn a_request_for_what_all_members_held_is_answered_with_gone() {
    let mut net = group_of(2, 0);
    (0..100).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(500 * MS);
    let purged = net.group(0).marks().purged;
    assert!(purged > 0, "the case was not reached");
    let told: Rc<Cell<bool>> = Rc::default();
    let note = told.clone();
    net.filter(move |seen| {
        note.set(note.get() || seen.frames.contains(&Frame::Gone { through: purged }));
        PROMPT
    });
    ask_for(&mut net, vec![(1, 1)]);
    net.drain(0);
    assert!(told.get());
}

// m3 receives nothing any more, and the history is full of what it lacks. Joins and leaves have slots of their own
// beside the history, so they do not wait for m3 (hazard H28).
#[test]
fn members_come_and_go_while_the_history_is_full() {
    let config = GroupConfig { history_messages: 16, automatic: false, ..GroupConfig::default() };
    let mut net = group_with(4, config, unicast());
    net.run(500 * MS);
    net.cut_off(3);
    (0..17).for_each(|_| _ = net.send(0, b"x"));
    net.run(100 * MS);
    assert_eq!((net.delivered(1), net.group(0).marks().history), (16, 16), "the case was not reached");
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 200 * MS, |net| net.phase(joiner) == Phase::Member), "it is not admitted");
    net.leave(1);
    assert!(net.run_until(MS, 200 * MS, |net| net.phase(1) == Phase::Gone), "m1 gets no farewell");
    assert_eq!((net.delivered(0), net.size(joiner)), (16, 4), "the history is still full");
}

// An accept asks nothing. Members that need not acknowledge report every 50 ms all the same, since the history of all
// others waits for them.
#[test]
fn a_member_that_need_not_acknowledge_reports_every_50_ms() {
    let mut net = group_with(5, GroupConfig { resilience: 2, ..GroupConfig::default() }, unicast());
    net.run(1_000 * MS);
    let reports = Rc::new(Cell::new(0));
    let count = reports.clone();
    net.filter(move |seen| {
        let is_report = seen.from == 4 && seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        count.set(count.get() + u32::from(is_report));
        PROMPT
    });
    for _ in 0..200 {
        net.send(1, b"x").unwrap();
        net.run(5 * MS);
    }
    assert!((16..=21).contains(&reports.get()), "{} reports in a second", reports.get());
}
