//! Datagrams as text, for people who look at the wire.
//!
//! The `Display` of a frame is one line. [`Explainer`] describes a whole datagram line by line, and says what is wrong
//! with a bad one. The text is safe to print whatever the datagram contains: bytes and names are escaped.

use super::calls::{Grant, Part, Payload, PublicKey, Rejection, Reply, Unopened, Unreadable, Wishes};
use super::codec::Decoder;
use super::envelope::Opening;
use super::frame::*;
use super::header::{HEADER_BYTES, Header, open};
use super::protection::{Checksum, KeyContext, Protection, ProtectionKind, TAG_BYTES};
use super::report::decode_report;
use crate::config::{Floor, GroupConfig, Migration, Order, Quorum, SlowMember};
use crate::identity::{Ballot, EpochTag, Instance, Member, Uid};
use crate::look::Report;
use crate::quality::Quality;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use core::fmt;

/// Maximum number of bytes of a message or greeting that are shown.
const SHOWN_BYTES: usize = 64;
/// Maximum number of foundings that an [`Explainer`] remembers.
const INSTANCES_MAX: usize = 64;

/// Describes one datagram, without a key. See [`Explainer::explain`].
pub fn explain(datagram: &[u8]) -> String {
    Explainer::default().explain(datagram)
}

/// Describes the datagrams of a recording.
#[derive(Default)]
pub struct Explainer {
    protection: Option<Box<dyn Protection>>,
    /// The foundings learnt so far, the latest first. A sealed datagram cannot be opened without its founding.
    instances: Vec<Instance>,
}

impl Explainer {
    /// Returns an explainer that opens sealed datagrams with `protection`.
    pub fn with_key(protection: Box<dyn Protection>) -> Explainer {
        Explainer { protection: Some(protection), instances: Vec::new() }
    }

    /// Adds a founding that datagrams may belong to. The explainer adds those named in the datagrams that it explains.
    pub fn add_instance(&mut self, instance: Instance) {
        if !self.instances.contains(&instance) {
            self.instances.insert(0, instance);
            self.instances.truncate(INSTANCES_MAX);
        }
    }

    /// Describes the datagram line by line: its header, whether its tag fits, and each of its frames up to the first
    /// that cannot be read.
    pub fn explain(&mut self, datagram: &[u8]) -> String {
        let mut lines = Lines::default();
        lines.add(format_args!("datagram of {}", Size(datagram.len())));
        let header = match Header::parse(datagram) {
            Ok(header) => header,
            Err(error) => {
                lines.add(format_args!("cannot be read: {error}"));
                return lines.text;
            }
        };
        let epoch = match header.epoch {
            EpochTag::OUTSIDE => "outside of any epoch".to_string(),
            EpochTag(tag) => format!("epoch {tag:016x}"),
        };
        lines.add(format_args!(
            "header: group {:016x}, {epoch}, from {}, number {}",
            header.group.0, header.sender, header.number
        ));
        let payload = match header.protection {
            ProtectionKind::Checksum => Some(check(&mut lines, datagram, &header)),
            ProtectionKind::Sealed => self.unseal(&mut lines, datagram, &header),
        };
        if let Some(payload) = payload {
            self.frames(&mut lines, payload);
        }
        lines.text
    }

    fn unseal(&mut self, lines: &mut Lines, datagram: &[u8], header: &Header) -> Option<Bytes> {
        let sealed = Size(datagram.len() - HEADER_BYTES);
        let Some(protection) = &mut self.protection else {
            lines.add(format_args!("tag: sealed; {sealed} cannot be read without the key"));
            return None;
        };
        for instance in self.instances.iter().copied().chain([Instance::default()]) {
            let context = KeyContext { instance, sender: header.sender, salt: header.salt };
            let opened = open(BytesMut::from(datagram), header, &context, protection.as_mut());
            if opened.is_some() {
                lines.add(format_args!("tag: sealed, and genuine"));
                return opened;
            }
        }
        lines.add(format_args!(
            "tag: sealed; {sealed} do not open: another key, a founding that no earlier datagram named, or changed \
             on the way"
        ));
        None
    }

