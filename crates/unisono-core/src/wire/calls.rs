//! The frames of calls, written and read side by side.
//!
//! An attempt at a call is named by the server's life, a slot in the session with that life, and a number that rises
//! with every attempt of the client. Every frame about an attempt begins with this name, and travels in an envelope
//! ([`envelope`](super::envelope)).

use super::envelope::Envelope;
use super::frame::Frame;
use super::kind::FrameKind;
use super::parts::{read_address, read_uid, write_address};
use super::reader::{Fault, FrameError, Reader};
use super::writer::Body;
use crate::cookies::{address_bytes, siphash};
use crate::identity::{Port, Uid};
use crate::quality::Quality;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

type Result<T> = core::result::Result<T, FrameError>;

/// The largest request or reply, in bytes.
pub const CALL_BYTES_MAX: usize = 16 << 20;
/// The smallest part that a large request or reply is cut into, in bytes; the last may be smaller.
pub const PART_BYTES_MIN: usize = 256;
/// Number of parts after the first missing one that a [`Got`] describes.
pub const GOT_PARTS: usize = 256;
/// Maximum number of attempts in one [`Frame::Done`]: what fits the smallest datagram.
pub const DONE_MAX: usize = 45;
/// Number of slots of a session. Slot numbers are below it.
pub const SLOTS_MAX: usize = 1024;
/// Maximum number of times that a call is passed on.
pub const HOPS_MAX: u8 = 8;

/// Value of the byte in a request that says that an instance follows.
const WITH_INSTANCE: u8 = 1;
/// An earlier attempt at the call may have been executed.
const AGAIN: u8 = 2;
/// A handler follows, after the instance.
const WITH_HANDLER: u8 = 4;
/// A quality follows, after the handler.
const WITH_QUALITY: u8 = 8;

/// Maximum length of the name of a handler, in bytes.
pub const HANDLER_BYTES_MAX: usize = 255;

/// The name of one attempt at a call. Packed, because each frame is as long as the longest one: see [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(2))]
pub struct Attempt {
    /// Uid of the life that the frame is for: the server's, or the client's in a frame from a server.
    pub to: Uid,
    /// Slot in the session, below [`SLOTS_MAX`].
    pub slot: u16,
    /// Counts the attempts of the client, from 1.
    pub number: u64,
}

impl Attempt {
    /// True if the frame is for this life.
    pub fn is_to(&self, uid: Uid) -> bool {
        let to = self.to;
        to == uid
    }
}

/// Proves that a client receives datagrams at its address: a server sent the cookie there, and the client returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Time of issue, in nanoseconds of the server's clock.
    pub issued: u64,
    /// Opaque to the client. Binds the cookie to the client's life and address.
    pub seal: u64,
}

/// What a server allows a client from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Maximum number of calls under way in the session, at most [`SLOTS_MAX`].
    pub slots: u16,
    /// Number of requests that wait at the server or are in progress.
    pub load: u16,
}

/// Proof that a server may serve its port: a public key (32 bytes) and a signature (64 bytes). The core does not look
/// inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(pub [u8; 96]);

/// Public key with which one life of a client or server agrees on keys with others. The core does not look inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

/// Content of [`Frame::PortHere`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortHere {
    /// Nonce of the question.
    pub nonce: u64,
    /// The port that is served.
    pub port: Port,
    /// To be returned in the first requests.
    pub cookie: Cookie,
    /// Number of calls that the client may have under way.
    pub grant: Grant,
    /// The service recognises a repeated call by its number, whichever server executed it first.
    pub repeats: bool,
    /// Instance of the service; 0: it has none.
    pub instance: u64,
    /// Key of the server's life.
    pub key: PublicKey,
    /// Proof of a claim: all fields but `grant`, the uids and keys of both sides, and the server's address.
    pub proof: Proof,
}

/// What a caller asks of a replicated service beside the request itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The handler whose holder is to answer, with 1 to [`HANDLER_BYTES_MAX`] bytes and no control characters. `None`: any
    /// member answers.
    pub handler: Option<Box<str>>,
    /// How many members are to hold the command before its answer, if that is more than the service asks for anyway.
    pub quality: Quality,
}

