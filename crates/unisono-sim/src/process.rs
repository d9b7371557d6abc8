//! A simulated process: a host with an address, on which one life follows another.
//!
//! A process that crashes loses all its state; the next life there has a new uid. A paused process does not notice the
//! pause: datagrams collect in its socket, and its clock has advanced when it resumes.

use crate::clock::Clock;
use crate::network::{DatagramId, Path};
use crate::record::Life;
use bytes::BytesMut;
use unisono_core::{Random, Time, Uid};

/// One process, for lives with sides of type `S`.
pub(crate) struct Process<S> {
    /// The life that is running here now.
    pub(crate) resident: Option<Resident<S>>,
    pub(crate) is_paused: bool,
    /// World time at which it resumes, if it is paused.
    pub(crate) resumes_at: u64,
    /// Datagrams that arrived while it was paused; at most [`SOCKET_DATAGRAMS_MAX`].
    pub(crate) socket: Vec<(DatagramId, Path)>,
    /// World time of the valid timer entry in the queue; older entries are ignored.
    pub(crate) timer: Option<u64>,
    /// The deadline that was last read from the side, by the clock of the life that is running here.
    pub(crate) deadline: Time,
}

/// Maximum number of datagrams in the socket of a paused process; further ones are dropped.
pub(crate) const SOCKET_DATAGRAMS_MAX: usize = 256;

impl<S> Default for Process<S> {
    fn default() -> Process<S> {
        Process {
            resident: None,
            is_paused: false,
            resumes_at: 0,
            socket: Vec::new(),
            timer: None,
            deadline: Time::default(),
        }
    }
}

/// One life.
pub(crate) struct Resident<S> {
    pub(crate) life: Life,
    pub(crate) uid: Uid,
    /// Its side of the protocol.
    pub(crate) side: S,
    pub(crate) clock: Clock,
    /// World time before which its application takes no events.
    pub(crate) takes_events_from: u64,
    /// True if its application takes events before its datagrams are sent, false for the opposite order.
    pub(crate) events_first: bool,
    pub(crate) scheduled_crash: Option<ScheduledCrash>,
    /// The last packet numbers under which its group and its endpoint sealed.
    pub(crate) sealed: [u64; 2],
    /// True if the member's stream of events has ended, though its core may still be running.
    pub(crate) is_over: bool,
}

/// A crash that is scheduled: it happens while a later input is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledCrash {
    /// Number of inputs that are processed completely before the crash.
    pub(crate) inputs: u32,
    /// Number of copies of datagrams that are sent after the last input.
    pub(crate) copies: u32,
}

impl ScheduledCrash {
    /// Draws a crash within the next 20 inputs, after at most 5 copies of datagrams.
    pub(crate) fn draw(random: &mut Random) -> ScheduledCrash {
        ScheduledCrash { inputs: random.below(20) as u32, copies: random.below(6) as u32 }
    }
}

/// Allocates byte buffers that share large blocks, as a socket does that receives many datagrams in one call.
#[derive(Default)]
pub(crate) struct Arena {
    block: BytesMut,
}

const BLOCK_BYTES: usize = 1 << 16;

impl Arena {
    /// Returns a separate buffer with these bytes.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> BytesMut {
        self.reserve(bytes.len());
        self.block.extend_from_slice(bytes);
        self.block.split()
    }

    /// Returns a buffer of this length, filled with bytes generated from `seed`.
    pub(crate) fn fill(&mut self, length: usize, seed: u64) -> BytesMut {
        self.reserve(length);
        self.block.resize(length, 0);
        let words = std::iter::successors(Some(seed | 1), |word| {
            Some(word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed))
        });
        for (part, word) in self.block.chunks_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
        self.block.split()
    }

    fn reserve(&mut self, bytes: usize) {
        if self.block.capacity() < bytes {
            self.block = BytesMut::with_capacity(BLOCK_BYTES.max(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_an_arena_are_separate() {
        let mut arena = Arena::default();
        let mut first = arena.copy(b"first");
        let second = arena.fill(11, 42);
        first[0] = b'F';
        assert_eq!((&first[..], second.len()), (&b"First"[..], 11));
        assert_ne!(second, arena.fill(11, 44));
        assert_eq!(arena.copy(&vec![3; 3 * BLOCK_BYTES]).len(), 3 * BLOCK_BYTES);
    }
}
