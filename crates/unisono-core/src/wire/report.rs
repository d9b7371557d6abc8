//! A member's report on its group as bytes: the content of a [`super::Frame::Tell`].
//!
//! The answer must not be longer than the question. So the lists are cut to what fits, and each says how many entries
//! were left out. The list of waits comes first: it is short, and the reason for most questions.

use super::MEMBERS_MAX;
use super::kind::FrameKind;
use super::parts::*;
use super::reader::{FrameError, Reader};
use super::writer::Body;
use crate::event::{Suspicion, resilience_among};
use crate::identity::Uid;
use crate::look::{Counters, LastReset, MemberReport, Report, WaitReason, Waiting};
use alloc::vec::Vec;
use bytes::Bytes;

type Result<T> = core::result::Result<T, FrameError>;

/// Bytes before the first list.
const FIXED_BYTES: usize = 24 + 1 + 8 + 8 + 8 + 9 + 1 + 3 * 8 + 3 * 4 + 8 + LAST_RESET_BYTES + 18 * 8;
const LAST_RESET_BYTES: usize = 1 + 8 + 2 + 1 + 1;
/// Bytes before the entries of a list: its total, and the number of entries that follow.
const LIST_HEAD_BYTES: usize = 4;
const WAITING_BYTES: usize = 8 + 1 + 1 + 8 + 8 + 8;
const MEMBER_REPORT_BYTES_MIN: usize = MEMBER_BYTES_MIN + 8 + 8 + 1 + 1 + 8;

/// Minimum size of an encoded report, in bytes: both lists empty.
pub const REPORT_BYTES_MIN: usize = FIXED_BYTES + 2 * LIST_HEAD_BYTES;

/// Appends a report to `out`, in at most `limit` bytes. False, with nothing written, if `limit` is less than
/// [`REPORT_BYTES_MIN`].
pub fn encode_report(report: &Report, out: &mut Vec<u8>, limit: usize) -> bool {
    if limit < REPORT_BYTES_MIN {
        return false;
    }
    let end = out.len().saturating_add(limit);
    write_fixed(&mut Body::new(out, end), report);

    let room = end - out.len() - 2 * LIST_HEAD_BYTES;
    let mut members = Vec::new();
    let (members_count, members_bytes) = write_members(report, &mut members, room);
    // The waits may take half of the room, or what the members leave if that is more.
    let waiting_room = (room / 2).max(room - members_bytes);
    let waiting = &report.waiting[..report.waiting.len().min(waiting_room / WAITING_BYTES)];
    let waiting_bytes = waiting.len() * WAITING_BYTES;
    let (members_count, members_bytes) = match members_bytes + waiting_bytes <= room {
        true => (members_count, members_bytes),
        false => {
            members.clear();
            write_members(report, &mut members, room - waiting_bytes)
        }
    };

    let mut body = Body::new(out, end);
    body.u16(saturated(report.waiting.len() + report.waiting_omitted));
    body.u16(saturated(waiting.len()));
    waiting.iter().for_each(|waiting| write_waiting(&mut body, waiting));
    body.u16(saturated(report.members.len() + report.members_omitted));
    body.u16(saturated(members_count));
    body.bytes(&members[..members_bytes]);
    debug_assert!(body.fits());
    true
}

/// Reads what [`encode_report`] wrote, with lists that may have been cut. Errors give offsets from the report's first
/// byte.
pub fn decode_report(report: &Bytes) -> Result<Report> {
    let mut from = Reader::new(report.clone());
    from.set_kind(FrameKind::Tell);
    let mut report = read_fixed(&mut from)?;

    let total = usize::from(from.u16("waiting total")?);
    let count = from.count("waiting count", 0..=total, WAITING_BYTES)?;
    report.waiting = (0..count).map(|_| read_waiting(&mut from)).collect::<Result<_>>()?;
    report.waiting_omitted = total - count;

    let total = usize::from(from.u16("member total")?);
    let count = from.count("member count", 0..=total.min(MEMBERS_MAX), MEMBER_REPORT_BYTES_MIN)?;
    report.members = (0..count).map(|_| read_member_report(&mut from)).collect::<Result<_>>()?;
    report.members_omitted = total - count;
    report.resilience = resilience_among(report.resilience_founded, total);

    from.finish()?;
    Ok(report)
}

