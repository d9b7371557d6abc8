use super::*;
use crate::config::Transport;
use crate::identity::Name;
use crate::log::{Log, Message, Slice};
use crate::quality::Quality;
use crate::wire::LogBase;
use alloc::sync::Arc;
use core::net::Ipv4Addr;
use core::time::Duration;

const SILENCE: Duration = Duration::from_millis(100);
const DETECTOR_PATIENCE: Duration = Duration::from_millis(120);

fn member(uid: u64) -> Member {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, uid as u16));
    Member { uid: Uid(uid), name: Name::default(), address, floor: Default::default(), hops: 1 }
}

fn at(millisecond: u64) -> Time {
    Time::ZERO + Duration::from_millis(millisecond)
}

fn marks(received: Seqno, hears_multicast: bool) -> Watermarks {
    let (accepted, delivered) = (received - 1, received - 2);
    Watermarks { received, accepted, delivered, hears_multicast, ..Watermarks::default() }
}

/// Peers 1, 2, … that hold through these marks, and the view of them and of member 0.
fn group(marks: &[Seqno]) -> (Peers, Members) {
    let mut peers = Peers::default();
    for (uid, &mark) in (1..).zip(marks) {
        peers.insert(Peer::new(Time::ZERO, member(uid), Standing::Member, mark));
    }
    (peers, Arc::new((0..=marks.len() as u64).map(member).collect()))
}

#[test]
fn held_by_returns_the_highest_seqno_with_enough_holders() {
    for marks in [&[5, 9, 7, 9][..], &[3; 12], &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10]] {
        let (peers, view) = group(marks);
        let mine = 6;
        for holders in 1..=view.len() {
            let through = peers.held_by(&view, holders, Uid(0), mine);
            let hold = |seqno| marks.iter().chain([&mine]).filter(|&&mark| mark >= seqno).count();
            let is_most = through == mine || hold(through + 1) < holders;
            assert!(through <= mine && hold(through) >= holders && is_most, "{holders} of {marks:?}");
        }
        assert_eq!(peers.held_by(&view, view.len() + 1, Uid(0), mine), 0);
    }
}

#[test]
fn what_a_peer_holds_only_rises_until_a_reset_cuts_the_log() {
    let (mut peers, _) = group(&[5, 5]);
    let known = |peers: &Peers, uid| {
        let peer = peers.get(Uid(uid)).unwrap();
        [peer.received(), peer.accepted(), peer.delivered()]
    };
    assert!(peers.note_report(Uid(1), &marks(9, false), 100));
    assert!(peers.note_report(Uid(1), &marks(7, false), 100), "a late copy of an old report");
    assert_eq!(known(&peers, 1), [9, 8, 7]);
    assert!(peers.note_report(Uid(1), &marks(90, false), 12), "a report of seqnos that were not assigned");
    assert_eq!(known(&peers, 1), [12, 12, 12]);
    peers.hold_through(Uid(2), 8);
    peers.hold_through(Uid(2), 6);
    assert_eq!(known(&peers, 2), [8, 5, 5]);
    assert!(!peers.note_report(Uid(3), &marks(9, false), 100), "no such peer");

    peers.get_mut(Uid(2)).unwrap().note_entered();
    peers.begin_epoch(at(1), 10);
    assert_eq!((known(&peers, 1), known(&peers, 2)), ([10, 10, 10], [8, 5, 5]));
    assert!(!peers.get(Uid(2)).unwrap().has_entered());
}

#[test]
fn every_member_that_numbered_in_a_batch_holds_what_it_numbered() {
    let (mut peers, view) = group(&[0, 0, 0]);
    let base = LogBase {
        seqno: 0,
        members: view.to_vec(),
        term: (0, Uid(1)),
        order: (0, crate::config::Order::default()),
        last_numbers: Vec::new(),
    };
    let mut log = Log::after(&base);
    let append_message = |log: &mut Log| {
        let number = log.received() + 1;
        let message =
            Message { sender: Uid(0), number, quality: Quality::ORDERED, broadcast: false, data: None };
        log.append_message(message, Slice::alone(false, &Bytes::new()));
    };
    // Member 1 numbers 1 and 2, member 2 numbers 3 and 4, and member 3 numbers 5.
    for successor in [2, 3] {
        append_message(&mut log);
        log.append(Entry::Role(Uid(successor)));
    }
    append_message(&mut log);
    let held = |peers: &Peers| peers.iter().map(Peer::received).collect::<Vec<Seqno>>();
    peers.note_numberers(log.history(), 2, 3);
    assert_eq!(held(&peers), [0, 3, 0]);
    peers.note_numberers(log.history(), 1, 5);
    assert_eq!(held(&peers), [2, 4, 5]);
}

