//! Handlers: which member answers.

use super::*;

/// A request for handler `desk`.
fn for_desk(index: u32, call: CallNumber, hops: u8, payload: &'static str) -> Request {
    let wishes = Wishes { handler: Some("desk".into()), ..Wishes::default() };
    Request { hops, wishes: Some(wishes.into()), ..asked(index, 77, call, false, payload) }
}

impl Made {
    fn claim(&mut self, uid: u64) {
        self.replica(uid).claim_handler("desk").unwrap();
        self.settle();
    }

    fn ask(&mut self, uid: u64, request: Request) -> Option<String> {
        let index = (0..).find(|index| RequestId::numbered(*index) == request.id).unwrap();
        self.replica(uid).handle_request(NOW, request);
        self.settle();
        self.answer(index)
    }

    fn holders(&self) -> Vec<Option<u64>> {
        let holder = |uid| self.replicas[uid].handler_holder("desk").map(|holder| holder.0);
        self.view.iter().map(holder).collect()
    }
}

#[test]
fn the_holder_alone_answers_and_the_next_in_line_after_it() {
    let mut made = Made::of(&[1, 2, 3]);
    made.claim(2);
    made.claim(3);
    made.claim(2);
    assert_eq!(made.holders(), [Some(2), Some(2), Some(2)]);
    assert_eq!(made.ask(1, for_desk(1, 1, 0, "a")).unwrap(), "to 2");
    assert_eq!(made.words(1), ["(3)"], "it is executed where it is answered");
    assert_eq!(made.ask(2, for_desk(2, 1, 1, "a")).unwrap(), "2 by 2");
    made.reset_without(&[2]);
    assert_eq!(made.holders(), [Some(3), Some(3)]);
    // The client repeats its call: it takes effect once, and the next holder answers.
    let again = Request { again: true, ..for_desk(3, 1, 0, "a") };
    assert_eq!(made.ask(1, again.clone()).unwrap(), "to 3");
    let again = Request { id: RequestId::numbered(4), hops: 1, ..again };
    assert_eq!(made.ask(3, again).unwrap(), "2 by 3");
    assert_eq!(made.words(3).iter().filter(|word| *word == "a").count(), 1);
    made.assert_all_agree();
}

#[test]
fn reads_and_what_is_passed_on_are_the_holders_too_and_refusals_are_not() {
    let mut made = Made::of(&[1, 2]);
    made.claim(1);
    assert_eq!(made.ask(1, for_desk(1, 1, 0, "read")).unwrap(), "(2) by 1");
    assert_eq!(made.ask(1, for_desk(2, 2, 0, "look")).unwrap(), "(2) by 1");
    assert_eq!(made.ask(1, for_desk(3, 3, 0, "pass")).unwrap(), "passed by 1");
    assert_eq!(made.ask(1, for_desk(4, 4, 0, "open")).unwrap(), "refused: no key");
    for (index, payload) in [(5, "read"), (6, "look"), (7, "pass")] {
        assert_eq!(made.ask(2, for_desk(index, index.into(), 0, payload)).unwrap(), "to 1");
    }
    made.request(2, 8, 77, 8, "a");
    assert_eq!(made.answer(8).unwrap(), "2", "a request without a handler is as before");
}

#[test]
fn a_command_that_waits_too_long_is_refused_before_it_waits_for_a_holder() {
    let mut made = Made::of(&[1]);
    let deadline = NOW + COMMAND_WAITS_BOUND + Duration::from_millis(1);
    made.replica(1).handle_request(NOW, Request { deadline, ..for_desk(1, 1, 0, "a") });
    made.claim(1);
    assert!(made.answer(1).unwrap().starts_with("refused: a command waits for 3600 s at most"));
}

#[test]
fn without_a_holder_nothing_happens_and_the_caller_learns_it() {
    let mut made = Made::of(&[1, 2]);
    for (index, payload) in [(1, "a"), (2, "read"), (3, "look")] {
        let refused = made.ask(1, for_desk(index, index.into(), 0, payload)).unwrap();
        assert_eq!(refused, "refused: no member holds this handler; nothing happened");
    }
    let again = Request { again: true, ..for_desk(9, 9, 0, "look") };
    assert!(
        made.ask(1, again).unwrap().ends_with("nothing happened"),
        "a read is no command that took effect"
    );
    assert_eq!(made.words(1), ["(2)"]);
    // The holder gives the handler up after the command has its seqno.
    made.claim(1);
    made.holds = true;
    made.replica(1).handle_request(NOW, for_desk(4, 4, 0, "b"));
    made.settle();
    let held = core::mem::take(&mut made.held);
    made.holds = false;
    made.replica(1).give_up_handler("desk");
    made.settle();
    for (sender, payload) in held {
        made.order(|seqno| Event::Message {
            seqno,
            sender: Uid(sender),
            number: seqno,
            outside: None,
            payload: payload.clone(),
        });
    }
    made.settle();
    let refused = made.answer(4).unwrap();
    assert!(refused.contains("no member holds this handler any longer; a command took effect"), "{refused}");
    assert_eq!(made.words(1), ["(2)", "b"]);
}

