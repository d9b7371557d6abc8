//! What a member remembers of clients: which of their last messages have come in its stream.

use super::recent::Recent;
use super::{BATCH_MAX, CLIENTS_MAX};
use crate::identity::Uid;

/// The clients whose messages a member has delivered, folded from its stream of events.
#[derive(Clone, Debug)]
pub struct Memory {
    clients: Recent<Known>,
}

/// What is known of one client.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The first of its messages that came since it is remembered. What came before is not known.
    since: u64,
    /// Highest number of its messages.
    last: u64,
    /// Which numbers have come: bit i stands for `last` − i.
    came: u64,
}

const _: () = assert!(BATCH_MAX <= u64::BITS as usize, "a batch fits into `Known::came`");

impl Default for Memory {
    fn default() -> Memory {
        Memory { clients: Recent::new(CLIENTS_MAX) }
    }
}

impl Memory {
    /// Notes a message of a client. Returns false if it has come before, or is too old for that to be known.
    pub fn note(&mut self, client: Uid, number: u64) -> bool {
        let Some(known) = self.clients.touch(client) else {
            self.clients.insert(client, Known { since: number, last: number, came: 1 });
            return true;
        };
        if number > known.last {
            let ahead = u32::try_from(number - known.last).unwrap_or(u32::MAX);
            known.came = known.came.checked_shl(ahead).unwrap_or(0) | 1;
            known.last = number;
            return true;
        }
        let bit =
            u32::try_from(known.last - number).ok().and_then(|back| 1_u64.checked_shl(back)).unwrap_or(0);
        let is_new = bit & !known.came != 0;
        known.came |= bit;
        is_new
    }

    /// Returns the highest number of the client's messages that came; `None` if none is remembered.
    pub fn last(&self, client: Uid) -> Option<u64> {
        self.clients.get(client).map(|known| known.last)
    }

    /// Returns whether the message has come; `None` if that is not remembered.
    pub fn came(&self, client: Uid, number: u64) -> Option<bool> {
        let known = self.clients.get(client).filter(|known| known.since <= number)?;
        let Some(back) = known.last.checked_sub(number) else { return Some(false) };
        let bit = 1_u64.checked_shl(u32::try_from(back).ok()?)?;
        Some(known.came & bit != 0)
    }

    /// Returns the number of clients that are remembered.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_each_of_the_last_messages_in_whatever_order_they_came() {
        let (mut memory, client) = (Memory::default(), Uid(1));
        assert_eq!((memory.came(client, 5), memory.last(client)), (None, None));
        memory.note(client, 5);
        assert_eq!(memory.came(client, 4), None, "it may have come before the client was remembered");
        let (mut memory, client) = (Memory::default(), Uid(1));
        for number in [5, 7, 6, 70, 69] {
            assert!(memory.note(client, number), "{number}");
            assert!(!memory.note(client, number), "{number} again");
        }
        let came = [7, 8, 68, 69, 70, 71, u64::MAX].map(|number| memory.came(client, number));
        assert_eq!(came, [true, false, false, true, true, false, false].map(Some));
        assert_eq!(memory.came(client, 6), None, "64 messages back it is forgotten");
        assert!(!memory.note(client, 6));
        assert!(memory.note(client, u64::MAX));
        assert_eq!((memory.came(client, 70), memory.last(client)), (None, Some(u64::MAX)));
    }

    #[test]
    fn it_forgets_the_client_whose_last_message_is_furthest_back() {
        let mut memory = Memory::default();
        for client in 0..100_000 {
            memory.note(Uid(client), 1);
            memory.note(Uid(0), client + 2);
        }
        assert_eq!(memory.clients(), CLIENTS_MAX);
        assert_eq!(memory.last(Uid(0)), Some(100_001));
        assert_eq!(memory.last(Uid(99_999 - (CLIENTS_MAX as u64 - 2))), Some(1));
        assert_eq!(memory.last(Uid(99_999 - (CLIENTS_MAX as u64 - 1))), None);
    }
}
