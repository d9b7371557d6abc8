//! Frames to bytes and back. Each frame begins with its kind and the length of its body, so a reader finds its end
//! whatever is inside. All numbers are big endian.
//!
//! Reading always ends, whatever the bytes are: with a frame that keeps all rules of the format, or with an error. It
//! allocates no more than in proportion to its input. `docs/protocol/wire-format.md` has every frame as a table.

use super::calls;
use super::frame::*;
use super::kind::FrameKind;
use super::parts::*;
use super::reader::{Fault, FrameError, Reader};
use super::writer::{Body, FRAME_HEAD_BYTES, PADDED_BYTES, PADDED_BYTES_MIN, RunHead};
use super::{HEADER_BYTES, NUMBER_MAX, PARCELS_MAX};
use crate::identity::{Instance, Seqno, Uid};
use crate::quality::Quality;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::iter::FusedIterator;

type Result<T> = core::result::Result<T, FrameError>;

/// Iterates over the frames of an opened datagram. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Decoder {
    from: Reader,
}

impl Decoder {
    /// Returns a decoder for what follows a datagram's header.
    pub fn new(payload: Bytes) -> Decoder {
        Decoder { from: Reader::new(payload) }
    }

    /// Returns the offset of the next frame, in bytes from the first frame's first byte.
    pub fn position(&self) -> usize {
        self.from.position()
    }
}

impl Iterator for Decoder {
    type Item = Result<Frame>;

    #[inline]
    fn next(&mut self) -> Option<Result<Frame>> {
        if !self.from.begin() {
            return None;
        }
        let frame = read_frame(&mut self.from);
        if frame.is_err() {
            self.from.give_up();
        }
        Some(frame)
    }
}

impl FusedIterator for Decoder {}

impl Frame {
    /// Returns the frame as it travels in parcels: its kind and its body. `None` if that is more than
    /// [`PARCELLED_BYTES_MAX`] bytes, or if a list or text of the frame exceeds its maximum.
    pub fn encode_alone(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut body = Body::new(&mut out, PARCELLED_BYTES_MAX);
        body.u8(self.kind() as u8);
        write_body(&mut body, self);
        body.fits().then_some(out)
    }

    /// Returns the size of a datagram with this frame alone; `None` if the frame cannot be sent.
    pub(crate) fn datagram_bytes(&self) -> Option<usize> {
        let kind_bytes = 1;
        self.encode_alone().map(|alone| HEADER_BYTES + FRAME_HEAD_BYTES - kind_bytes + alone.len())
    }

    /// Reads what [`Frame::encode_alone`] wrote. Refuses a parcel in a parcel.
    pub fn decode_alone(bytes: &Bytes) -> Result<Frame> {
        let mut from = Reader::new(bytes.clone());
        let kind = read_kind(&mut from)?;
        if kind == FrameKind::Parcel {
            return Err(from.error(Fault::Kind(kind as u8)));
        }
        read_body(&mut from, kind)
    }
}

fn read_frame(from: &mut Reader) -> Result<Frame> {
    let kind = read_kind(from)?;
    let length = usize::from(from.u16("body length")?);
    from.stop_after(length, "body")?;
    read_body(from, kind)
}

fn read_kind(from: &mut Reader) -> Result<FrameKind> {
    let number = from.u8("kind")?;
    let kind = FrameKind::from_number(number).ok_or_else(|| from.error(Fault::Kind(number)))?;
    from.set_kind(kind);
    Ok(kind)
}

