//! The fingerprint of a run: one number over the datagrams that members sent, the events that their applications
//! received, what callers of a replicated service got and its copies applied, and the changes of the members' marks, with the time of each. Names and wording are not part of it. So renaming a
//! field or rewording a message changes no fingerprint, and any change of behaviour does.

use super::{
    Beside, CallOutcome, DirectoryRecord, DiskRecord, Epoch, Life, LogEntry, OnDisk, OpOutcome, Place,
    Record, ReplicaRecord, Stop, View, What, hash, mix,
};
use std::net::IpAddr;
use unisono_core::{Ballot, Destination, JoinFailure, Outcome, Suspicion};

/// A rolling hash of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

/// An odd number with as many ones as zeros. Multiplication by it spreads small numbers over all bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Fingerprint {
    /// Returns the fingerprint.
    pub(crate) fn value(self) -> u64 {
        self.0
    }

    /// Adds a record.
    #[inline(always)]
    pub(crate) fn add(&mut self, record: &Record) {
        let who = u64::from(record.process) << 40 | u64::from(record.life.0) << 8 | record.what.kind() as u64;
        let when_and_who = record.at.as_nanos() ^ who.rotate_right(16);
        self.0 = mix(self.0, when_and_who ^ content(&record.what).wrapping_mul(SPREAD));
    }

    /// Adds a datagram that the process `from` sends at `now`, in nanoseconds.
    #[inline]
    pub(crate) fn add_datagram(&mut self, now: u64, from: usize, to: Destination, datagram: &[u8]) {
        let to = match to {
            Destination::Address(address) => match address.ip() {
                IpAddr::V4(ip) => u64::from(ip.to_bits()) << 2,
                IpAddr::V6(ip) => hash(&ip.octets()) << 2,
            },
            Destination::Everyone => 1,
            Destination::Multicast => 2,
            Destination::Rendezvous => 3,
        };
        let when_and_who = now ^ (from as u64) << 48 ^ to.rotate_left(20);
        self.0 = mix(self.0, when_and_who ^ hash(datagram).wrapping_mul(SPREAD));
    }
}

/// Returns the contents of a record as one number.
#[inline(always)]
fn content(what: &What) -> u64 {
    match what {
        What::Sent { number, hash, .. } => number ^ hash,
        What::Delivered { seqno, sender, number, hash } => {
            (seqno ^ hash).wrapping_add(number << 32 ^ u64::from(sender.0) << 56)
        }
        What::SendResult { number, outcome: Outcome::Ok { seqno } } => number << 32 ^ seqno,
        What::Numbered { from, to, .. } => from << 32 ^ to,
        What::Stored { through, .. }
        | What::Acknowledged { through, .. }
        | What::Accepted { through, .. }
        | What::Purged { through, .. } => *through,
        What::HistoryUsed { entries } => u64::from(*entries),
        What::Called { call, hash, .. } => call ^ hash,
        What::Handed { client, call, hash, .. } | What::Replied { client, call, hash } => {
            (call ^ hash).wrapping_add(u64::from(client.0) << 32)
        }
        What::Executed { client, call } => call ^ u64::from(client.0) << 32,
        What::CallEnded { call, outcome: CallOutcome::Replied { hash } } => call ^ hash,
        rare => rare_content(rare),
    }
}