    fn frames(&mut self, lines: &mut Lines, payload: Bytes) {
        let mut decoder = Decoder::new(payload);
        loop {
            let offset = HEADER_BYTES + decoder.position();
            match decoder.next() {
                None => return,
                Some(Ok(frame)) => {
                    lines.add(format_args!("byte {offset}: {frame}"));
                    details(lines, &frame);
                    match frame {
                        Frame::HereIs(here) => self.add_instance(here.instance),
                        Frame::Met(met) => self.add_instance(met.instance),
                        Frame::Welcome(welcome) => self.add_instance(welcome.instance),
                        Frame::FormPrepare { founding, .. } | Frame::Formed { founding, .. } => {
                            self.add_instance(founding.instance);
                        }
                        _ => {}
                    }
                }
                Some(Err(error)) => {
                    let kind = error.kind.map_or("unknown", |kind| kind.name());
                    let at = HEADER_BYTES + error.offset;
                    lines.add(format_args!("byte {offset}: bad frame ({kind}): byte {at}: {}", error.fault));
                }
            }
        }
    }
}

/// Reports whether the checksum fits. Returns the frames in either case: to show a damaged frame does no harm.
fn check(lines: &mut Lines, datagram: &[u8], header: &Header) -> Bytes {
    let context = KeyContext { instance: Instance::default(), sender: header.sender, salt: header.salt };
    match open(BytesMut::from(datagram), header, &context, &mut Checksum) {
        Some(payload) => {
            lines.add(format_args!("tag: a checksum, which fits; unauthenticated"));
            payload
        }
        None => {
            lines.add(format_args!("tag: a checksum, which does not fit: changed on the way, or cut off"));
            Bytes::copy_from_slice(&datagram[HEADER_BYTES..])
        }
    }
}

/// Adds the parts of a frame that do not fit its line: one line each.
fn details(lines: &mut Lines, frame: &Frame) {
    match frame {
        Frame::Data(Data { pieces, .. }) | Frame::Ordered(Ordered { pieces, .. }) => {
            for piece in pieces {
                let more = if piece.more { ", continued by the next" } else { "" };
                let size = Size(piece.bytes.len());
                lines.add(format_args!("    {size}{more}: {}", Shown(&piece.bytes)));
            }
        }
        Frame::Welcome(welcome) => {
            lines.add(format_args!("    {}", Config(&welcome.config)));
            let LogBase { seqno, members, term, order, last_numbers } = &welcome.base;
            lines.add(format_args!("    after seqno {seqno}, sequencer {} since seqno {}", term.1, term.0));
            lines.add(format_args!("    {} since seqno {}", order_words(order.1), order.0));
            members.iter().for_each(|member| lines.add(format_args!("    member {}", Who(member))));
            for (uid, number) in last_numbers {
                lines.add(format_args!("    the last numbered message of {uid} is {number}"));
            }
        }
        Frame::FormPromise(promise) => {
            if let Some((_, founding)) = &promise.prepared {
                found(lines, founding);
            }
        }
        Frame::FormPrepare { founding, .. } | Frame::Formed { founding, .. } => found(lines, founding),
        Frame::Tell { report, .. } => match decode_report(report) {
            Ok(report) => tell(lines, &report),
            Err(error) => lines.add(format_args!("    bad report: byte {}: {}", error.offset, error.fault)),
        },
        _ => {}
    }
}

fn found(lines: &mut Lines, founding: &Founding) {
    lines.add(format_args!("    {}", Config(&founding.config)));
    founding.members.iter().for_each(|member| lines.add(format_args!("    member {}", Who(member))));
}