/// Reads a body, which must end where `from` ends.
fn read_body(from: &mut Reader, kind: FrameKind) -> Result<Frame> {
    let frame = match kind {
        FrameKind::Data => {
            let data = Data {
                sender: read_uid(from)?,
                first: from.number("first")?,
                base: from.number("base")?,
                method: read_method(from)?,
                quality: read_quality(from)?,
                pieces: from.pieces()?,
            };
            check_run(from, data.first, data.pieces.count)?;
            if data.base > data.first {
                return Err(from.out_of_range("base", data.base));
            }
            Frame::Data(data)
        }
        FrameKind::Ordered => {
            let ordered = Ordered {
                seqno: from.number("seqno")?,
                sender: read_uid(from)?,
                first: from.number("first")?,
                quality: read_quality(from)?,
                pieces: from.pieces()?,
            };
            check_run(from, ordered.seqno, ordered.pieces.count)?;
            check_run(from, ordered.first, ordered.pieces.count)?;
            Frame::Ordered(ordered)
        }
        FrameKind::Numbers => {
            let numbers = Numbers {
                seqno: from.number("seqno")?,
                sender: read_uid(from)?,
                first: from.number("first")?,
                quality: read_quality(from)?,
                count: from.count("count", 1..=usize::from(u16::MAX), 0)? as u16,
            };
            check_run(from, numbers.seqno, numbers.count)?;
            check_run(from, numbers.first, numbers.count)?;
            Frame::Numbers(numbers)
        }
        FrameKind::Heartbeat => Frame::Heartbeat(Heartbeat {
            term: from.mark("term")?,
            acting: from.flag("acting")?,
            end: from.mark("end")?,
            accepted: from.mark("accepted")?,
            stable: from.mark("stable")?,
            stamp: from.u32("stamp")?,
            multicast: from.flag("multicast")?,
            asks: from.flag("asks")?,
            late_ms: from.u8("late")?,
        }),
        FrameKind::Watermarks => Frame::Watermarks(Watermarks {
            received: from.mark("received")?,
            accepted: from.mark("accepted")?,
            delivered: from.mark("delivered")?,
            stamp: from.u32("stamp")?,
            hears_multicast: from.flag("hears multicast")?,
            late_ms: from.u8("late")?,
        }),
        kind if kind.is_of_calls() => calls::read(from, kind)?,
        kind => read_rare(from, kind)?,
    };
    from.finish()?;
    Ok(frame)
}

fn read_note(from: &mut Reader) -> Result<Frame> {
    let (member, number) = (read_uid(from)?, from.number("number")?);
    if from.left() > NOTE_BYTES_MAX {
        return Err(from.out_of_range("note length", from.left()));
    }
    Ok(Frame::Note { member, number, note: from.rest() })
}