fn saturated(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

fn write_fixed(out: &mut Body<'_>, report: &Report) {
    write_epoch(out, &report.epoch);
    out.flag(report.primary);
    out.u64(report.reporter.0);
    out.u64(report.sequencer.0);
    out.u64(report.term);
    write_order(out, report.order);
    out.u64(report.order_since);
    out.u8(report.resilience_founded);
    out.u64(report.end);
    out.u64(report.accepted);
    out.u64(report.stable);
    out.u32(report.buffered);
    out.u32(report.window);
    out.u32(report.under_way);
    write_duration(out, report.in_epoch);
    write_last_reset(out, report.last_reset);
    counters(&report.counters).into_iter().for_each(|counter| out.u64(counter));
}

fn read_fixed(from: &mut Reader) -> Result<Report> {
    Ok(Report {
        epoch: read_epoch(from)?,
        primary: from.flag("primary")?,
        reporter: read_uid(from)?,
        sequencer: read_uid(from)?,
        term: from.mark("term")?,
        order: read_order(from)?,
        order_since: from.mark("order since")?,
        resilience_founded: from.u8("resilience")?,
        // Computed from the number of members, which follows.
        resilience: 0,
        end: from.mark("end")?,
        accepted: from.mark("accepted")?,
        stable: from.mark("stable")?,
        buffered: from.u32("buffered")?,
        window: from.u32("window")?,
        under_way: from.u32("under way")?,
        in_epoch: read_duration(from)?,
        last_reset: read_last_reset(from)?,
        counters: read_counters(from)?,
        members: Vec::new(),
        members_omitted: 0,
        waiting: Vec::new(),
        waiting_omitted: 0,
    })
}

/// Writes zeros if there was no reset.
fn write_last_reset(out: &mut Body<'_>, reset: Option<LastReset>) {
    let LastReset { seqno, excluded, degraded, forced, reason } = reset.unwrap_or_default();
    out.flag(reset.is_some());
    out.u64(seqno);
    out.u16(excluded);
    write_loss(out, degraded, forced);
    out.u8(match reason {
        None => 0,
        Some(Suspicion::Silent) => 1,
        Some(Suspicion::Deaf) => 2,
        Some(Suspicion::Replaced) => 3,
        Some(Suspicion::Slow) => 5,
    });
}

fn read_last_reset(from: &mut Reader) -> Result<Option<LastReset>> {
    let there = from.flag("reset known")?;
    let (seqno, excluded) = (from.mark("seqno")?, from.u16("excluded")?);
    let (degraded, forced) = read_loss(from)?;
    let reason = match from.u8("suspicion")? {
        0 => None,
        1 => Some(Suspicion::Silent),
        2 => Some(Suspicion::Deaf),
        3 => Some(Suspicion::Replaced),
        5 => Some(Suspicion::Slow),
        other => return Err(from.out_of_range("suspicion", other)),
    };
    let reset = LastReset { seqno, excluded, degraded, forced, reason };
    match there {
        true => Ok(Some(reset)),
        false if reset == LastReset::default() => Ok(None),
        false => Err(from.out_of_range("reset known", 0)),
    }
}

/// Returns the counters in the order in which they travel.
fn counters(counters: &Counters) -> [u64; 18] {
    let Counters {
        datagrams_sent,
        datagrams_received,
        malformed,
        foreign,
        other_version,
        replayed,
        stale,
        messages_sent,
        messages_delivered,
        early,
        unreliable,
        nacks_sent,
        repairs_sent,
        resends,
        resets,
        suspicions,
        passes,
        null_passes,
        rests,
    } = *counters;
    [
        datagrams_sent,
        datagrams_received,
        malformed.saturating_add(other_version),
        foreign,
        replayed,
        stale,
        messages_sent,
        messages_delivered,
        early,
        unreliable,
        nacks_sent,
        repairs_sent,
        resends,
        resets,
        suspicions,
        passes,
        null_passes,
        rests,
    ]
}

fn read_counters(from: &mut Reader) -> Result<Counters> {
    Ok(Counters {
        datagrams_sent: from.u64("datagrams sent")?,
        datagrams_received: from.u64("datagrams received")?,
        malformed: from.u64("malformed")?,
        foreign: from.u64("foreign")?,
        // Among the malformed ones.
        other_version: 0,
        replayed: from.u64("replayed")?,
        stale: from.u64("stale")?,
        messages_sent: from.u64("messages sent")?,
        messages_delivered: from.u64("messages delivered")?,
        early: from.u64("early")?,
        unreliable: from.u64("unreliable")?,
        nacks_sent: from.u64("nacks sent")?,
        repairs_sent: from.u64("repairs sent")?,
        resends: from.u64("resends")?,
        resets: from.u64("resets")?,
        suspicions: from.u64("suspicions")?,
        passes: from.u64("passes")?,
        null_passes: from.u64("null passes")?,
        rests: from.u64("rests")?,
    })
}

/// Writes as many members as fit `room` bytes, from the first on. Returns their number and their bytes. What stands in
/// `out` beyond these bytes has no meaning.
fn write_members(report: &Report, out: &mut Vec<u8>, room: usize) -> (usize, usize) {
    let mut body = Body::new(out, room);
    let (mut count, mut bytes) = (0, 0);
    for member in report.members.iter().take(MEMBERS_MAX) {
        write_member_report(&mut body, member);
        if !body.fits() {
            break;
        }
        (count, bytes) = (count + 1, body.written());
    }
    (count, bytes)
}

fn write_member_report(out: &mut Body<'_>, member: &MemberReport) {
    write_member(out, &member.member);
    out.u64(member.received);
    out.u64(member.delivered);
    out.flag(member.suspected);
    out.flag(member.multicast);
    write_duration(out, member.silent);
}

fn read_member_report(from: &mut Reader) -> Result<MemberReport> {
    Ok(MemberReport {
        member: read_member(from)?,
        received: from.mark("received")?,
        delivered: from.mark("delivered")?,
        suspected: from.flag("suspected")?,
        multicast: from.flag("multicast")?,
        silent: read_duration(from)?,
    })
}

fn write_waiting(out: &mut Body<'_>, waiting: &Waiting) {
    out.u64(waiting.who.0);
    out.u8(match waiting.reason {
        WaitReason::Ack => 1,
        WaitReason::Window => 2,
        WaitReason::Token => 3,
        WaitReason::Flush => 4,
        WaitReason::Rest => 5,
        WaitReason::Reset => 6,
        WaitReason::Minimum => 7,
    });
    out.flag(waiting.member.is_some());
    out.u64(waiting.member.unwrap_or_default().0);
    out.u64(waiting.seqno);
    write_duration(out, waiting.since);
}

fn read_waiting(from: &mut Reader) -> Result<Waiting> {
    let who = read_uid(from)?;
    let reason = match from.u8("reason")? {
        1 => WaitReason::Ack,
        2 => WaitReason::Window,
        3 => WaitReason::Token,
        4 => WaitReason::Flush,
        5 => WaitReason::Rest,
        6 => WaitReason::Reset,
        7 => WaitReason::Minimum,
        other => return Err(from.out_of_range("reason", other)),
    };
    let known = from.flag("member known")?;
    let member = match (known, read_uid(from)?) {
        (true, uid) => Some(uid),
        (false, Uid(0)) => None,
        (false, Uid(other)) => return Err(from.out_of_range("uid", other)),
    };
    Ok(Waiting { who, reason, member, seqno: from.mark("seqno")?, since: read_duration(from)? })
}
