//! Members that confirm: what the result covers, and when there is none.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use unisono_core::wire::*;
use unisono_core::*;

fn confirm(net: &mut Net, index: usize) -> ConfirmNumber {
    let now = Time::from_nanos(net.now);
    let number = net.group_mut(index).confirm(now).unwrap();
    net.drain(index);
    number
}

fn result(net: &mut Net, index: usize) -> Option<(ConfirmNumber, Seqno)> {
    net.group_mut(index).poll_confirmed()
}

#[test]
fn a_member_of_three_needs_two_small_datagrams_and_one_answer() {
    let mut net = group_of(3, 2);
    net.run(2_000 * MS);
    net.send(0, b"hello").unwrap();
    net.run(50 * MS);
    let sent = net.group(1).counters().datagrams_sent;
    let number = confirm(&mut net, 1);
    assert_eq!(net.group(1).counters().datagrams_sent, sent + 2);
    assert_eq!(result(&mut net, 1), None);
    let end = net.group(1).marks().received;
    // One answer arrives, the other is lost.
    net.filter(|seen| if seen.from == 2 { LOST } else { PROMPT });
    net.run(3 * MS);
    assert_eq!(result(&mut net, 1), Some((number, end)));
    assert_eq!(result(&mut net, 1), None);
}

#[test]
fn a_group_of_one_confirms_at_once() {
    let mut net = group_of(1, 0);
    net.send(0, b"hello").unwrap();
    let (first, end) = (confirm(&mut net, 0), net.group(0).marks().received);
    assert_eq!(result(&mut net, 0), Some((first, end)));
    let second = confirm(&mut net, 0);
    assert!(second > first);
    assert_eq!(result(&mut net, 0), Some((second, end)));
}

// m1 crashes. m0, the first of the view, is a quorum alone, and goes on alone; but m1 and others may have formed another
// group meanwhile, so m0 confirms nothing before another member is there.
#[test]
fn fewer_members_than_the_group_needs_confirm_nothing() {
    let config = GroupConfig { members_min: 2, resilience: 1, ..GroupConfig::default() };
    let mut net = group_with(2, config, unicast());
    net.run(1_000 * MS);
    net.crash(1);
    let number = confirm(&mut net, 0);
    net.run(5 * MS);
    assert_eq!(result(&mut net, 0), None, "m1 has crashed");
    net.run(5_000 * MS);
    assert_eq!((net.size(0), result(&mut net, 0)), (1, None), "m0 is alone");
    net.add(EntryMode::Join, unicast());
    net.run(3_000 * MS);
    assert_eq!(net.size(0), 2);
    assert_eq!(result(&mut net, 0).map(|(number, _)| number), Some(number));
}

#[test]
fn calls_during_a_round_share_the_next_one() {
    let mut net = group_of(3, 2);
    let first = confirm(&mut net, 2);
    let rest: Vec<_> = (0..5).map(|_| confirm(&mut net, 2)).collect();
    assert!(rest.iter().all(|number| *number == first + 1), "{first} {rest:?}");
    net.run(20 * MS);
    let results: Vec<_> = std::iter::from_fn(|| result(&mut net, 2)).map(|(number, _)| number).collect();
    assert_eq!(results, [first, first + 1]);
}

// At r = 0 the sequencer alone may hold what is accepted. A member that answers names its end, so that the asker does
// not read what it held before.
#[test]
fn the_result_covers_what_a_member_that_answers_holds() {
    let mut net = group_of(3, 0);
    net.run(100 * MS);
    net.filter(|seen| {
        let shows = seen.has(|frame| matches!(frame, Frame::Confirm { .. } | Frame::Confirmed { .. }));
        if seen.concerns(2) && !shows { LOST } else { PROMPT }
    });
    net.send(0, b"accepted").unwrap();
    net.run(10 * MS);
    let (held, end) = (net.group(2).marks().received, net.group(0).marks().accepted);
    assert!(held < end);
    let number = confirm(&mut net, 2);
    net.run(30 * MS);
    assert_eq!(result(&mut net, 2), None, "it lacks entries");
    net.calm();
    net.run(300 * MS);
    assert_eq!(result(&mut net, 2), Some((number, end)));
}

// m0 is cut off, and the others go on without it. Its own view is still a majority with any one of them.
#[test]
fn a_member_that_was_cut_off_gets_no_result() {
    let mut net = group_of(3, 2);
    net.cut_off(0);
    assert!(net.run_until(MS, 3_000 * MS, |net| net.epoch(1) == 1 && net.epoch(2) == 1), "no reset");
    // Now m0 reaches the others again, with nothing but its question.
    net.filter(|seen| {
        let asks = seen.from == 0 && seen.has(|frame| matches!(frame, Frame::Confirm { .. }));
        if asks || seen.from != 0 && seen.to != 0 { PROMPT } else { LOST }
    });
    let now = Time::from_nanos(net.now);
    if net.group_mut(0).confirm(now).is_ok() {
        net.drain(0);
    }
    net.run(500 * MS);
    assert_eq!(result(&mut net, 0), None);
    net.calm();
    net.run(2_000 * MS);
    assert_eq!(result(&mut net, 0), None);
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(0).confirm(now), Err(ConfirmError::Left));
}

