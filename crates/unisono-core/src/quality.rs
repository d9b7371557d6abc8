//! Quality of service: what one message asks for.
//!
//! A group has one number that holds for all its messages, the resilience degree. A message may ask for more: it is
//! then delivered only when more members hold it. Or it asks for less, and may be delivered before it has its place in the order.
//! Its quality is one byte, which travels with it from its sender to every log. The table here answers what the other parts ask
//! about a quality; only `wire` reads and writes the byte.

use core::fmt;
use core::str::FromStr;

/// What a message asks for. All but [`Quality::UNRELIABLE`] get a seqno in the group's one order;
/// [`Quality::UNORDERED`] and [`Quality::SOURCE_ORDERED`] may be delivered before it. The others differ in how many members must
/// hold a message before it is delivered anywhere, and so in which losses it survives.
///
/// ```
/// use unisono_core::Quality;
/// let quality: Quality = "resilient=2".parse()?;
/// assert_eq!(quality, Quality::resilient(2));
/// assert_eq!(Quality::MAJORITY.to_string(), "majority");
/// # Ok::<(), unisono_core::QualityError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quality(u8);

impl Quality {
    /// Delivered on receipt, at most once, and not repaired: a message without a seqno, in one datagram of its own, of which
    /// any member may receive nothing. It may come before or after any other message. For what is out of date when it
    /// would be sent again.
    pub const UNRELIABLE: Quality = Quality(255);
    /// For messages of which each stands for itself. It may be delivered before its seqno is known, in any order, as
    /// [`Event::Early`](crate::Event::Early); otherwise it comes at its seqno. A reset keeps what a member that goes on delivered.
    pub const UNORDERED: Quality = Quality(251);
    /// For messages that need the order of their own sender and no other: one may be delivered before its seqno is known,
    /// but after the earlier messages of its sender, those that are unordered excepted. Otherwise like [`Quality::UNORDERED`].
    pub const SOURCE_ORDERED: Quality = Quality(252);
    /// As the group's resilience r says: r + 1 members hold the message, and it survives the loss of r members.
    pub const ORDERED: Quality = Quality(0);
    /// More than half of the view holds the message: it survives every reset, since a quorum decides each. A group
    /// whose quorums need not intersect refuses it.
    pub const MAJORITY: Quality = Quality(253);
    /// All members of the view hold the message: it survives as long as one of them is left. A group whose quorums need
    /// not intersect refuses it.
    pub const TOTAL: Quality = Quality(254);
    /// The largest k of [`Quality::resilient`].
    pub const RESILIENT_MAX: u8 = 250;

    /// The message survives the loss of `k` members, if that is more than the group's resilience: `k` + 1 members hold
    /// it, at most all. A larger `k` than [`Quality::RESILIENT_MAX`] counts as that.
    pub const fn resilient(k: u8) -> Quality {
        Quality(if k < Quality::RESILIENT_MAX { k } else { Quality::RESILIENT_MAX })
    }

    /// True if messages of this quality get a seqno.
    #[inline]
    pub fn has_seqno(self) -> bool {
        self != Quality::UNRELIABLE
    }

    /// True if messages of this quality may be delivered before their seqno is known.
    #[inline]
    pub fn may_be_early(self) -> bool {
        matches!(self, Quality::UNORDERED | Quality::SOURCE_ORDERED)
    }

    /// Returns the quality that this byte stands for on the wire. 255 never travels: a message without a seqno has a frame
    /// of its own.
    pub(crate) const fn from_byte(byte: u8) -> Option<Quality> {
        match byte {
            255 => None,
            _ => Some(Quality(byte)),
        }
    }

    /// Returns the byte that stands for this quality on the wire.
    pub(crate) const fn byte(self) -> u8 {
        self.0
    }

    /// Returns the number of members of a view of `members` that must hold a message of this quality before it is
    /// delivered, in a group with resilience `resilience`: never more than all. 0 for [`Quality::UNRELIABLE`].
    #[inline]
    pub fn holders(self, resilience: u8, members: usize) -> usize {
        match self {
            Quality::UNRELIABLE => 0,
            _ => self.asks_for(resilience, members).min(members),
        }
    }

    /// Returns the number of holders that a message of this quality asks for, which may be more than there are members:
    /// what the members may have to show until the next view, too.
    #[inline]
    pub(crate) fn asks_for(self, resilience: u8, members: usize) -> usize {
        let least = usize::from(resilience) + 1;
        let asked = match self {
            Quality::MAJORITY => members / 2 + 1,
            Quality::TOTAL => members,
            Quality::UNORDERED | Quality::SOURCE_ORDERED => 1,
            Quality(k) => usize::from(k) + 1,
        };
        asked.max(least)
    }