impl Wishes {
    /// True if a handler may have this name.
    pub fn is_handler(name: &str) -> bool {
        (1..=HANDLER_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
    }

    /// Returns the bytes that they take in a request.
    pub(crate) fn bytes(&self) -> usize {
        self.handler.as_ref().map_or(0, |name| 1 + name.len()) + usize::from(self.quality != Quality::ORDERED)
    }
}

/// Content of [`Frame::Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The attempt that this request makes.
    pub attempt: Attempt,
    /// Number of the call, the same in all attempts at it.
    pub call: u64,
    /// The client knows the outcomes of all its calls with lower numbers. At most the call's number.
    pub finished_below: u64,
    /// The service that is called.
    pub port: Port,
    /// Instance of the service that is called; 0: it has none.
    pub instance: u64,
    /// Number of times that the call was passed on.
    pub hops: u8,
    /// True if an earlier attempt at the call may have been executed, or may still be.
    pub again: bool,
    /// How much longer the client will wait, in milliseconds.
    pub left_ms: u32,
    /// What the client asks beside the request, if anything.
    pub wishes: Option<Box<Wishes>>,
    /// The request.
    pub payload: Payload,
}

/// Content of [`Frame::Reply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The attempt that is answered.
    pub attempt: Attempt,
    /// Number of calls that the client may have under way from now on.
    pub grant: Grant,
    /// The application refused the request; the payload is its reason.
    pub refused: bool,
    /// The reply.
    pub payload: Payload,
}

/// The bytes of a request or reply, or how they travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// All bytes.
    Whole(Bytes),
    /// The bytes follow in [`Frame::Part`]s.
    Parts {
        /// Total number of bytes.
        total: u32,
        /// Bytes of each part but the last, at least [`PART_BYTES_MIN`].
        part: u16,
    },
    /// The receiver has the bytes already. The client asks what became of the attempt.
    Omitted,
}

/// Content of [`Frame::Part`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The attempt.
    pub attempt: Attempt,
    /// True for a part of the reply, false for a part of the request.
    pub reply: bool,
    /// Index of this part, from 0.
    pub index: u16,
    /// Bytes of the part, at least one.
    pub bytes: Bytes,
}

/// Content of [`Frame::Got`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// The attempt.
    pub attempt: Attempt,
    /// True for parts of the reply, false for parts of the request.
    pub reply: bool,
    /// Number of parts received without a gap, from the first on.
    pub through: u32,
    /// Bits for the [`GOT_PARTS`] parts after the first missing one, set if the part has arrived. The lowest bit of the
    /// first word stands for the first of them.
    pub beyond: [u64; GOT_PARTS / 64],
}

/// Why a server does not execute an attempt, or cannot answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The port is not served here, or not any more. Never executed.
    NotServed,
    /// The server has no room for the request. Never executed.
    Busy,
    /// The client's time was over before the application took the request. Never executed.
    Expired,
    /// The client cancelled the attempt before the application took the request. Never executed.
    Cancelled,
    /// The reply is not kept any more, or the server does not know what became of the attempt.
    Lost,
    /// The attempt may belong to a session that is forgotten. The client is to send the request again with this cookie.
    ShowCookie(Cookie),
}

/// Content of [`Frame::Unopened`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unopened {
    /// Hash over the client, the life that its envelope was for, and the server's address: [`Unopened::binding`].
    pub binding: u64,
    /// Packet number of the datagram with the envelope.
    pub number: u64,
    /// Why the server did not take this copy of the datagram. The copy executes nothing; another one may have been taken.
    pub reason: Unreadable,
}

impl Unopened {
    /// Returns the hash that binds an answer to the client, to the life that its envelope was for, and to the address of
    /// the process that answers. An answer to another client, or of a process at another address, has another one, so
    /// it is of no use to a process that passes it on. The hash has no secret: the seal of the datagram protects it.
    #[must_use]
    pub fn binding(client: Uid, server: Uid, address: SocketAddr) -> u64 {
        siphash([client.0, server.0], &address_bytes(address))
    }
}

/// Why a server does not open an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// There is no session with this client, or not any more. The client is to show this cookie.
    ShowCookie(Cookie),
    /// Another life than the one addressed lives here.
    OtherLife {
        /// Age of this life, in milliseconds.
        age_ms: u64,
    },
    /// The server has no room for another session.
    Busy,
}

