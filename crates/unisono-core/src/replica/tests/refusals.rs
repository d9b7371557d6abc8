//! Commands that are refused before they are ordered, and requests that show no right.

use super::*;

#[test]
fn the_beginning_of_a_command_is_refused_once_a_majority_confirms_it_and_let_through_at_once() {
    let mut made = Made::of(&[1, 2]);
    let beginning =
        |index: u32, word| Request { whole_bytes: Some(1000), ..asked(index, 77, index.into(), false, word) };
    for (index, word) in [(1, "open"), (2, "shut")] {
        made.replica(1).handle_request(NOW, beginning(index, word));
    }
    assert_eq!(made.replica(1).poll_output(), Some(Output::Confirm));
    made.settle();
    assert_eq!((made.answer(1), made.answer(2)), (None, Some("go on".into())));
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    assert_eq!(made.answer(1).unwrap(), "refused: no key");
    let again = Request { again: true, ..beginning(3, "open") };
    made.replica(1).handle_request(NOW, again);
    made.settle();
    assert_eq!(made.answer(3).unwrap(), "go on", "an earlier attempt may have been executed");
    assert_eq!(made.replicas[&1].account().waiting_bytes, 0);
}

#[test]
fn a_request_that_shows_no_right_is_denied() {
    let mut made = Made::of(&[1, 2]);
    for (index, request) in (1..).zip(["break in", "pry", "peep", "read", "look"]) {
        made.replica(1).handle_request(NOW, asked(index, 77, index.into(), false, request));
        made.settle();
        let seqno = made.seqno;
        made.replica(1).handle_confirmed(seqno);
        made.settle();
    }
    let answers = [1, 2, 3, 4, 5].map(|index| made.answer(index).unwrap());
    assert_eq!(answers, ["denied: no entry", "denied: (2)", "denied: (2)", "(2)", "(2)"]);
}

#[test]
fn a_repeat_without_a_right_is_denied_too_and_so_are_copies_of_it() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).handle_request(NOW, asked(1, 77, 1, true, "break in"));
    made.replica(1).handle_request(NOW, asked(2, 77, 1, false, "break in"));
    made.settle();
    made.replica(1).handle_request(NOW, asked(3, 77, 1, false, "break in"));
    made.settle();
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    let answers = [1, 2, 3].map(|index| made.answer(index).unwrap());
    assert_eq!(answers, ["denied: no entry"; 3], "it was ordered, and its outcome is known");
}

#[test]
fn a_beginning_that_is_let_on_says_whether_it_shows_a_right() {
    let mut made = Made::of(&[1, 2]);
    for (index, again, word) in
        [(1, false, "pry"), (2, true, "break in"), (3, true, "open"), (4, false, "shut")]
    {
        let beginning = asked(index, 77, index.into(), again, word);
        made.replica(1).handle_request(NOW, Request { whole_bytes: Some(1000), ..beginning });
    }
    made.settle();
    let answers = [1, 2, 3, 4].map(|index| made.answer(index).unwrap());
    assert_eq!(answers, ["go on, without a right", "go on, without a right", "go on", "go on"]);
}

#[test]
fn a_beginning_under_the_number_of_a_command_that_waits_is_looked_at_too() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).handle_request(NOW, asked(1, 77, 1, false, "shut"));
    let beginning = Request { whole_bytes: Some(1000), ..asked(2, 77, 1, false, "open") };
    made.replica(1).handle_request(NOW, beginning);
    let outputs: Vec<_> = core::iter::from_fn(|| made.replica(1).poll_output()).collect();
    assert!(matches!(outputs[..], [Output::Submit(..), Output::Confirm]), "{outputs:?}");
}

#[test]
fn a_command_that_the_state_refuses_takes_no_position_and_is_not_remembered() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "open");
    assert_eq!(made.answer(1).unwrap(), "refused: no key");
    assert_eq!((made.replica(1).position(), made.replica(1).account().commands), (0, 0));
    made.request(2, 2, 77, 2, "key");
    made.request(1, 3, 77, 3, "open");
    assert_eq!((made.answer(3).unwrap(), made.replica(1).position()), ("3".into(), 2));
    made.assert_all_agree();
}