fn tell(lines: &mut Lines, report: &Report) {
    let primary = if report.primary { "" } else { ", not in the primary line of views" };
    lines.add(format_args!(
        "    epoch {}{primary}; sequencer {} since seqno {}; resilience {}",
        report.epoch, report.sequencer, report.term, report.resilience
    ));
    lines.add(format_args!(
        "    {}",
        Progress { end: report.end, accepted: report.accepted, stable: report.stable }
    ));
    lines.add(format_args!(
        "    {} entries in its history, {} of at most {} messages of its own under way; in this epoch for {:?}",
        report.buffered, report.under_way, report.window, report.in_epoch
    ));
    if let Some(reset) = report.last_reset {
        lines.add(format_args!("    last reset {reset}"));
    }
    for member in &report.members {
        let suspected = if member.suspected { ", suspected" } else { "" };
        let multicast = if member.multicast { ", by multicast" } else { "" };
        lines.add(format_args!(
            "    member {}: contiguous through {}, delivered through {}, silent for {:?}{multicast}{suspected}",
            Who(&member.member),
            member.received,
            member.delivered,
            member.silent
        ));
    }
    for waiting in &report.waiting {
        let member = waiting.member.map(|uid| format!(" of {uid}")).unwrap_or_default();
        lines.add(format_args!(
            "    {} waits for {:?}{member} at seqno {}, for {:?}",
            waiting.who, waiting.reason, waiting.seqno, waiting.since
        ));
    }
    if (report.members_omitted, report.waiting_omitted) != (0, 0) {
        lines.add(format_args!(
            "    left out: {} members, {} waits",
            report.members_omitted, report.waiting_omitted
        ));
    }
}