pub(super) fn write(out: &mut Body<'_>, frame: &Frame) {
    match frame {
        Frame::LocatePort { nonce, port, key } => {
            out.u64(*nonce);
            out.u128(port.0);
            out.bytes(&key.0);
            super::codec::write_padding(out);
        }
        Frame::PortHere(here) => {
            out.u64(here.nonce);
            out.u128(here.port.0);
            write_cookie(out, &here.cookie);
            write_grant(out, here.grant);
            out.flag(here.repeats);
            out.u64(here.instance);
            out.bytes(&here.key.0);
            out.bytes(&here.proof.0);
        }
        Frame::PortNotHere { nonce, port, address } => {
            out.u64(*nonce);
            out.u128(port.0);
            write_address(out, address);
        }
        Frame::Request(request) => {
            write_attempt(out, request.attempt);
            out.u64(request.call);
            out.u64(request.finished_below);
            out.u128(request.port.0);
            out.u8(request.hops);
            out.u32(request.left_ms);
            let wishes = request.wishes.as_deref();
            let handler = wishes.and_then(|wishes| wishes.handler.as_deref());
            let quality = wishes.map_or(Quality::ORDERED, |wishes| wishes.quality);
            let flags = [
                (WITH_INSTANCE, request.instance != 0),
                (AGAIN, request.again),
                (WITH_HANDLER, handler.is_some()),
                (WITH_QUALITY, quality != Quality::ORDERED),
            ];
            out.u8(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum());
            if request.instance != 0 {
                out.u64(request.instance);
            }
            if let Some(handler) = handler {
                match u8::try_from(handler.len()) {
                    Ok(length) => out.u8(length),
                    Err(_) => out.refuse(),
                }
                out.bytes(handler.as_bytes());
            }
            if quality != Quality::ORDERED {
                out.u8(quality.byte());
            }
            write_payload(out, &request.payload);
        }
        Frame::Reply(reply) => {
            write_attempt(out, reply.attempt);
            write_grant(out, reply.grant);
            out.flag(reply.refused);
            write_payload(out, &reply.payload);
        }
        Frame::Reject { attempt, grant, reason } => {
            write_attempt(out, *attempt);
            write_grant(out, *grant);
            write_rejection(out, *reason);
        }
        Frame::Forward { attempt, grant, to } => {
            write_attempt(out, *attempt);
            write_grant(out, *grant);
            write_address(out, to);
        }
        Frame::Working { attempt, grant } => {
            write_attempt(out, *attempt);
            write_grant(out, *grant);
        }
        Frame::Part(part) => {
            write_attempt(out, part.attempt);
            out.flag(part.reply);
            out.u16(part.index);
            out.bytes(&part.bytes);
        }
        Frame::Got(got) => {
            write_attempt(out, got.attempt);
            out.flag(got.reply);
            out.u32(got.through);
            got.beyond.iter().for_each(|word| out.u64(*word));
        }
        Frame::Done { to, finished_below, attempts } => {
            out.u64(to.0);
            out.u64(*finished_below);
            out.count(attempts.len(), DONE_MAX);
            for (slot, number) in attempts {
                out.u16(*slot);
                out.u64(*number);
            }
        }
        Frame::Cancel { attempt } => write_attempt(out, *attempt),
        Frame::Envelope(envelope) => {
            super::envelope::write_head(out, &envelope.head);
            out.bytes(&envelope.sealed);
        }
        Frame::Unopened(Unopened { binding, number, reason }) => {
            out.u64(*binding);
            out.u64(*number);
            match reason {
                Unreadable::ShowCookie(cookie) => {
                    out.u8(1);
                    write_cookie(out, cookie);
                }
                Unreadable::OtherLife { age_ms } => {
                    out.u8(2);
                    out.u64(*age_ms);
                }
                Unreadable::Busy => out.u8(3),
            }
        }
        // `codec` passes no other frames.
        _ => out.refuse(),
    }
}

