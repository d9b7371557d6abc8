//! A search for an order of concurrent operations on one object that explains their replies, after Wing and Gong: it
//! takes one operation after another, never one that began after another that is left had ended, and remembers which sets
//! of operations and values it has tried.

use crate::replica::{Op, Reply, Value};
use std::collections::HashSet;
use unisono_core::Time;

/// Most operations of one search.
pub(super) const WINDOW: usize = 50;
/// Most states of one search; beyond, nothing is known, and the operations count as right.
const STATES_MAX: usize = 200_000;

/// An operation. Without an end, it may take effect or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) begin: Time,
    pub(super) end: Option<(Time, Reply)>,
}

impl Call {
    /// Returns the value after this operation; `None` if its reply was another than it gets from this value.
    fn fits(&self, value: Value) -> Option<Value> {
        let (reply, after) = value.after(self.op);
        self.end.is_none_or(|(_, got)| got == reply).then_some(after)
    }
}

/// True if some order of the operations explains their replies, from this value on.
pub(super) fn is_linearizable(value: Value, calls: &[Call]) -> bool {
    let mut calls = calls.to_vec();
    // The search takes what ended early first, which is right mostly.
    calls.sort_by_key(|call| call.end.map_or(Time::NEVER, |(end, _)| end));
    let everything = (0..calls.len()).fold(0, |all, index| all | 1_u64 << index);
    let mut tried = HashSet::new();
    let mut open = vec![(everything, value)];
    while let Some((left, value)) = open.pop() {
        let left = without_reads(left, value, &calls);
        let Some(first_end) = first_end(left, &calls) else { return true };
        if tried.len() > STATES_MAX {
            return true;
        }
        if !tried.insert((left, value)) {
            continue;
        }
        for index in bits(left).rev().filter(|index| calls[*index].begin <= first_end) {
            if let Some(after) = calls[index].fits(value) {
                open.push((left & !(1 << index), after));
            }
        }
    }
    false
}

/// Takes out the operations that may come next, and that leave the value as it is wherever their replies fit: if there is a
/// right order, there is one that begins with them. An operation without an end may be needed later.
fn without_reads(mut left: u64, value: Value, calls: &[Call]) -> u64 {
    while let Some(first_end) = first_end(left, calls) {
        let is_next =
            |call: &Call| call.end.is_some() && call.begin <= first_end && call.fits(value) == Some(value);
        let reads = bits(left).filter(|index| is_next(&calls[*index]));
        let reads = reads.fold(0, |reads, index| reads | 1 << index);
        if reads == 0 {
            break;
        }
        left &= !reads;
    }
    left
}

/// Returns when the first of these operations ended; they are in the order of their ends.
fn first_end(left: u64, calls: &[Call]) -> Option<Time> {
    let first = calls.get(left.trailing_zeros() as usize)?;
    first.end.map(|(end, _)| end)
}

/// Iterates over the set bits.
fn bits(word: u64) -> impl DoubleEndedIterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |index| word & 1 << index != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: Op, begin: u64, end: Option<(u64, Reply)>) -> Call {
        let end = end.map(|(end, reply)| (Time::from_nanos(end), reply));
        Call { op, begin: Time::from_nanos(begin), end }
    }

    #[test]
    fn overlapping_operations_may_be_in_any_order() {
        let put = call(Op::Put(0, 7), 0, Some((10, Reply(0, 1))));
        for seen in [0, 7] {
            let get = call(Op::Get(0), 5, Some((12, Reply(seen, 0))));
            assert!(is_linearizable(Value::default(), &[put, get]), "{seen}");
        }
        let stale = call(Op::Get(0), 11, Some((12, Reply(0, 0))));
        assert!(!is_linearizable(Value::default(), &[put, stale]));
    }

    #[test]
    fn an_operation_without_an_end_may_have_happened_or_not() {
        let put = call(Op::Put(0, 7), 0, None);
        let get = |begin, seen| call(Op::Get(0), begin, Some((begin + 1, Reply(seen, 0))));
        assert!(is_linearizable(Value::default(), &[put, get(5, 0), get(10, 7)]));
        assert!(!is_linearizable(Value::default(), &[put, get(5, 7), get(10, 0)]));
    }

    #[test]
    fn an_operation_without_an_end_that_would_change_nothing_now_may_change_something_later() {
        let (put, zero) = (call(Op::Put(0, 7), 0, None), call(Op::Put(0, 0), 2, Some((3, Reply(7, 1)))));
        let get = call(Op::Get(0), 5, Some((6, Reply(7, 0))));
        assert!(is_linearizable(Value(7, 0), &[put, zero, get]));
        assert!(!is_linearizable(Value(7, 0), &[zero, get]));
    }

    #[test]
    fn fifty_operations_at_once_are_searched_in_time() {
        let all: Vec<Call> = (0..50).map(|value| call(Op::Put(0, value % 3), 0, None)).collect();
        assert!(is_linearizable(Value::default(), &all));
        let ended: Vec<Call> = (0..50)
            .map(|index| call(Op::Add(0, 1), index * 4, Some((index * 4 + 10, Reply(index + 1, 1)))))
            .collect();
        assert!(is_linearizable(Value::default(), &ended));
    }
}