/// A frame in one line: its kind, and its content.
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self {
            Frame::Data(data) => {
                let method = match data.method {
                    Method::Pb => "PB",
                    Method::Bb => "BB",
                    Method::BbStream => "BB, in a stream",
                };
                write!(
                    f,
                    "{} of {} by {method}, {}; the epoch's first is {}",
                    Span("message", data.first, data.pieces.len()),
                    data.sender,
                    data.quality,
                    data.base
                )
            }
            Frame::Ordered(Ordered { seqno, sender, first, quality, pieces }) => {
                fmt_ordered(f, *seqno, *sender, *first, pieces.len(), *quality)
            }
            Frame::Numbers(Numbers { seqno, sender, first, quality, count }) => {
                fmt_ordered(f, *seqno, *sender, *first, usize::from(*count), *quality)
            }
            Frame::Change { seqno, change } => {
                write!(f, "seqno {seqno}: ")?;
                match change {
                    Change::Join { member, hello } => {
                        write!(f, "{} joins, saying {}", Who(member), Shown(hello))
                    }
                    Change::Leave { uid, sequencer, goodbye } => {
                        write!(
                            f,
                            "{uid} leaves, saying {}; sequencer {sequencer} from here on",
                            Shown(goodbye)
                        )
                    }
                    Change::Role { sequencer } => write!(f, "sequencer {sequencer} from here on"),
                    Change::Order { order, sequencer } => {
                        write!(f, "{} from here on, sequencer {sequencer}", order_words(*order))
                    }
                }
            }
            Frame::Heartbeat(heartbeat) => {
                let Heartbeat { term, acting, end, accepted, stable, stamp, multicast, asks, late_ms } =
                    *heartbeat;
                write!(
                    f,
                    "stamp {stamp}, term {term}, {}; {}; {}{}{}",
                    if acting { "from the sequencer" } else { "from a predecessor or a witness" },
                    Progress { end, accepted, stable },
                    if multicast { "all members hear multicasts" } else { "not all members hear multicasts" },
                    if asks { "; asks for watermarks" } else { "" },
                    Late(late_ms)
                )
            }
            Frame::Watermarks(marks) => write!(
                f,
                "contiguous through {}, accepted through {}, delivered through {}; last stamp {}, {}{}",
                marks.received,
                marks.accepted,
                marks.delivered,
                marks.stamp,
                if marks.hears_multicast { "hears multicasts" } else { "hears no multicasts" },
                Late(marks.late_ms)
            ),
            Frame::Nack { ranges } => {
                f.write_str("lacks")?;
                for (index, (from, to)) in ranges.iter().enumerate() {
                    write!(f, "{} {}", if index == 0 { "" } else { "," }, Between("seqno", *from, *to))?;
                }
                Ok(())
            }
            Frame::Want { from, to } => {
                write!(f, "the sequencer lacks {} of the receiver", Between("message", *from, *to))
            }
            Frame::Gone { through } => {
                write!(f, "every member held everything through seqno {through}; it is not kept any more")
            }
            Frame::Unreliable { number, payload } => {
                write!(f, "message {number} of this kind, {}", Shown(payload))
            }

            Frame::Note { member, number, note } => {
                write!(f, "note {number} of member {member}, {}", Shown(note))
            }

            Frame::Probe { nonce } => write!(f, "are you there? {nonce:016x}"),
            Frame::Alive { nonce } => write!(f, "I am here: {nonce:016x}"),
            Frame::Confirm { nonce } => write!(f, "are you in this epoch, and how far? {nonce:016x}"),
            Frame::Confirmed { nonce, end } => {
                write!(f, "in this epoch, with a log through seqno {end}: {nonce:016x}")
            }

            Frame::Locate { nonce } => write!(f, "where is this group? {nonce:016x}"),
            Frame::HereIs(here) => write!(
                f,
                "{:016x}: the sequencer is at {}, cookie {:016x}; founding {:032x}, {} resets, {} members, {} events ordered{}",
                here.nonce,
                here.sequencer,
                here.cookie,
                here.instance.0,
                here.epoch_counter,
                here.members,
                here.ordered,
                match here.condition {
                    Condition::Open => "",
                    Condition::Pristine => ", nothing ordered yet",
                    Condition::Halted => ", halted",
                }
            ),
            Frame::Met(met) => write!(
                f,
                "another group, founding {:032x}, has a member at {}; it had {} events ordered, the receiver's {}; {} group \
                 is to give way, {}, cookie {:016x}",
                met.instance.0,
                met.address,
                met.ordered,
                met.ordered_here,
                if met.gives_way { "the receiver's" } else { "that" },
                if met.from_other { "says that group" } else { "says the receiver's group" },
                met.cookie,
            ),
            Frame::JoinRequest { cookie, name, floor, hops, hello } => {
                let (name, floor) = (name.as_str(), Wanted(*floor, *hops));
                write!(f, "{name:?} asks to join{floor}, cookie {cookie:016x}, saying {}", Shown(hello))
            }
            Frame::Welcome(welcome) => write!(
                f,
                "cookie {:016x}; founding {:032x}, epoch {} since seqno {}",
                welcome.cookie, welcome.instance.0, welcome.epoch, welcome.epoch_start
            ),
            Frame::Refused { cookie, reason } => {
                let reason = match reason {
                    Refusal::Full => "the group is full",
                    Refusal::Name => "the name is taken, or not on the fixed list",
                    Refusal::NotNow => "not now",
                    Refusal::Cookie => "the cookie is stale",
                    Refusal::Floor => "the group allows fewer members than the floor",
                    Refusal::FloorWithoutVote => "a member without a vote asks for no floor",
                };
                write!(f, "cookie {cookie:016x}: {reason}")
            }
            Frame::SwitchRequest { order, since } => {
                write!(f, "asks for another order than that since seqno {since}: {}", order_words(*order))
            }
            Frame::LeaveRequest { unnumbered_through: 0, goodbye } => {
                write!(f, "asks to leave, saying {}", Shown(goodbye))
            }
            Frame::LeaveRequest { unnumbered_through, goodbye } => {
                let said = Shown(goodbye);
                write!(
                    f,
                    "asks to leave after message {unnumbered_through}, which has no seqno yet, saying {said}"
                )
            }
            Frame::Farewell { uid, seqno } => {
                write!(f, "the group does not need {uid} any more, since seqno {seqno}")
            }

            Frame::Invite { ballot, members_min } => {
                write!(f, "asks for a promise of {}{}", Attempt(ballot), Minimum(*members_min))
            }
            Frame::Vote(vote) => {
                write!(
                    f,
                    "promises {}; log ends at {}, accepted through {}; ",
                    Attempt(&vote.ballot),
                    vote.end,
                    vote.accepted
                )?;
                if vote.lacks_state {
                    f.write_str("lacks the state; ")?;
                }
                match &vote.prepared {
                    Some((ballot, proposal)) => {
                        write!(f, "prepared under {}: {}", Attempt(ballot), Next(proposal))
                    }
                    None => f.write_str("prepared nothing"),
                }?;
                match vote.early.len() {
                    0 => Ok(()),
                    count => write!(f, "; delivered {}", EarlyMessages(count)),
                }
            }
            Frame::Outbid { promised } => write!(f, "has promised {}", Attempt(promised)),
            Frame::Pull { ballot, from, to } => {
                write!(f, "send {} under {}", Between("seqno", *from, *to), Attempt(ballot))
            }
            Frame::Level { ballot } => {
                write!(f, "the entries in this datagram are taken under {}", Attempt(ballot))
            }
            Frame::Prepare(prepare) => {
                write!(f, "under {}: {}; ", Attempt(&prepare.ballot), Next(&prepare.proposal))?;
                write!(f, "view before {}, after {}", Uids(&prepare.before), Uids(&prepare.after))?;
                write!(f, "{}", Minimum(prepare.members_min))
            }
            Frame::Prepared { ballot } => write!(f, "prepared under {}", Attempt(ballot)),
            Frame::Decided { proposal, entered } => {
                let entered = if *entered { "a quorum has entered" } else { "a quorum has not entered yet" };
                write!(f, "{}; {entered}", Next(proposal))
            }
            Frame::Inquiry => f.write_str("what became of this epoch?"),
            Frame::Excluded { uid, instance, epoch } => {
                write!(
                    f,
                    "that epoch is over; epoch {epoch} of founding {:032x} does not contain {uid}",
                    instance.0
                )
            }

            Frame::Ask { nonce, .. } => write!(f, "asks for a report: {nonce:016x}"),
            Frame::Tell { nonce, report } => {
                write!(f, "{nonce:016x}: a report of {}", Size(report.len()))
            }

            Frame::Force { nonce, challenge: 0, without } => {
                write!(f, "asks for a challenge to go on without {}: {nonce:016x}", Uids(without))
            }
            Frame::Force { nonce, challenge, without } => {
                write!(f, "go on without {}, challenge {challenge:016x}: {nonce:016x}", Uids(without))
            }
            Frame::Forcing { nonce, answer } => {
                write!(f, "{nonce:016x}: ")?;
                match answer {
                    Forcing::Challenge(challenge) => write!(f, "ask again with challenge {challenge:016x}"),
                    Forcing::Begun => f.write_str("the forced reset has begun"),
                    Forcing::NotHalted => f.write_str("the group is not halted here"),
                    Forcing::NoSuchMember(uid) => write!(f, "{uid} is not in the view"),
                    Forcing::Answers(uid) => write!(f, "{uid} answers"),
                }
            }

            Frame::Switch { nonce, challenge: 0, order } => {
                write!(f, "asks for a challenge to change the order: {}: {nonce:016x}", order_words(*order))
            }
            Frame::Switch { nonce, challenge, order } => {
                let order = order_words(*order);
                write!(f, "change the order: {order}, challenge {challenge:016x}: {nonce:016x}")
            }
            Frame::Switching { nonce, answer } => {
                write!(f, "{nonce:016x}: ")?;
                f.write_str(match answer {
                    Switching::Challenge(challenge) => {
                        return write!(f, "ask again with challenge {challenge:016x}");
                    }
                    Switching::Begun => "the sequencer is asked for that order",
                    Switching::InForce => "the group is ordered so already",
                    Switching::UnderWay => "another change of the order is under way",
                    Switching::Resetting => "the group is being reset",
                    Switching::NotMember => "this process has left the group",
                })
            }

            Frame::Parcel { id, index, count, bytes } => {
                write!(f, "part {} of {count} of frame {id}, {}", index + 1, Size(bytes.len()))
            }

            Frame::Form { formation, ballot, heard, .. } => {
                write!(f, "{formation:016x}: {}", Asks(ballot, *heard))
            }
            Frame::FormEcho { formation, ballot, heard, nonce } => {
                write!(f, "{formation:016x}: shows nonce {nonce:016x} and {}", Asks(ballot, *heard))
            }
            Frame::FormPromise(promise) => {
                let (name, ballot) = (promise.name.as_str(), Attempt(&promise.ballot));
                let (formation, address, nonce) = (promise.formation, promise.address, promise.nonce);
                let floor = Wanted(promise.floor, promise.hops);
                write!(f, "{formation:016x}: {name:?} at {address}{floor} promises {ballot}, ")?;
                write!(f, "nonce {nonce:016x}; ")?;
                match &promise.prepared {
                    Some((ballot, founding)) => {
                        write!(f, "prepared under {}: {}", Attempt(ballot), First(founding))
                    }
                    None => f.write_str("prepared nothing"),
                }
            }
            Frame::FormRefused { formation, ballot, promised, nonce } => {
                let (ballot, promised) = (Attempt(ballot), Attempt(promised));
                write!(f, "{formation:016x}: not {ballot}: has promised {promised}, nonce {nonce:016x}")
            }
            Frame::FormPrepare { formation, ballot, nonce, founding } => {
                let (ballot, first) = (Attempt(ballot), First(founding));
                write!(f, "{formation:016x}: under {ballot}, nonce {nonce:016x}: {first}")
            }
            Frame::FormPrepared { formation, ballot } => {
                write!(f, "{formation:016x}: prepared under {}", Attempt(ballot))
            }
            Frame::Formed { formation, ballot, founding } => {
                write!(f, "{formation:016x}: {}; under {}", First(founding), Attempt(ballot))
            }

            Frame::LocatePort { nonce, port, key } => {
                write!(f, "who serves {:032x}? {nonce:016x}, key {}", port.0, Begins(key))
            }
            Frame::PortHere(here) => write!(
                f,
                "{:016x}: I serve {:032x}, {}, key {}, cookie {:016x} of {}, {}{}",
                here.nonce,
                here.port.0,
                Of(here.instance),
                Begins(&here.key),
                here.cookie.seal,
                here.cookie.issued,
                Granted(here.grant),
                if here.repeats { "; repeats are recognised" } else { "" }
            ),
            Frame::PortNotHere { nonce, port, address } => {
                write!(f, "{nonce:016x}: {address} does not serve {:032x}", port.0)
            }
            Frame::Request(request) => write!(
                f,
                "{}: call {} (finished below {}) of {:032x}, {}, hops {}{}{}, {} ms left: {}",
                In(request.attempt),
                request.call,
                request.finished_below,
                request.port.0,
                Of(request.instance),
                request.hops,
                if request.again { ", again" } else { "" },
                Wished(request.wishes.as_deref()),
                request.left_ms,
                Load(&request.payload)
            ),
            Frame::Reply(Reply { attempt, grant, refused, payload }) => {
                let answered = if *refused { "refused" } else { "answered" };
                write!(f, "{}, {}: {answered} with {}", In(*attempt), Granted(*grant), Load(payload))
            }
            Frame::Reject { attempt, grant, reason } => {
                write!(f, "{}, {}: ", In(*attempt), Granted(*grant))?;
                match reason {
                    Rejection::NotServed => f.write_str("not served here, never executed"),
                    Rejection::Busy => f.write_str("the server is busy, never executed"),
                    Rejection::Expired => f.write_str("too late, never executed"),
                    Rejection::Cancelled => f.write_str("cancelled, never executed"),
                    Rejection::Lost => f.write_str("the reply is not kept any more"),
                    Rejection::ShowCookie(cookie) => {
                        write!(f, "of no session; return cookie {:016x} of {}", cookie.seal, cookie.issued)
                    }
                }
            }
            Frame::Forward { attempt, grant, to } => {
                write!(f, "{}, {}: ask {to}; never executed here", In(*attempt), Granted(*grant))
            }
            Frame::Working { attempt, grant } => {
                write!(f, "{}, {}: in progress", In(*attempt), Granted(*grant))
            }
            Frame::Part(Part { attempt, reply, index, bytes }) => {
                let whole = if *reply { "reply" } else { "request" };
                write!(f, "{}: part {index} of the {whole}, {}", In(*attempt), Size(bytes.len()))
            }
            Frame::Got(got) => {
                let beyond: u32 = got.beyond.iter().map(|word| word.count_ones()).sum();
                let whole = if got.reply { "reply" } else { "request" };
                let (attempt, through) = (In(got.attempt), got.through);
                write!(f, "{attempt}: has {through} parts of the {whole}, and {beyond} beyond a gap")
            }
            Frame::Done { to, finished_below, attempts } => {
                write!(f, "to {to}: finished below {finished_below}")?;
                for (index, (slot, number)) in attempts.iter().enumerate() {
                    let comma = if index == 0 { "; has the replies to" } else { "," };
                    write!(f, "{comma} attempt {number} in slot {slot}")?;
                }
                Ok(())
            }
            Frame::Cancel { attempt } => write!(f, "{}: given up", In(*attempt)),
            Frame::Envelope(envelope) => {
                let head = &envelope.head;
                let side = if head.from_server { "client" } else { "server" };
                write!(f, "to {side} {}, salt {:016x}", head.to, head.salt)?;
                if let Some(Opening { cookie, key }) = &head.opening {
                    let key = Begins(key);
                    write!(f, ", key {key}, cookie {:016x} of {}", cookie.seal, cookie.issued)?;
                }
                let size = Size(envelope.sealed.len().saturating_sub(TAG_BYTES));
                write!(f, ": {size}, which only these two lives can read")
            }
            Frame::Unopened(Unopened { binding, number, reason }) => {
                write!(f, "datagram {number}, binding {binding:016x}: ")?;
                match reason {
                    Unreadable::ShowCookie(cookie) => {
                        write!(f, "no session; return cookie {:016x} of {}", cookie.seal, cookie.issued)
                    }
                    Unreadable::OtherLife { age_ms } => write!(f, "another life is here, {age_ms} ms old"),
                    Unreadable::Busy => f.write_str("no room for another session"),
                }
            }
        }
    }
}

