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

/// True if some order of the operations explains their replies, from this value on.
pub(super) fn is_linearizable(value: Value, calls: &[Call]) -> bool {
    let ended = |left: u64| {
        let all = (0..calls.len()).filter(move |index| left & 1 << index != 0);
        all.filter_map(|index| calls[index].end.map(|(end, _)| end)).min()
    };
    let everything = (0..calls.len()).fold(0, |all, index| all | 1_u64 << index);
    let mut tried = HashSet::new();
    let mut open = vec![(everything, value)];
    while let Some((left, value)) = open.pop() {
        let Some(first_end) = ended(left) else { return true };
        if tried.len() > STATES_MAX {
            return true;
        }
        if !tried.insert((left, value)) {
            continue;
        }
        for (index, call) in calls.iter().enumerate().filter(|(index, _)| left & 1 << index != 0) {
            let (reply, after) = value.after(call.op);
            let fits = call.end.is_none_or(|(_, got)| got == reply);
            if call.begin <= first_end && fits {
                open.push((left & !(1 << index), after));
            }
        }
    }
    false
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
    fn fifty_operations_at_once_are_searched_in_time() {
        let all: Vec<Call> = (0..50).map(|value| call(Op::Put(0, value % 3), 0, None)).collect();
        assert!(is_linearizable(Value::default(), &all));
        let ended: Vec<Call> = (0..50)
            .map(|index| call(Op::Add(0, 1), index * 4, Some((index * 4 + 10, Reply(index + 1, 1)))))
            .collect();
        assert!(is_linearizable(Value::default(), &ended));
    }
}