#[test]
fn only_members_count_as_holders_of_what_is_stable() {
    let (mut peers, _) = group(&[1, 1]);
    let observer = Standing::Observer { hello: Bytes::new(), since: at(0) };
    peers.insert(Peer::new(at(0), member(3), observer, 1));
    let leave = Change::Leave { uid: Uid(2), sequencer: Uid(0), goodbye: Bytes::new() };
    peers.take_change(at(0), Uid(0), 4, &leave);
    peers.all_hold_through(4);
    let held: Vec<Seqno> = peers.iter().map(Peer::received).collect();
    assert_eq!(held, [4, 1, 1]);
    assert_eq!(*peers.get(Uid(2)).unwrap().standing(), Standing::Leaver { seqno: 4, since: at(0) });
}

#[test]
fn peers_follow_joins_and_views_and_keep_what_was_known() {
    let (mut peers, _) = group(&[5, 6]);
    let observer = Standing::Observer { hello: Bytes::new(), since: at(0) };
    peers.insert(Peer::new(at(0), member(3), observer, 2));
    for joiner in [3, 4, 0] {
        let join = Change::Join { member: member(joiner), hello: Bytes::new() };
        peers.take_change(at(1), Uid(0), 7, &join);
    }
    assert!(peers.iter().all(Peer::is_member));
    let held: Vec<(Uid, Seqno)> = peers.iter().map(|peer| (peer.uid(), peer.received())).collect();
    assert_eq!(held, [(Uid(1), 5), (Uid(2), 6), (Uid(3), 2), (Uid(4), 0)], "without this member, 0");
    peers.take_view(at(2), Uid(0), &[member(0), member(2), member(9)], 3);
    let held: Vec<(Uid, Seqno)> = peers.iter().map(|peer| (peer.uid(), peer.received())).collect();
    assert_eq!(held, [(Uid(2), 6), (Uid(9), 3)]);
}

#[test]
fn the_audience_is_stale_when_its_inputs_change_and_at_no_other_time() {
    let (mut peers, _) = group(&[5, 5]);
    let mut addressing = Addressing::default();
    let means = Means {
        transport: Transport::Auto,
        here: Ipv4Addr::LOCALHOST.into(),
        announces: true,
        is_ring: false,
        multicast_heard: false,
        untold_hear: false,
        is_unheard: false,
    };
    let mut follow = |peers: &Peers, role_changes| {
        let was_stale = addressing.is_stale(peers, role_changes);
        addressing.compute(peers, role_changes, &means);
        (was_stale, addressing.audience().multicast, addressing.audience().addresses.len())
    };
    assert_eq!(follow(&peers, 0), (true, false, 2));
    peers.note_report(Uid(1), &marks(8, false), 100);
    assert_eq!(follow(&peers, 0), (true, false, 2), "it has reported");
    peers.note_report(Uid(1), &marks(9, false), 100);
    peers.hold_through(Uid(2), 9);
    assert_eq!(follow(&peers, 0), (false, false, 2), "who holds what does not matter");
    peers.note_report(Uid(1), &marks(9, true), 100);
    assert_eq!(follow(&peers, 0), (true, false, 2), "one hearer is too few");
    peers.note_report(Uid(2), &marks(9, true), 100);
    assert_eq!(follow(&peers, 0), (true, true, 0));
    peers.insert(Peer::new(at(0), member(3), Standing::Member, 0));
    assert_eq!(follow(&peers, 0), (true, true, 1), "the one that was not heard of gets a copy");
    peers.retain(|peer| peer.uid() != Uid(3));
    assert_eq!(follow(&peers, 0), (true, true, 0));
    peers.retain(|_| true);
    assert_eq!(follow(&peers, 0), (false, true, 0), "no peer was forgotten");
    assert_eq!(follow(&peers, 1), (true, true, 0), "the role moved");
    peers.clear();
    assert_eq!(follow(&peers, 1), (true, false, 0));
}

