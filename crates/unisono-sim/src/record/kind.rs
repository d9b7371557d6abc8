//! The kinds of records, as bits of a mask.

use super::What;

/// Declares [`Kind`] and the mapping from [`What`], so that no kind is forgotten.
macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// The kind of a [`What`], as a bit for [`crate::properties::Property::interests`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Kind { $($kind),* }

        impl Kind {
            /// All kinds, in the order of their bits.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// Returns its bit.
            pub const fn bit(self) -> u64 {
                1 << self as u32
            }
        }

        impl What {
            /// Returns its kind.
            #[inline(always)]
            pub fn kind(&self) -> Kind {
                match self { $(What::$kind { .. } => Kind::$kind),* }
            }
        }
    };
}

kinds! {
    Started, Sent, LeaveAsked, ResetAsked, HandOverAsked, OrderAsked,
    SendResult, Entered, Delivered, Joined, Left, HandedOver, OrderChanged, Reset, Suspected, Excluded, Gone, JoinFailed, Conflict,
    EpochBegun, Stored, Acknowledged, Accepted, Numbered, Purged, HistoryUsed, Promised, Prepared,
    LeaveKnown, Parted,
    Called, CallEnded, CallCancelled, Serving, Withdrawn, Handed, Executed, Replied, RefusedCall, PassedOn,
    Held, Strayed, Worked,
    Crashed, Paused, Resumed, FaultBegin, FaultEnd, Healed,
    Halted, WentOn, ForceAsked, Creating,
    Confirming, Confirmed, Ended, SpokeAfterEnd,
    Replica, Directory,
    SentUnreliable, Early, Passed, Tail,
    Beside,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_fit_the_mask_and_differ() {
        assert!(Kind::ALL.len() <= 64);
        let all = Kind::ALL.iter().fold(0_u64, |bits, kind| bits | kind.bit());
        assert_eq!(all.count_ones() as usize, Kind::ALL.len());
        assert_eq!(What::Gone.kind(), Kind::Gone);
    }
}
