//! The history of changes, from which watches are answered: all changes from some number on, as many as fit into a bound.
//!
//! Changes are kept as bytes, in segments. A full segment never changes, so it is a part of all snapshots until it is
//! dropped as a whole.

use crate::capability::ObjectNumber;
use crate::codec::{Reader, Writer};
use crate::name::Name;
use crate::reply::{Change, Event};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// Length of a full segment in bytes, and share of the bound that it is at most.
const SEGMENT_BYTES: usize = 256 << 10;
const SEGMENTS_MIN: usize = 16;
/// Maximum number of changes, of any directory, that one question for changes looks at.
const SEARCHED_MAX: usize = 1 << 12;

#[derive(Debug, Default)]
pub(crate) struct History {
    segments: VecDeque<Segment>,
    /// The segment that is not full.
    last: Vec<u8>,
    /// Number of the last change in a segment that was dropped.
    dropped_through: u64,
    /// Length of all full segments.
    bytes: usize,
    bytes_max: usize,
}

/// A full segment.
#[derive(Debug)]
struct Segment {
    through: u64,
    bytes: Bytes,
}

/// A change of any directory, as its bytes have it: most are passed over.
struct Entry<'a> {
    number: u64,
    directory: ObjectNumber,
    /// The event and the name.
    what: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes the next entry from the bytes.
    fn read(from: &mut &'a [u8]) -> Option<Entry<'a>> {
        let (number, rest) = from.split_first_chunk()?;
        let (directory, rest) = rest.split_first_chunk()?;
        let name_bytes = usize::from(*rest.get(1)?);
        let (what, rest) = rest.split_at_checked(2 + name_bytes)?;
        *from = rest;
        let directory = ObjectNumber(u64::from_be_bytes(*directory));
        Some(Entry { number: u64::from_be_bytes(*number), directory, what })
    }

    fn change(&self) -> Option<Change> {
        let mut what = Reader::new(Bytes::copy_from_slice(self.what));
        Some(Change { number: self.number, event: Event::read(&mut what)?, name: Name::read(&mut what)? })
    }
}

/// A part of the history is damaged.
#[derive(Debug)]
pub(crate) struct Damaged;

impl History {
    pub(crate) fn new(bytes_max: u64) -> History {
        History { bytes_max: bytes_max.try_into().unwrap_or(usize::MAX), ..History::default() }
    }

    /// Returns the lowest number from which all changes are here.
    pub(crate) fn kept_from(&self) -> u64 {
        self.dropped_through + 1
    }

    fn segment_bytes(&self) -> usize {
        SEGMENT_BYTES.min(self.bytes_max / SEGMENTS_MIN)
    }

    /// Adds a change. Numbers never fall.
    pub(crate) fn push(&mut self, directory: ObjectNumber, number: u64, event: Event, name: &Name) {
        let mut out = Writer::with_capacity(18 + name.as_str().len());
        out.u64(number);
        out.u64(directory.0);
        out.u8(event as u8);
        name.write(&mut out);
        self.last.extend_from_slice(&out.into_bytes());
        if self.last.len() < self.segment_bytes() {
            return;
        }
        let bytes = Bytes::from(core::mem::take(&mut self.last));
        self.bytes += bytes.len();
        self.segments.push_back(Segment { through: number, bytes });
        while self.bytes + self.segment_bytes() > self.bytes_max {
            let Some(oldest) = self.segments.pop_front() else { return };
            self.bytes -= oldest.bytes.len();
            self.dropped_through = oldest.through;
        }
    }

    /// Returns changes of a directory from a number on, of at most about `bytes_max`, and the number from which to go on.
    /// `number` is that of the last command.
    pub(crate) fn of(
        &self,
        directory: ObjectNumber,
        from: u64,
        number: u64,
        bytes_max: usize,
    ) -> (Vec<Change>, u64) {
        let (mut changes, mut bytes, mut searched, mut previous) = (Vec::new(), 0, 0, 0);
        for entry in self.entries(from).skip_while(|entry| entry.number < from) {
            // All changes of one number go together.
            if entry.number != previous && (bytes >= bytes_max || searched >= SEARCHED_MAX) {
                return (changes, entry.number);
            }
            previous = entry.number;
            searched += 1;
            if entry.directory == directory {
                bytes += 8 + entry.what.len();
                changes.extend(entry.change());
            }
        }
        (changes, number + 1)
    }

    /// Returns the entries of all segments that have any from this number on.
    fn entries(&self, from: u64) -> impl Iterator<Item = Entry<'_>> {
        let first = self.segments.partition_point(|segment| segment.through < from);
        let full = self.segments.iter().skip(first).map(|segment| &segment.bytes[..]);
        full.chain([&self.last[..]])
            .flat_map(|mut segment| core::iter::from_fn(move || Entry::read(&mut segment)))
    }

    // --- snapshots ---

    /// Returns the parts: the full segments, and the last one.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Bytes> {
        let full = self.segments.iter().map(|segment| segment.bytes.clone());
        full.chain([Bytes::copy_from_slice(&self.last)])
    }

    pub(crate) fn parts_count(&self) -> usize {
        self.segments.len() + 1
    }

    /// Returns the history with these parts. `number` is that of the last command.
    pub(crate) fn restore(
        bytes_max: u64,
        kept_from: u64,
        number: u64,
        parts: &[Bytes],
    ) -> Result<History, Damaged> {
        let mut history = History::new(bytes_max);
        history.dropped_through = kept_from.checked_sub(1).ok_or(Damaged)?;
        let (last, full) = parts.split_last().ok_or(Damaged)?;
        let mut through = 0;
        for part in full {
            through = last_number(part, through)?.ok_or(Damaged)?;
            history.bytes += part.len();
            history.segments.push_back(Segment { through, bytes: part.clone() });
        }
        through = last_number(last, through)?.unwrap_or(through);
        history.last = last.to_vec();
        let fits = through <= number && kept_from <= number + 1 && history.bytes <= history.bytes_max;
        if fits { Ok(history) } else { Err(Damaged) }
    }
}