/// Does the same for rare records.
#[cold]
fn rare_content(what: &What) -> u64 {
    let life = |life: &Life| u64::from(life.0);
    let epoch = |epoch: &Epoch| u64::from(epoch.0);
    match what {
        What::ResetAsked { members_min } => fold([u64::from(*members_min)]),
        What::HandOverAsked { successor } => fold([life(successor)]),
        What::SendResult { number, outcome } => fold([*number, u64::from(*outcome == Outcome::Failed)]),
        What::Entered { seqno, view } => fold([*seqno, of_view(view)]),
        What::Joined { seqno, member, members } => fold([*seqno, life(member), u64::from(*members)]),
        What::Left { seqno, member, members, successor } => {
            fold([*seqno, life(member), u64::from(*members), successor.as_ref().map_or(u64::MAX, life)])
        }
        What::OrderAsked { is_ring } => fold([u64::from(*is_ring)]),
        What::OrderChanged { seqno, is_ring, sequencer } => {
            fold([*seqno, u64::from(*is_ring), life(sequencer)])
        }
        What::HandedOver { seqno, sequencer } => fold([*seqno, life(sequencer)]),
        What::Reset(reset) => {
            let excluded = fold(reset.excluded.iter().map(life));
            fold([reset.seqno, of_view(&reset.view), excluded, u64::from(reset.degraded)])
        }
        What::Suspected { member, reason } => fold([life(member), of_suspicion(*reason)]),
        What::Excluded { epoch: named } => fold([named.as_ref().map_or(u64::MAX, epoch)]),
        What::JoinFailed { reason } => fold([of_join_failure(reason)]),
        What::Conflict { gives_way, .. } => fold([u64::from(*gives_way)]),
        What::EpochBegun { epoch: begun } => fold([epoch(begun)]),
        What::Promised { epoch: ending, ballot } => fold([epoch(ending), of_ballot(*ballot)]),
        What::Prepared { epoch: ending, preparation } => {
            let ballot = of_ballot(preparation.ballot);
            fold([epoch(ending), ballot, epoch(&preparation.next), preparation.start])
        }
        What::CallEnded { call, outcome } => fold([*call, of_outcome(outcome)]),
        What::CallCancelled { call } => fold([*call]),
        What::Serving { port, owns, repeats, instance } => {
            fold([u64::from(*port), u64::from(*owns), u64::from(*repeats) + 2 * *instance])
        }
        What::Withdrawn { port } => fold([u64::from(*port)]),
        What::RefusedCall { client, call, hash } => fold([life(client), *call, *hash]),
        What::PassedOn { client, call, hops } => fold([life(client), *call, u64::from(*hops)]),
        What::Held { used, max, .. } => fold([u64::from(*used), u64::from(*max)]),
        What::Strayed { came, left } => fold([*came, *left]),
        What::Healed { core } => fold(core.iter().map(life)),
        What::Halted { missing: named } | What::ForceAsked { without: named } => fold(named.iter().map(life)),
        What::Replica(content) => of_replica(content),
        What::Directory(content) => of_directory(content),
        What::Beside(beside) => of_beside(beside),
        What::SentUnreliable { hash } => fold([*hash]),
        What::Early { sender, number, hash, .. } => fold([life(sender), *number, *hash]),
        What::Passed { sender, hash } => fold([life(sender), *hash]),
        What::Tail { epoch: begun, seqno, sender, number } => {
            fold([epoch(begun), *seqno, life(sender), *number])
        }
        // The kind says everything, or the contents are names that the simulator chose.
        _ => 0,
    }
}

fn of_beside(beside: &Beside) -> u64 {
    match beside {
        Beside::FloorAsked { floor } => fold([floor.of(usize::from(u16::MAX)) as u64, floor.of(1) as u64]),
        Beside::HopsAsked { hops } => fold([2, u64::from(*hops)]),
        Beside::Multicast { hops, is_member } => fold([3, u64::from(*hops), u64::from(*is_member)]),
        Beside::Heard { .. } | Beside::TakenForHearing { .. } => 0,
        Beside::FromOutside { client, index, hash, .. } => fold([4, u64::from(*client), *index, *hash]),
        Beside::ToldOutside { client, index, fate, .. } => {
            fold([5, u64::from(*client), *index, *fate as u64])
        }
        Beside::GaveUpOutside { client, was_refused } => {
            fold([6, u64::from(*client), u64::from(*was_refused)])
        }
    }
}