#[test]
fn a_member_that_does_not_announce_multicasts_only_if_all_are_said_to_hear() {
    let (mut peers, _) = group(&[5, 5]);
    peers.note_report(Uid(1), &marks(9, true), 100);
    let mut addressing = Addressing::default();
    let means = |multicast_heard| Means {
        transport: Transport::Auto,
        here: Ipv4Addr::LOCALHOST.into(),
        announces: false,
        is_ring: false,
        multicast_heard,
        untold_hear: false,
        is_unheard: false,
    };
    addressing.compute(&peers, 0, &means(false));
    assert_eq!(addressing.audience().addresses.len(), 2);
    addressing.put_first(member(2).address);
    assert_eq!(addressing.audience().addresses[0], member(2).address);
    addressing.compute(&peers, 1, &means(true));
    assert_eq!(*addressing.audience(), Audience { multicast: true, addresses: Vec::new() });
}

#[test]
fn a_member_of_a_ring_takes_the_word_of_the_token_for_those_that_have_not_reported_to_it() {
    let (mut peers, _) = group(&[5, 5, 5]);
    let mut addressing = Addressing::default();
    let mut compute = |peers: &Peers, role_changes, untold_hear| {
        let (transport, here) = (Transport::Auto, Ipv4Addr::LOCALHOST.into());
        let (announces, multicast_heard, is_unheard) = (true, untold_hear, false);
        let means =
            Means { transport, here, announces, is_ring: true, multicast_heard, untold_hear, is_unheard };
        addressing.compute(peers, role_changes, &means);
        (addressing.audience().multicast, addressing.audience().addresses.len())
    };
    assert_eq!(compute(&peers, 0, false), (false, 3));
    assert_eq!(compute(&peers, 1, true), (true, 0));
    peers.note_report(Uid(2), &marks(9, false), 100);
    assert_eq!(compute(&peers, 2, true), (true, 1), "its own report counts");
    assert!(!peers.all_hear_multicast(true));
    peers.note_report(Uid(2), &marks(9, true), 100);
    assert!(peers.all_hear_multicast(true) && !peers.all_hear_multicast(false));
}

// Two members on other machines get copies from a sequencer and a multicast from a member of a ring.
#[test]
fn a_ring_multicasts_sooner() {
    let (peers, _) = group(&[5, 5]);
    let multicasts = |is_ring| {
        let (transport, here) = (Transport::Auto, Ipv4Addr::new(192, 0, 2, 1).into());
        let (announces, multicast_heard, untold_hear, is_unheard) = (true, true, true, false);
        let means = Means { transport, here, announces, is_ring, multicast_heard, untold_hear, is_unheard };
        let mut addressing = Addressing::default();
        addressing.compute(&peers, 0, &means);
        addressing.audience().multicast
    };
    assert!(!multicasts(false) && multicasts(true));
}

/// A look at `millisecond`, at a peer for which no message waits.
fn look(peer: &mut Peer, millisecond: u64) -> Finding {
    look_at(peer, millisecond, true)
}

/// A look at `millisecond`, at a peer that is not watched.
fn glance(peer: &mut Peer, millisecond: u64) -> Finding {
    look_at(peer, millisecond, false)
}

fn look_at(peer: &mut Peer, millisecond: u64, is_watched: bool) -> Finding {
    let knobs = Look {
        silence: SILENCE,
        patience: DETECTOR_PATIENCE,
        burst: DETECTOR_PATIENCE,
        is_watched,
        waits_since: None,
        term: 0,
        nonce: 77,
    };
    peer.look(at(millisecond), &knobs)
}

