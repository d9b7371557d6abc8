use super::*;
use crate::identity::{EpochId, Name};
use crate::quality::Quality;
use crate::wire::Piece;

const A: Uid = Uid(1);
const B: Uid = Uid(2);
const FAR: Seqno = 100;
const TEXT: Bytes = Bytes::from_static(b"text");

fn member(uid: Uid) -> Member {
    Member {
        uid,
        name: Name::default(),
        address: "127.0.0.1:1".parse().unwrap(),
        floor: Default::default(),
        hops: 1,
    }
}

/// Returns the log of a group of A and B that begins after `seqno`.
fn log_after(seqno: Seqno) -> Log {
    let members = [A, B].map(member).to_vec();
    Log::after(&LogBase {
        seqno,
        members,
        term: (seqno, A),
        order: (0, Order::default()),
        last_numbers: Vec::new(),
    })
}

fn manner() -> Manner {
    Manner { quality: Quality::ORDERED, broadcast: true, patient: false }
}

/// Appends messages of A with these numbers.
fn append(log: &mut Log, numbers: impl IntoIterator<Item = MessageNumber>) {
    for number in numbers {
        log.append_message(manner().numbered(A, number), Slice::alone(false, &TEXT));
    }
}

fn reset() -> Reset {
    let (epoch, excluded) = (EpochId::default(), [member(B)].to_vec());
    Reset { epoch, kept: 0, excluded, degraded: false, forced: false }
}

fn marks(log: &Log) -> [Seqno; 5] {
    [log.base(), log.delivered(), log.accepted(), log.received(), log.end()]
}

#[test]
fn received_moves_over_a_gap_when_the_entry_in_it_has_its_data() {
    let mut log = log_after(10);
    assert!(log.keep((A, 1), 1, 8, manner(), Slice::alone(false, &TEXT)));
    // B's message has its seqno before its data, A's data was here before its seqno.
    assert_eq!(log.file_waiting(11, manner().numbered(B, 1), FAR), (Filed::New, false));
    assert_eq!(log.file_waiting(12, manner().numbered(A, 1), FAR), (Filed::New, true));
    log.advance();
    assert_eq!(marks(&log), [10, 10, 10, 10, 12]);
    assert!(log.supply(B, 1, &Slice::alone(false, &TEXT)));
    log.advance();
    assert_eq!(marks(&log), [10, 10, 10, 12, 12]);
    let late = log.file(12, Entry::Message(manner().numbered(A, 1)), Some(Slice::alone(false, &TEXT)), FAR);
    assert_eq!(late, Filed::Known);
    let beyond = log.file(14, Entry::Role(B), None, 13);
    assert_eq!((beyond, log.end()), (Filed::TooFar, 12));
}

#[test]
fn what_this_member_has_not_accepted_and_delivered_is_not_freed() {
    let mut log = log_after(0);
    append(&mut log, 1..=5);
    log.free(5);
    assert_eq!(log.base(), 0);
    log.accept_through(4);
    log.free(5);
    assert_eq!(log.base(), 0);
    log.deliver_next();
    log.deliver_next();
    assert_eq!(log.needless_through(), 2);
    log.free(5);
    assert_eq!(marks(&log), [2, 2, 4, 5, 5]);
    log.deliver_next();
    // Another member lacks it.
    log.free(2);
    assert_eq!(log.base(), 2);
}

#[test]
fn a_cut_takes_back_numbers_above_what_is_accepted() {
    let mut log = log_after(0);
    append(&mut log, 1..=5);
    log.accept_through(3);
    log.cut(3);
    assert_eq!(marks(&log), [0, 0, 3, 3, 3]);
    assert_eq!(log.history().sender_mark(A).number, 3);
    // The same messages may wait for other seqnos again.
    assert!(!log.keep((A, 3), 1, 8, manner(), Slice::alone(false, &TEXT)));
    assert!(log.keep((A, 4), 1, 8, manner(), Slice::alone(false, &TEXT)));
    assert!(matches!(log.append_waiting(A, 4), Some((4, _, 4))));
    assert!(log.append_waiting(A, 4).is_none());
}

