//! The transfer of the state to newcomers, by calls from member to member, and the questions of a newcomer.
//!
//! What costs much is hashing, here for a newcomer and there for what arrives. One thread does both, at low priority, so that
//! commands have the processors first. It takes no lock, because a thread that holds one must not wait for a
//! processor. Other threads take the state, and send and receive.

use super::StateMachine;
use super::copy::Copy;
use super::errands::{Errand, Report};
use super::life::Life;
use super::writing;
use crate::rpc::{PrivatePort, Request};
use bytes::Bytes;
use ring::digest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
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
            Ok(asked) => asked.await.ok(),
            Err(_) => None,
        };
        let failed = Report::Fetched(call, Err(CallFailure::Failed));
        Some((life, reply.map_or(failed, |reply| Report::Arrived(call, reply))))
    })
}

/// What is to be hashed.
pub(super) enum ToHash {
    /// For the answer to a newcomer.
    Question {
        request: Request,
        /// What this member has for it, if it asks for the beginning of a list.
        present: Present,
        /// Number of the life that was asked.
        lives: u64,
    },
    /// What another member has answered in this life.
    Reply { life: Arc<Life>, call: FetchNumber, reply: Bytes },
}

/// Takes the questions of newcomers, until there are no more.
pub(super) fn take<S: StateMachine>(copy: &Copy<S>, questions: &Receiver<Request>, hashes: &Sender<ToHash>) {
    for request in questions {
        let question = request.payload().clone();
        if let Some(status) = status(copy, &question) {
            // If this fails, the caller does not wait any longer.
            let _ = request.reply(status);
            continue;
        }
        // Before the state is taken: what is of a later life than it seems is dropped sooner.
        let lives = copy.lock().lives;
        if Donor::newcomer(&question).is_some() {
            copy.prepare_state();
        }
        let present = |newcomer| copy.step(|state, _| state.copy().map(|copy| copy.present_for(newcomer)));
        let present = Donor::newcomer(&question).and_then(present).flatten().unwrap_or(Present::Nothing);
        // Without that thread, this replica has ended.
        let _ = hashes.send(ToHash::Question { request, present, lives });
    }
}

fn status<S: StateMachine>(copy: &Copy<S>, question: &Bytes) -> Option<Bytes> {
    if *question != CopyStatus::question() {
        return None;
    }
    let behind = copy.behind();
    copy.step(|state, _| state.copy().and_then(|copy| copy.answer_status(question, behind))).flatten()
}

/// Hashes for newcomers, and what arrives of a state, until there is nothing more to hash.
pub(super) fn hash<S: StateMachine>(copy: &Copy<S>, to_hash: &Receiver<ToHash>) {
    writing::yield_to_others();
    let (mut donor, mut life_before) = (Donor::new(sha256), 0);
    loop {
        let wait = donor.forgets_at().map_or(Duration::MAX, |at| at.since(copy.now()));
        match to_hash.recv_timeout(wait) {
            Ok(ToHash::Question { request, present, lives }) => {
                // A snapshot of an earlier life may be of another instance.
                if std::mem::replace(&mut life_before, lives) != lives {
                    donor.forget();
                }
                let reply = donor.answer(copy.now(), request.payload(), |_| present);
                copy.errands.add(Box::pin(async move {
                    // If this fails, the newcomer does not wait any longer.
                    let _ = request.reply(reply);
                    None
                }));
            }
            Ok(ToHash::Reply { life, call, reply }) => {
                let hashed = Hashed::new(reply, sha256);
                copy.errands.add(Box::pin(async move { Some((life, Report::Fetched(call, Ok(hashed)))) }));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        donor.forget_unused(copy.now());
    }
}
