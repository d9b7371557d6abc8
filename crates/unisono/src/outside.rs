//! Queries to a group by a process that need not be a member.
//!
//! The query goes to the addresses that a joiner would ask. It is sent several times, because datagrams may be lost.
//! Each member that receives it answers with its own report, and the first answer counts. If no seed answers at once,
//! members are asked by multicast too: they may be cut off from the seeds, which may be the reason for the query.

use crate::error::{ChangeOrderFailure, ForceFailure, LookError, OpenError};
use crate::opening::random;
use crate::options::Options;
use crate::reach::{IPV6_DATAGRAM_BYTES_MAX, Wish, multicast_address, port};
use crate::sealed::Sealed;
use crate::seeds::Seeds;
use crate::versions::other_version_of;
use bytes::BytesMut;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use unisono_core::look::Report;
use unisono_core::wire::{
    Checksum, Decoder, Forcing, Frame, HEADER_BYTES, Header, KeyContext, Protection, ProtectionKind,
    Switching, Writer, decode_report, open, seal,
};
use unisono_core::{ChangeOrderError, EpochTag, ForceError, GroupTag, Instance, Order, Uid};
use unisono_udp::{Receiver, Socket, Watch};

/// Interval after which an unanswered query is sent again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Length of a query in bytes: what every path carries, over IPv6 too.
const QUESTION_BYTES: usize = IPV6_DATAGRAM_BYTES_MAX - HEADER_BYTES;
/// Keys of the two sockets: one receives the answers, the other the group's multicasts.
const ANSWERS: u64 = 0;
const HEARD: u64 = 1;

/// Asks the members of a group for a report and returns the first answer. Waits at most `timeout`. The seeds of
/// `options` are asked first. Members that multicast reaches are asked too if no seed answers within 100 ms, or at
/// once if there are no seeds. If `options` has a key, only an answer that is sealed under it counts.
pub fn look(name: &str, options: &Options, timeout: Duration) -> Result<Report, LookError> {
    let begin = Instant::now();
    let seeds = Seeds::new(options)?.resolve()?;
    Ok(look_for(name, options, &seeds, true, timeout.saturating_sub(begin.elapsed()))?.0)
}

/// Asks the member at `address` for a report, and no other member; [`look`] accepts the answer of any.
pub fn look_at(
    name: &str,
    address: SocketAddr,
    options: &Options,
    timeout: Duration,
) -> Result<Report, LookError> {
    Ok(look_with_key_at(name, address, options, timeout)?.0)
}

