//! The parts that several frames have in common, such as addresses, names and views. The function that writes a part
//! stands next to the one that reads it.

use super::frame::{
    EarlyMessage, Founding, GREETING_BYTES_MAX, LogBase, PIECE_BYTES_MAX, Proposal, TAIL_BYTES_MAX,
};
use super::reader::{Fault, FrameError, Reader};
use super::writer::Body;
use super::{MEMBERS_MAX, NUMBER_MAX};
use crate::config::{Floor, GroupConfig, Migration, Order, Quorum, SlowMember};
use crate::identity::{Ballot, EpochId, Instance, Member, Name, Uid};
use crate::quality::Quality;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;

type Result<T> = core::result::Result<T, FrameError>;

/// The fewest bytes of a member: uid (8), empty name (1), IPv4 address (7), floor (2), hops (1).
pub(super) const MEMBER_BYTES_MIN: usize = 19;

/// Writes family, IP address and port. The scope and the flow of an IPv6 address have no meaning on another host, and
/// are left out.
pub(super) fn write_address(out: &mut Body<'_>, address: &SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.u8(4);
            out.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.u8(6);
            out.bytes(&ip.octets());
        }
    }
    out.u16(address.port());
}

pub(super) fn read_address(from: &mut Reader) -> Result<SocketAddr> {
    let ip = match from.u8("address family")? {
        4 => IpAddr::V4(Ipv4Addr::from_bits(from.u32("address")?)),
        6 => IpAddr::V6(Ipv6Addr::from_bits(from.u128("address")?)),
        other => return Err(from.out_of_range("address family", other)),
    };
    Ok(SocketAddr::new(ip, from.u16("port")?))
}

pub(super) fn write_name(out: &mut Body<'_>, name: &Name) {
    let text = name.as_str().as_bytes();
    out.u8(text.len() as u8);
    out.bytes(text);
}

pub(super) fn read_name(from: &mut Reader) -> Result<Name> {
    let length = from.u8("name length")?;
    if usize::from(length) > Name::BYTES_MAX {
        return Err(from.out_of_range("name length", length));
    }
    if length == 0 {
        return Ok(Name::default());
    }
    let text = from.slice(usize::from(length), "name")?;
    let name = core::str::from_utf8(text).ok().and_then(Name::new);
    name.ok_or_else(|| from.error(Fault::Text))
}

pub(super) fn write_greeting(out: &mut Body<'_>, words: &[u8]) {
    out.count(words.len(), GREETING_BYTES_MAX);
    out.bytes(words);
}

pub(super) fn read_greeting(from: &mut Reader) -> Result<Bytes> {
    let length = from.count("greeting length", 0..=GREETING_BYTES_MAX, 1)?;
    from.bytes(length, "greeting")
}

pub(super) fn write_member(out: &mut Body<'_>, member: &Member) {
    out.u64(member.uid.0);
    write_name(out, &member.name);
    write_address(out, &member.address);
    write_floor(out, member.floor);
    out.u8(member.hops);
}

pub(super) fn read_member(from: &mut Reader) -> Result<Member> {
    Ok(Member {
        uid: read_uid(from)?,
        name: read_name(from)?,
        address: read_address(from)?,
        floor: read_floor(from)?,
        hops: read_hops(from)?,
    })
}

pub(super) fn read_hops(from: &mut Reader) -> Result<u8> {
    match from.u8("hops")? {
        0 => Err(from.out_of_range("hops", 0_u8)),
        hops => Ok(hops),
    }
}

/// A floor that is no number of members.
const FLOOR_MAJORITY: u16 = 0xfffe;
const FLOOR_ALL: u16 = 0xffff;

pub(super) fn write_floor(out: &mut Body<'_>, floor: Floor) {
    out.u16(match floor {
        Floor::None => 0,
        Floor::AtLeast(least) => least,
        Floor::Majority => FLOOR_MAJORITY,
        Floor::All => FLOOR_ALL,
    });
}