/// Reads the body of a frame of a kind that [`write`] writes.
pub(super) fn read(from: &mut Reader, kind: FrameKind) -> Result<Frame> {
    Ok(match kind {
        FrameKind::LocatePort => {
            super::codec::check_padding(from)?;
            let (nonce, port) = (from.u64("nonce")?, read_port(from)?);
            let key = PublicKey(from.array("key")?);
            from.skip_rest();
            Frame::LocatePort { nonce, port, key }
        }
        FrameKind::PortHere => Frame::PortHere(Box::new(PortHere {
            nonce: from.u64("nonce")?,
            port: read_port(from)?,
            cookie: read_cookie(from)?,
            grant: read_grant(from)?,
            repeats: from.flag("repeats")?,
            instance: from.u64("instance")?,
            key: from.array("key").map(PublicKey)?,
            proof: from.array("proof").map(Proof)?,
        })),
        FrameKind::PortNotHere => Frame::PortNotHere {
            nonce: from.u64("nonce")?,
            port: read_port(from)?,
            address: read_address(from)?,
        },
        FrameKind::Request => {
            let attempt = read_attempt(from)?;
            let (call, finished_below) = (from.number("call")?, from.number("finished below")?);
            let port = read_port(from)?;
            let hops = match from.u8("hops")? {
                hops if hops <= HOPS_MAX => hops,
                other => return Err(from.out_of_range("hops", other)),
            };
            let left_ms = from.u32("left")?;
            let with = match from.u8("with")? {
                with if with <= WITH_INSTANCE | AGAIN | WITH_HANDLER | WITH_QUALITY => with,
                other => return Err(from.out_of_range("with", other)),
            };
            let instance = match with & WITH_INSTANCE {
                0 => 0,
                _ => match from.u64("instance")? {
                    0 => return Err(from.out_of_range("instance", 0u8)),
                    instance => instance,
                },
            };
            let again = with & AGAIN != 0;
            let wishes = read_wishes(from, with)?;
            let payload = read_payload(from)?;
            Frame::Request(Request {
                attempt,
                call,
                finished_below,
                port,
                instance,
                hops,
                again,
                left_ms,
                wishes,
                payload,
            })
        }
        FrameKind::Reply => Frame::Reply(Reply {
            attempt: read_attempt(from)?,
            grant: read_grant(from)?,
            refused: from.flag("refused")?,
            payload: read_payload(from)?,
        }),
        FrameKind::Reject => Frame::Reject {
            attempt: read_attempt(from)?,
            grant: read_grant(from)?,
            reason: read_rejection(from)?,
        },
        FrameKind::Forward => {
            Frame::Forward { attempt: read_attempt(from)?, grant: read_grant(from)?, to: read_address(from)? }
        }
        FrameKind::Working => Frame::Working { attempt: read_attempt(from)?, grant: read_grant(from)? },
        FrameKind::Part => {
            let (attempt, reply) = (read_attempt(from)?, from.flag("reply")?);
            let (index, bytes) = (from.u16("index")?, from.tail());
            if bytes.is_empty() {
                return Err(from.error(Fault::Short("part")));
            }
            Frame::Part(Part { attempt, reply, index, bytes })
        }
        FrameKind::Got => Frame::Got(Got {
            attempt: read_attempt(from)?,
            reply: from.flag("reply")?,
            through: from.u32("through")?,
            beyond: {
                let mut beyond = [0; GOT_PARTS / 64];
                for word in &mut beyond {
                    *word = from.u64("beyond")?;
                }
                beyond
            },
        }),
        FrameKind::Done => {
            let to = read_uid(from)?;
            let finished_below = from.u64("finished below")?;
            let count = from.count("attempt count", 0..=DONE_MAX, 10)?;
            let attempts = (0..count).map(|_| Ok((read_slot(from)?, from.number("number")?)));
            Frame::Done { to, finished_below, attempts: attempts.collect::<Result<Vec<_>>>()? }
        }
        FrameKind::Cancel => Frame::Cancel { attempt: read_attempt(from)? },
        FrameKind::Envelope => {
            let head = super::envelope::read_head(from)?;
            let sealed = from.tail();
            if sealed.len() < super::TAG_BYTES {
                return Err(from.error(Fault::Short("contents")));
            }
            Frame::Envelope(Box::new(Envelope { head, sealed }))
        }
        FrameKind::Unopened => {
            let (binding, number) = (from.u64("binding")?, from.u64("number")?);
            let reason = match from.u8("reason")? {
                1 => Unreadable::ShowCookie(read_cookie(from)?),
                2 => Unreadable::OtherLife { age_ms: from.u64("age")? },
                3 => Unreadable::Busy,
                other => return Err(from.out_of_range("reason", other)),
            };
            Frame::Unopened(Unopened { binding, number, reason })
        }
        other => return Err(from.error(Fault::Kind(other as u8))),
    })
}

fn read_wishes(from: &mut Reader, with: u8) -> Result<Option<Box<Wishes>>> {
    if with & (WITH_HANDLER | WITH_QUALITY) == 0 {
        return Ok(None);
    }
    let mut wishes = Wishes::default();
    if with & WITH_HANDLER != 0 {
        let length = from.u8("handler length")?;
        let name = from.slice(length.into(), "handler")?;
        let name = core::str::from_utf8(name).ok().filter(|name| Wishes::is_handler(name)).map(Box::from);
        wishes.handler = Some(name.ok_or_else(|| from.error(Fault::Text))?);
    }
    if with & WITH_QUALITY != 0 {
        wishes.quality = match from.u8("quality")? {
            0 => return Err(from.out_of_range("quality", 0u8)),
            byte => Quality::from_byte(byte).ok_or_else(|| from.out_of_range("quality", byte))?,
        };
    }
    Ok(Some(wishes.into()))
}