/// What a coordinator asks for, and how many participants it hears.
struct Asks<'a>(&'a Ballot, u16);

impl fmt::Display for Asks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ballot, heard) = (Attempt(self.0), self.1);
        let participants = if heard == 1 { "participant" } else { "participants" };
        write!(f, "asks for a promise of {ballot}, which hears {heard} {participants}")
    }
}

/// The first bytes of a key, which are enough to tell it from others.
struct Begins<'a>(&'a PublicKey);

impl fmt::Display for Begins<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn fmt_ordered(
    f: &mut fmt::Formatter<'_>,
    seqno: u64,
    sender: Uid,
    first: u64,
    count: usize,
    quality: Quality,
) -> fmt::Result {
    let (seqnos, messages) = (Span("seqno", seqno, count), Span("message", first, count));
    let verb = if count == 1 { "is" } else { "are" };
    write!(f, "{seqnos} {verb} {messages} of {sender}, {quality}")
}

/// Text that grows by lines.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(&mut self.text, line);
        self.text.push('\n');
    }
}

/// A number of bytes.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// A noun, the first number of a range, and the count of its numbers.
struct Span(&'static str, u64, usize);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Between(self.0, self.1, self.1.saturating_add(self.2 as u64).saturating_sub(1)).fmt(f)
    }
}