/// Does the same for records of replicated state. What operations ask for is part of the datagrams.
fn of_replica(record: &ReplicaRecord) -> u64 {
    let life = |life: &Life| u64::from(life.0);
    let named = |(client, number): &(Life, u64)| number ^ life(client) << 48;
    match record {
        ReplicaRecord::Terms { held_by_all, servers, disks, .. } => {
            let disks = disks.map_or(0, |durability| 1 + durability as u64);
            fold([0, u64::from(*held_by_all), *servers as u64, disks])
        }
        ReplicaRecord::Begun { id, name, mode, .. } => fold([1, u64::from(id.0), named(name), *mode as u64]),
        ReplicaRecord::Ended { id, outcome } => fold([2, u64::from(id.0), of_op_outcome(outcome)]),
        ReplicaRecord::Joined { service, life: joined } => fold([3, u64::from(service.0), life(joined)]),
        ReplicaRecord::Left { life: left } => fold([25, life(left)]),
        ReplicaRecord::WentOn { members, forced } => {
            fold([4, fold(members.iter().map(life)), u64::from(*forced)])
        }
        ReplicaRecord::Informed(at) => fold([5, of_place(at)]),
        ReplicaRecord::Restored(at) => fold([6, of_place(at)]),
        ReplicaRecord::Applied { at, name, reply, .. } => {
            fold([7, of_place(at), named(name), reply.0, reply.1])
        }
        ReplicaRecord::Members(at) => fold([8, of_place(at)]),
        ReplicaRecord::Locks { at, lines, .. } => {
            let claims = lines.iter().flat_map(|line| &line.claims);
            let claims = claims.flat_map(|claim| [claim.number, claim.fence.unwrap_or_default()]);
            fold([24, of_place(at)].into_iter().chain(claims))
        }
        ReplicaRecord::ClocksDiffer => 25,
        ReplicaRecord::Answered { service, name, confirmed } => {
            fold([9, u64::from(service.0), named(name), u64::from(*confirmed)])
        }
        ReplicaRecord::Handlers { service, seqno, holders, members, .. } => {
            let holders = holders.iter().flat_map(|(handler, holder)| [u64::from(*handler), life(holder)]);
            fold(
                [26, u64::from(service.0), *seqno, fold(members.iter().map(life))].into_iter().chain(holders),
            )
        }
        ReplicaRecord::AnsweredFor { handler, name } => fold([27, u64::from(*handler), named(name)]),
        ReplicaRecord::Looked { service, name } => fold([10, u64::from(service.0), named(name)]),
        ReplicaRecord::EndedAtOnce => 11,
        ReplicaRecord::SentAfterEnd => 12,
        ReplicaRecord::Stopped { at, reason } => fold([13, at.as_ref().map_or(0, of_place), of_stop(reason)]),
        ReplicaRecord::Out => 14,
        ReplicaRecord::Corrupted => 15,
        ReplicaRecord::Amount { used, max, .. } => fold([16, *used as u64, *max as u64]),
        ReplicaRecord::Calm { serves } => fold([17, u64::from(*serves)]),
        ReplicaRecord::Final { at } => fold([18, at.as_ref().map_or(0, of_place)]),
        ReplicaRecord::Disk(disk) => fold([19, of_disk(disk)]),
        ReplicaRecord::Replayed { at, values, outcomes } => fold([20, of_place(at), *values, *outcomes]),
        ReplicaRecord::BeginsAnew => 21,
        ReplicaRecord::Replaced => 22,
        ReplicaRecord::Hostile => 28,
        ReplicaRecord::WaitsTooLong { name } => fold([29, named(name)]),
        ReplicaRecord::Founded { service, members } => {
            fold([23, u64::from(service.0), fold(members.iter().map(life))])
        }
    }
}

/// Does the same for records of directories.
fn of_directory(record: &DirectoryRecord) -> u64 {
    match record {
        DirectoryRecord::Asked { id, request } => fold([0, u64::from(id.0), hash(request)]),
        DirectoryRecord::Got { id, reply } => fold([1, u64::from(id.0), hash(reply)]),
        DirectoryRecord::Applied { at, name: (client, call), request, reply } => {
            fold([2, of_place(at), u64::from(client.0), *call, hash(request), hash(reply)])
        }
        DirectoryRecord::Taken { again, .. } => fold([9, u64::from(*again)]),
        DirectoryRecord::Serves { at, remembered } => fold([3, of_place(at), *remembered as u64]),
        DirectoryRecord::Watched { watch, request, reply, .. } => {
            fold([4, u64::from(*watch), hash(request), hash(reply)])
        }
        DirectoryRecord::WatchAnswered { service, from, .. } => fold([5, u64::from(service.0), *from]),
        DirectoryRecord::Restored { number, remembered } => fold([8, *number, *remembered as u64]),
        DirectoryRecord::Confirmed { heard, .. } => fold([6, *heard as u64]),
        DirectoryRecord::BackedUp { at, number, parts, .. } => {
            fold([7, of_place(at), *number].into_iter().chain(parts.iter().map(|part| hash(part))))
        }
    }
}

fn of_disk(disk: &DiskRecord) -> u64 {
    let entries = |entries: &[LogEntry]| fold(entries.iter().map(|entry| entry.hash));
    let what = match &disk.what {
        OnDisk::Found(base, log) => fold([0, *base, entries(log)]),
        OnDisk::Adopted(base, log) => fold([1, *base, entries(log)]),
        OnDisk::Appended(first, log) => fold([2, *first, entries(log)]),
        OnDisk::Committed => 3,
        OnDisk::Cut(place) => fold([4, *place]),
        OnDisk::Lost => 5,
    };
    let service = disk.service.map_or(0, |service| 1 + u64::from(service.0));
    fold([u64::from(disk.server), service, disk.generation, what])
}

fn of_place(place: &Place) -> u64 {
    let group = u64::from(place.service.0) << 32 ^ u64::from(place.epoch.0);
    fold([group, place.position, place.trail.steps, place.trail.hash])
}

fn of_op_outcome(outcome: &OpOutcome) -> u64 {
    match outcome {
        OpOutcome::Replied(reply) => fold([reply.0, reply.1]),
        OpOutcome::NotHappened => 1,
        OpOutcome::Unknown => 2,
    }
}

