//! What can be done with a member, apart from how one waits for it: each is an attempt that the handles
//! repeat, one by blocking, the other by polling.

use crate::engine::{Attempt, Interest, Membership};
use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::ticket::BatchOutcome;
use bytes::Bytes;
use std::collections::VecDeque;
use unisono_core::{Event, JoinFailure, LeaveError, MessageNumber, Phase, SendError, Seqno, Standing, Time};

/// Most events that one call takes.
pub(crate) const EVENTS_MAX: usize = 1024;
/// So many bytes may wait for more to go along while others of theirs are under way.
const GATHERED_BYTES_MAX: usize = 16 << 10;
/// Most messages that are given to the core in one go.
const HANDFUL_MAX: usize = 1024;
/// And their bytes, but for the last one's.
const HANDFUL_BYTES_MAX: usize = 1 << 20;

/// Waits until the member is in.
pub(crate) fn enter(member: &mut Membership) -> Attempt<Result<(), OpenError>> {
    let failure = match member.peek() {
        Some(Event::JoinFailed { reason }) => Some(*reason),
        Some(_) => None,
        None => return Attempt::Wait(Interest::Event),
    };
    if let Some(address) = member.could_not_ask() {
        // There may be a group: it is not founded a second time, nor said to be missing.
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

/// Waits for an event and takes all that are there.
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
        // While the application deals with many, the others are to go on.
        (count, _) => Attempt::Done(Ok(count)),
    }
}

/// A message that waits for room in the window.
pub(crate) struct Message {
    pub(crate) payload: Bytes,
    pub(crate) resilience: Option<u8>,
}

impl Message {
    /// Gives the message to the core.
    fn give(&self, member: &mut Membership, now: Time) -> Result<MessageNumber, SendError> {
        if member.is_overdue() {
            // The core may still hope for the end of a reset.
            return Err(SendError::Left);
        }
        let payload = self.payload.clone();
        match self.resilience {
            None => member.group.send(now, payload),
            Some(resilience) => member.group.send_resilient(now, payload, resilience),
        }
    }

    /// Waits for room; `obstacle` is what it waits for.
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
            Ok(number) => {
                member.outcomes.expect(number);
                member.gathered_bytes += self.payload.len();
                // What is under way brings an answer, and with it the occasion to send these along with
                // others.
                if alone || member.gathered_bytes > GATHERED_BYTES_MAX {
                    Attempt::Done(Ok(number))
                } else {
                    Attempt::Gathered(Ok(number))
                }
            }
        }
    }

    /// Waits for room, then for the message's place. `number` is where it stands in between; `obstacle` is why it has no
    /// number yet.
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
            Ok(given) => {
                member.outcomes.expect(given);
                *number = Some(given);
                Attempt::Given
            }
        }
    }
}

/// The message has to wait: for room, for the end of a reset, or for a founder that gave way to an older group to
/// be in that one. Room that only this member's own receiving could make is waited for for a while: it may have another
/// thread for that.
fn passes(member: &Membership, error: SendError) -> bool {
    match error {
        SendError::WindowFull | SendError::Resetting | SendError::NotMember => true,
        SendError::NotReceiving => !member.is_not_receiving(),
        // Too large, no longer a member, or an error that this version does not know: the caller is told.
        _ => false,
    }
}

/// The next messages of many that are sent together: so many as can be given in one go. Their iterator is the caller's,
/// and may take as long as it likes, use this very group, or panic: the engine is not locked meanwhile.
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

/// Gives the core as many of the messages as there is room for, and waits until it has them all. Tells `given` of those
/// that were given together, each time, the number of the last.
pub(crate) fn submit_all(
    member: &mut Membership,
    now: Time,
    waiting: &mut VecDeque<Bytes>,
    mut given: impl FnMut(MessageNumber),
) -> Attempt<Result<(), SendError>> {
    let mut numbers = Vec::new();
    let result = loop {
        let Some(payload) = waiting.pop_front() else { break Attempt::Done(Ok(())) };
        let message = Message { payload, resilience: None };
        match message.give(member, now) {
            Err(error) if passes(member, error) => {
                waiting.push_front(message.payload);
                break if numbers.is_empty() { Attempt::Wait(Interest::Progress) } else { Attempt::Given };
            }
            Err(error) => break Attempt::Done(Err(error)),
            Ok(number) => numbers.push(number),
        }
    };
    member.outcomes.expect_all(numbers).into_iter().for_each(&mut given);
    result
}

/// Waits until it is known what became of the messages that end with this number.
pub(crate) fn outcome(member: &mut Membership, last: MessageNumber) -> Attempt<BatchOutcome> {
    match fate(member, last) {
        Some(outcome) => Attempt::Taken(outcome),
        None => Attempt::Wait(Interest::Outcome(last)),
    }
}

/// What became of the messages that end with this number, once that is known; or that it will not be, as long as nobody
/// here receives.
fn fate(member: &mut Membership, last: MessageNumber) -> Option<BatchOutcome> {
    let known = member.outcomes.take(last);
    if known.is_some() || !member.is_not_receiving() {
        return known;
    }
    member.outcomes.forget(last);
    Some(BatchOutcome { failure: Some(SendFailure::NotReceiving), ..BatchOutcome::default() })
}

/// Waits until the member's standing is another than `known`. [`Standing::Out`] does not change any more.
pub(crate) fn standing_after(member: &mut Membership, known: Standing) -> Attempt<Standing> {
    match member.standing() {
        standing if standing != known || standing == Standing::Out => Attempt::Done(standing),
        _ => Attempt::Wait(Interest::Standing),
    }
}

/// What became of a single message.
pub(crate) fn place(outcome: BatchOutcome) -> Result<Seqno, SendFailure> {
    outcome.failure.map_or(Ok(outcome.last), Err)
}

/// Leaves, and waits until nobody needs this member any more. `begun` is set once the leave has begun.
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
        // A member, a member in a reset or a leaving member; and any later phase, until it is overdue.
        _ => Attempt::Wait(Interest::Progress),
    }
}
