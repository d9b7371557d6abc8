//! Bytes under way to the members: numbered, and not known to be held by every member.
//!
//! All of them may lie in the socket buffer of a member that does not run at the moment, so they are bounded by what
//! such a buffer holds. A member that has acknowledged nothing of them for a while is far away or stands still, and is
//! not waited for.

use crate::identity::Seqno;
use crate::time::Time;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Time after which numbered bytes do not count as under way any more.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(40);
/// Divisor of the bytes that may be under way: a mark is set after each such part.
const MARK_PART: u64 = 16;

/// Counts the bytes under way.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay {
    /// Last seqno that was assigned.
    last: Seqno,
    /// Bytes numbered so far, and those of them that are no longer under way.
    numbered: u64,
    arrived: u64,
    /// Some seqnos, ascending.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    seqno: Seqno,
    numbered_at: Time,
    /// Bytes numbered through this seqno.
    bytes: u64,
}

impl UnderWay {
    /// Notes that a message of `bytes` got this seqno. At most `room` bytes are to be under way.
    pub(super) fn note_numbered(&mut self, now: Time, seqno: Seqno, bytes: usize, room: u64) {
        self.last = seqno;
        self.numbered += bytes as u64;
        let marked = self.marks.back().map_or(self.arrived, |mark| mark.bytes);
        if self.numbered - marked >= room / MARK_PART {
            self.marks.push_back(Mark { seqno, numbered_at: now, bytes: self.numbered });
        }
    }

    /// Notes that every member holds everything through `held`.
    pub(super) fn note_held(&mut self, now: Time, held: Seqno) {
        if held >= self.last {
            self.marks.clear();
            self.arrived = self.numbered;
        }
        while let Some(mark) = self.marks.front()
            && (mark.seqno <= held || now.since(mark.numbered_at) >= FORGOTTEN_AFTER)
        {
            self.arrived = mark.bytes;
            self.marks.pop_front();
        }
    }

    /// Returns the number of bytes under way, rounded up by no more than the bytes between two marks.
    pub(super) fn bytes(&self) -> u64 {
        self.numbered - self.arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 16_000;

    /// A hundred messages of 1,000 bytes each, one per millisecond.
    fn hundred() -> UnderWay {
        let mut under_way = UnderWay::default();
        for seqno in 1..=100 {
            under_way.note_numbered(at(seqno), seqno, 1000, ROOM);
        }
        under_way
    }

    fn at(millisecond: u64) -> Time {
        Time::ZERO + Duration::from_millis(millisecond)
    }

    /// Returns the bytes under way when every member holds everything through `held`.
    fn bytes(under_way: &mut UnderWay, millisecond: u64, held: Seqno) -> u64 {
        under_way.note_held(at(millisecond), held);
        under_way.bytes()
    }

    #[test]
    fn what_all_hold_is_not_under_way() {
        let mut under_way = hundred();
        assert_eq!(bytes(&mut under_way, 100, 90), 10_000);
        assert_eq!(bytes(&mut under_way, 100, 97), 3_000);
        assert_eq!(bytes(&mut under_way, 100, 100), 0);
        under_way.note_numbered(at(101), 101, 500, ROOM);
        assert_eq!(bytes(&mut under_way, 101, 100), 500);
        assert_eq!(bytes(&mut under_way, 101, 101), 0);
    }

    #[test]
    fn bytes_numbered_long_ago_do_not_count() {
        let mut under_way = hundred();
        assert_eq!(bytes(&mut under_way, 100, 0), 40_000);
        assert_eq!(bytes(&mut under_way, 140, 0), 0);
    }

    #[test]
    fn of_many_small_ones_few_are_marked() {
        let mut under_way = UnderWay::default();
        for seqno in 1..=8000 {
            under_way.note_numbered(at(0), seqno, 2, ROOM);
        }
        assert!(under_way.marks.len() <= 16, "{} marks", under_way.marks.len());
        assert_eq!(bytes(&mut under_way, 0, 4100), 8_000);
        assert_eq!(bytes(&mut under_way, 0, 7_999), 1_000);
    }
}
