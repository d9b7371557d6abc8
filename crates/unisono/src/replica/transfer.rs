//! The transfer of the state to newcomers, by calls from member to member, and the questions of a newcomer.

use super::StateMachine;
use super::copy::Copy;
use super::errands::{Errand, Report};
use super::life::Life;
use super::waits::block_on;
use crate::engine::Listed;
use crate::rpc::PrivatePort;
use bytes::Bytes;
use ring::digest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use unisono_core::replica::{Digest, Donor, FetchNumber};
use unisono_core::rpc::CallFailure;

/// Time for which a snapshot is kept after the last question of a newcomer.
const OFFERS_KEPT: Duration = Duration::from_secs(30);
/// Maximum time for an answer of another member.
const FETCH_MAX: Duration = Duration::from_secs(10);

/// Returns the hash by which parts of the state are recognised.
pub(super) fn sha256(bytes: &[u8]) -> Digest {
    let (mut hash, computed) = (Digest::default(), digest::digest(&digest::SHA256, bytes));
    hash.copy_from_slice(computed.as_ref());
    hash
}

/// Returns the port at which the members of this group give the state. Whoever asks knows their addresses.
pub(super) fn port(name: &str) -> PrivatePort {
    PrivatePort::from_name(&format!("state of {name}"))
}

/// Asks another member.
pub(super) fn fetch(life: Arc<Life>, call: FetchNumber, to: SocketAddr, request: Bytes) -> Errand {
    Box::pin(async move {
        let asked = life.client.start_at(life.transfer.port(), to, request, FETCH_MAX);
        let reply = match asked {
            Ok(asked) => asked.await.map_err(|_| CallFailure::Failed),
            Err(_) => Err(CallFailure::Failed),
        };
        (life, Report::Fetched(call, reply))
    })
}

/// Confirms the group's end.
pub(super) fn confirm(life: Arc<Life>) -> Errand {
    Box::pin(async move {
        let confirmed = match life.group.begin_confirm() {
            Ok(confirmation) => confirmation.await,
            Err(error) => Err(error),
        };
        // Without a result this life is over.
        let report = confirmed.map_or(Report::Nothing, Report::Confirmed);
        (life, report)
    })
}

/// Answers the questions of newcomers, from life to life, until the replica has ended.
pub(super) fn give<S: StateMachine>(copy: &Copy<S>) {
    let mut lives = 0;
    while let Some(life) = next_life(copy, &mut lives) {
        give_in(copy, &life);
    }
}

/// Blocks until a life begins that comes after this number of lives; `None` if the replica has ended.
fn next_life<S: StateMachine>(copy: &Copy<S>, lives: &mut u64) -> Option<Arc<Life>> {
    let mut listed = Listed::default();
    block_on(None, |context| {
        let mut state = copy.lock();
        if state.end.is_some() {
            return Poll::Ready(None);
        }
        match &state.life {
            Some(life) if state.lives != *lives => {
                let life = life.clone();
                *lives = state.lives;
                Poll::Ready(Some(life))
            }
            _ => {
                state.register(context, &mut listed);
                Poll::Pending
            }
        }
    })?
}

fn give_in<S: StateMachine>(copy: &Copy<S>, life: &Life) {
    let (mut donor, mut asked_at) = (Donor::new(sha256), Instant::now());
    while let Ok(request) = life.transfer.get_request_timeout(OFFERS_KEPT) {
        if let Some(request) = request {
            let question = request.payload().clone();
            let status = copy.step(|state, _| state.copy().and_then(|copy| copy.answer_status(&question)));
            let reply = match status.flatten() {
                Some(status) => status,
                None => {
                    asked_at = Instant::now();
                    let snapshot = || copy.step(|state, _| state.copy().and_then(|copy| copy.snapshot()));
                    donor.answer(&question, || snapshot().flatten())
                }
            };
            // If this fails, the newcomer does not wait any longer.
            let _ = request.reply(reply);
        }
        if asked_at.elapsed() >= OFFERS_KEPT {
            donor.forget();
        }
    }
}