fn write_attempt(out: &mut Body<'_>, attempt: Attempt) {
    // All fields at once: nearly every frame begins with an attempt.
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&attempt.to.0.to_be_bytes());
    bytes[8..10].copy_from_slice(&attempt.slot.to_be_bytes());
    bytes[10..].copy_from_slice(&attempt.number.to_be_bytes());
    out.bytes(&bytes);
}

fn read_attempt(from: &mut Reader) -> Result<Attempt> {
    Ok(Attempt { to: read_uid(from)?, slot: read_slot(from)?, number: from.number("number")? })
}

fn read_slot(from: &mut Reader) -> Result<u16> {
    match from.u16("slot")? {
        slot if usize::from(slot) < SLOTS_MAX => Ok(slot),
        other => Err(from.out_of_range("slot", other)),
    }
}

fn read_port(from: &mut Reader) -> Result<Port> {
    from.u128("port").map(Port)
}

pub(super) fn write_cookie(out: &mut Body<'_>, cookie: &Cookie) {
    out.u64(cookie.issued);
    out.u64(cookie.seal);
}

pub(super) fn read_cookie(from: &mut Reader) -> Result<Cookie> {
    Ok(Cookie { issued: from.u64("issued")?, seal: from.u64("seal")? })
}

fn write_grant(out: &mut Body<'_>, grant: Grant) {
    out.u16(grant.slots);
    out.u16(grant.load);
}

fn read_grant(from: &mut Reader) -> Result<Grant> {
    let slots = match from.u16("slots")? {
        slots if usize::from(slots) <= SLOTS_MAX => slots,
        other => return Err(from.out_of_range("slots", other)),
    };
    Ok(Grant { slots, load: from.u16("load")? })
}

fn write_payload(out: &mut Body<'_>, payload: &Payload) {
    match payload {
        Payload::Whole(bytes) => {
            out.u8(0);
            out.bytes(bytes);
        }
        Payload::Parts { total, part } => {
            out.u8(1);
            out.u32(*total);
            out.u16(*part);
        }
        Payload::Omitted => out.u8(2),
    }
}

fn read_payload(from: &mut Reader) -> Result<Payload> {
    match from.u8("payload")? {
        0 => Ok(Payload::Whole(from.tail())),
        1 => {
            let total = from.u32("total")?;
            if !(1..=CALL_BYTES_MAX as u32).contains(&total) {
                return Err(from.out_of_range("total", total));
            }
            let part = from.u16("part bytes")?;
            if usize::from(part) < PART_BYTES_MIN {
                return Err(from.out_of_range("part bytes", part));
            }
            Ok(Payload::Parts { total, part })
        }
        2 => Ok(Payload::Omitted),
        other => Err(from.out_of_range("payload", other)),
    }
}

fn write_rejection(out: &mut Body<'_>, reason: Rejection) {
    match reason {
        Rejection::NotServed => out.u8(1),
        Rejection::Busy => out.u8(2),
        Rejection::Expired => out.u8(3),
        Rejection::Cancelled => out.u8(4),
        Rejection::Lost => out.u8(5),
        Rejection::ShowCookie(cookie) => {
            out.u8(6);
            write_cookie(out, &cookie);
        }
    }
}

fn read_rejection(from: &mut Reader) -> Result<Rejection> {
    match from.u8("reason")? {
        1 => Ok(Rejection::NotServed),
        2 => Ok(Rejection::Busy),
        3 => Ok(Rejection::Expired),
        4 => Ok(Rejection::Cancelled),
        5 => Ok(Rejection::Lost),
        6 => read_cookie(from).map(Rejection::ShowCookie),
        other => Err(from.out_of_range("reason", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `docs/protocol/wire-format.md`.
    #[test]
    fn a_binding_is_as_the_page_says() {
        let address = SocketAddr::from(([192, 0, 2, 7], 8080));
        assert_eq!(Unopened::binding(Uid(0xa1), Uid(0xb1), address), 0x7722_1c4c_ef0f_29c7);
    }
}