/// Like [`look_at`], and returns in addition which of the keys of `options` the member seals with: the position in the
/// key file, from 1. `None` if there is no key.
pub fn look_with_key_at(
    name: &str,
    address: SocketAddr,
    options: &Options,
    timeout: Duration,
) -> Result<(Report, Option<usize>), LookError> {
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
        let (answer, _) = ask(name, options, question, &[address], false, left, |frame| match frame {
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

/// Asks the member at this address to change the order of its group ([`Group::change_order`](crate::Group::change_order)).
/// Returns when the member asks the sequencer for it; [`look_at`] shows when it is in force.
pub fn change_order(
    name: &str,
    address: SocketAddr,
    order: Order,
    options: &Options,
    timeout: Duration,
) -> Result<(), ChangeOrderFailure> {
    let begin = Instant::now();
    let mut challenge = 0;
    loop {
        let left = timeout.saturating_sub(begin.elapsed());
        let question = Question::Switch { challenge, order };
        let (answer, _) = ask(name, options, question, &[address], false, left, |frame| match frame {
            Frame::Switching { answer, .. } => Some(answer),
            _ => None,
        })?;
        challenge = match answer {
            Switching::Challenge(challenge) => challenge,
            Switching::Begun => return Ok(()),
            Switching::InForce => return Err(ChangeOrderError::InForce.into()),
            Switching::UnderWay => return Err(ChangeOrderError::UnderWay.into()),
            Switching::Resetting => return Err(ChangeOrderError::Resetting.into()),
            Switching::NotMember => return Err(ChangeOrderError::NotMember.into()),
        };
    }
}

fn look_for(
    name: &str,
    options: &Options,
    known: &[SocketAddr],
    by_multicast: bool,
    timeout: Duration,
) -> Result<(Report, Option<usize>), LookError> {
    ask(name, options, Question::Look, known, by_multicast, timeout, |frame| match frame {
        Frame::Tell { report, .. } => decode_report(&report).ok(),
        _ => None,
    })
}

/// What is asked.
enum Question {
    Look,
    Force { challenge: u64, without: Vec<Uid> },
    Switch { challenge: u64, order: Order },
}

fn ask<T>(
    name: &str,
    options: &Options,
    question: Question,
    known: &[SocketAddr],
    by_multicast: bool,
    timeout: Duration,
    read: impl Fn(Frame) -> Option<T>,
) -> Result<(T, Option<usize>), LookError> {
    let begin = Instant::now();
    let place = Wish::of(options).roam(known)?.somewhere()?;
    // A member may have bound the port of the options.
    let address = SocketAddr::from((place.bind.ip(), 0));
    let socket = Socket::bind(address).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrNotAvailable => OpenError::NotOurAddress { address },
        _ => OpenError::Socket { what: "open a socket", cause },
    })?;
    let tag = port(name)?.tag();
    let mut destinations = known.to_vec();
    let is_everywhere = place.bind.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    destinations.retain(|seed| is_everywhere || seed.is_ipv6() == address.is_ipv6());
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
    // Members do not answer a query that they cannot open. Their multicasts to each other show that they exist.
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
    let (mut answer, mut foreign, mut other_version) = (None, None, None);
    while answer.is_none() && begin.elapsed() < timeout {
        // Seeds are asked first.
        if asker.number > 0 && nearby.take().is_some() {
            besides.push(multicast);
        }
        let Some(question) = asker.question() else { break };
        asked |= socket.send(&question, question.len(), &destinations) < destinations.len();
        socket.send(&question, question.len(), &besides);
        let asked_at = Instant::now();
        while answer.is_none() && asked_at.elapsed() < ASK_AGAIN && begin.elapsed() < timeout {
            let left =
                ASK_AGAIN.saturating_sub(asked_at.elapsed()).min(timeout.saturating_sub(begin.elapsed()));
            watch.set_alarm(left);
            for &key in watch.wait().keys() {
                let socket = if key == ANSWERS { &socket } else { heard.as_ref().unwrap_or(&socket) };
                // An error concerns one datagram only.
                let _ = receiver.receive(socket, |from, datagram| {
                    let version = other_version_of(&datagram, Some(tag));
                    other_version = other_version.or(version.map(|version| (from, version)));
                    if key != ANSWERS {
                        foreign = foreign.or(asker.is_deaf_to(&datagram).then_some(from));
                    } else if answer.is_none() {
                        answer = asker.answer(datagram, &read);
                    }
                });
            }
        }
    }
    answer.ok_or(match (other_version, foreign, destinations.first()) {
        (Some((address, version)), ..) => LookError::OtherVersion { address, version },
        (None, Some(address), _) => LookError::OtherKey { address },
        (None, None, Some(&address)) if !asked => OpenError::Unasked { address }.into(),
        (None, None, _) => LookError::NoAnswer,
    })
}

fn watch(answers: &Socket, heard: Option<&Socket>) -> io::Result<Watch> {
    let watch = Watch::new()?;
    watch.add(answers, ANSWERS)?;
    heard.map_or(Ok(()), |heard| watch.add(heard, HEARD))?;
    Ok(watch)
}

/// A process outside of a group, with a uid and packet numbers of its own.
struct Asker {
    tag: GroupTag,
    uid: Uid,
    question: Question,
    nonce: u64,
    number: u64,
    /// The seal, if there is a key.
    sealed: Option<Sealed>,
    checksum: Checksum,
}

impl Asker {
    fn new(tag: GroupTag, question: Question, options: &Options) -> Result<Asker, OpenError> {
        let word = || random().map(u64::from_ne_bytes);
        let (uid, nonce) = (Uid(word()?), word()?);
        Ok(Asker {
            tag,
            uid,
            question,
            nonce,
            number: 0,
            sealed: options.key.as_ref().map(Sealed::new),
            checksum: Checksum,
        })
    }

    fn kind(&self) -> ProtectionKind {
        self.sealed.as_ref().map_or(ProtectionKind::Checksum, Protection::kind)
    }

    fn protection(&mut self) -> &mut dyn Protection {
        match &mut self.sealed {
            Some(sealed) => sealed,
            None => &mut self.checksum,
        }
    }

    fn context(header: &Header) -> KeyContext {
        KeyContext { instance: Instance(0), sender: header.sender, salt: header.salt }
    }

    /// Returns a datagram with the query; `None` if it cannot be sealed.
    fn question(&mut self) -> Option<Vec<u8>> {
        self.number += 1;
        let header = Header {
            protection: self.kind(),
            group: self.tag,
            epoch: EpochTag::OUTSIDE,
            sender: self.uid,
            number: self.number,
            salt: self.protection().salt(),
        };
        let mut datagram = Vec::new();
        header.write(&mut datagram);
        let nonce = self.nonce;
        let frame = match &self.question {
            Question::Look => Frame::Ask { nonce, room: QUESTION_BYTES as u32 },
            Question::Force { challenge, without } => {
                Frame::Force { nonce, challenge: *challenge, without: without.clone() }
            }
            Question::Switch { challenge, order } => {
                Frame::Switch { nonce, challenge: *challenge, order: *order }
            }
        };
        Writer::new(&mut datagram, HEADER_BYTES + QUESTION_BYTES).frame(&frame);
        let sealed = seal(&mut datagram, &header, &Asker::context(&header), self.protection());
        sealed.then_some(datagram)
    }

    /// True if the datagram belongs to the group, unless this process can read it: neither has a key.
    fn is_deaf_to(&self, datagram: &[u8]) -> bool {
        let Ok(header) = Header::parse(datagram) else { return false };
        let readable =
            (header.protection, self.kind()) == (ProtectionKind::Checksum, ProtectionKind::Checksum);
        header.group == self.tag && header.epoch != EpochTag::OUTSIDE && !readable
    }

    /// Returns what `read` finds in a datagram, if it is an answer to this query.
    fn answer<T>(
        &mut self,
        datagram: BytesMut,
        read: impl Fn(Frame) -> Option<T>,
    ) -> Option<(T, Option<usize>)> {
        let header = Header::parse(&datagram).ok()?;
        if header.group != self.tag || header.epoch != EpochTag::OUTSIDE {
            return None;
        }
        let context = Asker::context(&header);
        let payload = open(datagram, &header, &context, self.protection())?;
        let key = self.sealed.as_ref().and_then(|sealed| sealed.key_of(&context));
        let found = Decoder::new(payload).find_map(|frame| match frame {
            Ok(
                frame @ (Frame::Tell { nonce, .. }
                | Frame::Forcing { nonce, .. }
                | Frame::Switching { nonce, .. }),
            ) if nonce == self.nonce => read(frame),
            _ => None,
        });
        found.map(|found| (found, key))
    }
}
