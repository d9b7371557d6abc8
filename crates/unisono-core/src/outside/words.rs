//! What clients ask their relays, what relays answer, and what relays say to each other in the group's order.

use super::BATCH_MAX;
use crate::identity::{Seqno, Uid};
use crate::quality::Quality;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};
use core::net::SocketAddr;
use thiserror::Error;

/// Bytes that are no request, answer or word: of another version, or not from this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("these bytes are no request of this version")]
pub struct NotAWord;

type Result<T> = core::result::Result<T, NotAWord>;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To be its relay.
    Begin {
        /// The relay before; uid 0 if there was none.
        previous: Uid,
        /// Number of the first message of which the client does not know what became.
        first: u64,
        /// How many there are, at most [`BATCH_MAX`]; the next message has the number `first` + `count`.
        count: u8,
    },
    /// To send these messages.
    Send {
        /// The relay that this is meant for.
        relay: Uid,
        /// Number of the first message; the others have the next numbers.
        first: u64,
        /// Quality of the messages.
        quality: Quality,
        /// True if the answer is to come when they are sent, and not when they have their places.
        unconfirmed: bool,
        /// The messages: at least one, at most [`BATCH_MAX`].
        messages: Vec<Bytes>,
    },
}

/// What a relay answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is the client's relay from now on.
    Begun {
        /// Its uid.
        relay: Uid,
        /// Where to send requests.
        address: SocketAddr,
        /// True if the member remembers the client, and so says of each message what became of it.
        known: bool,
        /// Which messages have their places: bit i stands for `first` + i.
        placed: u64,
    },
    /// The messages were sent.
    Sent {
        /// Which of them have their places: bit i stands for `first` + i. What is neither here nor in `unknown` will never
        /// have one.
        placed: u64,
        /// Which may have a place or not, because the relay was cut off.
        unknown: u64,
        /// Highest seqno of those with a place; 0 if none has one, or for unconfirmed messages.
        last: Seqno,
    },
    /// This member is not the client's relay: nothing was sent, and the client is to begin anew.
    NotYours,
    /// Too much waits here at present: nothing was sent.
    Busy,
    /// The numbers do not go on from the last ones: nothing was sent.
    WrongNumber {
        /// The number that was expected.
        expected: u64,
    },
    /// The group or the member refuses the messages for this reason: those without a place will never have one.
    Refused {
        /// Which of them have places all the same.
        placed: u64,
        /// The reason.
        reason: String,
    },
}

/// What relays say to each other, as messages from outside with number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The sender takes over a client.
    Claim { nonce: u64, previous: Uid },
    /// Answers a claim: after this the sender sends nothing more for the client.
    Release { nonce: u64 },
}

const BEGIN: u8 = 1;
const SEND: u8 = 2;
const BEGUN: u8 = 1;
const SENT: u8 = 2;
const NOT_YOURS: u8 = 3;
const BUSY: u8 = 4;
const WRONG_NUMBER: u8 = 5;
const REFUSED: u8 = 6;
const CLAIM: u8 = 1;
const RELEASE: u8 = 2;

