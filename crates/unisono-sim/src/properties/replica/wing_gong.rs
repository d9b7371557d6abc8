//! A search for an order of concurrent operations on one object that explains their replies, after Wing and Gong: it
//! takes one operation after another, never one that began after another that is left had ended, and remembers which sets
//! of operations and values it has tried.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use unisono_core::Time;

/// Most operations of one search.
const WINDOW: usize = 50;

/// A value that operations read and change, one after another.
pub(in super::super) trait Sequential: Clone + Debug + Eq + Hash {
    /// An operation.
    type Op: Clone + Debug;
    /// Its reply.
    type Reply: Clone + Debug + PartialEq;

    /// Most states of one search; beyond, nothing is known, and the operations count as right.
    const STATES_MAX: usize = 200_000;

    /// Executes an operation. Returns the reply, and the value after it.
    fn step(&self, op: &Self::Op) -> (Self::Reply, Self);
}

/// An operation. Without an end, it may take effect or not.
#[derive(Clone, Debug)]
struct Call<O, R> {
    op: O,
    begin: Time,
    end: Option<(Time, R)>,
}

/// The operations of a search on a value of this kind.
type Calls<V> = [Call<<V as Sequential>::Op, <V as Sequential>::Reply>];

impl<O, R: PartialEq> Call<O, R> {
    /// Returns the value after this operation; `None` if its reply was another than it gets from this value.
    fn fits<V: Sequential<Op = O, Reply = R>>(&self, value: &V) -> Option<V> {
        let (reply, after) = value.step(&self.op);
        self.end.as_ref().is_none_or(|(_, got)| *got == reply).then_some(after)
    }
}

/// An operation, with the position at which it took effect if it is a command.
#[derive(Clone, Debug)]
pub(in super::super) struct Placed<O, R> {
    pub(in super::super) op: O,
    pub(in super::super) begin: Time,
    pub(in super::super) end: Option<(Time, R)>,
    pub(in super::super) position: Option<u64>,
}

/// Checks windows of operations without positions, except for the value with which a window begins: that after a position,
/// which is `from` for the first window.
///
/// # Errors
/// No order of the operations of a window is right.
pub(in super::super) fn check_windows<V: Sequential>(
    mut operations: Vec<Placed<V::Op, V::Reply>>,
    from: u64,
    value_at: impl Fn(u64) -> V,
) -> Result<(), String> {
    operations.sort_by_key(|operation| operation.begin);
    let (mut cut, mut cut_at) = (from, Time::ZERO);
    loop {
        let is_after = |operation: &&Placed<V::Op, V::Reply>| match operation.position {
            Some(position) => position > cut,
            None => operation.begin >= cut_at,
        };
        // What is not after this cut is after no later one.
        operations.drain(..operations.iter().take_while(|operation| !is_after(operation)).count());
        let window: Vec<&Placed<V::Op, V::Reply>> =
            operations.iter().filter(is_after).take(WINDOW + 1).collect();
        // What begins after the window can be between operations of it that end later.
        let horizon = window.get(WINDOW).map_or(Time::NEVER, |operation| operation.begin);
        let calls = window.iter().take(WINDOW).map(|operation| Call {
            op: operation.op.clone(),
            begin: operation.begin,
            end: operation.end.clone().filter(|(end, _)| *end < horizon),
        });
        let (value, calls): (V, Vec<_>) = (value_at(cut), calls.collect());
        if !is_linearizable(&value, &calls) {
            return Err(format!("no order of these is right from {value:?} on: {calls:?}"));
        }
        if window.len() <= WINDOW {
            return Ok(());
        }
        // The next window begins after the last command that ended in this one.
        let next = window.iter().take(WINDOW).filter_map(|operation| {
            let (end, _) = operation.end.as_ref()?;
            Some((operation.position?, *end))
        });
        match next.max() {
            Some((position, end)) if position > cut => (cut, cut_at) = (position, end),
            _ => return Ok(()),
        }
    }
}

