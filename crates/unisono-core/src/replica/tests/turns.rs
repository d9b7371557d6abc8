//! What many requests of one address cost the others.

use super::*;

fn read(index: u32, host: u8) -> Request {
    let asked = asked(index, host.into(), index.into(), false, "read");
    Request { source: Source::of_host(host), ..asked }
}

#[test]
fn reads_are_answered_a_few_at_a_time_and_the_addresses_take_turns() {
    let mut made = Made::of(&[1, 2]);
    for index in 1..=40 {
        made.replica(1).handle_request(NOW, read(index, 1));
    }
    made.replica(1).handle_request(NOW, read(99, 2));
    for expected in [15, 31, 40] {
        made.carry_all_out();
        let answered = (1..=40).filter(|index| made.answer(*index).is_some()).count();
        assert_eq!((answered, made.answer(99).is_some()), (expected, true));
        let goes_on = made.replica(1).poll_timeout().is_some_and(|at| at <= NOW);
        assert_eq!(goes_on, expected < 40);
        made.replica(1).handle_timeout(NOW);
    }
}

#[test]
fn a_costly_read_is_answered_alone_and_after_the_cheap_ones() {
    for (costly, cheap) in [("search", "read"), ("look around", "look")] {
        let mut made = Made::of(&[1, 2]);
        let of = |index: u32, host: u8, query: &'static str| Request {
            source: Source::of_host(host),
            ..asked(index, host.into(), index.into(), false, query)
        };
        (1..=20).for_each(|host| made.replica(1).handle_request(NOW, of(host.into(), host, costly)));
        made.replica(1).handle_request(NOW, of(21, 21, cheap));
        let answered = |made: &mut Made| {
            made.carry_all_out();
            (1..=20).filter(|index| made.answer(*index).is_some()).count()
        };
        let first = answered(&mut made);
        assert!(first <= 1 && made.answer(21).is_some(), "{costly}: {first}");
        for more in 1..=20 - first {
            made.replica(1).handle_timeout(NOW);
            assert_eq!(answered(&mut made), first + more, "{costly}");
        }
        assert!(made.replica(1).poll_timeout().is_none_or(|at| at > NOW));
    }
}

#[test]
fn a_costly_read_of_an_address_that_has_shown_a_right_waits_for_one_stranger_in_nine() {
    let mut made = Made::of(&[1, 2]);
    let of = |index: u32, is_stranger| Request { is_stranger, ..read(index, index as u8) };
    let search = |index, is_stranger| Request { payload: "search".into(), ..of(index, is_stranger) };
    (1..=20).for_each(|index| made.replica(1).handle_request(NOW, search(index, true)));
    made.carry_all_out();
    made.replica(1).handle_request(NOW, of(21, true));
    (31..=40).for_each(|index| made.replica(1).handle_request(NOW, search(index, false)));
    let (mut order, all): (Vec<u32>, Vec<u32>) = (Vec::new(), (1..=40).collect());
    for _ in 0..40 {
        made.carry_all_out();
        let answered = all.iter().filter(|index| made.answer(**index).is_some() && !order.contains(index));
        let answered: Vec<u32> = answered.copied().collect();
        order.extend(answered);
        made.replica(1).handle_timeout(NOW);
    }
    let place = |index| order.iter().position(|answered| *answered == index).unwrap();
    let before = |last| order[..place(last)].iter().filter(|index| **index <= 21).count();
    assert!(before(31) <= 1 && before(38) <= 1 && before(40) <= 2, "{order:?}");
    // Of strangers too the cheap read goes first.
    assert!(place(21) < place(3), "{order:?}");
    assert_eq!(order.len(), 31);
}

#[test]
fn a_repeat_that_the_state_refuses_is_ordered_at_the_services_own_quality() {
    let mut made = Made::of(&[1, 2]);
    made.replica(1).settings.durability = Durability::HeldByMajority;
    let cases =
        [(true, "open", Quality::MAJORITY), (true, "a", Quality::TOTAL), (false, "b", Quality::TOTAL)];
    for (call, (again, payload, quality)) in (11..).zip(cases) {
        let wishes = Wishes { quality: Quality::TOTAL, ..Wishes::default() };
        let request = asked(call as u32, 77, call, again, payload);
        let replica = made.replica(1);
        replica.handle_request(NOW, Request { wishes: Some(wishes.into()), ..request });
        let submits = core::iter::from_fn(|| replica.poll_output()).filter_map(|output| match output {
            Output::Submit(_, quality) => Some(quality),
            _ => None,
        });
        assert_eq!(submits.collect::<Vec<_>>(), [quality], "{payload}");
    }
}

#[test]
fn reads_that_wait_for_their_turn_go_to_other_members_when_this_one_ends() {
    let mut made = Made::of(&[1, 2]);
    (1..=40).for_each(|index| made.replica(1).handle_request(NOW, read(index, 1)));
    made.carry_all_out();
    made.replica(1).end();
    made.carry_all_out();
    let answers: Vec<_> = (1..=40).filter_map(|index| made.answer(index)).collect();
    assert_eq!((answers.len(), answers.iter().filter(|answer| *answer == "to 2").count()), (40, 24));
}
