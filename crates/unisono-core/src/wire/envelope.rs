//! Envelopes: what a client and a server say to each other, sealed under a key that only the two lives know.
//!
//! The group key protects datagrams from processes that do not hold it. It does not protect the holders from each other,
//! and without it any process on the machine can read and forge. Therefore the frames of calls travel in an envelope: a
//! frame that fills the rest of its datagram and contains other frames, encrypted. The core does no cryptography here
//! either: it writes and reads the envelope, and its caller's [`Pair`](crate::rpc::Pair) seals the contents.
//!
//! The seal also covers the datagram's header, with a tag of zeros, and the head of the envelope.

use super::calls::{Cookie, PublicKey, read_cookie, write_cookie};
use super::header::HEADER_BYTES;
use super::kind::FrameKind;
use super::parts::read_uid;
use super::protection::TAG_BYTES;
use super::reader::{FrameError, Reader};
use super::writer::{Body, FRAME_HEAD_BYTES};
use crate::identity::Uid;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;

/// Bits of the byte that says what follows, and who sends the envelope.
const WITH_OPENING: u8 = 1;
const FROM_SERVER: u8 = 2;

/// Bytes of the longest envelope besides its contents.
pub(crate) const ENVELOPE_BYTES_MAX: usize =
    FRAME_HEAD_BYTES + FrameKind::Envelope.body_bytes_min() + OPENING_BYTES;
const OPENING_BYTES: usize = 16 + 32;

/// Content of [`Frame::Envelope`](super::Frame::Envelope).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// What is not encrypted.
    pub head: EnvelopeHead,
    /// The contents, encrypted, and the tag.
    pub sealed: Bytes,
}

/// The part of an envelope that anyone can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHead {
    /// The life that the contents are for.
    pub to: Uid,
    /// Salt of the sender's key: a random number that changes from time to time.
    pub salt: u64,
    /// A server sends to its client. Otherwise a client sends to its server.
    pub from_server: bool,
    /// Sent by a client until the server has answered in this session.
    pub opening: Option<Opening>,
}

/// What a server needs to open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Proves that the client receives at its address.
    pub cookie: Cookie,
    /// Key of the client's life.
    pub key: PublicKey,
}

/// Writes the head of an envelope.
pub(super) fn write_head(out: &mut Body<'_>, head: &EnvelopeHead) {
    out.u64(head.to.0);
    out.u64(head.salt);
    out.u8(u8::from(head.opening.is_some()) * WITH_OPENING + u8::from(head.from_server) * FROM_SERVER);
    if let Some(opening) = &head.opening {
        write_cookie(out, &opening.cookie);
        out.bytes(&opening.key.0);
    }
}

/// Reads the head of an envelope.
pub(super) fn read_head(from: &mut Reader) -> Result<EnvelopeHead, FrameError> {
    let (to, salt) = (read_uid(from)?, from.u64("salt")?);
    let with = match from.u8("with")? {
        with if with <= WITH_OPENING + FROM_SERVER => with,
        other => return Err(from.out_of_range("with", other)),
    };
    let opening = match with & WITH_OPENING {
        0 => None,
        _ => Some(Opening { cookie: read_cookie(from)?, key: PublicKey(from.array("key")?) }),
    };
    Ok(EnvelopeHead { to, salt, from_server: with & FROM_SERVER != 0, opening })
}

/// Begins an envelope after the header of a datagram. The contents are appended next; [`close`] completes it.
pub(crate) fn enclose(out: &mut Vec<u8>, head: &EnvelopeHead) {
    let limit = out.len() + ENVELOPE_BYTES_MAX;
    let mut body = Body::new(out, limit);
    body.u8(FrameKind::Envelope as u8);
    body.u16(0);
    write_head(&mut body, head);
}

/// Completes the envelope that fills a datagram: `seal` encrypts the contents in place, and returns the tag. It also gets
/// the salt, and what the tag covers besides. Returns false if it returned no tag: the datagram must not be sent.
pub(crate) fn close(
    out: &mut Vec<u8>,
    seal: impl FnOnce(u64, &[u8], &mut [u8]) -> Option<[u8; TAG_BYTES]>,
) -> bool {
    let length = (out.len() + TAG_BYTES).checked_sub(HEADER_BYTES + FRAME_HEAD_BYTES);
    let Some(length) = length.and_then(|length| u16::try_from(length).ok()) else { return false };
    out[HEADER_BYTES + 1..HEADER_BYTES + FRAME_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    let Some((head, contents)) = read_head_of(out) else { return false };
    let (covered, contents) = out.split_at_mut(contents);
    let Some(tag) = seal(head.salt, covered, contents) else { return false };
    out.extend_from_slice(&tag);
    true
}

/// True if the first frame of a datagram is an envelope.
pub(crate) fn has_envelope(datagram: &[u8]) -> bool {
    datagram.get(HEADER_BYTES) == Some(&(FrameKind::Envelope as u8))
}

/// Returns the head of the envelope that fills a datagram, and where its contents are, tag excluded. `None` if it is cut
/// off, does not fill the datagram, or has a head that no version of today writes.
pub(crate) fn find(datagram: &[u8]) -> Option<(EnvelopeHead, Range<usize>)> {
    let length = datagram.get(HEADER_BYTES + 1..HEADER_BYTES + FRAME_HEAD_BYTES)?;
    let length = usize::from(u16::from_be_bytes(length.try_into().ok()?));
    let end = datagram.len().checked_sub(TAG_BYTES)?;
    let (head, begin) = read_head_of(datagram)?;
    let is_whole = datagram.len() == HEADER_BYTES + FRAME_HEAD_BYTES + length && begin <= end;
    is_whole.then_some((head, begin..end))
}

/// Reads the head of a datagram's envelope where it is, and returns where it ends.
fn read_head_of(datagram: &[u8]) -> Option<(EnvelopeHead, usize)> {
    let begin = HEADER_BYTES + FRAME_HEAD_BYTES;
    let word = |at: usize| Some(u64::from_be_bytes(datagram.get(at..at + 8)?.try_into().ok()?));
    let (to, salt, with) = (Uid(word(begin)?), word(begin + 8)?, *datagram.get(begin + 16)?);
    if with > WITH_OPENING + FROM_SERVER {
        return None;
    }
    let from_server = with & FROM_SERVER != 0;
    let begin = begin + 17;
    if with & WITH_OPENING == 0 {
        return Some((EnvelopeHead { to, salt, from_server, opening: None }, begin));
    }
    let cookie = Cookie { issued: word(begin)?, seal: word(begin + 8)? };
    let end = begin + OPENING_BYTES;
    let key = PublicKey(datagram.get(begin + 16..end)?.try_into().ok()?);
    Some((EnvelopeHead { to, salt, from_server, opening: Some(Opening { cookie, key }) }, end))
}