/// The name of an attempt at a call.
struct In(super::calls::Attempt);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let super::calls::Attempt { to, slot, number } = self.0;
        write!(f, "to {to}, attempt {number} in slot {slot}")
    }
}

struct Granted(Grant);

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots, load {}", self.0.slots, self.0.load)
    }
}

/// The instance of a service.
struct Of(u64);

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("of no instance"),
            instance => write!(f, "instance {instance:016x}"),
        }
    }
}

/// What a caller asks beside the request.
struct Wished<'a>(Option<&'a Wishes>);

impl fmt::Display for Wished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(wishes) = self.0 else { return Ok(()) };
        if let Some(handler) = &wishes.handler {
            write!(f, ", for handler {}", Shown(handler.as_bytes()))?;
        }
        match wishes.quality {
            Quality::ORDERED => Ok(()),
            quality => write!(f, ", quality {quality}"),
        }
    }
}

/// The payload of a request or reply.
struct Load<'a>(&'a Payload);

impl fmt::Display for Load<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Payload::Whole(bytes) => write!(f, "{} {}", Size(bytes.len()), Shown(bytes)),
            Payload::Parts { total, part } => write!(f, "{} in parts of {part}", Size(*total as usize)),
            Payload::Omitted => f.write_str("payload omitted"),
        }
    }
}