/// Reads the frames that are rare: those for lost datagrams, liveness, joins, leaves and resets, status queries,
/// parcels, and forming.
#[cold]
fn read_rare(from: &mut Reader, kind: FrameKind) -> Result<Frame> {
    Ok(match kind {
        FrameKind::Change => Frame::Change { seqno: from.number("seqno")?, change: read_change(from)? },
        FrameKind::Nack => Frame::Nack { ranges: read_ranges(from)? },
        FrameKind::Want => {
            let first = from.number("from")?;
            Frame::Want { from: first, to: read_to(from, first)? }
        }
        FrameKind::Gone => Frame::Gone { through: from.number("through")? },
        FrameKind::Unreliable => Frame::Unreliable { number: from.number("number")?, payload: from.rest() },
        FrameKind::Note => read_note(from)?,

        FrameKind::Probe => Frame::Probe { nonce: from.u64("nonce")? },
        FrameKind::Alive => Frame::Alive { nonce: from.u64("nonce")? },
        FrameKind::Confirm => Frame::Confirm { nonce: from.u64("nonce")? },
        FrameKind::Confirmed => Frame::Confirmed { nonce: from.u64("nonce")?, end: from.mark("end")? },

        FrameKind::Locate => {
            check_padding(from)?;
            let nonce = from.u64("nonce")?;
            from.rest();
            Frame::Locate { nonce }
        }
        FrameKind::HereIs => Frame::HereIs(HereIs {
            nonce: from.u64("nonce")?,
            cookie: from.u64("cookie")?,
            instance: from.u128("instance").map(Instance)?,
            epoch_counter: from.mark("epoch counter")?,
            members: from.u16("members")?,
            condition: read_condition(from)?,
            ordered: from.mark("ordered")?,
            sequencer: read_address(from)?,
        }),
        FrameKind::Met => Frame::Met(Met {
            cookie: from.u64("cookie")?,
            instance: from.u128("instance").map(Instance)?,
            ordered: from.mark("ordered")?,
            ordered_here: from.mark("ordered here")?,
            gives_way: from.flag("gives way")?,
            from_other: from.flag("from other")?,
            address: read_address(from)?,
        }),
        FrameKind::JoinRequest => Frame::JoinRequest {
            cookie: from.u64("cookie")?,
            name: read_name(from)?,
            floor: read_floor(from)?,
            hops: read_hops(from)?,
            hello: read_greeting(from)?,
        },
        FrameKind::Welcome => Frame::Welcome(Box::new(Welcome {
            cookie: from.u64("cookie")?,
            instance: from.u128("instance").map(Instance)?,
            epoch: read_epoch(from)?,
            epoch_start: from.mark("epoch start")?,
            config: read_config(from)?,
            base: read_log_base(from)?,
        })),
        FrameKind::Refused => Frame::Refused { cookie: from.u64("cookie")?, reason: read_refusal(from)? },
        FrameKind::LeaveRequest => Frame::LeaveRequest {
            unnumbered_through: from.mark("unnumbered through")?,
            goodbye: read_greeting(from)?,
        },
        FrameKind::SwitchRequest => {
            Frame::SwitchRequest { order: read_order(from)?, since: from.mark("since")? }
        }
        FrameKind::Farewell => Frame::Farewell { uid: read_uid(from)?, seqno: from.number("seqno")? },

        FrameKind::Invite => {
            Frame::Invite { ballot: read_ballot(from)?, members_min: from.u16("members_min")? }
        }
        FrameKind::Vote => Frame::Vote(Box::new(Vote {
            ballot: read_ballot(from)?,
            end: from.mark("end")?,
            accepted: from.mark("accepted")?,
            lacks_state: from.flag("lacks_state")?,
            prepared: match from.flag("prepared")? {
                true => Some((read_ballot(from)?, read_proposal(from)?)),
                false => None,
            },
            early: read_early(from, TAIL_BYTES_MAX)?,
        })),
        FrameKind::Outbid => Frame::Outbid { promised: read_ballot(from)? },
        FrameKind::Pull => {
            let (ballot, first) = (read_ballot(from)?, from.number("from")?);
            Frame::Pull { ballot, from: first, to: read_to(from, first)? }
        }
        FrameKind::Level => Frame::Level { ballot: read_ballot(from)? },
        FrameKind::Prepare => Frame::Prepare(Box::new(Prepare {
            ballot: read_ballot(from)?,
            members_min: from.u16("members_min")?,
            proposal: read_proposal(from)?,
            before: read_uids(from)?,
            after: read_uids(from)?,
        })),
        FrameKind::Prepared => Frame::Prepared { ballot: read_ballot(from)? },
        FrameKind::Decided => {
            Frame::Decided { entered: from.flag("entered")?, proposal: read_proposal(from)? }
        }
        FrameKind::Inquiry => {
            check_padding(from)?;
            from.rest();
            Frame::Inquiry
        }
        FrameKind::Excluded => Frame::Excluded {
            uid: read_uid(from)?,
            instance: from.u128("instance").map(Instance)?,
            epoch: read_epoch(from)?,
        },

        FrameKind::Ask => {
            check_padding(from)?;
            let room = (FRAME_HEAD_BYTES + from.left()) as u32;
            let nonce = from.u64("nonce")?;
            from.rest();
            Frame::Ask { nonce, room }
        }
        FrameKind::Force => {
            check_padding(from)?;
            let (nonce, challenge) = (from.u64("nonce")?, from.u64("challenge")?);
            let count = from.count("member count", 1..=FORCE_MAX, 8)?;
            let without = (0..count).map(|_| read_uid(from)).collect::<Result<_>>()?;
            from.rest();
            Frame::Force { nonce, challenge, without }
        }
        FrameKind::Forcing => {
            let nonce = from.u64("nonce")?;
            let answer = match (from.u8("answer")?, from.u64("challenge or uid")?) {
                (1, challenge) => Forcing::Challenge(challenge),
                (2, 0) => Forcing::Begun,
                (3, 0) => Forcing::NotHalted,
                (4, uid) => Forcing::NoSuchMember(Uid(uid)),
                (5, uid) => Forcing::Answers(Uid(uid)),
                (2 | 3, other) => return Err(from.out_of_range("challenge or uid", other)),
                (other, _) => return Err(from.out_of_range("answer", other)),
            };
            Frame::Forcing { nonce, answer }
        }
        FrameKind::Switch => {
            check_padding(from)?;
            let (nonce, challenge) = (from.u64("nonce")?, from.u64("challenge")?);
            let order = read_order(from)?;
            from.rest();
            Frame::Switch { nonce, challenge, order }
        }
        FrameKind::Switching => {
            let nonce = from.u64("nonce")?;
            let answer = match (from.u8("answer")?, from.u64("challenge")?) {
                (1, challenge) => Switching::Challenge(challenge),
                (2, 0) => Switching::Begun,
                (3, 0) => Switching::InForce,
                (4, 0) => Switching::UnderWay,
                (5, 0) => Switching::Resetting,
                (6, 0) => Switching::NotMember,
                (2..=6, other) => return Err(from.out_of_range("challenge", other)),
                (other, _) => return Err(from.out_of_range("answer", other)),
            };
            Frame::Switching { nonce, answer }
        }
        FrameKind::Tell => Frame::Tell { nonce: from.u64("nonce")?, report: from.rest() },

        FrameKind::Parcel => {
            let id = from.u32("id")?;
            let index = from.u16("index")?;
            let count = from.count("count", 1..=PARCELS_MAX, 0)? as u16;
            if index >= count {
                return Err(from.out_of_range("index", index));
            }
            Frame::Parcel { id, index, count, bytes: from.rest() }
        }

        FrameKind::Form => {
            check_padding(from)?;
            let room = (FRAME_HEAD_BYTES + from.left()) as u32;
            let (formation, ballot) = (from.u64("formation")?, read_ballot(from)?);
            let heard = from.u16("heard")?;
            from.rest();
            Frame::Form { formation, ballot, heard, room }
        }
        FrameKind::FormPromise => Frame::FormPromise(Box::new(FormPromise {
            formation: from.u64("formation")?,
            ballot: read_ballot(from)?,
            name: read_name(from)?,
            address: read_address(from)?,
            floor: read_floor(from)?,
            hops: read_hops(from)?,
            nonce: from.u64("nonce")?,
            prepared: match from.flag("prepared")? {
                true => Some((read_ballot(from)?, read_founding(from)?)),
                false => None,
            },
        })),
        FrameKind::FormRefused => Frame::FormRefused {
            formation: from.u64("formation")?,
            ballot: read_ballot(from)?,
            promised: read_ballot(from)?,
            nonce: from.u64("nonce")?,
        },
        FrameKind::FormEcho => Frame::FormEcho {
            formation: from.u64("formation")?,
            ballot: read_ballot(from)?,
            heard: from.u16("heard")?,
            nonce: from.u64("nonce")?,
        },
        FrameKind::FormPrepare => Frame::FormPrepare {
            formation: from.u64("formation")?,
            ballot: read_ballot(from)?,
            nonce: from.u64("nonce")?,
            founding: Box::new(read_founding(from)?),
        },
        FrameKind::FormPrepared => {
            Frame::FormPrepared { formation: from.u64("formation")?, ballot: read_ballot(from)? }
        }
        FrameKind::Formed => Frame::Formed {
            formation: from.u64("formation")?,
            ballot: read_ballot(from)?,
            founding: Box::new(read_founding(from)?),
        },
        // `read_body` reads all others.
        _ => return Err(from.error(Fault::Kind(kind as u8))),
    })
}