#[test]
fn a_command_that_took_effect_is_not_said_to_have_done_nothing_when_its_handler_has_no_holder() {
    let mut made = Made::of(&[1, 2]);
    made.claim(1);
    made.request(1, 1, 77, 1, "key");
    made.request(1, 2, 77, 3, "open");
    made.request(1, 3, 77, 4, "close");
    assert_eq!(made.ask(1, for_desk(4, 5, 0, "a")).unwrap(), "4 by 1");
    made.replica(1).give_up_handler("desk");
    made.settle();
    for (index, call, again, payload) in
        [(5, 5, false, "a"), (6, 5, true, "a"), (7, 3, true, "open"), (8, 3, false, "open")]
    {
        let request = Request { again, ..for_desk(index, call, 0, payload) };
        made.replica(1).handle_request(NOW, request);
        made.settle();
        let refused = made.answer(index).unwrap();
        assert!(refused.contains("any longer; a command took effect"), "{index}: {refused}");
    }
    assert_eq!(
        made.ask(1, for_desk(9, 9, 0, "b")).unwrap(),
        "refused: no member holds this handler; nothing happened"
    );
    made.assert_all_agree();
}

#[test]
fn a_request_for_a_member_that_is_leaving_waits_for_the_next_holder() {
    let mut made = Made::of(&[1, 2, 3]);
    made.claim(2);
    made.claim(3);
    // It answers no more, and holds the handler until it is out.
    made.replica(2).end();
    assert_eq!(made.ask(2, for_desk(1, 1, 3, "a")).unwrap(), "to 3");
    assert_eq!(made.ask(1, for_desk(2, 1, 4, "a")), None);
    made.leave(2);
    assert_eq!(made.answer(2).unwrap(), "to 3");
    assert_eq!(made.ask(3, for_desk(3, 1, 5, "a")).unwrap(), "2 by 3");
    // Without a next holder the caller learns it, and a caller that waits no longer is not waited for.
    made.replica(3).end();
    assert_eq!(made.ask(1, for_desk(4, 2, 4, "b")), None);
    assert_eq!(made.ask(1, Request { deadline: NOW, ..for_desk(5, 3, 4, "c") }), None);
    made.replica(1).handle_timeout(NOW);
    made.leave(3);
    assert!(made.answer(4).unwrap().contains("any longer"));
    assert!(made.answer(5).unwrap().contains("does not wait"), "its place is free");
}

#[test]
fn a_request_whose_forwards_were_spent_on_a_dead_holder_reaches_the_next_one() {
    let mut made = Made::of(&[1, 2, 3]);
    made.claim(2);
    made.claim(3);
    made.reset_without(&[2]);
    // Member 3 holds the handler already: no change will come.
    for (index, hops, waits) in [(1, 4, 250), (2, 5, 500), (3, 7, 2000)] {
        assert_eq!(made.ask(1, for_desk(index, 1, hops, "a")), None);
        let due = NOW + Duration::from_millis(waits);
        assert!(made.replica(1).poll_timeout().is_some_and(|at| at <= due));
        made.replica(1).handle_timeout(NOW + Duration::from_millis(waits - 1));
        made.settle();
        assert_eq!(made.answer(index), None);
        made.replica(1).handle_timeout(due);
        made.settle();
        assert_eq!(made.answer(index).unwrap(), "to 3");
    }
    // The calls layer forwards no further.
    let refused = made.ask(1, for_desk(4, 1, 8, "a")).unwrap();
    assert!(refused.ends_with("took effect, and its answer was not worked out"), "{refused}");
}

