//! Confirmations and ended lives, of members of one process with sockets of their own.

mod common;

use common::{PATIENCE, fresh_name, options, until_so, watchful};
use std::thread;
use std::time::{Duration, Instant};
use unisono::{ConfirmError, Ended, Event, Group, GroupConfig, Options, SendError, SendFailure};

fn three(name: &str, options: &Options) -> [Group; 3] {
    let config = GroupConfig { resilience: 2, ..GroupConfig::default() };
    let first = Group::create(name, config, options).unwrap();
    let second = Group::join(name, "", options).unwrap();
    let third = Group::join(name, "", options).unwrap();
    [first, second, third]
}

#[test]
fn a_confirmation_covers_what_was_accepted_before_it() {
    let groups = three(&fresh_name("confirm"), &options());
    for round in 0..20 {
        let seqno = groups[round % 3].send("write").unwrap();
        for group in &groups {
            assert!(group.confirm().unwrap() >= seqno);
            assert!(group.confirm_timeout(PATIENCE).unwrap() >= Some(seqno));
        }
    }
    groups.iter().for_each(Group::ignore_events);
}

#[test]
fn many_threads_share_rounds() {
    let groups = three(&fresh_name("shared-rounds"), &options());
    let seqno = groups[0].send("write").unwrap();
    let reader = &groups[2];
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let waiting: Vec<_> = (0..4).map(|_| reader.begin_confirm().unwrap()).collect();
                    for confirmation in waiting {
                        assert!(confirmation.wait().unwrap() >= seqno);
                    }
                }
            });
        }
    });
    groups.iter().for_each(Group::ignore_events);
}

#[test]
fn one_answer_suffices_and_none_does_not() {
    let [first, second, third] = three(&fresh_name("answers"), &options());
    assert_eq!(first.confirm().is_ok(), second.confirm().is_ok());
    // The third is silent from here on, and the others go on without it.
    third.end();
    assert!(first.confirm_timeout(PATIENCE).unwrap().is_some());
    second.end();
    // No quorum is left: neither in this epoch nor in another one.
    let begun = first.begin_confirm().unwrap();
    assert_eq!(first.confirm_timeout(Duration::from_millis(50)), Ok(None));
    assert_eq!(begun.try_wait(), None);
    first.end();
    assert_eq!(begun.wait(), Err(ConfirmError::Left));
    assert_eq!(first.confirm(), Err(ConfirmError::Left));
}

#[test]
fn an_ended_life_keeps_its_events_and_its_drop_does_not_wait() {
    let [first, second, third] = three(&fresh_name("ended"), &watchful());
    let seqno = first.send("kept").unwrap();
    second.end();
    let mut events = Vec::new();
    let ended = loop {
        match second.receive() {
            Ok(event) => events.push(event),
            Err(ended) => break ended,
        }
    };
    assert_eq!(ended, Ended::Left);
    // It may not have learned yet that the message is accepted.
    events.extend(std::iter::from_fn(|| second.undelivered()));
    assert_eq!(events.iter().filter_map(Event::seqno).max(), Some(seqno));
    assert_eq!(second.send("late"), Err(SendFailure::Refused(SendError::Left)));
    let begun = Instant::now();
    drop(second);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    // The others take it for crashed.
    until_so(&first, |group| group.members().len() == 2);
    until_so(&third, |group| group.members().len() == 2);
    third.ignore_events();
    first.ignore_events();
}

#[test]
fn a_waiting_confirmation_ends_with_the_life() {
    let [first, second, third] = three(&fresh_name("waiting"), &options());
    second.end();
    third.end();
    thread::scope(|scope| {
        let begun = first.begin_confirm().unwrap();
        assert_eq!(begun.wait_timeout(Duration::from_millis(20)), None);
        let waiting = scope.spawn(|| begun.wait());
        first.end();
        assert_eq!(waiting.join().unwrap(), Err(ConfirmError::Left));
    });
}
