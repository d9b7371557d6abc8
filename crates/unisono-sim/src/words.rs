//! Formats datagrams as text for traces, and finds the kinds of their frames for frame faults.

use crate::frame_faults::FrameSet;
use crate::record::{Life, Names};
use bytes::Bytes;
use std::fmt::{self, Write};
use unisono_core::wire::{
    Attempt, Change, Decoder, Frame, FrameKind, Grant, HEADER_BYTES, Header, Payload, Proposal, TAG_BYTES,
    Writer,
};
use unisono_core::{Ballot, Port, Uid};

/// Returns the kinds of frames in a datagram, as far as it can be decoded.
pub(crate) fn frames(datagram: &[u8]) -> FrameSet {
    let mut set = FrameSet::default();
    decode(datagram).for_each(|frame| {
        set.insert(frame.kind());
        if let Frame::Parcel { index: 0, bytes, .. } = &frame {
            // The first byte of a frame that travels in parcels is its kind.
            if let Some(kind) = bytes.first().and_then(|number| FrameKind::from_number(*number)) {
                set.insert(kind);
            }
        }
    });
    set
}

/// Returns a datagram without the notes of these members, or `None` if it has none of them. In the simulator the tag of a
/// datagram does not depend on its contents.
pub(crate) fn without_notes(datagram: &[u8], of: &[Uid]) -> Option<Vec<u8>> {
    let is_withheld = |frame: &Frame| matches!(frame, Frame::Note { member, .. } if of.contains(member));
    let frames = || Decoder::new(Bytes::copy_from_slice(datagram.get(HEADER_BYTES..).unwrap_or_default()));
    if !frames().map_while(Result::ok).any(|frame| is_withheld(&frame)) {
        return None;
    }
    let mut out = datagram[..HEADER_BYTES].to_vec();
    let mut writer = Writer::new(&mut out, usize::MAX);
    for frame in frames().map_while(Result::ok).filter(|frame| !is_withheld(frame)) {
        writer.frame(&frame);
    }
    Some(out)
}

fn decode(datagram: &[u8]) -> impl Iterator<Item = Frame> {
    let frames = Decoder::new(Bytes::copy_from_slice(datagram.get(HEADER_BYTES..).unwrap_or_default()));
    frames.map_while(Result::ok).flat_map(|frame| match frame {
        // In the simulator nothing is encrypted.
        Frame::Envelope(envelope) => {
            let contents = envelope.sealed.len().saturating_sub(TAG_BYTES);
            let contents = Decoder::new(envelope.sealed.slice(..contents)).map_while(Result::ok);
            let (mut shown, is_opening) =
                (vec![Frame::Envelope(envelope.clone())], envelope.head.opening.is_some());
            shown.truncate(usize::from(is_opening));
            shown.extend(contents);
            shown
        }
        frame => vec![frame],
    })
}

/// Returns the contents of a datagram as text; lives have the numbers that they have in records.
pub(crate) fn datagram(datagram: &[u8], names: &Names) -> String {
    let mut words = String::new();
    match Header::parse(datagram) {
        Ok(header) => {
            let _ = write!(words, "#{} e{:04x}", header.number, header.epoch.0 as u16);
        }
        Err(error) => words.push_str(&error.to_string()),
    }
    for frame in decode(datagram) {
        let _ = write!(words, " | {}", Brief { frame: &frame, names });
    }
    words
}

fn short(port: Port) -> String {
    format!("{:04x}", port.0 as u16)
}

fn grant(grant: Grant) -> String {
    format!("grants {} load {}", grant.slots, grant.load)
}

fn side(is_reply: bool) -> &'static str {
    if is_reply { "reply" } else { "request" }
}

fn payload(payload: &Payload) -> String {
    match payload {
        Payload::Whole(bytes) => format!("({} bytes)", bytes.len()),
        Payload::Parts { total, part } => format!("({total} bytes in parts of {part})"),
        Payload::Omitted => "(again)".to_string(),
    }
}