impl Ask {
    /// Returns the bytes of the request.
    pub fn write(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Ask::Begin { previous, first, count } => {
                out.put_u8(BEGIN);
                out.put_u64(previous.0);
                out.put_u64(*first);
                out.put_u8(*count);
            }
            Ask::Send { relay, first, quality, unconfirmed, messages } => {
                out.put_u8(SEND);
                out.put_u64(relay.0);
                out.put_u64(*first);
                out.put_u8(quality.byte());
                out.put_u8((*unconfirmed).into());
                for message in messages {
                    out.put_u32(message.len() as u32);
                    out.put_slice(message);
                }
            }
        }
        out.into()
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn read(mut bytes: Bytes) -> Result<Ask> {
        match u8_of(&mut bytes)? {
            BEGIN => {
                let (previous, first) = (Uid(u64_of(&mut bytes)?), u64_of(&mut bytes)?);
                let count = u8_of(&mut bytes)?;
                let fits = usize::from(count) <= BATCH_MAX && bytes.is_empty();
                if fits { Ok(Ask::Begin { previous, first, count }) } else { Err(NotAWord) }
            }
            SEND => {
                let (relay, first) = (Uid(u64_of(&mut bytes)?), u64_of(&mut bytes)?);
                let byte = u8_of(&mut bytes)?;
                let quality = if byte == Quality::UNRELIABLE.byte() {
                    Quality::UNRELIABLE
                } else {
                    Quality::from_byte(byte).ok_or(NotAWord)?
                };
                let unconfirmed = match u8_of(&mut bytes)? {
                    0 => false,
                    1 => true,
                    _ => return Err(NotAWord),
                };
                let mut messages = Vec::new();
                while !bytes.is_empty() {
                    let length = bytes.try_get_u32().map_err(|_| NotAWord)? as usize;
                    if length > bytes.len() || messages.len() == BATCH_MAX {
                        return Err(NotAWord);
                    }
                    messages.push(bytes.split_to(length));
                }
                if messages.is_empty() {
                    return Err(NotAWord);
                }
                Ok(Ask::Send { relay, first, quality, unconfirmed, messages })
            }
            _ => Err(NotAWord),
        }
    }
}

impl Answer {
    /// Returns the bytes of the answer.
    pub fn write(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Answer::Begun { relay, address, known, placed } => {
                out.put_u8(BEGUN);
                out.put_u64(relay.0);
                out.put_u8((*known).into());
                out.put_u64(*placed);
                out.put_u16(address.port());
                match address {
                    SocketAddr::V4(address) => out.put_slice(&address.ip().octets()),
                    SocketAddr::V6(address) => out.put_slice(&address.ip().octets()),
                }
            }
            Answer::Sent { placed, unknown, last } => {
                out.put_u8(SENT);
                [*placed, *unknown, *last].into_iter().for_each(|word| out.put_u64(word));
            }
            Answer::NotYours => out.put_u8(NOT_YOURS),
            Answer::Busy => out.put_u8(BUSY),
            Answer::WrongNumber { expected } => {
                out.put_u8(WRONG_NUMBER);
                out.put_u64(*expected);
            }
            Answer::Refused { placed, reason } => {
                out.put_u8(REFUSED);
                out.put_u64(*placed);
                out.put_slice(reason.as_bytes());
            }
        }
        out.into()
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn read(mut bytes: Bytes) -> Result<Answer> {
        let answer = match u8_of(&mut bytes)? {
            BEGUN => {
                let relay = Uid(u64_of(&mut bytes)?);
                let known = u8_of(&mut bytes)? != 0;
                let placed = u64_of(&mut bytes)?;
                let port = bytes.try_get_u16().map_err(|_| NotAWord)?;
                let address = match (<[u8; 4]>::try_from(&bytes[..]), <[u8; 16]>::try_from(&bytes[..])) {
                    (Ok(ip), _) => (ip, port).into(),
                    (_, Ok(ip)) => (ip, port).into(),
                    _ => return Err(NotAWord),
                };
                bytes.clear();
                Answer::Begun { relay, address, known, placed }
            }
            SENT => {
                let (placed, unknown) = (u64_of(&mut bytes)?, u64_of(&mut bytes)?);
                Answer::Sent { placed, unknown, last: u64_of(&mut bytes)? }
            }
            NOT_YOURS => Answer::NotYours,
            BUSY => Answer::Busy,
            WRONG_NUMBER => Answer::WrongNumber { expected: u64_of(&mut bytes)? },
            REFUSED => {
                let placed = u64_of(&mut bytes)?;
                let reason = String::from_utf8_lossy(&core::mem::take(&mut bytes)).into_owned();
                Answer::Refused { placed, reason }
            }
            _ => return Err(NotAWord),
        };
        if bytes.is_empty() { Ok(answer) } else { Err(NotAWord) }
    }
}

