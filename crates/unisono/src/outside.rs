//! Looking at a group without being a member.
//!
//! A question goes to where a joiner would ask, several times, since any of it may be lost. Whoever is a
//! member answers for itself; the first answer counts. If no seed answers at once, members near by are asked as well:
//! they may be cut off from the seeds, and are looked at for that very reason.

use crate::error::{ForceFailure, LookError, OpenError};
use crate::opening::{protection, random};
use crate::options::Options;
use crate::reach::{Place, multicast_address, port};
use crate::seeds::Seeds;
use bytes::BytesMut;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono_core::look::Report;
use unisono_core::wire::{
    Decoder, Forcing, Frame, HEADER_BYTES, Header, KeyContext, PADDED_BYTES, Protection, ProtectionKind,
    Writer, decode_report, open, seal,
};
use unisono_core::{EpochTag, ForceError, GroupTag, Instance, Uid};
use unisono_udp::{Receiver, Socket, Watch};

/// How long to wait for an answer before the question is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// What comes to the socket that asks, and what is heard besides.
const ANSWERS: u64 = 0;
const HEARD: u64 = 1;

/// Asks any member of the group of this name how it stands, for at most `timeout`: the seeds of `options` first, and
/// before long whoever multicast reaches, too. The first answer counts; with the key of `options`, only one that is
/// sealed under it.
pub fn look(name: &str, options: &Options, timeout: Duration) -> Result<Report, LookError> {
    let begin = Instant::now();
    let seeds = Seeds::new(options)?.resolve()?;
    look_for(name, options, &seeds, true, timeout.saturating_sub(begin.elapsed()))
}

/// Asks the member at this address and nobody else, where [`look`] takes anybody's word.
pub fn look_at(
    name: &str,
    address: SocketAddr,
    options: &Options,
    timeout: Duration,
) -> Result<Report, LookError> {
    look_for(name, options, &[address], false, timeout)
}

/// Asks the member at this address, of a group that stands still, to go on without the members of these uids, of which
/// the caller vouches that they are dead ([`Group::force`](crate::Group::force)). Returns when the member has begun a
/// reset; [`look_at`] shows whether it has ended.
pub fn force(
    name: &str,
    address: SocketAddr,
    without: &[Uid],
    options: &Options,
    timeout: Duration,
) -> Result<(), ForceFailure> {
    let begin = Instant::now();
    let mut challenge = 0;
    loop {
        let question = Question::Force { challenge, without: without.to_vec() };
        let left = timeout.saturating_sub(begin.elapsed());
        let answer = ask(name, options, question, &[address], false, left, |frame| match frame {
            Frame::Forcing { answer, .. } => Some(answer),
            _ => None,
        })?;
        challenge = match answer {
            Forcing::Challenge(challenge) => challenge,
            Forcing::Begun => return Ok(()),
            Forcing::NotHalted => return Err(ForceError::NotHalted.into()),
            Forcing::NoSuchMember(uid) => return Err(ForceError::NoSuchMember(uid).into()),
            Forcing::Answers(uid) => return Err(ForceError::Answers(uid).into()),
        };
    }
}

fn look_for(
    name: &str,
    options: &Options,
    known: &[SocketAddr],
    by_multicast: bool,
    timeout: Duration,
) -> Result<Report, LookError> {
    ask(name, options, Question::Look, known, by_multicast, timeout, |frame| match frame {
        Frame::Tell { report, .. } => decode_report(&report).ok(),
        _ => None,
    })
}

/// What is asked.
enum Question {
    Look,
    Force { challenge: u64, without: Vec<Uid> },
}