/// Minimum number of members of the next view; shown as nothing if it is 0.
struct MembersMin(u16);

impl fmt::Display for MembersMin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            min => write!(f, " of {min} or more"),
        }
    }
}

struct Brief<'a> {
    frame: &'a Frame,
    names: &'a Names,
}

impl Brief<'_> {
    fn life(&self, uid: Uid) -> String {
        let mut known = (0..).map_while(|life| self.names.uid(Life(life)));
        known.position(|one| one == uid).map_or_else(|| "?".to_string(), |life| format!("L{life}"))
    }

    /// Returns the receiver, slot and number of an attempt.
    fn attempt(&self, attempt: &Attempt) -> String {
        let Attempt { to, slot, number } = *attempt;
        format!("{}:{slot}.{number}", self.life(to))
    }

    fn lives(&self, uids: &[Uid]) -> String {
        let lives: Vec<String> = uids.iter().map(|uid| self.life(*uid)).collect();
        format!("[{}]", lives.join(" "))
    }

    fn ballot(&self, ballot: &Ballot) -> String {
        format!("{}.{}", ballot.round, self.life(ballot.coordinator))
    }

    fn proposal(&self, proposal: &Proposal) -> String {
        let degraded = if proposal.degraded { " degraded" } else { "" };
        format!("({} from {} {}{degraded})", proposal.epoch, proposal.start, self.lives(&proposal.members))
    }
}

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.frame {
            Frame::Data(data) => {
                let (sender, first, count) = (self.life(data.sender), data.first, data.pieces.len());
                write!(f, "Data {sender} {first}..+{count} base {} {:?}", data.base, data.method)
            }
            Frame::Ordered(run) => {
                write!(
                    f,
                    "Ordered {}..+{} = {} {}",
                    run.seqno,
                    run.pieces.len(),
                    self.life(run.sender),
                    run.first
                )
            }
            Frame::Numbers(run) => {
                write!(f, "Numbers {}..+{} = {} {}", run.seqno, run.count, self.life(run.sender), run.first)
            }
            Frame::Change { seqno, change: Change::Join { member, .. } } => {
                write!(f, "Change {seqno} JOIN {}", self.life(member.uid))
            }
            Frame::Change { seqno, change: Change::Leave { uid, sequencer, .. } } => {
                write!(f, "Change {seqno} LEAVE {} sequencer {}", self.life(*uid), self.life(*sequencer))
            }
            Frame::Change { seqno, change: Change::Role { sequencer } } => {
                write!(f, "Change {seqno} ROLE {}", self.life(*sequencer))
            }
            Frame::Change { seqno, change: Change::Order { order, sequencer } } => {
                write!(f, "Change {seqno} ORDER {order:?} sequencer {}", self.life(*sequencer))
            }
            Frame::Heartbeat(beat) => {
                let acting = if beat.acting { "" } else { " (not acting)" };
                write!(
                    f,
                    "Heartbeat{acting} term {} end {} accepted {} ",
                    beat.term, beat.end, beat.accepted
                )?;
                write!(f, "stable {} stamp {}", beat.stable, beat.stamp)
            }
            Frame::Watermarks(marks) => {
                write!(f, "Watermarks {}/{}/{} ", marks.received, marks.accepted, marks.delivered)?;
                write!(f, "stamp {}", marks.stamp)
            }
            Frame::Invite { ballot, members_min } => {
                write!(f, "Invite {}{}", self.ballot(ballot), MembersMin(*members_min))
            }
            Frame::Vote(vote) => {
                write!(f, "Vote {} end {} accepted {}", self.ballot(&vote.ballot), vote.end, vote.accepted)?;
                if vote.lacks_state {
                    f.write_str(" lacks the state")?;
                }
                match &vote.prepared {
                    Some((ballot, proposal)) => {
                        write!(f, " prepared {} {}", self.ballot(ballot), self.proposal(proposal))
                    }
                    None => Ok(()),
                }
            }
            Frame::Outbid { promised } => write!(f, "Outbid {}", self.ballot(promised)),
            Frame::Pull { ballot, from, to } => write!(f, "Pull {} {from}..={to}", self.ballot(ballot)),
            Frame::Level { ballot } => write!(f, "Level {}", self.ballot(ballot)),
            Frame::Prepare(prepare) => {
                write!(f, "Prepare {} {} ", self.ballot(&prepare.ballot), self.proposal(&prepare.proposal))?;
                write!(f, "before {} after {}", self.lives(&prepare.before), self.lives(&prepare.after))?;
                write!(f, "{}", MembersMin(prepare.members_min))
            }
            Frame::Prepared { ballot } => write!(f, "Prepared {}", self.ballot(ballot)),
            Frame::Decided { proposal, entered } => {
                write!(f, "Decided {}{}", self.proposal(proposal), if *entered { " entered" } else { "" })
            }
            Frame::Welcome(welcome) => {
                let members: Vec<Uid> = welcome.base.members.iter().map(|member| member.uid).collect();
                write!(
                    f,
                    "Welcome {} log from {} {}",
                    welcome.epoch,
                    welcome.base.seqno,
                    self.lives(&members)
                )
            }
            Frame::LocatePort { port, nonce, .. } => write!(f, "LocatePort {} nonce {nonce:x}", short(*port)),
            Frame::PortHere(here) => {
                let grant = grant(here.grant);
                write!(
                    f,
                    "PortHere {} instance {:x} nonce {:x} {grant} cookie {:x}",
                    short(here.port),
                    here.instance,
                    here.nonce,
                    here.cookie.seal
                )
            }
            Frame::PortNotHere { port, nonce, .. } => {
                write!(f, "PortNotHere {} nonce {nonce:x}", short(*port))
            }
            Frame::Request(request) => {
                let (attempt, port) = (self.attempt(&request.attempt), short(request.port));
                write!(f, "Request {attempt} call {:x} port {port} ", request.call)?;
                write!(f, "instance {:x} hops {} ", request.instance, request.hops)?;
                write!(f, "left {} ms {}", request.left_ms, payload(&request.payload))
            }
            Frame::Reply(reply) => {
                let (attempt, grant) = (self.attempt(&reply.attempt), grant(reply.grant));
                let refused = if reply.refused { "refused " } else { "" };
                write!(f, "Reply {attempt} {grant} {refused}{}", payload(&reply.payload))
            }
            Frame::Reject { attempt, grant: granted, reason } => {
                write!(f, "Reject {} {} {reason:?}", self.attempt(attempt), grant(*granted))
            }
            Frame::Forward { attempt, grant: granted, to } => {
                write!(f, "Forward {} {} to {to}", self.attempt(attempt), grant(*granted))
            }
            Frame::Working { attempt, grant: granted } => {
                write!(f, "Working {} {}", self.attempt(attempt), grant(*granted))
            }
            Frame::Part(part) => {
                write!(f, "Part {} {} of the {}", self.attempt(&part.attempt), part.index, side(part.reply))
            }
            Frame::Got(got) => {
                write!(f, "Got {} {} of the {}", self.attempt(&got.attempt), got.through, side(got.reply))
            }
            Frame::Done { to, finished_below, attempts } => {
                write!(f, "Done {} below {finished_below:x} {attempts:?}", self.life(*to))
            }
            Frame::Cancel { attempt } => write!(f, "Cancel {}", self.attempt(attempt)),
            Frame::Envelope(envelope) => {
                let seal = envelope.head.opening.map_or(0, |opening| opening.cookie.seal);
                write!(f, "Envelope cookie {seal:x}")
            }
            Frame::Unopened(unopened) => {
                write!(f, "Unopened #{} {:?}", unopened.number, unopened.reason)
            }
            Frame::Parcel { id, index, count, .. } => write!(f, "Parcel {id} {}/{count}", index + 1),
            other => write!(f, "{other:?}"),
        }
    }
}