/// Writes the body that [`read_body`] reads.
pub(super) fn write_body(out: &mut Body<'_>, frame: &Frame) {
    match frame {
        Frame::Data(data) => {
            let Data { sender, first, base, method, quality, ref pieces } = *data;
            write_run_head(out, &RunHead::Data { sender, first, base, method, quality });
            out.u16(pieces.count);
            out.bytes(&pieces.bytes);
        }
        Frame::Ordered(ordered) => {
            let Ordered { seqno, sender, first, quality, ref pieces } = *ordered;
            write_run_head(out, &RunHead::Ordered { seqno, sender, first, quality });
            out.u16(pieces.count);
            out.bytes(&pieces.bytes);
        }
        Frame::Numbers(numbers) => {
            let Numbers { seqno, sender, first, quality, count } = *numbers;
            write_run_head(out, &RunHead::Ordered { seqno, sender, first, quality });
            out.u16(count);
        }
        Frame::Change { seqno, change } => {
            out.u64(*seqno);
            write_change(out, change);
        }
        Frame::Heartbeat(heartbeat) => {
            out.u64(heartbeat.term);
            out.flag(heartbeat.acting);
            out.u64(heartbeat.end);
            out.u64(heartbeat.accepted);
            out.u64(heartbeat.stable);
            out.u32(heartbeat.stamp);
            out.flag(heartbeat.multicast);
            out.flag(heartbeat.asks);
            out.u8(heartbeat.late_ms);
        }
        Frame::Watermarks(watermarks) => {
            out.u64(watermarks.received);
            out.u64(watermarks.accepted);
            out.u64(watermarks.delivered);
            out.u32(watermarks.stamp);
            out.flag(watermarks.hears_multicast);
            out.u8(watermarks.late_ms);
        }
        Frame::Nack { ranges } => {
            out.count(ranges.len(), NACK_RANGES_MAX);
            for (from, to) in ranges {
                out.u64(*from);
                out.u64(*to);
            }
        }
        Frame::Want { from, to } => {
            out.u64(*from);
            out.u64(*to);
        }
        Frame::Gone { through } => out.u64(*through),
        Frame::Unreliable { number, payload } => {
            out.u64(*number);
            out.bytes(payload);
        }
        Frame::Note { member, number, note } => {
            out.u64(member.0);
            out.u64(*number);
            out.bytes(note);
        }

        Frame::Probe { nonce } | Frame::Alive { nonce } | Frame::Confirm { nonce } => out.u64(*nonce),
        Frame::Confirmed { nonce, end } => {
            out.u64(*nonce);
            out.u64(*end);
        }

        Frame::Locate { nonce } => {
            out.u64(*nonce);
            write_padding(out);
        }
        Frame::HereIs(here) => {
            out.u64(here.nonce);
            out.u64(here.cookie);
            out.u128(here.instance.0);
            out.u64(here.epoch_counter);
            out.u16(here.members);
            out.u8(condition_number(here.condition));
            out.u64(here.ordered);
            write_address(out, &here.sequencer);
        }
        Frame::Met(met) => {
            out.u64(met.cookie);
            out.u128(met.instance.0);
            out.u64(met.ordered);
            out.u64(met.ordered_here);
            out.flag(met.gives_way);
            out.flag(met.from_other);
            write_address(out, &met.address);
        }
        Frame::JoinRequest { cookie, name, floor, hops, hello } => {
            out.u64(*cookie);
            write_name(out, name);
            write_floor(out, *floor);
            out.u8(*hops);
            write_greeting(out, hello);
        }
        Frame::Welcome(welcome) => {
            out.u64(welcome.cookie);
            out.u128(welcome.instance.0);
            write_epoch(out, &welcome.epoch);
            out.u64(welcome.epoch_start);
            write_config(out, &welcome.config);
            write_log_base(out, &welcome.base);
        }
        Frame::Refused { cookie, reason } => {
            out.u64(*cookie);
            out.u8(refusal_number(*reason));
        }
        Frame::LeaveRequest { unnumbered_through, goodbye } => {
            out.u64(*unnumbered_through);
            write_greeting(out, goodbye);
        }
        Frame::SwitchRequest { order, since } => {
            write_order(out, *order);
            out.u64(*since);
        }
        Frame::Farewell { uid, seqno } => {
            out.u64(uid.0);
            out.u64(*seqno);
        }

        Frame::Invite { ballot, members_min } => {
            write_ballot(out, ballot);
            out.u16(*members_min);
        }
        Frame::Level { ballot } | Frame::Prepared { ballot } => write_ballot(out, ballot),
        Frame::Vote(vote) => {
            write_ballot(out, &vote.ballot);
            out.u64(vote.end);
            out.u64(vote.accepted);
            out.flag(vote.lacks_state);
            out.flag(vote.prepared.is_some());
            if let Some((ballot, proposal)) = &vote.prepared {
                write_ballot(out, ballot);
                write_proposal(out, proposal);
            }
            write_early(out, &vote.early);
        }
        Frame::Outbid { promised } => write_ballot(out, promised),
        Frame::Pull { ballot, from, to } => {
            write_ballot(out, ballot);
            out.u64(*from);
            out.u64(*to);
        }
        Frame::Prepare(prepare) => {
            write_ballot(out, &prepare.ballot);
            out.u16(prepare.members_min);
            write_proposal(out, &prepare.proposal);
            write_uids(out, &prepare.before);
            write_uids(out, &prepare.after);
        }
        Frame::Decided { proposal, entered } => {
            out.flag(*entered);
            write_proposal(out, proposal);
        }
        Frame::Inquiry => write_padding(out),
        Frame::Excluded { uid, instance, epoch } => {
            out.u64(uid.0);
            out.u128(instance.0);
            write_epoch(out, epoch);
        }

        Frame::Ask { nonce, room } => {
            let begun = out.written();
            out.u64(*nonce);
            write_room(out, begun, *room);
        }
        Frame::Tell { nonce, report } => {
            out.u64(*nonce);
            out.bytes(report);
        }
        Frame::Force { nonce, challenge, without } => {
            out.u64s([*nonce, *challenge]);
            out.count(without.len(), FORCE_MAX);
            without.iter().for_each(|uid| out.u64(uid.0));
            write_padding(out);
        }
        Frame::Forcing { nonce, answer } => {
            out.u64(*nonce);
            let (number, value) = match answer {
                Forcing::Challenge(challenge) => (1, *challenge),
                Forcing::Begun => (2, 0),
                Forcing::NotHalted => (3, 0),
                Forcing::NoSuchMember(uid) => (4, uid.0),
                Forcing::Answers(uid) => (5, uid.0),
            };
            out.u8(number);
            out.u64(value);
        }

        Frame::Switch { nonce, challenge, order } => {
            out.u64s([*nonce, *challenge]);
            write_order(out, *order);
            write_padding(out);
        }
        Frame::Switching { nonce, answer } => {
            out.u64(*nonce);
            let (number, value) = match answer {
                Switching::Challenge(challenge) => (1, *challenge),
                Switching::Begun => (2, 0),
                Switching::InForce => (3, 0),
                Switching::UnderWay => (4, 0),
                Switching::Resetting => (5, 0),
                Switching::NotMember => (6, 0),
            };
            out.u8(number);
            out.u64(value);
        }

        Frame::Parcel { id, index, count, bytes } => {
            out.u32(*id);
            out.u16(*index);
            out.count(usize::from(*count), PARCELS_MAX);
            out.bytes(bytes);
        }

        Frame::Form { formation, ballot, heard, room } => {
            let begun = out.written();
            out.u64(*formation);
            write_ballot(out, ballot);
            out.u16(*heard);
            write_room(out, begun, *room);
        }
        Frame::FormPromise(promise) => {
            let FormPromise { formation, ballot, name, address, floor, hops, nonce, prepared } = &**promise;
            out.u64(*formation);
            write_ballot(out, ballot);
            write_name(out, name);
            write_address(out, address);
            write_floor(out, *floor);
            out.u8(*hops);
            out.u64(*nonce);
            out.flag(prepared.is_some());
            if let Some((ballot, founding)) = prepared {
                write_ballot(out, ballot);
                write_founding(out, founding);
            }
        }
        Frame::FormRefused { formation, ballot, promised, nonce } => {
            out.u64(*formation);
            write_ballot(out, ballot);
            write_ballot(out, promised);
            out.u64(*nonce);
        }
        Frame::FormEcho { formation, ballot, heard, nonce } => {
            out.u64(*formation);
            write_ballot(out, ballot);
            out.u16(*heard);
            out.u64(*nonce);
        }
        Frame::FormPrepare { formation, ballot, nonce, founding } => {
            out.u64(*formation);
            write_ballot(out, ballot);
            out.u64(*nonce);
            write_founding(out, founding);
        }
        Frame::FormPrepared { formation, ballot } => {
            out.u64(*formation);
            write_ballot(out, ballot);
        }
        Frame::Formed { formation, ballot, founding } => {
            out.u64(*formation);
            write_ballot(out, ballot);
            write_founding(out, founding);
        }

        Frame::LocatePort { .. }
        | Frame::PortHere(_)
        | Frame::PortNotHere { .. }
        | Frame::Request(_)
        | Frame::Reply(_)
        | Frame::Reject { .. }
        | Frame::Forward { .. }
        | Frame::Working { .. }
        | Frame::Part(_)
        | Frame::Got(_)
        | Frame::Done { .. }
        | Frame::Cancel { .. }
        | Frame::Envelope(_)
        | Frame::Unopened(_) => calls::write(out, frame),
    }
}