    /// True if the quality asks for more holders than each message of a group with this resilience has anyway.
    pub(crate) fn exceeds(self, resilience: u8) -> bool {
        match self {
            Quality::MAJORITY | Quality::TOTAL => true,
            Quality::UNRELIABLE | Quality::UNORDERED | Quality::SOURCE_ORDERED => false,
            Quality(k) => k > resilience,
        }
    }

    /// True if the quality means what it says only where any two quorums have a member in common.
    pub(crate) fn is_by_quorum(self) -> bool {
        matches!(self, Quality::MAJORITY | Quality::TOTAL)
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Quality::ORDERED => f.write_str("ordered"),
            Quality::UNORDERED => f.write_str("unordered"),
            Quality::SOURCE_ORDERED => f.write_str("source"),
            Quality::MAJORITY => f.write_str("majority"),
            Quality::TOTAL => f.write_str("total"),
            Quality::UNRELIABLE => f.write_str("unreliable"),
            Quality(k) => write!(f, "resilient={k}"),
        }
    }
}

impl fmt::Debug for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Quality {
    type Err = QualityError;

    fn from_str(text: &str) -> Result<Quality, QualityError> {
        match text {
            "ordered" => Ok(Quality::ORDERED),
            "unordered" => Ok(Quality::UNORDERED),
            "source" => Ok(Quality::SOURCE_ORDERED),
            "majority" => Ok(Quality::MAJORITY),
            "total" => Ok(Quality::TOTAL),
            "unreliable" => Ok(Quality::UNRELIABLE),
            _ => {
                let k = text.strip_prefix("resilient=").and_then(|k| k.parse().ok());
                match k {
                    Some(k @ 1..=Quality::RESILIENT_MAX) => Ok(Quality(k)),
                    _ => Err(QualityError),
                }
            }
        }
    }
}

/// A text is not a [`Quality`]: the caller's mistake.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a quality is unreliable, unordered, source, ordered, resilient=K with K from 1 to {max}, majority or total",
    max = Quality::RESILIENT_MAX
)]
pub struct QualityError;

crate::debug_as_sentence!(QualityError);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn each_quality_has_its_number_of_holders() {
        let holders = |quality: Quality, resilience| [1, 2, 3, 4, 5].map(|n| quality.holders(resilience, n));
        assert_eq!(holders(Quality::ORDERED, 0), [1, 1, 1, 1, 1]);
        assert_eq!(holders(Quality::ORDERED, 1), [1, 2, 2, 2, 2]);
        assert_eq!(holders(Quality::resilient(2), 0), [1, 2, 3, 3, 3]);
        assert_eq!(
            holders(Quality::resilient(1), 2),
            [1, 2, 3, 3, 3],
            "the group's own counts if it is more"
        );
        assert_eq!(holders(Quality::MAJORITY, 0), [1, 2, 2, 3, 3]);
        assert_eq!(holders(Quality::MAJORITY, 3), [1, 2, 3, 4, 4]);
        assert_eq!(holders(Quality::TOTAL, 0), [1, 2, 3, 4, 5]);
        assert_eq!(holders(Quality::ORDERED, 255), [1, 2, 3, 4, 5]);
        assert_eq!(Quality::resilient(255).holders(0, 4_096), 251, "limited to the largest k");
        assert_eq!(holders(Quality::UNRELIABLE, 2), [0; 5]);
        for weak in [Quality::UNORDERED, Quality::SOURCE_ORDERED] {
            for resilience in [0, 1, 3] {
                assert_eq!(holders(weak, resilience), holders(Quality::ORDERED, resilience), "{weak}");
            }
        }
    }

    #[test]
    fn each_quality_has_its_byte_and_its_name() {
        for byte in 0..=255 {
            let Some(quality) = Quality::from_byte(byte) else {
                assert_eq!(byte, 255);
                continue;
            };
            assert_eq!(quality.byte(), byte);
            assert_eq!(quality.to_string().parse(), Ok(quality));
            assert!(quality.has_seqno());
        }
        assert_eq!("unreliable".parse(), Ok(Quality::UNRELIABLE));
        assert_eq!(Quality::UNRELIABLE.to_string(), "unreliable");
        assert!(!Quality::UNRELIABLE.has_seqno());
        for text in
            ["", "Ordered", "resilient", "resilient=", "resilient=0", "resilient=251", "resilient=-1", "all"]
        {
            assert_eq!(text.parse::<Quality>(), Err(QualityError), "{text:?}");
        }
    }

    #[test]
    fn a_quality_by_quorum_exceeds_every_resilience() {
        assert!(!Quality::ORDERED.exceeds(0) && !Quality::resilient(2).exceeds(2));
        assert!(Quality::resilient(2).exceeds(1));
        assert!(Quality::MAJORITY.exceeds(255) && Quality::TOTAL.exceeds(255));
        assert!(!Quality::UNORDERED.exceeds(0) && !Quality::SOURCE_ORDERED.exceeds(0));
    }
}
