//! What a client does with one request: when it calls again, when it asks the servers how they are, and what it tells its
//! user. Without clock and network.
//!
//! The calls below repeat a request at another server as soon as one is silent, under the same number, so that a command
//! takes effect once. What remains here are calls that ended without a reply.

use crate::status::{ServerStatus, Standing, standing};
use bytes::Bytes;
use std::time::Duration;
use unisono_table::{Answer, Refusal, Reply, RequestKind};

/// Maximum number of calls for one request.
const CALLS_MAX: u32 = 32;
/// Timeout of the first call of a query, doubled for each further one. A call that a lost server perhaps received waits for
/// that service until its timeout; another call of a query may go to whatever serves now.
const QUERY_CALL_FIRST: Duration = Duration::from_secs(2);
/// Pause before the call after one that all servers were too busy for, doubled for each further one, and its maximum.
const BUSY_PAUSE_FIRST: Duration = Duration::from_millis(50);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time from which a client believes servers that say that they have no majority: a moment after a crash they have none.
const BELIEVES_AFTER: Duration = Duration::from_secs(3);

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The reply.
    Reply(Bytes),
    /// No reply; the request was not executed, and may be sent again.
    DidNotHappen,
    /// The service did not take the request, which was not executed.
    Declined(Declined),
    /// No reply; the request was perhaps executed, once.
    Unclear,
    /// Only servers of a service that was founded apart from the one of before answered.
    OtherInstance,
}

/// Why the service did not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declined {
    pub(crate) reason: String,
    /// True if it may take the same request a moment later.
    pub(crate) is_busy: bool,
}

/// What the client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Call the service with the request, with this timeout.
    Call(Duration),
    /// Ask all servers how they are.
    AskServers,
    /// Wait for this time.
    Pause(Duration),
    /// The request is over.
    Over(Result<Reply, Failure>),
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The service refused it; nothing changed.
    Refused(Refusal),
    /// The service did not take it, and says why; nothing changed.
    Declined(String),
    /// No server has a majority.
    NoMajority {
        /// Ids of the servers that are missing.
        missing: Vec<u8>,
        /// True if a command was perhaps executed.
        may_have_happened: bool,
    },
    /// No server answers.
    NoServer {
        /// True if a command was perhaps executed.
        may_have_happened: bool,
    },
    /// No answer came in time, although a server serves.
    Late {
        /// True if a command was perhaps executed.
        may_have_happened: bool,
    },
    /// The service was founded anew.
    OtherInstance,
    /// The reply cannot be read.
    Unreadable,
}

/// One request. Take [`Attempts::step`] until it is over, and report what each step came to.
#[derive(Clone, Debug)]
pub(crate) struct Attempts {
    is_command: bool,
    /// Maximum time for all calls.
    within: Duration,
    calls: u32,
    may_have_happened: bool,
    asks_servers: bool,
    /// Why the last call was not taken, and the pause after it.
    declined: Option<String>,
    busy: u32,
    pauses: bool,
    over: Option<Result<Reply, Failure>>,
}

impl Attempts {
    /// Begins with a request of this kind, which is to be over after about this time.
    pub(crate) fn new(kind: RequestKind, within: Duration) -> Attempts {
        let is_command = kind == RequestKind::Command;
        Attempts {
            is_command,
            within,
            calls: 0,
            may_have_happened: false,
            asks_servers: false,
            declined: None,
            busy: 0,
            pauses: false,
            over: None,
        }
    }

    /// Returns what to do when `elapsed` has passed since the request began.
    pub(crate) fn step(&self, elapsed: Duration) -> Step {
        if let Some(over) = &self.over {
            return Step::Over(over.clone());
        }
        let left = self.within.saturating_sub(elapsed);
        if self.pauses && !left.is_zero() {
            let pause = BUSY_PAUSE_FIRST * 2_u32.saturating_pow(self.busy - 1);
            return Step::Pause(pause.min(BUSY_PAUSE_MAX).min(left));
        }
        match self.asks_servers || left.is_zero() || self.calls >= CALLS_MAX {
            true => Step::AskServers,
            false if self.is_command => Step::Call(left),
            false => Step::Call(left.min(QUERY_CALL_FIRST * 2_u32.saturating_pow(self.calls))),
        }
    }