/// Writes the fields before the count of a run's pieces.
pub(super) fn write_run_head(out: &mut Body<'_>, head: &RunHead) {
    match *head {
        RunHead::Ordered { seqno, sender, first, quality } => {
            out.u64s([seqno, sender.0, first]);
            out.u8(quality.byte());
        }
        RunHead::Data { sender, first, base, method, quality } => {
            out.u64s([sender.0, first, base]);
            out.u8(match method {
                Method::Pb => 1,
                Method::Bb => 2,
                Method::BbStream => 3,
            });
            out.u8(quality.byte());
        }
    }
}

fn read_quality(from: &mut Reader) -> Result<Quality> {
    let byte = from.u8("quality")?;
    Quality::from_byte(byte).ok_or_else(|| from.out_of_range("quality", byte))
}

fn read_method(from: &mut Reader) -> Result<Method> {
    match from.u8("method")? {
        1 => Ok(Method::Pb),
        2 => Ok(Method::Bb),
        3 => Ok(Method::BbStream),
        other => Err(from.out_of_range("method", other)),
    }
}

/// Checks that the last seqno or message number of a run does not exceed the maximum.
fn check_run(from: &Reader, first: u64, count: u16) -> Result<()> {
    // The sum cannot overflow: `first` is at most NUMBER_MAX.
    if first + u64::from(count) - 1 <= NUMBER_MAX { Ok(()) } else { Err(from.out_of_range("count", count)) }
}