fn of_stop(reason: &Stop) -> u64 {
    match reason {
        Stop::Differs(since, through) => fold([0, *since, *through]),
        Stop::GivesWay => 1,
        Stop::StateLost => 2,
        Stop::DiskHangs { .. } => 3,
        Stop::Other(_) => 4,
        Stop::DiskFailed => 5,
        Stop::ReplaceNeeded => 6,
        Stop::GivenUp => 7,
        Stop::NothingLost => 8,
        Stop::DiskRefused(_) => 9,
    }
}

fn fold(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(SPREAD, mix)
}

fn of_view(view: &View) -> u64 {
    let members = fold(view.members.iter().map(|member| u64::from(member.0)));
    let (epoch, coordinator) = (u64::from(view.epoch.0), u64::from(view.coordinator.0));
    let (sequencer, resilience) = (u64::from(view.sequencer.0), u64::from(view.resilience));
    fold([epoch, view.counter, coordinator, members, sequencer, resilience])
}

fn of_ballot(ballot: Ballot) -> u64 {
    fold([u64::from(ballot.round), ballot.coordinator.0])
}

fn of_suspicion(reason: Suspicion) -> u64 {
    match reason {
        Suspicion::Silent => 0,
        Suspicion::Deaf => 1,
        Suspicion::Replaced => 2,
        Suspicion::Slow => 3,
        _ => 4,
    }
}

fn of_join_failure(reason: &JoinFailure) -> u64 {
    match reason {
        JoinFailure::NotFound => 0,
        JoinFailure::Lost => 1,
        JoinFailure::Unreachable { .. } => 2,
        JoinFailure::Halted => 3,
        JoinFailure::Full { .. } => 4,
        JoinFailure::NameRefused { .. } => 5,
        JoinFailure::TimedOut => 6,
        JoinFailure::Reset => 7,
        _ => 8,
    }
}

fn of_outcome(outcome: &CallOutcome) -> u64 {
    match outcome {
        CallOutcome::Replied { hash } => fold([0, *hash]),
        CallOutcome::Refused { hash } => fold([1, *hash]),
        CallOutcome::NotFound => 2,
        CallOutcome::Failed => 3,
        CallOutcome::Busy => 4,
        CallOutcome::Unknown => 5,
        CallOutcome::OtherInstance => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Entry;
    use unisono_core::Time;

    fn of(at: u64, what: What) -> u64 {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(&Record { at: Time::from_nanos(at), process: 1, life: Life(2), what });
        fingerprint.value()
    }

    fn of_datagram(now: u64, from: usize, to: Destination, datagram: &[u8]) -> u64 {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add_datagram(now, from, to, datagram);
        fingerprint.value()
    }

    fn stored(through: u64) -> What {
        let entry = Entry::Message { sender: Life(0), number: 1 };
        What::Stored { epoch: Epoch(0), through, entry }
    }

    #[test]
    fn records_that_differ_in_time_kind_or_content_differ() {
        let reasons = [Suspicion::Silent, Suspicion::Deaf, Suspicion::Replaced, Suspicion::Slow];
        let suspected = reasons.map(|reason| of(1, What::Suspected { member: Life(3), reason }));
        let mut all = vec![
            of(1, What::Gone),
            of(2, What::Gone),
            of(1, What::Parted),
            of(1, What::Conflict { gives_way: true, other_ordered: 0 }),
            of(1, What::Conflict { gives_way: false, other_ordered: 0 }),
            of(1, stored(7)),
            of(1, stored(8)),
            of(1, What::Halted { missing: [Life(3)].into() }),
            of(1, What::Halted { missing: [Life(4)].into() }),
            of(1, What::WentOn),
            of(1, What::Replica(Box::new(ReplicaRecord::Out))),
            of(1, What::Replica(Box::new(ReplicaRecord::EndedAtOnce))),
        ];
        all.extend(suspected);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn datagrams_that_differ_in_time_sender_destination_or_bytes_differ() {
        let mut all = vec![
            of_datagram(1, 0, Destination::Everyone, b"a"),
            of_datagram(2, 0, Destination::Everyone, b"a"),
            of_datagram(1, 1, Destination::Everyone, b"a"),
            of_datagram(1, 0, Destination::Multicast, b"a"),
            of_datagram(1, 0, Destination::Address(([10, 0, 0, 1], 7).into()), b"a"),
            of_datagram(1, 0, Destination::Address(([10, 0, 0, 2], 7).into()), b"a"),
            of_datagram(1, 0, Destination::Everyone, b"b"),
        ];
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