#[test]
fn a_silent_peer_is_probed_and_suspected_when_it_answers_no_probe_in_time() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    assert_eq!(look(&mut peer, 99), Finding::Alive(at(100)));
    assert_eq!(look(&mut peer, 100), Finding::Probe(77));
    assert_eq!(look(&mut peer, 105), Finding::Waits(at(110)));
    for probe in 1..12 {
        assert_eq!(look(&mut peer, 100 + 10 * probe), Finding::Probe(77));
    }
    assert_eq!(look(&mut peer, 220), Finding::Suspect(Suspicion::Silent));
    assert_eq!(peer.take_answer(76), None, "an answer to other probes");
    assert_eq!(peer.take_answer(77), Some(at(100)));
    peer.note_heard(at(221));
    assert_eq!(look(&mut peer, 222), Finding::Alive(at(321)));
}

#[test]
fn probes_that_ended_long_ago_are_not_held_against_a_peer() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    for probe in 0..12 {
        assert_eq!(glance(&mut peer, 100 + 10 * probe), Finding::Probe(77));
    }
    let has_answered_none = |millisecond| peer.has_answered_none(at(millisecond), DETECTOR_PATIENCE);
    assert!(!has_answered_none(219), "it still has time");
    assert!(has_answered_none(220) && has_answered_none(329));
    assert!(!has_answered_none(330), "it may answer by now");
}

#[test]
fn a_look_at_a_peer_that_is_not_watched_shows_nothing_of_what_it_hears() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    peer.note_heard(at(5000));
    assert_eq!(glance(&mut peer, 5001), Finding::Alive(at(5100)));
    assert_eq!(peer.heard_us(), None);
    look(&mut peer, 5001);
    assert_eq!(peer.heard_us(), Some(at(5001)), "from when it is watched, it has time to show it");
}

#[test]
fn a_peer_that_is_heard_and_shows_for_six_silences_that_it_hears_nothing_is_deaf() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    let mut found = Finding::Alive(at(0));
    for millisecond in (0..1200).step_by(10) {
        peer.note_heard(at(millisecond));
        found = look(&mut peer, millisecond);
        if matches!(found, Finding::Suspect(_)) {
            // Three times the patience, since datagrams came during the burst.
            assert!(millisecond >= 600 + 3 * 120, "{millisecond}");
            break;
        }
    }
    assert_eq!(found, Finding::Suspect(Suspicion::Deaf));
}

#[test]
fn a_peer_for_which_a_message_waits_is_probed_after_a_sixth_of_the_silence() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    let owing = |since| Look {
        silence: SILENCE,
        patience: DETECTOR_PATIENCE,
        burst: DETECTOR_PATIENCE,
        is_watched: true,
        waits_since: Some(at(since)),
        term: 0,
        nonce: 1,
    };
    assert!(matches!(peer.look(at(16), &owing(0)), Finding::Alive(_)));
    assert_eq!(peer.look(at(17), &owing(0)), Finding::Probe(1));
}

#[test]
fn sleep_of_this_process_is_taken_off_the_silence_at_most_three_times_in_a_row() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    peer.forgive(at(90), Duration::from_millis(80));
    assert_eq!(look(&mut peer, 100), Finding::Alive(at(180)));
    assert_eq!(look(&mut peer, 180), Finding::Probe(77));
    for times in 1..=4 {
        peer.forgive(at(180 + times), Duration::from_millis(50));
    }
    assert_eq!(peer.probed_since(), Some(at(183)), "the fourth time counts for nothing");

    let mut detector = Detector::default();
    assert_eq!(detector.note_own_lateness(at(39), at(0)), None);
    assert_eq!(detector.note_own_lateness(at(139), at(50)), Some(Duration::from_millis(49)));
    assert_eq!(detector.late_ms(at(139)), 89);
    assert!(
        detector.patience(at(139), DETECTOR_PATIENCE) > DETECTOR_PATIENCE,
        "members are late though alive"
    );
}

#[test]
fn a_suspicion_keeps_its_first_reason() {
    let mut peer = Peer::new(at(0), member(1), Standing::Member, 0);
    assert!(peer.suspect(Suspicion::Slow) && !peer.suspect(Suspicion::Silent));
    assert_eq!(peer.suspected(), Some(Suspicion::Slow));
    assert!(!peer.is_asked_on(), "only a deaf peer is probed on");
    peer.suspect_no_longer();
    assert!(peer.suspect(Suspicion::Deaf) && peer.is_asked_on());
}