// m1 has promised a ballot that is not decided yet. It is silent until the next epoch, in which the asker begins anew.
#[test]
fn a_round_that_meets_a_reset_begins_anew_with_the_same_number() {
    let mut net = group_of(3, 1);
    net.crash(2);
    net.filter(|seen| match seen.has(|frame| matches!(frame, Frame::Confirmed { .. })) && seen.from == 1 {
        true => Some(400 * MS),
        false => PROMPT,
    });
    let number = confirm(&mut net, 0);
    assert!(net.run_until(MS, 2_000 * MS, |net| net.epoch(0) == 1), "no reset");
    net.calm();
    net.run(50 * MS);
    let end = net.group(0).marks().received;
    assert_eq!(result(&mut net, 0), Some((number, end)));
}

#[test]
fn lost_questions_are_repeated_and_a_dead_minority_is_not_awaited() {
    let mut net = group_of(5, 1);
    net.run(100 * MS);
    net.crash(3);
    net.crash(4);
    let mut lost = 0;
    net.filter(move |seen| {
        let is_question = seen.has(|frame| matches!(frame, Frame::Confirm { .. }));
        lost += u32::from(is_question);
        if is_question && lost <= 8 { LOST } else { PROMPT }
    });
    let number = confirm(&mut net, 1);
    net.run(40 * MS);
    assert_eq!(result(&mut net, 1).map(|(number, _)| number), Some(number));
}

// m2's leave is numbered, and m0, the sequencer and first member, is the only one that holds it. In the view after it
// m0 alone would be a quorum; m1 and m2 may have begun another epoch without m0.
#[test]
fn an_unaccepted_change_needs_a_quorum_of_the_view_before_it() {
    let mut net = group_of(3, 2);
    net.run(100 * MS);
    let asks = |frame: &Frame| matches!(frame, Frame::LeaveRequest { .. });
    net.filter(move |seen| if seen.from == 0 || (seen.to == 0 && !seen.has(asks)) { LOST } else { PROMPT });
    net.leave(2);
    let before = net.group(0).marks().received;
    assert!(net.run_until(MS, 100 * MS, |net| net.group(0).marks().received > before), "no leave");
    assert_eq!(net.size(0), 2);
    confirm(&mut net, 0);
    net.run(5 * MS);
    assert_eq!(result(&mut net, 0), None);
}

// m1 lacks a message that m0 and m2 had accepted when it asked, and no answer reaches it. Then m0 leaves, and in the view
// after the leave m1 alone is a quorum. Without the rule that the result lies in the view that is counted, m1 would
// return its own end at the call.
#[test]
fn a_quorum_of_a_later_view_answers_for_that_view() {
    let mut net = group_of(3, 1);
    net.run(100 * MS);
    net.filter(|seen| if seen.to == 1 { LOST } else { PROMPT });
    net.send(0, b"accepted").unwrap();
    net.run(5 * MS);
    let accepted = net.group(2).marks().accepted;
    assert!(net.group(1).marks().received < accepted);
    let number = confirm(&mut net, 1);
    net.filter(|seen| match seen.has(|frame| matches!(frame, Frame::Confirmed { .. })) {
        true => LOST,
        false => PROMPT,
    });
    net.leave(0);
    let mut found = None;
    for _ in 0..2_000 {
        net.run(MS);
        found = found.or(result(&mut net, 1));
    }
    let (answered, through) = found.expect("no result");
    assert_eq!(answered, number);
    assert!(through >= accepted, "{through} does not cover {accepted}");
}

// m1 has confirmed. Later m2, which hears nothing and lacks a message, asks for the first time too. The network repeats to
// it what m0 answered to m1.
#[test]
fn an_answer_to_another_member_is_no_answer() {
    let mut net = group_of(3, 1);
    net.run(500 * MS);
    let answered = Rc::new(Cell::new(None));
    let heard = answered.clone();
    net.filter(move |seen| {
        for frame in seen.frames.iter().filter(|_| (seen.from, seen.to) == (0, 1)) {
            if let Frame::Confirmed { nonce, end } = frame {
                heard.set(Some((*nonce, *end)));
            }
        }
        if seen.to == 2 { LOST } else { PROMPT }
    });
    confirm(&mut net, 1);
    net.run(3 * MS);
    let (nonce, end) = answered.get().expect("m0 answers");
    assert!(result(&mut net, 1).is_some());
    net.send(0, b"m2 lacks it").unwrap();
    net.run(3 * MS);
    assert!(net.group(0).marks().accepted > end);
    confirm(&mut net, 2);
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    let recording = forge(group, epoch, uid(0), 1_000_000, &[Frame::Confirmed { nonce, end }]);
    net.inject(2, address(0), &recording);
    assert_eq!(result(&mut net, 2), None);
}

#[test]
fn a_leaver_neither_asks_nor_answers() {
    let mut net = group_of(2, 1);
    confirm(&mut net, 1);
    net.leave(1);
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(1).confirm(now), Err(ConfirmError::Left));
    net.run(1_000 * MS);
    assert_eq!(result(&mut net, 1), None);
    confirm(&mut net, 0);
    assert!(result(&mut net, 0).is_some());
}

#[test]
fn a_process_that_is_no_member_yet_is_refused() {
    let mut net = Net::new();
    let joiner = net.add(EntryMode::Join, unicast());
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(joiner).confirm(now), Err(ConfirmError::NotMember));
}
