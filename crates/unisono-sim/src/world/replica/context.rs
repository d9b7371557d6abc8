//! What a process's side needs to act and to record, and what answers mean to those who record them.

use super::{AIMED, Effect, EffectKind, ReplicaCommon};
use crate::bugs::{Planted, ServiceBug};
use crate::directory;
use crate::queue::Queue;
use crate::record::{self, DirectoryRecord, Life, OpId, OpOutcome, ReplicaRecord, What};
use crate::recorder::Recorder;
use crate::replica::Reply;
use crate::world::{Happening, Trigger};
use bytes::Bytes;
use unisono_core::replica::{Digest, ReadNumber};
use unisono_core::rpc::CallFailure;
use unisono_core::{Random, Time};

/// What a side needs to act and to record.
pub(super) struct Context<'a> {
    pub(super) now: u64,
    pub(super) local: Time,
    pub(super) process: usize,
    pub(super) life: Life,
    pub(super) takes_events: bool,
    pub(super) recorder: &'a mut Recorder,
    pub(super) queue: &'a mut Queue<Happening>,
    pub(super) common: &'a mut ReplicaCommon,
    pub(super) random: &'a mut Random,
}

impl Context<'_> {
    pub(super) fn note(&mut self, record: ReplicaRecord) {
        self.recorder.note(self.now, self.process, self.life, What::Replica(Box::new(record)));
    }

    /// True if this bug is planted.
    pub(super) fn planted(&self, bug: ServiceBug) -> bool {
        self.common.planted == Some(Planted::Service(bug))
    }

    pub(super) fn note_of_directory(&mut self, record: DirectoryRecord) {
        self.recorder.note(self.now, self.process, self.life, What::Directory(Box::new(record)));
    }

    /// Notes the reply of a directory, if it is one, for the records and for the director.
    pub(super) fn note_answer(&mut self, id: OpId, answer: &Bytes) {
        if let Some(reply) = directory::answer_in(answer) {
            self.note_of_directory(DirectoryRecord::Got { id, reply: reply.clone() });
            self.common.replies.insert(id.0, reply);
        }
    }

    pub(super) fn trigger(&mut self, trigger: Trigger) {
        self.queue.push(self.now, Happening::Trigger(trigger));
    }

    /// Lets the director know of an effect, if it wants to.
    pub(super) fn note_effect(&mut self, what: EffectKind) {
        if let Some(effects) = &mut self.common.effects {
            effects.push_back(Effect { server: self.process as u8 + 1, what });
            self.trigger(Trigger::Line(AIMED));
        }
    }

    pub(super) fn end_op(&mut self, id: OpId, outcome: OpOutcome) {
        if let OpOutcome::Replied(_) = outcome {
            self.recorder.totals.calls += 1;
        }
        if outcome == OpOutcome::NotHappened {
            self.common.not_happened.insert(id.0);
        }
        self.note(ReplicaRecord::Ended { id, outcome });
        self.trigger(Trigger::Work { process: self.process as u16, life: self.life, job: id.0 });
    }
}

/// Returns a number for a barrier that no command of the process has.
pub(super) fn barrier_number(number: ReadNumber) -> u64 {
    1 << 63 | number
}

/// A digest that is cheap to compute.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let first = record::hash(bytes);
    let mut digest = Digest::default();
    let mut word = first;
    for part in digest.as_chunks_mut::<8>().0 {
        *part = word.to_be_bytes();
        word = record::mix(word, first);
    }
    digest
}

/// Returns what a refusal means: the state machine's replies come as such; the other refusals are sentences.
pub(super) fn refusal(reason: &[u8]) -> OpOutcome {
    let says = |end: &[u8]| reason.ends_with(end);
    match Reply::read(reason) {
        Some(reply) => OpOutcome::Replied(reply),
        None if says(b"did not happen") || says(b"nothing happened") => OpOutcome::NotHappened,
        None => OpOutcome::Unknown,
    }
}

pub(super) fn outcome_of_call(result: &Result<Bytes, CallFailure>) -> OpOutcome {
    match result {
        Ok(reply) => Reply::read(reply).map_or(OpOutcome::Unknown, OpOutcome::Replied),
        Err(CallFailure::Refused(reason)) => refusal(reason),
        Err(CallFailure::Unknown) => OpOutcome::Unknown,
        Err(_) => OpOutcome::NotHappened,
    }
}