#[test]
fn a_command_is_refused_only_by_a_confirmed_state() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).handle_request(NOW, asked(1, 77, 1, false, "open"));
    assert_eq!(made.replica(1).poll_output(), Some(Output::Confirm));
    assert_eq!(made.replica(1).poll_output(), None, "it waits");
    made.request(2, 2, 78, 1, "key");
    assert_eq!(made.answer(1), None);
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    assert_eq!(made.answer(1).unwrap(), "3", "another client has brought the key meanwhile");
    made.assert_all_agree();
}

#[test]
fn a_repeat_of_a_command_is_not_refused_before_it_is_ordered() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 2, "open");
    made.request(1, 3, 77, 3, "close");
    // The state would refuse it now, but it has its outcome; whether or not the client knows that it asks again.
    for (index, again) in [(4, true), (5, false)] {
        made.replica(2).handle_request(NOW, asked(index, 77, 2, again, "open"));
        made.settle();
        assert_eq!(made.answer(index), made.answer(2));
    }
    assert_eq!(made.replica(2).position(), 3);
    // An earlier attempt may still be executed, so this one gets a position to stay refused.
    made.replica(2).handle_request(NOW, asked(6, 77, 4, true, "open"));
    made.settle();
    assert_eq!((made.answer(6).unwrap(), made.replica(2).position()), ("refused: no key".into(), 4));
    made.assert_all_agree();
}

#[test]
fn a_service_whose_reads_are_local_orders_what_it_refuses() {
    let mut made = Made::of(&[1]);
    made.durability = Durability::Ordered;
    made.join(2);
    made.request(2, 1, 77, 1, "open");
    assert_eq!((made.answer(1).unwrap(), made.replica(2).position()), ("refused: no key".into(), 1));
}

#[test]
fn a_repeat_whose_outcome_is_remembered_is_not_ordered_again_and_takes_no_share() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 2, "open");
    made.request(1, 3, 77, 3, "close");
    let seqno = made.seqno;
    for index in 100..300 {
        made.replica(1).handle_request(NOW, asked(index, 77, 2, true, "open"));
    }
    made.settle();
    assert_eq!(made.seqno, seqno, "nothing was ordered");
    assert!((100..300).all(|index| made.answer(index) == made.answer(2)));
    made.replica(1).handle_request(NOW, asked(4, 77, 4, true, "open"));
    made.settle();
    assert_eq!(made.answer(4).unwrap(), "refused: no key");
    assert!(made.seqno > seqno, "the share is there for those that are not remembered");
}

#[test]
fn a_client_without_a_right_gets_few_commands_into_the_order_though_it_marks_each_as_a_repeat() {
    let mut made = Made::of(&[1, 2]);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 2, "open");
    made.request(1, 3, 77, 3, "close");
    let from = |host: u8, request| Request { source: Source::of_host(host), ..request };
    for index in 100..300 {
        made.replica(1).handle_request(NOW, from(9, asked(index, 99, index.into(), true, "open")));
    }
    let ordered = made.replicas[&1].position() - 3;
    assert!(ordered <= 32, "{ordered} of 200");
    made.settle();
    // Of those that were executed, the outcome is the answer.
    made.replica(1).handle_request(NOW, from(9, asked(4, 77, 2, true, "open")));
    made.replica(1).handle_request(NOW, from(9, asked(5, 77, 2, false, "open")));
    // Another host has a share still.
    made.replica(1).handle_request(NOW, from(8, asked(6, 88, 1, true, "open")));
    made.settle();
    assert_eq!(made.answer(6).unwrap(), "refused: no key");
    let seqno = made.seqno;
    made.replica(1).handle_confirmed(seqno);
    made.settle();
    assert_eq!((made.answer(4), made.answer(5)), (made.answer(2), made.answer(2)));
    let refused = made.answer(299).unwrap();
    assert!(refused.starts_with("refused: busy: ") && refused.ends_with("; nothing happened"), "{refused}");
    assert_eq!(made.replicas[&1].position(), 3 + 32 + 1);
    // A second later there is room again.
    let later = NOW + Duration::from_secs(1);
    made.replica(1).handle_request(later, from(9, asked(8, 99, 8, true, "open")));
    made.settle();
    assert_eq!(made.answer(8).unwrap(), "refused: no key");
    made.assert_all_agree();
}