/// Returns the number of the last change of a segment that follows number `previous`; `None` if it has no change.
fn last_number(segment: &Bytes, previous: u64) -> Result<Option<u64>, Damaged> {
    let (mut left, mut last) = (&segment[..], None);
    while !left.is_empty() {
        let change = Entry::read(&mut left).and_then(|entry| entry.change()).ok_or(Damaged)?;
        if change.number < last.unwrap_or(previous) {
            return Err(Damaged);
        }
        last = Some(change.number);
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const HERE: ObjectNumber = ObjectNumber(1);
    const ELSEWHERE: ObjectNumber = ObjectNumber(2);

    fn filled(changes: u64, bytes_max: u64) -> History {
        let mut history = History::new(bytes_max);
        for number in 1..=changes {
            let directory = if number % 3 == 0 { ELSEWHERE } else { HERE };
            history.push(directory, number, Event::Append, &format!("n{number}").parse().unwrap());
        }
        history
    }

    /// Asks until there are no more.
    fn all(history: &History, from: u64, number: u64, bytes_max: usize) -> Vec<u64> {
        let (mut from, mut found) = (from, Vec::new());
        while from <= number {
            let (changes, next) = history.of(HERE, from, number, bytes_max);
            assert!(next > from, "no progress at {from}");
            found.extend(changes.iter().map(|change| change.number));
            from = next;
        }
        found
    }

    #[test]
    fn all_changes_come_once_whatever_fits_into_an_answer() {
        let history = filled(5000, 256 << 10);
        assert!(history.parts_count() > 2, "several segments");
        let want: Vec<u64> = (17..=5000).filter(|number| number % 3 != 0).collect();
        for bytes_max in [1, 100, 5000, usize::MAX] {
            assert_eq!(all(&history, 17, 5000, bytes_max), want);
        }
        assert_eq!(history.of(HERE, 5001, 5000, 1), (Vec::new(), 5001));
    }

    #[test]
    fn one_question_looks_at_a_bounded_number_of_changes() {
        let mut history = History::new(64 << 20);
        let last = SEARCHED_MAX as u64 + 10;
        for number in 1..=last {
            history.push(ELSEWHERE, number, Event::Append, &"x".parse().unwrap());
        }
        assert_eq!(history.of(HERE, 1, last, 1), (Vec::new(), SEARCHED_MAX as u64 + 1));
    }

    #[test]
    fn changes_of_one_number_are_not_separated() {
        let mut history = History::new(1 << 20);
        for name in ["a", "b", "c"] {
            history.push(HERE, 7, Event::Replace, &name.parse().unwrap());
        }
        history.push(HERE, 8, Event::Delete, &"a".parse().unwrap());
        let (changes, next) = history.of(HERE, 1, 8, 1);
        assert_eq!((changes.len(), next), (3, 8));
    }

    #[test]
    fn the_oldest_changes_are_dropped_and_what_is_kept_has_no_hole() {
        let history = filled(20_000, 64 << 10);
        let kept_from = history.kept_from();
        assert!(kept_from > 1);
        assert!(history.bytes + history.last.len() <= 64 << 10);
        let want: Vec<u64> = (kept_from..=20_000).filter(|number| number % 3 != 0).collect();
        assert_eq!(all(&history, kept_from, 20_000, 1000), want);
    }

    #[test]
    fn a_restored_history_goes_on_like_the_first() {
        let mut first = filled(9_000, 64 << 10);
        let parts: Vec<Bytes> = first.parts().collect();
        let mut second = History::restore(64 << 10, first.kept_from(), 9_000, &parts).unwrap();
        for number in 9_001..12_000 {
            for history in [&mut first, &mut second] {
                history.push(HERE, number, Event::Chmod, &"x".parse().unwrap());
            }
        }
        assert_eq!(first.kept_from(), second.kept_from());
        assert!(first.parts().eq(second.parts()));
    }

    #[test]
    fn a_damaged_history_is_refused() {
        let history = filled(9_000, 64 << 10);
        let parts: Vec<Bytes> = history.parts().collect();
        let restore =
            |parts: &[Bytes], number| History::restore(64 << 10, history.kept_from(), number, parts);
        assert!(restore(&parts, 9_000).is_ok());
        assert!(restore(&parts, 8_999).is_err(), "a change from the future");
        assert!(restore(&[], 9_000).is_err());
        let mut cut = parts.clone();
        cut[0] = cut[0].slice(..cut[0].len() - 1);
        assert!(restore(&cut, 9_000).is_err());
        let mut swapped = parts;
        swapped.swap(0, 1);
        assert!(restore(&swapped, 9_000).is_err());
    }
}
