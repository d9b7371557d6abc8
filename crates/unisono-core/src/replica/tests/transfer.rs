//! How a member that lacks the state gets it from others, and from which.

use super::*;

#[test]
fn a_newcomer_gets_state_memory_and_what_was_ordered_meanwhile() {
    let mut made = Made::of(&[1]);
    made.request(1, 1, 77, 1, "a");
    made.join(2);
    assert_eq!(made.words(2), ["(1)", "a", "(2)"]);
    assert!(made.seen[&2].contains(&Output::Informed));
    assert_eq!(made.replicas[&1].copies(), [Uid(1), Uid(2)]);
    // It recognises a call that was executed before it came.
    made.request(2, 2, 77, 1, "a");
    assert_eq!(made.answer(2).unwrap(), "2");
    made.assert_all_agree();
}

#[test]
fn a_donor_that_does_not_go_on_is_replaced_by_another() {
    let mut made = Made::of(&[1, 2, 3]);
    made.silent = vec![1, 2];
    made.request(1, 1, 77, 1, "a");
    made.join(4);
    assert_eq!(made.words(4), made.words(1));
    made.assert_all_agree();
}

#[test]
fn a_spoiled_piece_is_not_taken() {
    Made::is_left(SPOILS_PIECES);
}

#[test]
fn a_donor_whose_list_is_not_that_of_a_state_is_left() {
    Made::is_left(LISTS_OTHER_LENGTHS);
    Made::is_left(NEVER_ENDS);
}

#[test]
fn a_donor_that_lists_a_piece_above_the_bound_is_left() {
    let mut made = Made::of(&[2, GIVES_LARGE_PIECES]);
    made.silent = vec![2];
    made.join(4);
    let piece: Bytes = vec![b'x'; snapshot::STATE_PIECE_BYTES_MAX + 1].into();
    for (length, is_left) in [(piece.len(), true), (piece.len() - 1, false)] {
        let mut fetch = Fetch::new();
        let (view, mut watched) = (made.present_view(), Watched::default());
        fetch.advance(NOW, Uid(4), &view);
        let (call, to, _) = fetch.poll_call().unwrap();
        assert_eq!(u64::from(to.port()), GIVES_LARGE_PIECES);
        let pieces = vec![snapshot::Piece { digest: [1; 32], bytes: length as u32, ends_part: true }];
        let of = snapshot::Extent { pieces: 1, bytes: length as u64 };
        let list = snapshot::Reply::List(snapshot::List { at: 9, of, from: 0, pieces });
        fetch.handle(NOW, call, Ok(Hashed::new(list.write(), digest)), &mut watched);
        fetch.advance(NOW, Uid(4), &view);
        let (_, to, _) = fetch.poll_call().unwrap();
        assert_eq!(u64::from(to.port()) != GIVES_LARGE_PIECES, is_left, "{length}");
    }
}

/// Begins a transfer of pieces of this length. Returns the first pieces that are asked for, too.
fn transfer_of(bytes: usize, view: &View, prepare: impl FnOnce(&mut Fetch)) -> (Fetch, Vec<Asked>) {
    let pieces = (0..20).map(|number| snapshot::Piece {
        digest: digest(&piece_of(bytes, number)),
        bytes: bytes as u32,
        ends_part: true,
    });
    let of = snapshot::Extent { pieces: 20, bytes: 20 * bytes as u64 };
    let list = snapshot::Reply::List(snapshot::List { at: 9, of, from: 0, pieces: pieces.collect() });
    let mut fetch = Fetch::new();
    fetch.advance(NOW, Uid(4), view);
    let (call, ..) = fetch.poll_call().unwrap();
    fetch.handle(NOW, call, Ok(Hashed::new(list.write(), digest)), &mut Watched::default());
    prepare(&mut fetch);
    fetch.advance(NOW, Uid(4), view);
    let asked = all_asked(&mut fetch);
    (fetch, asked)
}

type Asked = crate::replica::FetchNumber;

fn all_asked(fetch: &mut Fetch) -> Vec<Asked> {
    core::iter::from_fn(|| fetch.poll_call()).map(|(call, ..)| call).collect()
}

fn piece_of(bytes: usize, number: u8) -> Vec<u8> {
    vec![number; bytes]
}

#[test]
fn pieces_yield_to_commands_unless_that_takes_too_long() {
    const LARGE: usize = snapshot::STATE_PIECE_BYTES_MAX;
    let made = Made::of(&[1, 2]);
    let view = made.present_view();
    let commands_flow = |fetch: &mut Fetch| fetch.note_command(NOW);
    let late = |fetch: &mut Fetch| {
        fetch.note_command(NOW);
        fetch.hurry();
    };
    assert_eq!(transfer_of(LARGE, &view, |_| {}).1.len(), 8);
    assert_eq!(transfer_of(LARGE, &view, late).1.len(), 8);
    assert_eq!(transfer_of(LARGE / 8, &view, commands_flow).1.len(), 2);
    assert_eq!(transfer_of(LARGE / 1024, &view, commands_flow).1.len(), 8);

    // Large pieces go one by one, with rests between them.
    let (mut fetch, asked) = transfer_of(LARGE, &view, commands_flow);
    assert_eq!(asked.len(), 1);
    let after = |ms| NOW + Duration::from_millis(ms);
    let reply = snapshot::Reply::Piece(piece_of(LARGE, 0).into()).write();
    fetch.handle(after(3), asked[0], Ok(Hashed::new(reply, digest)), &mut Watched::default());
    fetch.advance(after(3), Uid(4), &view);
    assert_eq!((all_asked(&mut fetch).len(), fetch.wake_at()), (0, Some(after(6))));
    fetch.advance(after(6), Uid(4), &view);
    let asked = all_asked(&mut fetch);
    assert_eq!((asked.len(), fetch.wake_at()), (1, None));
    // The second one took too long: the commands have ended meanwhile.
    let reply = snapshot::Reply::Piece(piece_of(LARGE, 1).into()).write();
    fetch.handle(after(60), asked[0], Ok(Hashed::new(reply, digest)), &mut Watched::default());
    fetch.advance(after(60), Uid(4), &view);
    assert_eq!((all_asked(&mut fetch).len(), fetch.wake_at()), (8, None));
}

