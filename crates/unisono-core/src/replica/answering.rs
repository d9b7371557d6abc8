//! A replica answers: requests of callers, commands and reads of its own process.

use super::reads::Read;
use super::replicated::{NO_ROOM, Replicated};
use super::waiting::Asked;
use super::{
    Answer, CommandFailure, Done, Durability, Kind, NO_COPY, Outcome, Output, Position, Replica, Server,
    StateMachine,
};
use crate::identity::{Member, Uid};
use crate::lanes::is_costly;
use crate::planted::Planted;
use crate::quality::Quality;
use crate::rpc::{CallNumber, Request, RequestId};
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Cost of the reads that one input has answered, about 0.2 ms, and of one more read.
const READ_COST_AT_ONCE: u32 = 16;
/// Their outcomes have about this many bytes at most, 1 MiB, and one more outcome.
const READ_BYTES_AT_ONCE: usize = 1 << 20;

/// Says nothing of earlier attempts at the call, one of which may have been executed elsewhere.
pub(super) const NO_READS: &[u8] =
    b"this service was founded with the durability `ordered`, which has local reads only; nothing happened";
/// Likewise.
pub(super) const NO_QUORUMS: &[u8] =
    b"quality majority and total mean nothing in this service, of which two parts may go on: \
      its group was founded with a quorum of half of its members or fewer; nothing happened";
/// Likewise.
pub(super) const BUSY: &[u8] =
    b"busy: too many bytes of commands wait here for their outcomes; try again later; nothing happened";
/// Likewise: the client then knows that the outcome is unknown.
const TOO_MANY_REPEATS: &[u8] =
    b"busy: more repeats of refused commands arrive here than are ordered in a second; try again \
    later; nothing happened";
/// Likewise.
pub(super) fn waits_too_long(most: Duration) -> Bytes {
    let seconds = most.as_secs();
    alloc::format!("a command waits for {seconds} s at most: call with a shorter deadline; nothing happened")
        .into()
}

pub(super) const NOT_WAITED_FOR: &[u8] = b"the client does not wait for the outcome of this call any longer";

impl<S: StateMachine> Replica<S> {
    pub(super) fn conclude(
        &mut self,
        client: Uid,
        call: CallNumber,
        position: Position,
        outcome: Option<Outcome>,
    ) {
        let Some(waiting) = self.waiting.take(client, call) else { return };
        if let (Some(source), Some(state)) = (waiting.source, &mut self.replicated) {
            state.note_source(client, source);
        }
        let outcome = outcome.unwrap_or(Outcome::Refuse(Bytes::from_static(NOT_WAITED_FOR)));
        if let Some(number) = waiting.own {
            let done = match outcome.clone() {
                Outcome::Reply(reply) => Ok(Done { reply, position }),
                Outcome::Refuse(reason) => Err(CommandFailure::Refused(reason)),
                Outcome::Pass(word) => Ok(Done { reply: self.taken_over(&word), position }),
                Outcome::Handler(name, word) if self.handler_holder(&name) == Some(self.me) => {
                    Ok(Done { reply: self.taken_over(&word), position })
                }
                Outcome::Handler(handler, _) => Err(CommandFailure::OfHandler { handler, position }),
            };
            self.outputs.push_back(Output::Done(number, done));
        }
        for asked in waiting.requests {
            self.answer(asked, &outcome);
        }
        self.submit_in_turn();
    }

    /// Answers a request whose client does not wait any longer: until then it has a place in the queue of requests.
    pub(super) fn give_up(&mut self, id: RequestId) {
        self.outputs.push_back(Output::Answer(id, Answer::Refuse(Bytes::from_static(NOT_WAITED_FOR))));
    }