pub(super) fn read_floor(from: &mut Reader) -> Result<Floor> {
    match from.u16("floor")? {
        0 => Ok(Floor::None),
        FLOOR_MAJORITY => Ok(Floor::Majority),
        FLOOR_ALL => Ok(Floor::All),
        least if usize::from(least) <= MEMBERS_MAX => Ok(Floor::AtLeast(least)),
        other => Err(from.out_of_range("floor", other)),
    }
}

/// Writes the members of a view, at least one, with names and addresses.
fn write_members(out: &mut Body<'_>, members: &[Member]) {
    out.count(members.len(), MEMBERS_MAX);
    for member in members {
        write_member(out, member);
    }
}

fn read_members(from: &mut Reader) -> Result<Vec<Member>> {
    let count = from.count("member count", 1..=MEMBERS_MAX, MEMBER_BYTES_MIN)?;
    (0..count).map(|_| read_member(from)).collect()
}

pub(super) fn read_uid(from: &mut Reader) -> Result<Uid> {
    from.u64("uid").map(Uid)
}

/// Writes the uids of a view, at least one.
pub(super) fn write_uids(out: &mut Body<'_>, uids: &[Uid]) {
    out.count(uids.len(), MEMBERS_MAX);
    for uid in uids {
        out.u64(uid.0);
    }
}

pub(super) fn read_uids(from: &mut Reader) -> Result<Vec<Uid>> {
    let count = from.count("member count", 1..=MEMBERS_MAX, 8)?;
    (0..count).map(|_| read_uid(from)).collect()
}

pub(super) fn write_epoch(out: &mut Body<'_>, epoch: &EpochId) {
    out.u64(epoch.counter);
    out.u64(epoch.coordinator.0);
    out.u64(epoch.nonce);
}

pub(super) fn read_epoch(from: &mut Reader) -> Result<EpochId> {
    Ok(EpochId {
        counter: from.mark("epoch counter")?,
        coordinator: read_uid(from)?,
        nonce: from.u64("epoch nonce")?,
    })
}

pub(super) fn write_ballot(out: &mut Body<'_>, ballot: &Ballot) {
    out.u32(ballot.round);
    out.u64(ballot.coordinator.0);
}

pub(super) fn read_ballot(from: &mut Reader) -> Result<Ballot> {
    Ok(Ballot { round: from.u32("round")?, coordinator: read_uid(from)? })
}

pub(super) fn write_proposal(out: &mut Body<'_>, proposal: &Proposal) {
    write_epoch(out, &proposal.epoch);
    out.u64(proposal.start);
    write_loss(out, proposal.degraded, proposal.forced);
    write_uids(out, &proposal.members);
    write_early(out, &proposal.tail);
}

pub(super) fn read_proposal(from: &mut Reader) -> Result<Proposal> {
    let (epoch, start) = (read_epoch(from)?, from.number("start")?);
    let (degraded, forced) = read_loss(from)?;
    let (members, tail) = (read_uids(from)?, read_early(from, 8 * TAIL_BYTES_MAX)?);
    if start <= tail.len() as u64 {
        return Err(from.out_of_range("start", start));
    }
    Ok(Proposal { epoch, start, members, degraded, forced, tail })
}

/// Writes messages that were delivered early.
pub(super) fn write_early(out: &mut Body<'_>, messages: &[EarlyMessage]) {
    out.count(messages.len(), usize::from(u16::MAX));
    for EarlyMessage { sender, number, quality, bytes } in messages {
        out.u64s([sender.0, *number]);
        out.u8(quality.byte());
        out.count(bytes.len(), PIECE_BYTES_MAX);
        out.bytes(bytes);
    }
}

