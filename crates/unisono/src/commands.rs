//! What the handles can do with a member. Each function makes one attempt. The handles repeat it until it succeeds:
//! one kind by blocking, the other by polling.

use crate::engine::{Attempt, Interest, Membership};
use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::ticket::BatchOutcome;
use bytes::Bytes;
use std::collections::VecDeque;
use unisono_core::{
    ConfirmError, ConfirmNumber, Event, JoinFailure, LeaveError, MessageNumber, Phase, Quality, SendError,
    Seqno, Standing, Time,
};

/// Maximum number of events that one call takes.
pub(crate) const EVENTS_MAX: usize = 1024;
/// Maximum bytes that wait for later messages, to share their datagrams, while earlier messages are under way.
const GATHERED_BYTES_MAX: usize = 16 << 10;
/// Maximum number of messages that are given to the core at a time.
const HANDFUL_MAX: usize = 1024;
/// Maximum bytes that are given to the core at a time, not counting the last message.
const HANDFUL_BYTES_MAX: usize = 1 << 20;

/// Waits until the member has entered its group.
pub(crate) fn enter(member: &mut Membership) -> Attempt<Result<(), OpenError>> {
    let has_moved = member.end() == Some(Ended::Moved);
    let failure = match member.peek() {
        Some(Event::JoinFailed { reason }) => Some(*reason),
        // Another life is to try at the new address.
        _ if has_moved => Some(JoinFailure::Reset),
        Some(_) => None,
        None => return Attempt::Wait(Interest::Event),
    };
    if let Some(address) = member.could_not_ask() {
        // The group may exist: it must be neither founded a second time nor reported as missing.
        return Attempt::Done(Err(OpenError::Unasked { address }));
    }
    let Some(failure) = failure else { return Attempt::Done(Ok(())) };
    Attempt::Done(Err(match (failure, member.group.info().foreign) {
        (JoinFailure::NotFound, Some(address)) => OpenError::OtherKey { address },
        (failure, _) => OpenError::Join(failure),
    }))
}

/// Waits for an event.
pub(crate) fn receive(member: &mut Membership) -> Attempt<Result<Event, Ended>> {
    match (member.event(), member.end()) {
        (Some(event), _) => Attempt::Taken(Ok(event)),
        (None, Some(ended)) => Attempt::Done(Err(ended)),
        (None, None) => Attempt::Wait(Interest::Event),
    }
}

/// Waits for an event and takes all that are ready.
pub(crate) fn receive_many(
    member: &mut Membership,
    events: &mut Vec<Event>,
) -> Attempt<Result<usize, Ended>> {
    let before = events.len();
    events.extend(std::iter::from_fn(|| member.event()).take(EVENTS_MAX));
    match (events.len() - before, member.end()) {
        (0, Some(ended)) => Attempt::Done(Err(ended)),
        (0, None) => Attempt::Wait(Interest::Event),
        (1, _) => Attempt::Taken(Ok(1)),
        // The application is busy with these for a while, so what follows from taking them is sent at once.
        (count, _) => Attempt::Done(Ok(count)),
    }
}

/// A message that waits for room in the window.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) payload: Bytes,
    pub(crate) quality: Quality,
}

impl Message {
    /// Gives the message to the core.
    fn give(&self, member: &mut Membership, now: Time) -> Result<MessageNumber, SendError> {
        if member.is_overdue() {
            // The core may still expect the end of a reset.
            return Err(SendError::Left);
        }
        member.group.send_with(now, self.payload.clone(), self.quality)
    }

    /// Gives the message to the core, or waits for room and stores in `obstacle` what it waits for.
    pub(crate) fn submit(
        &self,
        member: &mut Membership,
        now: Time,
        obstacle: &mut SendError,
    ) -> Attempt<Result<MessageNumber, SendError>> {
        let alone = !member.outcomes.any_under_way();
        match self.give(member, now) {
            Err(error) if passes(member, error) => {
                *obstacle = error;
                Attempt::Wait(Interest::Progress)
            }
            Err(error) => Attempt::Done(Err(error)),
            // It has no seqno and no outcome.
            Ok(number) if !self.quality.has_seqno() => Attempt::Done(Ok(number)),
            Ok(number) => {
                member.outcomes.expect(number);
                member.gathered_bytes += self.payload.len();
                // The answer to the messages under way is the occasion to send this one, together with others.
                if alone || member.gathered_bytes > GATHERED_BYTES_MAX {
                    Attempt::Done(Ok(number))
                } else {
                    Attempt::Gathered(Ok(number))
                }
            }
        }
    }

