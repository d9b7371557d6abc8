//! The last answers to questions for a port, so that a copy of a question costs no signature.
//!
//! A copy gets the same answer again, byte for byte, because the client may have missed it. A copy that follows its
//! answer at once gets none: the client had no time to miss it. One that comes from another address of the client gets an answer
//! of its own, since an answer says which address it is for. That costs a signature, like a new question: which of the addresses
//! are the client's is not known, so a recording that is sent from many ports must not use up what one question may cost.

use crate::identity::Port;
use crate::rpc::common::Sender;
use crate::time::Time;
use crate::wire::{PortHere, PublicKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Number of answers that are kept.
const ANSWERS_MAX: usize = 64;
/// How long an answer is kept: 50 ms, the interval after which a client first asks again.
const KEPT_FOR: Duration = Duration::from_millis(50);
/// Minimum interval between two copies of one answer.
const REPEATED_AFTER: Duration = Duration::from_millis(5);

/// The last answers, the latest last.
#[derive(Debug, Default)]
pub(super) struct Answered(VecDeque<Answer>);

#[derive(Debug)]
struct Answer {
    to: Sender,
    /// The client's key in the question.
    key: PublicKey,
    made_at: Time,
    sent_at: Time,
    here: Box<PortHere>,
}

/// What is to be done about a question.
pub(super) enum Known {
    /// It is new.
    No,
    /// It was answered a moment ago.
    JustAnswered,
    /// It gets this answer again.
    Again(Box<PortHere>),
}

impl Answered {
    /// Looks for the answer to this question of a client.
    pub(super) fn find(
        &mut self,
        now: Time,
        from: Sender,
        (nonce, port, key): (u64, Port, PublicKey),
    ) -> Known {
        let is_of_client = |answer: &&mut Answer| {
            answer.to == from
                && (answer.here.nonce, answer.here.port, answer.key) == (nonce, port, key)
                && now.since(answer.made_at) < KEPT_FOR
        };
        match self.0.iter_mut().rev().find(is_of_client) {
            None => Known::No,
            Some(answer) if now.since(answer.sent_at) < REPEATED_AFTER => Known::JustAnswered,
            Some(answer) => {
                answer.sent_at = now;
                Known::Again(answer.here.clone())
            }
        }
    }

    /// Keeps a new answer.
    pub(super) fn keep(&mut self, now: Time, to: Sender, key: PublicKey, here: Box<PortHere>) {
        if self.0.len() == ANSWERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Answer { to, key, made_at: now, sent_at: now, here });
    }

    /// Forgets all answers, because they state an address that this server had before.
    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Forgets the answers for a port, whose service ends.
    pub(super) fn forget(&mut self, port: Port) {
        self.0.retain(|answer| answer.here.port != port);
    }
}
