//! Frame faults: faults that strike a certain datagram, namely the n-th one that contains a frame of a given kind.
//!
//! Frames identify steps of the protocol: only a coordinator sends an Invite, only a sequencer sends a Change, and a
//! member that acknowledges sends Watermarks. So a frame fault strikes a role at a step. In a fan-out it can strike
//! between any two copies.

use unisono_core::wire::FrameKind;

/// What happens to the copy of the datagram, or to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultAction {
    /// The copy is lost.
    Drop,
    /// The sender crashes before the copy is sent.
    CrashBefore,
    /// The sender crashes after the copy is sent.
    CrashAfter,
    /// The sender is paused for this time in nanoseconds, after it has sent its present output.
    Pause(u64),
}

/// A fault that waits for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameFault {
    /// The kind of frame that the datagram must contain.
    pub(crate) frame: FrameKind,
    /// Sender of the datagram; any, if `None`.
    pub(crate) from: Option<usize>,
    /// Receiver of the copy; any, if `None`.
    pub(crate) to: Option<usize>,
    /// Number of matching copies that pass unharmed before the fault strikes.
    pub(crate) skip: u32,
    /// Number of matching copies that the fault then strikes.
    pub(crate) times: u32,
    pub(crate) action: FaultAction,
}

/// The set of frame kinds in a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameSet(u128);

impl FrameSet {
    pub(crate) fn insert(&mut self, kind: FrameKind) {
        self.0 |= 1 << kind as u8;
    }

    pub(crate) fn contains(self, kind: FrameKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

/// The frames that carry entries of the log. A process that gets none of them answers everything else.
const ENTRIES: [FrameKind; 5] =
    [FrameKind::Ordered, FrameKind::Numbers, FrameKind::Data, FrameKind::Change, FrameKind::Level];

/// All frame faults that are set.
#[derive(Default)]
pub(crate) struct FrameFaults {
    set: Vec<FrameFault>,
    /// Processes that no entries reach.
    stuck: Vec<usize>,
    /// Pairs of processes: the notes of the first do not reach the second.
    withheld: Vec<(usize, usize)>,
}

impl FrameFaults {
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.stuck.is_empty()
    }

    /// Lets no entries reach a process any more, or ends that.
    pub(crate) fn set_stuck(&mut self, process: usize, is_stuck: bool) {
        self.stuck.retain(|known| *known != process);
        if is_stuck {
            self.stuck.push(process);
        }
    }

    /// Lets no notes of a process reach another one any more.
    pub(crate) fn withhold_notes(&mut self, from: usize, to: usize) {
        self.withheld.push((from, to));
    }

    pub(crate) fn end_withholding(&mut self) {
        self.withheld.clear();
    }

    /// Returns the processes whose notes do not reach this one.
    pub(crate) fn withheld_from(&self, to: usize) -> impl Iterator<Item = usize> {
        self.withheld.iter().filter(move |(_, receiver)| *receiver == to).map(|(from, _)| *from)
    }

    pub(crate) fn set(&mut self, fault: FrameFault) {
        self.set.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.set.clear();
        self.stuck.clear();
        self.withheld.clear();
    }

    /// Matches a copy with these frames that is about to be sent. Returns the action of the fault that strikes, if any.
    pub(crate) fn strike(&mut self, frames: FrameSet, from: usize, to: usize) -> Option<FaultAction> {
        if self.stuck.contains(&to) && ENTRIES.iter().any(|kind| frames.contains(*kind)) {
            return Some(FaultAction::Drop);
        }
        let matches = |fault: &FrameFault| {
            frames.contains(fault.frame)
                && fault.from.is_none_or(|wanted| wanted == from)
                && fault.to.is_none_or(|wanted| wanted == to)
        };
        let mut action = None;
        for fault in self.set.iter_mut().filter(|fault| matches(fault)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if action.is_none() {
                fault.times -= 1;
                action = Some(fault.action);
            }
        }
        if action.is_some() {
            self.set.retain(|fault| fault.times > 0);
        }
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_process_gets_all_but_entries() {
        let mut frame_faults = FrameFaults::default();
        frame_faults.set_stuck(2, true);
        let (mut beat, mut entry) = (FrameSet::default(), FrameSet::default());
        beat.insert(FrameKind::Heartbeat);
        entry.insert(FrameKind::Heartbeat);
        entry.insert(FrameKind::Ordered);
        let mut is_lost = |frames, to| frame_faults.strike(frames, 0, to).is_some();
        assert_eq!([is_lost(beat, 2), is_lost(entry, 2), is_lost(entry, 1)], [false, true, false]);
        frame_faults.set_stuck(2, false);
        assert!(frame_faults.is_empty());
    }

    #[test]
    fn a_frame_fault_counts_only_matching_copies() {
        let mut frame_faults = FrameFaults::default();
        frame_faults.set(FrameFault {
            frame: FrameKind::Invite,
            from: Some(1),
            to: None,
            skip: 1,
            times: 2,
            action: FaultAction::Drop,
        });
        let (mut invite, mut vote) = (FrameSet::default(), FrameSet::default());
        invite.insert(FrameKind::Invite);
        vote.insert(FrameKind::Vote);
        let struck = [(vote, 1), (invite, 2), (invite, 1), (invite, 1), (vote, 1), (invite, 1), (invite, 1)]
            .map(|(frames, from)| frame_faults.strike(frames, from, 0).is_some());
        assert_eq!(struck, [false, false, false, true, false, true, false]);
        assert!(frame_faults.is_empty());
    }
}