    /// Answers a request with an outcome. A request that is passed on is answered by the next member that has the state,
    /// or here if there is none; one for a handler by the handler's holder.
    pub(super) fn answer(&mut self, asked: Asked, outcome: &Outcome) {
        match (outcome, &asked.handler) {
            (Outcome::Handler(handler, _), _) => return self.answer_by_holder(asked, handler, outcome),
            (Outcome::Reply(_) | Outcome::Pass(_), Some(handler)) => {
                let handler = handler.clone();
                return self.answer_by_holder(asked, &handler, outcome);
            }
            _ => {}
        }
        let answer = match outcome {
            Outcome::Reply(reply) => asked.replied(reply.clone()),
            Outcome::Refuse(reason) => Answer::Refuse(reason.clone()),
            Outcome::Pass(word) | Outcome::Handler(_, word) => match self.others().first() {
                Some(other) if asked.hops == 0 => Answer::Forward(other.address),
                _ => asked.replied(self.taken_over(word)),
            },
        };
        self.outputs.push_back(Output::Answer(asked.id, answer));
    }

    pub(super) fn taken_over(&self, word: &Bytes) -> Bytes {
        let (Some(state), Some(view)) = (&self.replicated, &self.view) else { return word.clone() };
        let me = view.get(self.me).map(Server::from);
        me.map_or_else(|| word.clone(), |me| state.machine().take_over(word, &me))
    }

    /// Sends a request that this member cannot answer to another one that has the state.
    pub(super) fn pass_on(&mut self, id: RequestId, turn: usize) {
        let others = self.others();
        let answer = match others.get(turn % others.len().max(1)) {
            Some(other) => Answer::Forward(other.address),
            None => Answer::NoCopy,
        };
        self.outputs.push_back(Output::Answer(id, answer));
    }

    /// Returns the other members that have the state, beginning with the next by rank.
    pub(super) fn others(&self) -> Vec<Member> {
        let Some(view) = &self.view else { return Vec::new() };
        let own = view.members.iter().position(|member| member.uid == self.me).unwrap_or(0);
        let (before, after) = view.members.split_at(own);
        let has_state =
            |member: &&Member| self.replicated.as_ref().is_none_or(|state| state.is_copy(member.uid));
        let others = after.iter().chain(before).filter(|member| member.uid != self.me);
        others.filter(has_state).cloned().collect()
    }

    // --- commands that are refused before they are ordered ---

    /// Looks at a command, or at the beginning of a large one, with the state that is here. One that this state refuses waits
    /// like a read for a confirmed state, which is asked again; any other is let through at once, and so are a few repeats whose
    /// outcomes are not known here.
    pub(super) fn look_at(&mut self, request: Request) {
        let refusal = match self.looks_at(&request) {
            true => self.refusal_of(&request),
            false => None,
        };
        match refusal {
            Some(_) if self.takes_repeat(&request) => self.let_repeat_through(request),
            Some(refusal) if self.watched.broken(Planted::RefusedUnconfirmed) => {
                self.answer_judged(&request, &refusal);
            }
            Some(_) => {
                self.reads.add_request(request);
                self.ask_for_confirmation();
            }
            None => self.let_through(request),
        }
    }

    /// Orders a command that is not refused; lets the rest come of one whose beginning is not.
    fn let_through(&mut self, request: Request) {
        match request.whole_bytes {
            Some(_) => {
                let shows_right = self.shows_right(&request);
                self.outputs.push_back(Output::Answer(request.id, Answer::GoOn { shows_right }));
            }
            None => self.order(request),
        }
    }

    /// The same with a repeat that the state refuses: the service's own quality is enough to learn its outcome. What was executed
    /// earlier lies below in the order, and is held as its caller asked before anything above it is applied.
    fn let_repeat_through(&mut self, mut request: Request) {
        if let Some(wishes) = &mut request.wishes {
            wishes.quality = Quality::ORDERED;
        }
        request.again = true;
        self.let_through(request);
    }

    /// True if a command asks for a quality by quorum, which the group refuses.
    pub(super) fn lacks_quorums_for(&self, request: &Request) -> bool {
        let asks = request.wishes.as_ref().is_some_and(|wishes| wishes.quality.is_by_quorum());
        asks && !self.settings.quorums_intersect && self.settings.durability == Durability::Ordered
    }