    /// Notes what a call came to.
    pub(crate) fn heard(&mut self, heard: Heard) {
        self.calls += 1;
        self.declined = None;
        match heard {
            Heard::Reply(reply) => {
                self.over = Some(match Reply::decode(&reply) {
                    Some(Reply { result: Err(refusal), .. }) => Err(Failure::Refused(refusal)),
                    Some(reply) => Ok(reply),
                    None => Err(Failure::Unreadable),
                });
            }
            Heard::DidNotHappen => self.asks_servers = true,
            Heard::Declined(Declined { reason, is_busy: false }) => {
                self.over = Some(Err(Failure::Declined(reason)));
            }
            Heard::Declined(Declined { reason, .. }) => {
                self.busy += 1;
                (self.declined, self.pauses) = (Some(reason), true);
            }
            // Only the service knows whether it executed the command; asked anew, it would count as another one.
            Heard::Unclear => (self.may_have_happened, self.asks_servers) = (self.is_command, true),
            Heard::OtherInstance => self.over = Some(Err(Failure::OtherInstance)),
        }
    }

    /// Notes that the pause is over.
    pub(crate) fn paused(&mut self) {
        self.pauses = false;
    }

    /// Notes the status of the servers that answered, `elapsed` after the request began.
    pub(crate) fn heard_servers(&mut self, elapsed: Duration, servers: &[ServerStatus]) {
        self.asks_servers = false;
        let may_have_happened = self.may_have_happened;
        let is_last = may_have_happened || elapsed >= self.within || self.calls >= CALLS_MAX;
        self.over = match standing(servers) {
            Standing::NoMajority(missing) if is_last || elapsed >= BELIEVES_AFTER => {
                Some(Err(Failure::NoMajority { missing, may_have_happened }))
            }
            Standing::Recovers(missing) if is_last && !missing.is_empty() => {
                Some(Err(Failure::NoMajority { missing, may_have_happened }))
            }
            Standing::Silent if is_last => Some(Err(Failure::NoServer { may_have_happened })),
            _ if is_last && !may_have_happened && self.declined.is_some() => {
                self.declined.take().map(|reason| Err(Failure::Declined(reason)))
            }
            _ if is_last => Some(Err(Failure::Late { may_have_happened })),
            _ => None,
        };
    }
}

