//! Services that go on only with enough members that have the state.

use super::*;

#[test]
fn a_group_below_its_minimum_says_so_until_it_goes_on() {
    let mut made = Made::with_minimum(2, &[1, 2, 3]);
    made.leave(3);
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![], false));
    made.leave(2);
    let below = Notice::BelowMinimum { members: 1, needed: 2 };
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![below.clone()], true));
    // The status, too.
    let status = made.replicas[&1].answer_status(&CopyStatus::question(), Duration::ZERO);
    let status = status.and_then(CopyStatus::read).unwrap();
    assert!(status.has_state && status.is_halted);
    made.join(4);
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![below, Notice::Resumed], false));
}

#[test]
fn the_last_member_is_not_told_that_its_group_has_too_few_when_it_leaves() {
    let mut made = Made::with_minimum(1, &[1]);
    let seqno = made.seqno + 1;
    let left = Event::Left { seqno, member: member(1), goodbye: Bytes::new(), members: 0, successor: None };
    made.replica(1).handle_event(NOW, left);
    made.settle();
    assert_eq!((made.notices(1), made.replicas[&1].is_halted()), (vec![], false));
}

#[test]
fn a_group_that_a_forced_reset_leaves_below_its_minimum_goes_on_only_with_enough_members() {
    let mut made = Made::with_minimum(2, &[1, 2]);
    let missing = vec![member(2)];
    made.replica(1).handle_event(NOW, Event::Halted { missing: missing.clone() });
    made.reset_without(&[2]);
    made.replica(1).handle_event(NOW, Event::Resumed);
    made.settle();
    let mut notices = vec![Notice::Halted { missing }, Notice::BelowMinimum { members: 1, needed: 2 }];
    assert_eq!(made.notices(1), notices);
    made.join(3);
    notices.push(Notice::Resumed);
    assert_eq!(made.notices(1), notices);
}

#[test]
fn a_member_without_the_state_does_not_count_towards_the_minimum() {
    let mut made = Made::with_minimum(2, &[1, 2]);
    made.silent = vec![1, 2];
    made.join(3);
    // A command is under way when the second copy leaves, and another one comes after that.
    made.holds = true;
    made.request(1, 1, 77, 1, "early");
    made.leave(2);
    made.holds = false;
    for (sender, payload) in core::mem::take(&mut made.held) {
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: 1,
            outside: None,
            payload: payload.clone(),
        });
    }
    made.request(1, 2, 78, 1, "late");
    made.request(1, 3, 79, 1, "read");
    let below = Notice::BelowMinimum { members: 1, needed: 2 };
    assert_eq!(
        (made.notices(1), made.words(1)),
        (vec![below.clone()], vec!["(2)".into(), "(3)".into(), "(2)".into()])
    );
    assert!((1..4).all(|index| made.answer(index).is_none()));
    made.silent.clear();
    made.replica(3).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert!((1..4).all(|index| made.answer(index).is_some()));
    assert_eq!(made.notices(1), [below, Notice::Resumed]);
    assert_eq!(made.words(1)[3..], ["early", "late"]);
    made.assert_all_agree();
}

#[test]
fn a_command_that_a_reset_accepted_is_answered_once_enough_members_have_it() {
    let mut made = Made::with_minimum(2, &[1, 2]);
    made.silent = vec![1, 2];
    made.join(3);
    made.holds = true;
    made.request(1, 1, 77, 1, "kept");
    made.holds = false;
    let reset_at = made.seqno + 2;
    for (sender, payload) in core::mem::take(&mut made.held) {
        made.replica(1).handle_event(NOW, Event::ResetAhead { seqno: reset_at });
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: 1,
            outside: None,
            payload: payload.clone(),
        });
        made.settle();
    }
    assert_eq!((made.words(1).last().map(String::as_str), made.answer(1)), (Some("kept"), None));
    made.reset_without(&[2]);
    assert_eq!(made.answer(1), None);
    made.silent.clear();
    made.replica(3).handle_timeout(NOW + Duration::from_secs(1));
    made.settle();
    assert_eq!(made.answer(1).as_deref(), Some("3"));
    made.assert_all_agree();
}

#[test]
fn only_members_with_the_names_count_towards_the_minimum() {
    let mut settings = Made::of(&[1]).replicas[&1].settings.clone();
    (settings.members_min, settings.names) = (2, ["a", "b"].map(|name| Name::new(name).unwrap()).to_vec());
    for (name, enough) in [("b", true), ("c", false)] {
        let mut members = vec![member(1), member(2)];
        (members[0].name, members[1].name) = (Name::new("a").unwrap(), Name::new(name).unwrap());
        let mut replica = Replica::new(Uid(1), Words::default(), settings.clone());
        let view = View::new(EpochId::default(), members, Uid(1), 1);
        replica.handle_event(NOW, Event::Entered { seqno: 0, view });
        replica.command(NOW, "a".into(), NOW + Duration::from_secs(5));
        let submits = |output: &Output| matches!(output, Output::Submit(..));
        let submitted = core::iter::from_fn(|| replica.poll_output()).any(|output| submits(&output));
        assert_eq!((submitted, replica.is_halted()), (enough, !enough));
    }
}

#[test]
fn an_answer_waits_for_the_last_of_the_resets_that_lie_ahead() {
    let mut made = Made::of(&[1, 2]);
    made.holds = true;
    made.request(1, 1, 77, 1, "kept");
    made.holds = false;
    let held = core::mem::take(&mut made.held);
    for ahead in [3, 2] {
        let seqno = made.seqno + ahead;
        made.replica(1).handle_event(NOW, Event::ResetAhead { seqno });
    }
    for (sender, payload) in held {
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: 1,
            outside: None,
            payload: payload.clone(),
        });
    }
    made.reset_without(&[]);
    assert!(made.words(1).contains(&"kept".into()) && made.answer(1).is_none());
    made.reset_without(&[2]);
    assert!(made.answer(1).is_some());
}