    /// Like [`Message::submit`], but the caller does not ask for the outcome.
    pub(crate) fn submit_unwatched(
        &self,
        member: &mut Membership,
        now: Time,
        obstacle: &mut SendError,
    ) -> Attempt<Result<(), SendError>> {
        let forget = |member: &mut Membership, given: Result<MessageNumber, SendError>| {
            given.map(|number| member.outcomes.forget(number))
        };
        match self.submit(member, now, obstacle) {
            Attempt::Done(given) => Attempt::Done(forget(member, given)),
            Attempt::Gathered(given) => Attempt::Gathered(forget(member, given)),
            Attempt::Wait(interest) => Attempt::Wait(interest),
            Attempt::Kept(_) | Attempt::Taken(_) | Attempt::Given => {
                unreachable!("a submit ends in one of the three ways above")
            }
        }
    }

    /// Waits for room, then for the message's outcome. `number` keeps the message's number between the attempts;
    /// `obstacle` is why it has no number yet.
    pub(crate) fn send(
        &self,
        member: &mut Membership,
        now: Time,
        number: &mut Option<MessageNumber>,
        obstacle: &mut SendError,
    ) -> Attempt<Result<Seqno, SendFailure>> {
        if let Some(number) = *number {
            return match fate(member, number) {
                Some(outcome) => Attempt::Taken(place(outcome)),
                None => Attempt::Wait(Interest::Outcome(number)),
            };
        }
        match self.give(member, now) {
            Err(error) if passes(member, error) => {
                *obstacle = error;
                Attempt::Wait(Interest::Progress)
            }
            Err(error) => Attempt::Done(Err(error.into())),
            // It has no seqno and no outcome.
            Ok(_) if !self.quality.has_seqno() => Attempt::Done(Ok(0)),
            Ok(given) => {
                member.outcomes.expect(given);
                *number = Some(given);
                Attempt::Given
            }
        }
    }
}

/// True if the message has to wait: for room, for the end of a reset, or until a founder that gives way to an older
/// group has entered that one. If only this process's own receiving can make room, it waits for five seconds, because
/// another thread may receive.
fn passes(member: &Membership, error: SendError) -> bool {
    match error {
        SendError::WindowFull | SendError::Resetting | SendError::NotMember => true,
        SendError::NotReceiving => !member.is_not_receiving(),
        // Too large, no longer a member, a forked child, or an error that this version does not know: the caller gets it.
        _ => false,
    }
}

/// Takes the next of many messages from the caller's iterator, as many as are given to the core at a time. The
/// iterator may block, use this very group, or panic: the engine is not locked meanwhile.
pub(crate) fn handful(payloads: &mut impl Iterator<Item = Bytes>) -> VecDeque<Bytes> {
    let (mut handful, mut bytes) = (VecDeque::new(), 0);
    while handful.len() < HANDFUL_MAX
        && bytes < HANDFUL_BYTES_MAX
        && let Some(payload) = payloads.next()
    {
        bytes += payload.len();
        handful.push_back(payload);
    }
    handful
}

/// Gives the core as many of the messages as there is room for, and waits until it has them all. Calls `given` with
/// the last number of each run of messages that the core took together.
pub(crate) fn submit_all(
    member: &mut Membership,
    now: Time,
    (waiting, quality): (&mut VecDeque<Bytes>, Quality),
    mut given: impl FnMut(MessageNumber),
) -> Attempt<Result<(), SendError>> {
    let mut numbers = Vec::new();
    let result = loop {
        let Some(payload) = waiting.pop_front() else { break Attempt::Done(Ok(())) };
        let message = Message { payload, quality };
        match message.give(member, now) {
            Err(error) if passes(member, error) => {
                waiting.push_front(message.payload);
                break if numbers.is_empty() { Attempt::Wait(Interest::Progress) } else { Attempt::Given };
            }
            Err(error) => break Attempt::Done(Err(error)),
            Ok(number) if quality.has_seqno() => numbers.push(number),
            Ok(_) => {}
        }
    };
    member.outcomes.expect_all(numbers).into_iter().for_each(&mut given);
    result
}