    /// True if a command may be refused before it is ordered: the state can be confirmed, and nothing here waits for an
    /// outcome of the command. A large one may be another command under the same number, so its beginning says what it is.
    fn looks_at(&self, request: &Request) -> bool {
        self.settings.durability.has_linearizable_reads()
            && (request.whole_bytes.is_some() || !self.waiting.has(request.client, request.call))
            && !self.watched.broken(Planted::CapabilityUnlooked)
    }

    fn refusal_of(&self, request: &Request) -> Option<Outcome> {
        self.replicated.as_ref().and_then(|state| state.refuses(request))
    }

    fn is_repeat(&self, request: &Request) -> bool {
        self.replicated.as_ref().is_some_and(|state| state.is_repeat(request, self.watched))
    }

    /// Returns the outcome of an earlier attempt at a command, if one is known here.
    fn known_outcome(&self, request: &Request) -> Option<Outcome> {
        let state = self.replicated.as_ref().filter(|_| self.is_repeat(request))?;
        state.remembered_outcome(request.client, request.call)
    }

    /// True if a command that the state refuses is a repeat whose outcome is not known here, and may be ordered.
    fn takes_repeat(&mut self, request: &Request) -> bool {
        self.is_repeat(request)
            && self.known_outcome(request).is_none()
            && self.repeats.take(self.now, request)
    }

    /// Answers a command that waited for a confirmed state, or lets it through.
    fn serve_command(&mut self, request: Request) {
        let is_repeat = self.is_repeat(&request);
        let known = self.known_outcome(&request);
        let outcome = match self.refusal_of(&request) {
            // It has taken effect, whatever the state and the handlers are now.
            _ if let Some(known) = known => return self.answer_judged(&request, &known),
            _ if !is_repeat && request.whole_bytes.is_none() && self.lacks_holder(&request) => {
                return self.refuse_for_want_of_holder(&request);
            }
            // Something was answered since that lets it through.
            None => return self.let_through(request),
            Some(_) if self.takes_repeat(&request) => return self.let_repeat_through(request),
            // An earlier attempt may take effect yet, and this refusal says nothing of it.
            Some(_) if is_repeat => Outcome::Refuse(Bytes::from_static(TOO_MANY_REPEATS)),
            Some(refusal) => return self.answer_judged(&request, &refusal),
        };
        self.answer(Asked::of(&request), &outcome);
    }

    /// Orders a caller's command.
    fn order(&mut self, request: Request) {
        if !self.waiting.has_room_for(&request) {
            let refusal = Outcome::Refuse(Bytes::from_static(BUSY));
            return self.answer(Asked::of(&request), &refusal);
        }
        let has_share = |state: &Replicated<S>| state.has_share_for(&request);
        let waits = self.waiting.has(request.client, request.call);
        if !waits && !self.replicated.as_ref().is_some_and(has_share) {
            let refusal = Outcome::Refuse(Bytes::from_static(NO_ROOM));
            return self.answer(Asked::of(&request), &refusal);
        }
        let cost = S::cost(&request.payload);
        // Neither a repeat nor one more request for a command that waits was admitted.
        let is_denied = (waits || request.again) && !self.shows_right(&request);
        self.waiting.add_request(request, cost, is_denied);
        self.submit_in_turn();
    }

    /// Submits callers' commands whose turn it is.
    pub(super) fn submit_in_turn(&mut self) {
        while !self.is_stopped
            && let Some(command) = self.waiting.take_turn(self.now)
        {
            self.submit_command(command);
        }
    }

    // --- reads ---

    pub(super) fn read(&self, query: &Bytes) -> Outcome {
        match self.machine() {
            Some(machine) => machine.read(query),
            None => Outcome::Refuse(Bytes::from_static(NO_COPY)),
        }
    }

    pub(super) fn ask_for_confirmation(&mut self) {
        if self.replicated.is_none() || self.is_stopped {
            return;
        }
        if self.watched.broken(Planted::ReadUnconfirmed) {
            let at = self.replicated.as_ref().map_or(0, Replicated::at);
            if self.reads.begin_confirmation() {
                self.reads.confirmed(at);
                self.serve_reads();
            }
            return;
        }
        if self.reads.begin_confirmation() {
            self.outputs.push_back(Output::Confirm);
        }
    }