// Three terms: A from the base on, B from 2, A again from 4.
#[test]
fn terms_go_back_with_a_cut_and_stay_while_an_entry_of_them_is_kept() {
    let mut log = log_after(0);
    append(&mut log, [1]);
    log.append(Entry::Role(B));
    append(&mut log, [2]);
    log.append(Entry::Role(A));
    append(&mut log, [3]);
    let sequencer_at = |log: &Log| [0, 1, 2, 3, 4, 5].map(|seqno| log.history().term_at(seqno));
    assert_eq!(sequencer_at(&log), [(0, A), (0, A), (2, B), (2, B), (4, A), (4, A)]);
    let mut cut = log.clone();
    cut.cut(3);
    assert_eq!(cut.history().term(), (2, B));
    cut.cut(1);
    assert_eq!(cut.history().term(), (0, A));
    log.accept_through(5);
    log.skip_through(3);
    log.free(5);
    assert_eq!((log.base(), log.history().term_at(3), log.history().term()), (3, (2, B), (4, A)));
    log.skip_through(5);
    log.free(5);
    assert_eq!((log.base(), log.history().term_at(5)), (5, (4, A)));
}

#[test]
fn a_reset_is_accepted_at_once_and_not_possible_below_what_is_accepted() {
    let mut log = log_after(0);
    append(&mut log, 1..=5);
    log.accept_through(3);
    assert!(!log.allows_reset_at(3));
    assert!(log.allows_reset_at(4));
    log.cut(4);
    log.accept_through(4);
    assert_eq!(log.install([member(A)].to_vec(), reset()), 5);
    assert_eq!(marks(&log), [0, 0, 5, 5, 5]);
    assert_eq!((log.history().view().len(), log.history().last_change()), (1, 5));
}

#[test]
fn an_application_gets_what_is_accepted_and_an_ended_life_hands_out_the_rest() {
    let mut log = log_after(0);
    append(&mut log, 1..=3);
    log.accept_through(2);
    // This member joined at 2.
    log.skip_through(1);
    log.deliver_next();
    assert_eq!(marks(&log), [0, 2, 2, 3, 3]);
    log.hand_out_next();
    assert_eq!(log.delivered(), 3);
}

#[test]
fn a_log_that_begins_anew_has_nothing_of_the_one_before() {
    let mut log = log_after(0);
    append(&mut log, 1..=3);
    log.accept_through(2);
    log.deliver_next();
    log.keep((B, 1), 1, 8, manner(), Slice::alone(false, &TEXT));
    assert_eq!(log.put_together(B, true, TEXT, 100), None);
    assert!(log.is_put_together(B));
    log.begin(&LogBase {
        seqno: 20,
        members: [member(B)].to_vec(),
        term: (20, B),
        order: (0, Order::default()),
        last_numbers: Vec::new(),
    });
    assert_eq!(marks(&log), [20; 5]);
    assert_eq!((log.unordered().senders().next(), log.is_put_together(B)), (None, false));
}

#[test]
fn pieces_are_put_together_until_their_sender_leaves_or_a_reset_ends_all() {
    let mut log = log_after(0);
    for (of, left) in [(Some(A), 1), (None, 0)] {
        for sender in [A, B] {
            log.put_together(sender, true, TEXT, 100);
        }
        log.give_up_pieces(of);
        assert_eq!([A, B].iter().filter(|sender| log.is_put_together(**sender)).count(), left);
    }
    let run = Pieces::from_pieces(&[true, false].map(|more| Piece { more, bytes: TEXT }));
    log.file_run(1, manner().numbered(A, 1), run, FAR);
    log.advance();
    assert_eq!((log.received(), log.history().inside_a_message()), (2, false));
}

#[cfg(debug_assertions)]
mod asserted {
    use super::*;

    /// Returns a log with 5 entries, of which 3 are accepted and 2 delivered.
    fn begun() -> Log {
        let mut log = log_after(0);
        append(&mut log, 1..=5);
        log.accept_through(3);
        log.skip_through(2);
        log
    }

    #[test]
    #[should_panic = "assertion failed"]
    fn accepted_does_not_go_back() {
        begun().accept_through(2);
    }

    #[test]
    #[should_panic = "assertion failed"]
    fn nothing_is_accepted_that_is_not_held() {
        begun().accept_through(6);
    }

    #[test]
    #[should_panic = "assertion failed"]
    fn nothing_is_delivered_that_is_not_accepted() {
        let mut log = begun();
        log.deliver_next();
        log.deliver_next();
    }

    #[test]
    #[should_panic = "assertion failed"]
    fn delivered_does_not_go_back() {
        begun().skip_through(1);
    }

    #[test]
    #[should_panic = "an accepted entry is cut"]
    fn nothing_accepted_is_cut() {
        begun().cut(2);
    }

    #[test]
    #[should_panic = "the log is not settled"]
    fn a_reset_leaves_nothing_tentative_below_it() {
        begun().install([member(A)].to_vec(), reset());
    }

    #[test]
    #[should_panic = "assertion failed"]
    fn an_ended_life_hands_out_what_is_accepted_as_delivered() {
        begun().hand_out_next();
    }
}