impl Word {
    pub(super) fn write(self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Word::Claim { nonce, previous } => {
                out.put_u8(CLAIM);
                out.put_u64(nonce);
                out.put_u64(previous.0);
            }
            Word::Release { nonce } => {
                out.put_u8(RELEASE);
                out.put_u64(nonce);
            }
        }
        out.into()
    }

    pub(super) fn read(mut bytes: Bytes) -> Result<Word> {
        let word = match u8_of(&mut bytes)? {
            CLAIM => Word::Claim { nonce: u64_of(&mut bytes)?, previous: Uid(u64_of(&mut bytes)?) },
            RELEASE => Word::Release { nonce: u64_of(&mut bytes)? },
            _ => return Err(NotAWord),
        };
        if bytes.is_empty() { Ok(word) } else { Err(NotAWord) }
    }
}

fn u8_of(bytes: &mut Bytes) -> Result<u8> {
    bytes.try_get_u8().map_err(|_| NotAWord)
}

fn u64_of(bytes: &mut Bytes) -> Result<u64> {
    bytes.try_get_u64().map_err(|_| NotAWord)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn each_word_is_read_back_and_no_part_of_it_or_more_is_one() {
        let messages = vec![Bytes::from_static(b"one"), Bytes::new()];
        let send = |quality| Ask::Send {
            relay: Uid(3),
            first: 9,
            quality,
            unconfirmed: true,
            messages: messages.clone(),
        };
        for ask in [
            Ask::Begin { previous: Uid(0), first: u64::MAX, count: 64 },
            send(Quality::UNRELIABLE),
            send(Quality::resilient(3)),
        ] {
            let bytes = ask.write();
            assert_eq!(Ask::read(bytes.clone()), Ok(ask));
            for length in 0..bytes.len() {
                let part = Ask::read(bytes.slice(..length));
                // Cut between two messages it is a request with fewer.
                assert!(part.is_err() || length == bytes.len() - 4, "{length} bytes");
            }
        }
        let [v4, v6] = ["10.0.0.1:7195", "[2001:db8::1]:7195"].map(|text| text.parse().unwrap());
        for answer in [
            Answer::Begun { relay: Uid(4), address: v4, known: true, placed: 5 },
            Answer::Begun { relay: Uid(4), address: v6, known: false, placed: 0 },
            Answer::Sent { placed: 7, unknown: 8, last: 9 },
            Answer::NotYours,
            Answer::Busy,
            Answer::WrongNumber { expected: 12 },
            Answer::Refused { placed: 0, reason: "too large".into() },
        ] {
            let bytes = answer.write();
            assert_eq!(Answer::read(bytes.clone()), Ok(answer.clone()));
            if !matches!(answer, Answer::Refused { .. }) {
                assert_eq!(Answer::read([&bytes[..], &[0]].concat().into()), Err(NotAWord));
                assert_eq!(Answer::read(bytes.slice(..bytes.len() - 1)), Err(NotAWord));
            }
        }
        for word in [Word::Claim { nonce: 1, previous: Uid(2) }, Word::Release { nonce: 3 }] {
            assert_eq!(Word::read(word.write()), Ok(word));
        }
    }

    #[test]
    fn a_request_has_at_most_a_batch_of_messages() {
        let ask = |count| {
            let messages = vec![Bytes::from_static(b"m"); count];
            Ask::Send { relay: Uid(1), first: 1, quality: Quality::ORDERED, unconfirmed: false, messages }
        };
        assert_eq!(Ask::read(ask(BATCH_MAX).write()), Ok(ask(BATCH_MAX)));
        assert_eq!(Ask::read(ask(BATCH_MAX + 1).write()), Err(NotAWord));
        assert_eq!(Ask::read(ask(0).write()), Err(NotAWord));
        let count = Ask::Begin { previous: Uid(1), first: 1, count: 65 };
        assert_eq!(Ask::read(count.write()), Err(NotAWord));
    }
}