/// Reads messages that were delivered early: by sender and number, each once, of qualities that may be early, and no more
/// than `cost_max` together.
pub(super) fn read_early(from: &mut Reader, cost_max: usize) -> Result<Vec<EarlyMessage>> {
    let count = from.count("early count", 0..=usize::from(u16::MAX), EARLY_BYTES_MIN)?;
    let mut messages: Vec<EarlyMessage> = Vec::with_capacity(count);
    let mut cost = 0;
    for _ in 0..count {
        let (sender, number) = (read_uid(from)?, from.number("number")?);
        if messages.last().is_some_and(|last| (last.sender, last.number) >= (sender, number)) {
            return Err(from.out_of_range("number", number));
        }
        let byte = from.u8("quality")?;
        let quality = Quality::from_byte(byte).filter(|quality| quality.may_be_early());
        let quality = quality.ok_or_else(|| from.out_of_range("quality", byte))?;
        let length = from.count("length", 0..=PIECE_BYTES_MAX, 1)?;
        let bytes = from.bytes(length, "message")?;
        cost += EarlyMessage::cost(length);
        if cost > cost_max {
            return Err(from.out_of_range("early count", count as u64));
        }
        messages.push(EarlyMessage { sender, number, quality, bytes });
    }
    Ok(messages)
}

/// Least bytes of a message that was delivered early.
const EARLY_BYTES_MIN: usize = 8 + 8 + 1 + 2;

/// Writes what a reset may lose: 0: nothing, 1: degraded, 2: forced and degraded.
pub(super) fn write_loss(out: &mut Body<'_>, degraded: bool, forced: bool) {
    out.u8(if forced { 2 } else { degraded.into() });
}

pub(super) fn read_loss(from: &mut Reader) -> Result<(bool, bool)> {
    match from.u8("degraded")? {
        0 => Ok((false, false)),
        1 => Ok((true, false)),
        2 => Ok((true, true)),
        other => Err(from.out_of_range("degraded", other)),
    }
}

/// Writes a duration in nanoseconds, at most the 584 years that fit 64 bits.
pub(super) fn write_duration(out: &mut Body<'_>, duration: Duration) {
    out.u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}

pub(super) fn read_duration(from: &mut Reader) -> Result<Duration> {
    from.u64("duration").map(Duration::from_nanos)
}

/// Writes how a group is ordered.
pub(super) fn write_order(out: &mut Body<'_>, order: Order) {
    out.u8(match order {
        Order::Sequencer(Migration::Never) => 1,
        Order::Sequencer(Migration::OnRequest) => 2,
        Order::Sequencer(Migration::ByLoad) => 3,
        Order::Token => 4,
    });
}

pub(super) fn read_order(from: &mut Reader) -> Result<Order> {
    match from.u8("order")? {
        1 => Ok(Order::Sequencer(Migration::Never)),
        2 => Ok(Order::Sequencer(Migration::OnRequest)),
        3 => Ok(Order::Sequencer(Migration::ByLoad)),
        4 => Ok(Order::Token),
        other => Err(from.out_of_range("order", other)),
    }
}

pub(super) fn write_config(out: &mut Body<'_>, config: &GroupConfig) {
    out.u8(config.resilience);
    out.u16(config.members_min);
    out.u16(config.members_max);
    out.flag(config.keeps_state);
    out.u32(config.history_messages);
    out.u64(config.history_bytes);
    out.u32(config.message_bytes_max);
    out.u32(config.window);
    out.u32(config.broadcast_above_bytes);
    out.flag(config.automatic);
    let patience = match config.slow_member {
        SlowMember::Wait => None,
        SlowMember::ExcludeAfter(time) => Some(time),
    };
    out.flag(patience.is_some());
    write_duration(out, patience.unwrap_or_default());
    write_order(out, config.order);
    let (rule, number, names) = match &config.quorum {
        Quorum::MajorityOfView => (1, 0, &[][..]),
        Quorum::MajorityOf(names) => (2, names.len(), &names[..]),
        Quorum::All => (3, 0, &[][..]),
        Quorum::AtLeast(least) => (4, usize::from(*least), &[][..]),
        Quorum::MajorityOfNamed(names) => (5, names.len(), &names[..]),
    };
    out.u8(rule);
    out.count(number, usize::from(u16::MAX));
    if names.len() > MEMBERS_MAX {
        out.refuse();
    }
    for name in names {
        write_name(out, name);
    }
}