/// Waits for the outcome of the messages that end with number `last`.
pub(crate) fn outcome(member: &mut Membership, last: MessageNumber) -> Attempt<BatchOutcome> {
    match fate(member, last) {
        Some(outcome) => Attempt::Taken(outcome),
        None => Attempt::Wait(Interest::Outcome(last)),
    }
}

/// Returns the outcome of the messages that end with number `last`, if it is known; `NotReceiving` if it stays
/// unknown until this process receives.
fn fate(member: &mut Membership, last: MessageNumber) -> Option<BatchOutcome> {
    let known = member.outcomes.take(last);
    if known.is_some() || !member.is_not_receiving() {
        return known;
    }
    member.outcomes.forget(last);
    Some(BatchOutcome { failure: Some(SendFailure::NotReceiving), ..BatchOutcome::default() })
}

/// Waits until the member's standing differs from `known`. [`Standing::Out`] is final.
pub(crate) fn standing_after(member: &mut Membership, known: Standing) -> Attempt<Standing> {
    match member.standing() {
        standing if standing != known || standing == Standing::Out => Attempt::Done(standing),
        _ => Attempt::Wait(Interest::Standing),
    }
}

/// Begins a confirmation and returns its number.
pub(crate) fn begin_confirm(member: &mut Membership, now: Time) -> Result<ConfirmNumber, ConfirmError> {
    if member.is_overdue() { Err(ConfirmError::Left) } else { member.group.confirm(now) }
}

/// Waits for the result of a confirmation, and begins it first if `number` has none yet. `number` keeps its number
/// between the attempts.
pub(crate) fn confirm(
    member: &mut Membership,
    now: Time,
    number: &mut Option<ConfirmNumber>,
) -> Attempt<Result<Seqno, ConfirmError>> {
    let Some(number) = *number else {
        return match begin_confirm(member, now) {
            Ok(begun) => {
                *number = Some(begun);
                Attempt::Given
            }
            Err(error) => Attempt::Done(Err(error)),
        };
    };
    match (member.confirmed(number), member.phase()) {
        (Some(seqno), _) => Attempt::Taken(Ok(seqno)),
        (None, Phase::Member | Phase::Resetting) if !member.is_overdue() => {
            Attempt::Wait(Interest::Confirmation)
        }
        (None, _) => Attempt::Done(Err(ConfirmError::Left)),
    }
}

/// Returns the seqno or the failure of a single message.
pub(crate) fn place(outcome: BatchOutcome) -> Result<Seqno, SendFailure> {
    outcome.failure.map_or(Ok(outcome.last), Err)
}

/// Leaves, and waits until no other member needs this one. Sets `begun` once the leave has begun.
pub(crate) fn leave(
    member: &mut Membership,
    now: Time,
    goodbye: &Bytes,
    begun: &mut bool,
) -> Attempt<Result<(), LeaveFailure>> {
    if !*begun {
        match member.leave(now, goodbye.clone()) {
            Ok(()) => {
                *begun = true;
                return Attempt::Given;
            }
            Err(LeaveError::NotMember) if !member.is_overdue() => {
                return Attempt::Wait(Interest::Progress);
            }
            Err(LeaveError::NotMember) => return Attempt::Done(Err(LeaveFailure::Unconfirmed)),
            Err(error) => return Attempt::Done(Err(error.into())),
        }
    }
    match member.phase() {
        Phase::Excluded | Phase::Gone if !member.group.has_left() => {
            Attempt::Done(Err(LeaveFailure::Excluded))
        }
        Phase::Gone => Attempt::Done(Ok(())),
        _ if member.is_overdue() => Attempt::Done(Err(LeaveFailure::Unconfirmed)),
        _ => Attempt::Wait(Interest::Progress),
    }
}

/// Waits until a member that was abandoned is out.
pub(crate) fn departed(member: &mut Membership, _now: Time) -> Attempt<()> {
    match member.phase() {
        _ if member.is_overdue() => Attempt::Done(()),
        Phase::Locating | Phase::Joining | Phase::Excluded | Phase::Gone => Attempt::Done(()),
        // A member, also one in a reset or leaving, and any later phase: until it is overdue.
        _ => Attempt::Wait(Interest::Progress),
    }
}