/// True if some order of the operations explains their replies, from this value on.
fn is_linearizable<V: Sequential>(value: &V, calls: &Calls<V>) -> bool {
    let mut calls = calls.to_vec();
    // The search takes what ended early first, which is right mostly.
    calls.sort_by_key(|call| call.end.as_ref().map_or(Time::NEVER, |(end, _)| *end));
    let everything = (0..calls.len()).fold(0, |all, index| all | 1_u64 << index);
    let mut tried = HashSet::new();
    let mut open = vec![(everything, value.clone())];
    while let Some((left, value)) = open.pop() {
        let left = without_reads::<V>(left, &value, &calls);
        let Some(first_end) = first_end::<V>(left, &calls) else { return true };
        if tried.len() > V::STATES_MAX {
            return true;
        }
        if !tried.insert((left, value.clone())) {
            continue;
        }
        for index in bits(left).rev().filter(|index| calls[*index].begin <= first_end) {
            if let Some(after) = calls[index].fits(&value) {
                open.push((left & !(1 << index), after));
            }
        }
    }
    false
}

/// Takes out the operations that may come next, and that leave the value as it is wherever their replies fit: if there is a
/// right order, there is one that begins with them. An operation without an end may be needed later.
fn without_reads<V: Sequential>(mut left: u64, value: &V, calls: &Calls<V>) -> u64 {
    while let Some(first_end) = first_end::<V>(left, calls) {
        let is_next = |index: &usize| {
            let call = &calls[*index];
            call.end.is_some() && call.begin <= first_end && call.fits(value).as_ref() == Some(value)
        };
        let reads = bits(left).filter(is_next);
        let reads = reads.fold(0, |reads, index| reads | 1 << index);
        if reads == 0 {
            break;
        }
        left &= !reads;
    }
    left
}

/// Returns when the first of these operations ended; they are in the order of their ends.
fn first_end<V: Sequential>(left: u64, calls: &Calls<V>) -> Option<Time> {
    let first = calls.get(left.trailing_zeros() as usize)?;
    first.end.as_ref().map(|(end, _)| *end)
}

/// Iterates over the set bits.
fn bits(word: u64) -> impl DoubleEndedIterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |index| word & 1 << index != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::{Op, Reply, Value};

    fn call(op: Op, begin: u64, end: Option<(u64, Reply)>) -> Call<Op, Reply> {
        let end = end.map(|(end, reply)| (Time::from_nanos(end), reply));
        Call { op, begin: Time::from_nanos(begin), end }
    }

    #[test]
    fn overlapping_operations_may_be_in_any_order() {
        let put = call(Op::Put(0, 7), 0, Some((10, Reply(0, 1))));
        for seen in [0, 7] {
            let get = call(Op::Get(0), 5, Some((12, Reply(seen, 0))));
            assert!(is_linearizable(&Value::default(), &[put.clone(), get]), "{seen}");
        }
        let stale = call(Op::Get(0), 11, Some((12, Reply(0, 0))));
        assert!(!is_linearizable(&Value::default(), &[put, stale]));
    }

    #[test]
    fn an_operation_without_an_end_may_have_happened_or_not() {
        let put = call(Op::Put(0, 7), 0, None);
        let get = |begin, seen| call(Op::Get(0), begin, Some((begin + 1, Reply(seen, 0))));
        assert!(is_linearizable(&Value::default(), &[put.clone(), get(5, 0), get(10, 7)]));
        assert!(!is_linearizable(&Value::default(), &[put, get(5, 7), get(10, 0)]));
    }

    #[test]
    fn an_operation_without_an_end_that_would_change_nothing_now_may_change_something_later() {
        let (put, zero) = (call(Op::Put(0, 7), 0, None), call(Op::Put(0, 0), 2, Some((3, Reply(7, 1)))));
        let get = call(Op::Get(0), 5, Some((6, Reply(7, 0))));
        assert!(is_linearizable(&Value(7, 0), &[put, zero.clone(), get.clone()]));
        assert!(!is_linearizable(&Value(7, 0), &[zero, get]));
    }

    #[test]
    fn fifty_operations_at_once_are_searched_in_time() {
        let all: Vec<_> = (0..50).map(|value| call(Op::Put(0, value % 3), 0, None)).collect();
        assert!(is_linearizable(&Value::default(), &all));
        let ended: Vec<_> = (0..50)
            .map(|index| call(Op::Add(0, 1), index * 4, Some((index * 4 + 10, Reply(index + 1, 1)))))
            .collect();
        assert!(is_linearizable(&Value::default(), &ended));
    }
}
