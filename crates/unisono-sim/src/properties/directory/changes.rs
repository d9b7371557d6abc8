//! Whether the changes that a watch gets are those of the directory from a number on: all of them, in order.

use super::history::Timeline;
use crate::directory::limits;
use unisono_table::{Answer, Reason, Reply};

/// Says what is wrong with the changes of a directory from a number on.
pub(super) fn fault_of(timeline: &Timeline, directory: u64, from: u64, reply: &Reply) -> Option<String> {
    let (from, number) = (from.max(1), reply.number);
    match &reply.result {
        Ok(Answer::Changes { changes, next }) => {
            let right = timeline.changes_of(directory, from, number);
            let is_right = right.len() == changes.len()
                && right.iter().zip(changes).all(|((number, right), got)| {
                    (*number, right.event, &right.name) == (got.number, got.event, &got.name)
                });
            if !is_right || from > number + 1 {
                return Some(format!("got the changes {changes:?} from {from} on where {right:?} are right"));
            }
            (*next != number + 1).then(|| format!("goes on at {next} after {number}"))
        }
        Err(refusal) => match refusal.reason {
            Reason::Future { number: last } if from > number + 1 && last == number => None,
            Reason::NoLongerKept { kept_from } if from < kept_from && kept_from <= number + 1 => {
                // What is kept has some length: a server does not forget early.
                let kept = timeline.log_bytes(kept_from, number);
                let least = limits().history_bytes / 2;
                (kept < least).then(|| format!("keeps {kept} bytes of changes, fewer than {least}"))
            }
            reason => Some(format!("refused: {reason:?}")),
        },
        other => Some(format!("got {other:?}")),
    }
}
