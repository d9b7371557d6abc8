//! Checks whether all members delivered the same in the same order, and whether messages are missing or doubled, from
//! what the members recorded.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// An event as one member delivered it: its seqno and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Entry(pub(crate) u64, pub(crate) Content);

/// What a member delivered at a seqno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Content {
    /// A member's message, by the member's index and the message's number, which counts from 1.
    #[serde(rename = "m")]
    Message(usize, u64),
    /// A change of the view: a checksum of the text of the new view.
    #[serde(rename = "v")]
    View(u32),
}

/// What the members recorded.
pub(crate) struct Evidence<'a> {
    /// Each survivor's index and what it delivered.
    pub(crate) survivors: Vec<(usize, &'a [Entry])>,
    /// The same for the member that failed, if one did.
    pub(crate) dead: Option<(usize, &'a [Entry])>,
    /// For each member, the number of its messages that were acknowledged to it as accepted.
    pub(crate) accepted: Vec<u64>,
    /// True if a message that one member delivered must survive its crash.
    pub(crate) resilient: bool,
}

/// The result of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// True if all members delivered the same in the same order, the failed member up to its end.
    pub(crate) order_identical: bool,
    /// The first difference between two members.
    pub(crate) difference: Option<String>,
    /// Number of messages that each survivor delivered; if the numbers differ, the lowest.
    pub(crate) delivered: u64,
    /// Number of messages acknowledged to their senders.
    pub(crate) acknowledged: u64,
    /// Number of acknowledged messages that a survivor has not delivered.
    pub(crate) lost_acknowledged: u64,
    /// Number of messages that a survivor delivered more than once.
    pub(crate) duplicates: u64,
    /// True if acknowledged messages must not be lost.
    resilient: bool,
}

impl Verdict {
    /// Compares what the members recorded.
    pub(crate) fn of(evidence: &Evidence<'_>) -> Verdict {
        let difference = difference(evidence);
        let mut verdict = Verdict {
            order_identical: difference.is_none(),
            difference,
            delivered: u64::MAX,
            acknowledged: evidence.accepted.iter().sum(),
            lost_acknowledged: 0,
            duplicates: 0,
            resilient: evidence.resilient,
        };
        for (_, entries) in &evidence.survivors {
            let mut seen = HashSet::new();
            let mut doubled = 0;
            for Entry(_, content) in *entries {
                if let Content::Message(..) = content
                    && !seen.insert(*content)
                {
                    doubled += 1;
                }
            }
            let accepted = evidence.accepted.iter().enumerate();
            let lost = accepted
                .flat_map(|(sender, &through)| {
                    (1..=through).map(move |number| Content::Message(sender, number))
                })
                .filter(|message| !seen.contains(message))
                .count() as u64;
            verdict.delivered = verdict.delivered.min(seen.len() as u64);
            verdict.lost_acknowledged = verdict.lost_acknowledged.max(lost);
            verdict.duplicates = verdict.duplicates.max(doubled);
        }
        if evidence.survivors.is_empty() {
            verdict.delivered = 0;
        }
        verdict
    }

    /// True if the orders are identical, no message was delivered twice, and none is lost that the group promised to
    /// keep.
    pub(crate) fn good(&self) -> bool {
        let kept = self.lost_acknowledged == 0 || !self.resilient;
        self.order_identical && kept && self.duplicates == 0
    }

    /// Returns the remark on lost messages, if the group did not promise to keep them.
    pub(crate) fn excuse(&self) -> &'static str {
        if self.lost_acknowledged > 0 && !self.resilient {
            " (resilience 0 does not protect them)"
        } else {
            ""
        }
    }

    /// Returns the result of the command.
    pub(crate) fn into_result(self) -> Result<(), Problem> {
        match self.difference {
            _ if self.good() => Ok(()),
            Some(difference) => Err(Problem::failed(difference)),
            None => {
                Err(Problem::failed("acknowledged messages are missing, or messages were delivered twice"))
            }
        }
    }
}

