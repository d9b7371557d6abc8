//! The transfer of the state to newcomers, by calls from member to member, and the questions of a newcomer.

use super::StateMachine;
use super::copy::Copy;
use super::errands::{Errand, Report};
use super::life::Life;
use crate::rpc::{PrivatePort, Request};
use bytes::Bytes;
use ring::digest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use unisono_core::replica::{CopyStatus, Digest, Donor, FetchNumber, Hashed, Present};
use unisono_core::rpc::CallFailure;

/// Maximum time for an answer of another member, at most 1 MiB of the state. A member that dies is noticed earlier; this is for
/// slow paths, on which a piece alone needs 35 kB/s.
const FETCH_MAX: Duration = Duration::from_secs(30);

/// Returns the hash by which parts of the state are recognised.
pub(super) fn sha256(bytes: &[u8]) -> Digest {
    let (mut hash, computed) = (Digest::default(), digest::digest(&digest::SHA256, bytes));
    hash.copy_from_slice(computed.as_ref());
    hash
}

/// Returns the port at which the members of this group give the state. A member that asks knows their addresses.
pub(super) fn port(name: &str) -> PrivatePort {
    PrivatePort::from_name(&format!("state of {name}"))
}

/// Asks another member.
pub(super) fn fetch(life: Arc<Life>, call: FetchNumber, to: SocketAddr, request: Bytes) -> Errand {
    Box::pin(async move {
        let asked = life.client.start_at(life.transfer.port(), to, request, FETCH_MAX);
        let reply = match asked {
            // Hashed here, where nothing is locked.
            Ok(asked) => asked.await.map(|reply| Hashed::new(reply, sha256)).map_err(|_| CallFailure::Failed),
            Err(_) => Err(CallFailure::Failed),
        };
        (life, Report::Fetched(call, reply))
    })
}

/// Answers the questions of newcomers, until there are no more.
pub(super) fn give<S: StateMachine>(copy: &Copy<S>, questions: &Receiver<Request>) {
    let (mut donor, mut lives) = (Donor::new(sha256), 0);
    loop {
        let wait = donor.forgets_at().map_or(Duration::MAX, |at| at.since(copy.now()));
        match questions.recv_timeout(wait) {
            Ok(question) => {
                // A snapshot of an earlier life may be of another instance.
                let present = copy.lock().lives;
                if std::mem::replace(&mut lives, present) != present {
                    donor.forget();
                }
                answer(copy, &mut donor, question);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        donor.forget_unused(copy.now());
    }
}

fn answer<S: StateMachine>(copy: &Copy<S>, donor: &mut Donor, request: Request) {
    let question = request.payload().clone();
    // Most questions are for pieces, which need no lock.
    let status = || {
        let behind = copy.behind();
        copy.step(|state, _| state.copy().and_then(|copy| copy.answer_status(&question, behind))).flatten()
    };
    let status = if question == CopyStatus::question() { status() } else { None };
    let present = |newcomer| {
        let present = copy.step(|state, _| state.copy().map(|copy| copy.present_for(newcomer)));
        present.flatten().unwrap_or(Present::Nothing)
    };
    let reply = status.unwrap_or_else(|| donor.answer(copy.now(), &question, present));
    // If this fails, the newcomer does not wait any longer.
    let _ = request.reply(reply);
}