    /// Serves the reads whose point in the order has been applied, but for costly ones: an honest command is many inputs, and
    /// would wait for a costly read at each of them.
    pub(super) fn serve_reads(&mut self) {
        self.serve_reads_of(true);
    }

    /// The same; costly ones too if they need not wait.
    pub(super) fn serve_reads_of(&mut self, costly_ones_wait: bool) {
        self.serves_at = None;
        if !self.reads.has_confirmed() {
            return;
        }
        if self.watched.broken(Planted::ReadShowsUndurable) {
            self.apply_durable(true);
        }
        let Some(state) = &self.replicated else { return };
        let (at, position) = (state.at(), state.position());
        let places = state.ledger().map(|ledger| (ledger.end(), ledger.applied()));
        while self.may_answer()
            && let Some(read) = self.reads.take_ready(at)
        {
            match places {
                // What this member held may have been answered elsewhere, and is shown only once it is durable.
                Some((held, applied)) if held > applied => {
                    self.reads.hold(held, read);
                }
                _ => self.note_ready(read),
            }
        }
        while let Some(read) = places.and_then(|(_, applied)| self.reads.take_held(applied)) {
            self.note_ready(read);
        }
        while let Some(number) = self.reads.take_reached(position) {
            self.outputs.push_back(Output::Ready(number));
        }
        self.serve_ready(costly_ones_wait);
    }

    fn note_ready(&mut self, read: Read) {
        match read {
            Read::Own(number) => self.outputs.push_back(Output::Ready(number)),
            Read::Request(request) => self.note_ready_request(request),
        }
    }

    fn note_ready_request(&mut self, request: Request) {
        let cost = S::cost(&request.payload);
        self.reads.note_ready(request, cost);
    }

    /// Answers a read of this member's own state. A costly one waits for its turn, which it has when the requests that came with it
    /// are handled.
    pub(super) fn read_locally(&mut self, request: Request) {
        if is_costly(S::cost(&request.payload)) {
            self.note_ready_request(request);
            self.serves_at = Some(self.now);
            self.tidy_by(self.now);
        } else {
            let outcome = self.read(&request.payload);
            self.answer_judged(&request, &outcome);
        }
    }

    /// Answers a read, or refuses a command before the order, and notes whether it showed a right.
    fn answer_judged(&mut self, request: &Request, outcome: &Outcome) {
        let is_denied = !self.shows_right(request);
        self.answer(Asked { is_denied, ..Asked::of(request) }, outcome);
    }

    fn shows_right(&self, request: &Request) -> bool {
        self.machine().is_none_or(|machine| machine.shows_right(&request.payload))
    }

    /// Answers requests whose turn it is: a few at a time, since everything else waits meanwhile. The others follow at once,
    /// by the timeout of `serves_at`.
    fn serve_ready(&mut self, costly_ones_wait: bool) {
        let (mut cost, mut bytes) = (0, 0);
        while cost < READ_COST_AT_ONCE
            && bytes < READ_BYTES_AT_ONCE
            && let Some(request) = self.reads.take_turn(costly_ones_wait)
        {
            cost += S::cost(&request.payload);
            bytes += self.serve_request(request);
        }
        self.serves_at = self.reads.has_ready().then_some(self.now);
    }

    /// Answers a read, or a command that waited for a confirmed state. Returns the length of a read's outcome.
    fn serve_request(&mut self, request: Request) -> usize {
        if request.whole_bytes.is_some() || S::kind(&request.payload) == Kind::Command {
            self.serve_command(request);
            return 0;
        }
        if self.lacks_holder(&request) {
            self.refuse_for_want_of_holder(&request);
            return 0;
        }
        let outcome = self.read(&request.payload);
        self.answer_judged(&request, &outcome);
        match outcome {
            Outcome::Reply(bytes) | Outcome::Refuse(bytes) => bytes.len(),
            Outcome::Pass(_) | Outcome::Handler(..) => 0,
        }
    }
}