fn difference(evidence: &Evidence<'_>) -> Option<String> {
    let (&(first, order), others) = evidence.survivors.split_first()?;
    for &(other, entries) in others {
        if let Some(at) = parting(order, entries) {
            return Some(format!(
                "member {first} and member {other} delivered different events: {} and {}",
                name(order.get(at)),
                name(entries.get(at))
            ));
        }
    }
    let (dead, entries) = evidence.dead?;
    let at = parting(order.get(..entries.len()).unwrap_or(order), entries)?;
    evidence.resilient.then(|| {
        format!(
            "member {dead} delivered {} before it failed, the survivors {}",
            name(entries.get(at)),
            name(order.get(at))
        )
    })
}

/// Returns the index of the first difference between two orders, if there is one.
fn parting(one: &[Entry], other: &[Entry]) -> Option<usize> {
    let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (common < one.len().max(other.len())).then_some(common)
}

fn name(entry: Option<&Entry>) -> String {
    match entry {
        None => "nothing".to_string(),
        Some(Entry(seqno, Content::Message(sender, number))) => {
            format!("message {number} of member {sender} at seqno {seqno}")
        }
        Some(Entry(seqno, Content::View(_))) => format!("a change of the view at seqno {seqno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(contents: &[Content]) -> Vec<Entry> {
        contents.iter().zip(7..).map(|(content, seqno)| Entry(seqno, *content)).collect()
    }

    fn judge(survivors: &[&[Content]], dead: &[Content], accepted: &[u64], resilient: bool) -> Verdict {
        let orders: Vec<_> = survivors.iter().map(|contents| order(contents)).collect();
        let dead = order(dead);
        Verdict::of(&Evidence {
            survivors: orders.iter().map(Vec::as_slice).enumerate().collect(),
            dead: Some((survivors.len(), &dead)),
            accepted: accepted.to_vec(),
            resilient,
        })
    }

    const A1: Content = Content::Message(0, 1);
    const A2: Content = Content::Message(0, 2);
    const B1: Content = Content::Message(1, 1);
    const VIEW: Content = Content::View(5);

    #[test]
    fn one_order_and_nothing_lost_is_good() {
        let verdict = judge(&[&[A1, B1, VIEW, A2], &[A1, B1, VIEW, A2]], &[A1], &[2, 1, 0], true);
        assert!(verdict.good());
        assert_eq!((verdict.delivered, verdict.acknowledged), (3, 3));
    }

    #[test]
    fn a_different_event_is_found() {
        for other in [&[B1, A1, A2][..], &[A1, B1], &[A1, B1, A2, VIEW], &[]] {
            let verdict = judge(&[&[A1, B1, A2], other], &[], &[0, 0], true);
            assert!(!verdict.order_identical && verdict.difference.is_some(), "{other:?}");
        }
    }

    #[test]
    fn the_events_of_the_failed_member_count_if_the_group_is_resilient() {
        for dead in [&[A1, A2][..], &[A1, B1, A2, VIEW]] {
            assert!(!judge(&[&[A1, B1, A2]], dead, &[0, 0], true).order_identical, "{dead:?}");
            assert!(judge(&[&[A1, B1, A2]], dead, &[0, 0], false).order_identical, "{dead:?}");
        }
    }

    #[test]
    fn lost_and_doubled_messages_are_counted() {
        let verdict = judge(&[&[A1, A1, B1], &[A1, A1, B1]], &[], &[2, 1], true);
        assert_eq!((verdict.lost_acknowledged, verdict.duplicates, verdict.delivered), (1, 1, 2));
        assert!(!verdict.good());
    }

    #[test]
    fn a_group_without_resilience_may_lose_messages_but_not_double_them() {
        let lost = judge(&[&[A1, B1], &[A1, B1]], &[], &[2, 1], false);
        assert!(lost.good() && lost.lost_acknowledged == 1 && !lost.excuse().is_empty());
        assert_eq!(judge(&[&[A1, B1], &[A1, B1]], &[], &[2, 1], true).excuse(), "");
        assert!(!judge(&[&[A1, A1], &[A1, A1]], &[], &[1, 0], false).good());
    }

    #[test]
    fn an_event_is_short_json() {
        let text = serde_json::to_string(&Entry(9, A2)).unwrap();
        assert_eq!(text, r#"[9,{"m":[0,2]}]"#);
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), Entry(9, A2));
    }
}