fn ask<T>(
    name: &str,
    options: &Options,
    question: Question,
    known: &[SocketAddr],
    by_multicast: bool,
    timeout: Duration,
    read: impl Fn(Frame) -> Option<T>,
) -> Result<T, LookError> {
    let begin = Instant::now();
    let place = Place::choose(options, known)?;
    // Members may use the very port.
    let address = SocketAddr::from((place.bind.ip(), 0));
    let socket = Socket::bind(address).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrNotAvailable => OpenError::NotOurAddress { address },
        _ => OpenError::Socket { what: "open a socket", cause },
    })?;
    let tag = port(name)?.tag();
    let mut destinations = known.to_vec();
    destinations.retain(|seed| seed.is_ipv6() == address.is_ipv6());
    let mut nearby = place.interface.filter(|_| by_multicast);
    if let Some(interface) = nearby {
        match socket.send_multicast_by(interface, 1) {
            Ok(()) => {}
            Err(cause) if known.is_empty() => {
                return Err(OpenError::NoMulticast { address: socket.address(), cause }.into());
            }
            Err(_) => nearby = None,
        }
    }
    // Nobody answers a question that does not open; what members tell each other shows that they are there.
    let heard =
        nearby.and_then(|interface| Socket::listen(multicast_address(tag), interface, None, None).ok());
    let watch = watch(&socket, heard.as_ref())
        .map_err(|cause| OpenError::Socket { what: "wait for answers", cause })?;
    let mut asker = Asker::new(tag, question, options)?;
    let mut receiver = Receiver::new();
    let multicast = SocketAddr::from(multicast_address(tag));
    if destinations.is_empty() && nearby.take().is_some() {
        destinations.push(multicast);
    }
    let (mut besides, mut asked) = (Vec::new(), false);
    let (mut answer, mut foreign) = (None, None);
    while answer.is_none() && begin.elapsed() < timeout {
        // Seeds have the first word.
        if asker.number > 0 && nearby.take().is_some() {
            besides.push(multicast);
        }
        let question = asker.question();
        asked |= socket.send(&question, question.len(), &destinations) < destinations.len();
        socket.send(&question, question.len(), &besides);
        let asked_at = Instant::now();
        while answer.is_none() && asked_at.elapsed() < ASK_AGAIN && begin.elapsed() < timeout {
            let left =
                ASK_AGAIN.saturating_sub(asked_at.elapsed()).min(timeout.saturating_sub(begin.elapsed()));
            watch.set_alarm(left);
            for &key in watch.wait().keys() {
                let socket = if key == ANSWERS { &socket } else { heard.as_ref().unwrap_or(&socket) };
                // An error is one datagram's.
                let _ = receiver.receive(socket, |from, datagram| {
                    if key != ANSWERS {
                        foreign = foreign.or(asker.is_deaf_to(&datagram).then_some(from));
                    } else if answer.is_none() {
                        answer = asker.answer(datagram, &read);
                    }
                });
            }
        }
    }
    answer.ok_or(match (foreign, destinations.first()) {
        (Some(address), _) => LookError::OtherKey { address },
        (None, Some(&address)) if !asked => OpenError::Unasked { address }.into(),
        (None, _) => LookError::NoAnswer,
    })
}

fn watch(answers: &Socket, heard: Option<&Socket>) -> io::Result<Watch> {
    let watch = Watch::new()?;
    watch.add(answers, ANSWERS)?;
    heard.map_or(Ok(()), |heard| watch.add(heard, HEARD))?;
    Ok(watch)
}

/// Somebody outside of a group, with a life and packet numbers of its own.
struct Asker {
    tag: GroupTag,
    uid: Uid,
    question: Question,
    nonce: u64,
    number: u64,
    protection: Box<dyn Protection>,
}

impl Asker {
    fn new(tag: GroupTag, question: Question, options: &Options) -> Result<Asker, OpenError> {
        let word = || random().map(u64::from_ne_bytes);
        let (uid, nonce) = (Uid(word()?), word()?);
        Ok(Asker { tag, uid, question, nonce, number: 0, protection: protection(options) })
    }

    fn context(sender: Uid) -> KeyContext {
        KeyContext { instance: Instance(0), sender }
    }

    /// A datagram that asks.
    fn question(&mut self) -> Vec<u8> {
        self.number += 1;
        let header = Header {
            protection: self.protection.kind(),
            group: self.tag,
            epoch: EpochTag::OUTSIDE,
            sender: self.uid,
            number: self.number,
        };
        let mut datagram = Vec::new();
        header.write(&mut datagram);
        let nonce = self.nonce;
        let frame = match &self.question {
            Question::Look => Frame::Ask { nonce, room: PADDED_BYTES as u32 },
            Question::Force { challenge, without } => {
                Frame::Force { nonce, challenge: *challenge, without: without.clone() }
            }
        };
        Writer::new(&mut datagram, HEADER_BYTES + PADDED_BYTES).frame(&frame);
        seal(&mut datagram, &header, &Asker::context(self.uid), &mut *self.protection);
        datagram
    }

    /// Somebody speaks of the group, and this asker could not know what.
    fn is_deaf_to(&self, datagram: &[u8]) -> bool {
        let Ok(header) = Header::parse(datagram) else { return false };
        let readable = (header.protection, self.protection.kind())
            == (ProtectionKind::Checksum, ProtectionKind::Checksum);
        header.group == self.tag && header.epoch != EpochTag::OUTSIDE && !readable
    }

    /// What `read` finds in a datagram, if it is an answer to this question.
    fn answer<T>(&mut self, datagram: BytesMut, read: impl Fn(Frame) -> Option<T>) -> Option<T> {
        let header = Header::parse(&datagram).ok()?;
        if header.group != self.tag || header.epoch != EpochTag::OUTSIDE {
            return None;
        }
        let payload = open(datagram, &header, &Asker::context(header.sender), &mut *self.protection)?;
        Decoder::new(payload).find_map(|frame| match frame {
            Ok(frame @ (Frame::Tell { nonce, .. } | Frame::Forcing { nonce, .. })) if nonce == self.nonce => {
                read(frame)
            }
            _ => None,
        })
    }
}
