//! What callers may have waiting at a member.

use super::*;

#[test]
fn a_command_larger_than_a_message_is_refused_and_changes_nothing() {
    let mut made = Made::of(&[1]);
    let (max, deadline) = ((1 << 20) - word::COMMAND_HEAD_BYTES, NOW + Duration::from_secs(9));
    let large = Bytes::from(vec![b'x'; max + 1]);
    let number = made.replica(1).command(NOW, large.clone(), deadline);
    made.settle();
    assert_eq!(made.done(1), [(number, Err(CommandFailure::TooLarge { bytes: max + 1, max }))]);
    assert_eq!(made.replicas[&1].position(), 0);
    made.replica(1).command(NOW, large.slice(1..), deadline);
    made.settle();
    assert_eq!(made.replicas[&1].position(), 1);
}

/// Returns the bytes that wait at a member, as they are counted and as they are.
fn waiting_bytes(made: &Made, uid: u64) -> (usize, usize) {
    let replica = &made.replicas[&uid];
    (replica.account().waiting_bytes, replica.waiting.bytes_counted_anew())
}

#[test]
fn commands_beyond_the_bytes_that_may_wait_are_refused_as_busy() {
    const LARGE: &[u8] = &[b'x'; 1 << 19];
    let large: &'static str = core::str::from_utf8(LARGE).unwrap();
    let mut made = Made::of(&[1, 2]);
    made.holds = true;
    let deadline = NOW + Duration::from_secs(9);
    // None of them has more than its share.
    let client = |call: u32| u64::from(1000 + call);
    for call in 1..=200 {
        let source = Source::of_host(call as u8);
        let request = Request { source, ..asked(call, client(call), call.into(), false, large) };
        made.replica(1).handle_request(NOW, request);
        made.settle();
        let number = made.replica(2).command(NOW, large.into(), deadline);
        made.settle();
        assert_eq!(u64::from(call), number);
        for uid in [1, 2] {
            let (counted, waits) = waiting_bytes(&made, uid);
            assert!(counted == waits && waits <= waiting::WAITING_BYTES_MAX, "{counted} {waits}");
        }
    }
    let taken = waiting::WAITING_BYTES_MAX / (LARGE.len() + word::COMMAND_HEAD_BYTES);
    // What is left in the end is less than twice as long: none has a share of more than half of it.
    let of_clients = (1..=200).filter(|call| made.answer(*call).is_none()).count();
    assert_eq!(of_clients, taken - 1);
    assert!(made.answer(taken as u32).unwrap().starts_with("refused: busy: too many bytes"));
    let busy: Vec<CommandNumber> = made.done(2).iter().map(|(number, _)| *number).collect();
    assert_eq!(busy, (taken as u64 + 1..=200).collect::<Vec<_>>());
    assert!(made.done(2).iter().all(|(_, done)| *done == Err(CommandFailure::Busy)));
    // A repeat of one that waits takes no room.
    made.request(1, 300, client(1), 1, large);
    assert_eq!(made.answer(300), None);
    made.holds = false;
    made.reset_without(&[]);
    assert_eq!(made.answer(300), made.answer(1));
    assert_eq!((waiting_bytes(&made, 1), waiting_bytes(&made, 2)), ((0, 0), (0, 0)));
    assert_eq!(made.replicas[&1].position(), (of_clients + taken) as u64);
    assert_eq!(made.replicas[&1].account().commands, of_clients + taken);
}

#[test]
fn bytes_that_wait_no_more_are_not_counted() {
    let mut made = Made::of(&[1, 2]);
    made.holds = true;
    made.request(1, 1, 77, 1, "a");
    let deadline = NOW + Duration::from_secs(9);
    made.replica(1).command(NOW, "bb".into(), deadline);
    made.settle();
    assert_eq!(waiting_bytes(&made, 1), (3 + 2 * word::COMMAND_HEAD_BYTES, 3 + 2 * word::COMMAND_HEAD_BYTES));
    made.replica(1).end();
    made.settle();
    assert_eq!(waiting_bytes(&made, 1).0, 2 + word::COMMAND_HEAD_BYTES);
    let mut next = made.replicas.remove(&1).unwrap().into_next(Uid(4));
    assert_eq!(next.account().waiting_bytes, 2 + word::COMMAND_HEAD_BYTES);
    next.tidy(deadline);
    assert_eq!(next.account().waiting_bytes, 0);
    next.command(NOW, "c".into(), deadline);
    next.give_up_commands();
    assert_eq!(next.account().waiting_bytes, 0);
}

