//! The token goes round, so that no member carries the load alone, and rests when no message calls for a pass.

use super::*;

// If one member kept the token, it would number everything, and carry the group's load alone (WMK94 §4.1).
#[test]
fn all_that_send_number_about_the_same() {
    for resilience in 0..3 {
        let mut net = ring(4, resilience);
        let traffic = watch(&mut net);
        talk(&mut net, 4_000, &[0, 1, 2, 3]);
        net.run(100 * MS);
        let shares = [0, 1, 2, 3].map(|index| traffic.borrow().numbered_by(index));
        assert_eq!(shares.iter().sum::<usize>(), 4_000);
        assert!(shares.iter().all(|share| (700..=1_300).contains(share)), "r {resilience}: {shares:?}");
    }
}

// A move of a sequencer's role empties the unordered buffer and restarts every outbox. In a ring all would be sent
// again at each pass (hazard H69).
#[test]
fn no_message_is_sent_twice_because_the_token_goes_round() {
    let mut net = ring(4, 1);
    let sent = Rc::new(RefCell::new(BTreeMap::<(usize, MessageNumber), BTreeSet<u64>>::new()));
    let (noted, wants) = (sent.clone(), Rc::new(Cell::new(0)));
    let wanted = wants.clone();
    net.filter(move |seen| {
        for frame in &seen.frames {
            match frame {
                Frame::Data(data) => (data.first..data.first + data.pieces.len() as u64).for_each(|number| {
                    noted.borrow_mut().entry((seen.from, number)).or_default().insert(seen.number);
                }),
                Frame::Want { .. } => wanted.set(wanted.get() + 1),
                _ => {}
            }
        }
        PROMPT
    });
    talk(&mut net, 2_000, &[0, 1, 2, 3]);
    net.run(100 * MS);
    let again = sent.borrow().values().filter(|datagrams| datagrams.len() > 1).count();
    assert_eq!((again, wants.get(), net.delivered(3)), (0, 0, 2_000));
}

// Only messages call for passes. If a pass called for another one, a ring would never be silent (hazard H51).
#[test]
fn after_the_last_message_the_token_rests_and_the_ring_is_as_silent_as_a_sequencer() {
    let silence = |net: &mut Net| {
        let traffic = watch(net);
        net.run(2_000 * MS);
        let traffic = traffic.borrow();
        (traffic.datagrams.len(), traffic.passes.len())
    };
    let multicast = Settings { transport: Transport::Multicast, ..Settings::default() };
    for resilience in 0..3 {
        let mut net = ring(4, resilience);
        let traffic = watch(&mut net);
        talk(&mut net, 500, &[0, 1, 2, 3]);
        net.run(500 * MS);
        let last = *traffic.borrow().numbered.keys().next_back().unwrap();
        let after = traffic.borrow().passes.range(last..).count();
        assert!((1..=4).contains(&after), "r {resilience}: {after} passes follow the last message");
        // The last passes are accepted, too (hazard H72).
        for index in 0..4 {
            let marks = net.group(index).marks();
            assert_eq!((marks.received, marks.accepted), (last + after as u64, last + after as u64));
        }
        let mut fixed =
            group_with(4, GroupConfig { resilience, ..GroupConfig::default() }, multicast.clone());
        fixed.run(3_000 * MS);
        let ((ring, passes), (fixed, _)) = (silence(&mut net), silence(&mut fixed));
        assert!(passes == 0 && ring <= fixed + 4, "r {resilience}: {ring} datagrams instead of {fixed}");
    }
}

// A message at r = 0 needs no other holder. One pass shares the load; further ones would only cost.
#[test]
fn one_pass_follows_a_lone_message_that_needs_no_other_holder() {
    let mut net = ring(4, 0);
    for round in 0..8 {
        let traffic = watch(&mut net);
        net.send(2, b"x").unwrap();
        net.run(200 * MS);
        assert_eq!(traffic.borrow().passes.len(), 1, "round {round}");
    }
    assert_eq!(net.delivered(0), 8);
}

// In a moving ring no member acknowledges. If the last message of a burst got no passes, it would be accepted by the
// next heartbeat, 10 ms later; likewise at its sender, if a member that can accept by itself showed nothing (hazards
// H50 and H94).
#[test]
fn a_message_on_an_idle_ring_is_accepted_without_a_heartbeat() {
    for (resilience, sender) in
        (0..3_u8).flat_map(|resilience| (0..4).map(move |sender| (resilience, sender)))
    {
        let mut net = ring(4, resilience);
        for round in 1..=5 {
            let begin = net.now;
            net.send(sender, b"x").unwrap();
            let done = |net: &Net| (0..4).all(|index| net.delivered(index) == round);
            assert!(net.run_until(LATENCY / 5, 100 * MS, done));
            let took = net.now - begin;
            let most = (u64::from(resilience) + 2) * LATENCY;
            assert!(took <= most, "r {resilience}, m{sender}: {took} ns instead of {most}");
            net.run(150 * MS);
        }
    }
}

// Each message costs its data, and its number with a pass. The next message shows that the pass was taken, so no member
// tells it the successor by name.
#[test]
fn messages_one_at_a_time_need_no_witness() {
    let mut net = ring(5, 0);
    warm_up(&mut net);
    for _ in 0..10 {
        net.send(1, b"x").unwrap();
        net.run(5 * MS);
    }
    let traffic = watch(&mut net);
    for _ in 0..100 {
        net.send(1, b"x").unwrap();
        net.run(5 * MS);
    }
    let datagrams = traffic.borrow().datagrams.len();
    assert!(datagrams <= 210, "{datagrams} for 100 messages");
}

// A message may ask for more than the group's resilience; the passes have to show as many holders (hazard H49).
#[test]
fn a_message_that_asks_for_more_gets_the_passes_that_it_needs() {
    let mut net = ring(5, 0);
    for (round, resilience) in [1, 3, 4, 200].into_iter().enumerate() {
        let (traffic, begin) = (watch(&mut net), net.now);
        let now = Time::from_nanos(net.now);
        net.group_mut(2).send_with(now, Bytes::from_static(b"x"), Quality::resilient(resilience)).unwrap();
        net.drain(2);
        assert!(
            net.run_until(LATENCY / 5, 100 * MS, |net| (0..5).all(|index| net.delivered(index) == round + 1))
        );
        assert!(net.now - begin <= 7 * LATENCY, "r {resilience}: {} ns", net.now - begin);
        net.run(200 * MS);
        assert_eq!(traffic.borrow().passes.len(), usize::from(resilience).min(4) + 1, "r {resilience}");
    }
    for round in 0..5 {
        let traffic = watch(&mut net);
        net.send(round, b"x").unwrap();
        net.run(200 * MS);
        assert_eq!(
            traffic.borrow().passes.len(),
            1,
            "an earlier message needed more, and message {round} does not"
        );
    }
}