#[test]
fn a_newcomer_gets_the_lines_and_a_member_claims_in_its_next_life_too() {
    let mut made = Made::of(&[1, 2]);
    made.claim(2);
    made.join(3);
    assert_eq!(made.holders(), [Some(2), Some(2), Some(2)]);
    made.claim(3);
    made.reset_without(&[2]);
    assert_eq!(made.holders(), [Some(3), Some(3)]);
    let mut next = made.replicas.remove(&2).unwrap().into_next(Uid(4));
    assert_eq!(next.handler_holder("desk"), None);
    next.handle_event(
        NOW,
        Event::Entered { seqno: 0, view: View::new(EpochId::default(), [member(4)].into(), Uid(4), 1) },
    );
    let claims = |output| matches!(output, Output::Submit(word, _) if Word::read(word.clone()) == Some(Word::Claim("desk".into())));
    assert!(core::iter::from_fn(|| next.poll_output()).any(claims));
}

#[test]
fn bad_names_and_too_many_claims_are_refused() {
    let mut made = Made::of(&[1]);
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert_eq!(made.replica(1).claim_handler(name), Err(HandlerError::BadName));
    }
    for index in 0..HANDLERS_MAX {
        made.replica(1).claim_handler(&format!("{index}")).unwrap();
    }
    assert_eq!(made.replica(1).claim_handler("0"), Ok(()));
    assert_eq!(made.replica(1).claim_handler("one more"), Err(HandlerError::TooMany));
    made.settle();
    assert_eq!(made.replica(1).handler_holders().len(), HANDLERS_MAX);
    made.replica(1).give_up_handler("0");
    made.settle();
    assert_eq!(made.replica(1).handler_holders().len(), HANDLERS_MAX - 1);
}

#[test]
fn a_state_machine_names_a_handler_by_itself() {
    let mut made = Made::of(&[1, 2]);
    made.claim(2);
    made.request(1, 1, 77, 1, "to the desk");
    assert_eq!(made.answer(1).unwrap(), "to 2");
    made.request(2, 2, 77, 1, "to the desk");
    assert_eq!(made.answer(2).unwrap(), "for the desk by 2", "executed once");
    made.request(2, 3, 77, 3, "to no desk");
    assert!(made.answer(3).unwrap().starts_with("refused: the state machine names a handler"));
    // A member's own command: the holder has the reply, and another member has to call.
    for uid in [1, 2] {
        made.replica(uid).command(NOW, "to the desk".into(), NOW + Duration::from_secs(5));
        made.settle();
    }
    let failure = made.done(1).remove(0).1.unwrap_err();
    assert!(matches!(failure, CommandFailure::OfHandler { handler, .. } if handler == "desk"));
    assert_eq!(made.done(2).remove(0).1.unwrap().reply, "for the desk by 2");
    made.assert_all_agree();
}

#[test]
fn a_source_has_its_share_of_the_requests_that_wait_for_a_holder_and_no_hops_are_endless() {
    let mut made = Made::of(&[1, 2, 3]);
    made.claim(2);
    made.claim(3);
    made.replica(2).end();
    // A client may say that its request was forwarded before.
    let from = |host: u8, request| Request { source: Source::of_host(host), ..request };
    let far = NOW + Duration::from_secs(3600);
    for index in 0..2000 {
        let request = Request { deadline: far, ..for_desk(index, index.into(), 7, "look") };
        made.replica(1).handle_request(NOW, from(9, request));
    }
    made.settle();
    let waits = |made: &Made, index| made.answer(index).is_none();
    let count = (0..2000).filter(|index| waits(&made, *index)).count();
    assert!((512..700).contains(&count), "{count}");
    assert_eq!(made.answer(1999).unwrap(), "to 2", "beyond its share it is forwarded at once");
    let refused = made.ask(1, from(9, for_desk(2001, 1, 8, "look"))).unwrap();
    assert!(refused.starts_with("refused: the member that holds this handler does not answer"), "{refused}");
    assert_eq!(made.ask(1, from(8, for_desk(2002, 1, 4, "look"))), None, "another source has a share still");
    made.leave(2);
    assert_eq!(made.answer(2002).unwrap(), "to 3");
    // Whatever their deadlines, they wait no longer than for the last time that requests are forwarded again.
    made.replica(3).end();
    for index in 3000..4000 {
        let request = Request { deadline: far, ..for_desk(index, index.into(), 7, "look") };
        made.replica(1).handle_request(NOW, from(9, request));
    }
    let least = NOW + Duration::from_secs(3);
    assert!(made.replica(1).poll_timeout().is_some_and(|at| at <= least));
    made.replica(1).handle_timeout(least);
    made.settle();
    assert!((3000..4000).all(|index| made.answer(index).is_some()));
}