#[test]
fn large_commands_of_one_client_follow_each_other() {
    let mut made = Made::of(&[1]);
    made.replica(1).settings.message_bytes_max = 32 << 20;
    made.holds = true;
    let large = |index: u32, client| {
        let payload = alloc::vec![b'x'; 9 << 20].into();
        Request { payload, ..asked(index, client, index.into(), false, "") }
    };
    for (index, client) in [(1, 77), (2, 77), (3, 78)] {
        made.replica(1).handle_request(NOW, large(index, client));
    }
    made.settle();
    assert_eq!(made.answer(1), None, "it waits");
    assert!(
        made.answer(2).unwrap().starts_with("refused: busy"),
        "with the first it has more than a quarter"
    );
    assert_eq!(made.answer(3), None, "another client has a share of its own");
    made.replica(1).handle_timeout(NOW + Duration::from_secs(6));
    assert_eq!(made.replica(1).account().waiting_bytes, 0);
    made.replica(1).handle_request(NOW, large(4, 77));
    made.settle();
    assert_eq!(made.answer(4), None);
}

#[test]
fn lives_of_one_source_take_half_of_the_waiting_bytes_and_others_have_a_share_still() {
    let mut made = Made::of(&[1]);
    made.replica(1).settings.message_bytes_max = 32 << 20;
    made.holds = true;
    for index in 1..=100 {
        let payload = alloc::vec![b'x'; 1 << 20].into();
        let request = Request { payload, ..asked(index, 1000 + u64::from(index), 1, false, "") };
        made.replica(1).handle_request(NOW, request);
    }
    assert!(made.replica(1).account().waiting_bytes <= waiting::WAITING_BYTES_MAX / 2);
    let payload = alloc::vec![b'x'; 15 << 20].into();
    let source = Source::of_host(2);
    made.replica(1).handle_request(NOW, Request { payload, source, ..asked(101, 77, 1, false, "") });
    made.settle();
    assert!(made.answer(100).unwrap().starts_with("refused: busy"));
    assert_eq!(made.answer(101), None, "it waits");
    made.replica(1).handle_timeout(NOW + Duration::from_secs(6));
    assert_eq!(made.replica(1).account().waiting_bytes, 0);
    made.replica(1).handle_request(NOW, asked(102, 78, 1, false, "x"));
    made.settle();
    assert_eq!(made.answer(102), None, "what waits no longer counts in no share");
}

#[test]
fn commands_count_in_the_share_of_the_source_from_which_they_came() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "a");
    made.request(1, 2, 78, 1, "b");
    let sources = |made: &Made, uid: u64| made.replicas[&uid].replicated.as_ref().unwrap().sources();
    assert_eq!((sources(&made, 1), sources(&made, 2)), (vec![(2, 2)], vec![]));
}

#[test]
fn a_command_may_wait_for_an_hour_and_no_longer() {
    let mut made = Made::of(&[1]);
    made.holds = true;
    for (index, beyond) in [(1, 0), (2, 1)] {
        let request = Request {
            id: RequestId::numbered(index),
            port: Port(1),
            client: Uid(77),
            source: Source::of_host(1),
            is_stranger: false,
            call: index.into(),
            finished_below: 1,
            hops: 0,
            again: false,
            deadline: NOW + COMMAND_WAITS_BOUND + Duration::from_millis(beyond),
            wishes: None,
            whole_bytes: None,
            payload: "a".into(),
        };
        made.replica(1).handle_request(NOW, request);
    }
    let own = made.replica(1).command(NOW, "b".into(), Time::NEVER);
    made.settle();
    assert_eq!(made.answer(1), None);
    assert!(made.answer(2).unwrap().starts_with("refused: a command waits for 3600 s at most"));
    made.replica(1).handle_timeout(NOW + COMMAND_WAITS_BOUND);
    made.settle();
    assert_eq!(made.done(1), [(own, Err(CommandFailure::Unknown))]);
}
