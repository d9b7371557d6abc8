//! Faults that wait for a certain datagram: the n-th one with a certain kind of frame, from whoever sends it.
//!
//! Frames name steps of the protocol: who sends an Invite coordinates, who sends a Change orders, who sends Watermarks
//! acknowledges. So a trap on a frame strikes a role at a step, and in a fan-out between any two copies.

use unisono_core::wire::FrameKind;

/// What happens to the copy of a datagram that springs a trap, or to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultAction {
    /// The copy is lost.
    Drop,
    /// The sender crashes, and the copy never leaves.
    CrashBefore,
    /// The sender crashes once the copy has left.
    CrashAfter,
    /// The sender stands still for so long (nanoseconds) when it has sent what it has to send now.
    Pause(u64),
}

/// A fault in waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trap {
    /// A datagram with a frame of this kind springs it.
    pub(crate) frame: FrameKind,
    /// Sent by this process; by anybody, if nobody is named.
    pub(crate) from: Option<usize>,
    /// To this process.
    pub(crate) to: Option<usize>,
    /// So many such copies pass unharmed before.
    pub(crate) skip: u32,
    /// So many copies spring it.
    pub(crate) times: u32,
    pub(crate) action: FaultAction,
}

/// The kinds of frames in a datagram, as a set.
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

/// All traps that are set.
#[derive(Default)]
pub(crate) struct Traps {
    set: Vec<Trap>,
}

impl Traps {
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub(crate) fn set(&mut self, trap: Trap) {
        self.set.push(trap);
    }

    pub(crate) fn clear(&mut self) {
        self.set.clear();
    }

    /// A copy of a datagram with these frames leaves; what happens, if something does.
    pub(crate) fn spring(&mut self, frames: FrameSet, from: usize, to: usize) -> Option<FaultAction> {
        let matches = |trap: &Trap| {
            frames.contains(trap.frame)
                && trap.from.is_none_or(|wanted| wanted == from)
                && trap.to.is_none_or(|wanted| wanted == to)
        };
        let mut action = None;
        for trap in self.set.iter_mut().filter(|trap| matches(trap)) {
            if trap.skip > 0 {
                trap.skip -= 1;
            } else if action.is_none() {
                trap.times -= 1;
                action = Some(trap.action);
            }
        }
        if action.is_some() {
            self.set.retain(|trap| trap.times > 0);
        }
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_counts_only_what_it_waits_for() {
        let mut traps = Traps::default();
        traps.set(Trap {
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
        let sprung = [(vote, 1), (invite, 2), (invite, 1), (invite, 1), (vote, 1), (invite, 1), (invite, 1)]
            .map(|(frames, from)| traps.spring(frames, from, 0).is_some());
        assert_eq!(sprung, [false, false, false, true, false, true, false]);
        assert!(traps.is_empty());
    }
}