fn write_change(out: &mut Body<'_>, change: &Change) {
    match change {
        Change::Join { member, hello } => {
            out.u8(1);
            write_member(out, member);
            write_greeting(out, hello);
        }
        Change::Leave { uid, sequencer, goodbye } => {
            out.u8(2);
            out.u64(uid.0);
            out.u64(sequencer.0);
            write_greeting(out, goodbye);
        }
        Change::Role { sequencer } => {
            out.u8(3);
            out.u64(sequencer.0);
        }
        Change::Order { order, sequencer } => {
            out.u8(4);
            write_order(out, *order);
            out.u64(sequencer.0);
        }
    }
}

fn read_change(from: &mut Reader) -> Result<Change> {
    match from.u8("change")? {
        1 => Ok(Change::Join { member: read_member(from)?, hello: read_greeting(from)? }),
        2 => Ok(Change::Leave {
            uid: read_uid(from)?,
            sequencer: read_uid(from)?,
            goodbye: read_greeting(from)?,
        }),
        3 => Ok(Change::Role { sequencer: read_uid(from)? }),
        4 => Ok(Change::Order { order: read_order(from)?, sequencer: read_uid(from)? }),
        other => Err(from.out_of_range("change", other)),
    }
}

/// Reads ranges that are ascending and do not overlap.
fn read_ranges(from: &mut Reader) -> Result<Vec<(Seqno, Seqno)>> {
    let count = from.count("range count", 1..=NACK_RANGES_MAX, 16)?;
    let mut ranges = Vec::with_capacity(count);
    let mut before = 0;
    for _ in 0..count {
        let first = from.number("from")?;
        if first <= before {
            return Err(from.out_of_range("from", first));
        }
        before = read_to(from, first)?;
        ranges.push((first, before));
    }
    Ok(ranges)
}

