//! Did everybody deliver the same, and is anything missing? Judged from what the members themselves wrote down.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A place in the order as one member delivered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Place(pub(crate) u64, pub(crate) Content);

/// What a member found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Content {
    /// A member's message, by the member's index and the message's number, which counts from 1.
    #[serde(rename = "m")]
    Message(usize, u64),
    /// A change of the view: a checksum of how it reads afterwards.
    #[serde(rename = "v")]
    View(u32),
}

/// What the members wrote down.
pub(crate) struct Evidence<'a> {
    /// Index and order of each survivor.
    pub(crate) survivors: Vec<(usize, &'a [Place])>,
    /// The same of the one that was killed.
    pub(crate) dead: Option<(usize, &'a [Place])>,
    /// How many messages of each member it was told are accepted.
    pub(crate) accepted: Vec<u64>,
    /// Whether what one member delivered must survive it.
    pub(crate) resilient: bool,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Everybody delivered the same in the same order; the dead one, too, as far as it came.
    pub(crate) order_identical: bool,
    /// Where two orders part.
    pub(crate) difference: Option<String>,
    /// Messages delivered at each survivor; if they differ, at the one with the fewest.
    pub(crate) delivered: u64,
    /// Messages whose senders were told that they are accepted.
    pub(crate) acknowledged: u64,
    /// Those of them that some survivor has not delivered.
    pub(crate) lost_acknowledged: u64,
    /// Messages that some survivor delivered more than once.
    pub(crate) duplicates: u64,
    /// What was acknowledged must not be lost.
    resilient: bool,
}

impl Verdict {
    /// Judges.
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
        for (_, places) in &evidence.survivors {
            let mut seen = HashSet::new();
            let mut doubled = 0;
            for Place(_, content) in *places {
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

    /// One order, nothing twice, and nothing lost that the group promised to keep.
    pub(crate) fn good(&self) -> bool {
        let kept = self.lost_acknowledged == 0 || !self.resilient;
        self.order_identical && kept && self.duplicates == 0
    }

    /// Said behind what was lost, where that is nobody's fault.
    pub(crate) fn excuse(&self) -> &'static str {
        if self.lost_acknowledged > 0 && !self.resilient {
            " (resilience 0 promises to keep none)"
        } else {
            ""
        }
    }

    /// The same as a command's result.
    pub(crate) fn into_result(self) -> Result<(), Problem> {
        match self.difference {
            _ if self.good() => Ok(()),
            Some(difference) => Err(Problem::failed(difference)),
            None => Err(Problem::failed("messages that were acknowledged are missing, or some came twice")),
        }
    }
}

fn difference(evidence: &Evidence<'_>) -> Option<String> {
    let (&(first, order), others) = evidence.survivors.split_first()?;
    for &(other, places) in others {
        if let Some(at) = parting(order, places) {
            return Some(format!(
                "member {first} and member {other} part: {} and {}",
                name(order.get(at)),
                name(places.get(at))
            ));
        }
    }
    let (dead, places) = evidence.dead?;
    let at = parting(order.get(..places.len()).unwrap_or(order), places)?;
    evidence.resilient.then(|| {
        format!(
            "member {dead} delivered {} before it died, the survivors {}",
            name(places.get(at)),
            name(order.get(at))
        )
    })
}

/// Where two orders part, if they do.
fn parting(one: &[Place], other: &[Place]) -> Option<usize> {
    let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (common < one.len().max(other.len())).then_some(common)
}

fn name(place: Option<&Place>) -> String {
    match place {
        None => "nothing".to_string(),
        Some(Place(seqno, Content::Message(sender, number))) => {
            format!("message {number} of member {sender} at place {seqno}")
        }
        Some(Place(seqno, Content::View(_))) => format!("a change of the view at place {seqno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(contents: &[Content]) -> Vec<Place> {
        contents.iter().zip(7..).map(|(content, seqno)| Place(seqno, *content)).collect()
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
    fn a_place_that_differs_is_found() {
        for other in [&[B1, A1, A2][..], &[A1, B1], &[A1, B1, A2, VIEW], &[]] {
            let verdict = judge(&[&[A1, B1, A2], other], &[], &[0, 0], true);
            assert!(!verdict.order_identical && verdict.difference.is_some(), "{other:?}");
        }
    }

    #[test]
    fn what_the_dead_one_delivered_counts_if_the_group_is_resilient() {
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
    fn what_a_group_without_resilience_loses_is_excused_and_what_comes_twice_is_not() {
        let lost = judge(&[&[A1, B1], &[A1, B1]], &[], &[2, 1], false);
        assert!(lost.good() && lost.lost_acknowledged == 1 && !lost.excuse().is_empty());
        assert_eq!(judge(&[&[A1, B1], &[A1, B1]], &[], &[2, 1], true).excuse(), "");
        assert!(!judge(&[&[A1, A1], &[A1, A1]], &[], &[1, 0], false).good());
    }

    #[test]
    fn a_place_travels_as_short_json() {
        let text = serde_json::to_string(&Place(9, A2)).unwrap();
        assert_eq!(text, r#"[9,{"m":[0,2]}]"#);
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), Place(9, A2));
    }
}