#[test]
fn a_donor_whose_state_cannot_be_restored_is_left_unless_all_are_like_that() {
    let [first, second] = GIVES_ANOTHER_STATE;
    Made::is_left(first);
    let mut made = Made::of(&[second, first]);
    made.request(first, 1, 77, 1, "a");
    made.join(4);
    assert_eq!(made.stopped(4), Some(StopReason::NotRestored(NotRestored("a word is not UTF-8"))));
    let gave = |donor| made.donors[&donor].forgets_at().is_some();
    assert!(gave(first) && gave(second));
}

#[test]
fn a_state_is_copied_for_members_only() {
    let mut made = Made::of(&[1]);
    assert!(matches!(made.replicas[&1].present_for(Uid(2)), Present::TooOld));
    assert!(matches!(made.replicas[&1].present_for(Uid(1)), Present::State(_)));
    made.add(2);
    assert!(matches!(made.replicas[&2].present_for(Uid(1)), Present::Nothing));
}

#[test]
fn members_whose_state_is_lost_enter_again_and_form_the_service_as_it_was_at_first() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "a");
    // Member 2 is excluded, and has the state of its last life when it comes back.
    made.reset_without(&[2]);
    let mut next = made.replicas.remove(&2).unwrap().into_next(Uid(4));
    made.silent = vec![1];
    made.join(3);
    made.reset_without(&[1]);
    let reenters = |made: &Made| made.seen[&3].iter().filter(|output| **output == Output::Reenter).count();
    assert_eq!((reenters(&made), made.stopped(3)), (1, None));
    let view = View::new(EpochId::default(), [4, 5].map(member).to_vec(), Uid(4), 1);
    next.handle_event(NOW, Event::Entered { seqno: 0, view });
    assert_eq!(next.machine().unwrap().0, ["(2)"]);
    assert_eq!(next.position(), 0);
}

#[test]
fn a_state_that_cannot_be_restored_ends_the_newcomer_only() {
    let mut made = Made::of(&[1]);
    made.request(1, 1, 77, 1, "a");
    let Some(state) = &mut made.replica(1).replicated else { panic!() };
    let strange = Words(vec!["(1)".into()]);
    assert_eq!(state.machine(), &Words(vec!["(1)".into(), "a".into()]));
    let settings = ReplicaSettings {
        client: Uid(9),
        durability: Durability::HeldByAll,
        message_bytes_max: 1 << 20,
        members_min: 1,
        names: Vec::new(),
        window: 1024,
        quorums_intersect: true,
        digest,
    };
    let head = state.snapshot(Watched::default()).parts[0].clone();
    let parts = [head.clone(), Bytes::from_static(&[0xff])];
    let failed = Replicated::restored(strange.clone(), (3, &parts), None, &settings);
    assert!(matches!(failed, Err((kept, NotRestored(_))) if kept == strange), "the state machine comes back");
    let failed = Replicated::restored(strange, (3, &[head.slice(..9)]), None, &settings);
    assert!(matches!(failed, Err((_, NotRestored(_)))));
}

#[test]
fn a_newcomer_whose_backlog_is_full_asks_for_a_later_state() {
    let mut made = Made::of(&[1]);
    made.silent = vec![1];
    made.join(2);
    let large: Bytes = vec![b'x'; 1 << 20].into();
    for _ in 0..70 {
        let payload = large.clone();
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(1),
            number: seqno,
            outside: None,
            payload: payload.clone(),
        });
        made.settle();
        assert!(made.replicas[&2].account().backlog_bytes <= backlog::BACKLOG_BYTES_MAX);
    }
    made.silent.clear();
    made.request(1, 1, 77, 1, "a");
    made.replica(2).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert_eq!(made.words(2), made.words(1));
}

#[test]
fn a_state_with_commands_that_a_reset_dropped_is_not_taken() {
    let mut made = Made::of(&[1, 2]);
    made.join(3);
    // Member 1 applied a command that no other member has, and gave its state to member 4 after that.
    made.seqno += 1;
    let seqno = made.seqno;
    let members = 4;
    made.view.push(4);
    made.add(4);
    let joined = Event::Joined { seqno, member: member(4), hello: Bytes::new(), members };
    for uid in [1, 2, 3] {
        made.replica(uid).handle_event(NOW, joined.clone());
    }
    let lost = Word::Command(word::Ordered {
        client: Uid(77),
        call: 1,
        finished_below: 1,
        left_ms: 5000,
        stamp_ms: 1,
        quality: Quality::ORDERED,
        payload: "lost".into(),
    });
    let lost =
        Event::Message { seqno: seqno + 1, sender: Uid(1), number: 9, outside: None, payload: lost.write() };
    made.replica(1).handle_event(NOW, lost);
    made.silent = vec![2, 3];
    let entered = Event::Entered { seqno, view: made.present_view() };
    made.replica(4).handle_event(NOW, entered);
    made.settle();
    assert!(made.replicas[&4].fetching().is_some(), "it waits for the events that the state contains");
    made.silent.clear();
    made.reset_without(&[1]);
    made.replica(4).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert_eq!(made.words(4), made.words(2));
    assert!(!made.words(4).contains(&"lost".into()));
}