/// How late the sender's timers fired, if they did.
struct Late(u8);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            ms => write!(f, "; timers late by {ms} ms"),
        }
    }
}

/// A noun, and the first and last number of a range.
struct Between(&'static str, u64, u64);

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Between(what, first, last) = self;
        if first == last { write!(f, "{what} {first}") } else { write!(f, "{what}s {first} to {last}") }
    }
}

/// How far the order has come.
struct Progress {
    end: u64,
    accepted: u64,
    stable: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { end, accepted, stable } = self;
        write!(f, "numbered through {end}, accepted through {accepted}, stable through {stable}")
    }
}

/// The beginning of some bytes: text as text, the rest escaped.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        f.write_str("\"")?;
        for chunk in shown.utf8_chunks() {
            write!(f, "{}{}", chunk.valid().escape_debug(), chunk.invalid().escape_ascii())?;
        }
        f.write_str(if shown.len() < self.0.len() { "\"…" } else { "\"" })
    }
}

struct Who<'a>(&'a Member);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { uid, name, address, floor, hops } = self.0;
        write!(f, "{:?} ({uid}) at {address}{}", name.as_str(), Wanted(*floor, *hops))
    }
}

/// Words about a member that asks for a floor, or for multicasts beyond its segment; none about another.
struct Wanted(Floor, u8);

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wanted(floor, hops) = *self;
        if floor != Floor::None {
            write!(f, " with floor {floor}")?;
        }
        if hops != Member::HOPS_DEFAULT {
            write!(f, " with hops {hops}")?;
        }
        Ok(())
    }
}