/// Returns what a reply contains if `take` finds it there.
pub(crate) fn taken<T>(reply: Reply, take: impl FnOnce(Answer) -> Option<T>) -> Result<(T, u64), Failure> {
    let number = reply.number;
    let answer = reply.result.map_err(Failure::Refused)?;
    take(answer).map(|taken| (taken, number)).ok_or(Failure::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::State;
    use unisono_table::Reason;

    const SECOND: Duration = Duration::from_secs(1);

    fn reply(result: Result<Answer, Refusal>) -> Heard {
        Heard::Reply(Reply { number: 7, changes: 5, result }.encode())
    }

    fn alone(id: u8, missing: &[u8]) -> ServerStatus {
        let state = State::Waiting;
        ServerStatus { server: id, servers: 3, state, waits_for: missing.to_vec(), ..ServerStatus::default() }
    }

    #[test]
    fn a_reply_and_a_refusal_end_a_request() {
        let mut attempts = Attempts::new(RequestKind::Command, SECOND);
        assert_eq!(attempts.step(Duration::ZERO), Step::Call(SECOND));
        attempts.heard(reply(Ok(Answer::Done)));
        let Step::Over(Ok(done)) = attempts.step(SECOND) else { panic!() };
        assert_eq!(taken(done, |answer| (answer == Answer::Done).then_some(())), Ok(((), 7)));
        let mut attempts = Attempts::new(RequestKind::Query, SECOND);
        attempts.heard(reply(Err(Reason::Denied.into())));
        assert_eq!(attempts.step(SECOND), Step::Over(Err(Failure::Refused(Reason::Denied.into()))));
        attempts.heard(Heard::Reply(Bytes::from_static(b"?")));
        assert_eq!(attempts.step(SECOND), Step::Over(Err(Failure::Unreadable)));
    }

    #[test]
    fn a_command_that_may_have_happened_is_not_sent_again() {
        let mut attempts = Attempts::new(RequestKind::Command, 6 * SECOND);
        attempts.heard(Heard::Unclear);
        assert_eq!(attempts.step(SECOND), Step::AskServers);
        attempts.heard_servers(SECOND, &[]);
        let over = Failure::NoServer { may_have_happened: true };
        assert_eq!(attempts.step(SECOND), Step::Over(Err(over)));
        // A question changes nothing.
        let mut attempts = Attempts::new(RequestKind::Query, 6 * SECOND);
        attempts.heard(Heard::Unclear);
        attempts.heard_servers(SECOND, &[]);
        assert_eq!(attempts.step(2 * SECOND), Step::Call(4 * SECOND));
    }

    #[test]
    fn what_the_service_did_not_take_did_not_happen() {
        let serving =
            ServerStatus { server: 1, servers: 3, state: State::Serving, ..ServerStatus::default() };
        let declined = |reason: &str, is_busy| Heard::Declined(Declined { reason: reason.into(), is_busy });
        let mut attempts = Attempts::new(RequestKind::Command, 6 * SECOND);
        attempts.heard(declined("too long", false));
        assert_eq!(attempts.step(SECOND), Step::Over(Err(Failure::Declined("too long".into()))));
        // A busy service is asked again, with pauses.
        let mut attempts = Attempts::new(RequestKind::Command, 6 * SECOND);
        for pause in [50, 100, 200] {
            attempts.heard(declined("busy", true));
            assert_eq!(attempts.step(SECOND), Step::Pause(Duration::from_millis(pause)));
            attempts.paused();
            assert_eq!(attempts.step(SECOND), Step::Call(5 * SECOND));
        }
        attempts.heard(declined("busy", true));
        assert_eq!(attempts.step(6 * SECOND), Step::AskServers);
        let mut late = attempts.clone();
        late.heard_servers(6 * SECOND, std::slice::from_ref(&serving));
        assert_eq!(late.step(6 * SECOND), Step::Over(Err(Failure::Declined("busy".into()))));
        attempts.paused();
        attempts.heard(reply(Ok(Answer::Done)));
        assert!(matches!(attempts.step(SECOND), Step::Over(Ok(_))));
    }

    #[test]
    fn a_question_waits_for_a_lost_server_for_a_while_and_a_command_until_its_end() {
        let first = |kind| Attempts::new(kind, 60 * SECOND).step(Duration::ZERO);
        assert_eq!(first(RequestKind::Command), Step::Call(60 * SECOND));
        let mut attempts = Attempts::new(RequestKind::LocalQuery, 60 * SECOND);
        let mut waits = Vec::new();
        while let Step::Call(wait) = attempts.step(Duration::ZERO) {
            waits.push(wait);
            attempts.heard(Heard::Unclear);
            attempts.heard_servers(Duration::ZERO, &[]);
        }
        assert_eq!(waits[..6], [2, 4, 8, 16, 32, 60].map(|seconds| seconds * SECOND));
    }

    #[test]
    fn servers_without_a_majority_are_believed_after_a_while() {
        let mut attempts = Attempts::new(RequestKind::Query, 6 * SECOND);
        attempts.heard(Heard::DidNotHappen);
        attempts.heard_servers(SECOND, &[alone(1, &[2, 3])]);
        assert_eq!(attempts.step(SECOND), Step::Call(4 * SECOND));
        attempts.heard(Heard::DidNotHappen);
        attempts.heard_servers(3 * SECOND, &[alone(1, &[2, 3])]);
        let over = Failure::NoMajority { missing: vec![2, 3], may_have_happened: false };
        assert_eq!(attempts.step(3 * SECOND), Step::Over(Err(over)));
    }

    #[test]
    fn a_request_ends_in_time_whatever_the_servers_say() {
        let serving =
            ServerStatus { server: 1, servers: 3, state: State::Serving, ..ServerStatus::default() };
        let mut attempts = Attempts::new(RequestKind::Query, SECOND);
        let mut calls = 0;
        while let Step::Call(_) = attempts.step(Duration::ZERO) {
            calls += 1;
            attempts.heard(Heard::DidNotHappen);
            attempts.heard_servers(Duration::ZERO, std::slice::from_ref(&serving));
        }
        assert_eq!(calls, CALLS_MAX);
        assert_eq!(
            attempts.step(Duration::ZERO),
            Step::Over(Err(Failure::Late { may_have_happened: false }))
        );
    }
}
