//! A simulated process: a place with an address, where one life follows the other.
//!
//! A process that crashes forgets everything; what starts there next is a stranger with a new uid. A process that is
//! paused knows nothing of it: datagrams pile up in its socket, and its clock has gone on when it wakes.

use crate::clock::Clock;
use crate::network::{DatagramId, Path};
use crate::record::Life;
use bytes::BytesMut;
use unisono_core::{Random, Time, Uid};

/// One place, for lives of one kind.
pub(crate) struct Process<S> {
    /// Who lives here now.
    pub(crate) resident: Option<Resident<S>>,
    pub(crate) is_paused: bool,
    /// When it goes on, if it is paused.
    pub(crate) resumes_at: u64,
    /// What arrived while it was paused, as far as the socket's buffer holds it.
    pub(crate) socket: Vec<(DatagramId, Path)>,
    /// The next timer in the world's queue that counts.
    pub(crate) timer: Option<u64>,
    /// The deadline that was last looked at, by the clock of who lives here.
    pub(crate) deadline: Time,
}

/// Most datagrams that wait in the socket of a paused process.
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
    /// Its application takes no events before this moment.
    pub(crate) takes_events_from: u64,
    /// Its application takes events before its datagrams leave, not after.
    pub(crate) events_first: bool,
    pub(crate) scheduled_crash: Option<ScheduledCrash>,
    /// It is over with it, though nothing ended it: a member whose stream has ended.
    pub(crate) is_over: bool,
}

/// A crash to come: in the middle of what a later input sets off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledCrash {
    /// So many inputs are handled in full before.
    pub(crate) inputs: u32,
    /// So many copies of datagrams leave after the input that is the last.
    pub(crate) copies: u32,
}

impl ScheduledCrash {
    /// In the middle of what one of the next inputs sets off.
    pub(crate) fn draw(random: &mut Random) -> ScheduledCrash {
        ScheduledCrash { inputs: random.below(20) as u32, copies: random.below(6) as u32 }
    }
}

/// Hands out byte buffers that share large blocks, as sockets that receive many datagrams in one go do.
#[derive(Default)]
pub(crate) struct Arena {
    block: BytesMut,
}

const BLOCK_BYTES: usize = 1 << 16;

impl Arena {
    /// A buffer of its own with these bytes.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> BytesMut {
        self.room(bytes.len());
        self.block.extend_from_slice(bytes);
        self.block.split()
    }

    /// A buffer of this length, filled with what `seed` gives.
    pub(crate) fn fill(&mut self, length: usize, seed: u64) -> BytesMut {
        self.room(length);
        self.block.resize(length, 0);
        let words = std::iter::successors(Some(seed | 1), |word| {
            Some(word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed))
        });
        for (part, word) in self.block.chunks_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
        self.block.split()
    }

    fn room(&mut self, bytes: usize) {
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