struct Uids<'a>(&'a [Uid]);

impl fmt::Display for Uids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, uid) in self.0.iter().enumerate() {
            write!(f, "{}{uid}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

struct Attempt<'a>(&'a Ballot);

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ballot {} of {}", self.0.round, self.0.coordinator)
    }
}

/// Minimum number of members after a reset, if one was set.
struct Minimum(u16);

impl fmt::Display for Minimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            min => write!(f, "; at least {min} members"),
        }
    }
}

/// A number of messages that were delivered early.
struct EarlyMessages(usize);

impl fmt::Display for EarlyMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} early {}", self.0, if self.0 == 1 { "message" } else { "messages" })
    }
}

struct Next<'a>(&'a Proposal);

impl fmt::Display for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proposal { epoch, start, members, degraded, forced, tail } = self.0;
        write!(f, "epoch {epoch} begins at seqno {start} with {}", Uids(members))?;
        f.write_str(if *degraded { ", degraded" } else { "" })?;
        f.write_str(if *forced { ", forced" } else { "" })?;
        match tail.len() {
            0 => Ok(()),
            count => write!(f, ", after {}", EarlyMessages(count)),
        }
    }
}

struct First<'a>(&'a Founding);

impl fmt::Display for First<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Founding { instance, epoch, members, .. } = self.0;
        let uids: Vec<Uid> = members.iter().map(|member| member.uid).collect();
        write!(f, "founding {:032x}, epoch {epoch}, begins with {}", instance.0, Uids(&uids))
    }
}

struct Config<'a>(&'a GroupConfig);

/// Returns how the group is ordered, in words.
fn order_words(order: Order) -> &'static str {
    match order {
        Order::Sequencer(Migration::Never) => "the role never moves",
        Order::Sequencer(Migration::OnRequest) => "the role moves on request",
        Order::Sequencer(Migration::ByLoad) => "the role moves by load",
        Order::Token => "the token goes round",
    }
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.0;
        write!(
            f,
            "resilience {}, {} to {} members, history of {} messages and {} bytes, messages of at most {} bytes, \
             window {}, BB above {} bytes, ",
            config.resilience,
            config.members_min,
            config.members_max,
            config.history_messages,
            config.history_bytes,
            config.message_bytes_max,
            config.window,
            config.broadcast_above_bytes,
        )?;
        if config.keeps_state {
            f.write_str("keeps a state, ")?;
        }
        f.write_str(if config.automatic { "automatic resets by " } else { "resets on request by " })?;
        match &config.quorum {
            Quorum::MajorityOfView => f.write_str("a majority of the view")?,
            Quorum::All => f.write_str("all")?,
            Quorum::AtLeast(least) => write!(f, "at least {least}")?,
            Quorum::MajorityOfNamed(names) => {
                f.write_str("a majority of the view's members named ")?;
                f.debug_list().entries(names.iter().map(|name| name.as_str())).finish()?;
            }
            Quorum::MajorityOf(names) => {
                f.write_str("a majority of ")?;
                f.debug_list().entries(names.iter().map(|name| name.as_str())).finish()?;
            }
        }
        match config.slow_member {
            SlowMember::Wait => f.write_str(", slow members are waited for")?,
            SlowMember::ExcludeAfter(time) => write!(f, ", slow members are excluded after {time:?}")?,
        }
        write!(f, ", {}", order_words(config.order))
    }
}