/// Reads the last seqno or message number of a range that begins with `first`.
fn read_to(from: &mut Reader, first: u64) -> Result<u64> {
    match from.number("to")? {
        to if to >= first => Ok(to),
        to => Err(from.out_of_range("to", to)),
    }
}

fn condition_number(condition: Condition) -> u8 {
    match condition {
        Condition::Open => 0,
        Condition::Pristine => 1,
        Condition::Halted => 2,
    }
}

fn read_condition(from: &mut Reader) -> Result<Condition> {
    match from.u8("condition")? {
        0 => Ok(Condition::Open),
        1 => Ok(Condition::Pristine),
        2 => Ok(Condition::Halted),
        other => Err(from.out_of_range("condition", u64::from(other))),
    }
}

fn refusal_number(reason: Refusal) -> u8 {
    match reason {
        Refusal::Full => 1,
        Refusal::Name => 2,
        Refusal::NotNow => 3,
        Refusal::Cookie => 4,
        Refusal::Floor => 5,
        Refusal::FloorWithoutVote => 6,
    }
}

fn read_refusal(from: &mut Reader) -> Result<Refusal> {
    match from.u8("reason")? {
        1 => Ok(Refusal::Full),
        2 => Ok(Refusal::Name),
        3 => Ok(Refusal::NotNow),
        4 => Ok(Refusal::Cookie),
        5 => Ok(Refusal::Floor),
        6 => Ok(Refusal::FloorWithoutVote),
        other => Err(from.out_of_range("reason", other)),
    }
}

/// Pads a frame to [`PADDED_BYTES`], or to the room that is left. Refuses a frame of less than [`PADDED_BYTES_MIN`].
pub(super) fn write_padding(out: &mut Body<'_>) {
    let padding = PADDED_BYTES.saturating_sub(out.written()).min(out.room());
    if out.written() + padding < PADDED_BYTES_MIN {
        out.refuse();
    }
    out.zeros(padding);
}

/// Pads the frame whose body began at `begun` to the length that its `room` field states.
fn write_room(out: &mut Body<'_>, begun: usize, room: u32) {
    let written = FRAME_HEAD_BYTES + out.written() - begun;
    if (room as usize) < PADDED_BYTES_MIN.max(written) {
        out.refuse();
    }
    out.zeros((room as usize).saturating_sub(written));
}

/// Checks that a question has its minimum length. To be called before any field is read.
pub(super) fn check_padding(from: &Reader) -> Result<()> {
    match FRAME_HEAD_BYTES + from.left() {
        bytes if bytes >= PADDED_BYTES_MIN => Ok(()),
        bytes => Err(from.error(Fault::Padding(bytes))),
    }
}