pub(super) fn read_config(from: &mut Reader) -> Result<GroupConfig> {
    fn within(from: &Reader, what: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<()> {
        if range.contains(&value) { Ok(()) } else { Err(from.out_of_range(what, value)) }
    }
    let resilience = from.u8("resilience")?;
    let members_min = from.u16("members_min")?;
    let members_max = from.u16("members_max")?;
    within(from, "members_max", members_max.into(), 1..=MEMBERS_MAX as u64)?;
    within(from, "members_min", members_min.into(), 1..=members_max.into())?;
    let keeps_state = from.flag("keeps_state")?;
    let history_messages = from.u32("history_messages")?;
    within(from, "history_messages", history_messages.into(), 16..=1 << 20)?;
    let history_bytes = from.u64("history_bytes")?;
    within(from, "history_bytes", history_bytes, 1 << 16..=NUMBER_MAX)?;
    let message_bytes_max = from.u32("message_bytes_max")?;
    within(from, "message_bytes_max", message_bytes_max.into(), 0..=16 << 20)?;
    let window = from.u32("window")?;
    within(from, "window", window.into(), 1..=1 << 16)?;
    let broadcast_above_bytes = from.u32("broadcast_above_bytes")?;
    let automatic = from.flag("automatic")?;
    let excludes = from.flag("slow member")?;
    let patience = read_duration(from)?;
    let slow_member = match (excludes, patience) {
        (false, Duration::ZERO) => SlowMember::Wait,
        (false, _) => return Err(from.out_of_range("slow member", patience.as_nanos())),
        (true, _) => SlowMember::ExcludeAfter(patience),
    };
    let order = read_order(from)?;
    let rule = from.u8("quorum rule")?;
    if !(1..=5).contains(&rule) {
        return Err(from.out_of_range("quorum rule", rule));
    }
    let number = match rule {
        2 | 5 => from.count("quorum number", 1..=MEMBERS_MAX, 1)?,
        4 => from.count("quorum number", 1..=usize::from(u16::MAX), 0)?,
        _ => from.count("quorum number", 0..=0, 0)?,
    };
    let quorum = match rule {
        1 => Quorum::MajorityOfView,
        2 => Quorum::MajorityOf((0..number).map(|_| read_name(from)).collect::<Result<_>>()?),
        5 => Quorum::MajorityOfNamed((0..number).map(|_| read_name(from)).collect::<Result<_>>()?),
        3 => Quorum::All,
        _ => Quorum::AtLeast(number as u16),
    };
    Ok(GroupConfig {
        resilience,
        members_min,
        members_max,
        keeps_state,
        history_messages,
        history_bytes,
        message_bytes_max,
        window,
        broadcast_above_bytes,
        quorum,
        automatic,
        slow_member,
        order,
    })
}

pub(super) fn write_log_base(out: &mut Body<'_>, base: &LogBase) {
    out.u64(base.seqno);
    out.u64(base.term.0);
    out.u64(base.term.1.0);
    out.u64(base.order.0);
    write_order(out, base.order.1);
    write_members(out, &base.members);
    out.count(base.last_numbers.len(), usize::from(u16::MAX));
    for (uid, number) in &base.last_numbers {
        out.u64(uid.0);
        out.u64(*number);
    }
}

pub(super) fn read_log_base(from: &mut Reader) -> Result<LogBase> {
    let seqno = from.mark("seqno")?;
    let term = (from.mark("term")?, read_uid(from)?);
    let order = (from.mark("order since")?, read_order(from)?);
    let members = read_members(from)?;
    let count = from.count("number count", 0..=usize::from(u16::MAX), 16)?;
    let last_numbers =
        (0..count).map(|_| Ok((read_uid(from)?, from.number("message number")?))).collect::<Result<_>>()?;
    Ok(LogBase { seqno, members, term, order, last_numbers })
}

pub(super) fn write_founding(out: &mut Body<'_>, founding: &Founding) {
    out.u128(founding.instance.0);
    write_epoch(out, &founding.epoch);
    write_config(out, &founding.config);
    write_members(out, &founding.members);
}

pub(super) fn read_founding(from: &mut Reader) -> Result<Founding> {
    Ok(Founding {
        instance: from.u128("instance").map(Instance)?,
        epoch: read_epoch(from)?,
        config: read_config(from)?,
        members: read_members(from)?,
    })
}
